//! Normalisation of each sample by itself (`torch/nn/modules/normalization.py`).

use super::display::{python_bool, python_float, python_tuple};
use super::{Forward, Module, NormalizedShape, Parameter};
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

/// Brings the last dimensions of each sample to mean 0 and variance 1, then scales and shifts
/// (`torch.nn.LayerNorm`).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, LayerNorm}};
/// let y = LayerNorm::new(2).forward(&Tensor::from([[1f32, 3.]]));
/// assert!((y.to_vec::<f32>()[1] - 1.0).abs() < 1e-4);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct LayerNorm {
    /// Of the normalised shape; starts at 1.
    pub weight: Option<Parameter>,
    /// Of the normalised shape; starts at 0.
    pub bias: Option<Parameter>,
    normalized_shape: Vec<usize>,
    eps: f64,
}

impl LayerNorm {
    /// Over the last dimensions, which have this shape; with weight and bias, eps 1e-5.
    ///
    /// ```
    /// use torchrs::nn::LayerNorm;
    /// assert_eq!(LayerNorm::new([5, 8]).weight.unwrap().shape(), &[5, 8]);
    /// assert_eq!(LayerNorm::new(8).bias.unwrap().to_vec::<f32>(), [0.0; 8]);
    /// ```
    pub fn new(normalized_shape: impl Into<NormalizedShape>) -> Self {
        let NormalizedShape(normalized_shape) = normalized_shape.into();
        LayerNorm {
            weight: Some(Parameter::new(Tensor::ones(&normalized_shape, Dtype::F32))),
            bias: Some(Parameter::new(Tensor::zeros(&normalized_shape, Dtype::F32))),
            normalized_shape,
            eps: 1e-5,
        }
    }

    fn settings(&self) -> String {
        format!(
            "{}, eps={}, elementwise_affine={}, bias={}",
            python_tuple(&self.normalized_shape),
            python_float(self.eps),
            python_bool(self.weight.is_some()),
            python_bool(self.bias.is_some())
        )
    }
}

/// The settings that norms with weight and bias share.
macro_rules! affine_settings {
    ($($name:ident)*) => {$(
        impl $name {
            /// With another number added to the variance.
            #[must_use]
            pub fn eps(mut self, eps: f64) -> Self {
                self.eps = eps;
                self
            }

            /// Without weight and bias (`elementwise_affine=False`, `affine=False`).
            #[must_use]
            pub fn no_affine(mut self) -> Self {
                (self.weight, self.bias) = (None, None);
                self
            }

            /// With a weight only.
            #[must_use]
            pub fn no_bias(mut self) -> Self {
                self.bias = None;
                self
            }
        }
    )*};
}
affine_settings! { LayerNorm GroupNorm }

impl LayerNorm {
    /// [`forward`](Forward::forward) for an input of linear layers alone: inside [`autocast`](crate::amp::autocast) it has
    /// the half type at once that they would cast it to. The bits are the same, and no copy is made between.
    ///
    /// ```
    /// use torchrs::{Device, Dtype, Tensor, amp::autocast, nn::{Forward, LayerNorm}};
    /// let (norm, x) = (LayerNorm::new(2), Tensor::from([[1f32, 4.]]));
    /// let y = autocast(Device::Cpu, Dtype::BF16, || norm.forward_for_linear(&x));
    /// assert!(y.equal(&norm.forward(&x).to_dtype(Dtype::BF16)));
    /// ```
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_for_linear(&self, input: &Tensor) -> Tensor {
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        input.layer_norm_for_linear(&self.normalized_shape, weight, bias, self.eps)
    }

