//! The data gradient of 3x3 windows at stride 2, as in [`spread`](super::spread), in strips of the result a
//! few blocks wide, which run down the plane: the filter stays in registers.

use super::job::{AHEAD, SpreadPlanes};
use super::lanes::{Job, Lanes};
use super::rolling::{MOST, strips};
use super::spread::{Block, blocks, lead};
use super::square::{Square, row_from};
use crate::arch::prefetch::prefetch;

/// Planes of a 3x3 window and parity of the padding; only made by `SpreadPlanes::run`, whose caller vouches
/// for the results.
pub struct RollingSpread<'a, const ODD: usize>(pub SpreadPlanes<'a>);

impl<const ODD: usize> Job for RollingSpread<'_, ODD> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let job = self.0;
        let square = job.square;
        let [height, width] = square.grid;
        // SAFETY: `Vector`'s *Instructions*, as `Job::run` has them.
        let blocks = unsafe { blocks::<V>(square) };
        let strips = strips(&blocks, |block| block.edge, MOST);
        let zeros = vec![0f32; width];
        for item in job.items {
            let (gradient, filter) = (job.operands)(item);
            assert!(gradient.len() == height * width);
            // SAFETY: the masks keep to the gradient, whose length was just checked; the result is of the
            // source's size and this thread's own by the *Planes invariant*.
            unsafe {
                let plane = Plane {
                    gradient: gradient.as_ptr(),
                    zeros: zeros.as_ptr(),
                    square,
                    filter: square.spread::<V, 3>(filter),
                    out: (job.result)(item),
                };
                for strip in &strips {
                    match strip.len() {
                        1 => plane.strip::<ODD, 1>(strip),
                        2 => plane.strip::<ODD, 2>(strip),
                        3 => plane.strip::<ODD, 3>(strip),
                        _ => plane.strip::<ODD, MOST>(strip),
                    }
                }
            }
        }
    }
}

struct Plane<'a, V> {
    gradient: *const f32,
    /// A row of zeros of the gradient.
    zeros: *const f32,
    square: &'a Square,
    filter: [[V; 3]; 3],
    out: *mut f32,
}

impl<V: Lanes> Plane<'_, V> {
    /// The results of a strip of `B` blocks.
    ///
    /// # Safety
    /// The strip is the square's, the gradient is a plane of its grid, the result is this thread's own,
    /// and the processor has the instruction set.
    #[inline(always)]
    unsafe fn strip<const ODD: usize, const B: usize>(&self, strip: &[Block<V::Mask>]) {
        let (square, filter) = (self.square, self.filter);
        let [h, w] = square.source;
        let [mut y, column] = square.origin.map(|origin| lead(origin, 3));
        let gradient_ahead = AHEAD.min(square.grid[0] * square.grid[1]);
        let ahead = AHEAD.min(h * w);
        let count = strip[B - 1].count;
        // SAFETY: as for this function; the strip has `B` blocks.
        unsafe {
            let strip = &*strip.as_ptr().cast::<[Block<V::Mask>; B]>();
            let parts =
                [V::mask(0..count.min(V::LANES)), V::mask(0..count.saturating_sub(V::LANES))];
            let mut out = self.out;
            for pair in 0..h.div_ceil(2) {
                let rows = [
                    row_from(self.gradient, square.grid, y, self.zeros),
                    row_from(self.gradient, square.grid, y + 1, self.zeros),
                ];
                y += 1;
                let both = 2 * pair + 1 < h;
                for b in 0..B {
                    let at = strip[b].first as isize + column;
                    let to = out.add(2 * strip[b].first);
                    prefetch(rows[1].wrapping_add(gradient_ahead + strip[b].first));
                    let mut sums = [[V::splat(0.0); 2]; 2];
                    for u in 0..2 {
                        for v in 0..2 {
                            let from = rows[u].wrapping_offset(at).wrapping_add(v);
                            let g = if b == 0 || b == B - 1 {
                                V::load_masked(from, &strip[b].masks[v])
                            } else {
                                V::load(from)
                            };
                            for a in 0..2 {
                                for k in 0..2 {
                                    let (r, s) = (a + 2 - 2 * u, k + 2 - 2 * v);
                                    if r >= ODD && r < 3 + ODD && s >= ODD && s < 3 + ODD {
                                        sums[a][k] = g.fma(filter[r - ODD][s - ODD], sums[a][k]);
                                    }
                                }
                            }
                        }
                    }
                    for a in 0..2 {
                        let [low, high] = V::interleave(sums[a][0], sums[a][1]);
                        let to = to.wrapping_add(a * w);
                        prefetch(to.wrapping_add(ahead));
                        prefetch(to.wrapping_add(ahead + V::LANES));
                        if a == 0 || both {
                            if b == B - 1 {
                                low.store_masked(to, parts[0]);
                                high.store_masked(to.wrapping_add(V::LANES), parts[1]);
                            } else {
                                low.store(to);
                                high.store(to.wrapping_add(V::LANES));
                            }
                        }
                    }
                }
                out = out.wrapping_add(2 * w);
            }
        }
    }
}
