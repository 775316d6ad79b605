//! Products of bf16 numbers in pairs, `sum + a0 b0 + a1 b1` with sums in f32: one instruction where
//! AVX512-BF16 is there, at the rate of f32's multiply-add, so twice its work.
//!
//! A pair is 32 bits that stand for two neighbouring steps of a sum, and is passed as an f32 whose value
//! means nothing: tiles, packing and fields then are those of f32, with half as many steps. The instruction
//! takes subnormal operands for 0 and gives 0 for subnormal sums, as it does for PyTorch.

use half::bf16;

use super::field::Run;
use super::gemm::Matrix;
use super::isa;
use super::micro::Tile;
use super::vectorize::{Kernel, vectorize};
use super::widen::Widen;

mod lines;
mod pack;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use lines::{SLACK, interleave_channels, interleave_lines};
pub use pack::{HalfPanels, are_pairs, pack};

/// What there is where the instruction is.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// The tile whose steps are of pairs: its operands are packed pairs, its results f32.
    pub tile: Tile<f32>,
    /// Brings points together.
    pub gather: unsafe fn(Gather),
    /// Rounds sums and brings them to their points.
    pub scatter: unsafe fn(Scatter),
}

/// A panel of points, as wide as the tile, that is gathered from runs of pairs: lanes between them are 0. The
/// runs displaced by each of `rows` are readable, and `out` takes as many rows.
pub struct Gather<'a> {
    /// Where runs and displacements are counted from.
    pub source: *const f32,
    /// Displacement of each row.
    pub rows: &'a [usize],
    /// Straight runs of points, which do not overlap in the panel.
    pub runs: &'a [Run],
    /// Where the panel goes.
    pub out: *mut f32,
}

/// Rows of sums, as wide as the tile, that are rounded and scattered to runs of points: `source` says where one
/// begins in the output. All runs displaced by whole rows are writable, and nobody else uses them.
pub struct Scatter<'a> {
    /// The sums.
    pub from: *const f32,
    /// How many rows there are.
    pub rows: usize,
    /// One number for each row, which is added, or null.
    pub bias: *const bf16,
    /// Where the runs are counted from.
    pub to: *mut bf16,
    /// Distance between rows there.
    pub row: usize,
    /// Straight runs of points.
    pub runs: &'a [Run],
}

/// The functions for pairs, where the processor has the instruction.
pub fn kernels() -> Option<Kernels> {
    #[cfg(target_arch = "x86_64")]
    if isa::multiplies_bf16() {
        return Some(x86::kernels());
    }
    None
}

/// `alpha sum + beta start` instead of a sum.
#[derive(Clone, Copy)]
pub struct Finish {
    /// Factor of the sum.
    pub alpha: f32,
    /// Factor of what is added.
    pub beta: f32,
    /// What is added, if anything is: one number for each sum; a distance may be 0.
    pub start: Option<Matrix<*const bf16>>,
}

impl Finish {
    /// For the sums from (i, j) on.
    pub fn at(self, i: usize, j: usize) -> Self {
        Finish { start: self.start.map(|start| start.at(i, j)), ..self }
    }

    /// For the transposed sums.
    pub fn transposed(self) -> Self {
        Finish { start: self.start.map(Matrix::transposed), ..self }
    }
}

/// Rows of sums, to be rounded to bf16.
pub struct Round {
    /// Sums of row i are at `from + i * distance`.
    pub from: *const f32,
    /// Distance between their rows.
    pub distance: usize,
    /// Rows and columns.
    pub size: (usize, usize),
    /// Where they go.
    pub to: Matrix<*mut bf16>,
    /// What becomes of them before.
    pub finish: Option<Finish>,
}

impl Round {
    /// Rounds them.
    ///
    /// # Safety
    /// Sums and start are readable and the places writable, and nobody else uses these.
    pub unsafe fn run(self) {
        vectorize(self);
    }

    /// N neighbouring sums, from (i, j) on.
    ///
    /// # Safety
    /// As `run`.
    #[inline(always)]
    unsafe fn line<const N: usize>(&self, i: usize, j: usize) {
        // SAFETY: the caller's promise. Neighbours have loads and stores of whole registers.
        unsafe {
            let mut sums = self.from.add(i * self.distance + j).cast::<[f32; N]>().read_unaligned();
            if let Some(Finish { alpha, beta, start }) = self.finish {
                for t in 0..N {
                    sums[t] *= alpha;
                }
                if let Some(start) = start.map(|start| start.at(i, j)) {
                    let mut more = [bf16::ZERO; N];
                    if start.column == 1 {
                        more = start.ptr.cast::<[bf16; N]>().read_unaligned();
                    } else {
                        for t in 0..N {
                            more[t] = *start.at(0, t).ptr;
                        }
                    }
                    for t in 0..N {
                        sums[t] += beta * more[t].widen();
                    }
                }
            }
            let to = self.to.at(i, j);
            let mut line = [bf16::ZERO; N];
            for t in 0..N {
                line[t] = bf16::narrow(sums[t]);
            }
            if to.column == 1 {
                to.ptr.cast::<[bf16; N]>().write_unaligned(line);
            } else {
                for t in 0..N {
                    *to.at(0, t).ptr = line[t];
                }
            }
        }
    }
}

impl Kernel for Round {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (rows, columns) = self.size;
        for i in 0..rows {
            let mut j = 0;
            // SAFETY: the caller of the other `run` has promised it.
            unsafe {
                while j + 32 <= columns {
                    self.line::<32>(i, j);
                    j += 32;
                }
                while j + 8 <= columns {
                    self.line::<8>(i, j);
                    j += 8;
                }
                while j < columns {
                    self.line::<1>(i, j);
                    j += 1;
                }
            }
        }
    }
}

/// A pair, as an f32.
#[inline(always)]
fn pair(even: bf16, odd: bf16) -> f32 {
    f32::from_bits(even.to_bits() as u32 | (odd.to_bits() as u32) << 16)
}

/// # Safety
/// N numbers can be read from both lines, and N pairs written.
#[inline(always)]
unsafe fn interleave<const N: usize>(even: *const bf16, odd: *const bf16, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let even = even.cast::<[u16; N]>().read_unaligned();
        let odd = odd.cast::<[u16; N]>().read_unaligned();
        let mut pairs = [0u32; N];
        for j in 0..N {
            pairs[j] = even[j] as u32 | (odd[j] as u32) << 16;
        }
        to.cast::<[u32; N]>().write_unaligned(pairs);
    }
}
