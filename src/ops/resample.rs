//! Fixed linear maps of one dimension, or of several in turn: interpolation, averages over windows,
//! mirrored padding.
//!
//! ```text
//! y[.., i, ..] = sum over k of weight[i, k] x[.., place[i, k], ..]
//! ```
//!
//! A map is a sparse matrix stored by rows. Its transpose, stored the same way, is the gradient: both
//! directions read and none scatters, and the derivative of either is the other. Several dimensions
//! are done item by item, with what is between them in a cache-sized scratch.

use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::compute;
use crate::Tensor;
use crate::autograd::record;
use crate::cpu::axes::sort_axes;
use crate::cpu::float::{Float, simd_fn};
use crate::cpu::parts::Parts;
use crate::cpu::threads::{get_num_threads, parallel_for};
use crate::tensor::{Shape, dispatch};

/// A map of one dimension and its transpose.
pub(super) struct LinearMap {
    forward: Sparse,
    back: Sparse,
}

impl LinearMap {
    /// From `size` positions to as many as there are rows of pairs of a position and its weight.
    pub fn new<R: IntoIterator<Item = (usize, f64)>>(
        size: usize,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let (mut starts, mut places, mut weights) = (vec![0], Vec::new(), Vec::new());
        for row in rows {
            for (place, weight) in row {
                assert!(place < size, "position {place} of {size}");
                places.push(place as u32);
                weights.push(weight);
            }
            starts.push(places.len() as u32);
        }
        let forward = Sparse { size, starts, places, weights, pattern: None };
        let back = forward.transposed();
        LinearMap { forward: forward.with_pattern(), back: back.with_pattern() }
    }
}

/// A sparse matrix with `size` columns, row by row.
struct Sparse {
    size: usize,
    /// Where the entries of each row start, and where those of the last one end.
    starts: Vec<u32>,
    places: Vec<u32>,
    weights: Vec<f64>,
    pattern: Option<Pattern>,
}

/// Rows in the middle that repeat: row `first + phases * j + f` is row `first + f`, `step * j` further.
#[derive(Clone, Copy)]
struct Pattern {
    phases: usize,
    step: usize,
    first: usize,
    periods: usize,
}

impl Sparse {
    fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    fn row(&self, i: usize) -> Range<usize> {
        self.starts[i] as usize..self.starts[i + 1] as usize
    }

    fn is_identity(&self) -> bool {
        self.rows() == self.size
            && self.places.len() == self.size
            && self.places.iter().enumerate().all(|(i, &p)| i == p as usize)
            && self.weights.iter().all(|&w| w == 1.0)
            && self.starts.iter().enumerate().all(|(i, &s)| i == s as usize)
    }

    fn transposed(&self) -> Sparse {
        let mut starts = vec![0u32; self.size + 1];
        self.places.iter().for_each(|&p| starts[p as usize + 1] += 1);
        (0..self.size).for_each(|p| starts[p + 1] += starts[p]);
        let mut next = starts.clone();
        let (mut places, mut weights) = (vec![0; self.places.len()], vec![0.0; self.places.len()]);
        for i in 0..self.rows() {
            for k in self.row(i) {
                let slot = &mut next[self.places[k] as usize];
                (places[*slot as usize], weights[*slot as usize]) = (i as u32, self.weights[k]);
                *slot += 1;
            }
        }
        Sparse { size: self.rows(), starts, places, weights, pattern: None }
    }

    /// Finds rows that repeat, as they do at factor 2 and for windows at stride 1 or 2.
    fn with_pattern(mut self) -> Self {
        let same = |i: usize, j: usize, shift: usize| {
            let (a, b) = (self.row(i), self.row(j));
            !a.is_empty()
                && self.weights[a.clone()] == self.weights[b.clone()]
                && self.places[a].iter().zip(&self.places[b]).all(|(a, b)| a + shift as u32 == *b)
        };
        let found = [(1, 2), (2, 1), (1, 1)].into_iter().find_map(|(phases, step)| {
            let all = self.rows() / phases;
            let repeats =
                |j: usize| (0..phases).all(|f| same(j * phases + f, (j + 1) * phases + f, step));
            let (mut from, mut to) = (all / 2, all / 2);
            while from > 0 && repeats(from - 1) {
                from -= 1;
            }
            while to + 1 < all && repeats(to) {
                to += 1;
            }
            let periods = to + 1 - from;
            let first = from * phases;
            (all >= BLOCK && periods >= BLOCK).then_some(Pattern { phases, step, first, periods })
        });
        self.pattern = found;
        self
    }
}

