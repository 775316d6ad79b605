//! A job over several hosts, as this host's launcher takes part in it: which host leads, when workers start and end,
//! and what is said of them, once for all hosts.

pub mod detected;
mod ending;
mod job;
mod link;
mod options;
mod report;

pub use job::run;
pub use options::{HostsPlan, STATIC_PORT, ScaleUpOption, nnodes, scale_up};
