//! Where kernels find the random words of a draw, and which of them keep an element.

/// Where kernels find a draw's words. Those of a draw that a graph records belong to that graph: what draws them again,
/// maybe in another graph, is to be told these and not the draw.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Words {
    pub(in crate::ops) seed: u64,
    pub(in crate::ops) stream: u64,
    /// The address of what is added to those two, or 0.
    pub(in crate::ops) place: usize,
}

/// What words of 32 bits keep an element, those from a threshold on, and the factor of what is kept.
pub(in crate::ops) fn kept(p: f64) -> (u64, f64) {
    let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    ((p * (1u64 << 32) as f64).round() as u64, scale)
}
