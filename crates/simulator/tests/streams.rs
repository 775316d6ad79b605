//! Streams, events, copies and host memory: what is in order, and what is not until somebody waits.

mod support;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use support::*;
use torchrs_simulated_gpu::api::driver::{
    context::*, device::*, event::*, memcpy::*, memory::*, stream::*,
};

fn event(flags: u32) -> Handle {
    let mut event = null_mut();
    ok(cuEventCreate(&mut event, flags));
    event
}

/// Sleeps for as many milliseconds as the pointer says.
unsafe extern "C" fn sleep(milliseconds: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds as u64));
}

#[test]
fn devices_are_described() {
    device(0);
    let mut count = 0;
    ok(torchrs_simulated_gpu::api::driver::init::cuDeviceGetCount(&mut count));
    assert_eq!(count, 4);
    let mut text = [0 as std::ffi::c_char; 32];
    ok(cuDeviceGetName(text.as_mut_ptr(), 32, 3));
    // SAFETY: the call wrote a C string.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(text.as_ptr()) }, c"Simulated GPU");
    ok(cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, 3));
    // SAFETY: the call wrote a C string.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(text.as_ptr()) }, c"0000:04:00.0");
    let value = |attribute| {
        let mut value = 0;
        ok(cuDeviceGetAttribute(&mut value, attribute, 0));
        value
    };
    assert_eq!([75, 76, 10, 1, 41, 125].map(value), [9, 0, 32, 1024, 1, 1]);
    let (mut one, mut two) = ([0; 16], [0; 16]);
    ok(cuDeviceGetUuid_v2(&mut one, 0));
    ok(cuDeviceGetUuid_v2(&mut two, 1));
    assert_ne!(one, two);
    assert_eq!(name(cuDeviceGet(&mut count, 4)), "CUDA_ERROR_INVALID_DEVICE");
}

#[test]
fn streams_run_late_and_events_tell() {
    device(0);
    let (stream, begin, end) = (stream(), event(0), event(0));
    let before = event(0);
    ok(cuEventQuery(before));
    ok(cuEventRecord(begin, stream));
    // SAFETY: the function takes any pointer as a number.
    ok(cuLaunchHostFunc(stream, Some(sleep), 50 as *mut c_void));
    ok(cuEventRecord(end, stream));
    assert_eq!(name(cuStreamQuery(stream)), "CUDA_ERROR_NOT_READY");
    assert_eq!(name(cuEventQuery(end)), "CUDA_ERROR_NOT_READY");
    let mut time = 0.0;
    assert_eq!(name(cuEventElapsedTime(&mut time, begin, end)), "CUDA_ERROR_NOT_READY");
    ok(cuEventSynchronize(end));
    ok(cuEventElapsedTime(&mut time, begin, end));
    assert!((50.0..5000.0).contains(&time), "{time}");
    ok(cuStreamSynchronize(stream));
    ok(cuStreamQuery(stream));
    assert_eq!(name(cuEventElapsedTime(&mut time, before, end)), "CUDA_ERROR_INVALID_HANDLE");
    ok(cuEventDestroy_v2(end));
    assert_eq!(name(cuEventQuery(end)), "CUDA_ERROR_INVALID_HANDLE");
}

#[test]
fn streams_of_two_devices_wait_for_each_other() {
    device(0);
    let (first, done) = (stream(), event(2));
    let values: Vec<u32> = (0..1000).collect();
    let source = upload(&values, first);
    let middle = alloc(4000);
    ok(cuLaunchHostFunc(first, Some(sleep), 30 as *mut c_void));
    ok(cuMemcpyDtoDAsync_v2(middle, source, 4000, first));
    ok(cuEventRecord(done, first));
    device(1);
    let second = stream();
    let target = alloc(4000);
    ok(cuStreamWaitEvent(second, done, 0));
    ok(cuMemcpyDtoDAsync_v2(target, middle, 4000, second));
    assert_eq!(download::<u32>(target, 1000, second), values);
    assert_eq!(name(cuEventRecord(done, second)), "CUDA_ERROR_INVALID_HANDLE");
}

#[test]
fn little_pageable_memory_is_taken_at_once_and_pinned_or_more_memory_late() {
    device(0);
    let stream = stream();
    let (target, mut pinned) = (alloc(8), null_mut());
    ok(cuMemHostAlloc(&mut pinned, 8, 0));
    let pinned: *mut u32 = pinned.cast();
    // SAFETY: memory that was just allocated, eight bytes.
    unsafe { pinned.write(1) };
    let mut pageable = 1u32;
    ok(cuLaunchHostFunc(stream, Some(sleep), 50 as *mut c_void));
    ok(cuMemcpyHtoDAsync_v2(target, (&raw const pageable).cast(), 4, stream));
    ok(cuMemcpyHtoDAsync_v2(target + 4, pinned.cast(), 4, stream));
    pageable = 2;
    // SAFETY: as above; the copy is late, which is what is tested.
    unsafe { pinned.write_volatile(2) };
    assert_eq!(download::<u32>(target, 2, stream), [1, 2]);
    assert_eq!(pageable, 2);
    ok(cuMemFreeHost(pinned.cast()));
    assert_eq!(name(cuMemFreeHost(pinned.cast())), "CUDA_ERROR_INVALID_VALUE");
}

