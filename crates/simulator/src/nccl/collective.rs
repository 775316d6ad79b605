//! Collectives. Each begins by comparing what the ranks call; then data passes through the slots in
//! chunks. A rank writes its chunk, makes a step, waits until all have made it, and reads what it needs;
//! the next chunk goes to its other slot, which all have read once they made this step.

use super::board::{Call, Lane, SLOT};
use super::element::{DataType, Reduction, reduce};
use super::seat::{Seat, Stop};

/// What a collective does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Kind {
    /// Reduces to all ranks.
    AllReduce,
    /// From one rank to all.
    Broadcast,
    /// Reduces to one rank.
    Reduce,
    /// From all to all.
    AllGather,
    /// Reduces a part to each rank.
    ReduceScatter,
}

impl Kind {
    fn from_number(number: u64) -> Option<Kind> {
        use Kind::*;
        [AllReduce, Broadcast, Reduce, AllGather, ReduceScatter].get(number as usize).copied()
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// What it does.
    pub kind: Kind,
    /// What this rank gives.
    pub send: usize,
    /// Where its result goes.
    pub receive: usize,
    /// Elements as NCCL counts them: of a part where there are parts.
    pub count: usize,
    /// Their type.
    pub data_type: DataType,
    /// Of reductions.
    pub reduction: Reduction,
    /// Of rooted ones.
    pub root: usize,
}

impl Collective {
    /// Bytes of a part.
    fn part(&self) -> usize {
        self.count * self.data_type.size()
    }

    /// Bytes that rank `rank` of `world` gives, and gets.
    pub fn bytes(&self, rank: usize, world: usize) -> (usize, usize) {
        let (part, root) = (self.part(), rank == self.root);
        match self.kind {
            Kind::AllReduce => (part, part),
            Kind::Broadcast => (if root { part } else { 0 }, part),
            Kind::Reduce => (part, if root { part } else { 0 }),
            Kind::AllGather => (part, part * world),
            Kind::ReduceScatter => (part * world, part),
        }
    }

    /// As words to be compared.
    fn words(&self, number: u64) -> Call {
        let rooted = matches!(self.kind, Kind::Broadcast | Kind::Reduce);
        let reduces = matches!(self.kind, Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter);
        [
            number,
            self.kind as u64,
            self.count as u64,
            self.data_type as u64,
            if reduces { self.reduction as u64 } else { u64::MAX },
            if rooted { self.root as u64 } else { u64::MAX },
        ]
    }
}

/// A call in words, for messages.
fn describe(call: &Call) -> String {
    let [_, kind, count, data_type, reduction, root] = *call;
    let Some(kind) = Kind::from_number(kind) else { return "something else".into() };
    let name = DataType::from_number(data_type as u32).map_or("unknown", DataType::name);
    let mut text = format!("{kind:?}({count} {name}");
    if let Some(reduction) = Reduction::from_number(reduction as u32).filter(|_| reduction < 9) {
        text += &format!(", {}", reduction.name());
    }
    if root != u64::MAX {
        text += &format!(", root {root}");
    }
    text + ")"
}

impl Seat {
    /// Performs a collective, the `number`-th of this rank.
    pub fn collective(&self, call: &Collective, number: u64) -> Result<(), Stop> {
        let words = call.words(number);
        let size = call.data_type.size();
        let parts = if call.kind == Kind::ReduceScatter { self.world } else { 1 };
        // Elements of a part that go through a slot at a time.
        let most = SLOT / parts / 16 * 16 / size;
        let mut from = 0;
        loop {
            let count = most.min(call.count - from);
            let step = self.board.cell(self.rank).step(Lane::Device);
            self.give(call, step, from, count, parts);
            self.meet(Lane::Device, &words, || self.compare(step, &words))?;
            self.take(call, step, from, count);
            from += count;
            if from >= call.count {
                return Ok(());
            }
        }
    }

    /// Writes this rank's chunk: elements `from..from + count` of each part.
    fn give(&self, call: &Collective, step: u64, from: usize, count: usize, parts: usize) {
        if call.kind == Kind::Broadcast && self.rank != call.root {
            return;
        }
        let size = call.data_type.size();
        let slot = self.board.slot(self.rank, step);
        for part in 0..parts {
            let start = call.send + (part * call.count + from) * size;
            // SAFETY: within the buffer, which was checked and is kept, and within the slot, whose
            // earlier chunk all ranks have read.
            unsafe {
                slot.add(part * count * size)
                    .copy_from_nonoverlapping(start as *const u8, count * size);
            }
        }
    }

    /// Reads what this rank needs of all chunks.
    fn take(&self, call: &Collective, step: u64, from: usize, count: usize) {
        let size = call.data_type.size();
        let to = |place: usize| (call.receive + place * size) as *mut u8;
        let slot = |rank: usize, at: usize| {
            // SAFETY: within the slot.
            unsafe { self.board.slot(rank, step).add(at).cast_const() }
        };
        let combine = |part: usize| {
            let parts: Vec<*const u8> =
                (0..self.world).map(|rank| slot(rank, part * count * size)).collect();
            // SAFETY: the chunks are in the slots, whose ranks have made the step; the buffer was checked
            // and is kept.
            unsafe { reduce(call.data_type, call.reduction, &parts, to(from), count) };
        };
        let copy = |rank: usize, place: usize| {
            // SAFETY: the chunk is in the slot, whose rank has made the step; the buffer was
            // checked and is kept.
            unsafe { to(place).copy_from_nonoverlapping(slot(rank, 0), count * size) };
        };
        match call.kind {
            Kind::AllReduce => combine(0),
            Kind::ReduceScatter => combine(self.rank),
            Kind::Reduce if self.rank == call.root => combine(0),
            Kind::Reduce => {}
            Kind::Broadcast => copy(call.root, from),
            Kind::AllGather => {
                (0..self.world).for_each(|rank| copy(rank, rank * call.count + from));
            }
        }
    }

    /// Compares what the ranks call at a step that all have made.
    fn compare(&self, step: u64, mine: &Call) -> Result<(), Stop> {
        let call = |rank: usize| self.board.cell(rank).call(Lane::Device, step);
        if (0..self.world).all(|rank| call(rank) == *mine) {
            return Ok(());
        }
        let each: Vec<String> = (0..self.world)
            .map(|rank| format!("rank {rank} called {}", describe(&call(rank))))
            .collect();
        Err(Stop::Mismatch(format!("collective {}: {}", mine[0], each.join(", "))))
    }
}
