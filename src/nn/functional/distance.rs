//! Lengths, and distances of vectors.

use crate::amp::cast_op;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// The input divided by its `p`-norms along `dim`, which count as at least `eps`
/// (`torch.nn.functional.normalize`); PyTorch's defaults are 2, 1 and 1e-12.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let unit = F::normalize(&Tensor::from([[3f64, 4.]]), 2.0, 1, 1e-12);
/// assert!((unit - Tensor::from([[0.6f64, 0.8]])).abs().max().item() < 1e-9);
/// ```
///
/// # Panics
/// Throws for integers and bools, and when the dimension is out of range.
#[track_caller]
pub fn normalize(input: &Tensor, p: f64, dim: i64, eps: f64) -> Tensor {
    input / input.norm_dim(p, &[dim], true).clamp_min(eps)
}

/// Cosine of the angles between vectors along `dim`: their product with both divided by their
/// lengths, which count as at least `eps` (`torch.nn.functional.cosine_similarity`); PyTorch's defaults
/// are 1 and 1e-8.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x1, x2) = (Tensor::from([[1f64, 0.], [1., 0.]]), Tensor::from([[5f64, 0.], [3., 4.]]));
/// let cosines = F::cosine_similarity(&x1, &x2, 1, 1e-8);
/// assert!((cosines - Tensor::from([1f64, 0.6])).abs().max().item() < 1e-9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes do not broadcast.
#[track_caller]
pub fn cosine_similarity(x1: &Tensor, x2: &Tensor, dim: i64, eps: f64) -> Tensor {
    cast_op!("cosine_similarity", [a = x1, b = x2] => cosine_similarity(&a, &b, dim, eps));
    // The dimension counts in the common shape.
    let shape = match crate::tensor::broadcast_shapes(x1.shape(), x2.shape()) {
        Ok(shape) => shape,
        Err(_) => {
            let (a, b) = (x1.shape(), x2.shape());
            throw(Error::shape("cosine_similarity", format!("{a:?} and {b:?} do not broadcast")))
        }
    };
    let unit = |x: &Tensor| {
        let x = x.expand(&shape);
        &x / x.norm_dim(2.0, &[dim], true).clamp_min(eps)
    };
    (unit(x1) * unit(x2)).sum_dim(&[dim], false)
}

/// Options of [`pairwise_distance`] and of the module of that name.
#[derive(Debug, Clone, Copy)]
pub struct PairwiseDistanceOptions {
    /// The norm's power.
    pub p: f64,
    /// Added to each difference, so that the derivative at equal vectors is finite.
    pub eps: f64,
    /// Whether the last dimension stays, of size 1.
    pub keepdim: bool,
}

impl Default for PairwiseDistanceOptions {
    /// PyTorch's: 2, 1e-6 and false.
    fn default() -> Self {
        PairwiseDistanceOptions { p: 2.0, eps: 1e-6, keepdim: false }
    }
}

/// `p`-norms of `x1 - x2 + eps` along the last dimension (`torch.nn.functional.pairwise_distance`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x1, x2) = (Tensor::from([[0f64, 0.]]), Tensor::from([[3f64, 4.]]));
/// let distance = F::pairwise_distance(&x1, &x2, Default::default());
/// assert!((distance.item() - 5.0).abs() < 1e-5);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes do not broadcast.
#[track_caller]
pub fn pairwise_distance(x1: &Tensor, x2: &Tensor, options: PairwiseDistanceOptions) -> Tensor {
    let PairwiseDistanceOptions { p, eps, keepdim } = options;
    (x1 - x2 + eps).norm_dim(p, &[-1], keepdim)
}

/// `p`-norms of the differences of all pairs of rows of `[N, M]`, in the order (0, 1), (0, 2), ...
/// (`torch.nn.functional.pdist`); PyTorch's default is 2.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let points = Tensor::from([[0f32], [3.], [7.]]);
/// assert_eq!(F::pdist(&points, 1.0).to_vec::<f32>(), [3.0, 7.0, 4.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless the input has 2 dimensions, [`Error::Argument`] for negative `p`.
#[track_caller]
pub fn pdist(input: &Tensor, p: f64) -> Tensor {
    cast_op!("pdist", [x = input] => pdist(&x, p));
    if input.dim() != 2 {
        throw(Error::shape("pdist", format!("{:?}; a matrix is needed", input.shape())));
    }
    if p.is_nan() || p < 0.0 {
        throw(Error::argument("pdist", "p", format!("{p}; must be at least 0")));
    }
    let n = input.shape()[0] as i64;
    let (first, second): (Vec<i64>, Vec<i64>) =
        (0..n).flat_map(|i| (i + 1..n).map(move |k| (i, k))).unzip();
    let rows =
        |index: Vec<i64>| input.index_select(0, &Tensor::from(index).to_device(input.device()));
    (rows(first) - rows(second)).norm_dim(p, &[1], false)
}
