//! Tensors from nothing and from Rust values. Random ones are in `ops/random.rs`.

use smallvec::SmallVec;

use super::default_device::default_device;
use super::{Complex, Device, Dtype, Element, Scalar, Shape, Tensor, dispatch};
use crate::cpu::elementwise::streaming::zero;
use crate::cuda;
use crate::error::{Error, throw};

/// Dtype, device and `requires_grad` of a new tensor. `F32`, `(F32, Device::Cpu)` and the default
/// (f32 on the CPU) convert into it.
///
/// ```
/// use torchrs::{Device, Dtype, Tensor, TensorOptions};
/// let options = TensorOptions { dtype: Dtype::F64, requires_grad: true, ..Default::default() };
/// let x = Tensor::zeros([2], options);
/// assert!(x.dtype() == Dtype::F64 && x.requires_grad());
/// assert_eq!(Tensor::zeros([2], (Dtype::I64, Device::Cpu)).dtype(), Dtype::I64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorOptions {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Where the bytes live.
    pub device: Device,
    /// Whether the new tensor is a leaf that collects a gradient.
    pub requires_grad: bool,
}

impl TensorOptions {
    /// A new tensor, filled before it may require a gradient.
    #[track_caller]
    pub(crate) fn made(self, shape: impl AsRef<[usize]>, fill: impl FnOnce(&Tensor)) -> Tensor {
        let t = Tensor::empty(shape, TensorOptions { requires_grad: false, ..self });
        fill(&t);
        if self.requires_grad { t.requires_grad_(true) } else { t }
    }

    /// The same with `requires_grad`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, TensorOptions};
    /// let x = Tensor::ones([2], TensorOptions::from(Dtype::F64).requires_grad(true));
    /// x.sum().backward();
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, 1.0]);
    /// ```
    pub fn requires_grad(mut self, requires_grad: bool) -> Self {
        self.requires_grad = requires_grad;
        self
    }

    /// A tensor that was computed on the host, as these options want it.
    #[track_caller]
    pub(crate) fn finish(self, t: Tensor) -> Tensor {
        let t = match self.device {
            Device::Cpu => t,
            device => {
                let there = t.transferred(device);
                there.note_initial(move |there| _ = there.copy_(&t), 0);
                there
            }
        };
        if self.requires_grad { t.requires_grad_(true) } else { t }
    }
}

impl Default for TensorOptions {
    fn default() -> Self {
        TensorOptions { dtype: default_dtype(), device: default_device(), requires_grad: false }
    }
}

impl From<Dtype> for TensorOptions {
    fn from(dtype: Dtype) -> Self {
        TensorOptions { dtype, ..Default::default() }
    }
}

impl From<(Dtype, Device)> for TensorOptions {
    fn from((dtype, device): (Dtype, Device)) -> Self {
        TensorOptions { dtype, device, ..Default::default() }
    }
}

/// The dtype of new floating-point tensors: f32.
pub const fn default_dtype() -> Dtype {
    Dtype::F32
}

impl Tensor {
    /// Uninitialised elements (`torch.empty`): write them before reading.
    #[track_caller]
    pub fn empty(shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>) -> Tensor {
        let (shape, options) = (shape.as_ref(), options.into());
        if let Err(error) = options.device.check() {
            throw(error);
        }
        let t = Tensor::uninitialised_on(shape, options.dtype, options.device);
        if options.requires_grad { t.requires_grad_(true) } else { t }
    }

    /// All elements equal to `value` (`torch.full`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::full([2, 2], 7, Dtype::I64).to_vec::<i64>(), [7; 4]);
    /// ```
    #[track_caller]
    pub fn full(
        shape: impl AsRef<[usize]>,
        value: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let value = value.into();
        options.into().made(shape, |t| {
            t.fill_contiguous(value, 0);
            t.note_initial(move |t| _ = t.fill_(value), 0);
        })
    }

    /// Zeros (`torch.zeros`).
    #[track_caller]
    pub fn zeros(shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>) -> Tensor {
        Tensor::full(shape, 0i64, options)
    }

    /// Ones (`torch.ones`).
    #[track_caller]
    pub fn ones(shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>) -> Tensor {
        Tensor::full(shape, 1i64, options)
    }

    /// Uninitialised, with this tensor's shape and dtype (`torch.empty_like`); row-major.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::zeros([2, 3], Dtype::I8).t().empty_like();
    /// assert!(x.shape() == [3, 2] && x.dtype() == Dtype::I8 && x.is_contiguous());
    /// ```
    #[track_caller]
    pub fn empty_like(&self) -> Tensor {
        Tensor::empty(self.shape(), (self.dtype(), self.device()))
    }

