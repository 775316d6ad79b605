//! Normal vectors: with a full covariance, and with one that is a diagonal and a matrix of low rank.

use std::f64::consts::PI;

use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::macros::{checked, common, refined};
use super::params::{batch_mv, concat, diagonal, joint, last, standard_normal, without_last};
use crate::error::{Error, throw};
use crate::ops::linalg::{self, TriangularOptions};
use crate::tensor::Tensor;

/// A covariance, as one of the matrices that say what it is.
#[derive(Clone, Debug)]
pub(super) enum Spread {
    Covariance(Tensor),
    Precision(Tensor),
    ScaleTril(Tensor),
}

impl Spread {
    /// The parameter's name, and what it must be.
    pub fn rule(&self) -> (&'static str, Constraint) {
        match self {
            Spread::Covariance(_) => ("covariance_matrix", constraints::positive_definite()),
            Spread::Precision(_) => ("precision_matrix", constraints::positive_definite()),
            Spread::ScaleTril(_) => ("scale_tril", constraints::lower_cholesky()),
        }
    }

    pub fn given(&self) -> &Tensor {
        match self {
            Spread::Covariance(t) | Spread::Precision(t) | Spread::ScaleTril(t) => t,
        }
    }

    pub fn map(&self, f: impl FnOnce(&Tensor) -> Tensor) -> Self {
        match self {
            Spread::Covariance(t) => Spread::Covariance(f(t)),
            Spread::Precision(t) => Spread::Precision(f(t)),
            Spread::ScaleTril(t) => Spread::ScaleTril(f(t)),
        }
    }

    /// The covariance's Cholesky factor.
    #[track_caller]
    pub fn factor(&self) -> Tensor {
        match self {
            Spread::Covariance(t) => linalg::cholesky(t, false),
            Spread::ScaleTril(t) => t.clone(),
            Spread::Precision(t) => {
                // The factor of the matrix read backwards, read backwards, is an upper one of its own; its
                // transpose's inverse is the covariance's.
                let upper = linalg::cholesky(&t.flip(&[-2, -1]), false).flip(&[-2, -1]);
                let one = Tensor::eye(t.size(-1), super::params::options(t));
                solve_lower(&upper.mt(), &one)
            }
        }
    }

    /// The covariance's Cholesky factor in this batch, of [`factor`](Self::factor) in a smaller one.
    pub fn scale_tril(&self, factor: &Tensor) -> Tensor {
        match self {
            Spread::ScaleTril(t) => t.clone(),
            _ => factor.expand(self.given().shape()),
        }
    }

    /// The covariance in this batch.
    pub fn covariance_matrix(&self, factor: &Tensor) -> Tensor {
        match self {
            Spread::Covariance(t) => t.clone(),
            _ => factor.matmul(&factor.mt()).expand(self.given().shape()),
        }
    }

    /// The covariance's inverse in this batch.
    pub fn precision_matrix(&self, factor: &Tensor) -> Tensor {
        match self {
            Spread::Precision(t) => t.clone(),
            _ => factor.cholesky_inverse(false).expand(self.given().shape()),
        }
    }

    /// Throws unless it is a batch of square matrices of `n` rows, if `n` is given.
    #[track_caller]
    pub fn assert_matrices(&self, op: &str, n: Option<usize>) {
        let (t, name) = (self.given(), self.rule().0);
        if t.dim() < 2 {
            let message =
                format!("of shape {:?}; a matrix or a batch of some is needed", t.shape());
            throw(Error::argument(op, name, message));
        }
        let n = n.unwrap_or(t.size(-1));
        if t.size(-1) != n || t.size(-2) != n {
            let message = format!("of shape {:?}; it must end with [{n}, {n}]", t.shape());
            throw(Error::argument(op, name, message));
        }
    }
}

/// L^-1 b of lower triangular matrices.
#[track_caller]
pub(super) fn solve_lower(l: &Tensor, b: &Tensor) -> Tensor {
    linalg::solve_triangular(l, b, TriangularOptions { upper: false, ..Default::default() })
}

