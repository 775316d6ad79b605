//! Arithmetic of formulas where it is not that of the processor.

use torchrs_cpu::numbers::lane::{F32, F64, I64, Number};

#[test]
fn floored_division_of_integers() {
    for (a, b, q, r) in
        [(7, 3, 2, 1), (-7, 3, -3, 2), (7, -3, -3, -2), (-7, -3, 2, -1), (6, -3, -2, 0)]
    {
        assert_eq!(I64(a).floor_divide(I64(b)).0, q, "{a} / {b}");
        assert_eq!(I64(a).remainder(I64(b)).0, r, "{a} % {b}");
    }
    assert_eq!(I64(i64::MIN).remainder(I64(-1)).0, 0);
}

#[test]
fn floored_division_of_floats() {
    let f = |a, b| (F64::<false>(a).floor_divide(F64(b)).0, F64::<false>(a).remainder(F64(b)).0);
    assert_eq!(f(7.5, 2.0), (3.0, 1.5));
    assert_eq!(f(-7.5, 2.0), (-4.0, 0.5));
    // 1.0 / 0.1 rounds to 10, but 0.1 is a little more than a tenth.
    assert_eq!(f(1.0, 0.1).0, 9.0);
    assert_eq!(f(1.0, 0.0).0, f64::INFINITY);
}

#[test]
fn powers_of_integers() {
    for (a, b, y) in
        [(3, 4, 81), (-2, 3, -8), (0, 0, 1), (2, -1, 0), (-1, -3, -1), (1, -5, 1), (2, 64, 0)]
    {
        assert_eq!(I64(a).pow(I64(b)).0, y, "{a}^{b}");
    }
}

#[test]
fn nan_goes_through_the_larger_and_the_smaller() {
    for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
        assert!(F32::<false>(a).maximum(F32(b)).0.is_nan());
        assert!(F32::<false>(a).minimum(F32(b)).0.is_nan());
    }
    assert_eq!(F32::<false>(f32::NAN).sign().0, 0.0);
}
