//! Where the workers of a job meet: the name of their host's socket, and how the hosts find each other.

use std::time::Duration;

use nix::unistd::getuid;
use serde::{Deserialize, Serialize};
use torchrs_rendezvous::driver::{Config, DEFAULT_PORT, Endpoint};
use torchrs_rendezvous::settings::Settings;
use torchrs_rendezvous::token::{self, JobToken, TOKEN};

use super::over_mpi::{self, Told, is_set};
use super::starter;
use crate::distributed::cluster::ClusterTask;
use crate::distributed::{Deadline, WorkerEnv};
use crate::error::{Error, Result};

/// A job's meeting, as one host sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Meeting {
    /// The abstract socket where this host's workers find their stand-in.
    pub name: String,
    /// Of a job over several hosts.
    pub hosts: Option<OverHosts>,
}

/// How the hosts of a job find each other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OverHosts {
    job: String,
    count: u32,
    group_rank: u32,
    local_world_size: u32,
    endpoint: (String, u16),
    /// The secret, and where it came from; nothing where all is on one host's loopback.
    token: Option<(String, String)>,
}

impl Meeting {
    /// Of this worker's job.
    ///
    /// # Errors
    /// [`Error::Config`] that names what is missing of an endpoint, the number of hosts or the secret.
    pub fn of(env: &WorkerEnv, deadline: &Deadline) -> Result<Self> {
        let job = match &env.task {
            Some(task) => id_of(task),
            None => {
                let (address, port) = env.master()?;
                format!("{address}-{port}")
            }
        };
        // Several hosts may be one machine.
        let name = format!("torchrs-{}-host{}-{job}", getuid(), env.group_rank);
        let name = if name.len() <= LONGEST_NAME { name } else { shortened(&name) };
        let is_on_one_host = env.local_world_size == env.world_size;
        let hosts = if is_on_one_host { None } else { Some(OverHosts::of(env, deadline)?) };
        Ok(Meeting { name, hosts })
    }
}

/// The longest name of an abstract socket that Linux takes, in bytes.
const LONGEST_NAME: usize = 107;

/// A long name's beginning, with a hash of all of it.
fn shortened(name: &str) -> String {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let start: String = name.chars().take(40).filter(char::is_ascii).collect();
    format!("{start}-{hash:016x}")
}

/// What tells the job of this task from others on its host.
fn id_of(task: &ClusterTask) -> String {
    let id = task.job_id.clone();
    id.unwrap_or_else(|| {
        let (variable, value) = task.rank_told();
        starter::of_variable(variable, &value)
    })
}

impl OverHosts {
    fn of(env: &WorkerEnv, deadline: &Deadline) -> Result<Self> {
        let WorkerEnv { local_world_size, world_size, group_rank, .. } = *env;
        let told = env.task.as_ref().and_then(|task| task.nodes);
        let even =
            world_size.is_multiple_of(local_world_size).then(|| world_size / local_world_size);
        let count = match told.or(group_world_size()?).or(even) {
            Some(count) if group_rank < count => count,
            Some(count) => {
                let what = format!(
                    "is {group_rank}, and there are {count} hosts: must be 0 to {}",
                    count - 1
                );
                return Err(Error::config("GROUP_RANK", what));
            }
            None => {
                let what = format!(
                    "is not set, and {world_size} workers are on several hosts, {local_world_size} of them on this \
                     one: set it to the number of hosts"
                );
                return Err(Error::config("GROUP_WORLD_SIZE", what));
            }
        };
        let Told { endpoint, token } = match told_by_mpi(env, deadline) {
            Ok(Some(told)) => told,
            Ok(None) => told_by_environment(env)?,
            // What is given is enough.
            Err(Error::Config { name, message }) if name != TOKEN => told_by_environment(env)
                .map_err(|error| match error {
                    Error::Config { name: lacks, message: why } => Error::config(
                        &lacks,
                        format!("{why}. MPI could have said it, but {name}: {message}"),
                    ),
                    other => other,
                })?,
            Err(error) => return Err(error),
        };
        let job = env.run_id.clone();
        Ok(OverHosts {
            job,
            count: count as u32,
            group_rank: group_rank as u32,
            local_world_size: local_world_size as u32,
            endpoint,
            token,
        })
    }

