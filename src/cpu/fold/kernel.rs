//! The loops of a fold: row by row where the elements of an output are neighbours, a tile of columns
//! at a time where the outputs are. Other strides are gathered into a dense tile first.

use std::hint::black_box;
use std::mem::MaybeUninit;

use smallvec::SmallVec;

use super::{Fold, Job, Plan, Walk};
use crate::cpu::prefetch::prefetch;

/// Elements of a leaf of the tree, folded in lanes without further care for rounding.
const LEAF: usize = 2048;
/// Rows of a leaf when folding by columns.
const LEAF_ROWS: usize = 32;
/// Rows that are combined before they are added to the running values, which saves loads and stores.
const GROUP: usize = 4;
/// Columns of a tile: the running values stay in the L1 cache.
const TILE: usize = 1024;

/// Combines values pairwise as they come: a binary counter whose digits are subtrees.
pub struct Tree<A> {
    subtrees: SmallVec<[A; 16]>,
    pushed: usize,
}

impl<A: Copy> Tree<A> {
    #[inline(always)]
    pub fn new() -> Self {
        Tree { subtrees: SmallVec::new(), pushed: 0 }
    }

    #[inline(always)]
    pub fn push(&mut self, mut value: A, combine: impl Fn(A, A) -> A) {
        self.pushed += 1;
        for _ in 0..self.pushed.trailing_zeros() {
            let left = self.subtrees.pop().expect("a subtree per digit");
            value = combine(left, value);
        }
        self.subtrees.push(value);
    }

    #[inline(always)]
    pub fn finish(mut self, identity: A, combine: impl Fn(A, A) -> A) -> A {
        let Some(mut value) = self.subtrees.pop() else { return identity };
        while let Some(left) = self.subtrees.pop() {
            value = combine(left, value);
        }
        value
    }
}

/// Bytes that are asked for ahead of their use: what follows a leaf comes from memory while it is folded.
const AHEAD: usize = 16 << 10;

/// Folds neighbours in `N` lanes, in two arrays of `H`, half of them.
#[inline(always)]
fn lanes<F: Fold, const FMA: bool, const N: usize, const H: usize>(
    f: &F,
    x: &[F::In],
    p: F::Param,
) -> F::Acc {
    let mut rest = f.identity();
    if x.len() < N {
        for &v in x {
            rest = f.combine(rest, f.map::<FMA>(v, p));
        }
        return rest;
    }
    // Arrays of their own, so that they live in registers.
    let (mut left, mut right) = ([f.identity(); H], [f.identity(); H]);
    let (whole, tail) = x.split_at(x.len() / N * N);
    for both in whole.as_chunks::<N>().0 {
        for line in (0..N * size_of::<F::In>()).step_by(64) {
            prefetch(both.as_ptr().cast::<u8>().wrapping_add(AHEAD + line));
        }
        for j in 0..H {
            left[j] = f.combine(left[j], f.map::<FMA>(both[j], p));
        }
        for j in 0..H {
            right[j] = f.combine(right[j], f.map::<FMA>(both[H + j], p));
        }
    }
    for &v in tail {
        rest = f.combine(rest, f.map::<FMA>(v, p));
    }
    // By way of memory: else the compiler chooses the lanes' registers for what follows, narrow ones.
    let (mut tree, other) = (black_box(left), black_box(right));
    for j in 0..H {
        tree[j] = f.combine(tree[j], other[j]);
    }
    let mut half = H / 2;
    while half > 0 {
        for j in 0..half {
            tree[j] = f.combine(tree[j], tree[j + half]);
        }
        half /= 2;
    }
    f.combine(tree[0], rest)
}

/// Folds at most [`LEAF`] neighbours, in as many lanes as fill eight 256-bit registers; in fewer on x86-64
/// processors before AVX2, for the sake of the build's time.
#[inline(always)]
pub fn leaf<F: Fold, const FMA: bool>(f: &F, x: &[F::In], p: F::Param) -> F::Acc {
    if cfg!(target_arch = "x86_64") && !FMA {
        return lanes::<F, FMA, 8, 4>(f, x, p);
    }
    match size_of::<F::Acc>() {
        8 => lanes::<F, FMA, 32, 16>(f, x, p),
        4 => lanes::<F, FMA, 64, 32>(f, x, p),
        2 => lanes::<F, FMA, 128, 64>(f, x, p),
        1 => lanes::<F, FMA, 256, 128>(f, x, p),
        _ => lanes::<F, FMA, 4, 2>(f, x, p),
    }
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
        // SAFETY: `n` neighbours, by the caller's word.
        return unsafe { std::slice::from_raw_parts(at, n) };
    }
    for (i, slot) in tile[..n].iter_mut().enumerate() {
        // SAFETY: an element of the caller's.
        slot.write(unsafe { at.offset(i as isize * stride).read() });
    }
    // SAFETY: the first `n` were just written.
    unsafe { std::slice::from_raw_parts(tile.as_ptr().cast::<T>(), n) }
}

/// Folds the outputs of the job one after another.
///
/// # Safety
/// All positions of the plan can be read and the outputs written.
#[inline(always)]
pub unsafe fn rows<F: Fold, const FMA: bool>(job: Job<F>) {
    let Job { f, plan, outputs, input, range, out } = job;
    let mut tile = [const { MaybeUninit::<F::In>::uninit() }; LEAF];
    let ((inner, stride), outer) = plan.folded();
    let outer_count: usize = outer.iter().map(|d| d.0).product();
    let ((width, step), kept_outer) = plan.kept();
    let mut column = range.start % width;
    let mut kept = Walk::new(kept_outer, range.start / width);
    // Back at its start after every output.
    let mut run = Walk::new(outer, 0);
    for output in range {
        let param = f.param(output % outputs);
        // SAFETY: the walks stay inside the plan.
        let at = unsafe { input.0.offset(kept.offset + column as isize * step) };
        let mut part = |offset: isize, n: usize| {
            // SAFETY: a part of the output's elements.
            let x = unsafe { gather(at.offset(offset), stride, n, &mut tile) };
            leaf::<F, FMA>(f, x, param)
        };
        let value = if outer_count == 1 && inner <= LEAF {
            part(0, inner)
        } else {
            let mut tree = Tree::new();
            for _ in 0..outer_count {
                for start in (0..inner).step_by(LEAF) {
                    let n = LEAF.min(inner - start);
                    let value = part(run.offset + start as isize * stride, n);
                    tree.push(value, |a, b| f.combine(a, b));
                }
                run.advance();
            }
            tree.finish(f.identity(), |a, b| f.combine(a, b))
        };
        // SAFETY: the job's output.
        unsafe { out.at(output).write(value) };
        column += 1;
        if column == width {
            column = 0;
            kept.advance();
        }
    }
}

/// Folds the outputs of the job in tiles of neighbouring ones.
///
/// # Safety
/// All positions of the plan can be read and the outputs written.
#[inline(always)]
pub unsafe fn columns<F: Fold, const FMA: bool>(job: Job<F>) {
    let Job { f, plan, outputs, input, range, out } = job;
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
