//! `train::TrainState` and `train::RunDir` over ranks: what is saved comes back, also with other ranks; what one rank
//! decides or refuses, all do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use torchrs::checkpoint::distributed::AsyncCheckpointer;
use torchrs::checkpoint::{Best, Checkpoint, CheckpointDir};
use torchrs::data::datasets::Synthetic;
use torchrs::data::{DataLoader, DistributedSampler};
use torchrs::distributed::ProcessGroup;
use torchrs::nn::{self, Forward, Module};
use torchrs::optim::lr_scheduler::{LRScheduler, StepLR};
use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions};
use torchrs::optim::{Adam, GradScaler, Optimizer};
use torchrs::train::{RunDir, RunDirOptions, TrainState};
use torchrs::{Dtype, Tensor, multiprocessing, no_grad};

use super::job::Job;

fn job(world: usize, folder: &tempfile::TempDir) -> Job {
    Job::new(world, folder.path().to_owned())
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Position {
    epoch: u64,
    loss: f64,
}

/// All that a run may have.
struct Run {
    model: nn::Linear,
    average: AveragedModel<nn::Linear>,
    optimizer: Adam,
    schedule: StepLR,
    scaler: GradScaler,
    loader: DataLoader<Synthetic>,
    at: Position,
}

impl Run {
    fn new(group: &ProcessGroup) -> Self {
        let model = nn::Linear::new(3, 2);
        let average = AveragedModel::new(&model, AveragedModelOptions::default());
        let mut optimizer = Adam::new(model.parameters(), Default::default());
        let schedule = StepLR::new(&mut optimizer, 1, 0.5);
        let sampler = DistributedSampler::new(24, group.world_size(), group.rank()).unwrap();
        let loader = DataLoader::builder(Synthetic::new(24)).sampler(sampler).seed(3).batch_size(1);
        let (scaler, at) = (GradScaler::new(Default::default()), Position::default());
        Run { model, average, optimizer, schedule, scaler, loader: loader.build().unwrap(), at }
    }

    fn state(&mut self) -> TrainState<'_> {
        TrainState::new()
            .model(&self.model)
            .ema(&self.average)
            .optimizer(&mut self.optimizer)
            .schedule(&mut self.schedule)
            .scaler(&mut self.scaler)
            .loader(&self.loader)
            .value("position", &mut self.at)
    }

    fn step(&mut self, group: &ProcessGroup) {
        self.optimizer.zero_grad();
        self.model.forward(&Tensor::ones([1, 3], Dtype::F32)).square().sum().backward();
        for p in self.model.parameters() {
            let grad = p.grad().unwrap();
            group.all_reduce(&grad, torchrs::distributed::ReduceOp::Avg).unwrap();
        }
        self.optimizer.step();
        self.schedule.step(&mut self.optimizer);
        self.average.update_parameters(&self.model);
        self.scaler.update_to(8.0);
        self.at.epoch += 1;
    }

    /// What the steps have changed.
    fn numbers(&self) -> Vec<f64> {
        let tensors = [self.model.state_dict(), self.average.state_dict()];
        let of = tensors.iter().flat_map(|state| state.iter().flat_map(|(_, t)| t.to_vec::<f64>()));
        of.chain([self.optimizer.lr(0), self.at.epoch as f64, self.scaler.get_scale()]).collect()
    }
}

fn saves_and_goes_on(rank: usize, job: Job) {
    let group = job.join(rank);
    let options = RunDirOptions { runs: job.out.join("runs"), ..Default::default() };
    let run = RunDir::agree("net", &options, &group).unwrap();
    let paths = group.all_gather_object(&run.path().to_owned()).unwrap();
    assert_eq!(paths[0], paths[1]);
    assert!(run.path().ends_with("net-001") && run.resume_step().is_none());

    torchrs::manual_seed(1);
    let mut first = Run::new(&group);
    assert_eq!(first.state().resume(&run, &group).unwrap(), None);
    (0..3).for_each(|_| first.step(&group));
    let read: Vec<Tensor> = first.loader.iter().take(2).map(|b| b.unwrap().0).collect();
    assert_eq!(read.len(), 2);
    // Each rank draws its own numbers from now on.
    torchrs::manual_seed(100 + rank as u64);
    Tensor::randn([5], Dtype::F32);
    let saved = first.state().save(run.checkpoints(), 3, &group).unwrap();
    // It is there on all ranks when the call returns.
    assert!(saved.is_dir());
    let (numbers, drawn) = (first.numbers(), Tensor::randn([5], Dtype::F32));
    let next = first.loader.state_dict();
    first.step(&group);
    let later = first.numbers();

    // A new program, with other weights and numbers.
    group.barrier().unwrap();
    torchrs::manual_seed(9);
    let resume = RunDirOptions { resume: true, ..options };
    let run = RunDir::agree("net", &resume, &group).unwrap();
    let mut second = Run::new(&group);
    let resumed = second.state().resume(&run, &group).unwrap().expect("it goes on");
    assert_eq!((resumed.step, resumed.world_size, resumed.samples_read_again), (3, 2, 0));
    assert_eq!(second.numbers(), numbers);
    assert_eq!(second.loader.state_dict(), next);
    assert!(Tensor::randn([5], Dtype::F32).equal(&drawn), "each rank goes on with its own numbers");
    second.step(&group);
    assert_eq!(second.numbers(), later);

    // A part that only one side has.
    let checkpoint = run.load().unwrap().unwrap();
    let error = TrainState::new().model(&second.model).load(&checkpoint, &group).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("has `ema`") && error.contains(".without(\"ema\")"), "{error}");
    let mut more = 0u32;
    let error = second.state().value("more", &mut more).load(&checkpoint, &group).unwrap_err();
    assert!(error.to_string().contains("does not have `more`"), "{error}");
    second.state().value("more", &mut more).without("more").load(&checkpoint, &group).unwrap();

    // What cannot be JSON, and weights that are not finite, are refused on all ranks.
    let mut odd = BTreeMap::from([((1u8, 2u8), 3u8)]);
    let state = second.state().value("odd", &mut odd);
    let error = state.save(run.checkpoints(), 9, &group).unwrap_err().to_string();
    assert!(error.contains("odd") && error.contains("cannot be JSON"), "rank {rank}: {error}");
    no_grad(|| _ = second.model.weight.fill_(f64::INFINITY));
    let error = second.state().save(run.checkpoints(), 9, &group).unwrap_err().to_string();
    assert!(error.contains("`weight` of `model` is not finite"), "rank {rank}: {error}");
    assert_eq!(run.checkpoints().steps().unwrap(), [3]);
    // Other numbers may be so, as the best loss before the first.
    second.at.loss = f64::INFINITY;
    second.state().allow_not_finite().save(run.checkpoints(), 9, &group).unwrap();
    assert_eq!(run.checkpoints().steps().unwrap(), [3, 9]);
    second.at.loss = 0.0;
    second.state().load(&Checkpoint::load(run.checkpoints().at(9)).unwrap(), &group).unwrap();
    assert_eq!(second.at.loss, f64::INFINITY);
}

