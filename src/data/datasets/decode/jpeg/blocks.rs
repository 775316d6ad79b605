//! Blocks of 8 x 8 numbers, and the inverse cosine transform that makes samples of them.
//!
//! The transform is libjpeg's accurate one (`jidctint`: Loeffler, Ligtenberg, Moschytz, "Practical fast 1-D DCT
//! algorithms with 11 multiplications", 1989) in integers, so that samples are the same. Blocks are transformed side by
//! side, one per lane.

use std::ops::Range;

use super::headers::Frame;
use crate::cpu::arch::vectorize::{Kernel, vectorize};
use crate::data::transforms::Region;

/// Blocks in a group.
pub(super) const LANES: usize = 16;
/// The numbers of some blocks: of each place, row by row, one per block.
pub(super) type Group = [[i16; LANES]; 64];

/// What a region needs of a component.
pub(super) struct Component {
    /// Rows of units, and units in a row.
    pub unit_rows: Range<usize>,
    pub units: Range<usize>,
    down: usize,
    quantization: [i16; 64],
    /// Of one row of units: its rows of blocks, one after the other.
    groups: Vec<Group>,
    per_row: usize,
    /// Samples, in rows of `stride`.
    pub samples: Vec<u8>,
    pub stride: usize,
    /// Where the first sample is in the whole plane, and the size of that.
    pub left: usize,
    pub top: usize,
    pub width: usize,
    pub height: usize,
}

impl Component {
    pub fn new(frame: &Frame, index: usize, region: Region) -> Self {
        let (unit_width, unit_height) = frame.unit();
        let own = &frame.components[index];
        // Chroma between two samples is of both: a border of two pixels.
        let around = |from: usize, count: usize, whole: usize, unit: usize| {
            from.saturating_sub(2) / unit..(from + count + 2).min(whole).div_ceil(unit)
        };
        let units = around(region.left, region.width, frame.width, unit_width);
        let unit_rows = around(region.top, region.height, frame.height, unit_height);
        let per_row = (units.len() * own.across).div_ceil(LANES);
        let stride = per_row * LANES * 8;
        let (across, down) = (own.across, own.down);
        Component {
            down,
            quantization: *frame.quantization_of(index),
            groups: vec![[[0; LANES]; 64]; per_row * down],
            per_row,
            samples: vec![0; stride * unit_rows.len() * down * 8],
            stride,
            left: units.start * across * 8,
            top: unit_rows.start * down * 8,
            width: (frame.width * across * 8).div_ceil(unit_width),
            height: (frame.height * down * 8).div_ceil(unit_height),
            unit_rows,
            units,
        }
    }

    /// The group and lane of a block in the row of units that is read.
    #[inline(always)]
    pub fn block(&mut self, y: usize, x: usize) -> (&mut Group, usize) {
        (&mut self.groups[y * self.per_row + x / LANES], x % LANES)
    }

    /// Makes samples of a row of units, which has been read, and room for the next.
    pub fn transform(&mut self, row: usize) {
        let first = (row - self.unit_rows.start) * self.down * 8 * self.stride;
        let samples = &mut self.samples[first..];
        vectorize(Transform {
            groups: &mut self.groups,
            quantization: &self.quantization,
            per_row: self.per_row,
            samples,
        });
    }
}

struct Transform<'a> {
    groups: &'a mut [Group],
    quantization: &'a [i16; 64],
    per_row: usize,
    samples: &'a mut [u8],
}

impl Kernel for Transform<'_> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let stride = self.per_row * LANES * 8;
        for (y, row) in self.groups.chunks_exact_mut(self.per_row).enumerate() {
            for (x, group) in row.iter_mut().enumerate() {
                let samples = &mut self.samples[y * 8 * stride + x * LANES * 8..];
                transform(group, self.quantization, samples, stride);
                *group = [[0; LANES]; 64];
            }
        }
    }
}

