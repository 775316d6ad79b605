//! Optimizers, schedules and weight averages against numbers that PyTorch wrote
//! (`tools/golden/optim_reference.py`), for what `tests/golden` has no cases of.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use torchrs::nn::{self, Forward, Module};
use torchrs::optim::lr_scheduler::{Anneal, ConstantLR, CyclicLR, LRScheduler, PolynomialLR};
use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions, Averaging, SWALR, update_bn};
use torchrs::optim::{
    Adadelta, Adamax, Optimizer, ParamGroup, RAdam, Rprop, SGD, SGDOptions, SparseAdam,
    SparseAdamOptions,
};
use torchrs::{Dtype, Tensor, no_grad};

fn recorded() -> Value {
    serde_json::from_str(include_str!("../fixtures/optim_reference.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(list) => list.iter().map(|v| v.as_f64().unwrap()).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

#[track_caller]
fn near(got: &[f64], want: &[f64], what: &str) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-10 * (1.0 + b.abs());
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(close),
        "{what}: {got:?}, expected {want:?}"
    );
}

/// The defaults but for what is given.
fn options<O: Default + Serialize + DeserializeOwned>(given: &Value) -> O {
    let mut all = serde_json::to_value(O::default()).unwrap();
    for (name, value) in given.as_object().unwrap() {
        assert!(all.get(name).is_some(), "no option {name}");
        all[name] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

#[test]
fn optimizers_follow_pytorchs_trajectories() {
    for case in recorded()["optimizers"].as_array().unwrap() {
        let p = Tensor::from(numbers(&case["initial"])).requires_grad_(true);
        let (op, given) = (case["op"].as_str().unwrap(), &case["kwargs"]);
        macro_rules! made {
            ($($optimizer:ident)*) => {
                match op {
                    $(stringify!($optimizer) => {
                        Box::new($optimizer::new([p.clone()], options(given))) as Box<dyn Optimizer>
                    })*
                    _ => panic!("no {op}"),
                }
            };
        }
        let mut optimizer = made!(RAdam Rprop Adadelta Adamax);
        let steps =
            case["grads"].as_array().unwrap().iter().zip(case["values"].as_array().unwrap());
        for (t, (grad, value)) in steps.enumerate() {
            p.set_grad(Some(Tensor::from(numbers(grad))));
            optimizer.step();
            near(&p.to_vec::<f64>(), &numbers(value), &format!("{op} {given}, step {t}"));
        }
    }
}

#[test]
fn schedules_follow_pytorchs_rates() {
    for case in recorded()["schedules"].as_array().unwrap() {
        let group = |lr: f64| {
            let p = Tensor::zeros([1], Dtype::F64).requires_grad_(true);
            ParamGroup::new([p], SGDOptions { lr, momentum: 0.9, ..Default::default() })
        };
        let mut optimizer = SGD::with_groups(numbers(&case["initial"]).into_iter().map(group));
        let (op, mut given) = (case["op"].as_str().unwrap(), case["kwargs"].clone());
        let mut take = |name: &str| given.as_object_mut().unwrap().remove(name);
        let mut schedule: Box<dyn LRScheduler> = match op {
            "CyclicLR" => {
                let [base, max] = ["base_lr", "max_lr"].map(|name| numbers(&take(name).unwrap()));
                Box::new(CyclicLR::new(&mut optimizer, &base, &max, options(&given)))
            }
            "PolynomialLR" => {
                let total = take("total_iters").unwrap().as_u64().unwrap();
                let power = take("power").unwrap().as_f64().unwrap();
                Box::new(PolynomialLR::new(&mut optimizer, total, power))
            }
            "ConstantLR" => {
                let total = take("total_iters").unwrap().as_u64().unwrap();
                let factor = take("factor").unwrap().as_f64().unwrap();
                Box::new(ConstantLR::new(&mut optimizer, factor, total))
            }
            "SWALR" => {
                let rates = numbers(&take("swa_lr").unwrap());
                let epochs = take("anneal_epochs").map_or(10, |v| v.as_u64().unwrap());
                let linear = take("anneal_strategy").is_some_and(|v| v == "linear");
                let strategy = if linear { Anneal::Linear } else { Anneal::Cos };
                Box::new(SWALR::new(&mut optimizer, &rates, epochs, strategy))
            }
            _ => panic!("no {op}"),
        };
        let expected =
            case["lr"].as_array().unwrap().iter().zip(case["momentum"].as_array().unwrap());
        for (t, (lr, momentum)) in expected.enumerate() {
            if t > 0 {
                optimizer.step();
                schedule.step(&mut optimizer);
            }
            let what = format!("{op} {} at {t}", case["kwargs"]);
            near(&[0, 1].map(|g| optimizer.lr(g)), &numbers(lr), &what);
            near(&[0, 1].map(|g| optimizer.momentum(g).unwrap()), &numbers(momentum), &what);
        }
    }
}

/// Writes recorded numbers into a module's tensors.
fn set(module: &impl Module, numbers_by_name: &Value) {
    for (name, target) in module.state_dict().iter() {
        let values = Tensor::from(numbers(&numbers_by_name[name])).reshape_as(target);
        no_grad(|| _ = target.copy_(&values));
    }
}

fn compare(module: &impl Module, numbers_by_name: &Value, what: &str) {
    for (name, tensor) in module.state_dict().iter() {
        let want = numbers(&numbers_by_name[name]);
        near(&tensor.to_vec::<f64>(), &want, &format!("{what}: {name}"));
    }
}

fn in_f64<M: Module>(mut module: M) -> M {
    module.to(Dtype::F64);
    module
}

#[test]
fn averages_are_those_of_pytorch() {
    let build = || {
        in_f64(nn::Sequential::new().append(nn::Linear::new(2, 2)).append(nn::BatchNorm1d::new(2)))
    };
    for case in recorded()["averages"].as_array().unwrap() {
        let model = build();
        set(&model, &case["initial"]);
        let averaging =
            case["decay"].as_f64().map_or(Averaging::Swa, |decay| Averaging::Ema { decay });
        let use_buffers = case["use_buffers"].as_bool().unwrap();
        let options = AveragedModelOptions { averaging, use_buffers };
        let average = AveragedModel::with_module(build(), &model, options);
        compare(&average.module, &case["initial"], "the start");
        let steps =
            case["models"].as_array().unwrap().iter().zip(case["averages"].as_array().unwrap());
        for (t, (weights, expected)) in steps.enumerate() {
            set(&model, weights);
            average.update_parameters(&model);
            assert_eq!(average.n_averaged(), t as u64 + 1);
            compare(&average.module, expected, &format!("{} {use_buffers} {t}", case["decay"]));
        }
        // The average is saved and goes on.
        let other = AveragedModel::with_module(build(), &model, AveragedModelOptions::default());
        other.load_state_dict(&average.state_dict(), true).unwrap();
        assert_eq!(other.n_averaged(), average.n_averaged());
        let x = Tensor::ones([1, 2], Dtype::F64);
        other.eval();
        average.eval();
        assert!(other.forward(&x).equal(&average.forward(&x)));
    }
}

#[test]
fn a_custom_average_and_a_model_that_is_shared() {
    let build = || nn::Linear::new(2, 1);
    let model = build();
    let largest = |a: &Tensor, w: &Tensor, _: u64| a.maximum(w);
    let averaging = Averaging::Custom(Box::new(largest));
    let average =
        AveragedModel::new(&model, AveragedModelOptions { averaging, ..Default::default() });
    for value in [1.0, 5.0, 2.0] {
        no_grad(|| model.weight.fill_(value));
        average.update_parameters(&model);
    }
    assert_eq!(average.module.weight.to_vec::<f32>(), [5.0, 5.0]);
    let shared =
        torchrs::catch(|| AveragedModel::with_module(model.clone(), &model, Default::default()));
    assert!(shared.err().unwrap().to_string().contains("shares"));
    let wrong = torchrs::catch(|| {
        let averaging = Averaging::Ema { decay: 1.5 };
        AveragedModel::new(&model, AveragedModelOptions { averaging, ..Default::default() })
    });
    assert!(wrong.err().unwrap().to_string().contains("1.5"));
}

#[test]
fn update_bn_gives_the_mean_over_all_batches() {
    let case = &recorded()["batch_norm"];
    let model = in_f64(
        nn::Sequential::new()
            .append(nn::BatchNorm1d::new(2))
            .append(nn::Linear::new(2, 2))
            .append(nn::BatchNorm1d::new(2).momentum(0.4)),
    );
    set(&model, &case["initial"]);
    model.eval();
    let batch = |b: &Value| Tensor::from(numbers(b)).reshape([-1, 2]);
    update_bn(case["batches"].as_array().unwrap().iter().map(batch), &model);
    compare(&model, &case["after"], "after update_bn");
    assert!(!model.is_training());
    // The layer's own momentum counts again.
    model.train();
    let before = model.state_dict()["0.running_mean"].to_vec::<f64>()[0];
    model.forward(&Tensor::zeros([4, 2], Dtype::F64));
    let after = model.state_dict()["0.running_mean"].to_vec::<f64>()[0];
    assert!((after - 0.9 * before).abs() < 1e-12);
}

/// Numbers of PyTorch 2.15, whose gradients had these rows.
#[test]
fn sparse_adam_leaves_rows_without_a_gradient() {
    let defaults = SparseAdamOptions { lr: 0.1, ..Default::default() };
    let others = SparseAdamOptions { lr: 0.3, betas: (0.5, 0.7), eps: 1e-2, maximize: true };
    let cases = [
        (
            defaults,
            [
                0.42126430130682113,
                -0.8771359814699548,
                1.8550666633967312,
                0.38193559103088076,
                -0.9023276266460051,
                1.4418871699064348,
            ],
        ),
        (
            others,
            [
                0.6484698704113383,
                -1.297286161059229,
                2.508693015330194,
                -0.14685100034161688,
                -0.31475214761182546,
                1.753106067063061,
            ],
        ),
    ];
    let grads = [
        [[1.0, -2.0], [0.0, 0.0], [0.5, 0.0]],
        [[0.0, 0.0], [0.25, -0.5], [0.0, 0.0]],
        [[-1.5, 1.0], [2.0, 0.0], [0.0, 0.0]],
        [[0.0, 0.0], [0.0, 0.0], [0.0, 3.0]],
    ];
    for (options, want) in cases {
        let p = Tensor::from([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]]).requires_grad_(true);
        let mut optimizer = SparseAdam::new([p.clone()], options);
        for grad in grads {
            p.set_grad(Some(Tensor::from(grad)));
            optimizer.step();
        }
        for (ours, want) in p.to_vec::<f64>().into_iter().zip(want) {
            assert!((ours - want).abs() < 1e-14, "{ours} {want}");
        }
    }
    let error = torchrs::catch(|| {
        SparseAdam::new([Tensor::from([1f64])], SparseAdamOptions { lr: 0.0, ..Default::default() })
    });
    let error = error.err().expect("a rate of 0").to_string();
    assert!(error.contains("lr") && error.contains("above 0"), "{error}");
}
