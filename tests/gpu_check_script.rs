//! `scripts/gpu-check` on the simulated GPU: its stages run and its report is whole. What cargo has not built
//! beside this test is skipped by the script; without Python or the simulator there is nothing to test.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Stages that are quick where code is not optimised.
const STAGES: &str = "libraries,golden,ipc,dma,nccl,main job";

#[test]
fn stages_run_on_the_simulated_gpu() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let executable = std::env::current_exe().expect("its own path");
    let built = executable.ancestors().nth(2).expect("target/profile/deps");
    let simulator = built.join("libtorchrs_simulated_gpu.so");
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    if !has_python || !simulator.is_file() {
        return println!("skipped: Python or {} is not there", simulator.display());
    }
    let work = tempfile::tempdir().unwrap();
    let report = work.path().join("report.json");
    let output = Command::new("python3")
        .arg("-B")
        .arg(root.join("scripts/gpu-check"))
        .args(["--simulate", "--only", STAGES, "--work"])
        .arg(work.path())
        .arg("--json")
        .arg(&report)
        .env("CARGO_TARGET_DIR", built.parent().expect("target"))
        .env("TORCHRS_SIMULATED_GPU_LIBRARY", &simulator)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(report["simulated"], true);
    let stages = report["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 7, "{stages:?}");
    // Only for want of a binary may a stage be left out; `cargo test` without a filter builds all.
    let is_built = built.join("examples/gpu_check").is_file();
    for stage in stages {
        let name = stage["stage"].as_str().unwrap();
        let needs_it = ["libraries", "nccl"].iter().any(|part| name.starts_with(part));
        let unbuilt = stage["note"].as_str().is_some_and(|note| note.contains("is not built"));
        let left_out = stage["result"] == "skipped" && unbuilt && !(is_built && needs_it);
        assert!(stage["result"] == "ok" || left_out, "{stage}");
    }
}
