//! The instructions of AVX512-BF16, and the masks of AVX-512 that go with them.

use std::arch::x86_64::*;

use half::bf16;
use smallvec::SmallVec;

use super::work::{Finish, Gather, Kernels, ROWS, Round, Scatter};
use crate::numbers::vector::Vector;
use crate::numbers::widen::Widen;
use crate::products::micro::{Product, SIDE, Tile, all_rows};

/// 16 pairs or 16 sums.
#[derive(Clone, Copy)]
struct Pairs(__m512);

impl Vector for Pairs {
    type Number = f32;
    const LANES: usize = 16;
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: `Vector`'s *Reach* and *Instructions*.
        Pairs(unsafe { _mm512_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: `Vector`'s *Reach* and *Instructions*.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        Pairs(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        Pairs(unsafe { _mm512_add_ps(self.0, other.0) })
    }
    /// Of pairs, to sums.
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: `Vector`'s *Instructions*; the same bits as the type that the instruction wants.
        unsafe {
            let (a, b) = (
                std::mem::transmute::<__m512, __m512bh>(self.0),
                std::mem::transmute::<__m512, __m512bh>(b.0),
            );
            Pairs(_mm512_dpbf16_ps(c.0, a, b))
        }
    }
}

/// The functions; of the tile's 32 registers 16 are sums.
pub fn kernels() -> Kernels {
    let columns = SIDE * Pairs::LANES;
    let tile = Tile { rows: ROWS, columns, widest: columns, tallest: ROWS, run: multiply };
    Kernels { tile, round, gather, scatter }
}

/// The rows of B are one after the other, and A's columns `a_column` apart.
///
/// # Safety
/// As [`Product`] says, without `rows` and `columns`, and the processor has AVX512-BF16.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,avx2,fma")]
unsafe fn multiply(p: Product<f32>) {
    debug_assert!(p.rows.is_null() && p.columns.is_null());
    // SAFETY: the *Product invariant*, with neither table; AVX512-BF16 gives `Vector`'s
    // *Instructions*.
    unsafe {
        match (p.a_row == 1, p.n <= Pairs::LANES) {
            (true, false) => all_rows::<Pairs, SIDE, ROWS, false, false, true, false>(&p),
            (true, true) => all_rows::<Pairs, 1, ROWS, false, false, true, false>(&p),
            (false, false) => all_rows::<Pairs, SIDE, ROWS, false, false, false, false>(&p),
            (false, true) => all_rows::<Pairs, 1, ROWS, false, false, false, false>(&p),
        }
    }
}

/// # Safety
/// As [`Round`] says, and the processor has AVX512-BF16.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,avx2,fma")]
unsafe fn round(r: Round) {
    let (rows, columns) = r.size;
    let mask = ((1u64 << columns) - 1) as __mmask32;
    for i in 0..rows {
        // SAFETY: the *Round invariant*; what a mask leaves out is not touched.
        unsafe {
            let from = r.from.add(i * r.distance);
            let mut sums = [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(Pairs::LANES))];
            if let Some(finish) = r.finish {
                for (part, sums) in sums.iter_mut().enumerate() {
                    let first = part * Pairs::LANES;
                    if first < columns {
                        *sums = finished(*sums, finish.at(i, first), mask >> first);
                    }
                }
            }
            let line = rounded(sums);
            _mm512_mask_storeu_epi16(r.to.at(i, 0).ptr.cast(), mask, line);
        }
    }
}

