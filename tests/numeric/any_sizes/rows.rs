//! What is computed of all numbers along some dimensions: reductions, softmax, running sums, norms, losses.

use proptest::prelude::*;
use torchrs::autograd::{GraphMode, grad};
use torchrs::nn::functional as F;
use torchrs::ops::{CrossEntropyOptions, Reduction};
use torchrs::{Dtype, Tensor};

use super::laid::{close, dtypes, random, slack, tolerance};
use crate::draw::Draw;

/// One to four dimensions of at most some 20,000 numbers.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size =
        prop_oneof![1 => Just(1usize), 4 => 2..=9usize, 2 => 10..=80usize, 1 => 81..=2100usize];
    proptest::collection::vec(size, 1..=4).prop_map(|mut shape| {
        while shape.iter().product::<usize>() > 20_000 {
            let longest = (0..shape.len()).max_by_key(|&d| shape[d]).expect("a dimension");
            shape[longest] = shape[longest].div_ceil(3);
        }
        shape
    })
}

/// For each result of a reduction over `dims`, the places of its numbers in order.
fn groups(shape: &[usize], dims: &[usize]) -> Vec<Vec<usize>> {
    let kept: usize = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| shape[d]).product();
    let mut groups = vec![Vec::new(); kept];
    for i in 0..shape.iter().product() {
        let (mut rest, mut at, mut step) = (i, 0, 1);
        for d in (0..shape.len()).rev() {
            let place = rest % shape[d];
            rest /= shape[d];
            if !dims.contains(&d) {
                at += place * step;
                step *= shape[d];
            }
        }
        groups[at].push(i);
    }
    groups
}

/// The dimensions whose bits are set; all if none is.
fn chosen(bits: u8, shape: &[usize]) -> Vec<usize> {
    let dims: Vec<usize> = (0..shape.len()).filter(|d| bits >> d & 1 == 1).collect();
    if dims.is_empty() { (0..shape.len()).collect() } else { dims }
}

fn sum(x: impl Iterator<Item = f64>) -> f64 {
    x.sum()
}

/// A reduction: what it gives of some numbers, and each number's gradient for a gradient of 1.
struct Reduce {
    name: &'static str,
    op: fn(&Tensor, &[i64]) -> Tensor,
    value: fn(&[f64]) -> f64,
    gradient: fn(&[f64], f64) -> Vec<f64>,
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |m, v| m.max(v.abs()))
}

fn mean(x: &[f64]) -> f64 {
    sum(x.iter().copied()) / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let mean = mean(x);
    sum(x.iter().map(|v| (v - mean) * (v - mean))) / (x.len() as f64 - 1.0)
}

const REDUCTIONS: [Reduce; 7] = [
    Reduce {
        name: "sum",
        op: |x, dims| x.sum_dim(dims, false),
        value: |x| sum(x.iter().copied()),
        gradient: |x, _| vec![1.0; x.len()],
    },
    Reduce {
        name: "mean",
        op: |x, dims| x.mean_dim(dims, false),
        value: mean,
        gradient: |x, _| vec![1.0 / x.len() as f64; x.len()],
    },
    Reduce {
        name: "var",
        op: |x, dims| x.var_dim(dims, 1, false),
        value: variance,
        gradient: |x, _| {
            let mean = mean(x);
            x.iter().map(|v| 2.0 * (v - mean) / (x.len() as f64 - 1.0)).collect()
        },
    },
    Reduce {
        name: "norm",
        op: |x, dims| x.norm_dim(2.0, dims, false),
        value: |x| sum(x.iter().map(|v| v * v)).sqrt(),
        gradient: |x, y| x.iter().map(|v| v / y).collect(),
    },
    Reduce {
        name: "norm of order 1",
        op: |x, dims| x.norm_dim(1.0, dims, false),
        value: |x| sum(x.iter().map(|v| v.abs())),
        gradient: |x, _| x.iter().map(|v| if *v == 0.0 { 0.0 } else { v.signum() }).collect(),
    },
    Reduce {
        name: "logsumexp",
        op: |x, dims| x.logsumexp(dims, false),
        value: |x| sum(x.iter().map(|v| v.exp())).ln(),
        gradient: |x, y| x.iter().map(|v| (v - y).exp()).collect(),
    },
    Reduce {
        name: "amax",
        op: |x, dims| x.amax(dims, false),
        value: |x| x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v)),
        gradient: |x, y| {
            let equal = x.iter().filter(|v| **v == y).count() as f64;
            x.iter().map(|v| if *v == y { 1.0 / equal } else { 0.0 }).collect()
        },
    },
];

