//! How products are shared out among threads.

use crate::threads::{get_num_threads, parallel_for};

/// Floating-point operations that are worth a second thread, which may have to be woken.
pub const WORTH_A_THREAD: usize = 2_000_000;

/// Products of `size`, one per item: as `here` where there is one for each thread, else one after another as
/// `whole`, which divides each.
pub fn each_of(
    (m, n, k): (usize, usize, usize),
    items: &[[isize; 3]],
    whole: impl Fn([isize; 3]),
    here: impl Fn([isize; 3]) + Sync,
) {
    if items.len() < get_num_threads() {
        return items.iter().for_each(|&item| whole(item));
    }
    let grain = WORTH_A_THREAD.div_ceil((2 * m * n * k).max(1));
    parallel_for(items.len(), grain, |range| items[range].iter().for_each(|&item| here(item)));
}
