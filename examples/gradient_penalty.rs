//! Gradients of gradients: the critic of WGAN-GP (Gulrajani et al., "Improved Training of Wasserstein GANs", 2017). A
//! penalty on the norm of its gradient by its input is part of the loss, so that backward goes through a backward. By how
//! much the critic tells two distributions apart is their Wasserstein distance, which is known here.
//!
//! ```text
//! cargo launch --nproc 2 gradient_penalty
//! ```

use torchrs::autograd::{GraphMode, grad};
use torchrs::prelude::*;
use torchrs::train::metrics::{Mean, Metric};

const STEPS: usize = 400;
const BATCH: usize = 128;
/// From the one distribution's centre to the other's. They differ in nothing else, so that this is their distance.
const MOVED: [f32; 2] = [1.5, -2.0];
const DISTANCE: f64 = 2.5;

fn batches() -> (Tensor, Tensor) {
    let normal = || Tensor::randn([BATCH, 2], Dtype::F32);
    (normal() + Tensor::from(MOVED), normal())
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    manual_seed(0);
    let critic = nn::Sequential::new().append(nn::Linear::new(2, 64)).append(nn::Tanh);
    let critic = critic.append(nn::Linear::new(64, 64)).append(nn::Tanh);
    let critic = DistributedDataParallel::new(critic.append(nn::Linear::new(64, 1)), &group)?;
    let options = optim::AdamOptions { lr: 2e-3, betas: (0.5, 0.9), ..Default::default() };
    let mut optimizer = optim::Adam::new(critic.parameters(), options);
    manual_seed(1 + group.rank() as u64);
    let (mut distance, mut steepness) = (Mean::new(), Mean::new());
    for step in 0..STEPS {
        let (x, y) = batches();
        // Somewhere between a point of one and a point of the other.
        let share = Tensor::rand([BATCH, 1], Dtype::F32);
        let between = (&x * &share + &y * (1.0 - &share)).requires_grad_(true);
        let height = critic.forward(&between).sum();
        let slope = grad(&[&height], &[&between], &[None], GraphMode::Create);
        let slope = slope[0].as_ref().expect("it depends on the input");
        let norm = (slope.square().sum_dim(&[1], false) + 1e-12).sqrt();
        let gain = critic.forward(&x).mean() - critic.forward(&y).mean();
        let loss = (&norm - 1.0).square().mean() * 10.0 - &gain;
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        // What the last steps say.
        if step >= STEPS - 50 {
            distance.update(gain.item(), 1.0);
            steepness.update(norm.mean().item(), 1.0);
        }
    }
    // The penalty leaves the slope a little above 1, by which the critic's unit is too small.
    let steepness = steepness.compute(&group)?;
    let distance = distance.compute(&group)? / steepness;
    if group.rank() == 0 {
        println!("distance {distance:.2}, truly {DISTANCE}; the critic's slope is {steepness:.2}");
    }
    let failed = || Error::Other(format!("distance {distance}, slope {steepness}: not learned"));
    let is_right = (distance - DISTANCE).abs() < 0.25 && (steepness - 1.0).abs() < 0.2;
    if is_right { Ok(()) } else { Err(failed()) }
}
