//! Child processes: how they start, fail, are reported, and go away. The children of these tests
//! re-execute this test binary, whose `main` belongs to the test harness: the hook that runs before
//! `main` takes over.

use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, raise};
use torchrs::multiprocessing::report::Kind;
use torchrs::multiprocessing::{
    Channel, ExitStatus, Process, Receiver, Sender, channel, spawn, start_processes,
};
use torchrs::{Error, Result};

/// Far longer than anything here takes; a wait that reaches it is a bug.
const LONG: Duration = Duration::from_secs(30);

/// A pidfd for a process that is not our child.
fn open_process(pid: i32) -> OwnedFd {
    // SAFETY: plain system call; the descriptor it returns is new.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        assert!(fd >= 0, "process {pid} is gone already");
        OwnedFd::from_raw_fd(fd as i32)
    }
}

/// Whether the process ends within `timeout`.
fn ends(process: &OwnedFd, timeout: Duration) -> bool {
    let timeout = PollTimeout::try_from(timeout).unwrap();
    poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout).unwrap() == 1
}

/// The message of a failure, which has to be an [`Error::Child`].
fn child_error(result: Result<()>) -> String {
    match result.unwrap_err() {
        error @ Error::Child { .. } => error.to_string(),
        other => panic!("not an Error::Child: {other:?}"),
    }
}

// How children fail.

fn succeed(_: ()) {}

#[inline(never)]
fn fail_deep_inside(message: String) {
    panic!("{message}");
}

fn panics(message: String) {
    fail_deep_inside(message);
}

#[inline(never)]
fn misuses_a_tensor(_: ()) {
    torchrs::error::throw(Error::shape("add", "shapes [2] and [3] do not broadcast"));
}

fn returns_an_error(name: String) -> std::result::Result<(), std::io::Error> {
    Err(std::io::Error::other(format!("no dataset {name}")))
}

fn sees_a_peer_die(_: ()) -> Result<()> {
    Err(Error::PeerDied { rank: 3, pid: 77, message: "in all_reduce".into() })
}

fn exits(code: i32) {
    exit(code);
}

fn raises(signal: i32) {
    raise(Signal::try_from(signal).unwrap()).unwrap();
}

fn panics_on_a_thread(_: ()) -> Result<()> {
    let thread = thread::Builder::new().name("comm".into()).spawn(|| panic!("ring broke"));
    thread.unwrap().join().map_err(|_| Error::Other("the comm thread panicked".into()))
}

fn catches_a_panic_and_goes_on(_: ()) {
    let caught = torchrs::catch(|| panic!("harmless"));
    assert!(caught.unwrap_err().to_string().contains("harmless"));
    exit(4);
}

#[test]
fn a_child_that_succeeds_is_no_error() {
    let child = Process::spawn(succeed, ()).unwrap();
    assert_eq!(child.wait_timeout(LONG).unwrap(), ExitStatus::Exited(0));
    child.join().unwrap();
}

