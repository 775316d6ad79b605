//! Where parameters and samples may be (`torch.distributions.constraints`). [`Constraint::check`] tells of each event
//! whether it is inside; [`biject_to`](super::biject_to) and [`transform_to`](super::transform_to) give the way there
//! from numbers without bounds.
//!
//! ```
//! use torchrs::Tensor;
//! use torchrs::distributions::constraints;
//! let x = Tensor::from([[0.25f64, 0.75], [0.5, 0.6]]);
//! assert_eq!(constraints::unit_interval().check(&x).to_vec::<bool>(), [true; 4]);
//! assert_eq!(constraints::simplex().check(&x).to_vec::<bool>(), [true, false]);
//! ```

use std::fmt;

use super::params::{Param, all_last, assert_size, diagonal, eps};
use crate::error::{Error, throw};
use crate::ops::linalg;
use crate::tensor::{Dtype, Tensor};

/// A region of numbers, vectors or matrices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Constraint {
    /// 0 or 1.
    Boolean,
    /// A vector of zeros and a single one.
    OneHot,
    /// Whole numbers between two, which belong to it.
    IntegerInterval {
        /// The least.
        lower_bound: Param,
        /// The greatest.
        upper_bound: Param,
    },
    /// Whole numbers up to one.
    IntegerLessThan {
        /// The greatest.
        upper_bound: Param,
    },
    /// Whole numbers from one on.
    IntegerGreaterThan {
        /// The least.
        lower_bound: Param,
    },
    /// Anything but NaN.
    Real,
    /// Above a number.
    GreaterThan {
        /// That number.
        lower_bound: Param,
    },
    /// At least a number.
    GreaterThanEq {
        /// That number.
        lower_bound: Param,
    },
    /// Below a number.
    LessThan {
        /// That number.
        upper_bound: Param,
    },
    /// Between two numbers, which belong to it.
    Interval {
        /// The least.
        lower_bound: Param,
        /// The greatest.
        upper_bound: Param,
    },
    /// From one number on to another, which does not belong to it.
    HalfOpenInterval {
        /// The least.
        lower_bound: Param,
        /// What they are below.
        upper_bound: Param,
    },
    /// Vectors of probabilities: at least 0, of sum 1.
    Simplex,
    /// Counts that sum to at most a number.
    Multinomial {
        /// That number.
        upper_bound: Param,
    },
    /// Matrices with zeros above the diagonal.
    LowerTriangular,
    /// Lower triangular matrices with a positive diagonal.
    LowerCholesky,
    /// Cholesky factors of correlation matrices: their rows have norm 1.
    CorrCholesky,
    /// Square matrices.
    Square,
    /// Symmetric matrices.
    Symmetric,
    /// Symmetric matrices without a negative eigenvalue.
    PositiveSemidefinite,
    /// Symmetric matrices with positive eigenvalues.
    PositiveDefinite,
    /// Parts along a dimension, each with its own constraint.
    Cat {
        /// Those of the parts.
        constraints: Vec<Constraint>,
        /// The dimension.
        dim: i64,
        /// How long the parts are.
        lengths: Vec<usize>,
    },
    /// Entries of a dimension, each with its own constraint.
    Stack {
        /// Those of the entries.
        constraints: Vec<Constraint>,
        /// The dimension.
        dim: i64,
    },
    /// Events of a constraint along some batch dimensions, taken as one.
    Independent {
        /// The constraint of each.
        base: Box<Constraint>,
        /// How many batch dimensions belong to the event.
        reinterpreted_batch_ndims: usize,
    },
    /// What samples of a mixture are: those of each component.
    MixtureSameFamily {
        /// The constraint of the components.
        base: Box<Constraint>,
    },
}

use Constraint as C;

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name() -> Constraint {
            $value
        }
    )*};
}
plain! {
    /// 0 or 1.
    boolean = C::Boolean;
    /// A vector of zeros and a single one.
    one_hot = C::OneHot;
    /// Whole numbers from 0 on.
    nonnegative_integer = integer_greater_than(0);
    /// Whole numbers from 1 on.
    positive_integer = integer_greater_than(1);
    /// Anything but NaN.
    real = C::Real;
    /// Vectors without NaN.
    real_vector = independent(C::Real, 1);
    /// Above 0.
    positive = greater_than(0);
    /// At least 0.
    nonnegative = greater_than_eq(0);
    /// Between 0 and 1.
    unit_interval = interval(0, 1);
    /// Vectors of probabilities.
    simplex = C::Simplex;
    /// Matrices with zeros above the diagonal.
    lower_triangular = C::LowerTriangular;
    /// Lower triangular matrices with a positive diagonal.
    lower_cholesky = C::LowerCholesky;
    /// Cholesky factors of correlation matrices.
    corr_cholesky = C::CorrCholesky;
    /// Square matrices.
    square = C::Square;
    /// Symmetric matrices.
    symmetric = C::Symmetric;
    /// Symmetric matrices without a negative eigenvalue.
    positive_semidefinite = C::PositiveSemidefinite;
    /// Symmetric matrices with positive eigenvalues.
    positive_definite = C::PositiveDefinite;
}

