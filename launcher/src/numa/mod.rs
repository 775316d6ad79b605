//! `--numa-binding`: which cores each worker of this host may run on, near its GPU.
//!
//! The modes are torchrun's (`torch.numa.binding.AffinityMode`). A machine without GPUs, where torchrun refuses, has its
//! workers spread over its nodes. Memory follows: Linux gives a page on the node of the core that touches it first.

mod binding;
mod gpus;
mod topology;

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use self::topology::Topology;
use crate::system::{System, as_list};

/// Numbers of cores, as Linux counts them: hardware threads.
pub type Cores = BTreeSet<usize>;

/// Where a worker's cores lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NumaBinding {
    /// All cores of its GPU's NUMA node.
    Node,
    /// All cores of all NUMA nodes of its GPU's socket.
    Socket,
    /// Cores of its GPU's NUMA node that no other worker has.
    Exclusive,
    /// The cores of its GPU's NUMA node that share one last-level cache.
    CoreComplex,
}

impl fmt::Display for NumaBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("every mode has a name");
        f.write_str(value.get_name())
    }
}

/// The cores of each of `nproc` workers, by local rank. `simulated`: whether GPUs of this machine are not to be used.
///
/// # Errors
/// A machine that does not tell where its cores or GPUs are; a node of which this process may use no core; fewer cores
/// than workers that want their own.
pub fn bind(mode: NumaBinding, nproc: usize, simulated: bool) -> Result<Vec<Cores>, String> {
    let in_words = |reason: String| format!("--numa-binding {mode}: {reason}");
    let system = System::here();
    let allowed = own_cores().map_err(|errno| in_words(format!("no core is known: {errno}")))?;
    let gpus = match simulated {
        true => Vec::new(),
        false => gpus::visible(&system, |name| std::env::var(name).ok()).map_err(in_words)?,
    };
    let topology = Topology::read(&system).map_err(in_words)?;
    binding::of_workers(mode, nproc, &topology, &gpus, &allowed).map_err(in_words)
}

/// Where the workers are, in one line.
pub fn in_words(mode: NumaBinding, cores: &[Cores]) -> String {
    let mut parts: Vec<(usize, usize, &Cores)> = Vec::new();
    for (rank, own) in cores.iter().enumerate() {
        match parts.last_mut().filter(|(_, _, cores)| *cores == own) {
            Some((_, last, _)) => *last = rank,
            None => parts.push((rank, rank, own)),
        }
    }
    let parts: Vec<String> = (parts.into_iter())
        .map(|(first, last, cores)| {
            let ranks = match first == last {
                true => format!("local rank {first}"),
                false => format!("local ranks {first} to {last}"),
            };
            format!("{ranks}: cores {}", as_list(cores))
        })
        .collect();
    format!("--numa-binding {mode}: {}", parts.join("; "))
}

/// Threads for the worker of this local rank: its cores, shared with the workers that have some of them too.
pub fn threads(cores: &[Cores], local_rank: usize) -> usize {
    let own = &cores[local_rank];
    let sharing = cores.iter().filter(|other| !other.is_disjoint(own)).count();
    (own.len() / sharing.max(1)).max(1)
}

/// Puts this process on these cores; those of a machine that are beyond what the set can hold are left out.
pub fn run_on(cores: &Cores) -> nix::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores.iter().filter(|core| **core < CpuSet::count()) {
        set.set(core)?;
    }
    nix::sched::sched_setaffinity(Pid::from_raw(0), &set)
}

/// Cores on which this process may run.
pub fn own_cores() -> nix::Result<Cores> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_share_cores_share_their_threads() {
        let cores = |list: &str| crate::system::list(list).unwrap();
        let bound = [cores("0-7"), cores("0-7"), cores("8-15"), cores("16")];
        let threads: Vec<usize> = (0..4).map(|rank| threads(&bound, rank)).collect();
        assert_eq!(threads, [4, 4, 8, 1]);
        assert_eq!(
            in_words(NumaBinding::CoreComplex, &bound),
            "--numa-binding core-complex: local ranks 0 to 1: cores 0-7; local rank 2: cores 8-15; \
             local rank 3: cores 16"
        );
    }
}
