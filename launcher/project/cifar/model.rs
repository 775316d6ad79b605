//! ResNet-8 for pictures of 32x32 (He et al., "Deep Residual Learning for Image Recognition", 2015, section 4.2).

use torchrs::prelude::*;

const WIDTH: usize = 16;

/// Two convolutions, and a way around them.
#[derive(Module, Clone)]
struct Block {
    conv1: nn::Conv2d,
    norm1: nn::BatchNorm2d,
    conv2: nn::Conv2d,
    norm2: nn::BatchNorm2d,
    around: Option<nn::Conv2d>,
}

impl Block {
    fn new(inputs: usize, outputs: usize, stride: usize) -> Self {
        let conv = |inputs, stride| {
            nn::Conv2d::new(inputs, outputs, 3).stride(stride).padding(1).no_bias()
        };
        let around = || nn::Conv2d::new(inputs, outputs, 1).stride(stride).no_bias();
        Block {
            conv1: conv(inputs, stride),
            norm1: nn::BatchNorm2d::new(outputs),
            conv2: conv(outputs, 1),
            norm2: nn::BatchNorm2d::new(outputs),
            around: (inputs != outputs).then(around),
        }
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.norm1.forward(&self.conv1.forward(x)).relu();
        let y = self.norm2.forward(&self.conv2.forward(&y));
        let around = self.around.as_ref().map_or(x.clone(), |around| around.forward(x));
        (y + around).relu()
    }
}

/// The whole network.
#[derive(Module, Clone)]
pub struct ResNet {
    stem: nn::Conv2d,
    norm: nn::BatchNorm2d,
    stages: [Block; 3],
    head: nn::Linear,
}

/// For ten classes.
pub fn resnet() -> ResNet {
    ResNet {
        stem: nn::Conv2d::new(3, WIDTH, 3).padding(1).no_bias(),
        norm: nn::BatchNorm2d::new(WIDTH),
        stages: [
            Block::new(WIDTH, WIDTH, 1),
            Block::new(WIDTH, 2 * WIDTH, 2),
            Block::new(2 * WIDTH, 4 * WIDTH, 2),
        ],
        head: nn::Linear::new(4 * WIDTH, 10),
    }
}

impl Forward for ResNet {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.norm.forward(&self.stem.forward(x)).relu();
        let x = self.stages.iter().fold(x, |x, block| block.forward(&x));
        self.head.forward(&x.mean_dim(&[2, 3], false))
    }
}
