//! Times of pointwise ops and copies, and what one small op costs beside its work; one JSON line per
//! row, with names and units as PyTorch's side of the benchmarks prints them (sections `elem` and
//! `overhead`).
//!
//! `cargo bench --bench pointwise -- [FILTER ..] [--threads 1,2] [--budget SECONDS]`: rows whose name
//! contains one of the filters.

use std::time::{Duration, Instant};

use torchrs::{Dtype, Tensor, autograd, no_grad, set_num_threads};

struct Bench {
    filters: Vec<String>,
    threads: usize,
    budget: f64,
}

impl Bench {
    /// Prints a row. `gigabytes` is what a call moves; without it the rate is in microseconds.
    fn row(&self, name: &str, gigabytes: Option<f64>, call: impl Fn()) {
        if !self.filters.is_empty() && !self.filters.iter().any(|f| name.contains(f)) {
            return;
        }
        let once = |n: usize| {
            let start = Instant::now();
            (0..n).for_each(|_| call());
            start.elapsed().as_secs_f64() / n as f64
        };
        once(1);
        let per_sample = ((2e-3 / once(1).max(1e-8)) as usize).max(1);
        once(per_sample);
        let (start, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < 5 || start.elapsed() < Duration::from_secs_f64(self.budget) {
            samples.push(once(per_sample));
        }
        samples.sort_by(f64::total_cmp);
        let (least, median) = (samples[0], samples[samples.len() / 2]);
        let (unit, rate) = gigabytes.map_or(("us", least * 1e6), |work| ("GB/s", work / least));
        let threads = self.threads;
        println!(
            "{{\"name\": \"{name}\", \"threads\": {threads}, \"median_s\": {median:.4e}, \
             \"min_s\": {least:.4e}, \"unit\": \"{unit}\", \"rate\": {rate:.4}}}"
        );
    }

    fn bytes(&self, name: &str, bytes: usize, call: impl Fn() -> Tensor) {
        self.row(name, Some(bytes as f64 * 1e-9), || no_grad(|| drop(call())));
    }
}

/// Numbers between -2 and 2.
fn numbers(shape: impl AsRef<[usize]>) -> Tensor {
    let n = shape.as_ref().iter().product::<usize>();
    let mut state = 1u32;
    let data: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 4_194_304.0 - 2.0
        })
        .collect();
    Tensor::from_slice(&data, shape)
}

/// What a call costs when there is hardly any work.
fn overhead(b: &Bench) {
    for n in [1, 1024] {
        let (x, y) = (numbers([n]), numbers([n]));
        b.row(&format!("add_{n}_nograd"), None, || drop(&x + &y));
        b.row(&format!("add_{n}_inplace"), None, || _ = x.add_(&y));
        let leaf = numbers([n]).requires_grad_(true);
        b.row(&format!("add_{n}_grad_fwd"), None, || drop(&leaf + &y));
        b.row(&format!("add_sum_{n}_fwd_bwd"), None, || {
            (&leaf + &y).sum().backward();
            leaf.set_grad(None);
        });
    }
    let x = numbers([1024]).requires_grad_(true);
    b.row("chain100_mul_1024_fwd_bwd", None, || {
        let mut y = &x * 1.0001;
        for _ in 1..100 {
            y = &y * 1.0001;
        }
        y.sum().backward();
        x.set_grad(None);
    });
}

fn elementwise(b: &Bench) {
    for (label, n) in [("64Ki", 1 << 16), ("1Mi", 1 << 20), ("16Mi", 1 << 24)] {
        let (x, y) = (numbers([n]), numbers([n]));
        let row = |op: &str, bytes: usize, call: &dyn Fn() -> Tensor| {
            b.bytes(&format!("{op}_{label}"), bytes * n, call)
        };
        row("add", 12, &|| &x + &y);
        row("mul_scalar", 8, &|| &x * 2.0);
        row("relu", 8, &|| x.relu());
        row("gelu", 8, &|| x.gelu());
        row("gelu_tanh", 8, &|| x.gelu_tanh());
        row("exp", 8, &|| x.exp());
        row("tanh", 8, &|| x.tanh());
        row("sigmoid", 8, &|| x.sigmoid());
        row("sin", 8, &|| x.sin());
        row("gt_scalar", 5, &|| x.gt(0.0));
        row("cast_bf16", 6, &|| x.to_dtype(Dtype::BF16));
        let (leaf, gradient) = (numbers([n]).requires_grad_(true), numbers([n]));
        b.row(&format!("gelu_fwdbwd_{label}"), Some(20e-9 * n as f64), || {
            autograd::backward(&[&leaf.gelu()], &[Some(&gradient)], false, false);
            leaf.set_grad(None);
        });
    }
}

fn broadcasts_and_copies(b: &Bench) {
    let n = 4096;
    let a = numbers([n, n]);
    let (row, column) = (numbers([n]), numbers([n, 1]));
    b.bytes("add_bcast_row_4096", 8 * n * n, || &a + &row);
    b.bytes("add_bcast_col_4096", 8 * n * n, || &a + &column);
    b.bytes("add_transposed_4096", 12 * n * n, || &a + &a.t());
    b.bytes("transpose_copy_4096", 8 * n * n, || a.t().contiguous());
    b.bytes("clone_4096", 8 * n * n, || a.clone_contiguous());
    let q = numbers([4, 512, 12, 64]);
    b.bytes("permute_copy_4x512x12x64", 8 * q.numel(), || q.transpose(1, 2).contiguous());
    let (image, bias) = (numbers([64, 32, 14, 14]), numbers([32, 1, 1]));
    b.bytes("add_channel_bias_64x32x14x14", 8 * image.numel(), || &image + &bias);
    let (pixels, mean) = (numbers([200_000, 3]), numbers([3]));
    b.bytes("sub_short_rows_200000x3", 8 * pixels.numel(), || &pixels - &mean);
}

fn main() {
    let mut bench = Bench { filters: Vec::new(), threads: 1, budget: 0.3 };
    let mut threads = vec![1];
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("the option has a value");
        match &argument[..] {
            "--threads" => {
                let number = |n: &str| n.parse().expect("a number of threads");
                threads = value().split(',').map(number).collect();
            }
            "--budget" => bench.budget = value().parse().expect("seconds"),
            _ => bench.filters.push(argument),
        }
    }
    for n in threads {
        set_num_threads(n);
        bench.threads = n;
        overhead(&bench);
        elementwise(&bench);
        broadcasts_and_copies(&bench);
    }
}
