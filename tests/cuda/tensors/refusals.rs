//! Numbers that ops refuse: indices out of range, probabilities that are none. An error names the op, its argument
//! and the number, on the CPU and on a GPU, where the kernel finds it and all work ends: each case has a process.

use std::env;

use torchrs::nn::functional as F;
use torchrs::ops::{BagMode, EmbeddingBagOptions, Interpolation, Reduction, ScatterReduce};
use torchrs::{Device, Dtype, Tensor};

use crate::support;

/// The case that a process is to play, by its place.
const CASE: &str = "REFUSED_CASE";

/// A call with a number that its op cannot take: the error's start and a part of it, and the call.
type Case = (&'static str, &'static str, fn(Device) -> Tensor);

fn floats(device: Device) -> Tensor {
    Tensor::from([[1f32, 2., 3.], [4., 5., 6.]]).to_device(device)
}

fn list(numbers: &[i64], device: Device) -> Tensor {
    Tensor::from_slice(numbers, [numbers.len()]).to_device(device)
}

fn chances(last: f32, device: Device) -> Tensor {
    Tensor::from([0.5f32, 0., 1., last]).to_device(device)
}

fn rows(i: i64, device: Device) -> Tensor {
    Tensor::from([[0i64, i, 1], [1, 0, 0]]).to_device(device)
}

/// A class `t` among three for two rows.
fn class(t: i64, device: Device) -> (Tensor, Tensor) {
    (floats(device), list(&[0, t], device))
}

fn bags(indices: &[i64], offsets: &[i64], device: Device) -> Tensor {
    let options = EmbeddingBagOptions { mode: BagMode::Sum, ..Default::default() };
    floats(device).embedding_bag(&list(indices, device), Some(&list(offsets, device)), options)
}

fn bce(input: f32, target: f32, device: Device) -> Tensor {
    F::binary_cross_entropy(
        &chances(input, device),
        &chances(target, device),
        None,
        Reduction::Mean,
    )
}

/// Sequences of four rows, of which the queries or the keys start there.
fn sequences(side: usize, starts: [i32; 3], device: Device) -> Tensor {
    let x = Tensor::zeros([4, 1, 8], (Dtype::F32, device));
    let mut both = [[0i32, 1, 4]; 2];
    both[side] = starts;
    let [q, k] = both.map(|starts| Tensor::from(starts).to_device(device));
    x.varlen_attn(&x, &x, &q, &k, 3, 3, Default::default())
}

