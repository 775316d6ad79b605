//! Activation functions as modules (`torch/nn/modules/activation.py`), a row each.

use super::display::python_float;
use super::{Forward, Module, Parameter, Training, functional as F};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident = |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Tensor {
                let _scope = crate::nn::scope::enter(self);
                $body
            }
        }
    )*};
}

activations! {
    /// max(x, 0) (`torch.nn.ReLU`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReLU}};
    /// assert_eq!(ReLU.forward(&Tensor::from([-1f32, 2.])).to_vec::<f32>(), [0.0, 2.0]);
    /// ```
    ReLU = |x| x.relu();
    /// x sigmoid(x) (`torch.nn.SiLU`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, SiLU}};
    /// assert!((SiLU.forward(&Tensor::from([1f64])).item() - 0.731059).abs() < 1e-6);
    /// ```
    SiLU = |x| x.silu();
    /// Hyperbolic tangent (`torch.nn.Tanh`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Tanh}};
    /// assert!((Tanh.forward(&Tensor::from([1f64])).item() - 0.761594).abs() < 1e-6);
    /// ```
    Tanh = |x| x.tanh();
    /// Logistic function (`torch.nn.Sigmoid`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Sigmoid}};
    /// assert!((Sigmoid.forward(&Tensor::from([3f64.ln()])).item() - 0.75).abs() < 1e-9);
    /// ```
    Sigmoid = |x| x.sigmoid();
    /// min(max(x, 0), 6) (`torch.nn.ReLU6`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReLU6}};
    /// assert_eq!(ReLU6.forward(&Tensor::from([-1f32, 3., 9.])).to_vec::<f32>(), [0.0, 3.0, 6.0]);
    /// ```
    ReLU6 = |x| F::relu6(x);
    /// Scaled exponential linear unit (`torch.nn.SELU`); see [`Tensor::selu`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, SELU}};
    /// let y = SELU.forward(&Tensor::from([1f64, -100.])).to_vec::<f64>();
    /// assert!((y[0] - 1.0507).abs() < 1e-4 && (y[1] + 1.7581).abs() < 1e-4);
    /// ```
    SELU = |x| x.selu();
    /// x tanh(log(1 + e^x)) (`torch.nn.Mish`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Mish}};
    /// assert!((Mish.forward(&Tensor::from([1f64])).item() - 0.8651).abs() < 1e-4);
    /// ```
    Mish = |x| x.mish();
    /// x / (1 + |x|) (`torch.nn.Softsign`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Softsign}};
    /// assert_eq!(Softsign.forward(&Tensor::from([-3f32, 1.])).to_vec::<f32>(), [-0.75, 0.5]);
    /// ```
    Softsign = |x| x.softsign();
    /// x - tanh(x) (`torch.nn.Tanhshrink`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Tanhshrink}};
    /// assert!((Tanhshrink.forward(&Tensor::from([1f64])).item() - 0.238406).abs() < 1e-6);
    /// ```
    Tanhshrink = |x| x.tanhshrink();
    /// log(1 / (1 + e^-x)) (`torch.nn.LogSigmoid`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, LogSigmoid}};
    /// assert!((LogSigmoid.forward(&Tensor::from([0f64])).item() + 2f64.ln()).abs() < 1e-9);
    /// ```
    LogSigmoid = |x| x.logsigmoid();
    /// x min(max(x + 3, 0), 6) / 6 (`torch.nn.Hardswish`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hardswish}};
    /// assert_eq!(Hardswish.forward(&Tensor::from([-4f32, 0., 6.])).to_vec::<f32>(), [0.0, 0.0, 6.0]);
    /// ```
    Hardswish = |x| x.hardswish();
    /// min(max(x + 3, 0), 6) / 6 (`torch.nn.Hardsigmoid`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hardsigmoid}};
    /// assert_eq!(Hardsigmoid.forward(&Tensor::from([-3f32, 0., 3.])).to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// ```
    Hardsigmoid = |x| x.hardsigmoid();
    /// Softmax over the channels of `[N, C, H, W]` or `[C, H, W]` (`torch.nn.Softmax2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, Softmax2d}};
    /// let y = Softmax2d.forward(&Tensor::ones([2, 4, 3, 3], Dtype::F32));
    /// assert!((y - 0.25).abs().max().item() < 1e-6);
    /// ```
    Softmax2d = |x| x.softmax(-3);
}

