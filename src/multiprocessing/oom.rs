//! Counts the kernel's out-of-memory kills, which otherwise look like any other SIGKILL.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

/// How many processes of this process's memory cgroup the kernel has killed for want of memory,
/// where that can be read.
pub(super) fn oom_kills() -> Option<u64> {
    static FILE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        counter_files(&groups).into_iter().find(|file| file.exists())
    });
    oom_kill_count(&fs::read_to_string(FILE.as_ref()?).ok()?)
}

/// Where the counter may be, by the lines of `/proc/self/cgroup`: version 2, then version 1, each
/// by full path and as seen inside a container, where the group is mounted as the root.
fn counter_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, name) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.events")
        } else if controllers.split(',').any(|c| c == "memory") {
            ("/sys/fs/cgroup/memory", "memory.oom_control")
        } else {
            continue;
        };
        files.push(PathBuf::from(format!("{root}{}/{name}", group.trim_end_matches('/'))));
        files.push(PathBuf::from(format!("{root}/{name}")));
    }
    files
}

fn oom_kill_count(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_counter_of_both_cgroup_versions() {
        let files = counter_files("4:memory:/job/7\n1:cpu:/\n0::/user.slice\n");
        let files: Vec<_> = files.iter().map(|f| f.to_str().unwrap()).collect();
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/memory/job/7/memory.oom_control",
                "/sys/fs/cgroup/memory/memory.oom_control",
                "/sys/fs/cgroup/user.slice/memory.events",
                "/sys/fs/cgroup/memory.events",
            ]
        );
    }

    #[test]
    fn reads_the_counter() {
        assert_eq!(oom_kill_count("low 0\noom 2\noom_kill 3\n"), Some(3));
        assert_eq!(oom_kill_count("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}
