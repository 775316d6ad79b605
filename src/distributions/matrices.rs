//! Distributions of matrices: Wishart's, and that of correlations' Cholesky factors.

use std::f64::consts::{LN_2, PI};

use super::beta::Beta;
use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::gamma::Chi2;
use super::macros::{checked, common, refined};
use super::multivariate::{Spread, half_log_det};
use super::params::{
    Param, broadcast, concat, diagonal, eps, fill, joint, last, options, standard_normal, tiny,
    without_last,
};
use super::with_validate_args;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Positive definite matrices: sums of squares of normal vectors (`torch.distributions.Wishart`).
///
/// ```
/// use torchrs::distributions::{Distribution, Wishart};
/// use torchrs::{Dtype, Tensor};
/// let d = Wishart::from_covariance(3.0, Tensor::eye(2, Dtype::F64));
/// assert_eq!(d.mean().to_vec::<f64>(), [3.0, 0.0, 0.0, 3.0]);
/// assert_eq!(d.sample(&[5]).shape(), &[5, 2, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct Wishart {
    df: Tensor,
    spread: Spread,
    /// The scale's Cholesky factor, of the shape in which the matrices were given.
    factor: Tensor,
    shape: Shape,
}

impl Wishart {
    #[track_caller]
    fn of(df: Param, spread: Spread) -> Self {
        let name = "Wishart";
        spread.assert_matrices(name, None);
        let matrix = spread.given();
        let n = matrix.size(-1);
        let df = df.into_tensor(matrix);
        let batch = joint(name, "df", without_last(matrix.shape(), 2), df.shape());
        let df = df.expand(&batch);
        let shape = Shape::new(&batch, &[n, n]);
        // Without enough degrees of freedom there is no density, whether parameters are checked or not.
        let rule = constraints::greater_than(n as i64 - 1);
        Shape { validate: true, ..shape.clone() }.check(name, "df", &df, &rule);
        let given = spread.clone();
        let spread = spread.map(|t| t.expand(&concat(&[&batch, &[n, n]])));
        let (argument, rule) = spread.rule();
        shape.check(name, argument, spread.given(), &rule);
        Wishart { df, spread, factor: given.factor(), shape }
    }

    /// Of so many degrees of freedom, with the covariance of the vectors.
    ///
    /// # Panics
    /// Throws when shapes do not fit, the matrix is not positive definite, or `df` is not above its size minus 1.
    #[track_caller]
    pub fn from_covariance(df: impl Into<Param>, covariance_matrix: Tensor) -> Self {
        Self::of(df.into(), Spread::Covariance(covariance_matrix))
    }

    /// Of so many degrees of freedom, with the covariance's inverse.
    ///
    /// # Panics
    /// Throws when shapes do not fit, the matrix is not positive definite, or `df` is not above its size minus 1.
    #[track_caller]
    pub fn from_precision(df: impl Into<Param>, precision_matrix: Tensor) -> Self {
        Self::of(df.into(), Spread::Precision(precision_matrix))
    }

    /// Of so many degrees of freedom, with the covariance's lower Cholesky factor.
    ///
    /// # Panics
    /// Throws when shapes do not fit, or `df` is not above the matrix's size minus 1.
    #[track_caller]
    pub fn from_scale_tril(df: impl Into<Param>, scale_tril: Tensor) -> Self {
        Self::of(df.into(), Spread::ScaleTril(scale_tril))
    }

    /// The degrees of freedom.
    pub fn df(&self) -> &Tensor {
        &self.df
    }

    fn rows(&self) -> usize {
        self.shape.event[0]
    }

    /// The lower Cholesky factor of the vectors' covariance.
    pub fn scale_tril(&self) -> Tensor {
        self.spread.scale_tril(&self.factor)
    }

    /// The vectors' covariance.
    pub fn covariance_matrix(&self) -> Tensor {
        self.spread.covariance_matrix(&self.factor)
    }

    /// The inverse of the vectors' covariance.
    pub fn precision_matrix(&self) -> Tensor {
        self.spread.precision_matrix(&self.factor)
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        let matrices = concat(&[batch_shape, &self.shape.event]);
        Wishart {
            df: self.df.expand(batch_shape),
            spread: self.spread.map(|t| t.expand(&matrices)),
            factor: self.factor.expand(&matrices),
            shape: self.shape.expanded(batch_shape),
        }
    }

