//! What a failure is on the other hosts. On its own host it is a record that all members see. A rail's connections
//! tell at once that there is one, and the job's store what it is: the first that is told stands.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::time::Duration;

use torchrs_links::Failure;

use super::HostsBackend;
use super::rail::{collective_of, read_fingerprint};
use crate::distributed::collective::Signature;
use crate::distributed::ranks::join_some;
use crate::distributed::shm::{AbortRecord, Cause, Turn, describe, who_does_what};
use crate::distributed::{Deadline, Store};
use crate::error::{Error, Result};

/// How long the store is asked what has happened, once another host has said that something has.
const TELLING: Duration = Duration::from_millis(300);
/// How long who has failed waits until the store knows why: its process may be about to end.
const TOLD: Duration = Duration::from_millis(200);

impl HostsBackend {
    /// Passes on how a call ended. A failure is that of all members, on all hosts.
    pub(super) fn settle<T>(&self, ended: Result<T>) -> Result<T> {
        if let Err(error) = &ended {
            let pid = std::process::id() as i32;
            let (cause, rank, reason) = match error {
                Error::Mismatch(why) => (Cause::Mismatched, self.me(), why.clone()),
                other => (Cause::Failed, self.local.rank(), other.to_string()),
            };
            // If the group has failed already that record stands.
            self.local.fail(AbortRecord { cause, rank, pid, reason });
            self.tell();
        }
        ended
    }

    /// Tells the other hosts that this one has failed, and why, if it has.
    pub(in crate::distributed) fn tell(&self) {
        let Some(record) = self.local.record_for_others() else { return };
        if self.told.swap(true, SeqCst) {
            return;
        }
        // A call that is under way looks itself.
        if let Some(engine) = self.rail.try_lock().as_mut().and_then(|rail| rail.as_mut()) {
            engine.give_up(&words_of(&record));
        }
        publish(&self.world.store, &self.failed, &record);
    }

    /// Why this host's members do not go on, in a few words.
    pub(super) fn reason(&self) -> String {
        self.local.record_for_others().map_or_else(String::new, |record| words_of(&record))
    }

    /// Takes over what another host has told in the store; whether it has.
    pub(super) fn ask_store(&self, limit: Duration) -> bool {
        let told = published(&self.world.store, &self.failed, limit);
        let Some(record) = told else { return false };
        self.local.fail(record);
        true
    }

    /// What a failure of the connections means, which ends the group on this host. `doing` says what this rank was
    /// at, and `turn` in which call.
    pub(super) fn explain(
        &self,
        failure: Failure,
        deadline: &Deadline,
        doing: impl Fn() -> String,
        turn: Option<&Turn<'_>>,
    ) -> Error {
        let doing = doing();
        let is_told = matches!(failure, Failure::PeerGone { .. });
        if self.local.has_failed() || is_told && self.ask_store(TELLING) {
            return self.local.aborted(&doing);
        }
        let (me, pid) = (self.me(), std::process::id() as i32);
        let (record, error) = match failure {
            Failure::TimedOut { waiting, .. } => {
                let names = waiting.iter().map(|&place| self.name_of(place));
                let reason = format!("{doing}; not there: {}", join_some(names, ", "));
                let (cause, rank) = (Cause::TimedOut, self.local.rank());
                let record = AbortRecord { cause, rank, pid, reason: reason.clone() };
                (record, Some(deadline.error(reason)))
            }
            Failure::Mismatch { place, number, theirs, .. } => {
                let own = turn.map(|turn| (turn.number(), turn.signature()));
                let reason = self.difference(place, collective_of(number), &theirs, own);
                (AbortRecord { cause: Cause::Mismatched, rank: me, pid, reason }, None)
            }
            Failure::PeerGone { place, how } => {
                let (rank, name) = (self.counterpart(place), self.name_of(place));
                let pid = self.world.members[rank].pid;
                let (cause, reason) = match how.strip_prefix("it ") {
                    Some(gave_up)
                        if how.starts_with("it gave up") || how.starts_with("it has left") =>
                    {
                        (Cause::Elsewhere, format!("{name} {gave_up}"))
                    }
                    _ => (Cause::DiedElsewhere, format!("on host {}: {how}", self.host_of(rank))),
                };
                (AbortRecord { cause, rank, pid, reason }, None)
            }
            other => {
                let reason = match &other {
                    Failure::Unreachable { place, .. } => {
                        format!("by rank {me}: no way to {}: {other}", self.name_of(*place))
                    }
                    other => format!("by rank {me}: {other}"),
                };
                (AbortRecord { cause: Cause::Elsewhere, rank: me, pid, reason }, None)
            }
        };
        let first = self.local.fail(record);
        match error.filter(|_| first) {
            Some(error) => error,
            None => self.local.aborted(&doing),
        }
    }

