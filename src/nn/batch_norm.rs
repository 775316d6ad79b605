//! Batch normalisation (`torch/nn/modules/batchnorm.py`; Ioffe & Szegedy 2015).

use std::cell::Cell;
use std::marker::PhantomData;

use super::display::{python_bool, python_float};
use super::running_norm::running_norm;
use super::{Buffer, Forward, Module, Parameter, Training};
use crate::error::{Error, throw};
use crate::{Dtype, Tensor, no_grad};

thread_local! {
    static ACCUMULATE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, running statistics on this thread are plain means over all batches, whatever the
/// layers' momentum is.
pub(crate) struct AccumulateStatistics {
    previous: bool,
    /// The mode belongs to a thread: the guard must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl AccumulateStatistics {
    pub(crate) fn new() -> Self {
        AccumulateStatistics { previous: ACCUMULATE.replace(true), _not_send: PhantomData }
    }
}

impl Drop for AccumulateStatistics {
    fn drop(&mut self) {
        ACCUMULATE.set(self.previous);
    }
}

macro_rules! batch_norm {
    ($(#[$doc:meta])* $name:ident, $accepts:expr, $shapes:literal) => {
        running_norm! {
            $(#[$doc])*
            ///
            /// In training by the batch's own mean and variance, which also enter the running ones with
            /// weight `momentum`; in evaluation by the running ones.
            $name, affine true, tracked true
        }

        impl $name {
            /// With another weight of a batch in the running statistics; `None`: their plain mean
            /// over all batches.
            #[must_use]
            pub fn momentum(mut self, momentum: impl Into<Option<f64>>) -> Self {
                self.momentum = momentum.into();
                self
            }

            /// Counts a batch; gives the weight with which it enters the running statistics.
            fn count_batch(&self) -> f64 {
                let momentum = self.momentum.filter(|_| !ACCUMULATE.get());
                let Some(count) = &self.num_batches_tracked else {
                    return momentum.unwrap_or(0.0);
                };
                no_grad(|| _ = count.add_(1i64));
                momentum.unwrap_or_else(|| 1.0 / count.item())
            }
        }

        impl Forward for $name {
            /// # Panics
            #[doc = concat!("Throws [`Error::Shape`] unless the input is ", $shapes, ".")]
            #[track_caller]
            fn forward(&self, input: &Tensor) -> Tensor {
                if !$accepts(input.dim()) {
                    throw(Error::shape(
                        stringify!($name),
                        format!("input has shape {:?}; must be {}", input.shape(), $shapes),
                    ));
                }
                let training = self.training.get();
                if training && self.eps <= 0.0 {
                    let message = format!("{}; must be positive in training", self.eps);
                    throw(Error::argument(stringify!($name), "eps", message));
                }
                let by_batch = training || self.running_mean.is_none();
                input.batch_norm(
                    self.running_mean.as_deref(),
                    self.running_var.as_deref(),
                    self.weight.as_deref(),
                    self.bias.as_deref(),
                    by_batch,
                    if training { self.count_batch() } else { 0.0 },
                    self.eps,
                )
            }
        }
    };
}

batch_norm!(
    /// Normalises each channel of `[N, C]` or `[N, C, L]` (`torch.nn.BatchNorm1d`).
    BatchNorm1d, |dim| matches!(dim, 2 | 3), "[N, C] or [N, C, L]"
);
batch_norm!(
    /// Normalises each channel of `[N, C, H, W]` (`torch.nn.BatchNorm2d`).
    BatchNorm2d, |dim| dim == 4, "[N, C, H, W]"
);
batch_norm!(
    /// Normalises each channel of `[N, C, D, H, W]` (`torch.nn.BatchNorm3d`).
    BatchNorm3d, |dim| dim == 5, "[N, C, D, H, W]"
);
