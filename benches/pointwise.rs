//! Times of pointwise ops and copies, and what one small op costs beside its work; one JSON line per
//! row, with names and units as PyTorch's side of the benchmarks prints them (sections `elem` and
//! `overhead`).
//!
//! `cargo bench --bench pointwise -- [FILTER ..] [--threads 1,2] [--budget SECONDS]`: rows whose name
//! contains one of the filters.

#[path = "common/bench.rs"]
mod bench;

use std::cell::RefCell;

use bench::{Bench, numbers};
use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential};
use torchrs::ops::pointwise;
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::tensor::Operand;
use torchrs::{Dtype, Tensor, autograd, no_grad};

/// What a call costs when there is hardly any work.
fn overhead(b: &Bench) {
    for n in [1, 1024] {
        let (x, y) = (numbers([n]), numbers([n]));
        b.row(&format!("add_{n}_nograd"), "us", 0.0, || drop(&x + &y));
        b.row(&format!("add_{n}_inplace"), "us", 0.0, || _ = x.add_(&y));
        let leaf = numbers([n]).requires_grad_(true);
        b.row(&format!("add_{n}_grad_fwd"), "us", 0.0, || drop(&leaf + &y));
        b.row(&format!("add_sum_{n}_fwd_bwd"), "us", 0.0, || {
            (&leaf + &y).sum().backward();
            leaf.set_grad(None);
        });
    }
    let x = numbers([1024]).requires_grad_(true);
    b.row("chain100_mul_1024_fwd_bwd", "us", 0.0, || {
        let mut y = &x * 1.0001;
        for _ in 1..100 {
            y = &y * 1.0001;
        }
        y.sum().backward();
        x.set_grad(None);
    });
    let (x, y) = (numbers([32, 32]), numbers([32, 32]));
    b.row("matmul_32_nograd", "us", 0.0, || drop(x.matmul(&y)));
    let leaf = numbers([32, 32]).requires_grad_(true);
    b.row("matmul_32_grad_fwd", "us", 0.0, || drop(leaf.matmul(&y)));
    let v = numbers([64, 64]);
    b.row("view_reshape_transpose_64", "us", 0.0, || v.view([4096]).reshape([64, 64]).t());
    b.row("empty_1024", "us", 0.0, || Tensor::empty([1024], Dtype::F32));
    b.bytes("zeros_1Mi", 4 << 20, || Tensor::zeros([1 << 20], Dtype::F32));
    small_network(b);
}

/// A small network's training step, which is hardly more than overhead.
fn small_network(b: &Bench) {
    let net = Sequential::new()
        .append(Linear::new(64, 128))
        .append(ReLU)
        .append(Linear::new(128, 128))
        .append(ReLU)
        .append(Linear::new(128, 10));
    let (x, y) = (numbers([32, 64]), Tensor::randint(0, 10, [32], Dtype::I64));
    let optimizer = RefCell::new(SGD::new(net.parameters(), SGDOptions::default()));
    b.row("mlp_64_128_128_10_b32_step_sgd", "us", 0.0, || {
        let mut optimizer = optimizer.borrow_mut();
        optimizer.zero_grad();
        net.forward(&x).cross_entropy(&y).backward();
        optimizer.step();
    });
    b.row("mlp_64_128_128_10_b32_fwd_nograd", "us", 0.0, || no_grad(|| net.forward(&x)));
}

fn elementwise(b: &Bench) {
    for (label, n) in [("64Ki", 1 << 16), ("1Mi", 1 << 20), ("16Mi", 1 << 24)] {
        let (x, y) = (numbers([n]), numbers([n]));
        let row = |op: &str, bytes: usize, call: &dyn Fn() -> Tensor| {
            b.bytes(&format!("{op}_{label}"), bytes * n, call)
        };
        row("add", 12, &|| &x + &y);
        let into = |op: &str, bytes: usize, inputs: &[Operand<'_>]| {
            let op_row = pointwise::tables().find(|row| row.name == op).expect("a row");
            let out = Tensor::zeros([n], Dtype::F32);
            b.row(&format!("{op}_out_{label}"), "GB/s", 1e-9 * (bytes * n) as f64, || {
                pointwise::apply_out(op_row, inputs, &[], &out)
            });
        };
        into("add", 12, &[(&x).into(), (&y).into()]);
        into("exp", 8, &[(&x).into()]);
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
        b.row(&format!("gelu_fwdbwd_{label}"), "GB/s", 20e-9 * n as f64, || {
            autograd::backward(&[&leaf.gelu()], &[Some(&gradient)], autograd::GraphMode::Free);
            leaf.set_grad(None);
        });
    }
}

/// The other functions, of numbers in the cache.
fn functions(b: &Bench) {
    let n = 1 << 16;
    let x = numbers([n]);
    let y = x.flip(&[0]);
    let (inside, positive) = (x.tanh(), x.abs() + 0.01);
    macro_rules! rows {
        ($x:ident: $($name:ident)*) => {
            $(b.bytes(concat!(stringify!($name), "_64Ki"), 8 * n, || $x.$name());)*
        };
        ($x:ident, $y:ident: $($name:ident)*) => {
            $(b.bytes(concat!(stringify!($name), "_two_64Ki"), 12 * n, || $x.$name(&$y));)*
        };
    }
    rows!(x: exp2 expm1 cos tan atan sinh cosh asinh erf erfc i0 silu mish softsign hardswish logsigmoid);
    rows!(inside: asin acos atanh erfinv);
    rows!(positive: log log1p log2 log10 sqrt rsqrt acosh lgamma digamma);
    rows!(x: abs neg sign square reciprocal floor round isnan);
    b.bytes("softplus_64Ki", 8 * n, || x.softplus(1.0, 20.0));
    b.bytes("elu_64Ki", 8 * n, || x.elu(1.0));
    b.bytes("leaky_relu_64Ki", 8 * n, || x.leaky_relu(0.01));
    b.bytes("clamp_64Ki", 8 * n, || x.clamp(-0.5, 0.5));
    b.bytes("pow_scalar_64Ki", 8 * n, || positive.pow(2.5));
    b.bytes("pow_cube_64Ki", 8 * n, || x.pow(3.0));
    rows!(positive, y: pow xlogy);
    rows!(x, y: div maximum atan2 hypot remainder fmod floor_divide copysign logaddexp eq);
    let mask = x.gt(0.0);
    b.bytes("where_64Ki", 13 * n, || mask.where_(&x, &y));
    b.bytes("lerp_64Ki", 12 * n, || x.lerp(&y, 0.3));
    b.bytes("addcmul_64Ki", 16 * n, || x.addcmul(&y, &inside, 0.5));
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
    Bench::main(|bench| {
        overhead(bench);
        elementwise(bench);
        functions(bench);
        broadcasts_and_copies(bench);
    });
}
