//! Every row where formulas break: at zeros of both signs, numbers whose squares underflow or overflow, the last
//! arguments before exponentials overflow and the first beyond, infinities and NaN. Values, first and second
//! derivatives in f32 and bf16 are compared with those in f64 at the same arguments; those in f64 with what they are
//! at neighbouring arguments, between which they must lie. A new row is swept without a line here. What may be
//! otherwise is listed with the reason, and an entry of which nothing is left fails.

use super::{Kind, Row, apply, tables};
use crate::autograd::{GraphMode, grad};
use crate::cuda::simulated_test::on_gpu;
use crate::storage::Device;
use crate::tensor::{Dtype, Operand, Scalar, Tensor};

/// Magnitudes of arguments in all types: small, ordinary, where exponentials of f32 and f64 end, and large.
const MAGNITUDES: [f64; 14] =
    [0.0, 1e-30, 1e-4, 0.3, 1.0, 9.0, 90.0, 128.0, 750.0, 1e4, 1e13, 1e20, 1e30, 3e38];
/// Where exponentials, hyperbolic functions and squares of f32 overflow, on both sides.
const ENDS_F32: [f64; 8] =
    [88.72, 88.73, 89.41, 89.42, 103.9, 104.1, 1.844_674_2e19, 1.844_674_5e19];
/// The same of f64.
const ENDS_F64: [f64; 8] = [709.78, 709.79, 710.47, 710.48, 745.1, 1024.0, 1.34e154, 1.35e154];
/// Fewer, for rows of three and more operands, whose arguments are combined.
const FEW: [f64; 6] = [0.0, 1e-30, 1.0, 90.0, 750.0, 1e20];

/// A quantity of a row: its value, a gradient, or a derivative of a gradient.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Value,
    First(usize),
    Second(usize, usize),
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            What::Value => write!(f, "value"),
            What::First(k) => write!(f, "gradient {k}"),
            What::Second(k, j) => write!(f, "gradient {k} by input {j}"),
        }
    }
}

/// All combinations of arguments for a row's operands, a list for each operand.
fn arguments(row: &Row, ends: &[f64]) -> Vec<Vec<f64>> {
    let mut axis = match row.inputs.len() {
        1 | 2 => [&MAGNITUDES, ends].concat(),
        _ => FEW.to_vec(),
    };
    axis.extend(axis.clone().iter().map(|x| -x));
    axis.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
    let axis_of = |k: usize| if row.inputs[k].mask { vec![0.0, 1.0] } else { axis.clone() };
    let mut columns = vec![vec![]; row.inputs.len()];
    let count: usize = (0..row.inputs.len()).map(|k| axis_of(k).len()).product();
    for i in 0..count {
        let mut rest = i;
        for (k, column) in columns.iter_mut().enumerate() {
            let axis = axis_of(k);
            column.push(axis[rest % axis.len()]);
            rest /= axis.len();
        }
    }
    columns
}

/// What the arguments are once they are of that type.
fn rounded(row: &Row, columns: &[Vec<f64>], dtype: Dtype) -> Vec<Vec<f64>> {
    let round = |(k, column): (usize, &Vec<f64>)| match row.inputs[k].mask {
        true => column.clone(),
        false => Tensor::from(column.clone()).to_dtype(dtype).to_vec::<f64>(),
    };
    columns.iter().enumerate().map(round).collect()
}

