//! Messages in a ring beside data-parallel training: two communicators of the same GPUs at work at once.

use std::time::Duration;

use torchrs::distributed::{DistributedDataParallel, ProcessGroup};
use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Device, Dtype, Error, Result, Tensor, cuda};

use crate::nccl;

/// A rank for each GPU; with one GPU it has no ring.
pub fn check() -> Result<()> {
    let gpus = cuda::device_count();
    if gpus < 2 {
        println!("skipped: a ring needs two GPUs, and there is {gpus}");
        return Ok(());
    }
    nccl::run(gpus, Duration::from_secs(60), |()| nccl::in_group(around))
}

fn around(group: &ProcessGroup, gpu: Device) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let ring = group.new_group(&(0..world).collect::<Vec<_>>())?;
    let (steps, width) = if cuda::is_simulated() { (3, 16) } else { (100, 1024) };
    torchrs::manual_seed(3);
    let mut model = Sequential::new()
        .append(Linear::new(width, width))
        .append(ReLU)
        .append(Linear::new(width, 4));
    model.to_device(gpu);
    let model = DistributedDataParallel::new(model, group)?;
    let options = SGDOptions { lr: 1e-3, ..Default::default() };
    let mut optimizer = SGD::new(model.parameters(), options);
    let mut token = Tensor::full([4096], rank as f64, (Dtype::F32, gpu));
    for _ in 0..steps {
        let next = token.empty_like();
        let sent = ring.isend(&token, (rank + 1) % world, 0)?;
        let received = ring.irecv(&next, (rank + world - 1) % world, 0)?;
        optimizer.zero_grad();
        let x = Tensor::randn([8, width], (Dtype::F32, gpu));
        model.forward(&x).square().mean().backward();
        optimizer.step();
        received.wait()?;
        sent.wait()?;
        token = next + 1.0;
    }
    let origin = (rank + world * steps - steps) % world;
    let want = (origin + steps) as f32;
    let numbers = token.to_vec::<f32>();
    if let Some(found) = numbers.iter().find(|&&number| number != want) {
        return Err(Error::Other(format!("rank {rank}: {found} came around, not {want}")));
    }
    let weights = model.parameters()[0].detach().clone_contiguous();
    let mine = weights.clone_contiguous();
    group.broadcast(&weights, 0)?;
    if !mine.equal(&weights) {
        return Err(Error::Other(format!("rank {rank}: weights differ from rank 0's")));
    }
    if rank == 0 {
        println!("{steps} steps of {world} ranks with a message around the ring beside each");
    }
    Ok(())
}
