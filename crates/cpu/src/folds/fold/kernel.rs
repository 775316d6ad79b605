//! The loops of a fold: row by row where the elements of an output are neighbours, a tile of columns
//! at a time where the outputs are. Other strides are gathered into a dense tile first.

use std::hint::black_box;
use std::mem::MaybeUninit;

use smallvec::SmallVec;

use std::ops::Range;

use super::operation::{Fold, Shared, SharedMut};
use crate::arch::cache::{are_far, is_like_zen4};
use torchrs_loops::fold::{Plan, Walk};

/// Elements of a leaf of the tree, folded in lanes without further care for rounding.
const LEAF: usize = 4096;
/// Rows of a leaf when folding by columns.
const LEAF_ROWS: usize = 32;
/// Rows that are combined before they are added to the running values, which saves loads and stores.
const GROUP: usize = 4;
/// Columns of a tile: the running values stay in the L1 cache.
const TILE: usize = 1024;

/// Some outputs of a fold.
pub(super) struct Job<'a, F: Fold> {
    pub(super) f: &'a F,
    pub(super) plan: &'a Plan,
    /// Number of parameters.
    pub(super) outputs: usize,
    pub(super) input: Shared<F::In>,
    pub(super) order: Order,
    pub(super) range: Range<usize>,
    pub(super) out: SharedMut<F::Acc>,
}

/// Combines values pairwise as they come: a binary counter whose digits are subtrees.
pub struct Tree<A> {
    subtrees: SmallVec<[A; 16]>,
    pushed: usize,
}

impl<A: Copy> Tree<A> {
    /// Of no values.
    #[inline(always)]
    pub fn new() -> Self {
        Tree { subtrees: SmallVec::new(), pushed: 0 }
    }

    /// Adds a value.
    #[inline(always)]
    pub fn push(&mut self, mut value: A, combine: impl Fn(A, A) -> A) {
        self.pushed += 1;
        for _ in 0..self.pushed.trailing_zeros() {
            let left = self.subtrees.pop().expect("a subtree per digit");
            value = combine(left, value);
        }
        self.subtrees.push(value);
    }

    /// All values together; `identity` where there are none.
    #[inline(always)]
    pub fn finish(mut self, identity: A, combine: impl Fn(A, A) -> A) -> A {
        let Some(mut value) = self.subtrees.pop() else { return identity };
        while let Some(left) = self.subtrees.pop() {
            value = combine(left, value);
        }
        value
    }
}

/// Runs of neighbours that are folded at once.
const RUNS: usize = 4;

/// The order in which a slice's quarters are read. The result is the same, to the bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// At once: their sums do not wait for one another, and some processors bring memory in faster from several
    /// places than from one, Zen 3 by half (19 against 12 GB/s).
    Together,
    /// One after the other: Zen 4 brings in 30 GB/s from one place, and 16 to 25 from four.
    InTurn,
}

impl Order {
    /// The faster one for so many bytes.
    #[inline]
    pub fn of(bytes: usize) -> Order {
        if is_like_zen4() && are_far(bytes) { Order::InTurn } else { Order::Together }
    }
}

/// Folds four runs of as many neighbours, a whole number of `Q`, into `Q` lanes each.
#[inline(always)]
fn runs<F: Fold, const FMA: bool, const Q: usize>(
    f: &F,
    lanes: [[F::Acc; Q]; RUNS],
    x: [&[F::In]; RUNS],
    p: [F::Param; RUNS],
) -> [[F::Acc; Q]; RUNS] {
    // Arrays of their own, so that they live in registers.
    let [mut a, mut b, mut c, mut d] = lanes;
    let (xa, xb) = (x[0].as_chunks::<Q>().0, x[1].as_chunks::<Q>().0);
    let (xc, xd) = (x[2].as_chunks::<Q>().0, x[3].as_chunks::<Q>().0);
    let n = xa.len();
    let (xb, xc, xd) = (&xb[..n], &xc[..n], &xd[..n]);
    for i in 0..n {
        let more = f.map_some::<FMA, Q>(&xa[i], p[0]);
        for j in 0..Q {
            a[j] = f.combine(a[j], more[j]);
        }
        let more = f.map_some::<FMA, Q>(&xb[i], p[1]);
        for j in 0..Q {
            b[j] = f.combine(b[j], more[j]);
        }
        let more = f.map_some::<FMA, Q>(&xc[i], p[2]);
        for j in 0..Q {
            c[j] = f.combine(c[j], more[j]);
        }
        let more = f.map_some::<FMA, Q>(&xd[i], p[3]);
        for j in 0..Q {
            d[j] = f.combine(d[j], more[j]);
        }
    }
    [a, b, c, d]
}

