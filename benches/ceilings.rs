//! What this machine can do at most: multiply-adds per second and bytes copied per second, as JSON
//! lines, against which `scripts/bench-vs-torch` holds the rows of the other benchmarks.
//!
//! `cargo bench --bench ceilings -- [--threads 1,2] [--budget SECONDS]`

#[path = "common/bench.rs"]
mod bench;

use std::hint::black_box;
use std::time::Instant;

use bench::Bench;

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
        let part = BYTES / n / 4;
        let from = vec![1f32; part * n];
        let to = std::sync::Mutex::new(vec![vec![0f32; part]; n]);
        let copies = samples(&|| {
            let next = std::sync::atomic::AtomicUsize::new(0);
            let mut to = to.lock().expect("no panic");
            let parts: Vec<std::sync::Mutex<&mut Vec<f32>>> =
                to.iter_mut().map(std::sync::Mutex::new).collect();
            together(n, || {
                let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut to = parts[i].lock().expect("no panic");
                to.copy_from_slice(black_box(&from[i * part..(i + 1) * part]));
            })
        });
        bench.emit("ceiling_copy", copies, "GB/s", 2.0 * BYTES as f64 * 1e-9, &[]);
    });
}
