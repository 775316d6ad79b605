//! Kernels: compiled at run time, with arguments, shared memory, barriers, shuffles and atomics.

mod support;
use support::*;
use torchrs_simulated_gpu::api::driver::{module::*, stream::*};

#[test]
fn vectors_are_added() {
    let Some(module) = compiled(
        r#"
        extern "C" __global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* c, long long n) {
            long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) c[i] = a[i] + b[i];
        }"#,
    ) else {
        return;
    };
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

#[test]
fn declared_and_dynamic_shared_memory_have_one_limit() {
    let Some(module) = compiled(
        r#"
        template <class T, int N> __device__ T turned(T x) {
            __shared__ T cells[N], more;
            cells[threadIdx.x] = x;
            if (threadIdx.x == 0) more = x;
            __syncthreads();
            return cells[blockDim.x - 1 - threadIdx.x] + more;
        }
        template <class T> __device__ __noinline__ T twice(T x) { return turned<T, 500>(x) + turned<T, 500>(x); }
        extern "C" __global__ void large(double* x) {
            extern __shared__ double pool[];
            __shared__ double first[24];
            first[threadIdx.x] = twice(x[threadIdx.x]);
            pool[threadIdx.x] = first[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = pool[threadIdx.x];
        }
        extern "C" __global__ void small(float* x) { x[threadIdx.x] = turned<float, 31>(x[threadIdx.x]); }
        extern "C" __global__ void none(float* x) { extern __shared__ float pool[]; pool[0] = *x; }"#,
    ) else {
        return;
    };
    let declared = |kernel| {
        let mut bytes = -1;
        ok(cuFuncGetAttribute(&mut bytes, 1, kernel));
        bytes
    };
    let large = function(module, c"large");
    let bytes = 8 * (500 + 1 + 24);
    assert_eq!(declared(large), bytes);
    assert_eq!(declared(function(module, c"small")), 4 * 32);
    assert_eq!(declared(function(module, c"none")), 0);
    let (stream, x) = (stream(), alloc(8 * 24));
    let most = (48 << 10) - bytes as u32;
    ok(launch(large, 1, 24, most, stream, &[arg(&x)]));
    assert_eq!(
        name(launch(large, 1, 24, most + 1, stream, &[arg(&x)])),
        "CUDA_ERROR_INVALID_VALUE"
    );
    let optin = (227 << 10) - bytes;
    assert_eq!(name(cuFuncSetAttribute(large, 8, optin + 1)), "CUDA_ERROR_INVALID_VALUE");
    ok(cuFuncSetAttribute(large, 8, optin));
    ok(launch(large, 1, 24, optin as u32, stream, &[arg(&x)]));
    ok(cuStreamDestroy_v2(stream));
}

#[test]
fn more_declared_shared_memory_than_there_is_does_not_compile() {
    if !has_compiler() {
        return;
    }
    let of = |bytes: u32| {
        let text = r#"extern "C" __global__ void greedy(char* x) {
            __shared__ char cells[N]; cells[threadIdx.x] = 1; __syncthreads(); *x = cells[N - 1]; }"#;
        compile(&text.replace('N', &bytes.to_string()), &["--gpu-architecture=sm_90"])
    };
    assert!(of(48 << 10).is_ok());
    let log = of((48 << 10) + 1).unwrap_err();
    assert!(log.contains("'greedy' uses too much shared data (0xc001 bytes, 0xc000 max)"), "{log}");
}