/// Folds four slices of as many neighbours in `Q` lanes each: quarter after quarter, and what is left.
#[inline(always)]
fn four<F: Fold, const FMA: bool, const Q: usize>(
    f: &F,
    x: [&[F::In]; RUNS],
    p: [F::Param; RUNS],
) -> [F::Acc; RUNS] {
    let n = x[0].len();
    let mut values = [f.identity(); RUNS];
    if n < Q {
        for g in 0..RUNS {
            values[g] = few::<F, FMA>(f, x[g], p[g]);
        }
        return values;
    }
    let (none, each) = ([[f.identity(); Q]; RUNS], n / (RUNS * Q) * Q);
    let mut lanes = none;
    if each > 0 {
        let mut parts = [none; RUNS];
        for part in 0..RUNS {
            let (start, end) = (part * each, (part + 1) * each);
            let quarter =
                [&x[0][start..end], &x[1][start..end], &x[2][start..end], &x[3][start..end]];
            parts[part] = runs::<F, FMA, Q>(f, none, quarter, p);
        }
        for g in 0..RUNS {
            lanes[g] = together(f, [parts[0][g], parts[1][g], parts[2][g], parts[3][g]]);
        }
    }
    let (start, end) = (RUNS * each, n / Q * Q);
    let rest = [&x[0][start..end], &x[1][start..end], &x[2][start..end], &x[3][start..end]];
    let lanes = runs::<F, FMA, Q>(f, lanes, rest, p);
    for g in 0..RUNS {
        values[g] = finish::<F, FMA, Q>(f, apart(lanes[g]), x[g], p[g]);
    }
    values
}

/// Folds a run of neighbours, a whole number of `Q`, into the lanes.
#[inline(always)]
fn run<F: Fold, const FMA: bool, const Q: usize>(
    f: &F,
    mut lanes: [F::Acc; Q],
    x: &[F::In],
    p: F::Param,
) -> [F::Acc; Q] {
    for some in x.as_chunks::<Q>().0 {
        let more = f.map_some::<FMA, Q>(some, p);
        for j in 0..Q {
            lanes[j] = f.combine(lanes[j], more[j]);
        }
    }
    lanes
}

/// Folds a slice as [`four`] does, its quarters in the order given.
#[inline(always)]
fn one<F: Fold, const FMA: bool, const Q: usize>(
    f: &F,
    x: &[F::In],
    p: F::Param,
    order: Order,
) -> F::Acc {
    let n = x.len();
    if n < Q {
        return few::<F, FMA>(f, x, p);
    }
    let none = [f.identity(); Q];
    let (mut lanes, each) = (none, n / (RUNS * Q) * Q);
    if each > 0 {
        let (low, high) = (&x[..2 * each], &x[2 * each..4 * each]);
        let quarters = [&low[..each], &low[each..], &high[..each], &high[each..]];
        let mut parts = [none; RUNS];
        if order == Order::InTurn {
            for (part, quarter) in parts.iter_mut().zip(quarters) {
                *part = run::<F, FMA, Q>(f, none, quarter, p);
            }
        } else {
            parts = runs::<F, FMA, Q>(f, parts, quarters, [p; RUNS]);
        }
        lanes = together(f, parts);
    }
    lanes = run::<F, FMA, Q>(f, lanes, &x[RUNS * each..], p);
    finish::<F, FMA, Q>(f, apart(lanes), x, p)
}

/// The lanes by way of memory: else the compiler chooses the registers of the loop before for what follows, narrow ones.
#[inline(always)]
fn apart<A, const Q: usize>(lanes: [A; Q]) -> [A; Q] {
    black_box(lanes)
}

#[inline(always)]
fn few<F: Fold, const FMA: bool>(f: &F, x: &[F::In], p: F::Param) -> F::Acc {
    let mut value = f.identity();
    for &v in x {
        value = f.combine(value, f.map::<FMA>(v, p));
    }
    value
}

#[inline(always)]
fn together<F: Fold, const Q: usize>(f: &F, [a, b, c, d]: [[F::Acc; Q]; RUNS]) -> [F::Acc; Q] {
    let mut sum = a;
    for j in 0..Q {
        sum[j] = f.combine(f.combine(a[j], b[j]), f.combine(c[j], d[j]));
    }
    sum
}

/// Most lanes of a run.
const MOST_LANES: usize = 64;
/// Zeros, and then ones: of as many lanes as there are the last k, from where k ones are among them.
static TAKEN: [u32; 2 * MOST_LANES] = {
    let mut taken = [0; 2 * MOST_LANES];
    let mut i = MOST_LANES;
    while i < taken.len() {
        taken[i] = 1;
        i += 1;
    }
    taken
};

