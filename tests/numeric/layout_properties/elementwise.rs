//! Broadcasting and reductions of random views.

use proptest::prelude::*;
use torchrs::{Dtype, Error, Tensor, catch};

use super::model::{Model, base, broadcast_from, chain, flat, places, seeds, shapes};
use crate::draw::Draw;

/// The shape that two broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let n = a.len().max(b.len());
    let size = |s: &[usize], d: usize| if d + s.len() < n { 1 } else { s[d + s.len() - n] };
    (0..n)
        .map(|d| match (size(a, d), size(b, d)) {
            (a, b) if a == b => Some(a),
            (1, n) | (n, 1) => Some(n),
            _ => None,
        })
        .collect()
}

/// A shape that broadcasts with `shape`, most of the time.
fn partner(shape: &[usize], seed: u64) -> Vec<usize> {
    let draw = &mut Draw(seed);
    let mut other: Vec<usize> = shape
        .iter()
        .map(|&n| match draw.below(8) {
            0..3 => 1,
            3 => draw.below(4),
            _ => n,
        })
        .collect();
    let dropped = draw.below(other.len() + 1);
    if draw.coin() {
        other.drain(..dropped);
    }
    if draw.below(4) == 0 {
        other.insert(0, 2);
    }
    other
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn operands_broadcast(shape in shapes(), seeds in seeds(), seed in any::<u64>()) {
        let (x, m) = chain(&base(&shape), &Model::new(&shape), &seeds, false);
        let other = partner(&m.shape, seed);
        // Not dense: every second element of a longer tensor.
        let mut double = other.clone();
        double.push(2);
        let y = base(&double).select(-1, 1);
        let Some(result) = broadcast(&m.shape, &other) else {
            let error = catch(|| x.add(&y)).unwrap_err();
            prop_assert!(matches!(error, Error::Shape { .. }), "{}", error);
            return Ok(());
        };
        let (a, b) = (x.to_vec::<i64>(), y.to_vec::<i64>());
        let pairs = places(&result).into_iter().map(|p| (a[broadcast_from(&m.shape, &p)], b[broadcast_from(&other, &p)]));
        let pairs: Vec<(i64, i64)> = pairs.collect();
        let sums: Vec<i64> = pairs.iter().map(|(a, b)| a + 2 * b).collect();
        for (x, y) in [(x.clone(), y.clone()), (x.to_dtype(Dtype::F64), y.to_dtype(Dtype::F64))] {
            let sum = x.add_scaled(&y, 2);
            prop_assert_eq!(sum.shape(), &result[..]);
            prop_assert_eq!(sum.to_vec::<i64>(), sums.clone());
        }
        let below: Vec<bool> = pairs.iter().map(|(a, b)| a < b).collect();
        prop_assert_eq!(x.lt(&y).to_vec::<bool>(), below);
        let chosen: Vec<i64> = pairs.iter().map(|(a, b)| *a.max(b)).collect();
        prop_assert_eq!(x.lt(&y).where_(&y, &x).to_vec::<i64>(), chosen);
        // In place: a fresh tensor of the result's shape or, if smaller, an error.
        let own = x.clone_contiguous();
        if result == m.shape {
            own.add_scaled_(&y, 2);
            prop_assert_eq!(own.to_vec::<i64>(), sums);
        } else {
            prop_assert!(catch(|| own.add_(&y).numel()).is_err());
        }
    }

    #[test]
    fn reductions_fold_the_named_dimensions(
        shape in shapes(), seeds in seeds(), seed in any::<u64>(), keepdim in any::<bool>(),
    ) {
        let (x, m) = chain(&base(&shape), &Model::new(&shape), &seeds, false);
        let draw = &mut Draw(seed);
        let n = m.shape.len();
        let named: Vec<usize> = (0..n).filter(|_| draw.coin()).collect();
        let dims: Vec<i64> = draw
            .permutation(named.len())
            .into_iter()
            .map(|k| named[k] as i64 - if draw.coin() { n as i64 } else { 0 })
            .collect();
        // No name: all.
        let reduced = |d: &usize| named.is_empty() || named.contains(d);
        let kept: Vec<usize> = (0..n).filter(|d| !reduced(d)).collect();
        let short: Vec<usize> = kept.iter().map(|&d| m.shape[d]).collect();
        let mut groups: Vec<Vec<i64>> = vec![Vec::new(); short.iter().product()];
        for (place, &v) in places(&m.shape).iter().zip(&m.map) {
            let own: Vec<usize> = kept.iter().map(|&d| place[d]).collect();
            groups[flat(&short, &own)].push(v as i64);
        }
        let result: Vec<usize> = (0..n)
            .filter(|d| keepdim || !reduced(d))
            .map(|d| if reduced(&d) { 1 } else { m.shape[d] })
            .collect();
        let sums: Vec<i64> = groups.iter().map(|g| g.iter().sum()).collect();
        let doubles = x.to_dtype(Dtype::F64);
        // The same order of elements in memory as the view has.
        for sum in [x.sum_dim(&dims, keepdim), doubles.sum_dim(&dims, keepdim)] {
            prop_assert_eq!(sum.shape(), &result[..]);
            prop_assert_eq!(sum.to_vec::<i64>(), sums.clone());
        }
        let odd = x.remainder(2).eq(1);
        let any: Vec<bool> = groups.iter().map(|g| g.iter().any(|v| v % 2 == 1)).collect();
        let all: Vec<bool> = groups.iter().map(|g| g.iter().all(|v| v % 2 == 1)).collect();
        prop_assert_eq!(odd.any_dim(&dims, keepdim).to_vec::<bool>(), any);
        prop_assert_eq!(odd.all_dim(&dims, keepdim).to_vec::<bool>(), all);
        if (0..n).any(|d| reduced(&d) && m.shape[d] == 0) {
            prop_assert!(catch(|| x.amax(&dims, keepdim)).is_err());
            return Ok(());
        }
        let most: Vec<i64> = groups.iter().map(|g| *g.iter().max().unwrap()).collect();
        let least: Vec<i64> = groups.iter().map(|g| *g.iter().min().unwrap()).collect();
        prop_assert_eq!(x.amax(&dims, keepdim).to_vec::<i64>(), most);
        prop_assert_eq!(doubles.amin(&dims, keepdim).to_vec::<i64>(), least);
        let means = doubles.mean_dim(&dims, keepdim).to_vec::<f64>();
        for ((mean, sum), group) in means.iter().zip(&sums).zip(&groups) {
            let want = *sum as f64 / group.len() as f64;
            prop_assert!((mean - want).abs() <= 1e-12 * want.abs(), "{} and {}", mean, want);
        }
    }

    #[test]
    fn sums_are_spread_back(shape in shapes(), seed in any::<u64>()) {
        let x = Tensor::ones(&shape, Dtype::F64).requires_grad_(true);
        let other = partner(&shape, seed);
        let Some(result) = broadcast(&shape, &other) else { return Ok(()) };
        let y = Tensor::full(&other, 3.0, Dtype::F64).requires_grad_(true);
        (&x * &y).sum().backward();
        let times = |own: &[usize]| {
            let own: usize = own.iter().product();
            result.iter().product::<usize>() as f64 / own.max(1) as f64
        };
        prop_assert_eq!(x.grad().unwrap().to_vec::<f64>(), vec![3.0 * times(&shape); x.numel()]);
        prop_assert_eq!(y.grad().unwrap().to_vec::<f64>(), vec![times(&other); y.numel()]);
    }
}
