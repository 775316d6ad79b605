//! `examples/train` under the launcher, as a user runs it: a run that was told to stop, and one that
//! was killed, go on with `--resume` to the curve of an unbroken run; on simulated GPUs it learns the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Optimizer steps per epoch and in all, with `--batch-size 32` on the 1438 training digits.
const EPOCH: usize = 44;
const STEPS: usize = 2 * EPOCH;

/// The launcher and the program, built in this test's profile.
fn programs() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let build = |what: &[&str]| {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
            cargo.args(["build", "--quiet", "--profile", profile]).args(what);
            assert!(cargo.status().expect("cargo runs").success(), "{what:?}");
        };
        build(&["--package", "torchrs-launcher"]);
        build(&["--example", "train"]);
        let test = std::env::current_exe().expect("its own path");
        let folder = test.ancestors().nth(2).expect("target/<profile>");
        (folder.join("torchrs-launch"), folder.join("examples/train"))
    })
}

/// Starts two workers on the digits, with a loader worker each and a checkpoint every ten steps.
fn start(run: &Path, more: &[&str]) -> Child {
    let (launcher, train) = programs();
    let mut command = Command::new(launcher);
    command.args(["--nproc", "2"]).arg(train).arg("--run-dir").arg(run).args(more);
    command.args(["--epochs", "2", "--batch-size", "32", "--save-every", "10", "--seed", "7"]);
    command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().expect("the launcher starts")
}

/// Runs to the end and gives the lines of `metrics.jsonl`.
fn finish(run: &Path, more: &[&str]) -> Vec<Value> {
    let status = start(run, more).wait().expect("the launcher ends");
    assert!(status.success(), "{status}");
    let lines = metrics(run);
    assert!(run.join("loss.svg").is_file());
    lines
}

fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until the run has done `steps` steps.
fn wait_for(run: &Path, steps: usize) {
    let start = Instant::now();
    while metrics(run).len() < steps {
        assert!(start.elapsed() < Duration::from_secs(60), "{steps} steps within a minute");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Step losses, epoch losses and accuracies of both, equal to rounding.
fn same_curve(unbroken: &[Value], resumed: &[Value]) {
    assert_eq!(unbroken.len(), STEPS + 2, "a line per step and per epoch");
    assert_eq!(unbroken.len(), resumed.len(), "no line twice, none missing");
    for (a, b) in unbroken.iter().zip(resumed) {
        for key in ["step", "epoch", "lr", "loss", "train_loss", "val_loss", "val_accuracy"] {
            match (a.get(key).and_then(Value::as_f64), b.get(key).and_then(Value::as_f64)) {
                (Some(x), Some(y)) => assert!((x - y).abs() <= 1e-6 * x.abs(), "{key}: {a} {b}"),
                (x, y) => assert_eq!(x, y, "{key}: {a} {b}"),
            }
        }
    }
}

#[test]
fn runs_that_are_stopped_or_killed_resume_to_the_same_curve() {
    let folder = tempfile::tempdir().expect("a folder");
    let unbroken = finish(&folder.path().join("unbroken"), &[]);

    // Told to stop, in the first epoch and again in the second: saves at that step.
    let run = folder.path().join("stopped");
    for (steps, more) in [(13, &[][..]), (EPOCH + 17, &["--resume"])] {
        let mut job = start(&run, more);
        wait_for(&run, steps);
        kill(Pid::from_raw(job.id() as i32), Signal::SIGTERM).expect("it lives");
        assert_eq!(job.wait().expect("it ends").code(), Some(143));
        assert!(metrics(&run).len() < STEPS, "stopped before the end");
    }
    same_curve(&unbroken, &finish(&run, &["--resume"]));

    // Killed: goes on from the last of the checkpoints, whose steps are done again.
    let run = folder.path().join("killed");
    let mut job = start(&run, &[]);
    wait_for(&run, EPOCH + 28);
    job.kill().expect("it lives");
    job.wait().expect("it ends");
    thread::sleep(Duration::from_millis(200));
    let cut = metrics(&run).len();
    assert!(cut < STEPS, "killed before the end");
    same_curve(&unbroken, &finish(&run, &["--resume"]));
}

#[test]
fn a_run_folder_in_use_and_one_without_a_checkpoint_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    assert_eq!(start(&run, &["--resume"]).wait().expect("it ends").code(), Some(1));
    finish(&run, &["--max-steps", "3"]);
    assert_eq!(start(&run, &[]).wait().expect("it ends").code(), Some(1));
    assert_eq!(metrics(&run).len(), 4, "three steps and the epoch's line: left alone");
}

#[test]
fn half_precision_learns() {
    let folder = tempfile::tempdir().expect("a folder");
    for amp in ["bf16", "f16"] {
        let lines = finish(&folder.path().join(amp), &["--amp", amp, "--model", "mlp"]);
        let epochs: Vec<f64> =
            lines.iter().filter_map(|line| line.get("val_accuracy")?.as_f64()).collect();
        assert_eq!(epochs.len(), 2);
        assert!(epochs[1] > 0.6, "{amp}: {epochs:?}");
    }
}

/// Whether a simulated GPU can be had, which is then built.
fn simulated_gpus() -> bool {
    if ["c++", "g++", "clang++"].iter().all(|c| Command::new(c).arg("--version").output().is_err())
    {
        println!("skipped: no C++ compiler, which the simulated GPU needs");
        return false;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    cargo.args(["build", "--quiet", "--profile", profile, "--package", "torchrs-simulated-gpu"]);
    assert!(cargo.status().expect("cargo runs").success());
    true
}

/// The loss of every step.
fn losses(lines: &[Value]) -> Vec<f64> {
    lines
        .iter()
        .filter(|line| line.get("lr").is_some())
        .map(|line| line["loss"].as_f64().unwrap())
        .collect()
}

/// Trains with two workers on the host and with two on simulated GPUs; the lines of both.
fn both_ways(more: &[&str]) -> (Vec<Value>, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let (launcher, train) = programs();
    let run = |device: &[&str], name: &str, cuda: &[&str]| {
        let to = folder.path().join(name);
        let mut command = Command::new(launcher);
        command.args(device).args(["--nproc", "2"]).arg(train).arg("--run-dir").arg(&to);
        command.args(cuda).args(more).args(["--batch-size", "32", "--seed", "7"]);
        command.env("NVIDIA_TF32_OVERRIDE", "0");
        let status = command.stdout(Stdio::null()).status().expect("the launcher starts");
        assert!(status.success(), "{status}");
        metrics(&to)
    };
    (run(&[], "host", &[]), run(&["--simulate-gpus", "2"], "gpus", &["--device", "cuda"]))
}

/// The last accuracy.
fn accuracy(lines: &[Value]) -> f64 {
    lines.last().unwrap()["val_accuracy"].as_f64().unwrap()
}

/// The kernels are other code than the CPU's and add in another order, so that the curves part slowly.
#[test]
fn two_simulated_gpus_learn_what_two_cpus_learn() {
    if !simulated_gpus() {
        return;
    }
    let (on_host, on_gpus) = both_ways(&["--epochs", "1"]);
    let (a, b) = (losses(&on_host), losses(&on_gpus));
    assert_eq!((a.len(), b.len()), (EPOCH, EPOCH));
    for (step, (a, b)) in a.iter().zip(&b).enumerate() {
        let allowed = if step < 10 { 1e-4 } else { 2e-2 };
        assert!((a - b).abs() <= allowed * (1.0 + a), "step {step}: {b} on GPUs, {a} on the host");
    }
    let (a, b) = (accuracy(&on_host), accuracy(&on_gpus));
    assert!(b > 0.84 && (a - b).abs() < 0.03, "accuracy {b} on GPUs, {a} on the host");
}

/// To where the small model has learned what it can: within two of the 359 test images.
#[test]
fn two_simulated_gpus_reach_the_same_accuracy() {
    if !simulated_gpus() {
        return;
    }
    let (on_host, on_gpus) = both_ways(&["--model", "mlp", "--epochs", "4"]);
    let (a, b) = (accuracy(&on_host), accuracy(&on_gpus));
    assert!(a > 0.94 && b > 0.94, "accuracy {b} on GPUs, {a} on the host");
    assert!((a - b).abs() < 0.006, "accuracy {b} on GPUs, {a} on the host");
    for (step, (a, b)) in losses(&on_host).iter().zip(losses(&on_gpus)).enumerate() {
        assert!((a - b).abs() <= 1e-2 * (1.0 + a), "step {step}: {b} on GPUs, {a} on the host");
    }
}

/// Eight workers with a GPU each, as on a large machine.
#[test]
fn eight_simulated_gpus_train_together() {
    if !simulated_gpus() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let (launcher, train) = programs();
    let mut command = Command::new(launcher);
    command.args(["--simulate-gpus", "8", "--nproc", "gpu"]).arg(train).arg("--run-dir").arg(&run);
    command.args(["--device", "cuda", "--model", "mlp", "--batch-size", "64", "--seed", "7"]);
    command.args(["--epochs", "1", "--max-steps", "12"]);
    let status = command.stdout(Stdio::null()).status().expect("the launcher starts");
    assert!(status.success(), "{status}");
    let losses = losses(&metrics(&run));
    assert_eq!(losses.len(), 12);
    assert!(losses[11] < losses[0], "{losses:?}");
}
