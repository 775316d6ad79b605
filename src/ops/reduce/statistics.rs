//! Counts, moments, distances, differences and integrals: compositions of other ops.

use crate::amp::cast_op;
use crate::error::{Error, throw};
use crate::ops::{gpu, indexing::search::cuda};
use crate::tensor::{Dtype, Scalar, Tensor};

impl Tensor {
    /// The unbiased variance and the mean of all elements (`torch.var_mean`).
    ///
    /// ```
    /// let (var, mean) = torchrs::Tensor::from([1f64, 3.]).var_mean();
    /// assert_eq!((var.item(), mean.item()), (2.0, 2.0));
    /// ```
    #[track_caller]
    pub fn var_mean(&self) -> (Tensor, Tensor) {
        (self.var(), self.mean())
    }

    /// The square root of the unbiased variance, and the mean, of all elements
    /// (`torch.std_mean`).
    ///
    /// ```
    /// let (std, mean) = torchrs::Tensor::from([1f64, 4., 7.]).std_mean();
    /// assert_eq!((std.item(), mean.item()), (3.0, 4.0));
    /// ```
    #[track_caller]
    pub fn std_mean(&self) -> (Tensor, Tensor) {
        (self.std(), self.mean())
    }

    /// The sum of all elements, with NaN as zero (`torch.nansum`).
    ///
    /// ```
    /// assert_eq!(torchrs::Tensor::from([1f32, f32::NAN, 2.]).nansum().item(), 3.0);
    /// ```
    #[track_caller]
    pub fn nansum(&self) -> Tensor {
        self.nansum_dim(&[], false)
    }

    /// The mean of all elements that are not NaN (`torch.nanmean`).
    ///
    /// ```
    /// assert_eq!(torchrs::Tensor::from([1f32, f32::NAN, 2.]).nanmean().item(), 1.5);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools.
    #[track_caller]
    pub fn nanmean(&self) -> Tensor {
        self.nanmean_dim(&[], false)
    }

    /// Variances and means along `dims` (`torch.var_mean`), as [`var_dim`](Self::var_dim).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (var, mean) = Tensor::from([[1f64, 3.], [4., 10.]]).var_mean_dim(&[1], 0, false);
    /// assert_eq!((var.to_vec::<f64>(), mean.to_vec::<f64>()), (vec![1.0, 9.0], vec![2.0, 7.0]));
    /// ```
    #[track_caller]
    pub fn var_mean_dim(
        &self,
        dims: &[i64],
        correction: impl Into<Scalar>,
        keepdim: bool,
    ) -> (Tensor, Tensor) {
        (self.var_dim(dims, correction, keepdim), self.mean_dim(dims, keepdim))
    }

    /// Standard deviations and means along `dims` (`torch.std_mean`), as [`std_dim`](Self::std_dim).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (std, mean) = Tensor::from([[1f64, 3.], [4., 10.]]).std_mean_dim(&[1], 0, false);
    /// assert_eq!((std.to_vec::<f64>(), mean.to_vec::<f64>()), (vec![1.0, 3.0], vec![2.0, 7.0]));
    /// ```
    #[track_caller]
    pub fn std_mean_dim(
        &self,
        dims: &[i64],
        correction: impl Into<Scalar>,
        keepdim: bool,
    ) -> (Tensor, Tensor) {
        (self.std_dim(dims, correction, keepdim), self.mean_dim(dims, keepdim))
    }

    /// Numbers of elements along `dims`, or of all if the list is empty, that are not zero
    /// (`torch.count_nonzero`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[0i64, 3], [5, 7]]);
    /// assert_eq!(x.count_nonzero(&[]).item(), 3.0);
    /// assert_eq!(x.count_nonzero(&[0]).to_vec::<i64>(), [1, 2]);
    /// ```
    #[track_caller]
    pub fn count_nonzero(&self, dims: &[i64]) -> Tensor {
        self.to_dtype(Dtype::Bool).sum_dim(dims, false)
    }

