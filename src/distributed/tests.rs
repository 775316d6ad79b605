//! Collectives among ranks that are threads of this process: every way data can move, against
//! plain loops, and every mistake that a rank can make. Ranks that are processes, and their
//! deaths, are in `tests/distributed/process_groups.rs`.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use half::bf16;
use proptest::prelude::*;

use super::nccl::HostAndGpu;
use super::shm::{self, Seat, ShmBackend};
use super::{Deadline, ProcessGroup, ReduceOp, Store, StoreServer};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Far longer than anything here takes; a wait that reaches it is a bug.
const LONG: Duration = Duration::from_secs(60);
/// On both sides of the limits between the ways data moves: inline below 64 KiB / ranks, chunks of
/// 512 KiB above.
const SIZES: [usize; 6] = [0, 1, 7, 1000, 20_011, 150_003];

/// Runs `f` as each of `world` ranks at once; their results, by rank.
pub(super) fn ranks<T: Send>(world: usize, f: impl Fn(ProcessGroup) -> T + Sync) -> Vec<T> {
    ranks_with(world, LONG, f)
}

pub(super) fn ranks_with<T: Send>(
    world: usize,
    timeout: Duration,
    f: impl Fn(ProcessGroup) -> T + Sync,
) -> Vec<T> {
    hosts(world, |host| {
        let rank = host.rank();
        f(ProcessGroup::new(Arc::new(HostAndGpu::new(host)), None, rank, timeout))
    })
}

