//! What training programs are made of, for loops of one's own: the program's `for` loop stays in control.
//!
//! Knows nothing of `models`.
//!
//! | for | there is |
//! | --- | --- |
//! | the run's folder, agreed over ranks | [`RunDir`] |
//! | saving and going on, in one call each | [`TrainState`], in a [`CheckpointDir`](crate::checkpoint::CheckpointDir) |
//! | losses and accuracies over ranks | [`metrics`] |
//!
//! Each stands by itself. What is decided for all ranks takes the process group, and every rank calls it.

mod finite;
pub mod metrics;
mod run_dir;
mod state;

pub use finite::first_not_finite;
pub use run_dir::{RunDir, RunDirOptions};
pub use state::{Resumed, TrainState};
