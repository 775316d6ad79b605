//! Instance normalisation (`torch/nn/modules/instancenorm.py`; Ulyanov et al. 2016).

use super::display::{python_bool, python_float};
use super::{Buffer, Forward, Module, Parameter, Training};
use crate::error::{Error, throw};
use crate::{Dtype, Tensor, no_grad};

macro_rules! instance_norm {
    ($($(#[$doc:meta])* $name:ident, $dims:literal, $shapes:literal;)*) => {$(
        $(#[$doc])*
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
            momentum: f64,
            training: Training,
        }

        impl $name {
            /// With PyTorch's defaults: eps 1e-5, momentum 0.1, neither weight and bias nor running
            /// statistics.
            pub fn new(num_features: usize) -> Self {
                $name {
                    weight: None,
                    bias: None,
                    running_mean: None,
                    running_var: None,
                    num_batches_tracked: None,
                    num_features,
                    eps: 1e-5,
                    momentum: 0.1,
                    training: Training::default(),
                }
            }

            /// With another number added to the variance.
            #[must_use]
            pub fn eps(mut self, eps: f64) -> Self {
                self.eps = eps;
                self
            }

            /// With another weight of a batch in the running statistics.
            #[must_use]
            pub fn momentum(mut self, momentum: f64) -> Self {
                self.momentum = momentum;
                self
            }

            /// With weight and bias (`affine=True`).
            #[must_use]
            pub fn affine(mut self) -> Self {
                let n = [self.num_features];
                self.weight = Some(Parameter::new(Tensor::ones(n, Dtype::F32)));
                self.bias = Some(Parameter::new(Tensor::zeros(n, Dtype::F32)));
                self
            }

            /// With running statistics, which evaluation uses (`track_running_stats=True`).
            #[must_use]
            pub fn track_running_stats(mut self) -> Self {
                let n = [self.num_features];
                self.running_mean = Some(Buffer::new(Tensor::zeros(n, Dtype::F32)));
                self.running_var = Some(Buffer::new(Tensor::ones(n, Dtype::F32)));
                self.num_batches_tracked = Some(Buffer::new(Tensor::zeros([], Dtype::I64)));
                self
            }

            fn settings(&self) -> String {
                format!(
                    "{}, eps={}, momentum={}, affine={}, track_running_stats={}",
                    self.num_features,
                    python_float(self.eps),
                    python_float(self.momentum),
                    python_bool(self.weight.is_some()),
                    python_bool(self.running_mean.is_some())
                )
            }
        }

        impl Forward for $name {
            /// # Panics
            #[doc = concat!("Throws [`Error::Shape`] unless the input is ", $shapes, ".")]
            #[track_caller]
            fn forward(&self, input: &Tensor) -> Tensor {
                let channels = input.dim().checked_sub($dims + 1);
                if !matches!(channels, Some(0 | 1)) {
                    let message = format!("input has shape {:?}; must be {}", input.shape(), $shapes);
                    throw(Error::shape(stringify!($name), message));
                }
                if channels == Some(0) {
                    return self.forward(&input.unsqueeze(0)).squeeze_dim(0);
                }
                let own = self.training.get() || self.running_mean.is_none();
                if let (true, Some(count)) = (self.training.get(), &self.num_batches_tracked) {
                    no_grad(|| _ = count.add_(1i64));
                }
                input.instance_norm(
                    self.running_mean.as_deref(),
                    self.running_var.as_deref(),
                    self.weight.as_deref(),
                    self.bias.as_deref(),
                    own,
                    self.momentum,
                    self.eps,
                )
            }
        }
    )*};
}

instance_norm! {
    /// Normalises each channel of each sample of `[N, C, L]` or `[C, L]` (`torch.nn.InstanceNorm1d`).
    InstanceNorm1d, 1, "[N, C, L] or [C, L]";
    /// Normalises each channel of each sample of `[N, C, H, W]` or `[C, H, W]`
    /// (`torch.nn.InstanceNorm2d`).
    InstanceNorm2d, 2, "[N, C, H, W] or [C, H, W]";
    /// Normalises each channel of each sample of `[N, C, D, H, W]` or `[C, D, H, W]`
    /// (`torch.nn.InstanceNorm3d`).
    InstanceNorm3d, 3, "[N, C, D, H, W] or [C, D, H, W]";
}
