//! The names of torchrs's environment variables, so that a misspelt one does not do nothing unheard.

use std::ffi::OsString;

/// Who sets a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// A user, for any program.
    User,
    /// A user of the simulated GPU.
    Simulation,
    /// A process of torchrs, for a child.
    Parent,
    /// Tests, benchmarks and their scripts.
    Developer,
}

/// All of them, each with its meaning for the reference. What begins with `TORCHRS_TEST_` or `TORCHRS_SIMULATED_TEST_` is
/// the tests' own.
const KNOWN: &[(&str, By, &str)] = &[
    (
        "TORCHRS_BENCH_MODEL",
        By::Developer,
        "the model that this child of the benchmark `train` runs",
    ),
    (
        "TORCHRS_BOARD_FD",
        By::Parent,
        "descriptor of the memory in which a worker notes how far it is, for the status page",
    ),
    (
        "TORCHRS_CHECK_KERNELS",
        By::Developer,
        "1, or a part of names: `tests/cuda/kernels_compile.rs` compiles these kernels with NVIDIA's compiler",
    ),
    ("TORCHRS_CHILD", By::Parent, "the function that this child runs, and where its arguments are"),
    ("TORCHRS_CUBLASLT", By::User, "0: do not use cuBLASLt, also where it is found"),
    (
        "TORCHRS_CUDA_CACHE",
        By::User,
        "0: take each block of GPU memory from the driver, of exactly its bytes, and give it back at once",
    ),
    (
        "TORCHRS_CUDA_PATH",
        By::User,
        "folders, separated by colons, that are searched first for CUDA's libraries",
    ),
    ("TORCHRS_CUDNN", By::User, "0: do not use cuDNN, also where it is found"),
    (
        "TORCHRS_CUDNN_PROPERTIES",
        By::Developer,
        "a file with a GPU's properties, for `tools/checks/check-cudnn`",
    ),
    (
        "TORCHRS_DETECT_ANOMALY",
        By::User,
        "1: backward looks for NaN and names the op, its line and the parameter",
    ),
    (
        "TORCHRS_GOLDEN_DIR",
        By::Developer,
        "folders, separated by colons, of PyTorch's recorded results, for the test `golden`",
    ),
    ("TORCHRS_GOLDEN_REPORT", By::Developer, "the folder for the report of the test `golden`"),
    (
        "TORCHRS_HOSTS_ENCRYPT",
        By::User,
        "1: encrypt what workers send to other hosts over TCP, the same on all of them",
    ),
    (
        "TORCHRS_HOSTS_ENGINE",
        By::User,
        "`tcp` or `mpi`: what moves tensors of the CPU between hosts; unless set, MPI where its launcher has started \
         the workers",
    ),
    ("TORCHRS_ISA", By::User, "highest level of vector instructions: `baseline`, `avx2`, `avx512`"),
    ("TORCHRS_JOB_ID", By::Parent, "random, the same for all processes of a job"),
    (
        "TORCHRS_JOB_TOKEN",
        By::User,
        "the secret of a job over several hosts, the same on all of them; at least 16 characters",
    ),
    (
        "TORCHRS_JOB_TOKEN_FILE",
        By::User,
        "a file with that secret, readable by you alone, for where `TORCHRS_JOB_TOKEN` is not set",
    ),
    (
        "TORCHRS_KERNEL_CACHE",
        By::User,
        "the folder of compiled CUDA kernels; empty: keep none on disk",
    ),
    (
        "TORCHRS_KERNEL_PACK",
        By::User,
        "folders, separated by colons, of compiled CUDA kernels that are only read, of any version of NVRTC",
    ),
    (
        "TORCHRS_KERNEL_THREADS",
        By::User,
        "threads that compile CUDA kernels ahead of use where one is missing; 0: none; unless set, the host's cores, \
         shared by its ranks",
    ),
    (
        "TORCHRS_MPI_LIBRARY",
        By::User,
        "file or name of the MPI library, in place of the one of the launcher's family",
    ),
    ("TORCHRS_PARENT_PID", By::Parent, "the process that this one must not outlive"),
    (
        "TORCHRS_BENCH_IMAGES",
        By::Developer,
        "the folder of images and tokens that benchmarks read and `tools/bench/peer_images.py` writes",
    ),
    (
        "TORCHRS_PEER_PYTHON",
        By::Developer,
        "a Python with PyTorch, for `scripts/bench-vs-torch` and others",
    ),
    (
        "TORCHRS_PROFILE",
        By::User,
        "a folder: each rank writes a trace and a report of steps 10 to 20 there",
    ),
    (
        "TORCHRS_PROFILE_STEPS",
        By::User,
        "the optimizer steps that `TORCHRS_PROFILE` records, as `10..20`",
    ),
    (
        "TORCHRS_SIMULATED_ADVERSARY",
        By::Simulation,
        "a seed: delay and reorder all work that is independent",
    ),
    (
        "TORCHRS_SIMULATED_DRY",
        By::Simulation,
        "1: kernels, fills and calls of libraries are counted and not performed",
    ),
    (
        "TORCHRS_SIMULATED_FAULT",
        By::Simulation,
        "faults on demand, separated by commas ([list](../simulated-gpu.md))",
    ),
    ("TORCHRS_SIMULATED_GPU_LIBRARY", By::Simulation, "path of the library of the simulated GPU"),
    (
        "TORCHRS_SIMULATED_GUARD",
        By::Simulation,
        "which end of an allocation lies beside a forbidden page: a power of two, or `start`",
    ),
    (
        "TORCHRS_SIMULATED_MEMORY",
        By::Simulation,
        "memory of each device; suffixes KiB, MiB, GiB; 1 GiB unless set",
    ),
    (
        "TORCHRS_SIMULATED_QUIET",
        By::Simulation,
        "1: no note on standard error that this is a simulation",
    ),
    (
        "TORCHRS_SIMULATE_GPUS",
        By::Simulation,
        "number of simulated GPUs in place of real ones; 0: none",
    ),
    (
        "TORCHRS_SSH",
        By::User,
        "how `torchrs-launch --hosts` reaches other hosts, in place of its option `--ssh`",
    ),
    (
        "TORCHRS_ROUND",
        By::Parent,
        "which start of the job's workers this is, from 0; 1 or more: after a failure, or a host came or left",
    ),
    ("TORCHRS_STORE_FD", By::Parent, "descriptor of the socket to the launcher's store"),
    (
        "TORCHRS_TERMINAL",
        By::Parent,
        "streams behind which a person sits: `stdout`, `stderr`, or both with a comma",
    ),
    ("TORCHRS_TIMEOUT_S", By::User, "seconds after which a collective fails; 600 unless set"),
    (
        "TORCHRS_WARN_AFTER_S",
        By::User,
        "seconds after which a collective that waits is reported; 30 unless set, 0: never",
    ),
];

