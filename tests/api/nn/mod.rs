//! Modules and losses against PyTorch's numbers, names and texts; initial values.

mod blame;
mod initial;
mod losses;
mod modules;
mod printing;

use torchrs::Tensor;

fn assert_close(got: &Tensor, want: &[f64], tolerance: f64) {
    let got = got.to_vec::<f64>();
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * (1.0 + b.abs());
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}, not {want:?}");
}

/// Smallest, largest, mean and standard deviation.
fn statistics(t: &Tensor) -> [f64; 4] {
    let v = t.to_vec::<f64>();
    let n = v.len() as f64;
    let mean = v.iter().sum::<f64>() / n;
    let variance = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let min = v.iter().copied().fold(f64::INFINITY, f64::min);
    let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [min, max, mean, variance.sqrt()]
}
