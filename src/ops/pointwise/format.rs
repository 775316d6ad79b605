//! How elements of a type lie in memory, as the loops and kernels name it.

use crate::loops::Format;
use crate::tensor::Dtype;

#[inline]
pub(in crate::ops) fn format_of(dtype: Dtype) -> Format {
    match dtype {
        Dtype::F64 => Format::F64,
        Dtype::F32 => Format::F32,
        Dtype::F16 => Format::F16,
        Dtype::BF16 => Format::BF16,
        Dtype::I64 => Format::I64,
        Dtype::I32 => Format::I32,
        Dtype::I16 => Format::I16,
        Dtype::I8 => Format::I8,
        Dtype::U8 => Format::U8,
        Dtype::Bool => Format::Bool,
        // Of complex numbers only size and place count: no kernel gets them.
        Dtype::C64 => Format::I64,
        Dtype::C128 => Format::Wide,
    }
}
