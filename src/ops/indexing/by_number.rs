//! Copies and values at the places of a list along a dimension, and places from numbers of elements.

use super::index_select::dense_index;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Tensor};

/// The places of `index` along `dim`, which must be a list of integers: bools would be a mask.
#[track_caller]
fn list(op: &'static str, index: &Tensor) -> Tensor {
    if index.dim() > 1 {
        let message = format!("of shape {:?}; must be a list", index.shape());
        throw(Error::argument(op, "index", message));
    }
    dense_index(op, index).reshape([-1])
}

impl Tensor {
    /// In-place form of [`index_copy`](Self::index_copy) (`torch.Tensor.index_copy_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// x.index_copy_(0, &Tensor::from([2i64, 0]), &Tensor::from([7i64, 8]));
    /// assert_eq!(x.to_vec::<i64>(), [8, 2, 7]);
    /// ```
    ///
    /// # Panics
    /// As [`index_copy`](Self::index_copy).
    #[track_caller]
    pub fn index_copy_(&self, dim: i64, index: &Tensor, source: &Tensor) -> &Tensor {
        let op = "index_copy_";
        if self.dim() == 0 {
            self.view([1]).index_copy_(dim, index, &source.reshape([1]));
            return self;
        }
        let dim = self.normalize_dim(op, dim) as i64;
        let (index, mut expected) = (list(op, index), self.shape().to_vec());
        expected[dim as usize] = index.numel();
        if source.shape() != expected {
            let message = format!("of shape {:?}; must be {expected:?}", source.shape());
            throw(Error::argument(op, "source", message));
        }
        if source.dtype() != self.dtype() {
            let message =
                format!("the tensor is {} and the source {}", self.dtype(), source.dtype());
            throw(Error::dtype(op, message));
        }
        self.movedim(dim, 0).index_put_(&[Some(&index)], &source.movedim(dim, 0), false);
        self
    }

    /// With the parts of `source` along `dim` at the places that `index` names (`torch.index_copy`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[1i64, 2, 3]]).index_copy(1, &Tensor::from([1i64]), &Tensor::from([[9i64]]));
    /// assert_eq!(y.to_vec::<i64>(), [1, 9, 3]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for an index that is no list or out of range, and unless `source` has the shape of
    /// the tensor, with as many parts along `dim` as the index names; [`Error::Dtype`] for two types,
    /// and for an index without integers.
    #[track_caller]
    pub fn index_copy(&self, dim: i64, index: &Tensor, source: &Tensor) -> Tensor {
        let copy = self.clone_contiguous();
        copy.index_copy_(dim, index, source);
        copy
    }

