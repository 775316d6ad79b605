//! The names of torchrs's environment variables, so that a misspelt one does not do nothing unheard.

use std::ffi::OsString;

/// All of them. What begins with `TORCHRS_TEST_` or `TORCHRS_SIMULATED_TEST_` is the tests' own.
const KNOWN: [&str; 27] = [
    "TORCHRS_BENCH_MODEL",
    "TORCHRS_CHECK_KERNELS",
    "TORCHRS_CHILD",
    "TORCHRS_CUBLASLT",
    "TORCHRS_CUDA_CACHE",
    "TORCHRS_CUDA_PATH",
    "TORCHRS_CUDNN",
    "TORCHRS_CUDNN_PROPERTIES",
    "TORCHRS_DETECT_ANOMALY",
    "TORCHRS_GOLDEN_DIR",
    "TORCHRS_GOLDEN_REPORT",
    "TORCHRS_ISA",
    "TORCHRS_JOB_ID",
    "TORCHRS_KERNEL_CACHE",
    "TORCHRS_PARENT_PID",
    "TORCHRS_PEER_PYTHON",
    "TORCHRS_SIMULATED_ADVERSARY",
    "TORCHRS_SIMULATED_FAULT",
    "TORCHRS_SIMULATED_GPU_LIBRARY",
    "TORCHRS_SIMULATED_GUARD",
    "TORCHRS_SIMULATED_MEMORY",
    "TORCHRS_SIMULATED_QUIET",
    "TORCHRS_SIMULATE_GPUS",
    "TORCHRS_STORE_FD",
    "TORCHRS_TERMINAL",
    "TORCHRS_TIMEOUT_S",
    "TORCHRS_WARN_AFTER_S",
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
        let nearest = KNOWN.iter().min_by_key(distance).filter(|known| distance(known) <= 5);
        let hint = nearest.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        format!("{name} is set, but nothing reads it{hint}")
    })
    .collect()
}

fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || OWN_OF_TESTS.iter().any(|start| name.starts_with(start))
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
        let missing: Vec<_> = names.iter().filter(|name| !is_known(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        quoted(&root.join("tests"), &mut names);
        // A script reads this one.
        names.insert("TORCHRS_PEER_PYTHON".to_owned());
        let stale: Vec<_> = KNOWN.iter().filter(|name| !names.contains(**name)).collect();
        assert!(stale.is_empty(), "nothing names {stale:?}");
    }
}
