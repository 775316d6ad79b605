//! Local SGD (Stich, "Local SGD Converges Fast and Communicates Little", 2019): every rank trains on its own for some
//! steps, then the ranks take the mean of their weights. One message in place of eight; `custom_loop` hides it behind
//! computation as well.
//!
//! ```text
//! cargo launch --nproc 2 local_sgd
//! ```

use torchrs::data::datasets::Digits;
use torchrs::distributed::{ProcessGroup, ReduceOp};
use torchrs::nn::utils::{parameters_to_vector, vector_to_parameters};
use torchrs::prelude::*;
use torchrs::train::metrics::{Accuracy, Metric};

const EPOCHS: u64 = 10;
const LOCAL_STEPS: usize = 8;

/// The mean of all ranks' weights, on all ranks; how far this rank's were from it.
fn average(net: &nn::Sequential, group: &ProcessGroup) -> Result<f64> {
    no_grad(|| {
        let own = parameters_to_vector(&net.parameters());
        let mean = own.clone_contiguous();
        group.all_reduce(&mean, ReduceOp::Avg)?;
        vector_to_parameters(&mean, &net.parameters());
        Ok((own - mean).norm().item())
    })
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    manual_seed(0);
    let net = nn::Sequential::new().append(nn::Flatten::new()).append(nn::Linear::new(64, 64));
    let net = net.append(nn::ReLU).append(nn::Linear::new(64, 10));
    let options = optim::SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
    let mut optimizer = optim::SGD::new(net.parameters(), options);
    let data = DataLoader::builder(Digits::train()).batch_size(16).shuffle(true);
    let data = data.ranks(world, rank).build()?;
    let test = DataLoader::builder(Digits::validation()).batch_size(100);
    let test = test.ranks(world, rank).build()?;
    // The same weights everywhere: rank 0's.
    for parameter in net.parameters() {
        group.broadcast(&parameter.detach(), 0)?;
    }
    let (mut steps, mut messages, mut apart) = (0, 0, 0.0);
    for epoch in 0..EPOCHS {
        data.set_epoch(epoch);
        for batch in data.iter() {
            let (x, y) = batch?;
            optimizer.zero_grad();
            F::cross_entropy(&net.forward(&x), &y).backward();
            optimizer.step();
            steps += 1;
            if steps % LOCAL_STEPS == 0 {
                (apart, messages) = (average(&net, &group)?, messages + 1);
            }
        }
    }
    average(&net, &group)?;
    let mut accuracy = Accuracy::new();
    for batch in test.iter() {
        let (x, y) = batch?;
        accuracy.update(&no_grad(|| net.forward(&x)), &y);
    }
    let right = accuracy.compute(&group)?;
    if rank == 0 {
        println!(
            "{right:.3} of the digits are named rightly, after {steps} steps, {messages} messages"
        );
        println!("the last one found this rank's weights {apart:.4} from the mean");
    }
    let failed = || Error::Other(format!("accuracy {right}: it has not learned"));
    if right > 0.93 { Ok(()) } else { Err(failed()) }
}
