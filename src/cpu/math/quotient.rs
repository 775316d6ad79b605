//! Remainders, and quotients that are rounded down, of both types.

macro_rules! quotients {
    ($module:ident, $t:ty) => {
        pub mod $module {
            /// From the remainder that has the dividend's sign, the one that has the divisor's.
            #[inline(always)]
            pub fn floored_remainder(r: $t, b: $t) -> $t {
                if r != 0.0 && (b < 0.0) != (r < 0.0) { r + b } else { r }
            }

            /// a / b rounded down, from the exact remainder `r` that has a's sign: a / b itself may round up to the
            /// next integer.
            #[inline(always)]
            pub fn floored_quotient(a: $t, b: $t, r: $t) -> $t {
                let q = (a - r) / b;
                let q = if r != 0.0 && (b < 0.0) != (r < 0.0) { q - 1.0 } else { q };
                let rounded = q.floor();
                let rounded = if q - rounded > 0.5 { rounded + 1.0 } else { rounded };
                let quotient = a / b;
                let rounded = if q != 0.0 { rounded } else { (0.0 as $t).copysign(quotient) };
                if b == 0.0 { quotient } else { rounded }
            }
        }
    };
}
quotients!(single, f32);
quotients!(double, f64);

/// Whether [`near_fmod`] is right for these.
#[inline(always)]
pub fn is_near(a: f32, b: f32) -> bool {
    // The quotient is off by a quarter at most, and the integer below it by one.
    (a.abs() < 4_194_304.0 * b.abs()) & (b.abs() < f32::INFINITY)
}

/// a % b where [`is_near`] and products are fused.
#[inline(always)]
pub fn near_fmod(a: f32, b: f32) -> f32 {
    let (a, sign, b) = (a.abs(), a, b.abs());
    // Exact, because the result has no more bits than a or b.
    let r = (a / b).trunc().mul_add(-b, a);
    // The quotient may have been rounded up to an integer.
    (if r < 0.0 { r + b } else { r }).copysign(sign)
}