/// An example makes each module with `$settings`, of which its text shows `$last` last.
macro_rules! activations_with_settings {
    ($(
        $(#[$doc:meta])* $name:ident { $($field:ident: $t:ty),+ }
        $new_doc:literal, $settings:literal => $last:literal,
        repr $repr:expr, forward |$x:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name { $($field: $t),+ }

        impl $name {
            #[doc = $new_doc]
            ///
            /// ```
            #[doc = concat!("use torchrs::nn::{Module, ", stringify!($name), "};")]
            #[doc = concat!("let text = ", stringify!($name), "::new(", $settings, ").repr();")]
            #[doc = concat!("assert!(text.ends_with(\"", $last, ")\"));")]
            /// ```
            pub fn new($($field: $t),+) -> Self { $name { $($field),+ } }

            fn settings(&self) -> String { ($repr)($(self.$field),+) }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Tensor {
                let _scope = crate::nn::scope::enter(self);
                $(let $field = self.$field;)+
                $body
            }
        }
    )*};
}

activations_with_settings! {
    /// x, or `negative_slope` times x below 0 (`torch.nn.LeakyReLU`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, LeakyReLU}};
    /// assert_eq!(LeakyReLU::new(0.5).forward(&Tensor::from([-2f32, 3.])).to_vec::<f32>(), [-1.0, 3.0]);
    /// ```
    LeakyReLU { negative_slope: f64 } "PyTorch's default is 0.01.", "0.01" => "0.01",
        repr |slope| format!("negative_slope={}", python_float(slope)),
        forward |x| x.leaky_relu(negative_slope);
    /// x, or alpha (e^x - 1) below 0 (`torch.nn.ELU`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{ELU, Forward}};
    /// assert_eq!(ELU::new(2.0).forward(&Tensor::from([-100f32, 3.])).to_vec::<f32>(), [-2.0, 3.0]);
    /// ```
    ELU { alpha: f64 } "PyTorch's default is 1.", "0.5" => "0.5",
        repr |alpha| format!("alpha={}", python_float(alpha)),
        forward |x| x.elu(alpha);
    /// Shares that add up to 1 along a dimension (`torch.nn.Softmax`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Softmax}};
    /// let shares = Softmax::new(1).forward(&Tensor::from([[0f64, 3f64.ln()]]));
    /// assert!((shares - Tensor::from([[0.25f64, 0.75]])).abs().max().item() < 1e-9);
    /// ```
    Softmax { dim: i64 } "Along `dim`; negative counts from the end.", "-1" => "-1",
        repr |dim| format!("dim={dim}"),
        forward |x| x.softmax(dim);
    /// The logarithm of [`Softmax`] (`torch.nn.LogSoftmax`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, LogSoftmax}};
    /// let y = LogSoftmax::new(-1).forward(&Tensor::from([[5f64, 5.]]));
    /// assert!((y + 2f64.ln()).abs().max().item() < 1e-9);
    /// ```
    LogSoftmax { dim: i64 } "Along `dim`; negative counts from the end.", "-1" => "-1",
        repr |dim| format!("dim={dim}"),
        forward |x| x.log_softmax(dim);
    /// Softmax of -x (`torch.nn.Softmin`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Softmin}};
    /// let shares = Softmin::new(1).forward(&Tensor::from([[0f64, 3f64.ln()]]));
    /// assert!((shares - Tensor::from([[0.75f64, 0.25]])).abs().max().item() < 1e-9);
    /// ```
    Softmin { dim: i64 } "Along `dim`; negative counts from the end.", "-1" => "-1",
        repr |dim| format!("dim={dim}"),
        forward |x| F::softmin(x, dim);
    /// The first half times the logistic function of the second (`torch.nn.GLU`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, GLU}};
    /// // 4 sigmoid(0), 8 sigmoid(100)
    /// assert_eq!(GLU::new(-1).forward(&Tensor::from([4f32, 8., 0., 100.])).to_vec::<f32>(), [2.0, 8.0]);
    /// ```
    GLU { dim: i64 } "Halves along `dim`; PyTorch's default is -1.", "-1" => "-1",
        repr |dim| format!("dim={dim}"),
        forward |x| F::glu(x, dim);
    /// x, or alpha (e^(x / alpha) - 1) below 0 (`torch.nn.CELU`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{CELU, Forward}};
    /// assert_eq!(CELU::new(2.0).forward(&Tensor::from([-100f32, 3.])).to_vec::<f32>(), [-2.0, 3.0]);
    /// ```
    CELU { alpha: f64 } "PyTorch's default is 1.", "0.5" => "0.5",
        repr |alpha| format!("alpha={}", python_float(alpha)),
        forward |x| x.celu(alpha);
    /// x, or 0 between -lambd and lambd (`torch.nn.Hardshrink`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hardshrink}};
    /// assert_eq!(Hardshrink::new(0.5).forward(&Tensor::from([-1f32, 0.25])).to_vec::<f32>(), [-1.0, 0.0]);
    /// ```
    Hardshrink { lambd: f64 } "PyTorch's default is 0.5.", "0.25" => "0.25",
        repr python_float,
        forward |x| x.hardshrink(lambd);
    /// x moved towards 0 by `lambd`, 0 if it is nearer (`torch.nn.Softshrink`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Softshrink}};
    /// let y = Softshrink::new(0.5).forward(&Tensor::from([-1f32, 0.25, 2.]));
    /// assert_eq!(y.to_vec::<f32>(), [-0.5, 0.0, 1.5]);
    /// ```
    Softshrink { lambd: f64 } "PyTorch's default is 0.5.", "0.25" => "0.25",
        repr python_float,
        forward |x| x.softshrink(lambd);
    /// x within two bounds, else the bound (`torch.nn.Hardtanh`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hardtanh}};
    /// let y = Hardtanh::new(-1.0, 1.0).forward(&Tensor::from([-2f32, 0.5, 3.]));
    /// assert_eq!(y.to_vec::<f32>(), [-1.0, 0.5, 1.0]);
    /// ```
    Hardtanh { min_val: f64, max_val: f64 } "PyTorch's defaults are -1 and 1.", "-2.0, 0.5" => "0.5",
        repr |low, high| format!("min_val={}, max_val={}", python_float(low), python_float(high)),
        forward |x| x.hardtanh(min_val, max_val);
    /// x above a threshold, else a value (`torch.nn.Threshold`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Threshold}};
    /// let y = Threshold::new(1.0, -7.0).forward(&Tensor::from([0.5f32, 2.]));
    /// assert_eq!(y.to_vec::<f32>(), [-7.0, 2.0]);
    /// ```
    Threshold { threshold: f64, value: f64 } "Both have no default.", "1.0, 0.5" => "0.5",
        repr |t, v| format!("threshold={}, value={}", python_float(t), python_float(v)),
        forward |x| x.threshold(threshold, value);
    /// log(1 + e^(beta x)) / beta, x above the threshold (`torch.nn.Softplus`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Softplus}};
    /// let y = Softplus::new(1.0, 20.0).forward(&Tensor::from([0f64, 30.])).to_vec::<f64>();
    /// assert!((y[0] - 2f64.ln()).abs() < 1e-9 && y[1] == 30.0);
    /// ```
    Softplus { beta: f64, threshold: f64 } "PyTorch's defaults are 1 and 20.", "2.0, 30.0" => "30.0",
        repr |b, t| format!("beta={}, threshold={}", python_float(b), python_float(t)),
        forward |x| x.softplus(beta, threshold);
}

/// x times the normal distribution function of x (`torch.nn.GELU`).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, GELU}};
/// assert!((GELU::new().forward(&Tensor::from([1f64])).item() - 0.841345).abs() < 1e-6);
/// ```
#[derive(Module, Clone, Copy, Debug, Default)]
#[module(extra_repr = Self::settings)]
pub struct GELU {
    approximate: bool,
}

impl GELU {
    /// Exact.
    ///
    /// ```
    /// use torchrs::nn::{GELU, Module};
    /// assert_eq!(GELU::new().repr(), "GELU(approximate='none')");
    /// ```
    pub fn new() -> Self {
        GELU { approximate: false }
    }

    /// Approximated with tanh (`approximate="tanh"`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, GELU}};
    /// assert!((GELU::tanh().forward(&Tensor::from([1f64])).item() - 0.841192).abs() < 1e-6);
    /// ```
    pub fn tanh() -> Self {
        GELU { approximate: true }
    }

    fn settings(&self) -> String {
        format!("approximate='{}'", if self.approximate { "tanh" } else { "none" })
    }
}

impl Forward for GELU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _scope = crate::nn::scope::enter(self);
        if self.approximate { x.gelu_tanh() } else { x.gelu() }
    }
}

