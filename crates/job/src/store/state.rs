//! What the store server knows, and what it answers: a map and the requests that wait for keys.
//! No sockets, no clock, no threads, so every behaviour can be tested as a sequence of calls.

use std::collections::HashMap;

use super::wire::{Reply, Request, Violation};

/// A connection's number, given by the server.
pub(super) type ConnectionId = u64;

/// An answer for the server to send. `F` is a file descriptor.
#[derive(Debug, PartialEq)]
pub(super) struct Outgoing<F> {
    pub to: ConnectionId,
    pub id: u64,
    pub reply: Reply,
    pub fds: Vec<F>,
}

#[derive(Debug)]
enum Entry<F> {
    Value(Vec<u8>),
    Fds(Vec<F>),
}

/// A request that is answered when the last of its keys appears.
#[derive(Debug)]
struct Waiter {
    from: ConnectionId,
    id: u64,
    missing: Vec<String>,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Done,
    Value(String),
    Fds(String),
}

/// The store's contents and its waiting requests.
#[derive(Debug)]
pub(super) struct StoreState<F> {
    entries: HashMap<String, Entry<F>>,
    waiters: Vec<Waiter>,
}

impl<F> Default for StoreState<F> {
    fn default() -> Self {
        StoreState { entries: HashMap::new(), waiters: Vec::new() }
    }
}

impl<F: Clone> StoreState<F> {
    /// Carries out one request and adds to `out` all the answers that it causes.
    ///
    /// # Errors
    /// A [`Violation`] when the request cannot come from a correct client; nothing has changed then.
    pub(super) fn apply(
        &mut self,
        from: ConnectionId,
        id: u64,
        request: Request<'_>,
        fds: Vec<F>,
        out: &mut Vec<Outgoing<F>>,
    ) -> Result<(), Violation> {
        let expected = if let Request::SetFds { count, .. } = request { count as usize } else { 0 };
        if fds.len() != expected {
            return Err(Violation("another number of descriptors than announced"));
        }
        let mut reply = |reply| out.push(Outgoing { to: from, id, reply, fds: Vec::new() });
        match request {
            Request::Set { key, value } => {
                reply(Reply::Done);
                self.insert(key, Entry::Value(value.to_vec()), out);
            }
            Request::SetFds { key, .. } => {
                reply(Reply::Done);
                self.insert(key, Entry::Fds(fds), out);
            }
            Request::Get { key } => {
                self.wait(from, id, &[key], Answer::Value(key.to_owned()), out)?;
            }
            Request::GetFds { key } => {
                self.wait(from, id, &[key], Answer::Fds(key.to_owned()), out)?;
            }
            Request::Wait { keys } => self.wait(from, id, &keys, Answer::Done, out)?,
            Request::TryGet { key } => reply(match self.entries.get(key) {
                None => Reply::Missing,
                Some(Entry::Value(value)) => Reply::Value(value.clone()),
                Some(Entry::Fds(_)) => refuse_fds(key),
            }),
            Request::Add { key, amount } => match self.counter(key) {
                Ok(count) => {
                    let sum = count.wrapping_add(amount);
                    reply(Reply::Number(sum));
                    self.insert(key, Entry::Value(sum.to_string().into_bytes()), out);
                }
                Err(refusal) => reply(refusal),
            },
            Request::CompareSet { key, expected, desired } => {
                let current = match self.entries.get(key) {
                    None => None,
                    Some(Entry::Value(value)) => Some(value.as_slice()),
                    Some(Entry::Fds(_)) => {
                        reply(refuse_fds(key));
                        return Ok(());
                    }
                };
                if current == expected {
                    reply(Reply::Value(desired.to_vec()));
                    self.insert(key, Entry::Value(desired.to_vec()), out);
                } else {
                    reply(current.map_or(Reply::Missing, |value| Reply::Value(value.to_vec())));
                }
            }
            Request::Delete { key } => reply(Reply::Deleted(self.entries.remove(key).is_some())),
            Request::Cancel { id } => self.waiters.retain(|w| (w.from, w.id) != (from, id)),
        }
        Ok(())
    }

    /// Forgets a connection: what it waited for, not what it set.
    pub(super) fn disconnect(&mut self, connection: ConnectionId) {
        self.waiters.retain(|w| w.from != connection);
    }

