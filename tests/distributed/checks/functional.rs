//! Collectives through which gradients pass, against the same computation in one process, for tensors on any
//! device.

use torchrs::distributed::{ProcessGroup, ReduceOp, functional};
use torchrs::ops::pointwise::Closeness;
use torchrs::{Device, Dtype, Result, Tensor, autograd};

const CLOSE: Closeness = Closeness { rtol: 1e-12, atol: 1e-12, equal_nan: false };

/// What a rank gets from its own tensor, `[world, 3]`.
type Collective = fn(&Tensor, &ProcessGroup) -> Result<Vec<Tensor>>;
/// What all ranks get from all of their tensors.
type Together = fn(&[Tensor]) -> Vec<Vec<Tensor>>;

fn total(all: &[Tensor]) -> Tensor {
    all[1..].iter().fold(all[0].clone(), |sum, x| sum + x)
}

fn mean(all: &[Tensor]) -> Tensor {
    total(all) / all.len() as f64
}

/// Part `rank` of every tensor.
fn parts(all: &[Tensor], rank: usize) -> Vec<Tensor> {
    all.iter().map(|x| x.select(0, rank as i64)).collect()
}

/// Roots are the last rank, so that a world of one has one too.
const FORMS: [(&str, Collective, Together); 11] = [
    (
        "all_reduce(sum)",
        |x, group| Ok(vec![functional::all_reduce(x, ReduceOp::Sum, group)?]),
        |all| vec![vec![total(all)]; all.len()],
    ),
    (
        "all_reduce(avg)",
        |x, group| Ok(vec![functional::all_reduce(x, ReduceOp::Avg, group)?]),
        |all| vec![vec![mean(all)]; all.len()],
    ),
    (
        "broadcast",
        |x, group| Ok(vec![functional::broadcast(x, group.world_size() - 1, group)?]),
        |all| vec![vec![all[all.len() - 1].clone()]; all.len()],
    ),
    (
        "reduce(sum)",
        |x, group| Ok(vec![functional::reduce(x, group.world_size() - 1, ReduceOp::Sum, group)?]),
        |all| {
            let others = all[..all.len() - 1].iter().map(|x| vec![x.clone()]);
            others.chain([vec![total(all)]]).collect()
        },
    ),
    (
        "reduce(avg)",
        |x, group| Ok(vec![functional::reduce(x, group.world_size() - 1, ReduceOp::Avg, group)?]),
        |all| {
            let others = all[..all.len() - 1].iter().map(|x| vec![x.clone()]);
            others.chain([vec![mean(all)]]).collect()
        },
    ),
    ("all_gather", functional::all_gather, |all| vec![all.to_vec(); all.len()]),
    (
        "gather",
        |x, group| functional::gather(x, group.world_size() - 1, group),
        |all| {
            let zeros: Vec<Tensor> = all.iter().map(Tensor::zeros_like).collect();
            let others = std::iter::repeat_n(zeros, all.len() - 1);
            others.chain([all.to_vec()]).collect()
        },
    ),
    (
        "scatter",
        |x, group| {
            let root = group.world_size() - 1;
            let (parts, like) = (x.unbind(0), x.select(0, 0));
            let given = (group.rank() == root).then_some(&parts[..]);
            Ok(vec![functional::scatter(given, &like, root, group)?])
        },
        |all| {
            let root = &all[all.len() - 1];
            (0..all.len()).map(|rank| vec![root.select(0, rank as i64)]).collect()
        },
    ),
    (
        "reduce_scatter(sum)",
        |x, group| Ok(vec![functional::reduce_scatter(&x.unbind(0), ReduceOp::Sum, group)?]),
        |all| (0..all.len()).map(|rank| vec![total(&parts(all, rank))]).collect(),
    ),
    (
        "reduce_scatter(avg)",
        |x, group| Ok(vec![functional::reduce_scatter(&x.unbind(0), ReduceOp::Avg, group)?]),
        |all| (0..all.len()).map(|rank| vec![mean(&parts(all, rank))]).collect(),
    ),
    (
        "all_to_all",
        |x, group| {
            let single = functional::all_to_all_single(x, group)?;
            let mut got = functional::all_to_all(&x.unbind(0), group)?;
            got.push(single);
            Ok(got)
        },
        |all| {
            let of = |rank| {
                let mut got = parts(all, rank);
                got.push(Tensor::stack(&got, 0));
                got
            };
            (0..all.len()).map(of).collect()
        },
    ),
];

/// A rank's tensor, and what its gradient is multiplied by before it is differentiated again.
fn given(rank: usize, world: usize, device: Device) -> [Tensor; 2] {
    [0.3, 1.7].map(|start| {
        let values = Tensor::arange(0, 3 * world as i64, 1, (Dtype::F64, device));
        ((values + start + 2.5 * rank as f64).sin()).reshape([world as i64, 3])
    })
}

/// Another number for every rank and result, so that none stands for another; its second derivative is not
/// constant.
fn loss(results: &[Tensor], rank: usize) -> Tensor {
    let cubes = results.iter().enumerate();
    let cubes = cubes.map(|(k, y)| (y * y * y).sum() * (1.0 + 0.7 * k as f64 + 0.1 * rank as f64));
    cubes.reduce(|sum, cube| sum + cube).unwrap()
}

fn derivative(of: &Tensor, by: &[&Tensor], again: bool) -> Vec<Tensor> {
    let zeros = by.iter().map(|x| x.zeros_like());
    let found = autograd::grad(
        &[of],
        by,
        &[None],
        if again { autograd::GraphMode::Create } else { autograd::GraphMode::Free },
    );
    found.into_iter().zip(zeros).map(|(found, zero)| found.unwrap_or(zero)).collect()
}

/// Values, gradients and gradients of these are those of one process with all tensors.
pub fn derivatives_are_those_of_one_process(group: &ProcessGroup, device: Device) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    for (name, collective, together) in FORMS {
        let leaf = |rank: usize| {
            let [x, by] = given(rank, world, device);
            (x.requires_grad_(true), by)
        };
        let (all, by): (Vec<Tensor>, Vec<Tensor>) = (0..world).map(leaf).unzip();
        let expected = together(&all);
        let sum = expected.iter().enumerate().map(|(rank, y)| loss(y, rank));
        let sum = sum.reduce(|a, b| a + b).unwrap();
        let all: Vec<&Tensor> = all.iter().collect();
        let first = derivative(&sum, &all, true);
        let onward = first.iter().zip(&by).map(|(g, by)| (g * by).sum());
        let second = derivative(&onward.reduce(|a, b| a + b).unwrap(), &all, false);

        let (x, by) = leaf(rank);
        let results = collective(&x, group)?;
        let own = derivative(&loss(&results, rank), &[&x], true).remove(0);
        let again = derivative(&(&own * by).sum(), &[&x], false).remove(0);
        assert_eq!(results.len(), expected[rank].len(), "{name}");
        for (y, expected) in results.iter().zip(&expected[rank]) {
            assert!(y.allclose(expected, CLOSE), "{name}: {y} {expected}");
            assert!(y.requires_grad() && y.device() == device, "{name}");
        }
        let pairs = [("gradient", &own, &first[rank]), ("second", &again, &second[rank])];
        for (what, found, expected) in pairs {
            let same = found.allclose(expected, CLOSE);
            assert!(same, "{name}, {what} of rank {rank} of {world}: {found} {expected}");
        }
    }
    Ok(())
}
