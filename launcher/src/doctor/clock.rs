//! Clocks: how fast they are read, and whether the wall clock is right.

use crate::check::finding::Finding;
use crate::system::System;

/// Sources that programs read without asking the kernel.
const FAST: [&str; 4] = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];

fn source(system: &System) -> Finding {
    let subject = "clock";
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match system.text(path) {
        Some(source) if FAST.contains(&&source[..]) => Finding::ok(subject, source),
        Some(source) => Finding::warning(
            subject,
            format!(
                "{source}, which only the kernel can read: profiles and time-outs cost more. `tsc` is faster where \
                 the machine has it (kernel parameter clocksource=tsc)"
            ),
        ),
        None => Finding::ok(subject, "its source is not told here"),
    }
}

/// Files' times and logs go by it; time-outs and meetings of hosts do not.
fn wall() -> Finding {
    let subject = "wall clock";
    // SAFETY: all zero is a valid value, which asks and sets nothing.
    let mut asked: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the answer.
    let state = unsafe { libc::adjtimex(&raw mut asked) };
    match state {
        -1 => Finding::ok(subject, "the kernel does not tell whether it is synchronised"),
        libc::TIME_ERROR => Finding::ok(
            subject,
            "not synchronised, as the kernel sees it: times of logs may differ between hosts, no more",
        ),
        _ => Finding::ok(subject, "synchronised"),
    }
}

pub fn findings(system: &System) -> Vec<Finding> {
    vec![source(system), wall()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn a_slow_source_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("sys/devices/system/clocksource/clocksource0");
        std::fs::create_dir_all(&at).unwrap();
        for (name, level) in [("hpet", Level::Warning), ("tsc", Level::Ok)] {
            std::fs::write(at.join("current_clocksource"), name).unwrap();
            assert_eq!(source(&System::at(folder.path())).level, level, "{name}");
        }
        assert_eq!(wall().level, Level::Ok);
    }
}
