//! Where a sequence and its labels lie in a batch.

/// Of a sample: its number of time steps and of labels, and the first of these among all.
pub(super) struct Span {
    pub(super) steps: usize,
    pub(super) labels: usize,
    pub(super) first: usize,
}
