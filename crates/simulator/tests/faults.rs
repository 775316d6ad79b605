//! What goes wrong: illegal addresses, deadlocks, assertions, memory that runs out, faults on demand.
//! Each breaks its context, so that each runs in a process of its own.

mod support;
use std::time::{Duration, Instant};
use support::*;
use torchrs_simulated_gpu::api::driver::{context::*, memcpy::*, memory::*, stream::*};

/// Runs a kernel of one pointer in a process of its own; its code must be the one that the process
/// gives from then on, and its line on standard error is returned.
fn broken_by(test: &str, source: &str, threads: u32, code: &str) -> Option<String> {
    if !has_compiler() {
        return None;
    }
    if !is_child() {
        return Some(run_child(test, &[]));
    }
    device(1);
    let module = load(source);
    let (k, stream, y) = (function(module, c"k"), stream(), alloc(1000));
    ok(launch(k, 3, threads, 0, stream, &[arg(&y)]));
    assert_eq!(name(cuStreamSynchronize(stream)), code);
    // The context stays broken; another device's does not.
    let mut other = 0;
    assert_eq!(name(cuMemAlloc_v2(&mut other, 8)), code);
    assert_eq!(name(cuMemFree_v2(y)), code);
    assert_eq!(name(cuCtxSynchronize()), code);
    assert_eq!(name(cuStreamQuery(stream)), code);
    assert_eq!(name(launch(k, 1, 1, 0, stream, &[arg(&y)])), code);
    device(2);
    ok(cuMemFree_v2(alloc(8)));
    device(1);
    assert_eq!(name(cuMemAlloc_v2(&mut other, 8)), code);
    // After its last release a context begins anew, with all of the memory.
    while cuDevicePrimaryCtxRelease_v2(1) == Code::SUCCESS {}
    device(1);
    let (mut free, mut total) = (0, 0);
    ok(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(free, total);
    ok(cuMemFree_v2(alloc(8)));
    None
}

#[test]
fn an_access_past_the_end_is_an_illegal_address() {
    let source = "extern \"C\" __global__ void k(int* y) { if (blockIdx.x == 1 && threadIdx.x == 5) y[256] = 1; }";
    let said = broken_by(
        "an_access_past_the_end_is_an_illegal_address",
        source,
        32,
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    );
    if let Some(said) = said {
        assert!(
            said.contains(
                "simulated GPU 1: kernel `k`, block (1,0,0), thread (5,0,0): illegal address"
            ),
            "{said}"
        );
        assert!(said.contains("24 bytes after the end of the allocation of 1000 bytes"), "{said}");
    }
}

#[test]
fn a_null_pointer_is_an_illegal_address() {
    let source = "extern \"C\" __global__ void k(int* y) { *(volatile int*)8 = 1; }";
    broken_by("a_null_pointer_is_an_illegal_address", source, 1, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn a_barrier_that_not_all_threads_reach_is_an_error() {
    let source = "extern \"C\" __global__ void k(int* y) {\n if (threadIdx.x < 10)\n __syncthreads();\n else\n __syncthreads();\n }";
    let test = "a_barrier_that_not_all_threads_reach_is_an_error";
    if let Some(said) = broken_by(test, source, 48, "CUDA_ERROR_LAUNCH_FAILED") {
        assert!(said.contains("kernel `k`, block (0,0,0)") && said.contains("deadlock"), "{said}");
        assert!(said.contains("threads 0-9 wait at the barrier of line 3"), "{said}");
        assert!(said.contains("threads 10-47 wait at the barrier of line 5"), "{said}");
    }
}

#[test]
fn a_warp_whose_lanes_never_come_is_an_error() {
    let source = "extern \"C\" __global__ void k(int* y) {\n if (threadIdx.x < 4) y[0] = __shfl_sync(0xffffffffu, 1, 0);\n else __syncthreads(); }";
    let test = "a_warp_whose_lanes_never_come_is_an_error";
    if let Some(said) = broken_by(test, source, 32, "CUDA_ERROR_LAUNCH_FAILED") {
        assert!(
            said.contains("threads 0-3 wait in a shuffle of line 2 with mask 0xffffffff"),
            "{said}"
        );
    }
}

#[test]
fn assertions_hold_or_end_the_kernel() {
    let source = "extern \"C\" __global__ void k(int* y) { assert(threadIdx.x < 7); }";
    if let Some(said) =
        broken_by("assertions_hold_or_end_the_kernel", source, 32, "CUDA_ERROR_ASSERT")
    {
        assert!(
            said.contains("thread (7,0,0): test.cu:1: assertion `threadIdx.x < 7` failed"),
            "{said}"
        );
    }
}

#[test]
fn a_stack_has_an_end() {
    let source = "__device__ __noinline__ int deep(volatile int* y, int n) { volatile char a[4096]; a[0] = n; return n ? deep(y, n - 1) + a[0] : 0; }
        extern \"C\" __global__ void k(int* y) { y[0] = deep(y, 1000); }";
    broken_by("a_stack_has_an_end", source, 1, "CUDA_ERROR_HARDWARE_STACK_ERROR");
}

#[test]
fn a_division_by_zero_ends_the_kernel() {
    let source = "extern \"C\" __global__ void k(int* y) { int zero = y[0] & 0; y[1] = (int)threadIdx.x / zero; }";
    broken_by("a_division_by_zero_ends_the_kernel", source, 1, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn an_access_that_is_not_aligned_is_an_error() {
    let source =
        "extern \"C\" __global__ void k(float* y) { *(float4*)(y + 1) = make_float4(1, 2, 3, 4); }";
    broken_by(
        "an_access_that_is_not_aligned_is_an_error",
        source,
        1,
        "CUDA_ERROR_MISALIGNED_ADDRESS",
    );
}

#[test]
fn a_fault_outside_kernels_is_the_programs_own() {
    let test = "a_fault_outside_kernels_is_the_programs_own";
    if !has_compiler() {
        return;
    }
    if is_child() {
        device(0);
        let module = load("extern \"C\" __global__ void k() {}");
        let stream = stream();
        ok(launch(function(module, c"k"), 1, 1, 0, stream, &[]));
        ok(cuStreamSynchronize(stream));
        // SAFETY: none; this is the fault.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(16).write_volatile(1) };
    }
    let output = child(test, &[]).output().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&output.status),
        Some(11),
        "{}",
        said(&output)
    );
}

#[test]
fn memory_runs_out_at_the_limit() {
    if !is_child() {
        run_child("memory_runs_out_at_the_limit", &[("TORCHRS_SIMULATED_MEMORY", "1MiB")]);
        return;
    }
    device(0);
    let (mut free, mut total, mut pointer) = (0, 0, 0);
    let half = alloc(512 << 10);
    ok(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!((free, total), (512 << 10, 1 << 20));
    assert_eq!(name(cuMemAlloc_v2(&mut pointer, (512 << 10) + 1)), "CUDA_ERROR_OUT_OF_MEMORY");
    ok(cuMemFree_v2(alloc(512 << 10)));
    ok(cuMemFree_v2(half));
    ok(cuMemFree_v2(alloc(1 << 20)));
    device(3);
    ok(cuMemFree_v2(alloc(1 << 20)));
}

#[test]
fn the_allocation_that_is_asked_for_fails() {
    if !is_child() {
        run_child(
            "the_allocation_that_is_asked_for_fails",
            &[("TORCHRS_SIMULATED_FAULT", "oom@2")],
        );
        return;
    }
    device(0);
    let mut pointer = 0;
    ok(cuMemAlloc_v2(&mut pointer, 8));
    assert_eq!(name(cuMemAlloc_v2(&mut pointer, 8)), "CUDA_ERROR_OUT_OF_MEMORY");
    ok(cuMemAlloc_v2(&mut pointer, 8));
}

#[test]
fn the_kernel_that_is_asked_for_faults() {
    if !has_compiler() {
        return;
    }
    if !is_child() {
        run_child(
            "the_kernel_that_is_asked_for_faults",
            &[("TORCHRS_SIMULATED_FAULT", "illegal-address@2")],
        );
        return;
    }
    device(0);
    let module = load("extern \"C\" __global__ void k() {}");
    let (k, stream) = (function(module, c"k"), stream());
    ok(launch(k, 1, 1, 0, stream, &[]));
    ok(cuStreamSynchronize(stream));
    ok(launch(k, 1, 1, 0, stream, &[]));
    assert_eq!(name(cuStreamSynchronize(stream)), "CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn the_kernel_that_is_asked_for_hangs() {
    if !has_compiler() {
        return;
    }
    if !is_child() {
        run_child("the_kernel_that_is_asked_for_hangs", &[("TORCHRS_SIMULATED_FAULT", "hang@1")]);
        return;
    }
    device(0);
    let module = load("extern \"C\" __global__ void k(int* y) { *y = 3; }");
    let (k, hung, alive, y) = (function(module, c"k"), stream(), stream(), alloc(4));
    ok(launch(k, 1, 1, 0, hung, &[arg(&y)]));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(200) {
        assert_eq!(name(cuStreamQuery(hung)), "CUDA_ERROR_NOT_READY");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The other streams go on.
    ok(launch(k, 1, 1, 0, alive, &[arg(&y)]));
    ok(cuStreamSynchronize(alive));
    assert_eq!(download::<i32>(y, 1, alive), [3]);
}

#[test]
fn bad_pointers_are_invalid_values() {
    device(0);
    let (stream, block) = (stream(), alloc(1000));
    let buffer = [0u8; 2000];
    let invalid = "CUDA_ERROR_INVALID_VALUE";
    assert_eq!(name(cuMemFree_v2(block + 512)), invalid);
    assert_eq!(name(cuMemFree_v2(4096)), invalid);
    assert_eq!(name(cuMemcpyHtoDAsync_v2(block, buffer.as_ptr().cast(), 1001, stream)), invalid);
    assert_eq!(name(cuMemcpyHtoDAsync_v2(block + 999, buffer.as_ptr().cast(), 2, stream)), invalid);
    assert_eq!(name(cuMemcpyDtoDAsync_v2(block, buffer.as_ptr() as u64, 8, stream)), invalid);
    assert_eq!(name(cuMemsetD8Async(block, 0, 1001, stream)), invalid);
    assert_eq!(name(cuMemsetD32Async(block + 2, 0, 1, stream)), invalid);
    ok(cuMemcpyHtoDAsync_v2(block, buffer.as_ptr().cast(), 1000, stream));
    ok(cuMemFree_v2(block));
    assert_eq!(name(cuMemFree_v2(block)), invalid);
    ok(cuStreamDestroy_v2(stream));
    assert_eq!(name(cuStreamSynchronize(stream)), "CUDA_ERROR_INVALID_HANDLE");
}
