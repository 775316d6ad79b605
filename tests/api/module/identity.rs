//! A module that moves keeps its parameters: whoever holds one has the new elements.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use torchrs::amp::{GradScaler, GradScalerOptions};
use torchrs::autograd::{self, MultiGradMode, register_multi_grad_hook};
use torchrs::nn::utils::parametrizations::weight_norm;
use torchrs::nn::{self, Buffer, Forward, Linear, Module, Parameter, Sequential, clip_grad_norm_};
use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions, Averaging};
use torchrs::optim::*;
use torchrs::{Dtype, Dtype::F32, Dtype::F64, Tensor, catch, no_grad};

fn model() -> Sequential {
    let net = Sequential::new()
        .append(Linear::new(4, 6))
        .append(nn::BatchNorm1d::new(6))
        .append(nn::Tanh)
        .append(Linear::no_bias(6, 2));
    // Not by the default generator, from which other tests draw.
    for (i, p) in net.parameters().iter().enumerate() {
        no_grad(|| {
            p.copy_(&(Tensor::arange(0, p.numel() as i64, 1, F32) + i as f64).sin().reshape_as(p))
        });
    }
    net
}

fn loss(model: &Sequential) -> Tensor {
    let x = Tensor::arange(0, 20, 1, F32).view([5, 4]).sin();
    model.forward(&x.to_dtype(model.parameters()[0].dtype())).square().mean()
}

/// Losses of three steps.
fn steps(model: &Sequential, optimizer: &mut dyn Optimizer) -> Vec<f64> {
    let mut step = || {
        let closure = &mut || {
            model.zero_grad();
            let loss = loss(model);
            loss.backward();
            loss
        };
        optimizer.step_with(closure).item()
    };
    vec![step(), step(), step()]
}

type Make = fn(Vec<Tensor>) -> Box<dyn Optimizer>;

fn optimizers() -> Vec<(&'static str, Make)> {
    macro_rules! all {
        ($($name:ident),*) => {
            vec![$((stringify!($name), |params| Box::new($name::new(params, Default::default())))),*]
        };
    }
    let mut all: Vec<(&'static str, Make)> = all![
        Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, ASGD, LBFGS, NAdam, RAdam, RMSprop,
        Rprop, SparseAdam
    ];
    all.push(("Muon", |params| {
        let matrices = params.into_iter().filter(|p| p.dim() == 2);
        Box::new(Muon::new(matrices, Default::default()))
    }));
    all.push(("SGD", |params| {
        let options = SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
        Box::new(SGD::new(params, options))
    }));
    all
}

#[test]
fn an_optimizer_made_before_a_move_trains_as_one_made_after() {
    for (name, make) in optimizers() {
        let (mut first, mut second) = (model(), model());
        let mut before = make(first.parameters());
        first.double();
        second.double();
        let mut after = make(second.parameters());
        let losses = steps(&first, &mut *before);
        assert!(losses[0] != losses[2], "{name} trains nothing: {losses:?}");
        assert_eq!(losses, steps(&second, &mut *after), "{name}");
    }
}

#[test]
fn an_optimizer_takes_its_state_along_as_if_it_had_been_saved_and_loaded() {
    for (name, make) in optimizers() {
        let (mut first, mut second) = (model(), model());
        let mut moved = make(first.parameters());
        steps(&first, &mut *moved);
        second.load_state_dict(&first.state_dict(), true).expect("the same model");
        second.double();
        let mut loaded = make(second.parameters());
        loaded.load_state_dict(&moved.state_dict()).expect("the same parameters");
        first.double();
        assert_eq!(steps(&first, &mut *moved), steps(&second, &mut *loaded), "{name}");
        for entries in moved.state_dict().state {
            for (entry, value) in entries {
                let StateValue::Tensor(t) = value else { continue };
                assert!(t.dtype() == F64 || t.numel() == 1, "{name}: {entry} is {}", t.dtype());
            }
        }
    }
}

