//! Packed panels hold the matrix.

use torchrs_cpu::arch::isa::{Isa, available};
use torchrs_cpu::products::panels::Panels;
use torchrs_cpu::products::tiled::Tiled;

fn check<T: Tiled + std::fmt::Debug>() {
    for level in Isa::ALL.into_iter().filter(|&l| l <= available()) {
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
