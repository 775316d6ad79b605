//! Products of matrices, stacks and vectors.

use proptest::prelude::*;
use torchrs::autograd::{GraphMode, grad};
use torchrs::{Dtype, Tensor};

use super::laid::{close, dtypes, random, rounding, tolerance};

/// A product's sizes: few of one dimension often, as in matrix-vector products.
fn sizes() -> impl Strategy<Value = [usize; 3]> {
    let size = || prop_oneof![2 => 1..=9usize, 3 => 1..=70usize, 1 => 1..=200usize];
    [size(), size(), size()]
}

/// For each result its factors' places, and what the result and its magnitude are.
struct Sums {
    y: Vec<f64>,
    magnitude: Vec<f64>,
    da: [Vec<f64>; 2],
    db: [Vec<f64>; 2],
}

/// `y[t, i, j] = sum of a[ta(t), i, p] b[tb(t), p, j]`, and the gradients by `dy`, each with its magnitude.
fn sums(a: &[f64], b: &[f64], dy: &[f64], [m, k, n]: [usize; 3], stacks: &[[usize; 2]]) -> Sums {
    let zeros = |of: &[f64]| vec![0.0; of.len()];
    let (y, magnitude) = (zeros(dy), zeros(dy));
    let mut out = Sums { y, magnitude, da: [zeros(a), zeros(a)], db: [zeros(b), zeros(b)] };
    for (t, &[ta, tb]) in stacks.iter().enumerate() {
        for i in 0..m {
            for p in 0..k {
                let at = (ta * m + i) * k + p;
                for j in 0..n {
                    let (bt, yt) = ((tb * k + p) * n + j, (t * m + i) * n + j);
                    let (product, of_a, of_b) = (a[at] * b[bt], dy[yt] * b[bt], dy[yt] * a[at]);
                    out.y[yt] += product;
                    out.magnitude[yt] += product.abs();
                    out.da[0][at] += of_a;
                    out.da[1][at] += of_a.abs();
                    out.db[0][bt] += of_b;
                    out.db[1][bt] += of_b.abs();
                }
            }
        }
    }
    out
}

/// Compares a product and its gradients with the definition.
fn compare(
    dtype: Dtype,
    y: &Tensor,
    [a, b]: [&Tensor; 2],
    dy: &Tensor,
    want: &Sums,
    [m, k, n]: [usize; 3],
) -> Result<(), TestCaseError> {
    close("y", y, &want.y, |i, v| tolerance(dtype, v, want.magnitude[i], k))?;
    let grads = grad(&[y], &[a, b], &[Some(dy)], GraphMode::Free);
    for (g, ([want, magnitude], terms)) in grads.iter().zip([(&want.da, n), (&want.db, m)]) {
        let g = g.as_ref().expect("a gradient");
        // Stacks that broadcast are summed after they were rounded.
        close("gradient", g, want, |i, v| {
            let rounded =
                if dtype.size() == 2 { rounding(dtype) / 2.0 * magnitude[i] } else { 0.0 };
            tolerance(dtype, v, magnitude[i], terms) + rounded
        })?;
    }
    Ok(())
}

