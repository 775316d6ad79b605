//! Kernels: compiled at run time, with arguments, shared memory, barriers, shuffles and atomics.

mod support;
use std::ptr::null_mut;
use support::*;
use torchrs_simulated_gpu::api::driver::{context::*, kernel::*, module::*, stream::*};

#[test]
fn vectors_are_added() {
    if !has_compiler() {
        return;
    }
    device(0);
    let module = load(
        r#"
        extern "C" __global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* c, long long n) {
            long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) c[i] = a[i] + b[i];
        }"#,
    );
    let add = function(module, c"add");
    let stream = stream();
    let n = 1000usize;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| 2.0 * i as f32).collect();
    let (x, y, z) = (upload(&a, stream), upload(&b, stream), alloc(n * 4));
    ok(launch(add, 8, 128, 0, stream, &[arg(&x), arg(&y), arg(&z), arg(&(n as i64))]));
    let c: Vec<f32> = download(z, n, stream);
    assert!((0..n).all(|i| c[i] == 3.0 * i as f32));
    ok(cuModuleUnload(module));
    ok(cuStreamDestroy_v2(stream));
}
