//! The loops of [`super::resample`]: sparse maps of one dimension, and how they are applied.

use std::ops::Range;

use smallvec::SmallVec;

use crate::cpu::elementwise::copy::copy_short;
use crate::cpu::numbers::float::{Float, simd_fn};
use crate::cpu::threads::parts::Parts;
use crate::cpu::threads::{get_num_threads, parallel_for};
use crate::loops::axes::sort_axes;

/// A map of one dimension and its transpose.
pub struct LinearMap {
    pub forward: Sparse,
    pub back: Sparse,
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
pub struct Sparse {
    pub size: usize,
    /// Where the entries of each row start, and where those of the last one end.
    starts: Vec<u32>,
    pub places: Vec<u32>,
    pub weights: Vec<f64>,
    pub pattern: Option<Pattern>,
}

/// Rows in the middle that repeat: row `first + phases * j + f` is row `first + f`, `step * j` further.
#[derive(Clone, Copy)]
pub struct Pattern {
    pub phases: usize,
    pub step: usize,
    pub first: usize,
    pub periods: usize,
}

impl Sparse {
    /// How many there are.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Where the entries of each row start, and their positions.
    pub fn lists(&self) -> [&[u32]; 2] {
        [&self.starts, &self.places]
    }

    /// Where the entries of row `i` are.
    pub fn row(&self, i: usize) -> Range<usize> {
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

    /// Whether each row is one number as it is.
    fn is_selection(&self) -> bool {
        self.places.len() == self.rows()
            && self.starts.windows(2).all(|s| s[0] < s[1])
            && self.weights.iter().all(|&w| w == 1.0)
    }
}

/// Periods that are done at once.
const BLOCK: usize = 16;

/// One dimension's map, for `[outer, size, inner]`.
struct Pass<'a, T> {
    map: &'a Sparse,
    weights: Vec<T>,
    outer: usize,
    inner: usize,
}

/// `x` is `[items, sizes of the maps.., tail]`.
pub(crate) fn run<T: Float>(x: &[T], y: &mut [T], tail: usize, maps: &[&Sparse]) {
    if maps.iter().all(|map| map.is_selection()) {
        return select(x, y, tail, maps);
    }
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

/// Maps that only pick numbers: `[items, sizes.., tail]` copied row by row of the last map.
fn select<T: Float>(x: &[T], y: &mut [T], tail: usize, maps: &[&Sparse]) {
    let Some((last, outer)) = maps.split_last() else { return y.copy_from_slice(x) };
    // Neighbours that stay neighbours: (from, to, how many).
    let mut runs: Vec<[usize; 3]> = Vec::new();
    for (to, &from) in last.places.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run[0] + run[2] == from as usize => run[2] += 1,
            _ => runs.push([from as usize, to, 1]),
        }
    }
    let scattered = tail == 1 && runs.len() * 2 > last.rows();
    let (singles, runs): (Vec<_>, Vec<_>) =
        runs.into_iter().map(|run| run.map(|n| n * tail)).partition(|run| run[2] == 1);
    let mut sources = vec![0];
    for map in outer {
        let places = |&row: &usize| map.places.iter().map(move |&p| row * map.size + p as usize);
        sources = sources.iter().flat_map(places).collect();
    }
    let height = outer.iter().map(|map| map.size).product();
    let (from, to) = (last.size * tail, last.rows() * tail);
    let picks = Picks { sources, height, from, to, scattered, places: &last.places, runs, singles };
    let parts = Parts::new(y);
    parallel_for(parts.len() / to, (32 << 10) / to + 1, |rows| {
        // SAFETY: each row is one thread's.
        let y = unsafe { parts.slice(rows.start * to..rows.end * to) };
        pick(x, &picks, rows.start, y);
    });
}

/// What [`select`] copies.
struct Picks<'a> {
    /// The row of an item that each row of the result's is.
    sources: Vec<usize>,
    /// Rows of an item.
    height: usize,
    /// Numbers of a row of `x`, and of the result's.
    from: usize,
    to: usize,
    /// Whether few neighbours stay neighbours, so that a row is picked one by one.
    scattered: bool,
    places: &'a [u32],
    /// What is picked of a row as (from, to, how many numbers), and such of one number.
    runs: Vec<[usize; 3]>,
    singles: Vec<[usize; 3]>,
}

