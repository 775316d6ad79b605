//! What ranks say about each other: where they are in the program, that they have left, what they hold.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::tests::{ranks, ranks_with};
use super::{
    DDPOptions, DistributedDataParallel, InitOptions, ReduceOp, WorkerEnv, init_process_group,
};
use crate::error::Error;
use crate::nn::{self, Forward};
use crate::tensor::{Dtype, Tensor};

#[test]
fn a_mismatch_names_a_line_on_both_sides() {
    let errors = ranks(3, |group| {
        let x = Tensor::zeros([3], Dtype::F32);
        let (error, line) = match group.rank() {
            1 => (group.broadcast(&x, 0).unwrap_err(), line!()),
            _ => (group.all_reduce(&x, ReduceOp::Sum).unwrap_err(), line!()),
        };
        (error.to_string(), line)
    });
    let lines = [errors[0].1, errors[1].1];
    for (error, _) in errors {
        let [all_reduce, broadcast] = lines.map(|line| format!("{}:{line}", file!()));
        let places = format!("(ranks 0, 2 at {all_reduce}; rank 1 at {broadcast})");
        assert!(error.contains(&places), "{error}");
    }
}

/// Every way to call a collective gives the line of its caller.
#[test]
fn all_calls_know_their_line() {
    type Call = fn(&super::ProcessGroup, &Tensor) -> crate::error::Result<()>;
    // Each on one line, of which the test knows the number by the place in the list.
    #[rustfmt::skip]
    let (first, calls): (u32, [Call; 15]) = (line!() + 1, [
        |g, x| g.all_reduce_async(x, ReduceOp::Sum)?.wait(),
        |g, x| g.broadcast_async(x, 0)?.wait(),
        |g, x| g.reduce(x, 0, ReduceOp::Sum),
        |g, x| g.all_gather(x).map(drop),
        |g, x| g.reduce_scatter(&Tensor::zeros([2], Dtype::F32), &[x.clone(), x.clone()], ReduceOp::Sum),
        |g, x| g.gather(x, 0).map(drop),
        |g, x| g.all_to_all_single(&x.zeros_like(), x),
        |g, _| g.new_group(&[0]).map(drop),
        |g, _| g.alloc_shared(64).map(drop),
        |g, _| g.all_gather_bytes(b"abc").map(drop),
        |g, _| g.broadcast_bytes(b"abc", 1).map(drop),
        |g, _| g.all_gather_object(&5).map(drop),
        |g, _| g.scatter_object_list((g.rank() == 0).then_some(&[1, 2][..]), 0).map(drop),
        |g, _| DistributedDataParallel::new(nn::Linear::new(1, 1), g).map(drop),
        |g, x| super::functional::broadcast(x, 0, g).map(drop),
    ]);
    ranks(2, |group| {
        for (place, call) in (0..).zip(calls) {
            let x = Tensor::zeros([2], Dtype::F32);
            let error = match group.rank() {
                0 => call(&group, &x).unwrap_err(),
                _ => group.barrier().unwrap_err(),
            };
            let (text, line) = (error.to_string(), format!("{}:{}", file!(), first + place));
            assert!(text.contains(&format!("rank 0 at {line}")), "{line}: {text}");
        }
    });
}

#[test]
fn a_mismatch_in_backward_names_the_buckets_parameters() {
    let errors = ranks(2, |group| {
        let model = DistributedDataParallel::new(nn::Linear::new(2, 2), &group).unwrap();
        let y = model.forward(&Tensor::ones([1, 2], Dtype::F32)).sum();
        match group.rank() {
            0 => crate::error::catch(|| y.backward()).unwrap_err(),
            _ => group.barrier().unwrap_err(),
        }
    });
    for error in errors {
        let text = error.to_string();
        let bucket = "DistributedDataParallel's bucket 1 of 1, the gradients of `bias`, `weight`";
        assert!(text.contains(&format!("rank 0 at {bucket}")), "{text}");
        assert!(text.contains(&format!("rank 1 at {}", file!())), "{text}");
    }
}