    fn counter(&self, key: &str) -> Result<i64, Reply> {
        match self.entries.get(key) {
            None => Ok(0),
            Some(Entry::Fds(_)) => Err(refuse_fds(key)),
            Some(Entry::Value(value)) => std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| {
                    let shown: String = String::from_utf8_lossy(value).chars().take(40).collect();
                    Reply::Refused(format!("key `{key}` holds `{shown}`, which is not a counter"))
                }),
        }
    }

    fn wait(
        &mut self,
        from: ConnectionId,
        id: u64,
        keys: &[&str],
        answer: Answer,
        out: &mut Vec<Outgoing<F>>,
    ) -> Result<(), Violation> {
        if self.waiters.iter().any(|w| (w.from, w.id) == (from, id)) {
            return Err(Violation("a request number that is still in use"));
        }
        let missing = keys.iter().filter(|&&k| !self.entries.contains_key(k));
        let missing: Vec<String> = missing.map(|&k| k.to_owned()).collect();
        let waiter = Waiter { from, id, missing, answer };
        if waiter.missing.is_empty() {
            out.push(self.answer(&waiter));
        } else {
            self.waiters.push(waiter);
        }
        Ok(())
    }

    fn insert(&mut self, key: &str, entry: Entry<F>, out: &mut Vec<Outgoing<F>>) {
        self.entries.insert(key.to_owned(), entry);
        for waiter in &mut self.waiters {
            waiter.missing.retain(|k| k != key);
        }
        for waiter in self.waiters.extract_if(.., |w| w.missing.is_empty()).collect::<Vec<_>>() {
            out.push(self.answer(&waiter));
        }
    }

    fn answer(&self, waiter: &Waiter) -> Outgoing<F> {
        let (reply, fds) = match &waiter.answer {
            Answer::Done => (Reply::Done, Vec::new()),
            Answer::Value(key) => match self.entries.get(key) {
                Some(Entry::Value(value)) => (Reply::Value(value.clone()), Vec::new()),
                Some(Entry::Fds(_)) => (refuse_fds(key), Vec::new()),
                None => (Reply::Missing, Vec::new()),
            },
            Answer::Fds(key) => match self.entries.get(key) {
                Some(Entry::Fds(fds)) => (Reply::Fds, fds.clone()),
                Some(Entry::Value(_)) => {
                    let why = format!("key `{key}` holds bytes, not file descriptors");
                    (Reply::Refused(why), Vec::new())
                }
                None => (Reply::Missing, Vec::new()),
            },
        };
        Outgoing { to: waiter.from, id: waiter.id, reply, fds }
    }
}

