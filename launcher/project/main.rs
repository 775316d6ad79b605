//! Trains a small network on handwritten digits: `torchrs-launch --nproc 2 {{name}}`.

use torchrs::data::datasets::Digits;
use torchrs::distributed::ReduceOp;
use torchrs::optim::{AdamW, AdamWOptions};
use torchrs::prelude::*;

const EPOCHS: u64 = 10;
const BATCH_SIZE: usize = 32;

#[derive(Module)]
struct Net {
    hidden: nn::Linear,
    out: nn::Linear,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.out.forward(&self.hidden.forward(&x.flatten(1, -1)).relu())
    }
}

/// The share of samples that `net` names rightly, over all ranks.
fn accuracy(
    net: &Net,
    samples: &DataLoader<Digits>,
    group: &distributed::ProcessGroup,
) -> Result<f64> {
    net.eval();
    let counts = Tensor::zeros([2], Dtype::F64);
    for batch in samples.iter() {
        let (x, y) = batch?;
        let right = no_grad(|| net.forward(&x).argmax_dim(1, false).eq(&y));
        counts.select(0, 0).add_(&right.to_dtype(Dtype::F64).sum());
        counts.select(0, 1).add_(y.numel() as f64);
    }
    net.train();
    group.all_reduce(&counts, ReduceOp::Sum)?;
    let counts = counts.to_vec::<f64>();
    Ok(counts[0] / counts[1])
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    manual_seed(0);
    let net = Net { hidden: nn::Linear::new(64, 64), out: nn::Linear::new(64, 10) };
    // From here on gradients are averaged over all workers during backward.
    let net = DistributedDataParallel::new(net, &group)?;
    let mut optimizer =
        AdamW::new(net.parameters(), AdamWOptions { lr: 3e-3, ..Default::default() });

    let training = DataLoader::builder(Digits::train()).batch_size(BATCH_SIZE).shuffle(true);
    let training = training.ranks(world, rank).build()?;
    let validation = DataLoader::builder(Digits::validation()).batch_size(256);
    let validation = validation.ranks(world, rank).build()?;

    for epoch in 0..EPOCHS {
        training.set_epoch(epoch);
        for batch in training.iter() {
            let (x, y) = batch?;
            optimizer.zero_grad();
            F::cross_entropy(&net.forward(&x), &y).backward();
            optimizer.step();
        }
        let accuracy = accuracy(&net, &validation, &group)?;
        if rank == 0 {
            println!("epoch {}/{EPOCHS}: accuracy {accuracy:.4}", epoch + 1);
        }
    }
    Ok(())
}
