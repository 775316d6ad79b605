//! Generic checks of every pointwise row: layouts, types, values, first and second derivatives,
//! in-place forms. A new row is checked without a line here; `reference` may add an independent
//! definition.

use torchrs::autograd::{GraphMode, grad, no_grad};
use torchrs::ops::pointwise::row::Source;
use torchrs::ops::pointwise::{Kind, Row, apply, apply_inplace, tables};
use torchrs::tensor::Operand;
use torchrs::{Dtype, Scalar, Tensor, catch};

/// SplitMix64: the same values in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn float_rows() -> impl Iterator<Item = &'static Row> {
    tables().filter(|r| r.kind != Kind::Bitwise)
}

/// A step to the next number of a half type is no smooth function.
fn differentiable() -> impl Iterator<Item = &'static Row> {
    tables().filter(|r| !r.gradients.is_empty() && r.name != "nextafter_half")
}

fn params(row: &Row) -> Vec<Scalar> {
    row.params.iter().map(|p| p.default.into()).collect()
}

/// Values for input `k` in f64 (bool for masks), from the row's own interval.
fn sample(row: &Row, k: usize, shape: &[usize], random: &mut Random) -> Tensor {
    let n = shape.iter().product();
    if row.inputs[k].mask {
        let values: Vec<bool> = (0..n).map(|_| random.next() & 1 == 0).collect();
        return Tensor::from_slice(&values, shape);
    }
    let (low, high) = row.sample_range(k);
    let values: Vec<f64> = (0..n).map(|_| random.uniform(low, high)).collect();
    Tensor::from_slice(&values, shape)
}

fn samples(row: &Row, shapes: &[&[usize]], random: &mut Random) -> Vec<Tensor> {
    (0..row.inputs.len()).map(|k| sample(row, k, shapes[k % shapes.len()], random)).collect()
}

fn call(row: &'static Row, inputs: &[Tensor]) -> Tensor {
    let operands: Vec<Operand<'_>> = inputs.iter().map(Operand::Tensor).collect();
    apply(row, &operands, &params(row))
}

fn to(inputs: &[Tensor], dtype: Dtype) -> Vec<Tensor> {
    let convert = |t: &Tensor| if t.dtype() == Dtype::Bool { t.clone() } else { t.to_dtype(dtype) };
    inputs.iter().map(convert).collect()
}

/// Equal bit by bit, NaN equal to NaN.
fn assert_same(got: &Tensor, want: &Tensor, what: &str) {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
    let (got, want) = (got.to_vec::<f64>(), want.to_vec::<f64>());
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
        assert!(same(*a, *b), "{what}: element {i} is {a}, not {b}");
    }
}

fn assert_near(got: &[f64], want: &[f64], relative: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        let near =
            (a - b).abs() <= relative * (1.0 + b.abs()) || a == b || a.is_nan() && b.is_nan();
        assert!(near, "{what}: element {i} is {a}, not {b}");
    }
}

/// The same values in other memory layouts.
fn layouts(t: &Tensor) -> Vec<Tensor> {
    let mut out = vec![];
    let dims = t.dim() as i64;
    if dims >= 2 {
        out.push(t.transpose(0, dims - 1).contiguous().transpose(0, dims - 1));
    }
    if dims >= 1 {
        // Every second element along each dimension of a larger tensor.
        let wide: Vec<usize> = t.shape().iter().map(|n| 2 * n).collect();
        let mut view = Tensor::full(wide, 1i64, t.dtype());
        for d in 0..dims {
            view = view.slice(d, 0, i64::MAX, 2);
        }
        view.copy_(t);
        out.push(view);
    }
    out
}

#[test]
fn every_layout_gives_the_same_values() {
    let mut random = Random(1);
    let shapes: [&[&[usize]]; 8] = [
        &[&[]],
        &[&[0]],
        &[&[5]],
        &[&[3, 4]],
        &[&[2, 3, 4], &[3, 1], &[4]],
        &[&[1, 3], &[700, 1]],
        &[&[300, 5], &[], &[1, 5]],
        &[&[2, 0, 3], &[3]],
    ];
    for row in float_rows() {
        for shapes in shapes {
            let inputs = samples(row, shapes, &mut random);
            let want = call(row, &inputs);
            let expanded: Vec<Tensor> =
                inputs.iter().map(|t| t.expand(want.shape()).contiguous()).collect();
            assert_same(
                &call(row, &expanded),
                &want,
                &format!("{} of {shapes:?} expanded", row.name),
            );
            for k in 0..inputs.len() {
                for layout in layouts(&inputs[k]) {
                    let mut other = inputs.clone();
                    let what = format!(
                        "{} of {shapes:?}, input {k} with strides {:?}",
                        row.name,
                        layout.strides()
                    );
                    other[k] = layout;
                    assert_same(&call(row, &other), &want, &what);
                }
            }
        }
    }
}

