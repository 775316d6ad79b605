//! Losses against PyTorch's numbers.

use super::assert_close;
use torchrs::nn::functional::{self as F, BCEWithLogitsOptions};
use torchrs::nn::*;
use torchrs::ops::Reduction;
use torchrs::{Dtype::F32, Dtype::I64, Tensor, catch};

fn loss_inputs() -> (Tensor, Tensor) {
    let x = Tensor::from([0.5f64, -1.5, 2.0, 0.0]).requires_grad_(true);
    (x, Tensor::from([1.0f64, 0.0, 0.5, 0.25]).requires_grad_(true))
}

// PyTorch's numbers for the inputs of `loss_inputs`.
const MSE: f64 = 1.203125;
const L1: f64 = 0.9375;
const HUBER: f64 = 0.44156249999999997;
const SMOOTH_L1: f64 = 0.6308035714285715;
const BCE: f64 = 0.6238913634414442;
const WEIGHTED_BCE: f64 = 7.538563722543362;
const MSE_GRAD: [f64; 4] = [-0.25, -0.75, 0.75, -0.125];
const L1_GRAD: [f64; 4] = [-0.25, -0.25, 0.25, -0.25];
const HUBER_GRAD: [f64; 4] = [-0.125, -0.175, 0.175, -0.0625];
const BCE_GRAD: [f64; 4] =
    [-0.1887703343990727, 0.04560638095158909, 0.06539853898894116, 0.078125];
const BCE_TARGET_GRAD: [f64; 4] =
    [-0.006480753954973328, 0.375, -0.43653599447851377, -0.08664339756999316];

#[test]
fn losses_are_those_of_pytorch() {
    let (x, t) = loss_inputs();
    let weighted = BCEWithLogitsOptions {
        weight: Some(Tensor::from([1f64, 2., 3., 4.])),
        pos_weight: Some(Tensor::from([2f64, 1., 3., 0.5])),
        reduction: Reduction::Sum,
    };
    let modules: Vec<(Box<dyn Loss>, f64)> = vec![
        (Box::new(MSELoss::new()), MSE),
        (Box::new(MSELoss::new().reduction(Reduction::Sum)), 4.0 * MSE),
        (Box::new(L1Loss::new()), L1),
        (Box::new(HuberLoss::new().delta(0.7)), HUBER),
        (Box::new(SmoothL1Loss::new().beta(0.7)), SMOOTH_L1),
        (Box::new(SmoothL1Loss::new().beta(0.0)), L1),
        (Box::new(BCEWithLogitsLoss::new()), BCE),
        (Box::new(BCEWithLogitsLoss::with_options(weighted)), WEIGHTED_BCE),
    ];
    for (loss, want) in modules {
        assert_close(&loss.forward(&x, &t), &[want], 1e-12);
    }
    let scores = x.view([2, 2]);
    let classes = Tensor::from([1i64, 0]);
    let through = NLLLoss::new().forward(&scores.log_softmax(1), &classes);
    let direct = CrossEntropyLoss::new().forward(&scores, &classes);
    assert_close(&direct, &[through.item()], 1e-12);
    assert_close(&direct, &[(2.126928011042972 + 0.1269280110429725) / 2.0], 1e-12);
}

#[test]
fn gradients_of_losses_are_those_of_pytorch() {
    let pos_weight = Some(Tensor::from([2f64, 1., 3., 0.5]));
    let options = BCEWithLogitsOptions { pos_weight, ..Default::default() };
    type Function<'a> = Box<dyn Fn(&Tensor, &Tensor) -> Tensor + 'a>;
    let cases: Vec<(Function, [f64; 4], [f64; 4])> = vec![
        (Box::new(F::mse_loss), MSE_GRAD, MSE_GRAD.map(|g| -g)),
        (Box::new(F::l1_loss), L1_GRAD, L1_GRAD.map(|g| -g)),
        (
            Box::new(|x, t| F::huber_loss(x, t, 0.7, Reduction::Mean)),
            HUBER_GRAD,
            HUBER_GRAD.map(|g| -g),
        ),
        (
            Box::new(|x, t| F::binary_cross_entropy_with_logits_with(x, t, options.clone())),
            BCE_GRAD,
            BCE_TARGET_GRAD,
        ),
    ];
    for (function, x_grad, t_grad) in cases {
        let (x, t) = loss_inputs();
        function(&x, &t).backward();
        assert_close(&x.grad().unwrap(), &x_grad, 1e-12);
        assert_close(&t.grad().unwrap(), &t_grad, 1e-12);
    }
}

#[test]
fn a_forgotten_squeeze_is_an_error() {
    let error = catch(|| F::mse_loss(&Tensor::ones([4], F32), &Tensor::ones([4, 1], F32)));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("mse_loss") && error.contains("[4, 1]"), "{error}");
    assert_eq!(F::mse_loss(&Tensor::ones([2, 3], F32), &Tensor::ones([3], F32)).item(), 0.0);
}

#[test]
fn types_of_targets_are_those_that_pytorch_takes() {
    let (p, logits) = (Tensor::from([0.25f32, 0.5]), Tensor::from([[0.5f32, -1.0, 2.0]]));
    let wide = Tensor::from([1f64, 0.]);
    let error = catch(|| F::binary_cross_entropy(&p, &wide, None, Reduction::Mean)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("input holds f32 and target f64") && text.contains("F32"), "{text}");
    let error = catch(|| F::binary_cross_entropy_with_logits(&p, &wide.to_dtype(I64)));
    let text = error.unwrap_err().to_string();
    assert!(text.contains("target holds i64") && text.contains("F32"), "{text}");
    // Classes are i64, or u8.
    let loss = logits.cross_entropy(&Tensor::from([2i64]));
    assert_eq!(logits.cross_entropy(&Tensor::from([2u8])).item(), loss.item());
    assert_eq!(logits.log_softmax(1).nll_loss(&Tensor::from([2u8])).item(), loss.item());
    let text = catch(|| logits.cross_entropy(&Tensor::from([2i32]))).unwrap_err().to_string();
    assert!(text.contains("i32") && text.contains("to_dtype(I64)"), "{text}");
    let number = Tensor::scalar(0.5);
    let one = |x: &Tensor| F::multilabel_soft_margin_loss(x, x, None, Reduction::Mean);
    assert!(catch(|| one(&number)).unwrap_err().to_string().contains("0-dim"));
    assert!(one(&p).item() > 0.0);
}
