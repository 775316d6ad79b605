//! Calls on GPUs between hosts. Their data goes through NCCL at once, and nobody waits for other hosts first. Instead
//! each host's leader posts a note of each call to the other leaders (to the next one where there are many), on
//! connections of their own, and a thread ([`watch`](super::watch)) compares the notes that come with those of this
//! host. Hosts that call different things
//! find out some milliseconds later, which ends the group: NCCL by itself would hang, or mix up numbers.
//!
//! Once a group has notes all of its calls are noted, also those on the CPU: a host may be in one of these while
//! another one is in NCCL.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;
use smallvec::SmallVec;
use torchrs_links::{Call, Heard, Notes};

use super::engine::encryption;
use super::rail::{GRACE, fingerprint, read_fingerprint};
use super::{HostsBackend, watch};
use crate::distributed::Deadline;
use crate::distributed::collective::{Pace, Signature};
use crate::distributed::ranks::join_some;
use crate::distributed::shm::{AbortRecord, Cause, Turn, describe};
use crate::error::Result;

/// A leader's notes.
pub(super) struct Noted {
    /// Calls that nobody has been told of yet.
    outbox: Mutex<Vec<Own>>,
    told: Mutex<Told>,
}

struct Told {
    line: Notes,
    book: Book,
}

/// A call of this host.
struct Own {
    number: u32,
    signature: Signature,
    fingerprint: Fingerprint,
}

type Fingerprint = SmallVec<[u8; 96]>;

/// What hosts have called. Knows no connections.
struct Book {
    /// Those of this host that not all others have come to.
    own: VecDeque<Own>,
    /// How many there were before them.
    before: usize,
    hosts: Vec<Theirs>,
}

/// What is known of another host.
#[derive(Default)]
struct Theirs {
    /// Calls to which this host has not come.
    ahead: VecDeque<Note>,
    /// With how many of its calls those of this host were compared.
    compared: usize,
    last: Option<Note>,
    state: State,
}

/// A note of another host: the call's number, and what it is.
type Note = (u64, Vec<u8>);

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Here,
    Left,
    /// The rail's connections say more.
    Gone,
    /// It is this host, or one whose notes go elsewhere.
    Unheard,
}

impl State {
    fn is_waited_for(self) -> bool {
        matches!(self, State::Here | State::Left)
    }
}

/// What is wrong with a call of this host.
enum Wrong<'a> {
    Differs { place: usize, own: &'a Own, theirs: Note },
    HasLeft { place: usize, own: &'a Own },
}

impl Book {
    /// Of the hosts, each of which is heard or not.
    fn new(heard: impl IntoIterator<Item = bool>) -> Self {
        let state = |is_heard| if is_heard { State::Here } else { State::Unheard };
        let host = |is_heard| Theirs { state: state(is_heard), ..Theirs::default() };
        Book { own: VecDeque::new(), before: 0, hosts: heard.into_iter().map(host).collect() }
    }

    fn hear(&mut self, place: usize, heard: Heard) {
        let theirs = &mut self.hosts[place];
        match heard {
            Heard::Note { number, fingerprint } => {
                theirs.last = Some((number, fingerprint.clone()));
                theirs.ahead.push_back((number, fingerprint));
            }
            Heard::Left => theirs.state = State::Left,
            Heard::Gone(_) => theirs.state = State::Gone,
        }
    }

    /// Compares what can be compared, and forgets it.
    fn compare(&mut self) -> Option<Wrong<'_>> {
        let mut wrong = None;
        for (place, theirs) in self.hosts.iter_mut().enumerate() {
            while let Some(own) = self.own.get(theirs.compared - self.before) {
                let Some((number, bytes)) = theirs.ahead.pop_front() else {
                    if theirs.state == State::Left {
                        wrong.get_or_insert((place, theirs.compared, None));
                    }
                    break;
                };
                if (number, &bytes[..]) != (u64::from(own.number), &own.fingerprint[..]) {
                    wrong.get_or_insert((place, theirs.compared, Some((number, bytes))));
                }
                theirs.compared += 1;
            }
        }
        if let Some((place, which, theirs)) = wrong {
            let own = self.own.get(which - self.before)?;
            return Some(match theirs {
                Some(theirs) => Wrong::Differs { place, own, theirs },
                None => Wrong::HasLeft { place, own },
            });
        }
        let waited_for = self.hosts.iter().filter(|theirs| theirs.state.is_waited_for());
        let all = self.before + self.own.len();
        let done = waited_for.map(|theirs| theirs.compared).min().unwrap_or(all);
        self.own.drain(..done - self.before);
        self.before = done;
        // Who is gone is not waited for.
        self.hosts.iter_mut().for_each(|theirs| theirs.compared = theirs.compared.max(done));
        None
    }
}