/// The value of the lanes and of the last of a slice's numbers, which are too few to fill them.
#[inline(always)]
#[allow(clippy::manual_memcpy, reason = "a copy as a whole keeps arrays out of registers")]
fn finish<F: Fold, const FMA: bool, const Q: usize>(
    f: &F,
    mut lanes: [F::Acc; Q],
    x: &[F::In],
    p: F::Param,
) -> F::Acc {
    let left = x.len() % Q;
    if left > 0 {
        // They are read with some that are done already, and are not taken again.
        let taken: &[u32; Q] = TAKEN[MOST_LANES - Q + left..].first_chunk().expect("`Q` and more");
        let x: &[F::In; Q] = x[x.len() - Q..].first_chunk().expect("`Q` of them");
        let values = f.map_some::<FMA, Q>(x, p);
        for j in 0..Q {
            let more = f.combine(lanes[j], values[j]);
            lanes[j] = if taken[j] > 0 { more } else { lanes[j] };
        }
    }
    in_pairs(lanes, |a, b| f.combine(a, b))
}

/// The lanes as one, by a tree of pairs.
#[inline(always)]
pub fn in_pairs<A: Copy, const Q: usize>(mut lanes: [A; Q], combine: impl Fn(A, A) -> A) -> A {
    let mut half = Q / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] = combine(lanes[j], lanes[j + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// `$fold` of at most [`LEAF`] neighbours, in as many lanes as fill eight 256-bit registers; in fewer on x86-64
/// processors before AVX2, for the sake of the build's time.
macro_rules! in_lanes {
    ($fold:ident::<$F:ident, $FMA:ident>($($argument:expr),*)) => {
        match size_of::<$F::Acc>() {
            _ if cfg!(target_arch = "x86_64") && !$FMA => $fold::<$F, $FMA, 2>($($argument),*),
            8 => $fold::<$F, $FMA, 8>($($argument),*),
            4 => $fold::<$F, $FMA, 16>($($argument),*),
            2 => $fold::<$F, $FMA, 32>($($argument),*),
            1 => $fold::<$F, $FMA, 64>($($argument),*),
            _ => $fold::<$F, $FMA, 1>($($argument),*),
        }
    };
}

/// Folds at most [`LEAF`] neighbours.
#[inline(always)]
pub fn leaf<F: Fold, const FMA: bool>(f: &F, x: &[F::In], p: F::Param, order: Order) -> F::Acc {
    in_lanes!(one::<F, FMA>(f, x, p, order))
}

/// Folds at most [`LEAF`] neighbours of each of four outputs, as [`leaf`] does.
#[inline(always)]
fn four_leaves<F: Fold, const FMA: bool>(
    f: &F,
    x: [&[F::In]; RUNS],
    p: [F::Param; RUNS],
) -> [F::Acc; RUNS] {
    in_lanes!(four::<F, FMA>(f, x, p))
}

/// `n` elements from `at` on, `stride` apart, as a slice: in place if they are neighbours, else
/// copied into `tile`.
///
/// # Safety
/// They can be read while the slice lives, and `n` is at most the tile's length.
#[inline(always)]
pub unsafe fn gather<T: Copy>(
    at: *const T,
    stride: isize,
    n: usize,
    tile: &mut [MaybeUninit<T>],
) -> &[T] {
    if stride == 1 {
        // SAFETY: `n` neighbours, by this function's contract.
        return unsafe { std::slice::from_raw_parts(at, n) };
    }
    for (i, slot) in tile[..n].iter_mut().enumerate() {
        // SAFETY: an element of the caller's.
        slot.write(unsafe { at.offset(i as isize * stride).read() });
    }
    // SAFETY: the first `n` were just written.
    unsafe { std::slice::from_raw_parts(tile.as_ptr().cast::<T>(), n) }
}

/// Most neighbours that are folded into one register of lanes: of more, the lanes' end takes a small part of the time.
const SHORT: usize = 512;

/// Folds the outputs of the job, each of `Q` to [`SHORT`] neighbours and nothing else, in `Q` lanes.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn short_rows<F: Fold, const FMA: bool, const Q: usize>(job: &Job<F>) {
    let &Job { f, plan, outputs, input, out, .. } = job;
    let (n, (width, step)) = (plan.count(), plan.kept().0);
    let mut kept = Walk::new(plan.kept().1, job.range.start / width);
    let (mut output, mut column) = (job.range.start, job.range.start % width);
    while output < job.range.end {
        let count = (width - column).min(job.range.end - output);
        for i in 0..count {
            // SAFETY: the walk stays inside the plan; `n` neighbours start there.
            let x = unsafe {
                let start = input.0.offset(kept.offset + (column + i) as isize * step);
                std::slice::from_raw_parts(start, n)
            };
            let (p, mut lanes) = (f.param((output + i) % outputs), [f.identity(); Q]);
            lanes = run::<F, FMA, Q>(f, lanes, x, p);
            let value = finish::<F, FMA, Q>(f, lanes, x, p);
            // SAFETY: the job's output.
            unsafe { out.at(output + i).write(value) };
        }
        (output, column) = (output + count, 0);
        kept.advance();
    }
}

/// Folds the outputs of the job one after another, or, where each has neighbours, four at a time.
///
/// # Safety
/// All positions of the plan can be read and the outputs written.
#[inline(always)]
pub unsafe fn rows<F: Fold, const FMA: bool>(job: Job<F>) {
    let ((width, _), kept_outer) = job.plan.kept();
    let ((inner, stride), outer) = job.plan.folded();
    if FMA && stride == 1 && outer.is_empty() && inner <= SHORT {
        // Of rows long enough in two registers, whose numbers wait half as long for one another.
        // SAFETY: this function's contract; the rows are dense and no longer than `SHORT`.
        unsafe {
            match size_of::<F::Acc>() {
                8 if inner >= 4 => return short_rows::<F, FMA, 4>(&job),
                4 if inner >= 64 => return short_rows::<F, FMA, 16>(&job),
                4 if inner >= 8 => return short_rows::<F, FMA, 8>(&job),
                _ => {}
            }
        }
    }
    let mut place = Place {
        output: job.range.start,
        column: job.range.start % width,
        kept: Walk::new(kept_outer, job.range.start / width),
    };
    if job.plan.folded().0.1 == 1 && job.order == Order::Together {
        while place.output + RUNS <= job.range.end {
            // SAFETY: this function's contract; `RUNS` outputs are left.
            unsafe { some_rows::<F, FMA, RUNS>(&job, &mut place) };
        }
    }
    while place.output < job.range.end {
        // SAFETY: this function's contract; an output is left.
        unsafe { some_rows::<F, FMA, 1>(&job, &mut place) };
    }
}

/// The next output, and where its elements are.
struct Place<'a> {
    output: usize,
    column: usize,
    kept: Walk<'a>,
}

