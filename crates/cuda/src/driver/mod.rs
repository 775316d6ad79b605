//! The CUDA driver: its functions as a table, and what its return codes mean for a user.
//!
//! It knows the library file and nothing else: no device, no stream, no memory.

pub(crate) mod code;
mod relaxed;
mod table;

pub use relaxed::{CaptureMode, relax_thread};

pub(crate) use relaxed::Relaxed;
pub(crate) use table::{
    Context, DeviceNumber, DevicePointer, EventHandle, FunctionHandle, GraphExecHandle,
    GraphHandle, IpcHandle, ModuleHandle, StreamHandle, driver,
};
