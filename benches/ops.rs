//! Times of random numbers, reductions, softmax, losses and indexing, one JSON line per
//! row, with names and units as PyTorch's side of the benchmarks prints them (its section `elem`).
//!
//! `cargo bench --bench ops -- [FILTER ..] [--threads 1,2] [--budget SECONDS]`: rows whose name
//! contains one of the filters.

#[path = "common/bench.rs"]
mod bench;

use bench::Bench;
use torchrs::{Dtype, Tensor, autograd, manual_seed, no_grad};

use Dtype::{BF16, F16, F32, I64};

fn randn(shape: impl AsRef<[usize]>) -> Tensor {
    Tensor::randn(shape, F32)
}

fn leaf(shape: impl AsRef<[usize]>) -> Tensor {
    randn(shape).requires_grad_(true)
}

/// Forward and backward of `f`, whose inputs are then without gradient again.
fn step(inputs: &[&Tensor], gradient: Option<&Tensor>, f: impl Fn() -> Tensor) {
    autograd::backward(&[&f()], &[gradient], autograd::GraphMode::Free);
    inputs.iter().for_each(|x| x.set_grad(None));
}

fn random(bench: &Bench) {
    for (label, n) in [("64Ki", 1 << 16), ("1Mi", 1 << 20), ("16Mi", 1 << 24)] {
        let by = 4 * n;
        let x = randn([n]);
        bench.bytes(&format!("dropout_{label}"), 2 * by, || no_grad(|| x.dropout(0.1, true)));
        bench.bytes(&format!("randn_{label}"), by, || randn([n]));
        let (leaf, g) = (leaf([n]), randn([n]));
        bench.bytes(&format!("dropout_fwdbwd_{label}"), 4 * by, || {
            step(&[&leaf], Some(&g), || leaf.dropout(0.1, true))
        });
    }
}

fn reductions(bench: &Bench) {
    let a = randn([4096, 4096]);
    let by = 4 * a.numel();
    bench.bytes("sum_dim0_4096", by, || a.sum_dim(&[0], false));
    bench.bytes("sum_dim1_4096", by, || a.sum_dim(&[1], false));
    bench.bytes("sum_all_4096", by, || a.sum());
    bench.bytes("max_dim1_4096", by, || a.max_dim(1, false));
    bench.bytes("argmax_dim1_4096", by, || a.argmax_dim(1, false));
    bench.bytes("max_dim0_4096", by, || a.max_dim(0, false));
    bench.bytes("amax_dim1_4096", by, || a.amax(&[1], false));
    bench.bytes("var_dim1_4096", by, || a.var_dim(&[1], 1, false));
    bench.bytes("norm_4096", by, || a.norm());
    bench.bytes("logsumexp_dim1_4096", by, || a.logsumexp(&[1], false));
    bench.bytes("cumsum_dim1_4096", 2 * by, || a.cumsum(1));
    let images = randn([64, 64, 56, 56]);
    bench.bytes("sum_nhw_64x64x56x56", 4 * images.numel(), || images.sum_dim(&[0, 2, 3], false));
    let narrow = randn([1 << 20, 10]);
    bench.bytes("sum_dim0_1Mix10", 4 * narrow.numel(), || narrow.sum_dim(&[0], false));
    bench.bytes("sum_dim1_1Mix10", 4 * narrow.numel(), || narrow.sum_dim(&[1], false));
    let half = a.to_dtype(BF16);
    bench.bytes("sum_dim0_4096_bf16", by / 2, || half.sum_dim(&[0], false));
    bench.bytes("sum_dim1_4096_bf16", by / 2, || half.sum_dim(&[1], false));
    let half = a.to_dtype(F16);
    bench.bytes("sum_dim1_4096_f16", by / 2, || half.sum_dim(&[1], false));
    let planes = randn([8, 2048, 7, 7]);
    bench.bytes("mean_hw_8x2048x7x7", 4 * planes.numel(), || planes.mean_dim(&[2, 3], false));
    let short = randn([8192, 128]);
    bench.bytes("sum_dim1_8192x128", 4 * short.numel(), || short.sum_dim(&[1], false));
    let (half, brain) = (short.to_dtype(F16), short.to_dtype(BF16));
    bench.bytes("sum_dim1_8192x128_f16", 2 * short.numel(), || half.sum_dim(&[1], false));
    bench.bytes("sum_dim1_8192x128_bf16", 2 * short.numel(), || brain.sum_dim(&[1], false));
    bench.bytes("amax_dim1_8192x128", 4 * short.numel(), || short.amax(&[1], false));
    let small = randn([64, 128]);
    bench.bytes("sum_dim0_64x128", 4 * small.numel(), || small.sum_dim(&[0], false));
}

