//! Who else may have started this process as one of several: srun, an MPI's mpirun. Their variables are
//! not read for training yet; a task of theirs without `RANK` is told so instead of training alone.

use std::ffi::OsString;

/// The variables by which a starter of tasks tells each its place.
struct Starter {
    name: &'static str,
    rank: &'static str,
    /// Where the number of tasks may stand. The first that is set counts.
    size: &'static [&'static str],
    local_rank: &'static [&'static str],
    /// Tasks on this host.
    local_size: &'static [&'static str],
    /// Hosts of all tasks.
    hosts: &'static [&'static str],
}

const STARTERS: [Starter; 8] = [
    Starter {
        name: "srun",
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
        hosts: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
    },
    Starter {
        name: "Open MPI's mpirun",
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        hosts: &[],
    },
    Starter {
        name: "MVAPICH's mpirun",
        rank: "MV2_COMM_WORLD_RANK",
        size: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        hosts: &[],
    },
    Starter {
        name: "MPI's mpiexec",
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
        local_size: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
        hosts: &[],
    },
    Starter {
        name: "PALS' mpiexec",
        rank: "PALS_RANKID",
        size: &["PALS_SIZE", "PMI_SIZE"],
        local_rank: &["PALS_LOCAL_RANKID"],
        local_size: &["PALS_LOCAL_SIZE"],
        hosts: &[],
    },
    Starter {
        name: "jsrun",
        rank: "JSM_NAMESPACE_RANK",
        size: &["JSM_NAMESPACE_SIZE"],
        local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
        local_size: &["JSM_NAMESPACE_LOCAL_SIZE"],
        hosts: &[],
    },
    Starter {
        name: "flux run",
        rank: "FLUX_TASK_RANK",
        size: &["FLUX_JOB_SIZE"],
        local_rank: &["FLUX_TASK_LOCAL_ID"],
        local_size: &[],
        hosts: &["FLUX_JOB_NNODES"],
    },
    Starter {
        name: "a PMIx launcher",
        rank: "PMIX_RANK",
        size: &[],
        local_rank: &[],
        local_size: &[],
        hosts: &[],
    },
];

/// Slurm numbers the steps that are no tasks of srun from here on: the batch script, the interactive shell
/// of an allocation, its external container.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

/// This process's place among the tasks that srun or an MPI's mpirun has started.
///
/// ```
/// use torchrs::distributed::ClusterTask;
/// let variables = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
/// let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
/// let task = ClusterTask::from_lookup(value).unwrap();
/// assert_eq!((task.starter, task.rank, task.size), ("Open MPI's mpirun", 1, Some(4)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterTask {
    /// What started it.
    pub starter: &'static str,
    /// Its number among the tasks.
    pub rank: usize,
    /// How many tasks there are, above 1, where that is told.
    pub size: Option<usize>,
    /// Whether all tasks are on one host, where that is told.
    pub on_one_host: Option<bool>,
    rank_variable: &'static str,
    size_variable: Option<&'static str>,
    local_rank_variable: Option<&'static str>,
}

impl ClusterTask {
    /// From the process's environment. `None` for a process that nothing of the kind has started, and for
    /// the task of a job of one.
    ///
    /// ```
    /// use torchrs::distributed::ClusterTask;
    /// use torchrs::multiprocessing::Process;
    /// let task = |_: ()| assert_eq!(ClusterTask::from_env().unwrap().rank, 2);
    /// Process::builder().env("PMI_RANK", "2").env("PMI_SIZE", "1000").spawn(task, ())?.join()?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn from_env() -> Option<Self> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// [`from_env`](Self::from_env) with another source of variables. Of several starters, one inside the
    /// other, it is the one of most tasks.
    ///
    /// ```
    /// use torchrs::distributed::ClusterTask;
    /// assert_eq!(ClusterTask::from_lookup(|_| None), None);
    /// ```
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let number = |name: &str| lookup(name)?.to_str()?.trim().parse::<u64>().ok();
        let tasks = STARTERS.iter().filter_map(|starter| task_of(starter, number));
        // The first of those with the same number.
        tasks.reduce(|best, task| if task.size > best.size { task } else { best })
    }

    /// The variables that say so, as in `SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=4`.
    ///
    /// ```
    /// use torchrs::distributed::ClusterTask;
    /// let task = ClusterTask::from_lookup(|name| (name == "PMIX_RANK").then(|| "3".into())).unwrap();
    /// assert_eq!(task.evidence(), "PMIX_RANK=3");
    /// ```
    pub fn evidence(&self) -> String {
        let rank = format!("{}={}", self.rank_variable, self.rank);
        match self.size_variable.zip(self.size) {
            Some((variable, size)) => format!("{rank}, {variable}={size}"),
            None => rank,
        }
    }

    /// `task 1 of 4`.
    pub fn place(&self) -> String {
        let of = self.size.map_or("several".to_owned(), |size| size.to_string());
        format!("task {} of {of}", self.rank)
    }

    /// The shell command that gives this task its place in torchrun's variables.
    ///
    /// ```
    /// use torchrs::distributed::ClusterTask;
    /// let variables = [("PMI_RANK", "1"), ("PMI_SIZE", "4")];
    /// let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
    /// let export = ClusterTask::from_lookup(value).unwrap().export();
    /// assert!(export.starts_with("export RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE "));
    /// ```
    pub fn export(&self) -> String {
        let size = match self.size_variable {
            Some(variable) => format!("${variable}"),
            None => "<number of tasks>".to_owned(),
        };
        let local = match self.local_rank_variable {
            Some(variable) => format!(" LOCAL_RANK=${variable}"),
            None => String::new(),
        };
        let rank = self.rank_variable;
        format!(
            "export RANK=${rank} WORLD_SIZE={size}{local} MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"
        )
    }

    /// What is wrong where such a task has no `RANK`, and what works.
    #[doc(hidden)]
    pub fn without_a_rank(&self) -> String {
        let what = format!(
            "is not set, but {} has started this process as {} ({}): each would train alone. \
             These variables are not read yet",
            self.starter,
            self.place(),
            self.evidence()
        );
        let alone = "RANK=0 WORLD_SIZE=1 for tasks that are to run by themselves";
        if self.on_one_host == Some(false) {
            return format!("{what}, nor are jobs over several hosts. Set {alone}");
        }
        let if_so = if self.on_one_host.is_none() { ", if all tasks are on one host" } else { "" };
        format!(
            "{what}. Start one task, with torchrs-launch --nproc; or have each task do \
             `{}`{if_so}; or set {alone}",
            self.export()
        )
    }
}

