//! A worker's place among others, from what it was told: by hand, by the launcher, or as a task of a cluster's
//! starter. What is not told follows from the rest where all hosts have the same number of workers.

use crate::distributed::cluster::ClusterTask;
use crate::distributed::env::below;
use crate::distributed::ranks::MAX_WORLD_SIZE;
use crate::error::{Error, Result};

/// A place of which some is not known yet.
#[derive(Debug, Default)]
pub(in crate::distributed) struct Place {
    rank: usize,
    world_size: usize,
    local_rank: Option<usize>,
    pub local_world_size: Option<usize>,
    pub group_rank: Option<usize>,
    task: Option<ClusterTask>,
}

/// A whole place.
pub(in crate::distributed) struct Concluded {
    pub rank: usize,
    pub world_size: usize,
    pub local_rank: usize,
    pub local_world_size: usize,
    pub group_rank: usize,
    pub task: Option<ClusterTask>,
}

impl Place {
    /// As it was said.
    pub fn said(rank: usize, world_size: usize) -> Self {
        Place { rank, world_size, ..Place::default() }
    }

    /// Of a task.
    ///
    /// # Errors
    /// [`Error::Config`] where the task does not know how many there are, or there are too many.
    pub fn of_task(task: ClusterTask) -> Result<Self> {
        let place = || format!("{} ({})", task.place(), task.evidence());
        let Some(world_size) = task.size else {
            let what = format!(
                "is not set, and {}, which has started this process as {}, does not say how many tasks there are: \
                 `{}`",
                task.starter,
                place(),
                task.export()
            );
            return Err(Error::config("WORLD_SIZE", what));
        };
        if world_size > MAX_WORLD_SIZE {
            let what = format!(
                "is not set, and {} has started this process as {}: a job has at most {MAX_WORLD_SIZE} workers",
                task.starter,
                place()
            );
            return Err(Error::config("WORLD_SIZE", what));
        }
        let even = task.nodes.filter(|nodes| world_size % nodes == 0);
        Ok(Place {
            rank: task.rank,
            world_size,
            local_rank: task.local_rank,
            local_world_size: task.local_size.or(even.map(|nodes| world_size / nodes)),
            group_rank: task.node_rank,
            task: Some(task),
        })
    }

    /// What LOCAL_RANK says, if it is set. A task's starter knows better.
    ///
    /// # Errors
    /// [`Error::Config`] where they differ.
    pub fn say_local_rank(&mut self, said: Option<usize>) -> Result<()> {
        if let (Some(said), Some(told), Some(task)) = (said, self.local_rank, &self.task)
            && said != told
        {
            let what = format!(
                "is {said}, but {} has started this process as {task}: unset it, or set RANK and WORLD_SIZE too",
                task.starter
            );
            return Err(Error::config("LOCAL_RANK", what));
        }
        self.local_rank = said.or(self.local_rank);
        Ok(())
    }

    /// The whole of it.
    ///
    /// # Errors
    /// [`Error::Config`] that names what contradicts the rest, or is missing.
    pub fn conclude(self) -> Result<Concluded> {
        let Place { rank, world_size, local_rank, local_world_size, group_rank, task } = self;
        let local_world_size = match (local_world_size, &task) {
            (Some(local), _) => local,
            (None, None) => world_size,
            (None, Some(task)) => return Err(unknown(task, "LOCAL_WORLD_SIZE")),
        };
        if local_world_size == 0 || local_world_size > world_size {
            return Err(Error::config(
                "LOCAL_WORLD_SIZE",
                format!("is {local_world_size}: must be 1 to WORLD_SIZE, which is {world_size}"),
            ));
        }
        let local_rank = match local_rank {
            Some(local) => below("LOCAL_RANK", local, "LOCAL_WORLD_SIZE", local_world_size)?,
            None => rank % local_world_size,
        };
        let is_even = world_size.is_multiple_of(local_world_size);
        let group_rank = match (group_rank, &task) {
            (Some(group_rank), _) => group_rank,
            (None, Some(task)) if !is_even => return Err(unknown(task, "GROUP_RANK")),
            (None, Some(task)) if rank % local_world_size != local_rank => {
                let what = format!("is {rank} by {}: {}", task.starter, scattered(local_rank));
                return Err(Error::config("RANK", what));
            }
            (None, _) => rank / local_world_size,
        };
        Ok(Concluded { rank, world_size, local_rank, local_world_size, group_rank, task })
    }
}

/// What is wrong with ranks that were dealt to the hosts one by one.
pub(super) fn scattered(local_rank: usize) -> String {
    format!(
        "the rank with local rank {local_rank} on its host. Ranks of a host have to follow each other, as with `srun \
         --distribution block` or `mpirun --map-by slot`"
    )
}

/// What a task's starter does not say, though it has to be known.
fn unknown(task: &ClusterTask, variable: &str) -> Error {
    let (what, rule) = match variable {
        "GROUP_RANK" => (
            "which host this is, of hosts with different numbers of tasks",
            "this host's number, from 0",
        ),
        _ => ("how many tasks this host has", "the number of tasks on this host"),
    };
    let what = format!(
        "is not set, and {}, which has started this process as {} ({}), does not say {what}: set it to {rule}",
        task.starter,
        task.place(),
        task.evidence()
    );
    Error::config(variable, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &str) -> Result<Concluded> {
        let value = |name: &str| {
            let pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(n, _)| *n == name).map(|(_, v)| v.into()).next()
        };
        Place::of_task(ClusterTask::from_lookup(value).unwrap())?.conclude()
    }

    #[test]
    fn all_starters_tasks_have_a_place() {
        for (variables, expected) in [
            (
                "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4",
                (5, 8, 1, 4, 1),
            ),
            ("PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4", (3, 4, 3, 4, 0)),
            (
                "FLUX_TASK_RANK=3 FLUX_JOB_SIZE=6 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=2",
                (3, 6, 0, 3, 1),
            ),
            (
                "PALS_RANKID=7 PALS_SIZE=8 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2 PALS_NODEID=3",
                (7, 8, 1, 2, 3),
            ),
            (
                "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=2",
                (1, 2, 1, 2, 0),
            ),
        ] {
            let p = place(variables).unwrap();
            let found = (p.rank, p.world_size, p.local_rank, p.local_world_size, p.group_rank);
            assert_eq!(found, expected, "{variables}");
        }
    }

    #[test]
    fn what_a_starter_does_not_say_is_asked_for() {
        for (variables, part) in [
            ("PMIX_RANK=3", "WORLD_SIZE: is not set, and a PMIx launcher"),
            ("PMI_RANK=3 PMI_SIZE=4", "LOCAL_WORLD_SIZE: is not set, and MPI's mpiexec"),
            (
                "PMI_RANK=3 PMI_SIZE=5 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
                "GROUP_RANK: is not set, and MPI's mpiexec",
            ),
            ("PMI_RANK=3 PMI_SIZE=500000", "at most 100000 workers"),
        ] {
            let why = place(variables).err().unwrap().to_string();
            assert!(why.contains(part), "{variables}: {why}");
        }
    }
}
