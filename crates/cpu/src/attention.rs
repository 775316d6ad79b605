//! Attention over one batch item, block by block: the scores of a block of queries and a block of
//! keys stay in the first-level cache, and the softmax is kept up to date as blocks of keys come in
//! (running maximum and sum), so that the matrix of all scores never exists. Backward computes the
//! blocks again from the logarithm of each row's sum. Exponentials are powers of 2, whose logarithms are
//! scores with a factor of their own.

use std::f64::consts::{LN_2, LOG2_E};
use std::ops::Range;

use crate::folds::fold::in_pairs;
use crate::folds::row::{N, add_lanes, larger};
use crate::numbers::float::simd_fn;
use crate::products::micro::{Tile, multiply};
use crate::products::pack::{pack, packed_len};
use crate::products::tiled::Tiled;
use crate::threads::parts::with_scratch;

/// Queries of a block: whole register tiles of 6 and of 8 rows.
const QUERIES: usize = 48;
/// Keys of a block.
const KEYS: usize = 128;
/// A logarithm of f32 beyond which its steps are those of what it is the logarithm of.
const LARGE: f64 = 1e3;

/// A matrix whose rows are contiguous.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    /// From the first element on.
    pub data: &'a [T],
    /// Distance between rows; 0 repeats one row.
    pub row: usize,
}

impl<'a, T> Rows<'a, T> {
    fn line(self, i: usize, from: usize, len: usize) -> &'a [T] {
        &self.data[i * self.row + from..][..len]
    }
}

/// Which keys a query attends to: query i to the keys i + low to i + high, of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// From a query's own number to its first key.
    pub low: i64,
    /// To its last one.
    pub high: i64,
}

impl Band {
    /// Beyond all keys.
    pub const FAR: i64 = 1 << 40;
    /// All keys.
    pub const ALL: Band = Band { low: -Band::FAR, high: Band::FAR };
    /// Query i attends to keys 0 to i only.
    pub const CAUSAL: Band = Band { low: -Band::FAR, high: 0 };

    /// A band that was counted from where the last query and the last key meet, counted from the first ones.
    #[must_use]
    pub fn from_last(self, queries: usize, keys: usize) -> Band {
        let more = keys as i64 - queries as i64;
        let moved = |at: i64| if at.abs() >= Band::FAR { at } else { at + more };
        Band { low: moved(self.low), high: moved(self.high) }
    }

    /// The keys, of `count` from `first` on, that query `i` attends to, as numbers of these.
    pub fn seen(self, i: usize, first: usize, count: usize) -> Range<usize> {
        let own = i as i64 - first as i64;
        let place = |at: i64| at.clamp(0, count as i64) as usize;
        let (from, to) = (place(own + self.low), place(own + self.high + 1));
        from..to.max(from)
    }
}

/// Sizes and rules of one attention.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Queries.
    pub queries: usize,
    /// Keys, and values.
    pub keys: usize,
    /// Length of a query or key.
    pub depth: usize,
    /// Length of a value.
    pub width: usize,
    /// Factor on the scores.
    pub scale: f64,
    /// Which keys a query attends to.
    pub band: Band,
}

impl Attention {
    /// Blocks of keys that these queries attend to: (first key, number of keys). A block is always whole, as it was
    /// packed; what a query does not see of it has the weight 0.
    fn key_blocks(&self, queries: Range<usize>) -> impl Iterator<Item = (usize, usize)> + use<> {
        let keys = self.keys;
        let last = self.band.seen(queries.end.max(1) - 1, 0, keys).end;
        let first = self.band.seen(queries.start, 0, keys).start;
        (first / KEYS * KEYS..last).step_by(KEYS).map(move |k| (k, KEYS.min(keys - k)))
    }

