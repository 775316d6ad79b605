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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::isa::Isa;

    fn check<T: Tiled + std::fmt::Debug>() {
        for level in Isa::ALL.into_iter().filter(|&l| l <= isa::available()) {
            let packer = T::packer(level);
            let tile = T::tile(level);
            for width in [tile.rows, tile.columns] {
                for (k, n, count) in [(1, 40, width), (7, 40, 5), (8, 40, width), (33, 40, 37)] {
                    let source: Vec<T> = (0..3 * k * n).map(|i| T::of(i as f64)).collect();
                    for (row, column) in [(n, 1), (1, k), (3 * n, 3)] {
                        for readable in [count, n] {
                            let distance = k * width + 2;
                            let len = distance * count.div_ceil(width);
                            let mut out = vec![T::of(-1.0); len];
                            // SAFETY: the source has k rows and n columns at these distances.
                            unsafe {
                                packer(Panels {
                                    k,
                                    source: source.as_ptr(),
                                    row: row as isize,
                                    column: column as isize,
                                    count,
                                    readable,
                                    width,
                                    out: out.as_mut_ptr(),
                                    distance,
                                })
                            };
                            for (at, &x) in out.iter().enumerate() {
                                let (panel, at) = (at / distance, at % distance);
                                let (p, j) = (at / width, panel * width + at % width);
                                let want = match () {
                                    // Between the panels.
                                    _ if at >= k * width => -1.0,
                                    _ if j < count => (p * row + j * column) as f64,
                                    _ => 0.0,
                                };
                                assert_eq!(x.as_f64(), want, "{level:?} {k}x{count} {p} {j}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn panels_hold_the_matrix_for_all_distances() {
        check::<f32>();
        check::<f64>();
    }
}