const OWN_OF_TESTS: [&str; 2] = ["TORCHRS_TEST_", "TORCHRS_SIMULATED_TEST_"];

/// For each variable of the environment that begins with `TORCHRS_` and that nothing reads, a line that says
/// so, with the name that may be meant. The launcher prints them, or `torchrs::init` without one.
///
/// ```
/// use torchrs::multiprocessing::{Process, unknown_variables};
/// let check = |_: ()| {
///     let line = "TORCHRS_TIMEOUT is set, but nothing reads it; did you mean TORCHRS_TIMEOUT_S?";
///     assert_eq!(unknown_variables(), [line]);
/// };
/// Process::builder().env("TORCHRS_TIMEOUT", "60").spawn(check, ())?.join()?;
/// # Ok::<(), torchrs::Error>(())
/// ```
pub fn unknown_variables() -> Vec<String> {
    unknown(std::env::vars_os().map(|(name, _)| name))
}

fn unknown(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let names = names.filter_map(|name| name.into_string().ok());
    let ours = names.filter(|name| name.starts_with("TORCHRS_") && !is_known(name));
    ours.map(|name| {
        let distance = |known: &&&str| distance(known.as_bytes(), name.as_bytes());
        let names = KNOWN.iter().map(|(known, ..)| known);
        let nearest = names.min_by_key(distance).filter(|known| distance(known) <= 5);
        let hint = nearest.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        format!("{name} is set, but nothing reads it{hint}")
    })
    .collect()
}

fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|(known, ..)| *known == name)
        || OWN_OF_TESTS.iter().any(|start| name.starts_with(start))
}