#[test]
fn blocks_reduce_through_shared_memory() {
    let Some(module) = compiled(
        r#"
        #define DEFINE(name, T)                                                             \
            extern "C" __global__ void __launch_bounds__(256) name(const T* x, T* y) {      \
                __shared__ T part[256];                                                     \
                extern __shared__ __align__(16) unsigned char raw[];                        \
                T* copy = reinterpret_cast<T*>(raw);                                        \
                unsigned t = threadIdx.x;                                                   \
                part[t] = x[blockIdx.x * blockDim.x + t];                                   \
                for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {                          \
                    __syncthreads();                                                        \
                    if (t < s) part[t] += part[t + s];                                      \
                }                                                                           \
                __syncthreads();                                                            \
                copy[t] = part[0];                                                          \
                __syncthreads();                                                            \
                if (t == 0) y[blockIdx.x] = copy[blockDim.x - 1];                           \
            }
        DEFINE(sum_f32, float)
        DEFINE(sum_i64, long long)
        extern "C" __global__ void vote(int* out) {
            int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
            int n = __syncthreads_count(t % 3 == 0);
            int any = __syncthreads_or(t == 5), all = __syncthreads_and(t != 5);
            out[t] = n * 100 + any * 10 + all;
        }"#,
    ) else {
        return;
    };
    let stream = stream();
    let values: Vec<f32> = (0..4 * 256).map(|i| (i % 7) as f32).collect();
    let (x, y) = (upload(&values, stream), alloc(16));
    ok(launch(function(module, c"sum_f32"), 4, 256, 1024, stream, &[arg(&x), arg(&y)]));
    let sums: Vec<f32> = download(y, 4, stream);
    assert!((0..4).all(|b| sums[b] == values[b * 256..][..256].iter().sum::<f32>()));
    let values: Vec<i64> = (0..2 * 64).map(|i| i << 33).collect();
    let (x, y) = (upload(&values, stream), alloc(16));
    ok(launch(function(module, c"sum_i64"), 2, 64, 512, stream, &[arg(&x), arg(&y)]));
    let sums: Vec<i64> = download(y, 2, stream);
    assert_eq!(sums, [values[..64].iter().sum::<i64>(), values[64..].iter().sum::<i64>()]);
    assert_eq!(
        name(launch(function(module, c"sum_f32"), 1, 512, 0, stream, &[arg(&x), arg(&y)])),
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    );

    let out = alloc(4 * 60);
    let parameters = [arg(&out)];
    ok(torchrs_simulated_gpu::api::driver::kernel::cuLaunchKernel(
        function(module, c"vote"),
        1,
        1,
        1,
        5,
        4,
        3,
        0,
        stream,
        parameters.as_ptr() as *mut _,
        std::ptr::null_mut(),
    ));
    assert_eq!(download::<i32>(out, 60, stream), [2010; 60]);
}

#[test]
fn warps_scan_with_shuffles() {
    let Some(module) = compiled(
        r#"
        template <class T> __device__ __forceinline__ T scan(T v, int lane) {
            for (int d = 1; d < 32; d *= 2) {
                T o = __shfl_up_sync(0xffffffffu, v, d);
                if (lane >= d) v += o;
            }
            return v;
        }
        extern "C" __global__ void scans(const int* x, int* y, const double* u, double* v) {
            int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
            y[i] = scan(x[i], lane);
            v[i] = scan(u[i], lane);
        }
        extern "C" __global__ void others(unsigned* out) {
            unsigned t = threadIdx.x, full = 0xffffffffu;
            unsigned r = __ballot_sync(full, t % 2);
            r ^= __shfl_xor_sync(full, t, 1) * 3;
            r += __shfl_down_sync(full, t, 4, 8) + __shfl_sync(full, t, 9, 8);
            r += __any_sync(full, t == 3) + 2 * __all_sync(full, t < 32);
            r += __reduce_add_sync(full, t) + (unsigned)__reduce_min_sync(full, -(int)t) + __reduce_max_sync(full, t);
            r += __match_any_sync(full, t / 4);
            if (t < 16) {
                r += __reduce_xor_sync(0xffffu, t) + __popc(__ballot_sync(0xffffu, 1));
            } else {
                __syncwarp(0xffff0000u);
                r += __shfl_sync(0xffff0000u, t, 17);
            }
            out[t] = r;
        }
        extern "C" __global__ void early(int* out, int n) {
            int t = threadIdx.x;
            if (t >= n) return;
            __syncthreads();
            int s = t;
            for (int d = 16; d > 0; d /= 2) {
                int o = __shfl_xor_sync(0xffffffffu, s, d);
                s += (t ^ d) < n ? o : 0;
            }
            out[t] = s;
        }"#,
    ) else {
        return;
    };
    let stream = stream();
    let x: Vec<i32> = (0..256).map(|i| i % 11 - 3).collect();
    let u: Vec<f64> = x.iter().map(|x| f64::from(*x) * 0.5).collect();
    let (px, py, pu, pv) = (upload(&x, stream), alloc(1024), upload(&u, stream), alloc(2048));
    ok(launch(
        function(module, c"scans"),
        2,
        128,
        0,
        stream,
        &[arg(&px), arg(&py), arg(&pu), arg(&pv)],
    ));
    let (y, v): (Vec<i32>, Vec<f64>) = (download(py, 256, stream), download(pv, 256, stream));
    for i in 0..256 {
        let sum: i32 = x[i / 32 * 32..=i].iter().sum();
        assert_eq!((y[i], v[i]), (sum, f64::from(sum) * 0.5));
    }

    let out = alloc(128);
    ok(launch(function(module, c"others"), 1, 32, 0, stream, &[arg(&out)]));
    let wanted: Vec<u32> = (0..32u32)
        .map(|t| {
            let mut r = 0xaaaa_aaaau32 ^ ((t ^ 1) * 3);
            r = r.wrapping_add(if t % 8 < 4 { t + 4 } else { t } + (t / 8 * 8 + 1));
            r = r.wrapping_add(1 + 2 + 496).wrapping_add(-31i32 as u32).wrapping_add(31);
            r = r.wrapping_add(0xf << (t / 4 * 4));
            r.wrapping_add(if t < 16 { 16 } else { 17 })
        })
        .collect();
    assert_eq!(download::<u32>(out, 32, stream), wanted);

    // Lanes that have ended are not waited for.
    ok(launch(function(module, c"early"), 1, 64, 0, stream, &[arg(&out), arg(&4i32)]));
    assert_eq!(download::<i32>(out, 4, stream), [6; 4]);
}

