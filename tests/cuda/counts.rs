//! Training steps of full-size models ask no more of a GPU than `perf/gpu-counts.json` says: launches, and bytes of their
//! operands. The simulated GPU counts them, and performs nothing.
//!
//! `TORCHRS_TEST_WRITE_COUNTS=1` writes the file anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use torchrs::cuda::library::simulated_path;

/// What is compared; times are not.
const COUNTS: [&str; 5] = ["launches", "bytes", "library_calls", "library_bytes", "waits"];

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/gpu-counts.json")
}

/// The rows of a section, counted.
fn counted(program: &Path, simulator: &Path, section: &str) -> BTreeMap<String, Value> {
    let output = Command::new(program)
        .args(["count", section])
        .envs([
            ("TORCHRS_SIMULATE_GPUS", "1"),
            ("TORCHRS_SIMULATED_DRY", "1"),
            ("TORCHRS_SIMULATED_QUIET", "1"),
            ("TORCHRS_SIMULATED_MEMORY", "80GiB"),
            ("TORCHRS_KERNEL_CACHE", env!("CARGO_TARGET_TMPDIR")),
        ])
        .env("TORCHRS_SIMULATED_GPU_LIBRARY", simulator)
        .output()
        .unwrap();
    let (text, complaint) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{section}: {complaint}");
    let lines = String::from_utf8(text).unwrap();
    let rows =
        lines.lines().filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok());
    let row = |row: Map<String, Value>| {
        let name = row.get("name")?.as_str()?.to_owned();
        assert!(!row.contains_key("error"), "{name}: {}", row["error"]);
        let counts = COUNTS.map(|count| (count.to_owned(), row[count].clone()));
        Some((name, counts.into_iter().collect::<Map<_, _>>().into()))
    };
    rows.filter_map(row).collect()
}

#[test]
fn training_steps_ask_no_more_of_a_gpu_than_is_recorded() {
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let program = built.join("examples/gpu_check");
    let Some(simulator) = simulated_path().filter(|_| program.is_file()) else {
        return println!("skipped: the simulated GPU or gpu_check is not built");
    };
    let sections = ["gpt2", "llama", "bert", "resnet50"];
    let counted: BTreeMap<String, Value> =
        sections.iter().flat_map(|section| counted(&program, &simulator, section)).collect();
    assert_eq!(counted.len(), 5, "{counted:?}");
    if std::env::var_os("TORCHRS_TEST_WRITE_COUNTS").is_some() {
        let text = serde_json::to_string_pretty(&json!(counted)).unwrap();
        return std::fs::write(recorded(), text + "\n").unwrap();
    }
    let text = std::fs::read_to_string(recorded()).unwrap();
    let expected: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(
        counted, expected,
        "counts changed: where they grew, find out why (`tools/count-gpu --ops SECTION`); where they shrank, record \
         them with TORCHRS_TEST_WRITE_COUNTS=1"
    );
}
