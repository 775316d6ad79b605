//! The same over MPI. `mpirun` of Open MPI and of MPICH starts this test binary as the ranks of a job: each runs one of
//! the other files' functions. Hosts are stores in the test's process, as there; a rank gets its socket from it.
//!
//! Without an `mpirun` little is tested, and the tests say so.

use std::fs;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize};
use torchrs::Result;
use torchrs::distributed::{InitOptions, Store, WorkerEnv};
use torchrs::multiprocessing::{Channel, duplex};

use super::collectives::{everything, groups, long, messages, rounded};
use super::failures::{differs, fails, reduces_for_ever};
use super::training::steps;
use super::{Hosts, LONG, join_job};

/// The job of a rank that `mpirun` has started.
const JOB: &str = "TORCHRS_TEST_MPI_JOB";

#[derive(Serialize, Deserialize)]
struct Job {
    /// Where the socket to the stores is, and where ranks leave what they have to say.
    folder: PathBuf,
    layout: Vec<usize>,
    timeout_s: f64,
    cases: Vec<Case>,
}

/// What a job's ranks run, one after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Case {
    /// The group says which engine it has.
    Engine,
    Everything,
    Long,
    Groups,
    Messages,
    Rounded,
    Training,
    Differs(Vec<usize>),
    Fails(String, usize),
    /// A rank is killed meanwhile; so many elements.
    Reduces(usize),
}

static OPTIONS: OnceLock<InitOptions> = OnceLock::new();

/// How a rank of `mpirun` joins its job.
pub fn options() -> Option<InitOptions> {
    OPTIONS.get().cloned()
}

/// A launcher of MPI, and the options of its `mpirun`.
#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    program: &'static str,
    options: &'static [&'static str],
    /// Leaves the others alone when a rank ends badly.
    keep: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        name: "Open MPI",
        program: "mpirun.openmpi",
        options: &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
        keep: "--enable-recovery",
    },
    Family { name: "MPICH", program: "mpirun.mpich", options: &[], keep: "-disable-auto-cleanup" },
];

/// Those that are installed.
fn families() -> impl Iterator<Item = Family> {
    FAMILIES.into_iter().filter(|family| {
        let is_there =
            Command::new(family.program).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !is_there {
            println!("skipped: no {} ({} is not installed)", family.program, family.name);
        }
        is_there
    })
}

/// A job under `mpirun`.
struct Started {
    mpirun: Child,
    folder: tempfile::TempDir,
    ranks: usize,
    _hosts: Hosts,
}

/// Nothing is left of a test that fails.
impl Drop for Started {
    fn drop(&mut self) {
        if self.mpirun.try_wait().is_ok_and(|ended| ended.is_none()) {
            // It ends the ranks.
            // SAFETY: a signal to a child that has not been waited for.
            unsafe { libc::kill(self.mpirun.id() as i32, libc::SIGTERM) };
            let _ = self.mpirun.wait();
        }
    }
}