#[test]
fn atomics_and_mathematics() {
    let Some(module) = compiled(
        r#"
        struct Pair { float a; double b; };
        extern "C" __global__ void atomics(float* f, double* d, int* i, unsigned* u, unsigned long long* l, Pair p) {
            atomicAdd(f, p.a);
            atomicAdd(d, p.b);
            atomicAdd(i, -1);
            atomicMax(i + 1, (int)threadIdx.x);
            atomicMin(i + 2, -(int)blockIdx.x);
            atomicOr(u, 1u << threadIdx.x % 32);
            atomicAdd(u + 1, 1u);
            atomicInc(u + 2, 9u);
            atomicAdd(l, 1ull << 32);
            unsigned old = u[3], seen;
            do { seen = old; old = atomicCAS(u + 3, seen, seen + 2); } while (old != seen);
        }
        __constant__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
        extern "C" __global__ void mathematics(float* y) {
            float4 v = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
            y[0] = expf(1.0f) + __expf(0.0f) + sqrt(v.w) + rsqrtf(4.0f);
            y[1] = erff(0.5f) + tgammaf(5.0f) + lgammaf(3.0f) + erfinvf(erff(0.3f));
            y[2] = fmaf(2.0f, 3.0f, 4.0f) + min(1.0f, 2.0f) + max(3, 4) + fabsf(-1.0f) + pow(2.0f, 3);
            y[3] = __int_as_float(__float_as_int(1.5f)) + __clz(1) + __popc(255u) + __ffs(8) + (float)(__brev(1u) >> 31);
            y[4] = __float2int_rn(2.5f) + __float2int_rz(-1e20f) * 0.0f + __umulhi(1u << 31, 4u) + sinpif(0.5f);
            y[5] = isnan(y[0]) + 2 * isinf(1.0f / 0.0f) + copysignf(1.0f, -2.0f) + table[2];
            y[6] = normcdfinvf(0.975f);
            y[7] = (float)erfinv(0.999999);
        }"#,
    ) else {
        return;
    };
    let stream = stream();
    let f = upload(&[0.0f32], stream);
    let d = upload(&[0.0f64], stream);
    let i = upload(&[0i32, -1, 5], stream);
    let u = upload(&[0u32; 4], stream);
    let l = upload(&[0u64], stream);
    #[repr(C)]
    struct Pair(f32, f64);
    let pair = Pair(0.5, 0.25);
    let arguments = [arg(&f), arg(&d), arg(&i), arg(&u), arg(&l), arg(&pair)];
    ok(launch(function(module, c"atomics"), 5, 100, 0, stream, &arguments));
    assert_eq!(download::<f32>(f, 1, stream), [250.0]);
    assert_eq!(download::<f64>(d, 1, stream), [125.0]);
    assert_eq!(download::<i32>(i, 3, stream), [-500, 99, -4]);
    assert_eq!(download::<u32>(u, 4, stream), [u32::MAX, 500, 0, 1000]);
    assert_eq!(download::<u64>(l, 1, stream), [500 << 32]);

    let y = alloc(32);
    ok(launch(function(module, c"mathematics"), 1, 1, 0, stream, &[arg(&y)]));
    let y: Vec<f32> = download(y, 8, stream);
    let wanted = [
        1f32.exp() + 1.0 + 2.0 + 0.5,
        0.520_499_9 + 24.0 + 2f32.ln() + 0.3,
        10.0 + 1.0 + 4.0 + 1.0 + 8.0,
        1.5 + 31.0 + 8.0 + 4.0 + 1.0,
        2.0 + 2.0 + 1.0,
        2.0 - 1.0 + 3.0,
        1.959_964,
        3.458_910_7,
    ];
    for (y, wanted) in y.iter().zip(wanted) {
        assert!((y - wanted).abs() <= 1e-5 * wanted, "{y} {wanted}");
    }
}

