//! The samples of all ops on a GPU against the CPU: values, gradients, and gradients of gradients; and of a part of
//! them the gradients against finite differences on the GPU. A process of its own does it, on a simulated GPU.

use std::collections::HashMap;

use super::samples::{OpSample, Order};
use super::{compare, converted, cotangent, gradients, leaves, wanted};
use crate::autograd::{self, GradcheckOptions};
use crate::backends;
use crate::cuda::simulated_test::on_gpu;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

const GPU: Device = Device::Cuda(0);
/// Elements of a sample's inputs that finite differences are taken by.
const DIFFERENCES: usize = 16;
/// Samples of which they are taken at the least.
const LEAST_DIFFERENCES: usize = 50;
/// The family whose second derivatives are errors on GPUs.
const FIRST_ONLY: &str = "embedding_bag";
/// What errors say of ops that have no kernel for GPUs.
const REFUSALS: [&str; 3] =
    ["computes on the CPU only", "run on the CPU only", "and this computes on the CPU"];

fn on(device: Device, tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(|t| t.to_device(device)).collect()
}

/// The value, then the gradients of the inputs, then their gradients for fixed directions, as far as the sample has
/// them, and only to this order.
fn results(
    sample: &OpSample,
    order: Order,
    inputs: &[Tensor],
    device: Device,
) -> Vec<(String, Tensor)> {
    let inputs = leaves(&on(device, inputs));
    let y = (sample.f)(&inputs);
    let mut all = vec![("value".to_owned(), y.detach())];
    let floats = wanted(&inputs);
    let order = order.min(sample.order);
    if order == Order::None || floats.is_empty() || !y.requires_grad() {
        return all;
    }
    let w = cotangent(&y, 1).to_device(device);
    let second = order == Order::Second && y.dtype() == Dtype::F64;
    let grads = gradients(sample, &inputs, &w, second);
    let name = |i| format!("gradient {i}");
    all.extend(grads.iter().enumerate().map(|(i, g)| (name(i), g.detach())));
    let roots: Vec<&Tensor> = grads.iter().filter(|g| second && g.requires_grad()).collect();
    if roots.is_empty() {
        return all;
    }
    let directions: Vec<_> = roots.iter().map(|g| cotangent(g, 2).to_device(device)).collect();
    let directions: Vec<_> = directions.iter().map(Some).collect();
    let second = autograd::grad(&roots, &floats, &directions, autograd::GraphMode::Free);
    let second = second.into_iter().enumerate().filter_map(|(i, g)| Some((i, g?)));
    all.extend(second.map(|(i, g)| (format!("second gradient {i}"), g)));
    all
}

/// Whether a sample's results on the GPU are those on the CPU, to this order in f64 and to the first in f32.
fn agrees(sample: &OpSample, order: Order) -> Result<(), String> {
    for (dtype, tolerance) in [(Dtype::F64, 1e-10), (Dtype::F32, 1e-5)] {
        let inputs = converted(&sample.inputs, dtype);
        let expected = results(sample, order, &inputs, Device::Cpu);
        let found = results(sample, order, &inputs, GPU);
        if found.len() != expected.len() {
            return Err(format!("{dtype}: {} results, not {}", found.len(), expected.len()));
        }
        for ((what, want), (_, got)) in expected.iter().zip(&found) {
            if got.device() != GPU || got.dtype() != want.dtype() {
                let (dtype, device) = (got.dtype(), got.device());
                return Err(format!("{what} is {dtype} on {device}, not {}", want.dtype()));
            }
            let tolerance = if got.dtype() == Dtype::F32 { 1e-5 } else { tolerance };
            compare(&format!("{dtype} {what}"), got, want, tolerance * sample.slack)?;
        }
    }
    Ok(())
}

/// Finite differences on the GPU of the first samples of some families, of no more elements than are soon done.
fn differences(samples: &[OpSample]) -> Vec<String> {
    let mut families: HashMap<&str, usize> = HashMap::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for sample in samples.iter().filter(|sample| sample.order != Order::None) {
        let inputs = leaves(&on(GPU, &converted(&sample.inputs, Dtype::F64)));
        let numbers: usize = wanted(&inputs).iter().map(|t| t.numel()).sum();
        let family = sample.name.split(['(', ' ', ',']).next().unwrap_or_default();
        let taken = families.entry(family).or_insert(0);
        if *taken > 0 || !(1..=DIFFERENCES).contains(&numbers) {
            continue;
        }
        *taken += 1;
        count += 1;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let options = GradcheckOptions { eps: 1e-5, ..Default::default() };
        let check = || autograd::gradcheck(|t| (sample.f)(t), &inputs, options);
        let outcome = crate::error::catch(std::panic::AssertUnwindSafe(check)).and_then(|r| r);
        wrong.extend(outcome.err().map(|why| format!("{}: {why}", sample.name)));
    }
    println!("finite differences of {count} samples");
    assert!(count >= LEAST_DIFFERENCES, "finite differences of {count} samples only");
    wrong
}

/// Checks all samples; fails with those that disagree.
fn inside() {
    backends::cudnn::set_allow_tf32(false);
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let samples = super::all_samples();
    for sample in &samples {
        let check = |order| {
            crate::error::catch(|| agrees(sample, order)).unwrap_or_else(|e| Err(e.to_string()))
        };
        let failed = |why: String| format!("{}: {why}", sample.name);
        match check(Order::Second) {
            Ok(()) => {}
            Err(why)
                if sample.name.starts_with(FIRST_ONLY)
                    && REFUSALS.iter().any(|text| why.contains(text)) =>
            {
                refused += 1;
                wrong.extend(check(Order::First).err().map(failed));
            }
            Err(why) => wrong.push(failed(why)),
        }
    }
    println!(
        "{} samples; {refused} of {FIRST_ONLY} have no second derivatives on GPUs",
        samples.len()
    );
    wrong.extend(differences(&samples));
    assert!(wrong.is_empty(), "{} samples disagree:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn samples_agree_with_the_cpu() {
    on_gpu("ops::checks::on_gpu::samples_agree_with_the_cpu", inside);
}