macro_rules! bounded {
    ($($(#[$doc:meta])* $name:ident($($bound:ident),+) = $variant:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name($($bound: impl Into<Param>),+) -> Constraint {
            C::$variant { $($bound: $bound.into()),+ }
        }
    )*};
}
bounded! {
    /// Whole numbers between two, which belong to it.
    integer_interval(lower_bound, upper_bound) = IntegerInterval;
    /// Whole numbers up to one.
    integer_less_than(upper_bound) = IntegerLessThan;
    /// Whole numbers from one on.
    integer_greater_than(lower_bound) = IntegerGreaterThan;
    /// Above a number.
    greater_than(lower_bound) = GreaterThan;
    /// At least a number.
    greater_than_eq(lower_bound) = GreaterThanEq;
    /// Below a number.
    less_than(upper_bound) = LessThan;
    /// Between two numbers, which belong to it.
    interval(lower_bound, upper_bound) = Interval;
    /// From one number on to another, which does not belong to it.
    half_open_interval(lower_bound, upper_bound) = HalfOpenInterval;
    /// Counts that sum to at most a number.
    multinomial(upper_bound) = Multinomial;
}

/// Events of a constraint along the last `reinterpreted_batch_ndims` batch dimensions, taken as one.
pub fn independent(base: Constraint, reinterpreted_batch_ndims: usize) -> Constraint {
    C::Independent { base: Box::new(base), reinterpreted_batch_ndims }
}

/// A constraint whose events have at least `event_dim` dimensions.
pub(super) fn of_dims(constraint: Constraint, event_dim: usize) -> Constraint {
    match event_dim.saturating_sub(constraint.event_dim()) {
        0 => constraint,
        more => independent(constraint, more),
    }
}

/// Parts of these lengths along a dimension, each with its own constraint.
///
/// # Panics
/// Throws unless there are as many lengths as constraints.
#[track_caller]
pub fn cat(constraints: Vec<Constraint>, dim: i64, lengths: &[usize]) -> Constraint {
    if lengths.len() != constraints.len() {
        let (n, m) = (lengths.len(), constraints.len());
        throw(Error::argument("cat", "lengths", format!("{n} lengths of {m} constraints")));
    }
    C::Cat { constraints, dim, lengths: lengths.to_vec() }
}

/// Entries of a dimension, each with its own constraint.
pub fn stack(constraints: Vec<Constraint>, dim: i64) -> Constraint {
    C::Stack { constraints, dim }
}

/// What samples of a mixture are whose components have samples in `base`.
pub fn mixture_same_family(base: Constraint) -> Constraint {
    C::MixtureSameFamily { base: Box::new(base) }
}

/// Whether numbers are whole.
fn whole(x: &Tensor) -> Tensor {
    if x.dtype().is_floating_point() { x.remainder(1.0).eq(0.0) } else { x.eq(x) }
}

/// Whether all elements of each matrix are true.
fn each_matrix(x: &Tensor) -> Tensor {
    all_last(x, 2)
}