impl HostsBackend {
    /// Begins to note calls. All members call it at the same place of the group's calls.
    pub(in crate::distributed) fn open_notes(&self, deadline: &Deadline) -> Result<()> {
        encryption::allows_nccl(self.world.encryption)?;
        if self.layout.is_leader() {
            let line = self.settle(self.connect_notes(deadline))?;
            let book = Book::new((0..self.layout.hosts.len()).map(|place| line.hears(place)));
            let told = Mutex::new(Told { line, book });
            let noted = Noted { outbox: Mutex::default(), told };
            *self.notes.lock() = Some(Arc::new(noted));
        }
        self.has_notes.store(true, SeqCst);
        Ok(())
    }

    fn connect_notes(&self, deadline: &Deadline) -> Result<Notes> {
        let doing = || format!("rank {} connects with other hosts to use GPUs", self.me());
        let connected = self.connect_members(0, "notes", deadline).and_then(|mut links| {
            let watch = || self.local.has_failed().then(|| self.reason());
            let deadline = Deadline::after(deadline.remaining() + GRACE);
            let call = Call { number: 0, fingerprint: b"notes", deadline, watch: &watch };
            links.barrier(&call).map(|()| links)
        });
        connected.map(Notes::new).map_err(|failure| self.explain(failure, deadline, doing, None))
    }

    /// Enters the next call with the members of this host, which is all that a call on a GPU has to wait for.
    pub(in crate::distributed) fn meet_on_gpu(
        &self,
        signature: &Signature,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        let is_noted = self.has_notes.load(SeqCst);
        self.settle(self.enter_turn(signature, [None, None], deadline, pace).and_then(
            |mut turn| {
                if !is_noted {
                    // The first one, which has to wait for the others anyway.
                    self.arrive(&mut turn)?;
                }
                turn.complete();
                Ok(())
            },
        ))
    }

    /// Posts a note of a call, if this host's leader does and the group has notes.
    pub(super) fn note(&self, turn: &Turn<'_>) {
        let Some(notes) = self.notes.lock().clone() else { return };
        let signature = turn.signature().clone();
        let fingerprint = fingerprint(&signature);
        notes.outbox.lock().push(Own { number: turn.number(), signature, fingerprint });
        watch::wake();
    }

    /// Tells other hosts of this one's calls, and compares theirs. Waits for nothing. Whether there are calls to which
    /// others have not come.
    pub(super) fn compare_notes(&self) -> bool {
        let Some(notes) = self.notes.lock().clone() else { return false };
        let mut told = notes.told.lock();
        let Told { line, book } = &mut *told;
        let new = std::mem::take(&mut *notes.outbox.lock());
        if !new.is_empty() {
            line.post(new.iter().map(|own| (u64::from(own.number), &own.fingerprint[..])));
            book.own.extend(new);
        }
        line.take(|place, heard| book.hear(place, heard));
        if self.local.has_failed() {
            return false;
        }
        let Some(wrong) = book.compare() else { return !book.own.is_empty() };
        let (me, pid) = (self.me(), std::process::id() as i32);
        let record = match wrong {
            Wrong::Differs { place, own, theirs: (number, theirs) } => {
                let own = Some((own.number, &own.signature));
                let reason = self.difference(place, number, &theirs, own);
                AbortRecord { cause: Cause::Mismatched, rank: me, pid, reason }
            }
            Wrong::HasLeft { place, own } => {
                let (name, number) = (self.name_of(place), own.number);
                let reason =
                    format!("{name} has left the process group before collective {number}");
                AbortRecord { cause: Cause::Elsewhere, rank: self.counterpart(place), pid, reason }
            }
        };
        self.local.fail(record);
        false
    }

