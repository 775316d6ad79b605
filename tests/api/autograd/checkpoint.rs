//! What checkpoints do with random numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use torchrs::autograd::{self, checkpoint, checkpoint_selective};
use torchrs::profiler::FlopCounter;
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

/// A gated layer between norms with attention, as a block of a decoder has them.
fn block(weights: &[Tensor], x: &Tensor) -> Tensor {
    let x = x.rms_norm(&[4], None, None);
    let [q, k, v] = [0, 1, 2].map(|i| x.linear(&weights[i], None));
    let x = &x + q.scaled_dot_product_attention(&k, &v, None, true, None).dropout(0.3, true);
    x.silu() * x.bmm(&x.transpose(-1, -2).exp()).matmul(&weights[3])
}

#[test]
fn a_selective_one_computes_no_product_again_and_gives_the_same() {
    fork_rng(|| {
        default_generator().manual_seed(5);
        let shape = |i| if i < 3 { [4, 4] } else { [3, 4] };
        let weights: Vec<Tensor> =
            (0..4).map(|i| Tensor::randn(shape(i), Dtype::F64).requires_grad_(true)).collect();
        let x = Tensor::randn([2, 3, 4], Dtype::F64).requires_grad_(true);
        let leaves: Vec<&Tensor> = weights.iter().chain([&x]).collect();
        let run = |kind: &str| {
            default_generator().manual_seed(7);
            let counter = FlopCounter::new();
            let runs = Arc::new(AtomicUsize::new(0));
            let f = {
                let (weights, runs) = (weights.clone(), runs.clone());
                move |x: &[Tensor]| {
                    runs.fetch_add(1, Relaxed);
                    block(&weights, &x[0])
                }
            };
            let y = match kind {
                "plain" => f(std::slice::from_ref(&x)),
                "all" => checkpoint(f, &[&x]),
                "selective" => checkpoint_selective(f, &[&x]),
                // Each of the two recomputes what it has to, and no more.
                "nested" => checkpoint_selective(
                    move |x| checkpoint_selective(f.clone(), &[&x[0]]).linear(&x[1], None),
                    &[&x, &weights[0]],
                ),
                other => panic!("{other}"),
            };
            let forward = counter.total_flops();
            let grads = autograd::grad(&[&y.sum()], &leaves, &[None], autograd::GraphMode::Retain);
            let all = counter.total_flops();
            let expected = ["plain", "all", "selective", "nested"].iter().position(|k| *k == kind);
            assert_eq!(runs.load(Relaxed), [1, 2, 2, 3][expected.unwrap()], "{kind}");
            let again = autograd::grad(&[&y.sum()], &leaves, &[None], autograd::GraphMode::Free);
            let numbers = |grads: Vec<Option<Tensor>>| -> Vec<Vec<f64>> {
                grads.iter().flatten().map(Tensor::to_vec).collect()
            };
            let grads = numbers(grads);
            assert_eq!(grads, numbers(again), "{kind}, a second time");
            (grads, forward, all - forward)
        };
        let (want, forward, backward) = run("plain");
        assert_eq!(run("all"), (want.clone(), forward, forward + backward));
        assert_eq!(run("selective"), (want, forward, backward));
        let (_, forward, backward) = run("nested");
        let extra = 2 * 2 * 3 * 4 * 4;
        assert_eq!(forward, run("plain").1 + extra);
        // The inner one runs again inside the outer one, whose products it does not know, and then by itself.
        assert_eq!(backward, run("plain").2 + 2 * extra + run("plain").1);
    })
}

#[test]
fn results_that_are_kept_and_changed_are_an_error() {
    let weight = Tensor::from([[2f64, 1.], [1., 3.]]).requires_grad_(true);
    let x = Tensor::from([[0.5f64, -1.0]]).requires_grad_(true);
    let w = weight.clone();
    let y = checkpoint_selective(
        move |x| {
            let y = x[0].matmul(&w);
            y.add_(1.0);
            y.sin()
        },
        &[&x],
    );
    let error = catch(|| y.sum().backward()).unwrap_err().to_string();
    assert!(error.contains("`mm`") && error.contains("changed in place"), "{error}");
    let runs = AtomicUsize::new(0);
    let y = checkpoint_selective(
        move |x| match runs.fetch_add(1, Relaxed) {
            0 => x[0].matmul(&weight).sin(),
            _ => x[0].matmul(&weight).matmul(&weight).sin(),
        },
        &[&x],
    );
    let error = catch(|| y.sum().backward()).unwrap_err().to_string();
    assert!(error.contains("the same both times"), "{error}");
}
