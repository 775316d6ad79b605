//! What a process inherits from whoever starts it and nobody means for it: signals that are ignored or
//! blocked, closed or non-blocking standard streams, children of the shell that became the launcher, a
//! working folder that is gone, variables of srun.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal, sigprocmask};
use nix::unistd::Pid;

use crate::job::{LAUNCHER, program, run, runs, sh, start_as_it_is};
use crate::worker::rust_worker;

const SIGNALS: [Signal; 6] = [
    Signal::SIGCHLD,
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGPIPE,
    Signal::SIGUSR1,
];

/// How a signal may have been left.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Left {
    Ignored,
    Blocked,
}

/// `command`, started with `what` left so and all other signals heeded.
fn inheriting(mut command: Command, what: Signal, how: Left) -> Command {
    let leave = move || {
        // SAFETY: no handler is a function of this program.
        unsafe {
            for other in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
                signal(other, SigHandler::SigDfl)?;
            }
            match how {
                Left::Ignored => signal(what, SigHandler::SigIgn).map(drop)?,
                Left::Blocked => {
                    let mut set = SigSet::empty();
                    set.add(what);
                    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
                }
            }
        }
        Ok(())
    };
    // SAFETY: nothing but system calls between fork and exec.
    unsafe { command.pre_exec(leave) };
    command
}

fn all() -> impl Iterator<Item = (Signal, Left)> {
    SIGNALS.into_iter().flat_map(|what| [Left::Ignored, Left::Blocked].map(|how| (what, how)))
}

#[test]
fn a_job_ends_as_it_does_whatever_signals_were_inherited() {
    let script = "exec cat /proc/self/status";
    for (what, how) in all() {
        let done = start_as_it_is(inheriting(sh("", script), what, how)).finish();
        assert_eq!(done.code, 0, "{what} {how:?}: {}", done.stderr);
        let mask = |name: &str| {
            let lines = done.lines();
            let value = lines.iter().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(value.trim(), 16).unwrap()
        };
        assert_eq!(mask("SigBlk:"), 0, "{what} {how:?}");
        // By convention: `nohup`, and a script's `&`.
        let meant = how == Left::Ignored && matches!(what, Signal::SIGHUP | Signal::SIGINT);
        let expected = if meant { 1 << (what as u64 - 1) } else { 0 };
        // The C library leaves its two internal signals ignored in what it spawns.
        assert_eq!(mask("SigIgn:") & !(0b11 << 31), expected, "{what} {how:?}");
        let job = inheriting(sh("--nproc 2", "exit $((3 * RANK))"), what, how);
        let done = start_as_it_is(job).finish();
        assert_eq!(done.code, 3, "{what} {how:?}: {}", done.stderr);
    }
}

#[test]
fn a_launcher_can_be_stopped_whatever_signals_were_inherited() {
    let jobs = all().map(|(what, how)| {
        let command = inheriting(sh("--nproc 2", "echo ready; exec sleep 1000"), what, how);
        (what, how, start_as_it_is(command))
    });
    for (what, how, job) in jobs.collect::<Vec<_>>() {
        job.stdout.wait_for("ready", 2);
        job.send(Signal::SIGTERM);
        let done = job.finish();
        assert_eq!(done.code, 143, "{what} {how:?}: {}", done.stderr);
    }
    // One that is blocked is nobody's wish.
    let command = sh("--nproc 2", "echo ready; exec sleep 1000");
    let job = start_as_it_is(inheriting(command, Signal::SIGHUP, Left::Blocked));
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGHUP);
    assert_eq!(job.finish().code, 129);
}

#[test]
fn streams_that_were_closed_are_nobodys_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" <&- >&- 2>&-", LAUNCHER, "--no-build"]);
    let logs = folder.path().to_str().unwrap();
    command.args(["--nproc", "2", "--run-id", "j", "--log-dir", logs]);
    command.args(["sh", "-c", "cat; echo out; echo err >&2; exit $((3 * RANK))"]);
    let done = run(command);
    assert_eq!((done.code, done.stderr.as_str()), (3, ""));
    for rank in 0..2 {
        let log = |name: &str| {
            std::fs::read_to_string(folder.path().join(format!("j/attempt_0/{rank}/{name}.log")))
        };
        assert_eq!(
            (log("stdout").unwrap(), log("stderr").unwrap()),
            ("out\n".into(), "err\n".into())
        );
    }
}