#[test]
fn a_panic_in_a_child_comes_back_with_message_place_and_backtrace() {
    let child = Process::builder().name("loader 1").spawn(panics, "index 17".to_owned()).unwrap();
    let message = child_error(child.join_timeout(LONG));
    assert!(message.starts_with(&format!("loader 1 (pid {})", child.pid())), "{message}");
    for part in ["code 101", concat!("panicked at ", file!()), "index 17"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let record = child.record().unwrap();
    assert_eq!((record.kind, record.thread.as_str()), (Kind::Panic, "main"));
    assert_eq!(record.pid as i32, child.pid());
    let backtrace = record.backtrace();
    assert!(backtrace.lines().next().unwrap().contains("fail_deep_inside"), "{backtrace}");
    assert!(!backtrace.contains("before_main"), "{backtrace}");
}

#[test]
fn misuse_of_a_tensor_in_a_child_keeps_its_message() {
    let child = Process::spawn(misuses_a_tensor, ()).unwrap();
    let message = child_error(child.join_timeout(LONG));
    assert!(message.contains("add: shapes [2] and [3] do not broadcast"), "{message}");
    let backtrace = child.record().unwrap().backtrace().to_owned();
    assert!(backtrace.lines().next().unwrap().contains("misuses_a_tensor"), "{backtrace}");
}

#[test]
fn an_error_that_a_child_returns_comes_back() {
    let child = Process::spawn(returns_an_error, "digits".to_owned()).unwrap();
    let message = child_error(child.join_timeout(LONG));
    assert!(message.contains("exited with code 1: no dataset digits"), "{message}");
    assert_eq!(child.record().unwrap().kind, Kind::Error);
}

#[test]
fn a_consequence_of_another_ranks_death_is_marked_as_one() {
    let child = Process::spawn(sees_a_peer_die, ()).unwrap();
    child.join_timeout(LONG).unwrap_err();
    let record = child.record().unwrap();
    assert_eq!((record.kind, record.caused_by_rank), (Kind::PeerDied, Some(3)));
}

#[test]
fn exit_codes_and_signals_are_named() {
    let child = Process::spawn(exits, 3).unwrap();
    assert!(child_error(child.join_timeout(LONG)).ends_with("exited with code 3"));
    for (signal, name) in [(Signal::SIGSEGV, "SIGSEGV"), (Signal::SIGKILL, "SIGKILL")] {
        let child = Process::spawn(raises, signal as i32).unwrap();
        let message = child_error(child.join_timeout(LONG));
        assert!(message.contains(&format!("killed by {name}")), "{message}");
        assert_eq!(child.wait().unwrap().shell_code(), 128 + signal as i32);
    }
}

#[test]
fn the_first_failure_of_a_process_is_the_one_on_record() {
    let child = Process::spawn(panics_on_a_thread, ()).unwrap();
    child.join_timeout(LONG).unwrap_err();
    let record = child.record().unwrap();
    assert!(record.text().contains("ring broke"), "{}", record.text());
    assert_eq!(record.thread, "comm");
}

#[test]
fn a_caught_panic_is_not_on_record() {
    let child = Process::spawn(catches_a_panic_and_goes_on, ()).unwrap();
    assert_eq!(child.wait_timeout(LONG).unwrap(), ExitStatus::Exited(4));
    assert_eq!(child.record(), None);
}

// Living and dying together.

fn wait_for_ever(never: Receiver<u8>) {
    let _ = never.recv();
}

/// Starts a child of its own that blocks on a channel, reports its pid, and blocks too.
fn has_a_child(_: (), parent: Channel<i32, ()>) -> Result<()> {
    let (sender, receiver) = channel::<u8>()?;
    let child = Process::spawn(wait_for_ever, receiver)?;
    parent.send(&child.pid())?;
    let _ = parent.recv();
    drop(sender);
    Ok(())
}

/// As [`has_a_child`], one level up.
fn has_a_grandchild(_: (), parent: Channel<(i32, i32), ()>) -> Result<()> {
    let (child, channel) = Process::builder().spawn_connected(has_a_child, ())?;
    parent.send(&(child.pid(), channel.recv()?))?;
    let _ = parent.recv();
    Ok(())
}

#[test]
fn children_die_with_a_parent_that_is_killed() {
    let (top, channel) = Process::builder().spawn_connected(has_a_grandchild, ()).unwrap();
    let (middle, bottom) = channel.recv_timeout(LONG).unwrap();
    let (middle, bottom) = (open_process(middle), open_process(bottom));
    assert!(!ends(&bottom, Duration::ZERO));
    top.kill().unwrap();
    // Fault row 39 asks for one second; the machine may be busy.
    assert!(ends(&middle, Duration::from_secs(3)), "the child outlived its parent");
    assert!(ends(&bottom, Duration::from_secs(3)), "the grandchild outlived its parent");
}

#[test]
fn dropping_the_handle_kills_and_reaps() {
    let (sender, receiver) = channel::<u8>().unwrap();
    let child = Process::spawn(wait_for_ever, receiver).unwrap();
    let pid = child.pid();
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    drop(child);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "a zombie or an orphan is left");
    let error = sender.send(&1).unwrap_err();
    assert!(matches!(error, Error::Disconnected(_)), "{error}");
}

fn echo(_: (), parent: Channel<u32, u32>) -> Result<()> {
    while let Ok(number) = parent.recv() {
        parent.send(&(number + 1))?;
    }
    Ok(())
}