/// The stacks that dimensions of `1` or the full size name.
fn stacks(full: &[usize], a: &[usize], b: &[usize]) -> Vec<[usize; 2]> {
    let place = |t: usize, own: &[usize]| {
        let (mut t, mut at, mut step) = (t, 0, 1);
        for d in (0..full.len()).rev() {
            let i = t % full[d];
            t /= full[d];
            if let Some(own) = (d + own.len()).checked_sub(full.len()).map(|d| own[d]) {
                at += if own == 1 { 0 } else { i * step };
                step *= own;
            }
        }
        at
    };
    (0..full.iter().product()).map(|t| [place(t, a), place(t, b)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn matrices([m, k, n] in sizes(), dtype in dtypes(), seed in any::<u64>()) {
        let (a, av) = random(&[m, k], dtype, seed);
        let (b, bv) = random(&[k, n], dtype, seed ^ 1);
        let (dy, dv) = random(&[m, n], dtype, seed ^ 2);
        let want = sums(&av, &bv, &dv, [m, k, n], &[[0, 0]]);
        compare(dtype, &a.matmul(&b), [&a, &b], &dy.detach(), &want, [m, k, n])?;
    }

    #[test]
    fn stacks_that_broadcast(
        [m, k, n] in sizes(),
        full in proptest::collection::vec(1..=4usize, 1..=2),
        ones in any::<[u8; 2]>(),
        dtype in dtypes(),
        seed in any::<u64>(),
    ) {
        let [m, k, n] = [m, k, n].map(|size| size.div_ceil(3));
        // Some of a factor's dimensions are 1, some are missing; those in which both are 1 are 1 in the result.
        let part = |bits: u8| {
            let mut own = full.clone();
            (0..own.len()).filter(|d| bits >> d & 1 == 1).for_each(|d| own[d] = 1);
            let missing = (bits >> 4) as usize % (own.len() + 2);
            if missing <= own.len() { own.split_off(missing) } else { own }
        };
        let [pa, pb] = ones.map(part);
        let longest = pa.len().max(pb.len());
        let size = |own: &[usize], d: usize| (d + own.len()).checked_sub(longest).map_or(1, |d| own[d]);
        let full: Vec<usize> = (0..longest).map(|d| size(&pa, d).max(size(&pb, d))).collect();
        let with = |stack: &[usize], matrix: [usize; 2]| [stack, &matrix].concat();
        let (a, av) = random(&with(&pa, [m, k]), dtype, seed);
        let (b, bv) = random(&with(&pb, [k, n]), dtype, seed ^ 1);
        let (dy, dv) = random(&with(&full, [m, n]), dtype, seed ^ 2);
        let want = sums(&av, &bv, &dv, [m, k, n], &stacks(&full, &pa, &pb));
        compare(dtype, &a.matmul(&b), [&a, &b], &dy.detach(), &want, [m, k, n])?;
    }

    #[test]
    fn vectors([m, k, n] in sizes(), right in any::<bool>(), dtype in dtypes(), seed in any::<u64>()) {
        let [m, k, n] = if right { [m * 3, k * 3, 1] } else { [1, k * 3, n * 3] };
        let shapes = if right { (vec![m, k], vec![k], m) } else { (vec![k], vec![k, n], n) };
        let (a, av) = random(&shapes.0, dtype, seed);
        let (b, bv) = random(&shapes.1, dtype, seed ^ 1);
        let (dy, dv) = random(&[shapes.2], dtype, seed ^ 2);
        let want = sums(&av, &bv, &dv, [m, k, n], &[[0, 0]]);
        compare(dtype, &a.matmul(&b), [&a, &b], &dy.detach(), &want, [m, k, n])?;
    }

    #[test]
    fn linear([m, k, n] in sizes(), bias in any::<bool>(), dtype in dtypes(), seed in any::<u64>()) {
        let (x, xv) = random(&[m, k], dtype, seed);
        let (w, wv) = random(&[n, k], dtype, seed ^ 1);
        let (bias, shift) = match bias {
            true => {
                let (bias, shift) = random(&[n], dtype, seed ^ 3);
                (Some(bias), shift)
            }
            false => (None, vec![0.0; n]),
        };
        let (dy, dv) = random(&[m, n], dtype, seed ^ 2);
        let turned: Vec<f64> = (0..k * n).map(|i| wv[i % n * k + i / n]).collect();
        let mut want = sums(&xv, &turned, &dv, [m, k, n], &[[0, 0]]);
        for i in 0..m * n {
            want.y[i] += shift[i % n];
            want.magnitude[i] += shift[i % n].abs();
        }
        want.db = want.db.map(|db| (0..k * n).map(|i| db[i % k * n + i / k]).collect());
        let y = x.linear(&w, bias.as_ref());
        compare(dtype, &y, [&x, &w], &dy.detach(), &want, [m, k, n])?;
        if let Some(bias) = &bias {
            let y = x.linear(&w, Some(bias));
            let got = grad(&[&y], &[bias], &[Some(&dy.detach())], GraphMode::Free);
            let column = |j: usize| (0..m).map(move |i| i * n + j);
            let sum: Vec<f64> = (0..n).map(|j| column(j).map(|i| dv[i]).sum()).collect();
            close("bias", got[0].as_ref().unwrap(), &sum, |j, v| {
                tolerance(dtype, v, column(j).map(|i| dv[i].abs()).sum(), m)
            })?;
        }
    }

    #[test]
    fn sums_with_a_start([m, k, n] in sizes(), rows in any::<bool>(), dtype in dtypes(), seed in any::<u64>()) {
        let (a, av) = random(&[m, k], dtype, seed);
        let (b, bv) = random(&[k, n], dtype, seed ^ 1);
        let (start, sv) = random(&if rows { [m, n] } else { [1, n] }, dtype, seed ^ 3);
        let (beta, alpha) = ((seed % 5) as f64 / 2.0 - 1.0, (seed / 5 % 5) as f64 / 2.0 - 1.0);
        let want = sums(&av, &bv, &vec![0.0; m * n], [m, k, n], &[[0, 0]]);
        let got = start.addmm(&a, &b, beta, alpha);
        let first = |i: usize| beta * sv[if rows { i } else { i % n }];
        let y: Vec<f64> = (0..m * n).map(|i| first(i) + alpha * want.y[i]).collect();
        close("addmm", &got, &y, |i, v| {
            tolerance(dtype, v, want.magnitude[i] * alpha.abs() + first(i).abs(), k)
        })?;
    }
}
