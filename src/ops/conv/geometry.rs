//! The sizes of a convolution on a GPU, which takes two dimensions for three.

/// All sizes of a convolution, in depth, height and width.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub batch: usize,
    pub channels: usize,
    pub outputs: usize,
    pub input: [usize; 3],
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub padding: [usize; 3],
    pub dilation: [usize; 3],
    pub groups: usize,
}
