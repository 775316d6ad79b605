//! The workers' output on its way to the terminal and the log files: nothing lost, nothing torn,
//! and no reader or full disk stops the training.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::job::{Job, LAUNCHER, living, run, sh, start};

#[test]
fn lines_carry_their_rank_and_a_lone_worker_does_not() {
    let done = run(sh("--nproc 2", "echo out $RANK; echo err $RANK >&2"));
    let mut lines = done.lines();
    lines.sort();
    assert_eq!(lines, ["[rank0]: out 0", "[rank1]: out 1"]);
    done.says("[rank0]: err 0\n").says("[rank1]: err 1\n");
    let done = run(sh("", "echo out; printf 'no newline'"));
    assert_eq!(done.stdout, b"out\nno newline");
}

#[test]
fn row_18_partial_lines_are_completed_and_never_torn() {
    // Each rank writes its lines byte by byte, both at once, and none at its end.
    let script = "for i in $(seq 40); do
            for c in r a n k; do printf $c; done; printf '%s\\n' $RANK.$i
        done; printf 'the end of %s' $RANK";
    let done = run(sh("--nproc 4", script));
    assert_eq!(done.code, 0);
    for rank in 0..4 {
        let prefix = format!("[rank{rank}]: ");
        let lines: Vec<_> = done
            .lines()
            .into_iter()
            .filter_map(|l| Some(l.strip_prefix(&prefix)?.to_owned()))
            .collect();
        let mut expected: Vec<_> = (1..=40).map(|i| format!("rank{rank}.{i}")).collect();
        expected.push(format!("the end of {rank}"));
        assert_eq!(lines, expected);
    }
}

#[test]
fn row_18_binary_bytes_pass_unchanged() {
    // All byte values; the newline among them ends a line.
    let script = "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %o $i)\"; i=$((i+1)); done";
    let all: Vec<u8> = (0..=255).collect();
    let done = run(sh("", script));
    assert_eq!(done.stdout, all);
    let done = run(sh("--nproc 2", &format!("[ $RANK = 1 ] || {{ {script}; }}")));
    let expected = [b"[rank0]: ", &all[..=10], b"[rank0]: ", &all[11..], b"\n"].concat();
    assert_eq!(done.stdout, expected);
}

#[test]
fn row_18_two_hundred_megabytes_without_a_newline() {
    const SIZE: usize = 200 << 20;
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("flag");
    let script = format!(
        "if [ $RANK = 0 ]; then head -c {SIZE} /dev/zero; echo written >&2
        else for i in $(seq 2000); do echo line $i of many; done; fi
        while [ ! -e {} ]; do sleep 0.02; done",
        flag.display()
    );
    let job = start(sh("--nproc 2", &script));
    job.stderr.wait_for("written", 1);
    let memory = peak_memory(&job);
    std::fs::write(flag, "").unwrap();
    let done = job.finish();
    assert_eq!(done.code, 0);
    let zeros = done.stdout.iter().filter(|b| **b == 0).count();
    assert_eq!(zeros, SIZE);
    let mut expected = 1;
    for line in done.stdout.split(|b| *b == b'\n') {
        let text = line.iter().position(|b| *b == 0).map_or(line, |zero| &line[..zero]);
        match String::from_utf8_lossy(text).strip_prefix("[rank1]: ") {
            Some(line) => {
                assert_eq!(line, format!("line {expected} of many"));
                expected += 1;
            }
            None => assert!(matches!(text, b"[rank0]: " | b""), "torn: {text:?}"),
        }
    }
    assert_eq!(expected, 2001);
    assert!((1..64 << 10).contains(&memory), "the launcher grew to {memory} KiB");
}

/// The largest resident size that a process of the launcher has had, in KiB.
fn peak_memory(job: &Job) -> usize {
    let of = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ours = status.starts_with("Name:\ttorchrs-launch\n");
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
        ours.then_some(peak.trim().trim_end_matches(" kB").parse().ok()?)
    };
    living(&job.mark).into_iter().filter_map(of).max().unwrap_or(0)
}

#[test]
fn a_stream_that_pauses_in_a_long_line_does_not_block_the_others() {
    // Rank 0 stops in the middle of a line longer than any buffer until rank 1 has printed.
    let script = "
        if [ $RANK = 0 ]; then
            head -c 300000 /dev/zero
            while [ ! -e $FLAG ]; do sleep 0.01; done
            echo end
        else
            for i in $(seq 20000); do echo line $i; done
            touch $FLAG
        fi";
    let folder = tempfile::tempdir().unwrap();
    let mut command = sh("--nproc 2", script);
    command.env("FLAG", folder.path().join("flag"));
    let done = run(command);
    assert_eq!(done.code, 0);
    assert_eq!(done.stdout.iter().filter(|b| **b == 0).count(), 300_000);
    let whole = done.lines().iter().filter(|line| line.starts_with("[rank1]: line ")).count();
    assert_eq!(whole, 20_000);
}

