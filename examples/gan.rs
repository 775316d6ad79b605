//! A generative adversarial network (Goodfellow et al., 2014): two models, two optimizers, and `detach` between them. The
//! generator turns noise into points on a ring; the discriminator tells them from true ones.
//!
//! ```text
//! cargo launch --nproc 2 gan
//! ```

use std::f64::consts::TAU;

use torchrs::prelude::*;
use torchrs::train::metrics::{Mean, Metric};

const STEPS: usize = 600;
const BATCH: usize = 128;

/// Points at a distance of 2 from the origin, give or take 0.05.
fn ring() -> Tensor {
    let angle = Tensor::rand([BATCH], Dtype::F32) * TAU;
    let radius = Tensor::randn([BATCH], Dtype::F32) * 0.05 + 2.0;
    Tensor::stack(&[&radius * angle.cos(), &radius * angle.sin()], 1)
}

fn layers(inputs: usize, outputs: usize) -> nn::Sequential {
    let net = nn::Sequential::new().append(nn::Linear::new(inputs, 64)).append(nn::ReLU);
    net.append(nn::Linear::new(64, 64)).append(nn::ReLU).append(nn::Linear::new(64, outputs))
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    manual_seed(0);
    let generator = DistributedDataParallel::new(layers(8, 2), &group)?;
    let judge = DistributedDataParallel::new(layers(2, 1), &group)?;
    let adam = |net: &nn::Sequential, lr| {
        let options = optim::AdamOptions { lr, betas: (0.5, 0.99), ..Default::default() };
        optim::Adam::new(net.parameters(), options)
    };
    let (mut of_generator, mut of_judge) = (adam(&generator, 1e-3), adam(&judge, 2e-3));
    // From here on each rank draws numbers of its own.
    manual_seed(1 + group.rank() as u64);
    let made = || generator.forward(&Tensor::randn([BATCH, 8], Dtype::F32));
    // The loss of a judge that should say `yes` or `no`: the logarithm of the probability of the other.
    let yes = |points: &Tensor| -judge.forward(points).logsigmoid().mean();
    let no = |points: &Tensor| -(-judge.forward(points)).logsigmoid().mean();
    for _ in 0..STEPS {
        of_judge.zero_grad();
        // The generator learns nothing of this.
        let fake = no_grad(made);
        (yes(&ring()) + no(&fake)).backward();
        of_judge.step();
        of_generator.zero_grad();
        yes(&made()).backward();
        of_generator.step();
    }
    let points = no_grad(made);
    let distances = (points.square().sum_dim(&[1], false)).sqrt();
    let off = (&distances - 2.0).abs().mean().item();
    let angles = points.select(1, 1).atan2(&points.select(1, 0));
    let parts = ((angles / TAU + 0.5) * 7.999).floor().to_vec::<f64>();
    let seen = (0..8).filter(|part| parts.contains(&f64::from(*part))).count();
    let (mut mean, mut eighths) = (Mean::new(), Mean::new());
    mean.update(off, 1.0);
    eighths.update(seen as f64, 1.0);
    let (off, seen) = (mean.compute(&group)?, eighths.compute(&group)?);
    if group.rank() == 0 {
        println!("made points are off the ring by {off:.3} of 2, in {seen} of its 8 parts");
    }
    let failed = || Error::Other(format!("off by {off}, in {seen} parts; it has not learned"));
    if off < 0.4 && seen > 6.0 { Ok(()) } else { Err(failed()) }
}
