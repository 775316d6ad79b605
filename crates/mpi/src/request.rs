//! An operation that runs: it is polled, and owns its memory until MPI has done with it.

use std::ffi::c_int;
use std::mem;
use std::sync::Arc;

use half::{bf16, f16};
use torchrs_job::deadline::Deadline;

use crate::abi::{Handle, Status};
use crate::communicator::Shared;
use crate::failure::{Failure, Watch};
use crate::polling::{Pauses, Polling};

/// Memory that an operation reads or writes.
///
/// # Safety
/// The address and size stay the same while the value lives, also when it is moved, and the bytes may be written
/// with anything that an equal value of a peer holds. Nothing else uses them while an operation has the value. A
/// value that is forgotten (`std::mem::forget`) keeps its memory valid for ever: MPI may still write to it.
pub unsafe trait Memory: Send + 'static {
    /// Where it begins.
    fn address(&mut self) -> *mut u8;
    /// Its bytes.
    fn size(&self) -> usize;
}

/// Where memory begins. Nothing begins somewhere too: an empty vector's address may be 1, which Open MPI takes for
/// `MPI_IN_PLACE`.
pub(crate) fn place<M: Memory>(memory: &mut M) -> *mut u8 {
    static NOTHING: u128 = 0;
    match memory.size() {
        0 => (&raw const NOTHING).cast_mut().cast(),
        _ => memory.address(),
    }
}

macro_rules! vectors {
    ($($t:ty),*) => {$(
        // SAFETY: a vector's elements lie on the heap and do not move with it; any bits are a number.
        unsafe impl Memory for Vec<$t> {
            fn address(&mut self) -> *mut u8 {
                self.as_mut_ptr().cast()
            }
            fn size(&self) -> usize {
                mem::size_of_val(self.as_slice())
            }
        }
    )*};
}
vectors!(u8, i8, i16, i32, i64, f32, f64, f16, bf16);

// SAFETY: no bytes: for the ranks that give nothing.
unsafe impl Memory for () {
    fn address(&mut self) -> *mut u8 {
        std::ptr::dangling_mut()
    }
    fn size(&self) -> usize {
        0
    }
}

/// A request of MPI, and what must hold when it is done.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) handle: Handle,
    /// Of a receive: how many bytes there must be.
    pub(crate) expects: Option<usize>,
}

/// An operation that was started. It has to be waited for: dropped before its end, it leaves its memory behind
/// (MPI may still use it) and its communicator unusable.
#[derive(Debug)]
#[must_use = "an operation that nobody waits for makes its communicator unusable"]
pub struct Request<M> {
    communicator: Arc<Shared>,
    call: &'static str,
    size: usize,
    pieces: Vec<Piece>,
    done: usize,
    /// `None` when the memory was given back or left behind.
    held: Option<Held<M>>,
}

/// What MPI may use until the end.
#[derive(Debug)]
pub(crate) struct Held<M> {
    pub(crate) memory: M,
    /// Counts and displacements.
    pub(crate) numbers: Vec<Box<[c_int]>>,
}

impl<M> Request<M> {
    pub(crate) fn new(
        communicator: Arc<Shared>,
        call: &'static str,
        size: usize,
        pieces: Vec<Piece>,
        held: Held<M>,
    ) -> Self {
        communicator.mpi.begin();
        Request { communicator, call, size, pieces, done: 0, held: Some(held) }
    }

    /// `all_reduce of 400 bytes, rank 1 of 4`.
    fn what(&self) -> String {
        let (call, size, place) = (self.call, self.size, self.communicator.place());
        if size == 0 {
            format!("{call}, {place}")
        } else {
            format!("{call} of {size} bytes, {place}")
        }
    }

    /// Lets MPI work, and says whether the operation has ended.
    ///
    /// # Errors
    /// [`Failure::Failed`] with MPI's text; the communicator is unusable from then on.
    pub fn test(&mut self) -> Result<bool, Failure> {
        if self.held.is_none() {
            return Err(Failure::failed(format!("{}: has failed before", self.what())));
        }
        match self.advance() {
            Ok(is_done) => Ok(is_done),
            Err(text) => Err(self.give_up(Failure::Failed { text })),
        }
    }

    fn advance(&mut self) -> Result<bool, String> {
        let mpi = self.communicator.mpi;
        let _open = mpi.enter()?;
        while let Some(piece) = self.pieces.get_mut(self.done) {
            let (mut flag, mut status) = (0, Status([0; 64]));
            // SAFETY: a request that was started and not yet seen to end, places for the answers, and MPI is open.
            let code = unsafe {
                (mpi.functions.MPI_Test)(&raw mut piece.handle, &raw mut flag, &raw mut status)
            };
            mpi.check(self.call, code)?;
            if flag == 0 {
                return Ok(false);
            }
            if let Some(expected) = piece.expects {
                let mut count = 0;
                // SAFETY: the status of a receive that has ended, and a place for the number.
                let code = unsafe {
                    (mpi.functions.MPI_Get_count)(
                        &raw const status,
                        mpi.handles.byte,
                        &raw mut count,
                    )
                };
                mpi.check(self.call, code)?;
                if usize::try_from(count) != Ok(expected) {
                    let what = self.call;
                    return Err(format!("{what}: {count} bytes came where {expected} should"));
                }
            }
            self.done += 1;
        }
        Ok(true)
    }

    /// Waits until the operation has ended, with the default [`Polling`], and gives its memory back.
    ///
    /// # Errors
    /// [`Failure::TimedOut`], [`Failure::Stopped`] in the watch's words, [`Failure::Failed`] in MPI's. The memory is
    /// then left behind for good (MPI has no safe way to take a collective back), and the communicator is unusable.
    pub fn wait(self, deadline: impl Into<Deadline>, watch: &mut Watch<'_>) -> Result<M, Failure> {
        self.wait_with(Polling::default(), deadline, watch)
    }

    /// [`wait`](Self::wait) with another [`Polling`].
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_with(
        mut self,
        polling: Polling,
        deadline: impl Into<Deadline>,
        watch: &mut Watch<'_>,
    ) -> Result<M, Failure> {
        let (deadline, mut pauses) = (deadline.into(), Pauses::new(polling, self.size));
        while !self.test()? {
            let paused = pauses.pause(|| self.what(), &deadline, watch);
            paused.map_err(|failure| self.give_up(failure))?;
        }
        self.communicator.mpi.end();
        match self.held.take() {
            Some(held) => Ok(held.memory),
            None => Err(Failure::failed(format!("{}: has failed before", self.what()))),
        }
    }

    /// Leaves the memory to MPI and makes the communicator unusable.
    fn give_up(&mut self, failure: Failure) -> Failure {
        if let Some(held) = self.held.take() {
            mem::forget(held);
            self.communicator.spoil(&failure.to_string());
        }
        failure
    }
}

impl<M> Drop for Request<M> {
    fn drop(&mut self) {
        if self.held.is_some() && self.done == self.pieces.len() {
            self.communicator.mpi.end();
        } else if self.held.is_some() {
            let what = format!("{} was dropped before its end", self.what());
            self.give_up(Failure::failed(what));
        }
    }
}