/// Periods that are done at once.
const BLOCK: usize = 16;

/// Dimension `first + d` mapped by `maps[d]`, for at most three dimensions of a floating-point tensor.
/// Half types are computed in f32 and rounded once.
pub(super) fn resample(
    name: &'static str,
    x: &Tensor,
    first: usize,
    maps: impl Into<Arc<[LinearMap]>>,
) -> Tensor {
    apply(name, x, first, maps.into(), false)
}

fn apply(
    name: &'static str,
    x: &Tensor,
    first: usize,
    maps: Arc<[LinearMap]>,
    back: bool,
) -> Tensor {
    let (dtype, wide) = (x.dtype(), compute::widen(x));
    let y = {
        let sides: SmallVec<[&Sparse; 3]> =
            maps.iter().map(|map| if back { &map.back } else { &map.forward }).collect();
        let mut shape = Shape::from_slice(x.shape());
        sides.iter().enumerate().for_each(|(d, side)| shape[first + d] = side.rows());
        let y = Tensor::empty(&shape, wide.dtype());
        if wide.numel() == 0 || y.numel() == 0 {
            y.fill_contiguous(0i64.into());
        } else {
            let tail = shape[first + sides.len()..].iter().product();
            dispatch!(compute wide.dtype(), name, T => {
                // SAFETY: `widen` gives a contiguous tensor of this type; the output is new.
                let (x, y) = unsafe { (wide.as_slice::<T>(), y.as_mut_slice::<T>()) };
                run(x, y, tail, &sides);
            });
        }
        compute::narrow(y, dtype)
    };
    record(name, &[x], y, |_| {
        move |ctx| smallvec![Some(apply(name, &ctx.grad(0), first, maps.clone(), !back))]
    })
}

/// One dimension's map, for `[outer, size, inner]`.
struct Pass<'a, T> {
    map: &'a Sparse,
    weights: Vec<T>,
    outer: usize,
    inner: usize,
}

/// `x` is `[items, sizes of the maps.., tail]`.
fn run<T: Float>(x: &[T], y: &mut [T], tail: usize, maps: &[&Sparse]) {
    let mut sizes: SmallVec<[usize; 3]> = maps.iter().map(|map| map.size).collect();
    let growth = |d: usize| maps[d].rows() as f64 / maps[d].size as f64;
    let mut order: SmallVec<[usize; 3]> =
        (0..maps.len()).filter(|&d| !maps[d].is_identity()).collect();
    // What shrinks comes first. Among equals the last dimension is slowest: it is done where there is
    // least.
    sort_axes(&mut order, |a, b| {
        let among_equals = if growth(a) < 1.0 { a < b } else { b < a };
        growth(a) < growth(b) || growth(a) == growth(b) && among_equals
    });
    let from = sizes.iter().product::<usize>() * tail;
    let mut passes: SmallVec<[Pass<T>; 3]> = order
        .iter()
        .map(|&d| {
            let outer = sizes[..d].iter().product();
            let inner = sizes[d + 1..].iter().product::<usize>();
            sizes[d] = maps[d].rows();
            let weights = maps[d].weights.iter().map(|&w| T::of(w)).collect();
            Pass { map: maps[d], weights, outer, inner: inner * tail }
        })
        .collect();
    let (to, items) = (sizes.iter().product::<usize>() * tail, x.len() / from);
    if let [only] = &mut passes[..] {
        only.outer *= items;
        return only.run(x, y);
    }
    let parts = Parts::new(y);
    let body = |range: Range<usize>| {
        let between = |p: usize| passes.get(p).filter(|_| p + 1 < passes.len());
        let scratch = |p: usize| vec![T::ZERO; between(p).map_or(0, Pass::len)];
        let (mut a, mut b) = (scratch(0), scratch(1));
        for item in range {
            let x = &x[item * from..(item + 1) * from];
            // SAFETY: each item is one thread's.
            let y = unsafe { parts.slice(item * to..(item + 1) * to) };
            match &passes[..] {
                [] => y.copy_from_slice(x),
                [one] => one.run(x, y),
                [one, two] => {
                    one.run(x, &mut a);
                    two.run(&a, y);
                }
                [one, two, three] => {
                    one.run(x, &mut a);
                    two.run(&a, &mut b);
                    three.run(&b, y);
                }
                _ => unreachable!("at most three dimensions"),
            }
        }
    };
    // Few items: each one is divided among the threads.
    if items < 2 * get_num_threads() {
        body(0..items);
    } else {
        parallel_for(items, (32 << 10) / from.max(to) + 1, body);
    }
}

