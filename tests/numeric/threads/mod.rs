//! The number of threads changes no bit of any result: how work is divided must not change what is
//! added up, or in which order. Shapes are large enough to be divided, with sizes that no number of
//! threads divides.

mod rarer;

use torchrs::nn::utils::clip_grad_norm_;
use torchrs::nn::{GRU, LSTM, Module, RNNOptions, functional as F};
use torchrs::ops::{
    Conv2dOptions, Conv3dOptions, ConvTransposeOptions, GridSampleOptions, InterpolateMode,
    InterpolateOptions, OneOrEach, Pool2dOptions,
};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Tensor, autograd, manual_seed, set_num_threads};

/// Normalised by the batch's statistics.
fn batch_norm(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    let (weight, bias) = (Some(weight), Some(bias));
    F::batch_norm(x, F::BatchNormOptions { weight, bias, training: true, ..Default::default() })
}

/// Standard normal numbers, the same in each call.
fn numbers(shape: &[usize], seed: u64) -> Tensor {
    torchrs::Generator::new(seed).randn(shape, Dtype::F32)
}

/// Integers below `limit`.
fn below(limit: i64, shape: &[usize]) -> Tensor {
    torchrs::Generator::new(7).randint(0, limit, shape, Dtype::I64)
}

/// The result and the gradients of all its inputs.
fn both<const N: usize>(
    shapes: [&[usize]; N],
    forward: impl Fn([&Tensor; N]) -> Tensor,
) -> Vec<Tensor> {
    of_type(Dtype::F32, shapes, forward)
}

/// A few steps of an optimizer over a large and a small parameter.
fn steps<O: Optimizer>(new: impl Fn(Vec<Tensor>) -> O) -> Vec<Tensor> {
    let parameters: Vec<Tensor> =
        [&[1003, 517][..], &[33]].map(|s| numbers(s, 3).requires_grad_(true)).to_vec();
    let mut optimizer = new(parameters.clone());
    for step in 0..3 {
        for p in &parameters {
            p.set_grad(Some(numbers(p.shape(), 10 + step)));
        }
        optimizer.step();
    }
    parameters.iter().map(Tensor::detach).collect()
}

type Case = (&'static str, Box<dyn Fn() -> Vec<Tensor>>);

fn reductions() -> Vec<Case> {
    let shape = [37, 129, 111];
    let mut cases: Vec<Case> = vec![
        ("sum", Box::new(|| both([&[37, 129, 111]], |[x]| x.sum()))),
        ("mean", Box::new(|| both([&[37, 129, 111]], |[x]| x.mean()))),
        ("var", Box::new(|| both([&[37, 129, 111]], |[x]| x.var_dim(&[], 1, false)))),
        ("norm", Box::new(|| both([&[37, 129, 111]], |[x]| x.norm()))),
        ("prod", Box::new(|| both([&[300_007]], |[x]| (x * 1e-3 + 1.0).prod()))),
        ("sum of a vector", Box::new(|| both([&[1_000_003]], |[x]| x.sum()))),
        (
            "sum of a few long rows",
            Box::new(|| both([&[3, 300_007]], |[x]| x.sum_dim(&[1], false))),
        ),
        ("sum of a tall matrix", Box::new(|| both([&[100_003, 5]], |[x]| x.sum_dim(&[0], false)))),
        ("sum of a transposed", Box::new(|| both([&[701, 903]], |[x]| x.t().sum()))),
        ("sum_to_size", Box::new(|| both([&[61, 40, 301]], |[x]| x.sum_to_size(&[40, 1])))),
        ("median", Box::new(|| vec![numbers(&[300_007], 0).median()])),
        ("argmax", Box::new(|| vec![numbers(&[300_007], 0).argmax()])),
        ("histc", Box::new(|| vec![numbers(&[300_007], 0).histc(50, -3.0, 3.0)])),
        (
            "bincount",
            Box::new(|| vec![below(50, &[300_007]).bincount(Some(&numbers(&[300_007], 0)), 0)]),
        ),
    ];
    for dim in 0..shape.len() as i64 {
        let mut add = |name: &'static str, op: fn(&Tensor, i64) -> Tensor| {
            cases.push((name, Box::new(move || both([&shape], |[x]| op(x, dim)))))
        };
        add("sum_dim", |x, d| x.sum_dim(&[d], false));
        add("mean_dim", |x, d| x.mean_dim(&[d], false));
        add("var over a dim", |x, d| x.var_dim(&[d], 1, false));
        add("norm_dim", |x, d| x.norm_dim(2, &[d], false));
        add("norm_dim with p = 3", |x, d| x.norm_dim(3, &[d], false));
        add("logsumexp", |x, d| x.logsumexp(&[d], false));
        add("prod_dim", |x, d| (x * 0.01 + 1.0).prod_dim(d, false));
        add("max_dim", |x, d| x.max_dim(d, false).0);
        add("softmax", |x, d| x.softmax(d));
        add("log_softmax", |x, d| x.log_softmax(d));
        add("cumsum", |x, d| x.cumsum(d));
        add("cumprod", |x, d| (x * 0.01 + 1.0).cumprod(d));
        add("logcumsumexp", |x, d| x.logcumsumexp(d));
        add("sort", |x, d| x.sort(d, false).0);
    }
    cases.push(("cumsum of a vector", Box::new(|| both([&[1_000_003]], |[x]| x.cumsum(0)))));
    cases
}

