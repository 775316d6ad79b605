//! Remainders of moderate quotients.

/// Whether [`near_fmod`] is right for these.
#[inline(always)]
pub fn is_near_quotient(a: f32, b: f32) -> bool {
    // The quotient is off by a quarter at most, and the integer below it by one.
    (a.abs() < 4_194_304.0 * b.abs()) & (b.abs() < f32::INFINITY)
}

/// a % b where [`is_near_quotient`] and products are fused.
#[inline(always)]
pub fn near_fmod(a: f32, b: f32) -> f32 {
    let (a, sign, b) = (a.abs(), a, b.abs());
    // Exact, because the result has no more bits than a or b.
    let r = (a / b).trunc().mul_add(-b, a);
    // The quotient may have been rounded up to an integer.
    (if r < 0.0 { r + b } else { r }).copysign(sign)
}
