//! Dropout (`torch/nn/modules/dropout.py`).

use super::display::python_float;
use super::{Forward, Module, Training};
use crate::Tensor;
use crate::error::{Error, throw};

/// In training sets each element to 0 with probability `p` and scales the others by `1 / (1 - p)`;
/// in evaluation gives back its input (`torch.nn.Dropout`).
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct Dropout {
    p: f64,
    training: Training,
}

impl Dropout {
    /// With probability `p`; PyTorch's default is 0.5.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless `p` is from 0 to 1.
    #[track_caller]
    pub fn new(p: f64) -> Self {
        if !(0.0..=1.0).contains(&p) {
            throw(Error::argument("Dropout", "p", format!("{p}; must be from 0 to 1")));
        }
        Dropout { p, training: Training::default() }
    }

    /// The probability of an element to be dropped.
    pub fn p(&self) -> f64 {
        self.p
    }

    fn settings(&self) -> String {
        format!("p={}, inplace=False", python_float(self.p))
    }
}

impl Forward for Dropout {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.dropout(self.p, self.training.get())
    }
}
