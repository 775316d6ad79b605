//! Optimizers, schedules and gradient clipping: PyTorch's golden trajectories (`tests/golden`, or
//! the folder that `TORCHRS_GOLDEN_DIR` names), saving and loading, misuse.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use torchrs::checkpoint::{TensorMap, load_file};
use torchrs::nn::{clip_grad_norm_, clip_grad_norm_with, clip_grad_value_, get_total_norm};
use torchrs::optim::lr_scheduler::{
    ChainedScheduler, ConstantLR, CosineAnnealingLR, ExponentialLR, LRScheduler, LambdaLR,
    LinearLR, MultiStepLR, OneCycleLR, OneCycleOptions, PlateauOptions, ReduceLROnPlateau,
    SequentialLR, StepLR, WarmupCosineLR,
};
use torchrs::optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, LBFGS, LBFGSOptions, Optimizer, OptimizerState,
    ParamGroup, Rprop, RpropOptions, SGD, SGDOptions, StateValue,
};
use torchrs::{Dtype, Tensor, catch};

/// The folder of golden cases, the first where several are named, and its manifest's cases of a kind.
fn golden(kind: &str) -> (PathBuf, Vec<Value>) {
    let named = std::env::var_os("TORCHRS_GOLDEN_DIR");
    let folder = match named.and_then(|folders| std::env::split_paths(&folders).next()) {
        Some(folder) => folder,
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/optim"),
    };
    let text = fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    let cases = manifest["cases"].as_array().unwrap();
    (folder, cases.iter().filter(|case| case["kind"] == kind).cloned().collect())
}

/// The options of a case: defaults, overwritten by its keyword arguments.
fn options<O: Default + serde::Serialize + serde::de::DeserializeOwned>(kwargs: &[&Value]) -> O {
    let mut merged = serde_json::to_value(O::default()).unwrap();
    let given = kwargs.iter().flat_map(|k| k.as_object().into_iter().flatten());
    for (name, value) in given.filter(|(name, _)| *name != "params") {
        assert!(merged.get(name).is_some(), "unknown option {name}");
        merged[name] = value.clone();
    }
    serde_json::from_value(merged).unwrap()
}

/// The optimizer of a case over groups of parameters, if there is such an optimizer.
fn optimizer(op: &str, groups: Vec<(Vec<Tensor>, Vec<&Value>)>) -> Option<Box<dyn Optimizer>> {
    macro_rules! make {
        ($optimizer:ident) => {
            Box::new($optimizer::with_groups(
                groups.iter().map(|(p, kwargs)| ParamGroup::new(p.clone(), options(kwargs))),
            ))
        };
    }
    Some(match op {
        "optim.SGD" => make!(SGD),
        "optim.Adam" => make!(Adam),
        "optim.AdamW" => make!(AdamW),
        _ => return None,
    })
}

fn assert_close(got: &Tensor, want: &[f64], tol: &Value, what: &str) {
    let (rtol, atol) = (tol["rtol"].as_f64().unwrap(), tol["atol"].as_f64().unwrap());
    let got = got.to_vec::<f64>();
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let close = (got - want).abs() <= atol + rtol * want.abs();
        assert!(close || (got.is_nan() && want.is_nan()), "{what}[{i}]: {got}, PyTorch has {want}");
    }
}