fn softmax(bench: &Bench) {
    let s = randn([4096, 1024]);
    let by = 4 * s.numel();
    bench.bytes("softmax_4096x1024", 2 * by, || s.softmax(-1));
    bench.bytes("log_softmax_4096x1024", 2 * by, || s.log_softmax(-1));
    bench.bytes("softmax_dim0_4096x1024", 2 * by, || s.softmax(0));
    let (leaf, g) = (leaf([4096, 1024]), randn([4096, 1024]));
    bench.bytes("softmax_4096x1024_fwdbwd", 5 * by, || {
        step(&[&leaf], Some(&g), || leaf.softmax(-1))
    });
    let classes = randn([1024, 10]);
    bench.bytes("softmax_1024x10", 2 * 4 * classes.numel(), || classes.softmax(-1));
    let target = Tensor::randint(0, 10, [1024], I64);
    let leaf = classes.requires_grad_(true);
    bench.bytes("cross_entropy_1024x10_fwdbwd", 3 * 4 * leaf.numel(), || {
        step(&[&leaf], None, || leaf.cross_entropy(&target))
    });
    if ["cross_entropy_4096x50257", "cross_entropy_1024x50257_fwdbwd"]
        .iter()
        .any(|name| bench.wants(name))
    {
        let (scores, target) = (randn([4096, 50257]), Tensor::randint(0, 50257, [4096], I64));
        bench.bytes("cross_entropy_4096x50257", 4 * scores.numel(), || {
            no_grad(|| scores.cross_entropy(&target))
        });
        let part = scores.narrow(0, 0, 1024).clone_contiguous().requires_grad_(true);
        let target = target.narrow(0, 0, 1024);
        bench.bytes("cross_entropy_1024x50257_fwdbwd", 3 * 4 * part.numel(), || {
            step(&[&part], None, || part.cross_entropy(&target))
        });
    }
}

fn indexing(bench: &Bench) {
    let table = randn([50257, 768]);
    let index = Tensor::randint(0, 50257, [4096], I64);
    let by = 2 * 4096 * 768 * 4;
    bench.bytes("embedding_4096_of_50257x768", by, || table.embedding(&index, None));
    bench.bytes("index_select_4096_of_50257x768", by, || table.index_select(0, &index));
    let (leaf, g) = (table.requires_grad_(true), randn([4096, 768]));
    bench.bytes("embedding_4096_fwdbwd_dense", by, || {
        step(&[&leaf], Some(&g), || leaf.embedding(&index, None))
    });
    let s = randn([4096, 1024]);
    let places = Tensor::randint(0, 1024, [4096, 1024], I64);
    bench.bytes("gather_dim1_4096x1024", 16 * s.numel(), || s.gather(1, &places));
    bench.bytes("sort_4096x1024", 4 * s.numel(), || s.sort(1, false));
    bench.bytes("topk50_4096x1024", 4 * s.numel(), || s.topk(50, 1, true));
    bench.bytes("cat_dim1_4096x1024", 16 * s.numel(), || Tensor::cat(&[&s, &s], 1));
    bench.bytes("flip_dim1_4096x1024", 8 * s.numel(), || s.flip(&[1]));
    bench.bytes("tril_4096x1024", 8 * s.numel(), || s.tril(0));
}

fn main() {
    Bench::main(|bench| {
        manual_seed(0);
        random(bench);
        reductions(bench);
        softmax(bench);
        indexing(bench);
    });
}
