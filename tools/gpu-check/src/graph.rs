//! A whole training step as a graph: replays give what eager steps give.

use torchrs::cuda::graph::CaptureOptions;
use torchrs::cuda::{self, Graph, Priority, Stream, StreamGuard};
use torchrs::nn::{Forward, LayerNorm, Linear, Module, ReLU, Sequential, functional as F};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Error, Result, Tensor};

use crate::bench::GPU;

const STEPS: usize = 5;

/// A small classifier, its optimizer, and what it learns.
struct Training {
    model: Sequential,
    optimizer: SGD,
    x: Tensor,
    y: Tensor,
}

impl Training {
    fn new() -> Training {
        torchrs::manual_seed(3);
        let mut model = Sequential::new()
            .append(Linear::new(64, 128))
            .append(LayerNorm::new([128]))
            .append(ReLU)
            .append(Linear::new(128, 10));
        model.to_device(GPU);
        let options = SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
        let optimizer = SGD::new(model.parameters(), options);
        let x = Tensor::randn([32, 64], Dtype::F32).to_device(GPU);
        let y = Tensor::randint(0, 10, [32], Dtype::I64).to_device(GPU);
        Training { model, optimizer, x, y }
    }

    fn step(&mut self) -> Tensor {
        // Gradients stay where they are: a graph writes to the same addresses again.
        self.optimizer.zero_grad_to_zeros();
        let loss = F::cross_entropy(&self.model.forward(&self.x), &self.y);
        loss.backward();
        self.optimizer.step();
        loss.detach()
    }

    fn parameters(&self) -> Vec<f64> {
        self.model.parameters().iter().flat_map(Tensor::to_vec::<f64>).collect()
    }
}

/// Some steps one way and the other.
pub fn check() -> Result<()> {
    let stream = Stream::new(0, Priority::Normal)?;
    let _current = StreamGuard::new(stream)?;
    let (mut eager, mut captured) = (Training::new(), Training::new());
    // The first steps compile kernels and make gradients and the optimizer's state.
    for _ in 0..2 {
        eager.step();
        captured.step();
    }
    stream.synchronize()?;
    let (graph, loss) = Graph::capture(stream, CaptureOptions::default(), || Ok(captured.step()))?;
    let before = cuda::synchronisations();
    for _ in 0..STEPS {
        eager.step();
        graph.replay(stream)?;
    }
    if cuda::synchronisations() != before {
        return Err(Error::Other("a training step has waited for the device".into()));
    }
    let (a, b) = (eager.parameters(), captured.parameters());
    let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    if a.len() != b.len() || apart.is_nan() || apart > 1e-6 {
        return Err(Error::Other(format!("replays are {apart:e} from eager steps")));
    }
    println!(
        "{STEPS} replays of a training step are {apart:e} from eager steps, loss {:.4}",
        loss.item()
    );
    Ok(())
}