simd_fn! {
    /// Rows of the result from number `first` on, counted through all items.
    fn pick<T, FMA>(x: &[T], picks: &Picks, first: usize, y: &mut [T]) {
        let _ = FMA;
        let &Picks { ref sources, height, from, to, scattered, places, ref runs, ref singles } = picks;
        let (mut item, mut row) = (first / sources.len(), first % sources.len());
        let mut before = usize::MAX;
        for i in 0..y.len() / to {
            let at = item * height + sources[row];
            row += 1;
            if row == sources.len() {
                (item, row) = (item + 1, 0);
            }
            if at == before {
                y.copy_within((i - 1) * to..i * to, i * to);
                continue;
            }
            before = at;
            let (x, y) = (&x[at * from..][..from], &mut y[i * to..][..to]);
            if scattered {
                for k in 0..y.len() {
                    y[k] = x[places[k] as usize];
                }
                continue;
            }
            for &[from, to, len] in runs {
                copy_short(&x[from..][..len], &mut y[to..][..len]);
            }
            for &[from, to, _] in singles {
                y[to] = x[from];
            }
        }
    }

    /// Rows of `inner` numbers from `first` on, counted through all outer indices.
    fn bands<T, FMA>(x: &[T], map: &Sparse, weights: &[T], first: usize, inner: usize, y: &mut [T]) {
        let rows = map.rows();
        for n in 0..y.len() / inner {
            let (i, y) = (first + n, &mut y[n * inner..][..inner]);
            let block = &x[i / rows * map.size * inner..][..map.size * inner];
            let entries = map.row(i % rows);
            let (start, end) = (entries.start, entries.end);
            if start == end {
                y.fill(T::ZERO);
                continue;
            }
            let a = band(block, map, start, inner);
            if start + 1 == end {
                scaled(weights[start], a, y);
                continue;
            }
            let b = band(block, map, start + 1, inner);
            weighted::<T, FMA>([weights[start], weights[start + 1]], a, b, y);
            for k in start + 2..end {
                add_scaled::<T, FMA>(weights[k], band(block, map, k, inner), y);
            }
        }
    }

    /// Lines of `map.size` numbers to lines of as many as the map has rows.
    fn lines<T, FMA>(x: &[T], map: &Sparse, weights: &[T], y: &mut [T]) {
        let rows = map.rows();
        for n in 0..y.len() / rows {
            let (x, y) = (&x[n * map.size..][..map.size], &mut y[n * rows..][..rows]);
            let (mut start, mut end) = (0, 0);
            if let Some(p) = map.pattern {
                match (p.phases, p.step) {
                    (2, _) => stencil::<T, FMA, 2, 1>(x, map, weights, p, y),
                    (_, 2) => stencil::<T, FMA, 1, 2>(x, map, weights, p, y),
                    _ => stencil::<T, FMA, 1, 1>(x, map, weights, p, y),
                }
                (start, end) = (p.first, p.first + p.phases * p.periods);
            }
            products::<T, FMA>(x, map, weights, 0, start, y);
            products::<T, FMA>(x, map, weights, end, rows, y);
        }
    }
}

/// The row of `inner` numbers that entry `k` reads.
#[inline(always)]
fn band<'a, T>(block: &'a [T], map: &Sparse, k: usize, inner: usize) -> &'a [T] {
    &block[map.places[k] as usize * inner..][..inner]
}

/// y = w x. These loops are not cut into registers by hand: the compiler would take the cuts for what is to
/// be done side by side, and gather them.
#[inline(always)]
fn scaled<T: Float>(w: T, x: &[T], y: &mut [T]) {
    for k in 0..x.len().min(y.len()) {
        y[k] = w * x[k];
    }
}

/// y = v a + w b.
#[inline(always)]
fn weighted<T: Float, const FMA: bool>([v, w]: [T; 2], a: &[T], b: &[T], y: &mut [T]) {
    for k in 0..a.len().min(b.len()).min(y.len()) {
        y[k] = w.fma::<FMA>(b[k], v * a[k]);
    }
}

/// y += w x.
#[inline(always)]
fn add_scaled<T: Float, const FMA: bool>(w: T, x: &[T], y: &mut [T]) {
    for k in 0..x.len().min(y.len()) {
        y[k] = w.fma::<FMA>(x[k], y[k]);
    }
}

/// Rows `from..to` of a line, one by one.
#[inline(always)]
fn products<T: Float, const FMA: bool>(
    x: &[T],
    map: &Sparse,
    weights: &[T],
    from: usize,
    to: usize,
    y: &mut [T],
) {
    for i in from..to {
        let entries = map.row(i);
        let (places, weights) = (&map.places[entries.start..entries.end], &weights[entries]);
        let mut sum = T::ZERO;
        for k in 0..weights.len() {
            let v = x[places[k] as usize];
            sum = if k == 0 { weights[0] * v } else { weights[k].fma::<FMA>(v, sum) };
        }
        y[i] = sum;
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
        for f in 0..P {
            let (sums, entries) = (&mut sums[f], map.row(first + f));
            let (start, end) = (entries.start, entries.end);
            let taken = |k: usize| map.places[k] as usize + Q * j;
            if start + 1 == end {
                let (w, x) = (weights[start], reach::<T, Q>(x, taken(start)));
                for b in 0..BLOCK {
                    sums[b] = w * x[Q * b];
                }
                continue;
            }
            let (v, w) = (weights[start], weights[start + 1]);
            let (a, b) = (reach::<T, Q>(x, taken(start)), reach::<T, Q>(x, taken(start + 1)));
            for k in 0..BLOCK {
                sums[k] = w.fma::<FMA>(b[Q * k], v * a[Q * k]);
            }
            for k in start + 2..end {
                let (w, x) = (weights[k], reach::<T, Q>(x, taken(k)));
                for b in 0..BLOCK {
                    sums[b] = w.fma::<FMA>(x[Q * b], sums[b]);
                }
            }
        }
        let y = &mut y[first + P * j..][..P * BLOCK];
        for b in 0..BLOCK {
            for f in 0..P {
                y[P * b + f] = sums[f][b];
            }
        }
    }
}

/// The numbers that a block with step `Q` reads.
#[inline(always)]
fn reach<T, const Q: usize>(x: &[T], from: usize) -> &[T] {
    &x[from..][..Q * (BLOCK - 1) + 1]
}
