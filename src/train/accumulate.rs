//! Gradients of several batches before a step, as one large batch would give them.

use crate::distributed::{DistributedDataParallel, ProcessGroup, ReduceOp};
use crate::error::{Error, Result};
use crate::nn::Module;
use crate::nn::parallel::FullyShard;
use crate::optim::GradScaler;
use crate::tensor::Tensor;

/// What averages gradients over ranks in backward, and can leave that to a later one: a model in
/// `DistributedDataParallel`, or what [`fully_shard`](crate::nn::parallel::fully_shard) gives for a whole model.
pub trait GradientSync {
    /// Runs `f`, in which gradients add up on this rank.
    fn without_sync(&self, f: &mut dyn FnMut());
}

impl<M: Module> GradientSync for DistributedDataParallel<M> {
    fn without_sync(&self, f: &mut dyn FnMut()) {
        self.no_sync(f);
    }
}

impl GradientSync for FullyShard {
    fn without_sync(&self, f: &mut dyn FnMut()) {
        /// Switches back also when `f` panics.
        struct Restore<'a>(&'a FullyShard);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set_requires_gradient_sync(true);
            }
        }
        self.set_requires_gradient_sync(false);
        let _restore = Restore(self);
        f();
    }
}

/// What [`accumulate`] has done.
#[derive(Debug)]
pub struct Accumulated<B> {
    /// The mean loss of this rank's batches, which the gradients are those of.
    pub loss: f64,
    /// The batches: `k`, or fewer at the end of an epoch.
    pub batches: Vec<B>,
}

/// Takes up to `k` batches and adds up the gradients of their mean loss; `None` where there is no batch left. Ranks
/// average gradients once, with the last batch (`no_sync`). `loss` gives the mean loss of a batch.
///
/// The loss is divided by the number of batches that there are, also at the end of an epoch, and multiplied by the
/// scaler's scale. Where batches differ in what they count, such as tokens, see [`accumulate_weighted`].
///
/// ```
/// use torchrs::{Tensor, distributed::{self, DistributedDataParallel}, nn::{self, Forward}};
/// use torchrs::train::accumulate;
/// let group = distributed::init_process_group(Default::default())?;
/// let model = DistributedDataParallel::new(nn::Linear::new(1, 1), &group)?;
/// let batches = [1f32, 3., 5.].map(|x| Ok(Tensor::from([[x]])));
/// let mut batches = batches.into_iter();
/// let mut step = || {
///     model.zero_grad();
///     let done = accumulate(2, &mut batches, &model, None, |x| model.forward(x).sum())?;
///     Ok(done.map(|done| (done.batches.len(), model.weight.grad().unwrap().item())))
/// };
/// assert_eq!([step()?, step()?, step()?], [Some((2, 2.0)), Some((1, 5.0)), None]);
/// # use nn::Module;
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for `k` of 0; the loader's own.
#[track_caller]
pub fn accumulate<B>(
    k: usize,
    batches: &mut impl Iterator<Item = Result<B>>,
    model: &impl GradientSync,
    scaler: Option<&GradScaler>,
    mut loss: impl FnMut(&B) -> Tensor,
) -> Result<Option<Accumulated<B>>> {
    let batches = take("accumulate", k, batches)?;
    if batches.is_empty() {
        return Ok(None);
    }
    let share = 1.0 / batches.len() as f64;
    let loss = add_up(&batches, model, scaler, |batch| (loss(batch), share));
    Ok(Some(Accumulated { loss, batches }))
}

/// [`accumulate`] where batches differ in what they count: `weight` says how much a batch counts, such as its tokens
/// that are not padding, and `loss` gives the sum of the losses of those (`Reduction::Sum`). The gradients are those of
/// the mean over all tokens of all batches and ranks, and so is the loss. A small all-reduce before it tells the ranks
/// how many there are.
///
/// ```
/// use torchrs::{Tensor, distributed::{self, DistributedDataParallel}, nn::{self, Forward}};
/// use torchrs::train::accumulate_weighted;
/// let group = distributed::init_process_group(Default::default())?;
/// let model = DistributedDataParallel::new(nn::Linear::new(1, 1), &group)?;
/// let mut batches = [vec![1f32, 1., 1.], vec![5.]].into_iter().map(Ok);
/// let loss = |x: &Vec<f32>| model.forward(&Tensor::from_slice(x, [x.len(), 1])).sum();
/// let weight = |x: &Vec<f32>| x.len() as f64;
/// accumulate_weighted(2, &mut batches, &model, None, &group, weight, loss)?;
/// assert_eq!(model.weight.grad().unwrap().item(), 2.0); // a mean of means is 3
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`accumulate`], [`Error::Argument`] for a weight that is negative or not finite, and on all ranks where all
/// weights are 0.
#[track_caller]
pub fn accumulate_weighted<B>(
    k: usize,
    batches: &mut impl Iterator<Item = Result<B>>,
    model: &impl GradientSync,
    scaler: Option<&GradScaler>,
    group: &ProcessGroup,
    mut weight: impl FnMut(&B) -> f64,
    mut loss: impl FnMut(&B) -> Tensor,
) -> Result<Option<Accumulated<B>>> {
    const CALL: &str = "accumulate_weighted";
    let batches = take(CALL, k, batches)?;
    if batches.is_empty() {
        return Ok(None);
    }
    let weights: Vec<f64> = batches.iter().map(&mut weight).collect();
    if let Some(wrong) = weights.iter().find(|w| !(**w >= 0.0 && w.is_finite())) {
        return Err(Error::argument(
            CALL,
            "weight",
            format!("{wrong}; must be 0 or more, and finite"),
        ));
    }
    let total = Tensor::from_slice(&[weights.iter().sum::<f64>()], [1]);
    group.all_reduce(&total, ReduceOp::Sum)?;
    let total = total.item();
    if total == 0.0 {
        return Err(Error::argument(
            CALL,
            "weight",
            "all batches of all ranks have weight 0; one must count",
        ));
    }
    // The ranks' gradients are averaged, so that each is of its part times their number.
    let share = group.world_size() as f64 / total;
    let mine = add_up(&batches, model, scaler, |batch| (loss(batch), share));
    let loss = Tensor::from_slice(&[mine], [1]);
    group.all_reduce(&loss, ReduceOp::Avg)?;
    Ok(Some(Accumulated { loss: loss.item(), batches }))
}

#[track_caller]
fn take<B>(call: &str, k: usize, batches: &mut impl Iterator<Item = Result<B>>) -> Result<Vec<B>> {
    match k {
        0 => Err(Error::argument(call, "k", "0; a step is made of at least 1 batch")),
        _ => batches.take(k).collect(),
    }
}

/// Adds up the gradients of the losses, each times its share, and gives the sum of these.
#[track_caller]
fn add_up<B>(
    batches: &[B],
    model: &impl GradientSync,
    scaler: Option<&GradScaler>,
    mut loss: impl FnMut(&B) -> (Tensor, f64),
) -> f64 {
    let mut sum = 0.0;
    let mut backward = |batch: &B| {
        let (loss, share) = loss(batch);
        let part = if share == 1.0 { loss } else { loss * share };
        match scaler {
            Some(scaler) => scaler.scale(&part).backward(),
            None => part.backward(),
        }
        sum += part.item();
    };
    let (last, others) = batches.split_last().expect("at least one batch");
    others.iter().for_each(|batch| model.without_sync(&mut || backward(batch)));
    backward(last);
    sum
}
