//! The tensor handle: dtype, device, layout, creation, indexing, printing. No op lives here;
//! `Tensor`'s methods that compute are `impl Tensor` blocks in [`ops`](crate::ops).
//!
//! Knows nothing of `ops`, `amp` and `nn`.
//!
//! ```
//! use torchrs::{Dtype, Tensor};
//! let x = Tensor::arange(0, 6, 1, Dtype::I64).view([2, 3]);
//! assert_eq!((x.shape(), x.strides(), x.dtype()), (&[2, 3][..], &[3, 1][..], Dtype::I64));
//! assert_eq!(x.to_string(), "tensor([[0, 1, 2],\n        [3, 4, 5]])");
//! ```

mod access;
mod creation;
mod data;
mod default_device;
pub(crate) mod dtype;
pub(crate) mod initial;
#[doc(hidden)]
pub mod layout;
mod print;
mod promotion;
mod scalar;
mod transfer;

use std::marker::PhantomPinned;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::autograd::{AutogradMeta, is_inference_mode_enabled};
use crate::counted::{Counted, counted};
use crate::cuda::traffic;
use crate::error::{Error, throw};
use crate::storage::race::{Elements, InFlight, Use};
use crate::storage::{Storage, living};
use data::DtypeCell;

pub use crate::storage::Device;

pub use creation::{TensorOptions, default_dtype};
pub use default_device::default_device;
pub(crate) use dtype::dispatch;
pub use dtype::{Complex, Dtype, Element};
pub use layout::{Layout, Shape, Strides, broadcast_shapes};
pub use promotion::{ResultType, can_cast, promote_types, result_type};
pub use scalar::{Operand, Scalar};

/// An n-dimensional array (`torch.Tensor`): a cheap handle; clones are the same tensor. Views
/// (`transpose`, slices, ...) are other tensors over the same storage.
///
/// Misuse (shapes that do not fit, an illegal dtype) panics at the caller's line with a typed
/// [`Error`]; [`catch`](crate::catch) turns that into a value.
///
/// # Threads
/// A tensor may be used by several threads, and ops that only read it may run at once. An in-place
/// op (`add_`, `copy_`, an optimizer's step) on memory that another thread's op uses is a data race,
/// although both calls are safe functions: the handle is shared, and no lock guards the numbers, as
/// in PyTorch. Let the threads take turns (a lock, a channel, a join), or let each have its own
/// bytes. Views with no byte in common may be changed at once.
///
/// Builds with debug assertions look for such races. An op that meets another thread's op on the same
/// bytes panics, and the message names both calls. A collective or message in the background counts as
/// such an op until it has completed. Release builds do not look, and pay nothing.
/// Not looked at: memory shared between processes (after `share_memory`, where a race may be
/// intended, as in Hogwild training), memory of GPUs, and addresses and slices taken by unsafe calls.
///
/// ```
/// use torchrs::{Tensor, catch};
/// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
/// let (same, transposed) = (x.clone(), x.t());
/// x.mul_(10.0);
/// assert_eq!(same.to_vec::<f32>(), [10., 20., 30., 40.]);
/// assert_eq!(transposed.to_vec::<f32>(), [10., 30., 20., 40.]);
/// assert!(catch(|| x.matmul(&Tensor::from([1f32, 2., 3.]))).is_err());
/// ```
#[derive(Clone)]
pub struct Tensor(pub(crate) Counted<TensorImpl>);

pub(crate) struct TensorImpl {
    /// Another one after [`Tensor::set_data`], as the type.
    storage: Storage,
    /// That of the tensor when it was made; see [`MOVED`].
    layout: Layout,
    dtype: DtypeCell,
    /// The tensor this one is a view of; never itself a view.
    base: Option<Tensor>,
    /// [`REQUIRES_GRAD`] and the others, readable without the lock.
    pub(crate) flags: AtomicU8,
    /// Of a view the storage's version when its history was recorded; of an object that saves a tensor for backward, when
    /// it was saved.
    pub(crate) attr_version: AtomicU32,
    pub(crate) meta: Mutex<AutogradMeta>,
    /// Not `Unpin`, and so is every type that holds a tensor: by that `#[derive(Module)]` refuses a field with
    /// tensors that it would not move, save or train.
    _not_plain: PhantomPinned,
}

