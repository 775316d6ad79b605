//! What can be found out before anything is started: a busy port, a log folder that cannot be
//! one, a limit on open files that is too low.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::failure::{Doing, Failure};

/// The workers' MASTER_PORT: `asked`, if nothing listens there, or for 0 one that is free now.
/// The launcher keeps neither open: only a program that wants a port of its own will bind it.
pub fn master_port(asked: u16) -> Result<u16, Failure> {
    let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, asked)).and_then(|l| l.local_addr());
    match bound {
        Ok(address) => Ok(address.port()),
        // No network at all: then the number cannot matter either; torchrun's default.
        Err(_) if asked == 0 => Ok(29500),
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::AddrInUse => "is busy: another process holds it".to_owned(),
                ErrorKind::PermissionDenied => "needs privileges (it is below 1024)".to_owned(),
                _ => format!("cannot be used: {error}"),
            };
            let advice = "give another, or none: torchrs itself opens no port on one host";
            Err(Failure::new(format!("--master-port {asked} {why}; {advice}")))
        }
    }
}

/// Makes the folder for this run's logs: `<dir>/<run_id>`, or if that is there already (an
/// earlier run, or one at this moment) `<dir>/<run_id>_<job_id>`.
pub fn run_folder(dir: &Path, run_id: &str, job_id: &str) -> Result<PathBuf, Failure> {
    let shown = dir.display();
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::new(format!("--log-dir {shown} is a file; give a folder")));
    }
    fs::create_dir_all(dir).doing(|| format!("--log-dir {shown} cannot be made"))?;
    // Workers may change folder; the logs stay where they were asked for.
    let dir = dir.canonicalize().doing(|| format!("--log-dir {shown}"))?;
    // A run id is free text; as a folder it is one name.
    let name = run_id.replace(['/', '\0'], "_");
    let name = if matches!(name.as_str(), "." | "..") { "run" } else { &name };
    let short = &job_id[..8];
    for folder in [dir.join(name), dir.join(format!("{name}_{short}"))] {
        match DirBuilder::new().create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                let message = format!("--log-dir: cannot make {}: {error}", folder.display());
                return Err(Failure::new(message));
            }
        }
    }
    Err(Failure::new(format!("--log-dir {shown}: a run {run_id} with job id {short} exists")))
}

/// Descriptors of the supervisor that do not depend on the number of workers, with some to spare.
const FIXED_DESCRIPTORS: u64 = 20;
/// And per worker: pidfd, error record, two pipes, its connection to the store.
const PER_WORKER: u64 = 5;
/// Of a remote shell: pidfd, three pipes, two pipes to the relay. While it starts, their other ends.
const PER_HOST: u64 = 8;

/// Makes sure that the supervisor can hold all the descriptors it needs, by raising the soft
/// limit if the hard one allows it.
pub fn descriptors(nproc: usize, log_files: usize) -> Result<(), Failure> {
    let needed = FIXED_DESCRIPTORS + PER_WORKER * nproc as u64 + log_files as u64;
    raise_limit(needed, &format!("{nproc} workers"), "start fewer workers or log to fewer files")
}

/// The same for the launchers of so many hosts.
pub fn descriptors_of_hosts(hosts: usize) -> Result<(), Failure> {
    let needed = FIXED_DESCRIPTORS + PER_HOST * hosts as u64;
    raise_limit(needed, &format!("the launchers of {hosts} hosts"), "name fewer hosts")
}

fn raise_limit(needed: u64, who: &str, else_do: &str) -> Result<(), Failure> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .doing(|| "cannot read the limit on open files".into())?;
    if needed <= soft {
        return Ok(());
    }
    if needed > hard {
        return Err(Failure::new(format!(
            "{who} need {needed} open files here, but the limit is {hard} (ulimit -n): raise it, or {else_do}"
        )));
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard)
        .doing(|| format!("cannot raise the limit on open files from {soft} to {needed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_folder_is_never_shared() {
        let dir = tempfile::tempdir().unwrap();
        let first = run_folder(dir.path(), "a/b", "0123456789").unwrap();
        let second = run_folder(dir.path(), "a/b", "abcdef0123").unwrap();
        assert!(first.ends_with("a_b") && second.ends_with("a_b_abcdef01"));
        assert!(run_folder(dir.path(), "a/b", "abcdef0123").is_err());
    }

    #[test]
    fn too_many_workers_for_the_limit_are_refused_by_its_name() {
        let failure = descriptors(1 << 40, 0).unwrap_err();
        assert!(failure.message.contains("ulimit -n"), "{failure}");
    }
}
