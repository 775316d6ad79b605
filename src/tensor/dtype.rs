//! Element types as values ([`Dtype`]) and as Rust types ([`Element`]), and the one place where a
//! value is turned into a type: `dispatch!`.

use half::{bf16, f16};
pub use num_complex::Complex;

/// The type of a tensor's elements (`torch.dtype`).
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// let x = Tensor::from([1f32, 2.5]).to_dtype(Dtype::I64);
/// assert_eq!((x.dtype(), x.to_vec::<i64>()), (Dtype::I64, vec![1, 2]));
/// assert_eq!(format!("{}", Dtype::BF16), "bf16");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
#[non_exhaustive]
pub enum Dtype {
    /// 64-bit IEEE 754 floating point.
    F64,
    /// 32-bit IEEE 754 floating point: the default.
    F32,
    /// 16-bit IEEE 754 floating point.
    F16,
    /// bfloat16: the upper half of an f32.
    BF16,
    /// 64-bit signed integer: the type of indices.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 16-bit signed integer.
    I16,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// One byte, 0 or 1.
    Bool,
    /// A complex number of two f32, real part first (`torch.complex64`).
    C64,
    /// A complex number of two f64, real part first (`torch.complex128`).
    C128,
}

impl Dtype {
    /// All dtypes.
    ///
    /// ```
    /// use torchrs::Dtype;
    /// assert_eq!(Dtype::ALL.iter().filter(|dtype| dtype.size() == 1).count(), 3);
    /// ```
    pub const ALL: [Dtype; 12] = {
        use Dtype::*;
        [F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool, C64, C128]
    };

