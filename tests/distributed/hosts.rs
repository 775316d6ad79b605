//! Process groups over several hosts. A host is a store of its own, joined with the others in the test's process as
//! launchers join theirs; its ranks are processes, and all of them meet over loopback.

mod collectives;
mod encryption;
mod failures;
mod gpus;
mod mpi;
mod sharded;
mod training;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use torchrs::cuda::library::{SIMULATE, SIMULATED_LIBRARY, simulated_path};
use torchrs::distributed::{ProcessGroup, StoreServer, init_process_group};
use torchrs::multiprocessing::{Channel, Process};
use torchrs::{Device, Error, Result};
use torchrs_job::store::{LINKS_ADDRESSES, LINKS_KEY, Uplink};

/// Far longer than anything here takes; a wait that reaches it is a bug.
pub const LONG: Duration = Duration::from_secs(60);

enum Mail {
    Ask(u64, Vec<u8>),
    Reply(u64, u64, Vec<u8>),
    End,
}

/// The way of one host's store to the others.
struct Line(u64, Sender<Mail>);

impl Uplink for Line {
    fn ask(&self, _: u64, request: Vec<u8>) {
        let _ = self.1.send(Mail::Ask(self.0, request));
    }
    fn reply(&self, host: u64, number: u64, reply: Vec<u8>) {
        let _ = self.1.send(Mail::Reply(host, number, reply));
    }
    fn welcome(&self) {}
}

/// The stores of several hosts. The first has the job's keys.
pub struct Hosts {
    servers: Vec<Arc<StoreServer>>,
    line: Sender<Mail>,
    carrier: Option<JoinHandle<()>>,
}

impl Hosts {
    pub fn new(count: usize) -> Self {
        let (line, mail) = channel();
        let server = |host: usize| {
            let uplink = Box::new(Line(host as u64, line.clone()));
            let server = StoreServer::start_among_hosts(uplink, host == 0).unwrap();
            server.tell(LINKS_KEY, &[9; 32]);
            server.tell(LINKS_ADDRESSES, b"127.0.0.1");
            Arc::new(server)
        };
        let servers: Vec<_> = (0..count).map(server).collect();
        let ends = servers.clone();
        let carrier = std::thread::spawn(move || {
            for one in mail {
                match one {
                    Mail::Ask(host, request) => ends[0].asked(host, request),
                    Mail::Reply(host, number, reply) => ends[host as usize].answered(number, reply),
                    Mail::End => return,
                }
            }
        });
        Hosts { servers, line, carrier: Some(carrier) }
    }
}

impl Hosts {
    /// Says, as a launcher does, that a rank's process has ended.
    pub fn rank_ended(&self, host: usize, rank: usize) {
        self.servers[host].rank_ended(rank, "exited with code 0");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.line.send(Mail::End);
        self.carrier.take().unwrap().join().unwrap();
    }
}

/// The processes of a job by rank, each with the channel to it.
pub type Ranks<T, S> = Vec<(Process, Channel<T, S>)>;

/// Starts `f` on hosts with so many ranks each. A wait takes at most `timeout_s`.
pub fn start<A, F, S, T>(
    layout: &[usize],
    timeout_s: f64,
    f: F,
    argument: &A,
) -> (Hosts, Ranks<T, S>)
where
    A: Clone + serde::Serialize + serde::de::DeserializeOwned + 'static,
    F: Fn(A, Channel<S, T>) -> Result<()> + Copy + 'static,
{
    start_with(layout, timeout_s, &[], f, argument)
}

