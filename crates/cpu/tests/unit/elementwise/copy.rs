//! Copies between any strides.

use proptest::prelude::*;
use torchrs_cpu::arch::cache::is_beyond;
use torchrs_cpu::elementwise::copy::{Elements, copy};

fn positions(shape: &[usize], strides: &[isize]) -> Vec<usize> {
    let mut out = vec![0isize];
    for (&n, &s) in shape.iter().zip(strides) {
        out = out.iter().flat_map(|&p| (0..n as isize).map(move |i| p + i * s)).collect();
    }
    out.into_iter().map(|p| p as usize).collect()
}

fn check<T: Copy + PartialEq + std::fmt::Debug>(
    shape: &[usize],
    to: &[isize],
    from: &[isize],
    value: fn(usize) -> T,
) {
    let (to_places, from_places) = (positions(shape, to), positions(shape, from));
    let len = |places: &[usize]| places.iter().max().map_or(1, |m| m + 1);
    let mut source: Vec<T> = (0..len(&from_places)).map(value).collect();
    let blank = value(usize::MAX);
    let mut target = vec![blank; len(&to_places)];
    let elements = |ptr: *mut T, strides| Elements { ptr: ptr.cast(), shape, strides };
    // SAFETY: both vectors have all elements that the strides name.
    unsafe {
        copy(size_of::<T>(), elements(target.as_mut_ptr(), to), elements(source.as_mut_ptr(), from))
    };
    let mut want = vec![blank; target.len()];
    for (t, f) in to_places.iter().zip(&from_places) {
        want[*t] = source[*f];
    }
    assert_eq!(target, want, "shape {shape:?} from {from:?} to {to:?}");
}

proptest! {
    #[test]
    fn permuted_and_expanded_sources(
        shape in prop::collection::vec(1usize..40, 1..4),
        order in any::<[u8; 4]>(),
        gap in 1isize..3,
        expanded in 0usize..8,
    ) {
        let mut permuted: Vec<usize> = (0..shape.len()).collect();
        permuted.sort_by_key(|&d| order[d]);
        let strides = |order: &[usize], gap: isize| {
            let mut strides = vec![0; shape.len()];
            let mut next = gap;
            for &d in order.iter().rev() {
                strides[d] = next;
                next *= shape[d] as isize;
            }
            strides
        };
        let natural: Vec<usize> = (0..shape.len()).collect();
        let mut from = strides(&permuted, gap);
        check::<u32>(&shape, &strides(&natural, 1), &from, |i| i as u32);
        check::<u8>(&shape, &strides(&permuted, gap), &strides(&natural, 1), |i| i as u8);
        if expanded < shape.len() {
            from[expanded] = 0;
        }
        check::<u64>(&shape, &strides(&natural, 1), &from, |i| i as u64);
        check::<[u64; 2]>(&shape, &strides(&natural, 1), &from, |i| [i as u64, 7]);
        check::<u16>(&shape, &strides(&permuted, 1), &from, |i| i as u16);
    }
}

fn backwards<T: Copy + PartialEq + std::fmt::Debug>(rows: usize, n: usize, value: fn(usize) -> T) {
    let mut source: Vec<T> = (0..rows * n).map(value).collect();
    let mut target = vec![value(usize::MAX); rows * n];
    let (shape, to, from) = ([rows, n], [n as isize, 1], [n as isize, -1]);
    let elements = |ptr: *mut T, strides| Elements { ptr: ptr.cast(), shape: &shape, strides };
    // SAFETY: the first row's last element is the first that is read, and what is before it.
    unsafe {
        let first = source.as_mut_ptr().add(n - 1);
        copy(size_of::<T>(), elements(target.as_mut_ptr(), &to), elements(first, &from))
    };
    let want: Vec<T> = source.chunks(n).flat_map(|row| row.iter().rev().copied()).collect();
    assert_eq!(target, want, "{rows} rows of {n}");
}

#[test]
fn rows_that_are_read_backwards() {
    for (rows, n) in (1..70).map(|n| (3, n)).chain([(1, 70_000), (300, 400), (4097, 1031)]) {
        backwards::<u8>(rows, n, |i| i as u8);
        backwards::<u16>(rows, n, |i| i as u16);
        backwards::<u32>(rows, n, |i| i as u32);
        backwards::<u64>(rows, n, |i| i as u64);
        backwards::<[u64; 2]>(rows, n, |i| [i as u64, 7]);
    }
}

#[test]
fn copies_past_the_caches() {
    let (rows, n) = (2050, 2049);
    assert!(is_beyond(8 * rows * n));
    let value = |i| i as u64;
    check::<u64>(&[rows * n], &[1], &[1], value);
    // Rows at all alignments.
    check::<u64>(&[rows, n], &[n as isize + 1, 1], &[n as isize + 2, 1], value);
}

#[test]
fn large_copies_use_threads() {
    check::<u32>(&[70_000], &[1], &[1], |i| i as u32);
    check::<u32>(&[300, 400], &[400, 1], &[1, 300], |i| i as u32);
    check::<u32>(&[0, 4], &[4, 1], &[4, 1], |i| i as u32);
}
