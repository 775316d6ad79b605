//! `--hosts`: the user starts one launcher, and it starts those of the other hosts.
//!
//! The user's front has a supervisor of its own kind ([`near`]), whose children are remote shells, or for this host a
//! launcher without one. At the far end of each a launcher ([`far`]) takes its options, the job's token, signals and
//! signs of life from its standard input, and sends what its supervisor writes back through its standard output, in
//! frames ([`wire`]). From there on it is a launcher as any other: it meets the others at an endpoint that the near
//! end has chosen. When its standard input ends, it ends all that it has started: so nothing outlives the near end.

pub mod address;
mod exported;
pub mod far;
mod host;
mod line;
mod list;
mod meeting;
pub mod near;
pub mod options;
mod plan;
mod trouble;
pub mod wire;
