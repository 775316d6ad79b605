//! cuBLASLt's descriptions, its choice of an algorithm, and products on a stream.

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use support::*;
use torchrs_simulated_gpu::api::cublaslt::{matmul::*, *};

/// Descriptions of a product of column-major f32 matrices, and a handle.
struct Setup {
    handle: Handle,
    description: Handle,
    layouts: [Handle; 3],
    preference: Handle,
}

fn setup([m, n, k]: [u64; 3]) -> Setup {
    let (mut handle, mut description, mut preference) = (null_mut(), null_mut(), null_mut());
    assert_eq!(cublasLtCreate(&mut handle), Status::SUCCESS);
    assert_eq!(cublasLtMatmulDescCreate(&mut description, 68, 0), Status::SUCCESS);
    assert_eq!(cublasLtMatmulPreferenceCreate(&mut preference), Status::SUCCESS);
    let room = 1u64 << 20;
    let at = (&raw const room).cast();
    assert_eq!(cublasLtMatmulPreferenceSetAttribute(preference, 1, at, 8), Status::SUCCESS);
    let layouts = [(m, k), (k, n), (m, n)].map(|(rows, columns)| {
        let mut layout = null_mut();
        let made = cublasLtMatrixLayoutCreate(&mut layout, 0, rows, columns, rows as i64);
        assert_eq!(made, Status::SUCCESS);
        layout
    });
    Setup { handle, description, layouts, preference }
}

fn choose(s: &Setup) -> (Status, Option<Choice>) {
    let [a, b, d] = s.layouts;
    let mut choice =
        Choice { algorithm: [0; 8], workspace: 0, state: Status(-1), waves: 0.0, reserved: [0; 4] };
    let mut count = 0;
    let (handle, what) = (s.handle, s.description);
    let status = cublasLtMatmulAlgoGetHeuristic(
        handle,
        what,
        a,
        b,
        d,
        d,
        s.preference,
        1,
        &mut choice,
        &mut count,
    );
    (status, (count == 1).then_some(choice))
}

#[test]
fn a_product_is_computed_when_the_stream_comes_to_it() {
    device(0);
    let (s, stream) = (setup([2, 2, 3]), stream());
    let choice = choose(&s).1.expect("a choice");
    let a = upload(&[1f32, 4., 2., 5., 3., 6.], stream);
    let b = upload(&[1f32, 0., 1., 0., 1., 0.], stream);
    let c = upload(&[1f32; 4], stream);
    let (d, workspace) = (alloc(16), alloc(choice.workspace));
    let scales = [2f32, 10.];
    let scale = |k: usize| -> *const c_void { (&raw const scales[k]).cast() };
    let [of_a, of_b, of_d] = s.layouts;
    let run = |bytes: usize| {
        cublasLtMatmul(
            s.handle,
            s.description,
            scale(0),
            a as usize,
            of_a,
            b as usize,
            of_b,
            scale(1),
            c as usize,
            of_d,
            d as usize,
            of_d,
            &choice.algorithm,
            workspace as usize,
            bytes,
            stream,
        )
    };
    assert_eq!(run(0), Status::INVALID_VALUE, "the workspace is too small");
    assert_eq!(run(choice.workspace), Status::SUCCESS);
    assert_eq!(download::<f32>(d, 4, stream), [18.0, 30.0, 14.0, 20.0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    device(0);
    let s = setup([2, 2, 3]);
    let turned = 1i32;
    let at = (&raw const turned).cast();
    assert_eq!(cublasLtMatmulDescSetAttribute(s.description, 3, at, 8), Status::INVALID_VALUE);
    assert_eq!(cublasLtMatmulDescSetAttribute(s.description, 3, at, 4), Status::SUCCESS);
    assert_eq!(choose(&s).0, Status::INVALID_VALUE, "3 x 2 times 3 x 2");
    let mut s = setup([2, 2, 3]);
    let mut integers = null_mut();
    assert_eq!(cublasLtMatrixLayoutCreate(&mut integers, 10, 2, 2, 2), Status::SUCCESS);
    s.layouts[2] = integers;
    assert_eq!(choose(&s).0, Status::NOT_SUPPORTED, "i32 results");
    assert_eq!(cublasLtMatrixLayoutDestroy(integers), Status::SUCCESS);
    assert_eq!(cublasLtMatrixLayoutDestroy(integers), Status::INVALID_VALUE, "twice");
}