fn logs(folder: &Path, run: &str, rank: usize, file: &str) -> String {
    let path = folder.join(run).join("attempt_0").join(rank.to_string()).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn logs_tee_and_redirects_mean_what_they_do_in_torchrun() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display();
    let script = "echo out; echo err >&2";
    let done = run(sh(&format!("--nproc 2 --log-dir {dir} --run-id both"), script));
    assert_eq!(done.lines().len(), 2);
    let options = format!("--nproc 2 --log-dir {dir} --run-id one --redirects 0:3,1:1 --tee 1:2");
    let done = run(sh(&options, script));
    assert_eq!((done.lines().len(), done.stderr.as_str()), (0, "[rank1]: err\n"));
    for run in ["both", "one"] {
        for rank in 0..2 {
            assert_eq!(logs(folder.path(), run, rank, "stdout.log"), "out\n");
            assert_eq!(logs(folder.path(), run, rank, "stderr.log"), "err\n");
        }
    }
    let done = run(sh(&format!("--nproc 2 --log-dir {dir} --run-id two --tee 0:1"), script));
    assert_eq!(done.lines().len(), 2);
    assert!(!folder.path().join("two/attempt_0/0/stderr.log").exists());
    assert!(!folder.path().join("two/attempt_0/1").exists());
}

#[test]
fn the_error_record_is_kept_beside_the_logs() {
    let folder = tempfile::tempdir().unwrap();
    let options = format!("--nproc 2 --log-dir {} --run-id r", folder.path().display());
    let done = run(sh(&options, "echo '{\"message\": 1}' > $TORCHELASTIC_ERROR_FILE; exit 3"));
    assert_eq!(done.code, 3);
    done.says("attempt_0");
    assert_eq!(logs(folder.path(), "r", 1, "error.json"), "{\"message\": 1}\n");
}

#[test]
fn row_17_a_log_folder_that_is_a_file_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (file, flag) = (folder.path().join("file"), folder.path().join("flag"));
    std::fs::write(&file, "").unwrap();
    let options = format!("--nproc 2 --log-dir {}", file.display());
    let done = run(sh(&options, &format!("touch {}", flag.display())));
    assert_eq!(done.code, 1);
    done.says("is a file; give a folder");
    assert!(!flag.exists());
}

#[test]
fn row_17_a_full_log_disk_costs_one_warning_and_not_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let script = "seq 20000; echo trained";
    let mut command = Command::new("sh");
    // No file may grow beyond a few KiB.
    command.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\"", LAUNCHER, "--no-build", "--nproc", "2"]);
    command.args(["--log-dir", folder.path().to_str().unwrap(), "sh", "-c", script]);
    let done = run(command);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.lines().len(), 2 * 20_001);
    assert_eq!(done.stderr.matches("warning").count(), 1, "{}", done.stderr);
    done.says("stdout.log");
}

#[test]
fn a_reader_that_goes_away_is_a_warning_and_not_the_end() {
    let mut command = Command::new("bash");
    let script = "\"$0\" --no-build --nproc 2 sh -c 'seq 20000; echo $RANK end >&2' | head -n 1; \
                  exit ${PIPESTATUS[0]}";
    command.args(["-c", script, LAUNCHER]);
    let done = run(command);
    assert_eq!(done.code, 0, "{}", done.stderr);
    done.says("cannot write to standard output any more").says("0 end\n").says("1 end\n");
}

#[test]
fn a_reader_that_does_not_read_cannot_hold_up_a_signal() {
    let mut command = sh("--nproc 2 --grace 1", "echo ready >&2; exec yes");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Both ranks are up, and then the pipe fills.
    let mut stderr = child.stderr.take().unwrap();
    let mut seen = String::new();
    while seen.matches("ready").count() < 2 {
        let mut byte = [0];
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{seen}");
        seen.push(byte[0] as char);
    }
    std::thread::sleep(Duration::from_millis(300));
    let sent = std::time::Instant::now();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(sent.elapsed() < Duration::from_secs(20));
    stderr.read_to_string(&mut seen).unwrap();
    assert!(seen.contains("nobody read the workers' last output"), "{seen}");
}
