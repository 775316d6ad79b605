//! Sums, means and variances against the definitions.

use torchrs_cpu::folds::moments::{Moments, REGISTER, SHORT, last_of, short_sum, sum};

#[test]
fn moments_of_any_length_are_those_by_the_definition() {
    for n in [1, 3, 7, 8, 9, 31, 32, 33, 49, 63, 100, 768, 4095, 4097, 20_000] {
        let x: Vec<f64> = (0..n).map(|i| 3.0 + (i * 37 % 101) as f64 / 7.0).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let squares = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
        let m = Moments::of::<f64, false>(&x);
        assert!((m.mean - mean).abs() < 1e-13 * mean, "{n}: {} {mean}", m.mean);
        assert!(
            (m.squares - squares).abs() < 1e-11 * squares.max(1.0),
            "{n}: {} {squares}",
            m.squares
        );
        assert!((sum(&x) / n as f64 - mean).abs() < 1e-13 * mean, "{n}");
        if (REGISTER..=SHORT).contains(&n) {
            let short = short_sum(&x, &last_of(n));
            assert!((short / n as f64 - mean).abs() < 1e-13 * mean, "{n}");
        }
    }
}

#[test]
fn a_large_mean_does_not_spoil_the_variance() {
    let x: Vec<f32> = (0..100_000).map(|i| 1e6 + (i % 2) as f32).collect();
    let m = Moments::of::<f32, false>(&x);
    assert!((m.mean - 1_000_000.5).abs() < 1e-3, "{}", m.mean);
    assert!((m.variance() - 0.25).abs() < 1e-6, "{}", m.variance());
}
