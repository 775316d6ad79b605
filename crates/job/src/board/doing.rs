//! What a worker is at: one word, so that it is never torn.

use std::time::Duration;

use super::slot::TimeOf;

/// Bits of the time in a word, in microseconds: enough for two thousand years.
const TIME_BITS: u32 = 56;

/// What a worker's training thread is at, when that is not its own computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    /// It waits for the loader's next batch.
    Data = 1,
    /// An optimizer takes its step.
    Optimizer,
    /// It saves a checkpoint.
    Checkpoint,
    /// It waits for collectives that it has started.
    Work,
    /// The collectives, by name.
    Barrier,
    /// `all_reduce`.
    AllReduce,
    /// `broadcast`.
    Broadcast,
    /// `reduce`.
    Reduce,
    /// `all_gather`.
    AllGather,
    /// `reduce_scatter`.
    ReduceScatter,
    /// `gather`.
    Gather,
    /// `scatter`.
    Scatter,
    /// `all_to_all`.
    AllToAll,
    /// `alloc_shared`.
    AllocShared,
    /// `new_group`.
    NewGroup,
    /// A message between two ranks.
    Send,
}

impl Doing {
    /// All, in the order of their numbers.
    pub const ALL: [Doing; 16] = {
        use Doing::*;
        [
            Data,
            Optimizer,
            Checkpoint,
            Work,
            Barrier,
            AllReduce,
            Broadcast,
            Reduce,
            AllGather,
            ReduceScatter,
            Gather,
            Scatter,
            AllToAll,
            AllocShared,
            NewGroup,
            Send,
        ]
    };

    /// In a word or two, as the status page shows it.
    pub fn name(self) -> &'static str {
        match self {
            Doing::Data => "data",
            Doing::Optimizer => "optimizer",
            Doing::Checkpoint => "checkpoint",
            Doing::Work => "gradients",
            Doing::Barrier => "barrier",
            Doing::AllReduce => "all_reduce",
            Doing::Broadcast => "broadcast",
            Doing::Reduce => "reduce",
            Doing::AllGather => "all_gather",
            Doing::ReduceScatter => "reduce_scatter",
            Doing::Gather => "gather",
            Doing::Scatter => "scatter",
            Doing::AllToAll => "all_to_all",
            Doing::AllocShared => "alloc_shared",
            Doing::NewGroup => "new_group",
            Doing::Send => "send/recv",
        }
    }

    /// What time spent at it counts as.
    pub fn time_of(self) -> TimeOf {
        match self {
            Doing::Data => TimeOf::Data,
            Doing::Optimizer => TimeOf::Optimizer,
            Doing::Checkpoint => TimeOf::Checkpoint,
            _ => TimeOf::Communication,
        }
    }

    /// With the time since when, of CLOCK_MONOTONIC.
    pub(super) fn word(self, since_ns: u64) -> u64 {
        (self as u64) << TIME_BITS | (since_ns / 1000) & ((1 << TIME_BITS) - 1)
    }

    /// What a word says, and since when. A word that no worker writes says nothing.
    pub(super) fn of_word(word: u64) -> Option<(Doing, Duration)> {
        let number = (word >> TIME_BITS) as usize;
        let doing = *Self::ALL.get(number.checked_sub(1)?)?;
        Some((doing, Duration::from_micros(word & ((1 << TIME_BITS) - 1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_and_since_when() {
        for doing in Doing::ALL {
            let since = Duration::from_micros(123_456_789);
            assert_eq!(Doing::of_word(doing.word(123_456_789_999)), Some((doing, since)));
        }
        for none in [0, 5, u64::MAX, 17 << TIME_BITS] {
            assert_eq!(Doing::of_word(none), None);
        }
    }
}
