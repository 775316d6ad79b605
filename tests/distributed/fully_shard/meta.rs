//! A model that is sharded before it has memory: each rank gets its part of the numbers that a model has which is built
//! directly, and never more than a whole parameter of them at once.

use torchrs::distributed::DeviceMesh;
use torchrs::nn::parallel::{FullyShardOptions, MixedPrecisionPolicy, fully_shard};
use torchrs::nn::{self, Forward, Linear, Module, Sequential};
use torchrs::optim::{Adam, Optimizer};
use torchrs::{Device, Dtype, Tensor, catch, manual_seed, storage};

use super::on;
use crate::job::Job;

fn build(blocks: usize, width: usize) -> Sequential {
    let block = |_| {
        Sequential::new()
            .append(Linear::new(width, width + 3))
            .append(nn::BatchNorm1d::new(width + 3))
            .append(nn::ReLU)
            .append(Linear::new(width + 3, width))
    };
    (0..blocks).map(block).fold(Sequential::new(), Sequential::append)
}

fn sharded(rank: usize, (job, replicas): (Job, usize)) {
    let group = job.join(rank);
    let mesh: DeviceMesh = match replicas {
        1 => (&group).into(),
        _ => DeviceMesh::new(&group, [("replicate", replicas as isize), ("shard", -1)]).unwrap(),
    };
    for param_dtype in [None, Some(Dtype::BF16)] {
        let mp_policy = MixedPrecisionPolicy { param_dtype, ..Default::default() };
        let options = FullyShardOptions { mp_policy, ..Default::default() };
        let mut model = Device::Meta.scope(|| build(3, 10));
        for block in model.iter_mut() {
            fully_shard(block, mesh.clone(), options.clone()).unwrap();
        }
        assert!(model.parameters().iter().all(|p| p.device().is_meta()));
        // Shapes can be found before there is memory.
        let x = Tensor::empty([4, 10], (param_dtype.unwrap_or(Dtype::F32), Device::Meta));
        let y = model.forward(&x);
        assert_eq!((y.shape(), y.device()), (&[4, 10][..], Device::Meta));
        y.sum().backward();
        let own = model.parameters();
        assert_eq!(own[0].grad().unwrap().shape(), own[0].shape());
        // An optimizer of the parts stays valid.
        let mut optimizer = Adam::new(model.parameters(), Default::default());
        model.to_empty(Device::Cpu);
        assert!(own[0].grad().is_none() && !own[0].device().is_meta());
        // The first rank's seed counts.
        manual_seed(7 + rank as u64);
        model.reset_parameters();
        let after = Tensor::randn([2], Dtype::F32);
        manual_seed(7 + rank as u64);
        let _ = build(3, 10);
        assert!(after.equal(&Tensor::randn([2], Dtype::F32)), "the generator is where it would be");

        manual_seed(7);
        let mut direct = build(3, 10);
        if replicas == 1 && param_dtype.is_none() {
            for (name, whole) in direct.state_dict().iter() {
                assert!(model.state_dict()[name].detach().equal(whole), "`{name}`");
            }
        }
        for block in direct.iter_mut() {
            fully_shard(block, mesh.clone(), options.clone()).unwrap();
        }
        let mut of_direct = Adam::new(direct.parameters(), Default::default());
        let equal = || {
            for (late, direct) in model.parameters().iter().zip(direct.parameters()) {
                assert!(late.detach().equal(&direct.detach()));
            }
        };
        equal();
        let x = Tensor::arange(0, 40, 1, Dtype::F32).reshape([4, 10]).sin();
        let x = x.to_dtype(param_dtype.unwrap_or(Dtype::F32));
        for _ in 0..2 {
            model.forward(&x).square().mean().backward();
            direct.forward(&x).square().mean().backward();
            optimizer.step();
            of_direct.step();
            optimizer.zero_grad();
            of_direct.zero_grad();
        }
        equal();
        model.reset_parameters();
    }
}

#[test]
fn parts_of_a_meta_model_are_those_of_a_model_that_was_built_directly() {
    on(1, sharded, &1);
    on(2, sharded, &1);
    on(3, sharded, &1);
    on(4, sharded, &2);
}

/// A rank never has the whole model.
fn is_lean(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    const WIDTH: usize = 700;
    let one = (WIDTH + 3) * WIDTH * 4;
    let mut model = Device::Meta.scope(|| build(8, WIDTH));
    for block in model.iter_mut() {
        fully_shard(block, &group, Default::default()).unwrap();
    }
    assert!(storage::memory_stats().in_use < one / 2, "nothing is there yet");
    // A whole parameter and a little beside it; the parts themselves are in memory that ranks share.
    storage::set_host_memory_limit(Some(one + one / 2));
    model.to_empty(Device::Cpu);
    manual_seed(1);
    model.reset_parameters();
    storage::set_host_memory_limit(None);
    let first = model.parameters()[0].abs().max().item();
    assert!(first > 0.0);
}

#[test]
fn no_rank_has_the_whole_model_while_it_gets_its_values() {
    on(2, is_lean, &());
}

fn is_refused(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let model = Device::Meta.scope(|| Linear::new(2, 3));
    let error = torchrs::distributed::DistributedDataParallel::new(model, &group);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("`weight` on meta") && error.contains("to_empty"), "{error}");
    let x = Tensor::zeros([2], (Dtype::F32, Device::Meta));
    let error = group.all_reduce(&x, torchrs::distributed::ReduceOp::Sum).unwrap_err().to_string();
    assert!(error.contains("meta"), "{error}");
    // One rank on meta, the other not.
    let mut model =
        (if rank == 0 { Device::Meta } else { Device::Cpu }).scope(|| Linear::new(2, 3));
    let error = fully_shard(&mut model, &group, Default::default()).unwrap_err().to_string();
    assert!(error.contains("meta"), "{error}");
    let mut model = Device::Meta.scope(|| Linear::new(2, 3));
    fully_shard(&mut model, &group, Default::default()).unwrap();
    let error = catch(|| model.reset_parameters()).unwrap_err().to_string();
    assert!(error.contains("`weight`") && error.contains("to_empty"), "{error}");
}

#[test]
fn models_without_memory_are_refused_where_values_are_needed() {
    on(2, is_refused, &());
}
