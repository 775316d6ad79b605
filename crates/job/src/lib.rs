//! What the launcher and the workers of a job share: the record of a failure, how a process ended, the
//! names of environment variables, the rendezvous store's server and its protocol, the board on which workers note how far
//! they are, deadlines, lists of ranks, the order of a host's addresses, and where a process stands in a cluster.
//!
//! Knows nothing of tensors or devices, so the launcher builds without them. The library has all of this
//! under `torchrs::multiprocessing` and `torchrs::distributed`.

pub mod addresses;
pub mod board;
pub mod cluster;
pub mod deadline;
pub mod environment;
pub mod exit_status;
pub mod ranks;
pub mod report;
pub mod store;
pub mod variables;
