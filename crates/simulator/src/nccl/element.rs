//! Types of elements and what reductions make of them.

use super::minifloat::{BF16, E4M3, E5M2, F16};

/// A `ncclDataType_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum DataType {
    /// Eight bits with a sign.
    I8,
    /// Eight bits.
    U8,
    /// 32 bits with a sign.
    I32,
    /// 32 bits.
    U32,
    /// 64 bits with a sign.
    I64,
    /// 64 bits.
    U64,
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// The upper half of single precision.
    BF16,
    /// Eight bits, four of them exponent.
    F8E4M3,
    /// Eight bits, five of them exponent.
    F8E5M2,
}

use DataType as D;

impl DataType {
    const ALL: [DataType; 12] = [
        D::I8,
        D::U8,
        D::I32,
        D::U32,
        D::I64,
        D::U64,
        D::F16,
        D::F32,
        D::F64,
        D::BF16,
        D::F8E4M3,
        D::F8E5M2,
    ];

    /// By NCCL's number.
    pub fn from_number(number: u32) -> Option<DataType> {
        DataType::ALL.get(number as usize).copied()
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            D::I8 | D::U8 | D::F8E4M3 | D::F8E5M2 => 1,
            D::F16 | D::BF16 => 2,
            D::I32 | D::U32 | D::F32 => 4,
            D::I64 | D::U64 | D::F64 => 8,
        }
    }

    /// NCCL's name without its prefix.
    pub fn name(self) -> &'static str {
        match self {
            D::I8 => "int8",
            D::U8 => "uint8",
            D::I32 => "int32",
            D::U32 => "uint32",
            D::I64 => "int64",
            D::U64 => "uint64",
            D::F16 => "float16",
            D::F32 => "float32",
            D::F64 => "float64",
            D::BF16 => "bfloat16",
            D::F8E4M3 => "float8e4m3",
            D::F8E5M2 => "float8e5m2",
        }
    }
}

/// A `ncclRedOp_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum divided by the number of ranks.
    Average,
}

impl Reduction {
    /// By NCCL's number.
    pub fn from_number(number: u32) -> Option<Reduction> {
        use Reduction::*;
        [Sum, Product, Max, Min, Average].get(number as usize).copied()
    }

    /// NCCL's name without its prefix.
    pub fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Product => "prod",
            Reduction::Max => "max",
            Reduction::Min => "min",
            Reduction::Average => "avg",
        }
    }
}

/// A number that reductions are computed in.
trait Number: Copy {
    fn combine(self, other: Self, reduction: Reduction) -> Self;
    fn divide(self, ranks: usize) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn combine(self, other: Self, reduction: Reduction) -> Self {
                match reduction {
                    Reduction::Sum | Reduction::Average => self.wrapping_add(other),
                    Reduction::Product => self.wrapping_mul(other),
                    Reduction::Max => self.max(other),
                    Reduction::Min => self.min(other),
                }
            }

            fn divide(self, ranks: usize) -> Self {
                (self as i128 / ranks as i128) as Self
            }
        }
    )*};
}

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn combine(self, other: Self, reduction: Reduction) -> Self {
                match reduction {
                    Reduction::Sum | Reduction::Average => self + other,
                    Reduction::Product => self * other,
                    Reduction::Max => self.max(other),
                    Reduction::Min => self.min(other),
                }
            }

            fn divide(self, ranks: usize) -> Self {
                self / ranks as Self
            }
        }
    )*};
}

integers!(i8 u8 i32 u32 i64 u64);
floats!(f32 f64);