    /// The world's rank of this rank's counterpart on a host.
    pub(super) fn counterpart(&self, place: usize) -> usize {
        self.ranks[self.layout.hosts[place][self.layout.member]]
    }

    fn host_of(&self, rank: usize) -> &str {
        &self.world.hosts[self.world.members[rank].host]
    }

    /// `rank 4 on host node2`.
    pub(super) fn name_of(&self, place: usize) -> String {
        let rank = self.counterpart(place);
        format!("rank {rank} on host {}", self.host_of(rank))
    }

    /// Who calls what, each with a number. Each host's members have called the same.
    pub(super) fn difference(
        &self,
        place: usize,
        number: u64,
        theirs: &[u8],
        own: Option<(u32, &Signature)>,
    ) -> String {
        let read = read_fingerprint(theirs);
        let is_cut = read.as_ref().is_some_and(|(_, is_cut)| *is_cut);
        let mut theirs = describe(read.map(|(signature, _)| signature));
        if is_cut {
            theirs.push_str(" (first dimensions)");
        }
        let (own, signature) = own.unzip();
        let own = own.unwrap_or(0);
        if number != u64::from(own) {
            theirs.push_str(&format!(" as collective {number}"));
        }
        let mine = signature.map_or_else(|| "nothing".to_owned(), Signature::to_string);
        let at = signature.and_then(|signature| signature.origin.as_ref());
        let at = at.map(|at| format!(" (rank {} at {at})", self.me())).unwrap_or_default();
        let mut calls = [(self.me(), mine), (self.counterpart(place), theirs)];
        calls.sort_unstable();
        let hosts = calls.each_ref().map(|(rank, _)| self.host_of(*rank));
        format!(
            "in collective {own} {}{at}, each with all members on their hosts, {} and {}",
            who_does_what(&calls, "called"),
            hosts[0],
            hosts[1]
        )
    }
}

/// Tells the job's store what has failed, unless it knows. Its server may be on a host that does not answer, so this
/// waits for a moment only.
pub(super) fn publish(store: &Store, key: &str, record: &AbortRecord) {
    let (store, key, value) = (store.clone(), key.to_owned(), encode(record));
    let (done, is_done) = channel();
    let telling = std::thread::Builder::new().name("torchrs-failure".into());
    let started = telling.spawn(move || {
        // Without a store the connections have said it.
        let _ = store.compare_set(&key, None, &value);
        let _ = done.send(());
    });
    if started.is_ok() {
        let _ = is_done.recv_timeout(TOLD);
    }
}

/// What another host has told there.
pub(super) fn published(store: &Store, key: &str, limit: Duration) -> Option<AbortRecord> {
    store.get(key, limit).ok().and_then(|bytes| decode(&bytes))
}

/// In as many words as go over a connection.
fn words_of(record: &AbortRecord) -> String {
    match record.cause {
        Cause::DiedElsewhere => format!("rank {} (pid {}) died", record.rank, record.pid),
        _ => record.reason.clone(),
    }
}

fn encode(record: &AbortRecord) -> Vec<u8> {
    let AbortRecord { cause, rank, pid, reason } = record;
    format!("{}\n{rank}\n{pid}\n{reason}", *cause as u32).into_bytes()
}

fn decode(bytes: &[u8]) -> Option<AbortRecord> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(4, '\n');
    let cause = Cause::from_code(lines.next()?.parse().ok()?);
    let (rank, pid) = (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
    let reason = lines.next()?.to_owned();
    cause.is_of_job().then_some(AbortRecord { cause, rank, pid, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_travel_through_the_store() {
        let reason = "two\nlines".to_owned();
        let record = AbortRecord { cause: Cause::DiedElsewhere, rank: 5, pid: 77, reason };
        let read = decode(&encode(&record)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{record:?}"));
        assert_eq!(words_of(&read), "rank 5 (pid 77) died");
        for other in ["", "5\n1\n2", "x\n1\n2\n3", "1\n1\n2\nof one host"] {
            assert!(decode(other.as_bytes()).is_none(), "{other:?}");
        }
    }
}
