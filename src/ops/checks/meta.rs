//! The samples of all ops on the meta device: shapes, dtypes and the order in memory are those that the CPU gives, also
//! of gradients.

use super::samples::OpSample;
use super::{converted, cotangent, for_all, gradients, leaves};
use crate::autograd::no_grad;
use crate::error::catch;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// Samples of ops that look at values to find their results' shapes, or at what is to be done: by their names' beginnings.
const OF_VALUES: &[&str] = &["index [mask]", "index, i64", "masked_select", "nonzero"];

fn is_of_values(sample: &OpSample) -> bool {
    OF_VALUES.iter().any(|name| sample.name.starts_with(name))
}

fn on_meta(inputs: &[Tensor]) -> Vec<Tensor> {
    let moved = |t: &Tensor| t.detach().to_device(Device::Meta).requires_grad_(t.requires_grad());
    inputs.iter().map(moved).collect()
}

fn compare_kinds(what: &str, got: &Tensor, want: &Tensor) -> Result<(), String> {
    if !got.device().is_meta() {
        return Err(format!("{what} is on {}", got.device()));
    }
    let kind = |t: &Tensor| (t.shape().to_vec(), t.dtype(), strides(t));
    match kind(got) == kind(want) {
        true => Ok(()),
        false => Err(format!("{what} is {:?}, on the CPU {:?}", kind(got), kind(want))),
    }
}

/// Strides, but for dimensions in which there are no steps.
fn strides(t: &Tensor) -> Vec<isize> {
    if t.numel() == 0 {
        return Vec::new();
    }
    let steps = t.shape().iter().zip(t.strides()).map(|(&n, &s)| if n > 1 { s } else { 0 });
    steps.collect()
}

#[test]
fn results_have_the_shapes_that_the_cpu_gives() {
    for_all(|sample| {
        for dtype in [Dtype::F64, Dtype::F32, Dtype::BF16] {
            if dtype == Dtype::BF16 && !sample.half {
                continue;
            }
            let inputs = converted(&sample.inputs, dtype);
            let want = no_grad(|| (sample.f)(&inputs));
            let got = catch(|| no_grad(|| (sample.f)(&on_meta(&inputs))));
            match got {
                Ok(_) if is_of_values(sample) => return Err("works after all".to_owned()),
                Ok(got) => compare_kinds(&format!("the result in {dtype}"), &got, &want)?,
                Err(error) if is_of_values(sample) && error.to_string().contains("meta") => {}
                Err(error) => return Err(format!("in {dtype}: {error}")),
            }
        }
        Ok(())
    });
}

#[test]
fn gradients_have_the_shapes_that_the_cpu_gives() {
    for_all(|sample| {
        if is_of_values(sample) || sample.inputs.iter().all(|t| !t.dtype().is_floating_point()) {
            return Ok(());
        }
        let inputs = leaves(&sample.inputs);
        let w = cotangent(&no_grad(|| (sample.f)(&inputs)), 3);
        if !(sample.f)(&inputs).requires_grad() {
            return Ok(());
        }
        let want = gradients(sample, &inputs, &w, false);
        let got = catch(|| gradients(sample, &on_meta(&inputs), &w.to_device(Device::Meta), false));
        let got = got.map_err(|error| error.to_string())?;
        for (k, (got, want)) in got.iter().zip(&want).enumerate() {
            compare_kinds(&format!("gradient {k}"), got, want)?;
        }
        Ok(())
    });
}

#[test]
fn tensors_on_the_host_are_computed_in_a_scope_of_another_device_as_ever() {
    for_all(|sample| {
        let inputs = leaves(&sample.inputs);
        let run = || {
            let y = (sample.f)(&inputs);
            let w = cotangent(&y.detach(), 3);
            let grads = y.requires_grad().then(|| gradients(sample, &inputs, &w, false));
            (y.detach(), grads.unwrap_or_default())
        };
        let (want, want_grads) = run();
        let (got, got_grads) = Device::Meta.scope(run);
        // Of those that make up numbers only the kinds are compared.
        let same = |got: &Tensor, want: &Tensor| {
            got.shape() == want.shape() && got.device() == want.device()
        };
        let all = [(&got, &want)].into_iter().chain(got_grads.iter().zip(&want_grads));
        match all.into_iter().all(|(got, want)| same(got, want)) {
            true => Ok(()),
            false => Err(format!("is {:?} on {} in the scope", got.shape(), got.device())),
        }
    });
}

#[test]
fn what_needs_values_is_refused_by_name() {
    type Op = fn(&Tensor) -> ();
    let refused: [(&str, Op); 12] = [
        ("item", |x| _ = x.sum().item()),
        ("to_vec", |x| _ = x.to_vec::<f32>()),
        ("nonzero", |x| _ = x.nonzero()),
        ("masked_select", |x| _ = x.masked_select(&x.gt(0.0))),
        ("index", |x| _ = x.index(&[Some(&x.gt(0.0))])),
        ("unique", |x| _ = x.unique()),
        ("equal", |x| _ = x.equal(x)),
        ("allclose", |x| _ = x.allclose(x, Default::default())),
        ("histc", |x| _ = x.histc(4, 0.0, 0.0)),
        ("one_hot", |x| _ = x.to_dtype(Dtype::I64).one_hot(None)),
        ("repeat_interleave", |x| _ = x.repeat_interleave_each(&x.to_dtype(Dtype::I64), 0)),
        ("bincount", |x| _ = x.to_dtype(Dtype::I64).bincount(None, 0)),
    ];
    let x = Tensor::zeros([3], (Dtype::F32, Device::Meta));
    for (name, op) in refused {
        let error = catch(|| op(&x)).expect_err(name).to_string();
        assert!(error.contains(name) && error.contains("meta"), "{name}: {error}");
    }
    let error = catch(|| x.to_device(Device::Cpu)).unwrap_err().to_string();
    assert!(error.contains("to_empty(\"cpu\")") || error.contains("Module::to_empty"), "{error}");
    let error = catch(|| &x + &Tensor::zeros([3], Dtype::F32)).unwrap_err().to_string();
    assert!(error.contains("meta") && error.contains("cpu"), "{error}");
    let error = catch(|| x.copy_(&Tensor::zeros([3], Dtype::F32)).dim()).unwrap_err().to_string();
    assert!(error.contains("to_empty"), "{error}");
    assert_eq!(x.to_string(), "tensor(..., device='meta', size=[3], dtype=f32)");
    // A number is one on any device.
    assert_eq!((&x + &Tensor::scalar(1.0)).device(), Device::Meta);
}
