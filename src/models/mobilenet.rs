//! MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018), as in
//! `torchvision.models.mobilenetv2`.

use super::init_filters;
use crate::error::{Error, Result, throw};
use crate::nn::{
    BatchNorm2d, Conv2d, Dropout, Forward, Linear, Module, ReLU6, Sequential, init::normal_,
    init::zeros_,
};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// Options of [`MobileNetV2`].
#[derive(Clone, Debug, PartialEq)]
pub struct MobileNetV2Options {
    /// Number of scores.
    pub num_classes: usize,
    /// Factor of all channels.
    pub width_mult: f64,
    /// A row `[expansion, channels, blocks, stride]` for each stage of blocks.
    pub inverted_residual_setting: Vec<[usize; 4]>,
    /// Numbers of channels are made multiples of this.
    pub round_nearest: usize,
    /// Dropout before the scores.
    pub dropout: f64,
}

impl Default for MobileNetV2Options {
    fn default() -> Self {
        MobileNetV2Options {
            num_classes: 1000,
            width_mult: 1.0,
            inverted_residual_setting: vec![
                [1, 16, 1, 1],
                [6, 24, 2, 2],
                [6, 32, 3, 2],
                [6, 64, 4, 2],
                [6, 96, 3, 1],
                [6, 160, 3, 2],
                [6, 320, 1, 1],
            ],
            round_nearest: 8,
            dropout: 0.2,
        }
    }
}

/// The multiple of `divisor` nearest to `channels`; never 0, and never more than a tenth below.
fn divisible(channels: f64, divisor: usize) -> usize {
    let nearest = (channels + divisor as f64 / 2.0) as usize / divisor * divisor;
    let rounded = nearest.max(divisor);
    if (rounded as f64) < 0.9 * channels { rounded + divisor } else { rounded }
}

/// A convolution that keeps the image's size but for its stride, a norm, and ReLU6.
fn conv_norm_relu(
    inp: usize,
    out: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
) -> Sequential {
    let conv = Conv2d::new(inp, out, kernel).stride(stride).padding((kernel - 1) / 2).no_bias();
    Sequential::new().append(conv.groups(groups)).append(BatchNorm2d::new(out)).append(ReLU6)
}

/// A 1 x 1 convolution that widens, a 3 x 3 one on each channel alone, and a 1 x 1 one that narrows;
/// beside a shortcut where input and output have the same shape.
#[derive(Module)]
pub struct InvertedResidual {
    /// The three convolutions with their norms.
    pub conv: Sequential,
    use_res_connect: bool,
}

impl InvertedResidual {
    /// From `inp` to `oup` channels, within the block `expand_ratio` times `inp`.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless the stride is 1 or 2.
    #[track_caller]
    pub fn new(inp: usize, oup: usize, stride: usize, expand_ratio: usize) -> Self {
        if !(1..=2).contains(&stride) {
            let message = format!("{stride}; must be 1 or 2");
            throw(Error::argument("InvertedResidual", "stride", message));
        }
        let hidden = inp * expand_ratio;
        let mut conv = Sequential::new();
        if expand_ratio != 1 {
            conv = conv.append(conv_norm_relu(inp, hidden, 1, 1, 1));
        }
        let conv = conv
            .append(conv_norm_relu(hidden, hidden, 3, stride, hidden))
            .append(Conv2d::new(hidden, oup, 1).no_bias())
            .append(BatchNorm2d::new(oup));
        InvertedResidual { conv, use_res_connect: stride == 1 && inp == oup }
    }
}

impl Forward for InvertedResidual {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let x = self.conv.forward(input);
        if self.use_res_connect { input + x } else { x }
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let x = self.conv.onnx(graph, input)?;
        if self.use_res_connect { graph.binary("Add", input, &x) } else { Ok(x) }
    }
}

/// Stages of [`InvertedResidual`] blocks and a linear layer on the mean of the last features
/// (`torchvision.models.MobileNetV2`).
///
/// ```
/// use torchrs::models::{MobileNetV2, MobileNetV2Options};
/// use torchrs::{Dtype, Tensor, nn::Forward};
/// let options = MobileNetV2Options { width_mult: 0.25, num_classes: 10, ..Default::default() };
/// let model = MobileNetV2::new(options);
/// assert_eq!(model.forward(&Tensor::randn([2, 3, 33, 33], Dtype::F32)).shape(), &[2, 10]);
/// ```
#[derive(Module)]
pub struct MobileNetV2 {
    /// A convolution, the blocks, a 1 x 1 convolution.
    pub features: Sequential,
    /// Dropout and the linear layer.
    pub classifier: Sequential,
}

impl MobileNetV2 {
    /// Filters start by He's rule, linear weights normal with deviation 0.01, biases at 0.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a setting without blocks or a `round_nearest` of 0.
    #[track_caller]
    pub fn new(options: MobileNetV2Options) -> Self {
        let bad = |argument: &str, message: &str| -> ! {
            throw(Error::argument("MobileNetV2", argument, message))
        };
        if options.inverted_residual_setting.is_empty() {
            bad(
                "inverted_residual_setting",
                "is empty; needs a row [expansion, channels, blocks, stride]",
            );
        }
        if options.round_nearest == 0 {
            bad("round_nearest", "0; must be positive, 1 does not round");
        }
        let scaled = |channels: usize, factor: f64| {
            divisible(channels as f64 * factor, options.round_nearest)
        };
        let mut channels = scaled(32, options.width_mult);
        let mut features = Sequential::new().append(conv_norm_relu(3, channels, 3, 2, 1));
        for &[expansion, out, blocks, stride] in &options.inverted_residual_setting {
            let out = scaled(out, options.width_mult);
            for i in 0..blocks {
                let stride = if i == 0 { stride } else { 1 };
                features = features.append(InvertedResidual::new(channels, out, stride, expansion));
                channels = out;
            }
        }
        let last = scaled(1280, options.width_mult.max(1.0));
        let model = MobileNetV2 {
            features: features.append(conv_norm_relu(channels, last, 1, 1, 1)),
            classifier: Sequential::new()
                .append(Dropout::new(options.dropout))
                .append(Linear::new(last, options.num_classes)),
        };
        init_filters(&model);
        for parameter in model.classifier.parameters() {
            match parameter.dim() {
                2 => normal_(&parameter, 0.0, 0.01),
                _ => zeros_(&parameter),
            }
        }
        model
    }
}

impl Forward for MobileNetV2 {
    /// # Panics
    /// Throws [`Error::Shape`] for an input that is not `[batch, 3, height, width]`.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let x = self.features.forward(input).adaptive_avg_pool2d([Some(1); 2]);
        self.classifier.forward(&x.flatten(1, -1))
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let x = self.features.onnx(graph, input)?;
        let x = graph.adaptive_pool("AveragePool", &x, [Some(1); 2])?;
        let x = graph.flatten(&x, 1, -1)?;
        self.classifier.onnx(graph, &x)
    }
}

/// [`MobileNetV2`] with its usual settings (`torchvision.models.mobilenet_v2`).
pub fn mobilenet_v2(num_classes: usize) -> MobileNetV2 {
    MobileNetV2::new(MobileNetV2Options { num_classes, ..Default::default() })
}