/// The row's value, its gradients by one loop and by recorded ops, and their gradients, at all arguments.
fn evaluate(
    row: &'static Row,
    columns: &[Vec<f64>],
    dtype: Dtype,
    device: Device,
) -> Vec<(What, Vec<f64>)> {
    let leaf = |(k, column): (usize, &Vec<f64>)| {
        let x = Tensor::from(column.clone());
        let x = x.to_dtype(if row.inputs[k].mask { Dtype::Bool } else { dtype }).to_device(device);
        match row.gradients.iter().any(|g| g.input == k) {
            true => x.requires_grad_(true),
            false => x,
        }
    };
    let inputs: Vec<Tensor> = columns.iter().enumerate().map(leaf).collect();
    let operands: Vec<Operand<'_>> = inputs.iter().map(Operand::Tensor).collect();
    let params: Vec<Scalar> = row.params.iter().map(|p| p.default.into()).collect();
    let y = apply(row, &operands, &params);
    let mut all = vec![(What::Value, y.to_vec::<f64>())];
    if !y.requires_grad() {
        return all;
    }
    let n = y.numel();
    let wanted: Vec<usize> = row.gradients.iter().map(|g| g.input).collect();
    let leaves: Vec<&Tensor> = wanted.iter().map(|&k| &inputs[k]).collect();
    let ones = y.detach().ones_like();
    let numbers = |g: &Option<Tensor>| g.as_ref().map_or(vec![0.0; n], |g| g.to_vec::<f64>());
    let fused = grad(&[&y], &leaves, &[Some(&ones)], GraphMode::Retain);
    let recorded = grad(&[&y], &leaves, &[Some(&ones)], GraphMode::Create);
    for (i, &k) in wanted.iter().enumerate() {
        all.push((What::First(k), numbers(&fused[i])));
        all.push((What::First(k), numbers(&recorded[i])));
        let Some(first) = recorded[i].as_ref().filter(|g| g.requires_grad()) else { continue };
        let second = grad(&[first], &leaves, &[Some(&ones)], GraphMode::Retain);
        for (j, g) in wanted.iter().zip(&second) {
            all.push((What::Second(k, *j), numbers(g)));
        }
    }
    all
}

/// Something that is not as it should be.
struct Fault {
    row: &'static str,
    what: What,
    at: Vec<f64>,
    text: String,
}

fn largest(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => f64::MAX,
        Dtype::BF16 => half::bf16::MAX.to_f64(),
        _ => f64::from(f32::MAX),
    }
}

/// Compares a type's results with those in f64 at the same arguments.
fn against_f64(row: &'static Row, dtype: Dtype, device: Device, faults: &mut Vec<Fault>) {
    let columns = rounded(row, &arguments(row, &ENDS_F32), dtype);
    let exact = evaluate(row, &columns, Dtype::F64, Device::Cpu);
    let found = evaluate(row, &columns, dtype, device);
    for (q, ((what, want), (_, got))) in exact.iter().zip(&found).enumerate() {
        let (relative, absolute) = match (dtype, what) {
            (Dtype::BF16, What::Value) => (1e-2, 1e-2),
            (Dtype::BF16, _) => (5e-2, 5e-2),
            (_, What::Second(..)) => (1e-3, 1e-4),
            _ => (1e-4, 1e-6),
        };
        for i in 0..want.len() {
            let at: Vec<f64> = columns.iter().map(|c| c[i]).collect();
            let (want, got) = (want[i], got[i]);
            if want.is_nan() || beyond_before(&found, q, i) || intermediate(&at) {
                continue;
            }
            let near = (got - want).abs() <= relative * want.abs() + absolute;
            // What is too large may be infinite, but not unknown.
            let beyond = want.abs() > largest(dtype) * (1.0 - 2.0 * relative);
            let overflown = beyond && got.is_infinite() && got.signum() == want.signum();
            // Recorded ops round each step to 8 bits, which says nothing of a sum of terms that cancel.
            let coarse =
                dtype == Dtype::BF16 && matches!(what, What::Second(..)) && got.is_finite();
            let right = near || overflown || coarse;
            if !right {
                let text = format!("{got:e} in {dtype}, {want:e} in f64");
                faults.push(Fault { row: row.name, what: *what, at, text });
            }
        }
    }
}

/// Whether something of a lower order is infinite, beside which a derivative of it means nothing.
fn beyond_before(results: &[(What, Vec<f64>)], q: usize, i: usize) -> bool {
    let infinite =
        |what: What| results.iter().any(|(other, values)| *other == what && !values[i].is_finite());
    match results[q].0 {
        What::Value => false,
        What::First(_) => infinite(What::Value),
        What::Second(k, _) => infinite(What::Value) || infinite(What::First(k)),
    }
}

/// Whether an infinite operand meets another that is so large or small that what they make together may overflow first.
fn intermediate(at: &[f64]) -> bool {
    let extreme = |x: &f64| x.is_finite() && *x != 0.0 && !(1e-5..1e5).contains(&x.abs());
    at.iter().any(|x| !x.is_finite()) && at.iter().any(extreme)
}

