//! Workers without torchrs-launch: tasks of `srun` or `mpirun`, and ranks that were set by hand on several hosts.
//!
//! On each host a *stand-in* takes the launcher's place: a small process, this same program re-executed, that serves
//! the store of its host and keeps it joined with those of the other hosts. The first worker of a host that wants the
//! store starts it; the others find it by a name that follows from the job. It ends when its workers have ended.
//! There are no restarts: a failure ends the job.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`place`] | a worker's rank and its like, from what it was told |
//! | [`meeting`] | where a job's workers meet: the socket's name, the hosts, the secret |
//! | [`over_mpi`] | what MPI hands on from rank 0, so that it has not to be given |
//! | [`starter`] | what the processes that the starter has put on this host have in common |
//! | [`client`] | a worker's way to the store, through its host's stand-in |
//! | [`protocol`] | what the two tell each other |
//! | [`stand_in`] | the process that stands in |

mod client;
mod meeting;
mod over_mpi;
mod place;
mod protocol;
mod stand_in;
mod starter;

use std::sync::Once;

pub(super) use client::{check_job, store};
pub(super) use place::Place;

use super::WorkerEnv;
use super::cluster::{ClusterTask, Surroundings};
use crate::multiprocessing::report::say;

/// Says once what was detected (on rank 0), or why variables of a cluster do not count.
pub(super) fn announce(env: &WorkerEnv) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| match &env.task {
        Some(task) if env.rank == 0 => say(&format!("torchrs: {task}")),
        Some(_) => {}
        None if env.world_size == 1 && std::env::var_os("RANK").is_none() => {
            let detected = ClusterTask::detect(&Surroundings::of_this_process());
            let doubts = detected.doubts.iter();
            doubts.for_each(|doubt| say(&format!("torchrs: this process runs alone: {doubt}")));
        }
        None => {}
    });
}
