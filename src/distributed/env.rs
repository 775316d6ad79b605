//! What the launcher tells a worker: torchrun's environment variables, read and checked in one
//! place. Kubernetes or a shell loop can set the same variables. Where nobody has, they follow from what srun or an
//! MPI's mpirun tells its tasks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use super::cluster::{ClusterTask, Surroundings, names_of_this_host};
use super::ranks::MAX_WORLD_SIZE;
use super::tasks::{self, Place};
use crate::cuda;
use crate::error::{Error, Result};
use crate::storage::Device;
use torchrs_job::environment::ROUND;

/// A worker's place in its job, from the environment (torchrun's contract).
///
/// Without `RANK` and `WORLD_SIZE` the process has the place that srun or an MPI's mpirun gave it among several tasks
/// ([`ClusterTask`]), else it is a world of one. `RANK=0 WORLD_SIZE=1` says that a task is one by itself.
///
/// ```
/// use torchrs::distributed::WorkerEnv;
/// let variables = [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")];
/// let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
/// let env = WorkerEnv::from_lookup(value)?;
/// assert_eq!((env.rank, env.world_size, env.local_rank, env.role_name.as_str()), (5, 8, 1, "default"));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerEnv {
    /// `RANK`: this worker's number among all, from 0.
    pub rank: usize,
    /// `LOCAL_RANK`: its number on this host (default: `RANK` modulo `LOCAL_WORLD_SIZE`).
    pub local_rank: usize,
    /// `GROUP_RANK`: this host's number (default: `RANK` divided by `LOCAL_WORLD_SIZE`).
    pub group_rank: usize,
    /// `ROLE_RANK`: its number among workers of its role (default: `RANK`).
    pub role_rank: usize,
    /// `ROLE_NAME` (default `default`).
    pub role_name: String,
    /// `WORLD_SIZE`: how many workers there are (default 1).
    pub world_size: usize,
    /// `LOCAL_WORLD_SIZE`: how many on this host (default: `WORLD_SIZE`).
    pub local_world_size: usize,
    /// `ROLE_WORLD_SIZE`: how many with its role (default: `WORLD_SIZE`).
    pub role_world_size: usize,
    /// `MASTER_ADDR`, if set.
    pub master_addr: Option<String>,
    /// `MASTER_PORT`, if set.
    pub master_port: Option<u16>,
    /// `TORCHELASTIC_RESTART_COUNT`: how often the job was restarted so far (default 0).
    pub restart_count: usize,
    /// `TORCHRS_ROUND`: which start of the job's workers this is, from 0 (default: `restart_count`). A host that comes
    /// or leaves starts them again, too, and counts as no restart.
    pub round: usize,
    /// `TORCHELASTIC_MAX_RESTARTS` (default 0).
    pub max_restarts: usize,
    /// `TORCHELASTIC_RUN_ID` (default `none`).
    pub run_id: String,
    /// `TORCHELASTIC_ERROR_FILE`: where a failure is reported, if set.
    pub error_file: Option<PathBuf>,
    /// What has started this process as one of several tasks, where `RANK` and `WORLD_SIZE` are not set.
    pub task: Option<ClusterTask>,
}

impl WorkerEnv {
    /// Reads and checks the process's environment.
    ///
    /// ```
    /// use torchrs::distributed::WorkerEnv;
    /// use torchrs::multiprocessing::Process;
    /// let worker = |_: ()| assert_eq!(WorkerEnv::from_env().unwrap().rank, 1);
    /// Process::builder().env("RANK", "1").env("WORLD_SIZE", "2").spawn(worker, ())?.join()?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] that names the variable: one that is not a number, `RANK` or `WORLD_SIZE` missing
    /// while the other is set, a rank that is not below its world size, more than [`MAX_WORLD_SIZE`] workers,
    /// a [`ClusterTask`] that is not told what it has to know.
    pub fn from_env() -> Result<Self> {
        Self::read(|name| std::env::var_os(name), &names_of_this_host).inspect(tasks::announce)
    }

    /// Where this worker computes: on the GPU of its local rank where the host has GPUs, else on the CPU. A task that
    /// Slurm has given GPUs of its own sees no others, and takes the first.
    pub fn device(&self) -> Device {
        let has_own = self.task.as_ref().is_some_and(|task| task.own_gpus.is_some());
        let number = if has_own { 0 } else { self.local_rank };
        if cuda::is_available() { Device::Cuda(number) } else { Device::Cpu }
    }