    /// A number for each matrix of a batch.
    fn for_matrices(t: &Tensor) -> Tensor {
        t.unsqueeze(-1).unsqueeze(-1)
    }

    /// Bartlett's decomposition: a triangle of normal numbers with roots of chi-squared ones on its diagonal.
    #[track_caller]
    fn bartlett(&self, sample_shape: &[usize]) -> Tensor {
        let n = self.rows();
        let rows = Tensor::arange(0i64, n as i64, 1i64, options(&self.df));
        let df = self.df.unsqueeze(-1) - rows;
        let squares = with_validate_args(false, || Chi2::new(df)).rsample(sample_shape);
        let roots = squares.sqrt().clamp_min(eps(squares.dtype()));
        let normal = standard_normal(&self.shape.extended(sample_shape), &self.df).tril(-1);
        let factor = self.factor.matmul(&(normal + roots.diag_embed(0, -2, -1)));
        factor.matmul(&factor.mt())
    }

    /// KL(self || other), by what both are as an exponential family.
    pub(super) fn divergence(&self, other: &Wishart) -> Tensor {
        let n = self.rows() as u32;
        let (p, q) = (&self.df / 2.0, &other.df / 2.0);
        let ratio = half_log_det(&other.factor) - half_log_det(&self.factor);
        // tr(Q^-1 P) of the two covariances.
        let batch = joint(
            "kl_divergence",
            "q",
            without_last(self.factor.shape(), 2),
            without_last(other.factor.shape(), 2),
        );
        let matrices = concat(&[&batch, &self.shape.event]);
        let solved = super::multivariate::solve_lower(
            &other.factor.expand(&matrices),
            &self.factor.expand(&matrices),
        );
        let trace = solved.square().sum_dim(&[-2, -1], false);
        &other.df * ratio + (trace - f64::from(n)) * &p + q.mvlgamma(n) - p.mvlgamma(n)
            + (&p - &q) * mvdigamma(&p, n)
    }
}

/// The derivative of the logarithm of the multivariate gamma function.
fn mvdigamma(x: &Tensor, p: u32) -> Tensor {
    let halves = Tensor::arange(0i64, i64::from(p), 1i64, options(x)) / 2.0;
    (x.unsqueeze(-1) - halves).digamma().sum_dim(&[-1], false)
}

refined!(Wishart);

/// How often singular matrices are drawn again.
const TRIES: usize = 10;

impl Distribution for Wishart {
    common!(Wishart);
    fn support(&self) -> Constraint {
        constraints::positive_definite()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        Self::for_matrices(&self.df) * self.covariance_matrix()
    }
    fn mode(&self) -> Tensor {
        let factor = &self.df - (self.rows() as f64 + 1.0);
        let factor = fill(&factor, &factor.le(0.0), f64::NAN);
        Self::for_matrices(&factor) * self.covariance_matrix()
    }
    fn variance(&self) -> Tensor {
        let v = self.covariance_matrix();
        let d = diagonal(&v);
        let products = d.unsqueeze(-1) * d.unsqueeze(-2);
        Self::for_matrices(&self.df) * (v.square() + products)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let mut sample = self.bartlett(sample_shape);
        for _ in 0..TRIES {
            let fine = no_grad(|| self.support().check(&sample));
            if fine.device().is_meta() || fine.all().item() != 0.0 {
                break;
            }
            let fine = Self::for_matrices(&fine);
            sample = fine.where_(&sample, &self.bartlett(sample_shape));
        }
        sample
    }
    checked! {
        fn log_prob(d, value) {
            let (n, df) = (d.rows(), &d.df);
            let norm = half_log_det(&d.factor) + n as f64 * LN_2 / 2.0;
            let log_det = crate::ops::linalg::slogdet(value).1;
            let batch = joint("Wishart", "value", without_last(value.shape(), 2), &d.shape.batch);
            let matrices = concat(&[&batch, &d.shape.event]);
            let (value, factor) = (value.expand(&matrices), d.factor.expand(&matrices));
            let trace = diagonal(&value.cholesky_solve(&factor, false)).sum_dim(&[-1], false);
            -(df * norm) - (df / 2.0).mvlgamma(n as u32)
                + (df - (n as f64 + 1.0)) / 2.0 * log_det
                - trace / 2.0
        }
    }
    fn entropy(&self) -> Tensor {
        let (n, df) = (self.rows(), &self.df);
        let half = df / 2.0;
        (half_log_det(&self.factor) + n as f64 * LN_2 / 2.0) * (n as f64 + 1.0)
            + half.mvlgamma(n as u32)
            - (df - (n as f64 + 1.0)) / 2.0 * mvdigamma(&half, n as u32)
            + df * (n as f64 / 2.0)
    }
}

