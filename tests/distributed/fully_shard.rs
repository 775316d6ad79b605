//! Sharded training with real processes: the same bits as data-parallel training, whatever is sharded and when it is
//! given back; what it communicates, and when; and what users do beside training.

mod advice;
mod ahead;
mod counted;
mod equal;
mod losses;
mod meta;
mod switches;
mod uses;

use std::path::PathBuf;

use serde::{Serialize, de::DeserializeOwned};
use torchrs::multiprocessing;

use super::job::Job;

/// Runs `rank` on `world` ranks with `what`.
fn on<T, F>(world: usize, rank: F, what: &T)
where
    T: Serialize + DeserializeOwned + Clone + 'static,
    F: Fn(usize, (Job, T)) + Copy + 'static,
{
    let job = Job::new(world, PathBuf::new());
    multiprocessing::spawn(rank, (job, what.clone()), world).unwrap();
}
