//! Runs a kernel over rows of which its second input is one number each: a bias for each channel, a mean for each row.

use crate::elementwise::kernel::TileFn;
use crate::threads::parts::Shared;
use crate::threads::{GRAIN, get_num_threads, parallel_for};
use torchrs_loops::Plan;

/// Elements of a row from which a call for each of them costs less than tiles that hold several.
const SHORTEST: usize = 48;

/// Whether the plan's rows are such, of `size` bytes an element, and enough of them for all threads.
#[inline]
pub fn is_numbered(plan: &Plan, size: usize) -> bool {
    let size = size as isize;
    plan.dims.len() > 1
        && plan.inner() >= SHORTEST
        && [0, 1, 2].map(|k| plan.inner_stride(k)) == [size, size, 0]
        && plan.rows() >= 2 * get_num_threads()
}

/// Runs the kernel's loop for each row of output and two inputs, whose first elements `pointers` are.
///
/// # Safety
/// As for [`execute`](crate::elementwise::tile::execute), for operands of the compute type whose rows [`is_numbered`] holds for; the
/// output is no input, and the kernel [takes a number](crate::elementwise::kernel::Kernel::takes_numbers).
pub unsafe fn execute_numbered(tile: TileFn, plan: &Plan, pointers: [*mut u8; 3]) {
    let first = Shared::new(pointers);
    let inner = plan.inner();
    parallel_for(plan.rows(), (GRAIN / inner).max(1), |rows| {
        let first = first.get();
        plan.for_rows::<3>(rows, |offsets| {
            // No adaptors, which are calls that take as long as a short row.
            let at = |k: usize| first[k].wrapping_offset(offsets[k]);
            let row = [at(0), at(1), at(2)];
            // SAFETY: `inner` elements of output and first input, and the number; without parameters there are null.
            unsafe { tile(row.as_ptr(), std::ptr::null(), inner) };
        });
    });
}
