//! Times of pointwise ops, reductions, softmax, losses, indexing and random numbers, one JSON line
//! per row, with names and units as PyTorch's side of the benchmarks prints them (its section `elem`).
//!
//! `cargo bench --bench ops -- [FILTER ..] [--threads 1,2] [--budget SECONDS]`: rows whose name
//! contains one of the filters.

use std::time::{Duration, Instant};

use torchrs::{Dtype, Tensor, autograd, manual_seed, no_grad, set_num_threads};

use Dtype::{BF16, F32, I64};

struct Bench {
    filters: Vec<String>,
    threads: usize,
    budget: f64,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|f| name.contains(f))
    }

    /// Prints a row; `bytes` are moved per call.
    fn row<T>(&self, name: &str, bytes: usize, call: impl Fn() -> T) {
        if !self.wants(name) {
            return;
        }
        let once = |n: usize| {
            let start = Instant::now();
            (0..n).for_each(|_| drop(call()));
            start.elapsed().as_secs_f64() / n as f64
        };
        once(1);
        let per_sample = ((2e-3 / once(1).max(1e-7)) as usize).max(1);
        once(per_sample);
        let (start, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < 5 || start.elapsed() < Duration::from_secs_f64(self.budget) {
            samples.push(once(per_sample));
        }
        samples.sort_by(f64::total_cmp);
        let (least, median) = (samples[0], samples[samples.len() / 2]);
        let (threads, rate) = (self.threads, bytes as f64 * 1e-9 / least);
        println!(
            "{{\"name\": \"{name}\", \"threads\": {threads}, \"median_s\": {median:.4e}, \
             \"min_s\": {least:.4e}, \"unit\": \"GB/s\", \"rate\": {rate:.4}}}"
        );
    }
}

fn randn(shape: impl AsRef<[usize]>) -> Tensor {
    Tensor::randn(shape, F32)
}

fn leaf(shape: impl AsRef<[usize]>) -> Tensor {
    randn(shape).requires_grad_(true)
}

/// Forward and backward of `f`, whose inputs are then without gradient again.
fn step(inputs: &[&Tensor], gradient: Option<&Tensor>, f: impl Fn() -> Tensor) {
    autograd::backward(&[&f()], &[gradient], false, false);
    inputs.iter().for_each(|x| x.set_grad(None));
}

fn pointwise(bench: &Bench) {
    for (label, n) in [("64Ki", 1 << 16), ("1Mi", 1 << 20), ("16Mi", 1 << 24)] {
        let by = 4 * n;
        let (x, y) = (randn([n]), randn([n]));
        let row = |name: &str, bytes, f: &dyn Fn() -> Tensor| {
            bench.row(&format!("{name}_{label}"), bytes, || no_grad(f));
        };
        row("add", 3 * by, &|| &x + &y);
        row("mul_scalar", 2 * by, &|| &x * 2.0);
        row("relu", 2 * by, &|| x.relu());
        row("gelu", 2 * by, &|| x.gelu());
        row("exp", 2 * by, &|| x.exp());
        row("tanh", 2 * by, &|| x.tanh());
        row("sigmoid", 2 * by, &|| x.sigmoid());
        row("dropout", 2 * by, &|| x.dropout(0.1, true));
        row("randn", by, &|| randn([n]));
        row("cast_bf16", by + by / 2, &|| x.to_dtype(BF16));
        let (leaf, g) = (leaf([n]), randn([n]));
        bench.row(&format!("gelu_fwdbwd_{label}"), 5 * by, || {
            step(&[&leaf], Some(&g), || leaf.gelu())
        });
        bench.row(&format!("dropout_fwdbwd_{label}"), 4 * by, || {
            step(&[&leaf], Some(&g), || leaf.dropout(0.1, true))
        });
    }
}

fn reductions(bench: &Bench) {
    let a = randn([4096, 4096]);
    let by = 4 * a.numel();
    bench.row("sum_dim0_4096", by, || a.sum_dim(&[0], false));
    bench.row("sum_dim1_4096", by, || a.sum_dim(&[1], false));
    bench.row("sum_all_4096", by, || a.sum());
    bench.row("max_dim1_4096", by, || a.max_dim(1, false));
    bench.row("argmax_dim1_4096", by, || a.argmax_dim(1, false));
    bench.row("max_dim0_4096", by, || a.max_dim(0, false));
    bench.row("amax_dim1_4096", by, || a.amax(&[1], false));
    bench.row("var_dim1_4096", by, || a.var(&[1], 1, false));
    bench.row("norm_4096", by, || a.norm());
    bench.row("logsumexp_dim1_4096", by, || a.logsumexp(&[1], false));
    bench.row("cumsum_dim1_4096", 2 * by, || a.cumsum(1));
    let images = randn([64, 64, 56, 56]);
    bench.row("sum_nhw_64x64x56x56", 4 * images.numel(), || images.sum_dim(&[0, 2, 3], false));
    let narrow = randn([1 << 20, 10]);
    bench.row("sum_dim0_1Mix10", 4 * narrow.numel(), || narrow.sum_dim(&[0], false));
    bench.row("sum_dim1_1Mix10", 4 * narrow.numel(), || narrow.sum_dim(&[1], false));
    let half = a.to_dtype(BF16);
    bench.row("sum_dim0_4096_bf16", by / 2, || half.sum_dim(&[0], false));
    bench.row("sum_dim1_4096_bf16", by / 2, || half.sum_dim(&[1], false));
    let small = randn([64, 128]);
    bench.row("sum_dim0_64x128", 4 * small.numel(), || small.sum_dim(&[0], false));
}