fn run_trajectory(case: &Value, tensors: &TensorMap) -> bool {
    let id = case["id"].as_str().unwrap();
    let names: Vec<&str> =
        case["params"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    let at = |field: &str, name: &str| &tensors[case[field][name].as_str().unwrap()];
    let parameters: BTreeMap<&str, Tensor> = names
        .iter()
        .map(|name| (*name, at("initial", name).clone_contiguous().requires_grad_(true)))
        .collect();
    let groups = match case["param_groups"].as_array() {
        None => {
            vec![(names.iter().map(|n| parameters[n].clone()).collect(), vec![&case["kwargs"]])]
        }
        Some(groups) => groups
            .iter()
            .map(|group| {
                let params = group["params"].as_array().unwrap().iter();
                let params = params.map(|p| parameters[p.as_str().unwrap()].clone()).collect();
                (params, vec![&case["kwargs"], group])
            })
            .collect(),
    };
    let Some(mut optimizer) = optimizer(case["op"].as_str().unwrap(), groups) else { return false };
    for step in 0..case["steps"].as_u64().unwrap() as usize {
        if let Some(lr) = case["lr_per_step"].get(step) {
            optimizer.set_lr(0, lr.as_f64().unwrap());
        }
        for (i, name) in names.iter().enumerate() {
            let present = case["grad_present"][i][step] != json!(false);
            let grad = at("gradients", name).select(0, step as i64).clone_contiguous();
            parameters[name].set_grad(present.then_some(grad));
        }
        optimizer.step();
        for name in &names {
            let want = at("trajectory", name).select(0, step as i64).to_vec::<f64>();
            assert_close(
                &parameters[name],
                &want,
                &case["tol"],
                &format!("{id}: {name} at {step}"),
            );
        }
    }
    let saved = optimizer.state_dict();
    let order: Vec<Tensor> = optimizer.parameters();
    let (saved_tensors, rest) = saved.split();
    for (key, stored) in case["final_state"].as_object().unwrap() {
        let (name, entry) = key.split_once('.').unwrap();
        let place = order.iter().position(|t| t.ptr_eq(&parameters[name])).unwrap();
        let want = tensors[stored.as_str().unwrap()].to_vec::<f64>();
        let got = match saved_tensors.get(&format!("{place}.{entry}")) {
            Some(tensor) => tensor.clone(),
            None => Tensor::from([rest["state"][place][entry].as_f64().unwrap()]),
        };
        assert_close(&got, &want, &case["tol"], &format!("{id}: {key} at the end"));
    }
    true
}

#[test]
fn trajectories_are_those_of_pytorch() {
    let (folder, cases) = golden("optimizer");
    let tensors = load_file(folder.join("optim.safetensors")).unwrap();
    let run = cases.iter().filter(|case| run_trajectory(case, &tensors)).count();
    assert!(run >= 16, "only {run} cases were run");
}

#[test]
fn options_that_pytorch_refuses_are_refused() {
    let (_, cases) = golden("optimizer_error");
    let mut run = 0;
    for case in cases {
        let op = case["op"].as_str().unwrap();
        let w = Tensor::zeros([2], Dtype::F32).requires_grad_(true);
        match catch(|| optimizer(op, vec![(vec![w], vec![&case["kwargs"]])]).is_some()) {
            Ok(known) => assert!(!known, "{op} took {}", case["kwargs"]),
            Err(error) => {
                run += 1;
                let (option, _) = case["kwargs"].as_object().unwrap().iter().next_back().unwrap();
                assert!(error.to_string().contains(option.as_str()), "{error}");
            }
        }
    }
    assert!(run >= 4, "only {run} cases were run");
}

fn scheduler(spec: &Value, optimizer: &mut dyn Optimizer) -> Option<Box<dyn LRScheduler>> {
    let kwargs = &spec["kwargs"];
    let float = |name: &str, default: f64| kwargs[name].as_f64().unwrap_or(default);
    let int = |name: &str| kwargs[name].as_u64().unwrap();
    let ints = |name: &str| -> Vec<u64> {
        kwargs[name].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect()
    };
    Some(match spec["op"].as_str().unwrap() {
        "lr_scheduler.StepLR" => {
            Box::new(StepLR::new(optimizer, int("step_size"), float("gamma", 0.1)))
        }
        "lr_scheduler.MultiStepLR" => {
            Box::new(MultiStepLR::new(optimizer, ints("milestones"), float("gamma", 0.1)))
        }
        "lr_scheduler.ExponentialLR" => {
            Box::new(ExponentialLR::new(optimizer, float("gamma", 0.0)))
        }
        "lr_scheduler.CosineAnnealingLR" => {
            Box::new(CosineAnnealingLR::new(optimizer, int("T_max"), float("eta_min", 0.0)))
        }
        "lr_scheduler.LinearLR" => Box::new(LinearLR::new(
            optimizer,
            float("start_factor", 1.0 / 3.0),
            float("end_factor", 1.0),
            int("total_iters"),
        )),
        "lr_scheduler.LambdaLR" => match kwargs["lr_lambda"].as_str().unwrap() {
            "0.95**epoch" => Box::new(LambdaLR::new(optimizer, |epoch| 0.95f64.powi(epoch as i32))),
            "0.5 if epoch % 4 == 0 else 1" => {
                Box::new(LambdaLR::new(optimizer, |epoch| if epoch % 4 == 0 { 0.5 } else { 1.0 }))
            }
            other => panic!("unknown formula {other}"),
        },
        "lr_scheduler.SequentialLR" => {
            let specs = spec["schedulers"].as_array().unwrap();
            let parts: Option<Vec<_>> = specs.iter().map(|s| scheduler(s, optimizer)).collect();
            Box::new(SequentialLR::new(optimizer, parts?, ints("milestones")))
        }
        _ => return None,
    })
}

fn two_groups(op: &str, rates: &[f64]) -> Box<dyn Optimizer> {
    let kwargs: Vec<Value> =
        rates.iter().map(|lr| json!({ "lr": lr, "weight_decay": 0.0 })).collect();
    let group = |k| (vec![Tensor::zeros([1], Dtype::F64).requires_grad_(true)], vec![k]);
    optimizer(op, kwargs.iter().map(group).collect()).unwrap()
}

#[test]
fn schedules_are_those_of_pytorch_also_after_loading() {
    let (_, cases) = golden("lr_scheduler");
    let mut run = 0;
    for case in &cases {
        let op = case["optimizer"]["op"].as_str().unwrap();
        let rates: Vec<f64> =
            serde_json::from_value(case["optimizer"]["group_lr"].clone()).unwrap();
        let want: Vec<Vec<f64>> = serde_json::from_value(case["lr"].clone()).unwrap();
        let mut optimizer = two_groups(op, &rates);
        let Some(mut schedule) = scheduler(&case["scheduler"], &mut *optimizer) else { continue };
        run += 1;
        for (t, want) in want.iter().enumerate() {
            if t > 0 {
                optimizer.step();
                schedule.step(&mut *optimizer);
            }
            if t == 9 {
                // Everything made anew, as a resumed program does.
                let saved = (optimizer.state_dict(), schedule.state_dict());
                let text = serde_json::to_string(&(&saved.0.param_groups, &saved.1)).unwrap();
                let (groups, state): (Value, Value) = serde_json::from_str(&text).unwrap();
                optimizer = two_groups(op, &rates);
                schedule = scheduler(&case["scheduler"], &mut *optimizer).unwrap();
                let saved = OptimizerState { param_groups: groups, ..saved.0 };
                optimizer.load_state_dict(&saved).unwrap();
                schedule.load_state_dict(&state).unwrap();
            }
            let got: Vec<f64> = (0..rates.len()).map(|group| optimizer.lr(group)).collect();
            let what = format!("{} at {t}", case["id"]);
            assert_close(&Tensor::from(got.clone()), want, &case["tol"], &what);
            assert_eq!(schedule.last_lr(), got, "{what}");
        }
    }
    assert!(run >= 10, "only {run} cases were run");
}

#[test]
fn warmup_then_cosine() {
    let mut optimizer = two_groups("optim.SGD", &[1.0, 10.0]);
    let mut schedule = WarmupCosineLR::new(&mut *optimizer, 3, 7, 0.1);
    let mut rates = vec![optimizer.lr(0)];
    for _ in 0..8 {
        schedule.step(&mut *optimizer);
        rates.push(optimizer.lr(0));
        assert!((optimizer.lr(1) - 10.0 * optimizer.lr(0)).abs() < 1e-12);
    }
    for (got, want) in rates.iter().zip([0.25, 0.5, 0.75, 1.0, 0.868198, 0.55, 0.231802, 0.1, 0.1])
    {
        assert!((got - want).abs() < 1e-6, "{rates:?}");
    }
}

/// A little problem: the loss is the sum of (w - target)^2 over all parameters.
fn problem() -> Vec<Tensor> {
    let parameters = [Tensor::from([1f32, -2.0, 3.0]), Tensor::from([[0.5f32, 4.0]])];
    parameters.into_iter().map(|t| t.requires_grad_(true)).collect()
}

fn take_step(parameters: &[Tensor], optimizer: &mut dyn Optimizer) {
    optimizer.zero_grad();
    for w in parameters {
        (w * w).sum().backward();
    }
    optimizer.step();
}

#[test]
fn a_loaded_optimizer_goes_on_bit_for_bit() {
    type Make = fn(&[Tensor]) -> Box<dyn Optimizer>;
    let makers: [Make; 3] = [
        |p| {
            let o = SGDOptions { lr: 0.05, momentum: 0.9, ..Default::default() };
            Box::new(SGD::new(p.to_vec(), o))
        },
        |p| {
            let o = AdamOptions { amsgrad: true, weight_decay: 0.1, ..Default::default() };
            Box::new(Adam::new(p.to_vec(), o))
        },
        |p| Box::new(AdamW::new(p.to_vec(), AdamWOptions::default())),
    ];
    for make in makers {
        let (a, b) = (problem(), problem());
        let mut first = make(&a);
        first.set_lr(0, 0.02);
        (0..3).for_each(|_| take_step(&a, &mut *first));
        let (tensors, rest) = first.state_dict().split();
        let text = serde_json::to_string(&rest).unwrap();
        torchrs::no_grad(|| b.iter().zip(&a).for_each(|(b, a)| _ = b.copy_(a)));
        let mut second = make(&b);
        let rest: Value = serde_json::from_str(&text).unwrap();
        second.load_state_dict(&OptimizerState::join(&tensors, &rest).unwrap()).unwrap();
        assert_eq!(second.lr(0), 0.02);
        take_step(&a, &mut *first);
        take_step(&b, &mut *second);
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(a.to_vec::<f32>(), b.to_vec::<f32>());
        }
    }
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let parameters = problem();
    let mut optimizer = AdamW::new(parameters.clone(), AdamWOptions::default());
    take_step(&parameters, &mut optimizer);
    let good = optimizer.state_dict();

    let mut swapped = good.clone();
    swapped.state.swap(0, 1);
    swapped.param_groups[0]["lr"] = json!(0.5);
    let error = optimizer.load_state_dict(&swapped).unwrap_err().to_string();
    assert!(error.contains("exp_avg") && error.contains("[1, 2]"), "{error}");
    assert_eq!(optimizer.lr(0), 1e-3);

    let mut missing = good.clone();
    missing.state[1].remove("exp_avg_sq");
    let error = optimizer.load_state_dict(&missing).unwrap_err().to_string();
    assert!(error.contains("parameter 1") && error.contains("`exp_avg_sq` is missing"), "{error}");

    let mut other = AdamW::new([parameters[0].clone()], AdamWOptions::default());
    let error = other.load_state_dict(&good).unwrap_err().to_string();
    assert!(error.contains("[2]") && error.contains("[1]"), "{error}");

    // The state of another optimizer, of whose entries some or all are known here.
    let mut sgd = SGD::new(parameters.clone(), SGDOptions::default());
    let error = sgd.load_state_dict(&good).unwrap_err().to_string();
    assert!(error.contains("`exp_avg`") && error.contains("another optimizer"), "{error}");
    let mut rprop = Rprop::new(parameters.clone(), RpropOptions::default());
    assert!(rprop.load_state_dict(&good).is_err());

    let tensors = BTreeMap::from([("7.exp_avg".to_owned(), Tensor::zeros([1], Dtype::F32))]);
    let error = OptimizerState::join(&tensors, &json!({ "state": [{}], "param_groups": [] }));
    assert!(error.unwrap_err().to_string().contains("7.exp_avg"));
}