fn losses_and_norms() -> Vec<Case> {
    vec![
        (
            "cross_entropy",
            Box::new(|| {
                let target = below(1003, &[517]);
                both([&[517, 1003]], |[x]| x.cross_entropy(&target))
            }),
        ),
        (
            "cross_entropy of images",
            Box::new(|| {
                let target = below(19, &[5, 83, 79]);
                both([&[5, 19, 83, 79]], |[x]| x.cross_entropy(&target))
            }),
        ),
        (
            "layer_norm",
            Box::new(|| {
                both([&[1031, 257], &[257], &[257]], |[x, w, b]| {
                    x.layer_norm(&[257], Some(w), Some(b), 1e-5)
                })
            }),
        ),
        (
            "rms_norm",
            Box::new(|| both([&[1031, 257], &[257]], |[x, w]| x.rms_norm(&[257], Some(w), None))),
        ),
        (
            "batch_norm",
            Box::new(|| both([&[13, 31, 37, 29], &[31], &[31]], |[x, w, b]| batch_norm(x, w, b))),
        ),
        (
            "batch_norm of a few channels",
            Box::new(|| both([&[67, 2, 61, 59], &[2], &[2]], |[x, w, b]| batch_norm(x, w, b))),
        ),
        (
            "batch_norm of rows",
            Box::new(|| both([&[4099, 67], &[67], &[67]], |[x, w, b]| batch_norm(x, w, b))),
        ),
        (
            "group_norm",
            Box::new(|| {
                both([&[7, 32, 37, 31], &[32], &[32]], |[x, w, b]| {
                    x.group_norm(4, Some(w), Some(b), 1e-5)
                })
            }),
        ),
        (
            "group_norm in one group",
            Box::new(|| {
                both([&[1, 6, 301, 203], &[6], &[6]], |[x, w, b]| {
                    x.group_norm(1, Some(w), Some(b), 1e-5)
                })
            }),
        ),
    ]
}

fn indexing() -> Vec<Case> {
    vec![
        (
            "embedding",
            Box::new(|| {
                let indices = below(101, &[61, 333]);
                both([&[101, 67]], |[w]| w.embedding(&indices, None))
            }),
        ),
        (
            "scatter_add",
            Box::new(|| {
                let index = below(97, &[3001, 67]);
                both([&[97, 67], &[3001, 67]], |[x, s]| x.scatter_add(0, &index, s))
            }),
        ),
        (
            "scatter_add of a vector",
            Box::new(|| {
                let index = below(11, &[300_007]);
                both([&[11], &[300_007]], |[x, s]| x.scatter_add(0, &index, s))
            }),
        ),
        (
            "index_add",
            Box::new(|| {
                let index = below(97, &[3001]);
                both([&[97, 67], &[3001, 67]], |[x, s]| x.index_add(0, &index, s))
            }),
        ),
        (
            "index_select",
            Box::new(|| {
                let index = below(97, &[3001]);
                both([&[97, 67]], |[x]| x.index_select(0, &index))
            }),
        ),
        (
            "gather",
            Box::new(|| {
                let index = below(97, &[3001, 67]);
                both([&[97, 67]], |[x]| x.gather(0, &index))
            }),
        ),
        (
            "index",
            Box::new(|| {
                let index = below(97, &[30_001]);
                both([&[97, 17]], |[x]| x.index(&[Some(&index)]))
            }),
        ),
        ("expand", Box::new(|| both([&[1, 301]], |[x]| &x.expand(&[2003, 301]) * 2.0))),
        ("add with broadcasting", Box::new(|| both([&[517, 1, 301], &[13, 1]], |[x, y]| x + y))),
        ("gelu", Box::new(|| both([&[517, 301]], |[x]| x.gelu()))),
        ("sin of large numbers", Box::new(|| both([&[300_007]], |[x]| (x * 1e7).sin()))),
    ]
}

