//! The board: memory that the launcher shares with its workers, a slot for each, in which a worker notes how far it
//! is. To write costs nanoseconds: no system call, and no lock that another process holds. The launcher reads when
//! somebody looks.
//!
//! A slot has counters, which any thread of the worker adds to, and a part that is written as a whole: the last
//! scalars, the checkpoint, the device. A sequence number, odd while that part is written, tells a reader that it
//! read a torn one. Whatever a worker writes there, a reader gets numbers and text of bounded length.

mod doing;
mod memory;
mod reading;
mod slot;
#[cfg(test)]
mod tests;
mod worker;

pub use doing::Doing;
pub use memory::Board;
pub use reading::{DeviceReading, Logged, Reading, SavedReading, Scalar};
pub use slot::{Slot, TimeOf};
pub use worker::{MEMORY_NAME, install, own};

/// The most scalars that a slot holds; of more names the first ones stay.
pub const SCALARS: usize = 32;
/// Bytes of a scalar's name; a longer one is cut, and marked so that it differs from others.
pub const NAME: usize = 40;
/// Bytes of a device's name.
pub const DEVICE_NAME: usize = 64;
/// Bytes of a device's place on the bus.
pub const BUS: usize = 32;
