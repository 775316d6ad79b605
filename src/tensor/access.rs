//! Elements as Rust values.

use super::dtype::not_real;
use super::{Complex, Device, Dtype, Element, Tensor, dispatch};
use crate::error::{Error, throw};
use crate::storage::{no_values, race::Scope};

impl Tensor {
    /// All elements in row-major order, converted to `T` as `to_dtype` would
    /// (`torch.Tensor.tolist`).
    ///
    /// ```
    /// let x = torchrs::Tensor::from([[1f32, 2.5], [3., 4.]]);
    /// assert_eq!(x.t().to_vec::<f64>(), [1.0, 3.0, 2.5, 4.0]);
    /// assert_eq!(x.to_vec::<i64>(), [1, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for a complex tensor as real numbers.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        if T::DTYPE == self.dtype() && self.is_contiguous() && !self.device().is_apart() {
            let _scope = Scope::enter(|| "to_vec");
            let mut out = Vec::<T>::with_capacity(self.numel());
            // SAFETY: contiguous, `numel` elements of type T, as many as there is room for.
            unsafe {
                out.as_mut_ptr().copy_from(self.data_ptr().cast::<T>(), self.numel());
                out.set_len(self.numel());
            }
            return out;
        }
        let mut out = Vec::with_capacity(self.numel());
        if self.dtype().is_complex() {
            if !T::DTYPE.is_complex() {
                not_real("to_vec", self.dtype());
            }
            match self.dtype() {
                Dtype::C64 => self
                    .for_each_element(|v: Complex<f32>| out.push(T::from_complex(v.to_complex()))),
                _ => self.for_each_element(|v: Complex<f64>| out.push(T::from_complex(v))),
            }
            return out;
        }
        dispatch!(self.dtype(), S => self.for_each_element::<S>(|v| {
            out.push(if S::DTYPE.is_floating_point() { T::from_f64(v.to_f64()) } else { T::from_i64(v.to_i64()) });
        }));
        out
    }

    /// The value of a tensor with one element (`torch.Tensor.item`).
    ///
    /// ```
    /// use torchrs::{Tensor, catch};
    /// assert_eq!(Tensor::from([1f32, 2.]).sum().item(), 3.0);
    /// assert!(catch(|| Tensor::from([1f32, 2.]).item()).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when there are more elements, or none; [`Error::Dtype`] for a complex
    /// tensor, whose value [`item_complex`](Self::item_complex) gives.
    #[track_caller]
    pub fn item(&self) -> f64 {
        self.assert_single("item");
        if self.device().is_apart() {
            return self.read("item").item();
        }
        if self.dtype().is_complex() {
            not_real("item", self.dtype());
        }
        let _scope = Scope::enter(|| "item");
        dispatch!(self.dtype(), T => {
            // SAFETY: one element of type T at `data_ptr`.
            unsafe { self.data_ptr().cast::<T>().read() }.to_f64()
        })
    }

    /// The value of a tensor with one element, as an integer.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::scalar((1i64 << 53) + 1); // more than an f64 holds
    /// assert_eq!((x.item_i64(), x.item()), (9_007_199_254_740_993, 9_007_199_254_740_992.0));
    /// ```
    #[track_caller]
    pub fn item_i64(&self) -> i64 {
        self.assert_single("item_i64");
        if self.device().is_apart() {
            return self.read("item_i64").item_i64();
        }
        if self.dtype().is_complex() {
            not_real("item_i64", self.dtype());
        }
        let _scope = Scope::enter(|| "item_i64");
        dispatch!(self.dtype(), T => {
            // SAFETY: one element of type T at `data_ptr`.
            unsafe { self.data_ptr().cast::<T>().read() }.to_i64()
        })
    }

    /// The value of a tensor with one element of any type, as a complex number.
    ///
    /// # Panics
    /// As [`item`](Self::item).
    #[track_caller]
    pub fn item_complex(&self) -> Complex<f64> {
        self.assert_single("item_complex");
        self.to_vec::<Complex<f64>>()[0]
    }

    /// On the host, for an op that looks at values.
    #[track_caller]
    fn read(&self, op: &str) -> Tensor {
        self.assert_has_values(op);
        self.transferred(Device::Cpu)
    }

    /// Refuses a tensor without values, on behalf of an op whose result's shape depends on them.
    #[track_caller]
    pub(crate) fn assert_has_values(&self, op: &str) {
        if self.device().is_meta() {
            no_values(Some(op));
        }
    }

    /// Whether the only element is true; `without_values` for one that has no value. For an op that looks at values
    /// to choose among ways that give the same shapes.
    #[track_caller]
    pub(crate) fn is_true_or(&self, without_values: bool) -> bool {
        if self.device().is_meta() { without_values } else { self.item() != 0.0 }
    }

    #[track_caller]
    fn assert_single(&self, op: &str) {
        if self.numel() != 1 {
            throw(Error::shape(
                op,
                format!("a tensor with one element is needed, got shape {:?}", self.shape()),
            ));
        }
    }

    /// The elements as a slice.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([[1f32, 2.], [3., 4.]]);
    /// // SAFETY: nobody writes to `x` meanwhile.
    /// assert_eq!(unsafe { x.as_slice::<f32>() }, [1., 2., 3., 4.]);
    /// ```
    ///
    /// # Panics
    /// Throws when `T` is not the element type or the tensor is not contiguous.
    ///
    /// # Safety
    /// Nobody may write to the storage (in this process or, for shared memory, another one) while
    /// the slice lives.
    #[track_caller]
    pub unsafe fn as_slice<T: Element>(&self) -> &[T] {
        self.assert_slice::<T>("as_slice");
        // SAFETY: contiguous, `numel` elements of type T; no writer, by this function's contract.
        unsafe { std::slice::from_raw_parts(self.data_ptr().cast::<T>(), self.numel()) }
    }

    /// The elements as a mutable slice.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32, 2., 3.]);
    /// // SAFETY: nobody else uses `x` meanwhile.
    /// unsafe { x.as_mut_slice::<f32>() }.reverse();
    /// assert_eq!(x.to_vec::<f32>(), [3., 2., 1.]);
    /// ```
    ///
    /// # Panics
    /// Throws when `T` is not the element type, the tensor is not contiguous, or its memory is read-only.
    ///
    /// # Safety
    /// Nobody else may read or write the storage while the slice lives. The version counter is not
    /// bumped: autograd does not see the change.
    #[track_caller]
    #[allow(
        clippy::mut_from_ref,
        reason = "a tensor is a shared handle; exclusivity is the caller's promise"
    )]
    pub unsafe fn as_mut_slice<T: Element>(&self) -> &mut [T] {
        self.assert_slice::<T>("as_mut_slice");
        self.assert_writable("as_mut_slice");
        // SAFETY: contiguous, `numel` elements of type T; exclusive, by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.data_ptr().cast::<T>(), self.numel()) }
    }

    #[track_caller]
    fn assert_slice<T: Element>(&self, op: &str) {
        if T::DTYPE != self.dtype() {
            throw(Error::dtype(op, format!("the tensor holds {}, not {}", self.dtype(), T::DTYPE)));
        }
        if !self.is_contiguous() {
            throw(Error::argument(
                op,
                "self",
                format!(
                    "must be contiguous, has shape {:?} and strides {:?}",
                    self.shape(),
                    self.strides()
                ),
            ));
        }
    }

    /// Calls `f` for each element in row-major order. `T` must be the element type.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn for_each_element<T: Element>(&self, mut f: impl FnMut(T)) {
        assert_eq!(T::DTYPE, self.dtype());
        if self.device().is_apart() {
            return self.read("to_vec").for_each_element(f);
        }
        let _scope = Scope::enter(|| "to_vec");
        // Rows: all of a contiguous tensor is one.
        let n = self.numel();
        let (row, step, shape, strides) = match (self.is_contiguous(), self.shape(), self.strides())
        {
            (false, [shape @ .., row], [strides @ .., step]) => (*row, *step, shape, strides),
            _ => (n, 1, &[][..], &[][..]),
        };
        let base = self.data_ptr().cast::<T>();
        let mut index = vec![0usize; shape.len()];
        let mut position = 0isize;
        for _ in 0..n.checked_div(row).unwrap_or(0) {
            for place in 0..row as isize {
                // SAFETY: the layout's place of an index that is inside the shape.
                f(unsafe { base.offset(position + place * step).read() });
            }
            for d in (0..shape.len()).rev() {
                index[d] += 1;
                position += strides[d];
                if index[d] < shape[d] {
                    break;
                }
                position -= strides[d] * shape[d] as isize;
                index[d] = 0;
            }
        }
    }
}
