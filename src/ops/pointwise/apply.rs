//! The driver of all rows, compiled once: promotion, broadcasting, memory for the result, the
//! kernel's run, and what autograd keeps.

use smallvec::SmallVec;

use super::row::{Gradient, Kind, Row, Source};
use super::symbolic::{Arena, Symbol};
use crate::Tensor;
use crate::amp;
use crate::autograd::{
    BackwardCtx, Grads, SavedTensor, Saver, any_differentiated, is_differentiated,
    record_inplace_with_tangent, record_with_tangent, will_record,
};
use crate::cpu::format::Format;
use crate::cpu::kernel::Kernel;
use crate::cpu::lane::{Compute, Constant};
use crate::cpu::plan::Operand as Buffer;
use crate::cpu::tile::{MOST_NUMBERS, execute, execute_dense};
use crate::error::{Error, throw};
use crate::ops::complex;
use crate::profiler;
use crate::storage::Storage;
use crate::tensor::{
    Dtype, Layout, Operand, ResultType, Scalar, Shape, broadcast_shapes, can_cast,
};

/// The row's op on `inputs`: what every generated function calls.
///
/// ```
/// use torchrs::{Tensor, ops::pointwise};
/// let row = pointwise::tables().find(|row| row.name == "add_scaled").unwrap();
/// let y = pointwise::apply(row, &[(&Tensor::from([1f32, 2.])).into(), 10.0.into()], &[0.5.into()]);
/// assert_eq!(y.to_vec::<f32>(), [6.0, 7.0]);
/// ```
#[track_caller]
pub fn apply(row: &'static Row, inputs: &[Operand<'_>], params: &[Scalar]) -> Tensor {
    let _span = profiler::op(row.name);
    if let Some(like) = alike(inputs)
        && keeps(row, like.dtype())
        && !amp::is_active()
    {
        let output = Tensor::uninitialised(like.shape(), like.dtype());
        // SAFETY: the output is new.
        unsafe { run_alike(&row.kernel, &output, inputs, params) };
        return recorded(row, inputs, params, output);
    }
    if has_complex(inputs) {
        return complex::pointwise(row, inputs, params);
    }
    if amp::is_active()
        && let Some(out) = apply_cast(row, inputs, params)
    {
        return out;
    }
    let common = common_dtype(row, inputs);
    let shape = broadcast(row.name, inputs);
    let output = allocate(&shape, row.result_dtype(common), inputs);
    // SAFETY: the output is new and has the shape that the inputs broadcast to.
    unsafe { run(&row.kernel, row.kind, compute_type(row, common), &[&output], inputs, params) };
    recorded(row, inputs, params, output)
}

/// The result of [`apply`], with its history if it is to have one.
#[track_caller]
#[inline]
fn recorded(
    row: &'static Row,
    inputs: &[Operand<'_>],
    params: &[Scalar],
    output: Tensor,
) -> Tensor {
    if row.gradients.is_empty() || !any_differentiated(inputs.len(), |k| tensor(&inputs[k])) {
        return output;
    }
    let mut tensors: SmallVec<[&Tensor; 4]> = SmallVec::new();
    for input in inputs {
        if let Operand::Tensor(t) = input {
            tensors.push(t);
        }
    }
    record_with_tangent(
        row.name,
        &tensors,
        output,
        |saver| {
            let kept = Kept::new(row, inputs, params, saver);
            move |ctx: &BackwardCtx| kept.backward(ctx)
        },
        |tangents, output| tangent(row, inputs, params, tangents, output),
    )
}

/// What most calls are: all tensors have the shape of one of them, which is given back, and its type, in
/// which kernels compute, and lie densely; the numbers beside them do not widen that type.
#[inline]
fn alike<'a>(inputs: &[Operand<'a>]) -> Option<&'a Tensor> {
    let mut first: Option<&Tensor> = None;
    let (mut numbers, mut float) = (0, false);
    for &input in inputs {
        match input {
            Operand::Tensor(t) => {
                let like = *first.get_or_insert(t);
                let same = t.is_contiguous() && t.dtype() == like.dtype();
                if !same || !same_shape(t.shape(), like.shape()) {
                    return None;
                }
            }
            Operand::Scalar(number) => {
                numbers += 1;
                float |= matches!(number, Scalar::F(_));
            }
        }
    }
    let fits = match first?.dtype() {
        Dtype::F32 | Dtype::F64 => true,
        Dtype::I64 => !float,
        _ => false,
    };
    if fits && numbers <= MOST_NUMBERS { first } else { None }
}