#[test]
fn all_who_hold_a_parameter_have_the_new_one() {
    let mut net = model();
    let (held, named) = (net.parameters(), net.named_buffers());
    let numbers: Vec<Vec<f64>> = held.iter().map(Tensor::to_vec).collect();
    let (saved, version) = (net.state_dict(), held[0].version());
    net.double();
    for (now, (held, numbers)) in net.parameters().iter().zip(held.iter().zip(&numbers)) {
        assert!(now.ptr_eq(held) && held.dtype() == F64 && held.requires_grad() && held.is_leaf());
        assert_eq!(&held.to_vec::<f64>(), numbers);
    }
    for ((name, now), (_, held)) in net.named_buffers().iter().zip(&named) {
        let whole = name.ends_with("num_batches_tracked");
        assert!(now.ptr_eq(held) && (held.dtype() == F64) != whole, "{name}");
    }
    assert!(held[0].version() > version, "those who watch the version see it");
    assert!(saved.iter().all(|(_, t)| t.dtype() != F64), "what was taken before stays");
    net.load_state_dict(&saved, true).expect("the same names");
    net.requires_grad_(false);
    net.share_memory().expect("memory");
    assert!(held.iter().all(|p| !p.requires_grad() && p.is_shared() && p.dtype() == F64));
}

#[test]
fn hooks_and_gradients_go_along() {
    let mut layer = Linear::new(3, 2);
    let (weight, bias) = (layer.weight.tensor().clone(), layer.parameters()[1].clone());
    layer.forward(&Tensor::ones([1, 3], F32)).sum().backward();
    let grad = weight.grad().expect("one");
    let calls = Arc::new(AtomicUsize::new(0));
    let count = || {
        let calls = calls.clone();
        move || _ = calls.fetch_add(1, Relaxed)
    };
    let (one, two, three) = (count(), count(), count());
    let _on_gradient = weight.register_hook(move |grad| {
        assert_eq!(grad.dtype(), F64);
        one();
        Some(grad * 2.0)
    });
    let _after = bias.register_post_accumulate_grad_hook(move |leaf| {
        assert_eq!(leaf.grad().map(|g| g.dtype()), Some(F64));
        two();
    });
    let _both = register_multi_grad_hook(&[&weight, &bias], move |_| three(), MultiGradMode::All);
    layer.double();
    assert!(weight.grad().is_some_and(|g| g.ptr_eq(&grad) && g.dtype() == F64));
    layer.forward(&Tensor::ones([1, 3], F64)).sum().backward();
    assert_eq!(grad.to_vec::<f64>(), [3.0; 6]); // 1 of before, and a doubled 1
    assert_eq!(calls.load(Relaxed), 3);
}

#[test]
fn a_graph_of_before_the_move_has_a_right_backward() {
    let mut layer = Linear::no_bias(2, 1);
    no_grad(|| layer.weight.copy_(&Tensor::from([[3f32, -2.]])));
    let y = layer.forward(&Tensor::from([[1f32, 1.]])).square().sum();
    layer.double();
    // Changes the new elements, while the graph has the old ones.
    no_grad(|| layer.weight.fill_(100.0));
    y.backward();
    let grad = layer.weight.grad().expect("one");
    assert_eq!((grad.dtype(), grad.to_vec::<f64>()), (F64, vec![2.0, 2.0]));
    // Also where the graph is kept, differentiated twice, and the leaf moves in between.
    let y = layer.weight.pow(3.0).sum();
    let first =
        autograd::grad(&[&y], &[&layer.weight], &[None], autograd::GraphMode::Create)[0].clone();
    layer.float();
    layer.zero_grad();
    first.expect("one").sum().backward();
    let grad = layer.weight.grad().expect("one");
    assert_eq!((grad.dtype(), grad.to_vec::<f64>()), (F32, vec![600.0, 600.0]));
}

/// Tensors in all kinds of places.
#[derive(Module)]
struct Odd {
    parameters: Vec<Parameter>,
    buffers: Vec<Buffer>,
}