/// Something of each number along a dimension: values, and gradients by `(x, y, dy)`.
struct Along {
    name: &'static str,
    op: fn(&Tensor, i64) -> Tensor,
    value: fn(&[f64]) -> Vec<f64>,
    gradient: fn([&[f64]; 3]) -> Vec<f64>,
    /// How large the terms of a gradient may be, of which `y` is the result.
    terms: fn(&[f64]) -> f64,
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let total = sum(x.iter().map(|v| v.exp()));
    x.iter().map(|v| v.exp() / total).collect()
}

fn running(x: impl Iterator<Item = f64>) -> Vec<f64> {
    x.scan(0.0, |sum, v| {
        *sum += v;
        Some(*sum)
    })
    .collect()
}

/// `(x - mean) / sqrt(variance + 0.1)`.
fn normalized(x: &[f64]) -> Vec<f64> {
    let mean = mean(x);
    let variance = sum(x.iter().map(|v| (v - mean) * (v - mean))) / x.len() as f64;
    x.iter().map(|v| (v - mean) / (variance + 0.1).sqrt()).collect()
}

const ALONG: [Along; 3] = [
    Along {
        name: "softmax",
        op: |x, dim| x.softmax(dim),
        value: softmax,
        gradient: |[_, y, dy]| {
            let inner = sum(y.iter().zip(dy).map(|(y, d)| y * d));
            y.iter().zip(dy).map(|(y, d)| y * (d - inner)).collect()
        },
        terms: |y| 2.0 * y.iter().fold(0.0f64, |m, v| m.max(*v)),
    },
    Along {
        name: "log_softmax",
        op: |x, dim| x.log_softmax(dim),
        value: |x| softmax(x).into_iter().map(f64::ln).collect(),
        gradient: |[_, y, dy]| {
            let total = sum(dy.iter().copied());
            y.iter().zip(dy).map(|(y, d)| d - y.exp() * total).collect()
        },
        terms: |y| y.len() as f64 * y.iter().fold(0.0f64, |m, v| m.max(v.exp())) + 1.0,
    },
    Along {
        name: "cumsum",
        op: |x, dim| x.cumsum(dim),
        value: |x| running(x.iter().copied()),
        gradient: |[_, _, dy]| {
            let mut back = running(dy.iter().rev().copied());
            back.reverse();
            back
        },
        terms: |y| y.len() as f64,
    },
];

