//! Convolutions by cuDNN: its graph interface, with one operation per graph. What cuDNN proposes for a problem is
//! asked once and kept; workspaces come from the caching allocator, on the convolution's stream.

mod descriptor;
mod plan;
mod table;

use std::collections::HashMap;
use std::ffi::c_int;
use std::io::Write;
use std::sync::{Arc, LazyLock, Once};

use parking_lot::RwLock;

use super::device;
use super::event::{Event, EventOptions};
use super::graph::Relaxed;
use super::memory::Block;
use super::quick_hash::QuickHash;
use super::stream::Stream;
use crate::error::{Error, Result};
use descriptor::{Address, Descriptor, Kind as Type};
use plan::{ALL, NAMES, Plan, Target, plans};
use table::{handle, table};

pub use plan::Wishes;
pub use table::USE_CUDNN;

/// Plans that are timed where the fastest is wanted.
const CANDIDATES: usize = 8;
/// Rounds in which they are timed; the least time counts.
const ROUNDS: usize = 3;

/// Types of elements. Sums are f32, of f64 f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// f32.
    F32,
    /// f64.
    F64,
    /// f16.
    F16,
    /// bf16.
    BF16,
}

/// Which of a convolution's three products is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// y of x and w.
    Forward,
    /// dx of dy and w.
    Data,
    /// dw of dy and x.
    Filters,
}

/// How a tensor lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lie {
    /// Its sizes, as many as the problem has dimensions: batch and channels first.
    pub sizes: [i64; 5],
    /// Their strides in elements.
    pub strides: [i64; 5],
    /// The power of two to which its address is aligned, in bytes.
    pub alignment: i64,
}

/// All that the choice of a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// What is computed.
    pub direction: Direction,
    /// Type of all elements.
    pub kind: Kind,
    /// Batch, channels and two or three others.
    pub dims: usize,
    /// The input, or its gradient.
    pub x: Lie,
    /// The filters, or their gradient. They have x's channels divided by the number of groups.
    pub w: Lie,
    /// The output, or its gradient.
    pub y: Lie,
    /// Zeros on both sides.
    pub padding: [i64; 3],
    /// Distance between what neighbouring outputs read.
    pub stride: [i64; 3],
    /// Distance of taps.
    pub dilation: [i64; 3],
}

type Key = (usize, Problem, Wishes, bool);
/// None for what cuDNN does not compute.
type Plans = HashMap<Key, Option<Arc<Plan>>, QuickHash>;
static PLANS: LazyLock<RwLock<Plans>> = LazyLock::new(RwLock::default);

/// Whether there is a cuDNN to use.
pub fn is_available() -> bool {
    table().is_ok()
}

/// Starts a convolution on a stream with the tensors' addresses, x's, w's and y's; false where cuDNN does not
/// compute such, or fails whatever it is asked, which is said once. `fastest` times several plans at a problem's
/// first call, unless the stream is captured.
///
/// # Errors
/// [`Error::Device`] where the device refuses.
///
/// # Safety
/// The addresses are of tensors that lie as the problem says, in memory of the stream's device that is valid until
/// the stream has done this work; the result overlaps no operand.
pub unsafe fn convolution(
    problem: &Problem,
    wishes: &Wishes,
    fastest: bool,
    at: [*mut u8; 3],
    stream: Stream,
) -> Result<bool> {
    let device = stream.device();
    device::bind(device)?;
    // cuDNN may load code at a first call, which a capture forbids otherwise.
    let _relaxed = Relaxed::new()?;
    let fastest = fastest && !stream.is_capturing()?;
    let key = (device, *problem, *wishes, fastest);
    // SAFETY: the caller's promise.
    let plan = unsafe { planned(&key, at, stream) };
    let Some(plan) = plan else { return Ok(false) };
    // SAFETY: the caller's promise.
    let Err(error) = (unsafe { run(&plan, at, stream) }) else { return Ok(true) };
    // SAFETY: the caller's promise.
    let done = unsafe { run_another(&key, &plan, &error, at, stream) };
    if !done {
        say(problem, &error);
    }
    Ok(done)
}

/// Whether cuDNN's own choice for a problem uses tensor cores, if it computes such.
///
/// # Errors
/// [`Error::Device`] where the device refuses.
pub fn uses_tensor_cores(problem: &Problem, wishes: &Wishes, stream: Stream) -> Result<bool> {
    let device = stream.device();
    device::bind(device)?;
    let _relaxed = Relaxed::new()?;
    let key = (device, *problem, *wishes, false);
    // SAFETY: without a choice by time nothing is started, and no address read.
    let plan = unsafe { planned(&key, [std::ptr::null_mut(); 3], stream) };
    Ok(plan.is_some_and(|plan| plan.uses_tensor_cores()))
}

/// The plan of a problem: what was found before, or else is now.
///
/// # Safety
/// As for [`convolution`], unless the key says that plans are not timed.
unsafe fn planned(key: &Key, at: [*mut u8; 3], stream: Stream) -> Option<Arc<Plan>> {
    let found = PLANS.read().get(key).cloned();
    found.unwrap_or_else(|| {
        // SAFETY: the caller's promise.
        let plan = unsafe { choose(key, at, stream) }.unwrap_or_else(|error| {
            say(&key.1, &error);
            None
        });
        PLANS.write().entry(*key).or_insert(plan.map(Arc::new)).clone()
    })
}

