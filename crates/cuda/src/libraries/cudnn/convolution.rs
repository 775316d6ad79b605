//! Convolutions by cuDNN.

use std::ffi::c_int;

use super::descriptor::{Address, Descriptor, Kind as Type, Mode, Note, Number, Value};
use super::kept::{Kept, Question, Work};
use super::lie::{Kind, Lie};
use super::operations::{Builder, Outcome, supported};
use super::plan::{
    DOWN_CONVERTS, NONDETERMINISTIC, Plan, REDUCED_SUMS, TENSOR_CORES, Target, plans,
};
use super::proposal::Proposal;
use super::table::Object;
use crate::work::stream::Stream;
use torchrs_error::Result;

/// Names of the tensors in the plan: x, w, y.
const NAMES: [i64; 3] = [1, 2, 3];
/// Plans that are timed where the fastest is wanted.
const CANDIDATES: usize = 8;

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

impl Problem {
    /// A convolution of x, w and y, of so many dimensions with batch and channels; padding, stride and dilation are of
    /// three dimensions, of which two are the last.
    pub fn new(
        direction: Direction,
        kind: Kind,
        dims: usize,
        [x, w, y]: [Lie; 3],
        window: [[usize; 3]; 3],
    ) -> Problem {
        let [padding, stride, dilation] = window.map(|mut sizes| {
            sizes.rotate_left(5 - dims);
            [0, 1, 2].map(|d| if d < dims - 2 { sizes[d] as i64 } else { 0 })
        });
        Problem { direction, kind, dims, x, w, y, padding, stride, dilation }
    }
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

/// A problem, the wishes, and whether the fastest plan is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked(Problem, Wishes, bool);

static PLANS: Kept<Asked> = Kept::new();

impl Question for Asked {
    fn workspace(&self) -> usize {
        self.1.workspace
    }

    fn candidates(&self) -> usize {
        if self.2 { CANDIDATES } else { 1 }
    }

    fn plans(&self, target: &Target, workspace: usize, most: usize) -> Result<Vec<Plan>> {
        let Asked(problem, wishes, _) = self;
        let allowed = |notes: &[Note]| may_be_used(notes, problem.kind, wishes);
        plans(|handle| supported(graph(problem, handle)), target, allowed, workspace, most)
    }
}

/// Starts a convolution on a stream with the tensors' addresses, x's, w's and y's; false where cuDNN does not
/// compute such, or fails whatever it is asked, which is said once. `fastest` times several plans at a problem's
/// first call, unless the stream is captured.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where the device refuses.
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
    let asked = Asked(*problem, *wishes, fastest && !stream.is_capturing()?);
    // SAFETY: the caller's promise.
    unsafe { PLANS.start(&asked, &Work { names: &NAMES, at: &at.map(Address), stream }) }
}

/// Whether cuDNN's own choice for a problem uses tensor cores, if it computes such.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where the device refuses.
pub fn uses_tensor_cores(problem: &Problem, wishes: &Wishes, stream: Stream) -> Result<bool> {
    let plan = PLANS.plan(&Asked(*problem, *wishes, false), stream)?;
    Ok(plan.is_some_and(|plan| plan.uses_tensor_cores()))
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
fn graph(problem: &Problem, handle: Option<Object>) -> Outcome<Vec<Descriptor>> {
    let (kind, dims) = (problem.kind, problem.dims);
    let spatial = dims - 2;
    let mut builder = Builder::default();
    let window = Descriptor::new(Type::Convolution)?;
    window.set(106, &[spatial as i64])?;
    window.set(100, &[kind.compute()])?;
    window.set::<Mode>(101, &[Number(1)])?;
    window.set(105, &problem.padding[..spatial])?;
    window.set(104, &problem.padding[..spatial])?;
    window.set(102, &problem.dilation[..spatial])?;
    window.set(103, &problem.stride[..spatial])?;
    let window = builder.keep(window)?;
    let (which, [of_window, of_x, of_w, of_y, of_alpha, of_beta]) = operation(problem.direction);
    let operation = Descriptor::new(which)?;
    operation.set(of_window, &[window])?;
    let tensors = [(of_x, &problem.x), (of_w, &problem.w), (of_y, &problem.y)];
    for (name, (attribute, lie)) in NAMES.into_iter().zip(tensors) {
        let lies = [&lie.sizes[..dims], &lie.strides[..dims]];
        let tensor = Builder::described(name, kind.data_type(), lies, lie.alignment)?;
        operation.set(attribute, &[builder.keep(tensor)?])?;
    }
    match kind {
        Kind::F64 => scales(&operation, [of_alpha, of_beta], [1f64, 0.0])?,
        _ => scales(&operation, [of_alpha, of_beta], [1f32, 0.0])?,
    }
    builder.perform(operation)?;
    builder.finish(handle)
}

fn scales<T: Value>(operation: &Descriptor, names: [c_int; 2], values: [T; 2]) -> Result<()> {
    operation.set(names[0], &values[..1])?;
    operation.set(names[1], &values[1..])
}

/// Whether an engine with these notes may be used.
fn may_be_used(notes: &[Note], kind: Kind, wishes: &Wishes) -> bool {
    let rounds = notes.contains(&TENSOR_CORES) || notes.contains(&DOWN_CONVERTS);
    (wishes.tf32 || kind != Kind::F32 || !rounds)
        && !notes.contains(&REDUCED_SUMS)
        && (!wishes.deterministic || !notes.contains(&NONDETERMINISTIC))
}

/// The plan that cuDNN proposes for a problem on a device of these properties, in the form in which cuDNN writes them
/// (`CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`); none where it does not compute such. No GPU is needed.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where cuDNN refuses the properties or the problem.
pub fn propose(problem: &Problem, wishes: &Wishes, properties: &str) -> Result<Option<Proposal>> {
    Proposal::of(&Asked(*problem, *wishes, false), properties)
}