/// x, or a learned slope times x below 0 (`torch.nn.PReLU`; He et al. 2015).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, PReLU}};
/// let layer = PReLU::new(1, 0.25);
/// let y = layer.forward(&Tensor::from([-4f32, 2.]));
/// assert_eq!(y.to_vec::<f32>(), [-1.0, 2.0]);
/// y.sum().backward();
/// assert_eq!(layer.weight.grad().unwrap().item(), -4.0);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct PReLU {
    /// One slope, or one per channel (dimension 1).
    pub weight: Parameter,
}

impl PReLU {
    /// Slopes that all start at `init`; PyTorch's defaults are one slope of 0.25.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, PReLU}};
    /// let y = PReLU::new(2, 0.5).forward(&Tensor::from([[-4f32, -2.]]));
    /// assert_eq!(y.to_vec::<f32>(), [-2.0, -1.0]);
    /// ```
    pub fn new(num_parameters: usize, init: f64) -> Self {
        PReLU { weight: Parameter::new(Tensor::full([num_parameters], init, Dtype::F32)) }
    }

    fn settings(&self) -> String {
        format!("num_parameters={}", self.weight.numel())
    }
}

impl Forward for PReLU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _scope = crate::nn::scope::enter(self);
        x.prelu(&self.weight)
    }
}