fn products() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    // One row, one column, long sums, small and odd sizes, large ones.
    for [m, k, n] in [
        [1, 513, 1029],
        [1, 40_003, 17],
        [1029, 513, 1],
        [2, 7001, 301],
        [7, 20_011, 5],
        [33, 65, 129],
        [301, 203, 407],
        [129, 1025, 260],
        [5000, 3, 11],
    ] {
        cases.push(("matmul", Box::new(move || both([&[m, k], &[k, n]], |[a, b]| a.matmul(b)))));
    }
    cases.extend::<[Case; 9]>([
        (
            "linear",
            Box::new(|| both([&[301, 203], &[407, 203], &[407]], |[x, w, b]| x.linear(w, Some(b)))),
        ),
        ("bmm", Box::new(|| both([&[17, 61, 83], &[17, 83, 47]], |[a, b]| a.bmm(b)))),
        ("bmm of a few", Box::new(|| both([&[2, 261, 283], &[2, 283, 147]], |[a, b]| a.bmm(b)))),
        ("dot", Box::new(|| both([&[1_000_003], &[1_000_003]], |[a, b]| a.dot(b)))),
        ("mv", Box::new(|| both([&[1501, 703], &[703]], |[a, b]| a.mv(b)))),
        (
            "transposed product",
            Box::new(|| both([&[513, 301], &[407, 513]], |[a, b]| a.t().mm(&b.t()))),
        ),
        (
            "attention",
            Box::new(|| {
                let shape: &[usize] = &[2, 3, 131, 32];
                both([shape; 3], |[q, k, v]| {
                    q.scaled_dot_product_attention(k, v, None, false, None)
                })
            }),
        ),
        (
            "causal attention",
            Box::new(|| {
                let shape: &[usize] = &[1, 2, 261, 64];
                both([shape; 3], |[q, k, v]| q.scaled_dot_product_attention(k, v, None, true, None))
            }),
        ),
        (
            "attention of one query",
            Box::new(|| {
                both([&[1, 2, 1, 64], &[1, 2, 3001, 64], &[1, 2, 3001, 64]], |[q, k, v]| {
                    q.scaled_dot_product_attention(k, v, None, false, None)
                })
            }),
        ),
    ]);
    cases
}

fn convolutions() -> Vec<Case> {
    fn conv(x: &'static [usize], w: &'static [usize], stride: usize, groups: usize) -> Case {
        (
            "conv2d",
            Box::new(move || {
                let options = Conv2dOptions {
                    stride: [stride; 2],
                    padding: [w[2] / 2; 2],
                    groups,
                    ..Default::default()
                };
                both([x, w, &w[..1]], |[x, w, b]| x.conv2d(w, Some(b), options))
            }),
        )
    }
    vec![
        conv(&[5, 13, 33, 31], &[24, 13, 3, 3], 1, 1),
        conv(&[5, 16, 33, 31], &[24, 16, 1, 1], 1, 1),
        conv(&[3, 3, 65, 67], &[16, 3, 7, 7], 2, 1),
        conv(&[1, 64, 15, 13], &[96, 64, 3, 3], 1, 1),
        conv(&[4, 64, 28, 28], &[64, 64, 3, 3], 1, 1),
        conv(&[5, 24, 33, 31], &[24, 6, 3, 3], 1, 4),
        conv(&[5, 24, 33, 31], &[24, 1, 3, 3], 1, 24),
        conv(&[1, 2, 153, 131], &[2, 1, 3, 3], 2, 2),
        conv(&[6, 70, 56, 55], &[64, 70, 3, 3], 2, 1),
        (
            "conv1d",
            Box::new(|| {
                both([&[5, 13, 1031], &[24, 13, 5]], |[x, w]| x.conv1d(w, None, Default::default()))
            }),
        ),
        (
            "conv3d",
            Box::new(|| {
                let options = Conv3dOptions { padding: [1; 3], ..Default::default() };
                both([&[2, 13, 9, 21, 23], &[24, 13, 3, 3, 3], &[24]], |[x, w, b]| {
                    x.conv3d(w, Some(b), options)
                })
            }),
        ),
        (
            "conv_transpose2d",
            Box::new(|| {
                let options =
                    ConvTransposeOptions { stride: [2; 2], padding: [1; 2], ..Default::default() };
                both([&[5, 16, 23, 21], &[16, 24, 4, 4], &[24]], |[x, w, b]| {
                    x.conv_transpose2d(w, Some(b), options)
                })
            }),
        ),
        (
            "conv_transpose3d",
            Box::new(|| {
                let options =
                    ConvTransposeOptions { stride: [2; 3], padding: [1; 3], ..Default::default() };
                both([&[2, 16, 5, 13, 11], &[16, 24, 4, 4, 4], &[24]], |[x, w, b]| {
                    x.conv_transpose3d(w, Some(b), options)
                })
            }),
        ),
        (
            "interpolate",
            Box::new(|| {
                let size = OneOrEach::Each(vec![67, 71]);
                let options = InterpolateOptions::size(size, InterpolateMode::Bilinear);
                both([&[5, 13, 33, 31]], |[x]| x.interpolate(options.clone()))
            }),
        ),
        (
            "grid_sample",
            Box::new(|| {
                both([&[5, 13, 33, 31], &[5, 41, 43, 2]], |[x, grid]| {
                    x.grid_sample(grid, GridSampleOptions::default())
                })
            }),
        ),
        (
            "max_pool2d",
            Box::new(|| {
                let options = Pool2dOptions { stride: Some([2, 2]), ..Pool2dOptions::new([3, 3]) };
                both([&[7, 13, 61, 67]], |[x]| x.max_pool2d(options))
            }),
        ),
        (
            "avg_pool2d",
            Box::new(|| {
                let options = Pool2dOptions { stride: Some([2, 2]), ..Pool2dOptions::new([3, 3]) };
                both([&[7, 13, 61, 67]], |[x]| x.avg_pool2d(options))
            }),
        ),
    ]
}

