//! Modes of a thread: inference, recording on and off, anomalies.

use torchrs::autograd::{
    self, InferenceModeGuard, detect_anomaly, enable_grad, grad_mode, inference_mode,
    is_anomaly_enabled, is_grad_enabled, is_inference_mode_enabled, set_anomaly_check_nan,
    set_detect_anomaly, set_grad_enabled, without_inference_mode,
};
use torchrs::multiprocessing::Process;
use torchrs::nn::{self, Forward, Module};
use torchrs::{Dtype, Tensor, catch, no_grad};

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).requires_grad_(true)
}

fn message<T>(f: impl FnOnce() -> T) -> String {
    match catch(f) {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn inference_tensors_are_those_made_inside() {
    let (x, plain) = (leaf(&[1.0, 2.0]), Tensor::zeros([2], Dtype::F64));
    let (made, view, computed, own_view) = inference_mode(|| {
        assert!(is_inference_mode_enabled() && !is_grad_enabled());
        // Recording cannot be switched on inside.
        assert!(!enable_grad(|| &x * 2.0).requires_grad());
        let made = Tensor::ones([2], Dtype::F64);
        made.add_(1.0);
        plain.add_(1.0);
        (made.clone(), x.view([2, 1]), &x * 2.0, made.view([2, 1]))
    });
    assert!(!is_inference_mode_enabled() && is_grad_enabled());
    assert!(made.is_inference() && computed.is_inference() && own_view.is_inference());
    assert!(!view.is_inference() && !plain.is_inference() && !x.is_inference());
    assert!(made.select(0, 0).is_inference() && made.detach().is_inference());
    // What is computed outside from inference tensors is not one.
    assert!(!(&made + 1.0).is_inference());
    assert_eq!((made.to_vec::<f64>(), plain.to_vec::<f64>()), (vec![2.0; 2], vec![1.0; 2]));
}

#[test]
fn inference_tensors_are_not_saved_changed_or_made_leaves_outside() {
    let x = leaf(&[1.0, 2.0]);
    let made = inference_mode(|| Tensor::ones([2], Dtype::F64));
    let error = message(|| &x * &made);
    assert!(error.contains("inference tensor") && error.contains("clone_contiguous"), "{error}");
    assert!(message(|| made.add_(1.0).clone()).contains("add"));
    assert!(message(|| made.select(0, 0).fill_(1.0).clone()).contains("inference"));
    assert!(message(|| made.requires_grad_(true)).contains("inference"));
    // An addition saves nothing; a copy is an ordinary tensor; nothing is saved under `no_grad`.
    (&x + &made).sum().backward();
    (&x * made.clone_contiguous()).sum().backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 2.0]);
    assert_eq!(no_grad(|| &x * &made).to_vec::<f64>(), [1.0, 2.0]);
    inference_mode(|| assert!(made.requires_grad_(true).is_inference()));
}

#[test]
fn inference_mode_can_be_left_and_ends_with_a_panic() {
    let x = leaf(&[3.0]);
    inference_mode(|| {
        let y = without_inference_mode(|| &x * 2.0);
        assert!(y.requires_grad() && !y.is_inference());
        assert!(is_inference_mode_enabled());
    });
    let caught = catch(|| inference_mode(|| Tensor::zeros([2], Dtype::F32).view([3])));
    assert!(caught.is_err() && !is_inference_mode_enabled() && is_grad_enabled());
    let guard = InferenceModeGuard::new();
    assert!(Tensor::zeros([1], Dtype::F32).is_inference());
    drop(guard);
    assert!((&x * 1.0).requires_grad());
}

#[test]
fn recording_can_be_set_for_good_and_for_a_while() {
    let x = leaf(&[1.0]);
    set_grad_enabled(false);
    assert!(!(&x * 2.0).requires_grad());
    assert!(grad_mode(true, || &x * 2.0).requires_grad());
    assert!(!is_grad_enabled());
    set_grad_enabled(true);
    assert!(!grad_mode(false, || &x * 2.0).requires_grad());
    no_grad(|| {
        set_grad_enabled(true);
        assert!((&x * 2.0).requires_grad());
    });
    assert!(is_grad_enabled());
}

#[test]
fn detach_in_place_cuts_for_all_handles() {
    let x = leaf(&[1.0]);
    let y = &x * 2.0;
    let other = y.clone();
    y.detach_();
    assert!(!other.requires_grad() && other.is_leaf());
    assert!(message(|| (&x * 2.0).view([1, 1]).detach_().clone()).contains("view"));
}