    /// What the rendezvous is given. `limit`: how long hosts wait for each other.
    ///
    /// # Errors
    /// [`Error::Config`] for a token that is none.
    pub fn config(&self, name: String, limit: Duration) -> Result<Config> {
        let settings = Settings {
            job: self.job.clone(),
            hosts: (self.count, self.count),
            max_restarts: 0,
            join_timeout: limit,
            ..Settings::default()
        };
        let token = match &self.token {
            Some((source, text)) => JobToken::new(source, text)?,
            None => JobToken::of_loopback(),
        };
        let (host, port) = self.endpoint.clone();
        Ok(Config {
            settings,
            token,
            endpoint: Endpoint { host, port },
            is_host: Some(self.group_rank == 0),
            local_addrs: Vec::new(),
            name,
            nproc: self.local_world_size,
            node_rank: Some(self.group_rank),
            // A job that a starter of tasks ends has no rounds to decide.
            lock: None,
        })
    }

    /// Where the hosts meet, for messages.
    pub fn endpoint(&self) -> String {
        format!("{}:{}", self.endpoint.0, self.endpoint.1)
    }
}

/// GROUP_WORLD_SIZE, the number of hosts, where it is set.
fn group_world_size() -> Result<Option<usize>> {
    let Some(text) = std::env::var("GROUP_WORLD_SIZE").ok().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(count) if count > 0 => Ok(Some(count)),
        _ => Err(Error::config("GROUP_WORLD_SIZE", format!("is `{text}`: not a number of hosts"))),
    }
}

/// What MPI hands on, where it has started this job's tasks and they need it. All of them ask, or none.
fn told_by_mpi(env: &WorkerEnv, deadline: &Deadline) -> Result<Option<Told>> {
    match &env.task {
        // srun hands its environment on to all tasks alike; not every mpirun does.
        Some(task) if task.leader.is_some() && is_set(TOKEN) => Ok(None),
        Some(_) => over_mpi::told(env, deadline),
        None => Ok(None),
    }
}

/// What the environment says.
fn told_by_environment(env: &WorkerEnv) -> Result<Told> {
    let endpoint = endpoint(env)?;
    let token = token::given(None, &endpoint).map_err(|error| match (error, &env.task) {
        (Error::Config { name, .. }, Some(task)) if name == TOKEN && !is_set(TOKEN) => {
            Error::config(&name, no_token(task))
        }
        (error, _) => error,
    })?;
    Ok(Told { endpoint: (endpoint.host, endpoint.port), token })
}

/// Where the first host listens.
fn endpoint(env: &WorkerEnv) -> Result<Endpoint> {
    let Some(task) = &env.task else {
        let (host, port) = env.master()?;
        return Ok(Endpoint { host: host.to_owned(), port });
    };
    let Some(host) = env.master_addr.clone() else {
        let what = format!(
            "is not set, and {} does not tell its tasks ({}) where they can meet: set MASTER_ADDR to the host of \
             rank 0 and MASTER_PORT to a free port there, the same in all tasks",
            task.starter,
            task.evidence()
        );
        return Err(Error::config("MASTER_ADDR", what));
    };
    Ok(Endpoint { host, port: env.master_port.unwrap_or(DEFAULT_PORT) })
}

/// What a batch script lacks.
fn no_token(task: &ClusterTask) -> String {
    let pass_on = match task.starter {
        "Open MPI's mpirun" => ", and give mpirun the option `-x TORCHRS_JOB_TOKEN`",
        _ => "",
    };
    format!(
        "is not set, and {} has started tasks on several hosts ({}): a job over several hosts needs a secret that all \
         of them have. Add this line to the batch script, before the line that starts the tasks: `export \
         TORCHRS_JOB_TOKEN=$(openssl rand -hex 16)`{pass_on}",
        task.starter,
        task.evidence()
    )
}
