//! What is known of a running job, for whoever looks: the status page, `/metrics`, `torchrs top`. The supervisor says
//! what happens; workers note on their board how far they are; both are read when somebody looks, and with
//! `--dashboard` once a second. Nothing here can hold up the job.

pub mod event;
mod gpus;
pub mod history;
mod live;
pub mod numbers;
mod sample;
mod slow;
pub mod snapshot;
pub mod socket;
mod usage;

pub use live::{Look, Member, Round, Status};