/// Compares results in f64 with those at neighbouring arguments.
fn against_neighbours(row: &'static Row, faults: &mut Vec<Fault>) {
    if row.gradients.is_empty() {
        return;
    }
    let columns = arguments(row, &ENDS_F64);
    let results = evaluate(row, &columns, Dtype::F64, Device::Cpu);
    let n = columns[0].len();
    let corners = 1 << row.inputs.len();
    let neighbours: Vec<_> = (0..corners)
        .map(|corner: usize| {
            let shift = |(k, column): (usize, &Vec<f64>)| {
                let step = if corner >> k & 1 == 0 { 1e-6 } else { -1e-6 };
                let moved = |&x: &f64| if row.inputs[k].mask { x } else { x + step };
                column.iter().map(moved).collect()
            };
            let moved: Vec<Vec<f64>> = columns.iter().enumerate().map(shift).collect();
            evaluate(row, &moved, Dtype::F64, Device::Cpu)
        })
        .collect();
    for (q, (what, values)) in results.iter().enumerate() {
        for i in 0..n {
            let at: Vec<f64> = columns.iter().map(|c| c[i]).collect();
            if at.iter().any(|x| !x.is_finite()) || results[0].1[i].is_nan() {
                continue;
            }
            if beyond_before(&results, q, i) {
                continue;
            }
            let value = values[i];
            let near: Vec<f64> = neighbours.iter().map(|all| all[q].1[i]).collect();
            let low = near.iter().copied().fold(f64::INFINITY, f64::min);
            let high = near.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // Neighbours say something where they lie closer together than the function's features.
            let close = at.iter().all(|x| *x == 0.0 || (0.1..2e3).contains(&x.abs()));
            let known = close && near.iter().all(|v| v.is_finite()) && high.max(-low) < 1e8;
            let slack = 1e-3 * (1.0 + low.abs().max(high.abs()));
            let right = match known {
                true => {
                    value >= low - slack && value <= high + slack
                        || *what == What::Value && value.is_infinite()
                }
                false => !value.is_nan(),
            };
            if !right {
                let text = format!("{value:e} in f64, {low:e} to {high:e} around");
                faults.push(Fault { row: row.name, what: *what, at, text });
            }
        }
    }
}

/// What may be otherwise: of these rows and quantities, where the arguments satisfy the condition.
struct Exception {
    rows: &'static [&'static str],
    what: fn(What) -> bool,
    at: fn(&[f64]) -> bool,
    reason: &'static str,
}

const fn of(
    rows: &'static [&'static str],
    what: fn(What) -> bool,
    at: fn(&[f64]) -> bool,
    reason: &'static str,
) -> Exception {
    Exception { rows, what, at, reason }
}

fn any(_: What) -> bool {
    true
}

fn value(what: What) -> bool {
    what == What::Value
}

fn first(what: What) -> bool {
    matches!(what, What::First(_))
}

fn second(what: What) -> bool {
    matches!(what, What::Second(..))
}

fn origin(at: &[f64]) -> bool {
    at.iter().all(|x| *x == 0.0)
}

fn tiny(at: &[f64]) -> bool {
    at.iter().all(|x| x.abs() < 1.1e-4)
}

fn large(at: &[f64]) -> bool {
    at.iter().any(|x| x.abs() > 80.0)
}

fn extreme(at: &[f64]) -> bool {
    at.iter().any(|x| x.abs() > 9e12 || *x != 0.0 && x.abs() < 1e-20)
}

