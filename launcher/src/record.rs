//! Stand-in for `torchrs::multiprocessing::report` until that is on main.

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Panic,
    #[default]
    Error,
    PeerDied,
    Aborted,
}

impl Kind {
    pub fn is_consequence(self) -> bool {
        matches!(self, Kind::PeerDied | Kind::Aborted)
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct ErrorRecord {
    pub message: MessageBody,
    #[serde(default)]
    pub kind: Kind,
    #[serde(default)]
    pub monotonic_ns: u64,
    #[serde(default)]
    pub thread: String,
    #[serde(default)]
    pub caused_by_rank: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct MessageBody {
    pub message: String,
    #[serde(rename = "extraInfo")]
    pub extra_info: ExtraInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ExtraInfo {
    pub py_callstack: String,
}

impl ErrorRecord {
    pub fn text(&self) -> &str {
        &self.message.message
    }
    pub fn backtrace(&self) -> &str {
        &self.message.extra_info.py_callstack
    }
}
