//! Which outputs, and which parts of them, are folded by whom.

use super::kernel::{Job, Order, Tree, columns, rows};
use super::operation::{Fold, Shared, SharedMut};
use crate::arch::vectorize::{Kernel, vectorize};
use crate::small_pieces::least;
use crate::threads::{GRAIN, parallel_for};
use torchrs_loops::fold::Plan;

/// Folds with fewer outputs than this, and many elements each, are cut into parts.
const FEW_OUTPUTS: usize = 64;
/// Elements per part.
const PART: usize = 32 << 10;
/// Shortest row of an output that is folded where it lies among other outputs'.
const ROW: usize = 512;
/// Columns narrower than this waste the vector registers: several rows are then taken as one.
const NARROW: usize = 64;
/// Columns of the several rows of a large tensor: pages, which processors foresee better than shorter pieces in turns
/// (on Zen 4 of 480 bytes at half the speed).
const WIDE: usize = 1024;

/// Writes the value of every output of the plan to its place from `out` on.
///
/// # Safety
/// *Fold invariant*: every position of the plan relative to `input` is an element that can be read and is not written
/// meanwhile; `out` has room for all outputs, which nobody else uses.
pub unsafe fn fold<F: Fold>(f: &F, plan: &Plan, input: *const F::In, out: *mut F::Acc) {
    let (count, outputs) = (plan.count(), plan.outputs());
    let parts = match plan.narrow_columns(NARROW) {
        _ if count == 0 || outputs == 0 => {
            for o in 0..outputs {
                // SAFETY: the *Fold invariant*: there is room for all outputs.
                unsafe { out.add(o).write(f.identity()) };
            }
            return;
        }
        Some(width) if count >= 4 * (2 * NARROW / width) => {
            let columns = if count * width >= WIDE * WIDE { WIDE } else { 2 * NARROW };
            Some((columns / width, true))
        }
        _ if outputs < FEW_OUTPUTS && count >= 2 * PART => Some((count / PART, false)),
        _ => None,
    };
    let images = plan.of_images().filter(|images| {
        let (inner, stride) = images.folded().0;
        stride == 1 && inner >= least(ROW, 8)
    });
    // SAFETY: the *Fold invariant*; parts lie inside the plan.
    unsafe {
        match (images, parts) {
            (Some(images), _) => fold_in_parts(f, outputs, input, (images, None), out),
            (None, Some((parts, interleaved))) => {
                fold_in_parts(f, outputs, input, plan.split(parts, interleaved), out);
            }
            (None, None) => fold_whole(f, plan, input, outputs, out),
        }
    }
}

/// Folds each output of `plan` in one go. Output `o` has the parameter of number `o % outputs`.
///
/// # Safety
/// As [`fold`].
unsafe fn fold_whole<F: Fold>(
    f: &F,
    plan: &Plan,
    input: *const F::In,
    outputs: usize,
    out: *mut F::Acc,
) {
    let (input, out) = (Shared(input), SharedMut(out));
    let order = Order::of(plan.outputs() * plan.count() * size_of::<F::In>());
    parallel_for(plan.outputs(), GRAIN / plan.count(), |range| {
        vectorize(Job { f, plan, outputs, input, order, range, out });
    });
}

/// Folds parts of each of `outputs` on their own, then those: a plan whose outermost kept dimension is the parts, and
/// one of a rest with its offset.
///
/// # Safety
/// As [`fold`], of both plans.
unsafe fn fold_in_parts<F: Fold>(
    f: &F,
    outputs: usize,
    input: *const F::In,
    (main, rest): (Plan, Option<(Plan, isize)>),
    out: *mut F::Acc,
) {
    let parts = main.outputs() / outputs;
    // One more than the parts: the rest, which is empty when they come out even.
    let mut partial = vec![f.identity(); (parts + 1) * outputs];
    // SAFETY: the *Fold invariant* of both plans; `partial` has room for both.
    unsafe {
        fold_whole(f, &main, input, outputs, partial.as_mut_ptr());
        if let Some((rest, offset)) = rest {
            let last = partial.as_mut_ptr().add(parts * outputs);
            fold_whole(f, &rest, input.offset(offset), outputs, last);
        }
    }
    let out = SharedMut(out);
    parallel_for(outputs, GRAIN / parts, |range| {
        for output in range {
            let mut tree = Tree::new();
            for part in partial.iter().skip(output).step_by(outputs) {
                tree.push(*part, |a, b| f.combine(a, b));
            }
            let value = tree.finish(f.identity(), |a, b| f.combine(a, b));
            // SAFETY: the *Fold invariant*: there is room for all outputs.
            unsafe { out.at(output).write(value) };
        }
    });
}

impl<F: Fold> Kernel for Job<'_, F> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: the *Fold invariant*, of the whole job; ranges are disjoint.
        unsafe {
            if self.plan.by_columns() { columns::<F, FMA>(self) } else { rows::<F, FMA>(self) }
        }
    }
}
