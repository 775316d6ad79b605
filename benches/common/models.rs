//! The models whose training steps are timed, as `tools/bench/peer_bench.py` has them.

use torchrs::models::{self, GPT2Config, GPT2LMHeadModel};
use torchrs::nn::{
    Conv2d, Dropout, Embedding, Flatten, Forward, LSTM, Linear, MaxPool2d, Module, RNNOptions,
    ReLU, Sequential, functional as F,
};
use torchrs::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Tensor};

/// A step of training: gradients to none, forward, loss, backward, update.
pub struct Training {
    /// Takes one step.
    pub step: Box<dyn FnMut()>,
    /// What is counted.
    pub unit: &'static str,
    /// How many of them a step has.
    pub work: usize,
}

/// LeNet-5 with ReLU.
pub fn lenet5() -> Sequential {
    Sequential::new()
        .append(Conv2d::new(1, 6, 5).padding(2))
        .append(ReLU)
        .append(MaxPool2d::new(2))
        .append(Conv2d::new(6, 16, 5))
        .append(ReLU)
        .append(MaxPool2d::new(2))
        .append(Flatten::new())
        .append(Linear::new(400, 120))
        .append(ReLU)
        .append(Linear::new(120, 84))
        .append(ReLU)
        .append(Linear::new(84, 10))
}

/// A GPT-2 of 10.7 million parameters, without dropout.
pub fn nanogpt() -> GPT2Config {
    let config = GPT2Config {
        n_layer: 6,
        n_embd: 384,
        n_head: 6,
        vocab_size: 65,
        n_positions: 256,
        ..GPT2Config::gpt2()
    };
    config.no_dropout()
}

fn mnist_cnn() -> Sequential {
    Sequential::new()
        .append(Conv2d::new(1, 32, 3))
        .append(ReLU)
        .append(Conv2d::new(32, 64, 3))
        .append(ReLU)
        .append(MaxPool2d::new(2))
        .append(Dropout::new(0.25))
        .append(Flatten::new())
        .append(Linear::new(9216, 128))
        .append(ReLU)
        .append(Dropout::new(0.5))
        .append(Linear::new(128, 10))
}

fn mlp() -> Sequential {
    Sequential::new()
        .append(Linear::new(784, 512))
        .append(ReLU)
        .append(Linear::new(512, 512))
        .append(ReLU)
        .append(Linear::new(512, 10))
}

/// Neural collaborative filtering.
#[derive(Module)]
struct Ncf {
    /// Vectors that are multiplied: users', items'.
    factors: [Embedding; 2],
    /// Vectors for the layers: users', items'.
    features: [Embedding; 2],
    layers: Sequential,
    out: Linear,
}

impl Ncf {
    fn new() -> Self {
        let tables = |width| [Embedding::new(6040, width), Embedding::new(3706, width)];
        let layers = Sequential::new()
            .append(Linear::new(256, 256))
            .append(ReLU)
            .append(Linear::new(256, 128))
            .append(ReLU)
            .append(Linear::new(128, 64))
            .append(ReLU);
        Ncf { factors: tables(64), features: tables(128), layers, out: Linear::new(128, 1) }
    }

    fn forward(&self, user: &Tensor, item: &Tensor) -> Tensor {
        let [a, b] = [(0, user), (1, item)].map(|(i, x)| self.factors[i].forward(x));
        let [c, d] = [(0, user), (1, item)].map(|(i, x)| self.features[i].forward(x));
        let deep = self.layers.forward(&Tensor::cat(&[&c, &d], 1));
        self.out.forward(&Tensor::cat(&[&(a * b), &deep], 1)).squeeze_dim(1)
    }
}

#[derive(Module)]
struct Lstm {
    embedding: Embedding,
    recurrent: LSTM,
    out: Linear,
}

impl Forward for Lstm {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.out.forward(&self.recurrent.forward(&self.embedding.forward(x), None).0)
    }
}

/// Steps of `model` on `loss`, which is called with it.
fn steps<M: Module + 'static, O: Optimizer + 'static>(
    model: M,
    optimizer: impl FnOnce(Vec<Tensor>) -> O,
    loss: impl Fn(&M) -> Tensor + 'static,
) -> Box<dyn FnMut()> {
    let mut optimizer = optimizer(model.parameters());
    Box::new(move || {
        optimizer.zero_grad();
        loss(&model).backward();
        optimizer.step();
    })
}

