//! Child processes by re-executing this program, and channels that carry tensors by handle.
//!
//! Knows nothing of `ops`, `data`, `distributed` and `nn`.
//!
//! There is no fork: a child is this same executable, started anew by `posix_spawn`, that runs one
//! function instead of `main`. So [`init`] (or [`#[torchrs::main]`](macro@crate::main)) comes first
//! in `main`; under a test harness, which owns `main`, a hook that runs before it does the same.
//! Children die with their parent, however it ends, and are reaped when their handle is dropped.
//!
//! - [`spawn`]: the same function in several processes (`torch.multiprocessing.spawn`).
//! - [`Process`]: one child, with or without a [`Channel`] to it.
//! - [`channel`], [`duplex`]: typed messages; a tensor or a channel inside travels by handle.
//! - [`handles`]: for types of your own that own a descriptor or shared memory.
//! - [`report`]: the record that a failing process leaves for its parent or the launcher.
//!
//! ```
//! use torchrs::Tensor;
//! use torchrs::multiprocessing::{Channel, Process};
//!
//! fn double(_: (), parent: Channel<(), Tensor>) -> torchrs::Result<()> {
//!     parent.recv()?.mul_(2.0);
//!     parent.send(&())
//! }
//! let (child, channel) = Process::builder().spawn_connected(double, ())?;
//! let x = Tensor::from([1f32, 2.]);
//! channel.send(&x)?;
//! channel.recv()?;
//! assert_eq!(x.to_vec::<f32>(), [2.0, 4.0]);
//! child.join()?;
//! # Ok::<(), torchrs::Error>(())
//! ```

mod channel;
mod device_tensor;
mod entry;
pub mod handles;
mod init;
mod oom;
mod process;
mod quit;
mod socket;
mod spawn;
mod spawner;
mod tensor;
mod weak_map;

pub use channel::{Channel, Receiver, Sender, channel, duplex};
pub(crate) use entry::conjure;
pub use init::{Restart, inherited_store_fd, init, init_library};
pub use process::{Process, ProcessBuilder};
pub use report::Outcome;
pub use spawn::{ProcessContext, spawn, start_processes};
#[doc(inline)]
pub use torchrs_job::environment::{MAX_CONNECTIONS, PARENT_PID, STORE_FD};
#[doc(inline)]
pub use torchrs_job::exit_status::ExitStatus;
#[doc(inline)]
pub use torchrs_job::variables::unknown_variables;
use torchrs_job::{exit_status, variables};

pub mod report {
    //! The record that a failing process leaves for whoever started it: message, backtrace, time and
    //! cause. It is torchelastic's error file with a few more fields, so torchrun's tools read it too.
    //! A panic hook writes it without opt-in; only the first failure of a process is recorded.
    //!
    //! The crate `torchrs-job` defines all this: the launcher shares it.

    pub(crate) use torchrs_job::report::say;
    #[doc(inline)]
    pub use torchrs_job::report::{
        ERROR_FILE, ErrorRecord, ExtraInfo, Kind, MessageBody, Outcome, finish, monotonic_ns,
        record,
    };
    pub(super) use torchrs_job::report::{install, take_inherited};
}