    /// Sums with NaN as zero (`torch.nansum`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, f32::NAN, 2.]).nansum_dim(&[], false).item(), 3.0);
    /// ```
    #[track_caller]
    pub fn nansum_dim(&self, dims: &[i64], keepdim: bool) -> Tensor {
        crate::tensor::dtype::assert_real("nansum", self.dtype());
        if !self.dtype().is_floating_point() {
            return self.sum_dim(dims, keepdim);
        }
        self.masked_fill(&self.detach().isnan(), 0.0).sum_dim(dims, keepdim)
    }

    /// Means of the elements that are not NaN (`torch.nanmean`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, f32::NAN, 2.]).nanmean_dim(&[], false).item(), 1.5);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools.
    #[track_caller]
    pub fn nanmean_dim(&self, dims: &[i64], keepdim: bool) -> Tensor {
        if !self.dtype().is_floating_point() {
            crate::tensor::dtype::not_floating("nanmean", self.dtype());
        }
        let count = self.detach().isnan().logical_not().sum_dim(dims, keepdim);
        self.nansum_dim(dims, keepdim) / count
    }

    /// How often each number from 0 on occurs in this list, or the sums of its `weights`
    /// (`torch.bincount`); at least `minlength` entries.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 3, 1]);
    /// assert_eq!(x.bincount(None, 0).to_vec::<i64>(), [0, 2, 0, 1]);
    /// let y = x.bincount(Some(&Tensor::from([0.5f64, 1., 2.])), 5);
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 2.5, 0.0, 1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when this is not a list of integers of at least 0, or `weights` has another length.
    #[track_caller]
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Tensor {
        let list = self.dim() == 1 && self.dtype().is_integral() && self.dtype() != Dtype::Bool;
        self.assert_has_values("bincount");
        let [least, most] = if list { ends(self) } else { [-1; 2] };
        if least < 0 {
            throw(Error::argument(
                "bincount",
                "input",
                format!(
                    "{} {:?}{}; a list of integers of at least 0 is needed",
                    self.dtype(),
                    self.shape(),
                    if list { format!(" with {least} in it") } else { String::new() }
                ),
            ));
        }
        let length = ((most + 1) as usize).max(minlength);
        let index = self.to_dtype(Dtype::I64);
        if let (None, Some(gpu)) = (weights, gpu::of("bincount", &[self])) {
            return cuda::count_numbers(gpu, &index, length);
        }
        match weights {
            None => Tensor::zeros([length], (Dtype::I64, self.device())).index_add(
                0,
                &index,
                &index.ones_like(),
            ),
            Some(w) => {
                let dtype = if w.dtype() == Dtype::F32 { Dtype::F32 } else { Dtype::F64 };
                Tensor::zeros([length], (dtype, self.device())).index_add(
                    0,
                    &index,
                    &w.detach().to_dtype(dtype),
                )
            }
        }
    }

