//! Connections between the processes of several hosts, and collectives on them: the built-in engine for tensors
//! in ordinary memory.
//!
//! A [`Listener`] is bound once in a process. [`Links::connect`] joins the process, which is one of `n` places, with
//! the `n - 1` others. [`Links::exchange`] moves byte buffers; the collectives are made of the same moves. Each call
//! has a fingerprint that travels with its data, so that places which call different things find out at once.
//!
//! Knows nothing of `tensor`, `distributed` and `launcher`: elements are bytes, and who combines them is a function.

mod addresses;
mod collectives;
mod connect;
mod exchange;
mod failure;
mod header;
mod lane;
mod layout;
mod links;
mod listener;
mod notes;
mod proof;
mod wire;

pub use addresses::Addresses;
pub use exchange::{Receive, Send};
pub use failure::Failure;
pub use header::MAX_FINGERPRINT;
pub use links::{Call, Combine, Encryption, Links, Options, Watch};
pub use listener::Listener;
pub use notes::{Heard, Notes};
pub use torchrs_rendezvous::proof::Refusal;
