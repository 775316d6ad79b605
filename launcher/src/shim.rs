//! The first instants of a worker: ties its life to the supervisor's, puts its signals in order
//! and becomes the program. It runs between the supervisor's posix_spawn and the program's
//! `main`, so it does nothing that takes time.

use std::env::ArgsOs;
use std::ffi::{CString, OsStr, OsString};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{Pid, execv, getppid};

use crate::console::say;
use crate::failure::{CANNOT_EXECUTE, NOT_FOUND, SIGNAL};
use crate::numa::{self, Cores};
use crate::spawn::c_string;
use crate::system::{as_list, list};

/// What the shim of a child of this process is started with, after its name: see [`become_program`].
pub fn arguments(
    cores: Option<&Cores>,
    path: &OsStr,
    argv: impl IntoIterator<Item = OsString>,
) -> Vec<CString> {
    let cores = cores.map(as_list).unwrap_or_default();
    let first = [Pid::this().to_string().into(), cores.into(), path.to_owned()];
    first.into_iter().chain(argv).map(c_string).collect()
}

/// `args`: the supervisor's pid, the cores to run on (none named: as the supervisor), the program's path, its `argv`.
/// Returns only on failure, with the code a shell would give: 127 for a program that is not there, 126 for one that cannot run.
pub fn become_program(mut args: ArgsOs) -> i32 {
    let supervisor = args.next().and_then(|pid| pid.to_str()?.parse().ok());
    let cores = args.next().and_then(|cores| list(cores.to_str()?));
    let (Some(supervisor), Some(cores), Some(path)) = (supervisor, cores, args.next()) else {
        say("torchrs-launch: the worker shim is started by torchrs-launch only\n");
        return 2;
    };
    if let Err(errno) = tie_to(supervisor) {
        say(&format!("torchrs-launch: cannot prepare a worker: {errno}\n"));
        return 1;
    }
    if !cores.is_empty()
        && let Err(errno) = numa::run_on(&cores)
    {
        let cores = as_list(&cores);
        say(&format!("torchrs-launch: --numa-binding: cannot run on cores {cores}: {errno}\n"));
        return 1;
    }
    let argv: Vec<CString> = args.map(c_string).collect();
    let Err(errno) = execv(&c_string(path.clone()), &argv);
    say(&format!("torchrs-launch: {}\n", cannot_run(Path::new(&path), errno)));
    if errno == Errno::ENOENT { NOT_FOUND } else { CANNOT_EXECUTE }
}

fn tie_to(supervisor: i32) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid().as_raw() != supervisor {
        // It died before the line above.
        std::process::exit(SIGNAL + Signal::SIGKILL as i32);
    }
    // SAFETY: the default action installs no handler.
    unsafe {
        // The Rust runtime ignores SIGPIPE and the supervisor SIGXFSZ: not the program's choice.
        signal(Signal::SIGPIPE, SigHandler::SigDfl)?;
        signal(Signal::SIGXFSZ, SigHandler::SigDfl)?;
    }
    Ok(())
}

fn cannot_run(path: &Path, errno: Errno) -> String {
    let why = match errno {
        Errno::ENOENT if path.exists() => {
            "the interpreter or loader that it names is not there".to_owned()
        }
        Errno::ENOEXEC => {
            "it is neither a binary for this machine nor a script with a #! line".into()
        }
        other => other.desc().to_owned(),
    };
    format!("cannot run {}: {why}", path.display())
}
