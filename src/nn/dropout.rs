//! Dropout (`torch/nn/modules/dropout.py`): random in training, nothing in evaluation.

use super::display::python_float;
use super::{Forward, Module, Training, functional as F};
use crate::Tensor;
use crate::error::{Error, throw};

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
            fn forward(&self, $x: &Tensor) -> Tensor {
                let ($p, $training) = (self.p, self.training.get());
                $body
            }
        }
    )*};
}

dropouts! {
    /// In training sets each element to 0 with probability `p` and scales the others by
    /// `1 / (1 - p)`; in evaluation gives back its input (`torch.nn.Dropout`).
    Dropout = |x, p, training| x.dropout(p, training);
    /// [`Dropout`] of whole channels of `[N, C, L]` or `[C, L]` (`torch.nn.Dropout1d`).
    Dropout1d = |x, p, training| F::dropout1d(x, p, training);
    /// [`Dropout`] of whole channels of `[N, C, H, W]` or `[C, H, W]` (`torch.nn.Dropout2d`).
    Dropout2d = |x, p, training| F::dropout2d(x, p, training);
    /// [`Dropout`] of whole channels of `[N, C, D, H, W]` or `[C, D, H, W]` (`torch.nn.Dropout3d`).
    Dropout3d = |x, p, training| F::dropout3d(x, p, training);
    /// Dropout that keeps mean and variance, for [`SELU`](super::SELU) (`torch.nn.AlphaDropout`); see
    /// [`F::alpha_dropout`].
    AlphaDropout = |x, p, training| F::alpha_dropout(x, p, training);
    /// [`AlphaDropout`] of whole channels, dimension 1 (`torch.nn.FeatureAlphaDropout`).
    FeatureAlphaDropout = |x, p, training| F::feature_alpha_dropout(x, p, training);
}
