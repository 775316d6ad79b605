//! One thread per process that looks after collectives on their way on GPUs, as nobody else does: the
//! host has gone on. It sleeps while there are none.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::lane;
use crate::cuda::graph;
use crate::error::{Context, Result};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(2);

/// Whether something was started since it last looked.
static IS_WOKEN: Mutex<bool> = Mutex::new(false);
static WOKEN: Condvar = Condvar::new();

/// Makes sure that there is one.
pub(super) fn start() -> Result<()> {
    static RUNNING: OnceLock<Result<()>> = OnceLock::new();
    RUNNING
        .get_or_init(|| {
            std::thread::Builder::new()
                .name("torchrs-nccl".into())
                .spawn(run)
                .map(drop)
                .context(|| "start the thread that looks after NCCL")
        })
        .clone()
}

/// Says that there is something on its way.
pub(super) fn wake() {
    let mut woken = IS_WOKEN.lock();
    if !*woken {
        *woken = true;
        drop(woken);
        WOKEN.notify_one();
    }
}

fn run() {
    // The looks must not spoil another thread's capture.
    graph::relax_thread();
    loop {
        {
            let mut woken = IS_WOKEN.lock();
            while !*woken {
                WOKEN.wait(&mut woken);
            }
            *woken = false;
        }
        let busy = lane::look_at_all();
        std::thread::sleep(INTERVAL);
        *IS_WOKEN.lock() |= busy;
    }
}
