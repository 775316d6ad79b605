//! What a loop computes on: how an element lies in memory, the type that is computed in, and numbers
//! that stand in for operands.

/// How an element lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Format {
    /// f64.
    F64,
    /// f32.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// i64.
    I64,
    /// i32.
    I32,
    /// i16.
    I16,
    /// i8.
    I8,
    /// u8.
    U8,
    /// A byte, 0 or 1; anything but zero is stored as 1.
    Bool,
    /// A byte, 0 or 1, of which the lowest bit of the value is stored: what bitwise ops want.
    Bit,
    /// Sixteen bytes, which are only ever copied: a complex number of two f64.
    Wide,
}

impl Format {
    /// Bytes per element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Format::Wide => 16,
            Format::F64 | Format::I64 => 8,
            Format::F32 | Format::I32 => 4,
            Format::F16 | Format::BF16 | Format::I16 => 2,
            Format::I8 | Format::U8 | Format::Bool | Format::Bit => 1,
        }
    }

    /// True when memory already holds values of the compute type.
    #[inline]
    pub const fn is(self, compute: Compute) -> bool {
        matches!(
            (self, compute),
            (Format::F64, Compute::F64) | (Format::F32, Compute::F32) | (Format::I64, Compute::I64)
        )
    }
}

/// The compute types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compute {
    /// For f32, f16 and bf16.
    F32,
    /// For f64.
    F64,
    /// For all integers and bool.
    I64,
}

impl Compute {
    /// Bytes per value.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Compute::F32 => 4,
            Compute::F64 | Compute::I64 => 8,
        }
    }
}

/// A number given at run time: a parameter, or an operand that is not a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// Floating point.
    F(f64),
    /// Integer or truth value.
    I(i64),
}