    /// [`from_env`](Self::from_env) with another source of variables.
    ///
    /// ```
    /// use torchrs::distributed::WorkerEnv;
    /// assert_eq!(WorkerEnv::from_lookup(|_| None)?.world_size, 1);
    /// let error = WorkerEnv::from_lookup(|name| (name == "RANK").then(|| "1".into())).unwrap_err();
    /// assert!(error.to_string().starts_with("WORLD_SIZE: is not set, but RANK is 1"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        Self::read(lookup, &Vec::new)
    }

    fn read(
        lookup: impl Fn(&str) -> Option<OsString>,
        own_names: &dyn Fn() -> Vec<String>,
    ) -> Result<Self> {
        let vars = Vars { lookup };
        let world_size = vars.number::<usize>("WORLD_SIZE")?;
        if world_size == Some(0) {
            return Err(Error::config("WORLD_SIZE", "is 0: a job has at least one worker"));
        }
        if let Some(world) = world_size.filter(|&world| world > MAX_WORLD_SIZE) {
            let why = format!("is {world}: a job has at most {MAX_WORLD_SIZE} workers");
            return Err(Error::config("WORLD_SIZE", why));
        }
        let mut place = match (vars.number::<usize>("RANK")?, world_size) {
            (Some(rank), Some(world)) => {
                Place::said(below("RANK", rank, "WORLD_SIZE", world)?, world)
            }
            (None, Some(world)) => {
                return Err(Error::config(
                    "RANK",
                    format!(
                        "is not set, but WORLD_SIZE is {world}: every worker needs its own rank, \
                         from 0 to {}",
                        world - 1
                    ),
                ));
            }
            (None, None) => {
                let around = Surroundings::new(&vars.lookup, own_names);
                let detected = ClusterTask::detect(&around);
                detected.found.map_or(Ok(Place::said(0, 1)), Place::of_task)?
            }
            (Some(rank), None) => {
                return Err(Error::config(
                    "WORLD_SIZE",
                    format!("is not set, but RANK is {rank}: set it to the number of workers"),
                ));
            }
        };
        place.local_world_size = vars.number("LOCAL_WORLD_SIZE")?.or(place.local_world_size);
        place.say_local_rank(vars.number("LOCAL_RANK")?)?;
        place.group_rank = vars.number("GROUP_RANK")?.or(place.group_rank);
        let place = place.conclude()?;
        let (rank, world_size) = (place.rank, place.world_size);
        let task = place.task;
        let leader = task.as_ref().and_then(|task| task.leader.clone());
        let port = task.as_ref().and_then(ClusterTask::meeting_port);
        let job = task.as_ref().and_then(|task| task.job_id.clone());
        let restart_count = vars.number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0);
        Ok(WorkerEnv {
            rank,
            local_rank: place.local_rank,
            group_rank: place.group_rank,
            role_rank: vars.number("ROLE_RANK")?.unwrap_or(rank),
            role_name: vars.text("ROLE_NAME")?.unwrap_or_else(|| "default".to_owned()),
            world_size,
            local_world_size: place.local_world_size,
            role_world_size: vars.number("ROLE_WORLD_SIZE")?.unwrap_or(world_size),
            master_addr: vars.text("MASTER_ADDR")?.or(leader),
            master_port: vars.number("MASTER_PORT")?.or(port),
            restart_count,
            round: vars.number(ROUND)?.unwrap_or(restart_count),
            max_restarts: vars.number("TORCHELASTIC_MAX_RESTARTS")?.unwrap_or(0),
            run_id: vars.text("TORCHELASTIC_RUN_ID")?.or(job).unwrap_or_else(|| "none".to_owned()),
            error_file: vars.path("TORCHELASTIC_ERROR_FILE"),
            task,
        })
    }

    /// `MASTER_ADDR` and `MASTER_PORT`, which a job without a launcher's store needs.
    ///
    /// ```
    /// use torchrs::distributed::WorkerEnv;
    /// let alone = WorkerEnv::from_lookup(|_| None)?;
    /// assert!(alone.master().unwrap_err().to_string().starts_with("MASTER_ADDR: is not set"));
    /// let (master_addr, master_port) = (Some("node0".to_owned()), Some(29500));
    /// assert_eq!(WorkerEnv { master_addr, master_port, ..alone }.master()?, ("node0", 29500));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] that names the one that is missing.
    pub fn master(&self) -> Result<(&str, u16)> {
        let missing = |name| {
            let what = format!(
                "is not set: {} workers without a launcher need MASTER_ADDR and MASTER_PORT to \
                 find each other (or start them with torchrs-launch)",
                self.world_size
            );
            Error::config(name, what)
        };
        let address = self.master_addr.as_deref().ok_or_else(|| missing("MASTER_ADDR"))?;
        let port = self.master_port.ok_or_else(|| missing("MASTER_PORT"))?;
        Ok((address, port))
    }
}

pub(super) fn below(name: &str, value: usize, bound_name: &str, bound: usize) -> Result<usize> {
    if value < bound {
        return Ok(value);
    }
    let last = bound - 1;
    Err(Error::config(
        name,
        format!("is {value}, but {bound_name} is {bound}: {name} must be 0 to {last}"),
    ))
}

/// Variables that are unset and variables that are empty both count as absent.
struct Vars<L> {
    lookup: L,
}

