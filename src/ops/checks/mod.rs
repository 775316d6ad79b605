//! The generic check of all ops that have a file of their own, over the samples that each gives:
//! other types and layouts against f64 and contiguous inputs, first and second derivatives against
//! finite differences.
//!
//! Knows no op by name: an op is here by the samples beside it.

mod compositions;
mod edges;
mod meta;
mod on_gpu;
pub(in crate::ops) mod samples;

use crate::autograd::{
    self, forward_ad::dual_level, forward_ad::make_dual, forward_ad::unpack_dual, no_grad,
};
use crate::ops::checks::samples::{OpSample, Order};
use crate::tensor::{Dtype, Tensor};

/// Before `main`, so that all unit tests see the same ways.
// SAFETY: the section holds functions that the C library calls before `main`; this one stores a flag.
#[used]
#[unsafe(link_section = ".init_array")]
static SMALL_PIECES: extern "C" fn() = {
    extern "C" fn set() {
        crate::cpu::take_small_pieces();
    }
    set
};

/// Elements of an input whose derivative is checked: all of a small one, some of a large one.
const CHECKED: usize = 24;
/// Step of the central differences; their error is about its square and 1e-16 over it.
const STEP: f64 = 1e-5;

/// The samples of all ops, and of what is made of them.
fn all_samples() -> Vec<OpSample> {
    let mut all = crate::ops::all_samples();
    all.extend(compositions::list());
    all
}

/// Runs `check` on every sample and reports all that fail.
fn for_all(check: impl Fn(&OpSample) -> Result<(), String>) {
    let failures: Vec<String> = all_samples()
        .iter()
        .filter_map(|s| {
            let outcome = crate::error::catch(|| check(s)).unwrap_or_else(|e| Err(e.to_string()));
            outcome.err().map(|why| format!("{}: {why}", s.name))
        })
        .collect();
    assert!(failures.is_empty(), "{} samples fail:\n{}", failures.len(), failures.join("\n"));
}

/// The inputs with floating-point ones converted.
pub fn converted(inputs: &[Tensor], dtype: Dtype) -> Vec<Tensor> {
    let convert = |t: &Tensor| match t.dtype().is_floating_point() {
        true => t.to_dtype(dtype),
        false => t.clone(),
    };
    inputs.iter().map(convert).collect()
}

/// Copies as leaves; floating-point ones require a gradient.
pub fn leaves(inputs: &[Tensor]) -> Vec<Tensor> {
    let leaf = |t: &Tensor| match t.dtype().is_floating_point() {
        true => t.detach().requires_grad_(true),
        false => t.clone(),
    };
    inputs.iter().map(leaf).collect()
}

pub fn wanted(inputs: &[Tensor]) -> Vec<&Tensor> {
    inputs.iter().filter(|t| t.requires_grad()).collect()
}

/// Multiples of 1/8 in [-1, 1], exact in every floating-point type.
pub fn cotangent(like: &Tensor, seed: u64) -> Tensor {
    let eighth = |i: u64| ((i * 7 + seed * 5 + 3) % 17) as f64 / 8.0 - 1.0;
    let data: Vec<f64> = (0..like.numel() as u64).map(eighth).collect();
    Tensor::from_slice(&data, like.shape()).to_dtype(like.dtype())
}

/// Gradients of `sum(f(inputs) * w)`; zeros where there is none.
pub fn gradients(
    sample: &OpSample,
    inputs: &[Tensor],
    w: &Tensor,
    create_graph: bool,
) -> Vec<Tensor> {
    let y = (sample.f)(inputs);
    let inputs = wanted(inputs);
    if !y.requires_grad() {
        return inputs.iter().map(|t| t.zeros_like()).collect();
    }
    let grads = autograd::grad(
        &[&y],
        &inputs,
        &[Some(w)],
        if create_graph { autograd::GraphMode::Create } else { autograd::GraphMode::Free },
    );
    grads.into_iter().zip(inputs).map(|(g, t)| g.unwrap_or_else(|| t.zeros_like())).collect()
}

