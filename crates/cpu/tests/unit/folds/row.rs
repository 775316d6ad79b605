//! Loops over a row, of any length and whatever follows it.

use torchrs_cpu::folds::row::{exp_sum, map, max, sum, sum2};
use torchrs_cpu::numbers::widen::{Real, Widen};

#[test]
fn rows_of_any_length() {
    for n in [0, 1, 15, 16, 17, 100, 5000] {
        let x: Vec<f32> = (0..n).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
        let exact = |f: &dyn Fn(f64) -> f64| x.iter().map(|&v| f(v as f64)).sum::<f64>();
        assert_eq!(max(&x, n), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        assert_eq!(sum!(f32, &x, n, 0.0, |v| 2.0 * v) as f64, exact(&|v| 2.0 * v));
        assert_eq!(sum2!(f32, &x, &x, |a, b| a * b) as f64, exact(&|v| v * v));
        let mut e = vec![0.0; n];
        let s = exp_sum::<f32, false>(&x, 1.0, &mut e);
        assert!((s as f64 - exact(&|v| (v - 1.0).exp())).abs() <= 1e-6 * s as f64);
        assert!(x.iter().zip(&e).all(|(&x, &e)| ((x - 1.0).exp() / e - 1.0).abs() < 1e-6));
    }
    assert_eq!(max(&[1.0f32, f32::NAN, 2.0], 3), 2.0);
    assert_eq!(max(&[f32::NAN; 20], 20), f32::NEG_INFINITY);
    // What follows a row is none of it.
    let more: Vec<f32> = (0..100).map(|i| if i < 37 { i as f32 } else { f32::NAN }).collect();
    for n in 1..37 {
        assert_eq!(max(&more, n), n as f32 - 1.0);
        assert_eq!(sum!(f32, &more, n, 0.0, |v| v), (n * (n - 1) / 2) as f32);
        let mut e = vec![0.0; n];
        assert!(exp_sum::<f32, false>(&more, n as f32, &mut e) < 1.0);
        map!(f32, &more, &mut e, |v| 2.0 * v);
        assert!(e.iter().zip(&more).all(|(e, v)| *e == 2.0 * v));
    }
    for n in [1, 17, 64, 100] {
        for at in 0..n {
            let mut x = vec![-1.0; n];
            x[at] = 3.0;
            assert_eq!(max(&x, n), 3.0);
            x[at] = f32::NAN;
            assert!(exp_sum::<f32, false>(&x, max(&x, n), &mut vec![0.0; n]).is_nan());
        }
    }
}
