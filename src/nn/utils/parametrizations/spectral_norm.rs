//! Spectral normalisation (Miyato et al. 2018): a weight divided by its largest singular value, which
//! the power method approximates: in training each use of the weight does another iteration.

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::nn::{
    Buffer, Module, Training, functional as F, utils::parametrize::Parametrization,
    utils::parametrize::Parametrized, utils::parametrize::register_parametrization,
    walk::own_fields,
};
use crate::tensor::Tensor;

/// Options of [`spectral_norm`], with PyTorch's defaults.
///
/// ```
/// use torchrs::nn::{Linear, init, utils::parametrizations::{SpectralNormOptions, spectral_norm}};
/// let layer = Linear::new(2, 2);
/// init::eye_(&layer.weight);
/// let options = SpectralNormOptions { n_power_iterations: 3, ..Default::default() };
/// let layer = spectral_norm(layer, "weight", options);
/// assert!((layer.value("weight").max().item() - 1.0).abs() < 1e-5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpectralNormOptions {
    /// Iterations of the power method at each use in training.
    pub n_power_iterations: usize,
    /// Least length of a vector that is divided by its length.
    pub eps: f64,
    /// The dimension of the outputs, the rows of the matrix; `None`: 1 for transposed convolutions,
    /// else 0.
    pub dim: Option<i64>,
}

impl Default for SpectralNormOptions {
    fn default() -> Self {
        SpectralNormOptions { n_power_iterations: 1, eps: 1e-12, dim: None }
    }
}

#[derive(Module, Clone)]
#[module(name = "_SpectralNorm")]
struct SpectralNorm {
    /// The first singular vectors, so far; vectors need none.
    #[module(rename = "_u")]
    u: Option<Buffer>,
    #[module(rename = "_v")]
    v: Option<Buffer>,
    dim: i64,
    n_power_iterations: usize,
    eps: f64,
    training: Training,
}

impl SpectralNorm {
    fn new(weight: &Tensor, dim: i64, options: SpectralNormOptions) -> Self {
        let SpectralNormOptions { n_power_iterations, eps, .. } = options;
        let training = Training::default();
        let mut norm = SpectralNorm { u: None, v: None, dim, n_power_iterations, eps, training };
        if weight.dim() > 1 {
            let matrix = norm.matrix(&weight.detach());
            let start = |n: usize| {
                let x = Tensor::empty([n], (weight.dtype(), weight.device()));
                x.normal_(0.0, 1.0);
                Some(Buffer::new(norm.unit(&x)))
            };
            (norm.u, norm.v) = (start(matrix.size(0)), start(matrix.size(1)));
            norm.iterate(&matrix, 15);
        }
        norm
    }

    fn unit(&self, x: &Tensor) -> Tensor {
        F::normalize(x, 2.0, 0, self.eps)
    }

    /// The weight as a matrix with a row for each output.
    fn matrix(&self, weight: &Tensor) -> Tensor {
        weight.movedim(self.dim, 0).flatten(1, -1)
    }

    fn iterate(&self, matrix: &Tensor, times: usize) {
        let (Some(u), Some(v)) = (&self.u, &self.v) else { return };
        no_grad(|| {
            for _ in 0..times {
                u.copy_(&self.unit(&matrix.mv(v)));
                v.copy_(&self.unit(&matrix.t().mv(u)));
            }
        });
    }
}

impl Parametrization for SpectralNorm {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, originals: &[Tensor]) -> Tensor {
        let weight = &originals[0];
        let (Some(u), Some(v)) = (&self.u, &self.v) else { return self.unit(weight) };
        let matrix = self.matrix(weight);
        if self.training.get() {
            self.iterate(&matrix.detach(), self.n_power_iterations);
        }
        // Copies, since another forward before the backward goes on iterating.
        let (u, v) = (u.clone_contiguous(), v.clone_contiguous());
        weight / u.dot(&matrix.mv(&v))
    }

    /// Only of values that are normalised already.
    fn right_inverse(&self, value: &Tensor) -> Option<Vec<Tensor>> {
        Some(vec![value.clone()])
    }
}

/// `module` with a weight whose largest singular value is about 1
/// (`torch.nn.utils.parametrizations.spectral_norm`). A vector is divided by its length.
///
/// ```
/// use torchrs::nn::{Conv2d, Forward, Module, utils::parametrizations::spectral_norm};
/// use torchrs::{Dtype, Tensor};
/// let layer = spectral_norm(Conv2d::new(3, 8, 3), "weight", Default::default());
/// assert_eq!(layer.forward(&Tensor::ones([1, 3, 5, 5], Dtype::F32)).shape(), &[1, 8, 3, 3]);
/// assert_eq!(layer.state_dict()["parametrizations.weight.0._u"].shape(), &[8]);
/// ```
///
/// # Panics
/// Throws when the module itself has no parameter of this name, when the dimension is out of range,
/// and when there are no iterations.
#[track_caller]
pub fn spectral_norm<M: Module + Clone>(
    module: M,
    name: &str,
    options: SpectralNormOptions,
) -> Parametrized<M> {
    let own = own_fields(&module).parameters;
    let Some((_, weight)) = own.into_iter().find(|(n, _)| n == name) else {
        let message = format!("{} itself has no parameter `{name}`", module.name());
        throw(Error::argument("spectral_norm", "name", message))
    };
    if options.n_power_iterations == 0 {
        let message = "0; must be at least 1";
        throw(Error::argument("spectral_norm", "n_power_iterations", message));
    }
    let usual = if module.name().starts_with("ConvTranspose") { 1 } else { 0 };
    let (dim, dims) = (options.dim.unwrap_or(usual), weight.dim() as i64);
    if !(-dims..dims).contains(&dim) {
        let message = format!("{dim} for a weight of shape {:?}", weight.shape());
        throw(Error::argument("spectral_norm", "dim", message));
    }
    let norm = SpectralNorm::new(weight, dim.rem_euclid(dims), options);
    register_parametrization(module, name, norm)
}
