//! Dropout (`torch/nn/modules/dropout.py`): random in training, nothing in evaluation.

use super::display::python_float;
use super::{Forward, Module, Training, functional as F};
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

macro_rules! dropouts {
    ($($(#[$doc:meta])* $name:ident = |$x:ident, $p:ident, $training:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            p: f64,
            training: Training,
        }

        impl $name {
            /// With probability `p`; PyTorch's default is 0.5.
            ///
            /// ```
            #[doc = concat!("use torchrs::{catch, nn::{", stringify!($name), ", Module}};")]
            #[doc = concat!("let dropout = ", stringify!($name), "::new(0.5);")]
            /// assert!(dropout.repr().ends_with("(p=0.5, inplace=False)"));
            #[doc = concat!("assert!(catch(|| ", stringify!($name), "::new(1.5)).is_err());")]
            /// ```
            ///
            /// # Panics
            /// Throws [`Error::Argument`] unless `p` is from 0 to 1.
            #[track_caller]
            pub fn new(p: f64) -> Self {
                if !(0.0..=1.0).contains(&p) {
                    let message = format!("{p}; must be from 0 to 1");
                    throw(Error::argument(stringify!($name), "p", message));
                }
                $name { p, training: Training::default() }
            }

            /// The probability to be dropped.
            pub fn p(&self) -> f64 {
                self.p
            }

            fn settings(&self) -> String {
                format!("p={}, inplace=False", python_float(self.p))
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, $x: &Tensor) -> Tensor {
                let ($p, $training) = (self.p, self.training.get());
                $body
            }

            fn onnx(&self, _: &mut Graph, input: &Value) -> Result<Value> {
                Ok(input.clone())
            }
        }
    )*};
}

dropouts! {
    /// In training sets each element to 0 with probability `p` and scales the others by
    /// `1 / (1 - p)`; in evaluation gives back its input (`torch.nn.Dropout`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Dropout, Forward, Module}};
    /// let (dropout, x) = (Dropout::new(0.75), Tensor::ones([100], Dtype::F32));
    /// assert!(dropout.forward(&x).to_vec::<f32>().iter().all(|&v| v == 0.0 || v == 4.0));
    /// dropout.eval();
    /// assert!(dropout.forward(&x).equal(&x));
    /// ```
    Dropout = |x, p, training| x.dropout(p, training);
    /// [`Dropout`] of whole channels of `[N, C, L]` or `[C, L]` (`torch.nn.Dropout1d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Dropout1d, Forward}};
    /// let y = Dropout1d::new(0.5).forward(&Tensor::ones([8, 8, 2], Dtype::F32));
    /// assert!(y.amin(&[2], false).equal(&y.amax(&[2], false)));
    /// ```
    Dropout1d = |x, p, training| F::dropout1d(x, p, training);
    /// [`Dropout`] of whole channels of `[N, C, H, W]` or `[C, H, W]` (`torch.nn.Dropout2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Dropout2d, Forward}};
    /// let y = Dropout2d::new(0.5).forward(&Tensor::ones([8, 8, 2, 2], Dtype::F32));
    /// assert!(y.amin(&[2, 3], false).equal(&y.amax(&[2, 3], false)));
    /// ```
    Dropout2d = |x, p, training| F::dropout2d(x, p, training);
    /// [`Dropout`] of whole channels of `[N, C, D, H, W]` or `[C, D, H, W]` (`torch.nn.Dropout3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Dropout3d, Forward}};
    /// let y = Dropout3d::new(0.5).forward(&Tensor::ones([8, 8, 2, 2, 2], Dtype::F32));
    /// assert!(y.amin(&[2, 3, 4], false).equal(&y.amax(&[2, 3, 4], false)));
    /// ```
    Dropout3d = |x, p, training| F::dropout3d(x, p, training);
    /// Dropout that keeps mean and variance, for [`SELU`](super::SELU) (`torch.nn.AlphaDropout`); see
    /// [`F::alpha_dropout`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, manual_seed, nn::{AlphaDropout, Forward}};
    /// manual_seed(0);
    /// let y = AlphaDropout::new(0.5).forward(&Tensor::randn([10_000], Dtype::F32));
    /// assert!(y.mean().item().abs() < 0.1 && (y.square().mean().item() - 1.0).abs() < 0.1);
    /// ```
    AlphaDropout = |x, p, training| F::alpha_dropout(x, p, training);
    /// [`AlphaDropout`] of whole channels, dimension 1 (`torch.nn.FeatureAlphaDropout`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{FeatureAlphaDropout, Forward}};
    /// let y = FeatureAlphaDropout::new(0.5).forward(&Tensor::ones([8, 8, 2], Dtype::F32));
    /// assert!(y.amin(&[2], false).equal(&y.amax(&[2], false)));
    /// ```
    FeatureAlphaDropout = |x, p, training| F::feature_alpha_dropout(x, p, training);
}