/// The squared length of L^-1 x, for vectors and matrices whose batches are broadcast.
#[track_caller]
pub(super) fn mahalanobis(l: &Tensor, x: &Tensor) -> Tensor {
    let batch = joint("log_prob", "value", without_last(l.shape(), 2), without_last(x.shape(), 1));
    let own = without_last(l.shape(), 2);
    // Matrices of one batch dimension are solved once for all vectors.
    if own.is_empty() {
        let n = x.size(-1) as i64;
        let columns = x.reshape([-1, n]).t();
        let squares = solve_lower(l, &columns).square().sum_dim(&[-2], false);
        return squares.reshape_to(&batch);
    }
    let l = l.expand(&concat(&[&batch, last(l.shape(), 2)]));
    let x = x.expand(&concat(&[&batch, last(x.shape(), 1)])).unsqueeze(-1);
    solve_lower(&l, &x).square().sum_dim(&[-2, -1], false)
}

/// The sum of the logarithms of the diagonal.
pub(super) fn half_log_det(l: &Tensor) -> Tensor {
    diagonal(l).log().sum_dim(&[-1], false)
}

/// Normal vectors (`torch.distributions.MultivariateNormal`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, MultivariateNormal};
/// let covariance = Tensor::from([[2f64, 1.], [1., 2.]]);
/// let d = MultivariateNormal::from_covariance(Tensor::from([0f64, 0.]), covariance);
/// assert_eq!(d.event_shape(), &[2]);
/// assert!((d.variance().sum().item() - 4.0).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct MultivariateNormal {
    loc: Tensor,
    spread: Spread,
    /// The Cholesky factor, of the shape in which the matrices were given.
    factor: Tensor,
    shape: Shape,
}

impl MultivariateNormal {
    #[track_caller]
    fn of(loc: Tensor, spread: Spread) -> Self {
        let name = "MultivariateNormal";
        let Some(&n) = loc.shape().last() else {
            throw(Error::argument(name, "loc", "has no dimension; one is needed"));
        };
        spread.assert_matrices(name, Some(n));
        let matrices = without_last(spread.given().shape(), 2);
        let batch = joint(name, "loc", matrices, without_last(loc.shape(), 1));
        let loc = loc.expand(&concat(&[&batch, &[n]]));
        let given = spread.clone();
        let spread = spread.map(|t| t.expand(&concat(&[&batch, &[n, n]])));
        let shape = Shape::new(&batch, &[n]);
        shape.check(name, "loc", &loc, &constraints::real_vector());
        let (argument, rule) = spread.rule();
        shape.check(name, argument, spread.given(), &rule);
        MultivariateNormal { loc, spread, factor: given.factor(), shape }
    }

    /// With this mean and covariance.
    ///
    /// # Panics
    /// Throws when shapes do not fit, or the matrix is not positive definite.
    #[track_caller]
    pub fn from_covariance(loc: Tensor, covariance_matrix: Tensor) -> Self {
        Self::of(loc, Spread::Covariance(covariance_matrix))
    }

    /// With this mean and the covariance's inverse.
    ///
    /// # Panics
    /// Throws when shapes do not fit, or the matrix is not positive definite.
    #[track_caller]
    pub fn from_precision(loc: Tensor, precision_matrix: Tensor) -> Self {
        Self::of(loc, Spread::Precision(precision_matrix))
    }

    /// With this mean and the covariance's lower Cholesky factor.
    ///
    /// # Panics
    /// Throws when shapes do not fit, or parameters are checked and the matrix is no such factor.
    #[track_caller]
    pub fn from_scale_tril(loc: Tensor, scale_tril: Tensor) -> Self {
        Self::of(loc, Spread::ScaleTril(scale_tril))
    }

    /// The mean.
    pub fn loc(&self) -> &Tensor {
        &self.loc
    }

    /// The covariance's lower Cholesky factor.
    pub fn scale_tril(&self) -> Tensor {
        self.spread.scale_tril(&self.factor)
    }

    /// The covariance.
    pub fn covariance_matrix(&self) -> Tensor {
        self.spread.covariance_matrix(&self.factor)
    }

    /// The covariance's inverse.
    pub fn precision_matrix(&self) -> Tensor {
        self.spread.precision_matrix(&self.factor)
    }

