//! The engine over MPI, where MPI's launcher has started the workers. A rail is a communicator of its own.
//!
//! Each call begins with a *head* to the other places: its number, its fingerprint, and data that is short. Heads go by
//! messages of MPI, beside the data: nothing waits for them first, and no call ends before all have come and are the
//! same. What is long follows as messages. A large all-reduce of up to 16 places is cut into slices, one for each place;
//! of more places it is MPI's (`MPI_Iallreduce`).
//!
//! MPI does not say that a process has died, left or given up. TCP connections between the same places do, which carry
//! no data: a wait looks at them every 20 ms.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`heads`] | what a head says, and how heads are compared |
//! | [`slices`] | a large all-reduce |
//! | [`wait`] | waits for MPI that end as other calls do |
//! | [`world`] | the job's ranks in MPI, and communicators of rails |

mod heads;
mod slices;
mod wait;
mod world;

use std::sync::Arc;

use torchrs_links::{Call, Failure, Links};
use torchrs_mpi::{Communicator, Element, Memory, Reduction as Combine, Request};

use super::{Engine, Reduction, Region};
use crate::distributed::Dtype;
use crate::distributed::collective::{Owner, ReduceOp};
use crate::storage::SharedMemory;
use heads::{CAP, Heads};
use slices::{SLOTS, Slices};
use wait::{Wait, started};
pub(in crate::distributed::hosts) use world::{MpiWorld, connect};

/// Of messages whose data does not fit into a head.
const BULK: u16 = 64;

/// The most bytes that a place takes from the others for an all-reduce in one step.
const DIRECT: usize = 1 << 20;
/// Slots begin at multiples of this, so that elements are aligned.
const GRAIN: usize = 64;

/// One place of a rail over MPI.
struct MpiRail {
    /// Who dies, leaves or gives up is known by these.
    control: Links,
    group: Communicator,
    heads: Heads,
    /// Where the others' data of an all-reduce comes to.
    slots: Option<Arc<SharedMemory>>,
    broken: Option<Failure>,
}

/// A part of a call's memory, which MPI has until the request is done, or for good.
struct Lent {
    at: *mut u8,
    len: usize,
    _owner: Owner,
}

// SAFETY: an address, and an owner that may go to any thread.
unsafe impl Send for Lent {}

// SAFETY: the owner keeps the memory where it is, also when this is forgotten; elements are numbers or bytes. The call
// that lends it has it alone until it ends; after a failure it is said to hold anything.
unsafe impl Memory for Lent {
    fn address(&mut self) -> *mut u8 {
        self.at
    }
    fn size(&self) -> usize {
        self.len
    }
}

/// A message of a call, to or from a place.
#[derive(Clone, Copy)]
struct Part<'a> {
    place: usize,
    at: *mut u8,
    len: usize,
    owner: &'a Owner,
}

impl<'a> Part<'a> {
    /// The parts of a buffer of `total` bytes, of `lengths`, one after the other; without those of no bytes.
    fn all(at: *const u8, total: usize, lengths: &[usize], owner: &'a Owner) -> Vec<Part<'a>> {
        let mut start = 0;
        let mut parts = Vec::with_capacity(lengths.len());
        for (place, &len) in lengths.iter().enumerate() {
            parts.push(Part { place, at: at.cast_mut().wrapping_add(start), len, owner });
            start += len;
        }
        assert_eq!(start, total, "lengths {lengths:?} of a buffer");
        parts.retain(|part| part.len > 0);
        parts
    }

    fn lend(&self) -> Lent {
        Lent { at: self.at, len: self.len, _owner: self.owner.clone() }
    }
}

/// What a call begins beside its messages.
type Whole = Option<Request<Lent>>;

impl MpiRail {
    /// A call: its messages, and what `start` begins beside them.
    fn run(
        &mut self,
        call: &Call<'_>,
        (outgoing, incoming): (&[Part<'_>], &[Part<'_>]),
        start: impl FnOnce(&Communicator) -> Result<Whole, torchrs_mpi::Failure>,
    ) -> Result<(), Failure> {
        self.guard(|rail| rail.move_all(call, (outgoing, incoming), start))
    }

    /// Runs a call, unless one before has failed.
    fn guard(&mut self, run: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<(), Failure> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        run(self).inspect_err(|failure| {
            self.give_up(&failure.to_string());
            self.broken = Some(failure.clone());
        })
    }

