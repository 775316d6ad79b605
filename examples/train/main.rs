//! Trains a model data-parallel, on one or several processes:
//!
//! ```text
//! cargo launch --nproc 2 train
//! cargo launch --nproc 2 train --data fashion-mnist:/usr/share/datasets/fashion-mnist
//! ```
//!
//! Each process runs this program on its share of every batch; gradients are averaged by
//! `DistributedDataParallel` during backward. The same seed gives the same run on any number of
//! processes, to rounding.
//!
//! With `--resume` a run goes on, also with another batch size or number of processes. At a loss or gradient
//! that is not finite it stops, says where that came from, and keeps the checkpoint before.

mod args;
mod data;
mod guard;
mod models;
mod report;
mod resume;
mod run_dir;
mod settings;

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use clap::Parser;
use torchrs::amp::{GradScaler, GradScalerOptions};
use torchrs::checkpoint::Checkpoint;
use torchrs::data::{DistributedSampler, SubsetSampler};
use torchrs::distributed::{ProcessGroup, ReduceOp, WorkerEnv};
use torchrs::fork_rng;
use torchrs::nn::utils::{clip_grads_with_norm_, get_total_norm};
use torchrs::optim::swa_utils::{AveragedModel, AveragedModelOptions, Averaging};
use torchrs::prelude::*;

use args::{Amp, Args};
use data::Data;
use guard::{Facts, MAX_SKIPPED};
use models::Network;
use report::{Line, Metrics, Progress};
use resume::{Outcome, Position, Resumable};
use run_dir::RunDir;
use settings::Settings;

#[torchrs::main]
fn main() -> Result<()> {
    let args = Args::parse();
    let group = distributed::init_process_group(Default::default())?;
    train(&args, &group)
}

/// The SIGTERM or SIGINT that came: finish the step, save, stop.
static STOP: AtomicI32 = AtomicI32::new(0);

fn stop_on_signal() {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn handler(signal: i32) {
        STOP.store(signal, Ordering::Relaxed);
    }
    let action = SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { sigaction(signal, &action) }.expect("SIGTERM and SIGINT can be handled");
    }
}