impl Started {
    fn new(
        family: Family,
        options: &[&str],
        layout: &[usize],
        timeout: f64,
        cases: &[Case],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (hosts, ranks) = (Hosts::new(layout.len()), layout.iter().sum::<usize>());
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let servers = hosts.servers.clone();
        std::thread::spawn(move || {
            for rank in listener.incoming().take(ranks) {
                let (mut rank, mut host) = (rank.unwrap(), [0]);
                rank.read_exact(&mut host).unwrap();
                let store = servers[usize::from(host[0])].connect().unwrap();
                let (fds, byte) = ([store.as_raw_fd()], [IoSlice::new(b"s")]);
                let fds = [ControlMessage::ScmRights(&fds)];
                sendmsg::<()>(rank.as_raw_fd(), &byte, &fds, MsgFlags::empty(), None).unwrap();
            }
        });
        let job = Job {
            folder: folder.path().to_owned(),
            layout: layout.to_vec(),
            timeout_s: timeout,
            cases: cases.to_vec(),
        };
        let output = fs::File::create(folder.path().join("output")).unwrap();
        let mpirun = Command::new(family.program)
            .args(family.options)
            .args(options)
            .args(["-np", &ranks.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["hosts::mpi::rank", "--exact", "--ignored", "--nocapture"])
            .env(JOB, serde_json::to_string(&job).unwrap())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Started { mpirun, folder, ranks, _hosts: hosts }
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap()
    }

    /// Waits until it has ended; whether well.
    fn end(&mut self) -> bool {
        let start = Instant::now();
        loop {
            if let Some(status) = self.mpirun.try_wait().unwrap() {
                return status.success();
            }
            assert!(start.elapsed() < 2 * LONG, "still running: {}", self.output());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a rank says, once it has.
    fn said(&self, rank: usize) -> String {
        wait_for(&self.folder.path().join(format!("said-{rank}")))
            .unwrap_or_else(|| panic!("rank {rank} says nothing: {}", self.output()))
    }
}

fn wait_for(path: &Path) -> Option<String> {
    let start = Instant::now();
    while start.elapsed() < LONG {
        if let Ok(text) = fs::read_to_string(path) {
            return Some(text);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Runs `f` with a channel whose other end is here; what it has sent.
fn heard<A, T>(f: impl Fn(A, Channel<T, ()>) -> Result<()>, argument: A) -> Option<T>
where
    T: Serialize + serde::de::DeserializeOwned,
{
    let (theirs, ours) = duplex::<T, ()>().unwrap();
    f(argument, theirs).unwrap();
    ours.try_recv().ok().flatten()
}

impl Case {
    /// What the rank has to say afterwards.
    fn run(self, job: &Job, rank: usize) -> Option<String> {
        let nothing = |f: fn((), Channel<(), ()>) -> Result<()>| {
            heard(f, ());
            None
        };
        match self {
            Case::Engine => Some(format!("{:?}", join_job().unwrap())),
            Case::Everything => nothing(everything),
            Case::Long => nothing(long),
            Case::Groups => nothing(groups),
            Case::Messages => nothing(messages),
            Case::Rounded => Some(format!("{:?}", heard(rounded, ()).unwrap())),
            Case::Training => Some(format!("{:?}", heard(steps, false).unwrap())),
            Case::Differs(who) => heard(differs, who),
            Case::Fails(how, who) => heard(fails, (how, who)),
            Case::Reduces(len) => {
                let (theirs, ours) = duplex::<(u64, String), ()>().unwrap();
                let folder = job.folder.clone();
                let pid = std::process::id();
                let running = std::thread::spawn(move || {
                    ours.recv().unwrap();
                    fs::write(folder.join(format!("runs-{rank}.new")), pid.to_string()).unwrap();
                    let new = folder.join(format!("runs-{rank}.new"));
                    fs::rename(new, folder.join(format!("runs-{rank}"))).unwrap();
                    ours.recv().unwrap().1
                });
                assert!(reduces_for_ever(len, theirs).is_err());
                Some(running.join().unwrap())
            }
        }
    }
}

#[test]
#[ignore = "a rank of the jobs that the other tests here start"]
fn rank() {
    let job = std::env::var(JOB).expect("mpirun of another test sets it");
    let job: Job = serde_json::from_str(&job).unwrap();
    let number = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].iter().find_map(|n| std::env::var(n).ok());
    let rank: usize = number.unwrap().parse().unwrap();
    let (mut host, mut local) = (0, rank);
    while local >= job.layout[host] {
        local -= job.layout[host];
        host += 1;
    }
    let world: usize = job.layout.iter().sum();
    let env = WorkerEnv::from_lookup(|name| {
        let value = match name {
            "RANK" => rank,
            "LOCAL_RANK" => local,
            "GROUP_RANK" => host,
            "WORLD_SIZE" => world,
            "LOCAL_WORLD_SIZE" => job.layout[host],
            _ => return None,
        };
        Some(value.to_string().into())
    });
    let mut socket = UnixStream::connect(job.folder.join("socket")).unwrap();
    socket.write_all(&[host as u8]).unwrap();
    let (mut byte, mut space) = ([0], nix::cmsg_space!([i32; 1]));
    let mut into = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let came = recvmsg::<()>(socket.as_raw_fd(), &mut into, Some(&mut space), flags).unwrap();
    let Some(ControlMessageOwned::ScmRights(fds)) = came.cmsgs().unwrap().next() else {
        panic!("no descriptor came")
    };
    // SAFETY: it has just come, and is nobody else's.
    let store = Store::connect_fd(unsafe { OwnedFd::from_raw_fd(fds[0]) }).unwrap();
    let timeout = Some(Duration::from_secs_f64(job.timeout_s));
    let options = InitOptions { timeout, env: Some(env.unwrap()), store: Some(store) };
    OPTIONS.set(options).unwrap();
    let said: Vec<String> =
        job.cases.clone().into_iter().filter_map(|case| case.run(&job, rank)).collect();
    let said_at = |rank: usize| job.folder.join(format!("said-{rank}"));
    let new = job.folder.join(format!("said-{rank}.new"));
    fs::write(&new, said.join("\n")).unwrap();
    fs::rename(&new, said_at(rank)).unwrap();
    // The launcher may end the others as soon as one has ended without MPI_Finalize.
    let start = Instant::now();
    while !(0..world).all(|rank| said_at(rank).exists()) && start.elapsed() < LONG / 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn all_collectives_over_mpi() {
    let cases = [Case::Everything, Case::Long, Case::Engine, Case::Groups, Case::Messages];
    for family in families() {
        // Each start of an mpirun takes a second.
        for (layout, cases) in [(&[2, 2][..], &cases[..3]), (&[1, 2, 1], &cases[2..])] {
            let start = Instant::now();
            let mut job = Started::new(family, &[], layout, 60.0, cases);
            assert!(job.end(), "{}, {layout:?}: {}", family.name, job.output());
            for rank in 0..job.ranks {
                let group = job.said(rank);
                assert!(group.contains("engine: \"mpi\""), "{}: {group}", family.name);
            }
            println!("{}, {layout:?}: {:?}", family.name, start.elapsed());
        }
    }
}

#[test]
fn sums_over_mpi_have_the_same_bits_on_all_ranks_and_training_the_same_weights() {
    for family in families() {
        let mut job = Started::new(family, &[], &[2, 2], 60.0, &[Case::Rounded, Case::Training]);
        assert!(job.end(), "{}: {}", family.name, job.output());
        let first = job.said(0);
        let (bits, losses) = first.split_once('\n').unwrap();
        let bits: Vec<Vec<u32>> = serde_json::from_str(bits).unwrap();
        assert!(bits.chunks(2).all(|twice| twice[0] == twice[1]), "{}: runs differ", family.name);
        let losses: Vec<f64> = serde_json::from_str(losses).unwrap();
        assert!(losses[19] < 0.9 * losses[0], "{}: {losses:?}", family.name);
        assert!(
            (1..job.ranks).all(|rank| job.said(rank) == first),
            "{}: ranks differ",
            family.name
        );
        // Those of one host, where hosts have one rank each.
        let mut alone = Started::new(family, &[], &[1; 4], 60.0, &[Case::Rounded]);
        assert!(alone.end(), "{}: {}", family.name, alone.output());
        let alone: Vec<Vec<u32>> = serde_json::from_str(&alone.said(0)).unwrap();
        let (_hosts, ranks) = super::start(&[4], 60.0, rounded, &());
        let one_host = ranks[0].1.recv_timeout(LONG).unwrap();
        assert!(bits[0] == one_host[0], "{}", family.name);
        assert!(alone == one_host, "{}", family.name);
    }
}

/// Joins with an engine chosen, on the ranks that are named; none of them can.
fn chooses((engine, who, says): (String, Vec<String>, String), _: Channel<(), ()>) -> Result<()> {
    if who.contains(&std::env::var("RANK").unwrap()) {
        // SAFETY: no other thread of this process looks at the environment yet.
        unsafe { std::env::set_var("TORCHRS_HOSTS_ENGINE", engine) };
    }
    let error = join_job().unwrap_err().to_string();
    assert!(error.contains(&format!("TORCHRS_HOSTS_ENGINE: {says}")), "{error}");
    Ok(())
}

#[test]
fn an_engine_that_cannot_be_had_is_an_error() {
    for (engine, who, says) in [
        ("mpi", &["0", "1"][..], "is mpi, and no launcher of MPI has started this process"),
        ("gloo", &["0", "1"], "is `gloo`: must be `tcp`, `mpi` or unset"),
        ("tcp", &["1"], "is not set on rank 0 and `tcp` on rank 1: set it alike on all"),
    ] {
        let who = who.iter().map(|&rank| rank.to_owned()).collect();
        super::run(&[1, 1], chooses, &(engine.to_owned(), who, says.to_owned()));
    }
}

#[test]
fn hosts_that_call_different_things_over_mpi_are_told_so() {
    for family in families() {
        for (layout, who) in [(&[2, 2][..], vec![2, 3]), (&[1, 1, 1], vec![1])] {
            let job = Started::new(family, &[family.keep], layout, 60.0, &[Case::Differs(who)]);
            for rank in 0..job.ranks {
                let text = job.said(rank);
                assert!(
                    text.contains("barrier")
                        && text.contains("all_reduce(sum, f32, [300000])")
                        && text.contains("collective 3"),
                    "{}, {layout:?}, rank {rank}: {text}",
                    family.name
                );
            }
        }
    }
}

#[test]
fn what_ends_a_group_over_mpi_is_told_on_all_hosts() {
    for family in families() {
        for (how, part) in [
            ("abort", "no data left"),
            ("leave", "has left the process group"),
            ("sleep", "timed out"),
        ] {
            let limit = if how == "sleep" { 1.5 } else { 60.0 };
            let case = [Case::Fails(how.to_owned(), 3)];
            let job = Started::new(family, &[family.keep], &[2, 2], limit, &case);
            for rank in 0..3 {
                let text = job.said(rank);
                println!("{}: {how} of rank 3: rank {rank}: {text}", family.name);
                assert!(text.contains(part) && text.contains("rank 3"), "{how}: {rank}: {text}");
            }
        }
    }
}

#[test]
fn a_killed_rank_ends_a_job_over_mpi() {
    for family in families() {
        for keeps in [false, true] {
            let options = if keeps { &[family.keep][..] } else { &[] };
            let mut job = Started::new(family, options, &[1, 2], 60.0, &[Case::Reduces(300_000)]);
            let runs = |rank: usize| job.folder.path().join(format!("runs-{rank}"));
            let pids: Vec<String> = (0..3)
                .map(|rank| wait_for(&runs(rank)).unwrap_or_else(|| panic!("{}", job.output())))
                .collect();
            let victim: i32 = pids[2].parse().unwrap();
            let start = Instant::now();
            // SAFETY: a signal to a rank of this test's job, which runs.
            unsafe { libc::kill(victim, libc::SIGKILL) };
            // Its launcher ends the others, unless it is told not to; then they say who has died. MPICH's may end them
            // all the same.
            // A launcher that leaves the others alone goes by their status.
            let is_well = job.end();
            assert!(keeps || !is_well, "{}: {}", family.name, job.output());
            println!("{}, keeps {keeps}: ended after {:?}", family.name, start.elapsed());
            assert!(start.elapsed() < LONG / 4, "{}", job.output());
            for rank in 0..2 {
                let said = job.folder.path().join(format!("said-{rank}"));
                let text = fs::read_to_string(said).unwrap_or_default();
                println!("rank {rank}: {text}");
                let died = format!("rank 2 (pid {victim}) died");
                assert!(text.is_empty() || text.contains(&died), "{}: {text}", family.name);
                assert!(
                    !(keeps && family.name == "Open MPI" && text.is_empty()),
                    "{}",
                    job.output()
                );
            }
        }
    }
}