#[test]
fn misuse_is_named() {
    let w = Tensor::from([1f32]).requires_grad_(true);
    let message = |f: &mut dyn FnMut()| catch(f).unwrap_err().to_string();
    let twice = [w.clone(), w.clone()];
    let m = message(&mut || drop(SGD::new(twice.clone(), SGDOptions::default())));
    assert!(m.contains("SGD") && m.contains("parameter 1 of group 0"), "{m}");
    let m = message(&mut || drop(AdamW::new([], AdamWOptions::default())));
    assert!(m.contains("no parameters"), "{m}");
    let m = message(&mut || drop(SGD::new([&w * 2.0], SGDOptions::default())));
    assert!(m.contains("leaf"), "{m}");
    let mut optimizer = SGD::new([w], SGDOptions::default());
    let m = message(&mut || drop(StepLR::new(&mut optimizer, 0, 0.1)));
    assert!(m.contains("step_size"), "{m}");
}

#[test]
fn half_parameters_are_updated_in_f32() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let values: Vec<f32> = (0..600).map(|i| 0.5 + i as f32 / 256.0).collect();
        let w = Tensor::from(values.clone()).to_dtype(dtype).detach().requires_grad_(true);
        w.set_grad(Some(Tensor::full([600], 0.25, dtype)));
        let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.125, ..Default::default() });
        optimizer.step();
        let want = Tensor::from(values.iter().map(|v| v - 0.03125).collect::<Vec<f32>>());
        let before = Tensor::from(values).to_dtype(dtype).to_vec::<f32>();
        let want: Vec<f32> = match dtype {
            // Both numbers are exact in f16.
            Dtype::F16 => want.to_vec(),
            _ => Tensor::from(before.iter().map(|v| v - 0.03125).collect::<Vec<f32>>())
                .to_dtype(dtype)
                .to_vec(),
        };
        assert_eq!(w.to_vec::<f32>(), want, "{dtype}");
    }
}

