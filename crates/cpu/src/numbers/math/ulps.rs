//! The measure of a function's error, for tests here and of formulas.

/// Distance of `got` from `want` in ulp of f32 at `want`.
pub fn ulps32(got: f32, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let rounded = want as f32;
    if got.is_infinite() || rounded.is_infinite() {
        return if got == rounded { 0.0 } else { f64::INFINITY };
    }
    let exponent = (rounded.to_bits() >> 23 & 0xff).max(1) as i32 - 150;
    (got as f64 - want).abs() / (exponent as f64).exp2()
}
