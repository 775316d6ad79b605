//! The process that the user starts and waits for: it reads the options, finds the program,
//! starts the supervisor and passes signals on to it. Should the supervisor be killed, all its
//! descendants become the front's, which ends them; should the front be killed, the supervisor
//! sees that and does the same.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};

use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2};
use serde::Serialize;

use crate::cli::{self, Options};
use crate::console::say;
use crate::dashboard::DashboardPlan;
use crate::environment;
use crate::failure::{Doing, Failure};
use crate::hosts::{HostsPlan, STATIC_PORT};
use crate::numa;
use crate::outputs::{Stream, destination};
use crate::plan::{self, Plan};
use crate::preflight;
use crate::process::Process;
use crate::program;
use crate::signals::undo_inherited;
use crate::simulate;
use crate::spawn::{CHECK, Child, SUPERVISOR, Stdio, c_string};
use crate::ssh::near;
use crate::tool::Overseer;
use crate::tree;

/// Runs a job from the command line; returns the exit code.
pub fn main() -> i32 {
    undo_inherited();
    tree::leave_alone_who_is_here();
    let options = cli::options();
    if options.ssh.names_hosts() {
        keep_foreign_descriptors_out();
        return near::launch(options).unwrap_or_else(|failure| {
            say(&format!("{failure}\n"));
            failure.code
        });
    }
    if let Some(reason) = options.ssh.misfit_without_hosts() {
        cli::refuse(reason);
    }
    let nproc =
        options.nproc.resolve(options.simulate_gpus).unwrap_or_else(|reason| cli::refuse(reason));
    if let Some(reason) = options.misfit(nproc) {
        cli::refuse(reason);
    }
    run(options, nproc).unwrap_or_else(|failure| {
        say(&format!("{failure}\n"));
        failure.code
    })
}

fn run(options: Options, nproc: usize) -> Result<i32, Failure> {
    keep_foreign_descriptors_out();
    let hosts =
        HostsPlan::of(&options).unwrap_or_else(|reason| cli::refuse(cli::with_variables(reason)));
    let mut overseer = Overseer::new()?;
    let plan = prepare(&mut overseer, options, nproc, hosts)?;
    supervise(&mut overseer, SUPERVISOR, &plan)
}

/// Works out all that can be refused before anything is started.
pub fn prepare(
    overseer: &mut Overseer,
    options: Options,
    nproc: usize,
    hosts: Option<HostsPlan>,
) -> Result<Plan, Failure> {
    let master_port = match &hosts {
        None => preflight::master_port(options.master_port)?,
        // Where all meet is the launcher's own.
        Some(hosts) if options.rdzv_endpoint.is_none() => hosts.endpoint.1.saturating_add(1),
        Some(_) if options.master_port == 0 => STATIC_PORT,
        Some(_) => options.master_port,
    };
    let mut plan = Plan {
        program: options.command[0].clone().into(),
        argv: options.command,
        nproc,
        max_restarts: options.max_restarts,
        grace: options.grace,
        role: options.role,
        job_id: random_id()?,
        run_id: options.run_id.unwrap_or_default(),
        master_addr: options.master_addr.unwrap_or_else(|| "127.0.0.1".into()),
        master_port,
        hosts,
        under_launcher: options.under_launcher.is_some(),
        simulated: None,
        run_folder: None,
        dashboard: None,
        outputs: Vec::new(),
        cores: None,
    };
    if let Some(address) = options.dashboard {
        plan.dashboard = Some(DashboardPlan { address, token: random_id()? });
    }
    // The same on all hosts.
    if let Some(hosts) = &plan.hosts {
        plan.run_id = hosts.settings.job.clone();
    }
    if plan.run_id.is_empty() {
        plan.run_id = plan.job_id.clone();
    }
    if let Some(mode) = options.numa_binding {
        let cores = numa::bind(mode, nproc, options.simulate_gpus.is_some());
        let cores = cores.unwrap_or_else(|reason| cli::refuse(cli::with_variables(reason)));
        say(&format!("torchrs-launch: {}\n", numa::in_words(mode, &cores)));
        plan.cores = Some(cores);
    }
    for rank in 0..nproc {
        plan.outputs.push(Stream::BOTH.map(|stream| {
            let (redirects, tee) = (options.redirects.as_ref(), options.tee.as_ref());
            destination(redirects, tee, options.log_dir.is_some(), rank, stream)
        }));
    }
    let log_files = plan.outputs.iter().flatten().filter(|d| d.file).count();
    preflight::descriptors(nproc, log_files)?;
    if log_files > 0 || options.log_dir.is_some() {
        let named = options.log_dir.is_some();
        let folder = options.log_dir.unwrap_or_else(|| std::env::temp_dir().join("torchrs-logs"));
        let folder = preflight::run_folder(&folder, &plan.run_id, &plan.job_id)?;
        if !named {
            say(&format!("torchrs-launch: without --log-dir, logs are in {}\n", folder.display()));
        }
        plan.run_folder = Some(folder);
    }
    plan.program = program::find(overseer, &plan.argv[0], options.no_build)?;
    if let Some(gpus) = options.simulate_gpus {
        let (program, name) = (&plan.program, &plan.argv[0]);
        let simulated = simulate::find(overseer, gpus, program, name, options.no_build)?;
        say(&format!("{simulated}\n"));
        plan.simulated = Some(simulated);
    }
    Ok(plan)
}

/// Starts the supervisor of a plan in this role.
pub fn start_supervisor(
    role: &str,
    plan: &impl Serialize,
    stdio: [Stdio<'_>; 3],
) -> Result<Process, Failure> {
    let what = || "cannot start the supervisor".to_owned();
    let (theirs, ours) = pipe2(OFlag::O_CLOEXEC).doing(what)?;
    let args = [theirs.as_raw_fd(), Pid::this().as_raw()];
    let child = Child {
        role,
        args: args.map(|arg| c_string(arg.to_string().into())).to_vec(),
        env: &environment::own(),
        stdio,
        pass: &[theirs.as_fd()],
        new_session: true,
    };
    let child = child.spawn().doing(what)?;
    drop(theirs);
    // A supervisor that died already cannot read; how it ended says more than that.
    let _ = plan::send(plan, ours);
    Ok(child)
}

/// Runs the job in a supervisor of its own; returns the exit code.
pub fn supervise(
    overseer: &mut Overseer,
    role: &str,
    plan: &impl Serialize,
) -> Result<i32, Failure> {
    let child = start_supervisor(role, plan, [Stdio::Inherit, Stdio::Inherit, Stdio::Inherit])?;
    let exit = overseer.oversee(&child);
    if exit.signal().is_some() {
        let text = match role {
            CHECK => format!("torchrs check: the check was {exit}\n"),
            _ => format!("torchrs-launch: the supervisor was {exit}; all workers were stopped\n"),
        };
        say(&text);
    }
    Ok(exit.shell_code())
}

/// Marks every descriptor that came from whoever started the launcher close-on-exec: a worker
/// gets what is meant for it, and holds nobody's pipe open.
pub fn keep_foreign_descriptors_out() {
    // SAFETY: close_range takes three integers. An old kernel refuses, and nothing is lost.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// 128 random bits, in hexadecimal.
pub fn random_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .doing(|| "cannot read /dev/urandom".into())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