/// The layer's result, the last states and the gradients of everything.
fn recurrent(layer: &impl Module, forward: impl Fn(&Tensor) -> Vec<Tensor>) -> Vec<Tensor> {
    let x = numbers(&[13, 17, 61], 1).requires_grad_(true);
    let results = forward(&x);
    let leaves: Vec<Tensor> = [x].into_iter().chain(layer.parameters()).collect();
    let heads: Vec<Tensor> = results.iter().map(|y| numbers(y.shape(), 99)).collect();
    let gradients = autograd::grad(
        &results.iter().collect::<Vec<_>>(),
        &leaves.iter().collect::<Vec<_>>(),
        &heads.iter().map(Some).collect::<Vec<_>>(),
        autograd::GraphMode::Free,
    );
    results.iter().map(Tensor::detach).chain(gradients.into_iter().flatten()).collect()
}

fn layers_over_time() -> Vec<Case> {
    let options = RNNOptions { num_layers: 2, bidirectional: true, ..Default::default() };
    vec![
        (
            "LSTM",
            Box::new(move || {
                manual_seed(8);
                let layer = LSTM::new(61, 83, options);
                recurrent(&layer, |x| {
                    let (y, (h, c)) = layer.forward(x, None);
                    vec![y, h, c]
                })
            }),
        ),
        (
            "GRU",
            Box::new(move || {
                manual_seed(8);
                let layer = GRU::new(61, 83, options);
                recurrent(&layer, |x| {
                    let (y, h) = layer.forward(x, None);
                    vec![y, h]
                })
            }),
        ),
    ]
}

/// The result and the gradients with inputs of another type; what is of a half type is exact in f32.
fn of_type<const N: usize>(
    dtype: Dtype,
    shapes: [&[usize]; N],
    forward: impl Fn([&Tensor; N]) -> Tensor,
) -> Vec<Tensor> {
    let leaves: [Tensor; N] =
        std::array::from_fn(|i| numbers(shapes[i], i as u64).to_dtype(dtype).requires_grad_(true));
    let leaves = leaves.each_ref();
    let y = forward(leaves);
    let gradient = numbers(y.shape(), 99).to_dtype(dtype);
    let gradients = autograd::grad(&[&y], &leaves, &[Some(&gradient)], autograd::GraphMode::Free);
    let exact = if dtype == Dtype::F64 { dtype } else { Dtype::F32 };
    let results = [y.detach()].into_iter().chain(gradients.into_iter().flatten());
    results.map(|t| t.to_dtype(exact)).collect()
}