#[test]
fn a_dense_layout_is_kept() {
    let x = Tensor::from_slice(&[1f32; 24], [2, 3, 4]).permute(&[0, 2, 1]);
    assert_eq!(x.exp().strides(), x.strides());
    assert_eq!((&x + 1.0).strides(), x.strides());
    assert_eq!((&Tensor::from([1f32, 2.0, 3.0]) * &x).strides(), x.strides());
    assert!(x.slice(0, 0, 1, 1).select(1, 0).exp().is_contiguous());
}

#[test]
fn f32_agrees_with_f64_and_halves_with_f32() {
    let mut random = Random(2);
    for row in float_rows() {
        // f32 values, so that all types compute the same thing.
        let inputs = to(&samples(row, &[&[1500]], &mut random), Dtype::F32);
        let single = call(row, &inputs);
        let double = call(row, &to(&inputs, Dtype::F64));
        let scale = double
            .to_vec::<f64>()
            .iter()
            .fold(1e-3, |m: f64, v| if v.is_finite() { m.max(v.abs()) } else { m });
        let scaled =
            |t: &Tensor| -> Vec<f64> { t.to_vec::<f64>().iter().map(|v| v / scale).collect() };
        assert_near(&scaled(&single), &scaled(&double), 2e-6, row.name);
        for dtype in [Dtype::F16, Dtype::BF16] {
            let half = to(&inputs, dtype);
            let want = call(row, &to(&half, Dtype::F32));
            let want = if want.dtype() == Dtype::Bool { want } else { want.to_dtype(dtype) };
            assert_same(&call(row, &half), &want, &format!("{} of {dtype}", row.name));
        }
    }
}

#[test]
fn integers_and_bool() {
    for row in tables() {
        for dtype in [Dtype::I64, Dtype::I32, Dtype::I16, Dtype::I8, Dtype::U8, Dtype::Bool] {
            if !row.takes(dtype) {
                let inputs: Vec<Tensor> =
                    row.inputs.iter().map(|_| Tensor::ones([2], dtype)).collect();
                let error = catch(|| call(row, &inputs)).unwrap_err().to_string();
                assert!(error.starts_with(row.name) && error.contains("got bool"), "{error}");
                continue;
            }
            // Small positive numbers, which every type and every float formula takes.
            let values: Vec<Tensor> = (0..row.inputs.len() as i64)
                .map(|k| Tensor::from_slice(&[1i64, 2, 3, 1 + k], [4]))
                .collect();
            let inputs: Vec<Tensor> = row
                .inputs
                .iter()
                .zip(&values)
                .map(|(i, v)| v.to_dtype(if i.mask { Dtype::Bool } else { dtype }))
                .collect();
            let got = call(row, &inputs);
            assert_eq!(got.dtype(), row.result_dtype(dtype), "{} of {dtype}", row.name);
            if row.kind == Kind::Float {
                let want = call(row, &to(&inputs, Dtype::F32));
                let want = if dtype == Dtype::Bool {
                    let floats: Vec<Tensor> =
                        inputs.iter().map(|t| t.to_dtype(Dtype::F32)).collect();
                    call(row, &floats)
                } else {
                    want
                };
                assert_same(&got, &want, &format!("{} of {dtype}", row.name));
            }
        }
    }
}

/// Inputs of a row; those by which it has a derivative are leaves that require a gradient.
fn leaves(row: &'static Row, shapes: &[&[usize]], random: &mut Random) -> Vec<Tensor> {
    let inputs = samples(row, shapes, random);
    for gradient in row.gradients {
        inputs[gradient.input].requires_grad_(true);
    }
    inputs
}

