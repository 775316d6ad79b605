//! Messages between ranks that are threads.

use std::time::{Duration, Instant};

use super::P2POp;
use super::tests::{ranks, ranks_with};
use crate::error::Error;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

#[path = "../../tests/distributed/checks/messages.rs"]
mod checks;

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

#[test]
fn a_ring_turns() {
    for world in [2, 3, 4] {
        ranks(world, |group| checks::turns_a_ring(&group, Device::Cpu).unwrap());
    }
}

#[test]
fn two_stages_of_a_model_learn_as_one() {
    ranks(2, |group| checks::learns_in_stages(&group, Device::Cpu).unwrap());
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
        assert!(text.contains("of the messages from rank 0 to rank 1 with tag 0"), "{text}");
        assert!(text.contains("rank 0 called send/recv(f32, [3])"), "{text}");
        assert!(text.contains("[3]") && text.contains("[4]"), "{text}");
    }
}

#[test]
fn a_peer_that_does_not_come_is_a_time_out() {
    for late in [0, 1] {
        let errors = ranks_with(2, Duration::from_millis(200), |group| {
            let x = numbers(0, 1);
            match group.rank() {
                rank if rank == late => {
                    std::thread::sleep(Duration::from_millis(400));
                    None
                }
                0 => group.send(&x, 1, 3).err(),
                _ => group.recv(&x, 0, 3).err(),
            }
        });
        let error = errors[1 - late].as_ref().unwrap();
        let text = error.to_string();
        assert!(matches!(error, Error::Timeout { .. }), "{text}");
        assert!(text.contains("from rank 0 to rank 1 with tag 3"), "{text}");
        assert!(text.contains(&format!("rank {late} alive")), "{text}");
    }
}

/// Rank 0 aborts while another rank waits for a message, whether there was one before or not.
#[test]
fn an_abort_reaches_the_messages_of_others() {
    let start = Instant::now();
    let errors = ranks_with(3, Duration::from_secs(5), |group| {
        let (rank, x) = (group.rank(), numbers(0, 5));
        match rank {
            1 => group.send(&x, 2, 0).unwrap(),
            2 => group.recv(&x, 1, 0).unwrap(),
            _ => {}
        }
        group.barrier().unwrap();
        let waiting = match rank {
            0 => {
                std::thread::sleep(Duration::from_millis(50));
                group.abort("no data left");
                vec![group.isend(&x, 1, 0).unwrap()]
            }
            1 => vec![group.irecv(&x, 0, 1).unwrap(), group.isend(&x, 2, 5).unwrap()],
            _ => vec![group.irecv(&x, 1, 0).unwrap()],
        };
        let mut errors: Vec<Error> = waiting.iter().map(|work| work.wait().unwrap_err()).collect();
        // What comes later on a direction that there is fails as well.
        match rank {
            0 => {}
            1 => errors.push(group.send(&x, 2, 0).unwrap_err()),
            _ => errors.push(group.recv(&x, 1, 0).unwrap_err()),
        }
        errors.push(group.check().unwrap_err());
        errors
    });
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    for error in errors.into_iter().flatten() {
        let text = error.to_string();
        assert!(matches!(error, Error::Aborted(_)), "{text}");
        assert!(text.contains("by rank 0: no data left"), "{text}");
    }
}

#[test]
fn a_message_that_fails_is_the_groups_failure() {
    let errors = ranks_with(3, Duration::from_millis(300), |group| {
        let x = numbers(0, 5);
        match group.rank() {
            0 => {
                group.send(&x, 1, 0).unwrap();
                std::thread::sleep(Duration::from_millis(500));
                group.check().unwrap_err()
            }
            1 => {
                group.recv(&x, 0, 0).unwrap();
                group.recv(&x, 0, 0).unwrap_err()
            }
            _ => group.with_timeout(Duration::from_secs(5)).barrier().unwrap_err(),
        }
    });
    assert!(matches!(errors[1], Error::Timeout { .. }), "{}", errors[1]);
    for error in [&errors[0], &errors[2]].map(|error| error.to_string()) {
        assert!(error.contains("rank 1 timed out") && error.contains("from rank 0"), "{error}");
    }
}

#[test]
fn wrong_peers_are_refused() {
    ranks(2, |group| {
        let x = numbers(0, 1);
        let text = group.send(&x, 2, 0).unwrap_err().to_string();
        assert!(text.contains("is 2, but the group has 2 ranks"), "{text}");
        let text = group.recv(&x, group.rank(), 0).unwrap_err().to_string();
        assert!(text.contains("this rank itself"), "{text}");
        // Nothing of a list is started where any of it is wrong.
        let peer = 1 - group.rank();
        for wrong in [P2POp::irecv(&x, 9, 0), P2POp::irecv(&x.expand(&[4]), peer, 1)] {
            let ops = [P2POp::isend(&numbers(7, 1), peer, 0), wrong];
            assert!(matches!(group.batch_isend_irecv(&ops), Err(Error::Argument { .. })));
        }
        let (y, rank) = (x.zeros_like(), group.rank());
        let sent = group.isend(&numbers(rank, 1), peer, 0).unwrap();
        group.recv(&y, peer, 0).unwrap();
        sent.wait().unwrap();
        assert!(y.equal(&numbers(peer, 1)));
    });
}
