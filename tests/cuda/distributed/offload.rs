//! Sharded training with shards on the host, and gathers that run behind a GPU's work.

use std::time::Duration;

use torchrs::cuda::memory;
use torchrs::distributed::DistributedDataParallel;
use torchrs::nn::parallel::{
    CpuOffloadPolicy, FullyShardOptions, MixedPrecisionPolicy, fully_shard,
};
use torchrs::nn::{Forward, Linear, Module, Sequential, clip_grad_norm_};
use torchrs::optim::{Adam, AdamOptions, Optimizer};
use torchrs::profiler::{Category, Event, profile, record_function};
use torchrs::{Device, Dtype, Result, Tensor, cuda};

use super::job::{ADVERSARY, gpu, join_job, run, run_with};

const WIDTH: usize = 40;

fn layers() -> Sequential {
    torchrs::manual_seed(5);
    let mut net = (0..3).fold(Sequential::new(), |net, _| net.append(Linear::new(WIDTH, WIDTH)));
    net.to_device(gpu());
    net
}

/// Parameters, gradients and states are on the host, and the numbers those of a model that is whole on each GPU.
fn offloads(_: ()) -> Result<()> {
    let group = join_job()?;
    for pin_memory in [true, false] {
        let plain = DistributedDataParallel::new(layers(), &group)?;
        let before = memory::statistics(cuda::device::current())?.allocated.current;
        let mut net = layers();
        let offload_policy = Some(CpuOffloadPolicy { pin_memory });
        let options = FullyShardOptions { offload_policy, ..Default::default() };
        for layer in net.iter_mut() {
            fully_shard(layer, &group, options.clone())?;
        }
        assert!(net.parameters().iter().all(|p| p.device() == Device::Cpu));
        let adam = || AdamOptions { lr: 1e-2, ..Default::default() };
        let mut of_plain = Adam::new(plain.parameters(), adam());
        let mut of_shards = Adam::new(net.parameters(), adam());
        for step in 0..5 {
            let x = Tensor::randn([4, WIDTH], Dtype::F32).to_device(gpu());
            let losses = [plain.forward(&x), net.forward(&x)].map(|y| {
                let loss = y.square().mean();
                loss.backward();
                loss.item()
            });
            assert!((losses[0] - losses[1]).abs() <= 1e-4 * losses[0], "{step}: {losses:?}");
            assert!(net.parameters().iter().all(|p| p.grad().unwrap().device() == Device::Cpu));
            let norms = [plain.parameters(), net.parameters()];
            let norms = norms.map(|all| clip_grad_norm_(&all, 0.5).item());
            assert!((norms[0] - norms[1]).abs() <= 1e-4 * norms[0], "{step}: {norms:?}");
            // What the optimizer writes, the next gather sees, also when forward alone came between.
            torchrs::no_grad(|| net.forward(&x));
            of_plain.step();
            of_shards.step();
            plain.zero_grad();
            net.zero_grad();
        }
        let (left, right) = (plain.state_dict(), net.state_dict());
        for (name, expected) in left.iter() {
            let apart = (expected - &right[name]).abs().max().item();
            assert!(apart < 1e-3, "`{name}`: {apart}");
        }
        drop((left, right, of_plain, of_shards, net, plain));
        // Nothing of it stays on the GPU.
        let after = memory::statistics(cuda::device::current())?.allocated.current;
        assert!(after <= before, "{after} bytes after, {before} before");
    }
    group.barrier()
}

#[test]
fn shards_on_the_host_train_as_those_on_the_gpu() {
    run(1, offloads);
    run_with(2, [&[(ADVERSARY, "6")], &[]], offloads);
}

/// In a trace of four ranks gathers begin before the computing of the layer in front ends.
fn overlaps(_: ()) -> Result<()> {
    let group = join_job()?;
    let mut net = layers();
    let mp_policy = MixedPrecisionPolicy { param_dtype: Some(Dtype::BF16), ..Default::default() };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    for layer in net.iter_mut() {
        fully_shard(layer, &group, options.clone())?;
    }
    let x = Tensor::ones([2, WIDTH], (Dtype::BF16, gpu())).requires_grad_(true);
    let step = || {
        let y = net.iter().enumerate().fold(x.clone(), |x, (place, layer)| {
            let y = layer.forward(&x);
            let _span = record_function(format!("compute {place}"));
            std::thread::sleep(Duration::from_millis(60));
            y
        });
        y.square().mean().backward();
    };
    step();
    cuda::device::synchronize(cuda::device::current())?;
    let ((), trace) = profile(step);
    let named = |name: &str, category| -> Vec<&Event> {
        let is_one = |e: &&Event| e.name.starts_with(name) && e.category == category;
        let mut all: Vec<&Event> = trace.events().iter().filter(is_one).collect();
        all.sort_by_key(|e| e.start_ns);
        all
    };
    let gathers = named("all_gather", Category::Communication);
    let computes: Vec<&Event> =
        trace.events().iter().filter(|e| e.name.starts_with("compute")).collect();
    assert_eq!((gathers.len(), computes.len()), (5, 3));
    for (compute, next) in computes.iter().zip(&gathers[1..3]) {
        let is_hidden = next.thread != compute.thread && next.end_ns() <= compute.end_ns();
        assert!(is_hidden, "{next:?} is not behind {compute:?}");
    }
    group.barrier()
}

#[test]
fn gathers_run_behind_a_gpus_work() {
    run(4, overlaps);
}
