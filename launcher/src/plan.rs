//! What the front has worked out from the command line, handed to the supervisor through a pipe:
//! the supervisor decides nothing that could have been refused before anything was started.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::dashboard::DashboardPlan;
use crate::hosts::HostsPlan;
use crate::numa::Cores;
use crate::outputs::Destination;

/// Number of devices, for the workers.
const GPUS: &str = "TORCHRS_SIMULATE_GPUS";
/// Path of the library, for the workers and from the user.
pub const LIBRARY: &str = "TORCHRS_SIMULATED_GPU_LIBRARY";

/// A job, ready to run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The executable.
    pub program: PathBuf,
    /// Its `argv`, the name as the user wrote it included.
    pub argv: Vec<OsString>,
    /// Workers.
    pub nproc: usize,
    pub max_restarts: u32,
    pub grace: Duration,
    pub role: String,
    pub run_id: String,
    /// Random; marks every process of this job.
    pub job_id: String,
    pub master_addr: String,
    pub master_port: u16,
    /// Of a job over several hosts.
    pub hosts: Option<HostsPlan>,
    /// Whether another launcher has started this one by ssh, and says what concerns all hosts.
    pub under_launcher: bool,
    /// What stands in for GPUs, if something does.
    pub simulated: Option<Simulated>,
    /// The folder that holds `attempt_<k>/<rank>/`, if there are log files.
    pub run_folder: Option<PathBuf>,
    /// Of a job with a status page.
    pub dashboard: Option<DashboardPlan>,
    /// For each rank: where stdout and stderr go.
    pub outputs: Vec<[Destination; 2]>,
    /// For each rank: the cores on which it may run, with `--numa-binding`.
    pub cores: Option<Vec<Cores>>,
}

/// Simulated GPUs of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Simulated {
    pub gpus: u32,
    pub library: PathBuf,
}

/// The line that opens the launcher's output and each worker's log.
impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gpus, library) = (self.gpus, self.library.display());
        let plural = if gpus == 1 { "" } else { "s" };
        write!(
            f,
            "torchrs-launch: {gpus} simulated GPU{plural} ({library}): results are real, speeds are not"
        )
    }
}

impl Simulated {
    /// What workers find in their environment.
    pub fn variables(&self) -> [(&'static str, OsString); 2] {
        [(GPUS, self.gpus.to_string().into()), (LIBRARY, self.library.clone().into())]
    }
}

/// Writes a plan for the supervisor that reads at the other end of `pipe`.
pub fn send(plan: &impl Serialize, pipe: OwnedFd) -> std::io::Result<()> {
    File::from(pipe).write_all(&serde_json::to_vec(plan)?)
}

/// The plan that was [sent](send).
pub fn receive<P: DeserializeOwned>(pipe: OwnedFd) -> std::io::Result<P> {
    let mut bytes = Vec::new();
    File::from(pipe).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// An empty file in memory, gone with its last descriptor.
pub fn memory_file(name: &str) -> std::io::Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC)?.into())
}

/// All that is in `file`, from its beginning.
pub fn read_all(mut file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
