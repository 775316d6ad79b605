//! Sharded training on GPUs: the numbers of data-parallel training, no wait, and no more memory than promised.

use torchrs::cuda::memory;
use torchrs::cuda_graphs::CudaGraph;
use torchrs::distributed::{DeviceMesh, DistributedDataParallel, comm_hooks};
use torchrs::nn::parallel::{
    FullyShardOptions, MemoryPlan, MemoryPlanOptions, MixedPrecisionPolicy, fully_shard,
    memory_plan,
};
use torchrs::nn::{self, Forward, Linear, Module, Sequential, clip_grad_norm_};
use torchrs::optim::{Adam, AdamOptions, Optimizer};
use torchrs::{Device, Dtype, Result, Tensor, catch, cuda};

use super::job::{ADVERSARY, gpu, join_job, run, run_with};

pub fn blocks(count: usize, width: usize) -> Sequential {
    let block = |_| {
        Sequential::new()
            .append(Linear::new(width, width + 3))
            .append(nn::ReLU)
            .append(Linear::new(width + 3, width))
    };
    (0..count).map(block).fold(Sequential::new(), Sequential::append)
}

/// With so many replicas of shards.
fn trains(replicas: usize) -> Result<()> {
    let group = join_job()?;
    let mesh = match replicas {
        1 => DeviceMesh::from(&group),
        _ => DeviceMesh::new(&group, [("replicate", replicas as isize), ("shard", -1)])?,
    };
    for reshard in [true, false] {
        let made = || {
            torchrs::manual_seed(5);
            blocks(3, 10)
        };
        let (mut plain, mut sharded) = (made(), made());
        plain.to_device(gpu());
        sharded.to_device(gpu());
        let plain = DistributedDataParallel::new(plain, &group)?;
        let options =
            FullyShardOptions { reshard_after_forward: Some(reshard.into()), ..Default::default() };
        for block in sharded.iter_mut() {
            let handle = fully_shard(block, &mesh, options.clone())?;
            if replicas > 1 && reshard {
                handle.register_comm_hook(comm_hooks::allreduce)?;
            }
        }
        let adam = || AdamOptions { lr: 1e-2, ..Default::default() };
        let mut of_plain = Adam::new(plain.parameters(), adam());
        let mut of_shards = Adam::new(sharded.parameters(), adam());
        torchrs::manual_seed(20 + group.rank() as u64);
        for step in 0..6 {
            let x = Tensor::randn([4, 10], Dtype::F32).to_device(gpu());
            let losses = [&*plain, &sharded].map(|module| {
                let loss = module.forward(&x).square().mean();
                loss.backward();
                loss.item()
            });
            assert!((losses[0] - losses[1]).abs() <= 1e-5 * losses[0], "step {step}: {losses:?}");
            let norms = [plain.parameters(), sharded.parameters()];
            let norms = norms.map(|all| clip_grad_norm_(&all, 0.5).item());
            assert!((norms[0] - norms[1]).abs() <= 1e-4 * norms[0], "step {step}: {norms:?}");
            of_plain.step();
            of_shards.step();
            plain.zero_grad();
            sharded.zero_grad();
        }
        let (left, right) = (plain.state_dict(), sharded.state_dict());
        for (name, expected) in left.iter() {
            let apart = (expected - &right[name]).abs().max().item();
            assert!(apart < 1e-4, "`{name}`: {apart}");
        }
    }
    group.barrier()
}

#[test]
fn sharded_training_is_data_parallel_training() {
    run_with(2, [&[(ADVERSARY, "3")], &[]], |()| trains(1));
    run_with(3, [&[(ADVERSARY, "4")], &[]], |()| trains(1));
    run_with(4, [&[(ADVERSARY, "5")], &[]], |()| trains(2));
}

