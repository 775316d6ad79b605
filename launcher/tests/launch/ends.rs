//! How a job ends when workers end: the exit code, who is blamed, what the report says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::job::{Done, run, sh, start};
use crate::worker::rust_worker;

#[test]
fn row_01_the_exit_code_is_the_workers() {
    let done =
        run(sh("--nproc 3", "[ $RANK = 1 ] && echo lost the cable >&2 && exit 3; sleep 1000"));
    assert_eq!(done.code, 3);
    done.says("the job failed: rank 1 exited with code 3").says("rank       1 (local rank 1)");
    done.says("its last lines:\n             lost the cable");
    done.says("rank 0 (pid ").says(") stopped by the launcher, ").says("rank 2 (pid ");
    assert_eq!(done.stderr.matches("the job failed").count(), 1);
    assert!(done.took < Duration::from_secs(20), "peers were waited for: {:?}", done.took);
}

#[test]
fn success_is_silent() {
    let done = run(sh("--nproc 3", "exit 0"));
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

#[test]
fn row_02_a_panic_is_reported_with_its_backtrace() {
    let mut command = rust_worker("--nproc 2", "panic on rank 1");
    command.env_remove("RUST_BACKTRACE");
    let done = run(command);
    assert_eq!(done.code, 101);
    done.says("the job failed: rank 1 exited with code 101");
    done.says("expected 12 classes, got 7").says("worker.rs:").says("deep_inside_the_model");
}

/// A shell command that leaves an error record.
fn record(kind: &str, message: &str, monotonic_ns: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    format!(
        r#"echo '{{"message": {{"message": "{message}", "extraInfo": {{"timestamp": "{now}",
        "py_callstack": ""}}}}, "kind": "{kind}", "monotonic_ns": {monotonic_ns}, "thread": "main",
        "rank": 0, "pid": 1, "caused_by_rank": null}}' > $TORCHELASTIC_ERROR_FILE"#
    )
}

#[test]
fn row_03_peers_of_a_killed_rank_are_consequences_though_they_end_first() {
    let peer = record("peer_died", "rank 2 (pid 7) died: in all_reduce 41 of 4 KiB", 5);
    let script = format!("if [ $RANK = 2 ]; then sleep 0.3; kill -KILL $$; fi; {peer}; exit 1");
    let done = run(sh("--nproc 4", &script));
    assert_eq!(done.code, 137);
    done.says("the job failed: rank 2 killed by SIGKILL");
    let waiting = ": rank 2 (pid 7) died: in all_reduce 41 of 4 KiB";
    assert_eq!(done.stderr.matches(waiting).count(), 3, "{}", done.stderr);
}

#[test]
fn a_rank_that_hangs_is_the_root_cause_that_all_its_peers_name() {
    // It has no record, or one of a moment later.
    for (own, code) in [("", 1), ("late", 1)] {
        let aborted = |reason| format!("process group aborted: by rank 3: {reason}");
        let peer = record("aborted", &aborted("kernel `gelu` hangs; rank 0 in all_reduce"), 5_000);
        let own = if own.is_empty() { own.into() } else { record("aborted", &aborted(own), 9_000) };
        let script = format!("if [ $RANK = 3 ]; then {own}\nexec sleep 1000; fi; {peer}; exit 1");
        let done = run(sh("--nproc 4", &script));
        assert_eq!(done.code, code);
        done.says("the job failed: rank 3 stopped by the launcher");
        done.says("blamed     by ranks 0 to 2: process group aborted: by rank 3: kernel `gelu`");
    }
    // Peers that do not agree: the earliest of them.
    let peer = record("aborted", "process group aborted: by rank '$(( (RANK + 1) % 3 ))': x", 5);
    let done = run(sh("--nproc 3", &format!("{peer}; sleep 0.$RANK; exit $((RANK + 4))")));
    assert!((4..7).contains(&done.code), "{}", done.stderr);
}

#[test]
fn a_report_of_many_ranks_is_short() {
    let done =
        run(sh("--nproc 60", "[ $RANK = 7 ] && exit 3; [ $RANK -lt 20 ] || exec sleep 1000"));
    assert_eq!(done.code, 3);
    done.says("succeeded: ranks 0 to 6, 8 to 19").says("failed or were stopped, too: ranks ");
    assert!(done.stderr.lines().count() < 50, "{}", done.stderr);
}

#[test]
fn row_04_a_segmentation_fault_is_named() {
    let done = run(sh("--nproc 2", "[ $RANK = 1 ] && kill -SEGV $$; sleep 1000"));
    assert_eq!(done.code, 139);
    done.says("the job failed: rank 1 killed by SIGSEGV");
}

#[test]
fn row_10_of_two_recorded_failures_the_earlier_is_the_root_cause() {
    for first in [0, 1] {
        // The earlier one takes longer to end.
        let (early, late) =
            (record("panic", "early", 1_000_000), record("error", "late", 2_000_000));
        let script =
            format!("if [ $RANK = {first} ]; then {early}; sleep 0.2; exit 5; fi; {late}; exit 6");
        let done = run(sh("--nproc 2", &script));
        assert_eq!(done.code, 5);
        done.says(&format!("the job failed: rank {first} exited with code 5"));
        done.says("message    early").says("exited with code 6, 1.0ms later: late");
    }
}

#[test]
fn row_10_of_two_deaths_the_earlier_is_the_root_cause() {
    for first in [0, 1] {
        let script = format!("[ $RANK = {first} ] && exit 5; sleep 0.1; exit 6");
        let done = run(sh("--nproc 2", &script));
        assert_eq!(done.code, 5);
        done.says(&format!("the job failed: rank {first} exited with code 5"));
    }
}

#[test]
fn a_garbled_error_record_is_shown_and_does_no_harm() {
    for garbage in ["not json", r#"{"message": {"#, r#"{"message": 7}"#] {
        let script = format!("echo '{garbage}' > $TORCHELASTIC_ERROR_FILE; exit 9");
        let done = run(sh("--nproc 2", &script));
        assert_eq!(done.code, 9);
        done.says(garbage);
    }
}

/// `fail` on rank 1 of the first attempt, else print the attempt.
fn fails_once(options: &str, fail: &str) -> Done {
    let script = format!(
        "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && {fail}
        [ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 1000
        echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"
    );
    run(sh(options, &script))
}

#[test]
fn row_11_a_failure_restarts_the_group() {
    for fail in ["exit 3", "kill -KILL $$"] {
        let done = fails_once("--nproc 2 --max-restarts 2", fail);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let mut lines = done.lines();
        lines.sort();
        assert_eq!(lines, ["[rank0]: attempt 1 of 2", "[rank1]: attempt 1 of 2"]);
        done.says("starting all workers again (1 of 2 restarts)");
        assert!(!done.stderr.contains("the job failed"), "{}", done.stderr);
    }
}

#[test]
fn row_11_restarts_run_out() {
    let done = run(sh("--nproc 2 --max-restarts 1", "echo start; exit 7"));
    assert_eq!(done.code, 7);
    assert_eq!(done.lines().len(), 4, "two workers, two attempts");
    done.says("attempt    2 of 2");
    assert_eq!(done.stderr.matches("the job failed").count(), 1);
}

#[test]
fn a_signal_is_no_reason_to_restart() {
    let job = start(sh("--nproc 2 --max-restarts 3", "echo ready; exec sleep 1000"));
    job.stdout.wait_for("ready", 2);
    job.send(Signal::SIGINT);
    let done = job.finish();
    assert_eq!(done.code, 130);
    assert!(!done.stderr.contains("again"), "{}", done.stderr);
}
