//! The memory through which the ranks of a communicator meet: a cell for each rank that says how far it
//! has come and what it is about to do, two slots for each rank's data, a mailbox for each pair.
//!
//! Pages that nobody touches do not exist, so all boards are as large as the largest needs to be.

use super::mailbox::Mailbox;
use crate::memory::mapping::Mapping;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The most ranks of a communicator.
pub const MAX_RANKS: usize = 64;
/// Bytes of a slot.
pub const SLOT: usize = 128 << 10;
/// Bytes that a rank gives in a meeting of the hosts.
pub const NOTE: usize = 192;

const CELLS: usize = 4096;
const SLOTS: usize = CELLS + MAX_RANKS * size_of::<Cell>().next_multiple_of(4096);
const MAILBOXES: usize = SLOTS + MAX_RANKS * 2 * SLOT;
/// Bytes of a board.
pub const BYTES: usize = MAILBOXES + MAX_RANKS * MAX_RANKS * size_of::<Mailbox>();

/// Words in which a rank says what it calls.
pub type Call = [u64; 6];

/// Where ranks meet: calls on streams, or calls that the hosts make among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Work of the devices.
    Device,
    /// The hosts, which wait for no device.
    Host,
}

/// What a rank's process is doing about the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Nobody has this rank yet.
    Free,
    /// Takes part.
    Joined,
    /// Has destroyed its end.
    Left,
    /// Has aborted its end.
    Aborted,
}

#[repr(C)]
struct Head {
    world: AtomicU32,
}

/// A rank's cell.
#[repr(C)]
pub struct Cell {
    state: AtomicU32,
    /// Rung whenever something has changed that the rank may wait for.
    bell: AtomicU32,
    /// The rank's process, and when that began.
    pub process: AtomicU32,
    /// The physical number of its device.
    pub device: AtomicU32,
    /// When its process began.
    pub began: AtomicU64,
    lanes: [Steps; 2],
    notes: [[AtomicU64; NOTE / 8]; 2],
}

#[repr(C)]
struct Steps {
    step: AtomicU64,
    calls: [[AtomicU64; 6]; 2],
}

/// A mapped board.
#[derive(Debug)]
pub struct Board(Mapping);

impl Board {
    /// A board in memory of the right size.
    pub fn new(mapping: Mapping) -> Board {
        assert!(mapping.bytes() >= BYTES);
        Board(mapping)
    }

    fn at<T>(&self, offset: usize) -> &T {
        debug_assert!(offset + size_of::<T>() <= BYTES);
        // SAFETY: within the mapping, at a multiple of a page or of the type's size, and made of atomics
        // only, for which any bytes are valid.
        unsafe { &*((self.0.start() + offset) as *const T) }
    }

    /// Says how many ranks there are, or hears that another rank said something else.
    pub fn agree_on_world(&self, world: usize) -> Result<(), usize> {
        let place = &self.at::<Head>(0).world;
        let said = place.compare_exchange(0, world as u32, Ordering::AcqRel, Ordering::Acquire);
        match said {
            Err(other) if other as usize != world => Err(other as usize),
            _ => Ok(()),
        }
    }

    /// A rank's cell.
    pub fn cell(&self, rank: usize) -> &Cell {
        assert!(rank < MAX_RANKS);
        self.at(CELLS + rank * size_of::<Cell>().next_multiple_of(4096))
    }

    /// The first byte of a rank's slot for a step.
    pub fn slot(&self, rank: usize, step: u64) -> *mut u8 {
        assert!(rank < MAX_RANKS);
        let number = rank * 2 + (step % 2) as usize;
        (self.0.start() + SLOTS + number * SLOT) as *mut u8
    }

    /// The mailbox for what one rank sends to another.
    pub fn mailbox(&self, from: usize, to: usize) -> &Mailbox {
        assert!(from < MAX_RANKS && to < MAX_RANKS);
        self.at(MAILBOXES + (from * MAX_RANKS + to) * size_of::<Mailbox>())
    }
}

impl Cell {
    /// Takes the rank, unless somebody has it.
    pub fn claim(&self) -> bool {
        let (free, joined) = (State::Free as u32, State::Joined as u32);
        // The process is written by whoever wins, which is what the others wait to see.
        self.state.compare_exchange(free, joined, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// What its process is doing.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Free,
            1 => State::Joined,
            2 => State::Left,
            _ => State::Aborted,
        }
    }

    /// Says that its process is done with the communicator.
    pub fn end(&self, state: State) {
        let before = State::Joined as u32;
        let _ =
            self.state.compare_exchange(before, state as u32, Ordering::AcqRel, Ordering::Acquire);
    }

    /// How many steps it has made.
    pub fn step(&self, lane: Lane) -> u64 {
        self.lanes[lane as usize].step.load(Ordering::Acquire)
    }

    /// Says what it calls at a step that it is about to make.
    pub fn publish(&self, lane: Lane, step: u64, call: &Call) {
        for (place, word) in self.lanes[lane as usize].calls[(step % 2) as usize].iter().zip(call) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    /// Makes a step.
    pub fn make_step(&self, lane: Lane) {
        self.lanes[lane as usize].step.fetch_add(1, Ordering::AcqRel);
    }

    /// What it called at a step.
    pub fn call(&self, lane: Lane, step: u64) -> Call {
        let words = &self.lanes[lane as usize].calls[(step % 2) as usize];
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Writes what the host gives at a step.
    pub fn write_note(&self, step: u64, note: &[u8; NOTE]) {
        for (place, bytes) in self.notes[(step % 2) as usize].iter().zip(note.as_chunks().0) {
            place.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Reads it.
    pub fn note(&self, step: u64) -> [u8; NOTE] {
        let mut note = [0; NOTE];
        for (place, bytes) in self.notes[(step % 2) as usize].iter().zip(note.as_chunks_mut().0) {
            *bytes = place.load(Ordering::Relaxed).to_le_bytes();
        }
        note
    }

    /// The bell's count, to be read before looking at what it rings for.
    pub fn bell(&self) -> u32 {
        self.bell.load(Ordering::SeqCst)
    }

    /// Wakes the rank.
    pub fn ring(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the address of a word that is mapped; waking touches nothing.
        unsafe {
            libc::syscall(libc::SYS_futex, self.bell.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
        }
    }

    /// Sleeps until the bell has another count than this, or for a while.
    pub fn sleep(&self, count: u32, time: Duration) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        // SAFETY: the address of a word that is mapped, and a time to wait.
        unsafe {
            libc::syscall(libc::SYS_futex, self.bell.as_ptr(), libc::FUTEX_WAIT, count, &time);
        }
    }
}
