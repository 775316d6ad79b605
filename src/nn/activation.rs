//! Activation functions as modules (`torch/nn/modules/activation.py`), a row each.

use super::display::python_float;
use super::{Forward, Module, Parameter, Training, functional as F};
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::ops::pointwise::{activation, elementary};
use crate::tensor::{Dtype, Tensor};

/// A module for each row of `ops::pointwise` that has `nn { .., module Name }`.
macro_rules! rows {
    ($($nn:tt $name:ident $inputs:tt $params:tt $defaults:tt $body:tt)*) => {
        $(module! { $nn $name $params $defaults $body })*
    };
}
macro_rules! module {
    ({ functional, module $Name:ident } $name:ident [] () ($body:expr)) => {
        #[doc = concat!("[`Tensor::", stringify!($name), "`] as a module (`torch.nn.", stringify!($Name), "`): `", stringify!($body), "`.")]
        ///
        /// ```
        #[doc = concat!("use torchrs::{Tensor, nn::{Forward, ", stringify!($Name), "}};")]
        /// let x = Tensor::from([-2f64, 0.5]);
        #[doc = concat!("assert!(", stringify!($Name), ".forward(&x).equal(&x.", stringify!($name), "()));")]
        /// ```
        #[derive(Module, Clone, Copy, Debug, Default)]
        pub struct $Name;

        impl Forward for $Name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, x: &Tensor) -> Tensor {
                x.$name()
            }

            fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
                graph.activation(stringify!($Name), x, &[])
            }
        }
    };
    ({ functional, module $Name:ident $(, settings $unnamed:ident)? } $name:ident
        [$p0:ident $(, $p:ident)*] ($d0:expr $(, $d:expr)*) ($body:expr)) => {
        #[doc = concat!("[`Tensor::", stringify!($name), "`] as a module (`torch.nn.", stringify!($Name), "`): `", stringify!($body), "`.")]
        ///
        /// ```
        #[doc = concat!("use torchrs::{Tensor, nn::{Forward, ", stringify!($Name), "}};")]
        /// let x = Tensor::from([-2f64, 0.5]);
        #[doc = concat!("let y = ", stringify!($Name), "::new(", stringify!($d0 $(, $d)*), ").forward(&x);")]
        #[doc = concat!("assert!(y.equal(&x.", stringify!($name), "(", stringify!($d0 $(, $d)*), ")));")]
        /// ```
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $Name {
            $p0: f64,
            $($p: f64,)*
        }

        impl $Name {
            #[doc = concat!(
                "With these numbers. PyTorch's defaults, where it has them: `",
                stringify!($p0), "` ", stringify!($d0), $(", `", stringify!($p), "` ", stringify!($d),)* "."
            )]
            pub fn new($p0: f64 $(, $p: f64)*) -> Self {
                $Name { $p0 $(, $p)* }
            }

            fn settings(&self) -> String {
                let settings = [(stringify!($p0), self.$p0) $(, (stringify!($p), self.$p))*];
                let texts = settings.map(|(_name, value)| setting!($($unnamed)? _name value));
                texts.join(", ")
            }
        }

        impl Forward for $Name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, x: &Tensor) -> Tensor {
                x.$name(self.$p0 $(, self.$p)*)
            }

            fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
                graph.activation(stringify!($Name), x, &[self.$p0 $(, self.$p)*])
            }
        }
    };
    ({ $($no_module:tt)* } $($row:tt)*) => {};
}
/// How a module's text shows a number.
macro_rules! setting {
    (unnamed $name:ident $value:ident) => {
        python_float($value)
    };
    ($name:ident $value:ident) => {
        format!("{}={}", $name, python_float($value))
    };
}
activation::rows::in_nn!();
activation::checked::in_nn!();
elementary::rows::in_nn!();

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident = |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, $x: &Tensor) -> Tensor {
                $body
            }

            fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
                graph.activation(stringify!($name), x, &[])
            }
        }
    )*};
}

activations! {
    /// min(max(x, 0), 6) (`torch.nn.ReLU6`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReLU6}};
    /// assert_eq!(ReLU6.forward(&Tensor::from([-1f32, 3., 9.])).to_vec::<f32>(), [0.0, 3.0, 6.0]);
    /// ```
    ReLU6 = |x| F::relu6(x);
    /// Softmax over the channels of `[N, C, H, W]` or `[C, H, W]` (`torch.nn.Softmax2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, Softmax2d}};
    /// let y = Softmax2d.forward(&Tensor::ones([2, 4, 3, 3], Dtype::F32));
    /// assert!((y - 0.25).abs().max().item() < 1e-6);
    /// ```
    Softmax2d = |x| x.softmax(-3);
}

/// Modules along a dimension.
macro_rules! along_a_dimension {
    ($($(#[$doc:meta])* $name:ident: $new_doc:literal, |$x:ident, $dim:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            dim: i64,
        }

        impl $name {
            #[doc = $new_doc]
            pub fn new(dim: i64) -> Self {
                $name { dim }
            }

            fn settings(&self) -> String {
                format!("dim={}", self.dim)
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, $x: &Tensor) -> Tensor {
                let $dim = self.dim;
                $body
            }

            fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
                match stringify!($name) {
                    "Softmin" => {
                        let turned = graph.unary("Neg", x);
                        graph.softmax("Softmax", &turned, self.dim)
                    }
                    "GLU" => graph.glu(x, self.dim),
                    operator => graph.softmax(operator, x, self.dim),
                }
            }
        }
    )*};
}

along_a_dimension! {
    /// Shares that add up to 1 along a dimension (`torch.nn.Softmax`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Softmax}};
    /// let shares = Softmax::new(1).forward(&Tensor::from([[0f64, 3f64.ln()]]));
    /// assert!((shares - Tensor::from([[0.25f64, 0.75]])).abs().max().item() < 1e-9);
    /// ```
    Softmax: "Along `dim`; negative counts from the end.", |x, dim| x.softmax(dim);
    /// The logarithm of [`Softmax`] (`torch.nn.LogSoftmax`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, LogSoftmax}};
    /// let y = LogSoftmax::new(-1).forward(&Tensor::from([[5f64, 5.]]));
    /// assert!((y + 2f64.ln()).abs().max().item() < 1e-9);
    /// ```
    LogSoftmax: "Along `dim`; negative counts from the end.", |x, dim| x.log_softmax(dim);
    /// Softmax of -x (`torch.nn.Softmin`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Softmin}};
    /// let shares = Softmin::new(1).forward(&Tensor::from([[0f64, 3f64.ln()]]));
    /// assert!((shares - Tensor::from([[0.75f64, 0.25]])).abs().max().item() < 1e-9);
    /// ```
    Softmin: "Along `dim`; negative counts from the end.", |x, dim| F::softmin(x, dim);
    /// The first half times the logistic function of the second (`torch.nn.GLU`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, GLU}};
    /// // 4 sigmoid(0), 8 sigmoid(100)
    /// assert_eq!(GLU::new(-1).forward(&Tensor::from([4f32, 8., 0., 100.])).to_vec::<f32>(), [2.0, 8.0]);
    /// ```
    GLU: "Halves along `dim`; PyTorch's default is -1.", |x, dim| F::glu(x, dim);
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
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        if self.approximate { x.gelu_tanh() } else { x.gelu() }
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        Ok(graph.gelu(x, self.approximate))
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
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.prelu(&self.weight)
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        graph.prelu(x, &self.weight)
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
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        F::rrelu(x, self.lower, self.upper, self.training.get())
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        graph.activation("RReLU", x, &[self.lower, self.upper])
    }
}
