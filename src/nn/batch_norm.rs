//! Batch normalisation (`torch/nn/modules/batchnorm.py`).

use super::display::{python_bool, python_float};
use super::{Buffer, Forward, Module, Parameter, Training};
use crate::error::{Error, throw};
use crate::{Dtype, Tensor, no_grad};

macro_rules! batch_norm {
    ($(#[$doc:meta])* $name:ident, $accepts:expr, $shapes:literal) => {
        $(#[$doc])*
        ///
        /// In training by the batch's own mean and variance, which also enter the running ones with
        /// weight `momentum`; in evaluation by the running ones.
        #[derive(Module)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            /// `[num_features]`; starts at 1.
            pub weight: Option<Parameter>,
            /// `[num_features]`; starts at 0.
            pub bias: Option<Parameter>,
            /// `[num_features]`; starts at 0.
            pub running_mean: Option<Buffer>,
            /// `[num_features]`; starts at 1.
            pub running_var: Option<Buffer>,
            /// How many batches the running statistics have seen.
            pub num_batches_tracked: Option<Buffer>,
            num_features: usize,
            eps: f64,
            momentum: Option<f64>,
            training: Training,
        }

        impl $name {
            /// With PyTorch's defaults: eps 1e-5, momentum 0.1, weight and bias, running statistics.
            pub fn new(num_features: usize) -> Self {
                let zeros = || Tensor::zeros([num_features], Dtype::F32);
                let ones = || Tensor::ones([num_features], Dtype::F32);
                $name {
                    weight: Some(Parameter::new(ones())),
                    bias: Some(Parameter::new(zeros())),
                    running_mean: Some(Buffer::new(zeros())),
                    running_var: Some(Buffer::new(ones())),
                    num_batches_tracked: Some(Buffer::new(Tensor::zeros([], Dtype::I64))),
                    num_features,
                    eps: 1e-5,
                    momentum: Some(0.1),
                    training: Training::default(),
                }
            }

            /// With another number added to the variance.
            #[must_use]
            pub fn eps(mut self, eps: f64) -> Self {
                self.eps = eps;
                self
            }

            /// With another weight of a batch in the running statistics; `None`: their plain mean
            /// over all batches.
            #[must_use]
            pub fn momentum(mut self, momentum: impl Into<Option<f64>>) -> Self {
                self.momentum = momentum.into();
                self
            }

            /// Without weight and bias (`affine=False`).
            #[must_use]
            pub fn no_affine(mut self) -> Self {
                (self.weight, self.bias) = (None, None);
                self
            }

            /// Without running statistics (`track_running_stats=False`): always by the batch's own.
            #[must_use]
            pub fn no_running_stats(mut self) -> Self {
                (self.running_mean, self.running_var) = (None, None);
                self.num_batches_tracked = None;
                self
            }

            /// Forgets the running statistics.
            pub fn reset_running_stats(&self) {
                no_grad(|| {
                    self.running_mean.iter().for_each(|mean| _ = mean.fill_(0.0));
                    self.running_var.iter().for_each(|var| _ = var.fill_(1.0));
                    self.num_batches_tracked.iter().for_each(|n| _ = n.fill_(0));
                });
            }

            /// Counts a batch; gives the weight with which it enters the running statistics.
            fn count_batch(&self) -> f64 {
                let Some(count) = &self.num_batches_tracked else {
                    return self.momentum.unwrap_or(0.0);
                };
                no_grad(|| _ = count.add_(1i64));
                self.momentum.unwrap_or_else(|| 1.0 / count.item())
            }

            fn settings(&self) -> String {
                format!(
                    "{}, eps={}, momentum={}, affine={}, bias={}, track_running_stats={}",
                    self.num_features,
                    python_float(self.eps),
                    self.momentum.map_or("None".to_owned(), python_float),
                    python_bool(self.weight.is_some()),
                    python_bool(self.bias.is_some()),
                    python_bool(self.running_mean.is_some())
                )
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
