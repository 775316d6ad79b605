//! AlexNet, in the variant of Krizhevsky's "One weird trick for parallelizing convolutional neural
//! networks" (2014), as `torchvision.models.alexnet` has it.

use crate::error::Result;
use crate::nn::{
    AdaptiveAvgPool2d, Conv2d, Dropout, Forward, Linear, MaxPool2d, Module, ReLU, Sequential,
};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// Options of [`AlexNet`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlexNetOptions {
    /// Number of scores.
    pub num_classes: usize,
    /// Dropout before the first two linear layers.
    pub dropout: f64,
}

impl Default for AlexNetOptions {
    fn default() -> Self {
        AlexNetOptions { num_classes: 1000, dropout: 0.5 }
    }
}

/// Five convolutions and three linear layers (`torchvision.models.AlexNet`), for images of 63 x 63
/// or larger.
#[derive(Module)]
pub struct AlexNet {
    /// Convolutions and pools.
    pub features: Sequential,
    /// To 6 x 6.
    pub avgpool: AdaptiveAvgPool2d,
    /// Linear layers.
    pub classifier: Sequential,
}

impl AlexNet {
    /// With PyTorch's initial values of each layer.
    pub fn new(options: AlexNetOptions) -> Self {
        let pool = || MaxPool2d::new(3).stride(2);
        let dropout = || Dropout::new(options.dropout);
        AlexNet {
            features: Sequential::new()
                .append(Conv2d::new(3, 64, 11).stride(4).padding(2))
                .append(ReLU)
                .append(pool())
                .append(Conv2d::new(64, 192, 5).padding(2))
                .append(ReLU)
                .append(pool())
                .append(Conv2d::new(192, 384, 3).padding(1))
                .append(ReLU)
                .append(Conv2d::new(384, 256, 3).padding(1))
                .append(ReLU)
                .append(Conv2d::new(256, 256, 3).padding(1))
                .append(ReLU)
                .append(pool()),
            avgpool: AdaptiveAvgPool2d::new(6),
            classifier: Sequential::new()
                .append(dropout())
                .append(Linear::new(256 * 6 * 6, 4096))
                .append(ReLU)
                .append(dropout())
                .append(Linear::new(4096, 4096))
                .append(ReLU)
                .append(Linear::new(4096, options.num_classes)),
        }
    }
}

impl Forward for AlexNet {
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

/// [`AlexNet`] with its usual dropout (`torchvision.models.alexnet`).
pub fn alexnet(num_classes: usize) -> AlexNet {
    AlexNet::new(AlexNetOptions { num_classes, ..Default::default() })
}
