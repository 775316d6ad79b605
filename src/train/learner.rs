//! A model with all that trains it, so that a step, a validation and a checkpoint are one call each. The loop over
//! epochs and steps stays the program's.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::metrics::{Mean, Metric};
use super::{
    GracefulStop, GradientSync, NanGuard, Resumed, RunDir, StepCheck, StopReason, TrainState,
    accumulate,
};
use crate::autograd::no_grad;
use crate::data::{Batch, DataLoader, Dataset};
use crate::distributed::{DistributedDataParallel, ProcessGroup, WorkerEnv};
use crate::error::{Error, Result, throw};
use crate::nn::Module;
use crate::nn::evaluation::in_evaluation;
use crate::nn::parallel::FullyShard;
use crate::nn::utils::{clip_grads_with_norm_, get_total_norm};
use crate::optim::lr_scheduler::LRScheduler;
use crate::optim::swa_utils::{AveragedModel, AveragedModelOptions, Averaging};
use crate::optim::{GradScaler, GradScalerOptions, Optimizer};
use crate::tensor::Tensor;

/// A model, its optimizer, and what else a step may need: a schedule, a moving average of the weights, a loss scaler,
/// clipping, several batches in a step.
///
/// ```
/// use torchrs::data::datasets::Digits;
/// use torchrs::prelude::*;
/// use torchrs::train::metrics::{Accuracy, Metric};
/// use torchrs::train::Learner;
/// # torchrs::manual_seed(0);
/// let group = distributed::init_process_group(Default::default())?;
/// let (rank, world) = (group.rank(), group.world_size());
/// let net = nn::Linear::new(64, 10);
/// let optimizer = optim::AdamW::new(net.parameters(), optim::AdamWOptions { lr: 0.01, ..Default::default() });
/// let data = DataLoader::builder(Digits::train()).batch_size(32).shuffle(true).ranks(world, rank).build()?;
/// let test = DataLoader::builder(Digits::validation()).batch_size(32).ranks(world, rank).build()?;
/// let mut learner = Learner::new(net, optimizer, &group)?.accumulate(2).clip_norm(1.0).ema(0.9);
/// let logits = |net: &nn::Linear, x: &Tensor| net.forward(&x.flatten(1, -1));
/// while learner.epoch() < 2 {
///     data.set_epoch(learner.epoch());
///     let mut batches = data.iter();
///     while let Some(step) = learner.step(&mut batches, |net, (x, y)| F::cross_entropy(&logits(net, x), y))? {
///         // step.loss, step.grad_norm, step.lr
///     }
///     let mut accuracy = Accuracy::new();
///     learner.evaluate(&test, |net, (x, y)| accuracy.update(&logits(net, x), y))?;
///     let (loss, accuracy) = (learner.end_epoch()?, accuracy.compute(&group)?);
///     println!("epoch {}: loss {loss}, accuracy {accuracy}", learner.epoch());
/// #   assert!(learner.epoch() == 1 || (loss < 1.5 && accuracy > 0.75), "{loss} {accuracy}");
/// }
/// assert_eq!(learner.steps(), 2 * 23); // 1438 samples in steps of 64
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// For a step of another kind, as with several losses, its parts stand by themselves: [`accumulate`](accumulate()),
/// [`NanGuard`], [`TrainState`].
pub struct Learner<M: Module> {
    model: Parallel<M>,
    parameters: Vec<Tensor>,
    optimizer: Box<dyn Optimizer>,
    schedule: Option<Box<dyn LRScheduler>>,
    average: Option<AveragedModel<M>>,
    scaler: GradScaler,
    clip_norm: Option<f64>,
    parts: usize,
    stop: Option<GracefulStop>,
    group: ProcessGroup,
    at: Position,
    guard: NanGuard,
}

/// A model whose gradients are averaged over ranks.
enum Parallel<M: Module> {
    /// Whole on each rank.
    Replicas(DistributedDataParallel<M>),
    /// In parts.
    Shards(M, FullyShard),
}

