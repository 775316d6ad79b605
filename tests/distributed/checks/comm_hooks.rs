//! What communication hooks promise, on any device: run by the tests of CPUs and of simulated GPUs.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use torchrs::distributed::comm_hooks::{self, PowerSgd, PowerSgdOptions};
use torchrs::distributed::{
    CommHook, DDPOptions, DistributedDataParallel, GradBucket, ProcessGroup, ReduceOp,
};
use torchrs::nn::{Forward, Linear, Module, Parameter, Sequential, SyncBatchNorm};
use torchrs::ops::linalg;
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Device, Dtype, Error, Result, Tensor, catch};

/// Parameters whose gradients are given: those of `sum(parameter * given)`.
#[derive(Module)]
struct Given {
    a: Parameter,
    b: Parameter,
    c: Parameter,
}

impl Given {
    fn new(device: Device) -> Given {
        let zeros = |shape: &[usize]| Parameter::new(Tensor::zeros(shape, (Dtype::F32, device)));
        Given { a: zeros(&[12, 8]), b: zeros(&[8]), c: zeros(&[6, 2, 10]) }
    }

    /// Sets the gradients and has them averaged.
    fn backward(&self, gradients: &[Tensor; 3]) {
        let products =
            [&self.a, &self.b, &self.c].into_iter().zip(gradients).map(|(p, g)| (&**p * g).sum());
        products.reduce(|a, b| a + b).expect("three").backward();
    }

    /// The averaged gradients, on the host, which are then gone.
    fn take(&self) -> Vec<Tensor> {
        let taken = self
            .parameters()
            .iter()
            .map(|p| p.grad().expect("averaged").cpu().clone_contiguous())
            .collect();
        self.zero_grad();
        taken
    }
}

/// Every parameter has a bucket of its own.
fn options() -> DDPOptions {
    DDPOptions { first_bucket_mb: 1e-6, bucket_cap_mb: 1e-6, ..Default::default() }
}

fn wrap(group: &ProcessGroup, device: Device) -> Result<DistributedDataParallel<Given>> {
    DistributedDataParallel::with_options(Given::new(device), group, options())
}

/// A rank's gradients: eighths, so that means are exact in bf16 too.
fn eighths(rank: usize, device: Device) -> [Tensor; 3] {
    let make = |shape: &[usize], seed: usize| {
        let numel = shape.iter().product::<usize>();
        let values: Vec<f32> =
            (0..numel).map(|i| ((i * 7 + seed + rank * 3) % 11) as f32 / 8.0).collect();
        Tensor::from_slice(&values, shape).to_device(device)
    };
    [make(&[12, 8], 1), make(&[8], 2), make(&[6, 2, 10], 3)]
}

fn random(rank: usize, device: Device) -> [Tensor; 3] {
    torchrs::manual_seed(50 + rank as u64);
    [&[12, 8][..], &[8], &[6, 2, 10]]
        .map(|shape| Tensor::randn(shape, Dtype::F32).to_device(device))
}

/// The mean over the ranks, on the host.
fn means(group: &ProcessGroup, gradients: fn(usize, Device) -> [Tensor; 3]) -> Vec<Tensor> {
    let all: Vec<[Tensor; 3]> =
        (0..group.world_size()).map(|rank| gradients(rank, Device::Cpu)).collect();
    let mean = |i: usize| {
        let sum = all.iter().map(|rank| rank[i].to_dtype(Dtype::F64)).reduce(|a, b| a + b);
        sum.expect("ranks") / group.world_size() as f64
    };
    (0..3).map(mean).collect()
}

fn close(got: &Tensor, want: &Tensor, tolerance: f64, what: &str) {
    let (got, want) = (got.cpu().to_dtype(Dtype::F64), want.cpu().to_dtype(Dtype::F64));
    let worst = (&got - &want).abs().max().item();
    assert!(worst <= tolerance, "{what}: off by {worst}");
}

/// All ranks have these bits.
fn same_everywhere(group: &ProcessGroup, tensor: &Tensor) -> Result<()> {
    let all = group.all_gather(&tensor.contiguous())?;
    assert!(all.iter().all(|theirs| theirs.equal(&all[0])));
    Ok(())
}

/// One backward with `hook`; the averaged gradients.
fn once(
    group: &ProcessGroup,
    device: Device,
    gradients: fn(usize, Device) -> [Tensor; 3],
    hook: impl CommHook + 'static,
) -> Result<Vec<Tensor>> {
    let model = wrap(group, device)?;
    model.register_comm_hook(hook)?;
    model.backward(&gradients(group.rank(), device));
    let taken = model.take();
    taken.iter().try_for_each(|t| same_everywhere(group, t))?;
    Ok(taken)
}

