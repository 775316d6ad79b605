//! The variables that whoever starts a process sets for it.

/// The process whose end this process must not outlive: its parent, or the launcher further up.
pub const PARENT_PID: &str = "TORCHRS_PARENT_PID";
/// The number of an inherited socket that is connected to the rendezvous store.
pub const STORE_FD: &str = "TORCHRS_STORE_FD";
/// Which start of the job's workers this is, from 0: failures count, and hosts that come or leave.
pub const ROUND: &str = "TORCHRS_ROUND";
/// How many hardware queues a GPU's streams of a process are spread over, the most there are; the driver reads it.
pub const MAX_CONNECTIONS: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");
/// The number of an inherited descriptor: the memory in which a worker notes how far it is.
pub const BOARD_FD: &str = "TORCHRS_BOARD_FD";
