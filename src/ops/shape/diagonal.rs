//! Matrices and their diagonals, and copies of a tensor with a part replaced: compositions of views
//! and in-place copies, whose derivatives follow.

use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::tensor::{Scalar, Shape, Tensor};

impl Tensor {
    /// The matrix with this list on a diagonal, or the diagonal of this matrix as a list
    /// (`torch.diag`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.diag(0).to_vec::<i64>(), [1, 4]);
    /// assert_eq!(Tensor::from([5i64]).diag(1).to_vec::<i64>(), [0, 5, 0, 0]);
    /// ```
    ///
    /// # Panics
    /// Throws for other than one or two dimensions.
    #[track_caller]
    pub fn diag(&self, diagonal: i64) -> Tensor {
        match self.dim() {
            1 => self.diagflat(diagonal),
            2 => self.diagonal(diagonal, 0, 1).clone_contiguous(),
            _ => throw(Error::shape(
                "diag",
                format!("takes a list or a matrix, got shape {:?}", self.shape()),
            )),
        }
    }

    /// The matrix with all elements, in row-major order, on a diagonal (`torch.diagflat`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64], [2]]).diagflat(0).to_vec::<i64>(), [1, 0, 0, 2]);
    /// ```
    #[track_caller]
    pub fn diagflat(&self, offset: i64) -> Tensor {
        self.ravel().diag_embed(offset, -2, -1)
    }

    /// Matrices with the last dimension on a diagonal; `dim1` and `dim2` are the matrices' dimensions
    /// in the result (`torch.diag_embed`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[1i64, 2], [3, 4]]).diag_embed(0, -2, -1);
    /// assert_eq!(y.to_vec::<i64>(), [1, 0, 0, 2, 3, 0, 0, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimensions are the same or out of range, or for a 0-dim tensor.
    #[track_caller]
    pub fn diag_embed(&self, offset: i64, dim1: i64, dim2: i64) -> Tensor {
        let Some((&n, batch)) = self.shape().split_last() else {
            throw(Error::shape("diag_embed", "takes at least one dimension"))
        };
        let size = n + offset.unsigned_abs() as usize;
        let mut shape: Shape = batch.into();
        shape.extend([size, size]);
        let out = Tensor::zeros(&shape, (self.dtype(), self.device()));
        out.diagonal(offset, -2, -1).copy_(self);
        out.movedims(&[-2, -1], &[dim1, dim2])
    }

    /// The sum of a matrix's diagonal (`torch.trace`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1f32, 2.], [3., 4.]]).trace().item(), 5.0);
    /// ```
    ///
    /// # Panics
    /// Throws for other than two dimensions.
    #[track_caller]
    pub fn trace(&self) -> Tensor {
        cast_op!("trace", [x = self] => x.trace());
        if self.dim() != 2 {
            throw(Error::shape("trace", format!("takes a matrix, got shape {:?}", self.shape())));
        }
        self.diagonal(0, 0, 1).sum()
    }

    /// Writes `value` on the main diagonal (`torch.Tensor.fill_diagonal_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.fill_diagonal_(0).to_vec::<i64>(), [0, 2, 3, 0]);
    /// ```
    ///
    /// # Panics
    /// Throws for other than two dimensions.
    #[track_caller]
    pub fn fill_diagonal_(&self, value: impl Into<Scalar>) -> &Tensor {
        if self.dim() != 2 {
            throw(Error::shape(
                "fill_diagonal_",
                format!("takes a matrix, got shape {:?}", self.shape()),
            ));
        }
        self.diagonal(0, 0, 1).fill_(value.into());
        self
    }

    /// A copy with `source` written on a diagonal (`torch.diagonal_scatter`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.diagonal_scatter(&Tensor::from([8i64, 9]), 0, 0, 1).to_vec::<i64>(), [8, 2, 3, 9]);
    /// ```
    ///
    /// # Panics
    /// As [`diagonal`](Self::diagonal), and when `source` has another shape than the diagonal.
    #[track_caller]
    pub fn diagonal_scatter(&self, source: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Tensor {
        self.with_part("diagonal_scatter", source, |x| x.diagonal(offset, dim1, dim2))
    }

    /// A copy with `source` written at `index` of dimension `dim` (`torch.select_scatter`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.select_scatter(&Tensor::from([8i64, 9]), 1, 0).to_vec::<i64>(), [8, 2, 9, 4]);
    /// ```
    ///
    /// # Panics
    /// As [`select`](Self::select), and when `source` has another shape than the slice.
    #[track_caller]
    pub fn select_scatter(&self, source: &Tensor, dim: i64, index: i64) -> Tensor {
        self.with_part("select_scatter", source, |x| x.select(dim, index))
    }

    /// A copy with `source` written to a slice (`torch.slice_scatter`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3, 4]);
    /// assert_eq!(x.slice_scatter(&Tensor::from([8i64, 9]), 0, 0, 4, 2).to_vec::<i64>(), [8, 2, 9, 4]);
    /// ```
    ///
    /// # Panics
    /// As [`slice`](Self::slice), and when `source` has another shape than the slice.
    #[track_caller]
    pub fn slice_scatter(
        &self,
        source: &Tensor,
        dim: i64,
        start: i64,
        end: i64,
        step: usize,
    ) -> Tensor {
        self.with_part("slice_scatter", source, |x| x.slice(dim, start, end, step))
    }

    /// A copy with `source` written to a strided part, `offset` counted from the first element
    /// (`torch.as_strided_scatter`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// let y = x.as_strided_scatter(&Tensor::from([8i64, 9]), &[2], &[1], 1);
    /// assert_eq!(y.to_vec::<i64>(), [1, 8, 9, 4]);
    /// ```
    ///
    /// # Panics
    /// As [`as_strided`](Self::as_strided), and when `source` has another shape than the part.
    #[track_caller]
    pub fn as_strided_scatter(
        &self,
        source: &Tensor,
        shape: &[usize],
        strides: &[isize],
        offset: usize,
    ) -> Tensor {
        self.with_part("as_strided_scatter", source, |x| x.as_strided(shape, strides, offset))
    }

    #[track_caller]
    fn with_part(&self, op: &str, source: &Tensor, part: impl Fn(&Tensor) -> Tensor) -> Tensor {
        let out = self.clone_contiguous();
        let target = part(&out);
        if target.shape() != source.shape() {
            throw(Error::shape(
                op,
                format!(
                    "a source of shape {:?} for a part of {:?}",
                    source.shape(),
                    target.shape()
                ),
            ));
        }
        target.copy_(source);
        out
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4], 1)];
    vec![
        OpSample::new("diag", [values([3], 1)], |x| x[0].diag(1)),
        OpSample::new("diag of a matrix", x(), |x| x[0].diag(-1)),
        OpSample::new("diag_embed", x(), |x| x[0].diag_embed(-1, 0, 2)),
        OpSample::new("trace", x(), |x| x[0].trace()),
        OpSample::new("unfold", x(), |x| x[0].unfold(1, 3, 1)),
        OpSample::new("diagonal_scatter", [values([3, 4], 1), values([3], 2)], |x| {
            x[0].diagonal_scatter(&x[1], 1, 0, 1)
        }),
        OpSample::new("constant_pad_nd", x(), |x| x[0].constant_pad_nd(&[1, -1, 0, 2], 0.5)),
    ]
}
