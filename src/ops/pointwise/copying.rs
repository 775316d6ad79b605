//! Copies, conversions and fills: the identity, through the same tiles as every other row.

use smallvec::{SmallVec, smallvec};

use super::format::format_of;
use super::operands::{compute_of, constant};
use super::row;
use crate::autograd::{BackwardCtx, record, record_inplace};
use crate::cpu::{
    elementwise::copy::Elements, elementwise::copy::copy, elementwise::kernel::Formula,
    elementwise::kernel::Kernel, elementwise::tile::convert, elementwise::tile::execute,
};
use crate::cuda;
use crate::error::{Error, throw};
use crate::loops::{Compute, Operand as Buffer};
use crate::profiler;
use crate::storage::race::Scope;
use crate::tensor::{Dtype, Operand, Scalar, Tensor, broadcast_shapes, initial};

struct Identity;
impl<S> Formula<S, 1, 0, 1> for Identity {
    #[inline(always)]
    fn eval(inputs: [S; 1], _: [S; 0]) -> [S; 1] {
        inputs
    }
}
static IDENTITY: Kernel =
    Kernel::number::<Identity, 1, 0, 1>().written_as(row::result(&["x"], &[], "x"));

fn buffer(t: &Tensor) -> Buffer<'_> {
    Buffer::Memory {
        ptr: t.device_ptr(),
        format: format_of(t.dtype()),
        shape: t.shape(),
        strides: t.strides(),
    }
}

/// Copies and converts; `from` broadcasts to `to`'s shape.
///
/// # Safety
/// `to` names no element twice and overlaps nothing of `from`.
unsafe fn assign(to: &Tensor, from: &Tensor) {
    let _span = profiler::op("copy");
    if to.dtype() != from.dtype() && (to.dtype().is_complex() || from.dtype().is_complex()) {
        // SAFETY: the contract is the same.
        return unsafe { assign_parts(to, from) };
    }
    if to.device() != from.device() {
        return assign_across(to, from);
    }
    // Kernels know no element of sixteen bytes.
    if to.device().is_apart() && to.dtype() == Dtype::C128 {
        // SAFETY: the contract is the same.
        return unsafe { assign_parts(to, from) };
    }
    // SAFETY: tensors' layouts lie inside their storages; `to` names no element twice and overlaps nothing of `from`.
    unsafe {
        if let Some(index) = to.device().kernels() {
            on_cuda(index, to, &buffer(from), identity_type(to, from.dtype()));
        } else if to.dtype() == from.dtype() {
            let elements = |t| {
                let t: &Tensor = t;
                Elements { ptr: t.data_ptr(), shape: t.shape(), strides: t.strides() }
            };
            copy(to.dtype().size(), elements(to), elements(from));
        } else {
            let compute = identity_type(to, from.dtype());
            let operands = [buffer(to), buffer(from)];
            if !convert(compute, to.shape(), &operands[0], &operands[1]) {
                execute(&IDENTITY, compute, &[], to.shape(), 1, &operands);
            }
        }
    }
}

/// The type in which elements are converted: the source's, but integers that become floats are at once.
fn identity_type(to: &Tensor, from: Dtype) -> Compute {
    match (compute_of(from), compute_of(to.dtype())) {
        (Compute::I64, other) => other,
        (own, _) => own,
    }
}

/// [`assign`] from one device to another: converted where the source is, then sent.
#[track_caller]
fn assign_across(to: &Tensor, from: &Tensor) {
    let from = from.detach().to_dtype(to.dtype());
    let dense = from.layout().is_non_overlapping_and_dense();
    let arrived = if dense { from } else { from.contiguous() }.transferred(to.device());
    // SAFETY: what arrived is new.
    unsafe { assign(to, &arrived) };
}

/// The identity on a GPU.
///
/// # Safety
/// As [`assign`].
#[track_caller]
unsafe fn on_cuda(index: usize, to: &Tensor, from: &Buffer<'_>, compute: Compute) {
    // SAFETY: tensors' layouts lie inside their storages, and so does `from`; `assign`'s contract
    // for the rest.
    let done = cuda::Stream::current(index).and_then(|stream| unsafe {
        let operands = [buffer(to), *from];
        cuda::pointwise::execute(IDENTITY.text(), compute, &[], to.shape(), 1, &operands, stream)
    });
    if let Err(error) = done {
        throw(error);
    }
}

