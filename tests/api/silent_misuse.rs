//! Plausible calls that once did nothing, or the wrong thing, without a word.

use torchrs::nn::{BatchNorm1d, Forward, LSTM, Module, functional as F};
use torchrs::ops::CrossEntropyOptions;
use torchrs::optim::lr_scheduler::{LRScheduler, StepLR};
use torchrs::optim::{Optimizer, ParamGroup, SGD, SGDOptions};
use torchrs::{Dtype, Tensor, autograd};

fn optimizer() -> SGD {
    SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() })
}

#[test]
fn a_scheduler_notices_another_optimizer_and_new_groups() {
    let (mut own, mut other) = (optimizer(), optimizer());
    let mut schedule = StepLR::new(&mut own, 1, 0.5);
    let error = torchrs::catch(std::panic::AssertUnwindSafe(|| schedule.step(&mut other)));
    assert!(error.unwrap_err().to_string().contains("is not the one"), "another optimizer");
    schedule.step(&mut own);
    assert_eq!(own.lr(0), 0.5);
    own.add_param_group(ParamGroup::new([Tensor::from([2f32])], Default::default()));
    let error = torchrs::catch(std::panic::AssertUnwindSafe(|| schedule.step(&mut own)));
    let text = error.unwrap_err().to_string();
    assert!(text.contains("2 parameter groups, and had 1"), "{text}");
}

#[test]
fn rows_that_are_infinite_stay_so_when_their_gradient_is_scaled() {
    let table = Tensor::from([[f32::INFINITY], [2.0]]).requires_grad_(true);
    let rows = table.embedding_scaled_by_freq(&Tensor::from([0i64, 1, 1]), None);
    assert_eq!(rows.to_vec::<f32>(), [f32::INFINITY, 2.0, 2.0]);
    rows.sum().backward();
    assert_eq!(table.grad().unwrap().to_vec::<f32>(), [1.0, 1.0]);
}

/// The second derivative where elements of a line lie farther apart than exponentials reach.
#[test]
fn logcumsumexp_twice_does_not_overflow() {
    let of = |dtype: Dtype| {
        let x = Tensor::from([-300f64, -299.0, 1.0, 0.5, 400.0, 399.0]).to_dtype(dtype);
        let x = x.requires_grad_(true);
        let w = Tensor::from([1f64, -2.0, 0.5, 0.0, 3.0, 1.0]).to_dtype(dtype);
        let y = x.logcumsumexp(0);
        let first = autograd::grad(&[&y], &[&x], &[Some(&w)], autograd::GraphMode::Create)[0]
            .clone()
            .unwrap();
        let v = Tensor::from([0.5f64, 1.0, -1.0, 2.0, 0.25, 1.5]).to_dtype(dtype);
        autograd::grad(&[&first], &[&x], &[Some(&v)], autograd::GraphMode::Free)[0].clone().unwrap()
    };
    let (narrow, wide) = (of(Dtype::F32).to_vec::<f64>(), of(Dtype::F64).to_vec::<f64>());
    for (narrow, wide) in narrow.iter().zip(&wide) {
        assert!((narrow - wide).abs() < 1e-4, "{narrow} {wide}");
    }
}

#[test]
fn calls_without_a_dimension_to_act_on_are_refused() {
    let x = Tensor::scalar(1f32);
    assert!(torchrs::catch(|| x.flipud()).unwrap_err().to_string().starts_with("flipud: "));
    let error = torchrs::catch(|| x.topk(0, 0, true).0).unwrap_err().to_string();
    assert!(error.starts_with("topk: argument `k`: 0"), "{error}");
}

/// Arguments that PyTorch refuses, too, and that gave numbers of no meaning.
#[test]
fn arguments_that_make_no_sense_are_refused() {
    let refused = |argument: &str, call: &mut dyn FnMut()| {
        let error = torchrs::catch(std::panic::AssertUnwindSafe(call)).unwrap_err().to_string();
        assert!(error.contains(&format!("argument `{argument}`")), "{error}");
    };
    let x = Tensor::from([[1f32, 2.], [3., 5.]]);
    refused("num_samples", &mut || _ = x.multinomial(0, true));
    refused("input_size", &mut || _ = LSTM::new(0, 5, Default::default()));
    let options = CrossEntropyOptions { ignore_index: 1, ..Default::default() };
    refused("ignore_index", &mut || _ = x.cross_entropy_with(&x.softmax(1), options.clone()));
    let norm = BatchNorm1d::new(2).eps(-1.0);
    refused("eps", &mut || _ = norm.forward(&x));
    norm.eval();
    refused("eps", &mut || _ = norm.forward(&x));
    let statistics = Tensor::from([1f32, 1.]);
    let (running_mean, running_var) = (Some(&statistics), Some(&statistics));
    let options =
        F::BatchNormOptions { running_mean, running_var, eps: -1.0, ..Default::default() };
    refused("eps", &mut || _ = F::batch_norm(&x, options));
}