#[test]
fn a_child_survives_the_thread_that_started_it() {
    let starter = thread::spawn(|| Process::builder().spawn_connected(echo, ()).unwrap());
    let (child, channel) = starter.join().unwrap();
    for number in 0..3 {
        channel.send(&number).unwrap();
        assert_eq!(channel.recv_timeout(LONG).unwrap(), number + 1);
    }
    drop(channel);
    child.join_timeout(LONG).unwrap();
}

#[test]
fn waiting_for_a_running_child_ends_at_the_deadline() {
    let (_sender, receiver) = channel::<u8>().unwrap();
    let child = Process::builder().name("sleeper").spawn(wait_for_ever, receiver).unwrap();
    let error = child.wait_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(error.to_string().contains("sleeper"), "{error}");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    child.terminate().unwrap();
    assert_eq!(child.wait_timeout(LONG).unwrap().signal(), Some(libc::SIGTERM));
    // A signal to a process that has ended is no error.
    child.kill().unwrap();
}

fn report_variables(names: Vec<String>, parent: Channel<Vec<Option<String>>, ()>) -> Result<()> {
    parent.send(&names.iter().map(|name| std::env::var(name).ok()).collect())
}

#[test]
fn a_childs_environment_is_the_parents_with_changes() {
    let names = ["PATH", "TORCHRS_TEST_X", "TORCHRS_CHILD"].map(str::to_owned).to_vec();
    let builder = Process::builder().env("TORCHRS_TEST_X", "1").env("TORCHRS_TEST_X", "2");
    let (child, channel) = builder.spawn_connected(report_variables, names).unwrap();
    let values = channel.recv_timeout(LONG).unwrap();
    assert_eq!(values, [std::env::var("PATH").ok(), Some("2".into()), None]);
    child.join_timeout(LONG).unwrap();
}

fn report_store(_: (), parent: Channel<(bool, bool), ()>) -> Result<()> {
    let first = torchrs::multiprocessing::inherited_store_fd();
    parent.send(&(first.is_some(), torchrs::multiprocessing::inherited_store_fd().is_some()))
}

#[test]
fn the_stores_socket_is_inherited_and_taken_once() {
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let builder = Process::builder().inherit("TORCHRS_STORE_FD", socket.into());
    let (_child, channel) = builder.spawn_connected(report_store, ()).unwrap();
    assert_eq!(channel.recv_timeout(LONG).unwrap(), (true, false));
    // Not asked for, not there, whatever the variable said further up.
    let (_child, channel) =
        Process::builder().env("TORCHRS_STORE_FD", "1").spawn_connected(report_store, ()).unwrap();
    assert_eq!(channel.recv_timeout(LONG).unwrap(), (false, false));
}

// Several ranks.

fn send_square(rank: usize, results: Sender<(usize, usize)>) -> Result<()> {
    results.send(&(rank, rank * rank))
}

#[test]
fn spawn_runs_every_rank() {
    let (sender, receiver) = channel().unwrap();
    spawn(send_square, sender, 3).unwrap();
    let mut results: Vec<_> = (0..3).map(|_| receiver.recv().unwrap()).collect();
    results.sort();
    assert_eq!(results, [(0, 0), (1, 1), (2, 4)]);
    // The parent's own sender was dropped with the arguments, the children's with the children.
    assert!(matches!(receiver.recv().unwrap_err(), Error::Disconnected(_)));
}

/// Rank 1 fails once the others block; they would for ever.
fn one_of_three_fails(rank: usize, (ready, never): (Sender<()>, Receiver<()>)) -> Result<()> {
    ready.send(&())?;
    if rank == 1 {
        panic!("out of luck");
    }
    never.recv()
}

#[test]
fn the_first_failure_ends_the_others_and_is_reported() {
    let (ready, started) = channel().unwrap();
    let (_keep, never) = channel().unwrap();
    let context = start_processes(one_of_three_fails, (ready, never), 3).unwrap();
    let others: Vec<_> = [0, 2].map(|rank| open_process(context.pids()[rank])).into();
    let message = child_error(context.join(Some(LONG)).map(drop));
    assert!(message.starts_with("rank 1 (pid "), "{message}");
    assert!(message.contains("out of luck"), "{message}");
    assert!(others.iter().all(|process| ends(process, Duration::ZERO)));
    assert!(started.recv().is_ok());
}

