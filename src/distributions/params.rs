//! Parameters as they are given, numbers or tensors, and the few functions of them that distributions share.

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Tensor, TensorOptions};

/// A parameter: a number or a tensor. Numbers take the type and device of the tensors beside them, f32 without any.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, Normal};
/// assert_eq!(Normal::new(0.0, 1.0).batch_shape(), &[] as &[usize]);
/// assert_eq!(Normal::new(Tensor::from([0f64, 1.]), 1).batch_shape(), &[2]);
/// ```
#[derive(Clone, Debug)]
pub enum Param {
    /// A number.
    Number(f64),
    /// A tensor.
    Tensor(Tensor),
}

impl Param {
    /// As an operand of an op.
    pub(super) fn operand(&self) -> Operand<'_> {
        match self {
            Param::Number(v) => (*v).into(),
            Param::Tensor(t) => t.into(),
        }
    }

    /// As a tensor; a number takes the type and device of `like`.
    pub(super) fn into_tensor(self, like: &Tensor) -> Tensor {
        match self {
            Param::Number(v) => number(v, Some(like)),
            Param::Tensor(t) => t,
        }
    }

    /// Its shape; that of a number is `[]`.
    pub(super) fn shape(&self) -> &[usize] {
        match self {
            Param::Number(_) => &[],
            Param::Tensor(t) => t.shape(),
        }
    }

    /// Whether both are the same numbers.
    pub(super) fn equals(&self, other: &Param) -> bool {
        match (self, other) {
            (Param::Number(a), Param::Number(b)) => a == b,
            (Param::Tensor(a), b) | (b, Param::Tensor(a)) => {
                if let Param::Tensor(b) = b
                    && a.ptr_eq(b)
                {
                    return true;
                }
                a.eq(b.operand()).all().item() != 0.0
            }
        }
    }
}

impl std::fmt::Display for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Param::Number(v) => write!(f, "{v}"),
            Param::Tensor(t) if t.numel() == 1 => write!(f, "{}", t.item()),
            Param::Tensor(t) => write!(f, "a tensor of shape {:?}", t.shape()),
        }
    }
}

macro_rules! from_numbers {
    ($($t:ty)*) => {$(
        impl From<$t> for Param {
            fn from(value: $t) -> Self {
                Param::Number(value as f64)
            }
        }
    )*};
}
from_numbers!(f64 f32 i64 i32 usize);

impl From<Tensor> for Param {
    fn from(value: Tensor) -> Self {
        Param::Tensor(value)
    }
}

impl From<&Tensor> for Param {
    fn from(value: &Tensor) -> Self {
        Param::Tensor(value.clone())
    }
}

impl From<&Param> for Param {
    fn from(value: &Param) -> Self {
        value.clone()
    }
}

/// A number as a tensor without dimensions, of the type and device of `like`.
pub(super) fn number(value: f64, like: Option<&Tensor>) -> Tensor {
    match like {
        Some(like) => Tensor::full([0usize; 0], value, options(like)),
        None => Tensor::full([0usize; 0], value, Dtype::F32),
    }
}

/// Type and device of a tensor.
pub(super) fn options(like: &Tensor) -> TensorOptions {
    (like.dtype(), like.device()).into()
}

/// The parameters as tensors of one shape (`torch.distributions.utils.broadcast_all`).
#[track_caller]
pub(super) fn broadcast<const N: usize>(
    op: &str,
    names: [&str; N],
    given: [Param; N],
) -> [Tensor; N] {
    let first = given.iter().find_map(|p| match p {
        Param::Tensor(t) => Some(t.clone()),
        Param::Number(_) => None,
    });
    let tensors: Vec<Tensor> = given
        .iter()
        .map(|p| match p {
            Param::Number(v) => number(*v, first.as_ref()),
            Param::Tensor(t) => t.clone(),
        })
        .collect();
    let mut shape = Vec::new();
    for (name, t) in names.iter().zip(&tensors) {
        shape = joint(op, name, &shape, t.shape());
    }
    let mut tensors = tensors.into_iter();
    std::array::from_fn(|_| tensors.next().expect("as many as given").expand(&shape))
}

/// The shape that both are broadcast to.
#[track_caller]
pub(super) fn joint(op: &str, name: &str, a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let size = |s: &[usize], d: usize| if d + s.len() < rank { 1 } else { s[d + s.len() - rank] };
    let each = |d: usize| match (size(a, d), size(b, d)) {
        (x, y) if x == y => x,
        (1, y) => y,
        (x, 1) => x,
        _ => throw(Error::shape(
            op,
            format!("`{name}` of shape {b:?} cannot be broadcast with {a:?}"),
        )),
    };
    (0..rank).map(each).collect()
}

/// The two as tensors of one shape.
#[track_caller]
pub(super) fn pair(op: &str, a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    let [a, b] = broadcast(op, ["parameters", "value"], [a.into(), b.into()]);
    (a, b)
}