    /// Numbers of elements in `bins` equal ranges from `min` to `max` (`torch.histc`), in this
    /// tensor's type. If both are equal, the smallest and largest element are taken.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([0f32, 1., 1.5, 4., 9.]).histc(2, 0.0, 4.0);
    /// assert_eq!(y.to_vec::<f32>(), [3.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when `bins` is 0, the range is not finite, or `max` is below `min`.
    #[track_caller]
    pub fn histc(&self, bins: usize, min: f64, max: f64) -> Tensor {
        let (mut low, mut high) = (min, max);
        if low == high && self.numel() > 0 {
            let x = self.detach();
            x.assert_has_values("histc");
            let both = Tensor::stack(&[x.min(), x.max()], 0).to_vec::<f64>();
            (low, high) = (both[0], both[1]);
        }
        if low == high {
            (low, high) = (low - 1.0, high + 1.0);
        }
        if bins == 0 || high < low || !low.is_finite() || !high.is_finite() {
            throw(Error::argument("histc", "bins", format!("{bins} from {low} to {high}")));
        }
        if let Some(gpu) = gpu::of("histc", &[self]) {
            return cuda::count_ranges(gpu, self, bins, [low, high]).to_dtype(self.dtype());
        }
        let mut counts = vec![0f64; bins];
        let mut count = |bin: usize| counts[bin.min(bins - 1)] += 1.0;
        // In the type that is computed in, which decides about numbers between two ranges.
        if self.dtype().compute() == Dtype::F32 {
            let (low, high, bins) = (low as f32, high as f32, bins as f32);
            let inside = self.to_vec::<f32>().into_iter().filter(|v| (low..=high).contains(v));
            inside.for_each(|v| count(((v - low) * bins / (high - low)) as usize));
        } else {
            let inside = self.to_vec::<f64>().into_iter().filter(|v| (low..=high).contains(v));
            inside.for_each(|v| count(((v - low) * bins as f64 / (high - low)) as usize));
        }
        Tensor::from(counts).to_dtype(self.dtype())
    }

    /// The `p`-norm of the difference (`torch.dist`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, 1.]).dist(&Tensor::from([4f32, 5.]), 2).item(), 5.0);
    /// ```
    #[track_caller]
    pub fn dist(&self, other: &Tensor, p: impl Into<Scalar>) -> Tensor {
        cast_op!("dist", [a = self, b = other] => a.dist(&b, p));
        (self - other).norm_dim(p, &[], false)
    }

