//! Types of elements, and reductions.

use std::fmt;

/// The type of elements that are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Element {
    U8,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    /// A byte, 0 or 1.
    Bool,
    F16,
    BF16,
    /// Two f32.
    C64,
    /// Two f64.
    C128,
}

impl Element {
    /// All types.
    pub const ALL: [Element; 12] = {
        use Element::*;
        [U8, I8, I16, I32, I64, F32, F64, Bool, F16, BF16, C64, C128]
    };

    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Element::U8 | Element::I8 | Element::Bool => 1,
            Element::I16 | Element::F16 | Element::BF16 => 2,
            Element::I32 | Element::F32 => 4,
            Element::I64 | Element::F64 | Element::C64 => 8,
            Element::C128 => 16,
        }
    }

    fn is_float(self) -> bool {
        !matches!(
            self,
            Element::U8 | Element::I8 | Element::I16 | Element::I32 | Element::I64 | Element::Bool
        )
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// How elements of different ranks are combined. The crate's head says what holds of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The product. Not of complex numbers.
    Product,
    /// The smallest; NaN if any is NaN. Not of complex numbers.
    Min,
    /// The largest; NaN if any is NaN. Not of complex numbers.
    Max,
    /// Bitwise and. Integers and bool only.
    Band,
    /// Bitwise or. Integers and bool only.
    Bor,
    /// Bitwise exclusive or. Integers and bool only.
    Bxor,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Reduction; 7] = {
        use Reduction::*;
        [Sum, Product, Min, Max, Band, Bor, Bxor]
    };

    /// Whether it is defined for `element`.
    pub fn takes(self, element: Element) -> bool {
        match self {
            Reduction::Sum => true,
            Reduction::Product | Reduction::Min | Reduction::Max => {
                !matches!(element, Element::C64 | Element::C128)
            }
            Reduction::Band | Reduction::Bor | Reduction::Bxor => !element.is_float(),
        }
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}
