//! Ranks waiting for each other: entering a collective, comparing what everyone published, the
//! barriers in between, and the words for what went wrong when one of them does not come.

use std::cell::OnceCell;
use std::time::Duration;

use super::backend::{Between, Progress, ShmBackend, name_of};
use super::control::{AbortRecord, Cause, Fingerprint, Interrupted, Patience, Place, SHAPE};
use super::watchdog::condition_of;

use crate::cpu::threads::get_num_threads;
use crate::distributed::Deadline;
use crate::distributed::collective::{Kind, Pace, Signature};
use crate::distributed::ranks::{join_some, list_ranks};
use crate::distributed::reminder::Reminder;
use crate::error::{Error, Result};
use crate::profiler::{self, Category, notes};

pub(super) const SPIN_LEAST: Duration = Duration::from_micros(2);
/// The most, while each thread of each rank has a core of its own, so that the wait takes it from nobody: a
/// peer that works alike is mostly no later than that.
const SPIN_AT_HOME: Duration = Duration::from_micros(200);
/// The most where a core that is spun on may be what the later rank wants: who spins longer than it takes to
/// fall asleep and be woken loses more than that.
const SPIN_AS_GUEST: Duration = Duration::from_micros(25);
/// A wait longer by this than the most of spinning would have been over by then, had nobody slept.
const WAKING: Duration = Duration::from_micros(35);
/// How often a wait between two ranks of a group looks whether the group goes on.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How often to offer the core to a peer that may need it, before sleeping.
const YIELDS: u32 = 10;

/// What a rank waits in, for messages and limits.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub signature: &'a Signature,
    pub deadline: &'a Deadline,
    pub pace: Pace,
}

impl ShmBackend {
    /// Enters the next collective: publishes `signature` and where this rank's buffer is. The
    /// caller makes its data visible, then [`arrive`](Self::arrive)s.
    pub(super) fn enter(
        &self,
        progress: &mut Progress,
        signature: &Signature,
        place: Place,
    ) -> Result<Fingerprint> {
        if self.has_failed() {
            return Err(self.aborted(&format!(
                "rank {} cannot call {signature} any more",
                self.ranks[self.rank]
            )));
        }
        progress.sequence = match progress.sequence.wrapping_add(1) {
            0 => 2, // 0 means none; the parity stays alternating
            next => next,
        };
        Ok(self.control.publish(self.rank, progress.sequence, signature, place))
    }

    /// Counts this rank one barrier further, without waiting.
    pub(super) fn arrive(&self, progress: &mut Progress) {
        progress.steps = progress.steps.wrapping_add(1);
        self.control.arrive(self.rank);
    }

    /// Waits until all ranks have arrived as often as this one.
    pub(super) fn wait_all(&self, progress: &mut Progress, call: &Call) -> Result<()> {
        let span = profiler::span(profiler::WAIT, Category::Communication);
        let patience = self.patience(progress, call.pace);
        let reminder = Reminder::new();
        let mut waited_for_all = Duration::ZERO;
        for rank in 0..self.ranks.len() {
            if rank == self.rank {
                continue;
            }
            let ended = self.wait_for(rank, progress, patience, &reminder, call);
            waited_for_all += *ended.as_ref().unwrap_or(&Duration::ZERO);
            // One after the other: whoever is waited for after others have come is later than they.
            if ended.as_ref().is_ok_and(|waited| !waited.is_zero()) {
                span.waited_for(self.ranks[rank]);
            }
            match ended {
                // Also when it slept: once both sides sleep each wait takes a wake-up, and neither
                // would ever find out that spinning is enough.
                Ok(waited) if waited < self.spin_most() + WAKING => {
                    progress.spin = (progress.spin * 2).min(self.spin_most());
                }
                Ok(_) => progress.spin = (progress.spin / 2).max(SPIN_LEAST),
                Err(interrupted) => {
                    return Err(self.interrupted(interrupted, rank, progress, call));
                }
            }
        }
        notes::waited_for_ranks(waited_for_all);
        Ok(())
    }

    /// Waits until one rank has arrived as often as this one, and tells of it when that takes long.
    #[inline]
    fn wait_for(
        &self,
        rank: usize,
        progress: &Progress,
        patience: Patience,
        reminder: &Reminder,
        call: &Call,
    ) -> Result<Duration, Interrupted> {
        loop {
            // Until the next look at anything but the rank's word; the clock is read only before sleeping.
            let slice = OnceCell::new();
            let remaining = || {
                let limit = || {
                    let left = reminder.limit(call.deadline.remaining());
                    if self.between.is_some() { left.min(LOOK) } else { left }
                };
                slice.get_or_init(|| Deadline::after(limit())).remaining()
            };
            match self.control.wait(rank, progress.steps, patience, remaining) {
                Err(Interrupted::TimedOut) if self.has_failed() => break Err(Interrupted::Aborted),
                Err(Interrupted::TimedOut) if self.has_left_whole(rank, progress.steps) => {
                    break Err(Interrupted::PeerLeft);
                }
                Err(Interrupted::TimedOut) if !call.deadline.has_passed() => {
                    self.remind(reminder, progress, call);
                }
                ended => break ended,
            }
        }
    }

