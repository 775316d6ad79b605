//! Filters to products' operands, and products to filters' gradients.

use super::lanes::{L, Shuffles, by_lanes};
use super::points::{self, N};
#[cfg(target_arch = "x86_64")]
use crate::arch::isa;
use crate::arch::vectorize::vectorize;

/// Taps of a filter.
pub const TAPS: usize = 9;

/// Where 3x3 filters are: tap t from result channel o and source channel c of group g at
/// `data[g * group + o * output + c * input + order[t]]`.
#[derive(Clone, Copy)]
pub struct Filters<'a> {
    /// All filters.
    pub data: &'a [f32],
    /// Distance between groups.
    pub group: usize,
    /// Distance between result channels.
    pub output: usize,
    /// Distance between source channels.
    pub input: usize,
    /// Of the taps row by row, as the planes are read.
    pub order: [usize; TAPS],
}

/// Transforms the filters of `rows` result channels from `first` on, for all source channels, as the
/// left operands of a register tile with `rows` rows: of a product whose operands are the `count` ones from b on,
/// column c of operand `b + i` is at `out[b * stride + ((panel * count + i) * inputs + c) * rows]`.
///
/// *Pack invariant*, kept by whoever makes one: `out` is writable at all columns of the scheme's operands, nobody else uses
/// these numbers while it runs, and two columns have at least [`L`] rows (a tile has 6 or 8).
pub struct Pack<'a> {
    pub filters: Filters<'a>,
    /// First number of the group.
    pub start: usize,
    pub first: usize,
    pub outputs: usize,
    pub inputs: usize,
    pub rows: usize,
    /// Which of the register tiles' operands in `out` this is.
    pub panel: usize,
    pub out: *mut f32,
    pub stride: usize,
}

by_lanes!(Pack pack);

impl Pack<'_> {
    /// # Safety
    /// `Vector`'s *Instructions*, and the *Pack invariant*.
    #[inline(always)]
    unsafe fn pack<V: Shuffles>(self) {
        for c in 0..self.inputs {
            let taps = self.taps(c);
            // SAFETY: `Vector`'s *Instructions*; `taps` gives `L` numbers each, and the *Pack
            // invariant* holds for what `store` writes.
            unsafe {
                let g = |i: usize, j: usize| V::load(taps[3 * i + j].as_ptr());
                let mut half = [[V::splat(0.0); N]; 3];
                for i in 0..3 {
                    half[i] = points::taps([g(i, 0), g(i, 1), g(i, 2)]);
                }
                for j in 0..N {
                    let products = points::taps([half[0][j], half[1][j], half[2][j]]);
                    for i in 0..N {
                        self.store((i * N + j, 1, 0), c, products[i]);
                    }
                }
            }
        }
    }

    /// The taps from source channel c, row by row, each of all result channels.
    #[inline(always)]
    pub fn taps(&self, c: usize) -> [[f32; L]; TAPS] {
        let mut taps = [[0.0; L]; TAPS];
        for l in 0..self.rows.min(self.outputs - self.first) {
            let at = self.start + (self.first + l) * self.filters.output;
            let filter = &self.filters.data[at + c * self.filters.input..];
            for t in 0..TAPS {
                taps[t][l] = filter[self.filters.order[t]];
            }
        }
        taps
    }

    /// Column c of the operand that is the given one behind the first of its product, of which there are `count`.
    /// The last column is written exactly; the others overlap the next one, which is written later.
    ///
    /// # Safety
    /// As for `pack`.
    #[inline(always)]
    pub unsafe fn store<V: Shuffles>(
        &self,
        (first, count, behind): (usize, usize, usize),
        c: usize,
        numbers: V,
    ) {
        let column = (self.panel * count + behind) * self.inputs + c;
        // SAFETY: `Vector`'s *Instructions*; the *Pack invariant*: columns but the last have the
        // next one's room behind them, and the last is written exactly.
        unsafe {
            let to = self.out.add(first * self.stride + column * self.rows);
            if c + 1 < self.inputs {
                numbers.store(to);
            } else {
                let mut last = [0.0; L];
                numbers.store(last.as_mut_ptr());
                to.copy_from_nonoverlapping(last.as_ptr(), self.rows);
            }
        }
    }
}

/// Transforms filters with the best instructions that the processor has.
pub fn pack_filters(pack: Pack) {
    #[cfg(target_arch = "x86_64")]
    if isa::current() == isa::Isa::Avx512 && pack.rows == L {
        // SAFETY: AVX-512 was just asked for; the *Pack invariant*.
        return unsafe { pack_wide(pack) };
    }
    vectorize(pack);
}

