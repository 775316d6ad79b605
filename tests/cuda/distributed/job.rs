//! Jobs of processes that have a simulated GPU each.

use std::time::Duration;

use torchrs::cuda::{
    self,
    library::{SIMULATE, SIMULATED_LIBRARY, simulated_path},
};
use torchrs::distributed::{InitOptions, ProcessGroup, Store, StoreServer, init_process_group};
use torchrs::multiprocessing::Process;
use torchrs::{Device, Result};

/// Far longer than anything here takes; a wait that reaches it is a bug.
pub const LONG: Duration = Duration::from_secs(60);
/// The variable that asks the simulated GPU for a fault.
pub const FAULT: &str = "TORCHRS_SIMULATED_FAULT";
/// The variable whose number makes the simulated GPU reorder what is independent.
pub const ADVERSARY: &str = "TORCHRS_SIMULATED_ADVERSARY";

pub fn join_job() -> Result<ProcessGroup> {
    init_process_group(InitOptions::default())
}

/// Tells the other ranks, beside the group, that this one has got as far as `place`.
pub fn reached(place: &str, rank: usize) -> Result<()> {
    Store::from_env(LONG)?.set(&format!("test/{place}/{rank}"), b"")
}

/// Waits until these ranks have [`reached`] `place`.
pub fn wait_for(place: &str, ranks: impl IntoIterator<Item = usize>) -> Result<()> {
    let keys: Vec<String> = ranks.into_iter().map(|r| format!("test/{place}/{r}")).collect();
    Store::from_env(LONG)?.wait(&keys.iter().map(String::as_str).collect::<Vec<_>>(), LONG)
}

/// The rank's GPU.
pub fn gpu() -> Device {
    Device::Cuda(cuda::device::current())
}

/// A job whose ranks have a simulated GPU each.
pub struct Job {
    pub ranks: Vec<Process>,
    _server: StoreServer,
}

impl Job {
    /// Starts `f` on `world` ranks; the second variables are the last rank's only. `None` where there is
    /// no simulated GPU.
    pub fn start<F>(world: usize, variables: [&[(&str, &str)]; 2], f: F) -> Option<Job>
    where
        F: Fn(()) -> Result<()> + Copy + 'static,
    {
        let Some(library) = simulated_path() else {
            println!("skipped: the simulated GPU is not built");
            return None;
        };
        let server = StoreServer::start().unwrap();
        let start = |rank: usize| {
            let mut worker = Process::builder()
                .name(format!("rank {rank}"))
                .env("RANK", rank.to_string())
                .env("LOCAL_RANK", rank.to_string())
                .env("WORLD_SIZE", world.to_string())
                .env("TORCHRS_TIMEOUT_S", "60")
                .env("TORCHRS_KERNEL_CACHE", env!("CARGO_TARGET_TMPDIR"))
                .env(SIMULATE, world.to_string())
                .env("TORCHRS_SIMULATED_QUIET", "1")
                .env("NVIDIA_TF32_OVERRIDE", "0")
                .env(SIMULATED_LIBRARY, &library)
                .inherit("TORCHRS_STORE_FD", server.connect().unwrap());
            let own = if rank + 1 == world { variables[1] } else { &[] };
            for (name, value) in variables[0].iter().chain(own) {
                worker = worker.env(name, value);
            }
            worker.spawn(f, ()).unwrap()
        };
        Some(Job { ranks: (0..world).map(start).collect(), _server: server })
    }

    /// All ranks succeed.
    pub fn succeeds(self) {
        self.ranks.iter().for_each(|rank| rank.join_timeout(LONG).unwrap());
    }
}

/// Runs `f` on `world` ranks, which must succeed.
pub fn run<F>(world: usize, f: F)
where
    F: Fn(()) -> Result<()> + Copy + 'static,
{
    run_with(world, [&[], &[]], f);
}

/// [`run`] with variables of all ranks, and of the last one.
pub fn run_with<F>(world: usize, variables: [&[(&str, &str)]; 2], f: F)
where
    F: Fn(()) -> Result<()> + Copy + 'static,
{
    if let Some(job) = Job::start(world, variables, f) {
        job.succeeds();
    }
}