/// 16 sums with what is added, of which the mask's are there.
///
/// # Safety
/// As [`round`].
#[inline(always)]
unsafe fn finished(sums: __m512, finish: Finish, mask: __mmask32) -> __m512 {
    // SAFETY: the *Round invariant*: what is added is there for the sums of the mask, and no others
    // are read.
    unsafe {
        let sums = _mm512_mul_ps(sums, _mm512_set1_ps(finish.alpha));
        let Some(start) = finish.start else { return sums };
        let more = if start.column == 1 {
            let bits = _mm256_maskz_loadu_epi16(mask as __mmask16, start.ptr.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
        } else {
            let mut numbers = [0.0; Pairs::LANES];
            for j in 0..Pairs::LANES {
                if mask >> j & 1 == 1 {
                    numbers[j] = (*start.at(0, j).ptr).widen();
                }
            }
            _mm512_loadu_ps(numbers.as_ptr())
        };
        _mm512_add_ps(sums, _mm512_mul_ps(more, _mm512_set1_ps(finish.beta)))
    }
}

/// 32 numbers of bf16.
///
/// # Safety
/// The processor has AVX512-BF16.
#[inline(always)]
unsafe fn rounded([low, high]: [__m512; SIDE]) -> __m512i {
    // SAFETY: AVX512-BF16 is there by this function's contract; the same bits.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) }
}

/// # Safety
/// As [`Gather`] says, and the processor has AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
unsafe fn gather(g: Gather) {
    for part in 0..SIDE {
        let lanes = part * Pairs::LANES..(part + 1) * Pairs::LANES;
        let mut pieces: SmallVec<[(__mmask16, isize); 8]> = SmallVec::new();
        for run in g.runs {
            let from = run.column.clamp(lanes.start, lanes.end);
            let to = (run.column + run.len).clamp(lanes.start, lanes.end);
            if from < to {
                let mask = ((1u32 << (to - from)) - 1) << (from - lanes.start);
                pieces.push((
                    mask as u16,
                    run.source as isize + lanes.start as isize - run.column as isize,
                ));
            }
        }
        // SAFETY: the *Gather invariant*: `out` takes the rows, of which this register's lanes
        // begin at `lanes.start`.
        unsafe {
            let out = g.out.add(lanes.start);
            match pieces.len() {
                1 => gather_register::<1>(&g, &pieces, out),
                2 => gather_register::<2>(&g, &pieces, out),
                3 => gather_register::<3>(&g, &pieces, out),
                _ => gather_any(&g, &pieces, out),
            }
        }
    }
}

/// One register of each row, of N pieces.
///
/// # Safety
/// As [`gather`].
#[inline(always)]
unsafe fn gather_register<const N: usize>(
    g: &Gather,
    pieces: &[(__mmask16, isize)],
    out: *mut f32,
) {
    let mut all = [(0, 0); N];
    all.copy_from_slice(pieces);
    let mut to = out;
    for &row in g.rows {
        // SAFETY: the *Gather invariant*; what a mask leaves out is not touched.
        unsafe {
            let from = g.source.wrapping_add(row);
            let mut lanes = _mm512_maskz_loadu_ps(all[0].0, from.wrapping_offset(all[0].1));
            for i in 1..N {
                lanes = _mm512_mask_loadu_ps(lanes, all[i].0, from.wrapping_offset(all[i].1));
            }
            _mm512_storeu_ps(to, lanes);
        }
        to = to.wrapping_add(SIDE * Pairs::LANES);
    }
}

/// One register of each row, of any number of pieces.
///
/// # Safety
/// As [`gather`].
#[inline(always)]
unsafe fn gather_any(g: &Gather, pieces: &[(__mmask16, isize)], out: *mut f32) {
    let mut to = out;
    for &row in g.rows {
        // SAFETY: the *Gather invariant*; what a mask leaves out is not touched.
        unsafe {
            let from = g.source.wrapping_add(row);
            let mut lanes = _mm512_setzero_ps();
            for &(mask, at) in pieces {
                lanes = _mm512_mask_loadu_ps(lanes, mask, from.wrapping_offset(at));
            }
            _mm512_storeu_ps(to, lanes);
        }
        to = to.wrapping_add(SIDE * Pairs::LANES);
    }
}

/// # Safety
/// As [`Scatter`] says, and the processor has AVX512-BF16.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,avx2,fma")]
unsafe fn scatter(s: Scatter) {
    let mut pieces: SmallVec<[(__mmask32, isize); 8]> = SmallVec::new();
    // Single points are written as such: a masked store takes longer.
    let mut points: SmallVec<[(usize, isize); 32]> = SmallVec::new();
    for run in s.runs {
        let at = run.source as isize;
        if run.len == 1 {
            points.push((run.column, at));
        } else {
            let mask = ((1u64 << run.len) - 1) << run.column;
            pieces.push((mask as u32, at - run.column as isize));
        }
    }
    // Indexed, since iterators of other types are not inlined into the function of these instructions.
    let (pieces, points) = (pieces.as_slice(), points.as_slice());
    for i in 0..s.rows {
        // SAFETY: the *Scatter invariant*; what a mask leaves out is not touched.
        unsafe {
            let from = s.from.add(i * SIDE * Pairs::LANES);
            let start = if s.bias.is_null() { 0.0 } else { (*s.bias.add(i)).widen() };
            let start = _mm512_set1_ps(start);
            let low = _mm512_add_ps(_mm512_loadu_ps(from), start);
            let high = _mm512_add_ps(_mm512_loadu_ps(from.add(Pairs::LANES)), start);
            let line = rounded([low, high]);
            let to = s.to.wrapping_add(i * s.row);
            for p in 0..pieces.len() {
                let (mask, at) = pieces[p];
                _mm512_mask_storeu_epi16(to.wrapping_offset(at).cast(), mask, line);
            }
            if !points.is_empty() {
                let numbers = std::mem::transmute::<__m512i, [bf16; SIDE * Pairs::LANES]>(line);
                for p in 0..points.len() {
                    let (column, at) = points[p];
                    to.wrapping_offset(at).write(*numbers.get_unchecked(column));
                }
            }
        }
    }
}
