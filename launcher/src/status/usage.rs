//! What the kernel says a process and this host use.

use std::fs;
use std::sync::LazyLock;

use nix::unistd::{SysconfVar, sysconf};

/// What a process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Seconds of processor time so far, of all its threads.
    pub cpu_s: f64,
    /// Resident bytes.
    pub resident: u64,
}

static TICKS: LazyLock<f64> = LazyLock::new(|| number(SysconfVar::CLK_TCK, 100) as f64);
static PAGE: LazyLock<u64> = LazyLock::new(|| number(SysconfVar::PAGE_SIZE, 4096) as u64);

fn number(name: SysconfVar, unless: i64) -> i64 {
    sysconf(name).ok().flatten().unwrap_or(unless)
}

impl Usage {
    /// Of a process of this host; nothing when it is no more.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name may hold anything: fields count from its end, which is that of the second.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = field(14)? + field(15)?;
        Some(Usage { cpu_s: ticks as f64 / *TICKS, resident: field(24)? * *PAGE })
    }
}

/// What this host uses: load of one minute, bytes of memory, and how many of them are in use.
pub fn of_host() -> (f64, u64, u64) {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
        kib.unwrap_or(0u64) * 1024
    };
    let total = bytes("MemTotal:");
    (load, total, total.saturating_sub(bytes("MemAvailable:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_line_is_read() {
        let line =
            "7 (a) b (c) S 1 7 7 0 -1 4194304 10 0 0 0 250 50 0 0 20 0 3 0 99 1000000 25 1 0";
        let usage = Usage::parse(line).unwrap();
        assert_eq!(usage.cpu_s, 300.0 / *TICKS);
        assert_eq!(usage.resident, 25 * *PAGE);
        assert_eq!(Usage::parse("7 (a) S"), None);
        let own = Usage::of(std::process::id() as i32).unwrap();
        assert!(own.resident > 1 << 20, "{own:?}");
        let (_, total, used) = of_host();
        assert!(total > used && used > 0);
    }
}