impl Constraint {
    /// Of each event of `value` whether it is inside; the result has the batch's shape.
    ///
    /// # Panics
    /// Throws when `value` has fewer dimensions than an event, or another size along a dimension of parts.
    #[track_caller]
    pub fn check(&self, value: &Tensor) -> Tensor {
        let x = value;
        if x.dim() < self.event_dim() {
            let (n, rank) = (self.event_dim(), x.dim());
            throw(Error::shape(
                "check",
                format!("an event of {self} has {n} dimensions, the value {rank}"),
            ));
        }
        match self {
            C::Boolean => x.eq(0.0).logical_or(&x.eq(1.0)),
            C::OneHot => {
                let boolean = x.eq(0.0).logical_or(&x.eq(1.0));
                all_last(&boolean, 1).logical_and(&x.sum_dim(&[-1], false).eq(1.0))
            }
            C::IntegerInterval { lower_bound, upper_bound } => whole(x)
                .logical_and(&x.ge(lower_bound.operand()))
                .logical_and(&x.le(upper_bound.operand())),
            C::IntegerLessThan { upper_bound } => {
                whole(x).logical_and(&x.le(upper_bound.operand()))
            }
            C::IntegerGreaterThan { lower_bound } => {
                whole(x).logical_and(&x.ge(lower_bound.operand()))
            }
            C::Real => x.eq(x),
            C::GreaterThan { lower_bound } => x.gt(lower_bound.operand()),
            C::GreaterThanEq { lower_bound } => x.ge(lower_bound.operand()),
            C::LessThan { upper_bound } => x.lt(upper_bound.operand()),
            C::Interval { lower_bound, upper_bound } => {
                x.ge(lower_bound.operand()).logical_and(&x.le(upper_bound.operand()))
            }
            C::HalfOpenInterval { lower_bound, upper_bound } => {
                x.ge(lower_bound.operand()).logical_and(&x.lt(upper_bound.operand()))
            }
            C::Simplex => {
                let sums = x.sum_dim(&[-1], false) - 1.0;
                all_last(&x.ge(0.0), 1).logical_and(&sums.abs().lt(1e-6))
            }
            C::Multinomial { upper_bound } => all_last(&x.ge(0.0), 1)
                .logical_and(&x.sum_dim(&[-1], false).le(upper_bound.operand())),
            C::LowerTriangular => each_matrix(&x.tril(0).eq(x)),
            C::LowerCholesky => {
                each_matrix(&x.tril(0).eq(x)).logical_and(&all_last(&diagonal(x).gt(0.0), 1))
            }
            C::CorrCholesky => {
                let tolerance = eps(x.dtype()) * x.size(-1) as f64 * 10.0;
                let norms = linalg::vector_norm(&x.detach(), 2.0, &[-1], false);
                C::LowerCholesky
                    .check(x)
                    .logical_and(&all_last(&(norms - 1.0).abs().le(tolerance), 1))
            }
            C::Square => {
                let batch = &x.shape()[..x.dim() - 2];
                Tensor::full(batch, x.size(-1) == x.size(-2), (Dtype::Bool, x.device()))
            }
            C::Symmetric => symmetric_check(x),
            C::PositiveSemidefinite => {
                let fine = symmetric_check(x);
                if fine.all().item() == 0.0 {
                    return fine;
                }
                all_last(&linalg::eigvalsh(x, linalg::Uplo::L).ge(0.0), 1)
            }
            C::PositiveDefinite => {
                let fine = symmetric_check(x);
                if fine.all().item() == 0.0 {
                    return fine;
                }
                linalg::cholesky_ex(x, false).1.eq(0i64)
            }
            C::Cat { constraints, dim, lengths } => {
                assert_size("cat", x, *dim, lengths.iter().sum());
                let mut start = 0;
                let mut parts = Vec::new();
                for (constraint, &length) in constraints.iter().zip(lengths) {
                    parts.push(constraint.check(&x.narrow(*dim, start, length)));
                    start += length as i64;
                }
                Tensor::cat(&parts, *dim)
            }
            C::Stack { constraints, dim } => {
                assert_size("stack", x, *dim, constraints.len());
                let parts = constraints.iter().enumerate();
                let parts: Vec<Tensor> =
                    parts.map(|(i, c)| c.check(&x.select(*dim, i as i64))).collect();
                Tensor::stack(&parts, *dim)
            }
            C::Independent { base, reinterpreted_batch_ndims } => {
                all_last(&base.check(x), *reinterpreted_batch_ndims)
            }
            C::MixtureSameFamily { base } => {
                let event = base.event_dim();
                let checked = base.check(&x.unsqueeze(-1 - event as i64));
                let kept = x.dim() - event;
                all_last(&checked, checked.dim() - kept)
            }
        }
    }

    /// How many dimensions an event has: 0 of numbers, 1 of vectors, 2 of matrices.
    pub fn event_dim(&self) -> usize {
        match self {
            C::OneHot | C::Simplex | C::Multinomial { .. } => 1,
            C::LowerTriangular
            | C::LowerCholesky
            | C::CorrCholesky
            | C::Square
            | C::Symmetric
            | C::PositiveSemidefinite
            | C::PositiveDefinite => 2,
            C::Cat { constraints, .. } => most(constraints),
            C::Stack { constraints, dim } => {
                let most = most(constraints);
                most + usize::from(*dim + (most as i64) < 0)
            }
            C::Independent { base, reinterpreted_batch_ndims } => {
                base.event_dim() + reinterpreted_batch_ndims
            }
            C::MixtureSameFamily { base } => base.event_dim(),
            _ => 0,
        }
    }

