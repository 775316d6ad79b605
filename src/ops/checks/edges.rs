//! Sums of squares over the whole range of f32, and derivatives of ops that are no rows where a formula would divide by
//! zero or multiply it with what overflowed. Rows have a sweep of their own (`pointwise/edges.rs`).

use crate::autograd::forward_ad::{dual_level, make_dual, unpack_dual};
use crate::autograd::{GraphMode, grad};
use crate::cuda::simulated_test::on_gpu;
use crate::nn::{
    AttentionWeights, Module, MultiheadAttention, MultiheadAttentionOptions, functional as F,
};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

type Op = fn(&Tensor) -> Tensor;

/// Ops of one list of numbers whose sums of squares leave f32's range where their results do not.
const OF_SQUARES: [(&str, Op); 6] = [
    ("std", |x| x.std_dim(&[], 1, false)),
    ("std_mean", |x| x.std_mean_dim(&[0], 0, true).0),
    ("norm", |x| x.norm()),
    ("layer_norm", |x| x.layer_norm(&[x.numel()], None, None, 0.0)),
    ("rms_norm", |x| x.rms_norm(&[x.numel()], None, Some(0.0))),
    ("group_norm", |x| x.reshape([1, 1, -1]).group_norm(1, None, None, 0.0)),
];

/// Normalisations over channels, and compositions.
const MORE: [(&str, Op); 6] = [
    ("batch_norm", |x| x.reshape([-1, 1]).batch_norm(None, None, None, None, true, 0.1, 0.0)),
    ("instance_norm", |x| {
        x.reshape([1, 1, -1]).instance_norm(None, None, None, None, true, 0.1, 0.0)
    }),
    ("normalize", |x| F::normalize(x, 2.0, 0, 1e-37)),
    ("cosine_similarity", |x| F::cosine_similarity(x, &x.flip(&[0]), 0, 1e-37)),
    ("pdist", |x| F::pdist(&x.reshape([2, -1]), 2.0)),
    ("cdist", |x| x.reshape([2, -1]).cdist(&x.reshape([2, -1]), 2.0)),
];

/// An op's result, and its gradient for weights that do not vanish with the mean.
fn both(f: Op, x: &Tensor) -> [Vec<f64>; 2] {
    let x = x.requires_grad_(true);
    let y = f(&x);
    let weights: Vec<f64> = (0..y.numel()).map(|i| 0.3 + (i * 7 % 5) as f64).collect();
    let weights = Tensor::from(weights).to_dtype(y.dtype()).to_device(y.device());
    let g = grad(&[&y], &[&x], &[Some(&weights.reshape_to(y.shape()))], GraphMode::Free);
    [y.to_vec(), g[0].as_ref().expect("depends on x").to_vec()]
}

/// Compares the ops on multiples of a list in f32 with f64, and lists what differs.
fn wrong(ops: &[(&str, Op)], numbers: &[f64], device: Device, exponents: &[i32]) -> Vec<String> {
    let mut wrong = vec![];
    for &exponent in exponents {
        let scaled: Vec<f64> = numbers.iter().map(|v| v * 10f64.powi(exponent)).collect();
        let x = Tensor::from(scaled).to_dtype(Dtype::F32);
        for (name, f) in ops {
            let found = both(*f, &x.to_device(device).detach());
            let exact = both(*f, &x.to_dtype(Dtype::F64));
            for (what, (found, exact)) in ["value", "gradient"].iter().zip(found.iter().zip(&exact))
            {
                let size = exact.iter().fold(0f64, |m, v| m.max(v.abs()));
                // Nor is this about subnormal results.
                if !(1e-35..1e38).contains(&size) {
                    continue;
                }
                let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 2e-5 * size;
                if !found.iter().zip(exact).all(near) {
                    let (found, exact) =
                        (&found[..found.len().min(4)], &exact[..exact.len().min(4)]);
                    wrong.push(format!("{name}, {what} at 1e{exponent}: {found:?}, not {exact:?}"));
                }
            }
        }
    }
    wrong
}

const FEW: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

#[test]
fn sums_of_squares_have_the_whole_range() {
    let exponents: Vec<i32> = (-36..=37).collect();
    let many: Vec<f64> = (0..5000).map(|i| 0.5 + (i * 37 % 101) as f64 / 101.0).collect();
    let some = [-33, -25, -19, -12, 0, 12, 19, 25, 33];
    let mut all = vec![];
    for ops in [&OF_SQUARES, &MORE] {
        all.extend(wrong(ops, &FEW, Device::Cpu, &exponents));
        all.extend(wrong(ops, &many, Device::Cpu, &some));
    }
    assert!(all.is_empty(), "{} differ:\n{}", all.len(), all.join("\n"));
}

#[test]
fn a_row_is_wide_alone() {
    // What is beside an extreme row is computed as ever.
    let x = Tensor::from([[1f32, 2., 4.], [1e25, 2e25, 4e25], [5.0, 5.0, 5.0]]);
    let alone = x.narrow(0, 0, 1).std_dim(&[1], 1, false).item();
    let std = x.std_dim(&[1], 1, false).to_vec::<f64>();
    assert_eq!((std[0], std[2]), (alone, 0.0));
    assert!((std[1] / alone / 1e25 - 1.0).abs() < 1e-6);
    assert!(Tensor::from([1f32, f32::INFINITY]).std_dim(&[], 1, false).item().is_nan());
    assert_eq!(Tensor::from([1f32, f32::INFINITY]).norm().item(), f64::INFINITY);
    assert!(Tensor::from([1f32, f32::NAN]).norm().item().is_nan());
}

