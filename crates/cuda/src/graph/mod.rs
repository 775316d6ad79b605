//! Graphs: a stream's work is recorded once and then started as a whole, again and again, at the
//! cost of one launch.
//!
//! What is allocated during the capture comes from a private pool that belongs to the graph, since
//! a replay writes to the same addresses again. Nothing may wait for the device during a capture.

use std::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed as Order};

use parking_lot::Mutex;
use torchrs_error::{Error, Result};

pub use crate::driver::CaptureMode;
#[doc(hidden)]
pub use crate::driver::relax_thread;
#[doc(hidden)]
pub use crate::work::executable::Executable;
#[doc(hidden)]
pub use crate::work::recording::{Participant, take_part};
#[doc(hidden)]
pub use crate::work::stream::refuse;

use crate::device;
use crate::driver::{GraphExecHandle, GraphHandle, Relaxed, driver};
use crate::memory;
use crate::memory::allocator::PoolId;
use crate::work::recording::{self, Needs};
use crate::work::stream::{Stream, StreamGuard};

/// Whether what this thread puts on its current stream of a device is recorded into a graph rather than
/// done (`torch.cuda.is_current_stream_capturing`).
///
/// # Errors
/// [`Error::Device`] where the driver refuses.
#[inline]
pub fn is_current_stream_capturing(device: usize) -> Result<bool> {
    Stream::current(device)?.is_capturing()
}

/// How many graphs were recorded in this process.
static RECORDED: AtomicU64 = AtomicU64::new(0);

/// The device and the number of each graph that lives.
static ALIVE: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

/// How many graphs were recorded so far: what is allocated now is known to later ones only.
#[doc(hidden)]
#[inline]
pub fn recorded() -> u64 {
    RECORDED.load(Order)
}

/// Whether a graph lives that was recorded on a device when there were `count` graphs, or later.
#[doc(hidden)]
pub fn is_alive_since(device: usize, count: u64) -> bool {
    ALIVE.lock().iter().any(|&(on, number)| on == device && number >= count)
}

/// A graph's place among those that live.
#[derive(Debug)]
struct Alive {
    number: u64,
}

impl Alive {
    fn new(device: usize) -> Alive {
        let number = RECORDED.fetch_add(1, Order);
        ALIVE.lock().push((device, number));
        Alive { number }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.lock().retain(|&(_, number)| number != self.number);
    }
}

/// How to capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureOptions {
    /// What other threads may do meanwhile.
    pub mode: CaptureMode,
    /// Shares the pool of another graph: the two are replayed one after the other, in the order
    /// of their captures.
    pub pool: Option<PoolId>,
}

/// Recorded work, ready to be started.
#[derive(Debug)]
pub struct Graph {
    executable: Arc<Executable>,
    needs: Needs,
    pool: Pool,
    _alive: Alive,
}

/// A graph's share in a private pool.
#[derive(Debug)]
struct Pool {
    device: usize,
    id: PoolId,
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Ok(allocator) = memory::allocator(self.device) {
            allocator.release_pool(self.id);
        }
    }
}

/// A capture under way; ends it also where the recorded function fails or panics.
struct Capture {
    stream: Stream,
    is_over: bool,
}

impl Capture {
    fn begin(stream: Stream, mode: CaptureMode, pool: PoolId) -> Result<Capture> {
        device::bind(stream.device())?;
        let (driver, allocator) = (driver()?, memory::allocator(stream.device())?);
        allocator.begin_capture(pool)?;
        let begun = recording::begin(stream.device(), || {
            // SAFETY: a stream that lives until the process ends.
            unsafe { driver.cuStreamBeginCapture_v2(stream.handle(), mode as c_uint) }
        });
        if let Err(error) = begun {
            let _ = allocator.end_capture();
            return Err(error);
        }
        Ok(Capture { stream, is_over: false })
    }

    /// Ends the recording and gives what was recorded.
    fn end(&mut self) -> Result<(Captured, Needs)> {
        self.is_over = true;
        let device = self.stream.device();
        let mut graph = GraphHandle::default();
        let ended = device::bind(device).and_then(|()| {
            // SAFETY: the stream is being captured; writes one handle.
            unsafe { driver()?.cuStreamEndCapture(self.stream.handle(), &mut graph) }
        });
        let needs = recording::end(device);
        let allowed = memory::allocator(device)?.end_capture();
        ended?;
        let captured = Captured(graph);
        allowed.map(|()| (captured, needs))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.is_over {
            // What was recorded is of no use, and neither is the reason why it could not end.
            let _ = self.end();
        }
    }
}

/// A captured graph that is destroyed when it has been made ready, or not.
struct Captured(GraphHandle);

impl Drop for Captured {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            // SAFETY: a graph that nobody uses any more.
            let _ = unsafe { (driver.cuGraphDestroy)(self.0) };
        }
    }
}

impl Graph {
    /// Records what `work` does on a stream, which is the thread's current one meanwhile. Nothing
    /// is done: `work`'s results are there after the first replay.
    ///
    /// # Errors
    /// What `work` returns; [`Error::Device`] where something in it cannot be
    /// recorded, or another capture is under way on the device.
    pub fn capture<T>(
        stream: Stream,
        options: CaptureOptions,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(Graph, T)> {
        let device = stream.device();
        let allocator = memory::allocator(device)?;
        let id = match options.pool {
            Some(id) => allocator.retain_pool(id).map(|()| id)?,
            None => allocator.create_pool(),
        };
        let pool = Pool { device, id };
        let ((captured, needs), result) = {
            let mut capture = Capture::begin(stream, options.mode, id)?;
            let _current = StreamGuard::new(stream)?;
            let result = work()?;
            (capture.end()?, result)
        };
        let mut exec = GraphExecHandle::default();
        let _relaxed = Relaxed::new()?;
        // SAFETY: a captured graph; writes one handle.
        unsafe { driver()?.cuGraphInstantiateWithFlags(&mut exec, captured.0, 0) }?;
        let executable = Arc::new(Executable::new(exec));
        needs.participants.iter().for_each(|one| one.recorded(&executable));
        Ok((Graph { executable, needs, pool, _alive: Alive::new(device) }, result))
    }

    /// Starts the recorded work on a stream of the same device. With recorded collectives it comes after all
    /// collectives that were started before.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses; why the process group of a recorded collective has failed.
    pub fn replay(&self, stream: Stream) -> Result<()> {
        if stream.device() != self.pool.device {
            return Err(Error::Device(format!(
                "Graph::replay: the graph is of cuda:{} and the stream of cuda:{}",
                self.pool.device,
                stream.device()
            )));
        }
        device::bind(self.pool.device)?;
        self.needs.blocks.iter().for_each(|block| block.is_read_on(stream));
        replay(&self.needs.participants, &self.executable, stream)
    }

    /// The pool of its memory, to be shared with further graphs.
    pub fn pool(&self) -> PoolId {
        self.pool.id
    }

    /// The device's index.
    pub fn device(&self) -> usize {
        self.pool.device
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // Before its participants go: a communicator outlives the graphs of its calls.
        self.executable.end();
    }
}

/// Each participant puts the rest on the stream.
fn replay(rest: &[Box<dyn Participant>], executable: &Executable, stream: Stream) -> Result<()> {
    match rest {
        [first, rest @ ..] => first.replay(stream, &mut || replay(rest, executable, stream)),
        [] => executable.launch(stream),
    }
}

#[cfg(test)]
mod tests;
