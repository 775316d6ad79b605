//! Why a host could not be reached, and what to do about it, from what the remote shell printed and how it ended.

use torchrs_job::exit_status::ExitStatus;

use crate::failure::{CANNOT_EXECUTE, NOT_FOUND};

/// Lines of the remote shell that are shown.
const SHOWN: usize = 6;

/// The way that was tried.
pub struct Way<'a> {
    /// As it was given to the remote shell.
    pub destination: &'a str,
    /// The remote shell's name.
    pub shell: &'a str,
    /// Where the launcher was to be.
    pub launcher: &'a str,
}

/// What a part of the remote shell's words means, and what to do; `{0}` is the host.
const CAUSES: [(&str, &str); 9] = [
    (
        "Permission denied",
        "it does not let this user in without a password: give it a key that needs none (`ssh-copy-id {0}`, an agent), \
         until `ssh -o BatchMode=yes {0} true` works",
    ),
    (
        "HOST IDENTIFICATION HAS CHANGED",
        "it is another machine than the one known by this name, or was installed anew: make sure, then \
         `ssh-keygen -R {0}` and `ssh {0}` once",
    ),
    (
        "Host key verification failed",
        "its key is not known here: `ssh {0}` once, and compare the key",
    ),
    (
        "Could not resolve hostname",
        "nobody knows this name here: look at --hosts, or at ~/.ssh/config",
    ),
    (
        "Connection refused",
        "it is there, but no sshd listens: start it, or name its port in ~/.ssh/config",
    ),
    ("timed out", "it does not answer: is it up, and is the way to it open?"),
    ("No route to host", "no way leads there: is it up?"),
    ("Network is unreachable", "no way leads there from here"),
    (
        "unexpected argument '--remote-end'",
        "torchrs-launch there is of another release: install the same on all hosts",
    ),
];

/// Of a host whose launcher never answered.
pub fn unreached(way: &Way<'_>, words: &[String], exit: Option<ExitStatus>) -> String {
    let Way { destination, shell, launcher } = way;
    let text = words.join("\n");
    let cause = CAUSES.iter().find(|(part, _)| text.contains(part));
    let missing = text.contains("not found") || text.contains("No such file");
    let code = exit.map(ExitStatus::shell_code);
    let why = match (cause, code) {
        (Some((_, why)), _) => why.replace("{0}", destination),
        (None, Some(NOT_FOUND)) | (None, Some(1)) if missing || code == Some(NOT_FOUND) => format!(
            "{launcher} is not there: install the same release at the same place on all hosts, or say where it lies \
             by --remote-launcher"
        ),
        (None, Some(CANNOT_EXECUTE)) => {
            format!("{launcher} cannot be executed there: is it built for that machine?")
        }
        (None, Some(255)) => format!("{shell} could not connect"),
        (None, Some(_)) => {
            let how = exit.map(|exit| exit.to_string()).unwrap_or_default();
            format!("{shell} {how} before torchrs-launch there had answered")
        }
        (None, None) => format!("torchrs-launch there has not answered (through {shell})"),
    };
    format!("{destination}: {why}{}", quoted(shell, words))
}

/// Of a host whose launcher ended without a word, or the way to it.
pub fn lost(
    way: &Way<'_>,
    words: &[String],
    why: Option<&str>,
    exit: Option<ExitStatus>,
) -> String {
    let how = match (why, exit) {
        (Some(why), _) => why.to_owned(),
        (None, Some(exit)) => format!("{} {exit}", way.shell),
        (None, None) => "the connection was closed".to_owned(),
    };
    format!("{}: its launcher is lost: {how}{}", way.destination, quoted(way.shell, words))
}

fn quoted(shell: &str, words: &[String]) -> String {
    let shown = &words[words.len().saturating_sub(SHOWN)..];
    let lines = shown.iter().map(|line| format!("\n  {shell}: {line}"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_explained_and_shown() {
        let way = Way { destination: "me@node2", shell: "ssh", launcher: "/opt/torchrs-launch" };
        for (words, code, part) in [
            ("me@node2: Permission denied (publickey,password).", 255, "`ssh-copy-id me@node2`"),
            (
                "No ED25519 host key is known for node2\nHost key verification failed.",
                255,
                "compare the key",
            ),
            ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", 255, "ssh-keygen -R me@node2"),
            (
                "ssh: Could not resolve hostname node2: Name or service not known",
                255,
                "look at --hosts",
            ),
            ("ssh: connect to host node2 port 22: Connection refused", 255, "no sshd listens"),
            ("ssh: connect to host node2 port 22: Connection timed out", 255, "does not answer"),
            ("ssh: connect to host node2 port 22: No route to host", 255, "no way leads there"),
            ("sh: 1: exec: /opt/torchrs-launch: not found", 127, "--remote-launcher"),
            ("exec: /opt/torchrs-launch: Command not found.", 1, "--remote-launcher"),
            ("exec: /opt/torchrs-launch: cannot execute", 126, "built for that machine"),
            ("error: unexpected argument '--remote-end' found", 2, "the same on all hosts"),
            ("something new", 255, "ssh could not connect"),
            ("something new", 3, "exited with code 3 before"),
        ] {
            let lines: Vec<String> = words.lines().map(str::to_owned).collect();
            let text = unreached(&way, &lines, Some(ExitStatus::Exited(code)));
            assert!(text.starts_with("me@node2: ") && text.contains(part), "{words}: {text}");
            assert!(text.ends_with(&format!("\n  ssh: {}", lines.last().unwrap())), "{text}");
        }
        let text = lost(&way, &[], None, Some(ExitStatus::Exited(255)));
        assert_eq!(text, "me@node2: its launcher is lost: ssh exited with code 255");
    }
}
