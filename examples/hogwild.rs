//! Hogwild (Niu et al., 2011; section 5.4 of the PyTorch paper): two processes train one model,
//! whose weights lie in shared memory, and update it without any lock. A lost update now and then
//! does no harm, because each of them is small.
//!
//! `cargo run --release --example hogwild`

use torchrs::multiprocessing::spawn;
use torchrs::prelude::*;

/// The weights from which the data is made, and which training should find again.
const TRUTH: [f32; 4] = [2.0, -1.0, 0.5, 3.0];
const PROCESSES: usize = 2;
const STEPS: u32 = 2_000;
const LEARNING_RATE: f64 = 0.01;

/// Features of sample `i`: reproducible numbers in [-1, 1).
fn features(i: u32) -> Tensor {
    let number = |k: u32| {
        let mixed = (i * TRUTH.len() as u32 + k).wrapping_mul(2_654_435_769);
        (mixed >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..TRUTH.len() as u32).map(number).collect();
    Tensor::from_slice(&values, [TRUTH.len()])
}

/// One process: plain stochastic gradient descent on its share of the samples.
fn train(rank: usize, weight: Tensor) {
    for step in 0..STEPS {
        let x = features(step * PROCESSES as u32 + rank as u32);
        let target = (&x * &Tensor::from_slice(&TRUTH, [TRUTH.len()])).sum();
        let error = (&x * &weight).sum() + &target * -1.0;
        let loss = &error * &error;
        loss.backward();

        // The gradient is this process's own; the weight is everybody's.
        let gradient = weight.grad().expect("backward leaves a gradient");
        no_grad(|| {
            weight.add_(&(&gradient * -LEARNING_RATE));
        });
        weight.set_grad(None);
        if step % 500 == 0 {
            println!("rank {rank} step {step:4}: loss {:.5}", loss.item());
        }
    }
}

#[torchrs::main]
fn main() -> Result<()> {
    let weight = Tensor::zeros([TRUTH.len()], Dtype::F32).requires_grad_(true);
    spawn(train, weight.clone(), PROCESSES)?;
    println!("learned {:.3?}, truth {TRUTH:?}", weight.to_vec::<f32>());
    for (learned, truth) in weight.to_vec::<f32>().iter().zip(TRUTH) {
        assert!((learned - truth).abs() < 0.01, "{learned} is not {truth}");
    }
    Ok(())
}
