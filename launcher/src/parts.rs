//! Which part each of the launcher's options plays where this launcher is not the only one: whether `--hosts` works it
//! out anew for each host, and what `torchrs check` does with it. Every option has a row.

/// What a check does with an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InCheck {
    /// What a job would do: it has to do with how hosts meet.
    Used,
    /// Takes it, so that a job's command line can be given as it is, and says that it is not looked at.
    Ignored,
    /// Does not know it.
    Absent,
}

/// Of each option: its long name, whether each host has its own, and its part in a check.
const OPTIONS: [(&str, bool, InCheck); 31] = [
    ("completions", false, InCheck::Absent),
    ("dashboard", false, InCheck::Ignored),
    ("export", true, InCheck::Used),
    ("grace", false, InCheck::Ignored),
    ("hostfile", true, InCheck::Used),
    ("hosts", true, InCheck::Used),
    ("local-addr", true, InCheck::Used),
    ("log-dir", false, InCheck::Ignored),
    ("man", false, InCheck::Absent),
    ("master-addr", true, InCheck::Used),
    ("master-port", true, InCheck::Used),
    ("max-restarts", false, InCheck::Used),
    ("nnodes", true, InCheck::Used),
    ("no-build", true, InCheck::Ignored),
    ("node-rank", true, InCheck::Used),
    ("nproc", true, InCheck::Used),
    ("numa-binding", false, InCheck::Ignored),
    ("rdzv-backend", true, InCheck::Used),
    ("rdzv-conf", true, InCheck::Used),
    ("rdzv-endpoint", true, InCheck::Used),
    ("rdzv-lock", false, InCheck::Used),
    ("redirects", false, InCheck::Ignored),
    ("remote-launcher", true, InCheck::Used),
    ("role", false, InCheck::Ignored),
    ("run-id", true, InCheck::Used),
    ("scale-up", false, InCheck::Used),
    ("simulate-gpus", false, InCheck::Ignored),
    ("ssh", true, InCheck::Used),
    ("standalone", false, InCheck::Used),
    ("tee", false, InCheck::Ignored),
    ("token-file", true, InCheck::Used),
];

fn row(option: &str) -> Option<(bool, InCheck)> {
    let (_, of_each_host, in_check) = OPTIONS.iter().find(|(name, ..)| *name == option)?;
    Some((*of_each_host, *in_check))
}

/// Whether a launcher that starts others works this option out anew for each host.
pub fn is_of_each_host(option: &str) -> bool {
    row(option).is_some_and(|(of_each_host, _)| of_each_host)
}

/// What a check does with this option of the launcher. `None`: the launcher has no such option.
pub fn in_check(option: &str) -> Option<InCheck> {
    row(option).map(|(_, in_check)| in_check)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Options;

    #[test]
    fn every_option_has_its_part() {
        let command = Options::command();
        let longs: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
        for option in &longs {
            assert!(in_check(option).is_some(), "--{option} has no row");
        }
        for (option, ..) in OPTIONS {
            assert!(longs.contains(&option), "--{option} is no option");
        }
    }
}
