//! Where a run's files go, and which checkpoint it goes on from. Rank 0 looks; the others are told,
//! so that all agree even on folders that appear meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use torchrs::checkpoint::CheckpointDir;
use torchrs::distributed::{ProcessGroup, WorkerEnv};
use torchrs::error::Context;
use torchrs::{Error, Result};

use crate::args::Args;

/// How many checkpoints a run keeps.
const KEEP: usize = 2;
const RUNS: &str = "runs";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunDir {
    pub path: PathBuf,
    /// Step of the checkpoint to go on from.
    pub resume: Option<u64>,
}

impl RunDir {
    /// Rank 0's choice, on all ranks.
    pub fn agree(args: &Args, group: &ProcessGroup) -> Result<Self> {
        let model = &format!("{:?}", args.model()).to_lowercase();
        let mine: std::result::Result<RunDir, String> = match group.rank() {
            0 => Self::choose(args, model).map_err(|e| e.to_string()),
            _ => Err(String::new()),
        };
        let bytes = serde_json::to_vec(&mine).expect("plain data");
        let chosen = group.broadcast_bytes(&bytes, 0)?;
        let chosen: std::result::Result<RunDir, String> = serde_json::from_slice(&chosen)
            .map_err(|e| Error::Other(format!("run folder from rank 0: {e}")))?;
        chosen.map_err(Error::Other)
    }

    fn choose(args: &Args, model: &str) -> Result<Self> {
        // Workers that the launcher starts again go on by themselves.
        let restarted = WorkerEnv::from_env()?.round > 0;
        let resume = args.resume || (restarted && args.run_dir.is_some());
        let prefix = format!("{}-{model}-", args.data().name());
        let path = match &args.run_dir {
            Some(path) => path.clone(),
            None if args.resume => match numbered(&prefix).last() {
                Some(&number) => run(&prefix, number),
                None => {
                    let message = format!(
                        "no run named {prefix}* under {RUNS}/ to go on with; name one with --run-dir"
                    );
                    return Err(Error::config("--resume", message));
                }
            },
            None => run(&prefix, numbered(&prefix).last().map_or(1, |n| n + 1)),
        };
        let latest = CheckpointDir::new(path.join("checkpoints"), KEEP).latest()?;
        if let Some((step, folder)) = &latest
            && !resume
        {
            let message = format!(
                "{} holds a run with a checkpoint at step {step} ({}); pass --resume to go on with it, or another folder",
                path.display(),
                folder.display()
            );
            return Err(Error::config("--run-dir", message));
        }
        if args.resume && latest.is_none() {
            return Err(Error::config(
                "--resume",
                format!("{} holds no checkpoint", path.display()),
            ));
        }
        fs::create_dir_all(&path)
            .context(|| format!("create the run folder {}", path.display()))?;
        Ok(RunDir { path, resume: latest.map(|(step, _)| step) })
    }

    pub fn checkpoints(&self) -> CheckpointDir {
        CheckpointDir::new(self.path.join("checkpoints"), KEEP)
    }
}

fn run(prefix: &str, number: u32) -> PathBuf {
    Path::new(RUNS).join(format!("{prefix}{number:03}"))
}

/// The numbers of the runs of that name, ascending.
fn numbered(prefix: &str) -> Vec<u32> {
    let entries = fs::read_dir(RUNS).into_iter().flatten().flatten();
    let number = |e: fs::DirEntry| e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}
