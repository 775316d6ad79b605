//! Kernels compile for the GPUs that are supported, with NVRTC and without a GPU, and keep their numbers
//! in registers. `scripts/check-kernels` installs the compiler and runs this; by itself it does nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use torchrs::cuda::pointwise::source;
use torchrs::cuda::{Program, library};
use torchrs::ops::pointwise::{self, Compute, Kind, Row};

const ARCHITECTURES: [(u32, u32); 2] = [(8, 0), (9, 0)];

/// Files that are parts of programs, which are put together for an element type where they are used: not
/// compiled here.
const PARTS: [&str; 21] = [
    "attention",
    "batch_norm",
    "complex",
    "conv",
    "cross_entropy",
    "ctc_loss",
    "fft",
    "flash",
    "layer_norm",
    "linalg_factors",
    "linalg_jacobi",
    "linalg_qr",
    "matmul",
    "nll",
    "rank",
    "reduce",
    "rnn",
    "scan",
    "select",
    "softmax",
    "sort",
];

/// Set by `scripts/check-kernels`.
const REQUIRED: &str = "TORCHRS_CHECK_KERNELS";

/// True when the script runs this, which has seen to a compiler: it takes minutes.
fn is_asked_for() -> bool {
    if std::env::var_os(REQUIRED).is_none() {
        println!("skipped: scripts/check-kernels runs this, with NVIDIA's compiler");
        return false;
    }
    assert!(!library::is_simulated(), "the simulated GPU's compiler is the host's");
    let probe = Program::owned("probe", "", String::new()).compile((9, 0));
    probe.unwrap_or_else(|error| panic!("{error}"));
    true
}

/// Compiles programs on all cores; what is wrong with them.
fn complaints(programs: Vec<(String, Program)>) -> Vec<String> {
    let (next, complaints, start) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let (kernels, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some((name, program)) = programs.get(next.fetch_add(1, Relaxed)) {
                    for architecture in ARCHITECTURES {
                        let complain = |text: String| {
                            complaints
                                .lock()
                                .unwrap()
                                .push(format!("{name} {architecture:?}: {text}"));
                        };
                        match program.needs(architecture) {
                            Err(error) => complain(error.to_string()),
                            Ok(all) => {
                                assert!(!all.is_empty(), "{name}: no kernel in it");
                                kernels.fetch_add(all.len(), Relaxed);
                                for needs in all {
                                    most.fetch_max(needs.registers as usize, Relaxed);
                                    if needs.spilled > 0 {
                                        complain(format!("spills: {needs:?}"));
                                    }
                                }
                            }
                        }
                    }
                }
            });
        }
    });
    println!(
        "{} kernels of {} programs for each of {} architectures, at most {} registers, in {:.1} s",
        kernels.into_inner() / ARCHITECTURES.len(),
        programs.len(),
        ARCHITECTURES.len(),
        most.into_inner(),
        start.elapsed().as_secs_f64()
    );
    complaints.into_inner().unwrap()
}

#[test]
fn files_of_kernels() {
    if !is_asked_for() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let prelude: &'static str = fs::read_to_string(folder.join("prelude.cuh")).unwrap().leak();
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let is_whole = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        path.extension().is_some_and(|e| e == "cu") && !PARTS.contains(&stem)
    };
    let programs = files.filter(is_whole).map(|path| {
        let name: &'static str = path.file_stem().unwrap().to_str().unwrap().to_owned().leak();
        (name.to_owned(), Program::owned(name, prelude, fs::read_to_string(&path).unwrap()))
    });
    let wrong = complaints(programs.collect());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The kernels of a row, and the types in which they compute.
fn programs_of(row: &Row) -> Vec<(String, Program)> {
    let floats = [Compute::F32, Compute::F64].as_slice();
    let computes = match row.kind {
        Kind::Float | Kind::Update => floats,
        Kind::Arith | Kind::Numeric | Kind::Compare => &[Compute::F32, Compute::F64, Compute::I64],
        Kind::Bitwise => &[Compute::I64],
    };
    let forward = computes.iter().map(|c| (format!("{} {c:?}", row.name), source(&row.kernel, *c)));
    let backward = row.gradients.iter().flat_map(|gradient| {
        let name = format!("{} by {}", row.name, row.inputs[gradient.input].name);
        floats.iter().map(move |c| (format!("{name} {c:?}"), source(&gradient.kernel, *c)))
    });
    forward.chain(backward).map(|(name, program)| (name, program.expect("a row's text"))).collect()
}

#[test]
fn rows_of_the_tables() {
    if !is_asked_for() {
        return;
    }
    let rows = pointwise::tables().chain(pointwise::updates());
    let wrong = complaints(rows.flat_map(programs_of).collect());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
