//! What training programs are made of, for loops of one's own: the program's `for` loop stays in control.
//!
//! Knows nothing of `models`.
//!
//! | for | there is |
//! | --- | --- |
//! | losses and accuracies over ranks | [`metrics`] |
//!
//! Each stands by itself. What is decided for all ranks takes the process group, and every rank calls it.

pub mod metrics;