/// Central differences of `f` by each element of `x`.
fn numeric(x: &Tensor, f: impl Fn() -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-6;
    // SAFETY: the test owns `x`, and `f` is done with it when it returns.
    let at = |i: usize| unsafe { &mut x.as_mut_slice::<f64>()[i] };
    let slope = |i: usize| {
        let old = *at(i);
        *at(i) = old + STEP;
        let high = f();
        *at(i) = old - STEP;
        let low = f();
        *at(i) = old;
        (high - low) / (2.0 * STEP)
    };
    (0..x.numel()).map(slope).collect()
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    a.to_vec::<f64>().iter().zip(b.to_vec::<f64>()).map(|(a, b)| a * b).sum()
}

const GRADIENT_SHAPES: [&[&[usize]]; 3] = [&[&[4]], &[&[2, 3], &[3], &[2, 1]], &[&[], &[3]]];

#[test]
fn gradients_are_slopes() {
    let mut random = Random(3);
    for row in differentiable() {
        for shapes in GRADIENT_SHAPES {
            let inputs = leaves(row, shapes, &mut random);
            let y = call(row, &inputs);
            let cotangent = sample_like(&y, &mut random);
            let wanted: Vec<&Tensor> = inputs.iter().filter(|t| t.requires_grad()).collect();
            let grads = grad(&[&y], &wanted, &[Some(&cotangent)], GraphMode::Free);
            for (x, g) in wanted.iter().zip(&grads) {
                let g = g.as_ref().map_or(vec![0.0; x.numel()], |g| g.to_vec::<f64>());
                let want = numeric(x, || no_grad(|| dot(&call(row, &inputs), &cotangent)));
                assert_near(&g, &want, 1e-6, &format!("gradient of {} of {shapes:?}", row.name));
            }
        }
    }
}

fn sample_like(t: &Tensor, random: &mut Random) -> Tensor {
    let values: Vec<f64> = (0..t.numel()).map(|_| random.uniform(0.5, 1.5)).collect();
    Tensor::from_slice(&values, t.shape())
}

#[test]
fn gradients_of_gradients_are_slopes_of_gradients() {
    let mut random = Random(4);
    for row in differentiable() {
        for shapes in GRADIENT_SHAPES {
            let inputs = leaves(row, shapes, &mut random);
            let y = call(row, &inputs);
            let cotangent = sample_like(&y, &mut random).requires_grad_(true);
            let wanted: Vec<&Tensor> = inputs.iter().filter(|t| t.requires_grad()).collect();
            let first: Vec<Tensor> = grad(&[&y], &wanted, &[Some(&cotangent)], GraphMode::Create)
                .into_iter()
                .zip(&wanted)
                .map(|(g, x)| g.unwrap_or_else(|| x.zeros_like()))
                .collect();
            let weights: Vec<Tensor> = first.iter().map(|g| sample_like(g, &mut random)).collect();
            // Of fused gradients: so this also compares them with those made of tensor ops.
            let fused = || -> f64 {
                let y = call(row, &inputs);
                let grads = grad(&[&y], &wanted, &[Some(&cotangent.detach())], GraphMode::Free);
                grads.iter().zip(&weights).filter_map(|(g, w)| g.as_ref().map(|g| dot(g, w))).sum()
            };
            let symbolic: f64 = first.iter().zip(&weights).map(|(g, w)| dot(g, w)).sum();
            assert_near(&[fused()], &[symbolic], 1e-12, &format!("fused gradient of {}", row.name));

            let by: Vec<&Tensor> = wanted.iter().copied().chain([&cotangent]).collect();
            let (recorded, of): (Vec<&Tensor>, Vec<Option<&Tensor>>) = first
                .iter()
                .zip(&weights)
                .filter(|(g, _)| g.requires_grad())
                .map(|(g, w)| (g, Some(w)))
                .unzip();
            let second = if recorded.is_empty() {
                vec![None; by.len()]
            } else {
                grad(&recorded, &by, &of, GraphMode::Free)
            };
            for (x, g) in by.iter().zip(&second) {
                let g = g.as_ref().map_or(vec![0.0; x.numel()], |g| g.to_vec::<f64>());
                let want = numeric(x, fused);
                assert_near(
                    &g,
                    &want,
                    1e-5,
                    &format!("second derivative of {} of {shapes:?}", row.name),
                );
            }
        }
    }
}

