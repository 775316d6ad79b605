//! What the `DataLoader` does when things go wrong: datasets that fail, workers that die or hang, a
//! parent that is killed, an epoch that is left early, samplers and options that cannot be. Every
//! fault is injected for real.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Deserializer, Serialize};
use torchrs::data::{DataLoader, DataLoaderBuilder, Dataset, Sampler, SubsetSampler};
use torchrs::multiprocessing::{Channel, Process};
use torchrs::{Dtype, Error, Result, Tensor};

/// Far more than a loaded machine needs for anything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sample `i` is `i`.
#[derive(Clone, Serialize, Deserialize)]
struct Plain {
    len: usize,
}

impl Dataset for Plain {
    type Sample = i64;
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, index: usize) -> Result<i64> {
        Ok(index as i64)
    }
}

fn epoch(loader: &DataLoader<Plain>) -> Vec<i64> {
    loader.iter().flat_map(|batch| batch.unwrap().to_vec::<i64>()).collect()
}

// ---- row 40: early break, empty dataset, bad samplers and options

#[test]
fn an_early_break_is_clean_and_the_next_epoch_is_whole() {
    for workers in [0, 2] {
        let loader = DataLoader::builder(Plain { len: 200 }).batch_size(3).workers(workers);
        let loader = loader.timeout(PATIENCE).build().unwrap();
        for after in [0, 1, 5] {
            for batch in loader.iter().take(after) {
                batch.unwrap();
            }
        }
        assert_eq!(epoch(&loader), (0..200).collect::<Vec<i64>>());
        // An iterator that is still held when the next one begins is over, and says so.
        let mut old = loader.iter();
        old.next().unwrap().unwrap();
        assert_eq!(epoch(&loader).len(), 200);
        assert!(old.next().unwrap().unwrap_err().to_string().contains("newer iteration"));
        assert!(old.next().is_none());
    }
}

#[test]
fn an_empty_dataset_has_no_batches_and_starts_no_workers() {
    let loader = DataLoader::builder(Plain { len: 0 }).batch_size(4).shuffle(true).workers(2);
    let loader = loader.build().unwrap();
    assert_eq!((loader.len(), loader.is_empty()), (0, true));
    assert!(loader.iter().next().is_none());
}

/// Says that it has another length than it has.
struct Liar;

impl Sampler for Liar {
    fn len(&self) -> usize {
        3
    }
    fn indices(&self, _seed: u64, _epoch: u64) -> std::borrow::Cow<'_, [usize]> {
        vec![0; 4].into()
    }
}

#[test]
fn a_sampler_out_of_range_is_an_error_that_names_index_and_place() {
    for workers in [0, 1] {
        let builder = DataLoader::builder(Plain { len: 5 }).workers(workers);
        let loader = builder.sampler(SubsetSampler::new(vec![0, 1, 5])).build().unwrap();
        let mut batches = loader.iter();
        let error = batches.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Argument { .. }));
        let message = error.to_string();
        assert!(
            message.contains("index 5 at place 2") && message.contains("5 samples"),
            "{message}"
        );
        assert!(batches.next().is_none());
        let builder = DataLoader::builder(Plain { len: 5 }).workers(workers);
        let loader = builder.sampler(Liar).build().unwrap();
        let error = loader.iter().next().unwrap().unwrap_err().to_string();
        assert!(error.contains("gives 4 indices, but its len() is 3"), "{error}");
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let builder = || DataLoader::builder(Plain { len: 5 });
    let refused = |builder: DataLoaderBuilder<Plain>, expected: &str| {
        let error = builder.build().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(builder().batch_size(0), "`batch_size`: is 0");
    refused(builder().prefetch_factor(0), "`prefetch_factor`: is 0");
    refused(builder().timeout(Duration::ZERO), "`timeout`: is 0");
    refused(builder().shuffle(true).sampler(SubsetSampler::new(vec![])), "`shuffle`");
}

// ---- rows 34 to 36: a dataset that fails, dies, hangs

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Fault {
    Error,
    Panic,
    Sigkill,
    Sigsegv,
    Exit,
    MemoryLimit,
    Hang,
    Stop,
    /// Writes its pid to the file, then hangs.
    HangAfterNote,
}

/// `Plain`, except at index 17.
#[derive(Serialize, Deserialize)]
struct Faulty {
    fault: Fault,
    note: Option<PathBuf>,
}

impl Dataset for Faulty {
    type Sample = i64;
    fn len(&self) -> usize {
        40
    }
    fn get(&self, index: usize) -> Result<i64> {
        if index == 17 {
            self.fail_here(index)?;
        }
        Ok(index as i64)
    }
}

