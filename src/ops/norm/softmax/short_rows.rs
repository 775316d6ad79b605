//! Softmax of rows so short that vectors of one row would be half empty: rows side by side, as the columns of a tile.

use crate::cpu::numbers::widen::{Real, Widen};

/// Longest row.
pub(crate) const LONGEST: usize = 24;
/// Rows of a tile.
pub(crate) const ROWS: usize = 64;

/// Element k of each row, for all k.
pub type Tile<T> = [[T; ROWS]; LONGEST];

/// The rows of `x`, at most [`ROWS`] of `n` elements each, side by side.
#[inline(always)]
fn gather<T: Widen>(x: &[T], n: usize, tile: &mut Tile<T::Wide>) {
    for (r, row) in x.chunks_exact(n).enumerate() {
        for k in 0..n {
            tile[k][r] = row[k].widen();
        }
    }
}

#[inline(always)]
fn scatter<T: Widen>(tile: &Tile<T::Wide>, n: usize, out: &mut [T]) {
    for (r, row) in out.chunks_exact_mut(n).enumerate() {
        for k in 0..n {
            row[k] = T::narrow(tile[k][r]);
        }
    }
}

/// Softmax of the rows of `x`, or its logarithm.
#[inline(always)]
pub(crate) fn forward<T: Widen<Wide: Real>, const LOG: bool, const FMA: bool>(
    x: &[T],
    n: usize,
    out: &mut [T],
    tile: &mut Tile<T::Wide>,
) {
    gather(x, n, tile);
    let mut max = tile[0];
    for line in &tile[1..n] {
        for (m, &x) in max.iter_mut().zip(line) {
            // Not `>`: NaN is taken, and stays.
            *m = if x <= *m { *m } else { x };
        }
    }
    let mut sum = [T::Wide::ZERO; ROWS];
    for line in &mut tile[..n] {
        for ((s, &m), x) in sum.iter_mut().zip(&max).zip(line) {
            let d = *x - m;
            let power = d.exp_flushed::<FMA>();
            *x = if LOG { d } else { power };
            *s += power;
        }
    }
    for s in &mut sum {
        *s = if LOG { s.log::<FMA>() } else { T::Wide::ONE / *s };
    }
    for line in &mut tile[..n] {
        for (x, &s) in line.iter_mut().zip(&sum) {
            *x = if LOG { *x - s } else { *x * s };
        }
    }
    scatter(tile, n, out);
}

/// The gradient of [`forward`]'s argument, from its result `y` and the result's gradient `g`.
#[inline(always)]
pub fn backward<T: Widen<Wide: Real>, const LOG: bool, const FMA: bool>(
    y: &[T],
    g: &[T],
    n: usize,
    out: &mut [T],
    [ys, gs]: &mut [Tile<T::Wide>; 2],
) {
    gather(y, n, ys);
    gather(g, n, gs);
    let mut sum = [T::Wide::ZERO; ROWS];
    for (y, g) in ys[..n].iter().zip(&gs[..n]) {
        for ((s, &y), &g) in sum.iter_mut().zip(y).zip(g) {
            *s += if LOG { g } else { y * g };
        }
    }
    for (y, g) in ys[..n].iter_mut().zip(&gs[..n]) {
        for ((y, &g), &s) in y.iter_mut().zip(g).zip(&sum) {
            *y = if LOG { g - y.exp_flushed::<FMA>() * s } else { *y * (g - s) };
        }
    }
    scatter(ys, n, out);
}
