//! A job at one moment: what the page, `/metrics` and `torchrs top` show.

use serde::{Deserialize, Serialize};

use super::event::Told;
use super::numbers::Number;

/// A job at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub job: JobLine,
    pub hosts: Vec<HostLine>,
    /// By rank.
    pub ranks: Vec<RankLine>,
    /// What the lowest rank that logs has logged.
    pub scalars: Vec<ScalarLine>,
    pub speed: Speed,
    pub time: Option<TimeShares>,
    pub checkpoint: Option<CheckpointLine>,
    /// Oldest first.
    pub events: Vec<Told>,
}

/// How a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// No workers run yet, or not yet again.
    #[default]
    Starting,
    Running,
    /// It was asked to end.
    Stopping,
    /// A worker has failed.
    Failing,
    Ended,
}

/// A job as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobLine {
    pub run_id: String,
    pub job_id: String,
    pub program: String,
    pub arguments: Vec<String>,
    /// The launcher's process, and the host that says all this.
    pub pid: i32,
    pub host: String,
    /// Who leads a job over several hosts, as far as it is known.
    pub leader: Option<String>,
    pub started_ms: u64,
    pub state: JobState,
    pub exit_code: Option<i32>,
    pub attempt: u32,
    pub restarts: u32,
    pub max_restarts: u32,
    pub world_size: usize,
    pub hosts: usize,
    /// What stands in for GPUs, if something does.
    pub simulated_gpus: Option<u32>,
    /// Whether a worker handles SIGUSR1, which asks it to save and end.
    pub can_save: bool,
    pub version: String,
}

/// A host of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLine {
    pub name: String,
    pub first_rank: usize,
    pub ranks: usize,
    pub cores: usize,
    /// Of one minute.
    pub load: f64,
    /// Bytes.
    pub memory_total: u64,
    pub memory_used: u64,
    /// Seconds since it was heard of.
    pub silent_s: f64,
}

/// How a rank is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    /// Its process runs, and has not taken its slot of the board: a script, or a program that has just begun.
    #[default]
    Started,
    Running,
    /// It has ended with 0.
    Done,
    Failed,
}

/// A rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankLine {
    pub rank: usize,
    pub local_rank: usize,
    /// The place of its host in the list.
    pub host: usize,
    pub pid: i32,
    pub state: RankState,
    /// How it ended.
    pub how: String,
    /// The step that it has logged last, or else the steps of its optimizers.
    pub step: u64,
    /// Steps a second.
    pub steps_per_s: f64,
    pub samples_per_s: f64,
    pub tokens_per_s: f64,
    pub flops_per_s: f64,
    /// Of its device; 0 where the program does not say.
    pub peak_flops: f64,
    /// What its training thread is at, and for how many seconds, where that is not its own computing.
    pub doing: String,
    pub doing_s: f64,
    /// `CPU`, or `cuda:0 NVIDIA H200`; empty before it is known.
    pub device: String,
    /// Cores that it keeps busy.
    pub cpu: f64,
    /// Bytes of the process; of tensors on the host, and the most that were noted; of tensors on the device, and the most.
    pub resident: u64,
    pub host_tensors: u64,
    pub host_peak: u64,
    pub device_tensors: u64,
    pub device_peak: u64,
    /// The share of its GPU's time in which a kernel ran, of whichever process; and all that GPU's memory, used and there.
    pub gpu_busy: Option<f64>,
    pub gpu_used: u64,
    pub gpu_total: u64,
    /// Shares of its time since the last look.
    pub time: Option<TimeShares>,
    /// The share of its time in which it has waited for other ranks.
    pub waited: f64,
    /// Others wait for it.
    pub slow: bool,
}

/// A number that the program has logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalarLine {
    pub name: String,
    pub value: Number,
    pub step: u64,
}

/// How fast the job is, all ranks together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speed {
    pub step: u64,
    pub steps_per_s: f64,
    /// Nothing where the program does not count them with `Throughput`.
    pub samples_per_s: Option<f64>,
    pub tokens_per_s: Option<f64>,
    pub flops_per_s: Option<f64>,
    /// The share of what the devices can do.
    pub mfu: Option<f64>,
}

/// Where the time of a training thread goes: shares of 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeShares {
    pub compute: f64,
    pub data: f64,
    pub communication: f64,
    pub optimizer: f64,
    pub checkpoint: f64,
}

impl TimeShares {
    /// With their names, in the order in which they are shown.
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("compute", self.compute),
            ("data", self.data),
            ("communication", self.communication),
            ("optimizer", self.optimizer),
            ("checkpoint", self.checkpoint),
        ]
    }
}

/// The last checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CheckpointLine {
    pub step: u64,
    /// CLOCK_MONOTONIC of its host, by which it is told from another of the same step.
    pub at_ns: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub seconds: f64,
}
