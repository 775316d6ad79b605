//! Collectives, and how the ranks of one machine perform them. Each begins by comparing what the ranks call; then
//! data passes through the slots in chunks. A rank writes its chunk, makes a step, waits until all have made it, and
//! reads what it needs; the next chunk goes to its other slot, which all have read once they made this step.

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

    /// How many parts of `count` elements each rank gives.
    fn parts(&self, world: usize) -> usize {
        if self.kind == Kind::ReduceScatter { world } else { 1 }
    }

    /// Elements of a part of which all that a rank gives fits in `room` bytes.
    pub fn most_at_once(&self, room: usize, world: usize) -> usize {
        room / self.parts(world) / 16 * 16 / self.data_type.size()
    }

    /// Whether a rank's elements are needed.
    pub fn gives(&self, rank: usize) -> bool {
        self.kind != Kind::Broadcast || rank == self.root
    }

    /// Bytes of a chunk of `count` elements, of all parts.
    pub fn chunk(&self, count: usize, world: usize) -> usize {
        self.parts(world) * count * self.data_type.size()
    }

    /// Writes a chunk to `slot`: elements `from..from + count` of each part that this rank gives.
    ///
    /// # Safety
    /// The buffer was checked and is kept; `slot` has room for a [`chunk`](Self::chunk), and is nobody else's.
    pub unsafe fn give(&self, slot: *mut u8, from: usize, count: usize, world: usize) {
        let size = self.data_type.size();
        for part in 0..self.parts(world) {
            let start = self.send + (part * self.count + from) * size;
            // SAFETY: within the buffer and within the slot, by this function's contract.
            unsafe {
                slot.add(part * count * size)
                    .copy_from_nonoverlapping(start as *const u8, count * size);
            }
        }
    }

    /// Reads what this rank needs of all chunks, each in its rank's slot.
    ///
    /// # Safety
    /// The buffer was checked and is kept; the slots of those who give hold their chunks.
    pub unsafe fn take(
        &self,
        me: usize,
        world: usize,
        from: usize,
        count: usize,
        slot: &dyn Fn(usize) -> *const u8,
    ) {
        let size = self.data_type.size();
        let to = |place: usize| (self.receive + place * size) as *mut u8;
        let combine = |part: usize| {
            let at = part * count * size;
            let parts: Vec<*const u8> =
                (0..world).map(|rank| slot(rank).wrapping_add(at)).collect();
            // SAFETY: the chunks are in the slots, and the result is within the buffer, by this function's
            // contract.
            unsafe { reduce(self.data_type, self.reduction, &parts, to(from), count) };
        };
        let copy = |rank: usize, place: usize| {
            // SAFETY: as above.
            unsafe { to(place).copy_from_nonoverlapping(slot(rank), count * size) };
        };
        match self.kind {
            Kind::AllReduce => combine(0),
            Kind::ReduceScatter => combine(me),
            Kind::Reduce if me == self.root => combine(0),
            Kind::Reduce => {}
            Kind::Broadcast => copy(self.root, from),
            Kind::AllGather => {
                (0..world).for_each(|rank| copy(rank, rank * self.count + from));
            }
        }
    }

    /// As words to be compared.
    pub fn words(&self, number: u64) -> Call {
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
pub fn describe(call: &Call) -> String {
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
        // Elements of a part that go through a slot at a time.
        let most = call.most_at_once(SLOT, self.world);
        let mut from = 0;
        loop {
            let count = most.min(call.count - from);
            let step = self.board.cell(self.rank).step(Lane::Device);
            if call.gives(self.rank) {
                // SAFETY: an earlier chunk in the slot was read by all ranks, and this one fits.
                unsafe { call.give(self.board.slot(self.rank, step), from, count, self.world) };
            }
            self.meet(Lane::Device, &words, || self.compare(step, &words))?;
            let slot = |rank| self.board.slot(rank, step).cast_const();
            // SAFETY: all ranks have made the step, so their chunks are in the slots.
            unsafe { call.take(self.rank, self.world, from, count, &slot) };
            from += count;
            if from >= call.count {
                return Ok(());
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
