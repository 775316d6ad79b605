//! Hooks of modules: when they are called, with what, and what they change.

use std::sync::{Arc, Mutex};

use torchrs::nn::{Forward, Hooked, LSTM, Linear, Module, ReLU, Sequential};
use torchrs::{Dtype, Tensor, no_grad};

type Log = Arc<Mutex<Vec<(&'static str, Vec<f64>)>>>;

fn take(log: &Log) -> Vec<(&'static str, Vec<f64>)> {
    std::mem::take(&mut log.lock().unwrap())
}

/// y = 2 a - b.
fn layer() -> Linear {
    let mut layer = Linear::no_bias(2, 1);
    layer.double();
    no_grad(|| _ = layer.weight.copy_(&Tensor::from([[2f64, -1.]])));
    layer
}

fn logging(log: &Log, hooked: &Hooked<Linear>) {
    let add = |log: &Log, name, t: &Tensor| log.lock().unwrap().push((name, t.to_vec()));
    let l = log.clone();
    hooked.register_forward_pre_hook(move |module, x| {
        assert_eq!(module.in_features(), 2);
        add(&l, "input", x);
        None
    });
    let l = log.clone();
    hooked.register_forward_hook(move |_, x, y| {
        add(&l, "seen", x);
        add(&l, "output", y);
        None
    });
    let l = log.clone();
    hooked.register_full_backward_pre_hook(move |g| {
        add(&l, "before", g);
        None
    });
    let l = log.clone();
    hooked.register_full_backward_hook(move |input, output| {
        if let Some(input) = input {
            add(&l, "grad_input", input);
        }
        add(&l, "grad_output", output);
        None
    });
}

#[test]
fn hooks_see_inputs_outputs_and_gradients_in_order() {
    let (log, hooked) = (Log::default(), Hooked::new(layer()));
    logging(&log, &hooked);
    let x = Tensor::from([[3f64, 4.]]).requires_grad_(true);
    let y = hooked.forward(&x);
    assert_eq!(
        take(&log),
        [("input", vec![3., 4.]), ("seen", vec![3., 4.]), ("output", vec![2.0])]
    );
    (y * 5.0).sum().backward();
    assert_eq!(
        take(&log),
        [("before", vec![5.]), ("grad_input", vec![10., -5.]), ("grad_output", vec![5.])]
    );
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [10., -5.]);
    assert_eq!(hooked.weight.grad().unwrap().to_vec::<f64>(), [15., 20.]);
    // An input that needs no gradient.
    hooked.forward(&x.detach()).sum().backward();
    assert_eq!(take(&log)[3..], [("before", vec![1.]), ("grad_output", vec![1.])]);
    no_grad(|| hooked.forward(&x));
    assert_eq!(take(&log).len(), 3);
}

#[test]
fn what_hooks_return_takes_the_place_of_what_they_saw() {
    let hooked = Hooked::new(layer());
    let handles = [
        hooked.register_forward_pre_hook(|_, x| Some(x + 1.0)),
        hooked.register_forward_pre_hook(|_, x| Some(x * 2.0)),
        hooked.register_forward_hook(|_, x, y| Some(y + x.sum())),
        hooked.register_full_backward_pre_hook(|g| Some(g * 10.0)),
        hooked.register_full_backward_hook(|g, output| {
            assert_eq!(output.item(), 10.0);
            Some(g.expect("the input needs a gradient") * 100.0)
        }),
    ];
    let x = Tensor::from([[3f64, 4.]]).requires_grad_(true);
    let y = hooked.forward(&x);
    // (8, 10): 6, and 18.
    assert_eq!(y.item(), 24.0);
    y.sum().backward();
    // y = 2 a' - b' + a' + b', the gradient of the output 10, of the module's input times 100; a' = 2 a.
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [6000., 0.]);
    for handle in handles {
        handle.remove();
    }
    x.set_grad(None);
    let y = hooked.forward(&x);
    y.sum().backward();
    assert_eq!((y.item(), x.grad().unwrap().to_vec::<f64>()), (2.0, vec![2., -1.]));
}

#[test]
fn a_hooked_module_is_the_module_under_its_own_names() {
    let hooked = Hooked::new(layer());
    let calls = Arc::new(Mutex::new(0));
    let count = calls.clone();
    hooked.register_forward_hook(move |_, _, _| {
        *count.lock().unwrap() += 1;
        None
    });
    let copy = hooked.clone();
    let net = Sequential::new().append(hooked).append(ReLU);
    assert_eq!(net.state_dict().keys().collect::<Vec<_>>(), ["0.weight"]);
    assert_eq!(net.repr(), Sequential::new().append(layer()).append(ReLU).repr());
    net.forward(&Tensor::ones([1, 2], Dtype::F64));
    copy.forward(&Tensor::ones([1, 2], Dtype::F64));
    assert_eq!(*calls.lock().unwrap(), 2);
    assert_eq!(copy.into_module().weight.numel(), 2);
}

#[test]
fn a_module_with_another_forward_is_called_through_its_hooks() {
    let hooked = Hooked::new(LSTM::new(2, 3, Default::default()));
    hooked.register_forward_hook(|_, _, y| Some(y * 0.0));
    let mut state = None;
    let y = hooked.call(&Tensor::ones([4, 1, 2], Dtype::F32), |lstm, x| {
        let (y, last) = lstm.forward(x, None);
        state = Some(last);
        y
    });
    assert!(y.to_vec::<f32>().iter().all(|&v| v == 0.0));
    assert!(state.unwrap().0.abs().sum().item() > 0.0);
}

#[test]
fn gradients_of_gradients_pass_through_backward_hooks() {
    let hooked = Hooked::new(layer());
    hooked.register_full_backward_hook(|g, _| g.map(|g| g * 3.0));
    let x = Tensor::from([[3f64, 4.]]).requires_grad_(true);
    let y = hooked.forward(&x).square().sum();
    let g = torchrs::autograd::grad(&[&y], &[&x], &[None], torchrs::autograd::GraphMode::Create);
    let g = g.into_iter().next().flatten().unwrap();
    // 3 * 2 y * (2, -1) with y = 2.
    assert_eq!(g.to_vec::<f64>(), [24., -12.]);
    assert!(g.requires_grad());
    g.sum().backward();
    assert!(x.grad().is_some());
}
