//! Instance normalisation (`torch/nn/modules/instancenorm.py`; Ulyanov et al. 2016).

use super::display::{python_bool, python_float};
use super::running_norm::running_norm;
use super::{Buffer, Forward, Module, Parameter, Training};
use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

macro_rules! instance_norm {
    ($($(#[$doc:meta])* $name:ident, $dims:literal, $shapes:literal;)*) => {$(
        running_norm! {
            $(#[$doc])*
            ///
            /// With running statistics, evaluation uses them.
            $name, affine false, tracked false
        }

        impl $name {
            /// With another weight of a batch in the running statistics.
            #[must_use]
            pub fn momentum(mut self, momentum: f64) -> Self {
                self.momentum = Some(momentum);
                self
            }
        }

        impl Forward for $name {
            /// # Panics
            #[doc = concat!("Throws [`Error::Shape`] unless the input is ", $shapes, ".")]
            #[track_caller]
            #[crate::nn::forward]
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
                input.instance_norm(
                    self.running_mean.as_deref(),
                    self.running_var.as_deref(),
                    self.weight.as_deref(),
                    self.bias.as_deref(),
                    own,
                    self.momentum.unwrap_or(0.0),
                    self.eps,
                )
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                let affine = [self.weight.as_deref(), self.bias.as_deref()];
                if input.dim() != $dims + 2 {
                    let message = format!("input {:?} must be [N, C, ..]", input.shape());
                    return Err(Error::shape(concat!("onnx ", stringify!($name)), message));
                }
                match (&self.running_mean, &self.running_var) {
                    (Some(mean), Some(var)) => {
                        graph.batch_norm(input, [mean, var], affine, self.eps)
                    }
                    _ => graph.instance_norm(input, affine, self.eps),
                }
            }
        }
    )*};
}

instance_norm! {
    /// Normalises each channel of each sample of `[N, C, L]` or `[C, L]` (`torch.nn.InstanceNorm1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, InstanceNorm1d}};
    /// let y = InstanceNorm1d::new(2).forward(&Tensor::from([[1f32, 3.], [10., 30.]]));
    /// assert!((y - Tensor::from([[-1f32, 1.], [-1., 1.]])).abs().max().item() < 1e-4);
    /// ```
    InstanceNorm1d, 1, "[N, C, L] or [C, L]";
    /// Normalises each channel of each sample of `[N, C, H, W]` or `[C, H, W]`
    /// (`torch.nn.InstanceNorm2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, InstanceNorm2d}};
    /// let y = InstanceNorm2d::new(3).forward(&(Tensor::randn([2, 3, 5, 5], Dtype::F32) * 9.0 + 7.0));
    /// assert!(y.mean_dim(&[2, 3], false).abs().max().item() < 1e-4);
    /// assert!((y.square().mean_dim(&[2, 3], false) - 1.0).abs().max().item() < 1e-4);
    /// ```
    InstanceNorm2d, 2, "[N, C, H, W] or [C, H, W]";
    /// Normalises each channel of each sample of `[N, C, D, H, W]` or `[C, D, H, W]`
    /// (`torch.nn.InstanceNorm3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, InstanceNorm3d}};
    /// let y = InstanceNorm3d::new(3).forward(&(Tensor::randn([3, 4, 4, 4], Dtype::F32) * 9.0 + 7.0));
    /// assert!(y.mean_dim(&[1, 2, 3], false).abs().max().item() < 1e-4);
    /// assert!((y.square().mean_dim(&[1, 2, 3], false) - 1.0).abs().max().item() < 1e-4);
    /// ```
    InstanceNorm3d, 3, "[N, C, D, H, W] or [C, D, H, W]";
}