    /// Bytes per element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Dtype::C128 => 16,
            Dtype::F64 | Dtype::I64 | Dtype::C64 => 8,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::F16 | Dtype::BF16 | Dtype::I16 => 2,
            Dtype::I8 | Dtype::U8 | Dtype::Bool => 1,
        }
    }

    /// True for f64, f32, f16 and bf16 (`torch.dtype.is_floating_point`).
    #[inline]
    pub const fn is_floating_point(self) -> bool {
        matches!(self, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16)
    }

    /// True for c64 and c128 (`torch.dtype.is_complex`).
    #[inline]
    pub const fn is_complex(self) -> bool {
        matches!(self, Dtype::C64 | Dtype::C128)
    }

    /// True for the types that can require a gradient: floating point and complex.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, catch};
    /// assert!(Dtype::C64.is_differentiable() && !Dtype::I64.is_differentiable());
    /// assert!(catch(|| Tensor::from([1i64]).requires_grad_(true)).is_err());
    /// ```
    #[inline]
    pub const fn is_differentiable(self) -> bool {
        self.is_floating_point() || self.is_complex()
    }

    /// The type of a complex number's parts; a type that is not complex itself
    /// (`torch.dtype.to_real`).
    #[inline]
    pub const fn to_real(self) -> Dtype {
        match self {
            Dtype::C64 => Dtype::F32,
            Dtype::C128 => Dtype::F64,
            other => other,
        }
    }

    /// The complex type that holds this type's values (`torch.dtype.to_complex`): c128 for f64, c64
    /// for all other real types.
    ///
    /// ```
    /// use torchrs::Dtype;
    /// assert_eq!((Dtype::F64.to_complex(), Dtype::I64.to_complex()), (Dtype::C128, Dtype::C64));
    /// ```
    #[inline]
    pub const fn to_complex(self) -> Dtype {
        match self {
            Dtype::F64 | Dtype::C128 => Dtype::C128,
            _ => Dtype::C64,
        }
    }

    /// True for the integer types, not for bool.
    #[inline]
    pub const fn is_integral(self) -> bool {
        matches!(self, Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8 | Dtype::U8)
    }

    /// The short name: `f32`, `bf16`, `i64`, `bool`.
    ///
    /// ```
    /// use torchrs::Dtype;
    /// assert_eq!((Dtype::F32.name(), Dtype::Bool.name()), ("f32", "bool"));
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F64 => "f64",
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::BF16 => "bf16",
            Dtype::I64 => "i64",
            Dtype::I32 => "i32",
            Dtype::I16 => "i16",
            Dtype::I8 => "i8",
            Dtype::U8 => "u8",
            Dtype::Bool => "bool",
            Dtype::C64 => "c64",
            Dtype::C128 => "c128",
        }
    }

    /// The type that kernels compute in: f32 for the half types, else the type itself.
    ///
    /// ```
    /// use torchrs::Dtype;
    /// assert_eq!((Dtype::BF16.compute(), Dtype::F64.compute()), (Dtype::F32, Dtype::F64));
    /// ```
    #[inline]
    pub const fn compute(self) -> Dtype {
        match self {
            Dtype::F16 | Dtype::BF16 => Dtype::F32,
            other => other,
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element of some [`Dtype`]. Sealed: the types of `Dtype`.
/// Of a complex number, conversions to one real number give its real part.
///
/// ```
/// use torchrs::{Dtype, Tensor, tensor::Element};
/// fn single<T: Element>(value: f64) -> Tensor {
///     Tensor::from([T::from_f64(value)])
/// }
/// assert_eq!((single::<u8>(7.9).dtype(), single::<u8>(7.9).item()), (Dtype::U8, 7.0));
/// ```
pub trait Element:
    sealed::Sealed + Copy + Send + Sync + Default + PartialEq + std::fmt::Debug + 'static
{
    /// The dtype of which this is the element.
    const DTYPE: Dtype;
    /// Rounds (floats), truncates and wraps (integers), or compares with zero (bool).
    ///
    /// ```
    /// use torchrs::tensor::Element;
    /// assert_eq!((i32::from_f64(-2.9), bool::from_f64(0.5)), (-2, true));
    /// ```
    fn from_f64(value: f64) -> Self;
    /// The value as f64 (integers beyond 2^53 lose low bits).
    fn to_f64(self) -> f64;
    /// Rounds (floats), wraps (integers), or compares with zero (bool).
    ///
    /// ```
    /// use torchrs::tensor::Element;
    /// assert_eq!((u8::from_i64(257), f32::from_i64(2), bool::from_i64(2)), (1, 2.0, true));
    /// ```
    fn from_i64(value: i64) -> Self;
    /// Truncates floats towards zero.
    ///
    /// ```
    /// use torchrs::tensor::Element;
    /// assert_eq!(((-2.9f32).to_i64(), true.to_i64()), (-2, 1));
    /// ```
    fn to_i64(self) -> i64;
    /// Rounds each part; a real type keeps the real part.
    ///
    /// ```
    /// use torchrs::{Complex, tensor::Element};
    /// let z = Complex::new(1.5, 2.0);
    /// assert_eq!((f32::from_complex(z), Complex::<f32>::from_complex(z).im), (1.5, 2.0));
    /// ```
    fn from_complex(value: Complex<f64>) -> Self {
        Self::from_f64(value.re)
    }
    /// The value as a complex number.
    fn to_complex(self) -> Complex<f64> {
        Complex::new(self.to_f64(), 0.0)
    }
}

macro_rules! complex_element {
    ($($t:ty => $d:ident;)*) => {$(
        impl sealed::Sealed for Complex<$t> {}
        impl Element for Complex<$t> {
            const DTYPE: Dtype = Dtype::$d;
            #[inline(always)]
            fn from_f64(value: f64) -> Self { Complex::new(value as $t, 0.0) }
            #[inline(always)]
            fn to_f64(self) -> f64 { self.re as f64 }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { Complex::new(value as $t, 0.0) }
            #[inline(always)]
            fn to_i64(self) -> i64 { self.re as i64 }
            #[inline(always)]
            fn from_complex(value: Complex<f64>) -> Self { Complex::new(value.re as $t, value.im as $t) }
            #[inline(always)]
            fn to_complex(self) -> Complex<f64> { Complex::new(self.re as f64, self.im as f64) }
        }
    )*};
}
complex_element! {
    f32 => C64;
    f64 => C128;
}

macro_rules! element {
    ($($t:ty => $d:ident, from_f64 $ff:expr, to_f64 $tf:expr, from_i64 $fi:expr, to_i64 $ti:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: Dtype = Dtype::$d;
            #[inline(always)]
            fn from_f64(value: f64) -> Self { ($ff)(value) }
            #[inline(always)]
            fn to_f64(self) -> f64 { ($tf)(self) }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { ($fi)(value) }
            #[inline(always)]
            fn to_i64(self) -> i64 { ($ti)(self) }
        }
    )*};
}

element! {
    f64 => F64, from_f64 |v| v, to_f64 |v| v, from_i64 |v| v as f64, to_i64 |v| v as i64;
    f32 => F32, from_f64 |v| v as f32, to_f64 |v| v as f64, from_i64 |v| v as f32, to_i64 |v| v as i64;
    f16 => F16, from_f64 f16::from_f64, to_f64 f16::to_f64, from_i64 |v| f16::from_f64(v as f64), to_i64 |v: f16| v.to_f64() as i64;
    bf16 => BF16, from_f64 bf16::from_f64, to_f64 bf16::to_f64, from_i64 |v| bf16::from_f64(v as f64), to_i64 |v: bf16| v.to_f64() as i64;
    i64 => I64, from_f64 |v| v as i64, to_f64 |v| v as f64, from_i64 |v| v, to_i64 |v| v;
    i32 => I32, from_f64 |v| v as i64 as i32, to_f64 |v| v as f64, from_i64 |v| v as i32, to_i64 |v| v as i64;
    i16 => I16, from_f64 |v| v as i64 as i16, to_f64 |v| v as f64, from_i64 |v| v as i16, to_i64 |v| v as i64;
    i8 => I8, from_f64 |v| v as i64 as i8, to_f64 |v| v as f64, from_i64 |v| v as i8, to_i64 |v| v as i64;
    u8 => U8, from_f64 |v| v as i64 as u8, to_f64 |v| v as f64, from_i64 |v| v as u8, to_i64 |v| v as i64;
    bool => Bool, from_f64 |v| v != 0.0, to_f64 |v| v as u8 as f64, from_i64 |v| v != 0, to_i64 |v| v as i64;
}

/// `dispatch!(dtype, T => expression)`: evaluates the expression with `T` as the element type of
/// `dtype`, which must not be complex: kernels are not compiled for complex numbers, ops treat those
/// as pairs of real ones (`ops/complex`). `dispatch!(float dtype, op, T => ...)` takes floating-point
/// types only and throws for the others, naming `op`; `dispatch!(compute dtype, op, T => ...)` takes
/// f32 and f64 only.
macro_rules! dispatch {
    (float $dtype:expr, $op:expr, $T:ident => $body:expr) => {{
        let _span = $crate::profiler::op_named(|| $op);
        match $dtype {
            $crate::tensor::Dtype::F64 => {
                type $T = f64;
                $body
            }
            $crate::tensor::Dtype::F32 => {
                type $T = f32;
                $body
            }
            $crate::tensor::Dtype::F16 => {
                type $T = ::half::f16;
                $body
            }
            $crate::tensor::Dtype::BF16 => {
                type $T = ::half::bf16;
                $body
            }
            other => $crate::tensor::dtype::not_floating($op, other),
        }
    }};
    (compute $dtype:expr, $op:expr, $T:ident => $body:expr) => {{
        let _span = $crate::profiler::op_named(|| $op);
        match $dtype {
            $crate::tensor::Dtype::F64 => {
                type $T = f64;
                $body
            }
            $crate::tensor::Dtype::F32 => {
                type $T = f32;
                $body
            }
            other => $crate::tensor::dtype::not_floating($op, other),
        }
    }};
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::tensor::Dtype::F64 => {
                type $T = f64;
                $body
            }
            $crate::tensor::Dtype::F32 => {
                type $T = f32;
                $body
            }
            $crate::tensor::Dtype::F16 => {
                type $T = ::half::f16;
                $body
            }
            $crate::tensor::Dtype::BF16 => {
                type $T = ::half::bf16;
                $body
            }
            $crate::tensor::Dtype::I64 => {
                type $T = i64;
                $body
            }
            $crate::tensor::Dtype::I32 => {
                type $T = i32;
                $body
            }
            $crate::tensor::Dtype::I16 => {
                type $T = i16;
                $body
            }
            $crate::tensor::Dtype::I8 => {
                type $T = i8;
                $body
            }
            $crate::tensor::Dtype::U8 => {
                type $T = u8;
                $body
            }
            $crate::tensor::Dtype::Bool => {
                type $T = bool;
                $body
            }
            other => $crate::tensor::dtype::not_real(module_path!(), other),
        }
    };
}
pub(crate) use dispatch;

