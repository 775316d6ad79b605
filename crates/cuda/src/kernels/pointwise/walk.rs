//! What a kernel of `kernels/walk.cuh` is told: sizes, strides, parameters and operands.

use crate::kernels::launch::Argument;
use torchrs_loops::Constant;

/// Dimensions that are left when neighbours that allow it are joined, operands and parameters: the
/// most that the kernels' structure has room for.
pub(super) const MOST_DIMS: usize = 8;
pub(super) const MOST_OPERANDS: usize = 12;
pub(super) const MOST_PARAMS: usize = 16;
/// Threads of a block.
pub(super) const THREADS: u32 = 256;

/// A tensor, or a number where `at` is null: `Operand` of `kernels/walk.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Place {
    pub(super) at: *mut u8,
    pub(super) strides: [i64; MOST_DIMS],
    pub(super) number: f64,
    pub(super) integer: i64,
    pub(super) format: i32,
    pub(super) is_integer: i32,
}

/// All that a kernel is told: `Walk` of `kernels/walk.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Walk {
    pub(super) count: i64,
    pub(super) sizes: [i64; MOST_DIMS],
    pub(super) dims: i32,
    pub(super) reserved: i32,
    pub(super) params: [f64; MOST_PARAMS],
    pub(super) integers: [i64; MOST_PARAMS],
    pub(super) operands: [Place; MOST_OPERANDS],
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Walk {}

/// An operand before it is known.
pub(super) const NOWHERE: Place = Place {
    at: std::ptr::null_mut(),
    strides: [0; MOST_DIMS],
    number: 0.0,
    integer: 0,
    format: 0,
    is_integer: 0,
};

/// A number as a float and as an integer.
pub(super) fn numbers(constant: Constant) -> (f64, i64) {
    match constant {
        Constant::F(v) => (v, v as i64),
        Constant::I(v) => (v as f64, v),
    }
}
