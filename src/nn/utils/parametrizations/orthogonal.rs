//! Orthogonal matrices (Lezcano-Casado 2019): a map from all matrices to those with orthonormal
//! columns (rows, where there are fewer of these), times a fixed orthogonal base.
//!
//! ```text
//! matrix_exp, cayley:  A = tril(X) - tril(X)^T;  Q = e^A, or (I - A/2)^-1 (I + A/2)
//! householder:         Q = H_1 .. H_k diag(X), with reflections H_i = I - tau_i v_i v_i^T,
//!                      v_i = e_i + column i of X below the diagonal, tau_i = 2 / |v_i|^2
//! ```

use super::reflections::{geqrf, householder_product};
use crate::error::{Error, throw};
use crate::nn::{
    Buffer, Module, init::orthonormal, utils::parametrize::Parametrization,
    utils::parametrize::Parametrized, utils::parametrize::register_parametrization,
    walk::own_fields,
};
use crate::ops::linalg;
use crate::tensor::{Dtype, Tensor};

/// How a matrix is made orthogonal.
///
/// ```
/// use torchrs::nn::{Linear, utils::parametrizations::{OrthogonalMap, OrthogonalOptions, orthogonal}};
/// use torchrs::{Dtype, Tensor};
/// let options = OrthogonalOptions { orthogonal_map: Some(OrthogonalMap::Cayley), ..Default::default() };
/// let q = orthogonal(Linear::new(4, 4), "weight", options).value("weight");
/// assert!((q.matmul(&q.t()) - Tensor::eye(4, Dtype::F32)).abs().max().item() < 1e-5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrthogonalMap {
    /// The exponential of a skew-symmetric matrix.
    MatrixExp,
    /// The Cayley transform of a skew-symmetric matrix.
    Cayley,
    /// A product of reflections; the cheapest for thin matrices.
    Householder,
}

/// Options of [`orthogonal`], with PyTorch's defaults.
///
/// ```
/// use torchrs::nn::{Linear, init, utils::parametrizations::{OrthogonalOptions, orthogonal}};
/// let layer = Linear::new(3, 3);
/// init::eye_(&layer.weight);
/// let options = OrthogonalOptions { use_trivialization: true, ..Default::default() };
/// let layer = orthogonal(layer, "weight", options);
/// assert_eq!(layer.value("weight").diagonal(0, 0, 1).to_vec::<f32>(), [1.0; 3]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrthogonalOptions {
    /// `None`: [`OrthogonalMap::MatrixExp`] for square matrices, else [`OrthogonalMap::Householder`].
    pub orthogonal_map: Option<OrthogonalMap>,
    /// Whether the weight that the module has is kept as a base, near which training starts.
    pub use_trivialization: bool,
}

impl Default for OrthogonalOptions {
    fn default() -> Self {
        OrthogonalOptions { orthogonal_map: None, use_trivialization: true }
    }
}

#[derive(Module, Clone)]
#[module(name = "_Orthogonal")]
struct Orthogonal {
    base: Option<Buffer>,
    #[module(skip)]
    map: OrthogonalMap,
}

/// Tall, and whether that took a transposition.
fn tall(x: &Tensor) -> (Tensor, bool) {
    let wide = x.size(-2) < x.size(-1);
    (if wide { x.mt() } else { x.clone() }, wide)
}

