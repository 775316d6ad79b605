//! The control block of a process group: one shared mapping through which its ranks meet. It holds
//! a cell per rank (how far it has come, what it is doing), the record of why the group was
//! aborted, if it was, and a slot per rank for small messages.
//!
//! A rank's `flag` counts the barriers that it has arrived at, in steps of [`STEP`]; the low bits
//! say that the group is aborted or that the rank has left. Since these bits are in the word that
//! others sleep on, there is no moment at which a sleeper could miss them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{futex, sleepers};
use crate::distributed::collective::Signature;
use crate::distributed::origin::{Origin, shown};
use crate::error::{Error, Result};
use crate::storage::SharedMemory;

const MAGIC: u64 = u64::from_le_bytes(*b"torchrs1");
const ABORTED: u32 = 1;
const LEFT: u32 = 2;
const STEP: u32 = 4;
/// Dimensions that are published; a signature with more is compared by its hash all the same.
pub(super) const SHAPE: usize = 16;
const REASON: usize = 4096;
/// Words for where a call was made: its line's number and the text's length, then the text.
const ORIGIN: usize = 32;
/// How long a reader waits for an abort's reason to be written before it does without.
const REASON_WITHIN: Duration = Duration::from_millis(20);

/// What is at the start of the mapping.
#[repr(C, align(4096))]
struct Header {
    magic: AtomicU64,
    world_size: AtomicU32,
    inline_bytes: AtomicU32,
    abort: Abort,
}

#[repr(C)]
struct Abort {
    /// 0: none, 1: being written, 2: written.
    state: AtomicU32,
    kind: AtomicU32,
    rank: AtomicU32,
    pid: AtomicI32,
    len: AtomicU32,
    reason: [std::sync::atomic::AtomicU8; REASON],
}

/// One rank's part. Its first line is what others poll.
#[repr(C, align(128))]
struct Cell {
    flag: AtomicU32,
    sleepers: AtomicU32,
    completed: AtomicU32,
    prints: [Print; 2],
    shapes: [[AtomicU64; SHAPE]; 2],
    /// Where the program made the calls. Behind everything that others read while all is well.
    origins: [[AtomicU64; ORIGIN]; 2],
}

/// What a rank publishes about the collective it enters: two, used in turn, because a fast rank
/// enters the next one while a slow one still reads about this one.
#[repr(C)]
struct Print {
    /// Sequence number (high half) and [`Signature::code`].
    call: AtomicU64,
    /// Of root, shape and the origin's number.
    hash: AtomicU64,
    /// Root + 1, or 0 (high half), and the number of dimensions.
    root: AtomicU64,
    place: AtomicU64,
}

/// Where a rank's buffer is: in a segment of the group's arena (`0`: it is private memory).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    pub(super) const PRIVATE: Place = Place(0);

    /// `segment` counts from 1 and is below 2^24, `offset` is in bytes and below 2^40.
    pub(super) fn shared(segment: u32, offset: usize) -> Place {
        Place(u64::from(segment) << 40 | offset as u64)
    }

    pub(super) fn segment(self) -> u32 {
        (self.0 >> 40) as u32
    }

    pub(super) fn offset(self) -> usize {
        (self.0 & ((1 << 40) - 1)) as usize
    }
}

/// What a rank has published, as read by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    call: u64,
    hash: u64,
}

impl Fingerprint {
    pub(super) fn new(sequence: u32, signature: &Signature) -> Self {
        let root = signature.root.map_or(0, |root| root as u64 + 1);
        // FNV-1a over words: it has to tell a mistake from a match, not to withstand an attack.
        let words = [root, signature.shape.len() as u64, u64::from(signature.number())];
        let dims = signature.shape.iter().map(|&d| d as u64);
        let hash = words.into_iter().chain(dims).fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
            (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
        });
        let call = u64::from(sequence) << 32 | u64::from(signature.code());
        Fingerprint { call, hash }
    }
}

/// Why a group was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(in crate::distributed) enum Cause {
    /// A rank's process is gone.
    Died = 1,
    /// A rank failed and said so.
    Failed,
    /// A rank waited too long.
    TimedOut,
    /// A rank left the group while others waited for it.
    Left,
    /// The process of a rank on another host is gone. This and what follows are of groups over several hosts, and
    /// their rank is one of the job.
    DiedElsewhere,
    /// Something else on another host; the reason says all of it.
    Elsewhere,
    /// Hosts called different things.
    Mismatched,
}

impl Cause {
    /// Whether the record's rank is one of the job, and not of the group on this host.
    pub(in crate::distributed) fn is_of_job(self) -> bool {
        matches!(self, Cause::DiedElsewhere | Cause::Elsewhere | Cause::Mismatched)
    }

