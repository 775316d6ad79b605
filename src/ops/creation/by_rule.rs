//! Tensors of numbers by rule: index lists of triangles, powers.

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Scalar, Tensor, TensorOptions};

impl Tensor {
    /// `steps` values from `base^start` to `base^end`, evenly spaced in the exponent
    /// (`torch.logspace`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([1.0, 10.0, 100.0, 1000.0]);
    /// let y = Tensor::logspace(0.0, 3.0, 4, 10.0, Dtype::F64);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    #[track_caller]
    pub fn logspace(
        start: f64,
        end: f64,
        steps: usize,
        base: f64,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let options = options.into();
        // Of integers the exponents begin and end at whole numbers, as those of `linspace`.
        let whole = |x: f64| if options.dtype.is_integral() { x.trunc() } else { x };
        let (start, end) = (whole(start), whole(end));
        let exponents = Tensor::linspace(start, end, steps, Dtype::F64.on_host()).to_vec::<f64>();
        let powers: Vec<f64> = exponents.into_iter().map(|e| base.powf(e)).collect();
        options.finish(Tensor::from(powers).to_dtype(options.dtype))
    }

    /// The n x n identity matrix (`torch.eye`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::eye(2, Dtype::F32).to_vec::<f32>(), [1.0, 0.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn eye(n: usize, options: impl Into<TensorOptions>) -> Tensor {
        Tensor::eye_of(n, n, options)
    }

    /// The rows x columns matrix with ones on its main diagonal (`torch.eye` with two sizes).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::eye_of(2, 3, Dtype::I64).to_vec::<i64>(), [1, 0, 0, 0, 1, 0]);
    /// ```
    #[track_caller]
    pub fn eye_of(rows: usize, columns: usize, options: impl Into<TensorOptions>) -> Tensor {
        let options = options.into();
        let out = Tensor::zeros([rows, columns], (options.dtype, options.device));
        out.fill_diagonal_(1i64);
        out.requires_grad_(options.requires_grad)
    }

    /// Zeros of this tensor's type (`torch.Tensor.new_zeros`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let zeros = Tensor::from([7i64]).new_zeros([2]);
    /// assert_eq!((zeros.dtype(), zeros.to_vec::<i64>()), (Dtype::I64, vec![0, 0]));
    /// ```
    #[track_caller]
    pub fn new_zeros(&self, shape: impl AsRef<[usize]>) -> Tensor {
        self.new_full(shape, 0i64)
    }

    /// Ones of this tensor's type (`torch.Tensor.new_ones`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let ones = Tensor::from([7i64]).new_ones([2]);
    /// assert_eq!((ones.dtype(), ones.to_vec::<i64>()), (Dtype::I64, vec![1, 1]));
    /// ```
    #[track_caller]
    pub fn new_ones(&self, shape: impl AsRef<[usize]>) -> Tensor {
        self.new_full(shape, 1i64)
    }

    /// `value` everywhere, in this tensor's type (`torch.Tensor.new_full`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let sevens = Tensor::from([1f64]).new_full([2], 7);
    /// assert_eq!((sevens.dtype(), sevens.to_vec::<f64>()), (Dtype::F64, vec![7.0, 7.0]));
    /// ```
    #[track_caller]
    pub fn new_full(&self, shape: impl AsRef<[usize]>, value: impl Into<Scalar>) -> Tensor {
        Tensor::full(shape, value, (self.dtype(), self.device()))
    }

    /// A copy with all elements equal to `value`, a number or a 0-dim tensor (`torch.fill`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.fill(5.0).to_vec::<f32>(), [5.0, 5.0]);
    /// assert_eq!(x.to_vec::<f32>(), [1.0, 2.0]);
    /// ```
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
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::tril_indices(2, 2, 0).to_vec::<i64>(), [0, 1, 1, 0, 0, 1]);
    /// ```
    #[track_caller]
    pub fn tril_indices(rows: usize, columns: usize, offset: i64) -> Tensor {
        Tensor::ones([rows, columns], Dtype::Bool.on_host()).tril(offset).nonzero().t().contiguous()
    }

    /// Rows and columns of the upper triangle from `offset` on, `[2, n]` (`torch.triu_indices`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::triu_indices(2, 2, 0).to_vec::<i64>(), [0, 0, 1, 0, 1, 1]);
    /// ```
    #[track_caller]
    pub fn triu_indices(rows: usize, columns: usize, offset: i64) -> Tensor {
        Tensor::ones([rows, columns], Dtype::Bool.on_host()).triu(offset).nonzero().t().contiguous()
    }

    /// Powers 0 to `n` - 1 of the last dimension's elements as a new last dimension
    /// (`torch.linalg.vander`); without `n`, as many as there are elements. `torch.vander` has the highest power
    /// first: [`fliplr`](Self::fliplr) of this.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([2i64, 3]).vander(3).to_vec::<i64>(), [1, 2, 4, 1, 3, 9]);
    /// ```
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
        Tensor::cat(&[Tensor::ones(&shape, (powers.dtype(), powers.device())), powers], -1)
    }
}