impl Faulty {
    #[inline(never)]
    fn fail_here(&self, index: usize) -> Result<()> {
        match self.fault {
            Fault::Error => Err(Error::Other(format!("record {index} has no label"))),
            Fault::Panic => panic!("cannot decode record {index}"),
            // SAFETY: signals to this very process, which is the point.
            Fault::Sigkill => unsafe { sleep_after(libc::kill(libc::getpid(), libc::SIGKILL)) },
            // SAFETY: as above; handlers are reset so that no runtime's handler steps in.
            Fault::Sigsegv => unsafe {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                sleep_after(libc::raise(libc::SIGSEGV))
            },
            Fault::Exit => std::process::exit(7),
            Fault::MemoryLimit => {
                let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
                // SAFETY: sets a limit of this process.
                unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
                let huge = vec![1u8; 4 << 30];
                Err(Error::Other(format!("allocated {}", huge.len())))
            }
            // SAFETY: stops this very process, which is the point.
            Fault::Stop => unsafe { sleep_after(libc::raise(libc::SIGSTOP)) },
            Fault::Hang => sleep_after(0),
            Fault::HangAfterNote => {
                let note = self.note.as_ref().unwrap();
                let draft = note.with_extension("draft");
                fs::write(&draft, std::process::id().to_string()).unwrap();
                fs::rename(draft, note).unwrap();
                sleep_after(0)
            }
        }
    }
}