/// After a plan failed: starts the first other one that does not, and keeps it for the problem; false where there is
/// none. Plans with less workspace are looked for where memory was lacking.
///
/// # Safety
/// As for [`convolution`].
unsafe fn run_another(
    key: &Key,
    failed: &Plan,
    error: &Error,
    at: [*mut u8; 3],
    stream: Stream,
) -> bool {
    let (device, problem, wishes, _) = key;
    let is_short = matches!(error, Error::OutOfMemory(_));
    let workspace = if is_short { failed.workspace.saturating_sub(1) } else { wishes.workspace };
    let wishes = Wishes { workspace, ..*wishes };
    let others =
        handle(*device).and_then(|handle| plans(problem, &Target::Handle(*handle), &wishes, ALL));
    for plan in others.unwrap_or_default() {
        // SAFETY: the caller's promise; a plan that failed has started nothing.
        if unsafe { run(&plan, at, stream) }.is_ok() {
            PLANS.write().insert(*key, Some(Arc::new(plan)));
            return true;
        }
    }
    if !is_short {
        PLANS.write().insert(*key, None);
    }
    false
}

/// Says on standard error that cuDNN fails on a problem, the first time that it does on any.
fn say(problem: &Problem, error: &Error) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let text = "torchrs: cuDNN fails, our own kernels go on";
        // Nobody may be listening.
        _ = writeln!(std::io::stderr(), "{text}: {error}; {problem:?}");
    });
}

/// The plan for a problem, if cuDNN computes it.
///
/// # Safety
/// As for [`convolution`].
unsafe fn choose(
    (device, problem, wishes, fastest): &Key,
    at: [*mut u8; 3],
    stream: Stream,
) -> Result<Option<Plan>> {
    let most = if *fastest { CANDIDATES } else { 1 };
    let plans = {
        let handle = handle(*device)?;
        plans(problem, &Target::Handle(*handle), wishes, most)?
    };
    if plans.len() < 2 {
        return Ok(plans.into_iter().next());
    }
    let mut least = vec![f32::INFINITY; plans.len()];
    for _ in 0..ROUNDS {
        for (plan, least) in plans.iter().zip(&mut least) {
            // SAFETY: the caller's promise; a plan does not read what it writes.
            *least = least.min(unsafe { time(plan, at, stream) }?);
        }
    }
    let timed = plans.into_iter().zip(least);
    Ok(timed.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(plan, _)| plan))
}

/// The milliseconds that a plan takes; infinitely many where it fails.
///
/// # Safety
/// As for [`convolution`].
unsafe fn time(plan: &Plan, at: [*mut u8; 3], stream: Stream) -> Result<f32> {
    let event = || Event::new(stream.device(), EventOptions { timing: true, ..Default::default() });
    let (start, end) = (event()?, event()?);
    start.record(stream)?;
    // SAFETY: the caller's promise.
    if unsafe { run(plan, at, stream) }.is_err() {
        return Ok(f32::INFINITY);
    }
    end.record(stream)?;
    end.synchronize()?;
    start.elapsed_ms(&end)
}

/// Starts a plan's work.
///
/// # Safety
/// As for [`convolution`].
unsafe fn run(plan: &Plan, at: [*mut u8; 3], stream: Stream) -> Result<()> {
    let workspace = Block::on(plan.workspace, stream)?;
    let pack = Descriptor::new(Type::Pack)?;
    pack.set(1000, &NAMES)?;
    pack.set(1001, &at.map(Address))?;
    pack.set(1003, &[Address(workspace.as_ptr())])?;
    let pack = pack.finish()?;
    let (table, handle) = (table()?, handle(stream.device())?);
    // SAFETY: objects of this library; nobody else has the handle meanwhile; the caller answers for the addresses,
    // and the workspace goes back to its own stream's pool.
    unsafe {
        table.cudnnSetStream(*handle, stream.handle())?;
        table.cudnnBackendExecute(*handle, plan.descriptor.object, pack.object)
    }
}

/// What cuDNN would do on a device that need not be there.
#[derive(Clone, Copy, Debug)]
pub struct Proposal {
    /// Bytes of workspace.
    pub workspace: usize,
    /// Whether tensor cores are used.
    pub tensor_cores: bool,
    /// cuDNN's number of the engine, among those for the direction.
    pub engine: i64,
}

/// The plan that cuDNN proposes for a problem on a device of these properties, in the form in which cuDNN writes them
/// (`CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`); none where it does not compute such. No GPU is needed.
///
/// # Errors
/// [`Error::Device`] where cuDNN refuses the properties or the problem.
pub fn propose(problem: &Problem, wishes: &Wishes, properties: &str) -> Result<Option<Proposal>> {
    const JSON: c_int = 2702;
    let device = Descriptor::new(Type::Properties)?;
    device.set(JSON, properties.as_bytes())?;
    let device = device.finish()?;
    let found = plans(problem, &Target::Properties(&device), wishes, 1)?;
    let Some(plan) = found.first() else { return Ok(None) };
    let (workspace, tensor_cores) = (plan.workspace, plan.uses_tensor_cores());
    Ok(Some(Proposal { workspace, tensor_cores, engine: plan.engine()? }))
}