/// Copies elements that are anywhere on the GPU of `to`, with any strides.
///
/// # Safety
/// `from` and the strides give elements of `to`'s type for its shape, and overlap nothing of `to`.
#[track_caller]
pub(crate) unsafe fn assign_strided(to: &Tensor, from: *mut u8, strides: &[isize]) {
    let Some(index) = to.device().kernels() else {
        throw(Error::Device("a strided copy of addresses is for GPUs".to_owned()))
    };
    if to.dtype() == Dtype::C128 {
        let strides: SmallVec<[isize; 6]> = strides.iter().map(|s| 2 * s).chain([1]).collect();
        // SAFETY: this function's contract, for the parts.
        return unsafe { assign_strided(&to.detach().view_as_real(), from, &strides) };
    }
    let format = format_of(to.dtype());
    let from = Buffer::Memory { ptr: from, format, shape: to.shape(), strides };
    // SAFETY: this function's contract: `from` and the strides give elements of `to`'s type, which
    // overlap nothing of it.
    unsafe { on_cuda(index, to, &from, compute_of(to.dtype())) };
}

/// [`assign`] to or from a complex type: parts to parts, real numbers to real parts.
///
/// # Safety
/// As [`assign`].
#[track_caller]
unsafe fn assign_parts(to: &Tensor, from: &Tensor) {
    let (to, from) = (to.detach(), from.detach());
    // SAFETY: the parts of `to` name no element twice and overlap nothing of `from`, as `to` does.
    unsafe {
        match (to.dtype().is_complex(), from.dtype().is_complex()) {
            (true, true) => assign(&to.view_as_real(), &from.view_as_real()),
            (true, false) => {
                assign(&to.real(), &from);
                set(&to.imag(), Scalar::I(0), 0);
            }
            _ if to.dtype() == Dtype::Bool => assign(&to, &from.ne(0i64)),
            _ => throw(Error::dtype(
                "to_dtype",
                format!(
                    "{} to {} would lose the imaginary part; use `real`, `imag` or `abs`",
                    from.dtype(),
                    to.dtype()
                ),
            )),
        }
    }
}

