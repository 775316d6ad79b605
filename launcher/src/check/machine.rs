//! What can be found out on one host alone: its name, limits, shared memory, GPUs and their libraries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use super::finding::Finding;
use crate::libraries;
use crate::nproc::Nproc;
use crate::ssh::address::resolve;

/// What Docker gives a container unless it is told otherwise.
const DOCKERS_SHM: u64 = 64 << 20;
/// Open files that a program with loader workers and many connections easily has.
const FEW_FILES: u64 = 1024;
/// Libraries without which GPUs of several workers are of no use.
const NEEDED: [&str; 2] = ["libcuda", "libnccl"];

/// `others`: whether the host is one of several.
pub fn name(host: &str, others: bool) -> Finding {
    let found = resolve(host);
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    let shown = shown.join(", ");
    match (found.is_empty(), found.iter().all(|address| address.is_loopback())) {
        (true, _) => Finding::new(
            if others { super::finding::Level::Warning } else { super::finding::Level::Ok },
            "name",
            format!(
                "`{host}` is not known here; torchrs needs it only where --rdzv-endpoint or --master-addr names it"
            ),
        ),
        (false, true) if others => Finding::warning(
            "name",
            format!(
                "`{host}` is {shown} here, which other hosts cannot reach: do not use it as --rdzv-endpoint on this \
                 host, or correct /etc/hosts"
            ),
        ),
        _ => Finding::ok("name", format!("{host} is {shown}")),
    }
}

pub fn files(nproc: usize) -> Finding {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Finding::warning("open files", "the limit cannot be read");
    };
    // As the launcher reckons.
    let needed = 20 + 5 * nproc as u64;
    let (subject, what) = ("open files", format!("at most {soft} (hard limit {hard})"));
    if needed > hard {
        let text =
            format!("{what}, and {nproc} workers need {needed} in the launcher: raise `ulimit -n`");
        return Finding::error(subject, text);
    }
    match soft < FEW_FILES {
        true => {
            let raise = match hard.min(65_536) {
                more if more > soft => format!("`ulimit -n {more}` before the launcher"),
                _ => "raise the hard limit in /etc/security/limits.conf, or `docker run --ulimit nofile=65536`".into(),
            };
            Finding::warning(subject, format!("{what}: few for workers with data loaders; {raise}"))
        }
        false => Finding::ok(subject, what),
    }
}

pub fn shared_memory(gpus: usize) -> Finding {
    let subject = "/dev/shm";
    match statvfs(Path::new("/dev/shm")) {
        Ok(found) => {
            let size = found.blocks() * found.fragment_size();
            let free = found.blocks_available() * found.fragment_size();
            let what = format!("{} MiB, {} free", size >> 20, free >> 20);
            match (gpus > 0, free <= DOCKERS_SHM) {
                (true, true) => Finding::warning(
                    subject,
                    format!(
                        "{what}: NCCL keeps its buffers there; start containers with `--shm-size 1g` or more"
                    ),
                ),
                (false, true) => {
                    Finding::ok(subject, format!("{what}; torchrs itself uses none of it"))
                }
                (_, false) => Finding::ok(subject, what),
            }
        }
        Err(errno) if gpus > 0 => {
            Finding::warning(subject, format!("{errno}: NCCL keeps its buffers there"))
        }
        Err(errno) => Finding::ok(subject, format!("{errno}; torchrs itself uses none of it")),
    }
}

/// GPUs of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gpus {
    /// That a job would use.
    pub count: usize,
    /// Models, each with how many there are.
    pub models: BTreeMap<String, usize>,
    pub driver: String,
    /// Versions by library.
    pub libraries: BTreeMap<String, String>,
}

impl Gpus {
    /// In words.
    pub fn describe(&self) -> String {
        if self.count == 0 {
            return "none".into();
        }
        let models = self.models.iter().map(|(model, count)| format!("{count} x {model}"));
        let models: Vec<String> = models.collect();
        let models =
            if models.is_empty() { "of unknown model".to_owned() } else { models.join(", ") };
        format!("{} usable ({models}), driver {}", self.count, self.driver)
    }
}

/// The GPUs here, and what there is to say of them.
pub fn gpus(nproc: Nproc) -> (Gpus, Vec<Finding>) {
    let count = Nproc::Gpu.resolve(None);
    let Ok(count) = count else {
        let why = count.unwrap_err();
        let why = why.strip_prefix("--nproc gpu: ").unwrap_or(&why);
        let finding = match nproc {
            Nproc::Gpu => Finding::error("GPUs", format!("--nproc gpu, but {why}")),
            _ => Finding::ok("GPUs", "none"),
        };
        return (Gpus::default(), vec![finding]);
    };
    let mut models = BTreeMap::new();
    for folder in fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten() {
        let text = fs::read_to_string(folder.path().join("information")).unwrap_or_default();
        let model = text.lines().find_map(|line| line.strip_prefix("Model:")).unwrap_or("unknown");
        *models.entry(model.trim().to_owned()).or_insert(0) += 1;
    }
    let version = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let mut gpus = Gpus { count, models, driver: driver_of(&version), libraries: BTreeMap::new() };
    let mut findings = vec![Finding::ok("GPUs", gpus.describe())];
    let opened = libraries::found(&NEEDED);
    for library in NEEDED {
        findings.push(match opened.get(library) {
            Some(Ok(version)) => {
                gpus.libraries.insert(library.to_owned(), version.clone());
                Finding::ok(library, format!("opens, version {version}"))
            }
            Some(Err(why)) => Finding::error(
                library,
                format!(
                    "{why}: install it, or name its folder in LD_LIBRARY_PATH or TORCHRS_CUDA_PATH"
                ),
            ),
            None => Finding::error(
                library,
                format!("opening {library} ends a process: the driver may be broken"),
            ),
        });
    }
    (gpus, findings)
}

/// The release in `/proc/driver/nvidia/version`.
fn driver_of(text: &str) -> String {
    let words = text.lines().next().unwrap_or("").split_whitespace();
    let is_release =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    words.into_iter().find(is_release).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_drivers_release_is_read() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC";
        assert_eq!(driver_of(text), "550.54.15");
        assert_eq!(driver_of(""), "unknown");
    }

    #[test]
    fn limits_are_compared_with_the_workers() {
        assert_eq!(files(1 << 40).level, Level::Error);
        assert!(files(1).text.contains("hard limit"));
        assert_eq!(name("localhost", false).level, Level::Ok);
        assert_eq!(name("localhost", true).level, Level::Warning);
        assert_eq!(name("no-such-host.invalid", true).level, Level::Warning);
    }
}
