//! The `DataLoader`: batches of a dataset in a sampler's order, made in this process or by worker
//! processes, resumable in mid-epoch.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::arena::{Slot, Slots};
use super::assemble::{Failure, Space, assemble};
use super::builder::DataLoaderBuilder;
use super::columns::Columns;
use super::control::Dimensions;
use super::dataset::{Batch, Dataset, WorkerInfo, set_worker_info};
use super::layout::BatchLayout;
use super::plan::Plan;
use super::pool::{Collected, Pool};
use super::position::{LoaderState, Run, Start};
use super::sample::Sample;
use super::samplers::{BatchSampler, RandomSampler, SequentialSampler};
use super::upload::Ready;
use crate::error::{Error, Result};
use crate::ops::random::seed_by_hand;
use crate::profiler::{self, Category};
use crate::tensor::Device;

/// Batches of a dataset (`torch.utils.data.DataLoader`).
///
/// - The order is a pure function of (seed, epoch): it does not depend on the number of workers, and
///   every epoch has its own. [`state_dict`](Self::state_dict) is a position in it.
/// - With [`workers`](DataLoaderBuilder::workers) the samples are read by that many processes, which
///   live as long as the loader. They write into shared memory, where the batch's tensors are views:
///   nothing is copied in this process, and the memory is used again when the last tensor of the
///   batch is dropped.
/// - Dropping the loader ends its workers; one that is in the middle of a sample has a tenth of a
///   second to finish it.
/// - A dataset that fails, a worker that dies or hangs is an [`Err`] item that names the index, the
///   worker and the cause.
///
/// ```
/// use torchrs::data::{DataLoader, datasets::Digits};
/// let loader = DataLoader::builder(Digits::train()).batch_size(64).shuffle(true).build()?;
/// for batch in &loader {
///     let (images, labels) = batch?;
///     assert_eq!(images.shape()[1..], [1, 8, 8]);
///     assert_eq!(labels.shape()[0], images.shape()[0]);
/// }
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct DataLoader<D: Dataset> {
    dataset: Arc<D>,
    plan: Plan,
    workers: usize,
    start_workers: StartWorkers<D>,
    prefetch_factor: usize,
    timeout: Option<Duration>,
    device: Device,
    inner: Mutex<Inner>,
    ahead: Mutex<Option<Ahead<Batch<D>>>>,
}

/// Starts workers over a dataset with a seed. It stands for the function that each of them runs first.
pub(super) type StartWorkers<D> = fn(&Arc<D>, u64, Dimensions) -> Result<Pool>;

/// The next batch of an iteration, on its way to a device while the one before is in use.
struct Ahead<B> {
    run: u64,
    made: Result<Ready<B>>,
}

struct Inner {
    seed: u64,
    /// Where the next iteration starts.
    next: Start,
    /// The position that was loaded and not used yet: `set_epoch` with its epoch keeps it.
    loaded: Option<Start>,
    /// The current iteration, or how far the last one came.
    run: Option<Run>,
    /// How many iterations were started.
    runs: u64,
    engine: Option<Engine>,
}

/// Who makes batches.
enum Engine {
    Here(Slots),
    Workers(Pool),
}

impl<D: Dataset> DataLoader<D> {
    /// Options for a loader over `dataset`.
    pub fn builder(dataset: D) -> DataLoaderBuilder<D> {
        DataLoaderBuilder::new(dataset)
    }

    pub(super) fn new(options: DataLoaderBuilder<D>, batches: BatchSampler) -> Self {
        let DataLoaderBuilder { dataset, shuffle, sampler, batch_sampler, .. } = options;
        let len = dataset.len();
        let sampler = sampler.unwrap_or_else(|| match shuffle {
            true => Box::new(RandomSampler::new(len)),
            false => Box::new(SequentialSampler::new(len)),
        });
        DataLoader {
            dataset: Arc::new(dataset),
            plan: batch_sampler.map_or(Plan::Samples { sampler, batches }, Plan::Batches),
            workers: options.workers,
            start_workers: options.start_workers,
            prefetch_factor: options.prefetch_factor,
            timeout: options.timeout,
            device: options.device,
            ahead: Mutex::new(None),
            inner: Mutex::new(Inner {
                seed: options.seed.or_else(seed_by_hand).unwrap_or(0),
                next: Start::of_epoch(0),
                loaded: None,
                run: None,
                runs: 0,
                engine: None,
            }),
        }
    }