fn ignores_sigterm(_rank: usize, (ready, never): (Sender<()>, Receiver<()>)) -> Result<()> {
    // SAFETY: no handler function is installed.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    ready.send(&())?;
    never.recv()
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_after_the_grace_time() {
    let (ready, started) = channel().unwrap();
    let (_keep, never) = channel().unwrap();
    let context = start_processes(ignores_sigterm, (ready, never), 1).unwrap();
    started.recv_timeout(LONG).unwrap();
    assert!(!context.join(Some(Duration::from_millis(10))).unwrap(), "it still runs");
    let start = Instant::now();
    context.stop(Duration::from_millis(100)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(context.processes()[0].wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn no_processes_is_an_argument_error() {
    let error = start_processes(send_square, channel().unwrap().0, 0).unwrap_err();
    assert!(matches!(error, Error::Argument { .. }), "{error}");
}

// Descriptors.

/// The targets of this process's open descriptors.
fn open_descriptors() -> Vec<String> {
    let mut all: Vec<_> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .filter(|link| !link.starts_with("/proc/"))
        .collect();
    all.sort();
    all
}

fn send_back(value: Vec<u8>, parent: Channel<Vec<u8>, ()>) -> Result<()> {
    parent.send(&value)
}

/// Runs in a child, where no other test opens descriptors meanwhile.
fn leaks_nothing(_: ()) -> Result<()> {
    let round = || -> Result<()> {
        let (child, parent) = Process::builder().spawn_connected(send_back, vec![7; 300_000])?;
        assert_eq!(parent.recv()?, vec![7; 300_000]);
        child.join()?;
        let (sender, receiver) = channel::<Vec<Sender<u8>>>()?;
        sender.send(&vec![channel()?.0; 20])?;
        assert_eq!(receiver.recv()?.len(), 20);
        assert!(Process::spawn(panics, "on purpose".to_owned())?.join().is_err());
        Ok(())
    };
    round()?;
    let before = open_descriptors();
    for _ in 0..5 {
        round()?;
    }
    assert_eq!(open_descriptors(), before);
    Ok(())
}

#[test]
fn no_descriptor_leaks() {
    Process::spawn(leaks_nothing, ()).unwrap().join_timeout(LONG).unwrap();
}

fn list_descriptors(_: (), parent: Channel<Vec<String>, ()>) -> Result<()> {
    parent.send(&open_descriptors())
}

#[test]
fn a_child_gets_no_descriptor_that_is_not_its_own() {
    let (_a, _b) = channel::<u8>().unwrap();
    let (_child, channel) = Process::builder().spawn_connected(list_descriptors, ()).unwrap();
    let listed = channel.recv_timeout(LONG).unwrap();
    let sockets = listed.iter().filter(|link| link.starts_with("socket:")).count();
    let records = listed.iter().filter(|link| link.starts_with("/memfd:torchrs")).count();
    assert_eq!((sockets, records), (1, 1), "{listed:?}");
}

/// Fault row 38: with 64 descriptors things work, and at the limit the error names it.
fn few_descriptors(_: ()) -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, 64, 64).unwrap();
    let mut children = Vec::new();
    let error = loop {
        match Process::builder().spawn_connected(echo, ()) {
            Ok(pair) => children.push(pair),
            Err(error) => break error.to_string(),
        }
        assert!(children.len() < 64, "the limit has no effect");
    };
    assert!(error.contains("64 open files") && error.contains("ulimit -n"), "{error}");
    assert!(children.len() >= 10, "only {} children: {error}", children.len());
    for (child, channel) in children {
        channel.send(&1)?;
        assert_eq!(channel.recv()?, 2);
        drop(channel);
        child.join()?;
    }
    // A message whose handles do not fit is an error that names the limit, and leaks none of them.
    let before = open_descriptors().len();
    let (sender, receiver) = channel::<Vec<Sender<u8>>>()?;
    let one = channel::<u8>()?.0;
    sender.send(&vec![one; 100])?;
    let error = receiver.recv().unwrap_err().to_string();
    assert!(error.contains("64 open files"), "{error}");
    drop((sender, receiver));
    assert_eq!(open_descriptors().len(), before);
    Ok(())
}

#[test]
fn a_small_limit_of_open_files_works_or_is_named() {
    Process::spawn(few_descriptors, ()).unwrap().join_timeout(LONG).unwrap();
}
