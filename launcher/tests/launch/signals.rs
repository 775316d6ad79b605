//! Signals to the launcher: forwarded, obeyed in time, and enforced after the grace time.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::job::{run, sh, start};

/// Waits in a way that a shell's traps can interrupt at any moment.
const WAIT: &str = "sleep 1000 & wait";

#[test]
fn row_07_a_checkpoint_of_three_seconds_completes_after_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved").display().to_string();
    let script = format!(
        "trap 'echo saving; sleep 3; echo done > {saved}.$RANK; exit 0' TERM; echo ready; {WAIT}"
    );
    let job = start(sh("--nproc 2", &script));
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGTERM);
    let done = job.finish();
    assert_eq!(done.code, 143);
    done.says("stopped by SIGTERM");
    assert!(!done.stderr.contains("job failed"), "{}", done.stderr);
    for rank in 0..2 {
        assert_eq!(std::fs::read_to_string(format!("{saved}.{rank}")).unwrap(), "done\n");
    }
}

#[test]
fn row_07_a_program_behind_a_script_gets_its_grace_time_too() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved").display().to_string();
    // The outer shell dies of the signal at once; the inner one is the program. What that one
    // uses to save its work is not disturbed, and what it leaves behind ends soon.
    let started = std::time::Instant::now();
    let inner = format!("trap 'sleep 1; echo done > {saved}; exit 0' TERM; echo ready; {WAIT}");
    let job = start(sh("", &format!("sh -c \"{inner}\"; echo not reached")));
    job.stdout.wait_for("ready", 1);
    job.send(Signal::SIGTERM);
    assert_eq!(job.finish().code, 143);
    assert_eq!(std::fs::read_to_string(saved).unwrap(), "done\n");
    assert!(
        started.elapsed() >= Duration::from_secs(1) && started.elapsed() < Duration::from_secs(20)
    );
}

#[test]
fn each_signal_that_stops_gives_its_own_exit_code() {
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGTERM, 143),
    ] {
        let script = format!(
            "trap 'echo got; exit 4' {}; echo ready; {WAIT}",
            signal.as_str().trim_start_matches("SIG")
        );
        let job = start(sh("--nproc 2", &script));
        job.stdout.wait_for("ready", 2);
        job.send(signal);
        let done = job.finish();
        assert_eq!(done.code, code);
        assert_eq!(done.lines().iter().filter(|line| line.ends_with("got")).count(), 2);
    }
}

const DEAF: &str = "trap '' TERM; echo ready; while :; do sleep 0.1; done";

#[test]
fn row_08_a_deaf_worker_is_killed_after_the_grace_time_that_follows_a_signal() {
    let job = start(sh("--nproc 2 --grace 2", DEAF));
    job.stdout.wait_for("ready", 2);
    let sent = Instant::now();
    job.send(Signal::SIGTERM);
    let done = job.finish();
    let took = sent.elapsed();
    assert_eq!(done.code, 143);
    done.says("were killed: ranks 0, 1");
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn row_08_a_deaf_worker_is_killed_after_the_grace_time_that_follows_a_failure() {
    let started = Instant::now();
    let done = run(sh("--nproc 2 --grace 2", &format!("[ $RANK = 1 ] && exit 3; {DEAF}")));
    let took = started.elapsed();
    assert_eq!(done.code, 3);
    done.says("rank 0 (pid ").says("killed by the launcher");
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_second_signal_kills_at_once() {
    let job = start(sh("--nproc 2 --grace 1000", DEAF));
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(500));
    job.send(Signal::SIGINT);
    assert_eq!(job.finish().code, 143);
}

#[test]
fn the_same_signal_twice_in_an_instant_is_one_wish() {
    // `timeout` and terminals do this.
    let script = format!("trap 'sleep 1; echo saved; exit 0' TERM; echo ready; {WAIT}");
    let job = start(sh("--nproc 2", &script));
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(20));
    job.send(Signal::SIGTERM);
    let done = job.finish();
    assert_eq!(done.code, 143);
    assert_eq!(done.lines().iter().filter(|line| line.ends_with("saved")).count(), 2);
}

#[test]
fn a_stopped_worker_is_woken_to_hear_that_it_should_end() {
    let job = start(sh("--nproc 2 --grace 50", "echo ready; kill -STOP $$; echo awake"));
    job.stdout.wait_for("ready", 2);
    std::thread::sleep(Duration::from_millis(100));
    job.send(Signal::SIGTERM);
    let done = job.finish();
    assert_eq!(done.code, 143);
    assert!(!done.stderr.contains("were killed"), "{}", done.stderr);
}

#[test]
fn row_09_user_signals_reach_who_is_prepared_and_harm_nobody() {
    // Rank 0 has a handler; rank 1 and the children of both have none and would die of it.
    let script = "
        (while :; do sleep 0.01; done) & child=$!
        if [ $RANK = 0 ]; then trap 'echo got; got=1' USR1; fi
        echo ready
        for i in $(seq 600); do
            sleep 0.1
            [ -n \"$got\" ] && touch $FLAG
            [ -e $FLAG ] && kill -0 $child && exit 0
        done
        exit 1";
    let folder = tempfile::tempdir().unwrap();
    let mut command = sh("--nproc 2", script);
    command.env("FLAG", folder.path().join("flag"));
    let job = start(command);
    job.stdout.wait_for("ready", 2);
    for _ in 0..20 {
        job.send(Signal::SIGUSR1);
        job.send(Signal::SIGUSR2);
    }
    let done = job.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.lines().contains(&"[rank0]: got".to_owned()));
}

#[test]
fn row_09_a_user_signal_finds_the_program_behind_a_script() {
    let inner = format!("trap 'echo got; exit 7' USR2; echo ready; {WAIT}");
    let job = start(sh("--nproc 2", &format!("sh -c \"{inner}\"; [ $? = 7 ]")));
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGUSR2);
    let done = job.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.lines().iter().filter(|line| line.ends_with("got")).count(), 2);
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", crate::job::LAUNCHER]);
    command.args(["--nproc", "2", "--no-build", "sh", "-c", "echo ready; sleep 1; echo end"]);
    let job = start(command);
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGHUP);
    let done = job.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.lines().len(), 4);
}