/// True when the row makes this type of operands of this type, none of which is a mask.
#[inline]
fn keeps(row: &Row, dtype: Dtype) -> bool {
    for input in row.inputs {
        if input.mask {
            return false;
        }
    }
    match row.kind {
        Kind::Float => dtype.is_floating_point(),
        Kind::Arith | Kind::Numeric => true,
        _ => false,
    }
}

/// `a == b` without a call.
#[inline]
fn same_shape(a: &[usize], b: &[usize]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    for d in 0..a.len() {
        if a[d] != b[d] {
            return false;
        }
    }
    true
}

/// Runs a kernel on operands that are [`alike`].
///
/// # Safety
/// The output is like them and overlaps an input only when it is the same view.
unsafe fn run_alike(kernel: &Kernel, output: &Tensor, inputs: &[Operand<'_>], params: &[Scalar]) {
    let mut pointers: SmallVec<[*mut u8; 4]> = SmallVec::new();
    let mut numbers: SmallVec<[(usize, Constant); MOST_NUMBERS]> = SmallVec::new();
    pointers.push(output.data_ptr());
    for input in inputs {
        match *input {
            Operand::Tensor(t) => pointers.push(t.data_ptr()),
            Operand::Scalar(number) => {
                numbers.push((pointers.len(), constant(number)));
                pointers.push(std::ptr::null_mut());
            }
        }
    }
    let (compute, params) = (compute_of(output.dtype()), constants(params));
    // SAFETY: dense tensors of this type and of one shape, by the caller's promise.
    unsafe { execute_dense(kernel, compute, &params, output.numel(), &pointers, &numbers) };
}

/// [`apply`] inside `autocast`, where that casts the row's op.
#[cold]
#[track_caller]
fn apply_cast(row: &'static Row, inputs: &[Operand<'_>], params: &[Scalar]) -> Option<Tensor> {
    let tensors: SmallVec<[Option<&Tensor>; 4]> = inputs.iter().map(tensor).collect();
    let region = amp::Region::enter(row.name, &tensors)?;
    let cast: SmallVec<[Option<Tensor>; 4]> = tensors.iter().map(|t| region.cast(*t)).collect();
    let operands: SmallVec<[Operand<'_>; 4]> = cast
        .iter()
        .map(Option::as_ref)
        .zip(inputs)
        .map(|(t, i)| t.map_or(*i, Operand::Tensor))
        .collect();
    Some(apply(row, &operands, params))
}

/// The row's op on `inputs`, written into the first of them.
///
/// ```
/// use torchrs::{Tensor, ops::pointwise};
/// let row = pointwise::tables().find(|row| row.name == "mul").unwrap();
/// let x = Tensor::from([1f32, 2.]);
/// pointwise::apply_inplace(row, &[(&x).into(), 3.0.into()], &[]);
/// assert_eq!(x.to_vec::<f32>(), [3.0, 6.0]);
/// ```
#[track_caller]
pub fn apply_inplace(row: &'static Row, inputs: &[Operand<'_>], params: &[Scalar]) {
    let _span = profiler::op(row.name);
    let Operand::Tensor(target) = inputs[0] else {
        throw(Error::argument(row.name, row.inputs[0].name, "a number cannot be changed in place"))
    };
    target.assert_inplace_legal(row.name);
    if alike(inputs).is_some_and(|like| keeps(row, like.dtype()))
        && !any_differentiated(inputs.len(), |k| tensor(&inputs[k]))
    {
        let apart = |t: &Tensor| t.data_ptr() == target.data_ptr() || !overlap(target, t);
        if inputs[1..].iter().filter_map(tensor).all(apart) {
            // SAFETY: the target names no element twice, as asserted above, and each input is the same view
            // or elsewhere. Who else may use the memory is the caller's concern, as for every in-place op
            // on a shared handle.
            unsafe { run_alike(&row.kernel, target, inputs, params) };
            target.storage().bump_version();
            return;
        }
    }
    if has_complex(inputs) {
        return complex::pointwise_inplace(row, target, inputs, params);
    }
    let common = common_dtype(row, inputs);
    let result = row.result_dtype(common);
    // A truth value can be stored as any type.
    if result != Dtype::Bool && !can_cast(result, target.dtype()) {
        throw(Error::dtype(
            row.name,
            format!(
                "the result is {result} and cannot be written in place into a {} tensor; use the op without \
                 the trailing underscore",
                target.dtype()
            ),
        ));
    }
    let shape = broadcast(row.name, inputs);
    if shape[..] != *target.shape() {
        throw(Error::shape(
            row.name,
            format!(
                "the result has shape {:?} and cannot be written in place into a tensor of shape {:?}",
                &shape[..],
                target.shape()
            ),
        ));
    }

    let tensors: SmallVec<[&Tensor; 4]> = inputs.iter().filter_map(tensor).collect();
    let before = Before::new(row, target, inputs, &tensors);
    {
        let mut copies: SmallVec<[Tensor; 2]> = SmallVec::new();
        for input in &inputs[1..] {
            if let Operand::Tensor(t) = input
                && overlaps_otherwise(target, t)
            {
                copies.push(t.detach().clone_contiguous());
            }
        }
        let mut copy = copies.iter();
        let apart: SmallVec<[Operand<'_>; 4]> = inputs
            .iter()
            .enumerate()
            .map(|(k, input)| match input {
                Operand::Tensor(t) if k > 0 && overlaps_otherwise(target, t) => {
                    copy.next().map_or(*input, Operand::Tensor)
                }
                _ => *input,
            })
            .collect();
        // SAFETY: the target has the broadcast shape, names no element twice, and every input is
        // the same view, a copy, or elsewhere. Who else may use the memory is the caller's concern,
        // as for every in-place op on a shared handle.
        unsafe { run(&row.kernel, row.kind, compute_type(row, common), &[target], &apart, params) };
    }
    record_inplace_with_tangent(
        row.name,
        target,
        &tensors,
        |saver| {
            let kept = Kept::new(row, &before.operands(inputs), params, saver);
            move |ctx: &BackwardCtx| kept.backward(ctx)
        },
        |tangents| tangent(row, &before.operands(inputs), params, tangents, target),
    );
}

/// Copies of what an in-place op is about to overwrite and its derivative uses: for each input, if it
/// shares the target's memory.
struct Before(SmallVec<[Option<Tensor>; 4]>);

impl Before {
    fn new(
        row: &'static Row,
        target: &Tensor,
        inputs: &[Operand<'_>],
        tensors: &[&Tensor],
    ) -> Self {
        if row.gradients.is_empty() || !is_differentiated(tensors) {
            return Before(SmallVec::new());
        }
        let dual = tensors.iter().any(|t| t.may_be_dual());
        let copy = |(k, input)| {
            let t = tensor(input).filter(|t| overlap(target, t))?;
            (dual || Kept::uses_input(row, inputs, k)).then(|| t.clone_contiguous())
        };
        Before(inputs.iter().enumerate().map(copy).collect())
    }

    /// The inputs as they were.
    fn operands<'a>(&'a self, inputs: &[Operand<'a>]) -> SmallVec<[Operand<'a>; 4]> {
        let old = self.0.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        inputs.iter().zip(old).map(|(now, old)| old.map_or(*now, Operand::Tensor)).collect()
    }
}

/// An update row's op: writes into the operands that the row names. Not recorded.
///
/// ```
/// use torchrs::{Tensor, ops::pointwise};
/// let row = pointwise::updates().find(|row| row.name == "sgd_step").unwrap();
/// let (p, g) = (Tensor::from([1f32, 2.]), Tensor::from([1f32, -1.]));
/// pointwise::apply_update(row, &[&p, &g], &[0.5.into(), 1.0.into(), 0.0.into()]);
/// assert_eq!(p.to_vec::<f32>(), [0.5, 2.5]);
/// ```
#[track_caller]
pub fn apply_update(row: &'static Row, inputs: &[&Tensor], params: &[Scalar]) {
    let _span = profiler::op(row.name);
    let first = inputs[0];
    let odd = inputs.iter().map(|t| t.dtype()).find(|d| d.is_complex());
    if let Some(dtype) = odd.or(Some(first.dtype())).filter(|d| !d.is_floating_point()) {
        crate::tensor::dtype::not_floating(row.name, dtype);
    }
    for (input, t) in row.inputs.iter().zip(inputs) {
        if t.shape() != first.shape() {
            throw(Error::shape(
                row.name,
                format!(
                    "`{}` has shape {:?}, `{}` has {:?}; all must have one shape",
                    row.inputs[0].name,
                    first.shape(),
                    input.name,
                    t.shape()
                ),
            ));
        }
    }
    if let Some(k) = (0..inputs.len()).find(|&k| inputs[k].is_dual()) {
        throw(Error::argument(
            row.name,
            row.inputs[k].name,
            "carries a tangent; updates have none",
        ));
    }
    let outputs: SmallVec<[&Tensor; 4]> = row.writes.iter().map(|&k| inputs[k]).collect();
    for (place, &k) in row.writes.iter().enumerate() {
        outputs[place].assert_inplace_legal(row.name);
        let clash =
            (0..inputs.len()).find(|&other| other != k && overlap(inputs[other], inputs[k]));
        if let Some(other) = clash {
            throw(Error::argument(
                row.name,
                row.inputs[k].name,
                format!("is written and shares memory with `{}`", row.inputs[other].name),
            ));
        }
    }
    let operands: SmallVec<[Operand<'_>; 8]> = inputs.iter().map(|t| Operand::Tensor(t)).collect();
    // SAFETY: one shape; what is written overlaps nothing else, by the checks above.
    unsafe { run(&row.kernel, row.kind, compute_of(first.dtype()), &outputs, &operands, params) };
    for output in outputs {
        output.storage().bump_version();
    }
}

/// Runs a kernel.
///
/// # Safety
/// As [`execute`]: outputs have the shape that the inputs broadcast to, name no element twice, and
/// overlap an input only when it is the same view.
pub(super) unsafe fn run(
    kernel: &Kernel,
    kind: Kind,
    compute: Compute,
    outputs: &[&Tensor],
    inputs: &[Operand<'_>],
    params: &[Scalar],
) {
    let mut buffers: SmallVec<[Buffer<'_>; 6]> = SmallVec::new();
    for t in outputs {
        buffers.push(buffer(t, kind));
    }
    for input in inputs {
        buffers.push(match input {
            Operand::Tensor(t) => buffer(t, kind),
            Operand::Scalar(s) => Buffer::Constant(constant(*s)),
        });
    }
    let params = constants(params);
    // SAFETY: tensors' layouts lie inside their storages; the rest is the caller's promise.
    unsafe { execute(kernel, compute, &params, outputs[0].shape(), outputs.len(), &buffers) };
}

#[inline]
fn buffer(t: &Tensor, kind: Kind) -> Buffer<'_> {
    let format = match (t.dtype(), kind) {
        // `!true` is -2 as an integer; its lowest bit is right.
        (Dtype::Bool, Kind::Bitwise) => Format::Bit,
        (dtype, _) => format_of(dtype),
    };
    Buffer::Memory { ptr: t.data_ptr(), format, shape: t.shape(), strides: t.strides() }
}

fn constants(params: &[Scalar]) -> SmallVec<[Constant; 4]> {
    let mut out = SmallVec::new();
    for &param in params {
        out.push(constant(param));
    }
    out
}

#[inline]
pub(super) fn constant(s: Scalar) -> Constant {
    match s {
        Scalar::F(v) => Constant::F(v),
        Scalar::I(v) => Constant::I(v),
        Scalar::B(v) => Constant::I(v as i64),
    }
}

#[inline]
pub(super) fn format_of(dtype: Dtype) -> Format {
    match dtype {
        Dtype::F64 => Format::F64,
        Dtype::F32 => Format::F32,
        Dtype::F16 => Format::F16,
        Dtype::BF16 => Format::BF16,
        Dtype::I64 => Format::I64,
        Dtype::I32 => Format::I32,
        Dtype::I16 => Format::I16,
        Dtype::I8 => Format::I8,
        Dtype::U8 => Format::U8,
        Dtype::Bool => Format::Bool,
        // Of complex numbers only size and place count: no kernel gets them.
        Dtype::C64 => Format::I64,
        Dtype::C128 => Format::Wide,
    }
}

/// The type in which tensors of that type are computed.
#[inline]
pub(super) fn compute_of(dtype: Dtype) -> Compute {
    match dtype {
        Dtype::F64 => Compute::F64,
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => Compute::F32,
        _ => Compute::I64,
    }
}

#[inline]
fn compute_type(row: &Row, common: Dtype) -> Compute {
    match row.kind {
        Kind::Float => compute_of(row.result_dtype(common)),
        _ => compute_of(common),
    }
}

#[inline]
fn has_complex(inputs: &[Operand<'_>]) -> bool {
    inputs.iter().any(|input| tensor(input).is_some_and(|t| t.dtype().is_complex()))
}

#[inline]
fn tensor<'a>(operand: &Operand<'a>) -> Option<&'a Tensor> {
    match operand {
        Operand::Tensor(t) => Some(t),
        Operand::Scalar(_) => None,
    }
}

#[inline]
fn overlap(a: &Tensor, b: &Tensor) -> bool {
    a.storage().ptr_eq(b.storage()) && buffer(a, Kind::Arith).overlaps(&buffer(b, Kind::Arith))
}

/// True when writing `target` would change elements of `t` before they are read.
fn overlaps_otherwise(target: &Tensor, t: &Tensor) -> bool {
    overlap(target, t) && !buffer(target, Kind::Arith).is_same_view(&buffer(t, Kind::Arith))
}

/// The type that the operands promote to.
#[track_caller]
#[inline]
fn common_dtype(row: &Row, inputs: &[Operand<'_>]) -> Dtype {
    let mut common = ResultType::default();
    for (operand, input) in inputs.iter().zip(row.inputs) {
        if !input.mask {
            common = common.operand(*operand);
        } else if !matches!(operand, Operand::Tensor(t) if t.dtype() == Dtype::Bool) {
            refuse_mask(row, input.name, operand);
        }
    }
    let common = common.dtype();
    if !row.takes(common) {
        refuse_dtype(row, common);
    }
    common
}

#[cold]
#[track_caller]
fn refuse_mask(row: &Row, name: &str, operand: &Operand<'_>) -> ! {
    let got = match operand {
        Operand::Tensor(t) => format!("a {} tensor", t.dtype()),
        Operand::Scalar(_) => "a number".to_owned(),
    };
    throw(Error::dtype(row.name, format!("`{name}` must be a bool tensor, got {got}")))
}

#[cold]
#[track_caller]
fn refuse_dtype(row: &Row, dtype: Dtype) -> ! {
    let takes = match row.kind {
        Kind::Numeric => "numbers; for bool use the logical ops",
        _ => "integer and bool tensors",
    };
    throw(Error::dtype(row.name, format!("takes {takes}, got {dtype}")))
}

/// The shape that the operands broadcast to.
#[track_caller]
#[inline]
fn broadcast(op: &str, inputs: &[Operand<'_>]) -> Shape {
    let mut shapes = inputs.iter().filter_map(tensor).map(|t| t.shape());
    let mut shape = Shape::from_slice(shapes.next().unwrap_or(&[]));
    for other in shapes {
        if shape[..] != *other {
            shape = match broadcast_shapes(&shape, other) {
                Ok(shape) => shape,
                Err(d) => refuse_shapes(op, &shape, other, d),
            };
        }
    }
    shape
}

#[cold]
#[track_caller]
fn refuse_shapes(op: &str, a: &[usize], b: &[usize], d: usize) -> ! {
    let n = a.len().max(b.len());
    let (x, y) = (a[d + a.len() - n], b[d + b.len() - n]);
    throw(Error::shape(
        op,
        format!("shapes {a:?} and {b:?} do not broadcast: dimension {d} has {x} and {y}"),
    ))
}

/// Memory for a result. As PyTorch, it lies in memory as the first input of that shape does when
/// that one is dense (channels-last in, channels-last out), else in row-major order.
#[inline]
fn allocate(shape: &[usize], dtype: Dtype, inputs: &[Operand<'_>]) -> Tensor {
    let first = inputs.iter().filter_map(tensor).find(|t| t.shape() == shape);
    match first {
        Some(t) if !t.is_contiguous() && t.layout().is_non_overlapping_and_dense() => {
            let layout = Layout { offset: 0, ..t.layout().clone() };
            Tensor::from_parts(Storage::host(t.numel() * dtype.size()), layout, dtype)
        }
        _ => Tensor::uninitialised(shape, dtype),
    }
}

/// What backward needs of a call.
struct Kept {
    row: &'static Row,
    params: SmallVec<[Scalar; 2]>,
    /// For each name in the row's `grad` list.
    values: SmallVec<[Value; 3]>,
    /// Which inputs are tensors, and so among the node's inputs, a bit each.
    tensors: u32,
}

enum Value {
    Saved(SavedTensor),
    Number(Scalar),
    /// The gradient itself, or a value that no wanted gradient uses.
    None,
}

impl Kept {
    /// True when a gradient that is wanted uses input `k`'s value.
    fn uses_input(row: &Row, inputs: &[Operand<'_>], k: usize) -> bool {
        let uses = Self::used(row, inputs);
        (0..row.saved.len()).any(|i| uses >> i & 1 != 0 && row.saved[i] == Source::Input(k))
    }

    /// The names that wanted gradients use, a bit each.
    fn used(row: &Row, inputs: &[Operand<'_>]) -> u32 {
        let wanted = |g: &&Gradient| tensor(&inputs[g.input]).is_some_and(|t| t.requires_grad());
        row.gradients.iter().filter(wanted).fold(0, |bits, g| bits | g.uses)
    }

    fn new(
        row: &'static Row,
        inputs: &[Operand<'_>],
        params: &[Scalar],
        saver: &Saver<'_>,
    ) -> Self {
        let uses = Self::used(row, inputs);
        let mut values = SmallVec::new();
        for (i, source) in row.saved.iter().enumerate() {
            values.push(match *source {
                _ if uses >> i & 1 == 0 => Value::None,
                Source::GradOutput => Value::None,
                Source::Output => Value::Saved(saver.save_output(0)),
                Source::Input(k) => match inputs[k] {
                    Operand::Scalar(s) => Value::Number(s),
                    Operand::Tensor(t) => Value::Saved(saver.save(t)),
                },
            });
        }
        let mut tensors = 0;
        for (k, input) in inputs.iter().enumerate() {
            tensors |= (tensor(input).is_some() as u32) << k;
        }
        Kept { row, params: SmallVec::from_slice(params), values, tensors }
    }

    /// The place of input `k` among the node's inputs, if it is a tensor.
    fn edge(&self, k: usize) -> Option<usize> {
        let before = self.tensors & ((1 << k) - 1);
        (self.tensors >> k & 1 != 0).then(|| before.count_ones() as usize)
    }

    fn backward(&self, ctx: &BackwardCtx<'_>) -> Grads {
        let grad = ctx.grad(0);
        let mut saved: SmallVec<[Option<Tensor>; 3]> = SmallVec::new();
        for value in &self.values[..] {
            saved.push(match value {
                Value::Saved(saved) => Some(ctx.get(saved)),
                _ => None,
            });
        }
        let mut values: SmallVec<[Option<Operand<'_>>; 3]> = SmallVec::new();
        for (value, saved) in self.values[..].iter().zip(&saved[..]) {
            values.push(match (value, saved) {
                (_, Some(t)) => Some(Operand::Tensor(t)),
                (Value::Number(s), None) => Some(Operand::Scalar(*s)),
                _ => None,
            });
        }
        let mut grads: Grads = SmallVec::new();
        grads.resize_with(self.tensors.count_ones() as usize, || None);
        for gradient in self.row.gradients {
            let Some(edge) = self.edge(gradient.input) else { continue };
            if !ctx.needs(edge) {
                continue;
            }
            grads[edge] = Some(if gradient.passes_through {
                grad.clone()
            } else if ctx.create_graph() || gradient.stepwise && grad.dtype() == Dtype::F16 {
                symbolic(gradient, &grad, &values, &self.params)
            } else {
                // What broadcasting makes a sum of is not rounded to a half type before it is summed.
                let stretched = ctx.node.edges[edge]
                    .as_ref()
                    .is_some_and(|e| e.node.outputs[e.output].0[..] != *grad.shape());
                let dtype = if stretched { grad.dtype().compute() } else { grad.dtype() };
                fused(self.row, gradient, &grad, &values, &self.params, dtype)
            });
        }
        grads
    }
}

/// The result's tangent, the sum of each derivative times its input's tangent. `tangents` are those of the
/// inputs that are tensors.
fn tangent(
    row: &'static Row,
    inputs: &[Operand<'_>],
    params: &[Scalar],
    tangents: &[Option<Tensor>],
    output: &Tensor,
) -> Option<Tensor> {
    let value = |source: &Source| match *source {
        Source::GradOutput => None,
        Source::Output => Some(Operand::Tensor(output)),
        Source::Input(k) => Some(inputs[k]),
    };
    let values: SmallVec<[Option<Operand<'_>>; 4]> = row.saved.iter().map(value).collect();
    let known = inputs.iter().filter_map(tensor).chain([output]);
    let all: SmallVec<[&Tensor; 8]> = known.chain(tangents.iter().flatten()).collect();
    let recorded = will_record(&all);
    let mut sum: Option<Tensor> = None;
    for gradient in row.gradients {
        let place = inputs[..gradient.input].iter().filter_map(tensor).count();
        // A number has no tangent, and no place.
        let known = tensor(&inputs[gradient.input]).and_then(|_| tangents[place].as_ref());
        let Some(t) = known else { continue };
        let t = t.to_dtype(output.dtype()).expand(output.shape());
        let part = if gradient.passes_through {
            t
        } else if recorded {
            symbolic(gradient, &t, &values, params)
        } else {
            fused(row, gradient, &t, &values, params, output.dtype())
        };
        sum = Some(match sum {
            Some(sum) => sum + part,
            None => part,
        });
    }
    sum
}

/// A gradient as one loop, from the gradient of the result to that of an input in the result's shape; the
/// engine reduces it to the input's own, and converts it to the input's type. `values` are those of the
/// names in the row's `grad` list; `None` is the gradient, or one that the formula does not use.
fn fused(
    row: &Row,
    gradient: &Gradient,
    grad: &Tensor,
    values: &[Option<Operand<'_>>],
    params: &[Scalar],
    dtype: Dtype,
) -> Tensor {
    let mut inputs: SmallVec<[Operand<'_>; 4]> = SmallVec::new();
    for value in values {
        inputs.push(value.unwrap_or(Operand::Tensor(grad)));
    }
    let output = allocate(grad.shape(), dtype, &inputs);
    if let Some(like) = alike(&inputs)
        && same_shape(like.shape(), grad.shape())
        && like.dtype() == dtype
        && dtype.is_floating_point()
    {
        // SAFETY: the output is new.
        unsafe { run_alike(&gradient.kernel, &output, &inputs, params) };
        return output;
    }
    let compute = compute_of(grad.dtype());
    // SAFETY: the output is new, and the op's inputs broadcast to its result's shape.
    unsafe { run(&gradient.kernel, row.kind, compute, &[&output], &inputs, params) };
    output
}

/// The same of recorded tensor ops.
fn symbolic(
    gradient: &Gradient,
    grad: &Tensor,
    values: &[Option<Operand<'_>>],
    params: &[Scalar],
) -> Tensor {
    let arena = Arena::new(grad.dtype());
    let value = |v: &Option<Operand<'_>>| match v {
        Some(Operand::Tensor(t)) => arena.symbol((*t).clone()),
        Some(Operand::Scalar(s)) => Symbol::Number(s.to_f64()),
        None => arena.symbol(grad.clone()),
    };
    let inputs: SmallVec<[Symbol<'_>; 4]> = values.iter().map(value).collect();
    let params: SmallVec<[Symbol<'_>; 4]> =
        params.iter().map(|p| Symbol::Number(p.to_f64())).collect();
    (gradient.symbolic)(&inputs, &params).into_tensor(grad.shape(), grad.dtype())
}