fn sgd(parameters: Vec<Tensor>) -> SGD {
    SGD::new(parameters, SGDOptions { lr: 1e-3, momentum: 0.9, ..Default::default() })
}

fn adam(parameters: Vec<Tensor>) -> Adam {
    Adam::new(parameters, AdamOptions::default())
}

/// Classes for numbers in the shape of `x`.
fn classify<M: Forward + 'static, O: Optimizer + 'static>(
    model: M,
    x: Tensor,
    classes: i64,
    optimizer: impl FnOnce(Vec<Tensor>) -> O,
) -> (Box<dyn FnMut()>, usize) {
    let batch = x.shape()[0];
    let y = Tensor::randint(0, classes, [batch], Dtype::I64);
    (steps(model, optimizer, move |model| F::cross_entropy(&model.forward(&x), &y)), batch)
}

/// Scores for every token of `x`.
fn predict<M: Forward + 'static, O: Optimizer + 'static>(
    model: M,
    shape: [usize; 2],
    vocabulary: i64,
    optimizer: impl FnOnce(Vec<Tensor>) -> O,
) -> (Box<dyn FnMut()>, usize) {
    let tokens = shape[0] * shape[1];
    let x = Tensor::randint(0, vocabulary, shape, Dtype::I64);
    let y = Tensor::randint(0, vocabulary, [tokens], Dtype::I64);
    let loss = move |model: &M| {
        F::cross_entropy(&model.forward(&x).reshape([tokens as i64, vocabulary]), &y)
    };
    (steps(model, optimizer, loss), tokens)
}

/// The step of a model by its name; `None` if there is none of this name.
pub fn training(name: &str) -> Option<Training> {
    let images = |batch: usize| Tensor::randn([batch, 3, 224, 224], Dtype::F32);
    let digits = |batch: usize| Tensor::randn([batch, 1, 28, 28], Dtype::F32);
    let ((step, work), unit) = match name {
        "lenet5" => (classify(lenet5(), digits(64), 10, sgd), "img/s"),
        "mnist_cnn" => (classify(mnist_cnn(), digits(64), 10, sgd), "img/s"),
        "mlp" => (classify(mlp(), Tensor::randn([128, 784], Dtype::F32), 10, adam), "sample/s"),
        "resnet18" => (classify(models::resnet18(1000), images(8), 1000, sgd), "img/s"),
        "resnet50" => (classify(models::resnet50(1000), images(8), 1000, sgd), "img/s"),
        "mobilenet_v2" => (classify(models::mobilenet_v2(1000), images(8), 1000, sgd), "img/s"),
        "alexnet" => (classify(models::alexnet(1000), images(32), 1000, sgd), "img/s"),
        "vgg19" => (classify(models::vgg19(1000), images(8), 1000, sgd), "img/s"),
        "ncf" => {
            let draw = |high| Tensor::randint(0, high, [1024], Dtype::I64);
            let (user, item, y) = (draw(6040), draw(3706), draw(2).to_dtype(Dtype::F32));
            let step = steps(Ncf::new(), adam, move |model: &Ncf| {
                F::binary_cross_entropy_with_logits(&model.forward(&user, &item), &y)
            });
            ((step, 1024), "sample/s")
        }
        "lstm" => {
            let options = RNNOptions { num_layers: 4, ..Default::default() };
            let model = Lstm {
                embedding: Embedding::new(4096, 512),
                recurrent: LSTM::new(512, 512, options),
                out: Linear::new(512, 4096),
            };
            (predict(model, [50, 32], 4096, adam), "tok/s")
        }
        "nanogpt" | "gpt2" => {
            let (config, batch) =
                if name == "gpt2" { (GPT2Config::gpt2().no_dropout(), 1) } else { (nanogpt(), 8) };
            let vocabulary = config.vocab_size as i64;
            let adamw = |p| AdamW::new(p, AdamWOptions { lr: 1e-4, ..Default::default() });
            let model = GPT2LMHeadModel::new(config);
            (predict(model, [batch, 256], vocabulary, adamw), "tok/s")
        }
        _ => return None,
    };
    Some(Training { step, unit, work })
}