#[test]
fn a_parameter_that_is_a_strided_tensor_is_updated_in_place() {
    let storage = Tensor::from([[1f32, 2.0], [3.0, 4.0]]);
    let w = storage.detach().t().requires_grad_(true);
    assert!(!w.is_contiguous());
    w.set_grad(Some(Tensor::from([[1f32, 2.0], [3.0, 4.0]])));
    let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
    optimizer.step();
    // storage - grad^T
    assert_eq!(storage.to_vec::<f32>(), [0.0, -1.0, 1.0, 0.0]);
}

#[test]
fn a_step_is_noticed_by_a_graph_that_saved_the_parameter() {
    let (w, x) =
        (Tensor::from([2f32]).requires_grad_(true), Tensor::from([3f32]).requires_grad_(true));
    let y = (&w * &x).sum();
    w.set_grad(Some(Tensor::from([1f32])));
    SGD::new([w], SGDOptions::default()).step();
    let error = catch(|| y.backward()).unwrap_err().to_string();
    assert!(error.contains("changed in place"), "{error}");
}

#[test]
fn large_parameters_on_several_threads_are_updated_as_small_ones() {
    let n = 300_000;
    let values: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 / 100.0 - 5.0).collect();
    let grads: Vec<f32> = (0..n).map(|i| (i % 777) as f32 / 100.0 - 4.0).collect();
    let leaf = |v: &[f32], g: &[f32]| {
        let w = Tensor::from(v.to_vec()).requires_grad_(true);
        w.set_grad(Some(Tensor::from(g.to_vec())));
        w
    };
    let whole = leaf(&values, &grads);
    let parts: Vec<Tensor> =
        values.chunks(1001).zip(grads.chunks(1001)).map(|(v, g)| leaf(v, g)).collect();
    for parameters in [vec![whole.clone()], parts.clone()] {
        let mut optimizer = AdamW::new(parameters, AdamWOptions::default());
        (0..3).for_each(|_| optimizer.step());
    }
    let parts: Vec<f32> = parts.iter().flat_map(|t| t.to_vec::<f32>()).collect();
    assert!(whole.to_vec::<f32>() == parts);
}

