//! Ops that fewer programs call: three dimensions, transforms, decompositions, bags.

use torchrs::nn::{RNN, RNNOptions};
use torchrs::ops::{
    BagMode, EmbeddingBagOptions, InterpolateMode, InterpolateOptions, OneOrEach, Pool3dOptions,
    ScatterReduce,
};
use torchrs::{fft, linalg, manual_seed};

use super::{Case, below, both, numbers, recurrent};

pub fn cases() -> Vec<Case> {
    let mut cases = pools_and_sizes();
    cases.extend(scattered());
    cases.extend(transforms_and_decompositions());
    cases.push((
        "RNN",
        Box::new(|| {
            manual_seed(8);
            let options = RNNOptions { num_layers: 2, bidirectional: true, ..Default::default() };
            let layer = RNN::new(61, 83, options);
            recurrent(&layer, |x| {
                let (y, h) = layer.forward(x, None);
                vec![y, h]
            })
        }),
    ));
    cases
}

fn pools_and_sizes() -> Vec<Case> {
    let volumes: &[usize] = &[3, 13, 17, 31, 33];
    let windows = || Pool3dOptions { stride: Some([2; 3]), ..Pool3dOptions::new([3; 3]) };
    vec![
        ("max_pool3d", Box::new(move || both([volumes], |[x]| x.max_pool3d(windows())))),
        ("avg_pool3d", Box::new(move || both([volumes], |[x]| x.avg_pool3d(windows())))),
        (
            "adaptive_avg_pool2d",
            Box::new(|| both([&[7, 13, 61, 67]], |[x]| x.adaptive_avg_pool2d([Some(11), Some(9)]))),
        ),
        (
            "adaptive_max_pool2d",
            Box::new(|| {
                both([&[7, 13, 61, 67]], |[x]| x.adaptive_max_pool2d([Some(11), Some(9)]).0)
            }),
        ),
        (
            "bicubic interpolate",
            Box::new(|| {
                let size = OneOrEach::Each(vec![67, 71]);
                let options = InterpolateOptions::size(size, InterpolateMode::Bicubic);
                both([&[5, 13, 33, 31]], |[x]| x.interpolate(options.clone()))
            }),
        ),
    ]
}

fn scattered() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for reduce in [ScatterReduce::Sum, ScatterReduce::Mean, ScatterReduce::Amax] {
        cases.push((
            "scatter_reduce",
            Box::new(move || {
                let index = below(97, &[3001, 67]);
                both([&[97, 67], &[3001, 67]], |[x, s]| {
                    x.scatter_reduce(0, &index, s, reduce, true)
                })
            }),
        ));
    }
    for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
        cases.push((
            "embedding_bag",
            Box::new(move || {
                let indices = below(101, &[1501, 13]);
                let options = EmbeddingBagOptions { mode, ..Default::default() };
                both([&[101, 67]], |[w]| w.embedding_bag(&indices, None, options.clone()))
            }),
        ));
    }
    cases
}

fn transforms_and_decompositions() -> Vec<Case> {
    vec![
        (
            "fft",
            Box::new(|| {
                both([&[301, 509]], |[x]| fft::fft(x, None, -1, Default::default()).view_as_real())
            }),
        ),
        (
            "rfftn",
            Box::new(|| {
                both([&[13, 61, 127]], |[x]| {
                    fft::rfftn(x, None, None, Default::default()).view_as_real()
                })
            }),
        ),
        ("solve", Box::new(|| both([&[203, 203], &[203, 31]], |[a, b]| linalg::solve(a, b)))),
        (
            "cholesky",
            Box::new(|| {
                both([&[203, 203]], |[x]| {
                    let a = x.mm(&x.t()) + torchrs::Tensor::eye(203, torchrs::Dtype::F32) * 203.0;
                    linalg::cholesky(&a, false)
                })
            }),
        ),
        ("inv", Box::new(|| both([&[5, 61, 61]], |[a]| linalg::inv(a)))),
        (
            "svd",
            Box::new(|| {
                let (u, s, v) = linalg::svd(&numbers(&[7, 61, 43], 0), false);
                vec![u, s, v]
            }),
        ),
        (
            "eigh",
            Box::new(|| {
                let (w, v) = linalg::eigh(&numbers(&[7, 61, 61], 0), linalg::Uplo::L);
                vec![w, v]
            }),
        ),
    ]
}
