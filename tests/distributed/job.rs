//! A job whose ranks are children of a test: where they meet, and how one joins.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use torchrs::distributed::{self, ProcessGroup};

/// A job's place to meet: each test has its own.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    pub world: usize,
    port: u32,
    pub out: PathBuf,
}

impl Job {
    /// A job of `world` ranks that write into the folder `out`.
    pub fn new(world: usize, out: PathBuf) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let port = 1 + (std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed)) % 65_000;
        Job { world, port, out }
    }

    /// In the child: joins as `rank`.
    pub fn join(&self, rank: usize) -> ProcessGroup {
        let vars = [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("WORLD_SIZE", self.world.to_string()),
            ("LOCAL_WORLD_SIZE", self.world.to_string()),
            ("MASTER_ADDR", "127.0.0.1".into()),
            ("MASTER_PORT", self.port.to_string()),
        ];
        for (name, value) in vars {
            // SAFETY: the child has just started; no other thread reads the environment.
            unsafe { std::env::set_var(name, value) };
        }
        distributed::init_process_group(Default::default()).expect("all ranks join")
    }
}
