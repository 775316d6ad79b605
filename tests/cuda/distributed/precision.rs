//! Synchronised batch norms and mixed precision on GPUs, against the same on the CPU.

use torchrs::amp::{GradScaler, GradScalerOptions, autocast};
use torchrs::distributed::{DistributedDataParallel, ProcessGroup};
use torchrs::nn::{self, BatchNorm1d, Forward, Linear, Module, Sequential, SyncBatchNorm};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Device, Dtype, Result, Tensor, cuda};

use super::job::{ADVERSARY, gpu, join_job, run, run_with};

fn close(a: &Tensor, b: &Tensor, tolerance: f64, what: &str) {
    let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * (1.0 + b.abs());
    assert!(a.len() == b.len() && a.iter().zip(&b).all(near), "{what}: {a:?} {b:?}");
}

/// Result, gradients and running statistics of a synchronised batch norm; ranks have other numbers of rows.
fn normalises(group: &ProcessGroup, device: Device, dtype: Dtype) -> Result<Vec<Tensor>> {
    let mut norm = SyncBatchNorm::new(5).process_group(group);
    norm.to_device(device);
    torchrs::manual_seed(3 + group.rank() as u64);
    let x = Tensor::randn([3 + 2 * group.rank(), 5, 4], Dtype::F32).to_dtype(dtype);
    let weights = Tensor::randn(x.shape(), Dtype::F32).to_device(device).to_dtype(dtype);
    let x = x.to_device(device).requires_grad_(true);
    let before = cuda::synchronisations();
    let y = norm.forward(&x);
    let loss = (&y * &weights).sum();
    loss.backward();
    assert_eq!(cuda::synchronisations(), before, "nothing waits");
    let mut all = vec![y.detach(), x.grad().unwrap()];
    all.extend(norm.named_parameters().iter().map(|(_, p)| p.grad().unwrap()));
    all.extend(norm.named_buffers().into_iter().map(|(_, b)| b));
    Ok(all.iter().map(Tensor::cpu).collect())
}

fn batch_norms(_: ()) -> Result<()> {
    let group = join_job()?;
    for (dtype, tolerance) in [(Dtype::F32, 1e-4), (Dtype::F64, 1e-10), (Dtype::F16, 1e-2)] {
        let there = normalises(&group, gpu(), dtype)?;
        for (a, b) in there.iter().zip(&normalises(&group, Device::Cpu, dtype)?) {
            close(a, b, tolerance, &dtype.to_string());
        }
    }
    Ok(())
}

#[test]
fn synchronised_batch_norms_are_the_hosts() {
    run_with(2, [&[(ADVERSARY, "8")], &[]], batch_norms);
}

/// Losses, scales and the final parameters of a few steps in mixed precision. In step 2 the gradients
/// overflow on rank 1.
fn trains(group: &ProcessGroup, device: Device, dtype: Dtype) -> Result<[Vec<Tensor>; 3]> {
    torchrs::manual_seed(7);
    let mut model = Sequential::new()
        .append(Linear::new(20, 32))
        .append(BatchNorm1d::new(32))
        .append(nn::ReLU)
        .append(Linear::new(32, 5));
    model.to_device(device);
    let model = DistributedDataParallel::new(model, group)?;
    let mut optimizer =
        SGD::new(model.parameters(), SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() });
    let mut scaler = GradScaler::new(GradScalerOptions {
        init_scale: 1024.0,
        growth_interval: 3,
        enabled: dtype == Dtype::F16,
        ..Default::default()
    });
    torchrs::manual_seed(100 + group.rank() as u64);
    let (mut losses, mut scales) = (Vec::new(), Vec::new());
    for step in 0..7 {
        let x = Tensor::randn([16, 20], Dtype::F32).to_device(device);
        let labels = Tensor::randint(0, 5, [16], Dtype::I64).to_device(device);
        let before = cuda::synchronisations();
        optimizer.zero_grad();
        let loss = autocast(device, dtype, || {
            let y = model.forward(&x);
            assert_eq!(y.dtype(), dtype);
            y.cross_entropy(&labels)
        });
        let overflows = dtype == Dtype::F16 && step == 2 && group.rank() == 1;
        scaler.scale(&if overflows { &loss * 1e38 } else { loss.clone() }).backward();
        if step % 2 == 0 {
            scaler.unscale_(&mut optimizer);
            nn::clip_grad_norm_(&model.parameters(), 10.0);
        }
        // One wait a step, for what the scaler has to know; without a scaler none.
        let waits = u64::from(dtype == Dtype::F16 && device != Device::Cpu);
        assert_eq!(cuda::synchronisations() - before, 0, "before the step");
        let stepped = scaler.step(&mut optimizer);
        assert_eq!(stepped, dtype != Dtype::F16 || step != 2);
        scaler.update();
        assert_eq!(cuda::synchronisations() - before, waits);
        losses.push(loss.detach().cpu());
        scales.push(Tensor::from([scaler.get_scale()]));
    }
    Ok([losses, scales, model.parameters().iter().map(|p| p.detach().cpu()).collect()])
}

fn mixed_precision(_: ()) -> Result<()> {
    let group = join_job()?;
    for (dtype, tolerance) in [(Dtype::F16, 1e-2), (Dtype::BF16, 6e-2)] {
        let (there, here) = (trains(&group, gpu(), dtype)?, trains(&group, Device::Cpu, dtype)?);
        for (what, tolerance) in [(0, tolerance), (1, 0.0), (2, tolerance)] {
            for (a, b) in there[what].iter().zip(&here[what]) {
                close(a, b, tolerance, &format!("{dtype} {what}"));
            }
        }
        if dtype == Dtype::F16 {
            let scales: Vec<f64> = there[1].iter().map(Tensor::item).collect();
            assert_eq!(scales, [1024.0, 1024.0, 512.0, 512.0, 512.0, 1024.0, 1024.0]);
        }
        // The overflow of one rank is all ranks' step less.
        for parameter in &there[2] {
            let all = group.all_gather(parameter)?;
            assert!(all[0].equal(&all[1]));
        }
    }
    Ok(())
}

#[test]
fn mixed_precision_with_ddp_goes_as_on_the_host() {
    run(2, mixed_precision);
}