    /// `input + added`, as behind a shortcut, and its norm. On a GPU one kernel makes both, and one their gradients; the
    /// bits are those of the addition and [`forward`](Forward::forward).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, LayerNorm}};
    /// let (norm, x, branch) = (LayerNorm::new(2), Tensor::from([[1f32, 4.]]), Tensor::from([[2f32, 7.]]));
    /// let (sum, y) = norm.forward_add(&x, &branch);
    /// assert!(sum.equal(&(&x + &branch)) && y.equal(&norm.forward(&sum)));
    /// ```
    ///
    /// # Panics
    /// As the two.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_add(&self, input: &Tensor, added: &Tensor) -> (Tensor, Tensor) {
        let parameters = [self.weight.as_deref(), self.bias.as_deref()];
        input.add_layer_norm(added, &self.normalized_shape, parameters, self.eps, false)
    }

    /// [`forward_add`](Self::forward_add) whose norm is an input of linear layers alone, as
    /// [`forward_for_linear`](Self::forward_for_linear).
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_add_for_linear(&self, input: &Tensor, added: &Tensor) -> (Tensor, Tensor) {
        let parameters = [self.weight.as_deref(), self.bias.as_deref()];
        input.add_layer_norm(added, &self.normalized_shape, parameters, self.eps, true)
    }
}

impl Forward for LayerNorm {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        input.layer_norm(&self.normalized_shape, weight, bias, self.eps)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let affine = [self.weight.as_deref(), self.bias.as_deref()];
        graph.layer_norm(input, &self.normalized_shape, affine, self.eps)
    }
}

/// Divides the last dimensions of each sample by the root of their mean square, then scales
/// (`torch.nn.RMSNorm`).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, RMSNorm}};
/// let y = RMSNorm::new(2).forward(&Tensor::from([[2f32, -2.], [5., 5.]]));
/// assert!((y - Tensor::from([[1f32, -1.], [1., 1.]])).abs().max().item() < 1e-5);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct RMSNorm {
    /// Of the normalised shape; starts at 1.
    pub weight: Option<Parameter>,
    normalized_shape: Vec<usize>,
    eps: Option<f64>,
}

impl RMSNorm {
    /// Over the last dimensions, which have this shape; with a weight, eps the dtype's epsilon.
    pub fn new(normalized_shape: impl Into<NormalizedShape>) -> Self {
        let NormalizedShape(normalized_shape) = normalized_shape.into();
        let weight = Some(Parameter::new(Tensor::ones(&normalized_shape, Dtype::F32)));
        RMSNorm { weight, normalized_shape, eps: None }
    }

    /// With another number added to the mean square.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, RMSNorm}};
    /// // 1 / sqrt((1 + 1) / 2 + 3)
    /// let y = RMSNorm::new(2).eps(3.0).forward(&Tensor::from([[1f32, 1.]]));
    /// assert!((y - 0.5).abs().max().item() < 1e-6);
    /// ```
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = Some(eps);
        self
    }

    /// Without a weight (`elementwise_affine=False`).
    #[must_use]
    pub fn no_affine(mut self) -> Self {
        self.weight = None;
        self
    }

    fn settings(&self) -> String {
        format!(
            "{}, eps={}, elementwise_affine={}",
            python_tuple(&self.normalized_shape),
            self.eps.map_or("None".to_owned(), python_float),
            python_bool(self.weight.is_some())
        )
    }
}

impl RMSNorm {
    /// [`forward`](Forward::forward) for an input of linear layers alone, as
    /// [`LayerNorm::forward_for_linear`].
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_for_linear(&self, input: &Tensor) -> Tensor {
        input.rms_norm_for_linear(&self.normalized_shape, self.weight.as_deref(), self.eps)
    }

    /// `input + added` and its norm, as [`LayerNorm::forward_add`].
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_add(&self, input: &Tensor, added: &Tensor) -> (Tensor, Tensor) {
        let weight = self.weight.as_deref();
        input.add_rms_norm(added, &self.normalized_shape, weight, self.eps, false)
    }

    /// [`forward_add`](Self::forward_add) whose norm is an input of linear layers alone.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_add_for_linear(&self, input: &Tensor, added: &Tensor) -> (Tensor, Tensor) {
        let weight = self.weight.as_deref();
        input.add_rms_norm(added, &self.normalized_shape, weight, self.eps, true)
    }
}

