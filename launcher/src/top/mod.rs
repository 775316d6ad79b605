//! `torchrs top`: a running job in a terminal, as the status page shows it in a browser.

mod screen;
mod text;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::console::{say, terminal_size};
use crate::outputs::Stream;
use crate::status::snapshot::{JobState, Snapshot};
use crate::status::socket;
use screen::{Key, Screen};

/// Between two looks.
const PACE: Duration = Duration::from_secs(1);
/// Lines where there is no terminal.
const ALL: usize = usize::MAX;

/// The command line of `torchrs top`.
pub fn command() -> Command {
    Command::new("top")
        .about("Show a running job of this host and user: its ranks, speed, numbers and events")
        .arg(Arg::new("job").value_name("JOB").help(
            "The job: its run id, the beginning of its job id, its launcher's pid, or its program's name [default: the only one]",
        ))
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Print it once and end, as without a terminal"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print all that is known, once, as JSON"),
        )
}

/// Runs it; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
    let job = matches.get_one::<String>("job").map(String::as_str);
    let once = matches.get_flag("once") || !std::io::stdout().is_terminal();
    let found = match find(job) {
        Ok(Found::One(found)) => found,
        Ok(Found::Several(jobs)) if matches.get_flag("json") => {
            let ids: Vec<&str> = jobs.iter().map(|found| &*found.job.job_id).collect();
            let (count, ids) = (ids.len(), ids.join(", "));
            say(&format!(
                "torchrs top: --json shows one job, and {count} run: name one of {ids}\n"
            ));
            return 1;
        }
        Ok(Found::Several(jobs)) => return print(&text::list(&jobs)),
        Err(why) => {
            say(&format!("torchrs top: {why}\n"));
            return 1;
        }
    };
    if matches.get_flag("json") {
        let text = serde_json::to_string_pretty(&*found).unwrap_or_default();
        return print(&(text + "\n"));
    }
    if once {
        return print(&text::job(&found, usize::MAX, ALL, 0));
    }
    watch(*found)
}

enum Found {
    One(Box<Snapshot>),
    Several(Vec<Snapshot>),
}

/// The job that is meant.
fn find(job: Option<&str>) -> Result<Found, String> {
    let (mut jobs, mut silent) = (Vec::new(), Vec::new());
    for id in socket::jobs() {
        match socket::ask(&id) {
            Ok(found) => jobs.push(found),
            // It has ended since it was listed.
            Err(why) if why.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(why) => silent.push((id, why)),
        }
    }
    jobs.sort_by_key(|found: &Snapshot| found.job.started_ms);
    let is_meant = |id: &str| job.is_none_or(|word| id.starts_with(word));
    if let Some((id, why)) = silent.iter().find(|(id, _)| is_meant(id)) {
        let why = format!("job {id}: {why}");
        // Of others there is something to show.
        if job.is_some() || jobs.is_empty() {
            return Err(why);
        }
        say(&format!("torchrs top: {why}\n"));
    }
    let none = "no job of this user runs on this host".to_owned();
    let Some(word) = job else {
        return match jobs.len() {
            0 => Err(none),
            1 => Ok(Found::One(Box::new(jobs.remove(0)))),
            _ => Ok(Found::Several(jobs)),
        };
    };
    let all = text::list(&jobs);
    let is_named = |found: &Snapshot| {
        let job = &found.job;
        let program = Path::new(&job.program).file_name().and_then(|name| name.to_str());
        let is_pid = word.parse().is_ok_and(|pid| pid == job.pid || parent(job.pid) == Some(pid));
        job.run_id == word || is_pid || job.job_id.starts_with(word) || program == Some(word)
    };
    jobs.retain(is_named);
    match jobs.len() {
        0 if all.lines().count() < 2 => Err(none),
        0 => Err(format!(
            "no job here has the run id, job id, pid or program `{word}`:\n{}",
            all.trim_end()
        )),
        1 => Ok(Found::One(Box::new(jobs.remove(0)))),
        count => Err(format!(
            "{count} jobs here are named `{word}`: give a job id or a pid\n{}",
            text::list(&jobs).trim_end()
        )),
    }
}

/// The process that a shell has started: the launcher's own child does the work.
fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Prints; gives the exit code.
fn print(text: &str) -> i32 {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A reader that goes away, as `head` does, is none of its business.
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
            say(&format!("torchrs top: cannot write to standard output: {why}\n"));
            1
        }
        _ => 0,
    }
}

/// Shows a job until it is over, or until a key ends it.
fn watch(mut snapshot: Snapshot) -> i32 {
    let id = snapshot.job.job_id.clone();
    let Some(screen) = Screen::open() else {
        return print(&text::job(&snapshot, usize::MAX, ALL, 0));
    };
    let mut first = 0;
    let gone = loop {
        let size = terminal_size(Stream::Stdout).filter(|size| size.lines > 0);
        let (columns, lines) =
            size.map_or((80, 24), |size| (size.columns.into(), usize::from(size.lines)));
        screen.show(&text::job(&snapshot, columns, lines, first));
        if snapshot.job.state == JobState::Ended {
            break None;
        }
        let until = Instant::now() + PACE;
        match screen.key(until) {
            Some(Key::Quit) => break None,
            Some(Key::Down) => first = (first + 10).min(snapshot.ranks.len().saturating_sub(1)),
            Some(Key::Up) => first = first.saturating_sub(10),
            None => match socket::ask(&id) {
                Ok(next) => snapshot = next,
                Err(why) => break Some(why),
            },
        }
    };
    drop(screen);
    // What was last seen stays on the terminal.
    print(&text::job(&snapshot, 100, 24, 0));
    if let Some(why) = gone {
        let why = match why.kind() {
            std::io::ErrorKind::ConnectionRefused => "its launcher is no more".to_owned(),
            _ => why.to_string(),
        };
        print(&format!("torchrs top: {why}\n"));
    }
    0
}