    /// The `p`-norm distances between all rows of one matrix and all rows of the other
    /// (`torch.cdist`); further dimensions in front broadcast.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[0f64, 0.], [3., 0.]]);
    /// let expected = Tensor::from([[5.0], [4.0]]);
    /// assert!(x.cdist(&Tensor::from([[3f64, 4.]]), 2.0).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws when the rows differ in length, or `p` is negative.
    #[track_caller]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Tensor {
        cast_op!("cdist", [a = self, b = other] => a.cdist(&b, p));
        if self.dim() < 2 || other.dim() < 2 || self.size(-1) != other.size(-1) || p < 0.0 {
            throw(Error::shape(
                "cdist",
                format!("rows of {:?} and {:?}, p = {p}", self.shape(), other.shape()),
            ));
        }
        (self.unsqueeze(-2) - other.unsqueeze(-3)).norm_dim(p, &[-1], false)
    }

    /// Differences of neighbours along `dim`, `n` times over, after `prepend` and `append` are joined
    /// on (`torch.diff`); of bools, whether they differ.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 4, 9, 16]);
    /// assert_eq!(x.diff(1, 0, None, None).to_vec::<i64>(), [3, 5, 7]);
    /// assert_eq!(x.diff(2, 0, Some(&Tensor::from([0i64])), None).to_vec::<i64>(), [2, 2, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws for a 0-dim tensor, or when shapes do not fit.
    #[track_caller]
    pub fn diff(
        &self,
        n: usize,
        dim: i64,
        prepend: Option<&Tensor>,
        append: Option<&Tensor>,
    ) -> Tensor {
        if self.dim() == 0 {
            throw(Error::shape("diff", "takes at least one dimension"));
        }
        let all: Vec<&Tensor> = [prepend, Some(self), append].into_iter().flatten().collect();
        if n == 0 {
            return self.clone_contiguous();
        }
        let mut x = if all.len() > 1 { Tensor::cat(&all, dim) } else { self.clone() };
        for _ in 0..n.min(x.size(dim)) {
            let length = x.size(dim).saturating_sub(1);
            let (after, before) =
                (x.narrow(dim, x.size(dim) - length, length), x.narrow(dim, 0, length));
            x = if x.dtype() == Dtype::Bool { after.ne(&before) } else { after - before };
        }
        x
    }

    /// The integral along `dim` by the trapezoidal rule, at points `dx` apart (`torch.trapezoid`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f64, 3., 5.]).trapezoid(0.5, 0).item(), 3.0);
    /// ```
    #[track_caller]
    pub fn trapezoid(&self, dx: f64, dim: i64) -> Tensor {
        trapezoids(self, dim).sum_dim(&[dim], false) * dx
    }

    /// The integral along `dim` by the trapezoidal rule, at the points `x`: a list, or one that
    /// broadcasts (`torch.trapezoid` with `x`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f64, 3., 5.]).trapezoid_at(&Tensor::from([0f64, 1., 3.]), 0).item(), 10.0);
    /// ```
    #[track_caller]
    pub fn trapezoid_at(&self, x: &Tensor, dim: i64) -> Tensor {
        // Halved last: products of integers are integers.
        (sums_of_two(self, dim) * widths(self, x, dim)).sum_dim(&[dim], false) * 0.5
    }

    /// [`trapezoid`](Self::trapezoid) up to each point but the first
    /// (`torch.cumulative_trapezoid`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([1f64, 3., 5.]).cumulative_trapezoid(1.0, 0);
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn cumulative_trapezoid(&self, dx: f64, dim: i64) -> Tensor {
        trapezoids(self, dim).cumsum(dim) * dx
    }

    /// [`trapezoid_at`](Self::trapezoid_at) up to each point but the first
    /// (`torch.cumulative_trapezoid` with `x`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([1f64, 3., 5.]).cumulative_trapezoid_at(&Tensor::from([0f64, 1., 3.]), 0);
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 10.0]);
    /// ```
    #[track_caller]
    pub fn cumulative_trapezoid_at(&self, x: &Tensor, dim: i64) -> Tensor {
        (sums_of_two(self, dim) * widths(self, x, dim)).cumsum(dim) * 0.5
    }

    /// Slices along `dim` whose `p`-norm is above `maxnorm` scaled down to it (`torch.renorm`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[3f64, 4.], [0.3, 0.4]]);
    /// let expected = Tensor::from([[0.6, 0.8], [0.3, 0.4]]);
    /// assert!(x.renorm(2.0, 0, 1.0).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for fewer than two dimensions, and when `p` is not above 0 or `maxnorm` is negative.
    #[track_caller]
    pub fn renorm(&self, p: f64, dim: i64, maxnorm: f64) -> Tensor {
        cast_op!("renorm", [x = self] => x.renorm(p, dim, maxnorm));
        let d = self.normalize_dim("renorm", dim);
        if self.dim() < 2 || p.is_nan() || p <= 0.0 || maxnorm.is_nan() || maxnorm < 0.0 {
            throw(Error::argument(
                "renorm",
                "maxnorm",
                format!("{maxnorm} with p = {p} for shape {:?}", self.shape()),
            ));
        }
        let others: Vec<i64> = (0..self.dim()).filter(|&k| k != d).map(|k| k as i64).collect();
        let norm = self.norm_dim(p, &others, true);
        let factor = maxnorm / &(&norm + 1e-7);
        self * norm.detach().gt(maxnorm).where_(&factor, &norm.detach().ones_like())
    }

    /// In-place form of [`renorm`](Self::renorm) (`torch.Tensor.renorm_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[3f64, 4.]]);
    /// assert!(x.renorm_(1.0, 0, 3.5).allclose(&Tensor::from([[1.5, 2.0]]), Default::default()));
    /// ```
    #[track_caller]
    pub fn renorm_(&self, p: f64, dim: i64, maxnorm: f64) -> &Tensor {
        self.copy_(&self.clone_contiguous().renorm(p, dim, maxnorm))
    }

    /// Covariances of the variables in the rows, over observations in the columns, with the divisor
    /// n - `correction` (`torch.cov`). `fweights` says how often an observation was made, `aweights`
    /// how much it counts.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f64, 2., 3.], [6., 4., 2.]]);
    /// let expected = Tensor::from([[1.0, -2.0], [-2.0, 4.0]]);
    /// assert!(x.cov(1, None, None).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for more than two dimensions, and for weights that are negative, of another length, or,
    /// for `fweights`, not integers.
    #[track_caller]
    pub fn cov(
        &self,
        correction: i64,
        fweights: Option<&Tensor>,
        aweights: Option<&Tensor>,
    ) -> Tensor {
        if self.dim() > 2 {
            throw(Error::shape("cov", format!("takes a matrix, got shape {:?}", self.shape())));
        }
        let x = self.atleast_2d();
        let observations = x.size(1);
        let checked = |name: &str, w: &Tensor, integral: bool| {
            let fits = w.shape() == [observations] && w.dtype().is_integral() == integral;
            w.assert_has_values("cov");
            if !fits || w.to_vec::<f64>().iter().any(|&w| w < 0.0) {
                throw(Error::argument(
                    "cov",
                    name,
                    format!("{} {:?} for {observations} observations", w.dtype(), w.shape()),
                ));
            }
            w.clone()
        };
        let fweights = fweights.map(|w| checked("fweights", w, true));
        let aweights = aweights.map(|w| checked("aweights", w, false));
        let weights = match (&fweights, &aweights) {
            (Some(f), Some(a)) => f * a,
            (Some(w), None) | (None, Some(w)) => w.clone(),
            (None, None) => Tensor::ones([observations], (x.dtype(), x.device())),
        };
        let total = weights.sum();
        let mean = (&x * &weights).sum_dim(&[1], true) / &total;
        let divisor = match &aweights {
            Some(a) if correction != 0 => &total - (&weights * a).sum() / &total * correction,
            _ => &total - correction,
        };
        let centred = &x - mean;
        let cov = (&centred * &weights).matmul(&centred.t()) / divisor.clamp_min(0i64);
        cov.squeeze()
    }

    /// Correlation coefficients of the variables in the rows (`torch.corrcoef`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f64, 2., 3.], [6., 4., 2.]]);
    /// assert!(x.corrcoef().allclose(&Tensor::from([[1.0, -1.0], [-1.0, 1.0]]), Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for more than two dimensions.
    #[track_caller]
    pub fn corrcoef(&self) -> Tensor {
        let cov = self.cov(1, None, None);
        if cov.dim() == 0 {
            return cov.div(&cov);
        }
        let deviation = cov.diagonal(0, 0, 1).sqrt();
        (cov / deviation.unsqueeze(1) / deviation.unsqueeze(0)).clamp(-1.0, 1.0)
    }
}