#[test]
fn host_memory_is_registered_once() {
    device(0);
    let stream = stream();
    let mut memory = vec![7u8; 20000];
    let pointer: *mut c_void = memory.as_mut_ptr().cast();
    ok(cuMemHostRegister_v2(pointer, 20000, 0));
    let again = "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
    assert_eq!(name(cuMemHostRegister_v2(pointer.wrapping_byte_add(100), 50, 0)), again);
    assert_eq!(name(cuMemHostRegister_v2(pointer, 20000, 0)), again);
    let (mut kind, mut address) = (0u32, 0u64);
    ok(cuPointerGetAttribute((&raw mut kind).cast(), 2, pointer as u64 + 5));
    ok(cuMemHostGetDevicePointer_v2(&mut address, pointer, 0));
    assert_eq!((kind, address), (1, pointer as u64));
    let block = alloc(20000);
    ok(cuMemcpyHtoDAsync_v2(block, pointer, 20000, stream));
    ok(cuMemsetD8Async(block, 9, 100, stream));
    ok(cuMemcpyDtoHAsync_v2(pointer, block, 20000, stream));
    ok(cuStreamSynchronize(stream));
    assert!(
        memory[..100].iter().all(|byte| *byte == 9) && memory[100..].iter().all(|byte| *byte == 7)
    );
    assert_eq!(
        name(cuMemcpyHtoDAsync_v2(block, pointer, 20001, stream)),
        "CUDA_ERROR_INVALID_VALUE"
    );
    ok(cuMemHostUnregister(pointer));
    assert_eq!(name(cuMemHostUnregister(pointer)), "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED");
    assert_eq!(
        name(cuMemHostRegister_v2(4096 as *mut c_void, 4096, 0)),
        "CUDA_ERROR_INVALID_VALUE"
    );
    ok(cuPointerGetAttribute((&raw mut kind).cast(), 2, block + 5));
    assert_eq!(kind, 2);
    assert_eq!(
        name(cuPointerGetAttribute((&raw mut kind).cast(), 2, pointer as u64)),
        "CUDA_ERROR_INVALID_VALUE"
    );
}

#[test]
fn host_functions_must_not_call_the_driver() {
    static CODE: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn allocate(_: *mut c_void) {
        CODE.store(cuCtxSynchronize().0, Ordering::SeqCst);
    }
    device(0);
    let stream = stream();
    ok(cuLaunchHostFunc(stream, Some(allocate), null_mut()));
    ok(cuStreamSynchronize(stream));
    assert_eq!(CODE.load(Ordering::SeqCst), 800);
}

#[test]
fn a_thread_without_a_context_is_told() {
    device(0);
    ok(cuCtxSetCurrent(null_mut()));
    let mut pointer = 0;
    assert_eq!(name(cuMemAlloc_v2(&mut pointer, 8)), "CUDA_ERROR_INVALID_CONTEXT");
    device(0);
    let mut context = null_mut();
    ok(cuCtxGetCurrent(&mut context));
    assert_eq!(name(cuCtxEnablePeerAccess(context, 0)), "CUDA_ERROR_INVALID_DEVICE");
    device(1);
    ok(cuCtxEnablePeerAccess(context, 0));
    assert_eq!(name(cuCtxEnablePeerAccess(context, 0)), "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED");
}

/// A value goes through two streams, with or without a wait between them; how often it was right.
fn through_two_streams(wait: bool, times: u32) -> u32 {
    let (first, second, written) = (stream(), stream(), event(2));
    let (a, b) = (alloc(4), alloc(4));
    let mut right = 0;
    for n in 1..=times {
        ok(cuMemsetD32Async(a, n, 1, first));
        if wait {
            ok(cuEventRecord(written, first));
            ok(cuStreamWaitEvent(second, written, 0));
        }
        ok(cuMemcpyDtoDAsync_v2(b, a, 4, second));
        ok(cuStreamSynchronize(first));
        right += u32::from(download::<u32>(b, 1, second) == [n]);
    }
    right
}

#[test]
fn the_adversary_finds_a_missing_wait() {
    const TIMES: u32 = 20;
    if is_child() {
        device(0);
        // Memory that nobody wrote holds what is no number.
        let stream = stream();
        let fresh: Vec<f32> = download(alloc(1024), 256, stream);
        assert!(fresh.iter().all(|value| value.is_nan()));
        assert_eq!(through_two_streams(true, TIMES), TIMES);
        println!("wrong without a wait: {}", TIMES - through_two_streams(false, TIMES));
        return;
    }
    let wrong = |seed: &str| {
        let said = run_child(
            "the_adversary_finds_a_missing_wait",
            &[("TORCHRS_SIMULATED_ADVERSARY", seed)],
        );
        let (_, number) = said.split_once("wrong without a wait: ").unwrap();
        number.split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    let found = ["1", "2", "3", "4"].into_iter().map(wrong).filter(|wrong| *wrong > 0).count();
    assert!(found > 0);
}

#[test]
fn the_adversary_finds_a_missing_barrier() {
    let source = r#"
        extern "C" __global__ void k(int* y, int safe) {
            __shared__ int s[64];
            s[threadIdx.x] = threadIdx.x;
            if (safe) __syncthreads();
            y[threadIdx.x] = s[threadIdx.x ^ 1];
            if (!safe) s[threadIdx.x] = -1;
        }"#;
    if !has_compiler() {
        return;
    }
    if !is_child() {
        run_child("the_adversary_finds_a_missing_barrier", &[("TORCHRS_SIMULATED_ADVERSARY", "5")]);
        return;
    }
    device(0);
    let (k, stream, y) = (function(load(source), c"k"), stream(), alloc(256));
    let right = |safe: i32| {
        ok(launch(k, 1, 64, 0, stream, &[arg(&y), arg(&safe)]));
        let y: Vec<i32> = download(y, 64, stream);
        (0..64).all(|t| y[t as usize] == t ^ 1)
    };
    assert!((0..20).all(|_| right(1)));
    assert!(!(0..20).all(|_| right(0)));
}
