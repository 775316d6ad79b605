//! `torchrs-launch`: starts and supervises the worker processes of a training job. `torchrs check`: looks before that
//! whether hosts are fit for one.
//!
//! One executable, three processes, told apart by `argv[0]`: the *front* is what the user starts
//! and waits for; the *supervisor* is its only child and runs the job; a *shim* becomes a worker.
//! Front and supervisor watch each other, so that neither's death leaves a process behind.

mod cargo;
mod carrier;
mod check;
mod ckpt;
mod cli;
mod console;
mod create;
mod dashboard;
mod deadline;
mod doctor;
mod documents;
mod environment;
mod executable;
mod failure;
mod front;
mod group;
mod hosts;
mod libraries;
mod lines;
mod logs;
mod nproc;
mod numa;
mod outputs;
mod parts;
mod place;
mod plan;
mod preflight;
mod process;
mod program;
#[cfg(test)]
mod reference;
mod relay;
mod report;
mod shim;
mod sibling;
mod signals;
mod simulate;
mod spawn;
mod ssh;
mod status;
mod stop;
mod streams;
mod supervisor;
mod system;
mod tool;
mod tools;
mod top;
mod tree;
mod worker;

/// `torchrs-launch`; returns the exit code.
pub fn launch() -> i32 {
    private_role().unwrap_or_else(front::main)
}

/// `torchrs`; returns the exit code.
pub fn torchrs() -> i32 {
    private_role().unwrap_or_else(tools::main)
}

/// Runs the part that this process was started for by another of the launcher's, if it was.
fn private_role() -> Option<i32> {
    let mut args = std::env::args_os();
    Some(match args.next() {
        Some(name) if name == spawn::SHIM => shim::become_program(args),
        Some(name) if name == spawn::SUPERVISOR => supervisor::main(args),
        Some(name) if name == spawn::SSH_SUPERVISOR => supervisor::of_plan(args, ssh::near::run),
        Some(name) if name == spawn::CHECK => supervisor::of_plan(args, check::run),
        Some(name) if name == spawn::PROBE => libraries::probe(),
        _ if args.next().is_some_and(|arg| arg == ssh::wire::REMOTE_END) => ssh::far::main(),
        _ => return None,
    })
}
