//! All collectives over all layouts, beside a plain model of them.

use torchrs::distributed::{ProcessGroup, ReduceOp};
use torchrs::multiprocessing::Channel;
use torchrs::{Device, Dtype, Result, Tensor};

use super::{join_job, run};

const LAYOUTS: [&[usize]; 6] = [&[2, 2], &[4], &[1, 1, 1, 1], &[3, 1], &[2, 1, 1], &[1, 1]];

/// Values of which sums of a few, and products, are exact in every dtype.
fn given(dtype: Dtype, rank: usize, i: usize) -> f64 {
    let value = (rank * 3 + i * 7 + 1) % 5;
    if dtype == Dtype::Bool { (value % 2) as f64 } else { value as f64 }
}

fn tensor(dtype: Dtype, len: usize, value: impl Fn(usize) -> f64) -> Tensor {
    Tensor::from_slice(&(0..len).map(value).collect::<Vec<f64>>(), [len]).to_dtype(dtype)
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.cpu().to_dtype(Dtype::F64).to_vec()
}

fn combined(op: ReduceOp, dtype: Dtype, values: impl Iterator<Item = f64>, world: usize) -> f64 {
    let is_bool = dtype == Dtype::Bool;
    let fold = |a: f64, b: f64| match op {
        ReduceOp::Sum | ReduceOp::Avg if is_bool => a.max(b),
        ReduceOp::Sum | ReduceOp::Avg => a + b,
        ReduceOp::Product => a * b,
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::Band => (a as i64 & b as i64) as f64,
        ReduceOp::Bor => (a as i64 | b as i64) as f64,
        ReduceOp::Bxor => (a as i64 ^ b as i64) as f64,
        other => panic!("{other} has no model"),
    };
    let all = values.reduce(fold).unwrap();
    if op == ReduceOp::Avg { all / world as f64 } else { all }
}

/// All collectives of one dtype and length.
fn check(group: &ProcessGroup, dtype: Dtype, len: usize, ops: &[ReduceOp]) -> Result<()> {
    check_on(Device::Cpu, group, dtype, len, ops)
}

/// [`check`] on a device.
pub fn check_on(
    device: Device,
    group: &ProcessGroup,
    dtype: Dtype,
    len: usize,
    ops: &[ReduceOp],
) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let tensor =
        |dtype, len, value: &dyn Fn(usize) -> f64| tensor(dtype, len, value).to_device(device);
    let of = |rank: usize, len: usize| tensor(dtype, len, &|i| given(dtype, rank, i));
    let zeros = |len: usize| tensor(dtype, len, &|_| 0.0);
    let plain = |rank: usize, i: usize| given(dtype, rank, i);
    let what = |call: &str| format!("{call} of {len} {dtype} on rank {rank} of {world}");
    let same = |call: &str, got: &Tensor, want: &dyn Fn(usize) -> f64| {
        let (got, want) = (values(got), (0..got.numel()).map(want).collect::<Vec<f64>>());
        let wrong = got.iter().zip(&want).position(|(a, b)| a != b);
        assert!(wrong.is_none(), "{}: element {wrong:?}", what(call));
    };
    for &op in ops.iter().filter(|op| op.check("", dtype).is_ok()) {
        let sum = |i| combined(op, dtype, (0..world).map(|r| plain(r, i)), world);
        // A mean of thirds is rounded.
        let exact = |i| match op {
            ReduceOp::Avg => values(&tensor(dtype, 1, &|_| sum(i)))[0],
            _ => sum(i),
        };
        let x = of(rank, len);
        group.all_reduce(&x, op)?;
        same(&format!("all_reduce({op})"), &x, &exact);
        let shared = match device {
            Device::Cpu => group.empty_shared(&[len], dtype)?,
            _ => zeros(len),
        };
        shared.copy_(&of(rank, len));
        group.all_reduce_async(&shared, op)?.wait()?;
        same(&format!("shared all_reduce({op})"), &shared, &exact);
        let root = (len + 1) % world;
        let x = of(rank, len);
        group.reduce(&x, root, op)?;
        if rank == root {
            same(&format!("reduce({op})"), &x, &exact);
        }
        let whole = of(rank, len * world);
        let mine = zeros(len);
        group.reduce_scatter_tensor(&mine, &whole, op)?;
        same(&format!("reduce_scatter({op})"), &mine, &|i| exact(rank * len + i));
    }
    for root in 0..world {
        let x = of(rank, len);
        group.broadcast(&x, root)?;
        same("broadcast", &x, &|i| plain(root, i));
    }
    let root = len % world;
    for (r, part) in group.all_gather(&of(rank, len))?.iter().enumerate() {
        same("all_gather", part, &|i| plain(r, i));
    }
    let gathered = group.gather(&of(rank, len), root)?;
    assert_eq!(gathered.is_some(), rank == root);
    for (r, part) in gathered.iter().flatten().enumerate() {
        same("gather", part, &|i| plain(r, i));
    }
    let parts: Vec<Tensor> = (0..world).map(|r| tensor(dtype, len, &|i| plain(r, i + 1))).collect();
    let mine = zeros(len);
    group.scatter(&mine, (rank == root).then_some(&parts[..]), root)?;
    same("scatter", &mine, &|i| plain(rank, i + 1));
    let (sent, got) = (of(rank, len * world), zeros(len * world));
    group.all_to_all_single(&got, &sent)?;
    same("all_to_all", &got, &|i| {
        i.checked_div(len).map_or(0.0, |from| plain(from, rank * len + i % len))
    });
    group.barrier()
}

