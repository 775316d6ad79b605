//! What of CUDA's language the compiler takes, beyond what the other tests use.

mod support;
use std::ffi::c_char;
use std::ptr::{null, null_mut};
use support::*;
use torchrs_simulated_gpu::api::nvrtc::{Outcome, nvrtcVersion, program::*};

#[test]
fn programs_bring_headers_and_definitions() {
    if !has_compiler() {
        return;
    }
    let source =
        c"#include \"part/scale.h\"\nextern \"C\" __global__ void k(float* y) { *y = scale(N); }";
    let header = c"__device__ inline float scale(float x) { return 2 * x; }";
    let (headers, names) = ([header.as_ptr()], [c"part/scale.h".as_ptr()]);
    let mut program = null_mut();
    let made = nvrtcCreateProgram(
        &mut program,
        source.as_ptr(),
        null(),
        1,
        headers.as_ptr(),
        names.as_ptr(),
    );
    assert_eq!(made, Outcome::SUCCESS);
    let missing: [*const c_char; 0] = [];
    assert_eq!(nvrtcCompileProgram(program, 0, missing.as_ptr()), Outcome::COMPILATION);
    let options = [c"-DN=3".as_ptr(), c"--device-debug".as_ptr(), c"-arch=compute_90".as_ptr()];
    let outcome = nvrtcCompileProgram(program, 3, options.as_ptr());
    let mut log = [0u8; 4096];
    nvrtcGetProgramLog(program, log.as_mut_ptr().cast());
    assert_eq!(outcome, Outcome::SUCCESS, "{}", String::from_utf8_lossy(&log));
    assert_eq!(nvrtcDestroyProgram(&mut program), Outcome::SUCCESS);
    assert!(program.is_null());
    assert_eq!(nvrtcDestroyProgram(&mut program), Outcome::INVALID_PROGRAM);
    let (mut major, mut minor) = (0, 0);
    assert_eq!(nvrtcVersion(&mut major, &mut minor), Outcome::SUCCESS);
    assert_eq!((major, minor), (13, 0));
}

#[test]
fn the_languages_corners() {
    let Some(module) = compiled(
        r#"
        // A word in a comment: extern "C" __global__ void ghost(int x) {}
        #if __CUDA_ARCH__ != 900 || !defined(TORCHRS_SIMULATED)
        #error "the architecture"
        #endif
        extern __shared__ __align__(16) double pool[];
        namespace inner {
            template <int N> __device__ int twice() { __shared__ int cell; cell = N; __syncthreads(); return 2 * cell; }
            __device__ double global_number = 0.5;
        }
        __global__ void late(int* y, int n);
        extern "C" {
        __global__ void no_arguments() { assert(blockDim.x == 4 && gridDim.y == 1 && warpSize == 32); }
        static __device__ __noinline__ int helper(int x) { return x + 1; }
        __global__ __launch_bounds__(64) void many(char a, short b, int c, long long d, float e, double f, const int4 g,
                                                   unsigned char* __restrict__ h, double* const y) {
            alignas(16) __shared__ float aligned[4];
            aligned[threadIdx.x] = e;
            pool[threadIdx.x] = f + a + b + c + d + aligned[threadIdx.x] + g.x + g.w;
            __syncthreads();
            double sum = inner::global_number;
            for (int i = 0; i < 4; ++i) sum += ((double*)pool)[i];
            if (threadIdx.x == 0) { *y = sum + helper(inner::twice<7>()); *h = '}'; }
            else inner::twice<7>();
        }
        }
        __global__ void late(int* y, int n) { y[0] = n; }"#,
    ) else {
        return;
    };
    let stream = stream();
    ok(launch(function(module, c"no_arguments"), 1, 4, 0, stream, &[]));
    let (h, y) = (alloc(1), alloc(8));
    let four = [10i32, 0, 0, 20];
    let arguments = [
        arg(&1i8),
        arg(&2i16),
        arg(&3i32),
        arg(&(1i64 << 40)),
        arg(&0.5f32),
        arg(&0.25f64),
        arg(&four),
        arg(&h),
        arg(&y),
    ];
    ok(launch(function(module, c"many"), 1, 4, 64, stream, &arguments));
    let one = 1.0 + 2.0 + 3.0 + (1u64 << 40) as f64 + 0.5 + 0.25 + 10.0 + 20.0;
    assert_eq!(download::<f64>(y, 1, stream), [0.5 + 4.0 * one + 15.0]);
    assert_eq!(download::<u8>(h, 1, stream), [b'}']);
}

#[test]
fn modules_that_are_loaded_again_are_their_own() {
    if !has_compiler() {
        return;
    }
    device(0);
    let stream = stream();
    let y = alloc(4);
    for n in 0..5 {
        let module = load(&format!("extern \"C\" __global__ void k(int* y) {{ *y = {n}; }}"));
        ok(launch(function(module, c"k"), 1, 1, 0, stream, &[arg(&y)]));
        ok(torchrs_simulated_gpu::api::driver::module::cuModuleUnload(module));
        assert_eq!(download::<i32>(y, 1, stream), [n]);
    }
}