const EXCEPTIONS: &[Exception] = &[
    of(
        &["floor_divide", "trunc_divide", "fmod", "remainder"],
        any,
        |_| true,
        "jump where the quotient is whole, which is rounded as PyTorch's",
    ),
    of(&["atan2"], value, origin, "jumps from pi to -pi"),
    of(&["atan2"], second, tiny, "terms of 1 / x^2 cancel or overflow"),
    of(&["hypot"], second, origin, "has no limit; 0 as the first derivative"),
    of(&["i0e"], second, origin, "the first derivative jumps; PyTorch's 1/2"),
    of(
        &["divergence", "log_divergence", "logit_error", "probability_error"],
        any,
        large,
        "losses of what is no probability: an intermediate result overflows, as PyTorch's does",
    ),
    of(&["erfcx"], any, |at| at[0] > 80.0, "two terms cancel, as in PyTorch's formula"),
    of(&["log_ndtr"], second, |at| at[0] < -80.0, "erfcx's derivative cancels, as PyTorch's"),
    of(&["hardswish"], value, extreme, "6 x overflows, as PyTorch's does"),
    of(&["gelu_tanh"], second, |at| at[0].abs() > 1e38, "x times the slope of the cubic overflows"),
    of(
        &["swiglu"],
        any,
        |at| (at[0] * at[1]).abs() > 1e37,
        "a factor overflows, or the sigmoid is 0 in f32 beside an infinite one, as in PyTorch's two steps",
    ),
    of(&["sinc"], any, |at| at[0].abs() > 1e38, "pi x overflows, as PyTorch's does"),
    of(&["trigamma"], value, |at| at[0] < -1e38, "pi x overflows where all numbers are poles"),
    of(&["logit"], second, tiny, "the squared divisor underflows, as PyTorch's does"),
    of(
        &["nextafter"],
        value,
        |at| at.iter().any(|x| x.is_infinite()),
        "the largest number is each type's own",
    ),
    of(&["pow"], any, |at| at[0] < 0.0, "the logarithm of a negative base is NaN, as PyTorch's"),
    of(&["pow"], any, extreme, "a factor or the exponent's parity is lost, as PyTorch's is"),
    of(
        &["xlogy"],
        any,
        |at| at[0] == 0.0 && at[1] <= 0.0,
        "the logarithm's pole or outside of its domain: PyTorch's 0, and NaN of 0 / 0",
    ),
    of(
        &["xlog1py"],
        any,
        |at| at[0] == 0.0 && at[1] <= -1.0,
        "the logarithm's pole or outside of its domain: PyTorch's 0, and NaN of 0 / 0",
    ),
    of(
        &["pow"],
        second,
        |at| at[0] == 0.0 || at[1] == 0.0,
        "the exponent 0 is a constant to the base's gradient, as in PyTorch; roots have a pole at 0",
    ),
    of(&["ndtri"], first, |at| at[0] < 1e-20, "from the result, as in PyTorch: bf16 rounds it"),
    of(
        &["igamma", "igammac"],
        |what| what != What::Value,
        |_| true,
        "PyTorch's exponent: its terms cancel, and 0 times an infinite logarithm is NaN",
    ),
    of(&["zeta"], any, extreme, "an infinite factor meets a sum that underflows"),
];

fn rows() -> impl Iterator<Item = &'static Row> {
    // The time of a polynomial grows with its degree.
    tables().filter(|row| row.kind != Kind::Bitwise && !row.name.contains("polynomial"))
}

/// Fails with the faults that no exception covers, and with exceptions that cover nothing.
fn judge(faults: &[Fault], all: bool) {
    let mut used = vec![0; EXCEPTIONS.len()];
    let mut lines: Vec<String> = vec![];
    for fault in faults {
        let covers = |e: &Exception| {
            e.rows.contains(&fault.row) && (e.what)(fault.what) && (e.at)(&fault.at)
        };
        match EXCEPTIONS.iter().position(covers) {
            Some(i) => used[i] += 1,
            None => lines
                .push(format!("{}, {} at {:?}: {}", fault.row, fault.what, fault.at, fault.text)),
        }
    }
    for (exception, &used) in EXCEPTIONS.iter().zip(&used) {
        if used == 0 && all {
            lines.push(format!("{:?}: none is left that {:?}", exception.rows, exception.reason));
        }
    }
    assert!(lines.is_empty(), "{} faults:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn rows_at_the_edges() {
    let mut faults = vec![];
    for row in rows() {
        against_f64(row, Dtype::F32, Device::Cpu, &mut faults);
        against_f64(row, Dtype::BF16, Device::Cpu, &mut faults);
        against_neighbours(row, &mut faults);
    }
    judge(&faults, true);
}

/// Rows whose derivatives have functions of their own in CUDA, or choices that keep them finite.
const ON_GPU: [&str; 11] =
    ["elu", "selu", "celu", "mish", "gelu_tanh", "sinc", "i1", "i1e", "hypot", "atan2", "log_ndtr"];

fn inside() {
    let mut faults = vec![];
    for row in rows().filter(|row| ON_GPU.contains(&row.name)) {
        against_f64(row, Dtype::F32, Device::Cuda(0), &mut faults);
    }
    judge(&faults, false);
}

#[test]
fn rows_at_the_edges_on_a_gpu() {
    on_gpu("ops::pointwise::edges::rows_at_the_edges_on_a_gpu", inside);
}