fn task_of(starter: &Starter, number: impl Fn(&str) -> Option<u64>) -> Option<ClusterTask> {
    let first = |names: &[&'static str]| names.iter().find_map(|name| Some((*name, number(name)?)));
    let rank = number(starter.rank)?;
    // A shell inside an allocation has Slurm's other variables and is no task of srun.
    if starter.name == "srun" && number("SLURM_STEP_ID").is_none_or(|id| id >= FIRST_SPECIAL_STEP) {
        return None;
    }
    let size = first(starter.size);
    // The first task of an unknown number may be the only one; the others are not.
    if size.map_or(rank == 0, |(_, size)| size <= 1 || rank >= size) {
        return None;
    }
    let hosts = first(starter.hosts).map(|(_, hosts)| hosts == 1);
    let local = first(starter.local_size).map(|(_, local)| Some(local) == size.map(|(_, s)| s));
    Some(ClusterTask {
        starter: starter.name,
        rank: rank as usize,
        size: size.map(|(_, size)| size as usize),
        on_one_host: hosts.or(local),
        rank_variable: starter.rank,
        size_variable: size.map(|(name, _)| name),
        local_rank_variable: first(starter.local_rank).map(|(name, _)| name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(variables: &str) -> Option<ClusterTask> {
        ClusterTask::from_lookup(|name| {
            let pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)).next()
        })
    }

    #[test]
    fn every_starters_tasks_are_known_and_told_what_to_export() {
        for starter in &STARTERS {
            let sized = starter.size.first().map(|size| format!(" {size}=4")).unwrap_or_default();
            let set = format!("{}=3{sized} SLURM_STEP_ID=0", starter.rank);
            let task = task(&set).unwrap_or_else(|| panic!("{set}"));
            assert_eq!((task.starter, task.rank), (starter.name, 3), "{set}");
            let message = task.without_a_rank();
            assert!(message.contains(&format!("export RANK=${} WORLD_SIZE=", starter.rank)));
            assert!(message.contains(&task.evidence()), "{message}");
            let alone = format!("{}=0 {}=1", starter.rank, starter.size.first().unwrap_or(&"X"));
            assert_eq!(self::task(&format!("{alone} SLURM_STEP_ID=0")), None, "{alone}");
        }
    }

    #[test]
    fn a_shell_of_an_allocation_is_no_task() {
        let batch = "SLURM_JOB_ID=2 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_NNODES=2";
        assert_eq!(task(batch), None);
        let interactive = format!("{batch} SLURM_STEP_ID=4294967290");
        assert_eq!(task(&interactive), None);
        assert_eq!(task("SLURM_JOB_ID=2 SLURM_NTASKS=4"), None);
        assert_eq!(task("KUBERNETES_SERVICE_HOST=x JOB_COMPLETION_INDEX=3"), None);
        // A step of one in an allocation of more.
        assert_eq!(task(&format!("{batch} SLURM_STEP_ID=3 SLURM_STEP_NUM_TASKS=1")), None);
    }

    #[test]
    fn hosts_decide_what_is_offered() {
        let step = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=4";
        let one = task(&format!("{step} SLURM_STEP_NUM_NODES=1")).unwrap();
        assert_eq!(one.on_one_host, Some(true));
        let export = "`export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_STEP_NUM_TASKS \
                      LOCAL_RANK=$SLURM_LOCALID MASTER_ADDR=127.0.0.1 MASTER_PORT=29500`";
        assert!(one.without_a_rank().contains(&format!("{export}; or set RANK=0")));
        let two = task(&format!("{step} SLURM_STEP_NUM_NODES=2")).unwrap();
        assert!(!two.without_a_rank().contains("export"), "{}", two.without_a_rank());
        let mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=";
        assert_eq!(task(&format!("{mpi}4")).unwrap().on_one_host, Some(true));
        assert_eq!(task(&format!("{mpi}2")).unwrap().on_one_host, Some(false));
    }

    #[test]
    fn of_nested_starters_the_one_of_most_tasks_counts() {
        // mpirun has started its daemons by srun, one per host.
        let daemon = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2";
        let nested = format!("{daemon} OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8");
        assert_eq!(task(&nested).unwrap().rank, 5);
        let both = format!("{daemon} PMI_RANK=1 PMI_SIZE=2");
        assert_eq!(task(&both).unwrap().starter, "srun");
    }
}
