//! MPI, opened at run time: which library, its processes, operations between them that end by a deadline.
//! Knows nothing of `tensor` or `distributed`: memory is bytes here.
//!
//! An MPI launcher (`mpirun`, `srun --mpi=pmi2`) must have started the process. [`Mpi::load`] finds the library
//! of that launcher's family. A [`Communicator`] starts operations; each is a [`Request`], which owns its memory
//! until MPI has done with it.
//!
//! What holds of results:
//! - Data movement is exact. Integers wrap around. For bool, sum, max and "or" are one, as are product, min and "and".
//! - `Min` and `Max` of floats are NaN if any element is (MPI's own pass over NaN), and -0 is below +0. Their bits do
//!   not depend on the order.
//! - Sums and products of floats are combined in the order of MPI's algorithm, which may change with size and number
//!   of processes. Both libraries add the same numbers on all ranks, so ranks get equal bits; not by rank order, though.
//! - f16 and bf16 are combined in f32, and each partial result is rounded: one rounding for two ranks, N - 1 at most.
//!   A caller who wants a single one widens to f32.

mod abi;
mod collectives;
mod combination;
mod communicator;
mod element;
mod failure;
mod launcher;
mod leaving;
mod library;
mod mpi;
mod operators;
mod point_to_point;
mod polling;
mod request;
mod start;
mod tuning;
mod world;

pub use communicator::Communicator;
pub use element::{Element, Reduction};
pub use failure::{Failure, Watch};
pub use launcher::{Family, Offer};
pub use mpi::Mpi;
pub use polling::{Pauses, Polling};
pub use request::{Memory, Request};
