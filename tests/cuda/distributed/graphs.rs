//! A whole step of data-parallel training in a graph: forward, backward with its all-reduces, the optimizer.

use torchrs::cuda_graphs::CudaGraph;
use torchrs::distributed::{DDPOptions, DistributedDataParallel, ProcessGroup, comm_hooks};
use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Generator, Result, Tensor, cuda};

use super::job::{ADVERSARY, gpu, join_job, run, run_with};

/// Parameters after six steps, the last four of them replays or not.
fn trains(group: &ProcessGroup, by_graph: bool, hook: bool) -> Result<Vec<Tensor>> {
    torchrs::manual_seed(7);
    let mut model =
        Sequential::new().append(Linear::new(6, 32)).append(ReLU).append(Linear::new(32, 3));
    model.to_device(gpu());
    let options = DDPOptions { first_bucket_mb: 1e-4, bucket_cap_mb: 1e-4, ..Default::default() };
    let model = DistributedDataParallel::with_options(model, group, options)?;
    if hook {
        model.register_comm_hook(comm_hooks::bf16_compress)?;
    }
    let options = SGDOptions { lr: 0.05, momentum: 0.9, ..Default::default() };
    let mut optimizer = SGD::new(model.parameters(), options);
    let batch = |i: u64| Generator::new(10 * i + group.rank() as u64).randn([8, 6], Dtype::F32);
    let x = batch(0).to_device(gpu());
    let mut step = || {
        optimizer.zero_grad();
        (model.forward(&x) - 1.0).square().mean().backward();
        optimizer.step();
        Ok(())
    };
    for i in 0..2 {
        x.copy_(&batch(i).to_device(gpu()));
        step()?;
    }
    let graph = if by_graph { Some(CudaGraph::capture(&mut step)?.0) } else { None };
    for i in 2..6 {
        x.copy_(&batch(i).to_device(gpu()));
        let before = cuda::synchronisations();
        match &graph {
            Some(graph) => graph.replay()?,
            None => step()?,
        }
        assert_eq!(cuda::synchronisations(), before);
    }
    Ok(model.parameters().iter().map(|p| p.detach().cpu()).collect())
}

fn replays(_: ()) -> Result<()> {
    let group = join_job()?;
    for hook in [false, true] {
        let (eager, replayed) = (trains(&group, false, hook)?, trains(&group, true, hook)?);
        for (a, b) in eager.iter().zip(&replayed) {
            assert!(a.equal(b), "{hook}: {a} {b}");
            let all = group.all_gather(b)?;
            assert!(all[0].equal(&all[1]));
        }
    }
    group.barrier()
}

#[test]
fn replayed_steps_equal_eager_ones_on_all_ranks() {
    run(2, replays);
    run_with(2, [&[(ADVERSARY, "4")], &[]], replays);
}