impl Parametrization for Orthogonal {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, originals: &[Tensor]) -> Tensor {
        let (x, transposed) = tall(&originals[0]);
        let (n, k) = (x.size(-2), x.size(-1));
        let q = match self.map {
            OrthogonalMap::Householder => {
                let below = x.tril(-1);
                let tau = 2.0 / (below.square().sum_dim(&[-2], false) + 1.0);
                // The diagonal's signs are no parameters.
                let signs = x.diagonal(0, -2, -1).detach().trunc().unsqueeze(-2);
                householder_product(&below, &tau) * signs
            }
            map => {
                let mut x = x.tril(0);
                if n != k {
                    let mut shape = x.shape().to_vec();
                    *shape.last_mut().expect("two dimensions") = n - k;
                    x = Tensor::cat(
                        &[x.clone(), Tensor::zeros(shape, (x.dtype(), x.device()))],
                        -1,
                    );
                }
                let skew = &x - x.mt();
                let q = match map {
                    OrthogonalMap::MatrixExp => linalg::matrix_exp(&skew),
                    _ => {
                        let one = Tensor::eye(n, (skew.dtype(), skew.device()));
                        linalg::solve(&(&one - &skew * 0.5), &(&one + &skew * 0.5))
                    }
                };
                q.narrow(-1, 0, k)
            }
        };
        let q = match &self.base {
            Some(base) => base.matmul(&q),
            None => q,
        };
        if transposed { q.mt() } else { q }
    }

    /// Without a base there is one for [`OrthogonalMap::Householder`] only.
    fn right_inverse(&self, value: &Tensor) -> Option<Vec<Tensor>> {
        let (q, transposed) = tall(value);
        let (n, k) = (q.size(-2), q.size(-1));
        if let Some(base) = &self.base {
            let kept = n == k && is_orthogonal(&q);
            let q = match (kept, n == k) {
                (true, _) => q,
                (_, true) => orthonormal(&q),
                _ => {
                    let mut shape = q.shape().to_vec();
                    *shape.last_mut().expect("two dimensions") = n - k;
                    let more = Tensor::empty(shape, (q.dtype(), q.device()));
                    more.normal_(0.0, 1.0);
                    orthonormal(&Tensor::cat(&[q, more], -1))
                }
            };
            base.copy_(&q);
            // All reflections of zero columns turn a sign: the identity.
            let start = value.zeros_like();
            start.diagonal(0, -2, -1).fill_(-1.0);
            return Some(vec![start]);
        }
        if self.map != OrthogonalMap::Householder {
            return None;
        }
        let (a, tau) = geqrf(&q);
        let diagonal = a.diagonal(0, -2, -1);
        let signs = diagonal.sign();
        // Where LAPACK does not reflect, the formula for tau does.
        diagonal.copy_(&tau.eq(0.0).where_(&-&signs, &signs));
        Some(vec![if transposed { a.mt() } else { a }])
    }
}

fn is_orthogonal(q: &Tensor) -> bool {
    let (n, k) = (q.size(-2), q.size(-1));
    let epsilon = if q.dtype() == Dtype::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let off = (q.mt().matmul(q) - Tensor::eye(k, (q.dtype(), q.device()))).abs();
    off.numel() == 0 || off.max().item() <= 10.0 * n as f64 * epsilon
}

/// `module` with a weight that stays orthogonal: with orthonormal columns, or rows where there are
/// fewer of these (`torch.nn.utils.parametrizations.orthogonal`). A weight with more dimensions is a
/// batch of matrices. With `use_trivialization` the weight that it has is kept if it is orthogonal, and
/// made so else.
///
/// ```
/// use torchrs::nn::{Linear, utils::parametrizations::orthogonal};
/// use torchrs::{Dtype, Tensor};
/// let layer = orthogonal(Linear::new(3, 5), "weight", Default::default());
/// let q = layer.value("weight");
/// assert!((q.t().matmul(&q) - Tensor::eye(3, Dtype::F32)).abs().max().item() < 1e-5);
/// ```
///
/// # Panics
/// Throws when the module itself has no parameter of this name, and for a vector.
#[track_caller]
pub fn orthogonal<M: Module + Clone>(
    module: M,
    name: &str,
    options: OrthogonalOptions,
) -> Parametrized<M> {
    let own = own_fields(&module).parameters;
    let Some((_, weight)) = own.into_iter().find(|(n, _)| n == name) else {
        let message = format!("{} itself has no parameter `{name}`", module.name());
        throw(Error::argument("orthogonal", "name", message))
    };
    if weight.dim() < 2 {
        let message = format!("`{name}` is {:?}; a matrix or several are needed", weight.shape());
        throw(Error::shape("orthogonal", message));
    }
    let (rows, columns) = (weight.size(-2), weight.size(-1));
    let usual = match rows == columns {
        true => OrthogonalMap::MatrixExp,
        false => OrthogonalMap::Householder,
    };
    let mut shape = weight.shape().to_vec();
    let (dims, size) = (shape.len(), rows.max(columns));
    shape[dims - 2..].fill(size);
    let map = options.orthogonal_map.unwrap_or(usual);
    let base =
        options.use_trivialization.then(|| Buffer::new(Tensor::zeros(shape, weight.dtype())));
    register_parametrization(module, name, Orthogonal { base, map })
}
