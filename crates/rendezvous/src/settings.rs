//! What a job's hosts have agreed on before they meet.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What happens when a host comes while the job runs and has room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScaleUp {
    /// The workers are stopped, and the next round has it.
    #[default]
    Now,
    /// It takes part from the next round on that the program asks for.
    AtCheckpoint,
    /// It is a spare.
    Never,
}

/// As an option's value.
impl fmt::Display for ScaleUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScaleUp::Now => "now",
            ScaleUp::AtCheckpoint => "at-checkpoint",
            ScaleUp::Never => "never",
        })
    }
}

/// The same on all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Names the job.
    pub job: String,
    /// The fewest hosts, and the most. Where the fewest are more than half of the most, not even a launcher that begins
    /// again and reaches nobody can begin the job a second time.
    pub hosts: (u32, u32),
    /// How often a failure, or a lost host, is followed by another round.
    pub max_restarts: u32,
    /// When a host that comes late takes part.
    pub scale_up: ScaleUp,
    /// How long a first round waits for more hosts once there are enough.
    pub last_call: Duration,
    /// How long a round waits for enough of them.
    pub join_timeout: Duration,
    /// A host that is silent for so long is lost.
    pub lost_after: Duration,
    /// Whether a lock in a shared folder says which of two halves goes on, and not who led them.
    pub lock: bool,
}

impl Settings {
    /// How often a host says that it is there.
    pub fn alive_every(&self) -> Duration {
        self.lost_after / 20
    }

    /// A host that has not heard its leader for so long ends its workers: before anyone takes it for lost.
    pub fn fence_after(&self) -> Duration {
        self.lost_after * 4 / 5
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            job: "none".into(),
            hosts: (1, 1),
            max_restarts: 0,
            scale_up: ScaleUp::Now,
            last_call: Duration::from_secs(30),
            join_timeout: Duration::from_secs(600),
            lost_after: Duration::from_secs(5),
            lock: false,
        }
    }
}