/// The host never waits for the GPU.
fn never_waits(_: ()) -> Result<()> {
    let group = join_job()?;
    let mut model = blocks(3, 16);
    model.to_device(gpu());
    let (param_dtype, reduce_dtype) = (Some(Dtype::BF16), Some(Dtype::F32));
    let mp_policy = MixedPrecisionPolicy { param_dtype, reduce_dtype, ..Default::default() };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    for block in model.iter_mut() {
        fully_shard(block, &group, options.clone())?;
    }
    let x = Tensor::ones([4, 16], (Dtype::BF16, gpu()));
    let step = || {
        model.zero_grad();
        model.forward(&x).sum().backward();
    };
    step();
    let before = cuda::synchronisations();
    step();
    assert_eq!(cuda::synchronisations(), before);
    assert!(model.parameters().iter().all(|p| p.grad().unwrap().dtype() == Dtype::F32));
    group.barrier()
}

#[test]
fn a_sharded_step_does_not_wait_for_the_gpu() {
    run(2, never_waits);
}

/// The bounds of PyTorch's own test, in bytes: of what this rank has allocated at most in each phase.
fn takes_memory(_: ()) -> Result<()> {
    const BLOCKS: usize = 4;
    const WIDTH: usize = 256;
    let group = join_job()?;
    let device = cuda::device::current();
    let bytes = |count: usize| count * 4;
    let one = bytes(2 * WIDTH * (WIDTH + 3) + 2 * WIDTH + 3);
    let (whole, slack) = (BLOCKS * one, 256 << 10);
    let shards = whole / group.world_size();
    let peak = |what: &str, most: usize, f: &mut dyn FnMut()| -> Result<()> {
        memory::reset_peak(device)?;
        f();
        let got = memory::statistics(device)?.allocated.peak;
        assert!(got <= most + slack, "{what}: {got} bytes at most, {most} and {slack} allowed");
        Ok(())
    };
    for (reshard, ahead) in [(true, true), (true, false), (false, true)] {
        let mut model = Sequential::new();
        // What is gathered ahead in backward is there beside gradients that are on their way.
        let more = if ahead { one } else { 0 };
        let options =
            FullyShardOptions { reshard_after_forward: Some(reshard.into()), ..Default::default() };
        peak("init", shards + 2 * one, &mut || {
            for _ in 0..BLOCKS {
                let mut block = blocks(1, WIDTH);
                block.to_device(gpu());
                let handle = fully_shard(&mut block, &group, options.clone()).unwrap();
                if !ahead {
                    handle.set_modules_to_forward_prefetch(&[]).unwrap();
                    handle.set_modules_to_backward_prefetch(&[]).unwrap();
                }
                model = std::mem::take(&mut model).append(block);
            }
        })?;
        let mut optimizer = Adam::new(model.parameters(), Default::default());
        let x = Tensor::ones([1, WIDTH], (Dtype::F32, gpu()));
        for step in 0..2 {
            let states = if step == 0 { 0 } else { 2 * shards };
            let (mut loss, kept) = (Tensor::from([0f32]), if reshard { 0 } else { whole });
            peak("forward", shards + states + kept + 3 * one, &mut || {
                loss = model.forward(&x).square().mean();
            })?;
            let groups = 3 * one + more;
            peak("backward", 2 * shards + states + kept + groups, &mut || loss.backward())?;
            peak("step", 4 * shards + one, &mut || optimizer.step())?;
            optimizer.zero_grad();
            let got = memory::statistics(device)?.allocated.current;
            assert!(got <= 3 * shards + slack, "after a step: {got} bytes, of {whole} in all");
        }
    }
    group.barrier()
}

#[test]
fn no_rank_takes_more_memory_than_promised() {
    run(2, takes_memory);
    run(4, takes_memory);
}