    /// All blocks of keys.
    fn all_blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let keys = self.keys;
        (0..keys).step_by(KEYS).map(move |k| (k, KEYS.min(keys - k)))
    }

    /// The attention of queries `range`: rows of `out` (`[range, width]`) get the weighted values,
    /// `logsum` the logarithms of the sums of the exponentials of the scores (0 for a query that
    /// attends to nothing, whose output is 0). `mask`, if any, is added to the scores.
    #[allow(clippy::too_many_arguments, reason = "the operands of attention")]
    pub fn forward<T: Tiled>(
        &self,
        range: Range<usize>,
        q: Rows<T>,
        k: Rows<T>,
        v: Rows<T>,
        mask: Option<Rows<T>>,
        out: &mut [T],
        logsum: &mut [T],
    ) {
        let tile = T::tile(crate::arch::isa::current());
        let (s, e, w) = (self.keys, self.depth, self.width);
        let (natural, binary) = (T::of(self.scale), T::of(self.scale * LOG2_E));
        // What `highest` is in: logarithms to base e with a mask (see `exponentials_from`), else to base 2.
        let unit = if mask.is_some() { 1.0 } else { LN_2 };
        let (keys_len, values_len) = (packed_len(tile, e, s), s * w.next_multiple_of(tile.columns));
        let total = keys_len + values_len + QUERIES * (KEYS + w) + 2 * QUERIES;
        with_scratch(total, |scratch: &mut [T]| {
            let (keys, rest) = scratch.split_at_mut(keys_len);
            let (values, rest) = rest.split_at_mut(values_len);
            let (scores, rest) = rest.split_at_mut(QUERIES * KEYS);
            let (sums, rest) = rest.split_at_mut(QUERIES * w);
            let (highest, total) = rest.split_at_mut(QUERIES);
            pack(e, s, k.data, 1, k.row, tile.columns, keys);
            pack_rows(tile, self.all_blocks(), v, w, values);
            for first in range.clone().step_by(QUERIES) {
                let count = QUERIES.min(range.end - first);
                highest.fill(T::NEG_INFINITY);
                total.fill(T::ZERO);
                sums.fill(T::ZERO);
                for (k0, n) in self.key_blocks(first..first + count) {
                    self.scores(tile, q, first, count, keys, k0, n, scores);
                    for i in 0..count {
                        let seen = self.band.seen(first + i, k0, n);
                        let mask = line_of(mask, first + i, k0, &seen);
                        let row = only_seen(&mut scores[i * KEYS..][..n], &seen);
                        let old = highest[i];
                        let new = if mask.is_empty() {
                            highest_of(row, binary, old)
                        } else {
                            add_mask(row, mask, natural);
                            highest_of(row, T::ONE, old)
                        };
                        let base = if new == T::NEG_INFINITY { T::ZERO } else { new };
                        let sum = if mask.is_empty() {
                            exponentials(row, binary, base)
                        } else {
                            exponentials_from(row, base)
                        };
                        let fade = if new == old {
                            1.0
                        } else {
                            ((old.as_f64() - base.as_f64()) * (unit / LN_2)).exp2()
                        };
                        if fade != 1.0 {
                            scale(&mut sums[i * w..(i + 1) * w], T::of(fade));
                        }
                        total[i] = total[i] * T::of(fade) + sum;
                        highest[i] = new;
                    }
                    let block = &values[k0 * w.next_multiple_of(tile.columns)..];
                    // SAFETY: `scores` has `count` rows of n numbers, KEYS apart; the block of values
                    // was packed; `sums` has `count` rows of w.
                    unsafe {
                        let (a, c) = ((scores.as_ptr(), KEYS, 1), (sums.as_mut_ptr(), w));
                        multiply(tile, (count, w, n), a, block.as_ptr(), c, true);
                    }
                }
                for i in 0..count {
                    let at = first - range.start + i;
                    let out = &mut out[at * w..(at + 1) * w];
                    out.copy_from_slice(&sums[i * w..(i + 1) * w]);
                    let sum = total[i].as_f64();
                    // No visible key: the sum is 0. A NaN among the scores stays NaN.
                    logsum[at] = if sum == 0.0 {
                        T::ZERO
                    } else {
                        T::of(highest[i].as_f64() * unit + sum.ln())
                    };
                    scale(out, T::of(if sum == 0.0 { 0.0 } else { 1.0 / sum }));
                }
            }
        });
    }

    /// Gradients of one batch item, added to `dq`, `dk` and `dv` (contiguous). `out` and `logsum` are
    /// forward's, `dout` (contiguous) is the gradient of `out`.
    #[allow(clippy::too_many_arguments, reason = "the operands of attention")]
    pub fn backward<T: Tiled>(
        &self,
        q: Rows<T>,
        k: Rows<T>,
        v: Rows<T>,
        mask: Option<Rows<T>>,
        out: &[T],
        logsum: &[T],
        dout: &[T],
        [dq, dk, dv]: [&mut [T]; 3],
    ) {
        let tile = T::tile(crate::arch::isa::current());
        let (s, e, w) = (self.keys, self.depth, self.width);
        let (scale, factor) = (T::of(self.scale), T::of(self.scale * LOG2_E));
        let (wide_e, wide_w) = (e.next_multiple_of(tile.columns), w.next_multiple_of(tile.columns));
        let lens = [
            packed_len(tile, e, s),
            packed_len(tile, w, s),
            s * wide_e,
            QUERIES * wide_e,
            QUERIES * wide_w,
            QUERIES * KEYS,
            QUERIES * KEYS,
        ];
        with_scratch(lens.iter().sum(), |scratch: &mut [T]| {
            let mut rest = scratch;
            let [keys, values, key_rows, queries, douts, scores, dscores] = lens.map(|len| {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
                rest = after;
                part
            });
            pack(e, s, k.data, 1, k.row, tile.columns, keys);
            pack(w, s, v.data, 1, v.row, tile.columns, values);
            pack_rows(tile, self.all_blocks(), k, e, key_rows);
            for first in (0..self.queries).step_by(QUERIES) {
                let count = QUERIES.min(self.queries - first);
                let dout = &dout[first * w..(first + count) * w];
                pack_rows(tile, std::iter::once((first, count)), q, e, queries);
                pack(count, w, dout, w, 1, tile.columns, douts);
                let out = &out[first * w..(first + count) * w];
                let mut along = [T::ZERO; QUERIES];
                for i in 0..count {
                    along[i] = dot(&out[i * w..(i + 1) * w], &dout[i * w..(i + 1) * w]);
                }
                // Beside a large score the logarithm of a sum loses the sum, which is then made again.
                let mut shares = [T::ONE; QUERIES];
                let is_large = |logsum: &T| logsum.as_f64().abs() > LARGE;
                if mask.is_some() && logsum[first..first + count].iter().any(is_large) {
                    let mut sums = [T::ZERO; QUERIES];
                    for (k0, n) in self.key_blocks(first..first + count) {
                        self.scores(tile, q, first, count, keys, k0, n, scores);
                        for i in 0..count {
                            let seen = self.band.seen(first + i, k0, n);
                            let mask = line_of(mask, first + i, k0, &seen);
                            let row = &mut scores[i * KEYS..][..n][seen];
                            add_mask(row, mask, scale);
                            sums[i] += exponentials_from(row, logsum[first + i]);
                        }
                    }
                    for (share, sum) in shares.iter_mut().zip(sums) {
                        *share = if sum == T::ZERO { T::ONE } else { T::of(1.0 / sum.as_f64()) };
                    }
                }
                for (k0, n) in self.key_blocks(first..first + count) {
                    self.scores(tile, q, first, count, keys, k0, n, scores);
                    // SAFETY: `dout` has `count` rows of w numbers, the values are packed, and
                    // `dscores` has QUERIES rows of KEYS.
                    unsafe {
                        let block = values[k0 * w..].as_ptr();
                        let (a, c) = ((dout.as_ptr(), w, 1), (dscores.as_mut_ptr(), KEYS));
                        multiply(tile, (count, n, w), a, block, c, false);
                    }
                    for i in 0..count {
                        let seen = self.band.seen(first + i, k0, n);
                        let mask = line_of(mask, first + i, k0, &seen);
                        let row = only_seen(&mut scores[i * KEYS..][..n], &seen);
                        let drow = only_seen(&mut dscores[i * KEYS..][..n], &seen);
                        let logsum = logsum[first + i];
                        if mask.is_empty() {
                            exponentials(row, factor, T::of(logsum.as_f64() * LOG2_E));
                        } else {
                            add_mask(row, mask, scale);
                            exponentials_from(row, logsum);
                            if shares[i] != T::ONE {
                                self::scale(row, shares[i]);
                            }
                        }
                        differences(row, along[i], scale, drow);
                    }
                    // SAFETY: the score blocks have `count` rows of n numbers, KEYS apart, read as
                    // they are or transposed; the right operands are packed with as many rows; the
                    // gradients have n rows from k0 on, and `count` from `first` on.
                    unsafe {
                        let (p, d) = (scores.as_ptr(), dscores.as_ptr());
                        let dv = (dv[k0 * w..(k0 + n) * w].as_mut_ptr(), w);
                        multiply(tile, (n, w, count), (p, 1, KEYS), douts.as_ptr(), dv, true);
                        let dk = (dk[k0 * e..(k0 + n) * e].as_mut_ptr(), e);
                        multiply(tile, (n, e, count), (d, 1, KEYS), queries.as_ptr(), dk, true);
                        let block = key_rows[k0 * wide_e..].as_ptr();
                        let dq = (dq[first * e..(first + count) * e].as_mut_ptr(), e);
                        multiply(tile, (count, e, n), (d, KEYS, 1), block, dq, true);
                    }
                }
            }
        });
    }

    /// The products of a block of queries and a block of keys.
    #[allow(clippy::too_many_arguments, reason = "the operands of one block")]
    fn scores<T: Tiled>(
        &self,
        tile: Tile<T>,
        q: Rows<T>,
        first: usize,
        count: usize,
        keys: &[T],
        k0: usize,
        n: usize,
        scores: &mut [T],
    ) {
        let queries = q.line(first, 0, (count - 1) * q.row + self.depth);
        // Blocks start at whole panels, because KEYS is a multiple of every tile's columns.
        let block = &keys[k0 * self.depth..];
        assert!(scores.len() >= count * KEYS && block.len() >= packed_len(tile, self.depth, n));
        // SAFETY: as just checked; `queries` holds `count` rows.
        unsafe {
            let (a, c) = ((queries.as_ptr(), q.row, 1), (scores.as_mut_ptr(), KEYS));
            multiply(tile, (count, n, self.depth), a, block.as_ptr(), c, false);
        }
    }
}

