//! From samples to pixels: chroma at the luma's size, and RGB.

use super::blocks::Component;
use super::headers::Frame;
use crate::cpu::arch::vectorize::{Kernel, vectorize};
use crate::data::transforms::Region;

/// The planes of a region.
pub(super) fn planes(frame: &Frame, components: &[Component], region: Region) -> Vec<u8> {
    let plane = region.width * region.height;
    let mut out = vec![0; 3 * plane];
    let y = &components[0];
    let [cb, cr] = match components {
        [_, cb, cr] => [cb, cr],
        _ => {
            for row in 0..region.height {
                let from = &y.samples
                    [(region.top + row - y.top) * y.stride + region.left - y.left..]
                    [..region.width];
                for channel in 0..3 {
                    out[channel * plane + row * region.width..][..region.width]
                        .copy_from_slice(from);
                }
            }
            return out;
        }
    };
    let (unit_width, unit_height) = frame.unit();
    let (across, down) = (unit_width / 8, unit_height / 8);
    let mut chroma = [Chroma::new(cb, across, down, region), Chroma::new(cr, across, down, region)];
    let (reds, rest) = out.split_at_mut(plane);
    let (greens, blues) = rest.split_at_mut(plane);
    for row in 0..region.height {
        let at = row * region.width..(row + 1) * region.width;
        let from = &y.samples[(region.top + row - y.top) * y.stride + region.left - y.left..]
            [..region.width];
        let [cb, cr] = &mut chroma;
        vectorize(Convert {
            y: from,
            cb: cb.row(region.top + row),
            cr: cr.row(region.top + row),
            out: [&mut reds[at.clone()], &mut greens[at.clone()], &mut blues[at]],
        });
    }
    out
}

/// A plane of chroma, read at the luma's size.
struct Chroma<'a> {
    component: &'a Component,
    across: usize,
    down: usize,
    region: Region,
    /// The samples that the region needs, one more at each side: three times the nearer row and once the other.
    sums: Vec<u16>,
    /// Of the columns from `first` times `across` on.
    wide: Vec<u8>,
    first: usize,
    last: usize,
}

impl<'a> Chroma<'a> {
    fn new(component: &'a Component, across: usize, down: usize, region: Region) -> Self {
        let (first, last) = (region.left / across, (region.left + region.width - 1) / across);
        let count = last - first + 1;
        Chroma {
            component,
            across,
            down,
            region,
            sums: vec![0; count + 2],
            wide: vec![0; count * across],
            first,
            last,
        }
    }

    /// The samples of the region's columns in this row of luma.
    fn row(&mut self, row: usize) -> &[u8] {
        let c = self.component;
        let row_of = |row: usize| &c.samples[(row - c.top) * c.stride..][..c.stride];
        let near = row / self.down;
        if self.across == 1 {
            return &row_of(near)[self.region.left - c.left..][..self.region.width];
        }
        let other = match (self.down, row % 2) {
            (1, _) => near,
            (_, 0) => near.saturating_sub(1),
            _ => (near + 1).min(c.height - 1),
        };
        let (near, other) = (row_of(near), row_of(other));
        let count = self.last - self.first + 1;
        // The outermost samples of the plane count for those beyond.
        let from = self.first - c.left;
        let before = self.first.saturating_sub(1).max(c.left) - c.left;
        let after = (self.last + 1).min(c.width - 1) - c.left;
        let sum = |x: usize| 3 * u16::from(near[x]) + u16::from(other[x]);
        (self.sums[0], self.sums[count + 1]) = (sum(before), sum(after));
        vectorize(Widen {
            near: &near[from..from + count],
            other: &other[from..from + count],
            // With one row the sums are four times as much, and rounded as such: (4a + 3 * 4b) against (a + 3 b).
            rounding: if self.down == 2 { [8, 7] } else { [4, 8] },
            sums: &mut self.sums,
            wide: &mut self.wide,
        });
        &self.wide[self.region.left - 2 * self.first..][..self.region.width]
    }
}

struct Widen<'a> {
    near: &'a [u8],
    other: &'a [u8],
    rounding: [u16; 2],
    sums: &'a mut [u16],
    wide: &'a mut [u8],
}

impl Kernel for Widen<'_> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let count = self.near.len();
        let (near, other) = (&self.near[..count], &self.other[..count]);
        let middle = &mut self.sums[1..count + 1];
        for x in 0..count {
            middle[x] = 3 * u16::from(near[x]) + u16::from(other[x]);
        }
        let sums = &self.sums[..count + 2];
        let wide = &mut self.wide[..2 * count];
        let [left, right] = self.rounding;
        for x in 0..count {
            let own = 3 * sums[x + 1];
            wide[2 * x] = ((own + sums[x] + left) >> 4) as u8;
            wide[2 * x + 1] = ((own + sums[x + 2] + right) >> 4) as u8;
        }
    }
}

struct Convert<'a> {
    y: &'a [u8],
    cb: &'a [u8],
    cr: &'a [u8],
    out: [&'a mut [u8]; 3],
}

impl Kernel for Convert<'_> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let n = self.y.len();
        let [red, green, blue] = self.out;
        let (y, cb, cr) = (&self.y[..n], &self.cb[..n], &self.cr[..n]);
        let (red, green, blue) = (&mut red[..n], &mut green[..n], &mut blue[..n]);
        const HALF: i32 = 1 << 15;
        for x in 0..n {
            let (y, cb, cr) = (i32::from(y[x]), i32::from(cb[x]) - 128, i32::from(cr[x]) - 128);
            red[x] = (y + ((91881 * cr + HALF) >> 16)).clamp(0, 255) as u8;
            green[x] = (y + ((-22554 * cb - 46802 * cr + HALF) >> 16)).clamp(0, 255) as u8;
            blue[x] = (y + ((116130 * cb + HALF) >> 16)).clamp(0, 255) as u8;
        }
    }
}