    /// An epoch without a batch, of a dataset that has samples, is an error.
    pub(super) fn refuse_no_batch(&self) -> Result<()> {
        self.plan.refuse_no_batch(self.dataset.len())
    }

    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// Batches in a whole epoch, on this rank.
    pub fn len(&self) -> usize {
        self.plan.len()
    }

    /// True when an epoch has no batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Chooses the epoch of the next iteration. Without it, epochs count up from 0. After
    /// [`load_state_dict`](Self::load_state_dict), choosing the loaded epoch keeps the loaded
    /// position in it.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Digits};
    /// let loader = DataLoader::builder(Digits::all()).batch_size(500).shuffle(true).build()?;
    /// let labels = || loader.iter().next().unwrap().unwrap().1.to_vec::<i64>();
    /// let (first, second) = (labels(), labels());
    /// loader.set_epoch(0);
    /// assert!(labels() == first && first != second);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn set_epoch(&self, epoch: u64) {
        let mut inner = self.inner.lock();
        let loaded = inner.loaded.filter(|loaded| loaded.epoch == epoch);
        inner.next = loaded.unwrap_or(Start::of_epoch(epoch));
        if inner.run.as_ref().is_some_and(|run| !run.live) {
            inner.run = None;
        }
    }

    /// The batches of the next epoch, or what is left of it after a resume. A loader has one
    /// iteration at a time: a new one ends the one before.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Synthetic};
    /// let loader = DataLoader::builder(Synthetic::new(10)).batch_size(4).build()?;
    /// let mut samples = 0;
    /// for batch in loader.iter() {
    ///     samples += batch?.1.numel();
    /// }
    /// assert_eq!(samples, 10);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, D> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.cancel();
        *self.ahead.lock() = None;
        let start = inner.next;
        inner.next = Start::of_epoch(start.epoch + 1);
        inner.loaded = None;
        inner.runs += 1;
        inner.run = Some(self.plan.run(inner.runs, inner.seed, start, self.dataset.len()));
        // Workers start on the first batches now, while the caller is still getting ready.
        if let Err(error) = self.prefetch(inner) {
            inner.fail(error);
        }
        Iter { loader: self, id: inner.runs, over: false }
    }

    /// Where the iteration is: after the last batch that was yielded. To be saved with a checkpoint.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Synthetic};
    /// let loader = DataLoader::builder(Synthetic::new(10)).batch_size(4).build()?;
    /// assert_eq!(loader.iter().take(2).count(), 2);
    /// assert_eq!(loader.state_dict().position, 8);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn state_dict(&self) -> LoaderState {
        let inner = self.inner.lock();
        let (start, finished) = match &inner.run {
            Some(run) => (run.position(), run.finished),
            None => (inner.next, false),
        };
        LoaderState {
            seed: inner.seed,
            epoch: start.epoch,
            position: start.position * self.plan.num_replicas(),
            finished,
            dataset_len: self.dataset.len(),
            sampler_seed: self.plan.own_seed(),
            counts_batches: self.plan.counts_batches(),
        }
    }

    /// Continues from a saved position: the next iteration yields what came after it, with the saved
    /// seed, whatever the number of workers (and of ranks, as long as the position divides among
    /// them). After the end of an epoch it is the next epoch.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Synthetic};
    /// let loader = || DataLoader::builder(Synthetic::new(10)).batch_size(3).build();
    /// let (stopped, resumed) = (loader()?, loader()?);
    /// stopped.iter().next();
    /// resumed.load_state_dict(&stopped.state_dict())?;
    /// assert_eq!(resumed.iter().next().unwrap()?.1.to_vec::<i64>(), [3, 4, 5]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when the state belongs to another dataset or another order, or lies between two
    /// of this rank's samples.
    pub fn load_state_dict(&self, state: &LoaderState) -> Result<()> {
        let start = self.plan.start(state, self.dataset.len())?;
        let mut inner = self.inner.lock();
        if inner.seed != state.seed {
            // Workers know the seed from their start.
            inner.engine = None;
            inner.seed = state.seed;
        }
        inner.cancel();
        inner.run = None;
        inner.loaded = Some(start);
        inner.next = match state.finished {
            true => Start::of_epoch(state.epoch + 1),
            false => start,
        };
        Ok(())
    }

    /// Starts workers if there is anything to do, and publishes as many batches as they may have.
    fn prefetch(&self, inner: &mut Inner) -> Result<()> {
        let Some(run) = inner.run.as_mut().filter(|run| run.live && run.failed.is_none()) else {
            return Ok(());
        };
        if self.workers == 0 || run.published == run.order.len() {
            return Ok(());
        }
        let engine = match &mut inner.engine {
            Some(engine) => engine,
            none => {
                let dimensions = Dimensions {
                    workers: self.workers,
                    tasks: self.workers * self.prefetch_factor,
                    batch_size: self.plan.batch_size(),
                };
                let pool = (self.start_workers)(&self.dataset, inner.seed, dimensions)?;
                none.insert(Engine::Workers(pool))
            }
        };
        if let Engine::Workers(pool) = engine {
            while pool.has_room() && run.published < run.order.len() {
                let batch = run.batch_at(run.published);
                let len = batch.len();
                pool.publish(batch, run.epoch)?;
                run.published += len;
            }
        }
        Ok(())
    }

    /// The next item of iteration `id`, which is over after a `None` or once `over` is set.
    fn next(&self, id: u64, over: &mut bool) -> Option<Result<Batch<D>>> {
        let _span = profiler::span("DataLoader", Category::Data);
        let _phase = profiler::Phase::data();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let run = inner.run.as_mut().filter(|run| run.id == id);
        let Some(run) = run else {
            *over = true;
            let message = "a newer iteration of this DataLoader has begun; this one is over";
            return Some(Err(Error::Other(message.to_owned())));
        };
        if !run.live {
            return None;
        }
        if let Some(error) = run.failed.take() {
            run.live = false;
            return Some(Err(error));
        }
        if run.yielded == run.order.len() {
            (run.live, run.finished) = (false, true);
            return None;
        }
        let ahead = self.ahead.lock().take().filter(|ahead| ahead.run == id);
        let made = match (ahead, self.workers) {
            (Some(ahead), _) => {
                run.yielded += run.batch_at(run.yielded).len();
                self.prefetch(inner).and(ahead.made)
            }
            (None, 0) => self.make(inner),
            (None, _) => self.collect(inner),
        };
        let made = made.and_then(Ready::take);
        if made.is_ok() && self.device.is_cuda() {
            self.send_ahead(inner);
        }
        Some(made.inspect_err(|error| {
            // A dataset's error concerns its batch; after any other there is nothing to go on with.
            if !matches!(error, Error::Dataset { .. }) {
                inner.engine = None;
                if let Some(run) = &mut inner.run {
                    run.live = false;
                }
            }
        }))
    }

    /// Starts to copy the batch after the one that is yielded, if workers have finished it.
    fn send_ahead(&self, inner: &mut Inner) {
        let (Some(Engine::Workers(pool)), Some(run)) = (&mut inner.engine, &inner.run) else {
            return;
        };
        if !pool.has_next() || run.yielded == run.order.len() {
            return;
        }
        let made = match pool.collect(self.timeout) {
            Ok(Some(Collected::Batch(layout, slot))) => self.batch(layout, slot),
            Ok(Some(Collected::Failed(error))) | Err(error) => Err(error),
            Ok(Some(Collected::Nothing)) => Err(lost()),
            Ok(None) => return,
        };
        *self.ahead.lock() = Some(Ahead { run: run.id, made });
    }

    /// The next batch, from the workers.
    fn collect(&self, inner: &mut Inner) -> Result<Ready<Batch<D>>> {
        self.prefetch(inner)?;
        let (Some(Engine::Workers(pool)), Some(run)) = (&mut inner.engine, &mut inner.run) else {
            return Err(Error::Other("DataLoader: there are no workers".to_owned()));
        };
        // Tasks of an abandoned iteration can fill the ring: then none of ours is in flight yet.
        let collected = loop {
            match pool.collect(self.timeout)? {
                Some(collected) => break collected,
                None if run.published > run.yielded => {
                    return Err(lost());
                }
                None => {
                    let batch = run.batch_at(run.published);
                    let len = batch.len();
                    pool.publish(batch, run.epoch)?;
                    run.published += len;
                }
            }
        };
        run.yielded += run.batch_at(run.yielded).len();
        self.prefetch(inner)?;
        match collected {
            Collected::Batch(layout, slot) => self.batch(layout, slot),
            Collected::Failed(error) => Err(error),
            Collected::Nothing => Err(lost()),
        }
    }

    /// The next batch, made here.
    fn make(&self, inner: &mut Inner) -> Result<Ready<Batch<D>>> {
        let engine = inner.engine.get_or_insert_with(|| Engine::Here(Slots::new(2)));
        let (Engine::Here(slots), Some(run)) = (engine, &mut inner.run) else {
            return Err(Error::Other("DataLoader: there are workers".to_owned()));
        };
        let indices = run.batch_at(run.yielded).to_vec();
        run.yielded += indices.len();
        let info = WorkerInfo { seed: inner.seed, epoch: run.epoch, ..WorkerInfo::default() };
        set_worker_info(info);
        let result = assemble(&*self.dataset, indices.iter().copied(), &mut Here(slots));
        set_worker_info(WorkerInfo::default());
        match result {
            Ok(Some((layout, slot))) => self.batch(layout, slot),
            Ok(None) => Err(Error::Other("DataLoader: a batch that nobody wants".to_owned())),
            Err(Failure::Dataset { index, message }) => {
                let worker = "the main process".to_owned();
                Err(Error::Dataset { index, worker, message })
            }
            Err(Failure::Loader(error)) => Err(error),
        }
    }

    /// The batch over a finished slot.
    fn batch(&self, layout: BatchLayout, slot: Slot) -> Result<Ready<Batch<D>>> {
        let (memory, start) = (slot.arena().memory.clone(), slot.start());
        let mut columns = Columns::new(layout, memory, start, Arc::new(slot), self.device);
        Ready::new(self.device, || D::Sample::batch(&mut columns))
    }
}

