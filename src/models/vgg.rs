//! VGG (Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
//! 2014), as in `torchvision.models.vgg`.

use super::init_filters;
use crate::error::Result;
use crate::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Forward, Linear, MaxPool2d, Module, ReLU,
    Sequential, init::normal_, init::zeros_,
};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// Side of the features that the linear layers see.
const POOLED: usize = 7;

/// Options of [`VGG`].
#[derive(Clone, Debug, PartialEq)]
pub struct VGGOptions {
    /// Channels of the 3 x 3 convolutions; behind each stage is a pool that halves the image.
    pub stages: Vec<Vec<usize>>,
    /// Whether a batch norm follows each convolution.
    pub batch_norm: bool,
    /// Width of the two hidden linear layers.
    pub hidden: usize,
    /// Number of scores.
    pub num_classes: usize,
    /// Dropout behind the hidden layers.
    pub dropout: f64,
}

impl VGGOptions {
    /// With these numbers of convolutions per stage, of 64, 128, 256, 512 and 512 channels.
    pub fn new(convolutions: [usize; 5]) -> Self {
        let channels = [64, 128, 256, 512, 512];
        VGGOptions {
            stages: convolutions.iter().zip(channels).map(|(&n, c)| vec![c; n]).collect(),
            batch_norm: false,
            hidden: 4096,
            num_classes: 1000,
            dropout: 0.5,
        }
    }
}

/// Stages of small convolutions and three linear layers (`torchvision.models.VGG`), for images whose
/// sides are at least 2 to the number of stages.
#[derive(Module)]
#[module(name = "VGG")]
pub struct VGG {
    /// Convolutions and pools.
    pub features: Sequential,
    /// To 7 x 7.
    pub avgpool: AdaptiveAvgPool2d,
    /// Linear layers.
    pub classifier: Sequential,
}

impl VGG {
    /// Filters start by He's rule, linear weights normal with deviation 0.01, biases at 0.
    pub fn new(options: VGGOptions) -> Self {
        let mut features = Sequential::new();
        let mut channels = 3;
        for stage in &options.stages {
            for &out in stage {
                features = features.append(Conv2d::new(channels, out, 3).padding(1));
                if options.batch_norm {
                    features = features.append(BatchNorm2d::new(out));
                }
                features = features.append(ReLU);
                channels = out;
            }
            features = features.append(MaxPool2d::new(2));
        }
        let dropout = || Dropout::new(options.dropout);
        let classifier = Sequential::new()
            .append(Linear::new(channels * POOLED * POOLED, options.hidden))
            .append(ReLU)
            .append(dropout())
            .append(Linear::new(options.hidden, options.hidden))
            .append(ReLU)
            .append(dropout())
            .append(Linear::new(options.hidden, options.num_classes));
        let model = VGG { features, avgpool: AdaptiveAvgPool2d::new(POOLED), classifier };
        init_filters(&model);
        for (name, parameter) in model.named_parameters() {
            match parameter.dim() {
                2 => normal_(&parameter, 0.0, 0.01),
                1 if name.ends_with("bias") => zeros_(&parameter),
                _ => {}
            }
        }
        model
    }
}

impl Forward for VGG {
    /// # Panics
    /// Throws [`Error::Shape`](crate::Error::Shape) for an input that is not
    /// `[batch, 3, height, width]` or too small for the pools.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let x = self.avgpool.forward(&self.features.forward(input));
        self.classifier.forward(&x.flatten(1, -1))
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let x = self.features.onnx(graph, input)?;
        let x = self.avgpool.onnx(graph, &x)?;
        let x = graph.flatten(&x, 1, -1)?;
        self.classifier.onnx(graph, &x)
    }
}

macro_rules! depths {
    ($($name:ident $name_bn:ident $depth:literal $convolutions:expr;)*) => {$(
        #[doc = concat!("VGG with ", $depth, " layers (`torchvision.models.", stringify!($name), "`).")]
        pub fn $name(num_classes: usize) -> VGG {
            VGG::new(VGGOptions { num_classes, ..VGGOptions::new($convolutions) })
        }

        #[doc = concat!(
            "VGG with ", $depth, " layers and batch norms (`torchvision.models.",
            stringify!($name_bn), "`)."
        )]
        pub fn $name_bn(num_classes: usize) -> VGG {
            let options = VGGOptions::new($convolutions);
            VGG::new(VGGOptions { num_classes, batch_norm: true, ..options })
        }
    )*};
}

depths! {
    vgg11 vgg11_bn "11" [1, 1, 2, 2, 2];
    vgg13 vgg13_bn "13" [2, 2, 2, 2, 2];
    vgg16 vgg16_bn "16" [2, 2, 3, 3, 3];
    vgg19 vgg19_bn "19" [2, 2, 4, 4, 4];
}