#[test]
fn zero_grad_drops_or_zeroes() {
    let parameters = problem();
    let mut optimizer = SGD::new(parameters.clone(), SGDOptions::default());
    take_step(&parameters, &mut optimizer);
    let grad = parameters[0].grad().unwrap();
    optimizer.zero_grad_to_zeros();
    assert_eq!(grad.to_vec::<f32>(), [0.0; 3]);
    assert!(parameters[0].grad().is_some());
    optimizer.zero_grad();
    assert!(parameters[0].grad().is_none());
}

#[test]
fn step_with_computes_the_loss_itself() {
    let w = Tensor::from([3f32]).requires_grad_(true);
    let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.5, ..Default::default() });
    let loss = torchrs::no_grad(|| {
        optimizer.step_with(&mut || {
            let loss = (&w * &w).sum();
            loss.backward();
            loss
        })
    });
    assert_eq!((loss.item(), w.item()), (9.0, 0.0));
}

fn with_grads(grads: &[&[f32]]) -> Vec<Tensor> {
    let leaf = |g: &&[f32]| {
        let w = Tensor::zeros([g.len()], Dtype::F32).requires_grad_(true);
        w.set_grad(Some(Tensor::from(g.to_vec())));
        w
    };
    let mut parameters: Vec<Tensor> = grads.iter().map(leaf).collect();
    parameters.push(Tensor::zeros([2], Dtype::F32).requires_grad_(true));
    parameters
}