impl<L: Fn(&str) -> Option<OsString>> Vars<L> {
    fn path(&self, name: &str) -> Option<PathBuf> {
        (self.lookup)(name).filter(|v| !v.is_empty()).map(PathBuf::from)
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        let Some(value) = (self.lookup)(name).filter(|v| !v.is_empty()) else { return Ok(None) };
        match value.into_string() {
            Ok(text) => Ok(Some(text)),
            Err(raw) => Err(Error::config(name, format!("is {raw:?}: not valid UTF-8"))),
        }
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(why) => Err(Error::config(
                name,
                format!("is `{text}`: not a number that fits here ({why})"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<WorkerEnv> {
        WorkerEnv::from_lookup(|name| {
            vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v))
        })
    }

    fn message(vars: &[(&str, &str)]) -> String {
        read(vars).unwrap_err().to_string()
    }

    #[test]
    fn nothing_set_is_a_world_of_one() {
        let env = read(&[]).unwrap();
        assert_eq!((env.rank, env.world_size, env.local_world_size), (0, 1, 1));
        assert_eq!((env.role_name.as_str(), env.run_id.as_str()), ("default", "none"));
    }

    #[test]
    fn torchruns_variables_are_read() {
        let env = read(&[
            ("RANK", "5"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("GROUP_RANK", "1"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_ERROR_FILE", "/proc/self/fd/7"),
        ])
        .unwrap();
        assert_eq!((env.rank, env.local_rank, env.group_rank), (5, 1, 1));
        assert_eq!((env.world_size, env.local_world_size, env.restart_count), (8, 4, 2));
        assert_eq!(env.master().unwrap(), ("node0", 29500));
        assert_eq!(env.error_file, Some(PathBuf::from("/proc/self/fd/7")));
    }

    #[test]
    fn a_local_rank_that_is_not_given_follows_from_the_rank() {
        let env = read(&[("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")]).unwrap();
        assert_eq!(env.local_rank, 1);
    }

    #[test]
    fn errors_name_the_variable_its_value_and_the_rule() {
        let rank = message(&[("WORLD_SIZE", "4")]);
        assert_eq!(
            rank,
            "RANK: is not set, but WORLD_SIZE is 4: every worker needs its own rank, from 0 to 3"
        );
        let rank = message(&[("WORLD_SIZE", "4"), ("RANK", "4")]);
        assert_eq!(rank, "RANK: is 4, but WORLD_SIZE is 4: RANK must be 0 to 3");
        assert!(message(&[("RANK", "1")]).starts_with("WORLD_SIZE: is not set, but RANK is 1"));
        assert!(message(&[("RANK", "0")]).starts_with("WORLD_SIZE: is not set, but RANK is 0"));
        assert!(message(&[("WORLD_SIZE", "100001")]).contains("at most 100000 workers"));
        assert!(message(&[("WORLD_SIZE", "two")]).starts_with("WORLD_SIZE: is `two`"));
        assert!(message(&[("WORLD_SIZE", "-1")]).starts_with("WORLD_SIZE: is `-1`"));
        assert!(message(&[("WORLD_SIZE", "0")]).contains("at least one worker"));
        let port = message(&[("MASTER_PORT", "70000")]);
        assert!(port.starts_with("MASTER_PORT: is `70000`"), "{port}");
        let local = message(&[("WORLD_SIZE", "2"), ("RANK", "0"), ("LOCAL_WORLD_SIZE", "3")]);
        assert!(local.starts_with("LOCAL_WORLD_SIZE: is 3"), "{local}");
    }

    #[test]
    fn a_task_of_srun_has_its_place() {
        let task = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
            ("SLURM_STEP_NODELIST", "h[1-2]"),
            ("SLURM_NODEID", "1"),
            ("SLURMD_NODENAME", "h2"),
        ];
        let env = read(&task).unwrap();
        assert_eq!((env.rank, env.world_size, env.local_rank, env.local_world_size), (3, 4, 1, 2));
        assert_eq!((env.group_rank, env.run_id.as_str()), (1, "7.0"));
        assert_eq!(env.master().unwrap(), ("h1", 61_447));
        // Whoever says the place, says it for Slurm too.
        let said = [task.as_slice(), &[("RANK", "0"), ("WORLD_SIZE", "1")]].concat();
        let env = read(&said).unwrap();
        assert_eq!((env.world_size, env.task), (1, None));
        let slip = [task.as_slice(), &[("LOCAL_RANK", "0")]].concat();
        let why = message(&slip);
        assert!(why.starts_with("LOCAL_RANK: is 0, but srun has started this process as"), "{why}");
    }

    #[test]
    fn a_world_without_a_launcher_needs_a_meeting_point() {
        let env = read(&[("WORLD_SIZE", "2"), ("RANK", "0"), ("MASTER_ADDR", "a")]).unwrap();
        assert!(env.master().unwrap_err().to_string().starts_with("MASTER_PORT: is not set"));
    }
}
