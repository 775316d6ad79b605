//! How a dense tensor lies around one of its dimensions.

/// `[outer, n, inner]`: the sizes before, at, and after dimension `d`.
pub(in crate::ops) fn around(shape: &[usize], d: usize) -> [usize; 3] {
    if shape.is_empty() {
        return [1; 3];
    }
    [shape[..d].iter().product(), shape[d], shape[d + 1..].iter().product()]
}