pub fn everything(_: (), _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    let all = ReduceOp::ALL;
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::I64, Dtype::Bool] {
        for len in [0, 1, 7, 1003] {
            check(&group, dtype, len, &all)?;
        }
    }
    check(&group, Dtype::F16, 70_001, &[ReduceOp::Sum, ReduceOp::Max])?;
    check(&group, Dtype::F32, 100_001, &[ReduceOp::Sum])?;
    check(&group, Dtype::F64, 20_000, &[ReduceOp::Avg])
}

#[test]
fn all_collectives_over_all_layouts() {
    for layout in LAYOUTS {
        run(layout, everything, &());
    }
}

/// Longer than what passes at once.
pub fn long(_: (), _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    check(&group, Dtype::F32, 1_100_003, &[ReduceOp::Sum])
}

#[test]
fn buffers_that_pass_in_chunks() {
    for layout in [&[2, 2][..], &[2, 1]] {
        run(layout, long, &());
    }
}

/// Sums of values whose order matters.
pub fn rounded(_: (), parent: Channel<Vec<Vec<u32>>, ()>) -> Result<()> {
    let group = join_job()?;
    let value = |i: usize| ((i * 2_654_435 + group.rank() * 977) as f32).sin() * 1e3 + 1e-3;
    let mut all = Vec::new();
    for len in [1000, 90_001, 400_000, 2_500_003] {
        for _ in 0..2 {
            let x = Tensor::from_slice(&(0..len).map(value).collect::<Vec<_>>(), [len]);
            group.all_reduce(&x, ReduceOp::Avg)?;
            all.push(x.to_vec::<f32>().iter().map(|v| v.to_bits()).collect());
        }
    }
    parent.send(&all)
}

#[test]
fn sums_have_the_same_bits_on_all_ranks_and_small_ones_those_of_one_host() {
    let bits = |layout: &[usize]| {
        let (_hosts, ranks) = super::start(layout, 60.0, rounded, &());
        let all: Vec<Vec<Vec<u32>>> =
            ranks.iter().map(|(_, channel)| channel.recv_timeout(super::LONG).unwrap()).collect();
        assert!(all.iter().all(|bits| *bits == all[0]), "{layout:?}: ranks differ");
        let of_rank = &all[0];
        assert!(of_rank.chunks(2).all(|twice| twice[0] == twice[1]), "{layout:?}: runs differ");
        of_rank[0].clone()
    };
    let one_host = bits(&[4]);
    for layout in [&[2, 2][..], &[3, 1], &[1, 1, 1, 1]] {
        assert!(bits(layout) == one_host, "{layout:?}");
    }
}

