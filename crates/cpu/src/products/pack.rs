//! Packing of a matrix product's operands for this processor's register tile.

use crate::arch::isa;
use crate::products::micro::Tile;
use crate::products::panels::Panels;
use crate::products::tiled::Tiled;

/// Elements that `n` columns of `k` rows take when packed.
pub fn packed_len<T>(tile: Tile<T>, k: usize, n: usize) -> usize {
    k * n.next_multiple_of(tile.columns)
}

/// Packs a `k x n` matrix, element (p, j) at `source[p * row + j * column]`, into panels of `width`
/// columns, one after the other; missing columns of the last are 0.
///
/// # Panics
/// When the matrix is not inside `source` or `out` is too short.
pub fn pack<T: Tiled>(
    k: usize,
    n: usize,
    source: &[T],
    row: usize,
    column: usize,
    width: usize,
    out: &mut [T],
) {
    pack_into(k, n, source, row, column, width, (0, k), out);
}

/// As [`pack`], into rows `first..first + k` of panels of `rows` rows.
///
/// # Panics
/// When the matrix is not inside `source`, or the rows not inside the panels, or those not inside `out`.
#[allow(clippy::too_many_arguments, reason = "two matrices")]
pub fn pack_into<T: Tiled>(
    k: usize,
    n: usize,
    source: &[T],
    row: usize,
    column: usize,
    width: usize,
    (first, rows): (usize, usize),
    out: &mut [T],
) {
    if k == 0 || n == 0 {
        return;
    }
    assert!((k - 1) * row + (n - 1) * column < source.len(), "the matrix is outside the source");
    assert!(first + k <= rows, "the rows are outside the panels");
    assert!(rows * n.next_multiple_of(width) <= out.len(), "the panels are longer than the output");
    // SAFETY: a matrix inside `source` and panels inside `out`, as just checked.
    unsafe {
        T::packer(isa::current())(Panels {
            k,
            source: source.as_ptr(),
            row: row as isize,
            column: column as isize,
            count: n,
            readable: n,
            width,
            out: out.as_mut_ptr().add(first * width),
            distance: rows * width,
        });
    }
}
