//! Samples of masked reductions: masks of the input's shape, masks that broadcast, and none.

use super::*;
use crate::ops::checks::samples::{OpSample, Order, values};

/// A mask of `[2, 3, 4]` that keeps something of every row and column.
fn of_all() -> Tensor {
    let kept: Vec<bool> = (0..24).map(|i| i % 5 != 1 && i % 7 != 3).collect();
    Tensor::from_slice(&kept, [2, 3, 4])
}

/// The function of an input, with a mask.
type Masked = fn(&Tensor, &Tensor) -> Tensor;

/// Once with a mask of the input's shape, once with one that broadcasts.
fn both(name: &str, f: Masked) -> [OpSample; 2] {
    let row = Tensor::from([true, false, true, true]);
    [("", of_all()), (", a row's mask", row)].map(|(what, mask)| {
        let inputs = [values([2, 3, 4], 2), mask];
        OpSample::new(format!("masked.{name}{what}"), inputs, move |x| f(&x[0], &x[1])).slack(8.0)
    })
}

pub(super) fn samples() -> Vec<OpSample> {
    let differentiable: [(&str, Masked); 20] = [
        ("sum(dim=[0, 2])", |x, m| sum(x, &[0, 2], false, m)),
        ("sum", |x, m| sum(x, &[], true, m)),
        ("prod(dim=1)", |x, m| prod(x, &[1], false, m)),
        ("prod(dim=[0, -1], keepdim)", |x, m| prod(x, &[0, -1], true, m)),
        ("amax(dim=-1)", |x, m| amax(x, &[-1], false, m)),
        ("amin(dim=[1, 2], keepdim)", |x, m| amin(x, &[1, 2], true, m)),
        ("mean(dim=[1, 2])", |x, m| mean(x, &[1, 2], false, m)),
        ("mean", |x, m| mean(x, &[], false, m)),
        ("median(dim=-1)", |x, m| median(x, -1, true, m)),
        ("norm(3, dim=0)", |x, m| norm(x, 3.0, &[0], false, m)),
        ("norm(inf, dim=[0, 1])", |x, m| norm(x, f64::INFINITY, &[0, 1], false, m)),
        ("var(dim=-1)", |x, m| var(x, &[-1], 1.0, false, m)),
        ("std(dim=[1, 2])", |x, m| std(x, &[1, 2], 0.0, true, m)),
        ("cumsum(dim=1)", |x, m| cumsum(x, 1, m)),
        ("cumprod(dim=-1)", |x, m| cumprod(x, -1, m)),
        ("softmax(dim=-1)", |x, m| softmax(x, -1, m)),
        ("softmin(dim=2)", |x, m| softmin(x, 2, m)),
        ("logsumexp(dim=[1, 2])", |x, m| logsumexp(x, &[1, 2], false, m)),
        ("normalize(2, dim=-1)", |x, m| normalize(x, 2.0, -1, 1e-12, m)),
        // Of what does not count the logarithm is minus infinity.
        ("log_softmax(dim=-1)", |x, m| log_softmax(x, -1, m).masked_fill(&m.logical_not(), 0.0)),
    ];
    let places: [(&str, Masked); 2] = [
        ("argmax(dim=1)", |x, m| argmax(x, 1, false, m)),
        ("argmin(keepdim)", |x, m| argmin(x, None, true, m)),
    ];
    let mut all: Vec<OpSample> =
        differentiable.into_iter().flat_map(|(name, f)| both(name, f)).collect();
    for (name, f) in places {
        all.extend(both(name, f).map(|sample| sample.order(Order::None)));
    }
    let two = [values([3, 4], 1), values([4], 2), Tensor::from([true, false, true, true])];
    all.push(OpSample::new("masked.logaddexp", two, |x| logaddexp(&x[0], &x[1], &x[2], None)));
    let x = || [values([3, 4], 3)];
    all.push(OpSample::new("masked.mean, no mask", x(), |x| mean(&x[0], &[0], false, None)));
    all.push(OpSample::new("masked.softmax, no mask", x(), |x| softmax(&x[0], 0, None)));
    all
}
