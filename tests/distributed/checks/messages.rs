//! Checks of messages between ranks, for tensors on any device.

use torchrs::distributed::{P2POp, ProcessGroup};
use torchrs::nn::{Forward, Linear, Module};
use torchrs::{Device, Dtype, Generator, Result, Tensor, autograd, cuda};

/// Every rank gives its tensor to the next one, until all are back.
pub fn turns_a_ring(group: &ProcessGroup, device: Device) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
    let mine = Tensor::arange(0, 50_000, 1, (Dtype::F32, device)) + 1000.0 * rank as f64;
    let mut x = mine.clone();
    let syncs = cuda::synchronisations();
    for _ in 0..world {
        let y = x.zeros_like();
        let mut ops = [P2POp::irecv(&y, before, 0), P2POp::isend(&x, next, 0)];
        if rank % 2 == 1 {
            ops.reverse();
        }
        group.batch_isend_irecv(&ops)?.iter().try_for_each(|work| work.wait())?;
        x = y + 1.0;
    }
    assert_eq!(cuda::synchronisations(), syncs);
    assert!(x.equal(&(mine + world as f64)));
    // A collective beside it.
    group.barrier()
}

/// Two ranks have a stage of a model each and exchange activations and gradients, two batches in flight.
pub fn learns_in_stages(group: &ProcessGroup, device: Device) -> Result<()> {
    let stages = [1, 2].map(|seed| {
        let mut stage = Linear::no_bias(8, 8);
        torchrs::no_grad(|| {
            let weight = Generator::new(seed).randn([8, 8], Dtype::F32) * 0.3;
            stage.parameters()[0].copy_(&weight);
        });
        stage.to_device(device);
        stage
    });
    let input = |batch: usize| Tensor::full([4, 8], 0.1 + batch as f64, (Dtype::F32, device));
    let own = &stages[group.rank()];
    if group.rank() == 0 {
        let y = [0, 1].map(|batch| own.forward(&input(batch)).tanh());
        // The other rank sends a gradient back before it takes the second batch.
        let sent = [group.isend(&y[0], 1, 0)?, group.isend(&y[1], 1, 0)?];
        for y in &y {
            let gradient = y.zeros_like();
            group.recv(&gradient, 1, 0)?;
            autograd::backward(&[y], &[Some(&gradient)], autograd::GraphMode::Free);
        }
        sent.iter().try_for_each(|work| work.wait())?;
    } else {
        for _ in 0..2 {
            let x = Tensor::zeros([4, 8], (Dtype::F32, device));
            group.recv(&x, 0, 0)?;
            let x = x.requires_grad_(true);
            own.forward(&x).square().sum().backward();
            group.send(&x.grad().unwrap(), 0, 0)?;
        }
    }
    let found = own.parameters()[0].grad().unwrap().to_vec::<f32>();
    own.zero_grad();
    for batch in 0..2 {
        let y = stages[0].forward(&input(batch)).tanh();
        stages[1].forward(&y).square().sum().backward();
    }
    assert_eq!(found, own.parameters()[0].grad().unwrap().to_vec::<f32>());
    group.barrier()
}
