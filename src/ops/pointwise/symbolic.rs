//! Formulas over whole tensors. Under `create_graph` a row's gradient formula is evaluated with
//! [`Symbol`]s: each `*`, `exp`, ... in it is then a recorded tensor op, so gradients of gradients
//! need no code of their own.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use super::apply::apply;
use super::row::Row;
use super::{
    activation, arithmetic, bessel, comparison, conditional, division, elementary,
    incomplete_gamma, polynomials, special,
};
use crate::cpu::numbers::lane::{F64, Float, Number, Special};
use crate::storage::Device;
use crate::tensor::{Dtype, Operand, Tensor};

/// The tensors of one evaluation: symbols are places in it, so that they can be copied like numbers.
pub struct Arena {
    tensors: RefCell<Vec<Tensor>>,
    options: (Dtype, Device),
}

impl Arena {
    /// An empty one; numbers that meet only numbers become tensors like `like`.
    pub(super) fn new(like: &Tensor) -> Self {
        Arena { tensors: RefCell::new(Vec::new()), options: (like.dtype(), like.device()) }
    }

    pub(super) fn symbol(&self, tensor: Tensor) -> Symbol<'_> {
        let mut tensors = self.tensors.borrow_mut();
        tensors.push(tensor);
        Symbol::Tensor(self, tensors.len() - 1)
    }
}

/// A value of a formula that is evaluated over tensors: a tensor, or a number.
///
/// ```
/// use torchrs::ops::pointwise::{Symbol, formula};
/// let y = formula::maximum(Symbol::from(-1.0) * 3.0, 2.0);
/// assert!(matches!(y, Symbol::Number(2.0)));
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Symbol<'a> {
    /// A place in an arena.
    Tensor(&'a Arena, usize),
    /// The same for all elements.
    Number(f64),
}

/// The numbers' side of an op on symbols.
type Plain = F64<false>;

impl<'a> Symbol<'a> {
    /// The value as a tensor of that shape.
    pub(super) fn into_tensor(self, shape: &[usize], options: (Dtype, Device)) -> Tensor {
        match self {
            Symbol::Tensor(arena, i) => arena.tensors.borrow()[i].clone(),
            Symbol::Number(v) => Tensor::full(shape, v, options),
        }
    }

    /// The arena, when one of the values is a tensor.
    fn arena(values: &[Self]) -> Option<&'a Arena> {
        values.iter().find_map(|v| match v {
            Symbol::Tensor(arena, _) => Some(*arena),
            Symbol::Number(_) => None,
        })
    }

    /// The row's op on these values, at least one of which is a tensor in `arena`.
    fn call(arena: &'a Arena, row: &'static Row, values: &[Self]) -> Self {
        let tensors: Vec<Option<Tensor>> = values
            .iter()
            .map(|v| match v {
                Symbol::Tensor(arena, i) => Some(arena.tensors.borrow()[*i].clone()),
                Symbol::Number(_) => None,
            })
            .collect();
        let operands: Vec<Operand<'_>> = values
            .iter()
            .zip(&tensors)
            .map(|(v, t)| match (v, t) {
                (Symbol::Number(v), _) => Operand::from(*v),
                (_, Some(t)) => Operand::Tensor(t),
                (_, None) => unreachable!("every symbol that is no number is a tensor"),
            })
            .collect();
        arena.symbol(apply(row, &operands, &[]))
    }

    fn unary(self, row: &'static Row, plain: fn(Plain) -> Plain) -> Self {
        match self {
            Symbol::Number(v) => Symbol::Number(plain(F64(v)).0),
            Symbol::Tensor(arena, _) => Self::call(arena, row, &[self]),
        }
    }

    fn binary(self, other: Self, row: &'static Row, plain: fn(Plain, Plain) -> Plain) -> Self {
        match (self, other) {
            (Symbol::Number(a), Symbol::Number(b)) => Symbol::Number(plain(F64(a), F64(b)).0),
            (Symbol::Tensor(arena, _), _) | (_, Symbol::Tensor(arena, _)) => {
                Self::call(arena, row, &[self, other])
            }
        }
    }
}

impl From<f64> for Symbol<'_> {
    fn from(value: f64) -> Self {
        Symbol::Number(value)
    }
}

impl Neg for Symbol<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.unary(&arithmetic::rows::neg, Plain::neg)
    }
}

impl Not for Symbol<'_> {
    type Output = Self;
    fn not(self) -> Self {
        self.unary(&comparison::rows::logical_not, |x| truth(x.0 == 0.0))
    }
}

fn truth(value: bool) -> Plain {
    F64(value as u8 as f64)
}