    /// The Cholesky factor, of the shape in which the matrices were given.
    pub(super) fn factor(&self) -> &Tensor {
        &self.factor
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        let n = self.shape.event[0];
        MultivariateNormal {
            loc: self.loc.expand(&concat(&[batch_shape, &[n]])),
            spread: self.spread.map(|t| t.expand(&concat(&[batch_shape, &[n, n]]))),
            factor: self.factor.clone(),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(MultivariateNormal);

impl Distribution for MultivariateNormal {
    common!(MultivariateNormal);
    fn support(&self) -> Constraint {
        constraints::real_vector()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.loc.clone()
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    fn variance(&self) -> Tensor {
        let variance = self.factor.square().sum_dim(&[-1], false);
        variance.expand(&self.shape.extended(&[]))
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let z = standard_normal(&self.shape.extended(sample_shape), &self.loc);
        &self.loc + batch_mv(&self.factor, &z)
    }
    checked! {
        fn log_prob(d, value) {
            let n = d.shape.event[0] as f64;
            let m = mahalanobis(&d.factor, &(value - &d.loc));
            -((m + n * (2.0 * PI).ln()) * 0.5) - half_log_det(&d.factor)
        }
    }
    fn entropy(&self) -> Tensor {
        let n = self.shape.event[0] as f64;
        let entropy = half_log_det(&self.factor) + 0.5 * n * (1.0 + (2.0 * PI).ln());
        entropy.expand(&self.shape.batch)
    }
}

/// Normal vectors whose covariance is W W^T and a diagonal D (`torch.distributions.LowRankMultivariateNormal`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, LowRankMultivariateNormal};
/// let (loc, w) = (Tensor::from([0f64, 0.]), Tensor::from([[1f64], [0.]]));
/// let d = LowRankMultivariateNormal::new(loc, w, Tensor::from([1f64, 1.]));
/// assert_eq!(d.covariance_matrix().to_vec::<f64>(), [2.0, 0.0, 0.0, 1.0]);
/// ```
#[derive(Clone, Debug)]
pub struct LowRankMultivariateNormal {
    loc: Tensor,
    cov_factor: Tensor,
    cov_diag: Tensor,
    /// The Cholesky factor of 1 + W^T D^-1 W.
    capacitance: Tensor,
    shape: Shape,
}

/// A matrix with 1 added to its diagonal.
fn one_more(matrix: &Tensor) -> Tensor {
    matrix + Tensor::eye(matrix.size(-1), super::params::options(matrix))
}

impl LowRankMultivariateNormal {
    /// With this mean, W and D.
    ///
    /// # Panics
    /// Throws when shapes do not fit, or parameters are checked and one of D is not positive.
    #[track_caller]
    pub fn new(loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> Self {
        let name = "LowRankMultivariateNormal";
        let Some(&n) = loc.shape().last() else {
            throw(Error::argument(name, "loc", "has no dimension; one is needed"));
        };
        if cov_factor.dim() < 2 || cov_factor.size(-2) != n {
            let message =
                format!("of shape {:?}; it must end with [{n}, rank]", cov_factor.shape());
            throw(Error::argument(name, "cov_factor", message));
        }
        if cov_diag.shape().last() != Some(&n) {
            let message = format!("of shape {:?}; it must end with [{n}]", cov_diag.shape());
            throw(Error::argument(name, "cov_diag", message));
        }
        let batch = joint(
            name,
            "cov_factor",
            without_last(loc.shape(), 1),
            without_last(cov_factor.shape(), 2),
        );
        let batch = joint(name, "cov_diag", &batch, without_last(cov_diag.shape(), 1));
        let loc = loc.expand(&concat(&[&batch, &[n]]));
        let shape = Shape::new(&batch, &[n]);
        shape.check(name, "loc", &loc, &constraints::real_vector());
        let reals = constraints::independent(constraints::real(), 2);
        shape.check(name, "cov_factor", &cov_factor, &reals);
        let positive = constraints::independent(constraints::positive(), 1);
        shape.check(name, "cov_diag", &cov_diag, &positive);
        let inner = (cov_factor.mt() / cov_diag.unsqueeze(-2)).matmul(&cov_factor);
        let capacitance = linalg::cholesky(&one_more(&inner), false);
        LowRankMultivariateNormal { loc, cov_factor, cov_diag, capacitance, shape }
    }

    /// The mean.
    pub fn loc(&self) -> &Tensor {
        &self.loc
    }

    /// W.
    pub fn cov_factor(&self) -> Tensor {
        let rank = self.cov_factor.size(-1);
        self.cov_factor.expand(&concat(&[&self.shape.batch, &self.shape.event, &[rank]]))
    }

    /// The diagonal D.
    pub fn cov_diag(&self) -> Tensor {
        self.cov_diag.expand(&self.shape.extended(&[]))
    }

    fn expanded_matrix(&self, t: &Tensor) -> Tensor {
        t.expand(&concat(&[&self.shape.batch, &self.shape.event, &self.shape.event]))
    }

    /// The covariance's lower Cholesky factor.
    pub fn scale_tril(&self) -> Tensor {
        let root = self.cov_diag.sqrt().unsqueeze(-1);
        let w = &self.cov_factor / &root;
        let inner = linalg::cholesky(&one_more(&w.matmul(&w.mt())), false);
        self.expanded_matrix(&(root * inner))
    }

    /// The covariance.
    pub fn covariance_matrix(&self) -> Tensor {
        let w = &self.cov_factor;
        self.expanded_matrix(&(w.matmul(&w.mt()) + self.cov_diag.diag_embed(0, -2, -1)))
    }

    /// The covariance's inverse.
    pub fn precision_matrix(&self) -> Tensor {
        let a = self.solved();
        let inverse = self.cov_diag.reciprocal().diag_embed(0, -2, -1);
        self.expanded_matrix(&(inverse - a.mt().matmul(&a)))
    }

    /// C^-1 W^T D^-1, where C is the capacitance's factor.
    pub(super) fn solved(&self) -> Tensor {
        solve_lower(&self.capacitance, &(self.cov_factor.mt() / self.cov_diag.unsqueeze(-2)))
    }

    /// The logarithm of the covariance's determinant.
    pub(super) fn log_det(&self) -> Tensor {
        half_log_det(&self.capacitance) * 2.0 + self.cov_diag.log().sum_dim(&[-1], false)
    }

    /// x^T C^-1 x of the covariance C.
    pub(super) fn distance(&self, x: &Tensor) -> Tensor {
        let w = self.cov_factor.mt() / self.cov_diag.unsqueeze(-2);
        let diagonal = (x.square() / &self.cov_diag).sum_dim(&[-1], false);
        diagonal - mahalanobis(&self.capacitance, &batch_mv(&w, x))
    }

    /// W and D, of the shapes in which they were given.
    pub(super) fn parts(&self) -> (&Tensor, &Tensor) {
        (&self.cov_factor, &self.cov_diag)
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        LowRankMultivariateNormal {
            loc: self.loc.expand(&concat(&[batch_shape, &self.shape.event])),
            shape: self.shape.expanded(batch_shape),
            ..self.clone()
        }
    }
}

refined!(LowRankMultivariateNormal);

impl Distribution for LowRankMultivariateNormal {
    common!(LowRankMultivariateNormal);
    fn support(&self) -> Constraint {
        constraints::real_vector()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.loc.clone()
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    fn variance(&self) -> Tensor {
        let variance = self.cov_factor.square().sum_dim(&[-1], false) + &self.cov_diag;
        variance.expand(&self.shape.extended(&[]))
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let shape = self.shape.extended(sample_shape);
        let of_factor = concat(&[without_last(&shape, 1), &[self.cov_factor.size(-1)]]);
        let z = standard_normal(&of_factor, &self.loc);
        let own = standard_normal(&shape, &self.loc);
        &self.loc + batch_mv(&self.cov_factor, &z) + self.cov_diag.sqrt() * own
    }
    checked! {
        fn log_prob(d, value) {
            let n = d.shape.event[0] as f64;
            let m = d.distance(&(value - &d.loc));
            (d.log_det() + m + n * (2.0 * PI).ln()) * -0.5
        }
    }
    fn entropy(&self) -> Tensor {
        let n = self.shape.event[0] as f64;
        let entropy = (self.log_det() + n * (1.0 + (2.0 * PI).ln())) * 0.5;
        entropy.expand(&self.shape.batch)
    }
}
