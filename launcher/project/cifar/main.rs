//! Trains a network on CIFAR-10's binary files, or without a folder on made-up pictures:
//! `torchrs-launch --nproc 2 {{name}} [FOLDER] [--resume] [--run-dir PATH]`.

mod model;
use torchrs::amp::autocast;
use torchrs::data::datasets::{Cifar10, Synthetic};
use torchrs::data::transforms::{Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToDtype};
use torchrs::optim::{AdamW, lr_scheduler::WarmupCosineLR};
use torchrs::prelude::*;
use torchrs::train::metrics::{Accuracy, Metric};
use torchrs::train::{GracefulStop, Learner, Loggers, Progress, RunDir, RunDirOptions};

const EPOCHS: u64 = 30;

#[torchrs::main]
fn main() -> Result<()> {
    let (options, others) = RunDirOptions::from_args()?;
    let pictures = |len| Synthetic::new(len).shape([3, 32, 32]);
    match &others[..] {
        [] => train(pictures(2048), pictures(512).offset(2048), options),
        [folder] => train(Cifar10::train(folder)?, Cifar10::test(folder)?, options),
        _ => Err(Error::config("arguments", format!("{others:?}; one is taken, FOLDER"))),
    }
}

fn train<D: Dataset<Sample = (Tensor, i64)>>(data: D, test: D, run: RunDirOptions) -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    let device = distributed::WorkerEnv::from_env()?.device();
    let run = RunDir::agree("cifar", &run, &group)?;
    manual_seed(0);
    let normalize = Normalize::new(&Cifar10::MEAN, &Cifar10::STD)?;
    let scaled = Compose::new([ToDtype::new(Dtype::F32, true).into(), normalize.into()]);
    let data = data.transform(RandomCrop::new([32, 32]).padding([4; 4]));
    let data = data.transform(RandomHorizontalFlip::new(0.5)?).transform(scaled.clone());
    let data = DataLoader::builder(data).batch_size(64).shuffle(true).ranks(world, rank);
    let data = data.workers(1).device(device).build()?;
    let test = DataLoader::builder(test.transform(scaled)).batch_size(64);
    let test = test.ranks(world, rank).device(device).build()?;

    let mut net = model::resnet();
    net.to_device(device);
    let mut optimizer = AdamW::new(net.parameters(), Default::default());
    let steps = data.len().div_ceil(2) as u64;
    let schedule = WarmupCosineLR::new(&mut optimizer, steps, EPOCHS * steps, 0.01);
    let stop = GracefulStop::install(Default::default())?;
    let learner = Learner::new(net, optimizer, &group)?.schedule(schedule).stop(stop);
    let mut learner = learner.accumulate(2).clip_norm(1.0).ema(0.99);
    learner.resume(&run, &data)?;
    let mut log = Loggers::new(&run, &group).json_lines()?.tensorboard()?;
    let progress = Progress::new(&group, EPOCHS * steps, learner.steps());
    progress.line(&format!("{}: from step {} on", run.path().display(), learner.steps()));
    while learner.epoch() < EPOCHS {
        progress.epoch(learner.epoch(), EPOCHS);
        data.set_epoch(learner.epoch());
        let mut batches = data.iter();
        while let Some(done) = learner.step(&mut batches, |net, (x, y)| {
            autocast(device, Dtype::BF16, || F::cross_entropy(&net.forward(x), y))
        })? {
            progress.step(format!("loss {:.4}", done.loss));
            log.scalars(done.step, &[("train/loss", done.loss), ("train/lr", done.lr)])?;
            if done.step.is_multiple_of(100) || done.stop.is_some() {
                learner.save(&run, &data)?;
            }
            done.exit_if_stopped();
        }
        let mut accuracy = Accuracy::new();
        learner.evaluate(&test, |net, (x, y)| accuracy.update(&net.forward(x), y))?;
        let (loss, accuracy) = (learner.end_epoch()?, accuracy.compute(&group)?);
        progress.line(&format!("epoch {}: loss {loss:.4} accuracy {accuracy:.4}", learner.epoch()));
        log.scalars(learner.steps(), &[("test/accuracy", accuracy)])?;
        learner.save(&run, &data)?;
    }
    Ok(())
}
