//! What this machine can do at most: multiply-adds per second and bytes copied per second, as JSON
//! lines, against which `scripts/bench-vs-torch` holds the rows of the other benchmarks.
//!
//! `cargo bench --bench ceilings -- [--threads 1,2] [--budget SECONDS]`

#[path = "common/bench.rs"]
mod bench;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use bench::Bench;
use torchrs::{Dtype, Tensor};

/// Floating-point operations of a call of [`multiply_adds`].
const FLOPS: f64 = 2.0 * (STEPS * SUMS * LANES) as f64;
const STEPS: usize = 4 << 20;
/// As many sums as hide an instruction's latency.
const SUMS: usize = 12;
const LANES: usize = 8;
const BYTES: usize = 256 << 20;

fn multiply_adds() {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: just asked for. Half as many steps of registers twice as wide.
        return unsafe { avx512() };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: just asked for.
        return unsafe { avx2() };
    }
    let mut sums = [[0f32; LANES]; SUMS];
    let (a, b) = (black_box(0.999f32), black_box(0.001f32));
    for _ in 0..STEPS {
        for sum in sums.as_flattened_mut() {
            *sum = *sum * a + b;
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512() {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_setzero_ps(); SUMS];
    let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
    for _ in 0..STEPS / 2 {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2() {
    use std::arch::x86_64::*;
    let mut sums = [_mm256_setzero_ps(); SUMS];
    let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
}

/// Copies past the caches where the processor can: an ordinary store first reads the line that it overwrites.
///
/// # Safety
/// Both are valid for `numbers`, a multiple of 16, start at cache lines and do not overlap.
unsafe fn copy(from: *const f32, to: *mut f32, numbers: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: just asked for; the rest is this function's own condition.
        return unsafe { copy_avx(from, to, numbers) };
    }
    // SAFETY: this function's own condition.
    unsafe { to.copy_from_nonoverlapping(from, numbers) }
}

/// # Safety
/// As [`copy`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_avx(from: *const f32, to: *mut f32, numbers: usize) {
    use std::arch::x86_64::*;
    for line in (0..numbers).step_by(16) {
        // SAFETY: within `numbers`, whose lines are aligned; what is brought near may lie behind them.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line + 1024).cast());
            _mm256_stream_ps(to.add(line), _mm256_load_ps(from.add(line)));
            _mm256_stream_ps(to.add(line + 8), _mm256_load_ps(from.add(line + 8)));
        }
    }
    _mm_sfence();
}

/// Seconds that all of `n` threads take for `f`, of the time in which all of them work.
fn together(n: usize, f: impl Fn() + Sync) -> f64 {
    let barrier = std::sync::Barrier::new(n);
    std::thread::scope(|scope| {
        let one = || {
            barrier.wait();
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        };
        let threads: Vec<_> = (0..n).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|t| t.join().expect("it does not panic")).fold(0.0, f64::max)
    })
}

fn main() {
    Bench::main(|bench| {
        let n = bench.threads;
        let samples = |f: &dyn Fn() -> f64| {
            let (start, mut all) = (Instant::now(), Vec::new());
            while all.len() < 5 || start.elapsed().as_secs_f64() < bench.budget {
                all.push(f());
            }
            all
        };
        let flops = samples(&|| together(n, multiply_adds));
        bench.emit("ceiling_f32", flops, "GFLOP/s", FLOPS * n as f64 * 1e-9, &[]);
        // Whole cache lines.
        let part = BYTES / n / 64 * 16;
        // The library's memory, for which large pages are asked.
        let memory = || Tensor::ones([part * n], Dtype::F32);
        let (from, to) = (memory(), memory());
        let (from, to) = (from.data_ptr() as usize, to.data_ptr() as usize);
        let copies = samples(&|| {
            let next = AtomicUsize::new(0);
            together(n, || {
                let start = next.fetch_add(1, Relaxed) * part * 4;
                // SAFETY: both tensors are there, of `n` parts, and each thread has a part of its own.
                unsafe { copy((from + start) as *const f32, (to + start) as *mut f32, part) }
            })
        });
        bench.emit("ceiling_copy", copies, "GB/s", (8 * part * n) as f64 * 1e-9, &[]);
    });
}