#[test]
fn a_tensor_may_lie_anywhere() {
    let whole = Tensor::arange(0, 24, 1, F32).view([4, 6]);
    let places = || {
        [
            whole.narrow(0, 1, 2),
            whole.narrow(1, 2, 3),
            whole.t(),
            whole.select(0, 3),
            whole.select(1, 5),
            whole.narrow(0, 4, 0),
            Tensor::from([7f32]).expand(&[3, 2]),
            Tensor::scalar(5.0),
            whole.slice(1, 1, 6, 2),
        ]
    };
    let parameters = places().map(Parameter::new).into();
    let mut odd = Odd { parameters, buffers: places().map(Buffer::new).into() };
    let held: Vec<Tensor> = odd.parameters().into_iter().chain(odd.buffers()).collect();
    let shapes: Vec<_> = held.iter().map(|t| (t.shape().to_vec(), t.strides().to_vec())).collect();
    for dtype in [F64, Dtype::BF16, F32, F64] {
        let borrowed: Vec<_> = held.iter().map(|t| (t.storage(), t.layout())).collect();
        odd.to(dtype);
        assert!(borrowed.iter().all(|(s, l)| s.nbytes() >= (l.extent() - l.offset) * dtype.size()));
        let expected = places();
        for (i, t) in held.iter().enumerate() {
            let expected = &expected[i % expected.len()];
            assert_eq!(t.dtype(), dtype);
            assert_eq!((t.shape().to_vec(), t.strides().to_vec()), shapes[i]);
            assert_eq!(t.to_vec::<f32>(), expected.to_vec::<f32>(), "{i}");
            assert_eq!(t.storage_offset(), 0);
            assert!(
                t.base().is_none() && t.layout().extent() * dtype.size() <= t.storage().nbytes()
            );
            assert_eq!((t + 1.0).to_vec::<f32>(), (expected + 1.0).to_vec::<f32>());
            let view = t.reshape([-1]);
            assert_eq!(view.to_vec::<f32>(), expected.to_vec::<f32>());
        }
    }
    no_grad(|| held[0].add_(1.0));
    assert_eq!(whole.to_vec::<f32>()[6], 6.0, "it has memory of its own");
}

#[test]
fn old_memory_is_free_after_a_move() {
    let mut layer = Linear::no_bias(64, 64);
    let optimizer = SGD::new(layer.parameters(), SGDOptions::default());
    let (old, detached) = (layer.weight.storage().clone(), layer.weight.detach());
    assert!(!old.is_unique());
    layer.double();
    drop(detached);
    assert!(old.is_unique(), "the parameter and its optimizer let go");
    assert_eq!(optimizer.parameters()[0].storage().nbytes(), 64 * 64 * 8);
}

#[test]
fn ties_averages_scalers_and_clipping_go_along() {
    let shared = Linear::new(4, 4);
    let mut net = vec![shared.clone(), shared.clone()];
    let alone = shared.clone();
    let mut optimizer = SGD::new(net.parameters(), SGDOptions { lr: 0.1, ..Default::default() });
    let list = net.parameters();
    let options =
        AveragedModelOptions { averaging: Averaging::Ema { decay: 0.5 }, ..Default::default() };
    let mut average = AveragedModel::new(&net, options);
    let averaged = average.parameters();
    let mut scaler = GradScaler::new(GradScalerOptions { init_scale: 8.0, ..Default::default() });
    net.double();
    average.double();
    assert!(alone.weight.dtype() == F64 && averaged[0].dtype() == F64);
    let start = alone.weight.to_vec::<f64>();
    let y = net[1].forward(&net[0].forward(&Tensor::ones([1, 4], F64)));
    scaler.scale(&y.square().sum()).backward();
    scaler.unscale_(&mut optimizer);
    assert!(clip_grad_norm_(&list, 0.01).item() > 0.01);
    assert!(scaler.step(&mut optimizer));
    scaler.update();
    average.update_parameters(&net);
    let moved = alone.weight.to_vec::<f64>();
    assert!(moved != start && averaged[0].to_vec::<f64>() == moved);
}

#[test]
fn a_parametrized_weight_trains_after_a_move() {
    let mut layer = weight_norm(Linear::new(3, 2), "weight", Some(0));
    let mut optimizer = SGD::new(layer.parameters(), SGDOptions { lr: 0.1, ..Default::default() });
    layer.double();
    let before = layer.value("weight");
    assert_eq!(before.dtype(), F64);
    layer.forward(&Tensor::ones([1, 3], F64)).square().sum().backward();
    optimizer.step();
    assert!(!layer.value("weight").equal(&before));
}

#[test]
fn what_cannot_follow_is_named() {
    let w = Parameter::new(Tensor::from([2f32]));
    let computed = w.tensor() * 3.0;
    let mut odd = Odd { parameters: vec![w.clone()], buffers: vec![Buffer::new(computed)] };
    let error = catch(|| odd.double()).unwrap_err().to_string();
    assert!(error.contains("`buffers.0`") && error.contains("detach"), "{error}");
    assert_eq!(w.dtype(), F32, "nothing has moved");
}