/// Letters to insert, remove or change to make `b` of `a`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn distances_are_counted_in_letters() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!((distance(b"", b"abc"), distance(b"abc", b"abc")), (3, 0));
    }

    #[test]
    fn a_misspelt_variable_is_named_with_the_right_one() {
        let lines = |name: &str| unknown([OsString::from(name)].into_iter());
        for (wrong, right) in [
            ("TORCHRS_TIMEOUT", "TORCHRS_TIMEOUT_S"),
            ("TORCHRS_SIMULATED_GPUS", "TORCHRS_SIMULATE_GPUS"),
            ("TORCHRS_CUDAPATH", "TORCHRS_CUDA_PATH"),
        ] {
            assert!(lines(wrong)[0].ends_with(&format!("did you mean {right}?")), "{wrong}");
        }
        assert_eq!(
            lines("TORCHRS_PAINT_IT_BLACK"),
            ["TORCHRS_PAINT_IT_BLACK is set, but nothing reads it"]
        );
        for fine in ["TORCHRS_ISA", "TORCHRS_TEST_X", "TORCH_HOME", "TORCHRS"] {
            assert!(lines(fine).is_empty(), "{fine}");
        }
    }

    /// The names in quotes in all sources under `folder`.
    fn quoted(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                quoted(&path, names);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("variables.rs")
            {
                let text = fs::read_to_string(&path).unwrap();
                for (at, _) in text.match_indices("\"TORCHRS_") {
                    let name = text[at + 1..].split('"').next().unwrap();
                    let fits = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
                    if name.bytes().all(fits) {
                        names.insert(name.to_owned());
                    }
                }
            }
        }
    }

    #[test]
    fn every_variable_that_the_sources_name_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut names = BTreeSet::new();
        for folder in ["src", "launcher/src", "examples", "benches"] {
            quoted(&root.join(folder), &mut names);
        }
        for package in fs::read_dir(root.join("crates")).unwrap().flatten() {
            let sources = package.path().join("src");
            if sources.is_dir() {
                quoted(&sources, &mut names);
            }
        }
        assert!(names.len() > 15, "{names:?}");
        // What all of them begin with is none.
        names.remove("TORCHRS_");
        let missing: Vec<_> = names.iter().filter(|name| !is_known(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        quoted(&root.join("tests"), &mut names);
        // A script reads this one.
        names.insert("TORCHRS_PEER_PYTHON".to_owned());
        let stale: Vec<_> = KNOWN
            .iter()
            .filter(|(name, ..)| !names.contains(*name))
            .map(|(name, ..)| name)
            .collect();
        assert!(stale.is_empty(), "nothing names {stale:?}");
    }

    /// The page of the reference. `TORCHRS_TEST_WRITE_DOCS=1` writes it anew.
    #[test]
    fn the_page_of_the_reference_is_up_to_date() {
        let mut page = String::from(
            "# Environment variables\n\n<!-- Generated by the tests of `variables.rs` with \
             TORCHRS_TEST_WRITE_DOCS=1. -->\n\nA `TORCHRS_` variable that is set and that nothing reads \
             is reported, with the name that may be meant. Variables of torchrun are on the page of \
             [the launcher](../launcher.md).\n",
        );
        for (by, title) in [
            (By::User, "For any program"),
            (By::Simulation, "For the simulated GPU"),
            (By::Parent, "Set by torchrs for its child processes"),
            (By::Developer, "For tests and benchmarks"),
        ] {
            page += &format!("\n## {title}\n\n| variable | meaning |\n| --- | --- |\n");
            for (name, _, meaning) in KNOWN.iter().filter(|(_, of, _)| *of == by) {
                page += &format!("| `{name}` | {meaning} |\n");
            }
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let docs = here.ancestors().map(|folder| folder.join("docs/reference"));
        let path = docs.into_iter().find(|folder| folder.is_dir()).unwrap().join("variables.md");
        if std::env::var_os("TORCHRS_TEST_WRITE_DOCS").is_some() {
            fs::write(&path, &page).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        let hint = "TORCHRS_TEST_WRITE_DOCS=1 cargo test --workspace --lib variables";
        assert!(found == page, "{} is stale: {hint}", path.display());
    }
}
