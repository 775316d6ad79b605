//! Folding a strided buffer along some of its dimensions into one value per output: sums, maxima,
//! norms. An op says how an element becomes a value and how two values become one ([`Fold`]); the
//! driver finds the fast order for the strides.
//!
//! Floating-point sums are taken pairwise: leaves of some thousand elements in several lanes, then a
//! binary tree over the leaves, so the error grows with the logarithm of the count. The order
//! depends on shape and strides only, never on the number of threads.

mod kernel;
mod plan;

use std::ops::Range;

pub use kernel::{Tree, gather, leaf};
pub use plan::{Plan, Walk};

use super::threads::{GRAIN, parallel_for};
use super::vectorize::{Kernel, vectorize};
use kernel::{columns, rows};

/// What is folded: how an element becomes a value, and how two values become one.
///
/// All methods are `#[inline(always)]` in implementations; `combine` is associative and commutative
/// up to rounding.
pub trait Fold: Sync {
    /// Element of the buffer.
    type In: Copy + Default + Send + Sync;
    /// The running value.
    type Acc: Copy + Send + Sync;
    /// Something that belongs to an output and that `map` wants: a mean, a maximum. `()` if nothing.
    type Param: Copy;

    /// The value of no elements.
    fn identity(&self) -> Self::Acc;
    /// What belongs to this output.
    fn param(&self, output: usize) -> Self::Param;
    /// The value of one element.
    fn map<const FMA: bool>(&self, x: Self::In, param: Self::Param) -> Self::Acc;
    /// The value of two parts together.
    fn combine(&self, a: Self::Acc, b: Self::Acc) -> Self::Acc;
}

/// A pointer that may go to other threads; what is done with it is argued for where it is used.
pub struct Shared<T>(pub *const T);
impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}
// SAFETY: only the address moves; reads are of memory that nobody writes meanwhile.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// Folds with fewer outputs than this, and many elements each, are cut into parts.
const FEW_OUTPUTS: usize = 64;
/// Elements per part.
const PART: usize = 32 << 10;
/// Columns narrower than this waste the vector registers: several rows are then taken as one.
const NARROW: usize = 64;

/// Calls `store(output, value)` once for every output of the plan.
///
/// # Safety
/// Every position of the plan relative to `input` is an element that can be read and is not written
/// meanwhile.
pub unsafe fn fold<F: Fold>(
    f: &F,
    plan: &Plan,
    input: *const F::In,
    store: impl Fn(usize, F::Acc) + Sync,
) {
    let count = plan.count();
    if count == 0 {
        (0..plan.outputs()).for_each(|o| store(o, f.identity()));
        return;
    }
    if let Some(width) = plan.narrow_columns(NARROW)
        && count >= 4 * (2 * NARROW / width)
    {
        // SAFETY: the parts lie inside the plan.
        unsafe { fold_in_parts(f, plan, input, 2 * NARROW / width, true, store) };
        return;
    }
    if plan.outputs() < FEW_OUTPUTS && count >= 2 * PART {
        // SAFETY: the parts lie inside the plan.
        unsafe { fold_in_parts(f, plan, input, count / PART, false, store) };
        return;
    }
    // SAFETY: the caller's word.
    unsafe { fold_whole(f, plan, input, &store) };
}

/// Folds each output in one go.
///
/// # Safety
/// As [`fold`].
unsafe fn fold_whole<F: Fold>(
    f: &F,
    plan: &Plan,
    input: *const F::In,
    store: &(impl Fn(usize, F::Acc) + Sync),
) {
    let input = Shared(input);
    parallel_for(plan.outputs(), GRAIN / plan.count(), |range| {
        vectorize(Job { f, plan, input, range, store });
    });
}

/// Folds `parts` parts of every output on their own, then those. The parts are runs of neighbours
/// along the longest reduced dimension, or every `parts`-th if `interleaved`.
///
/// # Safety
/// As [`fold`].
unsafe fn fold_in_parts<F: Fold>(
    f: &F,
    plan: &Plan,
    input: *const F::In,
    parts: usize,
    interleaved: bool,
    store: impl Fn(usize, F::Acc) + Sync,
) {
    let outputs = plan.outputs();
    let (main, rest) = plan.split(parts, interleaved);
    let parts = main.outputs() / outputs;
    // One more than the parts: the rest, which is empty when they come out even.
    let mut partial = vec![f.identity(); (parts + 1) * outputs];
    let out = SharedMut(partial.as_mut_ptr());
    let part = Part { f, outputs };
    // SAFETY: positions of `main` and `rest` are positions of the plan; stores are within `partial`,
    // each place is written by one call.
    unsafe {
        fold_whole(&part, &main, input, &|i, value| out.at(i).write(value));
        if let Some((rest, offset)) = rest {
            fold_whole(&part, &rest, input.offset(offset), &|i, value| {
                out.at(parts * outputs + i).write(value);
            });
        }
    }
    for output in 0..outputs {
        let mut tree = kernel::Tree::new();
        for part in partial.iter().skip(output).step_by(outputs) {
            tree.push(*part, |a, b| f.combine(a, b));
        }
        store(output, tree.finish(f.identity(), |a, b| f.combine(a, b)));
    }
}

/// A fold whose outputs are parts of the outputs of `f`.
struct Part<'a, F> {
    f: &'a F,
    outputs: usize,
}

impl<F: Fold> Fold for Part<'_, F> {
    type In = F::In;
    type Acc = F::Acc;
    type Param = F::Param;
    #[inline(always)]
    fn identity(&self) -> F::Acc {
        self.f.identity()
    }
    #[inline(always)]
    fn param(&self, output: usize) -> F::Param {
        self.f.param(output % self.outputs)
    }
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: F::In, param: F::Param) -> F::Acc {
        self.f.map::<FMA>(x, param)
    }
    #[inline(always)]
    fn combine(&self, a: F::Acc, b: F::Acc) -> F::Acc {
        self.f.combine(a, b)
    }
}

/// A place to write results to from several threads, each its own elements.
pub struct SharedMut<T>(pub *mut T);
impl<T> Clone for SharedMut<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedMut<T> {}
// SAFETY: only the address moves; every user writes elements of its own.
unsafe impl<T> Send for SharedMut<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    /// The address of element `i`.
    ///
    /// # Safety
    /// It is inside the memory that the pointer was made from.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> *mut T {
        // SAFETY: the caller's word.
        unsafe { self.0.add(i) }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// They are initialised (for the types used here any bytes are), inside the memory that the
    /// pointer was made from, and nobody else uses them while the slice lives.
    #[inline(always)]
    pub unsafe fn slice<'a>(self, range: Range<usize>) -> &'a mut [T] {
        // SAFETY: the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

struct Job<'a, F: Fold, S> {
    f: &'a F,
    plan: &'a Plan,
    input: Shared<F::In>,
    range: Range<usize>,
    store: &'a S,
}

impl<F: Fold, S: Fn(usize, F::Acc)> Kernel for Job<'_, F, S> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Job { f, plan, input, range, store } = self;
        // SAFETY: `fold`'s caller promised that the plan's positions can be read.
        unsafe {
            if plan.by_columns() {
                columns::<F, FMA>(f, plan, input.0, range, store);
            } else {
                rows::<F, FMA>(f, plan, input.0, range, store);
            }
        }
    }
}

#[cfg(test)]
mod tests;