    /// Of messages: whether a rank, which is not in this group yet, has left the one that they are within.
    fn has_left_whole(&self, rank: usize, steps: u32) -> bool {
        let Some(Between { whole, .. }) = &self.between else { return false };
        let place = whole.ranks.iter().position(|&other| other == self.ranks[rank]);
        place.is_some_and(|place| whole.control.has_left(place))
            // It may have come first.
            && !self.control.has_arrived(rank, steps)
    }

    /// Tells of a long wait, if it is time to. Of all ranks that wait only the first does.
    #[cold]
    fn remind(&self, reminder: &Reminder, progress: &Progress, call: &Call) {
        let Some(waited) = reminder.is_due() else { return };
        let has_come = |&rank: &usize| self.control.has_arrived(rank, progress.steps);
        if (0..self.rank).any(|rank| has_come(&rank)) {
            return;
        }
        let (waiting, missing): (Vec<usize>, Vec<usize>) =
            (0..self.ranks.len()).partition(has_come);
        let world = |ranks: &[usize]| -> Vec<usize> {
            ranks.iter().map(|&rank| self.ranks[rank]).collect()
        };
        crate::distributed::reminder::say(
            waited,
            &format!(
                "{} in {}, {}; not there: {} (until the deadline of {:.0?})",
                list_ranks(&world(&waiting)),
                self.place_of(progress.sequence),
                call.signature.with_place(),
                self.conditions_of(&missing),
                call.deadline.limit(),
            ),
        );
    }

    /// [`arrive`](Self::arrive) and [`wait_all`](Self::wait_all).
    pub(super) fn barrier(&self, progress: &mut Progress, call: &Call) -> Result<()> {
        self.arrive(progress);
        self.wait_all(progress, call)
    }

    /// Compares what all ranks, which have arrived, are about to do.
    pub(super) fn compare(&self, progress: &Progress, mine: Fingerprint) -> Result<()> {
        let sequence = progress.sequence;
        let same = |rank| self.control.fingerprint(rank, sequence) == mine;
        if (0..self.ranks.len()).all(same) { Ok(()) } else { Err(self.mismatch(sequence)) }
    }

    /// A collective without data: all ranks call it with the same numbers, or it is an error.
    pub(super) fn agree(
        &self,
        progress: &mut Progress,
        signature: &Signature,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        let call = Call { signature, deadline, pace };
        let mine = self.enter(progress, signature, Place::PRIVATE)?;
        self.barrier(progress, &call)?;
        self.compare(progress, mine)?;
        self.control.complete(self.rank, progress.sequence);
        Ok(())
    }

    /// Waits until all ranks, which have arrived there, have completed the collective with this number. Who has left
    /// reads no more.
    pub(in crate::distributed) fn wait_until_read(
        &self,
        number: u32,
        deadline: &Deadline,
    ) -> Result<()> {
        for rank in (0..self.ranks.len()).filter(|&rank| rank != self.rank) {
            let mut looks = 0u32;
            while !self.control.has_completed(rank, number) && !self.control.has_left(rank) {
                // What is read in a group that has failed is of no use: who saves what is left need not wait.
                if self.has_failed() {
                    return Ok(());
                }
                if deadline.has_passed() {
                    let (me, other) = (self.ranks[self.rank], self.ranks[rank]);
                    return Err(deadline.error(format!(
                        "rank {me} waits until rank {other} has read what it gave in collective {number}; {}",
                        self.condition(rank)
                    )));
                }
                looks += 1;
                match looks {
                    0..50 => std::hint::spin_loop(),
                    50..100 => std::thread::yield_now(),
                    _ => std::thread::sleep(SPIN_AS_GUEST),
                }
            }
        }
        Ok(())
    }

    /// The barrier at the end of a call that [`agree`](Self::agree) began.
    pub(super) fn finish(
        &self,
        progress: &mut Progress,
        signature: &Signature,
        deadline: &Deadline,
    ) -> Result<()> {
        self.barrier(progress, &Call { signature, deadline, pace: Pace::Foreground })
    }