/// Compares a gradient that is computed of terms of this size.
fn close_gradient(
    name: &str,
    dtype: Dtype,
    got: &Tensor,
    want: &[f64],
    terms: impl Fn(usize) -> f64,
) -> Result<(), TestCaseError> {
    let what = format!("gradient of {name}");
    // Of the smallest numbers of f16 some are lost whole.
    let least = if dtype == Dtype::F16 { 2f64.powi(-22) } else { 1e-30 };
    close(&what, got, want, |i, v| slack(dtype) * (v.abs() + terms(i)) + least)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn reductions(shape in shapes(), bits in any::<u8>(), dtype in dtypes(), seed in any::<u64>()) {
        let dims = chosen(bits, &shape);
        let named: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        let groups = groups(&shape, &dims);
        let (x, xv) = random(&shape, dtype, seed);
        let kept: Vec<usize> = (0..shape.len()).filter(|d| !dims.contains(d)).map(|d| shape[d]).collect();
        let (dy, dv) = random(&kept, dtype, seed ^ 1);
        for op in &REDUCTIONS {
            if op.name == "var" && groups[0].len() == 1 {
                continue;
            }
            let of = |group: &Vec<usize>| group.iter().map(|&i| xv[i]).collect::<Vec<f64>>();
            let want: Vec<f64> = groups.iter().map(|group| (op.value)(&of(group))).collect();
            let y = (op.op)(&x, &named);
            let count = groups[0].len();
            close(op.name, &y, &want, |i, v| match op.name {
                "amax" => 0.0,
                "sum" => tolerance(dtype, v, sum(of(&groups[i]).iter().map(|v| v.abs())), count),
                _ => tolerance(dtype, v, 1.0 + v.abs(), count),
            })?;
            let yv = y.detach().to_dtype(Dtype::F64).to_vec::<f64>();
            let mut dx = vec![0.0; xv.len()];
            for (k, group) in groups.iter().enumerate() {
                // Of the result as it was rounded, but for what it is a sum of.
                let y = if op.name == "amax" { yv[k] } else { want[k] };
                let gradient = (op.gradient)(&of(group), y);
                group.iter().zip(gradient).for_each(|(&i, g)| dx[i] = g * dv[k]);
            }
            let got = grad(&[&y], &[&x], &[Some(&dy.detach())], GraphMode::Free);
            close_gradient(op.name, dtype, got[0].as_ref().unwrap(), &dx, |_| {
                largest(&dx).max(1.0 / groups[0].len() as f64)
            })?;
        }
    }

    #[test]
    fn along_a_dimension(shape in shapes(), dim in any::<usize>(), dtype in dtypes(), seed in any::<u64>()) {
        let d = dim % shape.len();
        let groups = groups(&shape, &[d]);
        let (x, xv) = random(&shape, dtype, seed);
        let (dy, dv) = random(&shape, dtype, seed ^ 1);
        for op in &ALONG {
            let [mut want, mut dx, mut terms] = [0; 3].map(|_| vec![0.0; xv.len()]);
            for group in &groups {
                let [xs, dys] = [&xv, &dv].map(|v| group.iter().map(|&i| v[i]).collect::<Vec<f64>>());
                let ys = (op.value)(&xs);
                let gradient = (op.gradient)([&xs, &ys, &dys]);
                for (k, &i) in group.iter().enumerate() {
                    (want[i], dx[i], terms[i]) = (ys[k], gradient[k], (op.terms)(&ys));
                }
            }
            let y = (op.op)(&x, d as i64);
            let count = shape[d];
            close(op.name, &y, &want, |_, v| match op.name {
                "softmax" => tolerance(dtype, v, v.abs(), count),
                "cumsum" => tolerance(dtype, v, count as f64, count),
                _ => tolerance(dtype, v, 1.0 + v.abs(), count),
            })?;
            let got = grad(&[&y], &[&x], &[Some(&dy.detach())], GraphMode::Free);
            close_gradient(op.name, dtype, got[0].as_ref().unwrap(), &dx, |i| terms[i])?;
        }
        let (values, places) = x.detach().max_dim(d as i64, false);
        let first: Vec<usize> = groups.iter().map(|g| (1..g.len()).fold(0, |b, k| if xv[g[k]] > xv[g[b]] { k } else { b })).collect();
        let most: Vec<f64> = groups.iter().zip(&first).map(|(g, &k)| xv[g[k]]).collect();
        close("max", &values, &most, |_, _| 0.0)?;
        let first: Vec<i64> = first.into_iter().map(|k| k as i64).collect();
        prop_assert_eq!(places.to_vec::<i64>(), first.clone());
        prop_assert_eq!(x.detach().argmax_dim(d as i64, false).to_vec::<i64>(), first);
    }

    #[test]
    fn layer_norm(shape in shapes(), last in any::<usize>(), affine in any::<bool>(), dtype in dtypes(), seed in any::<u64>()) {
        let rows: usize = shape[..last % shape.len()].iter().product();
        let own = &shape[last % shape.len()..];
        let n: usize = own.iter().product();
        let (x, xv) = random(&shape, dtype, seed);
        let (dy, dv) = random(&shape, dtype, seed ^ 1);
        let [(w, wv), (b, bv)] = [2, 3].map(|s| random(own, dtype, seed ^ s));
        let (wv, bv) = if affine { (wv, bv) } else { (vec![1.0; n], vec![0.0; n]) };
        let y = match affine {
            true => x.layer_norm(own, Some(&w), Some(&b), 0.1),
            false => x.layer_norm(own, None, None, 0.1),
        };
        let (mut want, mut dx) = (Vec::new(), Vec::new());
        let (mut dw, mut db) = (vec![0.0; n], vec![0.0; n]);
        for r in 0..rows {
            let (x, dy) = (&xv[r * n..][..n], &dv[r * n..][..n]);
            let h = normalized(x);
            let average = mean(x);
            let rstd = 1.0 / (sum(x.iter().map(|v| (v - average) * (v - average))) / n as f64 + 0.1).sqrt();
            let g: Vec<f64> = dy.iter().zip(&wv).map(|(d, w)| d * w).collect();
            let along = sum(g.iter().zip(&h).map(|(g, h)| g * h)) / n as f64;
            let total = mean(&g);
            for i in 0..n {
                want.push(h[i] * wv[i] + bv[i]);
                dx.push(rstd * (g[i] - total - h[i] * along));
                dw[i] += dy[i] * h[i];
                db[i] += dy[i];
            }
        }
        close("layer_norm", &y, &want, |_, v| tolerance(dtype, v, 4.0 + v.abs(), n))?;
        let dy = dy.detach();
        let dxg = grad(&[&y], &[&x], &[Some(&dy)], if affine { GraphMode::Retain } else { GraphMode::Free });
        let scale = dv.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        close("dx", dxg[0].as_ref().unwrap(), &dx, |_, v| slack(dtype) * 4.0 * (v.abs() + scale))?;
        if affine {
            let got = grad(&[&y], &[&w, &b], &[Some(&dy)], GraphMode::Free);
            let terms = (rows as f64).sqrt() * scale;
            close("dw", got[0].as_ref().unwrap(), &dw, |_, v| slack(dtype) * 2.0 * (v.abs() + terms))?;
            close("db", got[1].as_ref().unwrap(), &db, |_, v| slack(dtype) * (v.abs() + terms))?;
        }
    }

    #[test]
    fn batch_norm(
        batch in 1..=9usize,
        channels in prop_oneof![3 => 1..=40usize, 1 => 1..=200usize],
        rest in proptest::collection::vec(1..=20usize, 0..=2),
        dtype in dtypes(),
        seed in any::<u64>(),
    ) {
        let shape = [&[batch, channels][..], &rest].concat();
        let count = shape.iter().product::<usize>() / channels;
        if count == 1 {
            return Ok(());
        }
        let plane: usize = rest.iter().product();
        let (x, xv) = random(&shape, dtype, seed);
        let (dy, dv) = random(&shape, dtype, seed ^ 1);
        let [(w, wv), (b, bv)] = [2, 3].map(|s| random(&[channels], dtype, seed ^ s));
        let [means, variances] = [Dtype::F32; 2].map(|dtype| Tensor::zeros([channels], dtype));
        let [means, variances] = match dtype {
            Dtype::F64 => [means, variances].map(|t| t.to_dtype(Dtype::F64)),
            _ => [means, variances].map(|t| t.to_dtype(dtype)),
        };
        let y = F::batch_norm(&x, F::BatchNormOptions {
            running_mean: Some(&means),
            running_var: Some(&variances),
            weight: Some(&w),
            bias: Some(&b),
            training: true,
            momentum: 1.0,
            eps: 0.1,
        });
        let (mut want, mut dx) = (vec![0.0; xv.len()], vec![0.0; xv.len()]);
        let [mut dw, mut db, mut mean_of, mut variance_of] = [0; 4].map(|_| vec![0.0; channels]);
        for c in 0..channels {
            let places: Vec<usize> = (0..count).map(|i| (i / plane * channels + c) * plane + i % plane).collect();
            let xs: Vec<f64> = places.iter().map(|&i| xv[i]).collect();
            (mean_of[c], variance_of[c]) = (mean(&xs), variance(&xs));
            let h = normalized(&xs);
            let rstd = 1.0 / (variance_of[c] * (count as f64 - 1.0) / count as f64 + 0.1).sqrt();
            db[c] = sum(places.iter().map(|&i| dv[i]));
            dw[c] = sum(places.iter().zip(&h).map(|(&i, h)| dv[i] * h));
            for (&i, h) in places.iter().zip(&h) {
                want[i] = h * wv[c] + bv[c];
                dx[i] = wv[c] * rstd * (dv[i] - (db[c] + h * dw[c]) / count as f64);
            }
        }
        close("batch_norm", &y, &want, |_, v| tolerance(dtype, v, 4.0 + v.abs(), count))?;
        close("mean", &means, &mean_of, |_, v| tolerance(dtype, v, 1.0, count))?;
        close("variance", &variances, &variance_of, |_, v| tolerance(dtype, v, 1.0, count))?;
        let got = grad(&[&y], &[&x, &w, &b], &[Some(&dy.detach())], GraphMode::Free);
        let terms = (count as f64).sqrt();
        close("dx", got[0].as_ref().unwrap(), &dx, |_, v| slack(dtype) * 4.0 * (v.abs() + 1.0))?;
        close("dw", got[1].as_ref().unwrap(), &dw, |_, v| slack(dtype) * 2.0 * (v.abs() + terms))?;
        close("db", got[2].as_ref().unwrap(), &db, |_, v| slack(dtype) * (v.abs() + terms))?;
    }

    #[test]
    fn cross_entropy(
        (rows, classes) in (1..=70usize, prop_oneof![4 => 1..=40usize, 1 => 41..=1500usize]),
        (deep, weighted, smooth, mean) in any::<(bool, bool, bool, bool)>(),
        dtype in dtypes(),
        seed in any::<u64>(),
    ) {
        let draw = &mut Draw(seed ^ 5);
        // `deep`: [N, C, d], of which the rows are all of N and d.
        let depth = if deep { draw.below(9) + 1 } else { 1 };
        let batch = rows.div_ceil(depth);
        let shape = if deep { vec![batch, classes, depth] } else { vec![batch, classes] };
        let targets: Vec<i64> =
            (0..batch * depth).map(|_| if draw.below(7) == 0 { -100 } else { draw.below(classes) as i64 }).collect();
        if targets.iter().all(|t| *t == -100) {
            return Ok(());
        }
        let target = Tensor::from_slice(&targets, if deep { vec![batch, depth] } else { vec![batch] });
        let (x, xv) = random(&shape, dtype, seed);
        let (weight, weights) = random(&[classes], dtype, seed ^ 1);
        let weight = weight.detach().abs();
        let weights: Vec<f64> = weights.iter().map(|v| if weighted { v.abs() } else { 1.0 }).collect();
        let smoothing = if smooth { 0.25 } else { 0.0 };
        let options = CrossEntropyOptions {
            weight: weighted.then(|| weight.clone()),
            label_smoothing: smoothing,
            reduction: if mean { Reduction::Mean } else { Reduction::Sum },
            ..Default::default()
        };
        let loss = x.cross_entropy_with(&target, options.clone());
        let (mut total, mut counted, mut dx) = (0.0, 0.0, vec![0.0; xv.len()]);
        for (row, places) in groups(&shape, &[1]).iter().enumerate() {
            let Ok(class) = usize::try_from(targets[row]) else { continue };
            let xs: Vec<f64> = places.iter().map(|&i| xv[i]).collect();
            let p = softmax(&xs);
            // How much each class counts.
            let share: Vec<f64> = (0..classes)
                .map(|c| weights[c] * (smoothing / classes as f64 + if c == class { 1.0 - smoothing } else { 0.0 }))
                .collect();
            let all = sum(share.iter().copied());
            total -= sum(p.iter().zip(&share).map(|(p, share)| share * p.ln()));
            counted += weights[class];
            places.iter().enumerate().for_each(|(c, &i)| dx[i] = all * p[c] - share[c]);
        }
        let divisor = if mean { counted } else { 1.0 };
        dx.iter_mut().for_each(|v| *v /= divisor);
        let bound = |_, v: f64| slack(dtype) * (v.abs() + if mean { 1.0 } else { 0.0 });
        close("loss", &loss, &[total / divisor], bound)?;
        let got = grad(&[&loss], &[&x], &[None], GraphMode::Free);
        close_gradient("cross_entropy", dtype, got[0].as_ref().unwrap(), &dx, |_| 1.0 / divisor)?;
    }
}
