//! Starting an operation: requests of MPI, one after the other, and the memory that all of them hold.

use std::ffi::c_int;
use std::sync::Arc;

use crate::abi::Handle;
use crate::communicator::Communicator;
use crate::failure::Failure;
use crate::request::{Held, Piece, Request};

/// What is being started: a request of which nothing has been handed out yet.
pub(crate) struct Start<'a, M> {
    communicator: &'a Communicator,
    call: &'static str,
    size: usize,
    pieces: Vec<Piece>,
    held: Held<M>,
}

impl<'a, M: Send> Start<'a, M> {
    pub(crate) fn new(
        communicator: &'a Communicator,
        call: &'static str,
        size: usize,
        memory: M,
    ) -> Result<Self, Failure> {
        communicator.shared.usable()?;
        let held = Held { memory, numbers: Vec::new() };
        Ok(Start { communicator, call, size, pieces: Vec::new(), held })
    }

    pub(crate) fn memory(&mut self) -> &mut M {
        &mut self.held.memory
    }

    /// Numbers that MPI reads until the end.
    pub(crate) fn keep(&mut self, numbers: Vec<usize>) -> *const c_int {
        // They fit: sums of what one call may have.
        let numbers: Box<[c_int]> = numbers.into_iter().map(|n| n as c_int).collect();
        self.held.numbers.push(numbers);
        self.held.numbers.last().map_or(std::ptr::null(), |numbers| numbers.as_ptr())
    }

    /// Starts one request by `call`, which gets the communicator and the place for the request. After an error all
    /// that was started is left behind.
    pub(crate) fn piece(
        mut self,
        expects: Option<usize>,
        call: impl FnOnce(Handle, *mut Handle) -> c_int,
    ) -> Result<Self, Failure> {
        let shared = &self.communicator.shared;
        let mut handle = 0;
        let started = shared
            .mpi
            .enter()
            .and_then(|_open| shared.mpi.check(self.call, call(shared.handle, &raw mut handle)));
        match started {
            Ok(()) => {
                self.pieces.push(Piece { handle, expects });
                Ok(self)
            }
            Err(text) => {
                shared.spoil(&text);
                std::mem::forget(self.held);
                Err(Failure::Failed { text })
            }
        }
    }

    pub(crate) fn request(self) -> Request<M> {
        let shared = Arc::clone(&self.communicator.shared);
        Request::new(shared, self.call, self.size, self.pieces, self.held)
    }
}

/// Start and length of pieces of at most `longest` of `len`.
pub(crate) fn cut(len: usize, longest: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(longest).map(move |start| (start, longest.min(len - start)))
}

/// What is done with the memory of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Send,
    /// All of it.
    Receive,
    ReceiveUpTo,
}

impl Way {
    pub(crate) fn of(sends: bool) -> Self {
        if sends { Way::Send } else { Way::Receive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_memory_is_cut_into_calls_that_fit_an_int() {
        let pieces: Vec<_> = cut(5 << 30, 1 << 30).collect();
        assert_eq!((pieces.len(), pieces[4]), (5, (4 << 30, 1 << 30)));
        assert_eq!(cut(7, 3).collect::<Vec<_>>(), [(0, 3), (3, 3), (6, 1)]);
        assert_eq!(cut(0, 3).count(), 0);
    }
}
