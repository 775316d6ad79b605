//! Messages from one rank to another.

use std::ffi::c_int;

use torchrs_error::Error;

use crate::communicator::Communicator;
use crate::failure::Failure;
use crate::request::{Memory, Request, place};
use crate::start::{Start, Way, cut};

impl Communicator {
    /// Tags are below this. MPI has at least twice as many; collectives that are made of messages use the rest.
    pub const TAGS: u16 = 1 << 14;

    /// Sends bytes to `peer`. It ends when the memory may be used again, maybe before they are received.
    ///
    /// # Errors
    /// [`Failure::Argument`] of a rank or tag that cannot be; [`Failure::Failed`] in MPI's words.
    pub fn send<M: Memory>(&self, memory: M, peer: usize, tag: u16) -> Result<Request<M>, Failure> {
        self.one_message("send", memory, (peer, tag), Way::Send)
    }

    /// Receives what `peer` sends with `tag`: as many bytes as the memory has.
    ///
    /// # Errors
    /// As [`send`](Self::send). The request fails when fewer or more bytes come.
    pub fn receive<M: Memory>(
        &self,
        memory: M,
        peer: usize,
        tag: u16,
    ) -> Result<Request<M>, Failure> {
        self.one_message("receive", memory, (peer, tag), Way::Receive)
    }

    /// As [`receive`](Self::receive), of a message that may be shorter than the memory: what is in it says how long it
    /// is. The rest of the memory stays.
    ///
    /// # Errors
    /// As [`send`](Self::send), and memory of more than 1 GiB. The request fails when more bytes come.
    pub fn receive_up_to<M: Memory>(
        &self,
        memory: M,
        peer: usize,
        tag: u16,
    ) -> Result<Request<M>, Failure> {
        if memory.size() > self.longest {
            let what = format!("{} bytes; must be {} at most", memory.size(), self.longest);
            return Err(Error::argument("receive_up_to", "memory", what).into());
        }
        self.one_message("receive_up_to", memory, (peer, tag), Way::ReceiveUpTo)
    }

    fn one_message<M: Memory>(
        &self,
        call: &'static str,
        memory: M,
        (peer, tag): (usize, u16),
        way: Way,
    ) -> Result<Request<M>, Failure> {
        self.check_rank(call, "peer", peer)?;
        if tag >= Self::TAGS {
            let what = format!("{tag}; must be below {}", Self::TAGS);
            return Err(Error::argument(call, "tag", what).into());
        }
        let size = memory.size();
        let mut start = Start::new(self, call, size, memory)?;
        let at = place(start.memory());
        start = self.message(start, (at, size), (peer, c_int::from(tag)), way)?;
        Ok(start.request())
    }

    /// Sends or receives memory that the request holds. No bytes are one message too: it is waited for.
    pub(crate) fn message<'a, M: Send>(
        &self,
        mut start: Start<'a, M>,
        (at, size): (*mut u8, usize),
        (peer, tag): (usize, c_int),
        way: Way,
    ) -> Result<Start<'a, M>, Failure> {
        let (f, byte, peer) = (&self.mpi().functions, self.mpi().handles.byte, peer as c_int);
        let empty = (size == 0).then_some((0, 0));
        for (first, n) in cut(size, self.longest).chain(empty) {
            // SAFETY: all callers pass memory of `size` bytes that the request holds; pieces of one tag come in order.
            start = start.piece((way == Way::Receive).then_some(n), |of, to| unsafe {
                let (data, n) = (at.add(first), n as c_int);
                match way {
                    Way::Send => (f.MPI_Isend)(data, n, byte, peer, tag, of, to),
                    Way::Receive | Way::ReceiveUpTo => {
                        (f.MPI_Irecv)(data, n, byte, peer, tag, of, to)
                    }
                }
            })?;
        }
        Ok(start)
    }
}
