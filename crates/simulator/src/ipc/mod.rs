//! Memory and events of other processes. A handle says which descriptor of which process holds the
//! thing; it is opened through `/proc`, so that nothing needs a name or outlives its last user.

pub mod event;
pub mod handle;
pub mod memory;
