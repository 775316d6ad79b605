//! What training programs are made of, for loops of one's own: the program's `for` loop stays in control.
//!
//! Knows nothing of `models`.
//!
//! | for | there is |
//! | --- | --- |
//! | a step, a validation, a checkpoint in one call each | [`Learner`] |
//! | the run's folder, agreed over ranks | [`RunDir`] |
//! | saving and going on, in one call each | [`TrainState`], in a [`CheckpointDir`](crate::checkpoint::CheckpointDir) |
//! | options of a run that goes on with others | [`resumed_options`] |
//! | losses and accuracies over ranks | [`metrics`] |
//! | a stop by signal or clock, and Slurm's requeue | [`GracefulStop`] |
//! | an end when nothing improves | [`EarlyStopping`] |
//! | gradients of several batches | [`accumulate`](accumulate()), [`accumulate_weighted`] |
//! | losses and gradients that are not finite | [`NanGuard`] |
//! | speed, MFU, memory | [`Throughput`] |
//! | files of numbers, TensorBoard, the progress bar | [`Loggers`], [`Progress`] |
//! | numbers on the launcher's status page | [`Loggers`], or [`publish_scalars`] without them |
//!
//! Each stands by itself. What is decided for all ranks takes the process group, and every rank calls it.

mod accumulate;
mod early_stopping;
mod finite;
mod guard;
mod learner;
mod logging;
pub mod metrics;
mod options;
mod parts;
mod run_dir;
mod state;
mod stop;
mod throughput;

pub use accumulate::{Accumulated, GradientSync, accumulate, accumulate_weighted};
pub use early_stopping::EarlyStopping;
pub use finite::first_not_finite;
pub use guard::{NanGuard, StepAgreed, StepCheck};
pub use learner::{Learner, LearnerStep};
pub use logging::{
    Csv, HParam, JsonLines, Logger, Loggers, Progress, TensorBoard, publish_scalars,
};
pub use options::resumed_options;
pub use run_dir::{RunDir, RunDirOptions};
pub use state::{Resumed, TrainState};
pub use stop::{GracefulStop, StopOptions, StopReason};
pub use throughput::{Throughput, ThroughputReport, transformer_flops};
