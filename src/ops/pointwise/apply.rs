//! The driver of all rows, compiled once: new results, results in place, updates, each straight to the
//! loop where the operands are dense and alike, else through the tiles.

use smallvec::SmallVec;

use super::batched_updates;
use super::complex;
use super::derivative::{backward, tangent, uses_input};
use super::operands::{
    allocate, broadcast, buffer, common_dtype, compute_of, compute_type, constant, constants,
    device_of, has_complex, overlap, overlaps_otherwise, rounded, tensor,
};
use super::row::{Kind, Row};
use crate::amp;
use crate::autograd::{
    BackwardCtx, any_differentiated, is_differentiated, record_inplace_with_tangent, record_new,
};
use crate::cpu::{
    elementwise::dense::MOST_NUMBERS, elementwise::dense::execute_dense,
    elementwise::kernel::Kernel, elementwise::tile::execute,
};
use crate::cuda;
use crate::error::{Error, throw};
use crate::loops::{Compute, Constant, Operand as Buffer};
use crate::profiler;
use crate::tensor::{Dtype, Operand, Scalar, Tensor, can_cast};

/// The inputs' shapes, for a profile; a number has none.
fn shapes(inputs: &[Operand<'_>]) -> Option<Vec<Vec<usize>>> {
    Some(
        inputs
            .iter()
            .map(|input| tensor(input).map_or_else(Vec::new, |t| t.shape().to_vec()))
            .collect(),
    )
}

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
    let _span = profiler::op_with(|| row.name, || shapes(inputs));
    if let Some(like) = alike(inputs)
        && keeps(row, like.dtype())
        && !amp::is_active()
    {
        let output = Tensor::uninitialised_on(like.shape(), like.dtype(), like.device());
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
    let mut kept = SmallVec::new();
    let halves = rounded(row, common, inputs, &mut kept);
    let inputs = halves.as_deref().unwrap_or(inputs);
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
    if !output.dtype().is_differentiable() {
        return output;
    }
    record_new(
        row.name,
        &tensors,
        output,
        &mut |saver| backward(row, inputs, params, saver),
        Some(&mut |tangents, output| tangent(row, inputs, params, tangents, output)),
    )
}

/// What most calls are: all tensors have the shape of one of them, which is given back, and its type, in
/// which kernels compute, and lie densely; the numbers beside them are no bools and do not widen that type.
#[inline]
pub(super) fn alike<'a>(inputs: &[Operand<'a>]) -> Option<&'a Tensor> {
    let mut first: Option<&Tensor> = None;
    let (mut numbers, mut float) = (0, false);
    for &input in inputs {
        match input {
            Operand::Tensor(t) => {
                if !is_like(t, first.get_or_insert(t)) {
                    return None;
                }
            }
            Operand::Scalar(Scalar::B(_)) => return None,
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

/// Whether `t` lies densely and is of the shape, type and device of `like`.
#[inline]
pub(super) fn is_like(t: &Tensor, like: &Tensor) -> bool {
    t.is_contiguous()
        && t.dtype() == like.dtype()
        && t.device() == like.device()
        && same_shape(t.shape(), like.shape())
}

/// True when the row makes this type of operands of this type, none of which is a mask.
#[inline]
pub(super) fn keeps(row: &Row, dtype: Dtype) -> bool {
    for input in row.inputs {
        if input.mask {
            return false;
        }
    }
    match row.kind {
        Kind::Float => dtype.is_floating_point(),
        Kind::Arith | Kind::Numeric | Kind::Difference => true,
        _ => false,
    }
}

/// `a == b` without a call.
#[inline]
pub(super) fn same_shape(a: &[usize], b: &[usize]) -> bool {
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
pub(super) unsafe fn run_alike(
    kernel: &'static Kernel,
    output: &Tensor,
    inputs: &[Operand<'_>],
    params: &[Scalar],
) {
    if output.device().is_apart() {
        let compute = compute_of(output.dtype());
        // SAFETY: this function's contract: the output is like the inputs, and overlaps one only
        // when it is the same view.
        return unsafe { on_cuda(kernel, Kind::Arith, compute, &[output], inputs, params) };
    }
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
    // SAFETY: dense tensors of this type and of one shape, by this function's contract.
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
    let _span = profiler::op_with(|| row.name, || shapes(inputs));
    let Operand::Tensor(target) = inputs[0] else {
        throw(Error::argument(row.name, row.inputs[0].name, "a number cannot be changed in place"))
    };
    target.assert_inplace_legal(row.name);
    if alike(inputs).is_some_and(|like| keeps(row, like.dtype()))
        && !any_differentiated(inputs.len(), |k| tensor(&inputs[k]))
    {
        let apart = |t: &Tensor| t.device_ptr() == target.device_ptr() || !overlap(target, t);
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

    let mut kept = SmallVec::new();
    let halves = rounded(row, common, inputs, &mut kept);
    let inputs = halves.as_deref().unwrap_or(inputs);
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
            let backward = backward(row, &before.operands(inputs), params, saver);
            move |ctx: &BackwardCtx| backward(ctx)
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
            (dual || uses_input(row, inputs, k)).then(|| t.clone_contiguous())
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
    if first.device().is_apart() && batched_updates::waits(row, inputs, params) {
        outputs.iter().for_each(|output| output.storage().bump_version());
        return;
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
#[track_caller]
pub(super) unsafe fn run(
    kernel: &'static Kernel,
    kind: Kind,
    compute: Compute,
    outputs: &[&Tensor],
    inputs: &[Operand<'_>],
    params: &[Scalar],
) {
    if device_of(inputs).is_apart() || outputs[0].device().is_apart() {
        // SAFETY: this function's contract, which is that of all devices.
        return unsafe { on_cuda(kernel, kind, compute, outputs, inputs, params) };
    }
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
    // SAFETY: tensors' layouts lie inside their storages; this function's contract is that of `execute` for the rest.
    unsafe { execute(kernel, compute, &params, outputs[0].shape(), outputs.len(), &buffers) };
}

/// [`run`] on the GPU of the outputs.
///
/// # Safety
/// As [`run`].
#[cold]
#[track_caller]
unsafe fn on_cuda(
    kernel: &'static Kernel,
    kind: Kind,
    compute: Compute,
    outputs: &[&Tensor],
    inputs: &[Operand<'_>],
    params: &[Scalar],
) {
    let device = outputs[0].device();
    let mut buffers: SmallVec<[Buffer<'_>; 6]> = SmallVec::new();
    for t in outputs {
        buffers.push(buffer(t, kind));
    }
    for input in inputs {
        buffers.push(match input {
            Operand::Scalar(s) => Buffer::Constant(constant(*s)),
            Operand::Tensor(t) if t.device() == device => buffer(t, kind),
            // A number, as PyTorch has it.
            Operand::Tensor(t) if t.dim() == 0 && !t.device().is_apart() => {
                Buffer::Constant(match t.dtype().is_floating_point() {
                    true => Constant::F(t.item()),
                    false => Constant::I(t.item_i64()),
                })
            }
            Operand::Tensor(t) => throw(Error::Device(format!(
                "operands are on {} and {device}; move one of them with `.to_device(..)`",
                t.device()
            ))),
        });
    }
    let (params, shape) = (constants(params), outputs[0].shape());
    let Some(index) = device.kernels() else {
        throw(Error::Device(format!("an operand on a GPU cannot be written to one on {device}")))
    };
    // SAFETY: tensors' layouts lie inside their storages, which stay until the stream has done the work,
    // since what is freed is reused on that stream only; `run`'s contract for the rest.
    let done = cuda::Stream::current(index).and_then(|stream| unsafe {
        cuda::pointwise::execute(
            kernel.text(),
            compute,
            &params,
            shape,
            outputs.len(),
            &buffers,
            stream,
        )
    });
    if let Err(error) = done {
        throw(error);
    }
}