type Lanes = [i32; LANES];

const BITS: i32 = 13;
const BETWEEN: i32 = 2;

/// The constants of the paper, times 2^13.
const F_0_298: i32 = 2446;
const F_0_390: i32 = 3196;
const F_0_541: i32 = 4433;
const F_0_765: i32 = 6270;
const F_0_899: i32 = 7373;
const F_1_175: i32 = 9633;
const F_1_501: i32 = 12299;
const F_1_847: i32 = 15137;
const F_1_961: i32 = 16069;
const F_2_053: i32 = 16819;
const F_2_562: i32 = 20995;
const F_3_072: i32 = 25172;

/// Eight numbers of each lane through the transform, which are left `shift` bits too high and are rounded.
#[inline(always)]
fn eight(v: &mut [Lanes; 8], shift: i32) {
    let half = 1 << (shift - 1);
    for l in 0..LANES {
        let x = [v[0][l], v[1][l], v[2][l], v[3][l], v[4][l], v[5][l], v[6][l], v[7][l]];
        // Even places.
        let z1 = (x[2] + x[6]).wrapping_mul(F_0_541);
        let e2 = z1 - x[6].wrapping_mul(F_1_847);
        let e3 = z1 + x[2].wrapping_mul(F_0_765);
        let (e0, e1) = ((x[0] + x[4]) << BITS, (x[0] - x[4]) << BITS);
        let (t10, t13, t11, t12) = (e0 + e3 + half, e0 - e3 + half, e1 + e2 + half, e1 - e2 + half);
        // Odd ones.
        let (o0, o1, o2, o3) = (x[7], x[5], x[3], x[1]);
        let (z1, z2, z3, z4) = (o0 + o3, o1 + o2, o0 + o2, o1 + o3);
        let z5 = (z3 + z4).wrapping_mul(F_1_175);
        let (z1, z2) = (-z1.wrapping_mul(F_0_899), -z2.wrapping_mul(F_2_562));
        let (z3, z4) = (z5 - z3.wrapping_mul(F_1_961), z5 - z4.wrapping_mul(F_0_390));
        let o0 = o0.wrapping_mul(F_0_298) + z1 + z3;
        let o1 = o1.wrapping_mul(F_2_053) + z2 + z4;
        let o2 = o2.wrapping_mul(F_3_072) + z2 + z3;
        let o3 = o3.wrapping_mul(F_1_501) + z1 + z4;
        v[0][l] = (t10 + o3) >> shift;
        v[7][l] = (t10 - o3) >> shift;
        v[1][l] = (t11 + o2) >> shift;
        v[6][l] = (t11 - o2) >> shift;
        v[2][l] = (t12 + o1) >> shift;
        v[5][l] = (t12 - o1) >> shift;
        v[3][l] = (t13 + o0) >> shift;
        v[4][l] = (t13 - o0) >> shift;
    }
}

/// The samples of a group: eight rows of eight for each lane.
#[inline(always)]
fn transform(group: &Group, quantization: &[i16; 64], samples: &mut [u8], stride: usize) {
    let mut between = [[[0; LANES]; 8]; 8];
    for column in 0..8 {
        let mut v = [[0; LANES]; 8];
        for row in 0..8 {
            let place = row * 8 + column;
            let q = i32::from(quantization[place]);
            for l in 0..LANES {
                v[row][l] = i32::from(group[place][l]).wrapping_mul(q);
            }
        }
        eight(&mut v, BITS - BETWEEN);
        for row in 0..8 {
            between[row][column] = v[row];
        }
    }
    for (row, v) in between.iter_mut().enumerate() {
        eight(v, BITS + BETWEEN + 3);
        let out: &mut [u8] = &mut samples[row * stride..][..LANES * 8];
        for l in 0..LANES {
            for column in 0..8 {
                out[l * 8 + column] = (v[column][l] + 128).clamp(0, 255) as u8;
            }
        }
    }
}