impl<M: Module> Parallel<M> {
    fn module(&self) -> &M {
        match self {
            Parallel::Replicas(model) => model.module(),
            Parallel::Shards(model, _) => model,
        }
    }
}

impl<M: Module> GradientSync for Parallel<M> {
    fn without_sync(&self, f: &mut dyn FnMut()) {
        match self {
            Parallel::Replicas(model) => model.without_sync(f),
            Parallel::Shards(_, shard) => shard.without_sync(f),
        }
    }
}

/// Where a learner is: what its checkpoints keep of it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Position {
    epoch: u64,
    step: u64,
    /// Of this epoch's steps.
    loss: Mean,
}

/// A step that [`Learner::step`] has done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnerStep {
    /// Its number, from 1.
    pub step: u64,
    /// The mean loss over the ranks. Not finite where the step was left out.
    pub loss: f64,
    /// The norm of all gradients, before they were clipped.
    pub grad_norm: f64,
    /// The learning rate of the first group of parameters.
    pub lr: f64,
    /// False for a step that was left out, because the loss scaler's scale was too high.
    pub is_taken: bool,
    /// Whether a rank is asked to stop ([`Learner::stop`]): the same on all ranks.
    pub stop: Option<StopReason>,
}

impl LearnerStep {
    /// Ends the program with [the reason's exit status](StopReason::exit_code) where a rank is asked to stop; rank 0 says
    /// why. Save before.
    pub fn exit_if_stopped(&self) {
        if let Some(reason) = self.stop {
            if WorkerEnv::from_env().is_ok_and(|worker| worker.rank == 0) {
                eprintln!("stopped by {reason} after step {}", self.step);
            }
            std::process::exit(reason.exit_code());
        }
    }
}

impl<M: Module> Learner<M> {
    /// Wraps the model in [`DistributedDataParallel`], with its default options. Collective.
    ///
    /// # Errors
    /// [`Error::Argument`] for an optimizer that has none of the model's parameters; otherwise as
    /// [`DistributedDataParallel::new`].
    #[track_caller]
    pub fn new(
        model: M,
        optimizer: impl Optimizer + 'static,
        group: &ProcessGroup,
    ) -> Result<Self> {
        Self::with_parallel(DistributedDataParallel::new(model, group)?, optimizer, group)
    }

