//! One iteration over a stream: whose turn it is, what is in flight, and when it ends.

use std::collections::{BTreeMap, VecDeque};

use super::lanes::{Begin, Wanted, samples_of};
use super::state::LaneState;
use crate::error::{Error, Result};

/// Where an iteration begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub epoch: u64,
    pub pass: u64,
    /// Batches of the epoch that were yielded before.
    pub batches: u64,
    pub turn: usize,
    /// This rank's lanes.
    pub lanes: BTreeMap<usize, LaneState>,
}

/// One pass over an epoch's batches.
pub(super) struct Run {
    pub id: u64,
    pub place: Place,
    pub generation: u64,
    /// The lanes' numbers.
    order: Vec<usize>,
    /// The lane, as a place of `order`, whose batch is asked for next.
    next: usize,
    /// Lanes whose batches were asked for, oldest first.
    in_flight: VecDeque<usize>,
    /// Batches of the epoch, where that is known.
    pub limit: Option<u64>,
    /// Whether lanes begin again when all have ended.
    pub repeats: Repeats,
    /// Whether a batch came in this generation.
    gave: bool,
    pub live: bool,
    pub finished: bool,
    pub failed: Option<Error>,
}

/// What comes when all lanes have ended before the epoch's last batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    /// The epoch's end.
    Never,
    /// The same pass from its beginning.
    Same,
    /// The next pass.
    Next,
}

impl Run {
    pub fn new(
        id: u64,
        generation: u64,
        place: Place,
        limit: Option<u64>,
        repeats: Repeats,
    ) -> Self {
        let order: Vec<usize> = place.lanes.keys().copied().collect();
        let next = place.turn.min(order.len().saturating_sub(1));
        Run {
            id,
            generation,
            next,
            order,
            in_flight: VecDeque::new(),
            limit,
            repeats,
            gave: place.lanes.values().any(|lane| lane.samples > 0),
            live: true,
            finished: false,
            failed: None,
            place,
        }
    }

    /// Where lanes begin that do not begin at the beginning.
    pub fn begin(&self) -> Begin {
        let begun = self.place.lanes.iter().filter(|(_, at)| !at.position.is_empty());
        let lanes = begun.map(|(lane, at)| (*lane, at.position.clone())).collect();
        Begin { generation: self.generation, lanes }
    }

    /// Whether the epoch has had all of its batches.
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.place.batches >= limit)
    }

    /// The place in the order of the lane whose batch is to be asked for, if any is.
    pub fn to_ask(&self) -> Option<usize> {
        let asked = self.place.batches + self.in_flight.len() as u64;
        if self.limit.is_some_and(|limit| asked >= limit) {
            return None;
        }
        let places = (0..self.order.len()).map(|step| (self.next + step) % self.order.len());
        let mut places = places.filter(|place| !self.place.lanes[&self.order[*place]].ended);
        places.next()
    }

    /// The lane at `place` is asked.
    pub fn asked(&mut self, place: usize) -> Wanted {
        self.in_flight.push_back(place);
        self.next = (place + 1) % self.order.len();
        Wanted { lane: self.order[place], generation: self.generation, pass: self.place.pass }
    }

    /// The place of the lane whose batch comes next.
    pub fn front(&self) -> Option<usize> {
        self.in_flight.front().copied()
    }

    /// The batch of the oldest that was asked for is there, and its lane's state.
    pub fn got(&mut self, state: Vec<u8>) -> Result<()> {
        let place = self.in_flight.pop_front().expect("a lane was asked");
        let samples = samples_of(&state)?;
        let lane = self.place.lanes.get_mut(&self.order[place]).expect("a lane of this rank");
        *lane = LaneState { samples, ended: false, position: state };
        self.place.turn = (place + 1) % self.order.len();
        self.place.batches += 1;
        self.gave = true;
        Ok(())
    }

    /// The lane of the oldest that was asked for has ended.
    pub fn ended(&mut self) {
        let place = self.in_flight.pop_front().expect("a lane was asked");
        self.place.lanes.get_mut(&self.order[place]).expect("a lane of this rank").ended = true;
    }

    /// Begins again, as all lanes have ended; false when that is the epoch's end.
    ///
    /// # Errors
    /// When there was not one batch.
    pub fn again(&mut self, generation: u64) -> Result<bool> {
        if self.repeats == Repeats::Never {
            return Ok(false);
        }
        if !self.gave {
            let message = "a whole pass over this rank's part of the stream gave no batch";
            return Err(Error::Other(format!("StreamLoader: {message}")));
        }
        self.place.pass += u64::from(self.repeats == Repeats::Next);
        self.place.lanes.values_mut().for_each(|lane| *lane = LaneState::default());
        (self.place.turn, self.next, self.gave, self.generation) = (0, 0, false, generation);
        Ok(true)
    }

    /// What was asked for is not wanted any more.
    pub fn forget(&mut self) {
        self.in_flight.clear();
        self.next = self.place.turn;
    }
}
