//! A batch norm in evaluation is a scale and a shift of channels, which the layer before it can take
//! over (`torch.nn.utils.fusion`).

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::nn::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, ConvTranspose1d,
    ConvTranspose2d, ConvTranspose3d, Linear, Module, Parameter, SyncBatchNorm,
};
use crate::tensor::Tensor;

/// A layer whose outputs can be scaled and shifted by its weight and bias.
///
/// ```
/// use torchrs::nn::{Linear, utils::FusesBatchNorm};
/// use torchrs::{Dtype, Tensor};
/// let layer = Linear::no_bias(3, 2);
/// let double = layer.with_parameters(layer.by_outputs() * 2.0, Tensor::zeros([2], Dtype::F32));
/// assert!(double.weight.equal(&(layer.weight.detach() * 2.0)));
/// ```
pub trait FusesBatchNorm: Module + Clone {
    /// The weight, with the dimension of the outputs first.
    ///
    /// ```
    /// use torchrs::nn::{ConvTranspose1d, utils::FusesBatchNorm};
    /// let layer = ConvTranspose1d::new(4, 6, 3, Default::default());
    /// assert_eq!((layer.weight.shape(), layer.by_outputs().shape()), (&[4, 6, 3][..], &[6, 4, 3][..]));
    /// ```
    fn by_outputs(&self) -> Tensor;
    /// The bias, if there is one.
    fn bias(&self) -> Option<&Tensor>;
    /// This layer with another weight, as [`by_outputs`](Self::by_outputs) gives it, and bias.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Linear, utils::FusesBatchNorm}};
    /// let layer = Linear::no_bias(1, 1).with_parameters(Tensor::from([[2f32]]), Tensor::from([1f32]));
    /// assert_eq!(layer.forward(&Tensor::from([3f32])).item(), 7.0);
    /// ```
    fn with_parameters(&self, by_outputs: Tensor, bias: Tensor) -> Self;
}

/// A norm that in evaluation scales and shifts channels.
///
/// ```
/// use torchrs::{Tensor, nn::{BatchNorm1d, Forward, Module, init, utils::ChannelNorm}};
/// let norm = BatchNorm1d::new(1);
/// init::constant_(norm.running_mean.as_ref().unwrap(), 3.0);
/// norm.eval();
/// let (scale, shift) = norm.scale_and_shift();
/// let x = Tensor::from([[5f32], [7.]]);
/// assert!((norm.forward(&x) - (&x * scale + shift)).abs().max().item() < 1e-5);
/// ```
pub trait ChannelNorm: Module {
    /// Factor and summand of each channel in evaluation.
    ///
    /// ```
    /// use torchrs::nn::{BatchNorm1d, init, utils::ChannelNorm};
    /// let norm = BatchNorm1d::new(1).eps(0.0);
    /// init::constant_(norm.running_mean.as_ref().unwrap(), 3.0);
    /// init::constant_(norm.running_var.as_ref().unwrap(), 4.0);
    /// let (scale, shift) = norm.scale_and_shift();
    /// assert!((scale.item() - 0.5).abs() < 1e-6 && (shift.item() + 1.5).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the norm has no running statistics.
    #[track_caller]
    fn scale_and_shift(&self) -> (Tensor, Tensor);
}

macro_rules! plain_layers {
    ($($name:ident)*) => {$(
        impl FusesBatchNorm for $name {
            fn by_outputs(&self) -> Tensor {
                self.weight.detach()
            }
            fn bias(&self) -> Option<&Tensor> {
                self.bias.as_deref()
            }
            fn with_parameters(&self, weight: Tensor, bias: Tensor) -> Self {
                let mut fused = self.clone();
                fused.weight = Parameter::new(weight);
                fused.bias = Some(Parameter::new(bias));
                fused
            }
        }
    )*};
}
plain_layers! { Linear Conv1d Conv2d Conv3d }