    /// Of a model that is wrapped, with options of its own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_parallel(
        model: DistributedDataParallel<M>,
        optimizer: impl Optimizer + 'static,
        group: &ProcessGroup,
    ) -> Result<Self> {
        Self::of(Parallel::Replicas(model), optimizer, group)
    }

    /// Of a model that [`fully_shard`](crate::nn::parallel::fully_shard) has sharded, and what it gave for the whole model,
    /// in the last call. The optimizer is made of the model's parameters after that. Ranks need equally many batches, in
    /// [`evaluate`](Self::evaluate) too. [`state`](Self::state) cannot be saved.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::nn::{Forward, Linear, Module, parallel::fully_shard};
    /// use torchrs::{Dtype::F32, Tensor, optim::SGD, train::Learner};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let mut net = Linear::new(2, 2);
    /// let shard = fully_shard(&mut net, &group, Default::default())?;
    /// let optimizer = SGD::new(net.parameters(), Default::default());
    /// let mut learner = Learner::sharded(net, shard, optimizer, &group)?.accumulate(2).clip_norm(1.0);
    /// let mut batches = [1.0, 2.0].map(|x| Ok(Tensor::full([3, 2], x, F32))).into_iter();
    /// let step = learner.step(&mut batches, |net, x| net.forward(x).square().mean())?.unwrap();
    /// assert!(step.is_taken);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a model of which a parameter is not sharded: nobody averages its gradient; as
    /// [`new`](Self::new) otherwise.
    pub fn sharded(
        model: M,
        shard: FullyShard,
        optimizer: impl Optimizer + 'static,
        group: &ProcessGroup,
    ) -> Result<Self> {
        let named = model.named_parameters();
        let whole = |(_, p): &&(String, Tensor)| p.requires_grad() && p.together().is_none();
        if let Some((name, _)) = named.iter().find(whole) {
            let what = format!(
                "has parameter `{name}`, which is not sharded, so that its gradient is not averaged; call `fully_shard` of \
                 the whole model, or freeze it"
            );
            return Err(Error::argument("Learner::sharded", "model", what));
        }
        Self::of(Parallel::Shards(model, shard), optimizer, group)
    }

    fn of(
        model: Parallel<M>,
        optimizer: impl Optimizer + 'static,
        group: &ProcessGroup,
    ) -> Result<Self> {
        let parameters = model.module().parameters();
        let theirs = optimizer.parameters();
        if !theirs.iter().any(|theirs| parameters.iter().any(|own| own.ptr_eq(theirs))) {
            let what = "has none of the model's parameters; make it of `model.parameters()`, after `to_device`";
            return Err(Error::argument("Learner", "optimizer", what));
        }
        Ok(Learner {
            model,
            parameters,
            optimizer: Box::new(optimizer),
            schedule: None,
            average: None,
            scaler: GradScaler::new(GradScalerOptions { enabled: false, ..Default::default() }),
            clip_norm: None,
            parts: 1,
            stop: None,
            group: group.clone(),
            at: Position::default(),
            guard: NanGuard::new(),
        })
    }

    /// Changes the learning rate after each step. The schedule is made for the optimizer before.
    pub fn schedule(mut self, schedule: impl LRScheduler + 'static) -> Self {
        self.schedule = Some(Box::new(schedule));
        self
    }

    /// Keeps an exponential moving average of the weights, which is validated: after step `n` it is `d` of the old one and
    /// `1 - d` of the new weights. `d` is `decay`, or at the beginning `n / (n + 9)`, so that weights of the first steps do
    /// not stay (TensorFlow's `ExponentialMovingAverage` with `num_updates`). Buffers, as running statistics, are the
    /// model's. For another average see [`average`](Self::average).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the decay is not in `[0, 1]`.
    #[track_caller]
    pub fn ema(self, decay: f64) -> Self
    where
        M: Clone,
    {
        if !(0.0..=1.0).contains(&decay) {
            let what = format!("{decay}; must be from 0 to 1");
            throw(Error::argument("Learner::ema", "decay", what));
        }
        let rule = move |average: &Tensor, weight: &Tensor, n: u64| {
            let n = n as f64 + 1.0;
            average.lerp(weight, 1.0 - decay.min(n / (n + 9.0)))
        };
        let averaging = Averaging::Custom(Box::new(rule));
        let options = AveragedModelOptions { averaging, ..Default::default() };
        let average = AveragedModel::new(self.model.module(), options);
        self.average(average)
    }

    /// Keeps an average of the weights, which is validated.
    pub fn average(mut self, average: AveragedModel<M>) -> Self {
        self.average = Some(average);
        self
    }

    /// Scales the loss, as f16 needs it. Steps whose gradients overflow are left out.
    pub fn scaler(mut self, scaler: GradScaler) -> Self {
        self.scaler = scaler;
        self
    }

    /// Clips the norm of all gradients.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a norm that is not above 0.
    #[track_caller]
    pub fn clip_norm(mut self, max_norm: f64) -> Self {
        if max_norm.is_nan() || max_norm <= 0.0 {
            let what = format!("{max_norm}; must be above 0");
            throw(Error::argument("Learner::clip_norm", "max_norm", what));
        }
        self.clip_norm = Some(max_norm);
        self
    }

    /// Makes a step of up to `k` batches of each rank ([`accumulate`](accumulate())).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for 0.
    #[track_caller]
    pub fn accumulate(mut self, k: usize) -> Self {
        if k == 0 {
            let what = "0; a step is made of at least 1 batch";
            throw(Error::argument("Learner::accumulate", "k", what));
        }
        self.parts = k;
        self
    }

    /// Has steps say when a rank is asked to stop, without a message of its own.
    pub fn stop(mut self, stop: GracefulStop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Takes the batches of a step and the optimizer's step with the gradients of their mean loss; `None` where there
    /// is no batch left. `loss` gives the mean loss of a batch. Collective.
    ///
    /// # Errors
    /// The batches' own; as [`NanGuard::check`] for a loss or gradient that is not finite, before it reaches the weights.
    #[track_caller]
    pub fn step<B>(
        &mut self,
        batches: &mut impl Iterator<Item = Result<B>>,
        loss: impl Fn(&M, &B) -> Tensor,
    ) -> Result<Option<LearnerStep>> {
        let model = self.model.module();
        self.optimizer.zero_grad();
        let loss_of = |batch: &B| loss(model, batch);
        let done = accumulate(self.parts, batches, &self.model, Some(&self.scaler), loss_of)?;
        let Some(done) = done else { return Ok(None) };
        self.scaler.unscale_(&mut *self.optimizer);
        let gradients: Vec<Tensor> = self.parameters.iter().filter_map(Tensor::grad).collect();
        let norm = get_total_norm(&gradients, 2.0);
        let grad_norm = norm.item();
        let check = StepCheck {
            step: self.at.step + 1,
            loss: done.loss,
            grad_norm,
            stop: self.stop.as_ref().and_then(GracefulStop::requested_here),
            model,
            scaler: Some(&self.scaler),
            group: &self.group,
        };
        let agreed = self.guard.check(&check, || done.batches.iter().map(loss_of))?;
        if agreed.take_step {
            if let Some(max_norm) = self.clip_norm {
                clip_grads_with_norm_(&self.parameters, max_norm, &norm);
            }
            self.scaler.step(&mut *self.optimizer);
            if let Some(average) = &self.average {
                average.update_parameters(model);
            }
            self.at.loss.update(agreed.loss, 1.0);
        }
        let lr = self.optimizer.lr(0);
        self.scaler.update();
        if let Some(schedule) = &mut self.schedule {
            schedule.step(&mut *self.optimizer);
        }
        self.at.step += 1;
        Ok(Some(LearnerStep {
            step: self.at.step,
            loss: agreed.loss,
            grad_norm,
            lr,
            is_taken: agreed.take_step,
            stop: agreed.stop,
        }))
    }

    /// A whole epoch, or what is left of one: all steps of the loader's batches, then [`end_epoch`](Self::end_epoch).
    /// Collective. For a loop that has nothing to do between steps.
    ///
    /// # Errors
    /// As [`step`](Self::step) and [`end_epoch`](Self::end_epoch).
    #[track_caller]
    pub fn train_epoch<D: Dataset>(
        &mut self,
        loader: &DataLoader<D>,
        loss: impl Fn(&M, &Batch<D>) -> Tensor,
    ) -> Result<f64> {
        loader.set_epoch(self.at.epoch);
        let mut batches = loader.iter();
        while self.step(&mut batches, &loss)?.is_some() {}
        self.end_epoch()
    }

    /// Gives every batch of this rank to `f`, with the model that is validated, the average where there is one. It is in
    /// evaluation mode meanwhile, and no gradients are recorded.
    ///
    /// # Errors
    /// The loader's.
    #[track_caller]
    pub fn evaluate<D: Dataset>(
        &self,
        loader: &DataLoader<D>,
        mut f: impl FnMut(&M, &Batch<D>),
    ) -> Result<()> {
        let model = self.validated();
        in_evaluation(model, || {
            no_grad(|| loader.iter().try_for_each(|batch| batch.map(|batch| f(model, &batch))))
        })
    }

    /// The mean loss of this epoch's steps so far, over all ranks. It is the same on all of them.
    ///
    /// # Errors
    /// [`Error::Argument`] where no step was taken in it.
    pub fn epoch_loss(&self) -> Result<f64> {
        self.at.loss.compute_local()
    }

    /// Ends an epoch, and gives its [`epoch_loss`](Self::epoch_loss).
    ///
    /// # Errors
    /// As that.
    pub fn end_epoch(&mut self) -> Result<f64> {
        let loss = self.epoch_loss()?;
        self.at = Position { epoch: self.at.epoch + 1, step: self.at.step, loss: Mean::new() };
        Ok(loss)
    }

    /// The number of the epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.at.epoch
    }

    /// Steps so far, also those that were left out.
    pub fn steps(&self) -> u64 {
        self.at.step
    }

    /// The model.
    pub fn model(&self) -> &M {
        self.model.module()
    }

    /// The average of the weights where there is one, else the model.
    pub fn validated(&self) -> &M {
        self.average.as_ref().map_or(self.model.module(), |average| &average.module)
    }

    /// The optimizer.
    pub fn optimizer(&mut self) -> &mut dyn Optimizer {
        &mut *self.optimizer
    }

    /// Puts the schedule, of which nothing was loaded, where it is after `done` of its steps from the rate `lr`: for a run
    /// that goes on with steps of another size, or with another rate.
    ///
    /// # Errors
    /// [`Error::Argument`] where there is no schedule; as [`LRScheduler::load_state_dict`] for one that does not count
    /// its steps as `last_epoch`.
    pub fn move_schedule(&mut self, lr: f64, done: u64) -> Result<()> {
        let Some(schedule) = &mut self.schedule else {
            return Err(Error::argument("Learner::move_schedule", "schedule", "there is none"));
        };
        for group in 0..self.optimizer.num_groups() {
            self.optimizer.set_initial_lr(group, lr);
        }
        let mut state = schedule.state_dict();
        state["last_epoch"] = json!(done as i64 - 1);
        schedule.load_state_dict(&state)?;
        schedule.step(&mut *self.optimizer);
        Ok(())
    }

    /// The loss scaler.
    pub fn loss_scaler(&self) -> &GradScaler {
        &self.scaler
    }

    /// All of it as a run's state, to which a program adds what it has beside.
    ///
    /// ```
    /// # use torchrs::{nn::{self, Module}, optim, train::Learner, checkpoint::CheckpointDir};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let checkpoints = CheckpointDir::new(folder.path(), 1);
    /// # let group = torchrs::distributed::init_process_group(Default::default())?;
    /// let net = nn::Linear::new(2, 2);
    /// let optimizer = optim::SGD::new(net.parameters(), Default::default());
    /// let mut learner = Learner::new(net, optimizer, &group)?;
    /// let mut best = 0.5;
    /// learner.state().value("best", &mut best).save(&checkpoints, 1, &group)?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn state(&mut self) -> TrainState<'_> {
        let mut state = TrainState::new()
            .model(self.model.module())
            .optimizer(&mut *self.optimizer)
            .scaler(&mut self.scaler)
            .value("learner", &mut self.at)
            .value("guard", &mut self.guard);
        if let Some(schedule) = &mut self.schedule {
            state = state.schedule(&mut **schedule);
        }
        match &self.average {
            Some(average) => state.ema(average),
            None => state,
        }
    }

    /// Saves the run's state with the loader's place, also within an epoch, as the checkpoint of this step. Collective.
    ///
    /// # Errors
    /// As [`TrainState::save`].
    #[track_caller]
    pub fn save<D: Dataset>(&mut self, run: &RunDir, loader: &DataLoader<D>) -> Result<()> {
        let (step, group) = (self.at.step, self.group.clone());
        self.state().loader(loader).save(run.checkpoints(), step, &group).map(drop)
    }

    /// Goes on from the checkpoint that the run goes on from, if it does. Collective.
    ///
    /// # Errors
    /// As [`TrainState::resume`].
    #[track_caller]
    pub fn resume<D: Dataset>(
        &mut self,
        run: &RunDir,
        loader: &DataLoader<D>,
    ) -> Result<Option<Resumed>> {
        let group = self.group.clone();
        self.state().loader(loader).resume(run, &group)
    }
}