const CASES: &[Case] = &[
    ("varlen_attn: argument `cu_seq_q`", "1 at position 0", |d| sequences(0, [1, 2, 4], d)),
    ("varlen_attn: argument `cu_seq_q`", "1 at position 2", |d| sequences(0, [0, 2, 1], d)),
    ("varlen_attn: argument `cu_seq_q`", "5 at position 2", |d| sequences(0, [0, 2, 5], d)),
    ("varlen_attn: argument `cu_seq_q`", "3 at position 2", |d| sequences(0, [0, 2, 3], d)),
    ("varlen_attn: argument `cu_seq_q`", "4 at position 1", |d| sequences(0, [0, 4, 4], d)),
    ("varlen_attn: argument `cu_seq_k`", "1 at position 0", |d| sequences(1, [1, 2, 4], d)),
    ("varlen_attn: argument `cu_seq_k`", "3 at position 2", |d| sequences(1, [0, 2, 3], d)),
    ("binary_cross_entropy: argument `input`", "1.5 at position 3", |d| bce(1.5, 0.5, d)),
    ("binary_cross_entropy: argument `input`", "NaN at position 3", |d| bce(f32::NAN, 0.5, d)),
    ("binary_cross_entropy: argument `target`", "-0.25 at position 3", |d| bce(0.5, -0.25, d)),
    ("quantile: argument `q`", "1.25 at position 1", |d| {
        let q = Tensor::from([0.5f32, 1.25]).to_device(d);
        floats(d).quantile_dim(&q, 0, false, Interpolation::Linear)
    }),
    ("nanquantile: argument `q`", "-1 at position 0", |d| {
        floats(d).nanquantile(&Tensor::from([-1f32]).to_device(d))
    }),
    ("bernoulli: argument `p`", "1.5", |d| chances(1.5, d).bernoulli()),
    ("bernoulli: argument `p`", "-0.5", |d| chances(-0.5, d).to_dtype(Dtype::BF16).bernoulli()),
    ("multinomial: argument `weights`", "-2 at position 3", |d| {
        chances(-2.0, d).multinomial(1, true)
    }),
    ("multinomial: argument `weights`", "inf at position 3", |d| {
        chances(f32::INFINITY, d).multinomial(1, true)
    }),
    ("multinomial: argument `num_samples`", "0 weights", |d| {
        Tensor::zeros([3], (Dtype::F32, d)).multinomial(1, true)
    }),
    ("cross_entropy: argument `target`", "3 at position 1", |d| {
        let (x, t) = class(3, d);
        x.cross_entropy(&t)
    }),
    ("cross_entropy: argument `target`", "-1 at position 1", |d| {
        let (x, t) = class(-1, d);
        x.cross_entropy(&t)
    }),
    ("nll_loss: argument `target`", "7 at position 1", |d| {
        let (x, t) = class(7, d);
        x.nll_loss(&t)
    }),
    ("multi_margin_loss: argument `target`", "4 at position 1", |d| {
        let (x, t) = class(4, d);
        F::multi_margin_loss(&x, &t, Default::default())
    }),
    ("multilabel_margin_loss: argument `target`", "5 at position 1", |d| {
        F::multilabel_margin_loss(&floats(d), &rows(5, d), Reduction::Mean)
    }),
    ("ctc_loss: argument `targets`", "9", |d| {
        let x = Tensor::zeros([4, 1, 3], (Dtype::F32, d)).log_softmax(2);
        let targets = Tensor::from([[1i64, 9]]).to_device(d);
        torchrs::ops::ctc_loss(&x, &targets, &list(&[4], d), &list(&[2], d), Default::default())
    }),
    ("ctc_loss", "5", |d| {
        let x = Tensor::zeros([4, 1, 3], (Dtype::F32, d)).log_softmax(2);
        let targets = Tensor::from([[1i64, 2]]).to_device(d);
        torchrs::ops::ctc_loss(&x, &targets, &list(&[5], d), &list(&[2], d), Default::default())
    }),
    ("embedding: argument `indices`", "2 at position 1", |d| {
        floats(d).embedding(&list(&[0, 2], d), None)
    }),
    ("embedding: argument `indices`", "-1 at position 0", |d| {
        floats(d).embedding(&list(&[-1, 0], d), None)
    }),
    ("embedding_bag: argument `indices`", "2 at position 1", |d| bags(&[0, 2, 1], &[0, 2], d)),
    ("embedding_bag: argument `offsets`", "4", |d| bags(&[0, 1, 1], &[0, 4], d)),
    ("one_hot: argument `index", "3 at position 1", |d| list(&[0, 3], d).one_hot(3)),
    ("index_select: argument `index`", "2 at position 1", |d| {
        floats(d).index_select(0, &list(&[0, 2], d))
    }),
    ("index: argument `indices`", "-3", |d| floats(d).index(&[Some(&list(&[0, -3], d))])),
    ("index_put_: argument `indices`", "2", |d| {
        let value = Tensor::zeros([3], (Dtype::F32, d));
        floats(d).index_put(&[Some(&list(&[0, 2], d))], &value, false)
    }),
    ("index_add_: argument `index`", "2 at position 1", |d| {
        floats(d).index_add(0, &list(&[0, 2], d), &floats(d))
    }),
    ("take: argument `index`", "6 at position 1", |d| floats(d).take(&list(&[0, 6], d))),
    ("put: argument `index`", "-7 at position 1", |d| {
        floats(d).put(&list(&[0, -7], d), &Tensor::zeros([2], (Dtype::F32, d)), false)
    }),
    ("gather: argument `index`", "3 at position 1", |d| floats(d).gather(1, &rows(3, d))),
    ("scatter_: argument `index`", "3 at position 1", |d| {
        floats(d).scatter(1, &rows(3, d), &floats(d))
    }),
    ("scatter_value_: argument `index`", "-1 at position 1", |d| {
        floats(d).scatter_value(1, &rows(-1, d), 0.5)
    }),
    ("scatter_add_: argument `index`", "3 at position 1", |d| {
        floats(d).scatter_add(1, &rows(3, d), &floats(d))
    }),
    ("scatter_reduce: argument `index`", "3 at position 1", |d| {
        floats(d).scatter_reduce(1, &rows(3, d), &floats(d), ScatterReduce::Amax, true)
    }),
    ("masked_scatter: ", "1 elements", |d| {
        floats(d).masked_scatter(&floats(d).gt(3.0), &Tensor::zeros([1], (Dtype::F32, d)))
    }),
    ("bincount: argument `input`", "-3", |d| list(&[1, -3], d).bincount(None, 0)),
    ("repeat_interleave: argument `repeats`", "-1", |d| {
        list(&[1, 3], d).repeat_interleave_each(&list(&[1, -1], d), 0)
    }),
    ("searchsorted: argument `sorter`", "5", |d| {
        let sorter = list(&[0, 5], d);
        let options = torchrs::ops::SearchOptions { sorter: Some(&sorter), ..Default::default() };
        list(&[1, 3], d).searchsorted(&list(&[2], d), options)
    }),
];

/// What is wrong with a case, if anything is.
fn wrong(&(start, part, call): &Case, device: Device) -> Option<String> {
    match torchrs::catch(|| call(device).to_dtype(Dtype::F64).to_vec::<f64>()) {
        Ok(result) => Some(format!("{start}: no error on {device} but {result:?}")),
        Err(error) => {
            let text = error.to_string();
            let named = text.starts_with(start) && text.contains(part);
            (!named).then(|| format!("{start} .. {part}: {text}"))
        }
    }
}

#[test]
fn are_named_on_the_cpu() {
    let wrong: Vec<String> = CASES.iter().filter_map(|case| wrong(case, Device::Cpu)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn are_named_on_a_gpu() {
    let body = || {
        let case = env::var(CASE).ok().and_then(|case| case.parse::<usize>().ok()).unwrap();
        let wrong = wrong(&CASES[case], Device::Cuda(0));
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        Ok(())
    };
    let path = concat!(module_path!(), "::are_named_on_a_gpu");
    if env::var(CASE).is_ok() {
        return support::run(path, &[], body);
    }
    let failed = |case: &usize| {
        let number = case.to_string();
        std::panic::catch_unwind(|| support::run(path, &[(CASE, &number)], body)).is_err()
    };
    let wrong: Vec<_> = (0..CASES.len()).filter(failed).map(|case| CASES[case].0).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
