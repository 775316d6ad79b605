//! Trains a model data-parallel, on one or several processes:
//!
//! ```text
//! cargo launch --nproc 2 train
//! cargo launch --nproc 2 train --data fashion-mnist:/usr/share/datasets/fashion-mnist
//! cargo launch --nproc 2 train --data text:kjv.txt --model llama --shard full
//! ```
//!
//! Each process runs this program on its share of every batch; gradients are averaged by
//! `DistributedDataParallel` during backward. The same seed gives the same run on any number of
//! processes, to rounding.
//!
//! With `--resume` a run goes on, also with another batch size or number of processes. At a loss or gradient
//! that is not finite it stops, says where that came from, and keeps the checkpoint before.

mod args;
mod curve;
mod data;
mod llama;
mod models;
mod resume;
mod settings;
mod sharding;
mod speed;

use std::time::Instant;

use clap::Parser;
use torchrs::amp::{GradScaler, GradScalerOptions};
use torchrs::checkpoint::distributed::AsyncCheckpointer;
use torchrs::data::DistributedSampler;
use torchrs::distributed::{ProcessGroup, WorkerEnv};
use torchrs::fork_rng;
use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions, Averaging};
use torchrs::prelude::*;
use torchrs::train::metrics::{Accuracy, Mean, Metric};
use torchrs::train::{
    GracefulStop, JsonLines, Learner, Progress, RunDir, RunDirOptions, StopOptions,
};

use args::{Amp, Args, Source};
use curve::{Line, draw_curve};
use data::Data;
use models::Network;
use resume::{Outcome, Position};
use settings::{Settings, Shard};
use speed::Speed;

#[torchrs::main]
fn main() -> Result<()> {
    let args = Args::parse();
    let group = distributed::init_process_group(Default::default())?;
    train(&args, &group)
}

