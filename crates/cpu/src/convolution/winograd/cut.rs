//! The tiles of one channel's planes, and how many numbers any scheme makes of one.

use super::lanes::{L, OUT};
use super::tiles::{Lanes, RUN, Run};
use crate::arch::prefetch::prefetch_later;

/// A row outside a plane, as long as any run's.
static ZEROS: [f32; 2 * OUT * RUN + 1] = [0.0; 2 * OUT * RUN + 1];

/// Most points of a dimension in any scheme.
pub const MOST: usize = 9;
/// Most outputs of a tile in a row.
pub const WIDEST: usize = 2 * OUT;

/// The tiles of one channel, and where they go: operand i of lane t to `out[i * stride + t]`, and up to [`L`] numbers
/// after a batch's last lane are overwritten.
///
/// *Cut invariant*, kept by whoever makes one: for each operand of the scheme `out` is writable for all lanes and [`L`]
/// numbers more, and nobody else uses these numbers while the tiles are spread.
#[derive(Clone, Copy)]
pub struct Cut<'a> {
    /// The first image's plane, and all after it.
    pub planes: &'a [f32],
    /// Distance between images.
    pub image: usize,
    /// Height and width of a plane.
    pub size: [usize; 2],
    /// Row and column that the first tile begins with; outside are zeros.
    pub origin: [isize; 2],
    pub lanes: &'a Lanes,
    /// `stride` numbers for each operand, of which other channels are in between; see the *Cut invariant*.
    pub out: *mut f32,
    pub stride: usize,
    /// Distance to the next channel's lanes.
    pub next: usize,
}

impl Cut<'_> {
    /// Where the first `count` rows of a run begin, whose tiles are `apart`, and which of the numbers from there on are
    /// inside the plane; no others are to be read. The next channel's rows are brought near.
    #[inline(always)]
    pub fn rows<const MOST: usize>(
        &self,
        run: &Run,
        apart: usize,
        (count, width): (usize, usize),
    ) -> ([*const f32; MOST], [usize; 2]) {
        assert!(count <= MOST && width <= ZEROS.len());
        let (h, w) = (self.size[0] as isize, self.size[1] as isize);
        let x = (apart * run.column) as isize + self.origin[1];
        let first = x.clamp(0, w) as usize;
        let mut rows = [ZEROS.as_ptr(); MOST];
        for i in 0..count {
            let y = (apart * run.row + i) as isize + self.origin[0];
            if y < 0 || y >= h {
                continue;
            }
            let row = run.image * self.image + (y * w) as usize;
            let row = self.planes[row..row + w as usize].as_ptr();
            rows[i] = row.wrapping_offset(x);
            // A run's rows are too short to be foreseen.
            let next = row.wrapping_add((h * w) as usize + first);
            for k in (0..width).step_by(2 * L) {
                prefetch_later(next.wrapping_add(k));
            }
        }
        let inside = [-x, w - x].map(|end| end.clamp(0, width as isize) as usize);
        (rows, inside)
    }
}