    /// In-place form of [`index_fill`](Self::index_fill) (`torch.Tensor.index_fill_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(x.index_fill_(0, &Tensor::from([2i64, 0]), -1).to_vec::<f32>(), [-1.0, 2.0, -1.0]);
    /// ```
    ///
    /// # Panics
    /// As [`index_fill`](Self::index_fill).
    #[track_caller]
    pub fn index_fill_<'a>(
        &self,
        dim: i64,
        index: &Tensor,
        value: impl Into<Operand<'a>>,
    ) -> &Tensor {
        let op = "index_fill_";
        if self.dim() == 0 {
            self.view([1]).index_fill_(dim, index, value);
            return self;
        }
        let dim = self.normalize_dim(op, dim) as i64;
        let value = match value.into() {
            Operand::Tensor(value) if value.dim() != 0 => {
                let message = format!("of shape {:?}; must be one number", value.shape());
                throw(Error::argument(op, "value", message))
            }
            // A place named twice is filled once, and counts once in the gradient of the value.
            Operand::Tensor(value) => {
                let mut shape = vec![1i64; self.dim()];
                shape[dim as usize] = -1;
                let places = Tensor::zeros([self.size(dim)], (Dtype::Bool, self.device()));
                places.index_fill_(0, index, true);
                return self.masked_fill_(&places.view(shape), &value.to_dtype(self.dtype()));
            }
            Operand::Scalar(value) => Tensor::full([], value, (self.dtype(), self.device())),
        };
        self.movedim(dim, 0).index_put_(&[Some(&list(op, index))], &value, false);
        self
    }

    /// With `value`, a number or a tensor without dimensions, in the parts along `dim` that `index` names
    /// (`torch.index_fill`). A place named twice counts once in the gradient of `value`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[1i64, 2], [3, 4]]).index_fill(1, &Tensor::from([0i64]), 7);
    /// assert_eq!(y.to_vec::<i64>(), [7, 2, 7, 4]);
    ///
    /// let value = Tensor::full([], 7.0, torchrs::Dtype::F32).requires_grad_(true);
    /// Tensor::zeros([3], torchrs::Dtype::F32).index_fill(0, &Tensor::from([1i64, 1]), &value).sum().backward();
    /// assert_eq!(value.grad().unwrap().item(), 1.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for an index that is no list or out of range, and for a value with dimensions;
    /// [`Error::Dtype`] for an index without integers.
    #[track_caller]
    pub fn index_fill<'a>(
        &self,
        dim: i64,
        index: &Tensor,
        value: impl Into<Operand<'a>>,
    ) -> Tensor {
        let copy = self.clone_contiguous();
        copy.index_fill_(dim, index, value);
        copy
    }

    /// The places, a tensor for each dimension of `shape`, of elements that are named by their numbers in row-major
    /// order (`torch.unravel_index`); i64. A number beyond the last element starts again at the first, as in PyTorch.
    /// The one element of a shape without dimensions has a place without parts.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let places = Tensor::from([1i64, 5]).unravel_index(&[2, 3]);
    /// assert_eq!((places[0].to_vec::<i64>(), places[1].to_vec::<i64>()), (vec![0, 1], vec![1, 2]));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for other types than integers, and [`Error::Shape`] for a shape without elements where a
    /// number is given.
    #[track_caller]
    pub fn unravel_index(&self, shape: &[usize]) -> Vec<Tensor> {
        let op = "unravel_index";
        if !self.dtype().is_integral() {
            throw(Error::dtype(op, format!("takes integers, got {}", self.dtype())));
        }
        if shape.contains(&0) && self.numel() > 0 {
            throw(Error::shape(
                op,
                format!("there are no elements in a tensor of shape {shape:?}"),
            ));
        }
        let mut rest = self.to_dtype(Dtype::I64);
        let mut places = Vec::with_capacity(shape.len());
        for &size in shape.iter().rev() {
            let size = size.max(1) as i64;
            places.push(rest.remainder(size));
            rest = rest.floor_divide(size);
        }
        places.reverse();
        places
    }

    /// The first `size` of the places of elements that are not zero, as [`nonzero`](Self::nonzero) lists them; behind
    /// fewer, rows of `fill_value` (`torch.nonzero_static`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let places = Tensor::from([0i64, 5, 6]).nonzero_static(3, -1);
    /// assert_eq!(places.to_vec::<i64>(), [1, 2, -1]);
    /// ```
    #[track_caller]
    pub fn nonzero_static(&self, size: usize, fill_value: i64) -> Tensor {
        let found = self.nonzero();
        let kept = found.size(0).min(size);
        let rest =
            Tensor::full([size - kept, found.size(1)], fill_value, (found.dtype(), found.device()));
        Tensor::cat(&[found.narrow(0, 0, kept), rest], 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;
    use crate::tensor::Dtype;

    #[test]
    fn copies_and_values_have_their_gradients() {
        let x = Tensor::zeros([2, 3], Dtype::F64).requires_grad_(true);
        let source = Tensor::ones([2, 2], Dtype::F64).requires_grad_(true);
        let index = Tensor::from([2i64, 0]);
        let weights = Tensor::from([[1f64, 2., 3.], [4., 5., 6.]]);
        (x.index_copy(1, &index, &source) * &weights).sum().backward();
        assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.0, 2.0, 0.0, 0.0, 5.0, 0.0]);
        assert_eq!(source.grad().unwrap().to_vec::<f64>(), [3.0, 1.0, 6.0, 4.0]);
        let value = Tensor::scalar(2.0).to_dtype(Dtype::F64).requires_grad_(true);
        (x.index_fill(-1, &index, &value) * &weights).sum().backward();
        assert_eq!(value.grad().unwrap().item(), 14.0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (x, index) = (Tensor::zeros([2, 3], Dtype::F32), Tensor::from([0i64]));
        let refused = |f: &dyn Fn(), what: &str| {
            let error = catch(f).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused(&|| _ = x.index_copy(1, &index, &Tensor::zeros([2, 2], Dtype::F32)), "[2, 1]");
        refused(&|| _ = x.index_copy(1, &index, &Tensor::zeros([2, 1], Dtype::F64)), "f64");
        refused(&|| _ = x.index_fill(2, &index, 0), "2");
        refused(&|| _ = x.index_fill(0, &Tensor::from([[0i64]]), 0), "list");
        let mask = Tensor::from([true, false]);
        refused(&|| _ = x.index_fill(0, &mask, 0), "bool");
        refused(&|| _ = x.index_copy(0, &mask, &x), "bool");
        refused(&|| _ = x.index_fill(0, &index, &Tensor::zeros([1], Dtype::F32)), "value");
        refused(&|| _ = x.unravel_index(&[3]), "integers");
        refused(&|| _ = index.unravel_index(&[3, 0]), "no elements");
        assert!(index.unravel_index(&[]).is_empty());
    }
}
