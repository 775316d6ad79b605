//! How tensors are given to cuDNN: their elements' type, and how they lie in memory.

use std::ffi::c_int;

use super::descriptor::{DataType, Number};

/// Types of elements. Sums are f32, of f64 f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// f32.
    F32,
    /// f64.
    F64,
    /// f16.
    F16,
    /// bf16.
    BF16,
}

impl Kind {
    pub(super) fn data_type(self) -> DataType {
        Number(match self {
            Kind::F32 => 0,
            Kind::F64 => 1,
            Kind::F16 => 2,
            Kind::BF16 => 9,
        })
    }

    /// The type of sums.
    pub(super) fn compute(self) -> DataType {
        Number(c_int::from(self == Kind::F64))
    }
}

/// How a convolution's tensor lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lie {
    /// Its sizes, as many as the problem has dimensions: batch and channels first.
    pub sizes: [i64; 5],
    /// Their strides in elements.
    pub strides: [i64; 5],
    /// The power of two to which its address is aligned, in bytes.
    pub alignment: i64,
}

impl Lie {
    /// A dense tensor's of this shape, with channels last or row by row. Strides of dimensions of size 1 are as if
    /// they were larger, which cuDNN goes by.
    pub fn dense(shape: &[usize], channels_last: bool, alignment: usize) -> Lie {
        let mut order = [0, 1, 2, 3, 4];
        if channels_last {
            order[1..shape.len()].rotate_left(1);
        }
        let mut lie = Lie { alignment: alignment as i64, ..Lie::default() };
        let mut step = 1;
        for &d in order[..shape.len()].iter().rev() {
            (lie.sizes[d], lie.strides[d]) = (shape[d] as i64, step);
            step *= shape[d] as i64;
        }
        lie
    }
}