#[test]
fn nan_in_backward_names_the_op_and_both_lines() {
    let x = leaf(&[0.0, 1.0]);
    let (mut forward, mut backward) = (0, 0);
    let error = message(|| {
        detect_anomaly(|| {
            let (y, line) = (x.sqrt(), line!());
            forward = line;
            backward = line!() + 1;
            (&y * 0.0).sum().backward();
        })
    });
    let file = file!();
    for part in [
        "`sqrt` gave NaN for input 0, of shape [2]",
        &format!("op was called at {file}:{forward}:"),
        &format!("backward was called at {file}:{backward}:"),
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    // Outside the mode nothing is said, and the gradient is there.
    assert!(!is_anomaly_enabled());
    (x.sqrt() * 0.0).sum().backward();
    assert!(x.grad().unwrap().to_vec::<f64>()[0].is_nan());
}

#[test]
fn nan_in_forward_is_traced_to_its_op_and_line() {
    let x = leaf(&[-1.0, 1.0]);
    let mut line = 0;
    let error = message(|| {
        detect_anomaly(|| {
            let y = &x * 2.0;
            line = line!() + 1;
            (y.log() * 3.0).sum()
        })
    });
    assert!(error.contains("`log` gave NaN in its result, of shape [2]"), "{error}");
    assert!(error.contains(&format!("called at {}:{line}:", file!())), "{error}");
    assert!(!error.contains("already"), "{error}");

    // An infinity is no NaN; in place; several results; complex; what nothing is recorded of.
    detect_anomaly(|| {
        assert_eq!(leaf(&[0.0]).log().item(), f64::NEG_INFINITY);
        assert!(no_grad(|| x.log()).to_vec::<f64>()[0].is_nan());
    });
    let error = message(|| detect_anomaly(|| _ = (&x * 1.0).log_()));
    assert!(error.contains("`log` gave NaN"), "{error}");
    let holed = leaf(&[f64::NAN, 1.0]);
    let error = message(|| detect_anomaly(|| holed.split(1, 0)));
    assert!(error.contains("input 0, of shape [2], has NaN already"), "{error}");
    let error = message(|| detect_anomaly(|| Tensor::complex(&x.detach(), &holed)));
    assert!(error.contains("`complex` gave NaN") && error.contains("input 1"), "{error}");
    set_detect_anomaly(true);
    set_anomaly_check_nan(false);
    let unchecked = catch(|| x.log());
    set_detect_anomaly(false);
    assert!(unchecked.is_ok());
}

#[test]
fn nan_in_a_module_names_its_parameters() {
    #[derive(Module)]
    struct Net {
        first: nn::Linear,
        second: nn::Linear,
    }
    let net = Net { first: nn::Linear::new(2, 3), second: nn::Linear::new(3, 1) };
    no_grad(|| _ = net.second.weight.fill_(f64::NAN));
    let x = Tensor::ones([4, 2], Dtype::F32);
    let error = message(|| {
        detect_anomaly(|| {
            net.second.parameters(); // the shorter name does not stay
            net.parameters();
            net.second.forward(&net.first.forward(&x).relu())
        })
    });
    assert!(error.contains("the parameter `second.weight`, has NaN already"), "{error}");
    assert!(error.contains("the parameter `second.bias`\n"), "{error}");
}

/// A process of its own, because a thread asks the environment once.
#[test]
fn the_environment_switches_anomaly_mode_on_in_all_threads() {
    let found = |value: &str| {
        let child = |_: ()| {
            let error = || message(|| leaf(&[-1.0]).log());
            let mine = error();
            let others = std::thread::spawn(error).join().unwrap();
            assert!(is_anomaly_enabled() && mine.contains("`log` gave NaN"), "{mine}");
            assert!(others.contains("`log` gave NaN"), "{others}");
            set_detect_anomaly(false);
            assert!(leaf(&[-1.0]).log().item().is_nan());
        };
        let builder = Process::builder().env("TORCHRS_DETECT_ANOMALY", value);
        builder.spawn(child, ()).unwrap().join()
    };
    found("1").unwrap();
    let off = found("0").unwrap_err().to_string();
    assert!(off.contains("no error"), "{off}");
    let wrong = found("yes").unwrap_err().to_string();
    assert!(wrong.contains("TORCHRS_DETECT_ANOMALY: is `yes`"), "{wrong}");
}

#[test]
fn a_failure_in_backward_is_reported_with_its_op() {
    let x = leaf(&[1.0]);
    set_detect_anomaly(true);
    set_anomaly_check_nan(false);
    let error = message(|| {
        let y = x.exp();
        let z = &y * 2.0;
        y.add_(1.0);
        z.backward();
    });
    set_detect_anomaly(false);
    assert!(error.contains("`exp` failed") && error.contains("changed in place"), "{error}");
    assert!(error.contains(file!()), "{error}");
}

#[test]
fn a_failure_in_a_second_backward_names_the_first_op_too() {
    let x = leaf(&[0.0]);
    let error = message(|| {
        detect_anomaly(|| {
            // The gradient, 1.5 sqrt(x), is fine at 0; its own is not.
            let y = x.pow(1.5);
            let g = autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Create)
                .swap_remove(0)
                .unwrap();
            (g * 0.0).backward();
        })
    });
    assert!(error.contains("gave NaN") && error.contains("part of the backward"), "{error}");
}
