//! One thread per process that looks after groups over several hosts while nobody calls: a failure on this host is
//! told to the others, and theirs is known here, before the next call.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::HostsBackend;
use crate::distributed::Deadline;
use crate::error::{Context, Result};

/// How often it looks at connections.
const LOOK: Duration = Duration::from_millis(50);
/// How often it compares notes, while there are any.
const COMPARE: Duration = Duration::from_millis(2);

/// The groups; the thread is there while there are any.
static WATCHED: Mutex<Watched> = Mutex::new(Watched { groups: Vec::new(), is_running: false });

/// Whether there may be notes to compare.
static IS_WOKEN: AtomicBool = AtomicBool::new(false);
static WOKEN: Condvar = Condvar::new();

struct Watched {
    groups: Vec<Weak<HostsBackend>>,
    is_running: bool,
}

/// Looks after a group from now on.
pub(super) fn add(group: &Arc<HostsBackend>) -> Result<()> {
    let mut watched = WATCHED.lock();
    watched.groups.push(Arc::downgrade(group));
    if !watched.is_running {
        let thread = std::thread::Builder::new().name("torchrs-hosts".into());
        thread.spawn(run).context(|| "start the thread that watches over other hosts")?;
        watched.is_running = true;
    }
    Ok(())
}

/// Says that there is a note to be told.
pub(super) fn wake() {
    if !IS_WOKEN.swap(true, SeqCst) {
        let _watched = WATCHED.lock();
        WOKEN.notify_one();
    }
}

fn run() {
    let mut looked = Instant::now();
    loop {
        if IS_WOKEN.load(SeqCst) {
            std::thread::sleep(COMPARE);
        } else {
            let mut watched = WATCHED.lock();
            // Whoever wakes it holds the lock.
            if !IS_WOKEN.load(SeqCst) {
                WOKEN.wait_for(&mut watched, LOOK.saturating_sub(looked.elapsed()));
            }
        }
        let groups: Vec<_> = {
            let mut watched = WATCHED.lock();
            watched.groups.retain(|group| group.strong_count() > 0);
            watched.is_running = !watched.groups.is_empty();
            if !watched.is_running {
                return;
            }
            watched.groups.iter().filter_map(Weak::upgrade).collect()
        };
        IS_WOKEN.store(false, SeqCst);
        let is_busy = groups.iter().fold(false, |busy, group| group.compare_notes() | busy);
        if is_busy {
            IS_WOKEN.store(true, SeqCst);
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            groups.iter().for_each(|group| group.look());
        }
    }
}

impl HostsBackend {
    /// Whether all is well, between calls.
    fn look(&self) {
        if self.local.has_failed() {
            return self.tell();
        }
        // A call under way looks itself.
        let Some(mut rail) = self.rail.try_lock() else { return };
        let Some(engine) = rail.as_mut() else { return };
        let Err(failure) = engine.check() else { return };
        drop(rail);
        let doing = || format!("rank {} was in no collective", self.me());
        let error = self.explain(failure, &Deadline::after(LOOK), doing, None);
        let _ = self.settle::<()>(Err(error));
    }
}
