//! What batch and instance normalisation share: parameters, running statistics, settings
//! (`_NormBase` in `torch/nn/modules/batchnorm.py`).

/// A norm of channels. `$affine` and `$tracked` say whether it has weight and bias, and running
/// statistics, by default; `$field` is what only one kind of norm has.
macro_rules! running_norm {
    (
        $(#[$doc:meta])* $name:ident, affine $affine:literal, tracked $tracked:literal
        $(, $field:ident: $t:ty = $value:expr)?
    ) => {
        $(#[$doc])*
        #[derive(Module, Clone)]
        #[module(name = Self::shown, extra_repr = Self::settings)]
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
            pub(super) eps: f64,
            momentum: Option<f64>,
            training: Training,
            $($field: $t,)?
        }

        impl $name {
            /// With PyTorch's defaults: eps 1e-5, momentum 0.1,
            #[doc = concat!("weight and bias: ", $affine, ", running statistics: ", $tracked, ".")]
            pub fn new(num_features: usize) -> Self {
                let plain = $name {
                    weight: None,
                    bias: None,
                    running_mean: None,
                    running_var: None,
                    num_batches_tracked: None,
                    num_features,
                    eps: 1e-5,
                    momentum: Some(0.1),
                    training: Training::default(),
                    $($field: $value,)?
                };
                plain.affine($affine).track_running_stats($tracked)
            }

            /// With another number added to the variance.
            #[must_use]
            pub fn eps(mut self, eps: f64) -> Self {
                self.eps = eps;
                self
            }

            /// With or without weight and bias.
            #[must_use]
            pub fn affine(mut self, affine: bool) -> Self {
                let n = [self.num_features];
                self.weight = affine.then(|| Parameter::new(Tensor::ones(n, Dtype::F32)));
                self.bias = affine.then(|| Parameter::new(Tensor::zeros(n, Dtype::F32)));
                self
            }

            /// With or without running statistics. Without, the input's own are always used.
            #[must_use]
            pub fn track_running_stats(mut self, track: bool) -> Self {
                let n = [self.num_features];
                self.running_mean = track.then(|| Buffer::new(Tensor::zeros(n, Dtype::F32)));
                self.running_var = track.then(|| Buffer::new(Tensor::ones(n, Dtype::F32)));
                self.num_batches_tracked =
                    track.then(|| Buffer::new(Tensor::zeros([], Dtype::I64)));
                self
            }

            /// Forgets the running statistics.
            ///
            /// ```
            #[doc = concat!("use torchrs::nn::{", stringify!($name), ", init};")]
            #[doc = concat!("let norm = ", stringify!($name), "::new(2).track_running_stats(true);")]
            /// init::constant_(norm.running_mean.as_ref().unwrap(), 3.0);
            /// norm.reset_running_stats();
            /// assert_eq!(norm.running_mean.unwrap().to_vec::<f32>(), [0.0, 0.0]);
            /// ```
            pub fn reset_running_stats(&self) {
                no_grad(|| {
                    self.running_mean.iter().for_each(|mean| _ = mean.fill_(0.0));
                    self.running_var.iter().for_each(|var| _ = var.fill_(1.0));
                    self.num_batches_tracked.iter().for_each(|n| _ = n.fill_(0));
                });
            }

            fn shown(&self) -> &str {
                $(if self.$field.is_joined() {
                    return "SyncBatchNorm";
                })?
                stringify!($name)
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
    };
}
pub(super) use running_norm;