fn inside() {
    let many: Vec<f64> = (0..5000).map(|i| 0.5 + (i * 37 % 101) as f64 / 101.0).collect();
    let mut all = vec![];
    for ops in [&OF_SQUARES, &MORE] {
        all.extend(wrong(ops, &FEW, Device::Cuda(0), &[-34, -20, 0, 19, 30, 36]));
        all.extend(wrong(ops, &many, Device::Cuda(0), &[-25, 19]));
    }
    assert!(all.is_empty(), "{} differ:\n{}", all.len(), all.join("\n"));
}

#[test]
fn sums_of_squares_on_a_gpu() {
    on_gpu("ops::checks::edges::sums_of_squares_on_a_gpu", inside);
}

fn gradient(y: &Tensor, x: &Tensor) -> Vec<f32> {
    let ones = y.detach().ones_like();
    grad(&[y], &[x], &[Some(&ones)], GraphMode::Retain)[0].as_ref().expect("depends on x").to_vec()
}

#[test]
fn what_has_no_slope_has_no_tangent() {
    let zeros: [(&str, Op); 6] = [
        ("norm", |x| x.norm()),
        ("norm(3)", |x| x.norm_dim(3, &[], false)),
        ("norm(1.5)", |x| x.norm_dim(1.5, &[0], true)),
        ("std", |x| x.std_dim(&[], 1, false)),
        ("cdist(3)", |x| x.reshape([2, -1]).cdist(&x.reshape([2, -1]).detach(), 3.0)),
        ("dist(4)", |x| x.dist(&x.detach(), 4)),
    ];
    for (name, f) in zeros {
        let x = Tensor::zeros([4], Dtype::F64);
        let along = Tensor::from([1f64, 2., -3., 4.]);
        let tangent = dual_level(|| unpack_dual(&f(&make_dual(&x, &along))).tangent);
        let tangent = tangent.expect("depends on x").to_vec::<f64>();
        assert!(tangent.iter().all(|t| *t == 0.0), "{name}: {tangent:?}");
    }
}

#[test]
fn a_zero_wins_over_what_overflows() {
    let infinite = f32::INFINITY;
    let x = Tensor::from([1e30f32, 1e30, 1e30, 0.0, 1.0]).requires_grad_(true);
    assert_eq!(gradient(&x.prod(), &x), [0.0, 0.0, 0.0, infinite, 0.0]);
    let last = x.cumprod(0).narrow(0, 4, 1);
    assert_eq!(gradient(&last, &x), [0.0, 0.0, 0.0, infinite, 0.0]);
    // The others' product is known where that of all is beyond the largest number, or below the smallest.
    let x = Tensor::from([1e30f32, 1e10]).requires_grad_(true);
    assert_eq!(gradient(&x.prod(), &x), [1e10, 1e30]);
    let x = Tensor::from([1e-30f32, 1e-20]).requires_grad_(true);
    assert_eq!(gradient(&x.prod(), &x), [1e-20, 1e-30]);
    // What is infinite itself stays unknown beside a zero.
    let x = Tensor::from([0.0f32, infinite, 2.0]).requires_grad_(true);
    assert!(gradient(&x.prod(), &x)[2].is_nan());
}

#[test]
fn determinants_of_rank_n_minus_2_have_second_derivatives() {
    let a = Tensor::ones([3, 3], Dtype::F64).requires_grad_(true);
    let d = a.det();
    let g = grad(&[&d], &[&a], &[None], GraphMode::Create);
    let g = g[0].as_ref().expect("depends on a");
    let h = grad(&[&g.i((0, 0))], &[&a], &[None], GraphMode::Retain);
    // The cofactor of place (0, 0) is a11 a22 - a12 a21.
    let want = Tensor::from([[0.0, 0.0, 0.0], [0.0, 1.0, -1.0], [0.0, -1.0, 1.0]]);
    assert!(h[0].as_ref().expect("depends on a").allclose(&want, Default::default()));
}

#[test]
fn a_query_that_sees_nothing_leaves_the_gradients_known() {
    let options = MultiheadAttentionOptions::default();
    let attention = MultiheadAttention::new(4, 2, options);
    let x = Tensor::arange(0, 24, 1, Dtype::F32).reshape([3, 2, 4]).sin();
    let blind = Tensor::from([[false, true, true], [true, true, true], [false, false, true]]);
    let mut outs = vec![];
    for weights in [AttentionWeights::PerHead, AttentionWeights::Average, AttentionWeights::None] {
        attention.zero_grad();
        let (out, shares) = attention.forward(&x, &x, &x, None, Some(&blind), weights);
        out.square().sum().backward();
        for parameter in attention.parameters() {
            let grad = parameter.grad().expect("of all parameters");
            assert!(grad.isfinite().all().item() != 0.0, "{weights:?}");
        }
        if let Some(shares) = shares {
            assert_eq!(shares.select(-2, 1).abs().sum().item(), 0.0);
        }
        outs.push(out);
    }
    assert!(outs[0].allclose(&outs[2], Default::default()));
}

#[test]
fn vectors_of_zeros_have_gradients() {
    let zeros = || Tensor::zeros([2, 3], Dtype::F32).requires_grad_(true);
    let ops: [(&str, Op); 6] = [
        ("norm", |x| x.norm()),
        ("cdist", |x| x.cdist(x, 2.0)),
        ("normalize", |x| F::normalize(x, 2.0, 1, 1e-12)),
        ("cosine_similarity", |x| F::cosine_similarity(x, x, 1, 1e-8)),
        ("renorm", |x| x.renorm(2.0, 0, 1.0)),
        ("std", |x| x.std_dim(&[1], 1, false)),
    ];
    for (name, f) in ops {
        let x = zeros();
        assert!(gradient(&f(&x), &x).iter().all(|g| g.is_finite()), "{name}");
    }
}