    fn spin_most(&self) -> Duration {
        // The others have as many threads as this rank, or as good as.
        let threads = self.everybody * get_num_threads();
        if threads <= self.cores { SPIN_AT_HOME } else { SPIN_AS_GUEST }
    }

    fn patience(&self, progress: &Progress, pace: Pace) -> Patience {
        match pace {
            Pace::Background => Patience { spin: SPIN_LEAST, yields: 0 },
            // A peer may be waiting for this very core: let it have it.
            Pace::Foreground if self.everybody > self.cores => {
                Patience { spin: Duration::ZERO, yields: YIELDS }
            }
            Pace::Foreground => Patience { spin: progress.spin, yields: 0 },
        }
    }

    #[cold]
    fn mismatch(&self, sequence: u32) -> Error {
        let by_rank = |what: &dyn Fn(usize) -> String| -> Vec<(usize, String)> {
            (0..self.ranks.len()).map(|rank| (self.ranks[rank], what(rank))).collect()
        };
        let calls = by_rank(&|rank| describe(self.control.call(rank, sequence)));
        let places = by_rank(&|rank| {
            let known = self.control.call(rank, sequence).is_some();
            let place = known.then(|| self.control.origin(rank, sequence)).flatten();
            place.unwrap_or_else(|| "an unknown place".to_owned())
        });
        Error::Mismatch(format!(
            "in {} {} ({})",
            self.place_of(sequence),
            who_does_what(&calls, "called"),
            who_does_what(&places, "at")
        ))
    }

    #[cold]
    fn interrupted(
        &self,
        why: Interrupted,
        missing: usize,
        progress: &Progress,
        call: &Call,
    ) -> Error {
        let (me, place) = (self.ranks[self.rank], self.place_of(progress.sequence));
        let doing = format!("rank {me} was waiting in {place}: {}", call.signature.with_place());
        let record = match why {
            Interrupted::Aborted => return self.aborted(&doing),
            Interrupted::PeerLeft => AbortRecord {
                cause: Cause::Left,
                rank: missing,
                pid: self.peers[missing].pid,
                reason: format!(
                    "rank {} has left the process group after {}, but {doing}",
                    self.ranks[missing],
                    self.last_of(missing)
                ),
            },
            Interrupted::TimedOut => AbortRecord {
                cause: Cause::TimedOut,
                rank: self.rank,
                pid: self.peers[self.rank].pid,
                reason: format!("{doing}; {}", self.whereabouts(progress)),
            },
        };
        // This rank is out of step with the others now: nobody can go on.
        let reason = record.reason.clone();
        if !self.fail(record) {
            return self.aborted(&doing);
        }
        match why {
            Interrupted::TimedOut => call.deadline.error(reason),
            _ => Error::Aborted(reason),
        }
    }

    /// The error for a rank that finds the group aborted. `doing` says what it wanted.
    #[cold]
    pub(in crate::distributed) fn aborted(&self, doing: &str) -> Error {
        if let Some(Between { whole, .. }) = &self.between
            && whole.has_failed()
        {
            return whole.aborted(doing);
        }
        let Some(record) = self.control.abort_record() else {
            return Error::Aborted(doing.to_owned());
        };
        let rank = self.ranks.get(record.rank).copied().unwrap_or(record.rank);
        match record.cause {
            Cause::Died => Error::PeerDied { rank, pid: record.pid, message: doing.to_owned() },
            Cause::Failed => Error::Aborted(format!("by rank {rank}: {}; {doing}", record.reason)),
            Cause::TimedOut => {
                Error::Aborted(format!("rank {rank} timed out: {}; {doing}", record.reason))
            }
            Cause::Left => Error::Aborted(record.reason),
            Cause::DiedElsewhere => {
                let message = format!("{}; {doing}", record.reason);
                Error::PeerDied { rank: record.rank, pid: record.pid, message }
            }
            Cause::Elsewhere => Error::Aborted(format!("{}; {doing}", record.reason)),
            Cause::Mismatched => Error::Mismatch(record.reason),
        }
    }

    /// Why the group has failed, as it is told to other hosts.
    pub(in crate::distributed) fn record_for_others(&self) -> Option<AbortRecord> {
        if let Some(Between { whole, .. }) = &self.between
            && whole.has_failed()
        {
            return whole.record_for_others();
        }
        let record = self.control.abort_record()?;
        if record.cause.is_of_job() {
            return Some(record);
        }
        let rank = self.ranks.get(record.rank).copied().unwrap_or(record.rank);
        let (cause, reason) = match record.cause {
            Cause::Died => (Cause::DiedElsewhere, "its host says so".to_owned()),
            Cause::TimedOut => {
                (Cause::Elsewhere, format!("rank {rank} timed out: {}", record.reason))
            }
            Cause::Left => (Cause::Elsewhere, record.reason),
            _ => (Cause::Elsewhere, format!("by rank {rank}: {}", record.reason)),
        };
        Some(AbortRecord { cause, rank, pid: record.pid, reason })
    }

