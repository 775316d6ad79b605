//! How the launchers of a job's hosts find each other, agree on who takes part, and tell each other what happens.
//! Knows nothing of `launcher` or `distributed`: what a worker is, or a tensor.

pub mod action;
pub mod calling;
pub mod channel;
pub mod driver;
pub mod ending;
mod fitting;
pub mod history;
pub mod host_store;
pub mod leader;
pub mod lock;
pub mod member;
pub mod proof;
pub mod protocol;
pub mod settings;
pub mod token;