/// Set when the tensor is a leaf that requires a gradient or has a `grad_fn`.
pub(crate) const REQUIRES_GRAD: u8 = 1;
/// Set when the tensor, or what it is a view of, was made in inference mode.
pub(crate) const INFERENCE_TENSOR: u8 = 2;
/// Set when the tensor carries a tangent.
pub(crate) const TANGENT: u8 = 4;
/// Set for a view that an op gave together with others (`unbind`, `split`), and for views of it.
pub(crate) const ONE_OF_SEVERAL: u8 = 8;
/// Set when the elements lie densely in row-major order, which ops ask all the time.
const CONTIGUOUS: u8 = 16;
/// Set when [`Tensor::set_data`] gave the tensor memory of its own in which its layout is another: that is then with
/// autograd's data, and the tensor is a view no more.
const MOVED: u8 = 32;

impl Tensor {
    /// A tensor over `storage`. Unsafe-free by check: the layout must lie inside the storage.
    #[track_caller]
    pub(crate) fn from_parts(storage: Storage, layout: Layout, dtype: Dtype) -> Tensor {
        assert!(
            layout.extent() * dtype.size() <= storage.nbytes(),
            "layout {layout:?} of {dtype} does not fit in {} bytes",
            storage.nbytes()
        );
        let flags = Self::first_flags() | layout_flags(&layout);
        Self::placed(storage, || layout, dtype, None, flags)
    }

    /// Uninitialised elements in row-major order, in host memory.
    #[track_caller]
    #[inline]
    pub(crate) fn uninitialised(shape: &[usize], dtype: Dtype) -> Tensor {
        Self::uninitialised_on(shape, dtype, Device::Cpu)
    }

    /// Uninitialised elements in row-major order.
    #[track_caller]
    #[inline]
    pub(crate) fn uninitialised_on(shape: &[usize], dtype: Dtype, device: Device) -> Tensor {
        let mut nbytes = dtype.size();
        for &size in shape {
            let Some(more) = nbytes.checked_mul(size) else { too_large(shape) };
            nbytes = more;
        }
        let (storage, flags) = (Storage::on(device, nbytes), Self::first_flags() | CONTIGUOUS);
        if nbytes >= living::LARGE {
            living::holds(device, storage.address().addr(), &dtype, shape);
        }
        match Layout::is_inline(shape) {
            true => Self::placed(storage, || Layout::contiguous_inline(shape), dtype, None, flags),
            false => Self::placed(storage, || Layout::contiguous(shape), dtype, None, flags),
        }
    }

    /// The flags of a tensor with memory of its own.
    #[inline]
    fn first_flags() -> u8 {
        if is_inference_mode_enabled() { INFERENCE_TENSOR } else { 0 }
    }

    /// A tensor whose layout, inside the storage, `layout` makes where it stays.
    #[inline(always)]
    fn placed(
        storage: Storage,
        layout: impl FnOnce() -> Layout,
        dtype: Dtype,
        base: Option<Tensor>,
        flags: u8,
    ) -> Tensor {
        let attr_version = if base.is_some() { storage.version() } else { 0 };
        Tensor(counted!(TensorImpl {
            layout: layout(),
            storage: storage,
            dtype: DtypeCell::new(dtype),
            base: base,
            flags: AtomicU8::new(flags),
            attr_version: AtomicU32::new(attr_version),
            meta: Mutex::default(),
            _not_plain: PhantomPinned,
        }))
    }

    /// A tensor over the same storage with another layout, known to autograd as a view of this one.
    /// The caller records its backward.
    #[track_caller]
    pub(crate) fn alias(&self, layout: Layout) -> Tensor {
        self.alias_as(layout, self.dtype())
    }

    /// [`alias`](Self::alias) with elements of another type; `layout` counts in those.
    #[track_caller]
    pub(crate) fn alias_as(&self, layout: Layout, dtype: Dtype) -> Tensor {
        let base = self.base().unwrap_or(self).clone();
        assert!(
            layout.extent() * dtype.size() <= self.storage().nbytes(),
            "layout {layout:?} of {dtype} is outside its storage of {} bytes",
            self.storage().nbytes()
        );
        let (storage, flags) =
            (self.0.storage.clone(), self.inherited_flags() | layout_flags(&layout));
        Self::placed(storage, || layout, dtype, Some(base), flags)
    }

    /// The same elements without history: shares storage and version counter, requires no gradient
    /// (`torch.Tensor.detach`), carries no tangent.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32]).requires_grad_(true);
    /// let y = &x * 2.0;
    /// let z = y.detach();
    /// assert!(y.requires_grad() && !z.requires_grad() && z.storage().ptr_eq(y.storage()));
    /// ```
    pub fn detach(&self) -> Tensor {
        let flags = self.inherited_flags() | (self.0.flags.load(Relaxed) & CONTIGUOUS);
        let (storage, layout) = (self.0.storage.clone(), self.layout());
        Self::placed(storage, || layout.clone(), self.dtype(), None, flags)
    }

