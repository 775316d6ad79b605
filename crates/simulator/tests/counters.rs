//! The numbers that tests ask for. One test, as they count the whole process.

mod support;
use std::ptr::null_mut;
use support::*;
use torchrs_simulated_gpu::api::driver::{context::*, event::*, memcpy::*, memory::*, stream::*};
use torchrs_simulated_gpu::{
    torchrs_simulated_allocated_bytes as allocated_bytes,
    torchrs_simulated_allocations as allocations, torchrs_simulated_copies as copies,
    torchrs_simulated_kernel_launches as launches, torchrs_simulated_synchronizing_calls as waits,
};

#[test]
fn calls_are_counted() {
    device(0);
    let (stream, mut event, mut pinned) = (stream(), null_mut(), null_mut());
    ok(cuEventCreate(&mut event, 0));
    ok(cuMemHostAlloc(&mut pinned, 4096, 0));
    assert_eq!((waits(), allocations(), copies(), allocated_bytes()), (0, 0, 0, 0));
    let block = alloc(1000);
    assert_eq!((allocations(), allocated_bytes()), (1, 1024));
    // Nothing here waits for the device.
    ok(cuMemcpyHtoDAsync_v2(block, pinned, 1000, stream));
    ok(cuMemcpyHtoDAsync_v2(block, [1u8; 8].as_ptr().cast(), 8, stream));
    ok(cuMemcpyDtoHAsync_v2(pinned, block, 1000, stream));
    ok(cuMemsetD8Async(block, 1, 1000, stream));
    ok(cuEventRecord(event, stream));
    ok(cuStreamWaitEvent(stream, event, 0));
    let _ = (cuStreamQuery(stream), cuEventQuery(event));
    assert_eq!((waits(), copies()), (0, 3));
    // All of these do.
    ok(cuStreamSynchronize(stream));
    ok(cuEventSynchronize(event));
    ok(cuCtxSynchronize());
    download::<u8>(block, 1, stream);
    ok(cuMemFree_v2(block));
    ok(cuMemFreeHost(pinned));
    assert_eq!((waits(), allocated_bytes()), (6, 0));
    if has_compiler() {
        let kernel = function(load("extern \"C\" __global__ void k() {}"), c"k");
        ok(launch(kernel, 1, 1, 0, stream, &[]));
        assert_eq!(launches(), 1);
    }
}
