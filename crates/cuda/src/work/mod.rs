//! The order of work on a device: streams, events, captures, and what those who wait for them are told.
//!
//! It knows nothing of what the work is: no memory, no kernel.

pub mod event;
pub mod executable;
pub mod lost;
pub mod recording;
pub mod stream;
pub mod synchronisation;
pub mod traffic;
pub mod wait;