/// It would do nothing, without a word.
#[test]
fn data_parallel_training_of_nothing_is_refused() {
    for world in [1, 2] {
        ranks(world, |group| {
            let frozen = nn::Linear::new(2, 2);
            let frozen_parameters = [&frozen.weight, frozen.bias.as_ref().unwrap()];
            frozen_parameters.iter().for_each(|parameter| drop(parameter.requires_grad_(false)));
            let error = DistributedDataParallel::new(frozen, &group).map(drop).unwrap_err();
            assert!(error.to_string().contains("no parameter that requires a gradient"), "{error}");
            for size in [-1.0, f64::NAN] {
                let options = DDPOptions { bucket_cap_mb: size, ..Default::default() };
                let model = nn::Linear::new(2, 2);
                let error = DistributedDataParallel::with_options(model, &group, options);
                let error = error.map(drop).unwrap_err().to_string();
                assert!(error.contains(&format!("argument `bucket_cap_mb`: is {size}")), "{error}");
            }
        });
    }
}

/// At once, and by name: a rank that has left never sends, receives or calls anything.
#[test]
fn messages_with_a_rank_that_has_left_end_at_once() {
    for tries in 0..4 {
        let start = Instant::now();
        let errors = ranks(3, |group| {
            if tries % 2 == 1 && group.rank() != 2 {
                // The direction is there already.
                let x = Tensor::zeros([2], Dtype::F32);
                match group.rank() {
                    0 => group.recv(&x, 1, 0).unwrap(),
                    _ => group.send(&x, 0, 0).unwrap(),
                }
            }
            if group.rank() == 1 {
                return None;
            }
            if group.rank() == 2 {
                return Some(group.barrier().unwrap_err());
            }
            let x = Tensor::zeros([2], Dtype::F32);
            Some(match tries {
                0 | 1 => group.recv(&x, 1, 0).unwrap_err(),
                2 => group.send(&x, 1, 0).unwrap_err(),
                _ => group.irecv(&x, 1, 5).unwrap().wait().unwrap_err(),
            })
        });
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        for error in errors.into_iter().flatten() {
            let text = error.to_string();
            assert!(matches!(error, Error::Aborted(_)), "{text}");
            assert!(text.contains("rank 1 has left the process group"), "{tries}: {text}");
            assert_eq!(error.culprit(), Some(1), "{text}");
        }
    }
}

/// The last words of a rank that leaves are not lost: it waits until they are received.
#[test]
fn what_was_sent_before_leaving_arrives() {
    for _ in 0..5 {
        ranks(2, |group| {
            let x = Tensor::full([3], group.rank() as f64, Dtype::F32);
            if group.rank() == 0 {
                drop(group.isend(&x, 1, 0).unwrap());
            } else {
                std::thread::sleep(Duration::from_millis(30));
                group.recv(&x, 0, 0).unwrap();
                assert_eq!(x.to_vec::<f32>(), [0.0; 3]);
            }
        });
    }
}

#[test]
fn an_abort_names_its_culprit() {
    let errors = ranks_with(3, Duration::from_millis(300), |group| match group.rank() {
        2 => {
            std::thread::sleep(Duration::from_millis(900));
            group.check().unwrap_err()
        }
        _ => group.barrier().unwrap_err(),
    });
    // Whichever timed out first is whom the others name.
    let first = errors.iter().position(|error| matches!(error, Error::Timeout { .. })).unwrap();
    let named = errors.iter().filter_map(|error| error.culprit()).collect::<Vec<_>>();
    assert!(!named.is_empty() && named.iter().all(|&rank| rank == first), "{errors:?}");
}

// Objects.

type Table = BTreeMap<String, (u32, Option<f64>)>;

fn table(rank: usize) -> Table {
    (0..=rank).map(|i| (format!("row {i} of {rank}"), (i as u32, Some(0.5)))).collect()
}