/// What [`ranks`] is made of.
fn hosts<T: Send>(world: usize, f: impl Fn(ShmBackend) -> T + Sync) -> Vec<T> {
    let server = StoreServer::start().unwrap();
    std::thread::scope(|scope| {
        let (f, server) = (&f, &server);
        let threads: Vec<_> = (0..world)
            .map(|rank| {
                scope.spawn(move || {
                    let store = Store::connect_fd(server.connect().unwrap()).unwrap();
                    let seat = Seat {
                        rank,
                        ranks: (0..world).collect(),
                        store: Some(store),
                        prefix: "test".into(),
                    };
                    f(shm::join(seat, &Deadline::after(LONG)).unwrap())
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Small values of which sums and products of four fit every dtype exactly.
fn value(rank: usize, i: usize, dtype: Dtype) -> f64 {
    let v = (rank * 7 + i * 5 + i / 3) % 4;
    if dtype == Dtype::Bool { (v % 2) as f64 } else { v as f64 }
}

/// Of a complex type with equal parts.
fn tensor(rank: usize, len: usize, dtype: Dtype) -> Tensor {
    let values: Vec<f64> = (0..len).map(|i| value(rank, i, dtype)).collect();
    let real = Tensor::from_slice(&values, [len]).to_dtype(dtype.to_real());
    if dtype.is_complex() { Tensor::complex(&real, &real) } else { real }
}

/// The elements, or, of complex ones, their equal parts.
fn numbers(t: &Tensor) -> Vec<f64> {
    if t.is_complex() {
        assert!(t.real().equal(&t.imag()));
    }
    t.real().to_vec()
}

/// What `op` makes of one element of each rank.
fn combined(op: ReduceOp, dtype: Dtype, values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    let bits = |f: fn(i64, i64) -> i64| {
        values.iter().map(|&v| v as i64).reduce(f).unwrap_or_default() as f64
    };
    let fold = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap_or_default();
    match op {
        ReduceOp::Sum if dtype == Dtype::Bool => fold(f64::max),
        ReduceOp::Sum => values.iter().sum(),
        // One rounding to the accumulator's type and one to the dtype, as the real thing.
        ReduceOp::Avg if dtype.to_real() == Dtype::F64 => {
            values.iter().sum::<f64>() / values.len() as f64
        }
        ReduceOp::Avg => {
            let mean = values.iter().sum::<f64>() as f32 / values.len() as f32;
            Tensor::from([mean]).to_dtype(dtype.to_real()).item()
        }
        ReduceOp::Product => values.iter().product(),
        ReduceOp::Min => fold(f64::min),
        ReduceOp::Max => fold(f64::max),
        ReduceOp::Band => bits(|a, b| a & b),
        ReduceOp::Bor => bits(|a, b| a | b),
        ReduceOp::Bxor => bits(|a, b| a ^ b),
    }
}

fn expected(op: ReduceOp, dtype: Dtype, world: usize, len: usize) -> Vec<f64> {
    (0..len).map(|i| combined(op, dtype, (0..world).map(|r| value(r, i, dtype)))).collect()
}

#[test]
fn all_reduce_of_every_dtype_op_and_size_in_every_way() {
    for world in [1, 2, 3, 4] {
        ranks(world, |group| {
            for dtype in Dtype::ALL {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.check("test", dtype).is_ok()) {
                    for len in SIZES.into_iter().filter(|&len| world <= 2 || len != 150_003) {
                        let want = expected(op, dtype, world, len);
                        let private = tensor(group.rank(), len, dtype);
                        group.all_reduce(&private, op).unwrap();
                        let shared = group.empty_shared(&[len], dtype).unwrap();
                        shared.copy_(&tensor(group.rank(), len, dtype));
                        group.all_reduce_async(&shared, op).unwrap().wait().unwrap();
                        let what = format!("{op} of {len} {dtype} over {world}");
                        assert!(numbers(&private) == want, "{what}");
                        assert!(numbers(&shared) == want, "{what}, shared");
                    }
                }
            }
        });
    }
}

#[test]
fn the_other_collectives_in_every_way() {
    let dtype = Dtype::I16;
    for world in [1, 2, 4] {
        ranks(world, |group| {
            let rank = group.rank();
            for len in [0, 1, 7, 1000, 300_007] {
                let given =
                    |r: usize| -> Vec<f64> { (0..len).map(|i| value(r, i, dtype)).collect() };
                for shared in [false, true] {
                    let fill = |shape: &[usize], from: &Tensor| match shared {
                        true => {
                            let t = group.empty_shared(shape, dtype).unwrap();
                            t.copy_(from);
                            t
                        }
                        false => from.clone_contiguous(),
                    };
                    let mine = fill(&[len], &tensor(rank, len, dtype));
                    let root = world - 1;

                    let gathered = group.all_gather(&mine).unwrap();
                    for (r, part) in gathered.iter().enumerate() {
                        assert!(part.to_vec::<f64>() == given(r), "all_gather of {len}");
                    }
                    let at_root = group.gather(&mine, root).unwrap();
                    assert_eq!(at_root.is_some(), rank == root);
                    for (r, part) in at_root.iter().flatten().enumerate() {
                        assert!(part.to_vec::<f64>() == given(r), "gather of {len}");
                    }

                    // Part p of rank r is what rank r + p would give alone.
                    let parts: Vec<Tensor> =
                        (0..world).map(|p| tensor(rank + p, len, dtype)).collect();
                    let out = fill(&[len], &mine);
                    group.scatter(&out, (rank == root).then_some(&parts[..]), root).unwrap();
                    assert!(out.to_vec::<f64>() == given(root + rank), "scatter of {len}");

                    let all = fill(&[world, len], &Tensor::zeros([world, len], dtype));
                    for (p, part) in all.unbind(0).iter().enumerate() {
                        part.copy_(&parts[p]);
                    }
                    group.reduce_scatter_tensor(&out, &all, ReduceOp::Sum).unwrap();
                    let sum: Vec<f64> = (0..len)
                        .map(|i| (0..world).map(|r| value(r + rank, i, dtype)).sum())
                        .collect();
                    assert!(out.to_vec::<f64>() == sum, "reduce_scatter_tensor of {len}");
                    group.reduce_scatter(&out, &parts, ReduceOp::Sum).unwrap();
                    assert!(out.to_vec::<f64>() == sum, "reduce_scatter of {len}");

                    let swapped = fill(&[world, len], &Tensor::zeros([world, len], dtype));
                    group.all_to_all_single(&swapped, &all).unwrap();
                    for (r, part) in swapped.unbind(0).iter().enumerate() {
                        assert!(part.to_vec::<f64>() == given(r + rank), "all_to_all of {len}");
                    }
                    // In place: the exchange is its own inverse.
                    group.all_to_all_single(&swapped, &swapped).unwrap();
                    assert!(swapped.to_vec::<f64>() == all.to_vec::<f64>(), "back again");

                    let reduced = fill(&[len], &mine);
                    group.reduce(&reduced, root, ReduceOp::Max).unwrap();
                    let want = match rank == root {
                        true => expected(ReduceOp::Max, dtype, world, len),
                        false => given(rank),
                    };
                    assert!(reduced.to_vec::<f64>() == want, "reduce of {len}");

                    group.broadcast(&mine, root).unwrap();
                    assert!(mine.to_vec::<f64>() == given(root), "broadcast of {len}");
                    group.barrier().unwrap();
                }
            }
        });
    }
}

/// Started all at once and waited for in the end, they give what the plain calls give.
#[test]
fn collectives_in_the_background_give_what_plain_ones_give() {
    ranks(2, |group| {
        let mine = || Tensor::from([group.rank() as f32 + 1.0, 5.0]);
        let zeros = |len: usize| Tensor::zeros([len], Dtype::F32);
        let run = |background: bool| {
            let [reduced, sent] = [mine(), mine()];
            let [gathered, scattered, swapped] = [4, 1, 2].map(zeros);
            let works = if background {
                vec![
                    group.reduce_async(&reduced, 1, ReduceOp::Sum),
                    group.broadcast_async(&sent, 1),
                    group.all_gather_into_tensor_async(&gathered, &mine()),
                    group.reduce_scatter_tensor_async(&scattered, &mine(), ReduceOp::Sum),
                    group.all_to_all_single_async(&swapped, &mine()),
                ]
            } else {
                group.reduce(&reduced, 1, ReduceOp::Sum).unwrap();
                group.broadcast(&sent, 1).unwrap();
                group.all_gather_into_tensor(&gathered, &mine()).unwrap();
                group.reduce_scatter_tensor(&scattered, &mine(), ReduceOp::Sum).unwrap();
                group.all_to_all_single(&swapped, &mine()).unwrap();
                vec![]
            };
            works.into_iter().for_each(|work| work.unwrap().wait().unwrap());
            [reduced, sent, gathered, scattered, swapped].map(|t| t.to_vec::<f32>())
        };
        let plain = run(false);
        assert_eq!(plain[4], [[1.0, 2.0], [5.0, 5.0]][group.rank()]);
        assert_eq!(run(true), plain);
    });
}

#[test]
fn one_private_buffer_among_shared_ones_makes_no_difference() {
    ranks(3, |group| {
        let (len, dtype) = (150_001, Dtype::F32);
        let mut mine = group.empty_shared(&[len], dtype).unwrap();
        if group.rank() == 1 {
            mine = Tensor::zeros([len], dtype);
        }
        mine.copy_(&tensor(group.rank(), len, dtype));
        group.all_reduce(&mine, ReduceOp::Sum).unwrap();
        assert!(mine.to_vec::<f64>() == expected(ReduceOp::Sum, dtype, 3, len));
    });
}

#[test]
fn parts_of_a_shared_buffer_are_reduced_apart() {
    ranks(2, |group| {
        let (len, dtype) = (70_000, Dtype::F32);
        let buffer = group.alloc_shared(2 * len * 4).unwrap();
        let halves = [0, len * 4].map(|at| buffer.tensor(at, &[len], dtype).unwrap());
        halves[0].copy_(&tensor(group.rank(), len, dtype));
        halves[1].fill_(9.0);
        let slice = buffer.slice(0, len, dtype).unwrap();
        group.all_reduce_raw(slice, ReduceOp::Sum).unwrap().wait().unwrap();
        assert!(halves[0].to_vec::<f64>() == expected(ReduceOp::Sum, dtype, 2, len));
        assert!(halves[1].to_vec::<f32>().iter().all(|&v| v == 9.0));
        let error = buffer.slice(4, 2 * len, dtype).unwrap_err();
        assert!(error.to_string().contains("not inside the buffer of 560000 bytes"), "{error}");
    });
}

/// FAULTS row 26.
#[test]
fn empty_zero_dim_and_strided_tensors() {
    ranks(2, |group| {
        let rank = group.rank();
        let scalar = Tensor::full([], rank as f64 + 1.0, Dtype::F32);
        group.all_reduce(&scalar, ReduceOp::Sum).unwrap();
        assert_eq!((scalar.item(), scalar.shape()), (3.0, &[][..]));

        let empty = Tensor::zeros([3, 0], Dtype::F32);
        group.all_reduce(&empty, ReduceOp::Sum).unwrap();
        assert_eq!(group.all_gather(&empty).unwrap()[1].shape(), [3, 0]);

        // 300 x 500, large enough to be staged, seen through a transpose and a step of two.
        let base = Tensor::from_slice(
            &(0..300 * 500).map(|i| (i * (rank + 1)) as f32).collect::<Vec<_>>(),
            [300, 500],
        );
        let view = base.t().slice(0, 0, 500, 2);
        assert!(!view.is_contiguous());
        group.all_reduce(&view, ReduceOp::Sum).unwrap();
        let values = base.to_vec::<f32>();
        for (i, v) in values.iter().enumerate() {
            let factor = if i % 2 == 0 { 3 } else { rank + 1 };
            assert_eq!(*v, (i * factor) as f32, "element {i}");
        }

        let strided = Tensor::zeros([4, 4], Dtype::I64).t();
        if rank == 0 {
            strided.copy_(&Tensor::range(16).reshape([4, 4]));
        }
        group.broadcast(&strided, 0).unwrap();
        assert_eq!(strided.to_vec::<i64>(), (0..16).collect::<Vec<_>>());

        let expanded = Tensor::zeros([1], Dtype::F32).expand(&[5]);
        let error = group.all_reduce(&expanded, ReduceOp::Sum).unwrap_err();
        assert!(error.to_string().contains("argument `tensor`: is an expanded view"), "{error}");
    });
}

#[test]
fn a_parameter_is_changed_without_history_but_autograd_knows() {
    ranks(2, |group| {
        let weight = Tensor::from([1f32, 2.]).requires_grad_(true);
        let before = weight.version();
        let product = &weight * &weight;
        crate::autograd::no_grad(|| group.all_reduce(&weight, ReduceOp::Sum)).unwrap();
        assert!(weight.is_leaf() && weight.requires_grad() && weight.version() > before);
        let stale = crate::error::catch(|| product.sum().backward());
        assert!(stale.is_err(), "the saved tensor was changed in place");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// FAULTS row 27: the result is the rank-ordered sum, bit for bit, on all ranks, whatever the
    /// number of ranks, and however the elements are cut into buckets and moved.
    #[test]
    fn sums_are_bitwise_the_rank_ordered_sum(
        world in 1usize..5, len in 1usize..150_000, buckets in 1usize..4, seed: u32
    ) {
        let float = |rank: usize, i: usize| {
            let bits = ((rank as u32 * 77_773 + i as u32) ^ seed).wrapping_mul(2_654_435_761);
            (bits as f32 / 1e6).sin() * 10f32.powi((bits >> 7) as i32 % 9)
        };
        let data: Vec<Vec<f32>> =
            (0..world).map(|r| (0..len).map(|i| float(r, i)).collect()).collect();
        let want: Vec<u32> = (0..len)
            .map(|i| (1..world).fold(data[0][i], |sum, r| sum + data[r][i]).to_bits())
            .collect();
        let want_half: Vec<u16> = (0..len)
            .map(|i| {
                let half = |r: usize| bf16::from_f32(data[r][i]).to_f32();
                bf16::from_f32((1..world).fold(half(0), |sum, r| sum + half(r))).to_bits()
            })
            .collect();
        let results = ranks(world, |group| {
            let source = Tensor::from_slice(&data[group.rank()], [len]);
            let (private, shared) =
                (source.clone_contiguous(), group.empty_shared(&[len], Dtype::F32).unwrap());
            shared.copy_(&source);
            let halves: Vec<bf16> =
                data[group.rank()].iter().map(|&v| bf16::from_f32(v)).collect();
            let half = Tensor::from_slice(&halves, [len]);
            let bucket = len.div_ceil(buckets);
            let works: Vec<_> = (0..len)
                .step_by(bucket)
                .flat_map(|start| [&private, &shared, &half].map(|t| (t, start)))
                .map(|(t, start)| {
                    let part = t.narrow(0, start, bucket.min(len - start));
                    group.all_reduce_async(&part, ReduceOp::Sum).unwrap()
                })
                .collect();
            works.iter().for_each(|w| w.wait().unwrap());
            let bits = |t: &Tensor| t.to_vec::<f32>().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let half: Vec<u16> = half.to_vec::<bf16>().iter().map(|v| v.to_bits()).collect();
            (bits(&private), bits(&shared), half)
        });
        for (private, shared, half) in results {
            prop_assert!(private == want && shared == want && half == want_half);
        }
    }
}

#[test]
fn calls_and_started_collectives_mix_in_order() {
    ranks(3, |group| {
        let mut works = Vec::new();
        let tensors: Vec<Tensor> =
            (0..60).map(|i| tensor(group.rank(), [3, 30_000][i % 2], Dtype::F32)).collect();
        for (i, t) in tensors.iter().enumerate() {
            match i % 3 {
                0 => group.all_reduce(t, ReduceOp::Sum).unwrap(),
                1 => works.push(group.all_reduce_async(t, ReduceOp::Sum).unwrap()),
                // Not waited for, which is allowed; the barrier below comes after it.
                _ => drop(group.all_reduce_async(t, ReduceOp::Sum).unwrap()),
            }
        }
        group.barrier().unwrap();
        assert!(works.iter().all(|w| w.is_completed() && w.wait().is_ok()));
        for t in tensors {
            let len = t.numel();
            assert!(t.to_vec::<f64>() == expected(ReduceOp::Sum, Dtype::F32, 3, len));
        }
    });
}

#[test]
fn a_part_of_a_group_shares_the_cores_with_the_others() {
    let everybody = hosts(3, |host| {
        let part = host.sub_group(&[0, 1], &Deadline::after(LONG)).unwrap();
        part.map(|part| part.everybody)
    });
    assert_eq!(everybody, [Some(3), Some(3), None]);
}

#[test]
fn sub_groups_work_side_by_side_and_outsiders_are_told_so() {
    ranks(4, |group| {
        let rank = group.rank();
        let even = group.new_group(&[2, 0]).unwrap();
        let odd = group.new_group(&[1, 3]).unwrap();
        assert_eq!((even.ranks(), even.world_size()), (&[0, 2][..], 2));
        assert_eq!(even.is_member(), rank.is_multiple_of(2));
        let (mine, other) = if rank.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        assert_eq!(mine.rank(), rank / 2);
        let t = Tensor::full([40_000], rank as f64, Dtype::F32);
        mine.all_reduce(&t, ReduceOp::Sum).unwrap();
        let sum = if rank.is_multiple_of(2) { 2.0 } else { 4.0 };
        assert!(t.to_vec::<f32>().iter().all(|&v| v == sum));

        // FAULTS row 25.
        let error = other.all_reduce(&t, ReduceOp::Sum).unwrap_err().to_string();
        let members = if rank.is_multiple_of(2) { "1, 3" } else { "0, 2" };
        assert_eq!(
            error,
            format!(
                "all_reduce: argument `group`: rank {rank} is not a member; it has ranks {members}"
            )
        );
        assert!(crate::error::catch(|| other.rank()).is_err());
        let single = mine.new_group(&[1]).unwrap();
        if single.is_member() {
            single.all_reduce(&t, ReduceOp::Sum).unwrap();
            assert_eq!(single.ranks(), [rank]);
        }
        group.barrier().unwrap();
    });
}

/// FAULTS row 25: nothing is sent, so the group goes on as if nothing had happened.
#[test]
fn bad_arguments_are_refused_before_any_rank_is_involved() {
    ranks(2, |group| {
        if group.rank() == 0 {
            let t = Tensor::zeros([3], Dtype::F32);
            let refuse = |result: Result<()>, text: &str| {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(text), "{error}");
            };
            refuse(
                group.broadcast(&t, 2),
                "broadcast: argument `root`: is 2, but the group has 2 ranks: 0 to 1",
            );
            refuse(group.reduce(&t, 9, ReduceOp::Sum), "argument `root`: is 9");
            refuse(group.scatter(&t, None, 0), "scatter: argument `inputs`: has to be given");
            refuse(
                group.scatter(&t, Some(std::slice::from_ref(&t)), 0),
                "argument `inputs`: 1 tensors for 2 ranks",
            );
            refuse(
                group.reduce_scatter_tensor(&t, &Tensor::zeros([7], Dtype::F32), ReduceOp::Sum),
                "argument `input`: has shape [7], 7 elements, but `output` has shape [3]: with 2 \
                 ranks it needs 6",
            );
            refuse(
                group.reduce_scatter(
                    &t,
                    &[t.clone(), Tensor::zeros([4], Dtype::F32)],
                    ReduceOp::Sum,
                ),
                "the one for rank 1 is f32 [4], but the output is f32 [3]",
            );
            refuse(group.all_gather_into_tensor(&t, &t), "argument `output`: has shape [3]");
            refuse(group.all_to_all_single(&t, &t), "of which dimension 0 is not divisible");
            let half = Tensor::zeros([6], Dtype::F16);
            refuse(group.all_gather_into_tensor(&half, &t), "the output is f16, the input f32");
            let ints = Tensor::zeros([3], Dtype::I32);
            refuse(group.all_reduce(&ints, ReduceOp::Avg), "avg takes floating-point types");
            refuse(group.all_reduce(&t, ReduceOp::Bxor), "bxor takes integers and bool, got f32");
            let error = group.new_group(&[0, 2]).unwrap_err().to_string();
            assert!(error.contains("names rank 2, but the group has 2 ranks"), "{error}");
            assert!(group.new_group(&[1, 1]).is_err() && group.new_group(&[]).is_err());
        }
        group.barrier().unwrap();
    });
}

/// FAULTS row 23: every rank gets both sides, and no data has moved.
#[test]
fn different_calls_are_an_error_that_names_both_sides_on_all_ranks() {
    type Call = fn(&ProcessGroup, usize) -> Result<()>;
    let t = |shape: &[usize], dtype| Tensor::zeros(shape, dtype);
    let cases: [(Call, &str); 6] = [
        (
            |g, r| {
                g.all_reduce(
                    &Tensor::zeros([3, if r == 1 { 5 } else { 4 }], Dtype::F32),
                    ReduceOp::Sum,
                )
            },
            "ranks 0, 2 called all_reduce(sum, f32, [3, 4]); rank 1 called all_reduce(sum, f32, [3, 5])",
        ),
        (
            |g, r| g.all_reduce(&Tensor::zeros([200_000 + r], Dtype::F32), ReduceOp::Sum),
            "rank 0 called all_reduce(sum, f32, [200000]); rank 1 called all_reduce(sum, f32, [200001])",
        ),
        (
            |g, r| {
                let dtype = if r == 2 { Dtype::F64 } else { Dtype::F32 };
                g.all_reduce(&Tensor::zeros([2], dtype), ReduceOp::Sum)
            },
            "ranks 0, 1 called all_reduce(sum, f32, [2]); rank 2 called all_reduce(sum, f64, [2])",
        ),
        (
            |g, r| {
                let op = if r == 0 { ReduceOp::Max } else { ReduceOp::Sum };
                g.all_reduce(&Tensor::zeros([2], Dtype::F32), op)
            },
            "rank 0 called all_reduce(max, f32, [2]); ranks 1, 2 called all_reduce(sum, f32, [2])",
        ),
        (
            |g, r| match r {
                1 => g.broadcast(&Tensor::zeros([2], Dtype::F32), 0),
                _ => g.all_reduce(&Tensor::zeros([2], Dtype::F32), ReduceOp::Sum),
            },
            "rank 1 called broadcast(root 0, f32, [2])",
        ),
        (
            |g, r| g.broadcast(&Tensor::zeros([2], Dtype::F32), r),
            "rank 0 called broadcast(root 0, f32, [2]); rank 1 called broadcast(root 1, f32, [2])",
        ),
    ];
    ranks(3, |group| {
        for (call, text) in cases {
            let error = call(&group, group.rank()).unwrap_err();
            assert!(matches!(error, Error::Mismatch(_)), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
        let error = group.alloc_shared(100 + group.rank()).unwrap_err();
        assert!(error.to_string().contains("rank 2 called alloc_shared(102 bytes)"), "{error}");
        // All are still in step: the group can be used.
        let ok = t(&[2], Dtype::F32);
        group.all_reduce(&ok, ReduceOp::Sum).unwrap();
    });
}

/// FAULTS row 24.
#[test]
fn a_skipped_collective_ends_in_a_time_out_that_says_where_everyone_is() {
    let given_up = Barrier::new(3);
    let messages = ranks_with(3, Duration::from_secs(1), |group| {
        let t = Tensor::zeros([5], Dtype::F32);
        group.all_reduce(&t, ReduceOp::Sum).unwrap();
        if group.rank() == 2 {
            given_up.wait();
            return group.all_reduce(&t, ReduceOp::Sum).unwrap_err();
        }
        let error = group.all_reduce(&t, ReduceOp::Sum).unwrap_err();
        given_up.wait();
        error
    });
    let timed_out = messages.iter().filter(|e| matches!(e, Error::Timeout { .. })).count();
    assert!(timed_out >= 1, "{messages:?}");
    for error in messages {
        assert!(matches!(error, Error::Timeout { .. } | Error::Aborted(_)), "{error}");
        let text = error.to_string();
        // The barrier that ends the rendezvous is collective 1.
        assert!(
            text.contains("waits in collective 3, all_reduce(sum, f32, [5])")
                && text.contains("rank 2 alive, last collective 2, all_reduce(sum, f32, [5])"),
            "{text}"
        );
    }
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let start = Instant::now();
    let errors = ranks(3, |group| {
        group.barrier().unwrap();
        (group.rank() != 1).then(|| group.barrier().unwrap_err().to_string())
    });
    for error in errors.into_iter().flatten() {
        assert!(error.contains("rank 1 has left the process group after collective 2"), "{error}");
    }
    assert!(start.elapsed() < LONG / 2);
}

#[test]
fn an_abort_wakes_everyone_with_its_reason_and_stays() {
    let errors = ranks(3, |group| {
        if group.rank() == 0 {
            group.abort("the data set is gone");
        }
        let first = group.barrier().unwrap_err();
        let second = group.all_reduce_async(&Tensor::zeros([1], Dtype::F32), ReduceOp::Sum);
        (first, second.unwrap().wait().unwrap_err())
    });
    for error in errors.into_iter().flat_map(|(a, b)| [a, b]) {
        let Error::Aborted(text) = error else { panic!("{error}") };
        assert!(text.starts_with("by rank 0: the data set is gone; rank "), "{text}");
    }
}

/// FAULTS row 32: a rank that panics takes its group along.
#[test]
fn a_panic_aborts_the_group() {
    let errors = ranks(2, |group| match group.rank() {
        0 => {
            let panicked = crate::error::catch(move || {
                let _group = group;
                panic!("a bug");
            });
            panicked.unwrap_err()
        }
        _ => group.barrier().unwrap_err(),
    });
    assert!(errors[1].to_string().contains("by rank 0: thread"), "{}", errors[1]);
    assert!(errors[1].to_string().contains("panicked"), "{}", errors[1]);
}

#[test]
fn a_limit_per_call_applies_to_that_handle_only() {
    let given_up = Barrier::new(2);
    ranks(2, |group| {
        let hasty = group.with_timeout(Duration::from_millis(50));
        assert_eq!((hasty.timeout(), group.timeout()), (Duration::from_millis(50), LONG));
        if group.rank() == 0 {
            let error = hasty.barrier().unwrap_err();
            assert!(error.to_string().starts_with("timed out after 0.1 s"), "{error}");
        }
        given_up.wait();
        // Out of step now: every further call says so.
        assert!(group.barrier().is_err());
    });
}
