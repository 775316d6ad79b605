//! What checkpoints do with random numbers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use torchrs::autograd::{self, checkpoint};
use torchrs::{Dtype, Tensor, catch, default_generator, fork_rng};

#[test]
fn gradients_of_inputs_and_parameters_with_dropout_and_nesting() {
    fork_rng(|| {
        let weight = Tensor::from([[1.0f64, -2.0], [0.5, 3.0]]).requires_grad_(true);
        let x = Tensor::from([[0.3f64, 0.7], [-1.0, 2.0]]).requires_grad_(true);
        let inner = {
            let weight = weight.clone();
            move |t: &[Tensor]| t[0].matmul(&weight).tanh().dropout(0.5, true)
        };
        let plain = inner.clone();
        let want: Vec<Vec<f64>> = {
            default_generator().manual_seed(3);
            let y = plain(std::slice::from_ref(&x)).exp().sum();
            let grads = autograd::grad(&[&y], &[&x, &weight], &[None], autograd::GraphMode::Free);
            grads.iter().flatten().map(Tensor::to_vec).collect()
        };
        let outer = move |t: &[Tensor]| checkpoint(inner.clone(), &[&t[0]]).exp();
        let run = || {
            default_generator().manual_seed(3);
            let y = checkpoint(outer.clone(), &[&x]);
            // Other random numbers in between must not matter, and must not be disturbed.
            Tensor::rand([3], Dtype::F64);
            (y, default_generator().get_state())
        };
        let (y, after) = run();
        y.sum().backward();
        assert_eq!(default_generator().get_state(), after);
        let got = [&x, &weight].map(|t| t.grad().unwrap().to_vec::<f64>());
        assert_eq!(got[..], want[..]);
        // `grad` and `backward_into` touch nothing else.
        x.set_grad(None);
        weight.set_grad(None);
        let found = autograd::grad(&[&run().0.sum()], &[&x], &[None], autograd::GraphMode::Free);
        assert_eq!(found[0].as_ref().unwrap().to_vec::<f64>(), want[0]);
        assert!(weight.grad().is_none() && x.grad().is_none());
        autograd::backward_into(&[&run().0.sum()], &[None], &[&weight], autograd::GraphMode::Free);
        assert_eq!(weight.grad().unwrap().to_vec::<f64>(), want[1]);
        assert!(x.grad().is_none());
    })
}

#[test]
fn another_second_run_and_a_changed_input_are_errors() {
    fork_rng(|| {
        let x = Tensor::from([0.5f64]).requires_grad_(true);
        let runs = AtomicUsize::new(0);
        let y = checkpoint(
            move |t| match runs.fetch_add(1, Relaxed) {
                0 => t[0].exp().exp(),
                _ => t[0].exp(),
            },
            &[&x],
        );
        let state = default_generator().get_state();
        let error = catch(|| y.backward()).unwrap_err().to_string();
        assert!(error.contains("the same both times"), "{error}");
        assert_eq!(default_generator().get_state(), state);
        let x = &x * 1.0;
        let y = checkpoint(|t| t[0].exp(), &[&x]);
        x.mul_(2.0);
        let error = catch(|| y.backward()).unwrap_err().to_string();
        assert!(error.contains("`checkpoint`") && error.contains("changed in place"), "{error}");
    })
}
