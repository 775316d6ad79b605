//! Activation functions as modules (`torch/nn/modules/activation.py`), a row each.

use super::display::python_float;
use super::{Forward, Module};
use crate::Tensor;

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
}

macro_rules! activations_with_settings {
    ($(
        $(#[$doc:meta])* $name:ident { $field:ident: $t:ty } $new_doc:literal,
        repr $repr:expr, forward |$x:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name { $field: $t }

        impl $name {
            #[doc = $new_doc]
            pub fn new($field: $t) -> Self { $name { $field } }

            fn settings(&self) -> String { ($repr)(self.$field) }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Tensor {
                let $field = self.$field;
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
