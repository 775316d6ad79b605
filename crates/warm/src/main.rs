//! `torchrs doctor --warm`: fills the folder of compiled kernels. A program of its own, which `torchrs` starts: the
//! launcher's package knows no kernels, and starts and builds faster without them.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, ValueHint};
use torchrs::cuda::ahead::{likely, warm as device};
use torchrs::cuda::{WarmOptions, Warmed, warm_with};
use torchrs::{Error, Result};

const AFTER_HELP: &str = "\
Exit code: 0, 1 where something does not compile or an architecture is left out, 2 where nothing could be done.

  torchrs doctor --warm
  torchrs doctor --warm=sm_90a,sm_100a
  torchrs-warm --architectures sm_90a --models gpt2 --folder kernels";

fn command() -> Command {
    let list = |name: &'static str| Arg::new(name).long(name).value_delimiter(',');
    Command::new("torchrs-warm")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Compile torchrs's CUDA kernels before they are needed")
        .after_help(AFTER_HELP)
        .arg(
            list("architectures")
                .value_name("SM,..")
                .help("Architectures, as sm_90a; unless given, those of this host's GPUs"),
        )
        .arg(list("models").value_name("MODEL,..").help(
            "Models whose training steps are wanted; unless given, all of which there are lists, and what programs \
             that used the folder before have loaded",
        ))
        .arg(
            Arg::new("folder")
                .long("folder")
                .value_name("FOLDER")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("The folder to fill; unless given, TORCHRS_KERNEL_CACHE or the user's cache folder"),
        )
        .arg(
            Arg::new("times")
                .long("times")
                .action(clap::ArgAction::SetTrue)
                .help("Print the processor's time for each program"),
        )
        .arg(
            Arg::new("list")
                .long("list")
                .action(clap::ArgAction::SetTrue)
                .help("Print the models of which there are lists, and do nothing"),
        )
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    if matches.get_flag("list") {
        say(&format!("{}\n", likely::models().join("\n")));
        return ExitCode::SUCCESS;
    }
    match run(&matches) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            // Nobody may be listening.
            let _ = writeln!(std::io::stderr(), "torchrs doctor --warm: {}", explained(&error));
            ExitCode::from(2)
        }
    }
}

fn explained(error: &Error) -> String {
    match error {
        Error::Device(text) if text.contains("no GPU") || text.contains("driver") => {
            format!("{text}. Without a GPU, name architectures: --warm=sm_90a")
        }
        error => error.to_string(),
    }
}

fn say(text: &str) {
    // A reader that has gone away does not change what was done.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn words(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches.get_many::<String>(name).into_iter().flatten().cloned().collect()
}

/// Whether all was compiled.
fn run(matches: &ArgMatches) -> Result<bool> {
    let architectures = words(matches, "architectures");
    let architectures = architectures.iter().map(|text| device::architecture(text));
    let options = WarmOptions {
        models: words(matches, "models"),
        architectures: architectures.collect::<Result<_>>()?,
        folder: matches.get_one::<PathBuf>("folder").cloned(),
    };
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => device::folder()?.to_owned(),
    };
    let (shown, on_terminal) = (Mutex::new(Instant::now()), std::io::stdout().is_terminal());
    let pause = Duration::from_millis(if on_terminal { 200 } else { 5000 });
    let done = warm_with(&options, |done, all| {
        let Ok(mut last) = shown.try_lock() else { return };
        if last.elapsed() >= pause {
            *last = Instant::now();
            say(&match on_terminal {
                true => format!("\r{done} of {all} programs"),
                false => format!("{done} of {all} programs\n"),
            });
        }
    })?;
    if on_terminal {
        say("\r\x1b[K");
    }
    if matches.get_flag("times") {
        for (program, architecture, time) in &done.times {
            let program: String = program.replace(['\t', '\n'], " ").chars().take(100).collect();
            let (seconds, name) = (time.as_secs_f64(), device::name(*architecture));
            say(&format!("{seconds:7.2} s {name:8} {program}\n"));
        }
    }
    say(&told(&done, &folder.display().to_string()));
    Ok(done.failed.is_empty() && done.left_out.is_empty())
}

/// What was done, in lines.
fn told(done: &Warmed, folder: &str) -> String {
    let mut text = match done.compiled {
        0 if done.failed.is_empty() => {
            format!("all {} programs are in {folder} already\n", done.found)
        }
        _ => format!(
            "{} programs compiled in {:.1} s, {} were there, in {folder}\n",
            done.compiled,
            done.elapsed.as_secs_f64(),
            done.found
        ),
    };
    for one in &done.left_out {
        text += &format!("left out: {}, which this NVRTC does not know\n", device::name(*one));
    }
    for error in &done.failed {
        text += &format!("failed: {error}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_second_run_says_that_all_is_there() {
        let mut done = Warmed {
            compiled: 0,
            found: 3,
            failed: vec![],
            left_out: vec![(12, 0)],
            times: vec![],
            elapsed: Duration::ZERO,
        };
        let text = told(&done, "/k");
        assert_eq!(
            text,
            "all 3 programs are in /k already\nleft out: sm_120a, which this NVRTC does not know\n"
        );
        done.compiled = 2;
        assert!(told(&done, "/k").starts_with("2 programs compiled in 0.0 s, 3 were there"));
    }
}