fn softmax(bench: &Bench) {
    let s = randn([4096, 1024]);
    let by = 4 * s.numel();
    bench.row("softmax_4096x1024", 2 * by, || s.softmax(-1));
    bench.row("log_softmax_4096x1024", 2 * by, || s.log_softmax(-1));
    bench.row("softmax_dim0_4096x1024", 2 * by, || s.softmax(0));
    let (leaf, g) = (leaf([4096, 1024]), randn([4096, 1024]));
    bench.row("softmax_4096x1024_fwdbwd", 5 * by, || step(&[&leaf], Some(&g), || leaf.softmax(-1)));
    let classes = randn([1024, 10]);
    bench.row("softmax_1024x10", 2 * 4 * classes.numel(), || classes.softmax(-1));
    let target = Tensor::randint(0, 10, [1024], I64);
    let leaf = classes.requires_grad_(true);
    bench.row("cross_entropy_1024x10_fwdbwd", 3 * 4 * leaf.numel(), || {
        step(&[&leaf], None, || leaf.cross_entropy(&target))
    });
    if bench.wants("cross_entropy_4096x50257") || bench.wants("cross_entropy_1024x50257_fwdbwd") {
        let (scores, target) = (randn([4096, 50257]), Tensor::randint(0, 50257, [4096], I64));
        bench.row("cross_entropy_4096x50257", 4 * scores.numel(), || {
            no_grad(|| scores.cross_entropy(&target))
        });
        let part = scores.narrow(0, 0, 1024).clone_contiguous().requires_grad_(true);
        let target = target.narrow(0, 0, 1024);
        bench.row("cross_entropy_1024x50257_fwdbwd", 3 * 4 * part.numel(), || {
            step(&[&part], None, || part.cross_entropy(&target))
        });
    }
}

fn indexing(bench: &Bench) {
    let table = randn([50257, 768]);
    let index = Tensor::randint(0, 50257, [4096], I64);
    let by = 2 * 4096 * 768 * 4;
    bench.row("embedding_4096_of_50257x768", by, || table.embedding(&index, None));
    bench.row("index_select_4096_of_50257x768", by, || table.index_select(0, &index));
    let (leaf, g) = (table.requires_grad_(true), randn([4096, 768]));
    bench.row("embedding_4096_fwdbwd_dense", by, || {
        step(&[&leaf], Some(&g), || leaf.embedding(&index, None))
    });
    let s = randn([4096, 1024]);
    let places = Tensor::randint(0, 1024, [4096, 1024], I64);
    bench.row("gather_dim1_4096x1024", 16 * s.numel(), || s.gather(1, &places));
    bench.row("sort_4096x1024", 4 * s.numel(), || s.sort(1, false));
    bench.row("topk50_4096x1024", 4 * s.numel(), || s.topk(50, 1, true));
    bench.row("cat_dim1_4096x1024", 16 * s.numel(), || Tensor::cat(&[&s, &s], 1));
    bench.row("flip_dim1_4096x1024", 8 * s.numel(), || s.flip(&[1]));
    bench.row("tril_4096x1024", 8 * s.numel(), || s.tril(0));
}

fn main() {
    let mut filters = Vec::new();
    let (mut threads, mut budget) = (vec![1, 2], 0.5);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("a value after the flag");
        match argument.as_str() {
            "--threads" => {
                threads =
                    value().split(',').map(|n| n.parse().expect("a number of threads")).collect();
            }
            "--budget" => budget = value().parse().expect("seconds"),
            "--bench" => {}
            _ => filters.push(argument),
        }
    }
    for threads in threads {
        set_num_threads(threads);
        manual_seed(0);
        let bench = Bench { filters: filters.clone(), threads, budget };
        pointwise(&bench);
        reductions(&bench);
        softmax(&bench);
        indexing(&bench);
    }
}
