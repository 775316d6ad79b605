//! What the functions of both types are made of, defined once.

macro_rules! basic {
    ($module:ident, $t:ty, whole: $whole:expr) => {
        pub mod $module {
            /// `a * b + c`, fused where that is an instruction.
            #[inline(always)]
            pub fn fma<const FMA: bool>(a: $t, b: $t, c: $t) -> $t {
                if FMA { a.mul_add(b, c) } else { a * b + c }
            }

            /// `c[0] + c[1] x + c[2] x^2 + ...`
            #[inline(always)]
            pub fn poly<const FMA: bool, const N: usize>(x: $t, c: [$t; N]) -> $t {
                let mut y = c[N - 1];
                let mut i = N - 1;
                while i > 0 {
                    i -= 1;
                    y = fma::<FMA>(y, x, c[i]);
                }
                y
            }

            /// `x` between `low` and `high`; NaN stays NaN.
            #[inline(always)]
            pub fn clamp(x: $t, low: $t, high: $t) -> $t {
                let x = if x < low { low } else { x };
                if x > high { high } else { x }
            }

            /// The nearest integer to a number that is not negative.
            #[inline(always)]
            pub fn nearest<const FMA: bool>(x: $t) -> $t {
                /// From here on all are integers, and adding it to those below leaves one.
                const WHOLE: $t = $whole;
                match FMA {
                    // Where FMA is an instruction, this is one.
                    true => x.round_ties_even(),
                    false if x >= WHOLE => x,
                    false => (x + WHOLE) - WHOLE,
                }
            }

            /// `y`, or what the logarithm is at 0, at infinity and for negative numbers.
            #[inline(always)]
            pub fn log_special(x: $t, y: $t) -> $t {
                let y = if x == <$t>::INFINITY { x } else { y };
                let y = if x == 0.0 { <$t>::NEG_INFINITY } else { y };
                // NaN compares false.
                if x >= 0.0 { y } else { <$t>::NAN }
            }

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
basic!(single, f32, whole: 8_388_608.0);
basic!(double, f64, whole: 4_503_599_627_370_496.0);