/// Cholesky factors of correlation matrices, by Lewandowski, Kurowicka and Joe
/// (`torch.distributions.LKJCholesky`): all are alike where the concentration is 1, and above it the correlations
/// are nearer to 0.
///
/// ```
/// use torchrs::distributions::{Distribution, LKJCholesky};
/// let l = LKJCholesky::new(3, 1.0).sample(&[]);
/// let rows = l.square().sum_dim(&[-1], false);
/// assert!((rows - 1.0).abs().max().item() < 1e-5);
/// ```
#[derive(Clone, Debug)]
pub struct LKJCholesky {
    dim: usize,
    concentration: Tensor,
    shape: Shape,
}

impl LKJCholesky {
    /// Of `dim` rows.
    ///
    /// # Panics
    /// Throws when `dim` is below 2, or parameters are checked and the concentration is not positive.
    #[track_caller]
    pub fn new(dim: usize, concentration: impl Into<Param>) -> Self {
        if dim < 2 {
            throw(Error::argument("LKJCholesky", "dim", format!("{dim}; it must be at least 2")));
        }
        let [concentration] = broadcast("LKJCholesky", ["concentration"], [concentration.into()]);
        let shape = Shape::new(concentration.shape(), &[dim, dim]);
        shape.check("LKJCholesky", "concentration", &concentration, &constraints::positive());
        LKJCholesky { dim, concentration, shape }
    }

    /// The number of rows.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The concentration.
    pub fn concentration(&self) -> &Tensor {
        &self.concentration
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        LKJCholesky {
            dim: self.dim,
            concentration: self.concentration.expand(batch_shape),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(LKJCholesky);

impl Distribution for LKJCholesky {
    common!(LKJCholesky);
    fn support(&self) -> Constraint {
        constraints::corr_cholesky()
    }
    /// The onion method: the squared length of each row left of the diagonal is a beta number, its direction any.
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            let c = &self.concentration;
            let rows = Tensor::arange(1i64, self.dim as i64, 1i64, options(c));
            let first = &rows * 0.5;
            let rest = c.unsqueeze(-1) + 0.5 * (self.dim as f64 - 2.0) - (&rows - 1.0) * 0.5;
            let y = with_validate_args(false, || Beta::new(&first, &rest)).sample(sample_shape);
            let shape = self.shape.extended(sample_shape);
            let below = concat(&[without_last(&shape, 2), &[self.dim - 1], last(&shape, 1)]);
            let u = standard_normal(&below, c).tril(0);
            let u = &u / u.square().sum_dim(&[-1], true).sqrt();
            let w = y.sqrt().unsqueeze(-1) * u;
            let w = w.pad(&[0, 0, 1, 0], crate::ops::PadMode::Constant(0.0.into()));
            let left = (1.0 - w.square().sum_dim(&[-1], false)).clamp_min(tiny(c.dtype()));
            w + left.sqrt().diag_embed(0, -2, -1)
        })
    }
    checked! {
        fn log_prob(d, value) {
            let n = d.dim as f64;
            let c = &d.concentration;
            let diagonal = diagonal(value).narrow(-1, 1, d.dim - 1);
            let order = Tensor::arange(2i64, d.dim as i64 + 1, 1i64, options(c));
            let order = ((c - 1.0) * 2.0).unsqueeze(-1) + (n - order);
            let plain = (order * diagonal.log()).sum_dim(&[-1], false);
            let alpha = c + 0.5 * (n - 1.0);
            let norm = (&alpha - 0.5).mvlgamma(d.dim as u32 - 1) - alpha.lgamma() * (n - 1.0);
            plain - (norm + 0.5 * (n - 1.0) * PI.ln())
        }
    }
}