/// The hooks of the library give the mean, as exact as they promise.
pub fn averages(group: &ProcessGroup, device: Device) -> Result<()> {
    let exact = means(group, eighths);
    let check = |name: &str, got: Result<Vec<Tensor>>, tolerance: f64| -> Result<()> {
        got?.iter().zip(&exact).for_each(|(got, want)| close(got, want, tolerance, name));
        Ok(())
    };
    check("allreduce", once(group, device, eighths, comm_hooks::allreduce), 0.0)?;
    check("f16", once(group, device, eighths, comm_hooks::fp16_compress), 0.0)?;
    check("bf16", once(group, device, eighths, comm_hooks::bf16_compress), 0.0)?;
    let wrapped = comm_hooks::fp16_compress_wrapper(comm_hooks::allreduce);
    check("f16 wrapper", once(group, device, eighths, wrapped), 0.0)?;
    let wrapped = comm_hooks::bf16_compress_wrapper(comm_hooks::allreduce);
    check("bf16 wrapper", once(group, device, eighths, wrapped), 0.0)?;
    // A new tensor in place of the buffer, by a closure that calls two collectives.
    let halves = |bucket: &GradBucket, group: &ProcessGroup| {
        let half = bucket.buffer() * 0.5;
        let other = half.clone_contiguous();
        let work = group.all_reduce_async(&half, ReduceOp::Avg)?;
        group.all_reduce(&other, ReduceOp::Avg)?;
        work.wait()?;
        Ok(half + other)
    };
    check("closure", once(group, device, eighths, halves), 0.0)?;
    // Rounded: f16 has 11 bits, bf16 8.
    let (rounded, exact) =
        (once(group, device, random, comm_hooks::fp16_compress)?, means(group, random));
    rounded.iter().zip(&exact).for_each(|(got, want)| close(got, want, 4e-3, "rounded to f16"));
    Ok(())
}

/// Buckets come in order, all but the last one beside backward.
pub fn runs_beside_backward(group: &ProcessGroup, device: Device) -> Result<()> {
    type Seen = Vec<(usize, bool, Vec<usize>, ThreadId)>;
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let model = wrap(group, device)?;
    let log = seen.clone();
    model.register_comm_hook(move |bucket: &GradBucket, group: &ProcessGroup| {
        let shape = bucket.parameters()[0].shape().to_vec();
        assert_eq!(bucket.gradients()[0].shape(), shape);
        assert!(bucket.buffer().device() == device && !torchrs::autograd::is_grad_enabled());
        log.lock().unwrap().push((bucket.index(), bucket.is_last(), shape, thread::current().id()));
        comm_hooks::allreduce(bucket, group)
    })?;
    assert!(model.register_comm_hook(comm_hooks::allreduce).is_err(), "one hook per model");
    let here = thread::current().id();
    for step in 1..3 {
        model.backward(&eighths(group.rank(), device));
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 3 * step);
        for (i, (index, is_last, shape, thread)) in seen.iter().enumerate() {
            assert_eq!((*index, *is_last), (i % 3, i % 3 == 2));
            assert_eq!(shape, [&[6, 2, 10][..], &[8], &[12, 8]][i % 3]);
            assert_eq!(*thread == here, *is_last, "bucket {index}");
        }
    }
    Ok(())
}

fn power(rank: usize, options: PowerSgdOptions) -> PowerSgd {
    let options = PowerSgdOptions { matrix_approximation_rank: rank, start_iter: 0, ..options };
    PowerSgd::new(options).expect("right options")
}

/// PowerSGD is exact at full rank, a projection below, and the best one after some steps.
pub fn approximates(group: &ProcessGroup, device: Device) -> Result<()> {
    let exact = means(group, random);
    let defaults = PowerSgdOptions::default();
    let always = PowerSgdOptions { min_compression_rate: 0.0, ..defaults };
    for hook in [power(20, always), PowerSgd::new(defaults)?] {
        let got = once(group, device, random, hook)?;
        got.iter().zip(&exact).for_each(|(got, want)| close(got, want, 2e-5, "full rank"));
    }
    let wrapped = comm_hooks::bf16_compress_wrapper(power(20, always));
    let got = once(group, device, random, wrapped)?;
    got.iter().zip(&exact).for_each(|(got, want)| close(got, want, 0.15, "full rank in bf16"));

    // The same gradients again and again, without what was left: converges to the singular vectors.
    let model = wrap(group, device)?;
    let hook =
        Arc::new(Mutex::new(power(2, PowerSgdOptions { use_error_feedback: false, ..defaults })));
    model.register_comm_hook(hook.clone())?;
    let matrix = &exact[0];
    let mut distances = Vec::new();
    for _ in 0..30 {
        model.backward(&random(group.rank(), device));
        let got = model.take();
        close(&got[1], &exact[1], 1e-6, "a bias is sent whole");
        let got = got[0].to_dtype(Dtype::F64);
        let left = matrix - &got;
        assert!((&left * &got).sum().item().abs() < 1e-4, "what is left stands at right angles");
        distances.push(left.norm().item());
    }
    let values = linalg::svdvals(matrix).to_vec::<f64>();
    let best = values[2..].iter().map(|v| v * v).sum::<f64>().sqrt();
    let last = distances[distances.len() - 1];
    assert!(last >= best - 1e-6 && last < 1.02 * best, "{last}, the best is {best}: {distances:?}");
    let (rate, before, after) = hook.lock().unwrap().compression_stats();
    // 12 + 8 and 6 + 20 numbers twice, and the bias.
    assert_eq!((before, after), (30 * 224, 30 * (40 + 52 + 8)));
    assert!((rate - 2.24).abs() < 1e-9);
    Ok(())
}