/// The smallest and largest number of a list of integers, 0 and -1 if it is empty. Waits for a GPU.
fn ends(list: &Tensor) -> [i64; 2] {
    if list.numel() == 0 {
        return [0, -1];
    }
    let list = list.detach();
    let both = Tensor::stack(&[list.min(), list.max()], 0).to_vec::<i64>();
    [both[0], both[1]]
}

/// Sums of neighbours along `dim`.
#[track_caller]
fn sums_of_two(y: &Tensor, dim: i64) -> Tensor {
    let n = y.size(dim);
    y.narrow(dim, n.min(1), n.saturating_sub(1)) + y.narrow(dim, 0, n.saturating_sub(1))
}

/// Means of neighbours along `dim`.
#[track_caller]
fn trapezoids(y: &Tensor, dim: i64) -> Tensor {
    sums_of_two(y, dim) * 0.5
}

/// Distances of neighbouring points, to broadcast against `y`'s trapezoids.
#[track_caller]
fn widths(y: &Tensor, x: &Tensor, dim: i64) -> Tensor {
    if x.dim() > 1 || y.dim() == 1 {
        return x.diff(1, if x.dim() == y.dim() { dim } else { -1 }, None, None);
    }
    let mut shape = vec![1; y.dim()];
    shape[y.normalize_dim("trapezoid", dim)] = x.numel();
    x.reshape_to(&shape).diff(1, dim, None, None)
}
