//! The same elements in the same order under another shape.

use smallvec::SmallVec;

use super::{shape_of, view};
use crate::error::{Error, throw};
use crate::tensor::{Layout, Shape, Tensor, normalize_dim};

/// `shape` with its one -1, if any, replaced by what `numel` elements need.
#[track_caller]
fn infer_shape(op: &str, shape: &[i64], from: &[usize]) -> Shape {
    let numel: usize = from.iter().product();
    let bad = |why: &str| -> ! {
        throw(Error::shape(
            op,
            format!("shape {shape:?} for a tensor of shape {from:?} ({numel} elements): {why}"),
        ))
    };
    let mut known = 1usize;
    let mut unknown = None;
    let mut out: Shape = SmallVec::with_capacity(shape.len());
    for (d, &size) in shape.iter().enumerate() {
        match size {
            -1 if unknown.is_some() => bad("only one size can be -1"),
            -1 => unknown = Some(d),
            s if s < -1 => bad("sizes are at least -1"),
            s => known *= s as usize,
        }
        out.push(size.max(0) as usize);
    }
    match unknown {
        Some(_) if known == 0 => bad("-1 beside a size of 0 is ambiguous"),
        Some(_) if !numel.is_multiple_of(known) => {
            bad("the other sizes do not divide the number of elements")
        }
        Some(d) => out[d] = numel / known,
        None if known != numel => bad("the number of elements differs"),
        None => {}
    }
    out
}

impl Tensor {
    /// The same memory under another shape; one size may be -1 (`torch.Tensor.view`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(6);
    /// let y = x.view([2, -1]);
    /// y.set_i((1, 0), 9);
    /// assert_eq!((y.shape(), x.to_vec::<i64>()), (&[2, 3][..], vec![0, 1, 2, 9, 4, 5]));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the number of elements differs or strides cannot express it; then
    /// [`reshape`](Self::reshape) copies.
    #[track_caller]
    pub fn view(&self, shape: impl AsRef<[i64]>) -> Tensor {
        let to = infer_shape("view", shape.as_ref(), self.shape());
        let Some(strides) = self.layout().view_strides(&to) else {
            throw(Error::shape(
                "view",
                format!(
                    "strides {:?} of shape {:?} cannot be seen as {:?} without a copy; use `reshape`",
                    self.strides(),
                    self.shape(),
                    &to[..]
                ),
            ))
        };
        self.view_with(to, strides)
    }

    fn view_with(&self, shape: Shape, strides: SmallVec<[isize; 5]>) -> Tensor {
        let from = shape_of(self);
        let layout = Layout { shape, strides, offset: self.storage_offset() };
        view("view", self, layout, move |g| g.reshape_to(&from))
    }

    /// The same elements in row-major order under another shape: a view where possible, else a copy
    /// (`torch.reshape`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.t().reshape([-1]).to_vec::<i64>(), [1, 3, 2, 4]);
    /// assert!(torchrs::catch(|| x.t().view([-1])).is_err());
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: impl AsRef<[i64]>) -> Tensor {
        let to = infer_shape("reshape", shape.as_ref(), self.shape());
        self.reshape_to(&to)
    }

    /// [`reshape`](Self::reshape) with all sizes known.
    #[track_caller]
    pub(crate) fn reshape_to(&self, shape: &[usize]) -> Tensor {
        if self.numel() != shape.iter().product::<usize>() {
            throw(Error::shape(
                "reshape",
                format!(
                    "shape {shape:?} for a tensor of shape {:?}: the number of elements differs",
                    self.shape()
                ),
            ));
        }
        match self.layout().view_strides(shape) {
            Some(strides) => self.view_with(shape.into(), strides),
            None => self.clone_contiguous().reshape_to(shape),
        }
    }

    /// This tensor in `other`'s shape (`torch.reshape_as`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(4).reshape_as(&Tensor::from([[7i64, 7], [7, 7]]));
    /// assert_eq!(x.shape(), &[2, 2]);
    /// ```
    #[track_caller]
    pub fn reshape_as(&self, other: &Tensor) -> Tensor {
        self.reshape_to(other.shape())
    }

    /// Dimensions `start` to `end` (both included) as one (`torch.flatten`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(24).view([2, 3, 4]);
    /// assert_eq!((x.flatten(1, -1).shape(), x.flatten(0, -1).shape()), (&[2, 12][..], &[24][..]));
    /// ```
    #[track_caller]
    pub fn flatten(&self, start: i64, end: i64) -> Tensor {
        let (s, e) = (self.normalize_dim("flatten", start), self.normalize_dim("flatten", end));
        if s > e {
            throw(Error::argument("flatten", "start", format!("{start} comes after end {end}")));
        }
        if self.dim() == 0 {
            return self.reshape_to(&[1]);
        }
        let mut shape: Shape = self.shape()[..s].into();
        shape.push(self.shape()[s..=e].iter().product());
        shape.extend_from_slice(&self.shape()[e + 1..]);
        self.reshape_to(&shape)
    }

    /// Dimension `dim` cut into `sizes`, of which one may be -1 (`torch.unflatten`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(24).view([2, 12]).unflatten(1, &[3, -1]).shape(), &[2, 3, 4]);
    /// ```
    #[track_caller]
    pub fn unflatten(&self, dim: i64, sizes: &[i64]) -> Tensor {
        let d = normalize_dim("unflatten", dim, self.dim());
        let inner = infer_shape("unflatten", sizes, &self.shape()[d..=d]);
        let mut shape: Shape = self.shape()[..d].into();
        shape.extend(inner);
        shape.extend_from_slice(&self.shape()[d + 1..]);
        self.reshape_to(&shape)
    }
}
