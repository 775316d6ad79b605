//! Loops over a dense row that several ops are made of: maxima, sums of a function, exponentials.
//! Values are wide (f32 or f64); the last, incomplete group of lanes is padded, so that short rows
//! are vector code too. Sums are taken in lanes and then pairwise, as in `fold`.

use super::extreme::Ordered;
use super::fold::Tree;
use super::widen::{Real, Widen};

/// Lanes of a group: two 256-bit registers of f32.
const N: usize = 16;
/// Elements that are summed in lanes before the pairwise tree takes over.
const LEAF: usize = 128 * N;

/// What rows hold: a float type, with its wide type.
pub trait Float: Widen<Wide: Real + Ordered> {}
impl<T: Widen<Wide: Real + Ordered>> Float for T {}

#[inline(always)]
fn widened<T: Float>(x: &[T; N]) -> [T::Wide; N] {
    let mut wide = [T::Wide::ZERO; N];
    for j in 0..N {
        wide[j] = x[j].widen();
    }
    wide
}

#[inline(always)]
fn padded<T: Float>(tail: &[T], pad: T::Wide) -> [T::Wide; N] {
    let mut wide = [pad; N];
    for (w, x) in wide.iter_mut().zip(tail) {
        *w = x.widen();
    }
    wide
}

/// Sum of the lanes, pairwise.
#[inline(always)]
fn add_lanes<R: Real>(mut lanes: [R; N]) -> R {
    let mut half = N / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The largest element; NaN if there is one; minus infinity if the row is empty.
#[inline(always)]
pub fn max<T: Float>(x: &[T]) -> T::Wide {
    // NaN goes through: it is not below `b`, and once in `a`, `b > a` is false.
    let larger = |a: T::Wide, b: T::Wide| {
        #[allow(clippy::eq_op, reason = "x != x is how a generic float says that it is NaN")]
        let take = (b > a) | (b != b);
        if take { b } else { a }
    };
    let (groups, tail) = x.as_chunks::<N>();
    let mut lanes = padded(tail, T::Wide::NEG_INFINITY);
    for group in groups {
        let group = widened(group);
        for j in 0..N {
            lanes[j] = larger(lanes[j], group[j]);
        }
    }
    let mut result = lanes[0];
    for &lane in &lanes[1..] {
        result = larger(result, lane);
    }
    result
}

/// `sum_i f(x_i)`. `f(pad)` must be 0.
#[inline(always)]
pub fn sum<T: Float>(x: &[T], pad: T::Wide, f: impl Fn(T::Wide) -> T::Wide) -> T::Wide {
    pairwise(x.len(), |start, end| {
        let mut lanes = [T::Wide::ZERO; N];
        let (groups, tail) = x[start..end].as_chunks::<N>();
        for g in 0..groups.len() + usize::from(!tail.is_empty()) {
            let group = groups.get(g).map_or_else(|| padded(tail, pad), widened);
            for j in 0..N {
                lanes[j] += f(group[j]);
            }
        }
        add_lanes(lanes)
    })
}

/// `sum_i f(x_i, y_i)`. `f(0, 0)` must be 0.
#[inline(always)]
pub fn sum2<T: Float>(x: &[T], y: &[T], f: impl Fn(T::Wide, T::Wide) -> T::Wide) -> T::Wide {
    assert_eq!(x.len(), y.len());
    pairwise(x.len(), |start, end| {
        let mut lanes = [T::Wide::ZERO; N];
        let (a, a_tail) = x[start..end].as_chunks::<N>();
        let (b, b_tail) = y[start..end].as_chunks::<N>();
        for g in 0..a.len() + usize::from(!a_tail.is_empty()) {
            let (a, b) = match (a.get(g), b.get(g)) {
                (Some(a), Some(b)) => (widened(a), widened(b)),
                _ => (padded(a_tail, T::Wide::ZERO), padded(b_tail, T::Wide::ZERO)),
            };
            for j in 0..N {
                lanes[j] += f(a[j], b[j]);
            }
        }
        add_lanes(lanes)
    })
}

/// Writes `e^(x_i - shift)` to `out` and gives their sum.
#[inline(always)]
pub fn exp_sum<T: Float, const FMA: bool>(x: &[T], shift: T::Wide, out: &mut [T::Wide]) -> T::Wide {
    assert_eq!(x.len(), out.len());
    pairwise(x.len(), |start, end| {
        let mut lanes = [T::Wide::ZERO; N];
        let (groups, tail) = x[start..end].as_chunks::<N>();
        let (results, result_tail) = out[start..end].as_chunks_mut::<N>();
        for (group, result) in groups.iter().zip(results) {
            let group = widened(group);
            for j in 0..N {
                let e = (group[j] - shift).exp::<FMA>();
                result[j] = e;
                lanes[j] += e;
            }
        }
        if !tail.is_empty() {
            let mut group = padded(tail, T::Wide::NEG_INFINITY);
            for j in 0..N {
                group[j] = (group[j] - shift).exp::<FMA>();
                lanes[j] += group[j];
            }
            result_tail.copy_from_slice(&group[..tail.len()]);
        }
        add_lanes(lanes)
    })
}

/// `out_i = f(x_i)`.
#[inline(always)]
pub fn map<T: Float>(x: &[T], out: &mut [T], f: impl Fn(T::Wide) -> T::Wide) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = T::narrow(f(x.widen()));
    }
}

/// Sums of leaves, put together by a binary tree. `leaf` is called at one place only: a closure with
/// two callers is not inlined into the loops for an instruction set, and then knows none of it.
#[inline(always)]
fn pairwise<R: Real>(n: usize, mut leaf: impl FnMut(usize, usize) -> R) -> R {
    let mut tree = Tree::new();
    let mut start = 0;
    loop {
        let end = n.min(start + LEAF);
        let sum = leaf(start, end);
        if start == 0 && end == n {
            return sum;
        }
        tree.push(sum, |a, b| a + b);
        start = end;
        if start == n {
            return tree.finish(R::ZERO, |a, b| a + b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length() {
        for n in [0, 1, 15, 16, 17, 100, 5000] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
            let exact = |f: &dyn Fn(f64) -> f64| x.iter().map(|&v| f(v as f64)).sum::<f64>();
            assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            assert_eq!(sum(&x, 0.0, |v| 2.0 * v) as f64, exact(&|v| 2.0 * v));
            assert_eq!(sum2(&x, &x, |a, b| a * b) as f64, exact(&|v| v * v));
            let mut e = vec![0.0; n];
            let s = exp_sum::<f32, false>(&x, 1.0, &mut e);
            assert!((s as f64 - exact(&|v| (v - 1.0).exp())).abs() <= 1e-6 * s as f64);
            assert!(x.iter().zip(&e).all(|(&x, &e)| ((x - 1.0).exp() / e - 1.0).abs() < 1e-6));
        }
        assert!(max(&[1.0f32, f32::NAN, 2.0]).is_nan());
        assert!(max(&[f32::NAN; 20]).is_nan());
    }
}
