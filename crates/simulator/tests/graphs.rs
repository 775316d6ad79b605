//! Capture of streams: what is written down, what is forbidden, and the launch of graphs.

mod support;
use std::ptr::null_mut;
use support::*;
use torchrs_simulated_gpu::api::driver::{
    context::*, event::*, graph::*, ipc::*, memcpy::*, memory::*, module::*, stream::*,
};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;
const INVALIDATED: &str = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
const UNSUPPORTED: &str = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";

/// Captures are the whole process's business: one test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    LOCK.lock().unwrap_or_else(|error| error.into_inner())
}

fn event() -> Handle {
    let mut event = null_mut();
    ok(cuEventCreate(&mut event, 2));
    event
}

/// Ends a capture; the graph's handle and the code's name.
fn end(stream: Handle) -> (Handle, String) {
    let mut graph = null_mut();
    let code = cuStreamEndCapture(stream, &mut graph);
    (graph, name(code))
}

fn status(stream: Handle) -> u32 {
    let mut status = 9;
    ok(cuStreamIsCapturing(stream, &mut status));
    status
}

/// Adds what is at `from` to what is at `to`.
const SOURCE: &str = "extern \"C\" __global__ void add(int* to, const int* from) { *to += *from; }";

#[test]
fn a_graph_of_two_streams_is_launched_again_and_again() {
    if !has_compiler() {
        return;
    }
    let _alone = alone();
    device(0);
    let add = function(load(SOURCE), c"add");
    let (first, second, fork, join) = (stream(), stream(), event(), event());
    let (a, b, c) = (upload(&[1i32], first), upload(&[10i32], first), upload(&[0i32], first));
    ok(cuStreamSynchronize(first));
    ok(cuStreamBeginCapture_v2(first, GLOBAL));
    assert_eq!((status(first), status(second)), (1, 0));
    ok(launch(add, 1, 1, 0, first, &[arg(&a), arg(&b)]));
    ok(cuEventRecord(fork, first));
    ok(cuStreamWaitEvent(second, fork, 0));
    assert_eq!(status(second), 1);
    assert_eq!(name(cuEventQuery(fork)), "CUDA_ERROR_CAPTURED_EVENT");
    ok(launch(add, 1, 1, 0, second, &[arg(&c), arg(&a)]));
    ok(cuMemsetD32Async(b, 100, 1, first));
    ok(cuEventRecord(join, second));
    ok(cuStreamWaitEvent(first, join, 0));
    ok(launch(add, 1, 1, 0, first, &[arg(&c), arg(&b)]));
    let (graph, code) = end(first);
    assert_eq!((code.as_str(), status(first), status(second)), ("CUDA_SUCCESS", 0, 0));
    let mut nodes = 0;
    ok(cuGraphGetNodes(graph, null_mut(), &mut nodes));
    assert_eq!(nodes, 4);
    // Nothing has been done yet.
    assert_eq!(download::<i32>(c, 1, first), [0]);
    let mut program = null_mut();
    ok(cuGraphInstantiateWithFlags(&mut program, graph, 0));
    ok(cuGraphDestroy(graph));
    ok(cuGraphLaunch(program, first));
    ok(cuGraphLaunch(program, first));
    ok(cuGraphExecDestroy(program));
    // a = 1 + 10 + 100; c = 11 + 100 + 111 + 100.
    assert_eq!(download::<i32>(a, 1, first), [111]);
    assert_eq!(download::<i32>(c, 1, first), [322]);
    assert_eq!(name(cuGraphLaunch(program, first)), "CUDA_ERROR_INVALID_HANDLE");
}