#[test]
fn gradients_are_clipped_to_a_total_norm() {
    let parameters = with_grads(&[&[3.0, 0.0], &[-4.0]]);
    assert_eq!(clip_grad_norm_(&parameters, 10.0).item(), 5.0);
    assert_eq!(parameters[1].grad().unwrap().item(), -4.0);
    assert_eq!(clip_grad_norm_(&parameters, 1.0).item(), 5.0);
    let clipped = parameters[0].grad().unwrap().to_vec::<f64>()[0];
    assert!((clipped - 3.0 / (5.0 + 1e-6)).abs() < 1e-6);
    assert!(parameters[2].grad().is_none());

    for (norm_type, want) in [(1.0, 7.0), (f64::INFINITY, 4.0), (3.0, 91f64.cbrt())] {
        let parameters = with_grads(&[&[3.0, 0.0], &[-4.0]]);
        let norm = clip_grad_norm_with(&parameters, 100.0, norm_type, true).unwrap();
        assert!((norm.item() - want).abs() < 1e-5, "{norm_type}: {}", norm.item());
    }
    let grads: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
    assert!((get_total_norm(&grads, 2.0).item() - 1.0).abs() < 1e-5);
    assert_eq!(get_total_norm(&[], 2.0).item(), 0.0);
}

#[test]
fn a_norm_that_is_not_finite_is_an_error_if_wanted() {
    let parameters = with_grads(&[&[f32::INFINITY, 1.0]]);
    let error = clip_grad_norm_with(&parameters, 1.0, 2.0, true).unwrap_err().to_string();
    assert!(error.contains("inf"), "{error}");
    assert_eq!(parameters[0].grad().unwrap().to_vec::<f32>()[1], 1.0);
    assert!(clip_grad_norm_(&parameters, 1.0).item().is_infinite());
}

#[test]
fn gradients_are_clipped_by_value() {
    let parameters = with_grads(&[&[3.0, -0.5, f32::NAN], &[-4.0]]);
    clip_grad_value_(&parameters, 1.0);
    let grad = parameters[0].grad().unwrap().to_vec::<f32>();
    assert_eq!(grad[..2], [1.0, -0.5]);
    assert!(grad[2].is_nan());
    assert_eq!(parameters[1].grad().unwrap().item(), -1.0);
}