/// Compares elementwise: exactly for integers and bools, else within `tolerance` of the value, plus a
/// tenth of it of the largest value.
pub fn compare(what: &str, got: &Tensor, want: &Tensor, tolerance: f64) -> Result<(), String> {
    if got.shape() != want.shape() {
        return Err(format!("{what}: shape {:?}, expected {:?}", got.shape(), want.shape()));
    }
    let (g, w) = (got.to_vec::<f64>(), want.to_vec::<f64>());
    let largest = w.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let exact = !want.dtype().is_floating_point();
    for (i, (g, w)) in g.iter().zip(&w).enumerate() {
        let bound = if exact { 0.0 } else { tolerance * (w.abs() + 0.1 * largest) };
        let same = g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= bound;
        if !same {
            return Err(format!("{what}: element {i} is {g}, expected {w} within {bound:.1e}"));
        }
    }
    Ok(())
}

/// The types that are checked against f64, with the relative error that one rounding makes, doubled.
fn low_types(sample: &OpSample) -> Vec<(Dtype, f64)> {
    let all = [(Dtype::F32, 2e-6), (Dtype::F16, 2e-3), (Dtype::BF16, 1.6e-2)];
    all.into_iter().filter(|(d, _)| sample.half || *d == Dtype::F32).collect()
}

#[test]
fn low_types_agree_with_f64() {
    for_all(|sample| {
        for (dtype, tolerance) in low_types(sample) {
            let inputs = converted(&sample.inputs, dtype);
            let got = (sample.f)(&inputs);
            let want = (sample.f)(&converted(&inputs, Dtype::F64));
            let floats = inputs.iter().any(|t| t.dtype().is_floating_point());
            let expected = if floats && want.dtype() == Dtype::F64 { dtype } else { want.dtype() };
            if got.dtype() != expected {
                return Err(format!(
                    "gives {} for {dtype} inputs, expected {expected}",
                    got.dtype()
                ));
            }
            compare(&format!("{dtype} value"), &got, &want, tolerance * sample.slack)?;
        }
        Ok(())
    });
}

#[test]
fn gradients_of_low_types_agree_with_f64() {
    for_all(|sample| {
        if sample.order == Order::None {
            return Ok(());
        }
        for (dtype, tolerance) in low_types(sample) {
            let inputs = leaves(&converted(&sample.inputs, dtype));
            let exact = leaves(&converted(&inputs, Dtype::F64));
            let y = no_grad(|| (sample.f)(&exact));
            let w = cotangent(&y, 1);
            let got = gradients(
                sample,
                &inputs,
                &w.to_dtype(if y.dtype() == Dtype::F64 { dtype } else { y.dtype() }),
                false,
            );
            let want = gradients(sample, &exact, &w, false);
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let what = format!("{dtype} gradient of input {i}");
                compare(&what, got, want, 2.0 * tolerance * sample.slack)?;
            }
        }
        Ok(())
    });
}

/// The same elements in other layouts: with the first and last dimension exchanged in memory, and
/// with gaps between neighbours.
fn layouts(t: &Tensor) -> Vec<Tensor> {
    let mut all = Vec::new();
    if t.dim() >= 2 {
        all.push(t.transpose(0, -1).clone_contiguous().transpose(0, -1));
    }
    let mut shape = t.shape().to_vec();
    shape.push(2);
    let gaps = Tensor::full(&shape[..], 1i64, t.dtype());
    gaps.select(-1, 0).copy_(t);
    all.push(gaps.select(-1, 0));
    all
}

#[test]
fn other_layouts_give_the_same() {
    for_all(|sample| {
        let plain = leaves(&sample.inputs);
        let want = (sample.f)(&plain);
        let w = cotangent(&want, 2);
        let grads = match sample.order {
            Order::None => Vec::new(),
            _ => gradients(sample, &plain, &w, false),
        };
        // Non-contiguous gradients too, in a layout of their own.
        let strange_w = layouts(&w).swap_remove(0);
        for which in 0..2 {
            let strange: Vec<Tensor> = sample
                .inputs
                .iter()
                .map(|t| {
                    let mut all = layouts(t);
                    let which = which.min(all.len() - 1);
                    all.swap_remove(which)
                })
                .collect();
            let inputs = leaves(&strange);
            compare("strided value", &(sample.f)(&inputs), &want, 1e-12)?;
            if sample.order > Order::None {
                let got = gradients(sample, &inputs, &strange_w, false);
                for (got, want) in got.iter().zip(&grads) {
                    compare("gradient of strided input", got, want, 1e-12)?;
                }
            }
        }
        Ok(())
    });
}

