//! The processor: model, instructions that torchrs has code for, cores, NUMA.

use super::cgroup::Limits;
use crate::check::finding::Finding;
use crate::numa::own_cores;
use crate::system::{System, count_of_list};

/// Sets of instructions, the best first, and what torchrs does with them.
#[cfg(target_arch = "x86_64")]
fn instructions() -> Finding {
    let subject = "instructions";
    let has = |name: &str, is_there: bool| is_there.then(|| name.to_owned());
    let found: Vec<String> = [
        has("AVX2", std::arch::is_x86_feature_detected!("avx2")),
        has("FMA", std::arch::is_x86_feature_detected!("fma")),
        has("F16C", std::arch::is_x86_feature_detected!("f16c")),
        has("AVX-512", std::arch::is_x86_feature_detected!("avx512f")),
        has("VNNI", std::arch::is_x86_feature_detected!("avx512vnni")),
        has("BF16", std::arch::is_x86_feature_detected!("avx512bf16")),
    ]
    .into_iter()
    .flatten()
    .collect();
    match found.len() {
        0 => Finding::warning(
            subject,
            "neither AVX2 nor AVX-512: kernels run without vector code, several times slower",
        ),
        _ => Finding::ok(subject, found.join(", ")),
    }
}

#[cfg(target_arch = "aarch64")]
fn instructions() -> Finding {
    Finding::ok("instructions", "NEON")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instructions() -> Finding {
    let text = format!("{}: torchrs has no vector code for it", std::env::consts::ARCH);
    Finding::warning("instructions", text)
}

/// Cores on which this process may run.
fn allowed() -> usize {
    own_cores().map_or(1, |cores| cores.len())
}

/// Cores of the machine, those that this process may use, and the share of a container.
fn cores(online: usize, allowed: usize, quota: Option<f64>) -> Finding {
    let subject = "cores";
    let mut text = format!("{online} (hardware threads)");
    if allowed < online {
        text += &format!(", of which this process may use {allowed} (affinity: taskset, cgroup)");
    }
    match quota.filter(|quota| *quota < allowed as f64) {
        None => Finding::ok(subject, text),
        Some(quota) => Finding::warning(
            subject,
            format!(
                "{text}; the control group gives them the time of {quota:.1}: threads beyond that stop each other. \
                 Start as many workers times threads (--nproc, OMP_NUM_THREADS)"
            ),
        ),
    }
}

fn numa(system: &System) -> Finding {
    let folder = "/sys/devices/system/node";
    let nodes: Vec<String> = (system.names(folder).into_iter())
        .filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<usize>().is_ok()))
        .collect();
    let of = |node: &String| {
        let cpus = system.text(&format!("{folder}/{node}/cpulist")).unwrap_or_default();
        format!("{node}: {} cores ({cpus})", count_of_list(&cpus).unwrap_or(0))
    };
    match nodes.len() {
        0 | 1 => Finding::ok("NUMA", "one node"),
        count => {
            let nodes: Vec<String> = nodes.iter().map(of).collect();
            let nodes = nodes.join("; ");
            let text = format!(
                "{count} nodes; {nodes}; keep workers near their GPUs: --numa-binding node"
            );
            Finding::ok("NUMA", text)
        }
    }
}

pub fn findings(system: &System, limits: &Limits) -> Vec<Finding> {
    let model = ["model name", "Hardware", "cpu model"];
    let model = model.iter().find_map(|name| system.field("/proc/cpuinfo", name));
    let online = system.text("/sys/devices/system/cpu/online");
    let online = online.and_then(|list| count_of_list(&list)).unwrap_or(1);
    vec![
        Finding::ok("processor", model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())),
        instructions(),
        cores(online, allowed(), limits.cores),
        numa(system),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn a_containers_share_is_a_warning() {
        assert_eq!(cores(8, 8, None).level, Level::Ok);
        assert_eq!(cores(8, 8, Some(8.0)).level, Level::Ok);
        let few = cores(8, 4, Some(1.5));
        assert_eq!(few.level, Level::Warning);
        assert!(few.text.contains("may use 4") && few.text.contains("time of 1.5"), "{few:?}");
    }

    #[test]
    fn nodes_are_listed_with_their_cores() {
        let folder = tempfile::tempdir().unwrap();
        for (node, cpus) in [("node0", "0-3\n"), ("node1", "4-7\n"), ("has_memory", "")] {
            let at = folder.path().join("sys/devices/system/node").join(node);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("cpulist"), cpus).unwrap();
        }
        let text = numa(&System::at(folder.path())).text;
        assert_eq!(
            text,
            "2 nodes; node0: 4 cores (0-3); node1: 4 cores (4-7); keep workers near their GPUs: --numa-binding node"
        );
    }
}
