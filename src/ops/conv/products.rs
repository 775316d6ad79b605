//! The three products of a convolution.

use crate::tensor::Tensor;

/// The three products of a convolution of certain sizes: each is linear in both of its operands, and the
/// derivatives of each are the two others.
pub(super) trait Products: Copy + Send + Sync + 'static {
    /// The names of y, dx and dw in the graph.
    const NAMES: [&'static str; 3];
    /// Operations of each of the three: a multiplication and an addition for each tap of each output.
    fn flops(&self) -> u64;
    fn output(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor;
    fn data(&self, dy: &Tensor, weight: &Tensor) -> Tensor;
    /// dw, in `place` where that is given and can be used.
    fn filters(&self, dy: &Tensor, x: &Tensor, place: Option<Tensor>) -> Tensor;
}
