//! `examples/train` under the launcher, as a user runs it: a run that was told to stop, and one that
//! was killed, go on with `--resume` to the curve of an unbroken run, or with other options to what they
//! say; it stops at NaN; on two hosts and on simulated GPUs it learns the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use torchrs::checkpoint::{Checkpoint, CheckpointDir};

/// Optimizer steps per epoch and in all, with `--batch-size 32` on the 1438 training digits.
const EPOCH: usize = 44;
const STEPS: usize = 2 * EPOCH;

/// The launcher and the program, built in this test's profile.
pub fn programs() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        build(&["--package", "torchrs-launcher"]);
        build(&["--example", "train"]);
        let test = std::env::current_exe().expect("its own path");
        let folder = test.ancestors().nth(2).expect("target/<profile>");
        (folder.join("torchrs-launch"), folder.join("examples/train"))
    })
}

/// Has cargo build this, in this test's profile.
pub fn build(what: &[&str]) {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--quiet", "--profile", profile]).args(what);
    assert!(cargo.status().expect("cargo runs").success(), "{what:?}");
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

pub fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until the run has done `steps` steps.
pub fn wait_for(run: &Path, steps: usize) {
    let start = Instant::now();
    while metrics(run).len() < steps {
        assert!(start.elapsed() < Duration::from_secs(60), "{steps} steps within a minute");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The state and the parent of a process, as `/proc` has them.
fn process(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The processes that `parent` has started and that still run.
pub fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("the list of processes").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| process(pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// Waits until a process has ended, whether or not somebody has asked how.
pub fn wait_for_end(pid: u32) {
    let start = Instant::now();
    while process(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X')) {
        assert!(start.elapsed() < Duration::from_secs(60), "process {pid} ends within a minute");
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
        let lines = metrics(&run);
        assert!(lines.len() < STEPS, "stopped before the end");
        let at = lines.last().unwrap()["step"].as_u64().unwrap();
        assert_eq!(steps_saved(&run).last(), Some(&at), "what it says it goes on from is saved");
    }
    same_curve(&unbroken, &finish(&run, &["--resume"]));

    // Killed: goes on from the last of the checkpoints, whose steps are done again.
    let run = folder.path().join("killed");
    let mut job = start(&run, &[]);
    wait_for(&run, EPOCH + 28);
    // The front's one child is the supervisor, whose children the workers are.
    let workers: Vec<u32> = children(job.id()).into_iter().flat_map(children).collect();
    assert_eq!(workers.len(), 2, "{workers:?}");
    job.kill().expect("it lives");
    job.wait().expect("it ends");
    workers.iter().for_each(|&worker| wait_for_end(worker));
    let cut = metrics(&run).len();
    assert!(cut < STEPS, "killed before the end");
    same_curve(&unbroken, &finish(&run, &["--resume"]));
}

/// Without a folder's name: workers that the launcher starts again find their run, and SIGUSR1 ends one in order.
#[test]
fn a_job_goes_on_with_its_own_run() {
    let folder = tempfile::tempdir().unwrap();
    let (launcher, train) = programs();
    let options = ["--epochs", "10", "--batch-size", "32", "--save-every", "10", "--seed", "7"];
    let start = |more: &[&str]| {
        let mut command = Command::new(launcher);
        command.current_dir(&folder).args(["--nproc", "2", "--max-restarts", "1"]);
        command.arg(train).args(options).args(more).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the launcher starts")
    };
    let run = |number: u32| folder.path().join(format!("runs/digits-cnn-{number:03}"));
    let mut job = start(&[]);
    wait_for(&run(1), 1);
    // Another run of that name begins meanwhile, and stops.
    let mut other = start(&[]);
    wait_for(&run(2), 13);
    kill(Pid::from_raw(other.id() as i32), Signal::SIGUSR1).expect("it lives");
    assert!(other.wait().expect("it ends").success(), "SIGUSR1 is no failure");
    let at = metrics(&run(2)).last().unwrap()["step"].as_u64().unwrap();
    assert_eq!(steps_saved(&run(2)).last(), Some(&at));
    let workers: Vec<u32> = children(job.id()).into_iter().flat_map(children).collect();
    wait_for(&run(1), 30);
    let saved = steps_saved(&run(1));
    kill(Pid::from_raw(workers[0] as i32), Signal::SIGKILL).expect("it lives");
    assert!(job.wait().expect("it ends").success());
    let lines = metrics(&run(1));
    assert_eq!(lines.len(), 10 * (EPOCH + 1), "each step once");
    assert!(saved.iter().all(|&step| step < 10 * EPOCH as u64), "it was not over: {saved:?}");
    assert!(!run(3).exists());
}

/// Runs `train` to its end with so many workers and these options alone.
fn train(workers: usize, run: &Path, options: &str) -> Output {
    let (launcher, train) = programs();
    let mut command = Command::new(launcher);
    command.arg("--nproc").arg(workers.to_string()).arg(train).arg("--run-dir").arg(run);
    command.args(options.split(' ').filter(|option| !option.is_empty()));
    command.output().expect("the launcher starts")
}

/// What it printed, of a run that succeeds.
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it said, of a run that fails.
fn fails(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The steps of which a run has checkpoints, whose weights are all finite.
pub fn steps_saved(run: &Path) -> Vec<u64> {
    let folder = CheckpointDir::new(run.join("checkpoints"), 2);
    let steps = folder.steps().unwrap();
    for &step in &steps {
        let saved = Checkpoint::load(folder.at(step)).unwrap();
        for tensors in ["model", "ema"].iter().filter_map(|group| saved.tensors(group).ok()) {
            for (name, t) in tensors.iter().filter(|(_, t)| t.dtype().is_floating_point()) {
                assert!(t.isfinite().all().item() == 1.0, "step {step}: {name}");
            }
        }
    }
    steps
}

/// Of one rank's batch, with gradients of several batches and with a moving average.
#[test]
fn a_run_stops_at_nan_and_keeps_the_last_good_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let options = "--epochs 1 --accumulate 2 --ema 0.9 --save-every 10";
    let error = fails(&train(2, &run, &format!("{options} --poison 13:1")));
    for part in [
        "step 13: ",
        "rank 1, loss NaN",
        "`conv2d` gave NaN",
        "NaN already",
        "`conv1.weight`",
        "gradient",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert!(!error.contains("rank 0, loss"), "{error}");
    assert_eq!(steps_saved(&run), [10]);
    assert_eq!(metrics(&run).len(), 12);
    // Without the bad batch it goes on.
    let said = succeeds(&train(2, &run, "--resume --save-every 10"));
    assert!(said.contains("from step 10") && said.contains("final: val_accuracy=0."), "{said}");
    assert_eq!(steps_saved(&run), [40, 44]);
    // Weights that grow without bounds.
    let run = folder.path().join("grows");
    let error = fails(&train(1, &run, "--model mlp --optimizer sgd --lr 1e30 --max-steps 20"));
    assert!(error.contains("not finite"), "{error}");
    assert!(steps_saved(&run).is_empty());
}

#[test]
fn a_scaler_leaves_out_a_bounded_number_of_steps() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("some");
    let said = succeeds(&train(2, &run, "--amp f16 --model mlp --epochs 1 --poison 5-7:0"));
    assert!(said.matches("the step is left out").count() >= 3, "{said}");
    assert!(said.contains("final: val_accuracy=0.") && !said.contains("NaN"), "{said}");
    let run = folder.path().join("all");
    let error = fails(&train(2, &run, "--amp f16 --model mlp --epochs 1 --poison 5-99"));
    assert!(error.contains("20 steps before it were left out"), "{error}");
    assert!(steps_saved(&run).is_empty());
}

#[test]
fn a_resumed_run_goes_on_with_another_batch_size_and_other_workers() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    succeeds(&train(2, &run, "--model mlp --epochs 2 --max-steps 10"));
    // 320 of 1438 samples are read: 1118 / 64 + 1438 / 64 steps are left.
    let said = succeeds(&train(2, &run, "--resume --batch-size 64 --max-steps 13"));
    assert!(said.contains("--batch-size: 32 before, 64 now"), "{said}");
    // 512 are read; two of them again, because 512 is no multiple of 3. 928 / 66 + 1437 / 66 steps are left.
    let said = succeeds(&train(3, &run, "--resume --batch-size 66"));
    assert!(said.contains("workers: 2 before, 3 now"), "{said}");
    let lines = metrics(&run);
    let steps: Vec<u64> = lines
        .iter()
        .filter(|l| l.get("lr").is_some())
        .map(|l| l["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, (1..=13 + 14 + 21).collect::<Vec<u64>>());
    let rates: Vec<f64> = lines.iter().filter_map(|line| line.get("lr")?.as_f64()).collect();
    assert!(*rates.last().unwrap() < 0.03 * 2e-3, "the schedule ends with the run: {rates:?}");
    let jumps = rates.windows(2).skip(8).filter(|pair| pair[1] > pair[0]).count();
    assert_eq!(jumps, 0, "the rate falls on: {rates:?}");
    let saved = steps_saved(&run);
    assert_eq!(saved.last(), Some(&48));
    // A run that is complete says so, and what it has reached.
    let said = succeeds(&train(3, &run, "--resume"));
    assert!(said.contains("the run is complete: 2 of 2 epochs, step 48"), "{said}");
    assert!(said.contains("final: val_accuracy=0.") && !said.contains("NaN"), "{said}");
    assert_eq!(steps_saved(&run), saved);
    // With more epochs, and as before in all that is not said: 21 steps of 66 samples.
    succeeds(&train(3, &run, "--resume --epochs 3 --lr 0.001"));
    assert_eq!(metrics(&run).last().unwrap()["step"], 48 + 21);
}

#[test]
fn a_resumed_run_refuses_what_cannot_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    succeeds(&train(1, &run, "--model mlp --max-steps 2 --seed 7"));
    for (option, parts) in [
        ("--optimizer sgd", ["--optimizer: is sgd", "made with adamw"]),
        ("--seed 8", ["--seed: is 8", "made with 7"]),
        ("--model cnn", ["--model: is cnn", "made with mlp"]),
        ("--data synthetic", ["--data: is synthetic", "made with digits"]),
        ("--ema 0.9", ["--ema: is given", "keeps no moving average"]),
    ] {
        let error = fails(&train(1, &run, &format!("--resume {option}")));
        assert!(parts.iter().all(|part| error.contains(part)), "{option}: {error}");
    }
    assert_eq!(steps_saved(&run), [2]);
    // The same run once more: equal states are equal bytes.
    let again = folder.path().join("again");
    succeeds(&train(1, &again, "--model mlp --max-steps 2 --seed 7"));
    for file in ["state.json", "model.safetensors", "optimizer.safetensors"] {
        let read = |run: &Path| fs::read(run.join("checkpoints/step-00000002").join(file)).unwrap();
        assert!(read(&run) == read(&again), "{file}");
    }
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
    (run(&[], "host", &["--device", "cpu"]), run(&["--simulate-gpus", "2"], "gpus", &[]))
}

/// The last accuracy.
fn accuracy(lines: &[Value]) -> f64 {
    lines.last().unwrap()["val_accuracy"].as_f64().unwrap()
}

/// The main job as it is, under the launchers of two hosts.
#[test]
fn two_workers_on_each_of_two_hosts_learn_the_digits() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (launcher, train) = programs();
    let hosts = ["0", "1"].map(|rank| {
        let mut command = Command::new(launcher);
        command.args(["--nproc", "2", "--nnodes", "2", "--node-rank", rank]);
        command.args(["--master-addr", "127.0.0.1", "--master-port", &port.to_string()]);
        command.arg(train).arg("--run-dir").arg(&run);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().expect("the launcher starts")
    });
    for mut host in hosts {
        assert!(host.wait().expect("the launcher ends").success());
    }
    assert!(accuracy(&metrics(&run)) >= 0.97);
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

/// Eight workers with a GPU each, as on a large machine, without a word about the device.
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
    command.args(["--model", "mlp", "--batch-size", "64", "--seed", "7"]);
    command.args(["--epochs", "1", "--max-steps", "12"]);
    let said = succeeds(&command.output().expect("the launcher starts"));
    assert!(said.contains("mlp on digits, computed on cuda:0 to cuda:7 (simulated): "), "{said}");
    let losses = losses(&metrics(&run));
    assert_eq!(losses.len(), 12);
    assert!(losses[11] < losses[0], "{losses:?}");
}

#[test]
fn a_worker_without_a_gpu_beside_workers_with_one_is_refused() {
    if !simulated_gpus() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (launcher, train) = programs();
    let mut command = Command::new(launcher);
    command.args(["--nproc", "2"]).arg(train).arg("--run-dir").arg(folder.path().join("run"));
    command.args(["--max-steps", "1"]).env("TORCHRS_SIMULATE_GPUS", "1");
    let error = fails(&command.output().expect("the launcher starts"));
    assert!(error.contains("auto is cuda:1 for the worker of local rank 1"), "{error}");
    assert!(error.contains("--device cpu"), "{error}");
}