/// Throws the error of an op that takes floating-point tensors only.
#[track_caller]
#[cold]
#[doc(hidden)]
pub(crate) fn not_floating(op: &str, dtype: Dtype) -> ! {
    if dtype.is_complex() {
        not_real(op, dtype);
    }
    crate::error::throw(crate::error::Error::dtype(
        op,
        format!("takes floating-point tensors, got {dtype}; convert with `.to_dtype(F32)`"),
    ))
}

/// Throws the error of an op that does not take complex tensors.
#[track_caller]
#[cold]
#[doc(hidden)]
pub(crate) fn not_real(op: &str, dtype: Dtype) -> ! {
    // A module's path stands for its ops.
    let op = op.rsplit("::").next().unwrap_or(op);
    crate::error::throw(crate::error::Error::dtype(
        op,
        format!(
            "does not take complex tensors, got {dtype}; use `real`, `imag`, `abs` or `view_as_real`"
        ),
    ))
}

/// Throws for a complex type.
#[track_caller]
pub(crate) fn assert_real(op: &str, dtype: Dtype) {
    if dtype.is_complex() {
        not_real(op, dtype);
    }
}

/// The type that loops over numbers of type `dtype` run in, f32, f64 or i64, which holds all of them.
/// Throws for complex types.
#[track_caller]
pub(crate) fn widest(op: &str, dtype: Dtype) -> Dtype {
    assert_real(op, dtype);
    if dtype.is_floating_point() { dtype.compute() } else { Dtype::I64 }
}