/// x, or below 0 x times a slope that is drawn for each element in training and is the mean of its
/// bounds in evaluation (`torch.nn.RReLU`; Xu et al. 2015).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, Module, RReLU}};
/// let (layer, x) = (RReLU::new(0.125, 0.375), Tensor::from([-4f32, 2.]));
/// assert!((-1.5..=-0.5).contains(&layer.forward(&x).min().item()));
/// layer.eval();
/// assert_eq!(layer.forward(&x).to_vec::<f32>(), [-1.0, 2.0]);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct RReLU {
    lower: f64,
    upper: f64,
    training: Training,
}

impl RReLU {
    /// With slopes between these; PyTorch's defaults are 1/8 and 1/3.
    ///
    /// ```
    /// use torchrs::{catch, nn::{Module, RReLU}};
    /// assert_eq!(RReLU::new(0.1, 0.3).repr(), "RReLU(lower=0.1, upper=0.3)");
    /// assert!(catch(|| RReLU::new(0.3, 0.1)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `lower` is above `upper`.
    #[track_caller]
    pub fn new(lower: f64, upper: f64) -> Self {
        if lower.is_nan() || upper.is_nan() || lower > upper {
            let message = format!("{lower} is above upper, {upper}");
            throw(Error::argument("RReLU", "lower", message));
        }
        RReLU { lower, upper, training: Training::default() }
    }

    fn settings(&self) -> String {
        format!("lower={}, upper={}", python_float(self.lower), python_float(self.upper))
    }
}

impl Forward for RReLU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _scope = crate::nn::scope::enter(self);
        F::rrelu(x, self.lower, self.upper, self.training.get())
    }
}