    /// This tensor if it has no history to forget, else [`detach`](Self::detach)ed.
    #[inline]
    pub(crate) fn untracked(&self) -> Tensor {
        if self.wants_grad() || self.had_tangent() { self.detach() } else { self.clone() }
    }

    /// What a tensor over the same memory has in common with this one.
    fn inherited_flags(&self) -> u8 {
        self.0.flags.load(Relaxed) & (INFERENCE_TENSOR | ONE_OF_SEVERAL)
    }

    /// Sizes of the dimensions.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.0.layout.shape
    }

    /// Size of dimension `dim`; negative counts from the end.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([2, 3], torchrs::Dtype::F32);
    /// assert_eq!((x.size(0), x.size(-1)), (2, 3));
    /// ```
    ///
    /// # Panics
    /// Throws when there is no such dimension; a 0-dim tensor has none.
    #[track_caller]
    pub fn size(&self, dim: i64) -> usize {
        self.size_for("size", dim)
    }

    /// [`size`](Self::size) on behalf of `op`.
    #[track_caller]
    pub(crate) fn size_for(&self, op: &str, dim: i64) -> usize {
        if self.dim() == 0 {
            throw(Error::argument(
                op,
                "dim",
                format!("{dim}, but a 0-dim tensor has no dimension"),
            ));
        }
        self.shape()[self.normalize_dim(op, dim)]
    }

    /// Distance in elements between neighbours along each dimension.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([2, 3], torchrs::Dtype::F32);
    /// assert_eq!((x.strides(), x.t().strides()), (&[3, 1][..], &[1, 3][..]));
    /// ```
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.0.layout.strides
    }

    /// Shape, strides and offset.
    #[inline]
    pub fn layout(&self) -> &Layout {
        if self.has_flag(MOVED) { self.moved_layout() } else { &self.0.layout }
    }

    /// Position of the first element in the storage, in elements.
    #[inline]
    pub fn storage_offset(&self) -> usize {
        self.layout().offset
    }

    /// Number of dimensions.
    #[inline]
    pub fn dim(&self) -> usize {
        self.0.layout.shape.len()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.0.layout.numel()
    }

    /// Type of the elements.
    #[inline]
    pub fn dtype(&self) -> Dtype {
        self.0.dtype.get()
    }

    /// Where the bytes are.
    #[inline]
    pub fn device(&self) -> Device {
        self.0.storage.device()
    }

    /// True when the elements lie densely in row-major order.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([2, 3], torchrs::Dtype::F32);
    /// assert!(x.is_contiguous() && !x.t().is_contiguous() && x.t().contiguous().is_contiguous());
    /// ```
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.has_flag(CONTIGUOUS)
    }

    /// The bytes and their version counter.
    #[inline]
    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// The tensor of which this one is a view, if it is one.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([2, 3], torchrs::Dtype::F32);
    /// let view = x.t().select(0, 1);
    /// assert!(x.base().is_none() && view.base().unwrap().ptr_eq(&x)); // not the view in between
    /// ```
    #[inline]
    pub fn base(&self) -> Option<&Tensor> {
        self.0.base.as_ref().filter(|_| !self.has_flag(MOVED))
    }

    /// Address of the first element, in host memory. Valid while the tensor lives; what is done through
    /// it must not race with other users of the storage.
    ///
    /// # Panics
    /// Throws [`Error::Device`] for a tensor on a GPU; its address there is
    /// [`device_ptr`](Self::device_ptr).
    #[track_caller]
    #[inline]
    pub fn data_ptr(&self) -> *mut u8 {
        self.note(Use::Read);
        // `wrapping_add` because an empty tensor's offset may lie at the storage's end.
        self.0.storage.as_ptr().wrapping_add(self.layout().offset * self.dtype().size())
    }

    /// Address of the first element on the tensor's device, for that device's kernels.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn device_ptr(&self) -> *mut u8 {
        self.note(Use::Read);
        let at = self.0.storage.address().wrapping_add(self.layout().offset * self.dtype().size());
        if traffic::is_counted() {
            traffic::operand(at, self.distinct_bytes());
        }
        at
    }

    /// Bytes of the elements that are not others' copies along expanded dimensions.
    #[cold]
    fn distinct_bytes(&self) -> usize {
        let layout = self.layout();
        let dims = layout.shape.iter().zip(&layout.strides);
        let own = dims.filter(|(_, stride)| **stride != 0).map(|(size, _)| *size);
        own.product::<usize>() * self.dtype().size()
    }

    /// Notes for the running op, in debug builds, that it uses the elements.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn note(&self, how: Use) {
        if cfg!(debug_assertions) {
            let Layout { shape, strides, offset } = self.layout();
            let size = self.dtype().size();
            self.storage().note(how, Elements { offset: *offset, size, shape, strides });
        }
    }

    /// Notes, in debug builds, that something in the background uses the elements.
    pub(crate) fn note_in_flight(&self, by: &mut InFlight, how: Use) {
        let Layout { shape, strides, offset } = self.layout();
        let size = self.dtype().size();
        let place = Elements { offset: *offset, size, shape, strides };
        self.storage().note_in_flight(by, how, place);
    }

    /// How often this tensor's storage was changed in place.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32, 2.]);
    /// x.narrow(0, 0, 1).add_(1.0);
    /// assert_eq!(x.version(), 1); // the storage is the view's too
    /// ```
    #[inline]
    pub fn version(&self) -> u32 {
        self.0.storage.version()
    }

    /// True when both are the same tensor object (not only equal values).
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32]);
    /// assert!(x.ptr_eq(&x.clone()) && !x.ptr_eq(&x.detach()));
    /// ```
    #[inline]
    pub fn ptr_eq(&self, other: &Tensor) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// A number that tells this tensor object from all others that are alive.
    #[inline]
    pub(crate) fn identity(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// True when nobody else holds this handle or its bytes: they may be reused in place.
    #[inline]
    pub(crate) fn is_uniquely_owned(&self) -> bool {
        self.0.owners() == 1 && self.base().is_none() && self.0.storage.is_unique()
    }

    /// A handle of its own for these bytes, if nobody else has them: [`is_uniquely_owned`](Self::is_uniquely_owned), or the
    /// only view of a tensor that nobody else holds, of all its elements.
    pub(crate) fn owned_alone(&self) -> Option<Tensor> {
        if self.is_uniquely_owned() {
            return Some(self.clone());
        }
        let base = self.base()?;
        let alone = self.0.owners() == 1 && base.0.owners() == 1 && self.storage().owners() == 2;
        let is_whole = base.numel() == self.numel() && base.dtype() == self.dtype();
        // An expanded part may have as many elements.
        let is_dense = self.layout().is_non_overlapping_and_dense();
        (alone && is_whole && is_dense && base.base().is_none()).then(|| {
            let flags = self.inherited_flags() | layout_flags(self.layout());
            Self::placed(
                self.0.storage.clone(),
                || self.layout().clone(),
                self.dtype(),
                None,
                flags,
            )
        })
    }

    #[inline]
    pub(crate) fn has_flag(&self, flag: u8) -> bool {
        self.0.flags.load(Relaxed) & flag != 0
    }

    /// `dim` as an index of a dimension; negative counts from the end. A 0-dim tensor takes 0 and -1.
    #[track_caller]
    #[inline]
    pub(crate) fn normalize_dim(&self, op: &str, dim: i64) -> usize {
        normalize_dim(op, dim, self.dim().max(1))
    }
}

