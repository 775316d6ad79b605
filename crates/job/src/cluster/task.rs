//! A process that was started as one of several tasks, by srun or an MPI's mpirun: its place among them.

use std::ffi::OsString;
use std::fmt;

use super::starter::Starter;
use super::surroundings::{Detected, Surroundings};
use super::{flux, jsrun, open_mpi, pmi, pmix, slurm};

/// Those whose variables say all there is; Slurm's say more. Those that set others' variables too stand before them.
const STARTERS: [Starter; 7] =
    [open_mpi::OPEN_MPI, pmi::MVAPICH, pmi::PALS, jsrun::JSRUN, flux::FLUX, pmi::HYDRA, pmix::PMIX];

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
    /// How many tasks there are, above 1, where that is told. Nothing bounds it: a starter's number may be a slip.
    pub size: Option<usize>,
    /// Whether all tasks are on one host, where that is told.
    pub on_one_host: Option<bool>,
    /// Its number among the tasks of its host, where that is told.
    pub local_rank: Option<usize>,
    /// How many tasks its host has, where that is told. Hosts may differ.
    pub local_size: Option<usize>,
    /// Its host's number among the hosts, where that is told.
    pub node_rank: Option<usize>,
    /// How many hosts there are, where that is told.
    pub nodes: Option<usize>,
    /// The first host, at which the tasks can meet, where that is told: the one whose `node_rank` is 0. Task 0 is on it
    /// unless tasks were laid out by hand. MPI and PMI tell none; they have ways of their own to ask.
    pub leader: Option<String>,
    /// What tells this job from others, the same for all its tasks.
    pub job_id: Option<String>,
    /// The number of GPUs that this task alone can see, where each task was given its own: their numbers begin at 0 in
    /// every task, so that a local rank is no GPU's number.
    pub own_gpus: Option<usize>,
    pub(super) rank_variable: &'static str,
    pub(super) size_variable: Option<&'static str>,
    pub(super) local_rank_variable: Option<&'static str>,
    /// All variables that were used, as `NAME=value`.
    pub(super) told_by: Vec<String>,
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
        Self::detect(&Surroundings::new(&lookup, &Vec::new)).found
    }

    /// [`from_lookup`](Self::from_lookup) that also compares the hosts of the variables with this host's names,
    /// and says what it does not believe. `RANK` and `WORLD_SIZE`, where a caller finds them, win over what it
    /// finds.
    ///
    /// ```
    /// use torchrs_job::cluster::{ClusterTask, Surroundings};
    /// let batch_script = [("SLURM_JOB_ID", "2"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
    /// let value = |name: &str| batch_script.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
    /// let detected = ClusterTask::detect(&Surroundings::new(&value, &Vec::new));
    /// assert_eq!(detected.found, None);
    /// assert!(detected.doubts[0].starts_with("SLURM_PROCID=0 is set, but SLURM_STEP_ID is not"));
    /// ```
    pub fn detect(around: &Surroundings<'_>) -> Detected<Self> {
        let mut doubts = Vec::new();
        let mut tasks: Vec<ClusterTask> = slurm::task(around, &mut doubts).into_iter().collect();
        tasks.extend(STARTERS.iter().filter_map(|starter| starter.task(around, &mut doubts)));
        // The first of those with the same number.
        let best = |best: Self, task: Self| if task.size > best.size { task } else { best };
        Detected { found: tasks.into_iter().reduce(best), doubts }
    }

    /// Adds what follows from the numbers that are told.
    pub(super) fn conclude(&mut self) {
        let are_all_here = self.local_size.zip(self.size).map(|(local, all)| local == all);
        self.on_one_host = self.nodes.map(|nodes| nodes == 1).or(are_all_here);
        if self.on_one_host == Some(true) {
            (self.nodes, self.node_rank) = (Some(1), Some(0));
            self.local_rank.get_or_insert(self.rank);
            self.local_size = self.local_size.or(self.size);
        } else if self.has_one_task_per_host() {
            self.node_rank.get_or_insert(self.rank);
            self.local_rank.get_or_insert(0);
            self.local_size.get_or_insert(1);
        }
    }

    /// Whether there are as many hosts as tasks, and more than one.
    pub(super) fn has_one_task_per_host(&self) -> bool {
        let as_many = self.nodes.is_some_and(|nodes| nodes > 1) && self.nodes == self.size;
        as_many && self.local_rank.is_none_or(|local| local == 0)
    }

    /// A port of `leader` where the tasks can meet: [`meeting_port`](super::meeting_port) of the job's id.
    ///
    /// ```
    /// use torchrs::distributed::ClusterTask;
    /// let variables = [("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "4"), ("FLUX_JOB_ID", "12")];
    /// let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
    /// assert_eq!(ClusterTask::from_lookup(value).unwrap().meeting_port(), Some(61440 + 12));
    /// ```
    pub fn meeting_port(&self) -> Option<u16> {
        self.job_id.as_deref().map(super::meeting_port)
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

    /// The variable that tells the task's number, and its value.
    #[doc(hidden)]
    pub fn rank_told(&self) -> (&'static str, String) {
        (self.rank_variable, self.rank.to_string())
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
}

/// All that was detected, and by what, on one line.
impl fmt::Display for ClusterTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.starter, self.place())?;
        if let Some((rank, size)) = self.local_rank.zip(self.local_size) {
            write!(f, ", local rank {rank} of {size}")?;
        }
        if let Some((node, nodes)) = self.node_rank.zip(self.nodes) {
            write!(f, ", host {node} of {nodes}")?;
        }
        if let Some(leader) = &self.leader {
            write!(f, ", first host {leader}")?;
        }
        if let Some(job) = &self.job_id {
            write!(f, ", job {job}")?;
        }
        write!(f, " ({})", self.told_by.join(", "))
    }
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
        for starter in [&slurm::SRUN].into_iter().chain(&STARTERS) {
            let sized = starter.size.first().map(|size| format!(" {size}=4")).unwrap_or_default();
            let set = format!("{}=3{sized} SLURM_STEP_ID=0", starter.rank);
            let task = task(&set).unwrap_or_else(|| panic!("{set}"));
            assert_eq!((task.starter, task.rank), (starter.name, 3), "{set}");
            let export = task.export();
            assert!(export.starts_with(&format!("export RANK=${} WORLD_SIZE=", starter.rank)));
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
    fn tasks_know_whether_they_are_on_one_host() {
        let step = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=4";
        let one = task(&format!("{step} SLURM_STEP_NUM_NODES=1")).unwrap();
        assert_eq!(one.on_one_host, Some(true));
        let two = task(&format!("{step} SLURM_STEP_NUM_NODES=2")).unwrap();
        assert_eq!(two.on_one_host, Some(false));
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
