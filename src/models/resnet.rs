//! ResNet (He et al., "Deep Residual Learning for Image Recognition", 2015) and its relatives ResNeXt
//! (Xie et al. 2016) and Wide ResNet (Zagoruyko & Komodakis 2016), as in
//! `torchvision.models.resnet`: in bottlenecks the 3 x 3 convolution has the stride ("v1.5").

use super::init_filters;
use crate::error::{Error, Result, throw};
use crate::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Forward, Linear, MaxPool2d, Module, ReLU, Sequential,
    calls, init::zeros_,
};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// The kind of block a [`ResNet`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResNetBlock {
    /// [`BasicBlock`].
    Basic,
    /// [`Bottleneck`].
    Bottleneck,
}

impl ResNetBlock {
    /// Channels of a block's output, in units of its planes (`expansion`).
    pub fn expansion(self) -> usize {
        match self {
            ResNetBlock::Basic => 1,
            ResNetBlock::Bottleneck => 4,
        }
    }
}

/// Options of [`ResNet`].
#[derive(Clone, Debug, PartialEq)]
pub struct ResNetOptions {
    /// The kind of blocks.
    pub block: ResNetBlock,
    /// Blocks of each stage.
    pub layers: [usize; 4],
    /// Number of scores.
    pub num_classes: usize,
    /// Whether the last norm of each block starts at 0, so that the blocks start as the identity.
    pub zero_init_residual: bool,
    /// Groups of the bottlenecks' 3 x 3 convolutions.
    pub groups: usize,
    /// Channels of each of these groups in the first stage.
    pub width_per_group: usize,
    /// Whether the second, third and fourth stage dilate their filters in place of a stride
    /// (bottlenecks only).
    pub replace_stride_with_dilation: [bool; 3],
}

impl ResNetOptions {
    /// With these blocks, 1000 classes and no other option.
    pub fn new(block: ResNetBlock, layers: [usize; 4]) -> Self {
        ResNetOptions {
            block,
            layers,
            num_classes: 1000,
            zero_init_residual: false,
            groups: 1,
            width_per_group: 64,
            replace_stride_with_dilation: [false; 3],
        }
    }
}

/// What one block is made with.
#[derive(Clone, Copy)]
struct BlockShape {
    inplanes: usize,
    planes: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
    width_per_group: usize,
}

fn conv3x3(inplanes: usize, planes: usize, shape: &BlockShape) -> Conv2d {
    let conv = Conv2d::new(inplanes, planes, 3).stride(shape.stride).no_bias();
    conv.padding(shape.dilation).dilation(shape.dilation).groups(shape.groups)
}

fn conv1x1(inplanes: usize, planes: usize, stride: usize) -> Conv2d {
    Conv2d::new(inplanes, planes, 1).stride(stride).no_bias()
}

/// A convolution and its norm in ONNX.
fn normed(graph: &mut Graph, x: &Value, conv: &Conv2d, norm: &BatchNorm2d) -> Result<Value> {
    let x = conv.onnx(graph, x)?;
    norm.onnx(graph, &x)
}

/// The end of a block in ONNX.
fn joined(
    graph: &mut Graph,
    x: &Value,
    input: &Value,
    downsample: &Option<Sequential>,
) -> Result<Value> {
    let shortcut = match downsample {
        Some(downsample) => downsample.onnx(graph, input)?,
        None => input.clone(),
    };
    let sum = graph.binary("Add", x, &shortcut)?;
    Ok(graph.unary("Relu", &sum))
}

/// The shortcut around a block: its input, brought to the shape of its output if that is another.
fn shortcut(input: &Tensor, downsample: &Option<Sequential>) -> Tensor {
    downsample.as_ref().map_or_else(|| input.clone(), |d| d.forward(input))
}

/// Two 3 x 3 convolutions beside a shortcut.
#[derive(Module)]
pub struct BasicBlock {
    /// With the block's stride.
    pub conv1: Conv2d,
    /// Behind `conv1`.
    pub bn1: BatchNorm2d,
    /// With stride 1.
    pub conv2: Conv2d,
    /// Behind `conv2`.
    pub bn2: BatchNorm2d,
    /// A 1 x 1 convolution and a norm in the shortcut, where the shape changes.
    pub downsample: Option<Sequential>,
}

impl BasicBlock {
    fn new(shape: BlockShape, downsample: Option<Sequential>) -> Self {
        let inner = BlockShape { stride: 1, ..shape };
        BasicBlock {
            conv1: conv3x3(shape.inplanes, shape.planes, &shape),
            bn1: BatchNorm2d::new(shape.planes),
            conv2: conv3x3(shape.planes, shape.planes, &inner),
            bn2: BatchNorm2d::new(shape.planes),
            downsample,
        }
    }
}