/// The flags that say how the elements lie.
#[inline]
fn layout_flags(layout: &Layout) -> u8 {
    if layout.is_contiguous() { CONTIGUOUS } else { 0 }
}

#[cold]
#[track_caller]
fn too_large(shape: &[usize]) -> ! {
    throw(Error::shape("empty", format!("shape {shape:?} has more elements than memory has bytes")))
}

/// The dtypes and devices of tensors, each once, in the order in which they are met.
pub(crate) fn kinds_of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<(Dtype, Device)> {
    let mut kinds = Vec::new();
    for tensor in tensors {
        let kind = (tensor.dtype(), tensor.device());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// `dim` as an index below `n`; negative counts from the end.
#[track_caller]
#[inline]
pub(crate) fn normalize_dim(op: &str, dim: i64, n: usize) -> usize {
    let index = if dim < 0 { dim + n as i64 } else { dim };
    if index < 0 || index >= n as i64 {
        throw(Error::argument(
            op,
            "dim",
            format!("{dim} is out of range; expected -{n} to {}", n as i64 - 1),
        ));
    }
    index as usize
}

/// Indices of distinct dimensions, in the order given.
#[track_caller]
pub(crate) fn normalize_dims(op: &str, dims: &[i64], n: usize) -> SmallVec<[usize; 5]> {
    let mut out: SmallVec<[usize; 5]> = SmallVec::new();
    for &dim in dims {
        let d = normalize_dim(op, dim, n.max(1));
        if out.contains(&d) {
            throw(Error::argument(op, "dim", format!("dimension {d} appears twice in {dims:?}")));
        }
        out.push(d);
    }
    out
}
