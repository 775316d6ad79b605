//! An optimizer whose state is spread over ranks: the bits of one that is whole, and its state saved and loaded.

use std::path::PathBuf;

use torchrs::distributed::DistributedDataParallel;
use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer, OptimizerState, ParamGroup, StateValue};
use torchrs::optim::{ZeroRedundancyOptimizer, lr_scheduler};
use torchrs::{Dtype, Tensor, catch, multiprocessing};

use super::job::Job;

fn model() -> Sequential {
    torchrs::manual_seed(3);
    Sequential::new().append(Linear::new(6, 9)).append(ReLU).append(Linear::new(9, 4))
}

fn adamw(parameters: Vec<Tensor>) -> AdamW {
    AdamW::new(parameters, AdamWOptions { lr: 1e-2, ..Default::default() })
}

/// Of weights, which decay, and of biases.
fn in_groups(own: Vec<Vec<Tensor>>) -> AdamW {
    let decays = [0.1, 0.0];
    let options = |weight_decay| AdamWOptions { lr: 1e-2, weight_decay, ..Default::default() };
    let groups = own.into_iter().zip(decays);
    AdamW::with_groups(groups.map(|(own, decay)| ParamGroup::new(own, options(decay))))
}

fn groups(model: &dyn Module) -> [Vec<Tensor>; 2] {
    let (weights, biases) = model.parameters().into_iter().partition(|p| p.dim() >= 2);
    [weights, biases]
}

fn bits(tensors: &[Tensor]) -> Vec<u32> {
    tensors.iter().flat_map(|t| t.to_vec::<f32>()).map(f32::to_bits).collect()
}

fn state_bits(state: &OptimizerState) -> Vec<u64> {
    let values = state.state.iter().flat_map(|entries| entries.values());
    let of = |value: &StateValue| match value {
        StateValue::Number(number) => vec![number.to_bits()],
        StateValue::Tensor(tensor) => {
            tensor.to_vec::<f64>().into_iter().map(f64::to_bits).collect()
        }
        other => panic!("{other:?}"),
    };
    values.flat_map(of).collect()
}

fn trains(rank: usize, (job, grouped): (Job, bool)) {
    let group = job.join(rank);
    let spread_of = |model: &DistributedDataParallel<Sequential>| match grouped {
        true => ZeroRedundancyOptimizer::with_groups(groups(&**model), &group, in_groups).unwrap(),
        false => ZeroRedundancyOptimizer::new(model.parameters(), &group, adamw).unwrap(),
    };
    let (whole, spread) = (model(), model());
    let whole = DistributedDataParallel::new(whole, &group).unwrap();
    let spread = DistributedDataParallel::new(spread, &group).unwrap();
    let mut of_whole = match grouped {
        true => in_groups(groups(&*whole).to_vec()),
        false => adamw(whole.parameters()),
    };
    let mut of_spread = spread_of(&spread);
    assert_eq!(of_spread.num_groups(), if grouped { 2 } else { 1 });
    let mut schedules = [
        lr_scheduler::StepLR::new(&mut of_whole, 3, 0.5),
        lr_scheduler::StepLR::new(&mut of_spread, 3, 0.5),
    ];
    torchrs::manual_seed(10 + rank as u64);
    let step = |model: &Sequential, optimizer: &mut dyn Optimizer, x: &Tensor| {
        optimizer.zero_grad();
        model.forward(x).square().mean().backward();
        optimizer.step();
    };
    for at in 0..8 {
        let x = Tensor::randn([5, 6], Dtype::F32);
        step(&whole, &mut of_whole, &x);
        step(&spread, &mut of_spread, &x);
        lr_scheduler::LRScheduler::step(&mut schedules[0], &mut of_whole);
        lr_scheduler::LRScheduler::step(&mut schedules[1], &mut of_spread);
        assert_eq!(bits(&whole.parameters()), bits(&spread.parameters()), "rank {rank}, step {at}");
    }
    // Each parameter's state is with one rank.
    let own = Tensor::from([of_spread.own_parameters().len() as i64]);
    group.all_reduce(&own, torchrs::distributed::ReduceOp::Sum).unwrap();
    assert_eq!(own.item(), 4.0);

    // The state of all, on rank 0 alone, is that of the optimizer that is whole.
    let error = catch(|| of_spread.state_dict()).unwrap_err().to_string();
    assert!(error.contains("consolidate_state_dict(0)"), "{error}");
    of_spread.consolidate_state_dict(0).unwrap();
    let expected = of_whole.state_dict();
    if rank == 0 {
        let saved = of_spread.state_dict();
        assert_eq!(state_bits(&saved), state_bits(&expected));
        assert_eq!(saved.param_groups, expected.param_groups);
    }
    // Loaded by all, into a new one: the next step is the same.
    let mut again = spread_of(&spread);
    again.load_state_dict(&expected).unwrap();
    let x = Tensor::ones([5, 6], Dtype::F32);
    step(&whole, &mut of_whole, &x);
    step(&spread, &mut again, &x);
    assert_eq!(bits(&whole.parameters()), bits(&spread.parameters()), "rank {rank}");
    if job.world > 1 {
        assert!(catch(|| of_spread.step()).is_ok());
        assert!(catch(|| of_spread.state_dict()).is_err(), "what was brought together is old");
    }
}

#[test]
fn a_spread_optimizer_gives_the_same_bits() {
    for world in [1, 2, 3, 6] {
        for grouped in [false, true] {
            let job = Job::new(world, PathBuf::new());
            multiprocessing::spawn(trains, (job, grouped), world).unwrap();
        }
    }
}

fn refused(rank: usize, job: Job) {
    let group = job.join(rank);
    let own = || Linear::new(2, 3 + rank).parameters();
    let error = ZeroRedundancyOptimizer::new(own(), &group, adamw).err().unwrap().to_string();
    assert!(error.contains("[3, 2] on rank 0 and `weight` f32 [4, 2] on rank 1"), "{error}");
    let none = ZeroRedundancyOptimizer::new(vec![], &group, adamw).err().unwrap().to_string();
    assert!(none.contains("there are none"), "{none}");
    let other = Linear::new(2, 2).parameters();
    let error = ZeroRedundancyOptimizer::new(model().parameters(), &group, |_| adamw(other));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("`make`") && error.contains("it gets "), "{error}");
    let two = groups(&model());
    let one = |own: Vec<Vec<Tensor>>| adamw(own.concat());
    let error = ZeroRedundancyOptimizer::with_groups(two.clone(), &group, one);
    assert!(error.err().unwrap().to_string().contains("in 1 groups; it gets"));
    let [weights, _] = two;
    let error = ZeroRedundancyOptimizer::with_groups([weights, vec![]], &group, in_groups);
    assert!(error.err().unwrap().to_string().contains("group 1 has no parameters"));
    let mut whole = ZeroRedundancyOptimizer::new(model().parameters(), &group, adamw).unwrap();
    let state = in_groups(groups(&model()).to_vec()).state_dict();
    let error = whole.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("groups of [2, 2] parameters") && error.contains("[4]"), "{error}");
}

#[test]
fn what_cannot_be_spread_is_refused() {
    multiprocessing::spawn(refused, Job::new(2, PathBuf::new()), 2).unwrap();
}