/// After `saves_and_goes_on`, with three ranks.
fn goes_on_with_more_ranks(rank: usize, job: Job) {
    let group = job.join(rank);
    let checkpoints = CheckpointDir::new(job.out.join("runs/net-001/checkpoints"), 2);
    let checkpoint = Checkpoint::load(checkpoints.at(3)).unwrap();
    let mut run = Run::new(&group);
    let resumed = run.state().load(&checkpoint, &group).unwrap();
    // Four samples were read: the last one again.
    assert_eq!((resumed.step, resumed.world_size, resumed.samples_read_again), (3, 2, 1));
    assert_eq!(run.loader.state_dict().position, 3);
    let drawn = group.all_gather(&Tensor::randn([4], Dtype::F32)).unwrap();
    assert!(!drawn[2].equal(&drawn[0]) && !drawn[2].equal(&drawn[1]), "a rank's own numbers");
}

#[test]
fn a_state_is_saved_and_goes_on_also_with_other_ranks() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(saves_and_goes_on, job(2, &folder), 2).unwrap();
    multiprocessing::spawn(goes_on_with_more_ranks, job(3, &folder), 3).unwrap();
}

fn refuses_together(rank: usize, job: Job) {
    let group = job.join(rank);
    let path = Some(job.out.join("run"));
    let resume = RunDirOptions { path: path.clone(), resume: true, ..Default::default() };
    let error = RunDir::agree("net", &resume, &group).unwrap_err().to_string();
    assert!(error.contains("holds no checkpoint"), "rank {rank}: {error}");
    let keep_best = Some((1, Best::Highest));
    let options = RunDirOptions { path, keep: 1, keep_best, ..Default::default() };
    let run = RunDir::agree("net", &options, &group).unwrap();
    for (step, score) in [(1, 0.5), (2, 0.9), (3, 0.7), (4, 0.8)] {
        TrainState::new().score(score).save(run.checkpoints(), step, &group).unwrap();
    }
    assert_eq!(run.checkpoints().steps().unwrap(), [2, 4]);
    assert_eq!(run.checkpoints().best().unwrap().unwrap().0, 2);
    let error = RunDir::agree("net", &options, &group).unwrap_err().to_string();
    assert!(error.contains("checkpoint at step 4"), "rank {rank}: {error}");
    // Ranks at different steps save nothing, whoever would write it.
    let step = 5 + rank as u64;
    let mut background = AsyncCheckpointer::new(&group).unwrap();
    for error in [
        TrainState::new().save(run.checkpoints(), step, &group),
        TrainState::new().sharded().save(run.checkpoints(), step, &group),
        TrainState::new().async_save(&mut background, run.checkpoints(), step, &group),
    ] {
        let error = error.unwrap_err().to_string();
        let both =
            error.contains("step-00000005 on rank 0") && error.contains("step-00000006 on rank 1");
        assert!(both, "rank {rank}: {error}");
    }
    assert_eq!(run.checkpoints().steps().unwrap(), [2, 4]);
    // Nor do they load them.
    let mine = Checkpoint::open(run.checkpoints().at(2 + 2 * rank as u64)).unwrap();
    let error = TrainState::new().load(&mine, &group).unwrap_err().to_string();
    assert!(error.contains("all ranks load the same one"), "rank {rank}: {error}");
    group.barrier().unwrap();
}

#[test]
fn a_run_folder_is_agreed_and_refused_by_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(refuses_together, job(2, &folder), 2).unwrap();
}