#[test]
fn what_might_disturb_a_capture_spoils_it() {
    let _alone = alone();
    device(0);
    let (captured, other, fresh) = (stream(), stream(), event());
    let block = alloc(8);
    let mut pointer = 0;
    let spoils: [&mut dyn FnMut() -> Code; 5] = [
        &mut || cuStreamSynchronize(captured),
        &mut || cuStreamQuery(captured),
        &mut || cuCtxSynchronize(),
        &mut || cuMemAlloc_v2(&mut pointer, 8),
        &mut || cuMemFree_v2(block),
    ];
    for spoil in spoils {
        ok(cuStreamBeginCapture_v2(captured, GLOBAL));
        assert_eq!(name(spoil()), UNSUPPORTED);
        assert_eq!(status(captured), 2);
        assert_eq!(name(cuMemsetD8Async(block, 0, 8, captured)), INVALIDATED);
        assert_eq!(end(captured), (null_mut(), INVALIDATED.to_string()));
        assert_eq!(status(captured), 0);
    }
    // Each of these may reserve memory or wait, whatever it returns otherwise.
    let (mut handle, mut opened, mut found) = (IpcHandle([0; 64]), null_mut(), null_mut());
    let unsafe_calls: [&mut dyn FnMut() -> Code; 7] = [
        &mut || cuIpcGetMemHandle(&mut handle, block),
        &mut || cuIpcOpenEventHandle(&mut opened, IpcHandle([0; 64])),
        &mut || cuIpcCloseMemHandle(block),
        &mut || cuMemHostUnregister(null_mut()),
        &mut || cuStreamSynchronize(other),
        &mut || cuEventSynchronize(fresh),
        &mut || cuModuleGetFunction(&mut found, null_mut(), c"k".as_ptr()),
    ];
    for call in unsafe_calls {
        ok(cuStreamBeginCapture_v2(captured, GLOBAL));
        assert_eq!(name(call()), UNSUPPORTED);
        assert_eq!(end(captured).1, INVALIDATED);
    }
    // Work that was not captured cannot come before work that is.
    ok(cuEventRecord(fresh, other));
    ok(cuStreamBeginCapture_v2(captured, GLOBAL));
    assert_eq!(name(cuStreamWaitEvent(captured, fresh, 0)), "CUDA_ERROR_STREAM_CAPTURE_ISOLATION");
    assert_eq!(end(captured).1, INVALIDATED);
    assert_eq!(end(captured).1, "CUDA_ERROR_ILLEGAL_STATE");
}

#[test]
fn modes_say_who_is_restricted() {
    let _alone = alone();
    device(0);
    let captured = stream();
    let elsewhere = || {
        std::thread::spawn(|| {
            device(0);
            let mut pointer = 0;
            let code = cuMemAlloc_v2(&mut pointer, 8);
            name(code)
        })
        .join()
        .unwrap()
    };
    let mut pointer = 0;
    ok(cuStreamBeginCapture_v2(captured, THREAD_LOCAL));
    assert_eq!(elsewhere(), "CUDA_SUCCESS");
    assert_eq!(end(captured).1, "CUDA_SUCCESS");
    ok(cuStreamBeginCapture_v2(captured, GLOBAL));
    assert_eq!(elsewhere(), UNSUPPORTED);
    assert_eq!(end(captured).1, INVALIDATED);
    ok(cuStreamBeginCapture_v2(captured, RELAXED));
    ok(cuMemAlloc_v2(&mut pointer, 8));
    assert_eq!(end(captured).1, "CUDA_SUCCESS");
    // A thread may say that it knows what it does.
    ok(cuStreamBeginCapture_v2(captured, GLOBAL));
    let mut mode = RELAXED;
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, GLOBAL);
    ok(cuMemAlloc_v2(&mut pointer, 8));
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(end(captured).1, "CUDA_SUCCESS");
}

#[test]
fn a_capture_ends_where_it_began_with_all_that_took_part() {
    let _alone = alone();
    device(0);
    let (first, second, fork, block) = (stream(), stream(), event(), alloc(8));
    ok(cuStreamBeginCapture_v2(first, GLOBAL));
    ok(cuEventRecord(fork, first));
    ok(cuStreamWaitEvent(second, fork, 0));
    ok(cuMemsetD8Async(block, 1, 8, second));
    assert_eq!(end(first).1, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED");
    ok(cuStreamBeginCapture_v2(first, GLOBAL));
    ok(cuEventRecord(fork, first));
    ok(cuStreamWaitEvent(second, fork, 0));
    assert_eq!(end(second).1, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED");
    assert_eq!(end(first).1, INVALIDATED);
}
