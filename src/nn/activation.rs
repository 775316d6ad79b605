//! Activation functions as modules (`torch/nn/modules/activation.py`), a row each.

use super::display::python_float;
use super::{Forward, Module, Parameter, Training, functional as F};
use crate::error::{Error, throw};
use crate::{Dtype, Tensor};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident = |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Tensor { $body }
        }
    )*};
}

activations! {
    /// max(x, 0) (`torch.nn.ReLU`).
    ReLU = |x| x.relu();
    /// x sigmoid(x) (`torch.nn.SiLU`).
    SiLU = |x| x.silu();
    /// Hyperbolic tangent (`torch.nn.Tanh`).
    Tanh = |x| x.tanh();
    /// Logistic function (`torch.nn.Sigmoid`).
    Sigmoid = |x| x.sigmoid();
    /// min(max(x, 0), 6) (`torch.nn.ReLU6`).
    ReLU6 = |x| F::relu6(x);
    /// Scaled exponential linear unit (`torch.nn.SELU`); see [`Tensor::selu`].
    SELU = |x| x.selu();
    /// x tanh(log(1 + e^x)) (`torch.nn.Mish`).
    Mish = |x| x.mish();
    /// x / (1 + |x|) (`torch.nn.Softsign`).
    Softsign = |x| x.softsign();
    /// x - tanh(x) (`torch.nn.Tanhshrink`).
    Tanhshrink = |x| x.tanhshrink();
    /// log(1 / (1 + e^-x)) (`torch.nn.LogSigmoid`).
    LogSigmoid = |x| x.logsigmoid();
    /// x min(max(x + 3, 0), 6) / 6 (`torch.nn.Hardswish`).
    Hardswish = |x| x.hardswish();
    /// min(max(x + 3, 0), 6) / 6 (`torch.nn.Hardsigmoid`).
    Hardsigmoid = |x| x.hardsigmoid();
    /// Softmax over the channels of `[N, C, H, W]` or `[C, H, W]` (`torch.nn.Softmax2d`).
    Softmax2d = |x| x.softmax(-3);
}

macro_rules! activations_with_settings {
    ($(
        $(#[$doc:meta])* $name:ident { $($field:ident: $t:ty),+ } $new_doc:literal,
        repr $repr:expr, forward |$x:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name { $($field: $t),+ }

        impl $name {
            #[doc = $new_doc]
            pub fn new($($field: $t),+) -> Self { $name { $($field),+ } }

            fn settings(&self) -> String { ($repr)($(self.$field),+) }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Tensor {
                $(let $field = self.$field;)+
                $body
            }
        }
    )*};
}

activations_with_settings! {
    /// x, or `negative_slope` times x below 0 (`torch.nn.LeakyReLU`).
    LeakyReLU { negative_slope: f64 } "PyTorch's default is 0.01.",
        repr |slope| format!("negative_slope={}", python_float(slope)),
        forward |x| x.leaky_relu(negative_slope);
    /// x, or alpha (e^x - 1) below 0 (`torch.nn.ELU`).
    ELU { alpha: f64 } "PyTorch's default is 1.",
        repr |alpha| format!("alpha={}", python_float(alpha)),
        forward |x| x.elu(alpha);
    /// Shares that add up to 1 along a dimension (`torch.nn.Softmax`).
    Softmax { dim: i64 } "Along `dim`; negative counts from the end.",
        repr |dim| format!("dim={dim}"),
        forward |x| x.softmax(dim);
    /// The logarithm of [`Softmax`] (`torch.nn.LogSoftmax`).
    LogSoftmax { dim: i64 } "Along `dim`; negative counts from the end.",
        repr |dim| format!("dim={dim}"),
        forward |x| x.log_softmax(dim);
    /// Softmax of -x (`torch.nn.Softmin`).
    Softmin { dim: i64 } "Along `dim`; negative counts from the end.",
        repr |dim| format!("dim={dim}"),
        forward |x| F::softmin(x, dim);
    /// The first half times the logistic function of the second (`torch.nn.GLU`).
    GLU { dim: i64 } "Halves along `dim`; PyTorch's default is -1.",
        repr |dim| format!("dim={dim}"),
        forward |x| F::glu(x, dim);
    /// x, or alpha (e^(x / alpha) - 1) below 0 (`torch.nn.CELU`).
    CELU { alpha: f64 } "PyTorch's default is 1.",
        repr |alpha| format!("alpha={}", python_float(alpha)),
        forward |x| x.celu(alpha);
    /// x, or 0 between -lambd and lambd (`torch.nn.Hardshrink`).
    Hardshrink { lambd: f64 } "PyTorch's default is 0.5.",
        repr python_float,
        forward |x| x.hardshrink(lambd);
    /// x moved towards 0 by `lambd`, 0 if it is nearer (`torch.nn.Softshrink`).
    Softshrink { lambd: f64 } "PyTorch's default is 0.5.",
        repr python_float,
        forward |x| x.softshrink(lambd);
    /// x within two bounds, else the bound (`torch.nn.Hardtanh`).
    Hardtanh { min_val: f64, max_val: f64 } "PyTorch's defaults are -1 and 1.",
        repr |low, high| format!("min_val={}, max_val={}", python_float(low), python_float(high)),
        forward |x| x.hardtanh(min_val, max_val);
    /// x above a threshold, else a value (`torch.nn.Threshold`).
    Threshold { threshold: f64, value: f64 } "Both have no default.",
        repr |t, v| format!("threshold={}, value={}", python_float(t), python_float(v)),
        forward |x| x.threshold(threshold, value);
    /// log(1 + e^(beta x)) / beta, x above the threshold (`torch.nn.Softplus`).
    Softplus { beta: f64, threshold: f64 } "PyTorch's defaults are 1 and 20.",
        repr |b, t| format!("beta={}, threshold={}", python_float(b), python_float(t)),
        forward |x| x.softplus(beta, threshold);
}

/// x times the normal distribution function of x (`torch.nn.GELU`).
#[derive(Module, Clone, Copy, Debug, Default)]
#[module(extra_repr = Self::settings)]
pub struct GELU {
    approximate: bool,
}

impl GELU {
    /// Exact.
    pub fn new() -> Self {
        GELU { approximate: false }
    }

    /// Approximated with tanh (`approximate="tanh"`).
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
        if self.approximate { x.gelu_tanh() } else { x.gelu() }
    }
}

/// x, or a learned slope times x below 0 (`torch.nn.PReLU`; He et al. 2015).
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct PReLU {
    /// One slope, or one per channel (dimension 1).
    pub weight: Parameter,
}

impl PReLU {
    /// Slopes that all start at `init`; PyTorch's defaults are one slope of 0.25.
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
        x.prelu(&self.weight)
    }
}

/// x, or below 0 x times a slope that is drawn for each element in training and is the mean of its
/// bounds in evaluation (`torch.nn.RReLU`; Xu et al. 2015).
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
        F::rrelu(x, self.lower, self.upper, self.training.get())
    }
}
