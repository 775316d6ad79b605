//! What of MPI's stands for a type of elements and a reduction.

use torchrs_error::{Error, Result};

use crate::abi::{Handle, Handles};
use crate::element::{Element, Reduction};
use crate::operators::Operators;

/// What MPI is told: a type, an operation, and how many of the type an element has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Combination {
    pub(crate) datatype: Handle,
    pub(crate) operation: Handle,
    pub(crate) numbers: usize,
}

/// The pair's stand-in, or an error that names the argument.
pub(crate) fn combination(
    call: &str,
    (element, reduction): (Element, Reduction),
    handles: &Handles,
    operators: &Operators,
) -> Result<Combination> {
    if !reduction.takes(element) {
        let right = match reduction {
            Reduction::Band | Reduction::Bor | Reduction::Bxor => "integers and bool",
            _ => "all types but c64 and c128",
        };
        return Err(Error::argument(
            call,
            "element",
            format!("{element}; {reduction} takes {right}"),
        ));
    }
    let datatype = match element {
        Element::U8 | Element::Bool => handles.u8,
        Element::I8 => handles.i8,
        Element::I16 => handles.i16,
        Element::I32 => handles.i32,
        Element::I64 => handles.i64,
        Element::F16 | Element::BF16 => handles.u16,
        Element::F32 | Element::C64 => handles.f32,
        Element::F64 | Element::C128 => handles.f64,
    };
    let truth = match reduction {
        Reduction::Sum | Reduction::Max => Reduction::Bor,
        Reduction::Product | Reduction::Min => Reduction::Band,
        bitwise => bitwise,
    };
    let builtin = match if element == Element::Bool { truth } else { reduction } {
        Reduction::Sum => handles.sum,
        Reduction::Product => handles.product,
        Reduction::Min => handles.min,
        Reduction::Max => handles.max,
        Reduction::Band => handles.band,
        Reduction::Bor => handles.bor,
        Reduction::Bxor => handles.bxor,
    };
    let operation = operators.get(element, reduction).unwrap_or(builtin);
    let numbers = if matches!(element, Element::C64 | Element::C128) { 2 } else { 1 };
    Ok(Combination { datatype, operation, numbers })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::launcher::Family;
    use crate::library::Library;

    #[test]
    fn each_pair_has_its_type_and_operation() {
        let libc = Library::open(Path::new("libc.so.6")).unwrap();
        let (h, own) = (Handles::of(Family::Mpich, &libc).unwrap(), Operators::numbered());
        let of = |element, reduction| combination("f", (element, reduction), &h, &own);
        let row = |datatype, operation, numbers| Combination { datatype, operation, numbers };
        for (element, reduction, right) in [
            (Element::I64, Reduction::Max, row(h.i64, h.max, 1)),
            (Element::F32, Reduction::Sum, row(h.f32, h.sum, 1)),
            (Element::F32, Reduction::Min, row(h.f32, 1000, 1)),
            (Element::C128, Reduction::Sum, row(h.f64, h.sum, 2)),
            (Element::Bool, Reduction::Sum, row(h.u8, h.bor, 1)),
            (Element::Bool, Reduction::Min, row(h.u8, h.band, 1)),
            (Element::Bool, Reduction::Bxor, row(h.u8, h.bxor, 1)),
            (Element::BF16, Reduction::Sum, row(h.u16, 1008, 1)),
        ] {
            assert_eq!(of(element, reduction).unwrap(), right, "{element} {reduction}");
        }
        let error = of(Element::F16, Reduction::Bor).unwrap_err().to_string();
        assert_eq!(error, "f: argument `element`: f16; bor takes integers and bool");
        let error = of(Element::C64, Reduction::Max).unwrap_err().to_string();
        assert_eq!(error, "f: argument `element`: c64; max takes all types but c64 and c128");
        for element in [Element::F16, Element::BF16] {
            for reduction in Reduction::ALL.into_iter().filter(|r| r.takes(element)) {
                assert!(of(element, reduction).unwrap().operation >= 1000, "numbers as integers");
            }
        }
    }
}
