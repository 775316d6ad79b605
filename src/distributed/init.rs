//! How a process joins its job: from the environment to the first process group.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::group::WeakGroup;
use super::hosts;
use super::nccl::HostAndGpu;
use super::origin::Origin;
use super::reminder;
use super::shm::{self, Seat};
use super::{Deadline, ProcessGroup, Store, WorkerEnv};
use crate::error::{Error, Result};
use std::sync::Arc;

/// How long a collective may take unless said otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// The environment variable that says otherwise, in seconds.
const TIMEOUT: &str = "TORCHRS_TIMEOUT_S";

/// Ranks of one host at most: each has a process, and each knows all others by a descriptor.
const MOST_RANKS: usize = 4096;

/// Options of [`init_process_group`].
///
/// ```
/// use std::time::Duration;
/// use torchrs::distributed::{InitOptions, init_process_group};
/// let options = InitOptions { timeout: Some(Duration::from_secs(60)), ..Default::default() };
/// assert_eq!(init_process_group(options)?.timeout(), Duration::from_secs(60));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct InitOptions {
    /// How long joining, and each collective, may take. Default: `TORCHRS_TIMEOUT_S` in the
    /// environment (seconds), else 10 minutes.
    pub timeout: Option<Duration>,
    /// This worker's place in the job. Default: [`WorkerEnv::from_env`].
    pub env: Option<WorkerEnv>,
    /// The store to meet at. Default: [`Store::from_env`].
    pub store: Option<Store>,
}

static DEFAULT_GROUP: Mutex<Option<WeakGroup>> = Mutex::new(None);

/// Joins the job and returns the group of all its ranks (`torch.distributed.init_process_group`).
/// Returns when all ranks have joined. Without `WORLD_SIZE` in the environment it is a group of
/// one, so the same program runs by itself too.
///
/// Ranks on several hosts are started by torchrs-launch. Tensors of the CPU go over its connections, those of GPUs
/// through NCCL.
///
/// Keep the handle: when the last one is dropped this rank leaves the group
/// (`torch.distributed.destroy_process_group`). As long as there is one, [`default_group`] gives it.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributed::{self, ReduceOp};
///
/// # fn main() -> torchrs::Result<()> {
/// let group = distributed::init_process_group(Default::default())?;
/// let loss = Tensor::from([2.5f32]);
/// group.all_reduce(&loss, ReduceOp::Avg)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Config`] for an environment that makes no sense, a rank that another process has too, or ranks that
/// are built from different versions of this library; [`Error::PeerDied`] or [`Error::Aborted`] for a rank whose
/// process ends first; [`Error::Timeout`] that lists who has not joined, [`Error::Store`] when the store is gone.
#[track_caller]
pub fn init_process_group(options: InitOptions) -> Result<ProcessGroup> {
    static INSTANCES: AtomicU64 = AtomicU64::new(0);
    let mut default = DEFAULT_GROUP.lock();
    if default.as_ref().is_some_and(|group| group.upgrade().is_some()) {
        return Err(Error::Other(
            "init_process_group: the default process group exists already; get it with \
             `distributed::default_group()`, or drop all its handles first"
                .into(),
        ));
    }
    let env = match options.env {
        Some(env) => env,
        None => WorkerEnv::from_env()?,
    };
    let timeout = match options.timeout {
        Some(timeout) => timeout,
        None => timeout_from(std::env::var(TIMEOUT).ok())?,
    };
    reminder::check_environment()?;
    let deadline = Deadline::after(timeout);
    let is_on_one_host = env.local_world_size == env.world_size;
    if env.local_world_size > MOST_RANKS {
        let (name, ranks) = match is_on_one_host {
            true => ("WORLD_SIZE", env.world_size),
            false => ("LOCAL_WORLD_SIZE", env.local_world_size),
        };
        let what = format!("is {ranks}: a host has at most {MOST_RANKS} ranks");
        return Err(Error::config(name, what));
    }
    let store = match options.store {
        Some(store) => Some(store),
        None if env.world_size == 1 => None,
        None => Some(Store::from_env(deadline)?),
    };
    let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("group/{}/{}/{instance}", env.run_id, env.restart_count);
    let backend = Origin::here().over(|| match (is_on_one_host, store) {
        (false, Some(store)) => {
            hosts::join(&env, store, prefix, &deadline).map(HostAndGpu::over_hosts)
        }
        (_, store) => {
            let ranks = (0..env.world_size).collect();
            let seat = Seat { rank: env.rank, ranks, store, prefix };
            shm::join(seat, &deadline).map(HostAndGpu::new)
        }
    })?;
    let group = ProcessGroup::new(Arc::new(backend), None, env.rank, timeout);
    *default = Some(group.downgrade());
    Ok(group)
}

/// The group that [`init_process_group`] made in this process.
///
/// ```
/// use torchrs::distributed;
/// assert!(distributed::default_group().is_err());
/// let group = distributed::init_process_group(Default::default())?;
/// assert_eq!(distributed::default_group()?.ranks(), group.ranks());
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Other`] when there is none, or its last handle was dropped.
pub fn default_group() -> Result<ProcessGroup> {
    let default = DEFAULT_GROUP.lock();
    let missing = match &*default {
        None => "no process group: call `distributed::init_process_group` first",
        Some(group) => match group.upgrade() {
            Some(group) => return Ok(group),
            None => {
                "the default process group is gone: the handle that `init_process_group` \
                 returned was dropped; keep it as long as the group is needed"
            }
        },
    };
    Err(Error::Other(missing.into()))
}

/// Whether this process has a default group (`torch.distributed.is_initialized`).
pub fn is_initialized() -> bool {
    default_group().is_ok()
}

fn timeout_from(variable: Option<String>) -> Result<Duration> {
    let Some(text) = variable.filter(|text| !text.is_empty()) else { return Ok(DEFAULT_TIMEOUT) };
    let seconds = text.trim().parse().ok().filter(|&s: &f64| s > 0.0);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        Error::config(TIMEOUT, format!("is `{text}`: must be a number of seconds above 0"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_read_in_seconds() {
        assert_eq!(timeout_from(None).unwrap(), Duration::from_secs(600));
        assert_eq!(timeout_from(Some("1.5".into())).unwrap(), Duration::from_millis(1500));
        for wrong in ["0", "-1", "soon", "nan", "inf", "1e300"] {
            let error = timeout_from(Some(wrong.into())).unwrap_err().to_string();
            assert!(error.starts_with(&format!("TORCHRS_TIMEOUT_S: is `{wrong}`")), "{error}");
        }
    }
}