/// The type whose limits count: f32 for those without fractions.
fn floating(dtype: Dtype) -> Dtype {
    if dtype.is_floating_point() { dtype } else { Dtype::F32 }
}

/// Distance from 1 to the next number of the type.
pub(super) fn eps(dtype: Dtype) -> f64 {
    floating(dtype).finfo().eps
}

/// Smallest normal number of the type.
pub(super) fn tiny(dtype: Dtype) -> f64 {
    floating(dtype).finfo().smallest_normal
}

/// The most negative number of the type.
pub(super) fn lowest(dtype: Dtype) -> f64 {
    floating(dtype).finfo().min
}

/// Probabilities away from 0 and 1, by the type's precision.
pub(super) fn clamp_probs(probs: &Tensor) -> Tensor {
    let eps = eps(probs.dtype());
    probs.clamp(eps, 1.0 - eps)
}

/// Log-odds of probabilities of 1.
pub(super) fn binary_logits(probs: &Tensor) -> Tensor {
    let p = clamp_probs(probs);
    p.log() - (-&p).log1p()
}

/// Logarithms of probabilities.
pub(super) fn log_probs(probs: &Tensor) -> Tensor {
    clamp_probs(probs).log()
}

/// The sum over the last `dims` dimensions.
pub(super) fn sum_last(x: &Tensor, dims: usize) -> Tensor {
    if dims == 0 {
        return x.clone();
    }
    let dims: Vec<i64> = (1..=dims as i64).map(|d| -d).collect();
    x.sum_dim(&dims, false)
}

/// Whether all of the last `dims` dimensions are true.
pub(super) fn all_last(x: &Tensor, dims: usize) -> Tensor {
    if dims == 0 {
        return x.clone();
    }
    let dims: Vec<i64> = (1..=dims as i64).map(|d| -d).collect();
    x.all_dim(&dims, false)
}

/// Shapes behind each other.
pub(super) fn concat(parts: &[&[usize]]) -> Vec<usize> {
    parts.concat()
}

/// Throws unless `x` has that size along a dimension.
#[track_caller]
pub(super) fn assert_size(op: &str, x: &Tensor, dim: i64, size: usize) {
    let rank = x.dim() as i64;
    if !(-rank..rank).contains(&dim) {
        throw(Error::argument(op, "dim", format!("{dim}; the tensor has {rank} dimensions")));
    }
    if x.size(dim) != size {
        throw(Error::shape(
            op,
            format!(
                "a tensor of shape {:?}, of which dimension {dim} must have size {size}",
                x.shape()
            ),
        ));
    }
}

/// `x`, and `value` where `mask` is true; what is overwritten has no gradient.
pub(super) fn fill(x: &Tensor, mask: &Tensor, value: f64) -> Tensor {
    mask.where_(value, x)
}

/// A matrix times a vector, for each of a batch.
pub(super) fn batch_mv(matrix: &Tensor, vector: &Tensor) -> Tensor {
    matrix.matmul(&vector.unsqueeze(-1)).squeeze_dim(-1)
}

/// The diagonal of the last two dimensions.
pub(super) fn diagonal(x: &Tensor) -> Tensor {
    x.diagonal(0, -2, -1)
}

/// Standard normal numbers of a shape, of the type and device of `like`.
pub(super) fn standard_normal(shape: &[usize], like: &Tensor) -> Tensor {
    Tensor::randn(shape, options(like))
}

/// Uniform numbers in [0, 1) of a shape, of the type and device of `like`.
pub(super) fn uniform(shape: &[usize], like: &Tensor) -> Tensor {
    Tensor::rand(shape, options(like))
}

/// Cross entropy of the log-odds with probabilities, elementwise.
pub(super) fn cross_entropy(logits: &Tensor, target: &Tensor) -> Tensor {
    crate::ops::pointwise::logit_error(logits, target, 1.0)
}

/// A shape's last `n` sizes.
pub(super) fn last(shape: &[usize], n: usize) -> &[usize] {
    &shape[shape.len() - n.min(shape.len())..]
}

/// A shape without its last `n` sizes.
pub(super) fn without_last(shape: &[usize], n: usize) -> &[usize] {
    &shape[..shape.len() - n.min(shape.len())]
}

/// The first of a list.
pub(super) fn first<const N: usize>(list: [&Tensor; N]) -> &Tensor {
    list[0]
}

/// The shape of a parameter in a batch of another shape. Where the parameter's own last dimensions are of the event,
/// they stay.
pub(super) fn of_batch(
    batch: &[usize],
    shape: &super::distribution::Shape,
    p: &Tensor,
) -> Vec<usize> {
    let own = p.dim().saturating_sub(shape.batch.len());
    concat(&[batch, last(p.shape(), own)])
}
