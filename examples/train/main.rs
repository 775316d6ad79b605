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

mod args;
mod data;
mod models;
mod report;
mod run_dir;

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use clap::Parser;
use torchrs::amp::{GradScaler, GradScalerOptions};
use torchrs::checkpoint::Checkpoint;
use torchrs::data::{DataLoader, Dataset, DistributedSampler, SubsetSampler};
use torchrs::distributed::{self, DistributedDataParallel, ProcessGroup, ReduceOp, WorkerEnv};
use torchrs::nn::{self, Module, functional as F};
use torchrs::optim::lr_scheduler::LrScheduler;
use torchrs::optim::{Optimizer, OptimizerState};
use torchrs::{Device, Error, Result, Tensor, default_generator, no_grad};

use args::{Amp, Args, DeviceChoice};
use data::Data;
use models::Network;
use report::{Line, Metrics, Progress};
use run_dir::RunDir;

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

/// What goes on in a checkpoint beside the tensors.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy)]
struct Position {
    epoch: u64,
    step: u64,
    /// Sum of the losses of this epoch's steps so far, and their number.
    epoch_loss: f64,
    epoch_steps: u64,
}

fn train(args: &Args, group: &ProcessGroup) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let device = match args.device {
        DeviceChoice::Auto => Device::Cpu,
        DeviceChoice::Cuda => Device::Cuda(WorkerEnv::from_env()?.local_rank),
        DeviceChoice::On(device) => device,
    };
    device.check()?;
    let simulated = device.is_cuda() && torchrs::cuda::library::is_simulated();
    let mark = if simulated { " (simulated GPUs: no measure of speed)" } else { "" };
    stop_on_signal();

    let defaults = args.defaults();
    let epochs = args.epochs.unwrap_or(defaults.epochs);
    let global_batch = args.batch_size.unwrap_or(defaults.batch_size) as usize;
    if !global_batch.is_multiple_of(world) {
        let message =
            format!("{global_batch} samples per step cannot be shared equally by {world} workers");
        return Err(Error::config("--batch-size", message));
    }

    torchrs::manual_seed(args.seed);
    let (training, validation, shape) = Data::open(args)?;
    let (training_len, validation_len) = (training.len(), validation.len());
    let mut network = models::build(args, shape)?;
    network.to_device(device);
    let name = format!("{:?}", args.model()).to_lowercase();
    let run = RunDir::agree(args, &name, group)?;
    let model = DistributedDataParallel::new(network, group)?;

    let sampler =
        DistributedSampler::new(training_len, world, rank)?.drop_last(true).seed(args.seed);
    let loader = DataLoader::builder(training)
        .batch_size(global_batch / world)
        .sampler(sampler)
        .drop_last(true)
        .workers(args.loader_workers)
        .device(device)
        .seed(args.seed)
        .build()?;
    let steps_per_epoch = loader.len() as u64;
    if steps_per_epoch == 0 {
        let message = format!("{global_batch} is more than the {training_len} training samples");
        return Err(Error::config("--batch-size", message));
    }
    let total = (epochs * steps_per_epoch).min(args.max_steps.unwrap_or(u64::MAX));
    // Validation samples are dealt out without padding: every one counts once.
    let share = (rank..validation_len).step_by(world).collect();
    let validation = DataLoader::builder(validation)
        .batch_size(global_batch / world)
        .sampler(SubsetSampler::new(share))
        .device(device)
        .build()?;
    let lr = args.lr.unwrap_or(defaults.lr);
    let mut optimizer = models::optimizer(args, model.parameters(), lr);
    let scaling = GradScalerOptions { enabled: args.amp == Amp::F16, ..Default::default() };
    let mut scaler = GradScaler::new(scaling);
    let mut schedule = models::schedule(&mut *optimizer, epochs * steps_per_epoch);

    let checkpoints = run.checkpoints();
    let mut at = Position { epoch: 0, step: 0, epoch_loss: 0.0, epoch_steps: 0 };
    if let Some(step) = run.resume {
        let saved = Checkpoint::load(checkpoints.at(step))?;
        at = saved.value("position")?;
        model.load_state_dict(saved.tensors("model")?, true)?;
        let options = saved.value("optimizer")?;
        optimizer.load_state_dict(&OptimizerState::join(saved.tensors("optimizer")?, &options)?)?;
        schedule.load_state_dict(&saved.value("schedule")?)?;
        loader.load_state_dict(&saved.value("loader")?)?;
        if scaler.is_enabled() {
            scaler.load_state_dict(&saved.value("scaler")?)?;
        }
        default_generator().set_state(saved.value("rng")?);
    }
    let save = |at: &Position,
                optimizer: &dyn Optimizer,
                schedule: &dyn LrScheduler,
                scaler: &GradScaler|
     -> Result<()> {
        if rank != 0 {
            return Ok(());
        }
        let (tensors, options) = optimizer.state_dict().split();
        let checkpoint = Checkpoint::new()
            .with_tensors("model", model.state_dict().into_iter().collect())
            .with_tensors("optimizer", tensors)
            .with_value("optimizer", &options)?
            .with_value("schedule", &schedule.state_dict())?
            .with_value("scaler", &scaler.state_dict())?
            .with_value("loader", &loader.state_dict())?
            .with_value("rng", &default_generator().get_state())?
            .with_value("position", at)?;
        checkpoints.save(at.step, &checkpoint).map(drop)
    };

    let mut metrics = Metrics::open(&run.path, at.step, rank == 0)?;
    let progress = Progress::new(rank, total, at.step);
    if rank == 0 {
        progress.line(&format!(
            "{} on {}: {} training and {} validation samples, {} parameters, {world} worker(s), {}",
            name,
            args.data.name(),
            training_len,
            validation_len,
            model.num_parameters(),
            match run.resume {
                Some(step) => format!("{} from step {step}", run.path.display()),
                None => run.path.display().to_string(),
            },
        ));
    }

    let started = Instant::now();
    let mut samples = 0usize;
    let (mut train_loss, mut val_accuracy) = (f64::NAN, f64::NAN);
    let mut stopped = false;
    'epochs: while at.step < total {
        progress.epoch(at.epoch, epochs);
        model.train();
        loader.set_epoch(at.epoch);
        let (epoch_start, epoch_samples) = (Instant::now(), samples);
        for batch in loader.iter() {
            let (x, y) = batch?;
            optimizer.zero_grad(true);
            let y = y.flatten(0, -1);
            let loss = args.amp.run(device, || F::cross_entropy(&model.logits(&x), &y));
            scaler.scale(&loss).backward();
            scaler.unscale_(&mut *optimizer);
            nn::clip_grad_norm_(&model.parameters(), args.clip_norm);
            scaler.step(&mut *optimizer);
            scaler.update();
            let lr = optimizer.lr(0);
            schedule.step(&mut *optimizer);

            // One small message per step: the mean loss, and whether any rank was told to stop.
            let stop = STOP.load(Ordering::Relaxed) != 0;
            let facts = Tensor::from_slice(&[loss.item() as f32, f32::from(stop)], [2]);
            group.all_reduce(&facts, ReduceOp::Avg)?;
            let facts = facts.to_vec::<f64>();
            stopped = facts[1] > 0.0;

            at.step += 1;
            at.epoch_loss += facts[0];
            at.epoch_steps += 1;
            samples += global_batch;
            progress.step(facts[0]);
            metrics.push(Line::Step { step: at.step, epoch: at.epoch, loss: facts[0], lr })?;
            let due = args.save_every.is_some_and(|n| at.step.is_multiple_of(n));
            if stopped || due || at.step == total {
                if at.epoch_steps < steps_per_epoch {
                    save(&at, &*optimizer, &schedule, &scaler)?;
                }
                if stopped || at.step == total {
                    break;
                }
            }
        }
        let seconds = epoch_start.elapsed().as_secs_f64();
        if stopped {
            break 'epochs;
        }
        train_loss = at.epoch_loss / at.epoch_steps as f64;
        let (val_loss, accuracy) = evaluate(&**model, &validation, group)?;
        val_accuracy = accuracy;
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
                "epoch {:>2}/{epochs}: train_loss={train_loss:.4} val_loss={val_loss:.4} \
                 val_accuracy={val_accuracy:.4} samples_per_s={samples_per_s:.0}{mark}",
                at.epoch + 1
            ));
        }
        if at.epoch_steps == steps_per_epoch {
            at = Position { epoch: at.epoch + 1, epoch_loss: 0.0, epoch_steps: 0, ..at };
            loader.set_epoch(at.epoch);
            save(&at, &*optimizer, &schedule, &scaler)?;
        }
    }
    progress.finish();
    let samples_per_s = samples as f64 / started.elapsed().as_secs_f64();
    if rank == 0 {
        metrics.draw(&format!("{name} on {}", args.data.name()))?;
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
        println!(
            "final: val_accuracy={val_accuracy:.4} train_loss={train_loss:.4} world_size={world} \
             samples_per_s={samples_per_s:.0}{mark}"
        );
    }
    Ok(())
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
    model.train();
    let sums = Tensor::from_slice(&sums, [3]);
    group.all_reduce(&sums, ReduceOp::Sum)?;
    let sums = sums.to_vec::<f64>();
    Ok((sums[0] / sums[2], sums[1] / sums[2]))
}
