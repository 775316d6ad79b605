//! Modules that compare or join two inputs (`torch/nn/modules/{distance,linear}.py`).

use super::display::python_bool;
use super::{Module, PairwiseDistanceOptions, Parameter, functional as F, init};
use crate::tensor::Tensor;

/// The cosine of the angle between vectors (`torch.nn.CosineSimilarity`); see
/// [`F::cosine_similarity`].
///
/// ```
/// use torchrs::{Tensor, nn::CosineSimilarity};
/// let (x1, x2) = (Tensor::from([[1f64, 0.], [1., 0.]]), Tensor::from([[5f64, 0.], [3., 4.]]));
/// let cosines = CosineSimilarity::new(1, 1e-8).forward(&x1, &x2);
/// assert!((cosines - Tensor::from([1f64, 0.6])).abs().max().item() < 1e-9);
/// ```
#[derive(Module, Clone, Copy, Debug)]
pub struct CosineSimilarity {
    dim: i64,
    eps: f64,
}

impl CosineSimilarity {
    /// Of vectors along `dim`; PyTorch's defaults are 1 and 1e-8.
    pub fn new(dim: i64, eps: f64) -> Self {
        CosineSimilarity { dim, eps }
    }

    /// The cosines.
    ///
    /// # Panics
    /// As [`F::cosine_similarity`].
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Tensor {
        F::cosine_similarity(x1, x2, self.dim, self.eps)
    }
}

/// The p-norm of the difference of vectors (`torch.nn.PairwiseDistance`); see
/// [`F::pairwise_distance`].
///
/// ```
/// use torchrs::{Tensor, nn::PairwiseDistance};
/// let (x1, x2) = (Tensor::from([[0f64, 0.]]), Tensor::from([[3f64, 4.]]));
/// assert!((PairwiseDistance::new(Default::default()).forward(&x1, &x2).item() - 5.0).abs() < 1e-5);
/// ```
#[derive(Module, Clone, Copy, Debug)]
pub struct PairwiseDistance {
    options: PairwiseDistanceOptions,
}

impl PairwiseDistance {
    /// A module with these options.
    pub fn new(options: PairwiseDistanceOptions) -> Self {
        PairwiseDistance { options }
    }

    /// The distances.
    ///
    /// # Panics
    /// As [`F::pairwise_distance`].
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Tensor {
        F::pairwise_distance(x1, x2, self.options)
    }
}

/// `y_k = x1^T A_k x2 + b_k` (`torch.nn.Bilinear`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::Bilinear};
/// let layer = Bilinear::new(2, 3, 4);
/// let (x1, x2) = (Tensor::ones([5, 2], Dtype::F32), Tensor::ones([5, 3], Dtype::F32));
/// assert_eq!(layer.forward(&x1, &x2).shape(), &[5, 4]);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct Bilinear {
    /// `[out_features, in1_features, in2_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
}

impl Bilinear {
    /// With a bias. Weight and bias start uniform within 1 / sqrt(in1_features).
    pub fn new(in1_features: usize, in2_features: usize, out_features: usize) -> Self {
        let bound = 1.0 / (in1_features as f64).sqrt();
        let shape = [out_features, in1_features, in2_features];
        Bilinear {
            weight: init::uniform_parameter(&shape, bound),
            bias: Some(init::uniform_parameter(&[out_features], bound)),
        }
    }

    fn settings(&self) -> String {
        format!(
            "in1_features={}, in2_features={}, out_features={}, bias={}",
            self.weight.size(1),
            self.weight.size(2),
            self.weight.size(0),
            python_bool(self.bias.is_some())
        )
    }

    /// Without a bias.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// Of inputs `[.., in1_features]` and `[.., in2_features]`.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Bilinear, init}};
    /// let layer = Bilinear::new(1, 2, 1).no_bias();
    /// init::constant_(&layer.weight, 10.0);
    /// assert_eq!(layer.forward(&Tensor::from([[2f32]]), &Tensor::from([[3f32, 4.]])).item(), 140.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`](crate::Error::Shape) for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Tensor {
        x1.bilinear(x2, &self.weight, self.bias.as_deref())
    }
}