/// Groups of some ranks, on one host and over several, each with groups of its own.
pub fn groups(_: (), _parent: Channel<(), ()>) -> Result<()> {
    groups_on(Device::Cpu, &join_job()?)
}

/// The same on a device.
pub fn groups_on(device: Device, group: &ProcessGroup) -> Result<()> {
    let some = [ReduceOp::Sum];
    for ranks in [&[0, 1][..], &[2, 3], &[0, 3], &[1, 2, 3], &[2], &[0, 1, 2, 3]] {
        let part = group.new_group(ranks)?;
        assert_eq!((part.ranks(), part.is_member()), (ranks, ranks.contains(&group.rank())));
        if !part.is_member() {
            continue;
        }
        for len in [3, 50_000] {
            check_on(device, &part, Dtype::F32, len, &some)?;
        }
        let last = [part.world_size() - 1];
        let inner = part.new_group(if part.world_size() > 2 { &[0, 2] } else { &last })?;
        if inner.is_member() {
            check_on(device, &inner, Dtype::I32, 100, &some)?;
        }
    }
    group.barrier()
}

#[test]
fn sub_groups_on_one_host_and_over_several() {
    for layout in [&[2, 2][..], &[3, 1], &[1, 2, 1]] {
        run(layout, groups, &());
    }
}

/// Messages between all pairs, in both directions at once, and objects.
pub fn messages(_: (), _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    messages_on(Device::Cpu, &group)?;
    let (rank, world) = (group.rank(), group.world_size());
    let all = group.all_gather_object(&vec![rank; rank + 1])?;
    assert_eq!(all, (0..world).map(|rank| vec![rank; rank + 1]).collect::<Vec<_>>());
    let name = (rank == world - 1).then(|| "run-7".to_owned());
    assert_eq!(group.broadcast_object(name.as_ref(), world - 1)?, "run-7");
    let parts: Vec<String> = (0..world).map(|rank| "x".repeat(rank)).collect();
    assert_eq!(group.scatter_object_list((rank == 0).then_some(&parts[..]), 0)?, parts[rank]);
    match rank {
        0 => group.send_object(&parts, world - 1, 3)?,
        _ if rank == world - 1 => assert_eq!(group.recv_object::<Vec<String>>(0, 3)?, parts),
        _ => {}
    }
    group.barrier()
}

/// Tensors between neighbours, in both directions at once.
pub fn messages_on(device: Device, group: &ProcessGroup) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let (next, last) = ((rank + 1) % world, (rank + world - 1) % world);
    let on = |tensor: Tensor| tensor.to_device(device);
    for len in [1, 1000, 700_000] {
        let mine = on(tensor(Dtype::F32, len, |i| given(Dtype::F32, rank, i)));
        for tag in [0, 7] {
            let (a, b) =
                (on(Tensor::zeros([len], Dtype::F32)), on(Tensor::zeros([len], Dtype::F32)));
            let sent = [group.isend(&mine, next, tag)?, group.isend(&mine, last, tag)?];
            let got = [group.irecv(&a, last, tag)?, group.irecv(&b, next, tag)?];
            sent.iter().chain(&got).try_for_each(|work| work.wait())?;
            for (x, from) in [(a, last), (b, next)] {
                let want: Vec<f64> = (0..len).map(|i| given(Dtype::F32, from, i)).collect();
                assert!(values(&x) == want, "{len} from {from} to {rank}");
            }
        }
    }
    Ok(())
}

#[test]
fn messages_and_objects_between_hosts() {
    for layout in [&[2, 2][..], &[1, 2, 1]] {
        run(layout, messages, &());
    }
}