/// Folds the next `G` outputs, one or four; the elements of four are neighbours.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn some_rows<F: Fold, const FMA: bool, const G: usize>(job: &Job<F>, place: &mut Place) {
    let &Job { f, plan, outputs, input, out, .. } = job;
    let ((inner, stride), outer) = plan.folded();
    let outer_count: usize = outer.iter().map(|d| d.0).product();
    let (width, step) = plan.kept().0;
    let first = place.output;
    let (mut starts, mut params) = ([input.0; RUNS], [f.param(first % outputs); RUNS]);
    for g in 0..G {
        params[g] = f.param((first + g) % outputs);
        // SAFETY: the walk stays inside the plan.
        starts[g] = unsafe { input.0.offset(place.kept.offset + place.column as isize * step) };
        place.column += 1;
        if place.column == width {
            place.column = 0;
            place.kept.advance();
        }
    }
    place.output += G;
    let combine = |a: [F::Acc; RUNS], b: [F::Acc; RUNS]| {
        let mut both = a;
        for g in 0..G {
            both[g] = f.combine(a[g], b[g]);
        }
        both
    };
    let mut tile = [const { MaybeUninit::<F::In>::uninit() }; LEAF];
    // Not as a pair, which would be copied.
    let mut tree = Tree::new();
    let mut run = Walk::new(outer, 0);
    let values = 'whole: {
        for _ in 0..outer_count {
            for start in (0..inner).step_by(LEAF) {
                let offset = run.offset + start as isize * stride;
                let n = LEAF.min(inner - start);
                let mut values = [f.identity(); RUNS];
                // SAFETY: parts of the outputs' elements; those of four are neighbours.
                unsafe {
                    if G == RUNS {
                        let mut x: [&[F::In]; RUNS] = [&[]; RUNS];
                        for g in 0..RUNS {
                            x[g] = std::slice::from_raw_parts(starts[g].offset(offset), n);
                        }
                        values = four_leaves::<F, FMA>(f, x, params);
                    } else {
                        let x = gather(starts[0].offset(offset), stride, n, &mut tile);
                        values[0] = leaf::<F, FMA>(f, x, params[0], job.order);
                    }
                }
                if outer_count == 1 && inner <= LEAF {
                    break 'whole values;
                }
                tree.push(values, combine);
            }
            run.advance();
        }
        tree.finish([f.identity(); RUNS], combine)
    };
    for g in 0..G {
        // SAFETY: the job's output.
        unsafe { out.at(first + g).write(values[g]) };
    }
}

