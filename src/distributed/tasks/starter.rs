//! What the processes that a starter has put on this host have in common where it gives them no job's id: the process
//! that started them. A shell in between has the same variables as they, and the starter itself has not.

use std::fs;

use nix::unistd::getppid;

/// Ancestors that are looked at, at most.
const MOST: usize = 64;

/// What tells the nearest ancestor in whose environment `variable` is not `value`, as long as it runs, from all other
/// processes of this host: `PID@START`.
pub(super) fn of_variable(variable: &str, value: &str) -> String {
    let own = format!("{variable}={value}");
    let mut pid = getppid().as_raw();
    for _ in 0..MOST {
        let Some((parent, start)) = parent_and_start(pid) else { break };
        // Another user's process, whose environment nobody can read, is the starter's.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if !environment.split(|byte| *byte == 0).any(|entry| entry == own.as_bytes()) {
            return format!("{pid}@{start}");
        }
        pid = parent;
    }
    format!("{pid}@")
}

/// A process's parent, and when it started, in ticks since the host did.
fn parent_and_start(pid: i32) -> Option<(i32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in parentheses, may itself contain any character.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let (parent, start) = parent_and_start(std::process::id() as i32).unwrap();
        assert_eq!(parent, getppid().as_raw());
        assert!(start > 0);
        let named = of_variable("TORCHRS_TEST_NOBODY_HAS_THIS", "1");
        assert!(named.starts_with(&format!("{parent}@")), "{named}");
    }
}
