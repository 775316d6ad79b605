//! What moves bytes between the hosts of a group. An [`Engine`] joins one member of each host, a rail, and runs its
//! calls; memory of a host, meetings of its members and what a failure is to them are no business of it.
//!
//! | module | engine |
//! | --- | --- |
//! | [`tcp`] | TCP connections (`torchrs_links`): the built-in one |
//! | [`mpi`] | MPI, where its launcher has started the workers |
//! | [`choice`] | which of them a job has |
//! | [`encryption`] | whether its data is encrypted |

mod choice;
pub(super) mod encryption;
pub(super) mod mpi;
pub(super) mod tcp;

pub(super) use choice::{Offered, choose};
use torchrs_links::{Call, Failure};

use crate::distributed::Dtype;
use crate::distributed::collective::{Owner, ReduceOp};
use crate::distributed::shm::reduce;

/// One member's end of a rail. All places of the rail make the same calls in the same order; a [`Call`] carries the
/// number and fingerprint by which a place that makes another one is found out, when to give up, and why to stop
/// before.
///
/// After a call has failed the engine is of no more use: each later call fails too. What was to be received may then
/// hold anything.
pub(super) trait Engine: Send {
    /// Waits until all places have called it.
    fn barrier(&mut self, call: &Call<'_>) -> Result<(), Failure>;

    /// Combines the buffers of all places, which are of one length: each then has the same bits.
    fn all_reduce(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        reduction: Reduction,
    ) -> Result<(), Failure>;

    /// Gives the own part of `data` to all: on return each has all parts, of `lengths` bytes, one after the other.
    fn all_gather(
        &mut self,
        call: &Call<'_>,
        data: Region<'_>,
        lengths: &[usize],
    ) -> Result<(), Failure>;

    /// Gives part i of `send` to place i, and takes part i of `receive` from it. Both are memory of one owner.
    fn all_to_all(
        &mut self,
        call: &Call<'_>,
        send: &[u8],
        send_lengths: &[usize],
        receive: Region<'_>,
        receive_lengths: &[usize],
    ) -> Result<(), Failure>;

    /// Tells the other places that this one cannot go on, and `why`; each later call fails.
    fn give_up(&mut self, why: &str);

    /// Between calls: whether a place has ended without a word, or says that a call of its own has failed. Waits for
    /// nothing. A place that has left is no failure.
    fn check(&mut self) -> Result<(), Failure>;
}

/// Bytes of a call, and what keeps them where they are: an engine may go on using them after the call has failed.
pub(super) struct Region<'a> {
    pub bytes: &'a mut [u8],
    pub owner: &'a Owner,
}

/// How elements are combined, and what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reduction {
    /// Not [`ReduceOp::Avg`]: a mean is a sum until its end.
    pub op: ReduceOp,
    pub dtype: Dtype,
}

impl Reduction {
    /// Combines `from` into `into`. Both hold as many whole elements, at multiples of their size.
    pub fn combine(self, into: &mut [u8], from: &[u8]) {
        assert_eq!(into.len(), from.len(), "two buffers of one length are combined");
        let (at, len) = (into.as_mut_ptr(), into.len());
        // SAFETY: both hold whole elements, at multiples of their size, and do not overlap.
        unsafe { self.into_place(&[at, from.as_ptr()], at, len) };
    }

    /// Combines buffers of `len` bytes in their order; the result goes to `into`, which may be one of them.
    ///
    /// # Safety
    /// All hold whole elements, at multiples of their size, and are otherwise apart; nobody else uses them meanwhile.
    pub unsafe fn into_place(self, sources: &[*const u8], into: *mut u8, len: usize) {
        // SAFETY: this function's contract.
        unsafe { reduce(self.op, self.dtype, sources, &[into], len / self.dtype.size()) };
    }
}
