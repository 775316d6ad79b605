//! Batches of matrices: their shapes, and dimensions that are as good as one.

use crate::tensor::Shape;
use smallvec::SmallVec;

/// A batch's dimensions before those of a matrix.
pub(super) fn of_batch(batch: &[usize], rows: usize, columns: usize) -> Shape {
    batch.iter().copied().chain([rows, columns]).collect()
}

/// A batch's dimensions: size and the operands' distances.
pub(super) type Batch = SmallVec<[[i64; 3]; 4]>;

/// Batch dimensions of more than one item, neighbours joined where both operands allow it: size and distances.
pub(super) fn joined(batch: &[usize], a: &[isize], b: &[isize]) -> Batch {
    let mut dims = Batch::new();
    for (d, &size) in batch.iter().enumerate().filter(|(_, size)| **size != 1) {
        let (size, x, y) = (size as i64, a[d] as i64, b[d] as i64);
        match dims.last_mut() {
            Some(last) if last[1] == x * size && last[2] == y * size => {
                *last = [last[0] * size, x, y]
            }
            _ => dims.push([size, x, y]),
        }
    }
    dims
}