fn refuse_fds(key: &str) -> Reply {
    Reply::Refused(format!("key `{key}` holds file descriptors, not bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Descriptors are stood in for by numbers.
    type State = StoreState<u32>;

    fn ask(state: &mut State, from: u64, id: u64, request: Request) -> Vec<Outgoing<u32>> {
        let mut out = Vec::new();
        state.apply(from, id, request, Vec::new(), &mut out).unwrap();
        out
    }

    fn answer(to: u64, id: u64, reply: Reply) -> Outgoing<u32> {
        Outgoing { to, id, reply, fds: Vec::new() }
    }

    #[test]
    fn a_get_waits_for_the_key_and_wakes_with_its_value() {
        let mut state = State::default();
        assert_eq!(ask(&mut state, 1, 10, Request::Get { key: "k" }), vec![]);
        let out = ask(&mut state, 2, 20, Request::Set { key: "k", value: b"v" });
        let value = Reply::Value(b"v".to_vec());
        assert_eq!(out, vec![answer(2, 20, Reply::Done), answer(1, 10, value)]);
    }

    #[test]
    fn a_wait_needs_all_its_keys() {
        let mut state = State::default();
        let keys = || Request::Wait { keys: vec!["a", "b"] };
        assert_eq!(ask(&mut state, 1, 1, keys()), vec![]);
        assert_eq!(ask(&mut state, 2, 1, Request::Add { key: "a", amount: 3 }).len(), 1);
        assert_eq!(ask(&mut state, 2, 2, Request::Set { key: "b", value: b"" }).len(), 2);
        assert_eq!(ask(&mut state, 1, 2, keys()), vec![answer(1, 2, Reply::Done)]);
    }

    #[test]
    fn descriptors_are_kept_and_given_to_everyone_who_asks() {
        let mut state = State::default();
        assert_eq!(ask(&mut state, 1, 1, Request::GetFds { key: "f" }), vec![]);
        let mut out = Vec::new();
        let set = Request::SetFds { key: "f", count: 2 };
        state.apply(2, 1, set, vec![7, 8], &mut out).unwrap();
        let fds = |to, id| Outgoing { to, id, reply: Reply::Fds, fds: vec![7, 8] };
        assert_eq!(out, vec![answer(2, 1, Reply::Done), fds(1, 1)]);
        assert_eq!(ask(&mut state, 3, 1, Request::GetFds { key: "f" }), vec![fds(3, 1)]);
        let refused = ask(&mut state, 3, 2, Request::Get { key: "f" });
        assert!(matches!(&refused[0].reply, Reply::Refused(why) if why.contains("descriptors")));
    }

    #[test]
    fn another_number_of_descriptors_than_announced_is_a_violation() {
        let mut state = State::default();
        let set = Request::SetFds { key: "f", count: 2 };
        assert!(state.apply(1, 1, set, vec![7], &mut Vec::new()).is_err());
        let get = Request::Get { key: "f" };
        assert!(state.apply(1, 2, get, vec![7], &mut Vec::new()).is_err());
    }

    #[test]
    fn counters_add_up_and_other_values_are_refused() {
        let mut state = State::default();
        assert_eq!(
            ask(&mut state, 1, 1, Request::Add { key: "n", amount: 5 })[0].reply,
            Reply::Number(5)
        );
        assert_eq!(
            ask(&mut state, 1, 2, Request::Add { key: "n", amount: -7 })[0].reply,
            Reply::Number(-2)
        );
        assert_eq!(
            ask(&mut state, 1, 3, Request::TryGet { key: "n" })[0].reply,
            Reply::Value(b"-2".to_vec())
        );
        ask(&mut state, 1, 4, Request::Set { key: "n", value: b"word" });
        let refused = &ask(&mut state, 1, 5, Request::Add { key: "n", amount: 1 })[0].reply;
        assert!(matches!(refused, Reply::Refused(why) if why.contains("`word`")), "{refused:?}");
    }

    #[test]
    fn compare_set_changes_only_what_it_expects() {
        let mut state = State::default();
        let mut swap = |expected, desired| {
            let request = Request::CompareSet { key: "k", expected, desired };
            ask(&mut state, 1, 1, request).remove(0).reply
        };
        assert_eq!(swap(Some(b"a"), b"b"), Reply::Missing);
        assert_eq!(swap(None, b"a"), Reply::Value(b"a".to_vec()));
        assert_eq!(swap(None, b"z"), Reply::Value(b"a".to_vec()));
        assert_eq!(swap(Some(b"a"), b"b"), Reply::Value(b"b".to_vec()));
    }

    #[test]
    fn a_cancelled_or_disconnected_request_is_never_answered() {
        let mut state = State::default();
        ask(&mut state, 1, 1, Request::Get { key: "k" });
        ask(&mut state, 2, 1, Request::Get { key: "k" });
        ask(&mut state, 3, 1, Request::Get { key: "k" });
        assert_eq!(ask(&mut state, 1, 2, Request::Cancel { id: 1 }), vec![]);
        state.disconnect(2);
        let out = ask(&mut state, 4, 1, Request::Set { key: "k", value: b"" });
        assert_eq!(out.iter().map(|o| o.to).collect::<Vec<_>>(), vec![4, 3]);
    }

    #[test]
    fn a_request_number_in_use_is_a_violation() {
        let mut state = State::default();
        ask(&mut state, 1, 1, Request::Get { key: "k" });
        let again = state.apply(1, 1, Request::Get { key: "j" }, vec![], &mut Vec::new());
        assert!(again.is_err());
    }

    proptest! {
        /// Against a plain map: after any sequence of sets, deletes and waits, a wait was answered
        /// exactly once, and at the first moment at which all its keys existed.
        #[test]
        fn waits_are_answered_once_and_as_soon_as_they_can(
            steps in prop::collection::vec((0u8..4, 0usize..4, 0usize..4), 1..60)
        ) {
            const KEYS: [&str; 4] = ["a", "b", "c", "d"];
            let mut state = State::default();
            let mut present = std::collections::HashSet::new();
            let mut open: Vec<(u64, Vec<&str>)> = Vec::new();
            for (id, (what, i, j)) in steps.into_iter().enumerate() {
                let (id, key) = (id as u64, KEYS[i]);
                let (request, from) = match what {
                    0 => (Request::Set { key, value: b"x" }, 1),
                    1 => (Request::Delete { key }, 1),
                    _ => (Request::Wait { keys: vec![key, KEYS[j]] }, 2),
                };
                let out = ask(&mut state, from, id, request);
                match what {
                    0 => { present.insert(key); }
                    1 => { present.remove(key); }
                    _ => open.push((id, vec![key, KEYS[j]])),
                }
                if what == 0 {
                    for (_, keys) in &mut open {
                        keys.retain(|k| *k != key);
                    }
                } else if what >= 2 {
                    let last = open.last_mut().unwrap();
                    last.1.retain(|k| !present.contains(k));
                }
                let mut woken: Vec<u64> =
                    open.extract_if(.., |(_, keys)| keys.is_empty()).map(|(id, _)| id).collect();
                let mut answered: Vec<u64> =
                    out.iter().filter(|o| o.to == 2).map(|o| o.id).collect();
                woken.sort_unstable();
                answered.sort_unstable();
                prop_assert_eq!(answered, woken);
            }
        }
    }
}