/// Sets all elements; zeros are [written](crate::cpu::elementwise::streaming::zero) `together` with so many bytes.
///
/// # Safety
/// `to` names no element twice.
unsafe fn set(to: &Tensor, value: Scalar, together: usize) {
    let _span = profiler::op("fill");
    if to.is_contiguous() && value.to_f64() == 0.0 && value.to_f64().is_sign_positive() {
        to.fill_contiguous(value, together);
        return;
    }
    if to.dtype().is_complex() {
        let to = to.detach();
        // SAFETY: the real parts name no element twice, as `to` does.
        unsafe { set(&to.real(), value, 0) };
        // SAFETY: the imaginary parts name no element twice either.
        return unsafe { set(&to.imag(), Scalar::I(0), 0) };
    }
    let compute = match (compute_of(to.dtype()), value) {
        // So that -0.5 is "true" and 2.7 becomes 2.
        (Compute::I64, Scalar::F(_)) => Compute::F64,
        (compute, _) => compute,
    };
    if let Some(index) = to.device().kernels() {
        // SAFETY: this function's contract; a constant overlaps nothing.
        return unsafe { on_cuda(index, to, &Buffer::Constant(constant(value)), compute) };
    }
    let operands: SmallVec<[Buffer<'_>; 2]> =
        smallvec![buffer(to), Buffer::Constant(constant(value))];
    // SAFETY: this function's contract; the layout lies inside the storage, and a constant overlaps
    // nothing.
    unsafe { execute(&IDENTITY, compute, &[], to.shape(), 1, &operands) };
}

impl Tensor {
    /// The elements converted to `dtype`; this tensor itself if it has that type already
    /// (`torch.Tensor.to`). Floats are truncated towards zero to become integers.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::from([1.75f64, -1.75, 0.]);
    /// assert_eq!(x.to_dtype(Dtype::I64).to_vec::<i64>(), [1, -1, 0]);
    /// assert_eq!(x.to_dtype(Dtype::Bool).to_vec::<bool>(), [true, true, false]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for complex numbers as real ones (bool is "not 0"): PyTorch takes their
    /// real part and warns.
    #[track_caller]
    pub fn to_dtype(&self, dtype: Dtype) -> Tensor {
        if self.dtype() == dtype {
            return self.clone();
        }
        let output = Tensor::empty(self.shape(), (dtype, self.device()));
        // SAFETY: a new tensor of the same shape.
        unsafe { assign(&output, self) };
        self.cast_to(output)
    }

    /// `output`, which is this in another dtype, recorded as such.
    #[track_caller]
    pub(super) fn cast_to(&self, output: Tensor) -> Tensor {
        let from = self.dtype();
        record("to_dtype", &[self], output, |_| {
            move |ctx: &BackwardCtx<'_>| {
                let g = ctx.grad(0);
                // Of a real number that became complex only the real part can change.
                smallvec![Some(if from.is_complex() { g } else { g.real() }.to_dtype(from))]
            }
        })
    }

    /// A copy in row-major order with memory of its own (`torch.Tensor.clone`, contiguous).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// let copy = x.t().clone_contiguous();
    /// x.zero_();
    /// assert_eq!((copy.to_vec::<f32>(), copy.strides()), (vec![1.0, 3.0, 2.0, 4.0], &[2, 1][..]));
    /// ```
    #[track_caller]
    pub fn clone_contiguous(&self) -> Tensor {
        let output = Tensor::empty(self.shape(), (self.dtype(), self.device()));
        // SAFETY: a new tensor of the same shape.
        unsafe { assign(&output, self) };
        record("clone", &[self], output, |_| {
            move |ctx: &BackwardCtx<'_>| smallvec![Some(ctx.grad(0))]
        })
    }

    /// This tensor if it is contiguous, else a copy that is (`torch.Tensor.contiguous`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// assert!(x.contiguous().ptr_eq(&x));
    /// assert!(!x.t().is_contiguous() && x.t().contiguous().is_contiguous());
    /// ```
    #[track_caller]
    pub fn contiguous(&self) -> Tensor {
        if self.is_contiguous() { self.clone() } else { self.clone_contiguous() }
    }

    /// Overwrites this tensor with `source`, which broadcasts and is converted
    /// (`torch.Tensor.copy_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// assert_eq!(x.copy_(&Tensor::from([7i64, 8])).to_vec::<f32>(), [7.0, 8.0, 7.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when `source` does not broadcast to this shape.
    #[track_caller]
    pub fn copy_(&self, source: &Tensor) -> &Tensor {
        let _scope = Scope::enter(|| "copy_");
        self.assert_inplace_legal("copy_");
        if broadcast_shapes(self.shape(), source.shape()).as_deref() != Ok(self.shape()) {
            throw(Error::shape(
                "copy_",
                format!(
                    "a source of shape {:?} does not broadcast to {:?}",
                    source.shape(),
                    self.shape()
                ),
            ));
        }
        if self.device().is_meta() && !source.device().is_meta() && !initial::is_noting() {
            throw(Error::Device(
                "copy_: a tensor on meta takes no values; give its module memory with `Module::to_empty(device)` first"
                    .to_owned(),
            ));
        }
        let overlap =
            self.storage().ptr_eq(source.storage()) && buffer(self).overlaps(&buffer(source));
        let apart = overlap.then(|| source.detach().clone_contiguous());
        // SAFETY: no element twice, by the assertion above, and no overlap, thanks to the copy.
        unsafe { assign(self, apart.as_ref().unwrap_or(source)) };
        record_inplace("copy_", self, &[self, source], |_| {
            move |ctx: &BackwardCtx<'_>| smallvec![None, Some(ctx.grad(0))]
        });
        self
    }

    /// Sets all elements to `value`, a number or a 0-dim tensor (`torch.Tensor.fill_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.fill_(0.5).to_vec::<f32>(), [0.5, 0.5]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for a tensor with dimensions.
    #[track_caller]
    pub fn fill_<'a>(&self, value: impl Into<Operand<'a>>) -> &Tensor {
        match value.into() {
            Operand::Scalar(value) => self.fill_number(value, 0),
            Operand::Tensor(value) if value.dim() == 0 => self.copy_(value),
            Operand::Tensor(value) => throw(Error::shape(
                "fill_",
                format!("takes a number or a 0-dim tensor, got shape {:?}", value.shape()),
            )),
        }
    }

    #[track_caller]
    fn fill_number(&self, value: Scalar, together: usize) -> &Tensor {
        let _scope = Scope::enter(|| "fill_");
        self.assert_inplace_legal("fill_");
        // SAFETY: no element twice, by the assertion above.
        unsafe { set(self, value, together) };
        record_inplace("fill_", self, &[self], |_| move |_: &BackwardCtx<'_>| smallvec![None]);
        self.note_initial(move |t| _ = t.fill_number(value, 0), 0);
        self
    }

    /// Sets all elements to zero (`torch.Tensor.zero_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// x.i(0).zero_();
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn zero_(&self) -> &Tensor {
        self.fill_(0i64)
    }
}

/// Sets all elements of all tensors to zero (`torch._foreach_zero_`), past the caches if together they are too large
/// for them, although each alone is not.
#[track_caller]
pub(crate) fn zero_all(tensors: &[Tensor]) {
    let together = tensors.iter().map(|t| t.numel() * t.dtype().size()).sum();
    for t in tensors {
        t.fill_number(Scalar::I(0), together);
    }
}
