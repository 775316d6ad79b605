//! What a user sets while a sharded model trains, and options of sharding that are about more than memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use torchrs::autograd::checkpoint;
use torchrs::distributed::{DeviceMesh, GradBucket, ProcessGroup, comm_hooks};
use torchrs::nn::parallel::{FullyShard, FullyShardOptions, MixedPrecisionPolicy, fully_shard};
use torchrs::nn::{self, Forward, Hooked, Linear, Module};
use torchrs::optim::{Adam, GradScaler, Optimizer, SGD};
use torchrs::{Dtype, Tensor, catch};

use super::on;
use crate::job::Job;

fn input(rank: usize) -> Tensor {
    Tensor::arange(0, 12, 1, Dtype::F32).reshape([3, 4]) + rank as f64
}

fn grads(layer: &Linear) -> Vec<f32> {
    layer.parameters().iter().flat_map(|p| p.grad().unwrap().to_vec::<f32>()).collect()
}

fn divided(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mut layer = Linear::new(4, 4);
    let handle = fully_shard(&mut layer, &group, Default::default()).unwrap();
    layer.forward(&input(rank)).sum().backward();
    let mean = grads(&layer);
    layer.zero_grad();
    handle.set_gradient_divide_factor(1.0).unwrap();
    layer.forward(&input(rank)).sum().backward();
    let sum: Vec<f32> = mean.iter().map(|g| g * group.world_size() as f32).collect();
    assert_eq!(grads(&layer), sum);
    let error = handle.set_gradient_divide_factor(0.0).unwrap_err().to_string();
    assert!(error.contains("is 0") && error.contains("positive"), "{error}");
}

#[test]
fn gradients_are_divided_by_what_the_user_says() {
    on(1, divided, &());
    on(2, divided, &());
}

/// Two backwards, of which the first is reduced over shards only.
fn reduced_late(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mesh = DeviceMesh::new(&group, [("replicate", 2), ("shard", -1)]).unwrap();
    torchrs::manual_seed(1);
    let (mut late, mut twice) = (Linear::new(4, 4), {
        torchrs::manual_seed(1);
        Linear::new(4, 4)
    });
    let handle = fully_shard(&mut late, &mesh, Default::default()).unwrap();
    fully_shard(&mut twice, &mesh, Default::default()).unwrap();
    for scale in [1.0, 3.0] {
        handle.set_requires_all_reduce(scale > 1.0);
        for layer in [&late, &twice] {
            (layer.forward(&input(rank)).square().sum() * scale).backward();
        }
        let is_there = late.parameters().iter().all(|p| p.grad().is_some());
        assert_eq!(is_there, scale > 1.0, "not before all replicas have added theirs");
    }
    for (a, b) in grads(&late).iter().zip(grads(&twice)) {
        assert!((a - b).abs() <= 1e-5 * b.abs(), "{a} {b}");
    }
}

#[test]
fn replicas_may_be_reduced_later() {
    on(2, reduced_late, &());
    on(4, reduced_late, &());
}

