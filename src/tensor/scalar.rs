//! Plain numbers as operands. A number next to a tensor is a "wrapped number": it takes part in
//! type promotion by its category only, so `f16_tensor * 2.0` stays f16.

use super::{Dtype, Tensor};

/// A number of one of the three categories that type promotion knows.
///
/// ```
/// use torchrs::{Scalar, Tensor};
/// assert_eq!((Scalar::from(2.5), Scalar::from(3u8)), (Scalar::F(2.5), Scalar::I(3)));
/// assert_eq!(Tensor::scalar(Scalar::I(3)).item(), 3.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A floating-point number.
    F(f64),
    /// An integer.
    I(i64),
    /// A truth value.
    B(bool),
}

impl Scalar {
    /// The value as f64.
    #[inline]
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::F(v) => v,
            Scalar::I(v) => v as f64,
            Scalar::B(v) => v as u8 as f64,
        }
    }

    /// The value as i64; floats are truncated towards zero.
    ///
    /// ```
    /// use torchrs::Scalar;
    /// assert_eq!((Scalar::F(-2.9).to_i64(), Scalar::B(true).to_i64()), (-2, 1));
    /// ```
    #[inline]
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::F(v) => v as i64,
            Scalar::I(v) => v,
            Scalar::B(v) => v as i64,
        }
    }

    /// The dtype of a tensor made of this number alone (`torch.tensor(2.0).dtype`).
    #[inline]
    pub fn dtype(self) -> Dtype {
        match self {
            Scalar::F(_) => Dtype::F32,
            Scalar::I(_) => Dtype::I64,
            Scalar::B(_) => Dtype::Bool,
        }
    }
}

macro_rules! scalar_from {
    ($($t:ty => $v:ident as $as:ty),*) => {$(
        impl From<$t> for Scalar {
            #[inline]
            fn from(value: $t) -> Self { Scalar::$v(value as $as) }
        }
        impl From<$t> for Operand<'_> {
            #[inline]
            fn from(value: $t) -> Self { Operand::Scalar(value.into()) }
        }
    )*};
}
scalar_from!(f64 => F as f64, f32 => F as f64, i64 => I as i64, i32 => I as i64, u8 => I as i64, usize => I as i64, bool => B as bool);

/// The second operand of a binary op: a tensor or a number.
///
/// ```
/// use torchrs::{Operand, Scalar, Tensor};
/// let x = Tensor::from([1f32, 2.]);
/// assert!(matches!(Operand::from(&x), Operand::Tensor(_)));
/// assert!(matches!(Operand::from(2), Operand::Scalar(Scalar::I(2))));
/// assert_eq!((x.mul(&x).to_vec::<f32>(), x.mul(2).to_vec::<f32>()), (vec![1., 4.], vec![2., 4.]));
/// ```
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A wrapped number.
    Scalar(Scalar),
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    #[inline]
    fn from(t: &'a Tensor) -> Self {
        Operand::Tensor(t)
    }
}

impl From<Scalar> for Operand<'_> {
    #[inline]
    fn from(s: Scalar) -> Self {
        Operand::Scalar(s)
    }
}