    /// Which call, for messages.
    fn place_of(&self, sequence: u32) -> String {
        match &self.between {
            None => format!("collective {sequence}"),
            Some(Between { tag, .. }) => {
                format!("call {sequence} of {}", name_of([self.ranks[0], self.ranks[1]], *tag))
            }
        }
    }

    /// What a rank that has left completed last.
    fn last_of(&self, rank: usize) -> String {
        match (self.control.progress(rank).1, &self.between) {
            // It never came to these messages.
            (0, Some(Between { whole, .. })) => {
                let place = whole.ranks.iter().position(|&other| other == self.ranks[rank]);
                whole.place_of(whole.control.progress(place.unwrap_or(0)).1)
            }
            (completed, _) => self.place_of(completed),
        }
    }

    /// Where everyone is: `rank 0 in collective 42, all_reduce(...); rank 2 alive, stopped, last
    /// collective 41, ...`.
    fn whereabouts(&self, progress: &Progress) -> String {
        let one = |rank: usize| {
            if self.control.has_left(rank) || !self.control.has_arrived(rank, progress.steps) {
                return self.condition(rank);
            }
            let entered = self.control.progress(rank).0;
            let call = self.call_of(rank, entered);
            format!("rank {} waits in collective {entered}, {call}", self.ranks[rank])
        };
        // Those who are missing first: they are what it is about.
        let has_come = |&rank: &usize| self.control.has_arrived(rank, progress.steps);
        let mut ranks: Vec<usize> = (0..self.ranks.len()).collect();
        if ranks.len() > 8 {
            ranks.sort_by_key(has_come);
        }
        join_some(ranks.into_iter().map(one), "; ")
    }

    /// What a rank has called, and where.
    fn call_of(&self, rank: usize, sequence: u32) -> String {
        let call = self.control.call(rank, sequence);
        let place = call.as_ref().and_then(|_| self.control.origin(rank, sequence));
        let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
        format!("{}{place}", describe(call))
    }

    /// How all ranks are and what they called last, for a rank that waits for something else than them.
    pub(crate) fn conditions(&self) -> String {
        self.conditions_of(&(0..self.ranks.len()).collect::<Vec<_>>())
    }

    fn conditions_of(&self, ranks: &[usize]) -> String {
        join_some(ranks.iter().map(|&rank| self.condition(rank)), "; ")
    }

    /// `rank 2 alive, stopped, last collective 41, ...`.
    pub(super) fn condition(&self, rank: usize) -> String {
        let (entered, completed) = self.control.progress(rank);
        let call = |sequence| self.call_of(rank, sequence);
        let name = format!("rank {}", self.ranks[rank]);
        if self.control.has_left(rank) {
            return format!("{name} has left, last collective {completed}");
        }
        let condition = condition_of(self.peers[rank].pid);
        if entered != completed {
            return format!("{name} {condition}, inside collective {entered}, {}", call(entered));
        }
        match completed {
            0 => format!("{name} {condition}, no collective yet"),
            _ => format!("{name} {condition}, last collective {completed}, {}", call(completed)),
        }
    }
}

/// What a rank has published, or that it cannot be read.
pub(in crate::distributed) fn describe(signature: Option<Signature>) -> String {
    signature.map_or_else(
        || "a call of another program".to_owned(),
        |signature| {
            let cut = signature.shape.len() == SHAPE && signature.kind != Kind::NewGroup;
            format!("{signature}{}", if cut { " (first dimensions)" } else { "" })
        },
    )
}

/// `ranks 0, 2 called all_reduce(...); rank 1 called barrier`.
pub(in crate::distributed) fn who_does_what(calls: &[(usize, String)], verb: &str) -> String {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (rank, call) in calls {
        match groups.iter_mut().find(|(known, _)| known == call) {
            Some((_, ranks)) => ranks.push(*rank),
            None => groups.push((call, vec![*rank])),
        }
    }
    let one = |(call, ranks): &(&str, Vec<usize>)| format!("{} {verb} {call}", list_ranks(ranks));
    join_some(groups.iter().map(one), "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_of_the_same_are_named_together() {
        let call = |rank, text: &str| (rank, text.to_owned());
        let calls = [call(0, "barrier"), call(1, "all_reduce(sum, f32, [3])"), call(2, "barrier")];
        assert_eq!(
            who_does_what(&calls, "called"),
            "ranks 0, 2 called barrier; rank 1 called all_reduce(sum, f32, [3])"
        );
    }
}