impl Inner {
    /// Ends the current iteration; what workers have of it is not wanted any more.
    fn cancel(&mut self) {
        if let Some(run) = &mut self.run {
            run.live = false;
        }
        if let Some(Engine::Workers(pool)) = &mut self.engine {
            pool.cancel_all();
        }
    }

    /// Makes the current iteration's next item this error.
    fn fail(&mut self, error: Error) {
        self.engine = None;
        if let Some(run) = &mut self.run {
            run.failed = Some(error);
        }
    }
}

/// A wanted batch that nobody made.
fn lost() -> Error {
    Error::Other("DataLoader: a batch got lost".to_owned())
}

/// Batches that are made in this process.
struct Here<'a>(&'a mut Slots);

impl Space for Here<'_> {
    fn take(&mut self, bytes: usize) -> Result<Slot> {
        self.0.take(bytes).map(|(slot, _)| slot)
    }

    /// The batch is used right away, by this thread.
    fn is_streaming(&self, _bytes: usize) -> bool {
        false
    }

    fn reading(&mut self, _index: usize) -> bool {
        true
    }
}

/// The batches of an epoch; made by [`DataLoader::iter`].
///
/// After an [`Error::Dataset`] the iteration goes on with the next batch; after any other error it
/// is over, and the next one starts new workers.
///
/// ```
/// use torchrs::data::{DataLoader, Iter, datasets::Synthetic};
/// let loader = DataLoader::builder(Synthetic::new(10)).batch_size(4).build()?;
/// let mut batches: Iter<Synthetic> = loader.iter();
/// assert_eq!(batches.next().unwrap()?.1.to_vec::<i64>(), [0, 1, 2, 3]);
/// assert_eq!(batches.count(), 2);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct Iter<'a, D: Dataset> {
    loader: &'a DataLoader<D>,
    id: u64,
    /// A newer iteration took over, and this one has said so.
    over: bool,
}

impl<D: Dataset> Iterator for Iter<'_, D> {
    type Item = Result<Batch<D>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over { None } else { self.loader.next(self.id, &mut self.over) }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let inner = self.loader.inner.lock();
        let left = inner.run.as_ref().filter(|run| run.id == self.id && run.live);
        let left = left.map_or(0, Run::left);
        (0, Some(left + 1))
    }
}

impl<D: Dataset> Drop for Iter<'_, D> {
    fn drop(&mut self) {
        let mut inner = self.loader.inner.lock();
        if inner.run.as_ref().is_some_and(|run| run.id == self.id && run.live) {
            inner.cancel();
        }
    }
}

impl<'a, D: Dataset> IntoIterator for &'a DataLoader<D> {
    type Item = Result<Batch<D>>;
    type IntoIter = Iter<'a, D>;
    fn into_iter(self) -> Iter<'a, D> {
        self.iter()
    }
}
