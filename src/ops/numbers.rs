//! Tensors of numbers by rule: index lists of triangles, powers.

use crate::error::{Error, throw};
use crate::tensor::{Operand, Scalar, TensorOptions};
use crate::{Dtype, Tensor};

impl Tensor {
    /// `steps` values from `base^start` to `base^end`, evenly spaced in the exponent
    /// (`torch.logspace`).
    #[track_caller]
    pub fn logspace(
        start: f64,
        end: f64,
        steps: usize,
        base: f64,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let options = options.into();
        let exponents = Tensor::linspace(start, end, steps, Dtype::F64).to_vec::<f64>();
        let powers: Vec<f64> = exponents.into_iter().map(|e| base.powf(e)).collect();
        Tensor::from(powers).to_dtype(options.dtype).requires_grad_(options.requires_grad)
    }

    /// The n x n identity matrix (`torch.eye`).
    #[track_caller]
    pub fn eye(n: usize, options: impl Into<TensorOptions>) -> Tensor {
        Tensor::eye_of(n, n, options)
    }

    /// The rows x columns matrix with ones on its main diagonal (`torch.eye` with two sizes).
    #[track_caller]
    pub fn eye_of(rows: usize, columns: usize, options: impl Into<TensorOptions>) -> Tensor {
        let options = options.into();
        let out = Tensor::zeros([rows, columns], options.dtype);
        out.fill_diagonal_(1i64);
        out.requires_grad_(options.requires_grad)
    }

    /// Zeros of this tensor's type (`torch.Tensor.new_zeros`).
    #[track_caller]
    pub fn new_zeros(&self, shape: impl AsRef<[usize]>) -> Tensor {
        self.new_full(shape, 0i64)
    }

    /// Ones of this tensor's type (`torch.Tensor.new_ones`).
    #[track_caller]
    pub fn new_ones(&self, shape: impl AsRef<[usize]>) -> Tensor {
        self.new_full(shape, 1i64)
    }

    /// `value` everywhere, in this tensor's type (`torch.Tensor.new_full`).
    #[track_caller]
    pub fn new_full(&self, shape: impl AsRef<[usize]>, value: impl Into<Scalar>) -> Tensor {
        Tensor::full(shape, value, (self.dtype(), self.device()))
    }

    /// A copy with all elements equal to `value`, a number or a 0-dim tensor (`torch.fill`).
    ///
    /// # Panics
    /// As [`fill_`](Self::fill_).
    #[track_caller]
    pub fn fill<'a>(&self, value: impl Into<Operand<'a>>) -> Tensor {
        let out = self.empty_like();
        out.fill_(value);
        out
    }

    /// Rows and columns of the lower triangle up to `offset`, `[2, n]` (`torch.tril_indices`).
    #[track_caller]
    pub fn tril_indices(rows: usize, columns: usize, offset: i64) -> Tensor {
        Tensor::ones([rows, columns], Dtype::Bool).tril(offset).nonzero().t().contiguous()
    }

    /// Rows and columns of the upper triangle from `offset` on, `[2, n]` (`torch.triu_indices`).
    #[track_caller]
    pub fn triu_indices(rows: usize, columns: usize, offset: i64) -> Tensor {
        Tensor::ones([rows, columns], Dtype::Bool).triu(offset).nonzero().t().contiguous()
    }

    /// Powers 0 to `n` - 1 of the last dimension's elements as a new last dimension
    /// (`torch.linalg.vander`); without `n`, as many as there are elements.
    ///
    /// # Panics
    /// Throws when `n` is below 2.
    #[track_caller]
    pub fn vander(&self, n: impl Into<Option<usize>>) -> Tensor {
        let x = self.atleast_1d();
        let n = n.into().unwrap_or_else(|| x.size(-1));
        if n < 2 {
            throw(Error::argument("vander", "n", format!("{n}; at least 2 powers are needed")));
        }
        let mut shape = x.layout().shape.clone();
        shape.push(n - 1);
        let powers = x.unsqueeze(-1).expand(&shape).cumprod(-1);
        shape[x.dim()] = 1;
        Tensor::cat(&[Tensor::ones(&shape, powers.dtype()), powers], -1)
    }
}
