//! Which hosts are meant: the list of `--hosts`, and files as Open MPI, MPICH and batch systems write them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Keys of Open MPI's and MPICH's lines that say nothing about how many workers a host gets.
const WITHOUT_MEANING: [&str; 5] = ["max_slots", "max-slots", "binding", "ifname", "user"];
const MOST_SLOTS: usize = 100_000;

/// A host that is to run a part of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// As the remote shell takes it: `user@host` or `host`.
    pub destination: String,
    /// Workers there, where the list says so.
    pub slots: Option<usize>,
}

impl Target {
    /// The host's name or address.
    pub fn host(&self) -> &str {
        self.destination.rsplit_once('@').map_or(&self.destination, |(_, host)| host)
    }

    /// `host`, `host:4`, `user@host:4`, `[fd77::1]:4`.
    fn read(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}` {what}: write HOST, USER@HOST or HOST:SLOTS");
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, slots) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("lacks a `]`"))?;
                match rest.strip_prefix(':') {
                    None if !rest.is_empty() => return Err(wrong("has something after `]`")),
                    slots => (host, slots),
                }
            }
            // Several colons are an IPv6 address's.
            None if rest.matches(':').count() > 1 => (rest, None),
            None => rest.split_once(':').map_or((rest, None), |(host, slots)| (host, Some(slots))),
        };
        let is_name = |name: &str| {
            let fits = |c: char| c.is_alphanumeric() || "._-:%+".contains(c);
            !name.is_empty() && !name.starts_with('-') && name.chars().all(fits)
        };
        if !is_name(host) || user.is_some_and(|user| !is_name(user)) {
            return Err(wrong("names no host"));
        }
        let slots = slots.map(number).transpose().map_err(|why| wrong(&why))?;
        let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        Ok(Target { destination, slots })
    }
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=MOST_SLOTS).contains(n));
    number.ok_or_else(|| format!("has `{text}` where a number of workers from 1 on belongs"))
}

/// The value of `--hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostList(pub Vec<Target>);

impl FromStr for HostList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim);
        let targets = entries.map(Target::read).collect::<Result<Vec<_>, _>>()?;
        Ok(HostList(merged(targets)))
    }
}

/// The hosts of a file: a host in each line, as `node slots=4`, `node:4` or `node`, with comments after `#`.
///
/// # Errors
/// What in which line cannot be read.
pub fn hosts_of_file(text: &str) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let wrong = |what: String| format!("line {}: {what}", place + 1);
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(host) = words.next() else { continue };
        let mut target = Target::read(host).map_err(wrong)?;
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key.to_ascii_lowercase().as_str() {
                "slots" => {
                    let slots = number(value).map_err(|why| wrong(format!("`{word}` {why}")))?;
                    target.slots = Some(slots);
                }
                key if WITHOUT_MEANING.contains(&key) => {}
                _ => {
                    return Err(wrong(format!(
                        "`{word}` is not known; write a line as `node slots=4`, `node:4` or `node`"
                    )));
                }
            }
        }
        targets.push(target);
    }
    match targets.is_empty() {
        true => Err("it names no host".into()),
        false => Ok(merged(targets)),
    }
}

/// Each host once: of one that is named again, as batch systems do, each time is a worker more.
fn merged(targets: Vec<Target>) -> Vec<Target> {
    let mut merged: Vec<Target> = Vec::new();
    for target in targets {
        match merged.iter_mut().find(|other| other.destination == target.destination) {
            Some(other) => {
                other.slots = Some(other.slots.unwrap_or(1) + target.slots.unwrap_or(1));
            }
            None => merged.push(target),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(targets: &[Target]) -> String {
        let one = |t: &Target| match t.slots {
            Some(slots) => format!("{}={slots}", t.destination),
            None => t.destination.clone(),
        };
        targets.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn hosts_are_read_as_people_write_them() {
        for (text, read) in [
            ("a", "a"),
            ("node1,node2:4, user@node3", "node1 node2=4 user@node3"),
            ("10.0.0.1:2,fd77::1,[fd77::2]:3,me@[::1]", "10.0.0.1=2 fd77::1 fd77::2=3 me@::1"),
            ("a,a,b:2,a", "a=3 b=2"),
        ] {
            assert_eq!(shown(&text.parse::<HostList>().unwrap().0), read, "{text}");
        }
        for text in
            ["", "a,,b", "a:0", "a:x", ":4", "a@", "@a", "[::1", "[::1]x", "-oX", "a b", "a;b"]
        {
            let why = text.parse::<HostList>().unwrap_err();
            assert!(why.contains("write HOST, USER@HOST or HOST:SLOTS"), "{text}: {why}");
        }
        assert_eq!("me@h:2".parse::<HostList>().unwrap().0[0].host(), "h");
    }

    #[test]
    fn files_of_open_mpi_mpich_and_batch_systems_are_read() {
        for (text, read) in [
            ("# all\nnode1 slots=4\nnode2 slots=2 max_slots=8 # two\n\n", "node1=4 node2=2"),
            ("node1:4\nnode2:2 binding=user:0\n", "node1=4 node2=2"),
            ("node1\nnode2\r\n", "node1 node2"),
            ("node1\nnode1\nnode2\nnode1\n", "node1=3 node2"),
        ] {
            assert_eq!(shown(&hosts_of_file(text).unwrap()), read, "{text}");
        }
        for (text, part) in [
            ("node1\nnode2 slot=4", "line 2: `slot=4` is not known"),
            ("node1 slots=many", "line 1: `slots=many`"),
            ("# nothing\n", "names no host"),
            ("a b", "`b` is not known"),
        ] {
            let why = hosts_of_file(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