/// A hook gets the shards' gradients, and gives their means; so it does beside a factor of the user's.
fn hooked(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mesh = DeviceMesh::new(&group, [("replicate", 2), ("shard", -1)]).unwrap();
    let layer = || {
        torchrs::manual_seed(1);
        Linear::new(4, 5)
    };
    let (mut plain, mut with_hook) = (layer(), layer());
    let handles =
        [&mut plain, &mut with_hook].map(|l| fully_shard(l, &mesh, Default::default()).unwrap());
    // What it leaves in the memory that gradients are reduced in is not seen.
    let mut large = Linear::new(4, 64);
    fully_shard(&mut large, &mesh, Default::default()).unwrap();
    large.forward(&input(rank)).square().sum().backward();
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let hook = move |bucket: &GradBucket, group: &ProcessGroup| {
        assert!(bucket.index() == 0 && bucket.is_last());
        let shapes = |tensors: Vec<Tensor>| -> Vec<Vec<usize>> {
            tensors.iter().map(|t| t.shape().to_vec()).collect()
        };
        assert_eq!(shapes(bucket.gradients()), shapes(bucket.parameters()));
        let inside: f64 = bucket.gradients().iter().map(|g| g.abs().sum().item()).sum();
        let all = bucket.buffer().abs().sum().item();
        assert!((inside - all).abs() <= 1e-5 * inside, "{inside} of {all}");
        counted.fetch_add(1, Relaxed);
        comm_hooks::allreduce(bucket, group)
    };
    handles[1].register_comm_hook(hook).unwrap();
    for factor in [None, Some(3.0)] {
        for (layer, handle) in [(&plain, &handles[0]), (&with_hook, &handles[1])] {
            factor.map_or(Ok(()), |f| handle.set_gradient_divide_factor(f)).unwrap();
            layer.zero_grad();
            layer.forward(&input(rank)).square().sum().backward();
        }
        for (a, b) in grads(&plain).iter().zip(grads(&with_hook)) {
            assert!((a - b).abs() <= 1e-5 * a.abs(), "{a} {b}");
        }
    }
    assert_eq!(seen.load(Relaxed), 2);
    let again = handles[1].register_comm_hook(comm_hooks::bf16_compress).unwrap_err().to_string();
    assert!(again.contains("one hook"), "{again}");
    // Half the bytes.
    handles[0].register_comm_hook(comm_hooks::bf16_compress).unwrap();
    plain.zero_grad();
    let step = || plain.forward(&input(rank)).square().sum().backward();
    let profile = torchrs::profiler::profile(step).1;
    let is_reduced = |e: &&torchrs::profiler::Event| e.name == "all_reduce" && e.bytes.is_some();
    let bytes: usize = profile.events().iter().filter(is_reduced).filter_map(|e| e.bytes).sum();
    let shards: usize = plain.parameters().iter().map(|p| p.numel()).sum();
    assert!(bytes >= shards * 2 && bytes < shards * 2 + 2 * 64, "{bytes} bytes of {shards}");
    for (a, b) in grads(&plain).iter().zip(grads(&with_hook)) {
        assert!((a - b).abs() <= 0.02 * b.abs().max(0.1), "{a} {b}");
    }
    let flat = fully_shard(&mut layer(), &group, Default::default()).unwrap();
    let error = flat.register_comm_hook(comm_hooks::allreduce).unwrap_err().to_string();
    assert!(error.contains("reduce_dtype"), "{error}");
}

#[test]
fn a_hook_averages_over_replicas() {
    on(2, hooked, &());
    on(4, hooked, &());
}