    /// Memory for what comes from the others.
    fn slots(&mut self) -> Result<Arc<SharedMemory>, Failure> {
        if let Some(memory) = &self.slots {
            return Ok(memory.clone());
        }
        let made = SharedMemory::create("slots", SLOTS.max(DIRECT + self.group.size() * GRAIN));
        let made = made.map_err(|error| Failure::Carrier(error.to_string()))?;
        Ok(self.slots.insert(made).clone())
    }

    fn move_all(
        &mut self,
        call: &Call<'_>,
        (outgoing, incoming): (&[Part<'_>], &[Part<'_>]),
        start: impl FnOnce(&Communicator) -> Result<Whole, torchrs_mpi::Failure>,
    ) -> Result<(), Failure> {
        let Self { control, group, heads, .. } = self;
        let are_direct = heads.are_direct();
        let is_short = |part: &&Part<'_>| are_direct && part.len <= CAP;
        let of_head = |parts: &[Part<'_>], place: usize| {
            let mut short = parts.iter().filter(is_short).filter(|part| part.place == place);
            short.next().map(|part| (part.at, part.len))
        };
        let mut met = heads.begin(group, call, |place| of_head(outgoing, place))?;
        let mut bulk = Vec::new();
        for part in incoming.iter().filter(|part| !is_short(part)) {
            let request = group.receive(part.lend(), part.place, BULK);
            bulk.push((part.place, started(request)?));
        }
        for part in outgoing.iter().filter(|part| !is_short(part)) {
            let request = group.send(part.lend(), part.place, BULK);
            bulk.push((part.place, started(request)?));
        }
        let whole = started(start(group))?;
        let mut wait = Wait::new(control, call);
        met.end(&mut wait, |place| of_head(incoming, place))?;
        wait.each(bulk, |_, _| ())?;
        if let Some(request) = whole {
            let others = (0..group.size()).filter(|&place| place != group.rank()).collect();
            wait.one(request, others)?;
        }
        Ok(())
    }

    /// An all-reduce in which each place takes all others' data, and combines it with its own in the order of places.
    fn reduce_direct(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        reduction: Reduction,
    ) -> Result<(), Failure> {
        let (own, places) = (self.group.rank(), self.group.size());
        let (at, len) = (data.bytes.as_mut_ptr(), data.bytes.len());
        let memory = self.slots()?;
        let stride = len.next_multiple_of(GRAIN);
        let owner = Owner::Shared(memory.clone());
        let slot = |i: usize| memory.as_ptr().wrapping_add(i * stride);
        let others = || (1..places).map(move |i| (own + i) % places);
        let outgoing: Vec<_> =
            others().map(|place| Part { place, at, len, owner: data.owner }).collect();
        let incoming: Vec<_> = (others().enumerate())
            .map(|(i, place)| Part { place, at: slot(i), len, owner: &owner })
            .collect();
        self.run(call, (&outgoing, &incoming), |_| Ok(None))?;
        let mut sources = vec![at.cast_const(); places];
        incoming.iter().for_each(|part| sources[part.place] = part.at.cast_const());
        // SAFETY: the call's memory, and slots that begin at multiples of `GRAIN`, each with `len` bytes of whole
        // elements; MPI has done with all of them.
        unsafe { reduction.into_place(&sources, at, len) };
        Ok(())
    }

    /// An all-reduce in which each place sums one slice of all places' data.
    fn reduce_slices(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        reduction: Reduction,
    ) -> Result<(), Failure> {
        let (data, slots) =
            ((data.bytes.as_mut_ptr(), data.bytes.len(), data.owner), self.slots()?);
        let Self { control, group, heads, .. } = self;
        let mut met = heads.begin(group, call, |_| None)?;
        let mut slices = started(Slices::begin(group, data, reduction, slots))?;
        let mut wait = Wait::new(control, call);
        met.end(&mut wait, |_| None)?;
        let ended = wait.until(Vec::new(), |watch| slices.run(&call.deadline, watch));
        ended.map_err(|failure| match failure {
            Failure::TimedOut { seconds, .. } => {
                Failure::TimedOut { waiting: slices.late(), seconds }
            }
            other => other,
        })
    }
}

impl Engine for MpiRail {
    fn barrier(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        self.run(call, (&[], &[]), |_| Ok(None))
    }

