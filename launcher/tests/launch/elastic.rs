//! Jobs whose hosts come, go and fail: what the others do meanwhile, and whether clocks matter.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::hosts::{elastic, port, until};
use crate::job::{Done, Job, living, run, sh, start};

/// A worker fails, and the last one on its host ends by `--grace` only: those of the other host need not wait for it.
#[test]
fn a_workers_failure_is_told_to_other_hosts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = format!(
        "case $RANK in 0) trap '' TERM;; 1) ;; *) trap 'echo told $RANK; exit 0' TERM;; esac; echo start 0; \
         until [ -e {} ]; do sleep 0.02; done; [ $RANK = 1 ] && exit 7; while :; do sleep 0.05; done",
        go.display()
    );
    let port = port();
    let options = "--nproc 2 --grace 6";
    let first = start(elastic(port, "2", options, &script));
    first.stderr.wait_for("of at least", 1);
    let second = start(elastic(port, "2", options, &script));
    [&first, &second].iter().for_each(|job| job.stdout.wait_for(": start 0", 2));
    std::fs::write(&go, "").unwrap();
    let at = Instant::now();
    second.stdout.wait_for("told", 2);
    let told = at.elapsed();
    assert!(!living(&first.mark).is_empty() && told < Duration::from_secs(6), "{told:?}");
    println!(
        "from a worker's failure to SIGTERM on the other host: {told:.2?}, of which 1.5 s are theirs to end"
    );
    let done = [first.finish(), second.finish()];
    let took = at.elapsed();
    assert!(done.iter().all(|done| done.code == 7), "{done:?}");
    assert!(took < Duration::from_secs(12), "one grace time after the other: {took:?}");
    done[0].says("rank 1 exited with code 7");
}

#[test]
fn a_host_waits_for_the_programs_welcome_where_that_was_asked_for() {
    let (folder, port) = (tempfile::tempdir().unwrap(), port());
    let end = folder.path().join("end");
    let options = "--max-restarts 3 --grace 2 --scale-up at-checkpoint";
    let launch = || start(elastic(port, "1:2", options, &until(&end)));
    let first = launch();
    first.stdout.wait_for("start 0 1", 1);
    let second = launch();
    second.stderr.wait_for("waits as a spare", 1);
    // This program says nothing of its state, and so goes on alone.
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(&end, "").unwrap();
    let done = [first.finish(), second.finish()];
    assert!(done.iter().all(|done| done.code == 0), "{done:?}");
    assert_eq!(done.iter().map(|done| done.lines().len()).sum::<usize>(), 1, "{done:?}");
}

#[test]
fn a_lock_that_can_decide_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let endpoint = format!("--rdzv-endpoint 127.0.0.1:{}", port());
    let done = run(sh(&format!("--nnodes 1:2 {endpoint} --rdzv-lock {}", file.display()), "true"));
    assert_eq!((done.code, done.stdout.len()), (1, 0));
    done.says("--rdzv-lock").says("file");
    let done =
        run(sh(&format!("--nnodes 2 {endpoint} --rdzv-lock {}", folder.path().display()), "true"));
    assert_eq!((done.code, done.stdout.len()), (2, 0));
    done.says("--rdzv-lock").says("give 1 or less");
}

/// A library that lets a program's wall clock run an hour ahead, or why there is none.
fn an_hour_ahead(folder: &std::path::Path) -> Result<PathBuf, String> {
    const SOURCE: &str = r#"
#[repr(C)]
pub struct Timespec { sec: i64, nsec: i64 }
#[repr(C)]
pub struct Timeval { sec: i64, usec: i64 }
unsafe extern "C" { fn syscall(number: i64, ...) -> i64; }
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, time: *mut Timespec) -> i32 {
    unsafe {
        let code = syscall(228, clock as i64, time) as i32;
        // CLOCK_REALTIME and its coarse form.
        if code == 0 && (clock == 0 || clock == 5) { (*time).sec += 3600; }
        code
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut Timeval, zone: *mut u8) -> i32 {
    unsafe {
        let code = syscall(96, time, zone) as i32;
        if code == 0 && !time.is_null() { (*time).sec += 3600; }
        code
    }
}
"#;
    if !cfg!(target_arch = "x86_64") {
        return Err("its numbers of system calls are those of x86-64".into());
    }
    let (source, library) = (folder.join("ahead.rs"), folder.join("libahead.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let options = ["--edition", "2024", "--crate-type", "cdylib", "-C", "panic=abort", "-o"];
    let built = Command::new(rustc).args(options).arg(&library).arg(&source).output();
    match built {
        Ok(output) if output.status.success() => {
            let mut date = Command::new("date");
            date.arg("+%s").env("LD_PRELOAD", &library).stderr(Stdio::null());
            let said = date.output().map(|output| output.stdout).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).trim().parse::<u64>().ok();
            let own = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            match said {
                Some(shifted) if shifted.abs_diff(own + 3600) < 60 => Ok(library),
                other => Err(format!("`date` says {other:?} with it, at {own}")),
            }
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn wall_clocks_an_hour_apart_have_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let library = match an_hour_ahead(folder.path()) {
        Ok(library) => library,
        Err(why) => return println!("skipped: no clock can be shifted here: {why}"),
    };
    let go = folder.path().join("go");
    // The host that is ahead fails first: by the wall clocks it would be the last.
    let script = format!(
        "echo $(date +%s) start $RANK $TORCHELASTIC_RESTART_COUNT; until [ -e {} ]; do sleep 0.02; done; \
         [ $RANK = 0 ] && sleep 0.5; echo \"fails as rank $RANK\" >&2; exit $((RANK + 3))",
        go.display()
    );
    let port = port();
    let first = start(elastic(port, "2", "--max-restarts 1 --grace 3", &script));
    first.stderr.wait_for("of at least", 1);
    let mut ahead = elastic(port, "2", "--max-restarts 1 --grace 3", &script);
    ahead.env("LD_PRELOAD", &library);
    let second = start(ahead);
    let began = [&first, &second].map(|job: &Job| {
        job.stdout.wait_for(" start ", 1);
        let text = job.stdout.text();
        let time = text.split_once("]: ").unwrap().1.split_once(' ').unwrap().0;
        time.parse::<u64>().unwrap()
    });
    let apart = began[0].abs_diff(began[1]);
    assert!(apart.abs_diff(3600) < 60, "the clocks are {apart} s apart");
    std::fs::write(&go, "").unwrap();
    let done: Vec<Done> = [first, second].into_iter().map(Job::finish).collect();
    assert_eq!(done.iter().map(|done| done.code).collect::<Vec<_>>(), [4, 4], "{done:?}");
    for done in &done {
        assert_eq!(done.lines().len(), 2, "two starts: {done:?}");
    }
    done[0].says("rank 1 exited with code 4; starting all workers again (1 of 1 restarts)");
    done[0].says("the job failed: rank 1 exited with code 4");
}
