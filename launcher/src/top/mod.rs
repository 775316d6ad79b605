//! `torchrs top`: a running job in a terminal, as the status page shows it in a browser.

mod screen;
mod text;

use std::io::{IsTerminal, Write};
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
            "The job: its run id, the beginning of its job id, or its launcher's pid [default: the only one]",
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
        Ok(Found::Several(jobs)) => {
            print(&text::list(&jobs));
            return 0;
        }
        Err(why) => {
            say(&format!("torchrs top: {why}\n"));
            return 1;
        }
    };
    if matches.get_flag("json") {
        let text = serde_json::to_string_pretty(&*found).unwrap_or_default();
        print(&(text + "\n"));
        return 0;
    }
    if once {
        print(&text::job(&found, usize::MAX, ALL, 0));
        return 0;
    }
    watch(*found)
}

enum Found {
    One(Box<Snapshot>),
    Several(Vec<Snapshot>),
}

/// The job that is meant.
fn find(job: Option<&str>) -> Result<Found, String> {
    let mut jobs: Vec<Snapshot> =
        socket::jobs().iter().filter_map(|id| socket::ask(id).ok()).collect();
    jobs.sort_by_key(|found| found.job.started_ms);
    let Some(word) = job else {
        return match jobs.len() {
            0 => Err("no job of this user runs on this host".into()),
            1 => Ok(Found::One(Box::new(jobs.remove(0)))),
            _ => Ok(Found::Several(jobs)),
        };
    };
    let all = jobs.len();
    let is_named = |found: &Snapshot| {
        let job = &found.job;
        job.run_id == word || job.pid.to_string() == word || job.job_id.starts_with(word)
    };
    jobs.retain(is_named);
    match jobs.len() {
        0 => Err(format!(
            "no job here has the run id, job id or pid `{word}`; {all} run: `torchrs top` lists them"
        )),
        1 => Ok(Found::One(Box::new(jobs.remove(0)))),
        count => Err(format!("{count} jobs here are named `{word}`: give a job id or a pid")),
    }
}

fn print(text: &str) {
    // A reader that goes away, as `head` does, is none of its business.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Shows a job until it is over, or until a key ends it.
fn watch(mut snapshot: Snapshot) -> i32 {
    let id = snapshot.job.job_id.clone();
    let Some(screen) = Screen::open() else {
        print(&text::job(&snapshot, usize::MAX, ALL, 0));
        return 0;
    };
    let mut first = 0;
    let gone = loop {
        let size = terminal_size(Stream::Stdout);
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
