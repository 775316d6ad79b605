//! Limits of the control group that this process is in, of both versions. A group's parents limit it, too.

use crate::system::System;

/// What the group may use; `None` without a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    /// Cores: 1.5 are three halves of one core's time.
    pub cores: Option<f64>,
    /// Processes and threads.
    pub tasks: Option<u64>,
}

/// Of version 1, no limit is this much or more.
const UNLIMITED: u64 = 1 << 60;

impl Limits {
    pub fn of(system: &System) -> Self {
        let groups = system.text("/proc/self/cgroup").unwrap_or_default();
        let mut limits = Limits::default();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            for path in parents(path) {
                limits.narrow(system, controllers, path);
            }
        }
        limits
    }

    fn narrow(&mut self, system: &System, controllers: &str, path: &str) {
        let has = |name: &str| controllers.split(',').any(|controller| controller == name);
        let at = |mount: &str, file: &str| {
            let path = path.trim_end_matches('/');
            system.text(&format!("/sys/fs/cgroup{mount}{path}/{file}"))
        };
        if controllers.is_empty() {
            least(&mut self.memory, at("", "memory.max").and_then(|text| text.parse().ok()));
            least(&mut self.tasks, at("", "pids.max").and_then(|text| text.parse().ok()));
            let cores = at("", "cpu.max").and_then(|text| {
                let (quota, period) = text.split_once(' ')?;
                Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
            });
            fewer(&mut self.cores, cores);
            return;
        }
        if has("memory") {
            let bytes = at("/memory", "memory.limit_in_bytes").and_then(|text| text.parse().ok());
            least(&mut self.memory, bytes.filter(|bytes| *bytes < UNLIMITED));
        }
        if has("pids") {
            least(&mut self.tasks, at("/pids", "pids.max").and_then(|text| text.parse().ok()));
        }
        if has("cpu") {
            let number =
                |file: &str| at("/cpu", file).or_else(|| at("/cpu,cpuacct", file))?.parse().ok();
            let (quota, period): (Option<f64>, Option<f64>) =
                (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"));
            let cores = quota.filter(|quota| *quota > 0.0).zip(period).map(|(q, p)| q / p);
            fewer(&mut self.cores, cores);
        }
    }
}

/// A group's path and those of all that it is in.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path.trim_end_matches('/')), |path| {
        path.rfind('/').map(|end| &path[..end])
    })
}

fn least(limit: &mut Option<u64>, other: Option<u64>) {
    *limit = [*limit, other].into_iter().flatten().min();
}

fn fewer(limit: &mut Option<f64>, other: Option<f64>) {
    *limit = [*limit, other].into_iter().flatten().min_by(f64::total_cmp);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_groups_parents_limit_it() {
        let (_folder, system) = System::of_files(&[
            ("proc/self/cgroup", "0::/job/worker\n"),
            ("sys/fs/cgroup/job/worker/memory.max", "max\n"),
            ("sys/fs/cgroup/job/memory.max", "536870912\n"),
            ("sys/fs/cgroup/job/worker/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/job/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/pids.max", "100\n"),
        ]);
        let limits = Limits { memory: Some(512 << 20), cores: Some(1.5), tasks: Some(100) };
        assert_eq!(Limits::of(&system), limits);
    }

    #[test]
    fn version_1_is_read() {
        let (_folder, system) = System::of_files(&[
            ("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/\n2:pids:/\n1:name=systemd:/a\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/pids/pids.max", "max\n"),
        ]);
        let limits = Limits { memory: Some(1 << 30), cores: None, tasks: None };
        assert_eq!(Limits::of(&system), limits);
    }

    #[test]
    fn a_machine_without_groups_has_no_limits() {
        let (_folder, system) = System::of_files(&[("proc/self/cgroup", "")]);
        assert_eq!(Limits::of(&system), Limits::default());
    }
}
