//! The order of work on a device: streams, events, and what those who wait for them are told.
//!
//! It knows nothing of what the work is: no memory, no kernel.

pub mod event;
pub mod lost;
pub mod stream;
pub mod synchronisation;