    pub(in crate::distributed) fn from_code(code: u32) -> Cause {
        match code {
            1 => Cause::Died,
            3 => Cause::TimedOut,
            4 => Cause::Left,
            5 => Cause::DiedElsewhere,
            6 => Cause::Elsewhere,
            7 => Cause::Mismatched,
            _ => Cause::Failed,
        }
    }
}

/// The record of an abort. `rank` is the rank in the group at which the cause lies.
#[derive(Debug, Clone)]
pub(in crate::distributed) struct AbortRecord {
    pub cause: Cause,
    pub rank: usize,
    pub pid: i32,
    pub reason: String,
}

/// What ended a wait early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupted {
    Aborted,
    PeerLeft,
    TimedOut,
}

/// How long to look at a word before sleeping on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub spin: Duration,
    pub yields: u32,
}

/// The mapped control block.
#[derive(Debug)]
pub(super) struct Control {
    memory: Arc<SharedMemory>,
    world_size: usize,
    inline_bytes: usize,
}

impl Control {
    /// A new block for `world_size` ranks, with two slots of `inline_bytes` (a multiple of 64) each.
    pub(super) fn create(world_size: usize, inline_bytes: usize) -> Result<Self> {
        let nbytes = slots_at(world_size) + world_size * 2 * inline_bytes;
        let memory = SharedMemory::create("control", nbytes)?;
        let control = Control { memory, world_size, inline_bytes };
        let header = control.header();
        header.world_size.store(world_size as u32, Ordering::Relaxed);
        header.inline_bytes.store(inline_bytes as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(control)
    }

    /// Maps the block that another rank has made.
    ///
    /// # Errors
    /// [`Error::Store`] when it is not one for this group: the ranks run different programs.
    pub(super) fn from_fd(fd: OwnedFd, world_size: usize, inline_bytes: usize) -> Result<Self> {
        let memory = SharedMemory::from_fd(fd)?;
        let control = Control { memory, world_size, inline_bytes };
        let nbytes = slots_at(world_size) + world_size * 2 * inline_bytes;
        let fits = control.memory.len() == nbytes && {
            let header = control.header();
            header.magic.load(Ordering::Acquire) == MAGIC
                && header.world_size.load(Ordering::Relaxed) as usize == world_size
                && header.inline_bytes.load(Ordering::Relaxed) as usize == inline_bytes
        };
        if !fits {
            return Err(Error::Store(
                "the control block made by the group's first rank has another layout: the ranks \
                 run different programs or disagree on the group's size"
                    .into(),
            ));
        }
        Ok(control)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    pub(super) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned and longer than a header (checked against its length
        // before), which is made of atomics only: any bytes are valid, and others may write them.
        unsafe { &*self.memory.as_ptr().cast::<Header>() }
    }

    fn cell(&self, rank: usize) -> &Cell {
        assert!(rank < self.world_size);
        // SAFETY: as `header`; the block has a cell for each rank behind the header.
        unsafe { &*self.memory.as_ptr().add(size_of::<Header>()).cast::<Cell>().add(rank) }
    }

    /// The slot for small messages of `rank` that collectives of the parity of `sequence` use.
    pub(super) fn slot(&self, rank: usize, sequence: u32) -> *mut u8 {
        assert!(rank < self.world_size);
        let index = rank * 2 + (sequence & 1) as usize;
        // SAFETY: inside the mapping, whose size is made of this same formula.
        unsafe { self.memory.as_ptr().add(slots_at(self.world_size) + index * self.inline_bytes) }
    }

    /// Says what this rank is about to do. Others may read it once it has arrived.
    pub(super) fn publish(
        &self,
        rank: usize,
        sequence: u32,
        signature: &Signature,
        place: Place,
    ) -> Fingerprint {
        let parity = (sequence & 1) as usize;
        let fingerprint = Fingerprint::new(sequence, signature);
        let cell = self.cell(rank);
        for (slot, &dim) in cell.shapes[parity].iter().zip(&signature.shape) {
            slot.store(dim as u64, Ordering::Relaxed);
        }
        write_origin(&cell.origins[parity], signature.origin.as_ref());
        let root = signature.root.map_or(0, |root| root as u64 + 1);
        let print = &cell.prints[parity];
        print.hash.store(fingerprint.hash, Ordering::Relaxed);
        print.root.store(root << 32 | signature.shape.len() as u64, Ordering::Relaxed);
        print.place.store(place.0, Ordering::Relaxed);
        print.call.store(fingerprint.call, Ordering::Relaxed);
        fingerprint
    }

    /// What `rank`, which has arrived, published for `sequence`.
    pub(super) fn fingerprint(&self, rank: usize, sequence: u32) -> Fingerprint {
        let print = &self.cell(rank).prints[(sequence & 1) as usize];
        Fingerprint {
            call: print.call.load(Ordering::Relaxed),
            hash: print.hash.load(Ordering::Relaxed),
        }
    }

    pub(super) fn place(&self, rank: usize, sequence: u32) -> Place {
        Place(self.cell(rank).prints[(sequence & 1) as usize].place.load(Ordering::Relaxed))
    }

    /// The call of `rank` with number `sequence`, if that is what it has last published with this
    /// parity.
    pub(super) fn call(&self, rank: usize, sequence: u32) -> Option<Signature> {
        let cell = self.cell(rank);
        let parity = (sequence & 1) as usize;
        let call = cell.prints[parity].call.load(Ordering::Relaxed);
        if (call >> 32) as u32 != sequence {
            return None;
        }
        let root = cell.prints[parity].root.load(Ordering::Relaxed);
        let dims = ((root & 0xffff_ffff) as usize).min(SHAPE);
        let shape: Vec<usize> = cell.shapes[parity][..dims]
            .iter()
            .map(|d| d.load(Ordering::Relaxed) as usize)
            .collect();
        let root = ((root >> 32) as usize).checked_sub(1);
        Signature::from_code(call as u32, root, &shape)
    }

    /// Where the program of `rank` made the call with number `sequence`, if [`call`](Self::call) gives it.
    pub(super) fn origin(&self, rank: usize, sequence: u32) -> Option<String> {
        read_origin(&self.cell(rank).origins[(sequence & 1) as usize])
    }

    /// The number of the last collective that `rank` has entered, and of the last that it has
    /// completed. 0: none.
    pub(super) fn progress(&self, rank: usize) -> (u32, u32) {
        let cell = self.cell(rank);
        let entered = cell.prints.iter().map(|p| (p.call.load(Ordering::Relaxed) >> 32) as u32);
        let completed = cell.completed.load(Ordering::Relaxed);
        (
            entered.fold(completed, |a, b| if b.wrapping_sub(a) as i32 > 0 { b } else { a }),
            completed,
        )
    }

    pub(super) fn complete(&self, rank: usize, sequence: u32) {
        // What it has read before, it reads no more.
        self.cell(rank).completed.store(sequence, Ordering::Release);
    }

    /// Whether `rank` has completed the collective with number `sequence`.
    pub(super) fn has_completed(&self, rank: usize, sequence: u32) -> bool {
        self.cell(rank).completed.load(Ordering::Acquire).wrapping_sub(sequence) as i32 >= 0
    }

    /// Counts `rank` one step further and wakes those who wait for that. What it wrote before is
    /// seen by whoever sees the step.
    pub(super) fn arrive(&self, rank: usize) {
        let cell = self.cell(rank);
        sleepers::arrive(&cell.flag, STEP, &cell.sleepers, || futex::wake_all(&cell.flag));
    }

    /// True when `rank` has arrived `steps` times.
    pub(super) fn has_arrived(&self, rank: usize, steps: u32) -> bool {
        reached(self.cell(rank).flag.load(Ordering::Acquire), steps)
    }

    pub(super) fn has_left(&self, rank: usize) -> bool {
        self.cell(rank).flag.load(Ordering::Acquire) & LEFT != 0
    }

    /// Waits until `rank` has arrived `steps` times; how long that took, as far as it was noticed.
    #[inline]
    pub(super) fn wait(
        &self,
        rank: usize,
        steps: u32,
        patience: Patience,
        remaining: impl Fn() -> Duration,
    ) -> Result<Duration, Interrupted> {
        let cell = self.cell(rank);
        // Most of the time it is there already, or about to be.
        for _ in 0..32 {
            if let Some(end) = look(cell.flag.load(Ordering::Acquire), steps) {
                return end.map(|()| Duration::ZERO);
            }
            std::hint::spin_loop();
        }
        self.wait_long(cell, steps, patience, remaining)
    }

    #[cold]
    fn wait_long(
        &self,
        cell: &Cell,
        steps: u32,
        patience: Patience,
        remaining: impl Fn() -> Duration,
    ) -> Result<Duration, Interrupted> {
        let start = Instant::now();
        while start.elapsed() < patience.spin {
            for _ in 0..16 {
                if let Some(end) = look(cell.flag.load(Ordering::Acquire), steps) {
                    return end.map(|()| start.elapsed());
                }
                std::hint::spin_loop();
            }
        }
        for _ in 0..patience.yields {
            std::thread::yield_now();
            if let Some(end) = look(cell.flag.load(Ordering::Acquire), steps) {
                return end.map(|()| start.elapsed());
            }
        }
        let sleep = |flag| {
            let left = remaining();
            if left.is_zero() {
                return Some(Err(Interrupted::TimedOut));
            }
            futex::wait(&cell.flag, flag, left);
            None
        };
        sleepers::sleep_until(&cell.flag, &cell.sleepers, |flag| look(flag, steps), sleep)
            .map(|()| start.elapsed())
    }

    /// Says that `rank` takes part no more.
    pub(super) fn leave(&self, rank: usize) {
        let cell = self.cell(rank);
        cell.flag.fetch_or(LEFT, Ordering::SeqCst);
        futex::wake_all(&cell.flag);
    }

    /// Aborts the group and wakes everyone. The first record stands; false when there was one.
    pub(super) fn abort(&self, record: &AbortRecord) -> bool {
        let abort = &self.header().abort;
        let first = abort.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if first {
            abort.kind.store(record.cause as u32, Ordering::Relaxed);
            abort.rank.store(record.rank as u32, Ordering::Relaxed);
            abort.pid.store(record.pid, Ordering::Relaxed);
            let mut len = record.reason.len().min(REASON);
            while !record.reason.is_char_boundary(len) {
                len -= 1;
            }
            for (slot, byte) in abort.reason.iter().zip(record.reason[..len].bytes()) {
                slot.store(byte, Ordering::Relaxed);
            }
            abort.len.store(len as u32, Ordering::Relaxed);
            abort.state.store(2, Ordering::Release);
        }
        // Also when it is not the first: the one who was may have died before it got here.
        for rank in 0..self.world_size {
            let flag = &self.cell(rank).flag;
            flag.fetch_or(ABORTED, Ordering::SeqCst);
            futex::wake_all(flag);
        }
        first
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.header().abort.state.load(Ordering::Acquire) != 0
    }

    /// Why the group was aborted, if it was.
    pub(super) fn abort_record(&self) -> Option<AbortRecord> {
        let abort = &self.header().abort;
        let start = Instant::now();
        let written = loop {
            match abort.state.load(Ordering::Acquire) {
                0 => return None,
                2 => break true,
                _ if start.elapsed() > REASON_WITHIN => break false,
                _ => std::thread::yield_now(),
            }
        };
        if !written {
            // The rank that aborted was killed in the middle of it.
            let reason = "the rank that aborted died before it could say why".to_owned();
            return Some(AbortRecord { cause: Cause::Failed, rank: 0, pid: 0, reason });
        }
        let cause = Cause::from_code(abort.kind.load(Ordering::Relaxed));
        let len = (abort.len.load(Ordering::Relaxed) as usize).min(REASON);
        let bytes: Vec<u8> =
            abort.reason[..len].iter().map(|b| b.load(Ordering::Relaxed)).collect();
        Some(AbortRecord {
            cause,
            rank: abort.rank.load(Ordering::Relaxed) as usize,
            pid: abort.pid.load(Ordering::Relaxed),
            reason: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }
}

/// A handful of words per call: paths are short. The end of a long text says more than its beginning.
fn write_origin(words: &[AtomicU64; ORIGIN], origin: Option<&Origin>) {
    let (text, line) = origin.map_or(("", 0), Origin::parts);
    let mut from = text.len().saturating_sub((ORIGIN - 1) * 8);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let bytes = &text.as_bytes()[from..];
    words[0].store(u64::from(line) << 32 | bytes.len() as u64, Ordering::Relaxed);
    for (word, chunk) in words[1..].iter().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
    }
}

fn read_origin(words: &[AtomicU64; ORIGIN]) -> Option<String> {
    let head = words[0].load(Ordering::Relaxed);
    let len = ((head & 0xffff_ffff) as usize).min((ORIGIN - 1) * 8);
    let bytes: Vec<u8> =
        words[1..].iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes[..len]);
    (len > 0).then(|| shown(&text, (head >> 32) as u32))
}

/// Sizes and limits of what ranks share, for the check that all are built alike.
pub(super) fn layout() -> [usize; 8] {
    let sizes = [size_of::<Header>(), size_of::<Abort>(), size_of::<Cell>(), size_of::<Print>()];
    let [header, abort, cell, print] = sizes;
    [header, abort, cell, print, SHAPE, REASON, ORIGIN, STEP as usize]
}

fn slots_at(world_size: usize) -> usize {
    (size_of::<Header>() + world_size * size_of::<Cell>()).next_multiple_of(4096)
}

fn reached(flag: u32, steps: u32) -> bool {
    // Steps wrap around at 2^30; ranks are never further apart than one.
    (flag & !(STEP - 1)).wrapping_sub(steps.wrapping_mul(STEP)) as i32 >= 0
}

/// Whether a wait is over. An arrival counts even when the group was aborted after it: what was
/// waited for has happened.
#[inline]
fn look(flag: u32, steps: u32) -> Option<Result<(), Interrupted>> {
    if reached(flag, steps) {
        Some(Ok(()))
    } else if flag & ABORTED != 0 {
        Some(Err(Interrupted::Aborted))
    } else if flag & LEFT != 0 {
        Some(Err(Interrupted::PeerLeft))
    } else {
        None
    }
}