/// [`Pack`] with registers of sixteen numbers, those of eight result channels for two source channels.
///
/// # Safety
/// The processor has AVX-512; the *Pack invariant*.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
unsafe fn pack_wide(all: Pack) {
    use std::arch::x86_64::*;
    let Pack { filters, start, first, outputs, inputs, rows, panel, out, stride } = all;
    let count = rows.min(outputs - first);
    let start = start + first * filters.output;
    let mut last = 0;
    for t in 0..TAPS {
        last = filters.order[t].max(last);
    }
    let end = (count - 1) * filters.output + (inputs - 1) * filters.input + last;
    assert!(rows == L && start + end < filters.data.len() && end <= i32::MAX as usize);
    let mut places = [0; 2 * L];
    for l in 0..2 * L {
        places[l] = (l % L * filters.output + l / L * filters.input) as i32;
    }
    let out = out.wrapping_add(panel * inputs * rows);
    // SAFETY: the filters are there by the assertion, masked ones are not read; `out` has room for whole
    // columns by the *Pack invariant*.
    unsafe {
        let places = _mm512_loadu_si512(places.as_ptr().cast());
        let column = (1u16 << count) - 1;
        for c in (0..inputs).step_by(2) {
            let both = c + 1 < inputs;
            let wanted = if both { column << L | column } else { column };
            let written = if both { u16::MAX } else { 0xFF };
            let from = filters.data.as_ptr().add(start + c * filters.input);
            let mut g = [_mm512_setzero_ps(); TAPS];
            for t in 0..TAPS {
                let from = from.add(filters.order[t]);
                g[t] = _mm512_mask_i32gather_ps::<4>(g[t], wanted, places, from);
            }
            let mut half = [[_mm512_setzero_ps(); N]; 3];
            for i in 0..3 {
                half[i] = points::taps([g[3 * i], g[3 * i + 1], g[3 * i + 2]]);
            }
            for j in 0..N {
                let products = points::taps([half[0][j], half[1][j], half[2][j]]);
                for i in 0..N {
                    let to = out.add((i * N + j) * stride + c * L);
                    _mm512_mask_storeu_ps(to, written, products[i]);
                }
            }
        }
    }
}

/// Gradients of the filters of one result channel: product p of source channel c is at
/// `sums[p * stride + c]`, where L numbers can be read; `out` is `[inputs, 9]`.
pub struct Unpack<'a> {
    pub sums: &'a [f32],
    pub stride: usize,
    pub out: &'a mut [f32],
}

by_lanes!(Unpack unpack);

impl Unpack<'_> {
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    unsafe fn unpack<V: Shuffles>(mut self) {
        for c in self.pieces(N * N) {
            // SAFETY: `Vector`'s *Instructions*; a piece's sums are there, as `pieces` has checked.
            unsafe {
                let mut taps = [V::splat(0.0); TAPS];
                let mut half = [[V::splat(0.0); 3]; N];
                for i in 0..N {
                    let mut u = [V::splat(0.0); N];
                    for j in 0..N {
                        u[j] = V::load(self.sums.as_ptr().add((i * N + j) * self.stride + c));
                    }
                    half[i] = points::tap_gradients(u);
                }
                for j in 0..3 {
                    let mut u = [V::splat(0.0); N];
                    for i in 0..N {
                        u[i] = half[i][j];
                    }
                    let column = points::tap_gradients(u);
                    for i in 0..3 {
                        taps[3 * i + j] = column[i];
                    }
                }
                self.store(c, taps);
            }
        }
    }

    /// The first source channels of pieces of L, of which there are sums of so many products.
    #[inline(always)]
    pub fn pieces(&self, products: usize) -> impl Iterator<Item = usize> + use<> {
        let inputs = self.out.len() / TAPS;
        assert!((products - 1) * self.stride + inputs.next_multiple_of(L) <= self.sums.len());
        (0..inputs).step_by(L)
    }

    /// The taps of the source channels from c on.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    pub unsafe fn store<V: Shuffles>(&mut self, c: usize, taps: [V; TAPS]) {
        let mut all = [[0.0; L]; TAPS];
        for t in 0..TAPS {
            // SAFETY: `Vector`'s *Instructions*; `all[t]` has the register's `L` numbers.
            unsafe { taps[t].store(all[t].as_mut_ptr()) };
        }
        for (l, out) in self.out[c * TAPS..].chunks_exact_mut(TAPS).take(L).enumerate() {
            for t in 0..TAPS {
                out[t] = all[t][l];
            }
        }
    }
}