#[test]
fn in_place_forms_do_the_same() {
    let mut random = Random(5);
    for row in float_rows().filter(|r| !r.inputs[0].mask) {
        for shapes in [&[&[6][..]][..], &[&[2, 3], &[3], &[2, 1]]] {
            let inputs = leaves(row, shapes, &mut random);
            let want = call(row, &inputs);
            let target = &inputs[0] * 1.0;
            let mut operands: Vec<Operand<'_>> = inputs.iter().map(Operand::Tensor).collect();
            operands[0] = Operand::Tensor(&target);
            apply_inplace(row, &operands, &params(row));
            assert_same(
                &target,
                &want.detach().to_dtype(Dtype::F64),
                &format!("{} in place", row.name),
            );
            if row.gradients.is_empty() {
                continue;
            }
            let cotangent = sample_like(&want, &mut random);
            let wanted: Vec<&Tensor> = inputs.iter().filter(|t| t.requires_grad()).collect();
            let both =
                [&want, &target].map(|y| grad(&[y], &wanted, &[Some(&cotangent)], GraphMode::Free));
            for (a, b) in both[0].iter().zip(&both[1]) {
                match (a, b) {
                    (Some(a), Some(b)) => {
                        assert_same(b, a, &format!("gradient of {} in place", row.name))
                    }
                    (a, b) => assert_eq!(a.is_some(), b.is_some(), "{}", row.name),
                }
            }
        }
    }
}

#[test]
fn only_what_backward_needs_is_kept() {
    let saved = |name: &str| {
        let row = tables().find(|r| r.name == name).unwrap();
        row.saved.to_vec()
    };
    assert_eq!(saved("sigmoid"), [Source::GradOutput, Source::Output]);
    assert_eq!(saved("mul"), [Source::GradOutput, Source::Input(0), Source::Input(1)]);
    // Of a product with a constant, only the constant is needed: the other factor may change.
    let (x, c) = (Tensor::from([2f64, 3.0]).requires_grad_(true), Tensor::from([5f64, 7.0]));
    let h = &x * 1.0;
    let y = &h * &c;
    h.add_(1.0);
    y.sum().backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [5.0, 7.0]);
    // But not the constant itself.
    let y = &x * &c;
    c.add_(1.0);
    let error = catch(|| y.sum().backward()).unwrap_err().to_string();
    assert!(error.contains("mul") && error.contains("changed in place"), "{error}");
}

/// Independent definitions, on one element.
/// A row's function on f64: of inputs and parameters.
type Reference = fn(&[f64], &[f64]) -> f64;