impl Forward for RMSNorm {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.rms_norm(&self.normalized_shape, self.weight.as_deref(), self.eps)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let eps = self.eps.unwrap_or(f64::from(f32::EPSILON));
        graph.rms_norm(input, &self.normalized_shape, self.weight.as_deref(), eps)
    }
}

/// Brings each group of channels of each sample to mean 0 and variance 1, then scales and shifts the
/// channels (`torch.nn.GroupNorm`; Wu & He 2018).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, GroupNorm}};
/// let y = GroupNorm::new(2, 4).forward(&Tensor::from([[1f32, 3., 10., 30.]]));
/// assert!((y - Tensor::from([[-1f32, 1., -1., 1.]])).abs().max().item() < 1e-4);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct GroupNorm {
    /// `[num_channels]`; starts at 1.
    pub weight: Option<Parameter>,
    /// `[num_channels]`; starts at 0.
    pub bias: Option<Parameter>,
    num_groups: usize,
    num_channels: usize,
    eps: f64,
}

impl GroupNorm {
    /// With weight and bias, eps 1e-5.
    ///
    /// ```
    /// use torchrs::{catch, nn::GroupNorm};
    /// assert_eq!(GroupNorm::new(2, 6).weight.unwrap().shape(), &[6]);
    /// assert!(catch(|| GroupNorm::new(4, 6)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the groups do not divide the channels.
    #[track_caller]
    pub fn new(num_groups: usize, num_channels: usize) -> Self {
        if num_groups == 0 || !num_channels.is_multiple_of(num_groups) {
            let message = format!("{num_groups}; must divide num_channels, {num_channels}");
            throw(Error::argument("GroupNorm", "num_groups", message));
        }
        GroupNorm {
            weight: Some(Parameter::new(Tensor::ones([num_channels], Dtype::F32))),
            bias: Some(Parameter::new(Tensor::zeros([num_channels], Dtype::F32))),
            num_groups,
            num_channels,
            eps: 1e-5,
        }
    }

    fn settings(&self) -> String {
        format!(
            "{}, {}, eps={}, affine={}, bias={}",
            self.num_groups,
            self.num_channels,
            python_float(self.eps),
            python_bool(self.weight.is_some()),
            python_bool(self.bias.is_some())
        )
    }
}

impl Forward for GroupNorm {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        input.group_norm(self.num_groups, weight, bias, self.eps)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let affine = [self.weight.as_deref(), self.bias.as_deref()];
        graph.group_norm(input, self.num_groups, affine, self.eps)
    }
}

/// Divides by the neighbouring channels' activity (`torch.nn.LocalResponseNorm`; Krizhevsky et al.
/// 2012); see [`local_response_norm`](crate::nn::functional::local_response_norm).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, LocalResponseNorm}};
/// // 2 / (1 + 2^2)
/// let y = LocalResponseNorm::new(1, 1.0, 1.0, 1.0).forward(&Tensor::from([[[2f32]]]));
/// assert!((y.item() - 0.4).abs() < 1e-6);
/// ```
#[derive(Module, Clone, Copy, Debug)]
#[module(extra_repr = Self::settings)]
pub struct LocalResponseNorm {
    size: usize,
    alpha: f64,
    beta: f64,
    k: f64,
}

impl LocalResponseNorm {
    /// Over `size` channels; PyTorch's defaults are alpha 1e-4, beta 0.75, k 1.
    pub fn new(size: usize, alpha: f64, beta: f64, k: f64) -> Self {
        LocalResponseNorm { size, alpha, beta, k }
    }

    fn settings(&self) -> String {
        let [alpha, beta, k] = [self.alpha, self.beta, self.k].map(python_float);
        format!("{}, alpha={alpha}, beta={beta}, k={k}", self.size)
    }
}

impl Forward for LocalResponseNorm {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.local_response_norm(self.size, self.alpha, self.beta, self.k)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        graph.local_response_norm(input, self.size, [self.alpha, self.beta, self.k])
    }
}