    fn all_reduce(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        reduction: Reduction,
    ) -> Result<(), Failure> {
        let (at, len) = (data.bytes.as_mut_ptr(), data.bytes.len());
        if len == 0 {
            return self.barrier(call);
        }
        if self.heads.are_direct() && len * (self.group.size() - 1) <= DIRECT {
            return self.reduce_direct(call, data, reduction);
        }
        if self.heads.are_direct() {
            return self.guard(|rail| rail.reduce_slices(call, data, reduction));
        }
        let (element, op) = (element(reduction.dtype), combine(reduction.op));
        let memory = Lent { at, len, _owner: data.owner.clone() };
        self.run(call, (&[], &[]), |group| group.all_reduce(memory, element, op).map(Some))
    }

    fn all_gather(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        lengths: &[usize],
    ) -> Result<(), Failure> {
        let (own, places) = (self.group.rank(), self.group.size());
        let (at, len) = (data.bytes.as_mut_ptr(), data.bytes.len());
        if !self.heads.are_direct() {
            let memory = Lent { at, len, _owner: data.owner.clone() };
            let start = |group: &Communicator| group.all_gather(memory, lengths).map(Some);
            return self.run(call, (&[], &[]), start);
        }
        let mut incoming = Part::all(at, len, lengths, data.owner);
        let mine = incoming.iter().find(|part| part.place == own).copied();
        incoming.retain(|part| part.place != own);
        let mut outgoing = Vec::new();
        if let Some(mine) = mine {
            outgoing.extend((1..places).map(|i| Part { place: (own + i) % places, ..mine }));
        }
        self.run(call, (&outgoing, &incoming), |_| Ok(None))
    }

    fn all_to_all(
        &mut self,
        call: &Call<'_>,
        send: &[u8],
        send_lengths: &[usize],
        receive: Region<'_>,
        receive_lengths: &[usize],
    ) -> Result<(), Failure> {
        let own = self.group.rank();
        let Region { bytes, owner } = receive;
        let mut outgoing = Part::all(send.as_ptr(), send.len(), send_lengths, owner);
        let mut incoming = Part::all(bytes.as_mut_ptr(), bytes.len(), receive_lengths, owner);
        let stays = |parts: &[Part<'_>]| {
            let found = parts.iter().find(|part| part.place == own);
            found.map(|part| (part.at, part.len))
        };
        if let (Some((from, len)), Some((to, room))) = (stays(&outgoing), stays(&incoming)) {
            assert_eq!(len, room, "what stays here");
            // SAFETY: parts of two buffers that do not overlap.
            unsafe { from.copy_to_nonoverlapping(to, len) };
        }
        incoming.retain(|part| part.place != own);
        outgoing.retain(|part| part.place != own);
        // Each begins with its right neighbour, so that not all send to one.
        let next = outgoing.iter().position(|part| part.place > own).unwrap_or(0);
        outgoing.rotate_left(next);
        self.run(call, (&outgoing, &incoming), |_| Ok(None))
    }

    fn give_up(&mut self, why: &str) {
        self.control.give_up(why);
        // What ranks began may never end.
        self.group.mpi().give_up();
        self.broken.get_or_insert_with(|| Failure::Stopped(why.to_owned()));
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.control.check()
    }
}

fn element(dtype: Dtype) -> Element {
    match dtype {
        Dtype::F64 => Element::F64,
        Dtype::F32 => Element::F32,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::BF16,
        Dtype::C64 => Element::C64,
        Dtype::C128 => Element::C128,
        Dtype::I64 => Element::I64,
        Dtype::I32 => Element::I32,
        Dtype::I16 => Element::I16,
        Dtype::I8 => Element::I8,
        Dtype::U8 => Element::U8,
        Dtype::Bool => Element::Bool,
    }
}

fn combine(op: ReduceOp) -> Combine {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => Combine::Sum,
        ReduceOp::Product => Combine::Product,
        ReduceOp::Min => Combine::Min,
        ReduceOp::Max => Combine::Max,
        ReduceOp::Band => Combine::Band,
        ReduceOp::Bor => Combine::Bor,
        ReduceOp::Bxor => Combine::Bxor,
    }
}
