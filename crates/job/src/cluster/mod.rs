//! Where this process stands among hosts and tasks that others have started: srun, an MPI's mpirun, Kubernetes.
//! All of it follows from environment variables and the names of this host; no cluster is asked.
//!
//! Two questions have two answers:
//! - a **worker** that was started directly, as one of several tasks: [`ClusterTask`];
//! - a **launcher** that was started once on each of several hosts: [`ClusterHosts`].
//!
//! Whatever a user says (`RANK` and `WORLD_SIZE` for a worker, options for a launcher) wins over both: callers
//! look there first. Of several starters, one inside the other, the one of most tasks (or hosts) counts, and of
//! those with the same number the first: Kubeflow's variables, srun, Open MPI, MVAPICH, PALS, jsrun, Flux,
//! other MPIs by PMI, PMIx, an Indexed Job.
//!
//! What is half there is not believed, and comes back as a doubt: variables that came along by ssh, a shell of an
//! allocation that srun has not started, a list of hosts that does not name this one.

mod flux;
mod hosts;
mod jsrun;
mod kubeflow;
mod kubernetes;
mod names;
mod node_list;
mod open_mpi;
mod pmi;
mod pmix;
mod port;
mod slurm;
mod starter;
mod surroundings;
mod task;
#[cfg(test)]
mod tests;
mod told;

pub use hosts::ClusterHosts;
pub use names::names_of_this_host;
pub use node_list::expand_node_list;
pub use port::meeting_port;
pub use surroundings::{Detected, Surroundings};
pub use task::ClusterTask;
pub use told::told_rank;