/// [`start`] with variables of all ranks.
fn start_with<A, F, S, T>(
    layout: &[usize],
    timeout_s: f64,
    variables: &[(&str, String)],
    f: F,
    argument: &A,
) -> (Hosts, Ranks<T, S>)
where
    A: Clone + serde::Serialize + serde::de::DeserializeOwned + 'static,
    F: Fn(A, Channel<S, T>) -> Result<()> + Copy + 'static,
{
    let hosts = Hosts::new(layout.len());
    let world: usize = layout.iter().sum();
    let mut ranks = Vec::new();
    for (host, &count) in layout.iter().enumerate() {
        for local in 0..count {
            let rank = ranks.len();
            let set = [
                ("RANK", rank),
                ("LOCAL_RANK", local),
                ("GROUP_RANK", host),
                ("WORLD_SIZE", world),
                ("LOCAL_WORLD_SIZE", count),
            ];
            let mut worker = Process::builder().name(format!("rank {rank}"));
            for (name, value) in set {
                worker = worker.env(name, value.to_string());
            }
            for (name, value) in variables {
                worker = worker.env(*name, value);
            }
            let worker = worker
                .env("TORCHRS_TIMEOUT_S", timeout_s.to_string())
                .inherit("TORCHRS_STORE_FD", hosts.servers[host].connect().unwrap());
            ranks.push(worker.spawn_connected(f, argument.clone()).unwrap());
        }
    }
    (hosts, ranks)
}

/// [`start`] with a simulated GPU for each rank. `None` where there is none.
pub fn start_on_gpus<A, F, S, T>(
    layout: &[usize],
    timeout_s: f64,
    f: F,
    argument: &A,
) -> Option<(Hosts, Ranks<T, S>)>
where
    A: Clone + serde::Serialize + serde::de::DeserializeOwned + 'static,
    F: Fn(A, Channel<S, T>) -> Result<()> + Copy + 'static,
{
    let Some(library) = simulated_path() else {
        println!("skipped: the simulated GPU is not built");
        return None;
    };
    let most = layout.iter().max().copied().unwrap_or(0);
    let variables = [
        (SIMULATE, most.to_string()),
        (SIMULATED_LIBRARY, library.to_string_lossy().into_owned()),
        ("TORCHRS_SIMULATED_QUIET", "1".to_owned()),
        ("TORCHRS_KERNEL_CACHE", env!("CARGO_TARGET_TMPDIR").to_owned()),
        ("NVIDIA_TF32_OVERRIDE", "0".to_owned()),
    ];
    Some(start_with(layout, timeout_s, &variables, f, argument))
}

/// Runs `f` on hosts with so many ranks each; all have to end well.
pub fn run<A, F>(layout: &[usize], f: F, argument: &A)
where
    A: Clone + serde::Serialize + serde::de::DeserializeOwned + 'static,
    F: Fn(A, Channel<(), ()>) -> Result<()> + Copy + 'static,
{
    let (_hosts, ranks) = start(layout, 60.0, f, argument);
    all_end_well(layout, &ranks);
}

/// [`run`] with a simulated GPU for each rank.
pub fn run_on_gpus<A, F>(layout: &[usize], f: F, argument: &A)
where
    A: Clone + serde::Serialize + serde::de::DeserializeOwned + 'static,
    F: Fn(A, Channel<(), ()>) -> Result<()> + Copy + 'static,
{
    if let Some((_hosts, ranks)) = start_on_gpus(layout, 60.0, f, argument) {
        all_end_well(layout, &ranks);
    }
}

fn all_end_well<T, S>(layout: &[usize], ranks: &Ranks<T, S>) {
    let ended: Vec<_> = ranks.iter().map(|(rank, _)| rank.join_timeout(LONG)).collect();
    assert!(ended.iter().all(Result::is_ok), "{layout:?}: {ended:?}");
}

/// This rank's simulated GPU.
pub fn gpu() -> Device {
    Device::Cuda(torchrs::cuda::device::current())
}

pub fn join_job() -> Result<ProcessGroup> {
    init_process_group(mpi::options().unwrap_or_default())
}

/// What a failed child says about itself.
pub fn message(result: Result<()>) -> String {
    match result {
        Err(Error::Child { message, .. }) => message,
        other => panic!("not a failed child: {other:?}"),
    }
}
