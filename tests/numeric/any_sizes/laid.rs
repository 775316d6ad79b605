//! Random numbers in random layouts, and how results are compared.

use proptest::prelude::*;
use torchrs::{Dtype, Tensor};

use crate::draw::Draw;

/// The floating-point types, f32 most often.
pub fn dtypes() -> impl Strategy<Value = Dtype> {
    prop_oneof![5 => Just(Dtype::F32), 1 => Just(Dtype::F64), 1 => Just(Dtype::BF16), 1 => Just(Dtype::F16)]
}

/// Random numbers from -1 to 1 in a random layout: any order of dimensions, with gaps of NaN between rows and
/// between neighbours, and as a leaf that wants a gradient. And the same numbers as they were rounded.
pub fn random(shape: &[usize], dtype: Dtype, seed: u64) -> (Tensor, Vec<f64>) {
    let draw = &mut Draw(seed);
    let number = |_| (draw.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    let numbers: Vec<f64> = (0..shape.iter().product()).map(number).collect();
    let x = laid(&numbers, shape, dtype, draw).requires_grad_(true);
    let rounded = x.detach().to_dtype(Dtype::F64).to_vec();
    (x, rounded)
}

/// These numbers in a random layout.
pub fn laid(numbers: &[f64], shape: &[usize], dtype: Dtype, draw: &mut Draw) -> Tensor {
    let plain = Tensor::from_slice(numbers, shape).to_dtype(dtype);
    let n = shape.len();
    if n == 0 || draw.below(3) == 0 {
        return plain;
    }
    // The dimensions' order in memory.
    let order = if draw.coin() { draw.permutation(n) } else { (0..n).collect() };
    // For each dimension in that order, how many elements lie before, behind and between its own.
    let gaps: Vec<[usize; 3]> = (0..n)
        .map(|d| match draw.below(6) {
            0 => [draw.below(4), draw.below(4), 1],
            1 => [0, draw.below(20), 1],
            2 if d + 1 == n => [draw.below(2), 0, 2],
            _ => [0, 0, 1],
        })
        .collect();
    let sizes: Vec<usize> =
        (0..n).map(|d| gaps[d][0] + shape[order[d]] * gaps[d][2] + gaps[d][1]).collect();
    let mut view = Tensor::full(&sizes[..], f64::NAN, dtype);
    for d in 0..n {
        let [before, _, step] = gaps[d];
        let end = before + shape[order[d]] * step;
        view = view.slice(d as i64, before as i64, end as i64, step);
    }
    let mut back = vec![0; n];
    (0..n).for_each(|d| back[order[d]] = d as i64);
    let view = view.permute(&back);
    view.copy_(&plain);
    view
}

/// The distance of neighbouring numbers from 1 on.
pub fn rounding(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => 2f64.powi(-52),
        Dtype::F32 => 2f64.powi(-23),
        Dtype::F16 => 2f64.powi(-10),
        _ => 2f64.powi(-7),
    }
}

/// What a number can be off by: `sums` roundings of the sum of magnitudes in the type that is summed in, and one of
/// the result.
pub fn tolerance(dtype: Dtype, value: f64, magnitude: f64, sums: usize) -> f64 {
    let sum = rounding(dtype).min(rounding(Dtype::F32));
    // Half the distance of the smallest numbers.
    let least = if dtype == Dtype::F16 { 2f64.powi(-25) } else { 0.0 };
    rounding(dtype) * value.abs() + sum * magnitude * (4.0 + (sums as f64).sqrt()) + least + 1e-30
}

/// What a number can be off by, as a part of what it is computed of: half types may round what backward reads again.
pub fn slack(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => 1e-13,
        Dtype::F32 => 2e-6,
        _ => 4.0 * rounding(dtype),
    }
}

/// Compares element by element, each within what `bound` of its number and value says.
pub fn close(
    what: &str,
    got: &Tensor,
    want: &[f64],
    bound: impl Fn(usize, f64) -> f64,
) -> Result<(), TestCaseError> {
    let got = got.detach().to_dtype(Dtype::F64).to_vec::<f64>();
    prop_assert_eq!(got.len(), want.len(), "{}", what);
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let bound = bound(i, w);
        prop_assert!(
            (g - w).abs() <= bound,
            "{what}: element {i} is {g}, expected {w} within {bound:.1e}"
        );
    }
    Ok(())
}