/// Whoever uses gradients while a switch holds some back is told of it.
fn held_back(rank: usize, (job, replicas): (Job, bool)) {
    let group = job.join(rank);
    let replicas = if replicas { 2 } else { 1 };
    let mesh = DeviceMesh::new(&group, [("replicate", replicas), ("shard", -1)]).unwrap();
    let mut layer = Linear::new(4, 4);
    let handle = fully_shard(&mut layer, &mesh, Default::default()).unwrap();
    let mut sgd = SGD::new(layer.parameters(), Default::default());
    let backward = || layer.forward(&input(rank)).square().mean().backward();
    backward();
    let expected = grads(&layer);
    let (switch, setter): (fn(&FullyShard, bool), _) = match replicas {
        1 => (FullyShard::set_requires_gradient_sync, "set_requires_gradient_sync"),
        _ => (FullyShard::set_requires_all_reduce, "set_requires_all_reduce"),
    };
    switch(&handle, false);
    // Also where the shards have gradients of a backward before.
    for fresh in [false, true] {
        if fresh {
            sgd.zero_grad();
        }
        backward();
        let mut scaler = GradScaler::new(Default::default());
        let told = [
            catch(|| sgd.step()).err(),
            catch(|| scaler.unscale_(&mut sgd)).err(),
            catch(|| nn::clip_grad_norm_(&layer.parameters(), 1.0)).err(),
            catch(|| nn::utils::clip_grad_value_(&layer.parameters(), 1.0)).err(),
        ];
        for error in told {
            let error = error.expect("gradients are held back").to_string();
            let parts = ["`weight`, `bias`".to_owned(), format!("`{setter}(true)`")];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
    for to_zeros in [false, true] {
        switch(&handle, false);
        backward();
        if to_zeros {
            sgd.zero_grad_to_zeros()
        } else {
            sgd.zero_grad()
        }
        switch(&handle, true);
        backward();
        assert_eq!(grads(&layer), expected, "nothing of the backward before is left");
        sgd.zero_grad();
    }
    backward();
    sgd.step();
}

#[test]
fn gradients_that_are_held_back_are_not_stepped_over() {
    on(1, held_back, &false);
    on(2, held_back, &false);
    on(4, held_back, &true);
}

/// Forward and backward fail on all ranks; what they left is forgotten.
fn reset(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mut layers = [Linear::new(4, 4), Linear::new(4, 4)];
    let handles = layers.each_mut().map(|l| fully_shard(l, &group, Default::default()).unwrap());
    let step = || layers[1].forward(&layers[0].forward(&input(0)).tanh()).sum().backward();
    step();
    let expected = layers.each_ref().map(grads);
    let failed = catch(|| {
        let hidden = layers[0].forward(&input(0)).tanh();
        handles[1].set_requires_gradient_sync(false);
        layers[1].forward(&hidden).sum().backward();
        panic!("in the middle");
    });
    assert!(failed.is_err());
    handles[1].set_requires_gradient_sync(true);
    handles.iter().for_each(|handle| handle.reset_iter_state());
    layers.iter().for_each(Module::zero_grad);
    step();
    assert_eq!(layers.each_ref().map(grads), expected);
}

#[test]
fn an_iteration_that_failed_is_forgotten() {
    on(2, reset, &());
}

/// Activations that are computed again gather the parameters again.
fn checkpointed(rank: usize, (job, keeps): (Job, bool)) {
    let group = job.join(rank);
    let run = |again: bool| {
        torchrs::manual_seed(8);
        let block = || (Linear::new(4, 6), Linear::new(6, 4));
        let mut blocks: Vec<(Linear, Linear)> = (0..3).map(|_| block()).collect();
        let options = FullyShardOptions {
            reshard_after_forward: Some((!keeps).into()),
            ..Default::default()
        };
        for layer in blocks.iter_mut().flat_map(|(a, b)| [a, b]) {
            fully_shard(layer, &group, options.clone()).unwrap();
        }
        let blocks: Vec<Arc<(Linear, Linear)>> = blocks.into_iter().map(Arc::new).collect();
        let params = || blocks.iter().flat_map(|b| [b.0.parameters(), b.1.parameters()].concat());
        let mut adam = Adam::new(params().collect::<Vec<_>>(), Default::default());
        for _ in 0..3 {
            let y = blocks.iter().fold(input(rank).requires_grad_(true), |x, block| {
                let block = block.clone();
                let f = move |x: &[Tensor]| &x[0] + block.1.forward(&block.0.forward(&x[0]).gelu());
                if again { checkpoint(f, &[&x]) } else { f(&[x]) }
            });
            y.square().mean().backward();
            adam.step();
            adam.zero_grad();
        }
        params().flat_map(|p| p.to_vec::<f32>()).collect::<Vec<f32>>()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn activations_that_are_computed_again_give_the_same_bits() {
    on(2, checkpointed, &false);
    on(2, checkpointed, &true);
}

/// Inputs and outputs are cast where forward has hooks.
fn cast(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mp_policy = MixedPrecisionPolicy {
        param_dtype: Some(Dtype::BF16),
        output_dtype: Some(Dtype::F32),
        cast_forward_inputs: true,
        ..Default::default()
    };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    let mut layer = Hooked::new(Linear::new(4, 4));
    fully_shard(&mut layer, &group, options.clone()).unwrap();
    let x = input(rank).requires_grad_(true);
    let y = layer.forward(&x);
    assert_eq!(y.dtype(), Dtype::F32);
    y.sum().backward();
    assert_eq!(x.grad().unwrap().dtype(), Dtype::F32);

    let error = fully_shard(&mut Linear::new(4, 4), &group, options).unwrap_err().to_string();
    assert!(error.contains("cast_forward_inputs") && error.contains("nn::Hooked"), "{error}");
    let mp_policy = MixedPrecisionPolicy { output_dtype: Some(Dtype::F32), ..Default::default() };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    let error = fully_shard(&mut Linear::new(4, 4), &group, options).unwrap_err().to_string();
    assert!(error.contains("output_dtype") && error.contains("`Linear`"), "{error}");
    let mp_policy = MixedPrecisionPolicy { cast_forward_inputs: true, ..Default::default() };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    let error = fully_shard(&mut Linear::new(4, 4), &group, options).unwrap_err().to_string();
    assert!(error.contains("without param_dtype"), "{error}");

    // Without a cast.
    let mp_policy = MixedPrecisionPolicy { param_dtype: Some(Dtype::BF16), ..Default::default() };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    let mut layer = Linear::new(4, 4);
    fully_shard(&mut layer, &group, options).unwrap();
    let error = catch(|| layer.forward(&input(rank))).unwrap_err().to_string();
    assert!(error.contains("f32") && error.contains("bf16"), "{error}");
}

#[test]
fn inputs_and_outputs_are_cast_where_forward_has_hooks() {
    on(2, cast, &());
}

fn smaller(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let options = FullyShardOptions { reshard_after_forward: Some(3.into()), ..Default::default() };
    let error = fully_shard(&mut Linear::new(4, 4), &group, options).unwrap_err().to_string();
    assert!(error.contains("To(3): 4 ranks are 1 times 3 and 1 more; it can be 2"), "{error}");
}

#[test]
fn a_smaller_world_that_does_not_divide_the_ranks_is_refused() {
    on(4, smaller, &());
}