impl Forward for BasicBlock {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let x = self.bn1.forward_relu(&self.conv1.forward(input));
        let x = self.conv2.forward(&x);
        self.bn2.forward_add_relu(&x, &shortcut(input, &self.downsample))
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let x = normed(graph, input, &self.conv1, &self.bn1)?;
        let x = graph.unary("Relu", &x);
        let x = normed(graph, &x, &self.conv2, &self.bn2)?;
        joined(graph, &x, input, &self.downsample)
    }
}

/// A 3 x 3 convolution between two of 1 x 1, the first of which narrows, beside a shortcut.
#[derive(Module)]
pub struct Bottleneck {
    /// 1 x 1, to the inner width.
    pub conv1: Conv2d,
    /// Behind `conv1`.
    pub bn1: BatchNorm2d,
    /// 3 x 3, with the block's stride, dilation and groups.
    pub conv2: Conv2d,
    /// Behind `conv2`.
    pub bn2: BatchNorm2d,
    /// 1 x 1, to four times the planes.
    pub conv3: Conv2d,
    /// Behind `conv3`.
    pub bn3: BatchNorm2d,
    /// A 1 x 1 convolution and a norm in the shortcut, where the shape changes.
    pub downsample: Option<Sequential>,
}

impl Bottleneck {
    fn new(shape: BlockShape, downsample: Option<Sequential>) -> Self {
        let width = shape.planes * shape.width_per_group / 64 * shape.groups;
        let out = shape.planes * ResNetBlock::Bottleneck.expansion();
        Bottleneck {
            conv1: conv1x1(shape.inplanes, width, 1),
            bn1: BatchNorm2d::new(width),
            conv2: conv3x3(width, width, &shape),
            bn2: BatchNorm2d::new(width),
            conv3: conv1x1(width, out, 1),
            bn3: BatchNorm2d::new(out),
            downsample,
        }
    }
}

impl Forward for Bottleneck {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let x = self.bn1.forward_relu(&self.conv1.forward(input));
        let x = self.bn2.forward_relu(&self.conv2.forward(&x));
        let x = self.conv3.forward(&x);
        self.bn3.forward_add_relu(&x, &shortcut(input, &self.downsample))
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let x = normed(graph, input, &self.conv1, &self.bn1)?;
        let x = graph.unary("Relu", &x);
        let x = normed(graph, &x, &self.conv2, &self.bn2)?;
        let x = graph.unary("Relu", &x);
        let x = normed(graph, &x, &self.conv3, &self.bn3)?;
        joined(graph, &x, input, &self.downsample)
    }
}

/// A 7 x 7 convolution, four stages of residual blocks, and a linear layer on the mean of the last
/// features (`torchvision.models.ResNet`).
///
/// ```
/// use torchrs::models::{ResNet, ResNetBlock, ResNetOptions};
/// use torchrs::{Dtype, Tensor, nn::Forward};
/// let options = ResNetOptions::new(ResNetBlock::Basic, [1, 1, 1, 1]);
/// let model = ResNet::new(ResNetOptions { num_classes: 10, ..options });
/// assert_eq!(model.forward(&Tensor::randn([2, 3, 33, 33], Dtype::F32)).shape(), &[2, 10]);
/// ```
#[derive(Module)]
pub struct ResNet {
    /// 7 x 7, stride 2.
    pub conv1: Conv2d,
    /// Behind `conv1`.
    pub bn1: BatchNorm2d,
    /// Behind `bn1`.
    pub relu: ReLU,
    /// 3 x 3, stride 2.
    pub maxpool: MaxPool2d,
    /// Blocks of 64 planes.
    pub layer1: Sequential,
    /// Blocks of 128 planes.
    pub layer2: Sequential,
    /// Blocks of 256 planes.
    pub layer3: Sequential,
    /// Blocks of 512 planes.
    pub layer4: Sequential,
    /// To 1 x 1.
    pub avgpool: AdaptiveAvgPool2d,
    /// To the scores.
    pub fc: Linear,
}

impl ResNet {
    /// Filters start by He's rule, the linear layer as PyTorch's does.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for basic blocks with groups, another width or dilation.
    #[track_caller]
    pub fn new(options: ResNetOptions) -> Self {
        let plain = options.groups == 1
            && options.width_per_group == 64
            && options.replace_stride_with_dilation == [false; 3];
        if options.block == ResNetBlock::Basic && !plain {
            let message = format!(
                "Basic; groups {}, width_per_group {} and replace_stride_with_dilation {:?} need \
                 bottlenecks",
                options.groups, options.width_per_group, options.replace_stride_with_dilation
            );
            throw(Error::argument("ResNet", "block", message));
        }
        let mut stages = Stages { options: &options, inplanes: 64, dilation: 1 };
        let [second, third, fourth] = options.replace_stride_with_dilation;
        let model = ResNet {
            conv1: Conv2d::new(3, 64, 7).stride(2).padding(3).no_bias(),
            bn1: BatchNorm2d::new(64),
            relu: ReLU,
            maxpool: MaxPool2d::new(3).stride(2).padding(1),
            layer1: stages.next(64, options.layers[0], 1, false),
            layer2: stages.next(128, options.layers[1], 2, second),
            layer3: stages.next(256, options.layers[2], 2, third),
            layer4: stages.next(512, options.layers[3], 2, fourth),
            avgpool: AdaptiveAvgPool2d::new(1),
            fc: Linear::new(512 * options.block.expansion(), options.num_classes),
        };
        init_filters(&model);
        if options.zero_init_residual {
            let last = match options.block {
                ResNetBlock::Basic => ".bn2.weight",
                ResNetBlock::Bottleneck => ".bn3.weight",
            };
            let parameters = model.named_parameters();
            parameters.iter().filter(|(n, _)| n.ends_with(last)).for_each(|(_, p)| zeros_(p));
        }
        model
    }
}