#[test]
fn the_compilers_errors_are_in_the_log() {
    if !has_compiler() {
        return;
    }
    device(0);
    let log =
        compile("extern \"C\" __global__ void k(float* x) {\n  x[0] = undefined_name;\n}", &[])
            .unwrap_err();
    assert!(log.contains("test.cu:2") && log.contains("undefined_name"), "{log}");
    let log = compile("", &["--no-such-option"]).unwrap_err();
    assert!(log.contains("--no-such-option"), "{log}");
    let mut missing = std::ptr::null_mut();
    let module = load("__global__ void mangled() {} extern \"C\" __global__ void k() {}");
    assert_eq!(
        name(cuModuleGetFunction(&mut missing, module, c"mangled".as_ptr())),
        "CUDA_ERROR_NOT_FOUND"
    );
    let image = [7u8; 64];
    assert_eq!(
        name(cuModuleLoadData(&mut missing, image.as_ptr().cast())),
        "CUDA_ERROR_INVALID_IMAGE"
    );
}

#[test]
fn shared_memory_has_a_limit_that_can_be_raised() {
    let Some(module) = compiled(
        "extern \"C\" __global__ void k(int* y) { extern __shared__ int s[]; s[threadIdx.x] = 1; y[0] = s[0]; }",
    ) else {
        return;
    };
    let (k, stream, y) = (function(module, c"k"), stream(), alloc(4));
    assert_eq!(name(launch(k, 1, 1, 100 << 10, stream, &[arg(&y)])), "CUDA_ERROR_INVALID_VALUE");
    ok(cuFuncSetAttribute(k, 8, 227 << 10));
    ok(launch(k, 1, 1, 227 << 10, stream, &[arg(&y)]));
    assert_eq!(download::<i32>(y, 1, stream), [1]);
    let mut blocks = 0;
    ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, k, 256, 0));
    assert_eq!(blocks, 8);
}

/// Prints what a thread costs; nothing is asserted of it, as machines differ.
#[test]
fn threads_that_never_wait_are_cheap() {
    let Some(module) = compiled(
        "extern \"C\" __global__ void k(int* y) { y[threadIdx.x] = blockIdx.x; }
         extern \"C\" __global__ void b(int* y) { __syncthreads(); y[threadIdx.x] = blockIdx.x; }",
    ) else {
        return;
    };
    let (stream, y) = (stream(), alloc(4096));
    for (name, blocks) in [(c"k", 4000u32), (c"b", 400)] {
        let kernel = function(module, name);
        ok(launch(kernel, 1, 256, 0, stream, &[arg(&y)]));
        ok(cuStreamSynchronize(stream));
        let start = std::time::Instant::now();
        ok(launch(kernel, blocks, 256, 0, stream, &[arg(&y)]));
        ok(cuStreamSynchronize(stream));
        let time = start.elapsed().as_nanos() as f64 / f64::from(blocks * 256);
        eprintln!("{name:?}: {time:.1} ns a thread");
    }
}

#[test]
fn copies_that_nobody_waits_for_are_found() {
    let source = r#"
        extern "C" __global__ void k(uint4* y, const uint4* x, int safe) {
            extern __shared__ uint4 s[];
            uint4 nothing = {0, 0, 0, 0};
            s[threadIdx.x] = s[threadIdx.x + 64] = nothing;
            __sim_copy_16(s + threadIdx.x, x + threadIdx.x, true);
            __sim_commit_copies();
            __sim_copy_16(s + threadIdx.x + 64, x + threadIdx.x, threadIdx.x % 2 == 0);
            __sim_commit_copies();
            // The first group, or neither.
            __sim_await_copies(safe ? 1 : 2);
            y[threadIdx.x] = s[threadIdx.x];
            __sim_await_copies(safe ? 0 : 1);
            y[threadIdx.x + 64] = s[threadIdx.x + 64];
        }"#;
    let Some(module) = compiled(source) else {
        return;
    };
    let (k, stream) = (function(module, c"k"), stream());
    let x: Vec<u32> = (1..257).collect();
    let (from, to) = (upload(&x, stream), alloc(2 * 1024));
    let parts = |safe: i32| {
        ok(launch(k, 1, 64, 2 * 1024, stream, &[arg(&to), arg(&from), arg(&safe)]));
        let y: Vec<u32> = download(to, 512, stream);
        let first = (0..64).filter(|t| y[4 * t] == x[4 * t]).count();
        let second = (0..64).filter(|t| y[256 + 4 * t] == if t % 2 == 0 { x[4 * t] } else { 0 });
        (first, second.count())
    };
    assert_eq!(parts(1), (64, 64));
    let (first, second) = parts(0);
    assert!((8..56).contains(&first) && second < 64, "{first} {second}");
    assert_eq!(parts(1), (64, 64));
}