/// A graph has fixed addresses, and sharded parameters have none.
fn is_not_recorded(_: ()) -> Result<()> {
    let group = join_job()?;
    let mut model = blocks(1, 8);
    model.to_device(gpu());
    let handle = fully_shard(&mut model, &group, Default::default())?;
    let x = Tensor::ones([2, 8], (Dtype::F32, gpu()));
    let forward = || torchrs::no_grad(|| model.forward(&x));
    let error =
        CudaGraph::capture(|| catch(forward).map(drop)).map(drop).expect_err("nothing is gathered");
    assert!(error.to_string().contains("fully_shard"), "{error}");
    // Gathered before, they could not be given back.
    handle.unshard()?;
    let (graph, _y) = CudaGraph::capture(|| Ok(forward()))?;
    let error = catch(|| handle.reshard()).unwrap_err().to_string();
    assert!(error.contains("drop the graph") && error.contains("weight"), "{error}");
    drop(graph);
    handle.reshard();
    forward();
    group.barrier()
}

#[test]
fn sharded_modules_are_not_recorded() {
    run(2, is_not_recorded);
}

/// What `memory_plan` says of a model without memory, and what the model then takes.
fn keeps_to_the_plan(_: ()) -> Result<()> {
    const WIDTH: usize = 256;
    let group = join_job()?;
    let device = cuda::device::current();
    for reshard in [true, false] {
        let mut model = Device::Meta.scope(|| blocks(4, WIDTH));
        let options = MemoryPlanOptions {
            world: Some(group.world_size()),
            groups: vec!["*".to_owned()],
            reshard_after_forward: Some(reshard),
            ..Default::default()
        };
        let plan = memory_plan(&model, options)?;
        let options =
            FullyShardOptions { reshard_after_forward: Some(reshard.into()), ..Default::default() };
        for block in model.iter_mut() {
            fully_shard(block, &group, options.clone())?;
        }
        let of_sharded = memory_plan(&model, Default::default())?;
        let figures =
            |plan: &MemoryPlan| [plan.shards(), plan.forward(), plan.backward(), plan.step()];
        assert_eq!(figures(&plan), figures(&of_sharded), "{plan}\n{of_sharded}");

        let before = memory::statistics(device)?.allocated.current;
        memory::reset_peak(device)?;
        model.to_empty(gpu());
        torchrs::manual_seed(3);
        model.reset_parameters();
        let one = plan.groups.iter().map(|group| group.whole).max().unwrap_or(0);
        let got = memory::statistics(device)?.allocated.peak - before;
        assert!(got < plan.shards() + one, "a whole parameter at most beside the parts: {got}");
        torchrs::manual_seed(3);
        let mut direct = gpu().scope(|| blocks(4, WIDTH));
        for block in direct.iter_mut() {
            fully_shard(block, &group, options.clone())?;
        }
        for (late, direct) in model.parameters().iter().zip(direct.parameters()) {
            assert!(late.detach().equal(&direct.detach()));
        }
        drop(direct);

        let mut optimizer = Adam::new(model.parameters(), Default::default());
        let x = Tensor::ones([1, WIDTH], (Dtype::F32, gpu()));
        let slack = 256 << 10;
        for step in 0..3 {
            let near = |what: &str, planned: usize, f: &mut dyn FnMut()| -> Result<()> {
                memory::reset_peak(device)?;
                f();
                let got = memory::statistics(device)?.allocated.peak - before;
                assert!(
                    got <= planned + slack,
                    "{what}, {reshard}: {got} bytes, planned {planned}\n{plan}"
                );
                // From the second step on, when the optimizer has its states.
                let is_near = step == 0 || got * 10 >= planned * 6;
                assert!(is_near, "{what}, {reshard}: only {got} bytes, planned {planned}\n{plan}");
                Ok(())
            };
            let mut loss = Tensor::from([0f32]);
            near("forward", plan.forward(), &mut || loss = model.forward(&x).square().mean())?;
            near("backward", plan.backward(), &mut || loss.backward())?;
            near("step", plan.step() + one, &mut || optimizer.step())?;
            optimizer.zero_grad();
        }
    }
    group.barrier()
}

#[test]
fn a_plan_says_what_the_allocator_gives() {
    run(2, keeps_to_the_plan);
    run(3, keeps_to_the_plan);
}