/// Half types and f64, whose kernels are others.
fn other_types() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F64] {
        let mut add = |name: &'static str, op: fn(Dtype) -> Vec<Tensor>| {
            cases.push((name, Box::new(move || op(dtype))))
        };
        add("linear of another type", |dtype| {
            of_type(dtype, [&[301, 203], &[407, 203], &[407]], |[x, w, b]| x.linear(w, Some(b)))
        });
        add("matrix and vector of another type", |dtype| {
            of_type(dtype, [&[1501, 703], &[703]], |[a, b]| a.mv(b))
        });
        add("conv2d of another type", |dtype| {
            let options = Conv2dOptions { padding: [1; 2], ..Default::default() };
            of_type(dtype, [&[5, 16, 33, 31], &[24, 16, 3, 3], &[24]], |[x, w, b]| {
                x.conv2d(w, Some(b), options)
            })
        });
        add("sum of another type", |dtype| of_type(dtype, [&[300_007]], |[x]| x.sum()));
        add("sum_dim of another type", |dtype| {
            of_type(dtype, [&[3001, 203]], |[x]| x.sum_dim(&[0], false))
        });
        add("softmax of another type", |dtype| of_type(dtype, [&[517, 1003]], |[x]| x.softmax(1)));
        add("layer_norm of another type", |dtype| {
            of_type(dtype, [&[1031, 257], &[257], &[257]], |[x, w, b]| {
                x.layer_norm(&[257], Some(w), Some(b), 1e-5)
            })
        });
        add("attention of another type", |dtype| {
            let shape: &[usize] = &[2, 3, 131, 32];
            of_type(dtype, [shape; 3], |[q, k, v]| {
                q.scaled_dot_product_attention(k, v, None, true, None)
            })
        });
    }
    cases
}

fn training() -> Vec<Case> {
    vec![
        ("AdamW", Box::new(|| steps(|p| AdamW::new(p, AdamWOptions::default())))),
        (
            "SGD",
            Box::new(|| {
                steps(|p| SGD::new(p, SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() }))
            }),
        ),
        (
            "clip_grad_norm_",
            Box::new(|| {
                let parameters =
                    [&[1003, 517][..], &[33]].map(|s| numbers(s, 3).requires_grad_(true));
                for p in &parameters {
                    p.set_grad(Some(numbers(p.shape(), 4)));
                }
                let norm = clip_grad_norm_(&parameters, 1.0);
                let gradients = parameters.iter().map(|p| p.grad().expect("was set"));
                gradients.chain([norm]).collect()
            }),
        ),
        ("randn", Box::new(|| vec![numbers(&[1003, 517], 5)])),
        ("rand", Box::new(|| vec![torchrs::Generator::new(5).rand([1003, 517], Dtype::F32)])),
        ("randperm", Box::new(|| vec![torchrs::Generator::new(5).randperm(100_003)])),
        (
            "dropout",
            Box::new(|| {
                manual_seed(6);
                both([&[1003, 517]], |[x]| x.dropout(0.3, true))
            }),
        ),
    ]
}

fn bits(results: Vec<Tensor>) -> Vec<Vec<u64>> {
    let bits = |t: &Tensor| match t.dtype() {
        Dtype::F32 => t.to_vec::<f32>().into_iter().map(|x| x.to_bits().into()).collect(),
        Dtype::F64 => t.to_vec::<f64>().into_iter().map(f64::to_bits).collect(),
        Dtype::I64 => t.to_vec::<i64>().into_iter().map(|i| i as u64).collect(),
        other => panic!("a result of {other}, whose bits nobody compares"),
    };
    results.iter().map(bits).collect()
}

#[test]
fn the_number_of_threads_changes_no_result() {
    let _turn = crate::number_of_threads();
    // Other tests draw from the process' generator meanwhile.
    torchrs::fork_rng(compare_numbers_of_threads);
}

fn compare_numbers_of_threads() {
    let mut failures = Vec::new();
    let cases = [
        reductions,
        losses_and_norms,
        indexing,
        products,
        convolutions,
        layers_over_time,
        other_types,
        training,
        rarer::cases,
    ]
    .map(|of| of());
    for (number, (name, call)) in cases.iter().flatten().enumerate() {
        set_num_threads(1);
        let expected = bits(call());
        for threads in [2, 3, 5] {
            set_num_threads(threads);
            let differs = |(a, b): (&Vec<u64>, &Vec<u64>)| a != b;
            let got = bits(call());
            let which: Vec<usize> =
                (0..got.len()).filter(|&i| differs((&got[i], &expected[i]))).collect();
            if !which.is_empty() {
                failures.push(format!(
                    "{name} (case {number}): tensors {which:?} of {} on {threads} threads",
                    got.len()
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
