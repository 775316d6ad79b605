//! Convolutions by cuDNN.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;

use super::descriptor::{Address, Descriptor, Handle, Kind as Type, Mode, Note, Number, Value};
use super::plan::{DOWN_CONVERTS, NONDETERMINISTIC, Parts, Plan, TENSOR_CORES, Target, plans};
use super::table::{Object, handle};
use super::{Kind, Lie, Proposal, device_of, run};
use crate::cuda::device;
use crate::cuda::event::{Event, EventOptions};
use crate::cuda::graph::Relaxed;
use crate::cuda::stream::Stream;
use crate::error::Result;

/// Names of the tensors in the plan: x, w, y.
const NAMES: [i64; 3] = [1, 2, 3];
/// Plans that are timed where the fastest is wanted.
const CANDIDATES: usize = 8;
/// Rounds in which they are timed; the least time counts.
const ROUNDS: usize = 3;

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

/// What is asked of a plan beside the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wishes {
    /// f32 may be rounded to tf32 (10 bits after the point) before it is multiplied.
    pub tf32: bool,
    /// The same sums in the same order at each call.
    pub deterministic: bool,
    /// The most workspace in bytes.
    pub workspace: usize,
}

type Key = (usize, Problem, Wishes, bool);
/// None for what cuDNN does not compute.
type Plans = HashMap<Key, Option<Arc<Plan>>>;
static PLANS: LazyLock<RwLock<Plans>> = LazyLock::new(RwLock::default);

/// Starts a convolution on a stream with the tensors' addresses, x's, w's and y's; false where cuDNN does not
/// compute such. `fastest` times several plans at a problem's first call, unless the stream is captured.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) where cuDNN refuses, [`Error::OutOfMemory`](crate::Error::OutOfMemory)
/// for its workspace.
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
    let found = PLANS.read().get(&key).cloned();
    let plan = match found {
        Some(plan) => plan,
        None => {
            // SAFETY: the caller's promise.
            let plan = unsafe { choose(&key, at, stream) }?.map(Arc::new);
            PLANS.write().entry(key).or_insert(plan).clone()
        }
    };
    let Some(plan) = plan else { return Ok(false) };
    // SAFETY: the caller's promise.
    unsafe { run(&plan, &NAMES, &at.map(Address), stream) }?;
    Ok(true)
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
        offers(problem, &Target::Handle(*handle), wishes, most)?
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

/// The milliseconds that a plan takes; infinitely many where it fails for want of memory.
///
/// # Safety
/// As for [`convolution`].
unsafe fn time(plan: &Plan, at: [*mut u8; 3], stream: Stream) -> Result<f32> {
    let event = || Event::new(stream.device(), EventOptions { timing: true, ..Default::default() });
    let (start, end) = (event()?, event()?);
    start.record(stream)?;
    // SAFETY: the caller's promise.
    match unsafe { run(plan, &NAMES, &at.map(Address), stream) } {
        Err(crate::Error::OutOfMemory(_)) => return Ok(f32::INFINITY),
        other => other?,
    }
    end.record(stream)?;
    end.synchronize()?;
    start.elapsed_ms(&end)
}

fn tensor(name: i64, kind: Kind, lie: &Lie, dims: usize) -> Result<Descriptor> {
    let tensor = Descriptor::new(Type::Tensor)?;
    tensor.set(901, &[kind.data_type()])?;
    tensor.set(902, &lie.sizes[..dims])?;
    tensor.set(903, &lie.strides[..dims])?;
    tensor.set(906, &[name])?;
    tensor.set(900, &[lie.alignment])?;
    tensor.finish()
}

/// An operation's descriptor with its attributes' names: the convolution, x, w, y, alpha, beta.
fn operation(direction: Direction) -> (Type, [c_int; 6]) {
    match direction {
        Direction::Forward => (Type::Forward, [702, 704, 703, 705, 700, 701]),
        Direction::Data => (Type::Data, [708, 710, 709, 711, 706, 707]),
        Direction::Filters => (Type::Filters, [714, 716, 715, 717, 712, 713]),
    }
}

/// The graph of one convolution, after what it consists of.
fn graph(problem: &Problem, handle: Option<Object>) -> Result<Parts> {
    let (kind, dims) = (problem.kind, problem.dims);
    let spatial = dims - 2;
    let window = Descriptor::new(Type::Convolution)?;
    window.set(106, &[spatial as i64])?;
    window.set(100, &[kind.compute()])?;
    window.set::<Mode>(101, &[Number(1)])?;
    window.set(105, &problem.padding[..spatial])?;
    window.set(104, &problem.padding[..spatial])?;
    window.set(102, &problem.dilation[..spatial])?;
    window.set(103, &problem.stride[..spatial])?;
    let Some(window) = window.finish_if_supported()? else { return Ok(None) };
    let (which, [of_window, of_x, of_w, of_y, of_alpha, of_beta]) = operation(problem.direction);
    let x = tensor(NAMES[0], kind, &problem.x, dims)?;
    let w = tensor(NAMES[1], kind, &problem.w, dims)?;
    let y = tensor(NAMES[2], kind, &problem.y, dims)?;
    let operation = Descriptor::new(which)?;
    operation.set(of_window, &[window.object])?;
    operation.set(of_x, &[x.object])?;
    operation.set(of_w, &[w.object])?;
    operation.set(of_y, &[y.object])?;
    match kind {
        Kind::F64 => scales(&operation, [of_alpha, of_beta], [1f64, 0.0])?,
        _ => scales(&operation, [of_alpha, of_beta], [1f32, 0.0])?,
    }
    let Some(operation) = operation.finish_if_supported()? else { return Ok(None) };
    let graph = Descriptor::new(Type::Graph)?;
    if let Some(handle) = handle {
        graph.set(800, &[Handle(handle)])?;
    }
    graph.set(801, &[operation.object])?;
    let graph = graph.finish_if_supported()?;
    Ok(graph.map(|graph| vec![window, x, w, y, operation, graph]))
}

fn scales<T: Value>(operation: &Descriptor, names: [c_int; 2], values: [T; 2]) -> Result<()> {
    operation.set(names[0], &values[..1])?;
    operation.set(names[1], &values[1..])
}

/// Whether an engine with these notes may be used.
fn may_be_used(notes: &[Note], kind: Kind, wishes: &Wishes) -> bool {
    let rounds = notes.contains(&TENSOR_CORES) || notes.contains(&DOWN_CONVERTS);
    (wishes.tf32 || kind != Kind::F32 || !rounds)
        && (!wishes.deterministic || !notes.contains(&NONDETERMINISTIC))
}

/// At most `most` plans for a problem.
fn offers(problem: &Problem, target: &Target, wishes: &Wishes, most: usize) -> Result<Vec<Plan>> {
    let allowed = |notes: &[Note]| may_be_used(notes, problem.kind, wishes);
    plans(|handle| graph(problem, handle), target, allowed, wishes.workspace, most)
}

/// The plan that cuDNN proposes for a problem on a device of these properties, in the form in which cuDNN writes them
/// (`CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`); none where it does not compute such. No GPU is needed.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) where cuDNN refuses the properties or the problem.
pub fn propose(problem: &Problem, wishes: &Wishes, properties: &str) -> Result<Option<Proposal>> {
    let device = device_of(properties)?;
    Ok(offers(problem, &Target::Properties(&device), wishes, 1)?.first().map(Proposal::of))
}
