//! The weights of one direction of a layer.

use crate::cpu::recurrent::Cell;

use crate::tensor::Tensor;

/// The weights of one direction of one layer, and the sequences' lengths.
#[derive(Clone, Copy)]
pub(crate) struct Direction<'a> {
    /// The kind of cell.
    pub cell: Cell,
    /// `[gates * hidden, inputs]`.
    pub weight_ih: &'a Tensor,
    /// `[gates * hidden]`.
    pub bias_ih: Option<&'a Tensor>,
    /// What the recurrence reads.
    pub recurrent: Recurrent<'a>,
    /// Sequences that have a first, second, .. element; falling.
    pub sizes: &'a [usize],
    /// From the last element to the first.
    pub backwards: bool,
}

/// Weights that the recurrence reads.
#[derive(Clone, Copy)]
pub(crate) struct Recurrent<'a> {
    /// `[gates * hidden, size of h]`.
    pub weight_hh: &'a Tensor,
    /// `[gates * hidden]`.
    pub bias_hh: Option<&'a Tensor>,
    /// Projects an LSTM's h (`proj_size`): `[size of h, hidden]`.
    pub weight_hr: Option<&'a Tensor>,
}