/// What a mask has for a query and those of the keys from `first` on that it sees; nothing without one.
fn line_of<'a, T>(
    mask: Option<Rows<'a, T>>,
    query: usize,
    first: usize,
    seen: &Range<usize>,
) -> &'a [T] {
    match mask {
        Some(mask) if !seen.is_empty() => mask.line(query, first + seen.start, seen.len()),
        _ => &[],
    }
}

/// What a query sees of its row; the rest becomes 0.
#[inline]
fn only_seen<'a, T: Tiled>(row: &'a mut [T], seen: &Range<usize>) -> &'a mut [T] {
    if seen.len() < row.len() {
        row[..seen.start].fill(T::ZERO);
        row[seen.end..].fill(T::ZERO);
    }
    &mut row[seen.clone()]
}

/// Packs blocks of rows as right operands whose sums run over the rows, one after the other.
fn pack_rows<T: Tiled>(
    tile: Tile<T>,
    blocks: impl Iterator<Item = (usize, usize)>,
    rows: Rows<T>,
    width: usize,
    mut out: &mut [T],
) {
    for (first, count) in blocks {
        let (block, rest) = out.split_at_mut(packed_len(tile, count, width));
        let source = rows.line(first, 0, (count - 1) * rows.row + width);
        pack(count, width, source, rows.row, 1, tile.columns, block);
        out = rest;
    }
}