/// `inputs` with element `i` of input `k` moved by `step`.
fn moved(inputs: &[Tensor], k: usize, i: usize, step: f64) -> Vec<Tensor> {
    let mut data = inputs[k].to_vec::<f64>();
    data[i] += step;
    let mut out = inputs.to_vec();
    out[k] = Tensor::from_slice(&data, inputs[k].shape());
    if inputs[k].requires_grad() {
        out[k] = out[k].requires_grad_(true);
    }
    out
}

/// Compares the derivatives `got` of `f` at `inputs` with central differences.
fn compare_differences(
    what: &str,
    inputs: &[Tensor],
    got: &[(usize, Tensor)],
    f: impl Fn(&[Tensor]) -> f64,
) -> Result<(), String> {
    for (k, derivative) in got {
        let n = inputs[*k].numel();
        let all = derivative.to_vec::<f64>();
        for j in 0..n.min(CHECKED) {
            let i = j * n / n.min(CHECKED);
            let (up, down) = (f(&moved(inputs, *k, i, STEP)), f(&moved(inputs, *k, i, -STEP)));
            let difference = (up - down) / (2.0 * STEP);
            if (difference - all[i]).abs() > 1e-6 * (1.0 + difference.abs()) {
                return Err(format!(
                    "{what}: element {i} of input {k} is {}, finite differences give {difference}",
                    all[i]
                ));
            }
        }
    }
    Ok(())
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    a.to_vec::<f64>().iter().zip(b.to_vec::<f64>()).map(|(a, b)| a * b).sum()
}

/// The positions in `inputs` of those that require a gradient, with these.
fn by_position(inputs: &[Tensor], grads: Vec<Tensor>) -> Vec<(usize, Tensor)> {
    (0..inputs.len()).filter(|&k| inputs[k].requires_grad()).zip(grads).collect()
}

#[test]
fn gradients_agree_with_finite_differences() {
    for_all(|sample| {
        if sample.order == Order::None
            || sample.inputs.iter().all(|t| !t.dtype().is_floating_point())
        {
            return Ok(());
        }
        let inputs = leaves(&sample.inputs);
        let w = cotangent(&no_grad(|| (sample.f)(&inputs)), 3);
        let grads = by_position(&inputs, gradients(sample, &inputs, &w, false));
        compare_differences("gradient", &inputs, &grads, |x| no_grad(|| dot(&(sample.f)(x), &w)))
    });
}

#[test]
fn second_order_agrees_with_finite_differences_of_the_gradient() {
    for_all(|sample| {
        if sample.order < Order::Second
            || sample.inputs.iter().all(|t| !t.dtype().is_floating_point())
        {
            return Ok(());
        }
        // The gradient depends on the cotangent too: it is one more input.
        let mut inputs = leaves(&sample.inputs);
        let w = cotangent(&no_grad(|| (sample.f)(&inputs)), 4).requires_grad_(true);
        let n = inputs.len();
        inputs.push(w);
        let first = |x: &[Tensor], graph: bool| gradients(sample, &x[..n], &x[n], graph);
        let (plain, graph) = (first(&inputs, false), first(&inputs, true));
        for (plain, graph) in plain.iter().zip(&graph) {
            compare("gradient with create_graph", graph, plain, 1e-10)?;
        }
        let vs: Vec<Tensor> = plain.iter().map(|g| cotangent(g, 5)).collect();
        let roots: Vec<(&Tensor, &Tensor)> =
            graph.iter().zip(&vs).filter(|(g, _)| g.requires_grad()).collect();
        let second = if roots.is_empty() {
            wanted(&inputs).iter().map(|t| t.zeros_like()).collect()
        } else {
            let (g, v): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
                roots.into_iter().map(|(g, v)| (g, Some(v))).unzip();
            let found = autograd::grad(&g, &wanted(&inputs), &v, autograd::GraphMode::Free);
            let found = found.into_iter().zip(wanted(&inputs));
            found.map(|(g, t)| g.unwrap_or_else(|| t.zeros_like())).collect()
        };
        let second = by_position(&inputs, second);
        compare_differences("second derivative", &inputs, &second, |x| {
            first(x, false).iter().zip(&vs).map(|(g, v)| dot(g, v)).sum()
        })
    });
}