    /// Zeros with this tensor's shape and dtype (`torch.zeros_like`).
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        Tensor::zeros(self.shape(), (self.dtype(), self.device()))
    }

    /// Ones with this tensor's shape and dtype (`torch.ones_like`).
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        Tensor::ones(self.shape(), (self.dtype(), self.device()))
    }

    /// `value` everywhere, with this tensor's shape and dtype (`torch.full_like`).
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Tensor {
        Tensor::full(self.shape(), value, (self.dtype(), self.device()))
    }

    /// A 0-dim tensor: f32 for a float, i64 for an integer, bool for a truth value.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::scalar(2.5);
    /// assert!(x.shape().is_empty() && x.dtype() == Dtype::F32 && x.item() == 2.5);
    /// assert_eq!(Tensor::scalar(true).dtype(), Dtype::Bool);
    /// ```
    pub fn scalar(value: impl Into<Scalar>) -> Tensor {
        let value = value.into();
        Tensor::full([], value, value.dtype().on_host())
    }

    /// A copy of `data` in row-major order.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when `shape` has another number of elements than `data`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let t = Tensor::from_slice(&[1f32, 2., 3., 4.], [2, 2]);
    /// assert_eq!(t.to_vec::<f32>(), [1., 2., 3., 4.]);
    /// ```
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: impl AsRef<[usize]>) -> Tensor {
        let shape = shape.as_ref();
        if shape.iter().product::<usize>() != data.len() {
            throw(Error::shape(
                "from_slice",
                format!("{} elements do not fill shape {shape:?}", data.len()),
            ));
        }
        let t = Tensor::empty(shape, T::DTYPE.on_host());
        // SAFETY: the new tensor is contiguous, has `data.len()` elements of type T and no other user.
        unsafe { t.data_ptr().cast::<T>().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        t
    }

    /// `start`, `start + step`, ... below `end` (`torch.arange`), of the type that `options` says;
    /// [`arange_inferred`](Self::arange_inferred) finds the type that PyTorch takes without one.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::arange(0, 10, 3, Dtype::I64).to_vec::<i64>(), [0, 3, 6, 9]);
    /// assert_eq!(Tensor::arange(1.0, 0.0, -0.5, Dtype::F32).to_vec::<f32>(), [1.0, 0.5]);
    /// ```
    ///
    /// # Panics
    /// Throws when `step` is 0 or leads away from `end`, and where one of the three is not finite.
    #[track_caller]
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let (start, end, step, options) = (start.into(), end.into(), step.into(), options.into());
        let (s, e, d) = (start.to_f64(), end.to_f64(), step.to_f64());
        if d == 0.0 || d.is_nan() || (e - s) * d < 0.0 {
            throw(Error::argument(
                "arange",
                "step",
                format!("{d} never leads from start {s} to end {e}"),
            ));
        }
        for (argument, value) in [("start", s), ("end", e)] {
            if !value.is_finite() {
                throw(Error::argument("arange", argument, format!("{value}; must be finite")));
            }
        }
        let n = match (start, end, step) {
            // Large integers are not f64's.
            (Scalar::I(s), Scalar::I(e), Scalar::I(d)) => {
                let (length, d) =
                    ((i128::from(e) - i128::from(s)).unsigned_abs(), d.unsigned_abs());
                length.div_ceil(d.into()) as usize
            }
            _ => ((e - s) / d).ceil() as usize,
        };
        let t = Tensor::empty([n], options.dtype.on_host());
        dispatch!(options.dtype, T => {
            // SAFETY: new, contiguous, n elements of type T, no other user.
            let out = unsafe { std::slice::from_raw_parts_mut(t.data_ptr().cast::<T>(), n) };
            if options.dtype.is_floating_point() {
                for (i, o) in out.iter_mut().enumerate() { *o = T::from_f64(s + d * i as f64); }
            } else {
                let (s, d) = (start.to_i64(), step.to_i64());
                for (i, o) in out.iter_mut().enumerate() { *o = T::from_i64(s + d * i as i64); }
            }
        });
        options.finish(t)
    }

    /// [`arange`](Self::arange) of i64 if all three numbers are integers, else of the default type
    /// (`torch.arange` without `dtype`).
    ///
    /// # Panics
    /// As [`arange`](Self::arange).
    ///
    /// ```
    /// use torchrs::{Device, Dtype, Tensor};
    /// assert_eq!(Tensor::arange_inferred(0, 4, 2).dtype(), Dtype::I64);
    /// assert_eq!(Tensor::arange_inferred(0, 1, 0.25).dtype(), Dtype::F32);
    /// assert!(Device::Meta.scope(|| Tensor::arange_inferred(0, 4, 2)).is_meta());
    /// ```
    #[track_caller]
    pub fn arange_inferred(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
    ) -> Tensor {
        let numbers = [start.into(), end.into(), step.into()];
        let integers = numbers.iter().all(|number| matches!(number, Scalar::I(_)));
        let dtype = if integers { Dtype::I64 } else { default_dtype() };
        let [start, end, step] = numbers;
        Tensor::arange(start, end, step, dtype)
    }

    /// `0, 1, ..., n - 1` as i64, on the host.
    pub fn range(n: usize) -> Tensor {
        Tensor::arange(0i64, n, 1i64, Dtype::I64.on_host())
    }

    /// `steps` values evenly spaced from `start` to `end`, both included (`torch.linspace`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::linspace(0.0, 1.0, 5, Dtype::F32);
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// ```
    #[track_caller]
    pub fn linspace(
        start: f64,
        end: f64,
        steps: usize,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let options = options.into();
        let t = Tensor::empty([steps], options.dtype.on_host());
        let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
        dispatch!(options.dtype, T => {
            // SAFETY: new, contiguous, `steps` elements of type T, no other user.
            let out = unsafe { std::slice::from_raw_parts_mut(t.data_ptr().cast::<T>(), steps) };
            for (i, o) in out.iter_mut().enumerate() {
                // From both ends, as PyTorch, so that the last value is exactly `end`.
                *o = T::from_f64(if steps == 1 || i < steps / 2 { start + step * i as f64 } else { end - step * (steps - 1 - i) as f64 });
            }
        });
        options.finish(t)
    }

    /// Fills a contiguous tensor, which the caller may write; zeros are [written](zero) `together` with so many bytes.
    pub(crate) fn fill_contiguous(&self, value: Scalar, together: usize) {
        let n = self.numel();
        if let Some(index) = self.device().kernels() {
            return self.fill_by_kernel(index, value);
        }
        if value.to_f64() == 0.0 && value.to_f64().is_sign_positive() {
            // SAFETY: contiguous and `n` elements long; all dtypes have 0 as all-zero bytes.
            unsafe { zero(self.data_ptr(), n * self.dtype().size(), together) };
            return;
        }
        match self.dtype() {
            Dtype::C64 => self.fill_elements::<Complex<f32>>(value),
            Dtype::C128 => self.fill_elements::<Complex<f64>>(value),
            dtype => dispatch!(dtype, T => self.fill_elements::<T>(value)),
        }
    }

    #[cold]
    #[track_caller]
    fn fill_by_kernel(&self, index: usize, value: Scalar) {
        let (one, size) = (Tensor::full([1], value, self.dtype().on_host()), self.dtype().size());
        // SAFETY: an element of that many bytes.
        let element = unsafe { std::slice::from_raw_parts(one.data_ptr(), size) };
        let stream = cuda::Stream::current(index);
        // SAFETY: contiguous, so many elements long, and alive while its stream works on it.
        let done = stream.and_then(|stream| unsafe {
            cuda::fill::fill_elements(self.device_ptr(), element, self.numel(), stream)
        });
        if let Err(error) = done {
            throw(error);
        }
    }

    fn fill_elements<T: Element>(&self, value: Scalar) {
        assert_eq!(T::DTYPE, self.dtype());
        let v = match value {
            Scalar::I(v) => T::from_i64(v),
            other => T::from_f64(other.to_f64()),
        };
        // SAFETY: contiguous elements of type T, by the caller, who has just made the tensor.
        unsafe { std::slice::from_raw_parts_mut(self.data_ptr().cast::<T>(), self.numel()) }
            .fill(v);
    }
}

macro_rules! from_arrays {
    ($([$($n:ident),+] $array:ty),* $(,)?) => {$(
        impl<T: Element, $(const $n: usize),+> From<$array> for Tensor {
            fn from(data: $array) -> Tensor {
                let shape: Shape = SmallVec::from_slice(&[$($n),+]);
                // SAFETY: nested arrays lie densely in row-major order.
                let flat = unsafe { std::slice::from_raw_parts((&raw const data).cast::<T>(), shape.iter().product()) };
                Tensor::from_slice(flat, shape)
            }
        }
    )*};
}
from_arrays!([A][T; A], [A, B][[T; B]; A], [A, B, C][[[T; C]; B]; A], [A, B, C, D][[[[T; D]; C]; B]; A]);

impl<T: Element> From<Vec<T>> for Tensor {
    fn from(data: Vec<T>) -> Tensor {
        Tensor::from_slice(&data, [data.len()])
    }
}