/// `torchrs-launch` with a program that is not there, which is a message of the launcher's own.
fn complains(stderr: impl Into<Stdio>) -> Command {
    let mut command = program("", &["no-such-program-anywhere"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command
}

#[test]
fn a_message_that_nobody_reads_is_no_failure_of_the_launchers() {
    let closed: OwnedFd = std::io::pipe().unwrap().1.into();
    assert_eq!(complains(closed).status().unwrap().code(), Some(127));
}

#[test]
fn a_message_waits_for_room_where_somebody_made_the_stream_non_blocking() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    let mut launcher = complains(writer).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(127));
    assert!(text.contains("no program `no-such-program-anywhere`"));
}

#[test]
fn a_working_folder_that_is_gone_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let gone = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\"";
    command.current_dir(folder.path()).args(["-c", gone, LAUNCHER]);
    command.args(["--nproc", "2", "sh", "-c", "exit $((3 * RANK))"]);
    let done = run(command);
    assert_eq!(done.code, 3, "{}", done.stderr);
}

#[test]
fn jobs_of_the_shell_that_became_the_launcher_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // Its own child and a grandchild, as `> >(tee log)` leaves them.
    let script = "(env -u LAUNCH_TEST_MARK sleep 1000 & echo $! > $PID; \
                   exec env -u LAUNCH_TEST_MARK sleep 1000) >/dev/null 2>&1 &
        echo $! > $PID.parent
        until [ -s $PID ]; do sleep 0.01; done
        exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, LAUNCHER, "--no-build", "--nproc", "2"]).env("PID", &pid);
    // What a worker leaves behind is the launcher's.
    command.args(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & exit $((3 * RANK))"]);
    let done = run(command);
    let read = |path: &std::path::Path| -> i32 {
        std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
    };
    let strangers = [read(&pid), read(&folder.path().join("pid.parent"))];
    let alive = strangers.map(runs);
    for stranger in strangers {
        let _ = kill(Pid::from_raw(stranger), Signal::SIGKILL);
    }
    assert_eq!((done.code, alive), (3, [true, true]), "{}", done.stderr);
    assert!(done.took < Duration::from_secs(20), "{:?}", done.took);
}

/// The launcher with the variables of a step of srun.
fn under_srun(options: &str, tasks: &str) -> Command {
    let mut command = sh(options, "echo started");
    let place = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", tasks)];
    command.envs(place);
    command
}

#[test]
fn one_of_several_launchers_that_srun_starts_is_refused() {
    let done = run(under_srun("--nproc 2", "2"));
    assert_eq!((done.code, done.stdout.len()), (2, 0));
    done.says("srun has started this launcher as task 0 of 2 (SLURM_PROCID=0, SLURM_NTASKS=2)");
    done.says("--standalone");
    assert_eq!(run(under_srun("--nproc 2", "1")).lines().len(), 2);
    assert_eq!(run(under_srun("--nproc 2 --standalone", "2")).lines().len(), 2);
    // The shell of an allocation, from which srun has started nothing.
    let mut shell = under_srun("--nproc 2", "2");
    shell.env_remove("SLURM_STEP_ID");
    assert_eq!(run(shell).lines().len(), 2);
}

#[test]
fn variables_that_do_not_count_are_named() {
    let mut command = sh("", "echo $WORLD_SIZE");
    command.env("WORLD_SIZE", "4").env("RANK", "1").env("TORCHRS_TIMEOUT", "9");
    let done = run(command);
    assert_eq!(done.lines(), ["1"]);
    done.says("RANK=1 WORLD_SIZE=4 of the environment are not used");
    done.says("TORCHRS_TIMEOUT is set, but nothing reads it; did you mean TORCHRS_TIMEOUT_S?");
    let mut nodes = sh("", "echo started");
    nodes.env("PET_NNODES", "2").env("PET_NPROC_PER_NODE", "2");
    let done = run(nodes);
    assert_eq!((done.code, done.stdout.len()), (2, 0));
    done.says("from the environment: PET_NNODES=2 PET_NPROC_PER_NODE=2").says("--rdzv-endpoint");
    let mut workers = sh("", "echo started");
    workers.env("PET_NPROC_PER_NODE", "2");
    assert_eq!(run(workers).lines().len(), 2);
}

#[test]
fn a_rank_that_ends_without_joining_is_not_waited_for() {
    let done = run(rust_worker("--nproc 3", "rank 1 does not join"));
    assert_eq!(done.code, 1, "{}", done.stderr);
    done.says("rank 1 has ended without joining the process group").says("succeeded: rank 1");
    assert!(done.took < Duration::from_secs(30), "{:?}", done.took);
    // One that fails is the root cause though its peers end first.
    let done = run(rust_worker("--nproc 3", "rank 1 fails before it joins"));
    assert_eq!(done.code, 9, "{}", done.stderr);
    done.says("the job failed: rank 1 exited with code 9");
}
