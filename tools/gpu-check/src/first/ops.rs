//! Ops by libraries against the same by other ways.

use std::time::Duration;

use torchrs::cuda::{self, library, library::Kind};
use torchrs::distributed::ReduceOp;
use torchrs::nn::functional as F;
use torchrs::ops::ConvOptions;
use torchrs::{Dtype, Error, Result, Tensor, no_grad};

use super::{apart, asked};
use crate::bench::{GPU, normal, short};
use crate::nccl;

/// One op of each library against the host.
pub fn libraries() -> Result<()> {
    torchrs::manual_seed(1);
    let host = |t: &Tensor| t.to_dtype(Dtype::F32).cpu();
    let mut said = Vec::new();
    let mut by = |what: &'static str,
                  kind: Kind,
                  call: &str,
                  most: f64,
                  op: &dyn Fn(&[Tensor]) -> Tensor,
                  inputs: &[Tensor]| {
        let (found, calls) = no_grad(|| asked(|| op(inputs)));
        let on_host: Vec<Tensor> = inputs.iter().map(host).collect();
        let distance = apart(what, &found, &no_grad(|| op(&on_host)), most)?;
        let there = library::describe()
            .into_iter()
            .any(|finding| finding.kind == kind && finding.found.is_ok());
        let used = call.is_empty() || calls.contains_key(call);
        if there && !used {
            let kernels: Vec<&String> = calls.keys().collect();
            let message = format!("{what}: {kind:?} is there and was not used, but {kernels:?}");
            return Err(Error::Other(message));
        }
        said.push(format!("{what} {distance:.0e}{}", if used { "" } else { " (by our kernel)" }));
        Ok(())
    };
    let (a, b) = (normal(&[64, 96], Dtype::BF16), normal(&[96, 32], Dtype::BF16));
    by(
        "a kernel of ours",
        Kind::Nvrtc,
        "",
        1e-6,
        &|x| &x[0].exp() * 2.0 + 1.0,
        &[normal(&[1000], Dtype::F32)],
    )?;
    by("a product", Kind::CublasLt, "cublasLtMatmul", 1e-2, &|x| x[0].matmul(&x[1]), &[a, b])?;
    let image = normal(&[2, 8, 9, 9], Dtype::BF16);
    let filter = normal(&[16, 8, 3, 3], Dtype::BF16);
    let convolve = |x: &[Tensor]| x[0].conv2d(&x[1], None, ConvOptions::default());
    by("a convolution", Kind::Cudnn, "cudnnBackendExecute", 1e-2, &convolve, &[image, filter])?;
    let heads = [(); 3].map(|()| normal(&[2, 2, 64, 64], Dtype::BF16));
    let attend = |x: &[Tensor]| x[0].scaled_dot_product_attention(&x[1], &x[2], None, true, None);
    by("attention", Kind::Cudnn, "cudnnBackendExecute", 2e-2, &attend, &heads)?;
    nccl::run(1, Duration::from_secs(15), |()| {
        nccl::in_group(|group, gpu| {
            let x = Tensor::arange(0, 1000, 1, (Dtype::F32, gpu));
            group.all_reduce(&x, ReduceOp::Avg)?;
            apart("an all-reduce", &x, &Tensor::arange(0, 1000, 1, Dtype::F32), 0.0).map(drop)
        })
    })?;
    println!("{}, an all-reduce", said.join(", "));
    Ok(())
}

