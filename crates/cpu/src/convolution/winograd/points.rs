//! The transforms of Winograd's minimal filtering F(4x4, 3x3) (Lavin and Gray 2015, "Fast algorithms
//! for convolutional neural networks"), in one dimension: `y = A^T ((G g) * (B^T d))` for six inputs
//! d, three taps g and four outputs y, and their transposes for the gradient of the taps.
//!
//! Cook and Toom's construction evaluates polynomials at five points and infinity. Here the points are
//! 0, +-3/4 and +-3/2 rather than the usual 0, +-1 and +-2: the numbers in B and A stay nearer to each
//! other, which halves the rounding error, and B and A are still exact in f32. The error is then two
//! to three times that of a direct sum.

use super::lanes::Sums;

const A: f32 = 0.75;
const B: f32 = 1.5;
const A2: f32 = A * A;
const B2: f32 = B * B;
/// What the rows of G for +-a and +-b are divided by.
const FA: f64 = 2.0 * 0.5625 * (0.5625 - 2.25);
const FB: f64 = 2.0 * 2.25 * (2.25 - 0.5625);

/// Points, and so products per dimension.
pub const N: usize = 6;

/// The points of a tile of two outputs, of the same taps: F(2, 3) at 0, +-a and infinity. What the taps' numbers are
/// divided by for the other two points is multiplied out of the inputs.
pub const SHORT: [usize; 4] = [0, 1, 2, 5];

/// B^T d: inputs.
///
/// # Safety
/// [`Vector`](crate::numbers::vector::Vector)'s *Instructions*, as for all functions here.
#[inline(always)]
pub unsafe fn inputs<V: Sums>(d: [V; 6]) -> [V; N] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let [d0, d1, d2, d3, d4, d5] = d;
        let (even_a, odd_a) = (d4.plus(-B2, d2), d3.plus(-B2, d1));
        let (even_b, odd_b) = (d4.plus(-A2, d2), d3.plus(-A2, d1));
        [
            d4.plus(-(A2 + B2), d2).plus(A2 * B2, d0),
            even_a.plus(A, odd_a),
            even_a.plus(-A, odd_a),
            even_b.plus(B, odd_b),
            even_b.plus(-B, odd_b),
            d5.plus(-(A2 + B2), d3).plus(A2 * B2, d1),
        ]
    }
}

/// B^T d of a short tile.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn short_inputs<V: Sums>([d0, d1, d2, d3]: [V; 4]) -> [V; 4] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let (even, odd) = (d2.times(A2 - B2), d1.times(A * (A2 - B2)));
        [d2.times(-B2).plus(A2 * B2, d0), even.add(odd), even.minus(odd), d3.plus(-A2, d1)]
    }
}

/// A^T m: outputs.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn outputs<V: Sums>(m: [V; N]) -> [V; 4] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let [m0, m1, m2, m3, m4, m5] = m;
        let (sum_a, difference_a) = (m1.add(m2), m1.minus(m2));
        let (sum_b, difference_b) = (m3.add(m4), m3.minus(m4));
        [
            m0.add(sum_a).add(sum_b),
            difference_a.times(A).plus(B, difference_b),
            sum_a.times(A2).plus(B2, sum_b),
            m5.plus(A2 * A, difference_a).plus(B2 * B, difference_b),
        ]
    }
}

/// A^T m of a short tile.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn short_outputs<V: Sums>([m0, m1, m2, m5]: [V; 4]) -> [V; 2] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe { [m0.add(m1).add(m2), m5.plus(A, m1.minus(m2))] }
}

/// A y: gradients of outputs.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn gradients<V: Sums>(y: [V; 4]) -> [V; N] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    let [a, minus_a, b, minus_b] = unsafe { at_points([A, B], y) };
    [y[0], a, minus_a, b, minus_b, y[3]]
}

/// What a polynomial of four coefficients is at a, -a, b and -b.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn at_points<V: Sums>([a, b]: [f32; 2], [y0, y1, y2, y3]: [V; 4]) -> [V; 4] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let (even_a, odd_a) = (y0.plus(a * a, y2), y1.plus(a * a, y3));
        let (even_b, odd_b) = (y0.plus(b * b, y2), y1.plus(b * b, y3));
        [
            even_a.plus(a, odd_a),
            even_a.plus(-a, odd_a),
            even_b.plus(b, odd_b),
            even_b.plus(-b, odd_b),
        ]
    }
}

/// A y of a short tile.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn short_gradients<V: Sums>([y0, y1]: [V; 2]) -> [V; 4] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe { [y0, y0.plus(A, y1), y0.plus(-A, y1), y1] }
}

/// G g: taps.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn taps<V: Sums>(g: [V; 3]) -> [V; N] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let [g0, g1, g2] = g;
        let even_a = g0.times((1.0 / FA) as f32).plus((0.5625 / FA) as f32, g2);
        let even_b = g0.times((1.0 / FB) as f32).plus((2.25 / FB) as f32, g2);
        [
            g0.times((1.0 / (0.5625 * 2.25)) as f32),
            even_a.plus((0.75 / FA) as f32, g1),
            even_a.plus((-0.75 / FA) as f32, g1),
            even_b.plus((1.5 / FB) as f32, g1),
            even_b.plus((-1.5 / FB) as f32, g1),
            g2,
        ]
    }
}

/// G^T u: gradients of taps.
///
/// # Safety
/// As [`inputs`].
#[inline(always)]
pub unsafe fn tap_gradients<V: Sums>(u: [V; N]) -> [V; 3] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let [u0, u1, u2, u3, u4, u5] = u;
        let (sum_a, sum_b) = (u1.add(u2), u3.add(u4));
        [
            u0.times((1.0 / (0.5625 * 2.25)) as f32)
                .plus((1.0 / FA) as f32, sum_a)
                .plus((1.0 / FB) as f32, sum_b),
            u1.minus(u2).times((0.75 / FA) as f32).plus((1.5 / FB) as f32, u3.minus(u4)),
            u5.plus((0.5625 / FA) as f32, sum_a).plus((2.25 / FB) as f32, sum_b),
        ]
    }
}