    /// Ends the notes of this host, of which others hear all. One that has failed does not leave in peace.
    pub(super) fn end_notes(&self) {
        self.compare_notes();
        let notes = self.notes.lock().take();
        if let Some(notes) = notes.filter(|_| self.local.has_failed()) {
            notes.told.lock().line.give_up(&self.reason());
        }
    }

    /// The last call of each host that this one hears.
    pub(in crate::distributed) fn conditions(&self) -> String {
        let Some(notes) = self.notes.lock().clone() else { return String::new() };
        let told = notes.told.lock();
        let one = |(place, theirs): (usize, &Theirs)| {
            let last = match &theirs.last {
                None => "no call since the first on a GPU".to_owned(),
                Some((number, bytes)) => {
                    let call = describe(read_fingerprint(bytes).map(|(call, _)| call));
                    format!("last collective {number}, {call}")
                }
            };
            format!("{}: {last}", self.name_of(place))
        };
        let others = told.book.hosts.iter().enumerate();
        let others: Vec<_> = others.filter(|(_, theirs)| theirs.state != State::Unheard).collect();
        join_some(others.into_iter().map(one), "; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::collective::Kind;

    fn own(number: u32, shape: &[usize]) -> Own {
        let signature = Signature::of_host(Kind::AllReduce, shape);
        let fingerprint = fingerprint(&signature);
        Own { number, signature, fingerprint }
    }

    fn note(number: u32, shape: &[usize]) -> Heard {
        let Own { number, fingerprint, .. } = own(number, shape);
        Heard::Note { number: number.into(), fingerprint: fingerprint.to_vec() }
    }

    #[test]
    fn calls_are_compared_in_their_order_whoever_is_first() {
        let mut book = Book::new([true, false, true]);
        (0..3).for_each(|number| book.hear(0, note(number, &[number as usize])));
        assert!(book.compare().is_none());
        book.own.push_back(own(0, &[0]));
        book.own.push_back(own(1, &[1]));
        assert!(book.compare().is_none());
        assert_eq!((book.own.len(), book.hosts[0].compared, book.hosts[0].ahead.len()), (2, 2, 1));
        book.hear(2, note(0, &[0]));
        assert!(book.compare().is_none());
        assert_eq!((book.own.len(), book.before), (1, 1));
        book.hear(2, note(1, &[7]));
        let Some(Wrong::Differs { place: 2, own, theirs: (1, _) }) = book.compare() else {
            panic!("host 2 differs in call 1")
        };
        assert_eq!(own.number, 1);
    }

    #[test]
    fn another_number_differs_and_who_has_left_is_missed() {
        let mut book = Book::new([false, true]);
        book.own.push_back(own(4, &[1]));
        book.hear(1, note(5, &[1]));
        assert!(matches!(book.compare(), Some(Wrong::Differs { place: 1, .. })));

        let mut book = Book::new([false, true]);
        book.hear(1, note(4, &[1]));
        book.hear(1, Heard::Left);
        assert!(book.compare().is_none());
        book.own.push_back(own(4, &[1]));
        assert!(book.compare().is_none() && book.own.is_empty());
        book.own.push_back(own(5, &[1]));
        assert!(matches!(book.compare(), Some(Wrong::HasLeft { place: 1, .. })));
    }

    #[test]
    fn nobody_waits_for_who_is_gone() {
        let mut book = Book::new([false, true, true]);
        book.hear(1, Heard::Gone("it closed its connection".into()));
        book.own.push_back(own(4, &[1]));
        book.hear(2, note(4, &[1]));
        assert!(book.compare().is_none() && book.own.is_empty());
        book.own.push_back(own(5, &[1]));
        book.hear(2, note(5, &[1]));
        assert!(book.compare().is_none() && book.own.is_empty());
    }
}