/// The inputs as dual tensors; those that are floating-point carry a fixed direction each.
fn duals(inputs: &[Tensor], directions: &[Tensor]) -> Vec<Tensor> {
    let dual = |(x, v): (&Tensor, &Tensor)| match x.dtype().is_floating_point() {
        true => make_dual(x, v),
        false => x.clone(),
    };
    inputs.iter().zip(directions).map(dual).collect()
}

fn tangent(y: &Tensor) -> Tensor {
    unpack_dual(y).tangent.unwrap_or_else(|| y.zeros_like())
}

#[test]
fn forward_mode_agrees_with_finite_differences() {
    for_all(|sample| {
        if sample.order < Order::Second
            || sample.inputs.iter().all(|t| !t.dtype().is_floating_point())
        {
            return Ok(());
        }
        let inputs = &sample.inputs;
        let directions: Vec<Tensor> =
            inputs.iter().enumerate().map(|(k, x)| cotangent(x, 6 + k as u64)).collect();
        let got = dual_level(|| tangent(&(sample.f)(&duals(inputs, &directions))));
        let at = |step: f64| {
            let moved = |(x, v): (&Tensor, &Tensor)| match x.dtype().is_floating_point() {
                true => x + v * step,
                false => x.clone(),
            };
            let moved: Vec<Tensor> = inputs.iter().zip(&directions).map(moved).collect();
            (sample.f)(&moved)
        };
        let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
        let (g, w) = (got.to_vec::<f64>(), difference.to_vec::<f64>());
        for (i, (g, w)) in g.iter().zip(&w).enumerate() {
            let near = (g - w).abs() <= 1e-6 * (1.0 + w.abs());
            if !near {
                return Err(format!("tangent: element {i} is {g}, finite differences give {w}"));
            }
        }
        Ok(())
    });
}

#[test]
fn both_modes_combine_in_every_order() {
    for_all(|sample| {
        if sample.order < Order::Second
            || sample.inputs.iter().all(|t| !t.dtype().is_floating_point())
        {
            return Ok(());
        }
        let inputs = leaves(&sample.inputs);
        let directions: Vec<Tensor> =
            inputs.iter().enumerate().map(|(k, x)| cotangent(x, 6 + k as u64)).collect();
        let w = cotangent(&no_grad(|| (sample.f)(&inputs)), 4);
        let by_inputs = |y: &Tensor| {
            if !y.requires_grad() {
                return wanted(&inputs).iter().map(|t| t.zeros_like()).collect::<Vec<_>>();
            }
            let grads = autograd::grad(&[y], &wanted(&inputs), &[None], autograd::GraphMode::Free);
            let all = grads.into_iter().zip(wanted(&inputs));
            all.map(|(g, t)| g.unwrap_or_else(|| t.zeros_like())).collect()
        };
        // The derivative of the gradient along the directions, three ways.
        let twice_back = {
            let first = gradients(sample, &inputs, &w, true);
            let floats = directions.iter().filter(|v| v.dtype().is_floating_point());
            let along = first.iter().zip(floats).map(|(g, v)| (g * v).sum());
            by_inputs(&along.reduce(|a, b| a + b).expect("an input"))
        };
        let forward_then_back = dual_level(|| {
            by_inputs(&(tangent(&(sample.f)(&duals(&inputs, &directions))) * &w).sum())
        });
        let back_then_forward: Vec<Tensor> = dual_level(|| {
            let duals = duals(&inputs, &directions);
            gradients(sample, &duals, &w, false).iter().map(tangent).collect()
        });
        for (i, want) in twice_back.iter().enumerate() {
            compare(&format!("backward of forward, input {i}"), &forward_then_back[i], want, 1e-9)?;
            compare(&format!("forward of backward, input {i}"), &back_then_forward[i], want, 1e-9)?;
        }
        Ok(())
    });
}
