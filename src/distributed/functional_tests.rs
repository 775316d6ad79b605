//! Gradients and collectives, among ranks that are threads.

use super::functional;
use super::tests::ranks;
use super::{ProcessGroup, ReduceOp};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

#[path = "../../tests/distributed/checks/functional.rs"]
mod checks;

#[test]
fn derivatives_are_those_of_one_process() {
    for world in [1, 2, 3] {
        ranks(world, |group| {
            checks::derivatives_are_those_of_one_process(&group, Device::Cpu).unwrap();
        });
    }
}

/// A call and the argument that it names.
type Plain = (&'static str, fn(&ProcessGroup, &Tensor) -> Result<()>);

const PLAIN: [Plain; 15] = [
    ("all_reduce: argument `tensor`", |g, x| g.all_reduce(x, ReduceOp::Sum)),
    ("all_reduce: argument `tensor`", |g, x| g.all_reduce_async(x, ReduceOp::Sum).map(drop)),
    ("broadcast: argument `tensor`", |g, x| g.broadcast(x, 0)),
    ("broadcast: argument `tensor`", |g, x| g.broadcast(x, 1)),
    ("reduce: argument `tensor`", |g, x| g.reduce(x, 0, ReduceOp::Sum)),
    ("reduce: argument `tensor`", |g, x| g.reduce(x, 1, ReduceOp::Sum)),
    ("all_gather: argument `tensor`", |g, x| g.all_gather(x).map(drop)),
    ("all_gather_into_tensor: argument `tensor`", |g, x| {
        g.all_gather_into_tensor(&Tensor::zeros([4], Dtype::F32), x)
    }),
    ("all_gather_into_tensor: argument `output`", |g, x| {
        g.all_gather_into_tensor(x, &Tensor::zeros([1], Dtype::F32))
    }),
    ("gather: argument `tensor`", |g, x| g.gather(x, 0).map(drop)),
    ("scatter: argument `output`", |g, x| {
        let parts = [Tensor::zeros([2], Dtype::F32), Tensor::zeros([2], Dtype::F32)];
        g.scatter(x, (g.rank() == 0).then_some(&parts[..]), 0)
    }),
    ("reduce_scatter: argument `inputs`", |g, x| {
        let out = Tensor::zeros([2], Dtype::F32);
        g.reduce_scatter(&out, &[x.clone(), x.clone()], ReduceOp::Sum)
    }),
    ("reduce_scatter_tensor: argument `input`", |g, x| {
        g.reduce_scatter_tensor(&Tensor::zeros([1], Dtype::F32), x, ReduceOp::Sum)
    }),
    ("all_to_all_single: argument `input`", |g, x| {
        g.all_to_all_single(&Tensor::zeros([2], Dtype::F32), x)
    }),
    ("recv: argument `tensor`", |g, x| g.recv(x, 1 - g.rank(), 0)),
];

/// Without a word, the gradient would end there. Nothing is sent.
#[test]
fn plain_collectives_refuse_tensors_with_history() {
    ranks(2, |group| {
        let leaf = Tensor::from([1f32, 2.]).requires_grad_(true);
        let history = &leaf * 2.0;
        for (call, plain) in PLAIN {
            let refused = |x: &Tensor, kind: &str| {
                let text = plain(&group, x).unwrap_err().to_string();
                assert!(text.starts_with(&format!("{call}: {kind}")), "{text}");
                for advice in ["distributed::functional", "detach()", "no_grad"] {
                    assert!(text.contains(advice), "{text}");
                }
            };
            refused(&history, "has history (grad_fn `mul");
            refused(&leaf, "is a leaf that requires a gradient");
        }
        group.barrier().unwrap();
        // All of this is legal where no gradient is recorded, or none is wanted.
        for (call, plain) in PLAIN.iter().filter(|(call, _)| !call.starts_with("recv")) {
            let what = |error: Error| panic!("{call}: {error}");
            no_grad(|| plain(&group, &leaf)).unwrap_or_else(what);
            plain(&group, &history.detach()).unwrap_or_else(what);
        }
        assert!(leaf.is_leaf() && leaf.requires_grad());
        // What a stage of a model sends on gets its gradient back as another message.
        match group.rank() {
            0 => group.send(&history, 1, 0).unwrap(),
            _ => group.recv(&history.detach(), 0, 0).unwrap(),
        }
    });
}

#[test]
fn ranks_that_want_no_gradient_take_part_in_backward() {
    ranks(3, |group| {
        let rank = group.rank();
        let x = Tensor::from([rank as f32 + 1.0]);
        let x = if rank == 1 { x.requires_grad_(true) } else { x };
        let y = functional::broadcast(&x, 1, &group).unwrap();
        (y * (rank as f64 + 1.0)).sum().backward();
        assert_eq!(x.grad().map(|g| g.item()), (rank == 1).then_some(6.0));
        // Only the root of a scatter has inputs.
        let parts: Vec<Tensor> =
            (0..3).map(|i| Tensor::from([i as f32]).requires_grad_(true)).collect();
        let like = Tensor::zeros([1], Dtype::F32);
        let given = (rank == 2).then_some(&parts[..]);
        let mine = functional::scatter(given, &like, 2, &group).unwrap();
        (mine * (rank as f64 + 1.0)).sum().backward();
        for (i, part) in parts.iter().enumerate() {
            assert_eq!(part.grad().map(|g| g.item()), (rank == 2).then_some(i as f64 + 1.0));
        }
        // Where nobody wants one there is no history, and every operation is allowed.
        let x = Tensor::from([rank as f32]);
        let most = functional::all_reduce(&x, ReduceOp::Max, &group).unwrap();
        assert!(most.item() == 2.0 && !most.requires_grad() && x.item() == rank as f64);
    });
}

#[test]
fn what_has_no_derivative_and_ranks_that_record_nothing_are_errors() {
    ranks(2, |group| {
        let x = Tensor::from([1f32]).requires_grad_(true);
        let error = functional::all_reduce(&x, ReduceOp::Max, &group).unwrap_err().to_string();
        assert!(error.contains("argument `op`: max has no derivative"), "{error}");
        let call = || functional::all_gather(&x, &group).unwrap_err();
        let error = if group.rank() == 1 { no_grad(call) } else { call() };
        let text = error.to_string();
        assert!(matches!(error, Error::Mismatch(_)), "{text}");
        assert!(text.contains("rank 0 require a gradient here, but rank 1 run"), "{text}");
        let error = functional::all_to_all(&[x], &group).unwrap_err().to_string();
        assert!(error.contains("argument `inputs`: 1 tensors for 2 ranks"), "{error}");
        group.barrier().unwrap();
    });
}

/// Backward's own collectives are named by the call that they are the derivative of.
#[test]
fn a_backward_that_other_ranks_do_not_run_names_the_call() {
    let errors = ranks(2, |group| {
        let x = Tensor::from([1f32]).requires_grad_(true);
        let line = line!() + 1;
        let y = functional::all_reduce(&x, ReduceOp::Sum, &group).unwrap();
        let error = match group.rank() {
            0 => crate::error::catch(|| y.sum().backward()).unwrap_err(),
            _ => group.barrier().unwrap_err(),
        };
        let place = format!("the backward of functional::all_reduce at {}:{line}", file!());
        (error.to_string(), place)
    });
    for (error, place) in errors {
        assert!(error.contains(&place) && error.contains("rank 1 called barrier"), "{error}");
    }
}