/// A row becomes e^(x - base), the difference first; gives its sum. Masks that hide by a large number, as -1e9, make scores
/// of which a product by log2(e) is off by more than any difference.
fn exponentials_from<T: Tiled>(row: &mut [T], base: T) -> T {
    lower(row, base);
    exponentials(row, T::of(LOG2_E), T::ZERO)
}

simd_fn! {
    fn add_mask<T, FMA>(row: &mut [T], mask: &[T], factor: T) {
        for (x, &m) in row.iter_mut().zip(mask) {
            *x = x.fma::<FMA>(factor, m);
        }
    }

    fn lower<T, FMA>(row: &mut [T], by: T) {
        let _ = FMA;
        for x in row {
            *x = *x - by;
        }
    }

    /// The largest of `old` and the row's numbers times `factor`.
    fn highest_of<T, FMA>(row: &[T], factor: T, old: T) -> T {
        let _ = FMA;
        // Of a constant: an argument's copies went through memory.
        let mut highest = [T::NEG_INFINITY; N];
        let (pieces, rest) = row.as_chunks::<N>();
        for piece in pieces {
            for j in 0..N {
                highest[j] = larger(highest[j], piece[j] * factor);
            }
        }
        for (high, &x) in highest.iter_mut().zip(rest) {
            *high = larger(*high, x * factor);
        }
        larger(old, in_pairs(highest, larger))
    }

    /// A row becomes 2^(x factor - base); gives its sum.
    fn exponentials<T, FMA>(row: &mut [T], factor: T, base: T) -> T {
        let power = |x: T| x.fma::<FMA>(factor, -base).exp2_flushed::<FMA>();
        let mut sums = [T::ZERO; N];
        let (pieces, rest) = row.as_chunks_mut::<N>();
        for piece in pieces {
            for j in 0..N {
                piece[j] = power(piece[j]);
                sums[j] += piece[j];
            }
        }
        for (sum, x) in sums.iter_mut().zip(rest) {
            *x = power(*x);
            *sum += *x;
        }
        add_lanes(sums)
    }

    /// The gradient of scores from that of the weights: weight (dweight - along) scale.
    fn differences<T, FMA>(weights: &[T], along: T, scale: T, dweights: &mut [T]) {
        let _ = FMA;
        for (d, &p) in dweights.iter_mut().zip(weights) {
            *d = p * (*d - along) * scale;
        }
    }

    fn dot<T, FMA>(a: &[T], b: &[T]) -> T {
        let mut sums = [T::ZERO; N];
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<N>(), b.as_chunks::<N>());
        for (a, b) in a.iter().zip(b) {
            for j in 0..N {
                sums[j] = a[j].fma::<FMA>(b[j], sums[j]);
            }
        }
        for ((sum, &a), &b) in sums.iter_mut().zip(a_rest).zip(b_rest) {
            *sum = a.fma::<FMA>(b, *sum);
        }
        add_lanes(sums)
    }

    fn scale<T, FMA>(row: &mut [T], factor: T) {
        let _ = FMA;
        for x in row {
            *x = *x * factor;
        }
    }
}