macro_rules! operators {
    ($($Trait:ident $f:ident $table:ident;)*) => {$(
        impl $Trait for Symbol<'_> {
            type Output = Self;
            fn $f(self, other: Self) -> Self { self.binary(other, &$table::rows::$f, $Trait::$f) }
        }
        impl $Trait<f64> for Symbol<'_> {
            type Output = Self;
            fn $f(self, other: f64) -> Self { self.$f(Symbol::Number(other)) }
        }
        impl<'a> $Trait<Symbol<'a>> for f64 {
            type Output = Symbol<'a>;
            fn $f(self, other: Symbol<'a>) -> Symbol<'a> { Symbol::Number(self).$f(other) }
        }
    )*};
}
operators! {
    Add add arithmetic;
    Sub sub arithmetic;
    Mul mul arithmetic;
    Div div arithmetic;
}

macro_rules! logic {
    ($($Trait:ident $f:ident $row:ident $op:tt;)*) => {$(
        impl $Trait for Symbol<'_> {
            type Output = Self;
            fn $f(self, other: Self) -> Self {
                self.binary(other, &comparison::rows::$row, |a, b| truth((a.0 != 0.0) $op (b.0 != 0.0)))
            }
        }
    )*};
}
logic! {
    BitAnd bitand logical_and &;
    BitOr bitor logical_or |;
    BitXor bitxor logical_xor ^;
}

macro_rules! number_functions {
    (unary: $($module:ident::$f:ident)*; binary: $($of:ident::$table:ident::$f2:ident)*; truth: $($row:ident $f3:ident)*) => {
        $(fn $f(self) -> Self { self.unary(&$module::rows::$f, Plain::$f) })*
        $(fn $f2(self, other: Self) -> Self { self.binary(other, &$of::$table::$f2, Plain::$f2) })*
        $(fn $f3(self, other: Self) -> Self {
            self.binary(other, &comparison::rows::$row, |a, b| truth(a.$f3(b)))
        })*
    };
}

impl<'a> Number for Symbol<'a> {
    /// A bool tensor, or the number 0 or 1.
    type Truth = Symbol<'a>;

    fn choose(c: Self, a: Self, b: Self) -> Self {
        if let Symbol::Number(c) = c {
            return if c != 0.0 { a } else { b };
        }
        let Some(arena) = Self::arena(&[c]) else { return a };
        // Two numbers alone would make an f32, whatever the formula's type is.
        let (a, b) = match (a, b) {
            (Symbol::Number(a), Symbol::Number(_)) => {
                (arena.symbol(Tensor::full([], a, arena.options)), b)
            }
            other => other,
        };
        Self::call(arena, &conditional::rows::where_, &[c, a, b])
    }

    number_functions! {
        unary: arithmetic::abs arithmetic::sign elementary::floor elementary::ceil elementary::round elementary::trunc;
        binary: arithmetic::rows::maximum arithmetic::rows::minimum division::checked::remainder
            division::checked::floor_divide division::checked::fmod arithmetic::checked::pow;
        truth: lt less le less_equal eq equal
    }
}

/// The rows of the elementary functions.
mod elementary_rows {
    pub use super::activation::rows::gelu;
    pub use super::elementary::rows::*;
}

/// The rows of the special functions.
mod special_rows {
    pub use super::bessel::rows::*;
    pub use super::incomplete_gamma::rows::*;
    pub use super::polynomials::rows::*;
    pub use super::special::rows::*;
}

macro_rules! functions {
    (
        elementary { $($doc:literal $name:ident: $f32:ident $f64:ident $cuda:ident;)* }
        special { $($special_doc:literal $special:ident: $s32:ident $s64:ident $s:ident;)* }
        pairs { $($pair_doc:literal $pair:ident: $p:ident;)* }
        $($others:tt)*
    ) => {
        impl Float for Symbol<'_> {
            $(fn $name(self) -> Self { self.unary(&elementary_rows::$name, Plain::$name) })*
        }
        impl Special for Symbol<'_> {
            $(fn $special(self) -> Self { self.unary(&special_rows::$special, Plain::$special) })*
            $(fn $pair(self, other: Self) -> Self { self.binary(other, &special_rows::$pair, Plain::$pair) })*
            fn zeta(self, q: Self) -> Self { self.binary(q, &special::checked::zeta, Plain::zeta) }
            fn atan2(self, x: Self) -> Self { self.binary(x, &special::rows::atan2, Plain::atan2) }
            fn nextafter(self, other: Self) -> Self {
                self.binary(other, &special::checked::nextafter, Plain::nextafter)
            }
        }
    };
}
crate::loops::functions!(functions);
