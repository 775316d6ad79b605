//! Reductions that MPI does not have: of f16 and bf16, and minima and maxima that let NaN through.
//!
//! Both families' `MPI_MIN` and `MPI_MAX` compare with `<` and `>`, so that NaN stays or goes by its place.

use std::ffi::{c_int, c_void};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::abi::{Functions, Handle, UserFunction};
use crate::element::{Element, Reduction};

/// The handles of these operations, made once.
#[derive(Debug)]
pub(crate) struct Operators(Vec<(Element, Reduction, Handle)>);

impl Operators {
    /// Makes them; MPI is initialised. The error is MPI's code.
    pub(crate) fn make(functions: &Functions) -> Result<Self, c_int> {
        let made = TABLE.iter().map(|&(element, reduction, function)| {
            let mut handle = 0;
            // Commutative: MPI may choose its fastest algorithm, and these operations give the same bits
            // in either order.
            // SAFETY: a function of MPI's signature that never ends, and a place for the handle.
            match unsafe { (functions.MPI_Op_create)(function, 1, &raw mut handle) } {
                0 => Ok((element, reduction, handle)),
                code => Err(code),
            }
        });
        made.collect::<Result<_, _>>().map(Operators)
    }

    pub(crate) fn get(&self, element: Element, reduction: Reduction) -> Option<Handle> {
        let found = self.0.iter().find(|made| (made.0, made.1) == (element, reduction));
        found.map(|made| made.2)
    }

    /// None, for a table's test.
    #[cfg(test)]
    pub(crate) fn numbered() -> Self {
        Operators(TABLE.iter().enumerate().map(|(i, row)| (row.0, row.1, 1000 + i)).collect())
    }
}

const TABLE: [(Element, Reduction, UserFunction); 12] = [
    (Element::F32, Reduction::Min, each::<f32, { MIN }>),
    (Element::F32, Reduction::Max, each::<f32, { MAX }>),
    (Element::F64, Reduction::Min, each::<f64, { MIN }>),
    (Element::F64, Reduction::Max, each::<f64, { MAX }>),
    (Element::F16, Reduction::Sum, halves::<f16, { SUM }>),
    (Element::F16, Reduction::Product, halves::<f16, { PRODUCT }>),
    (Element::F16, Reduction::Min, halves::<f16, { MIN }>),
    (Element::F16, Reduction::Max, halves::<f16, { MAX }>),
    (Element::BF16, Reduction::Sum, halves::<bf16, { SUM }>),
    (Element::BF16, Reduction::Product, halves::<bf16, { PRODUCT }>),
    (Element::BF16, Reduction::Min, halves::<bf16, { MIN }>),
    (Element::BF16, Reduction::Max, halves::<bf16, { MAX }>),
];

const SUM: u8 = 0;
const PRODUCT: u8 = 1;
const MIN: u8 = 2;
const MAX: u8 = 3;

trait Float: Copy {
    /// `a op b`, the same bits as `b op a`: NaN is one NaN, and -0 is below +0.
    fn combine<const OP: u8>(a: Self, b: Self) -> Self;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Float for $t {
            #[inline(always)]
            fn combine<const OP: u8>(a: Self, b: Self) -> Self {
                let nan = a.is_nan() | b.is_nan();
                let other = match OP {
                    SUM => a + b,
                    PRODUCT => a * b,
                    // Equal numbers differ in the sign of zero, or not at all.
                    MIN if a == b => Self::from_bits(a.to_bits() | b.to_bits()),
                    MAX if a == b => Self::from_bits(a.to_bits() & b.to_bits()),
                    MIN => if a < b { a } else { b },
                    _ => if a > b { a } else { b },
                };
                if nan { Self::NAN } else { other }
            }
        }
    )*};
}
floats!(f32, f64);

/// # Safety
/// As MPI calls it: `*len` elements are readable at `from`, and both at `into`, each wherever it begins.
unsafe extern "C" fn each<T: Float, const OP: u8>(
    from: *const c_void,
    into: *mut c_void,
    len: *const c_int,
    _datatype: *const c_void,
) {
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    // SAFETY: this function's contract.
    let len = unsafe { *len };
    for i in 0..usize::try_from(len).unwrap_or(0) {
        // SAFETY: this function's contract; `i` is below `*len`.
        unsafe {
            let combined =
                T::combine::<OP>(from.add(i).read_unaligned(), into.add(i).read_unaligned());
            into.add(i).write_unaligned(combined);
        }
    }
}

trait Half: Copy + Default {
    fn widen(from: &[Self], into: &mut [f32]);
    fn round(from: &[f32], into: &mut [Self]);
}

