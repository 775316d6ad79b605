//! cuDNN refuses what is not described, or does not fit, as the real one does, and computes late.

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use support::*;
use torchrs_simulated_gpu::api::cudnn::{descriptor::*, *};

fn made(kind: i32) -> Handle {
    let mut descriptor = null_mut();
    assert_eq!(cudnnBackendCreateDescriptor(kind, &mut descriptor), Status::SUCCESS);
    descriptor
}

fn set<T>(descriptor: Handle, name: i32, of: i32, values: &[T]) -> Status {
    cudnnBackendSetAttribute(descriptor, name, of, values.len() as i64, values.as_ptr().cast())
}

#[track_caller]
fn is(descriptor: Handle, name: i32, of: i32, values: &[impl Copy]) {
    assert_eq!(set(descriptor, name, of, values), Status::SUCCESS);
}

fn finished(descriptor: Handle) -> Handle {
    assert_eq!(cudnnBackendFinalize(descriptor), Status::SUCCESS, "{}", why());
    descriptor
}

fn why() -> String {
    let mut text = [0; 200];
    cudnnGetLastErrorString(text.as_mut_ptr().cast(), text.len());
    let end = text.iter().position(|&c| c == 0).unwrap();
    String::from_utf8_lossy(&text[..end]).into_owned()
}

fn tensor(name: i64, sizes: [i64; 4]) -> Handle {
    let tensor = made(17);
    let [_, c, h, w] = sizes;
    is(tensor, 900, 3, &[4i64]);
    is(tensor, 901, 1, &[0i32]);
    is(tensor, 902, 3, &sizes);
    is(tensor, 903, 3, &[c * h * w, h * w, w, 1]);
    is(tensor, 906, 3, &[name]);
    finished(tensor)
}

/// y[2x2] of x[3x3] and w[2x2], or of a wrong size.
fn operation(y: i64) -> Handle {
    let window = made(1);
    is(window, 106, 3, &[2i64]);
    is(window, 100, 1, &[0i32]);
    is(window, 101, 7, &[1i32]);
    for (name, value) in [(105, 0), (104, 0), (103, 1), (102, 1)] {
        is(window, name, 3, &[value as i64; 2]);
    }
    let operation = made(10);
    is(operation, 702, 15, &[finished(window)]);
    is(operation, 704, 15, &[tensor(1, [1, 1, 3, 3])]);
    is(operation, 703, 15, &[tensor(2, [1, 1, 2, 2])]);
    is(operation, 705, 15, &[tensor(3, [1, 1, y, y])]);
    is(operation, 700, 4, &[1f32]);
    is(operation, 701, 4, &[0f32]);
    operation
}

fn plan(handle: Handle) -> Handle {
    let graph = made(15);
    is(graph, 800, 0, &[handle]);
    is(graph, 801, 15, &[finished(operation(2))]);
    let heuristics = made(4);
    is(heuristics, 201, 15, &[finished(graph)]);
    is(heuristics, 200, 8, &[2i32]);
    finished(heuristics);
    let (config, mut count) = (made(3), 0i64);
    let mut places = [config];
    let at = places.as_mut_ptr().cast::<c_void>();
    assert_eq!(cudnnBackendGetAttribute(heuristics, 202, 15, 1, &mut count, at), Status::SUCCESS);
    assert_eq!(count, 1);
    let plan = made(5);
    is(plan, 400, 0, &[handle]);
    is(plan, 401, 15, &[config]);
    finished(plan)
}

#[test]
fn what_does_not_fit_is_refused() {
    let window = made(1);
    assert_eq!(set(window, 106, 4, &[2f32]), Status::ATTRIBUTE_TYPE);
    assert_eq!(set(window, 700, 4, &[2f32]), Status::BAD_PARAM);
    assert_eq!(cudnnBackendFinalize(window), Status::BAD_PARAM);
    assert_eq!(why(), "attribute 100 is not set");
    let unfinished = made(10);
    for name in 702..706 {
        is(unfinished, name, 15, &[window]);
    }
    is(unfinished, 700, 4, &[1f32]);
    is(unfinished, 701, 4, &[0f32]);
    assert_eq!(cudnnBackendFinalize(unfinished), Status::NOT_FINALIZED);
    assert_eq!(cudnnBackendFinalize(operation(3)), Status::SHAPE_MISMATCH);
    let tensor = tensor(1, [1; 4]);
    assert_eq!(set(tensor, 906, 3, &[2i64]), Status::BAD_PARAM, "it is finished");
    assert_eq!(cudnnBackendDestroyDescriptor(tensor), Status::SUCCESS);
    assert_eq!(cudnnBackendDestroyDescriptor(tensor), Status::BAD_PARAM);
    assert_eq!(cudnnBackendExecute(null_mut(), null_mut(), null_mut()), Status::NOT_INITIALIZED);
}

#[test]
fn a_convolution_is_computed_when_the_stream_comes_to_it() {
    device(0);
    let (mut handle, stream) = (null_mut(), stream());
    assert_eq!(cudnnCreate(&mut handle), Status::SUCCESS);
    assert_eq!(cudnnSetStream(handle, stream), Status::SUCCESS);
    let plan = plan(handle);
    let x = upload(&[1f32, 2., 3., 4., 5., 6., 7., 8., 9.], stream);
    let w = upload(&[1f32, 0., 0., 10.], stream);
    let (y, room) = (alloc(16), alloc(1024));
    let pack = |addresses: [u64; 3], workspace: u64| {
        let pack = made(16);
        is(pack, 1000, 3, &[1i64, 2, 3]);
        is(pack, 1001, 6, &addresses);
        is(pack, 1003, 6, &[workspace]);
        finished(pack)
    };
    assert_eq!(cudnnBackendExecute(handle, plan, pack([x, w, y], 0)), Status::BAD_PARAM);
    assert_eq!(cudnnBackendExecute(handle, plan, pack([x, w, y + 2], room)), Status(2003));
    assert_eq!(cudnnBackendExecute(handle, plan, pack([x, w, y], room)), Status::SUCCESS);
    assert_eq!(download::<f32>(y, 4, stream), [51., 62., 84., 95.]);
}