macro_rules! transposed_layers {
    ($($name:ident)*) => {$(
        /// The weight is `[in, out / groups, ..]`: outputs of a group by group of inputs.
        impl FusesBatchNorm for $name {
            fn by_outputs(&self) -> Tensor {
                let groups = self.options().groups as i64;
                let apart = self.weight.detach().unflatten(0, &[groups, -1]);
                apart.transpose(1, 2).flatten(0, 1)
            }
            fn bias(&self) -> Option<&Tensor> {
                self.bias.as_deref()
            }
            fn with_parameters(&self, by_outputs: Tensor, bias: Tensor) -> Self {
                let apart = by_outputs.unflatten(0, &[self.options().groups as i64, -1]);
                let weight = Parameter::new(apart.transpose(1, 2).flatten(0, 1).contiguous());
                let mut fused = self.clone();
                fused.weight = weight;
                fused.bias = Some(Parameter::new(bias));
                fused
            }
        }
    )*};
}
transposed_layers! { ConvTranspose1d ConvTranspose2d ConvTranspose3d }

macro_rules! norms {
    ($($name:ident)*) => {$(
        impl ChannelNorm for $name {
            #[track_caller]
            fn scale_and_shift(&self) -> (Tensor, Tensor) {
                let (Some(mean), Some(var)) = (&self.running_mean, &self.running_var) else {
                    let message = concat!(stringify!($name), " has no running statistics");
                    throw(Error::argument("fuse_conv_bn_eval", "norm", message))
                };
                let plain = (&**var + self.eps).rsqrt();
                let scale = self.weight.as_ref().map_or(plain.clone(), |w| &plain * w.detach());
                let shift = -(&scale * &**mean);
                let shift = self.bias.as_ref().map_or(shift.clone(), |b| &shift + b.detach());
                (scale, shift)
            }
        }
    )*};
}
norms! { BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm }

#[track_caller]
fn fuse<L: FusesBatchNorm>(call: &str, layer: &L, norm: &impl ChannelNorm) -> L {
    if norm.is_training() {
        let message =
            "is in training, where it uses each batch's own statistics; call `eval` first";
        throw(Error::argument(call, "norm", message));
    }
    no_grad(|| {
        let (scale, shift) = norm.scale_and_shift();
        let weight = layer.by_outputs();
        if scale.shape() != [weight.size(0)] {
            let message = format!(
                "{} outputs cannot be normalised as {} channels",
                weight.size(0),
                scale.numel()
            );
            throw(Error::shape(call, message));
        }
        let mut shape = vec![1; weight.dim()];
        shape[0] = -1;
        let scaled = layer.bias().map_or(shift.clone(), |b| b.detach() * &scale + &shift);
        layer.with_parameters(&weight * scale.reshape(shape), scaled)
    })
}

/// A convolution that computes what `conv` and then `norm` do in evaluation
/// (`torch.nn.utils.fusion.fuse_conv_bn_eval`).
///
/// ```
/// use torchrs::nn::{BatchNorm2d, Conv2d, Forward, Module, utils::fuse_conv_bn_eval};
/// use torchrs::{Dtype, Tensor};
/// let (conv, norm) = (Conv2d::new(2, 3, 3), BatchNorm2d::new(3));
/// norm.eval();
/// let x = Tensor::ones([1, 2, 4, 4], Dtype::F32);
/// let fused = fuse_conv_bn_eval(&conv, &norm).forward(&x);
/// assert!((fused - norm.forward(&conv.forward(&x))).abs().max().item() < 1e-5);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] when the norm is in training or has no running statistics, and
/// [`Error::Shape`] when it has other channels.
#[track_caller]
pub fn fuse_conv_bn_eval<L: FusesBatchNorm>(conv: &L, norm: &impl ChannelNorm) -> L {
    fuse("fuse_conv_bn_eval", conv, norm)
}

/// [`fuse_conv_bn_eval`] for a linear layer (`torch.nn.utils.fusion.fuse_linear_bn_eval`).
///
/// # Panics
/// As there.
#[track_caller]
pub fn fuse_linear_bn_eval(linear: &Linear, norm: &impl ChannelNorm) -> Linear {
    fuse("fuse_linear_bn_eval", linear, norm)
}