macro_rules! half_types {
    ($($t:ty),*) => {$(
        impl Half for $t {
            fn widen(from: &[Self], into: &mut [f32]) {
                from.convert_to_f32_slice(into);
            }
            fn round(from: &[f32], into: &mut [Self]) {
                into.convert_from_f32_slice(from);
            }
        }
    )*};
}
half_types!(f16, bf16);

/// In blocks, which the processor's own conversions take at once.
///
/// # Safety
/// As [`each`].
unsafe extern "C" fn halves<T: Half, const OP: u8>(
    from: *const c_void,
    into: *mut c_void,
    len: *const c_int,
    _datatype: *const c_void,
) {
    const BLOCK: usize = 256;
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    // SAFETY: this function's contract.
    let len = usize::try_from(unsafe { *len }).unwrap_or(0);
    let mut half = [T::default(); BLOCK];
    let (mut a, mut b) = ([0f32; BLOCK], [0f32; BLOCK]);
    for start in (0..len).step_by(BLOCK) {
        let n = BLOCK.min(len - start);
        // SAFETY: this function's contract; `start + n` is at most `*len`, and `n` elements fit the block.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.add(start).cast::<u8>(),
                half.as_mut_ptr().cast(),
                n * size_of::<T>(),
            );
            T::widen(&half[..n], &mut a[..n]);
            std::ptr::copy_nonoverlapping(
                into.add(start).cast::<u8>(),
                half.as_mut_ptr().cast(),
                n * size_of::<T>(),
            );
        }
        T::widen(&half[..n], &mut b[..n]);
        for (a, b) in a[..n].iter_mut().zip(&b[..n]) {
            *a = f32::combine::<OP>(*a, *b);
        }
        T::round(&a[..n], &mut half[..n]);
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(
                half.as_ptr().cast::<u8>(),
                into.add(start).cast(),
                n * size_of::<T>(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(element: Element, reduction: Reduction, from: &[T], into: &mut [T]) {
        let row = TABLE.iter().find(|row| (row.0, row.1) == (element, reduction)).unwrap();
        let len = c_int::try_from(from.len().min(into.len())).unwrap();
        // SAFETY: both have `len` elements.
        unsafe {
            row.2(from.as_ptr().cast(), into.as_mut_ptr().cast(), &raw const len, std::ptr::null());
        }
    }

    #[test]
    fn the_order_never_matters_to_minima_and_maxima() {
        let values = [f32::NAN, -f32::NAN, -0.0, 0.0, 1.5, -1.5, f32::INFINITY, f32::NEG_INFINITY];
        for reduction in [Reduction::Min, Reduction::Max] {
            for a in values {
                for b in values {
                    let (mut ab, mut ba) = ([b], [a]);
                    run(Element::F32, reduction, &[a], &mut ab);
                    run(Element::F32, reduction, &[b], &mut ba);
                    assert_eq!(ab[0].to_bits(), ba[0].to_bits(), "{a} {b}");
                    assert_eq!(ab[0].is_nan(), a.is_nan() || b.is_nan(), "{a} {b}");
                    let (low, high) = if a.total_cmp(&b).is_lt() { (a, b) } else { (b, a) };
                    if !ab[0].is_nan() {
                        let right = if reduction == Reduction::Min { low } else { high };
                        assert_eq!(ab[0].to_bits(), right.to_bits(), "{reduction} {a} {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn halves_are_combined_in_f32_and_rounded_once() {
        // 2048 + 1 is no f16: ties go to even. 1000 elements are three blocks and a rest.
        let mut into: Vec<f16> =
            (0..1000).map(|i| f16::from_f32(2048.0 + 2.0 * i as f32)).collect();
        let from = vec![f16::from_f32(3.0); 1000];
        let right: Vec<f16> = into.iter().map(|x| f16::from_f32(x.to_f32() + 3.0)).collect();
        run(Element::F16, Reduction::Sum, &from, &mut into);
        assert_eq!(into, right);
        let mut into = [bf16::from_f32(3.0), bf16::NAN, bf16::from_f32(-2.0)];
        run(Element::BF16, Reduction::Max, &[bf16::from_f32(1.0); 3], &mut into);
        assert!(into[1].is_nan() && into[0].to_f32() == 3.0 && into[2].to_f32() == 1.0);
        let mut into = [bf16::from_f32(3.0); 2];
        run(Element::BF16, Reduction::Product, &[bf16::from_f32(-0.5); 2], &mut into);
        assert_eq!(into, [bf16::from_f32(-1.5); 2]);
    }
}