impl<T: Float> Pass<'_, T> {
    fn len(&self) -> usize {
        self.outer * self.map.rows() * self.inner
    }

    fn run(&self, x: &[T], y: &mut [T]) {
        let (map, rows, inner) = (self.map, self.map.rows(), self.inner);
        let parts = Parts::new(y);
        if inner > 1 {
            parallel_for(self.outer * rows, (32 << 10) / inner + 1, |range| {
                // SAFETY: each thread's bands are its own.
                let y = unsafe { parts.slice(range.start * inner..range.end * inner) };
                bands(x, map, &self.weights, range.start, inner, y);
            });
        } else {
            parallel_for(self.outer, (16 << 10) / rows.max(map.size) + 1, |range| {
                let x = &x[range.start * map.size..range.end * map.size];
                // SAFETY: each thread's lines are its own.
                let y = unsafe { parts.slice(range.start * rows..range.end * rows) };
                lines(x, map, &self.weights, y);
            });
        }
    }
}

simd_fn! {
    /// Rows of `inner` numbers from `first` on, counted through all outer indices.
    fn bands<T, FMA>(x: &[T], map: &Sparse, weights: &[T], first: usize, inner: usize, y: &mut [T]) {
        let rows = map.rows();
        for (i, y) in (first..).zip(y.chunks_exact_mut(inner)) {
            let block = &x[i / rows * map.size * inner..][..map.size * inner];
            let band = |k: usize| (weights[k], &block[map.places[k] as usize * inner..][..inner]);
            let entries = map.row(i % rows);
            let start = entries.start;
            match entries.len() {
                0 => y.fill(T::ZERO),
                1 => {
                    let (w, x) = band(start);
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = w * x);
                }
                _ => {
                    let ((v, a), (w, b)) = (band(start), band(start + 1));
                    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                        *y = w.fma::<FMA>(b, v * a);
                    }
                    for k in start + 2..entries.end {
                        let (w, x) = band(k);
                        y.iter_mut().zip(x).for_each(|(y, &x)| *y = w.fma::<FMA>(x, *y));
                    }
                }
            }
        }
    }

    /// Lines of `map.size` numbers to lines of as many as the map has rows.
    fn lines<T, FMA>(x: &[T], map: &Sparse, weights: &[T], y: &mut [T]) {
        let rows = map.rows();
        for (x, y) in x.chunks_exact(map.size).zip(y.chunks_exact_mut(rows)) {
            let done = match map.pattern {
                Some(p) => {
                    match (p.phases, p.step) {
                        (2, _) => stencil::<T, FMA, 2, 1>(x, map, weights, p, y),
                        (_, 2) => stencil::<T, FMA, 1, 2>(x, map, weights, p, y),
                        _ => stencil::<T, FMA, 1, 1>(x, map, weights, p, y),
                    }
                    p.first..p.first + p.phases * p.periods
                }
                None => 0..0,
            };
            for i in (0..done.start).chain(done.end..rows) {
                let entries = map.row(i);
                let mut terms = map.places[entries.clone()].iter().zip(&weights[entries]);
                let Some((&p, &w)) = terms.next() else {
                    y[i] = T::ZERO;
                    continue;
                };
                let first = w * x[p as usize];
                y[i] = terms.fold(first, |sum, (&p, &w)| w.fma::<FMA>(x[p as usize], sum));
            }
        }
    }
}

