//! `scripts/gpu-check` on the simulated GPU: its stages run and its report is whole. What cargo has not built
//! beside this test is skipped by the script; without Python or the simulator there is nothing to test.

use std::env;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use torchrs::cuda::library::simulated_path;

/// Stages that are quick where code is not optimised.
const STAGES: &str = "first,golden,ipc,dma,nccl,main job";

fn script(name: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.arg("-B").arg(root.join(name));
    command
}

fn has_python() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok();
    if !there {
        println!("skipped: no Python");
    }
    there
}

fn show(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn stages_run_on_the_simulated_gpu() {
    let Some(simulator) = simulated_path().filter(|_| has_python()) else {
        return println!("skipped: the simulated GPU is not built");
    };
    let executable = env::current_exe().expect("its own path");
    let built = executable.ancestors().nth(2).expect("target/profile/deps");
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("out");
    let output = script("scripts/gpu-check")
        .args(["--simulate", "--stages", STAGES, "--work"])
        .arg(work.path())
        .arg("--out")
        .arg(&out)
        .env("CARGO_TARGET_DIR", built.parent().expect("target"))
        .env("TORCHRS_SIMULATED_GPU_LIBRARY", &simulator)
        .env("TORCHRS_KERNEL_CACHE", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    show(&output);
    let mut files: Vec<_> =
        std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["gpu-check.json", "gpu-check.md", "logs.tar.gz"]);
    let report = std::fs::read(out.join("gpu-check.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["simulated"], true);
    let stages = report["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 14, "{stages:?}");
    // Only for want of a binary may a stage be left out; `cargo test` without a filter builds all.
    let is_built = built.join("examples/gpu_check").is_file();
    for stage in stages {
        let unbuilt = stage["note"].as_str().is_some_and(|note| note.contains("is not built"));
        let left_out = stage["result"] == "skipped" && unbuilt && !is_built;
        assert!(stage["result"] == "ok" || left_out, "{stage}");
    }
}

/// What the script does with results of real GPUs, hangs and crashes.
#[test]
fn the_script_keeps_what_there_is() {
    if !has_python() {
        return;
    }
    let output = script("tools/gpu-check/gpu_check_test.py").output().unwrap();
    show(&output);
    assert!(output.status.success());
}
