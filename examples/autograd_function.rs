//! A function of one's own for autograd, with a backward that is not its derivative: weights of two values (Rastegari et
//! al., "XNOR-Net", 2016). Forward takes the signs of the weights times their mean size. The derivative is 0 nearly
//! everywhere, so that backward gives the gradient through to where weights are in [-1, 1].
//!
//! ```text
//! cargo launch --nproc 2 autograd_function
//! ```

use torchrs::autograd::record;
use torchrs::data::datasets::Digits;
use torchrs::prelude::*;
use torchrs::train::Learner;
use torchrs::train::metrics::{Accuracy, Metric};

const EPOCHS: u64 = 8;

fn binarize(w: &Tensor) -> Tensor {
    let output = no_grad(|| w.sign() * w.abs().mean());
    record("binarize", &[w], output, |saver| {
        let w = saver.save(w);
        move |ctx| {
            let inside = ctx.get(&w).abs().le(1.0).to_dtype(Dtype::F32);
            [Some(ctx.grad(0) * inside)].into_iter().collect()
        }
    })
}

/// Two layers, whose weights have two values each.
#[derive(Module)]
struct Binary {
    hidden: nn::Linear,
    norm: nn::BatchNorm1d,
    out: nn::Linear,
}

impl Forward for Binary {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = F::linear(&x.flatten(1, -1), &binarize(&self.hidden.weight), None);
        F::linear(&self.norm.forward(&x).relu(), &binarize(&self.out.weight), None)
    }
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    manual_seed(0);
    let data = DataLoader::builder(Digits::train()).batch_size(32).shuffle(true);
    let data = data.ranks(world, rank).build()?;
    let test = DataLoader::builder(Digits::validation()).batch_size(100);
    let test = test.ranks(world, rank).build()?;
    let [hidden, out] = [(64, 128), (128, 10)].map(|(i, o)| nn::Linear::no_bias(i, o));
    let net = Binary { hidden, norm: nn::BatchNorm1d::new(128), out };
    let options = optim::AdamOptions { lr: 0.01, ..Default::default() };
    let optimizer = optim::Adam::new(net.parameters(), options);
    let mut learner = Learner::new(net, optimizer, &group)?;
    while learner.epoch() < EPOCHS {
        learner.train_epoch(&data, |net, (x, y)| F::cross_entropy(&net.forward(x), y))?;
    }
    let mut accuracy = Accuracy::new();
    learner.evaluate(&test, |net, (x, y)| accuracy.update(&net.forward(x), y))?;
    let right = accuracy.compute(&group)?;
    if rank == 0 {
        println!("{right:.3} of the digits are named rightly, by weights of one bit");
    }
    let failed = || Error::Other(format!("accuracy {right}: it has not learned"));
    if right > 0.9 { Ok(()) } else { Err(failed()) }
}
