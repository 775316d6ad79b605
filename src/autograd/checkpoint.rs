//! Activation checkpointing: memory for time (`torch.utils.checkpoint`; Chen et al., "Training Deep
//! Nets with Sublinear Memory Cost", 2016).

use smallvec::smallvec;

use super::{Grads, backward, enable_grad, is_grad_enabled, no_grad, record_many};
use crate::amp::Snapshot;
use crate::error::{Error, throw};
use crate::ops::random::default_generator;
use crate::{Dtype, Tensor};

/// Runs `f` on `inputs` without keeping anything but the inputs; backward runs it again, with the same
/// random numbers, and goes on through that second run. `f` must do the same both times. Parameters
/// that `f` refers to get their gradients as usual; checkpoints may be nested.
///
/// ```
/// use torchrs::{Tensor, autograd::checkpoint};
/// let x = Tensor::from([2f64]).requires_grad_(true);
/// let y = checkpoint(|inputs| inputs[0].exp().exp(), &[&x]);
/// y.sum().backward();
/// let e = 2f64.exp();
/// assert!((x.grad().unwrap().item() - e * e.exp()).abs() < 1e-9 * e * e.exp());
/// ```
///
/// # Panics
/// Backward throws [`Error::Autograd`] under `create_graph`: the gradient of a checkpoint has no
/// gradient.
#[track_caller]
pub fn checkpoint(
    f: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Tensor {
    checkpoint_many(move |inputs| vec![f(inputs)], inputs).swap_remove(0)
}

/// [`checkpoint`] of a function with several outputs.
///
/// # Panics
/// As [`checkpoint`].
#[track_caller]
pub fn checkpoint_many(
    f: impl Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Vec<Tensor> {
    let kept: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
    if !is_grad_enabled() {
        return f(&kept);
    }
    let random = default_generator().get_state();
    let precision = Snapshot::take();
    // What `f` gives may be an input, or a parameter: the node's outputs must be tensors of their own.
    let outputs: Vec<Tensor> = no_grad(|| f(&kept)).iter().map(Tensor::detach).collect();
    // The inputs may need no gradient where a parameter inside does: this one always asks for it.
    let asks = Tensor::empty([0], Dtype::F32).requires_grad_(true);
    let mut all: Vec<&Tensor> = inputs.to_vec();
    all.push(&asks);
    record_many("checkpoint", &all, &outputs, |saver| {
        let saved: Vec<_> = inputs.iter().map(|t| saver.save(t)).collect();
        let wanted: Vec<bool> = inputs.iter().map(|t| t.requires_grad()).collect();
        let count = outputs.len();
        move |ctx| {
            if ctx.create_graph() {
                throw(Error::Autograd(
                    "the gradient of a checkpoint cannot be differentiated again; call the function \
                     without `checkpoint` there"
                        .into(),
                ));
            }
            let leaf = |(saved, &wanted)| -> Tensor {
                let x = ctx.get(saved).detach();
                if wanted { x.requires_grad_(true) } else { x }
            };
            let inputs: Vec<Tensor> = saved.iter().zip(&wanted).map(leaf).collect();
            let generator = default_generator();
            let now = generator.get_state();
            generator.set_state(random);
            let outputs = precision.run(|| enable_grad(|| f(&inputs)));
            generator.set_state(now);
            let grads: Vec<Option<Tensor>> = (0..count).map(|i| ctx.grad_opt(i)).collect();
            let (roots, grads): (Vec<&Tensor>, Vec<Option<&Tensor>>) = outputs
                .iter()
                .zip(&grads)
                .filter(|(t, g)| t.requires_grad() && g.is_some())
                .map(|(t, g)| (t, g.as_ref()))
                .unzip();
            if !roots.is_empty() {
                backward(&roots, &grads, false, false);
            }
            let mut result: Grads = inputs.iter().map(Tensor::grad).collect();
            result.extend(smallvec![None; 1] as Grads);
            result
        }
    });
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_of_inputs_and_parameters_with_dropout_and_nesting() {
        let weight = Tensor::from([[1.0f64, -2.0], [0.5, 3.0]]).requires_grad_(true);
        let x = Tensor::from([[0.3f64, 0.7], [-1.0, 2.0]]).requires_grad_(true);
        let inner = {
            let weight = weight.clone();
            move |t: &[Tensor]| t[0].matmul(&weight).tanh().dropout(0.5, true)
        };
        let plain = {
            let inner = inner.clone();
            move |x: &Tensor| inner(std::slice::from_ref(x)).exp().sum()
        };
        default_generator().manual_seed(3);
        plain(&x).backward();
        let want = [x.grad().unwrap().to_vec::<f64>(), weight.grad().unwrap().to_vec::<f64>()];
        x.set_grad(None);
        weight.set_grad(None);
        default_generator().manual_seed(3);
        let outer = move |t: &[Tensor]| checkpoint(inner.clone(), &[&t[0]]).exp();
        let y = checkpoint(outer, &[&x]);
        // Other random numbers in between must not matter, and must not be disturbed.
        let drawn = Tensor::rand([3], Dtype::F64).to_vec::<f64>();
        let after = default_generator().get_state();
        y.sum().backward();
        assert_eq!(default_generator().get_state(), after);
        assert_eq!(drawn.len(), 3);
        let got = [x.grad().unwrap().to_vec::<f64>(), weight.grad().unwrap().to_vec::<f64>()];
        assert_eq!(got, want);
    }

    #[test]
    fn parameters_learn_though_no_input_needs_a_gradient() {
        let weight = Tensor::from([3.0f64]).requires_grad_(true);
        let w = weight.clone();
        let y = checkpoint(move |t| &t[0] * &w, &[&Tensor::from([2.0f64])]);
        y.sum().backward();
        assert_eq!(weight.grad().unwrap().item(), 2.0);
    }
}
