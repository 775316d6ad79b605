//! A graph as the driver starts it, which may be ended by others than its owner.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::Mutex;
use torchrs_error::{Error, Result};

use crate::driver::{GraphExecHandle, Relaxed, driver};
use crate::work::stream::Stream;
use crate::work::traffic;

/// What the driver launches; may be ended while its graph lives.
#[doc(hidden)]
#[derive(Debug)]
pub struct Executable {
    exec: Mutex<Option<GraphExecHandle>>,
    is_over: AtomicBool,
}

impl Executable {
    pub(crate) fn new(exec: GraphExecHandle) -> Executable {
        Executable { exec: Mutex::new(Some(exec)), is_over: AtomicBool::new(false) }
    }

    pub(crate) fn launch(&self, stream: Stream) -> Result<()> {
        if traffic::is_counted() {
            // What is in it was counted when it was captured.
            traffic::moved("cuGraphLaunch", 0);
        }
        let launched = match (*self.exec.lock(), self.is_over.load(SeqCst)) {
            // SAFETY: a program that lives, by the lock.
            (Some(exec), false) => unsafe { driver()?.cuGraphLaunch(exec, stream.handle()) },
            _ => Err(Error::Device("the graph has ended with its process group".into())),
        };
        if self.is_over.load(SeqCst) {
            self.end();
        }
        launched
    }

    /// Lets it be started no more; a replay under way is completed. Never waits: a launch under way, which may
    /// take as long as the device is stuck, does the rest.
    pub fn end(&self) {
        self.is_over.store(true, SeqCst);
        let exec = self.exec.try_lock().and_then(|mut exec| exec.take());
        let _relaxed = Relaxed::new();
        if let (Some(exec), Ok(driver)) = (exec, driver()) {
            // SAFETY: a graph that nobody starts any more; a replay under way is completed.
            let _ = unsafe { (driver.cuGraphExecDestroy)(exec) };
        }
    }
}
