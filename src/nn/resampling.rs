//! Modules that change the size or order of images (`torch/nn/modules/{upsampling,pixelshuffle,fold}.py`).

use super::display::{python_float, python_size};
use super::{Forward, Module, PerDim};
use crate::error::Result;
use crate::onnx::{Graph, Value};
use crate::ops::{InterpolateMode, InterpolateOptions, UnfoldOptions};
use crate::tensor::Tensor;

/// Resizes the last dimensions (`torch.nn.Upsample`); see [`Tensor::interpolate`].
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, Upsample}, ops::{InterpolateMode, InterpolateOptions}};
/// let double = Upsample::new(InterpolateOptions::scale(2.0, InterpolateMode::Nearest));
/// assert_eq!(double.forward(&Tensor::from([[[1f32, 2.]]])).to_vec::<f32>(), [1.0, 1.0, 2.0, 2.0]);
/// ```
#[derive(Module, Clone, Debug)]
#[module(extra_repr = Self::settings)]
pub struct Upsample {
    #[module(skip)]
    options: InterpolateOptions,
}

impl Upsample {
    /// To a size or by a factor, as the options say.
    pub fn new(options: InterpolateOptions) -> Self {
        Upsample { options }
    }

    fn settings(&self) -> String {
        let o = &self.options;
        let one_or_all = |texts: Vec<String>| match &texts[..] {
            [one] => one.clone(),
            all => format!("({})", all.join(", ")),
        };
        let size = match (&o.scale_factor, &o.size) {
            (Some(factors), _) => {
                let factors = factors.as_slice().iter().map(|f| python_float(*f)).collect();
                format!("scale_factor={}", one_or_all(factors))
            }
            (None, Some(size)) => {
                let sizes = size.as_slice().iter().map(usize::to_string).collect();
                format!("size={}", one_or_all(sizes))
            }
            (None, None) => "size=None".to_owned(),
        };
        let mode = match o.mode {
            InterpolateMode::Nearest => "nearest",
            InterpolateMode::NearestExact => "nearest-exact",
            InterpolateMode::Linear => "linear",
            InterpolateMode::Bilinear => "bilinear",
            InterpolateMode::Bicubic => "bicubic",
            InterpolateMode::Trilinear => "trilinear",
            InterpolateMode::Area => "area",
        };
        format!("{size}, mode='{mode}'")
    }
}

impl Forward for Upsample {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.interpolate(self.options.clone())
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        graph.resize(input, &self.options)
    }
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident { $field:ident } $new_doc:literal = $op:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            $field: usize,
        }

        impl $name {
            #[doc = $new_doc]
            pub fn new($field: usize) -> Self {
                $name { $field }
            }

            fn settings(&self) -> String {
                format!(concat!(stringify!($field), "={}"), self.$field)
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                input.$op(self.$field)
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                graph.$op(input, self.$field)
            }
        }
    )*};
}

shuffles! {
    /// Channels into pixels (`torch.nn.PixelShuffle`); see [`Tensor::pixel_shuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, PixelShuffle}};
    /// let y = PixelShuffle::new(2).forward(&Tensor::from([1f32, 2., 3., 4.]).view([1, 4, 1, 1]));
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 1, 2, 2][..], vec![1.0, 2.0, 3.0, 4.0]));
    /// ```
    PixelShuffle { upscale_factor } "By this factor in both directions." = pixel_shuffle;
    /// Pixels into channels (`torch.nn.PixelUnshuffle`); see [`Tensor::pixel_unshuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, PixelUnshuffle}};
    /// let y = PixelUnshuffle::new(2).forward(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]));
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 4, 1, 1][..], vec![1.0, 2.0, 3.0, 4.0]));
    /// ```
    PixelUnshuffle { downscale_factor } "By this factor in both directions." = pixel_unshuffle;
    /// Channels of all groups in turn (`torch.nn.ChannelShuffle`); see [`Tensor::channel_shuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{ChannelShuffle, Forward}};
    /// let y = ChannelShuffle::new(2).forward(&Tensor::from([0f32, 1., 2., 3.]).view([1, 4, 1, 1]));
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 2.0, 1.0, 3.0]);
    /// ```
    ChannelShuffle { groups } "Of this many groups." = channel_shuffle;
}

fn windows(options: &UnfoldOptions) -> String {
    format!(
        "kernel_size={}, dilation={}, padding={}, stride={}",
        python_size(&options.kernel_size),
        python_size(&options.dilation),
        python_size(&options.padding),
        python_size(&options.stride)
    )
}

/// Sliding windows as columns (`torch.nn.Unfold`); see [`Tensor::unfold2d`].
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, Unfold}, ops::UnfoldOptions};
/// let y = Unfold::new(UnfoldOptions::new([1, 2])).forward(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]));
/// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 2, 2][..], vec![1.0, 3.0, 2.0, 4.0]));
/// ```
#[derive(Module, Clone, Copy, Debug)]
#[module(extra_repr = Self::settings)]
pub struct Unfold {
    #[module(skip)]
    options: UnfoldOptions,
}

impl Unfold {
    /// Of the windows that the options describe.
    pub fn new(options: UnfoldOptions) -> Self {
        Unfold { options }
    }

    fn settings(&self) -> String {
        windows(&self.options)
    }
}

impl Forward for Unfold {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.unfold2d(self.options)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        graph.unfold(input, &self.options)
    }
}

/// Columns added up at the places of their windows (`torch.nn.Fold`); see [`Tensor::fold`].
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{Fold, Forward}, ops::UnfoldOptions};
/// // Two windows of 2 x 2, which share the column in the middle.
/// let y = Fold::new([2, 3], UnfoldOptions::new([2, 2])).forward(&Tensor::ones([1, 4, 2], Dtype::F32));
/// assert_eq!(y.to_vec::<f32>(), [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
/// ```
#[derive(Module, Clone, Copy, Debug)]
#[module(extra_repr = Self::settings)]
pub struct Fold {
    output_size: [usize; 2],
    #[module(skip)]
    options: UnfoldOptions,
}

impl Fold {
    /// Into images of this size, from the windows that the options describe.
    pub fn new(output_size: impl Into<PerDim<2>>, options: UnfoldOptions) -> Self {
        Fold { output_size: output_size.into().0, options }
    }

    fn settings(&self) -> String {
        format!("output_size={}, {}", python_size(&self.output_size), windows(&self.options))
    }
}

impl Forward for Fold {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.fold(self.output_size, self.options)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        graph.fold(input, self.output_size, &self.options)
    }
}

/// Splits a dimension (`torch.nn.Unflatten`); see [`Tensor::unflatten`].
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{Forward, Unflatten}};
/// let y = Unflatten::new(1, [2, -1]).forward(&Tensor::ones([5, 6], Dtype::F32));
/// assert_eq!(y.shape(), &[5, 2, 3]);
/// ```
#[derive(Module, Clone, Debug)]
#[module(extra_repr = Self::settings)]
pub struct Unflatten {
    dim: i64,
    sizes: Vec<i64>,
}

impl Unflatten {
    /// Into these sizes, of which one may be -1.
    pub fn new(dim: i64, sizes: impl Into<Vec<i64>>) -> Self {
        Unflatten { dim, sizes: sizes.into() }
    }

    fn settings(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(i64::to_string).collect();
        let comma = if sizes.len() == 1 { "," } else { "" };
        format!("dim={}, unflattened_size=({}{comma})", self.dim, sizes.join(", "))
    }
}

impl Forward for Unflatten {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.unflatten(self.dim, &self.sizes)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        graph.unflatten(input, self.dim, &self.sizes)
    }
}
