//! Workers that no launcher has started: processes with the variables that srun and MPI's mpirun set, and ranks that
//! were set by hand on several hosts. Where there are two hosts, both are this machine's loopback.

mod failures;
mod refusals;

use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use torchrs::distributed::{
    InitOptions, ProcessGroup, ReduceOp, Store, WorkerEnv, init_process_group,
};
use torchrs::multiprocessing::{Channel, Process};
use torchrs::{Dtype, Result, Tensor};

/// Far longer than anything here takes; a wait that reaches it is a bug.
pub const LONG: Duration = Duration::from_secs(60);

/// A starter of tasks, as its variables show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Starter {
    Slurm,
    OpenMpi,
    Hydra,
    /// torchrun's variables, set by hand.
    Hand,
}

/// A job: as many ranks on each of its hosts as `layout` says.
pub struct Job {
    pub starter: Starter,
    pub layout: Vec<usize>,
    /// In the environment of all its processes, to find them.
    pub mark: String,
    /// Where its hosts meet.
    port: u16,
}

impl Job {
    pub fn new(starter: Starter, layout: &[usize]) -> Self {
        static JOBS: AtomicUsize = AtomicUsize::new(0);
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}{number:02}", std::process::id());
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        Job { starter, layout: layout.to_vec(), mark, port }
    }

    pub fn world_size(&self) -> usize {
        self.layout.iter().sum()
    }

    /// The host of a rank, and its place there.
    fn place(&self, rank: usize) -> (usize, usize) {
        let (mut host, mut local) = (0, rank);
        while local >= self.layout[host] {
            local -= self.layout[host];
            host += 1;
        }
        (host, local)
    }

    /// What a starter sets for a rank.
    pub fn variables(&self, rank: usize) -> Vec<(&'static str, String)> {
        let (host, local) = self.place(rank);
        let (world, count) = (self.world_size(), self.layout[host]);
        let number = |n: usize| n.to_string();
        let mut set = match self.starter {
            Starter::Slurm => vec![
                ("SLURM_JOB_ID", self.mark.clone()),
                ("SLURM_STEP_ID", number(0)),
                ("SLURM_PROCID", number(rank)),
                ("SLURM_LOCALID", number(local)),
                ("SLURM_NODEID", number(host)),
                ("SLURM_STEP_NUM_TASKS", number(world)),
                ("SLURM_STEP_NUM_NODES", number(self.layout.len())),
            ],
            Starter::OpenMpi => vec![
                ("PMIX_NAMESPACE", self.mark.clone()),
                ("OMPI_COMM_WORLD_RANK", number(rank)),
                ("OMPI_COMM_WORLD_SIZE", number(world)),
                ("OMPI_COMM_WORLD_LOCAL_RANK", number(local)),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", number(count)),
            ],
            Starter::Hydra => vec![
                ("PMI_RANK", number(rank)),
                ("PMI_SIZE", number(world)),
                ("MPI_LOCALRANKID", number(local)),
                ("MPI_LOCALNRANKS", number(count)),
            ],
            Starter::Hand => vec![
                ("RANK", number(rank)),
                ("WORLD_SIZE", number(world)),
                ("LOCAL_RANK", number(local)),
                ("LOCAL_WORLD_SIZE", number(count)),
                ("GROUP_RANK", number(host)),
                ("GROUP_WORLD_SIZE", number(self.layout.len())),
            ],
        };
        if self.layout.len() > 1 {
            set.push(("MASTER_ADDR", "127.0.0.1".to_owned()));
            set.push(("MASTER_PORT", self.port.to_string()));
            // No MPI has started these processes.
            set.push(("TORCHRS_HOSTS_ENGINE", "tcp".to_owned()));
        }
        set.push(("TORCHRS_TEST_JOB", self.mark.clone()));
        set
    }

    /// Starts `f` as a rank, with `more` variables.
    pub fn start<A, F, S, T>(
        &self,
        rank: usize,
        more: &[(&str, &str)],
        f: F,
        argument: A,
    ) -> (Process, Channel<T, S>)
    where
        A: serde::Serialize + serde::de::DeserializeOwned,
        F: Fn(A, Channel<S, T>) -> Result<()> + Copy + 'static,
    {
        let mut process = Process::builder().name(format!("rank {rank}"));
        for (name, value) in self.variables(rank) {
            process = process.env(name, value);
        }
        // They have an MPI's environment, and no MPI has started them.
        let own = [("TORCHRS_TIMEOUT_S", "60"), ("TORCHRS_HOSTS_ENGINE", "tcp")];
        for (name, value) in own.iter().chain(more) {
            process = process.env(name, value);
        }
        process.spawn_connected(f, argument).unwrap()
    }

    /// Starts `f` as every rank.
    pub fn start_all<F, S, T>(&self, f: F) -> Vec<(Process, Channel<T, S>)>
    where
        F: Fn((), Channel<S, T>) -> Result<()> + Copy + 'static,
    {
        (0..self.world_size()).map(|rank| self.start(rank, &[], f, ())).collect()
    }

    /// The processes that stand in for launchers in this job.
    pub fn stand_ins(&self) -> Vec<i32> {
        let mark = format!("TORCHRS_TEST_JOB={}", self.mark);
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_one = |pid: &i32| {
            let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            let cmdline = read("cmdline");
            let environ = read("environ");
            cmdline.strip_suffix(&[0]).is_some_and(|line| line.ends_with(b": torchrs-host"))
                && environ.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        pids.filter(is_one).collect()
    }

    /// None of them outlives its workers for long.
    pub fn is_gone_within(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while !self.stand_ins().is_empty() {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

pub fn join_job() -> Result<ProcessGroup> {
    init_process_group(InitOptions::default())
}

pub fn ones(len: usize) -> Tensor {
    Tensor::ones([len], Dtype::F32)
}

/// Joins, sums, and has all see a key that one has set.
fn trains(_: (), parent: Channel<(usize, usize, usize, usize), ()>) -> Result<()> {
    let env = WorkerEnv::from_env()?;
    let group = join_job()?;
    assert_eq!((group.rank(), group.world_size()), (env.rank, env.world_size));
    let x = Tensor::full([1000], env.rank as f64, Dtype::F32);
    group.all_reduce(&x, ReduceOp::Sum)?;
    let sum = (0..env.world_size).sum::<usize>() as f32;
    assert_eq!(x.to_vec::<f32>(), vec![sum; 1000]);
    let store = Store::from_env(LONG)?;
    if env.rank == env.world_size - 1 {
        store.set("from the last", b"yes")?;
    }
    assert_eq!(store.get("from the last", LONG)?, b"yes");
    parent.send(&(env.local_rank, env.local_world_size, env.group_rank, env.rank))?;
    // All are told before any ends.
    group.barrier()
}

#[test]
fn tasks_of_every_starter_find_each_other() {
    use Starter::*;
    for (starter, layout) in [
        (Slurm, &[4][..]),
        (OpenMpi, &[4]),
        (Hydra, &[3]),
        (OpenMpi, &[2, 2]),
        (Hydra, &[1, 1]),
        (Hand, &[2, 2]),
        (Hand, &[2, 1]),
    ] {
        let start = Instant::now();
        let job = Job::new(starter, layout);
        let ranks = job.start_all(trains);
        for (rank, (process, channel)) in ranks.iter().enumerate() {
            let ended = || process.join_timeout(LONG);
            let place = channel.recv_timeout(LONG).map_err(|_| ended().unwrap_err());
            let (host, local) = job.place(rank);
            assert_eq!(place.unwrap(), (local, layout[host], host, rank), "{starter:?} {layout:?}");
        }
        let ended: Vec<_> = ranks.iter().map(|(rank, _)| rank.join_timeout(LONG)).collect();
        assert!(ended.iter().all(Result::is_ok), "{starter:?} {layout:?}: {ended:?}");
        assert!(job.is_gone_within(Duration::from_secs(5)), "{starter:?} {layout:?}");
        println!("{starter:?} {layout:?}: {:?}", start.elapsed());
    }
}

#[test]
fn two_jobs_at_once_on_a_host_do_not_meet() {
    let jobs = [Job::new(Starter::Slurm, &[2]), Job::new(Starter::Slurm, &[3])];
    let started = jobs.each_ref().map(|job| job.start_all(trains));
    for (process, _) in started.iter().flatten() {
        process.join_timeout(LONG).unwrap();
    }
}

/// A process of the job for itself.
fn is_alone(_: (), _: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    assert_eq!(group.world_size(), 1);
    let env = WorkerEnv::from_env()?;
    assert_eq!(env.task, None);
    Ok(())
}

#[test]
fn who_is_said_to_be_alone_is_alone() {
    let job = Job::new(Starter::Slurm, &[4]);
    let (process, _) = job.start(2, &[("RANK", "0"), ("WORLD_SIZE", "1")], is_alone, ());
    process.join_timeout(LONG).unwrap();
    // The batch script's own shell, and a shell that ssh has brought to another host.
    for (name, value) in [("SLURM_STEP_ID", ""), ("SLURMD_NODENAME", "elsewhere.example")] {
        let (process, _) = job.start(2, &[(name, value)], is_alone, ());
        process.join_timeout(LONG).unwrap();
    }
    assert!(job.stand_ins().is_empty());
}
