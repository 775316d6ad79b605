//! Limits of processes: open files, locked memory, threads.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::cgroup::Limits;
use crate::check::finding::Finding;
use crate::check::machine;
use crate::system::{System, bytes};

/// A worker with its loader workers and threads has about as many.
const FEW_TASKS: u64 = 512;

/// Memory that a GPU copies from and to is locked, by the driver where the limit allows it.
fn locked_memory() -> Finding {
    let subject = "locked memory";
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => Finding::ok(subject, "unlimited"),
        Ok((soft, _)) => Finding::ok(
            subject,
            format!(
                "{}; InfiniBand wants `ulimit -l unlimited`, the CPU and TCP nothing",
                bytes(soft)
            ),
        ),
        Err(errno) => Finding::warning(subject, format!("the limit cannot be read: {errno}")),
    }
}

fn tasks(system: &System, limits: &Limits) -> Finding {
    let subject = "threads";
    let user = getrlimit(Resource::RLIMIT_NPROC).map_or(u64::MAX, |(soft, _)| soft);
    let machine = system.text("/proc/sys/kernel/threads-max").and_then(|text| text.parse().ok());
    let group = limits.tasks.unwrap_or(u64::MAX);
    let most = user.min(group).min(machine.unwrap_or(u64::MAX));
    match most < FEW_TASKS {
        true => Finding::warning(
            subject,
            format!(
                "at most {most} processes and threads: few for workers with data loaders. Raise `ulimit -u` or the \
                 container's `--pids-limit`"
            ),
        ),
        false => Finding::ok(subject, format!("at most {most} processes and threads")),
    }
}

pub fn findings(system: &System, limits: &Limits) -> Vec<Finding> {
    vec![machine::files(1), machine::shared_memory(0), locked_memory(), tasks(system, limits)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn a_small_container_has_few_threads() {
        let system = System::at(std::path::Path::new("/nowhere"));
        let limits = Limits { tasks: Some(100), ..Limits::default() };
        let found = tasks(&system, &limits);
        assert_eq!(found.level, Level::Warning);
        assert!(found.text.contains("at most 100"), "{found:?}");
    }
}