/// What a step leaves out comes in later ones; the first steps are plain; other seeds are other numbers.
pub fn feeds_errors_back(group: &ProcessGroup, device: Device) -> Result<()> {
    let exact = means(group, random);
    for warm_start in [true, false] {
        let model = wrap(group, device)?;
        let options = PowerSgdOptions { start_iter: 2, warm_start, ..Default::default() };
        model.register_comm_hook(PowerSgd::new(options)?)?;
        let mut sum = exact[0].zeros_like();
        let steps = 40;
        for step in 0..steps {
            model.backward(&random(group.rank(), device));
            let got = model.take();
            let tolerance = if step < 2 { 1e-6 } else { f64::INFINITY };
            close(&got[0], &exact[0], tolerance, "a plain step");
            sum = sum + got[0].to_dtype(Dtype::F64);
        }
        // Without feedback the mean of any number of steps would lack most of the matrix.
        let missing = (sum / f64::from(steps) - &exact[0]).norm().item() / exact[0].norm().item();
        assert!(missing < 0.35, "warm {warm_start}: {missing}");
    }
    let first = |seed: u64| {
        let options = PowerSgdOptions { random_seed: seed, ..Default::default() };
        once(group, device, random, power(1, options))
    };
    let (a, b, c) = (first(1)?, first(1)?, first(2)?);
    assert!(a[0].equal(&b[0]) && !a[0].equal(&c[0]));
    Ok(())
}

/// Backward's own collectives, a synchronised batch norm's, keep their place among those of hooks.
pub fn keeps_the_order_of_collectives(group: &ProcessGroup, device: Device) -> Result<()> {
    torchrs::manual_seed(5);
    let model = Sequential::new()
        .append(Linear::new(8, 16))
        .append(SyncBatchNorm::new(16))
        .append(Linear::new(16, 16))
        .append(SyncBatchNorm::new(16))
        .append(Linear::new(16, 4));
    let mut model = SyncBatchNorm::convert_sync_batchnorm(model, Some(group));
    model.to_device(device);
    let model = DistributedDataParallel::with_options(model, group, options())?;
    model.register_comm_hook(power(2, PowerSgdOptions::default()))?;
    let mut optimizer = SGD::new(model.parameters(), SGDOptions { lr: 0.05, ..Default::default() });
    torchrs::manual_seed(100 + group.rank() as u64);
    let x = Tensor::randn([16, 8], Dtype::F32).to_device(device);
    let target = Tensor::randn([16, 4], Dtype::F32).to_device(device);
    let mut losses = Vec::new();
    for _ in 0..15 {
        optimizer.zero_grad();
        let loss = (model.forward(&x) - &target).square().mean();
        loss.backward();
        optimizer.step();
        group.all_reduce(&loss.detach(), ReduceOp::Avg)?;
        losses.push(loss.item());
    }
    assert!(losses[14] < 0.9 * losses[0], "{losses:?}");
    model.parameters().iter().try_for_each(|p| same_everywhere(group, &p.detach()))
}

/// The error of a model with `hook`. A rank whose hook fails has left the model's first broadcast, which another
/// may be about to leave: that one is told there.
fn failure_with(group: &ProcessGroup, device: Device, hook: impl CommHook + 'static) -> Error {
    let step = || {
        let model = wrap(group, device)?;
        model.register_comm_hook(hook)?;
        model.backward(&eighths(group.rank(), device));
        Ok(())
    };
    catch(step).and_then(|step| step).unwrap_err()
}

/// FAULTS row 33: a hook that gives a wrong shape or dtype. Ends the group.
pub fn refuses_a_wrong_result(group: &ProcessGroup, device: Device, dtype: bool) -> Result<()> {
    let error = failure_with(group, device, move |bucket: &GradBucket, _: &ProcessGroup| {
        let buffer = bucket.buffer();
        Ok(if dtype { buffer.to_dtype(Dtype::F16) } else { buffer.narrow(0, 0, 5) })
    });
    let text = error.to_string();
    let wrong = if dtype { "returned f16 [128] on" } else { "returned f32 [5] on" };
    assert!(text.contains(wrong) && text.contains("bucket 0, which is f32 [128]"), "{text}");
    assert!(group.barrier().is_err(), "the group is at its end");
    Ok(())
}

/// A hook that panics on one rank ends the others' collectives.
pub fn fails_on_one_rank(group: &ProcessGroup, device: Device) -> Result<()> {
    let fails = group.rank() == 1;
    let start = std::time::Instant::now();
    let error = failure_with(group, device, move |bucket: &GradBucket, group: &ProcessGroup| {
        assert!(!fails || bucket.index() != 1, "no space left in the hook");
        comm_hooks::allreduce(bucket, group)
    });
    assert!(error.to_string().contains("no space left in the hook"), "{error}");
    assert!(fails || matches!(error, Error::Aborted(_)), "{error:?}");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    Ok(())
}