fn reference(row: &Row) -> Option<Reference> {
    Some(match row.name {
        "add" => |x, _| x[0] + x[1],
        "add_scaled" => |x, p| x[0] + p[0] * x[1],
        "sub" => |x, _| x[0] - x[1],
        "mul" => |x, _| x[0] * x[1],
        "div" => |x, _| x[0] / x[1],
        "neg" => |x, _| -x[0],
        "abs" => |x, _| x[0].abs(),
        "sign" => |x, _| if x[0] > 0.0 { 1.0 } else { -((x[0] < 0.0) as i32 as f64) },
        "square" => |x, _| x[0] * x[0],
        "reciprocal" => |x, _| 1.0 / x[0],
        "pow" => |x, _| x[0].powf(x[1]),
        "remainder" => |x, _| x[0] - x[1] * (x[0] / x[1]).floor(),
        "floor_divide" => |x, _| (x[0] / x[1]).floor(),
        "maximum" => |x, _| x[0].max(x[1]),
        "minimum" => |x, _| x[0].min(x[1]),
        "exp" => |x, _| x[0].exp(),
        "expm1" => |x, _| x[0].exp_m1(),
        "log" => |x, _| x[0].ln(),
        "log1p" => |x, _| x[0].ln_1p(),
        "log2" => |x, _| x[0].log2(),
        "log10" => |x, _| x[0].log10(),
        "sqrt" => |x, _| x[0].sqrt(),
        "rsqrt" => |x, _| 1.0 / x[0].sqrt(),
        "sin" => |x, _| x[0].sin(),
        "cos" => |x, _| x[0].cos(),
        "tan" => |x, _| x[0].tan(),
        "asin" => |x, _| x[0].asin(),
        "acos" => |x, _| x[0].acos(),
        "atan" => |x, _| x[0].atan(),
        "sinh" => |x, _| x[0].sinh(),
        "cosh" => |x, _| x[0].cosh(),
        "tanh" => |x, _| x[0].tanh(),
        "erf" => |x, _| erf(x[0]),
        "sigmoid" => |x, _| 1.0 / (1.0 + (-x[0]).exp()),
        "floor" => |x, _| x[0].floor(),
        "ceil" => |x, _| x[0].ceil(),
        "round" => |x, _| x[0].round_ties_even(),
        "trunc" => |x, _| x[0].trunc(),
        "relu" => |x, _| x[0].max(0.0),
        "leaky_relu" => |x, p| if x[0] > 0.0 { x[0] } else { p[0] * x[0] },
        "elu" => |x, p| if x[0] > 0.0 { x[0] } else { p[0] * x[0].exp_m1() },
        "gelu" => |x, _| 0.5 * x[0] * (1.0 + erf(x[0] / 2f64.sqrt())),
        "gelu_tanh" => |x, _| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x[0] + 0.044_715 * x[0].powi(3));
            0.5 * x[0] * (1.0 + inner.tanh())
        },
        "silu" => |x, _| x[0] / (1.0 + (-x[0]).exp()),
        "softplus" => {
            |x, p| if x[0] * p[0] > p[1] { x[0] } else { (x[0] * p[0]).exp().ln_1p() / p[0] }
        }
        "hardtanh" => |x, p| x[0].max(p[0]).min(p[1]),
        "threshold" => |x, p| if x[0] > p[0] { x[0] } else { p[1] },
        "eq" => |x, _| (x[0] == x[1]) as u8 as f64,
        "ne" => |x, _| (x[0] != x[1]) as u8 as f64,
        "lt" => |x, _| (x[0] < x[1]) as u8 as f64,
        "le" => |x, _| (x[0] <= x[1]) as u8 as f64,
        "gt" => |x, _| (x[0] > x[1]) as u8 as f64,
        "ge" => |x, _| (x[0] >= x[1]) as u8 as f64,
        "logical_and" => |x, _| (x[0] != 0.0 && x[1] != 0.0) as u8 as f64,
        "logical_or" => |x, _| (x[0] != 0.0 || x[1] != 0.0) as u8 as f64,
        "logical_xor" => |x, _| ((x[0] != 0.0) != (x[1] != 0.0)) as u8 as f64,
        "logical_not" => |x, _| (x[0] == 0.0) as u8 as f64,
        "isnan" => |x, _| x[0].is_nan() as u8 as f64,
        "isinf" => |x, _| x[0].is_infinite() as u8 as f64,
        "isfinite" => |x, _| x[0].is_finite() as u8 as f64,
        "where_" => |x, _| if x[0] != 0.0 { x[1] } else { x[2] },
        "clamp" => |x, _| x[0].max(x[1]).min(x[2]),
        "clamp_min" => |x, _| x[0].max(x[1]),
        "clamp_max" => |x, _| x[0].min(x[1]),
        "masked_fill" => |x, _| if x[1] != 0.0 { x[2] } else { x[0] },
        "lerp" => |x, _| x[0] + x[2] * (x[1] - x[0]),
        "addcmul" => |x, p| x[0] + p[0] * x[1] * x[2],
        "addcdiv" => |x, p| x[0] + p[0] * x[1] / x[2],
        _ => return None,
    })
}

unsafe extern "C" {
    /// The C library's, which Rust's standard library does not expose.
    safe fn erf(x: f64) -> f64;
}

#[test]
fn values_are_those_of_an_independent_definition() {
    let mut random = Random(6);
    let mut checked = 0;
    for row in float_rows() {
        let Some(want) = reference(row) else { continue };
        let inputs = samples(row, &[&[2000]], &mut random);
        let columns: Vec<Vec<f64>> = inputs.iter().map(|t| t.to_vec::<f64>()).collect();
        let p: Vec<f64> = row.params.iter().map(|p| p.default).collect();
        let want: Vec<f64> = (0..2000)
            .map(|i| want(&columns.iter().map(|c| c[i]).collect::<Vec<_>>(), &p))
            .collect();
        assert_near(&call(row, &inputs).to_vec::<f64>(), &want, 1e-13, row.name);
        checked += 1;
    }
    assert!(checked >= 60, "only {checked} rows have a reference");
}

#[test]
fn results_too_large_for_the_caches_are_whole() {
    let n = (8 << 20) + 1003;
    let x = Tensor::arange(0, n, 1, Dtype::I64).remainder(1021).to_dtype(Dtype::F32);
    let y = &x + &(&x * 2.0);
    let wrong = y.to_vec::<f32>().iter().enumerate().position(|(i, &v)| v != (i % 1021 * 3) as f32);
    assert_eq!(wrong, None);
}