/// Folds the outputs of the job in tiles of neighbouring ones.
///
/// # Safety
/// All positions of the plan can be read and the outputs written.
#[inline(always)]
pub unsafe fn columns<F: Fold, const FMA: bool>(job: Job<F>) {
    let Job { f, plan, outputs, input, range, out, .. } = job;
    let ((width, step), kept_outer) = plan.kept();
    let mut kept = Walk::new(kept_outer, range.start / width);
    let (mut stack, mut params) = (Vec::new(), Vec::new());
    let mut output = range.start;
    while output < range.end {
        let column = output % width;
        let n = TILE.min(width - column).min(range.end - output);
        params.clear();
        params.extend((output..output + n).map(|o| f.param(o % outputs)));
        // SAFETY: `n` columns of the plan start there, whose outputs are the job's.
        unsafe {
            let at = input.0.offset(kept.offset + column as isize * step);
            tile_of_columns::<F, FMA>(f, plan, at, step, &params, &mut stack);
            out.slice(output..output + n).copy_from_slice(&stack);
        }
        output += n;
        if column + n == width {
            kept.advance();
        }
    }
}

/// Folds neighbouring columns, a parameter each, whose first elements start at `at`, into `stack`.
/// Meanwhile it holds the subtrees of the pairwise tree, a tile each.
///
/// # Safety
/// The columns can be read.
#[inline(always)]
unsafe fn tile_of_columns<F: Fold, const FMA: bool>(
    f: &F,
    plan: &Plan,
    at: *const F::In,
    step: isize,
    params: &[F::Param],
    stack: &mut Vec<F::Acc>,
) {
    let n = params.len();
    let mut buffers = [[const { MaybeUninit::<F::In>::uninit() }; TILE]; GROUP];
    let ((inner, stride), outer) = plan.folded();
    let outer_count: usize = outer.iter().map(|d| d.0).product();
    let mut run = Walk::new(outer, 0);
    let (mut row, mut left, mut leaves) = (0, inner * outer_count, 0usize);
    stack.clear();
    while left > 0 {
        let rows = left.min(LEAF_ROWS);
        left -= rows;
        let base = stack.len();
        stack.resize(base + n, f.identity());
        let running = &mut stack[base..];
        let mut next = || {
            let offset = run.offset + row as isize * stride;
            row += 1;
            if row == inner {
                row = 0;
                run.advance();
            }
            // SAFETY: the start of a row of the caller's columns.
            unsafe { at.offset(offset) }
        };
        let [b0, b1, b2, b3] = &mut buffers;
        for _ in 0..rows / GROUP {
            // SAFETY: rows of the caller's columns.
            let (x0, x1, x2, x3) = unsafe {
                (
                    gather(next(), step, n, b0),
                    gather(next(), step, n, b1),
                    gather(next(), step, n, b2),
                    gather(next(), step, n, b3),
                )
            };
            for (j, (slot, &p)) in running.iter_mut().zip(params).enumerate() {
                let a = f.combine(f.map::<FMA>(x0[j], p), f.map::<FMA>(x1[j], p));
                let b = f.combine(f.map::<FMA>(x2[j], p), f.map::<FMA>(x3[j], p));
                *slot = f.combine(*slot, f.combine(a, b));
            }
        }
        for _ in 0..rows % GROUP {
            // SAFETY: a row of the caller's columns.
            let x = unsafe { gather(next(), step, n, b0) };
            for ((slot, &p), &x) in running.iter_mut().zip(params).zip(x) {
                *slot = f.combine(*slot, f.map::<FMA>(x, p));
            }
        }
        leaves += 1;
        for _ in 0..leaves.trailing_zeros() {
            merge(f, stack, n);
        }
    }
    while stack.len() > n {
        merge(f, stack, n);
    }
}

/// Combines the two topmost tiles.
#[inline(always)]
fn merge<F: Fold>(f: &F, stack: &mut Vec<F::Acc>, n: usize) {
    let top = stack.len() - n;
    let (below, above) = stack.split_at_mut(top);
    for (a, &b) in below[top - n..].iter_mut().zip(above.iter()) {
        *a = f.combine(*a, b);
    }
    stack.truncate(top);
}