/// Makes one stage after the other.
struct Stages<'a> {
    options: &'a ResNetOptions,
    /// Channels of the last stage's output.
    inplanes: usize,
    dilation: usize,
}

impl Stages<'_> {
    fn next(&mut self, planes: usize, blocks: usize, stride: usize, dilate: bool) -> Sequential {
        let block = self.options.block;
        // The first block of a dilated stage still looks at an undilated input.
        let first_dilation = self.dilation;
        let stride = if dilate {
            self.dilation *= stride;
            1
        } else {
            stride
        };
        let out = planes * block.expansion();
        let mut stage = Sequential::new();
        for i in 0..blocks {
            let shape = BlockShape {
                inplanes: self.inplanes,
                planes,
                stride: if i == 0 { stride } else { 1 },
                dilation: if i == 0 { first_dilation } else { self.dilation },
                groups: self.options.groups,
                width_per_group: self.options.width_per_group,
            };
            let changes = i == 0 && (stride != 1 || self.inplanes != out);
            let downsample = changes.then(|| {
                let conv = conv1x1(self.inplanes, out, stride);
                Sequential::new().append(conv).append(BatchNorm2d::new(out))
            });
            stage = match block {
                ResNetBlock::Basic => stage.append(BasicBlock::new(shape, downsample)),
                ResNetBlock::Bottleneck => stage.append(Bottleneck::new(shape, downsample)),
            };
            self.inplanes = out;
        }
        stage
    }
}

impl Forward for ResNet {
    /// # Panics
    /// Throws [`Error::Shape`] for an input that is not `[batch, 3, height, width]`.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let x = self.bn1.forward_relu(&self.conv1.forward(input));
        calls::passed(&self.relu, &x);
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
        let x = stages.iter().fold(self.maxpool.forward(&x), |x, stage| stage.forward(&x));
        self.fc.forward(&self.avgpool.forward(&x).flatten(1, -1))
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let x = normed(graph, input, &self.conv1, &self.bn1)?;
        let x = graph.unary("Relu", &x);
        let x = self.maxpool.onnx(graph, &x)?;
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
        let x = stages.iter().try_fold(x, |x, stage| stage.onnx(graph, &x))?;
        let x = self.avgpool.onnx(graph, &x)?;
        let x = graph.flatten(&x, 1, -1)?;
        self.fc.onnx(graph, &x)
    }
}

macro_rules! variants {
    ($($name:ident $text:literal $block:ident $layers:expr, $groups:literal x $width:literal;)*) => {$(
        #[doc = concat!($text, " (`torchvision.models.", stringify!($name), "`).")]
        pub fn $name(num_classes: usize) -> ResNet {
            ResNet::new(ResNetOptions {
                num_classes,
                groups: $groups,
                width_per_group: $width,
                ..ResNetOptions::new(ResNetBlock::$block, $layers)
            })
        }
    )*};
}

variants! {
    resnet18 "ResNet with 18 layers" Basic [2, 2, 2, 2], 1 x 64;
    resnet34 "ResNet with 34 layers" Basic [3, 4, 6, 3], 1 x 64;
    resnet50 "ResNet with 50 layers" Bottleneck [3, 4, 6, 3], 1 x 64;
    resnet101 "ResNet with 101 layers" Bottleneck [3, 4, 23, 3], 1 x 64;
    resnet152 "ResNet with 152 layers" Bottleneck [3, 8, 36, 3], 1 x 64;
    resnext50_32x4d "ResNeXt with 50 layers and 32 groups" Bottleneck [3, 4, 6, 3], 32 x 4;
    resnext101_32x8d "ResNeXt with 101 layers and 32 groups" Bottleneck [3, 4, 23, 3], 32 x 8;
    resnext101_64x4d "ResNeXt with 101 layers and 64 groups" Bottleneck [3, 4, 23, 3], 64 x 4;
    wide_resnet50_2 "ResNet with 50 layers, twice as wide within blocks" Bottleneck [3, 4, 6, 3], 1 x 128;
    wide_resnet101_2 "ResNet with 101 layers, twice as wide within blocks" Bottleneck [3, 4, 23, 3], 1 x 128;
}