/// Waits for the end that a signal brings, or hangs.
fn sleep_after(_: i32) -> Result<()> {
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

fn faulty(fault: Fault, workers: usize, timeout: Duration) -> DataLoader<Faulty> {
    let builder = DataLoader::builder(Faulty { fault, note: None });
    builder.batch_size(4).workers(workers).timeout(timeout).build().unwrap()
}

/// The first error of an epoch, and what came before it.
fn until_error(loader: &DataLoader<Faulty>) -> (Vec<i64>, Error) {
    let mut seen = Vec::new();
    for batch in loader {
        match batch {
            Ok(batch) => seen.extend(batch.to_vec::<i64>()),
            Err(error) => return (seen, error),
        }
    }
    panic!("no error after {seen:?}");
}

/// FAULTS row 34.
#[test]
fn a_dataset_that_fails_is_reported_with_index_worker_message_and_backtrace() {
    for workers in [0, 2] {
        for fault in [Fault::Error, Fault::Panic] {
            let loader = faulty(fault, workers, PATIENCE);
            let (seen, error) = until_error(&loader);
            assert_eq!(seen, (0..16).collect::<Vec<i64>>());
            let Error::Dataset { index, worker, message } = &error else { panic!("{error}") };
            assert_eq!(*index, 17);
            let expected = if workers == 0 { "the main process" } else { "loader worker " };
            assert!(worker.starts_with(expected), "{worker}");
            if fault == Fault::Error {
                assert_eq!(message, "record 17 has no label");
            } else {
                assert!(message.contains("cannot decode record 17"), "{message}");
                assert!(message.contains(concat!("panicked at ", file!(), ":")), "{message}");
                assert!(message.contains("fail_here"), "no backtrace in {message}");
            }
            // The workers have survived it: the rest of the epoch comes, and further epochs.
            let mut batches = loader.iter();
            let ok: Vec<bool> = batches.by_ref().map(|batch| batch.is_ok()).collect();
            assert_eq!(ok.len(), 10);
            assert_eq!(ok.iter().filter(|ok| !**ok).count(), 1);
        }
    }
}

/// FAULTS row 35.
#[test]
fn a_worker_that_dies_is_reported_with_its_cause() {
    let cases: [(Fault, &[&str]); 4] = [
        (Fault::Sigkill, &["SIGKILL"]),
        (Fault::Sigsegv, &["SIGSEGV", "segmentation fault"]),
        (Fault::Exit, &["exited with code 7"]),
        (Fault::MemoryLimit, &["SIGABRT", "memory limit", "1073741824 bytes"]),
    ];
    for (fault, expected) in cases {
        let loader = faulty(fault, 2, PATIENCE);
        for _ in 0..2 {
            // The second time with new workers.
            let (seen, error) = until_error(&loader);
            assert!(seen.len() <= 16 && seen.iter().copied().eq(0..seen.len() as i64), "{seen:?}");
            let Error::Child { who, message } = &error else { panic!("{fault:?}: {error}") };
            assert!(who.starts_with("loader worker "), "{who}");
            for part in expected.iter().chain(&["index 17"]) {
                assert!(message.contains(part), "{fault:?}: {message}");
            }
        }
    }
}

/// FAULTS row 36.
#[test]
fn a_worker_that_hangs_is_named_with_its_index_when_time_is_up() {
    for (fault, state) in [(Fault::Hang, "sleeping"), (Fault::Stop, "stopped")] {
        let loader = faulty(fault, 2, Duration::from_secs(4));
        let (seen, error) = until_error(&loader);
        assert_eq!(seen, (0..16).collect::<Vec<i64>>());
        let Error::Timeout { seconds, message } = &error else { panic!("{error}") };
        assert!(*seconds >= 4.0, "{seconds}");
        let blamed = message.split(';').next().unwrap();
        for part in ["loader worker ", "index 17 of the awaited batch", state] {
            assert!(blamed.contains(part), "{message}");
        }
    }
}

/// Joins a memory cgroup, as a training process in a container does, and tells what its loader
/// says about a worker that takes more memory than the group may have.
fn loader_in_group(procs: PathBuf, test: Channel<String, ()>) -> Result<()> {
    fs::write(procs, std::process::id().to_string()).unwrap();
    let loader = DataLoader::builder(Glutton).workers(1).timeout(PATIENCE).build()?;
    let error = loader.iter().find_map(Result::err).unwrap();
    test.send(&error.to_string())
}

/// FAULTS row 35.
#[test]
fn a_worker_that_the_kernel_kills_for_memory_is_reported_so() {
    let Some(group) = MemoryGroup::create(64 << 20) else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let procs = group.path.join("cgroup.procs");
    let (parent, channel) = Process::builder().spawn_connected(loader_in_group, procs).unwrap();
    let message = channel.recv_timeout(PATIENCE).unwrap();
    parent.join().unwrap();
    for part in ["loader worker 0", "SIGKILL", "index 0", "the memory limit was reached"] {
        assert!(message.contains(part), "{message}");
    }
}

/// Takes 512 MiB.
#[derive(Serialize, Deserialize)]
struct Glutton;

impl Dataset for Glutton {
    type Sample = i64;
    fn len(&self) -> usize {
        1
    }
    fn get(&self, _index: usize) -> Result<i64> {
        let much = vec![1u8; 512 << 20];
        Ok(much.iter().map(|&b| i64::from(b)).sum())
    }
}

struct MemoryGroup {
    path: PathBuf,
}

impl MemoryGroup {
    fn create(limit: usize) -> Option<Self> {
        for (root, file) in
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
        {
            let path = PathBuf::from(root).join(format!("torchrs-test-{}", std::process::id()));
            if fs::create_dir(&path).is_ok() {
                let group = MemoryGroup { path };
                // Where the folder is no cgroup hierarchy, the file would be an ordinary new one.
                let limit_file = group.path.join(file);
                if limit_file.exists() && fs::write(limit_file, limit.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        None
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

// ---- row 39: the parent is killed

/// A process that has a loader whose workers wait on a full ring (nobody takes batches), or are in
/// the middle of a sample.
fn parent_of_workers(fault: Option<Fault>, test: Channel<(), ()>) -> Result<()> {
    match fault {
        None => {
            let loader = DataLoader::builder(Plain { len: 1000 }).workers(2).build()?;
            let mut batches = loader.iter();
            batches.next().unwrap()?;
            test.send(&())?;
            test.recv()
        }
        Some(fault) => {
            let folder = tempfile::tempdir().unwrap();
            let note = folder.path().join("pid");
            let loader = DataLoader::builder(Faulty { fault, note: Some(note.clone()) });
            let loader = loader.batch_size(1).workers(2).build()?;
            let mut batches = loader.iter();
            (0..17).try_for_each(|_| batches.next().unwrap().map(drop))?;
            while !note.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            test.send(&())?;
            test.recv()
        }
    }
}

/// The children of a process.
fn children_of(parent: i32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name in parentheses: state, parent.
        let ppid = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        ppid == Some(&parent.to_string())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

fn pidfd(pid: i32) -> Option<OwnedFd> {
    // SAFETY: plain system call; a descriptor that it returns is new and ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// FAULTS row 39.
#[test]
fn workers_are_gone_when_their_parent_is_killed() {
    for fault in [None, Some(Fault::HangAfterNote)] {
        let (parent, channel) =
            Process::builder().spawn_connected(parent_of_workers, fault).unwrap();
        channel.recv_timeout(PATIENCE).unwrap();
        let workers: Vec<OwnedFd> =
            children_of(parent.pid()).into_iter().filter_map(pidfd).collect();
        assert_eq!(workers.len(), 2, "both are alive");
        parent.kill().unwrap();
        let killed = Instant::now();
        parent.wait().unwrap();
        for worker in &workers {
            let mut fds = [PollFd::new(worker.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(30_000).unwrap();
            assert_eq!(poll(&mut fds, timeout), Ok(1), "worker {} lives", worker.as_raw_fd());
        }
        let gone = killed.elapsed();
        eprintln!("the workers were gone after {gone:?}");
        assert!(gone < Duration::from_secs(1), "{gone:?}");
    }
}

#[test]
fn dropping_a_loader_ends_its_workers_even_if_they_hang() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("pid");
    let loader =
        DataLoader::builder(Faulty { fault: Fault::HangAfterNote, note: Some(note.clone()) });
    let loader = loader.batch_size(4).workers(1).timeout(Duration::from_secs(300)).build().unwrap();
    let mut batches = loader.iter();
    for _ in 0..4 {
        batches.next().unwrap().unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while !note.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = fs::read_to_string(&note).unwrap().parse().unwrap();
    drop(batches);
    drop(loader);
    assert!(pidfd(pid).is_none(), "worker {pid} outlived its loader");
}

// ---- a dataset that cannot be sent

/// Cannot be deserialised.
#[derive(Serialize)]
struct OneWay;

impl<'de> Deserialize<'de> for OneWay {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("the archive is not mounted here")
    }
}

impl Dataset for OneWay {
    type Sample = i64;
    fn len(&self) -> usize {
        1
    }
    fn get(&self, index: usize) -> Result<i64> {
        Ok(index as i64)
    }
}

#[test]
fn a_worker_that_cannot_start_is_reported_with_its_reason() {
    let loader = DataLoader::builder(OneWay).workers(1).timeout(PATIENCE).build().unwrap();
    let error = loader.iter().next().unwrap().unwrap_err();
    let Error::Child { who, message } = &error else { panic!("{error}") };
    assert!(who.starts_with("loader worker 0"), "{who}");
    assert!(message.contains("the archive is not mounted here"), "{message}");
    assert!(message.contains("exited with code 101"), "{message}");
}

// ---- row 37: /dev/shm of nearly no size

/// 20 MiB a batch of 4.
#[derive(Serialize, Deserialize)]
struct Large;

impl Dataset for Large {
    type Sample = Tensor;
    fn len(&self) -> usize {
        16
    }
    fn get(&self, index: usize) -> Result<Tensor> {
        Ok(Tensor::full([5 << 18], index as f64, Dtype::F32))
    }
}

/// In a process of its own: gives itself a `/dev/shm` of one page, full, and loads 80 MiB. Tells why
/// that cannot be tried here, or what is in `/dev/shm` afterwards.
fn load_without_shm(_: (), test: Channel<std::result::Result<usize, String>, ()>) -> Result<()> {
    let tmpfs = c"tmpfs".as_ptr();
    let target = c"/dev/shm".as_ptr();
    // SAFETY: plain system calls with valid strings, on this process's own mount namespace.
    let mounted = unsafe {
        let own = libc::unshare(libc::CLONE_NEWNS) == 0
            || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0;
        let (private, options) =
            (libc::MS_REC | libc::MS_PRIVATE, CString::new("size=4k").unwrap());
        own && libc::mount(tmpfs, c"/".as_ptr(), tmpfs, private, std::ptr::null()) == 0
            && libc::mount(tmpfs, target, tmpfs, 0, options.as_ptr().cast()) == 0
    };
    if !mounted {
        return test.send(&Err(io::Error::last_os_error().to_string()));
    }
    fs::write("/dev/shm/full", [0; 4096]).unwrap();
    assert!(fs::write("/dev/shm/more", [0; 4096]).is_err(), "one page is all there is");
    fs::remove_file("/dev/shm/more").unwrap();
    let loader = DataLoader::builder(Large).batch_size(4).workers(2).timeout(PATIENCE).build()?;
    let batches: Vec<Tensor> = loader.iter().collect::<Result<_>>()?;
    for (k, batch) in batches.iter().enumerate() {
        let values = batch.to_vec::<f32>();
        assert_eq!((values[0], values[values.len() - 1]), (4.0 * k as f32, 4.0 * k as f32 + 3.0));
    }
    test.send(&Ok(fs::read_dir("/dev/shm").unwrap().count()))
}

#[test]
fn the_size_of_dev_shm_does_not_matter() {
    let (child, channel) = Process::builder().spawn_connected(load_without_shm, ()).unwrap();
    match channel.recv_timeout(PATIENCE) {
        Ok(Ok(files)) => assert_eq!(files, 1, "nothing but what was there"),
        Ok(Err(reason)) => eprintln!("skipped: no mount namespace here: {reason}"),
        Err(error) => panic!("{error}: {:?}", child.join()),
    }
    child.join().unwrap();
}