#[test]
fn schedules_without_length_and_without_factor_give_numbers() {
    let fresh = || {
        let w = Tensor::zeros([1], Dtype::F64).requires_grad_(true);
        SGD::new([w], SGDOptions { lr: 1.0, momentum: 0.9, ..Default::default() })
    };
    // The rise takes 0.3 * 10 - 1 steps; with a share of 0.1 none, and the highest rate comes first.
    let mut optimizer = fresh();
    let options = OneCycleOptions { pct_start: 0.1, ..Default::default() };
    let mut schedule = OneCycleLR::new(&mut optimizer, &[1.0], 10, options);
    assert_eq!((optimizer.lr(0), optimizer.momentum(0)), (1.0, Some(0.85)));
    for _ in 0..9 {
        schedule.step(&mut optimizer);
        assert!(optimizer.lr(0) > 0.0 && optimizer.lr(0) < 1.0);
    }
    // A single step.
    let mut optimizer = fresh();
    OneCycleLR::new(&mut optimizer, &[1.0], 1, Default::default());
    assert!(optimizer.lr(0).is_finite() && optimizer.momentum(0).unwrap().is_finite());
    // Frozen for two epochs.
    let mut optimizer = fresh();
    let mut schedule = ConstantLR::new(&mut optimizer, 0.0, 2);
    let mut rates = vec![optimizer.lr(0)];
    for _ in 0..3 {
        schedule.step(&mut optimizer);
        rates.push(optimizer.lr(0));
    }
    assert_eq!(rates, [0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn a_plateau_schedule_refuses_a_state_of_other_groups() {
    let w = Tensor::zeros([1], Dtype::F64).requires_grad_(true);
    let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
    let mut schedule = ReduceLROnPlateau::new(&mut optimizer, PlateauOptions::default());
    let mut state = schedule.state_dict();
    assert_eq!(state["min_lrs"], serde_json::json!([0.0]));
    schedule.load_state_dict(&state).unwrap();
    state["min_lrs"] = serde_json::json!([0.0, 0.1]);
    let error = schedule.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("min_lrs"), "{error}");
}

#[test]
fn lbfgs_refuses_what_does_not_fit() {
    let w = Tensor::from([3f32, -2.0]).requires_grad_(true);
    let twice = catch(|| LBFGS::new([w.clone(), w.clone()], LBFGSOptions::default()));
    assert!(twice.err().unwrap().to_string().contains("once"));
    let mut optimizer = LBFGS::new([w.clone()], LBFGSOptions { max_iter: 3, ..Default::default() });
    optimizer.step_with(&mut || {
        w.set_grad(None);
        let loss = w.pow(4.0).sum();
        loss.backward();
        loss
    });
    let state = optimizer.state_dict();
    // A state in f64 goes on in the parameters' type.
    let mut wide = state.clone();
    for value in wide.state[0].values_mut() {
        if let StateValue::Tensor(t) = value {
            *t = t.to_dtype(Dtype::F64);
        }
    }
    let mut other = LBFGS::new([w.clone()], LBFGSOptions::default());
    other.load_state_dict(&wide).unwrap();
    match &other.state_dict().state[0]["d"] {
        StateValue::Tensor(t) => assert_eq!(t.dtype(), Dtype::F32),
        number => panic!("{number:?}"),
    }
    let mut groups = state.clone();
    groups.param_groups = serde_json::json!([]);
    let mut size = state.clone();
    size.state[0].insert("d".into(), StateValue::Tensor(Tensor::zeros([3], Dtype::F32)));
    let mut change = state.clone();
    if let Some(StateValue::Tensor(t)) = change.state[0].get_mut("old_dirs") {
        *t = -&*t;
    }
    for (wrong, about) in [(groups, "groups"), (size, "`d`"), (change, "old_dirs")] {
        let error = other.load_state_dict(&wrong).unwrap_err().to_string();
        assert!(error.contains(about), "{error}");
    }
}

/// Few gradients and more than any cache holds, dense and not, take different ways to zero.
#[test]
fn gradients_of_any_size_are_set_to_zero() {
    for rows in [2, 3000] {
        let gradients = [
            Tensor::full([rows, 2048], 3.0, Dtype::F32),
            Tensor::full([2048, rows], f64::NAN, Dtype::F32).t(),
            Tensor::full([7], -1.0, Dtype::F32),
        ];
        let parameters = gradients.clone().map(|grad| {
            let parameter = Tensor::zeros(grad.shape(), Dtype::F32).requires_grad_(true);
            parameter.set_grad(Some(grad));
            parameter
        });
        let without = Tensor::zeros([3], Dtype::F32).requires_grad_(true);
        let all = parameters.iter().cloned().chain([without.clone()]);
        let versions = gradients.each_ref().map(Tensor::version);
        SGD::new(all, SGDOptions::default()).zero_grad_to_zeros();
        for (parameter, (gradient, version)) in
            parameters.iter().zip(gradients.iter().zip(versions))
        {
            let shown = parameter.grad().expect("is kept");
            assert_eq!(shown.data_ptr(), gradient.data_ptr(), "in place");
            assert!(shown.abs().sum().item() == 0.0, "{:?}", shown.shape());
            assert!(shown.version() > version, "what was saved of it is known to be stale");
        }
        assert!(without.grad().is_none());
    }
}

/// Makes a scheduler for an optimizer.
type Schedule = fn(&mut dyn Optimizer) -> Box<dyn LRScheduler>;

/// Every kind of schedule, of rates that are not at their start when they are saved.
fn schedules() -> Vec<(&'static str, Schedule)> {
    vec![
        ("StepLR", |o| Box::new(StepLR::new(o, 2, 0.5))),
        ("LinearLR", |o| Box::new(LinearLR::new(o, 0.1, 1.0, 3))),
        ("ExponentialLR", |o| Box::new(ExponentialLR::new(o, 0.5))),
        ("LambdaLR", |o| Box::new(LambdaLR::new(o, |epoch| 1.0 / (1 + epoch) as f64))),
        ("CosineAnnealingLR", |o| Box::new(CosineAnnealingLR::new(o, 10, 0.0))),
        ("OneCycleLR", |o| {
            let options = OneCycleOptions { cycle_momentum: false, ..Default::default() };
            Box::new(OneCycleLR::new(o, &[1.0], 20, options))
        }),
        ("chained", |o| {
            let first: Box<dyn LRScheduler> = Box::new(ConstantLR::new(o, 0.1, 3));
            let second = Box::new(ExponentialLR::new(o, 0.9));
            Box::new(ChainedScheduler::new(vec![first, second]))
        }),
        ("SequentialLR", |o| {
            let first: Box<dyn LRScheduler> = Box::new(LinearLR::new(o, 0.1, 1.0, 3));
            let second = Box::new(ExponentialLR::new(o, 0.9));
            Box::new(SequentialLR::new(o, vec![first, second], vec![3]))
        }),
    ]
}

#[test]
fn a_scheduler_made_after_its_optimizer_was_loaded_is_refused() {
    let make = || two_groups("optim.SGD", &[0.5, 0.25]);
    for (name, schedule) in schedules() {
        for steps in [0, 5] {
            let mut old = make();
            let mut going = schedule(&mut *old);
            (0..steps).for_each(|_| going.step(&mut *old));
            // The order that works.
            let mut resumed = make();
            let mut goes_on = schedule(&mut *resumed);
            resumed.load_state_dict(&old.state_dict()).unwrap();
            goes_on.load_state_dict(&going.state_dict()).unwrap();
            // The one that does not.
            let mut trap = make();
            trap.load_state_dict(&old.state_dict()).unwrap();
            let rates = [0, 1].map(|g| (trap.lr(g), trap.initial_lr(g)));
            let error = catch(|| schedule(&mut *trap)).map(drop).unwrap_err().to_string();
            assert!(error.contains("before `load_state_dict`"), "{name}: {error}");
            let now = [0, 1].map(|g| (trap.lr(g), trap.initial_lr(g)));
            assert_eq!(rates, now, "{name} has changed nothing");
            for _ in 0..4 {
                going.step(&mut *old);
                goes_on.step(&mut *resumed);
                assert_eq!([0, 1].map(|g| old.lr(g)), [0, 1].map(|g| resumed.lr(g)), "{name}");
            }
            // A new schedule, when that is meant.
            for g in [0, 1] {
                trap.set_initial_lr(g, 1.0);
                trap.set_lr(g, 1.0);
            }
            schedule(&mut *trap);
        }
    }
    // Nothing was scheduled: nothing to mistake.
    let mut plain = make();
    plain.load_state_dict(&make().state_dict()).unwrap();
    StepLR::new(&mut *plain, 2, 0.5);
}

#[test]
fn clipping_to_no_norm_is_refused() {
    for max_norm in [-1.0, f64::NAN] {
        let w = with_grads(&[&[3.0, 4.0]]);
        let norm = Tensor::from([5f32]);
        let errors = [
            catch(|| clip_grad_norm_(&w, max_norm)).map(drop),
            catch(|| torchrs::nn::utils::clip_grads_with_norm_(&w, max_norm, &norm)),
            clip_grad_norm_with(&w, max_norm, 2.0, false).map(drop),
        ];
        for error in errors {
            assert!(error.unwrap_err().to_string().contains("`max_norm`"));
        }
        assert_eq!(w[0].grad().unwrap().to_vec::<f32>(), [3.0, 4.0]);
    }
}