    /// Whether it holds of single values only.
    pub fn is_discrete(&self) -> bool {
        match self {
            C::Boolean
            | C::OneHot
            | C::IntegerInterval { .. }
            | C::IntegerLessThan { .. }
            | C::IntegerGreaterThan { .. }
            | C::Multinomial { .. } => true,
            C::Cat { constraints, .. } | C::Stack { constraints, .. } => {
                constraints.iter().any(C::is_discrete)
            }
            C::Independent { base, .. } | C::MixtureSameFamily { base } => base.is_discrete(),
            _ => false,
        }
    }

    /// Its name, as the function that makes it has.
    pub fn name(&self) -> &'static str {
        match self {
            C::Boolean => "boolean",
            C::OneHot => "one_hot",
            C::IntegerInterval { .. } => "integer_interval",
            C::IntegerLessThan { .. } => "integer_less_than",
            C::IntegerGreaterThan { .. } => "integer_greater_than",
            C::Real => "real",
            C::GreaterThan { .. } => "greater_than",
            C::GreaterThanEq { .. } => "greater_than_eq",
            C::LessThan { .. } => "less_than",
            C::Interval { .. } => "interval",
            C::HalfOpenInterval { .. } => "half_open_interval",
            C::Simplex => "simplex",
            C::Multinomial { .. } => "multinomial",
            C::LowerTriangular => "lower_triangular",
            C::LowerCholesky => "lower_cholesky",
            C::CorrCholesky => "corr_cholesky",
            C::Square => "square",
            C::Symmetric => "symmetric",
            C::PositiveSemidefinite => "positive_semidefinite",
            C::PositiveDefinite => "positive_definite",
            C::Cat { .. } => "cat",
            C::Stack { .. } => "stack",
            C::Independent { .. } => "independent",
            C::MixtureSameFamily { .. } => "mixture_same_family",
        }
    }

    /// The least number, where there is one.
    pub fn lower_bound(&self) -> Option<&Param> {
        match self {
            C::IntegerInterval { lower_bound, .. }
            | C::IntegerGreaterThan { lower_bound }
            | C::GreaterThan { lower_bound }
            | C::GreaterThanEq { lower_bound }
            | C::Interval { lower_bound, .. }
            | C::HalfOpenInterval { lower_bound, .. } => Some(lower_bound),
            _ => None,
        }
    }

    /// The greatest number, where there is one.
    pub fn upper_bound(&self) -> Option<&Param> {
        match self {
            C::IntegerInterval { upper_bound, .. }
            | C::IntegerLessThan { upper_bound }
            | C::LessThan { upper_bound }
            | C::Interval { upper_bound, .. }
            | C::HalfOpenInterval { upper_bound, .. }
            | C::Multinomial { upper_bound } => Some(upper_bound),
            _ => None,
        }
    }
}

/// The most dimensions of an event.
fn most(constraints: &[Constraint]) -> usize {
    constraints.iter().map(Constraint::event_dim).max().unwrap_or(0)
}

/// Whether matrices are symmetric, up to rounding.
#[track_caller]
fn symmetric_check(x: &Tensor) -> Tensor {
    if x.size(-1) != x.size(-2) {
        return C::Square.check(x);
    }
    let limits = crate::ops::pointwise::Closeness { atol: 1e-6, ..Default::default() };
    each_matrix(&x.isclose(&x.mt(), limits))
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            C::Independent { base, reinterpreted_batch_ndims } => {
                write!(f, "({base}, {reinterpreted_batch_ndims})")
            }
            C::MixtureSameFamily { base } => write!(f, "({base})"),
            C::Cat { constraints, .. } | C::Stack { constraints, .. } => {
                let names: Vec<String> = constraints.iter().map(C::to_string).collect();
                write!(f, "({})", names.join(", "))
            }
            _ => match (self.lower_bound(), self.upper_bound()) {
                (Some(low), Some(high)) => write!(f, "({low}, {high})"),
                (Some(bound), None) | (None, Some(bound)) => write!(f, "({bound})"),
                (None, None) => Ok(()),
            },
        }
    }
}