fn train(args: &Args, group: &ProcessGroup) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let device = args.device.of(&WorkerEnv::from_env()?)?;
    let simulated = device.is_cuda() && torchrs::cuda::library::is_simulated();
    let mark = if simulated { " (simulated GPUs: no measure of speed)" } else { "" };
    // What is not saved would begin anew.
    let requeue = !args.no_checkpoints;
    let stop = GracefulStop::install(StopOptions { requeue, ..Default::default() })?;

    let run_name = format!("{}-{}", args.data().name(), args.model().name());
    let options =
        RunDirOptions { path: args.run_dir.clone(), resume: args.resume, ..Default::default() };
    let run = RunDir::agree(&run_name, &options, group)?;
    let saved = run.load()?;
    let (mut settings, changes) = match &saved {
        Some(saved) => Settings::resumed(args, saved.value("settings")?, world)?,
        None => (Settings::new(args, world), Vec::new()),
    };
    settings.check(args)?;
    sharding::check(args, &settings, world)?;
    let global_batch = settings.batch_size as usize;
    let parts = settings.accumulate as usize;
    if !global_batch.is_multiple_of(world * parts) {
        let message = format!(
            "{global_batch} samples per step cannot be shared equally by {world} workers in {parts} batches each"
        );
        return Err(Error::config("--batch-size", message));
    }

    torchrs::manual_seed(settings.seed);
    let (training, validation, shape) = Data::open(&settings)?;
    let (training_len, validation_len) = (training.len(), validation.len());
    // Samples of an epoch: the same number on each rank.
    let usable = training_len / world * world;
    if usable < global_batch {
        let message = format!("{global_batch} is more than the {training_len} training samples");
        return Err(Error::config("--batch-size", message));
    }
    let mut network = models::build(&settings, shape)?;
    network.to_device(device);
    let name = settings.model.name();
    let num_parameters = network.num_parameters();
    let shard = sharding::shard(&mut network, args, &settings, group)?;
    let is_sharded = shard.is_some();
    let mut optimizer = sharding::optimizer(&settings, network.parameters(), group)?;
    let steps_per_epoch = (usable / global_batch) as u64;
    let schedule = models::schedule(&mut *optimizer, settings.epochs * steps_per_epoch);
    let scaling = GradScalerOptions { enabled: settings.amp == Amp::F16, ..Default::default() };
    let learner = match shard {
        Some(shard) => Learner::sharded(network, shard, optimizer, group)?,
        None => Learner::new(network, optimizer, group)?,
    };
    let mut learner = learner
        .schedule(schedule)
        .scaler(GradScaler::new(scaling))
        .accumulate(parts)
        .clip_norm(settings.clip_norm)
        .stop(stop.clone());
    if let Some(decay) = settings.ema {
        let average = average_of(&learner, decay, &settings, shape)?;
        learner = learner.average(average);
    }

    let sampler = DistributedSampler::new(training_len, world, rank)?;
    let loader = DataLoader::builder(training)
        .batch_size(global_batch / world / parts)
        .sampler(sampler.drop_last(true).seed(settings.seed))
        .drop_last(true)
        .workers(args.loader_workers)
        .device(device)
        .seed(settings.seed)
        .build()?;
    let validation =
        DataLoader::builder(validation).batch_size(global_batch / world).device(device);
    let validation = match is_sharded {
        // Ranks compute together: all need equally many batches.
        true if validation_len < world => {
            let message =
                format!("has {validation_len} validation samples; {world} workers need one each");
            return Err(Error::config("--data", message));
        }
        true => {
            let equal = DistributedSampler::new(validation_len, world, rank)?;
            validation.sampler(equal.shuffle(false).drop_last(true))
        }
        false => validation.ranks(world, rank),
    };
    let validation = validation.build()?;
    let mut at = Position::default();
    macro_rules! state {
        ($settings:expr) => {
            learner.state().loader(&loader).value("settings", &mut $settings).value("at", &mut at)
        };
    }
    if let Some(saved) = &saved {
        let mut before: Settings = saved.value("settings")?;
        let same = resume::same_schedule(&settings, &before);
        let state = if same { state!(before) } else { state!(before).without("schedule") };
        state.load(saved, group)?;
        at.samples -= at.samples % world;
        if settings.weight_decay != before.weight_decay {
            resume::set_weight_decay(learner.optimizer(), settings.weight_decay)?;
        }
        if !same {
            let done = learner.epoch() * steps_per_epoch + (at.samples / global_batch) as u64;
            learner.move_schedule(settings.lr, done)?;
        }
    }

    let last_step = args.max_steps.unwrap_or(u64::MAX);
    let steps_left = |at: &Position| ((usable - at.samples) / global_batch) as u64;
    let (epoch, step) = (learner.epoch(), learner.steps());
    let whole_epochs = settings.epochs.saturating_sub(epoch + 1);
    let total = match settings.epochs.checked_sub(epoch) {
        Some(1..) => (step + steps_left(&at) + whole_epochs * steps_per_epoch).min(last_step),
        _ => step,
    };
    let metrics =
        (rank == 0).then(|| JsonLines::open(run.path().join("metrics.jsonl"), run.resume_step()));
    let mut metrics = metrics.transpose()?;
    let mut push = |line: Line| metrics.as_mut().map_or(Ok(()), |metrics| metrics.push(&line));
    let progress = Progress::new(group, total.max(step), step);
    progress.line(&format!(
            "{name} on {}, computed on {}{}: {training_len} training and {validation_len} validation samples, \
             {} parameters, {world} worker(s){}, {}",
            settings.data.name(),
            args.device.describe(device, world),
            if simulated { " (simulated)" } else { "" },
            num_parameters,
            if settings.shard == Shard::None { String::new() } else { format!(", shard {}", settings.shard) },
            match run.resume_step() {
                Some(step) => format!("{} from step {step}", run.path().display()),
                None => run.path().display().to_string(),
            },
        ));
    changes.iter().for_each(|change| progress.line(&format!("goes on with {change}")));
    let complete = epoch >= settings.epochs || (step >= last_step && at.outcome.is_some());
    if complete {
        progress.line(&format!(
            "the run is complete: {} of {} epochs, step {step}; nothing is left to do (more: --epochs, --max-steps)",
            epoch.min(settings.epochs),
            settings.epochs,
        ));
    }

    let started = Instant::now();
    // For the launcher's status page.
    let mut speed = Speed::new(args, &settings, shape, device, num_parameters)?;
    let is_text = matches!(shape, data::Shape::Text { .. });
    let log_every = args.log_every.or(is_text.then_some(100));
    let mut pause = Instant::now();
    let mut samples = 0usize;
    let mut stopped = None;
    let mut background =
        args.async_checkpoints.then(|| AsyncCheckpointer::new(group)).transpose()?;
    'epochs: while !complete && learner.epoch() < settings.epochs {
        let epoch = learner.epoch();
        progress.epoch(epoch, settings.epochs);
        loader.set_epoch(epoch);
        let (epoch_start, epoch_samples) = (Instant::now(), samples);
        let mut batches = loader.iter();
        let mut is_reported = true;
        speed.start(pause);
        while steps_left(&at) > 0 && learner.steps() < last_step {
            let poisoned = args.poison.is_some_and(|p| p.hits(learner.steps() + 1, rank));
            let done = learner.step(&mut batches, |model, (x, y)| {
                let spoilt = (poisoned && x.dtype().is_floating_point()).then(|| x * f64::NAN);
                settings.amp.run(device, || model.loss(spoilt.as_ref().unwrap_or(x), y))
            });
            let missing =
                || Error::Other("the loader's epoch is shorter than its sampler's".into());
            let done = done.inspect_err(|_| progress.finish())?.ok_or_else(missing)?;
            stopped = done.stop;
            at.samples += global_batch;
            samples += global_batch;
            speed.step(global_batch / world);
            progress.step(format!("loss {:.4}", done.loss));
            is_reported = log_every.is_some_and(|n| done.step.is_multiple_of(n));
            if is_reported {
                let report = speed::words(&speed.report(group)?);
                let (step, loss, lr) = (done.step, done.loss, done.lr);
                progress.line(&format!("step {step}: loss={loss:.4} lr={lr:.2e} {report}{mark}"));
            }
            if !done.is_taken {
                progress.line(&format!(
                    "step {}: a loss or gradient is not finite; the step is left out, the loss scale is now {}",
                    done.step,
                    learner.loss_scaler().get_scale()
                ));
            }
            if done.loss.is_finite() {
                push(Line::Step { step: done.step, epoch, loss: done.loss, lr: done.lr })?;
            }
            let due = args.save_every.is_some_and(|n| done.step.is_multiple_of(n));
            let is_last = steps_left(&at) == 0 || done.step >= last_step;
            let is_saved = !args.no_checkpoints && (stopped.is_some() || (due && !is_last));
            if is_saved {
                resume::save(state!(settings), &mut background, (&run, done.step, group))?;
            }
            if stopped.is_some() {
                break 'epochs;
            }
            if is_saved {
                welcome_hosts(group)?;
            }
        }
        drop(batches);
        if !is_reported {
            speed.report(group)?;
        }
        let report = speed.epoch();
        pause = Instant::now();
        let seconds = epoch_start.elapsed().as_secs_f64();
        let (step, train_loss) = (learner.steps(), learner.epoch_loss()?);
        let (mut val_loss, mut val_accuracy) = (Mean::new(), Accuracy::new());
        learner.evaluate(&validation, |model, (x, y)| {
            let (logits, y) = (model.logits(x), y.flatten(0, -1));
            val_loss.update(F::cross_entropy(&logits, &y).item(), y.numel() as f64);
            val_accuracy.update(&logits, &y);
        })?;
        let (val_loss, val_accuracy) = (val_loss.compute(group)?, val_accuracy.compute(group)?);
        if !val_loss.is_finite() {
            let message = format!(
                "step {step}: the validation loss is {val_loss}; the run stops, and the last checkpoint stays"
            );
            return Err(Error::Other(message));
        }
        let samples_per_s = (samples - epoch_samples) as f64 / seconds;
        push(Line::Epoch {
            step,
            epoch,
            train_loss,
            val_loss,
            val_accuracy,
            samples_per_s,
            tokens_per_s: report.and_then(|report| report.tokens_per_s),
            mfu: report.and_then(|report| report.mfu),
            memory: report.map(|report| report.memory),
            simulated,
        })?;
        let words =
            report.as_ref().map_or(String::new(), |report| format!(" {}", speed::words(report)));
        progress.line(&format!(
            "epoch {:>2}/{}: train_loss={train_loss:.4} val_loss={val_loss:.4} \
                 val_accuracy={val_accuracy:.4} samples_per_s={samples_per_s:.0}{words}{mark}",
            epoch + 1,
            settings.epochs,
        ));
        at.outcome = Some(Outcome { train_loss, val_accuracy });
        if steps_left(&at) == 0 {
            learner.end_epoch()?;
            at.samples = 0;
            loader.set_epoch(learner.epoch());
        }
        if !args.no_checkpoints {
            resume::save(state!(settings), &mut background, (&run, step, group))?;
        }
        if step >= last_step {
            break;
        }
        if learner.epoch() < settings.epochs {
            welcome_hosts(group)?;
        }
    }
    if let Some(background) = &mut background {
        background.wait()?;
    }
    progress.finish();
    let samples_per_s = samples as f64 / started.elapsed().as_secs_f64();
    if rank == 0 {
        draw_curve(run.path(), &format!("{name} on {}", settings.data.name()))?;
    }
    group.barrier()?;
    if let Some(reason) = stopped {
        let is_queued = stop.requeue(reason, group)?;
        if rank == 0 {
            let again = match (is_queued, args.no_checkpoints) {
                (true, _) => "Slurm starts the job again",
                (_, true) => "nothing is saved (--no-checkpoints)",
                _ => "--resume goes on from there",
            };
            println!("stopped by {reason} at step {}; {again}", learner.steps());
        }
        std::process::exit(if is_queued { 0 } else { reason.exit_code() });
    }
    // What is sharded is read, and computes, on all ranks together.
    let takes_part = rank == 0 || is_sharded;
    if let Some(folder) = args.export.as_ref().filter(|_| takes_part) {
        learner.model().export(folder, rank == 0)?;
    }
    let is_sampled = args.sample_bytes > 0 && matches!(settings.data, Source::Text(_));
    let text = match is_sampled && takes_part {
        true => learner.model().sample_text(args.sample_bytes, settings.context_length),
        false => None,
    };
    if is_sharded {
        group.barrier()?;
    }
    if rank == 0 {
        if let Some(text) = text {
            println!("--- {} bytes sampled from the model ---\n{text}\n---", args.sample_bytes);
        }
        if let Some(Outcome { train_loss, val_accuracy }) = at.outcome {
            println!(
                "final: val_accuracy={val_accuracy:.4} train_loss={train_loss:.4} world_size={world} \
                 samples_per_s={samples_per_s:.0}{mark}"
            );
        }
    }
    Ok(())
}

/// After a checkpoint: hosts that wait to take part may do so now. The launcher's SIGTERM follows.
fn welcome_hosts(group: &ProcessGroup) -> Result<()> {
    match distributed::is_change_pending(group)? {
        true => distributed::welcome_change(group),
        false => Ok(()),
    }
}

/// A moving average of the model's weights. To build its own model draws nothing from the run's generator.
fn average_of(
    learner: &Learner<Box<dyn Network>>,
    decay: f64,
    settings: &Settings,
    shape: data::Shape,
) -> Result<AveragedModel<Box<dyn Network>>> {
    let mut own = fork_rng(|| models::build(settings, shape))?;
    own.to_device(learner.model().parameters()[0].device());
    let averaging = Averaging::Ema { decay };
    let options = AveragedModelOptions { averaging, ..Default::default() };
    Ok(AveragedModel::with_module(own, learner.model(), options))
}
