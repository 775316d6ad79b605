//! Graphs are captured while other threads use the device: a loader that uploads batches, and a watchdog that asks NCCL
//! and events how collectives are.

use std::time::Duration;

use torchrs::cuda_graphs::CudaGraph;
use torchrs::data::{DataLoader, TensorDataset};
use torchrs::distributed::{ProcessGroup, ReduceOp};
use torchrs::{Device, Dtype, Error, Result, Tensor, cuda};

use crate::nccl;

/// In a process that has a group of one rank.
pub fn check() -> Result<()> {
    nccl::run(1, Duration::from_secs(60), |()| nccl::in_group(captures))
}

fn captures(group: &ProcessGroup, gpu: Device) -> Result<()> {
    let times = if cuda::is_simulated() { 20 } else { 1000 };
    let rows = 64;
    let x = Tensor::arange(0, 1024 * rows, 1, Dtype::F32).reshape([rows, 1024]);
    let data = TensorDataset::new((x, Tensor::arange(0, rows, 1, Dtype::I64)))?;
    let loader = DataLoader::builder(data).batch_size(4).workers(2).device(gpu).build()?;
    let sum = Tensor::zeros([1 << 20], (Dtype::F32, gpu));
    let (mut captured, mut batches) = (0, 0);
    while captured < times {
        for batch in loader.iter().take(times - captured) {
            let (x, y) = batch?;
            // In flight while the graph is made.
            let work = group.all_reduce_async(&sum, ReduceOp::Avg)?;
            let place = Tensor::zeros([4, 1024], (Dtype::F32, gpu));
            let (graph, out) = CudaGraph::capture(|| Ok((&place * 2.0).sum_dim(&[1], false)))?;
            work.wait()?;
            place.copy_(&x);
            graph.replay()?;
            let first = y.select(0, 0).item();
            let want = 2.0 * (1024.0 * 1024.0 * first + 1023.0 * 512.0);
            let found = out.select(0, 0).item();
            if (found - want).abs() > 1e-5 * want {
                let message = format!("capture {captured}: the replay gave {found}, not {want}");
                return Err(Error::Other(message));
            }
            (captured, batches) = (captured + 1, batches + 1);
        }
    }
    group.check()?;
    println!(
        "{captured} captures and replays beside {batches} uploaded batches and as many all-reduces"
    );
    Ok(())
}