/// Combines `count` elements of each part, in the order of the parts, and writes the results.
///
/// # Safety
/// Each part can be read, and `to` written, for `count` elements of the type.
pub unsafe fn reduce(
    data_type: DataType,
    reduction: Reduction,
    parts: &[*const u8],
    to: *mut u8,
    count: usize,
) {
    // SAFETY: this function's contract: `count` elements of the type, read and written.
    unsafe {
        match data_type {
            D::I8 => each::<i8, i8>(reduction, parts, to, count, |v| v, |v| v),
            D::U8 => each::<u8, u8>(reduction, parts, to, count, |v| v, |v| v),
            D::I32 => each::<i32, i32>(reduction, parts, to, count, |v| v, |v| v),
            D::U32 => each::<u32, u32>(reduction, parts, to, count, |v| v, |v| v),
            D::I64 => each::<i64, i64>(reduction, parts, to, count, |v| v, |v| v),
            D::U64 => each::<u64, u64>(reduction, parts, to, count, |v| v, |v| v),
            D::F32 => each::<f32, f32>(reduction, parts, to, count, |v| v, |v| v),
            D::F64 => each::<f64, f64>(reduction, parts, to, count, |v| v, |v| v),
            D::F16 => {
                let (load, store) = (|v: u16| F16.decode(v.into()), |v: f32| F16.encode(v) as u16);
                each(reduction, parts, to, count, load, store);
            }
            D::BF16 => {
                let load = |v: u16| f32::from_bits(u32::from(v) << 16);
                each(reduction, parts, to, count, load, |v: f32| BF16.encode(v) as u16);
            }
            D::F8E4M3 => {
                let (load, store) = (|v: u8| E4M3.decode(v.into()), |v: f32| E4M3.encode(v) as u8);
                each(reduction, parts, to, count, load, store);
            }
            D::F8E5M2 => {
                let (load, store) = (|v: u8| E5M2.decode(v.into()), |v: f32| E5M2.encode(v) as u8);
                each(reduction, parts, to, count, load, store);
            }
        }
    }
}

/// [`reduce`] for elements `T` that are computed with as `N`.
///
/// # Safety
/// As [`reduce`].
unsafe fn each<T: Copy, N: Number>(
    reduction: Reduction,
    parts: &[*const u8],
    to: *mut u8,
    count: usize,
    load: impl Fn(T) -> N,
    store: impl Fn(N) -> T,
) {
    // SAFETY: `reduce`'s contract: the part has `count` elements; addresses need not be multiples of the size.
    let read =
        |part: *const u8, i: usize| load(unsafe { part.cast::<T>().add(i).read_unaligned() });
    for i in 0..count {
        let mut sum = read(parts[0], i);
        for part in &parts[1..] {
            sum = sum.combine(read(*part, i), reduction);
        }
        if reduction == Reduction::Average {
            sum = sum.divide(parts.len());
        }
        // SAFETY: `to` can be written for `count` elements by this function's contract; addresses
        // need not be multiples of the size.
        unsafe { to.cast::<T>().add(i).write_unaligned(store(sum)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_halves_are_reduced() {
        let parts = [[7i32, -3], [4, -4]];
        let pointers = parts.each_ref().map(|part| part.as_ptr().cast::<u8>());
        let mut result = [0i32; 2];
        let mut run = |reduction| {
            // SAFETY: two elements each.
            unsafe {
                reduce(DataType::I32, reduction, &pointers, result.as_mut_ptr().cast(), 2);
            }
            result
        };
        assert_eq!(run(Reduction::Sum), [11, -7]);
        assert_eq!(run(Reduction::Average), [5, -3]);
        assert_eq!(run(Reduction::Product), [28, 12]);
        assert_eq!(run(Reduction::Max), [7, -3]);
        assert_eq!(run(Reduction::Min), [4, -4]);
        let (one, two) = ([0x3f80u16], [0x4000u16]);
        let pointers = [one.as_ptr().cast::<u8>(), two.as_ptr().cast()];
        let mut result = [0u16];
        // SAFETY: one element each.
        unsafe {
            reduce(DataType::BF16, Reduction::Sum, &pointers, result.as_mut_ptr().cast(), 1);
        }
        assert_eq!(result, [0x4040]);
    }
}