/// The rows of a pattern of `P` phases and step `Q`, in blocks of which the last may overlap the one
/// before.
#[inline(always)]
fn stencil<T: Float, const FMA: bool, const P: usize, const Q: usize>(
    x: &[T],
    map: &Sparse,
    weights: &[T],
    pattern: Pattern,
    y: &mut [T],
) {
    let Pattern { first, periods, .. } = pattern;
    let mut sums = [[T::ZERO; BLOCK]; P];
    for j in (0..periods).step_by(BLOCK) {
        let j = j.min(periods - BLOCK);
        for (f, sums) in sums.iter_mut().enumerate() {
            let entries = map.row(first + f);
            for k in entries.clone() {
                let (w, place) = (weights[k], map.places[k] as usize + Q * j);
                let x = &x[place..place + Q * (BLOCK - 1) + 1];
                if k == entries.start {
                    (0..BLOCK).for_each(|b| sums[b] = w * x[Q * b]);
                } else {
                    (0..BLOCK).for_each(|b| sums[b] = w.fma::<FMA>(x[Q * b], sums[b]));
                }
            }
        }
        let y = &mut y[first + P * j..][..P * BLOCK];
        for b in 0..BLOCK {
            (0..P).for_each(|f| y[P * b + f] = sums[f][b]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::values;
    use super::*;

    /// Three taps per output, of which some are the same and rows may be empty.
    fn uneven(size: usize, out: usize) -> LinearMap {
        let row = |i: usize| {
            let taps = i * 7 % 4;
            (0..taps).map(move |t| ((i * 5 + t * 3) % size, (i + t) as f64 / 8.0 - 1.0))
        };
        LinearMap::new(size, (0..out).map(row))
    }

    /// Twice as many, by lines between neighbours: rows repeat.
    fn doubled(size: usize) -> LinearMap {
        let at = |p: isize| p.clamp(0, size as isize - 1) as usize;
        let row = |i: usize| {
            let near = (i / 2) as isize + if i.is_multiple_of(2) { -1 } else { 1 };
            [(at((i / 2) as isize), 0.75), (at(near), 0.25)]
        };
        LinearMap::new(size, (0..2 * size).map(row))
    }

    fn dense(map: &Sparse) -> Vec<f64> {
        let mut all = vec![0.0; map.rows() * map.size];
        for i in 0..map.rows() {
            for k in map.row(i) {
                all[i * map.size + map.places[k] as usize] += map.weights[k];
            }
        }
        all
    }

    #[test]
    fn a_map_is_the_product_with_its_matrix_and_the_gradient_with_the_transpose() {
        for (shape, d, map) in [
            (&[3, 7][..], 1, uneven(7, 9)),
            (&[2, 5, 3], 1, uneven(5, 4)),
            (&[2, 50], 1, doubled(50)),
            (&[2, 40], 1, LinearMap { forward: doubled(20).back, back: doubled(20).forward }),
            (&[20, 17], 0, doubled(20)),
        ] {
            let matrix =
                Tensor::from_slice(&dense(&map.forward), [map.forward.rows(), map.forward.size]);
            let x = values(shape, 1).requires_grad_(true);
            let y = resample("test", &x, d, [map]);
            let want = x.transpose(d as i64, -1).matmul(&matrix.t()).transpose(d as i64, -1);
            let g = values(y.shape(), 2);
            let grad = |y: &Tensor| {
                crate::autograd::grad(&[y], &[&x], &[Some(&g)], false, false)[0].clone().unwrap()
            };
            for (got, want) in [(grad(&y), grad(&want)), (y, want)] {
                assert_eq!(got.shape(), want.shape());
                let far = (&got - &want).abs().amax(&[], false).item();
                assert!(far < 1e-12, "{far} {shape:?}");
            }
        }
    }

    #[test]
    fn rows_that_repeat_are_found() {
        let map = doubled(50);
        let found = |map: &Sparse| map.pattern.map(|p| (p.phases, p.step, p.first, p.periods));
        assert_eq!(found(&map.forward), Some((2, 1, 2, 48)));
        assert_eq!(found(&map.back), Some((1, 2, 1, 48)));
        assert_eq!(found(&uneven(50, 50).forward), None);
    }

    #[test]
    fn three_dimensions_are_three_maps() {
        let x = values([2, 4, 5, 6, 2], 1);
        let one = |y: &Tensor, d: usize, map: LinearMap| resample("test", y, d, [map]);
        let want = one(&one(&one(&x, 1, uneven(4, 6)), 2, doubled(5)), 3, uneven(6, 3));
        let got = resample("test", &x, 1, [uneven(4, 6), doubled(5), uneven(6, 3)]);
        assert!((&got - &want).abs().amax(&[], false).item() < 1e-12);
        let same = |n: usize| LinearMap::new(n, (0..n).map(|i| [(i, 1.0)]));
        assert_eq!(resample("test", &x, 1, [same(4), same(5)]).to_vec::<f64>(), x.to_vec::<f64>());
    }
}
