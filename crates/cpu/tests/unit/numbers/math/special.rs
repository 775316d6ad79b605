//! Known values of special functions.

use std::f64::consts::PI;

use torchrs_cpu::numbers::math::special::*;

fn near(got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-12 * want.abs().max(1e-3), "{got}, not {want}");
}

#[test]
fn known_values() {
    near(erfcx(0.0), 1.0);
    near(erfcx(25.5), (25.5f64 * 25.5).exp() * erfc(25.5));
    near(lgamma(5.0), 24f64.ln());
    near(digamma(1.0), -0.577_215_664_901_532_9);
    near(digamma(0.5), -0.577_215_664_901_532_9 - 2.0 * std::f64::consts::LN_2);
    near(digamma(-0.5), digamma(0.5) + 2.0);
    near(trigamma(1.0), PI * PI / 6.0);
    near(trigamma(0.25), zeta(2.0, 0.25));
    near(trigamma(-3.3), zeta(2.0, -3.3));
    near(trigamma(40.0), zeta(2.0, 40.0));
    assert_eq!([trigamma(0.0), trigamma(f64::INFINITY)], [f64::INFINITY, 0.0]);
    near(ndtri(5e-324), -38.467_405_617_144_34);
    near(zeta(2.0, 1.0), PI * PI / 6.0);
    near(zeta(4.0, 1.0), PI.powi(4) / 90.0);
    near(zeta(2.0, -0.5), zeta(2.0, 0.5) + 4.0);
    near(i0(1.0), 1.266_065_877_752_008_4);
    near(i1(1.0), 0.565_159_103_992_485);
    near(i1e(40.0), i1(40.0) * (-40f64).exp());
    near(ndtri(0.975), 1.959_963_984_540_054);
    near(ndtri(1e-20), -9.262_340_089_798_408);
    near(i0(30.000_000_000_1), i0(30.0) + 1e-10 * i1(30.0));
    assert_eq!([i0(f64::NEG_INFINITY), i1(f64::NEG_INFINITY)], [f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!([i0e(f64::INFINITY), i1e(f64::INFINITY)], [0.0, 0.0]);
}

#[test]
fn the_inverse_error_function_is_one() {
    near(erfinv(0.1), 0.088_855_990_494_257_69);
    near(erfinv(0.5), 0.476_936_276_204_469_9);
    for y in [1e-9, 0.01, 0.3, 0.4, 0.7, 1.5] {
        near(erfinv(if y < 1.0 { erf_series(y) } else { 1.0 - erfc(y) }), y);
    }
    assert_eq!(erfinv(-1.0), f64::NEG_INFINITY);
    assert!(erfinv(1.5).is_nan());
}