#[test]
fn objects_of_any_type_travel() {
    for world in [1, 2, 3] {
        ranks(world, |group| {
            let (rank, root) = (group.rank(), world - 1);
            let all: Vec<Table> = (0..world).map(table).collect();
            assert_eq!(group.all_gather_object(&table(rank)).unwrap(), all);
            let given = (rank == root).then(|| table(7));
            assert_eq!(group.broadcast_object(given.as_ref(), root).unwrap(), table(7));
            let mut list = vec![table(rank), table(2 * rank)];
            group.broadcast_object_list(&mut list, root).unwrap();
            assert_eq!(list, [table(root), table(2 * root)]);
            let gathered = group.gather_object(&table(rank), root).unwrap();
            assert_eq!(gathered, (rank == root).then(|| all.clone()));
            let given = (rank == root).then_some(&all[..]);
            assert_eq!(group.scatter_object_list(given, root).unwrap(), table(rank));
            assert_eq!(group.all_gather_object(&()).unwrap(), vec![(); world]);
            if world > 1 && rank < 2 {
                match rank {
                    0 => group.send_object(&all, 1, 4).unwrap(),
                    _ => assert_eq!(group.recv_object::<Vec<Table>>(0, 4).unwrap(), all),
                }
            }
        });
    }
}

#[test]
fn objects_of_other_types_are_an_error_that_names_both() {
    ranks(3, |group| {
        let rank = group.rank();
        let differ = |error: Error, one: &str, other: &str| {
            let text = error.to_string();
            assert!(matches!(error, Error::Mismatch(_)), "{text}");
            assert!(text.contains(one) && text.contains(other), "{text}");
        };
        let error = match rank {
            1 => group.all_gather_object(&5i64).unwrap_err(),
            _ => group.all_gather_object(&5i32).unwrap_err(),
        };
        differ(error, "ranks 0, 2 a `i32`", "rank 1 a `i64`");
        let error = match rank {
            0 => group.broadcast_object(Some(&"a".to_owned()), 0).map(drop).unwrap_err(),
            _ => group.broadcast_object::<Vec<u8>>(None, 0).map(drop).unwrap_err(),
        };
        differ(error, "rank 0 a `alloc::string::String`", "ranks 1, 2 a `alloc::vec::Vec<u8>`");
        let error = group.broadcast_object_list(&mut vec![1u8; 2 + rank / 2], 0).unwrap_err();
        differ(error, "ranks 0, 1 a 2 of `u8`", "rank 2 a 3 of `u8`");
        match rank {
            0 => group.send_object(&1.5f32, 1, 0).unwrap(),
            1 => {
                let error = group.recv_object::<f64>(0, 0).unwrap_err();
                differ(error, "rank 0 sent a `f32`", "rank 1 takes a `f64`");
            }
            _ => {}
        }
        let error = group.broadcast_object::<i32>(None, rank).unwrap_err().to_string();
        assert!(error.contains("argument `object`: has to be given on rank"), "{error}");
        let value = serde_json::json!({ "a": 1 });
        let error = group.all_gather_object(&value).unwrap_err().to_string();
        assert!(
            error.contains("the `serde_json::value::Value` of rank 0 cannot be read"),
            "{error}"
        );
        // All are still in step.
        assert_eq!(group.all_gather_object(&rank).unwrap(), [0, 1, 2]);
    });
}

// Worlds.

#[test]
fn a_world_that_no_host_has_is_refused_at_once() {
    let start = Instant::now();
    for world in [5_000usize, 1_000_000, 1_000_000_000, usize::MAX] {
        let env = WorkerEnv {
            world_size: world,
            local_world_size: world,
            ..WorkerEnv::from_lookup(|_| None).unwrap()
        };
        let options = InitOptions { env: Some(env), ..InitOptions::default() };
        let text = init_process_group(options).unwrap_err().to_string();
        assert!(text.starts_with(&format!("WORLD_SIZE: is {world}: a host has at most")), "{text}");
        assert!(text.len() < 200, "{text}");
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}
