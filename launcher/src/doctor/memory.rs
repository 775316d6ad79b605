//! Memory: how much there is, what limits it, and huge pages.

use super::cgroup::Limits;
use crate::check::finding::Finding;
use crate::system::{System, bytes};

/// A build of a program, or a small training, needs about this much.
const LITTLE: u64 = 2 << 30;

fn amount(system: &System, limits: &Limits) -> Finding {
    let subject = "memory";
    let field = |name: &str| {
        let text = system.field("/proc/meminfo", name)?;
        Some(text.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    let Some(total) = field("MemTotal") else {
        return Finding::warning(subject, "/proc/meminfo cannot be read");
    };
    let available = field("MemAvailable").unwrap_or(total);
    let mut text = format!("{}, {} available", bytes(total), bytes(available));
    let limit = limits.memory.filter(|limit| *limit < total);
    if let Some(limit) = limit {
        text += &format!(
            "; the control group ends whoever uses more than {}: raise it with `docker run --memory`, or a pod's \
             `resources.limits.memory`",
            bytes(limit)
        );
    }
    if field("SwapTotal").is_some_and(|swap| swap > 0) {
        text += &format!("; {} swap", bytes(field("SwapTotal").unwrap_or(0)));
    }
    match limit.unwrap_or(available).min(available) < LITTLE {
        true => Finding::warning(
            subject,
            format!(
                "{text}. Less than {} is little: use few workers and small batches",
                bytes(LITTLE)
            ),
        ),
        false => Finding::ok(subject, text),
    }
}

/// torchrs asks for huge pages for what is large.
fn huge_pages(system: &System) -> Finding {
    let subject = "huge pages";
    let path = "/sys/kernel/mm/transparent_hugepage";
    let raise = |file: &str, to: &str| format!("`echo {to} > {path}/{file}` as root");
    let Some(own) = system.chosen(&format!("{path}/enabled")) else {
        return Finding::warning(
            subject,
            "this kernel has none: large tensors cost more page faults",
        );
    };
    if own == "never" {
        let text =
            format!("never: large tensors cost more page faults; {}", raise("enabled", "madvise"));
        return Finding::warning(subject, text);
    }
    match system.chosen(&format!("{path}/shmem_enabled")).as_deref() {
        None | Some("never" | "deny") => Finding::ok(
            subject,
            format!(
                "{own}; not for memory between processes, where {} would help",
                raise("shmem_enabled", "within_size")
            ),
        ),
        Some(shared) => Finding::ok(subject, format!("{own}; {shared} between processes")),
    }
}

pub fn findings(system: &System, limits: &Limits) -> Vec<Finding> {
    vec![amount(system, limits), huge_pages(system)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn a_small_container_without_huge_pages_is_warned_of_twice() {
        let (_folder, system) = System::of_files(&[
            ("proc/meminfo", "MemTotal: 65536000 kB\nMemAvailable: 60000000 kB\nSwapTotal: 0 kB\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        ]);
        let limits = Limits { memory: Some(512 << 20), ..Limits::default() };
        let found = findings(&system, &limits);
        assert!(found.iter().all(|finding| finding.level == Level::Warning), "{found:?}");
        assert!(found[0].text.contains("more than 512 MiB"), "{found:?}");
        assert!(found[1].text.contains("echo madvise"), "{found:?}");
        assert_eq!(findings(&system, &Limits::default())[0].level, Level::Ok);
    }

    #[test]
    fn a_machine_with_huge_pages_is_well() {
        let (_folder, system) = System::of_files(&[
            ("proc/meminfo", "MemTotal: 65536000 kB\nMemAvailable: 60000000 kB\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
            ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [advise] never deny\n"),
        ]);
        let found = findings(&system, &Limits::default());
        assert!(found.iter().all(|finding| finding.level == Level::Ok), "{found:?}");
        assert_eq!(found[1].text, "always; advise between processes");
    }
}