fn train(args: &Args, group: &ProcessGroup) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let device = args.device.of(&WorkerEnv::from_env()?)?;
    let simulated = device.is_cuda() && torchrs::cuda::library::is_simulated();
    let mark = if simulated { " (simulated GPUs: no measure of speed)" } else { "" };
    stop_on_signal();

    let run = RunDir::agree(args, group)?;
    let checkpoints = run.checkpoints();
    let saved = run.resume.map(|step| Checkpoint::load(checkpoints.at(step))).transpose()?;
    let (settings, changes) = match &saved {
        Some(saved) => Settings::resumed(args, &saved.value("settings")?, world)?,
        None => (Settings::new(args, world), Vec::new()),
    };
    let global_batch = settings.batch_size as usize;
    let accumulate = settings.accumulate as usize;
    if !global_batch.is_multiple_of(world * accumulate) {
        let message = format!(
            "{global_batch} samples per step cannot be shared equally by {world} workers in {accumulate} batches each"
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
    let name = settings.model_name();
    let model = DistributedDataParallel::new(network, group)?;
    let average =
        settings.ema.map(|decay| average_of(&model, decay, &settings, shape)).transpose()?;

    let sampler = DistributedSampler::new(training_len, world, rank)?;
    let loader = DataLoader::builder(training)
        .batch_size(global_batch / world / accumulate)
        .sampler(sampler.drop_last(true).seed(settings.seed))
        .drop_last(true)
        .workers(args.loader_workers)
        .device(device)
        .seed(settings.seed)
        .build()?;
    // Validation samples are dealt out without padding: every one counts once.
    let share = (rank..validation_len).step_by(world).collect();
    let validation = DataLoader::builder(validation)
        .batch_size(global_batch / world)
        .sampler(SubsetSampler::new(share))
        .device(device)
        .build()?;
    let parameters = model.parameters();
    let mut optimizer = models::optimizer(&settings, parameters.clone());
    let scaling = GradScalerOptions { enabled: settings.amp == Amp::F16, ..Default::default() };
    let mut scaler = GradScaler::new(scaling);
    let steps_per_epoch = (usable / global_batch) as u64;
    let mut schedule = models::schedule(&mut *optimizer, settings.epochs * steps_per_epoch);

    let state = Resumable {
        settings: &settings,
        model: &**model,
        average: average.as_ref(),
        loader: &loader,
        usable,
    };
    let mut at = Position::default();
    if let Some(saved) = &saved {
        at = state.load(saved, &mut *optimizer, &mut schedule, &mut scaler)?;
    }
    let save = |at: &Position,
                optimizer: &dyn Optimizer,
                schedule: &dyn LRScheduler,
                scaler: &GradScaler|
     -> Result<()> {
        if rank != 0 {
            return Ok(());
        }
        checkpoints.save(at.step, &state.save(at, optimizer, schedule, scaler)?).map(drop)
    };

    let last_step = args.max_steps.unwrap_or(u64::MAX);
    let steps_left = |at: &Position| ((usable - at.samples) / global_batch) as u64;
    let whole_epochs = settings.epochs.saturating_sub(at.epoch + 1);
    let total = match settings.epochs.checked_sub(at.epoch) {
        Some(1..) => (at.step + steps_left(&at) + whole_epochs * steps_per_epoch).min(last_step),
        _ => at.step,
    };
    let mut metrics = Metrics::open(&run.path, at.step, rank == 0)?;
    let progress = Progress::new(rank, total.max(at.step), at.step);
    if rank == 0 {
        progress.line(&format!(
            "{name} on {}, computed on {}{}: {training_len} training and {validation_len} validation samples, \
             {} parameters, {world} worker(s), {}",
            settings.data.name(),
            args.device.describe(device, world),
            if simulated { " (simulated)" } else { "" },
            model.num_parameters(),
            match run.resume {
                Some(step) => format!("{} from step {step}", run.path.display()),
                None => run.path.display().to_string(),
            },
        ));
        changes.iter().for_each(|change| progress.line(&format!("goes on with {change}")));
    }
    let complete = at.epoch >= settings.epochs || (at.step >= last_step && at.outcome.is_some());
    if complete && rank == 0 {
        progress.line(&format!(
            "the run is complete: {} of {} epochs, step {}; nothing is left to do (more: --epochs, --max-steps)",
            at.epoch.min(settings.epochs),
            settings.epochs,
            at.step
        ));
    }

    let started = Instant::now();
    let mut samples = 0usize;
    let mut stopped = false;
    'epochs: while !complete && at.epoch < settings.epochs {
        progress.epoch(at.epoch, settings.epochs);
        model.train();
        loader.set_epoch(at.epoch);
        let (epoch_start, epoch_samples) = (Instant::now(), samples);
        let mut batches = loader.iter();
        while steps_left(&at) > 0 && at.step < last_step {
            let mut group_of_batches = Vec::with_capacity(accumulate);
            for _ in 0..accumulate {
                let missing =
                    || Error::Other("the loader's epoch is shorter than its sampler's".into());
                let (x, y) = batches.next().ok_or_else(missing)??;
                let poisoned = args.poison.is_some_and(|p| p.hits(at.step + 1, rank));
                let x = if poisoned && x.dtype().is_floating_point() { x * f64::NAN } else { x };
                group_of_batches.push((x, y.flatten(0, -1)));
            }
            // Only DistributedDataParallel's own forward sends anything.
            let loss_of = |network: &dyn Network, (x, y): &(Tensor, Tensor)| {
                let loss = settings.amp.run(device, || F::cross_entropy(&network.logits(x), y));
                if accumulate == 1 { loss } else { loss / accumulate as f64 }
            };
            optimizer.zero_grad();
            let mut loss = 0.0;
            for (i, batch) in group_of_batches.iter().enumerate() {
                let step = || {
                    let part = loss_of(&**model, batch);
                    scaler.scale(&part).backward();
                    part
                };
                let part = if i + 1 < accumulate { model.no_sync(step) } else { step() };
                loss += part.item();
            }
            scaler.unscale_(&mut *optimizer);
            let gradients: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
            let norm = get_total_norm(&gradients, 2.0);
            let stop = STOP.load(Ordering::Relaxed) != 0;
            let facts = Facts { loss, grad_norm: norm.item(), stop };
            let agreed = facts.agree(group)?;
            stopped = agreed.stop;
            if !agreed.bad {
                clip_grads_with_norm_(&parameters, settings.clip_norm, &norm);
                scaler.step(&mut *optimizer);
                at.skipped = 0;
                if let Some(average) = &average {
                    average.update_parameters(model.module());
                }
            } else if scaler.is_enabled()
                && at.skipped < MAX_SKIPPED
                && !guard::buffers_are_bad(&**model, group)?
            {
                at.skipped += 1;
            } else {
                let losses = group_of_batches.iter().map(|batch| loss_of(&**model, batch));
                progress.finish();
                return Err(guard::error(
                    &facts,
                    at.step + 1,
                    at.skipped,
                    &**model,
                    losses,
                    group,
                )?);
            }
            scaler.update();
            let lr = optimizer.lr(0);
            schedule.step(&mut *optimizer);

            at.step += 1;
            at.samples += global_batch;
            samples += global_batch;
            progress.step(agreed.loss);
            if agreed.bad && rank == 0 {
                progress.line(&format!(
                    "step {}: a loss or gradient is not finite; the step is left out, the loss scale is now {}",
                    at.step,
                    scaler.get_scale()
                ));
            }
            if agreed.loss.is_finite() {
                at.loss_sum += agreed.loss * global_batch as f64;
                at.loss_samples += global_batch;
                metrics.push(Line::Step {
                    step: at.step,
                    epoch: at.epoch,
                    loss: agreed.loss,
                    lr,
                })?;
            }
            let due = args.save_every.is_some_and(|n| at.step.is_multiple_of(n));
            let is_saved = stopped || (due && steps_left(&at) > 0 && at.step < last_step);
            if is_saved {
                save(&at, &*optimizer, &schedule, &scaler)?;
            }
            if stopped {
                break 'epochs;
            }
            if is_saved {
                welcome_hosts(group)?;
            }
        }
        drop(batches);
        let seconds = epoch_start.elapsed().as_secs_f64();
        let train_loss = at.loss_sum / at.loss_samples as f64;
        let validated: &dyn Network = average.as_ref().map_or(&**model, |average| &average.module);
        let (val_loss, val_accuracy) = evaluate(validated, &validation, group)?;
        model.train();
        if !train_loss.is_finite() || !val_loss.is_finite() {
            let message = format!(
                "step {}: the training loss is {train_loss}, the validation loss {val_loss}; the run stops, and the \
                 last checkpoint stays",
                at.step
            );
            return Err(Error::Other(message));
        }
        let samples_per_s = (samples - epoch_samples) as f64 / seconds;
        metrics.push(Line::Epoch {
            step: at.step,
            epoch: at.epoch,
            train_loss,
            val_loss,
            val_accuracy,
            samples_per_s,
            simulated,
        })?;
        if rank == 0 {
            progress.line(&format!(
                "epoch {:>2}/{}: train_loss={train_loss:.4} val_loss={val_loss:.4} \
                 val_accuracy={val_accuracy:.4} samples_per_s={samples_per_s:.0}{mark}",
                at.epoch + 1,
                settings.epochs,
            ));
        }
        at.outcome = Some(Outcome { train_loss, val_accuracy });
        if steps_left(&at) == 0 {
            at = at.next_epoch();
            loader.set_epoch(at.epoch);
        }
        save(&at, &*optimizer, &schedule, &scaler)?;
        if at.step >= last_step {
            break;
        }
        if at.epoch < settings.epochs {
            welcome_hosts(group)?;
        }
    }
    progress.finish();
    let samples_per_s = samples as f64 / started.elapsed().as_secs_f64();
    if rank == 0 {
        metrics.draw(&format!("{name} on {}", settings.data.name()))?;
    }
    group.barrier()?;
    if stopped {
        if rank == 0 {
            println!("stopped by a signal at step {}; --resume goes on from there", at.step);
        }
        // What a shell expects of a process that this signal ended; SIGTERM if a peer had it.
        let signal = STOP.load(Ordering::Relaxed);
        std::process::exit(128 + if signal == 0 { libc::SIGTERM } else { signal });
    }
    if rank == 0 {
        if let Some(text) = model.sample_text(args.sample_bytes) {
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
    model: &DistributedDataParallel<Box<dyn Network>>,
    decay: f64,
    settings: &Settings,
    shape: data::Shape,
) -> Result<AveragedModel<Box<dyn Network>>> {
    let mut own = fork_rng(|| models::build(settings, shape))?;
    own.to_device(model.parameters()[0].device());
    let averaging = Averaging::Ema { decay };
    let options = AveragedModelOptions { averaging, ..Default::default() };
    Ok(AveragedModel::with_module(own, model.module(), options))
}

/// Mean loss and accuracy over the whole validation set, each rank doing its share of it.
fn evaluate(
    model: &dyn Network,
    validation: &DataLoader<Data>,
    group: &ProcessGroup,
) -> Result<(f64, f64)> {
    model.eval();
    let mut sums = [0f64; 3];
    for batch in validation.iter() {
        let (x, y) = batch?;
        let y = y.flatten(0, -1);
        let logits = no_grad(|| model.logits(&x));
        sums[0] += F::cross_entropy(&logits, &y).item() * y.numel() as f64;
        sums[1] += models::correct(&logits, &y);
        sums[2] += y.numel() as f64;
    }
    let sums = Tensor::from_slice(&sums, [3]);
    group.all_reduce(&sums, ReduceOp::Sum)?;
    let sums = sums.to_vec::<f64>();
    Ok((sums[0] / sums[2], sums[1] / sums[2]))
}
