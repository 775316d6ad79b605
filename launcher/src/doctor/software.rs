//! What is installed: NVIDIA's libraries, MPI's, and what builds programs.

use std::path::PathBuf;

use crate::check::finding::Finding;
use crate::check::interfaces;
use crate::check::machine;
use crate::libraries::{self, LIBRARIES};
use crate::nproc::Nproc;

/// GPUs, the libraries for them and for MPI, and NCCL's network.
fn devices() -> Vec<Finding> {
    let (gpus, mut findings) = machine::gpus(Nproc::Count(1));
    let names: Vec<&str> = LIBRARIES.iter().map(|library| library.name).collect();
    let found = libraries::found(&names);
    for library in &LIBRARIES {
        if findings.iter().any(|finding| finding.subject == library.name) {
            continue;
        }
        let for_gpus = library.file().starts_with("libcu") || library.file().starts_with("libn");
        findings.push(match found.get(library.name) {
            Some(Ok(version)) => {
                Finding::ok(library.name, format!("{version} ({})", library.purpose))
            }
            None => Finding::warning(
                library.name,
                format!("opening it ends a process: the installation may be broken ({})", library.purpose),
            ),
            Some(Err(_)) if for_gpus && gpus.count > 0 => Finding::warning(
                library.name,
                format!(
                    "{} is not where the loader looks ({}). torchrs also looks into Python environments and CUDA \
                     toolkits; TORCHRS_CUDA_PATH names other folders",
                    library.file(),
                    library.purpose
                ),
            ),
            Some(Err(_)) => {
                Finding::ok(library.name, format!("not installed ({})", library.purpose))
            }
        });
    }
    if gpus.count > 0 {
        let rule = std::env::var("NCCL_SOCKET_IFNAME").ok();
        let all = interfaces::interfaces();
        findings.push(interfaces::nccl(&all, rule.as_deref(), &[], gpus.count));
    } else {
        findings.push(Finding::ok(
            "simulated GPUs",
            "torchrs-launch --simulate-gpus N: programs for GPUs run on this machine's CPU",
        ));
    }
    findings
}

/// A program of this name in PATH.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn build_tools() -> Vec<Finding> {
    let tool = |name: &'static str, missing: &str| match in_path(name) {
        Some(path) => Finding::ok(name, path.display().to_string()),
        None => Finding::warning(name, missing),
    };
    vec![
        tool(
            "cargo",
            "is not in PATH: programs cannot be built here; https://rustup.rs installs it",
        ),
        tool("cc", "is not in PATH: Rust needs a linker; `apt-get install build-essential`"),
    ]
}

pub fn findings() -> Vec<Finding> {
    let mut findings = devices();
    findings.extend(build_tools());
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_path() {
        assert!(in_path("sh").is_some());
        assert!(in_path("no-such-program-anywhere").is_none());
    }
}
