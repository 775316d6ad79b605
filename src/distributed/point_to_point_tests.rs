//! Messages between ranks that are threads.

use std::time::Duration;

use super::tests::{ranks, ranks_with};
use super::{P2POp, ProcessGroup};
use crate::nn::{Forward, Linear, Module};
use crate::tensor::Dtype;
use crate::{Error, Tensor, autograd};

fn numbers(rank: usize, len: usize) -> Tensor {
    Tensor::arange(0, len as i64, 1, Dtype::F32) + 1000.0 * rank as f64
}

#[test]
fn messages_arrive_in_their_order_whatever_their_size() {
    ranks(3, |group| {
        // The middle rank takes no part.
        for len in [0, 1, 1000, 100_003, 400_000] {
            match group.rank() {
                0 => {
                    group.send(&numbers(0, len), 2, 0).unwrap();
                    // Every second number: it is not contiguous.
                    group
                        .send(&numbers(7, 2 * len).view([len as i64, 2]).select(1, 0), 2, 0)
                        .unwrap();
                }
                2 => {
                    let (x, pairs) = (numbers(1, len), numbers(1, 2 * len).view([len as i64, 2]));
                    group.recv(&x, 0, 0).unwrap();
                    group.recv(&pairs.select(1, 1), 0, 0).unwrap();
                    assert!(x.equal(&numbers(0, len)));
                    let sent = numbers(7, 2 * len).view([len as i64, 2]).select(1, 0);
                    assert!(pairs.select(1, 1).equal(&sent));
                }
                _ => {}
            }
        }
    });
}

#[test]
fn tags_and_directions_do_not_wait_for_each_other() {
    ranks(2, |group| {
        let (rank, peer) = (group.rank(), 1 - group.rank());
        let (a, b) = (numbers(rank, 5), numbers(10 + rank, 5));
        let sent = [group.isend(&a, peer, 1).unwrap(), group.isend(&b, peer, 2).unwrap()];
        let (x, y) = (a.zeros_like(), a.zeros_like());
        group.recv(&y, peer, 2).unwrap();
        group.recv(&x, peer, 1).unwrap();
        sent.iter().for_each(|work| work.wait().unwrap());
        assert!(x.equal(&numbers(peer, 5)) && y.equal(&numbers(10 + peer, 5)));
    });
}

/// Gives each rank the tensor of the one before it.
fn turn(group: &ProcessGroup, x: &Tensor) -> Tensor {
    let (rank, world) = (group.rank(), group.world_size());
    let y = x.zeros_like();
    let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
    let mut ops = [P2POp::isend(x, next, 0), P2POp::irecv(&y, before, 0)];
    if rank % 2 == 1 {
        ops.reverse();
    }
    group.batch_isend_irecv(&ops).unwrap().iter().for_each(|work| work.wait().unwrap());
    y
}

#[test]
fn a_ring_turns() {
    for world in [2, 3, 4] {
        ranks(world, |group| {
            let mine = numbers(group.rank(), 50_000);
            let back = (0..world).fold(mine.clone(), |x, _| turn(&group, &x));
            assert!(back.equal(&mine));
        });
    }
}

#[test]
fn two_stages_of_a_model_learn_as_one() {
    let stage = |seed| {
        crate::manual_seed(seed);
        Linear::new(3, 3)
    };
    let make = std::sync::Mutex::new(());
    let input = || numbers(0, 6).view([2, 3]) / 1005.0;
    let both = {
        let (first, second) = (stage(1), stage(2));
        second.forward(&first.forward(&input()).tanh()).square().sum().backward();
        [first, second].map(|stage| stage.parameters()[0].grad().unwrap().to_vec::<f32>())
    };
    let found = ranks(2, |group| {
        let layer = {
            // The generator is the process's.
            let _one = make.lock().unwrap();
            stage(1 + group.rank() as u64)
        };
        if group.rank() == 0 {
            let y = layer.forward(&input()).tanh();
            group.send(&y, 1, 0).unwrap();
            let gradient = y.zeros_like();
            group.recv(&gradient, 1, 0).unwrap();
            autograd::backward(&[&y], &[Some(&gradient)], false, false);
        } else {
            let x = Tensor::zeros([2, 3], Dtype::F32).requires_grad_(true);
            group.recv(&x.detach(), 0, 0).unwrap();
            layer.forward(&x).square().sum().backward();
            group.send(&x.grad().unwrap(), 0, 0).unwrap();
        }
        layer.parameters()[0].grad().unwrap().to_vec::<f32>()
    });
    assert_eq!(found, both);
}

#[test]
fn what_does_not_fit_is_an_error_on_both_ranks() {
    let errors = ranks(2, |group| match group.rank() {
        0 => group.send(&numbers(0, 3), 1, 0).unwrap_err(),
        _ => group.recv(&Tensor::zeros([4], Dtype::F32), 0, 0).unwrap_err(),
    });
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, Error::Mismatch(_)), "{text}");
        assert!(text.contains("rank 0 called send/recv"), "{text}");
        assert!(text.contains("[3]") && text.contains("[4]"), "{text}");
    }
}

#[test]
fn a_peer_that_does_not_come_is_a_time_out() {
    let error = ranks_with(2, Duration::from_millis(200), |group| match group.rank() {
        0 => {
            std::thread::sleep(Duration::from_millis(400));
            None
        }
        _ => group.recv(&numbers(0, 1), 0, 0).err(),
    });
    let text = error[1].as_ref().unwrap().to_string();
    assert!(matches!(error[1], Some(Error::Timeout { .. })), "{text}");
    assert!(text.contains("rank 1 waits for what rank 0 sends"), "{text}");
}

#[test]
fn wrong_peers_are_refused() {
    ranks(2, |group| {
        let x = numbers(0, 1);
        let text = group.send(&x, 2, 0).unwrap_err().to_string();
        assert!(text.contains("is 2, but the group has 2 ranks"), "{text}");
        let text = group.recv(&x, group.rank(), 0).unwrap_err().to_string();
        assert!(text.contains("this rank itself"), "{text}");
        let ops = [P2POp::irecv(&x, 9, 0)];
        assert!(matches!(group.batch_isend_irecv(&ops), Err(Error::Argument { .. })));
    });
}
