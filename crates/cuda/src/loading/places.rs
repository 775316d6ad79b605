//! Folders in which CUDA's libraries may lie, from the environment.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders, separated by colons, that are searched before all others.
pub const CUDA_PATH: &str = "TORCHRS_CUDA_PATH";

/// Folders to search, in order.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// What the user named; comes before everything else.
    pub(crate) explicit: Vec<PathBuf>,
    /// Toolkits and wheels; come after the dynamic loader.
    pub(crate) folders: Vec<PathBuf>,
}

impl Places {
    /// Of this process's environment.
    pub(crate) fn of_environment() -> Places {
        Places::of(|name| env::var_os(name).filter(|value| !value.is_empty()), Path::new("/"))
    }

    /// Of an environment given as a function, below `root`.
    pub(crate) fn of(variable: impl Fn(&str) -> Option<OsString>, root: &Path) -> Places {
        let list = |name| variable(name).map(|v| env::split_paths(&v).collect::<Vec<_>>());
        let path = |name| variable(name).map(PathBuf::from);
        let explicit = list(CUDA_PATH).unwrap_or_default();
        let mut folders = Vec::new();
        for home in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path) {
            folders.extend([home.join("lib64"), home.join("lib")]);
        }
        folders.push(root.join("usr/local/cuda/lib64"));
        let mut packages = Vec::new();
        for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path) {
            // Conda's own packages of CUDA lie in `lib` itself.
            folders.push(prefix.join("lib"));
            packages.extend(packages_of(&prefix));
        }
        packages.extend(list("PYTHONPATH").unwrap_or_default());
        for bin in list("PATH").unwrap_or_default() {
            if bin.join("python3").exists()
                && let Some(prefix) = bin.parent()
            {
                packages.extend(packages_of(prefix));
            }
        }
        if let Some(home) = path("HOME") {
            packages.extend(packages_of(&home.join(".local")));
        }
        packages.extend(packages_of(&root.join("usr/local")));
        packages.extend(packages_of(&root.join("usr")));
        folders.extend(packages.iter().flat_map(|packages| wheels_in(packages)));
        Places { explicit: unique(explicit), folders: unique(folders) }
    }
}

/// Python's folders of packages below a prefix, of all its versions.
fn packages_of(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for python in entries(&prefix.join("lib")) {
        let is_python =
            python.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3"));
        if is_python {
            found.extend([python.join("site-packages"), python.join("dist-packages")]);
        }
    }
    found.retain(|folder| folder.is_dir());
    found
}

/// The library folders of NVIDIA's wheels: `nvidia/cu13/lib`, `nvidia/cudnn/lib` and so on.
fn wheels_in(packages: &Path) -> Vec<PathBuf> {
    let wheels = entries(&packages.join("nvidia"));
    wheels.into_iter().map(|wheel| wheel.join("lib")).filter(|lib| lib.is_dir()).collect()
}

/// The entries of a folder by name; none where it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(read) = fs::read_dir(folder) else { return vec![] };
    let mut found: Vec<_> = read.flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn unique(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::with_capacity(folders.len());
    for folder in folders {
        if !folder.as_os_str().is_empty() && !kept.contains(&folder) {
            kept.push(folder);
        }
    }
    kept
}
