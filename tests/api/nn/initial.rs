//! Initial values against PyTorch's distributions.

use super::statistics;
use torchrs::nn::init::{self, FanMode, Nonlinearity};
use torchrs::nn::*;
use torchrs::{Dtype::F32, Tensor, catch};

fn assert_uniform(t: &Tensor, bound: f64) {
    let [min, max, mean, std] = statistics(t);
    assert!(min >= -bound && max <= bound, "{min} .. {max}, bound {bound}");
    assert!(min < -0.97 * bound && max > 0.97 * bound, "{min} .. {max}, bound {bound}");
    assert!(mean.abs() < 0.05 * bound && (std - bound / 3f64.sqrt()).abs() < 0.03 * bound);
}

fn assert_normal(t: &Tensor, std: f64) {
    let [_, max, mean, got] = statistics(t);
    assert!(mean.abs() < 0.05 * std && (got - std).abs() < 0.05 * std, "{mean} {got}, not {std}");
    assert!(max > 2.5 * std);
}

#[test]
fn initial_values_have_pytorchs_distributions() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(3);
        let linear = Linear::new(100, 400);
        assert_uniform(&linear.weight, 0.1);
        assert_uniform(linear.bias.as_ref().unwrap(), 0.1);
        let conv = Conv2d::new(8, 600, (3, 4)).groups(2);
        assert_uniform(&conv.weight, 1.0 / 48f64.sqrt());
        assert_uniform(conv.bias.as_ref().unwrap(), 1.0 / 48f64.sqrt());
        assert_normal(&Embedding::new(100, 100).weight, 1.0);
        let padded = Embedding::new(5, 7).padding_idx(-2);
        assert_eq!(padded.weight.select(0, 3).to_vec::<f32>(), [0.0; 7]);

        let w = Tensor::empty([200, 10, 3, 3], F32);
        init::kaiming_uniform_(&w, FanMode::FanIn, Nonlinearity::Relu);
        assert_uniform(&w, (6.0 / 90f64).sqrt());
        init::kaiming_normal_(&w, FanMode::FanOut, Nonlinearity::Tanh);
        assert_normal(&w, 5.0 / 3.0 / 1800f64.sqrt());
        init::xavier_uniform_(&w, 2.0);
        assert_uniform(&w, 2.0 * (6.0 / 1890f64).sqrt());
        init::xavier_normal_(&w, 1.0);
        assert_normal(&w, (2.0 / 1890f64).sqrt());
        init::trunc_normal_(
            &w,
            init::TruncNormalOptions { low: -0.5, high: 1.0, ..Default::default() },
        );
        let [min, max, mean, _] = statistics(&w);
        assert!(min >= -0.5 && max <= 1.0 && max > 0.98 && mean > 0.1, "{min} {max} {mean}");
        init::sparse_(&w.select(3, 0).select(2, 0), 0.35, 0.5);
        let zeros = w.select(3, 0).select(2, 0).eq(0.0).sum_dim(&[0], false).to_vec::<i64>();
        assert_eq!(zeros, [70; 10]);
        init::orthogonal_(&w, 2.0);
        let rows = w.flatten(1, -1);
        let products = (rows.t().matmul(&rows) - Tensor::eye(90, F32) * 4.0).abs();
        assert!(products.max().item() < 1e-4);
        init::ones_(&w);
        assert_eq!(statistics(&w)[..2], [1.0, 1.0]);

        assert_eq!(init::calculate_gain(Nonlinearity::LeakyRelu(0.2)), 1.3867504905630728);
        assert_eq!(init::calculate_gain(Nonlinearity::Selu), 0.75);
        let error = catch(|| init::xavier_normal_(&Tensor::ones([3], F32), 1.0)).unwrap_err();
        assert!(error.to_string().contains("[3]"), "{error}");
    })
}
