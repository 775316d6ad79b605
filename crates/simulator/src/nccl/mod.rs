//! NCCL between processes: the ranks of a communicator meet on a page of shared memory, and data passes
//! through it in chunks. Those of a job on several hosts have connections instead ([`mesh`]). Calls are queued on
//! streams like any work; a thread of the communicator performs them in the order of the calls, so that a rank that
//! waits for its peers occupies no executor.
//!
//! Where NCCL would hang, this says why: calls that differ between ranks, a peer that died or aborted, are
//! printed and become the communicator's asynchronous error. The streams stay blocked until the communicator
//! is aborted, as with NCCL.

pub mod board;
pub mod collective;
pub mod communicator;
pub mod element;
pub mod group;
pub mod id;
pub mod mailbox;
pub mod mesh;
mod minifloat;
pub mod outcome;
pub mod place;
pub mod root;
pub mod seat;
pub mod split;
pub mod transfer;