/// Attention as a product, a softmax and a product, in f32.
fn by_formula(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Tensor {
    let scores = q.matmul(&k.transpose(-1, -2)) / (q.size(-1) as f64).sqrt();
    let scores = match causal {
        true => {
            let all = Tensor::ones(&scores.shape()[2..], (Dtype::Bool, GPU));
            scores.masked_fill(&all.tril(0).logical_not(), f64::NEG_INFINITY)
        }
        false => scores,
    };
    scores.softmax(-1).matmul(v)
}

/// Attention of halves, by cuDNN where it is there, against the formula: causal and not, of odd lengths.
pub fn attention() -> Result<()> {
    torchrs::manual_seed(2);
    let (mut cases, mut most, mut library) = (0, 0f64, 0);
    // The simulated GPU takes its time.
    let longest = if cuda::is_simulated() { 64 } else { usize::MAX };
    for dtype in [Dtype::BF16, Dtype::F16] {
        for (queries, keys, width, causal) in [
            (1, 1, 64, false),
            (64, 64, 64, true),
            (63, 63, 64, true),
            (129, 129, 128, true),
            (127, 65, 64, false),
            (1, 333, 128, false),
            (257, 257, 64, true),
            (257, 257, 40, false),
        ] {
            if queries.max(keys) > longest {
                continue;
            }
            let leaf = |length: usize| normal(&[2, 3, length, width], dtype).requires_grad_(true);
            let (q, k, v) = (leaf(queries), leaf(keys), leaf(keys));
            let go = normal(&[2, 3, queries, width], dtype);
            let run = || {
                let out = q.scaled_dot_product_attention(&k, &v, None, causal, None);
                (&out * &go).to_dtype(Dtype::F32).sum().backward();
                out.detach()
            };
            let (out, calls) = asked(run);
            library += calls.get("cudnnBackendExecute").map_or(0, |traffic| traffic.library_calls);
            let wide = [&q, &k, &v].map(|t| t.detach().to_dtype(Dtype::F32).requires_grad_(true));
            let want = by_formula(&wide[0], &wide[1], &wide[2], causal);
            (&want * &go.to_dtype(Dtype::F32)).sum().backward();
            let name = format!(
                "attention of {}, {queries} queries, {keys} keys, width {width}, causal {causal}",
                short(dtype)
            );
            let mut pairs = vec![("", out, want.detach())];
            for (what, a, b) in
                [(": dq", &q, &wide[0]), (": dk", &k, &wide[1]), (": dv", &v, &wide[2])]
            {
                let grad = |t: &Tensor| {
                    t.grad().ok_or_else(|| Error::Other(format!("{name}: no gradient")))
                };
                pairs.push((what, grad(a)?, grad(b)?));
            }
            for (what, found, want) in pairs {
                most = most.max(apart(&format!("{name}{what}"), &found, &want, 3e-2)?);
            }
            cases += 1;
        }
    }
    println!(
        "{cases} cases and their gradients, {library} calls of cuDNN, at most {most:.0e} apart"
    );
    Ok(())
}

/// Gradients of linear layers of halves: weight and bias by one product with sums beside it, against a product and sums.
pub fn linear() -> Result<()> {
    torchrs::manual_seed(3);
    let (mut cases, mut most, mut library) = (0, 0f64, 0);
    for dtype in [Dtype::BF16, Dtype::F16] {
        for [rows, from, to] in
            [[64, 64, 64], [33, 17, 65], [8, 768, 2304], [1000, 40, 3], [257, 768, 96]]
        {
            let leaf = |shape: &[usize]| normal(shape, dtype).requires_grad_(true);
            let (x, go) = (leaf(&[rows, from]), normal(&[rows, to], dtype));
            let bias = leaf(&[to]);
            for turned in [false, true] {
                let weight = leaf(&if turned { [from, to] } else { [to, from] });
                let run = || {
                    let y = match turned {
                        true => bias.addmm(&x, &weight, 1.0, 1.0),
                        false => F::linear(&x, &weight, Some(&bias)),
                    };
                    torchrs::autograd::backward(
                        &[&y],
                        &[Some(&go)],
                        torchrs::autograd::GraphMode::Free,
                    );
                };
                let ((), calls) = asked(run);
                library += calls.get("cublasLtMatmul").map_or(0, |traffic| traffic.library_calls);
                let [wide_go, wide_x] = [&go, &x].map(|t| t.detach().to_dtype(Dtype::F32));
                let want = wide_go.t().matmul(&wide_x);
                let want = if turned { want.t() } else { want };
                let name = format!(
                    "a layer of {}, [{rows}, {from}] to {to}, addmm {turned}",
                    short(dtype)
                );
                for (what, leaf, want) in
                    [("weight", &weight, want), ("bias", &bias, wide_go.sum_dim(&[0], false))]
                {
                    let grad =
                        leaf.grad().ok_or_else(|| Error::Other(format!("{name}: no gradient")))?;
                    most = most.max(apart(&format!("{name}: {what}"), &grad, &want, 2e-2)?);
                    leaf.set_grad(None);
                }
                x.set_grad(None);
                cases += 1;
            }
        }
    }
    println!("{cases} layers, {library} calls of cuBLASLt, at most {most:.0e} apart");
    Ok(())
}
