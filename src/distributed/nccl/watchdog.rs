//! One thread per process that looks after collectives on their way on GPUs, as nobody else does: the
//! host has gone on. It sleeps while there are none.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::link::Link;
use crate::cuda::graph::Relaxed;
use crate::error::{Context, Result};

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(2);

/// What it looks after.
struct State {
    links: Vec<Weak<Link>>,
    /// Something was started since it last looked.
    woken: bool,
}

static STATE: Mutex<State> = Mutex::new(State { links: Vec::new(), woken: false });
static WOKEN: Condvar = Condvar::new();

/// Looks after `link` from now on, as long as it lives.
pub(super) fn watch(link: &Arc<Link>) -> Result<()> {
    static RUNNING: OnceLock<Result<()>> = OnceLock::new();
    RUNNING
        .get_or_init(|| {
            std::thread::Builder::new()
                .name("torchrs-nccl".into())
                .spawn(run)
                .map(drop)
                .context(|| "start the thread that looks after NCCL")
        })
        .clone()?;
    let mut state = STATE.lock();
    state.links.retain(|link| link.strong_count() > 0);
    state.links.push(Arc::downgrade(link));
    Ok(())
}

/// Says that there is something on its way.
pub(super) fn wake() {
    let mut state = STATE.lock();
    if !state.woken {
        state.woken = true;
        drop(state);
        WOKEN.notify_one();
    }
}

fn run() {
    loop {
        let links: Vec<Arc<Link>> = {
            let mut state = STATE.lock();
            while !state.woken {
                WOKEN.wait(&mut state);
            }
            state.woken = false;
            state.links.iter().filter_map(Weak::upgrade).collect()
        };
        // The looks must not spoil another thread's capture.
        let relaxed = Relaxed::new();
        let busy = links.iter().filter(|link| link.look()).count();
        drop(relaxed);
        drop(links);
        std::thread::sleep(INTERVAL);
        STATE.lock().woken |= busy > 0;
    }
}
