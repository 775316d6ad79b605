//! The options of a `DataLoader`.

use std::io::{Write, stderr};
use std::sync::Once;
use std::time::Duration;

use torchrs_job::cluster::told_rank;

use super::dataset::{Dataset, WorkerInfo, worker_info};
use super::loader::{DataLoader, StartWorkers};
use super::pool::Pool;
use super::samplers::{BatchOrder, BatchSampler, DistributedSampler, Sampler, SubsetSampler};
use crate::error::{Error, Result};
use crate::tensor::Device;

/// Options of a [`DataLoader`]; made by [`DataLoader::builder`].
///
/// ```
/// use torchrs::data::{DataLoader, DataLoaderBuilder, datasets::Digits};
/// let options: DataLoaderBuilder<Digits> = DataLoader::builder(Digits::validation()).batch_size(100);
/// let loader = options.build()?;
/// let sizes: Vec<usize> = loader.iter().map(|batch| batch.unwrap().1.numel()).collect();
/// assert_eq!(sizes, [100, 100, 100, 59]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct DataLoaderBuilder<D: Dataset> {
    pub(super) dataset: D,
    pub(super) batch_size: usize,
    pub(super) shuffle: bool,
    pub(super) sampler: Option<Box<dyn Sampler>>,
    /// How many ranks share the samples, and which this is.
    ranks: Option<(usize, usize)>,
    pub(super) workers: usize,
    pub(super) prefetch_factor: usize,
    pub(super) drop_last: bool,
    pub(super) seed: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) device: Device,
    pub(super) batch_sampler: Option<Box<dyn BatchOrder>>,
    pub(super) start_workers: StartWorkers<D>,
    has_worker_init: bool,
}

impl<D: Dataset> DataLoaderBuilder<D> {
    pub(super) fn new(dataset: D) -> Self {
        DataLoaderBuilder {
            dataset,
            batch_size: 1,
            shuffle: false,
            sampler: None,
            ranks: None,
            workers: 0,
            prefetch_factor: 2,
            drop_last: false,
            seed: None,
            timeout: None,
            device: Device::Cpu,
            batch_sampler: None,
            start_workers: start_workers(|_| Ok(())),
            has_worker_init: false,
        }
    }

    /// Samples in a batch (default: 1).
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Whether every epoch has its own random order (default: false).
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Deals the samples out to ranks, in place of a sampler of one's own.
    ///
    /// | shuffle | dealt out by | each rank has |
    /// | --- | --- | --- |
    /// | true, for training | [`DistributedSampler`], whose seed is 0 | equally many: some samples twice, or by `drop_last` none |
    /// | false, for validation | [`SubsetSampler::share`] | one more or less: each sample once |
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Synthetic};
    /// let samples = |rank, shuffle| {
    ///     let loader = DataLoader::builder(Synthetic::new(5).classes(5)?).batch_size(5).shuffle(shuffle);
    ///     Ok(loader.ranks(2, rank).build()?.iter().next().unwrap()?.1.to_vec::<i64>())
    /// };
    /// assert_eq!((samples(0, false)?, samples(1, false)?), (vec![0, 2, 4], vec![1, 3]));
    /// assert_eq!((samples(0, true)?.len(), samples(1, true)?.len()), (3, 3));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn ranks(mut self, num_replicas: usize, rank: usize) -> Self {
        self.ranks = Some((num_replicas, rank));
        self
    }

    /// The order of the samples, instead of `shuffle`.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, SubsetSampler, datasets::Synthetic};
    /// let options = DataLoader::builder(Synthetic::new(10)).batch_size(2);
    /// let loader = options.sampler(SubsetSampler::new(vec![4, 2])).build()?;
    /// let (_, labels) = loader.iter().next().unwrap()?;
    /// assert_eq!(labels.to_vec::<i64>(), [4, 2]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler) -> Self {
        self.sampler = Some(Box::new(sampler));
        self
    }

    /// An order of whole batches, in place of `batch_size`, `shuffle`, `sampler` and `drop_last`.
    ///
    /// ```
    /// use torchrs::data::{BucketBatchSampler, DataLoader, datasets::Synthetic};
    /// let similar = BucketBatchSampler::new(&[5, 50, 6, 60], &[10], 2)?.shuffle(false);
    /// let loader = DataLoader::builder(Synthetic::new(4)).batch_sampler(similar).build()?;
    /// let labels: Vec<Vec<i64>> = loader.iter().map(|batch| batch.unwrap().1.to_vec()).collect();
    /// assert_eq!(labels, [[0, 2], [1, 3]]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn batch_sampler(mut self, batch_sampler: impl BatchOrder) -> Self {
        self.batch_sampler = Some(Box::new(batch_sampler));
        self
    }

    /// What each worker process runs before its first sample (`worker_init_fn`): a function or a closure that
    /// captures nothing, as it runs in another process. Its error ends the iteration.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Synthetic};
    /// torchrs::init();
    /// let options = DataLoader::builder(Synthetic::new(4)).workers(1);
    /// let options = options.worker_init(|info| match info.num_workers {
    ///     1 => Err(torchrs::Error::Other("one worker is not enough".into())),
    ///     _ => Ok(()),
    /// });
    /// let error = options.build()?.iter().next().unwrap().unwrap_err().to_string();
    /// assert!(error.contains("one worker is not enough"), "{error}");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn worker_init<F>(mut self, f: F) -> Self
    where
        F: Fn(WorkerInfo) -> Result<()> + Copy + 'static,
    {
        self.start_workers = start_workers(f);
        self.has_worker_init = true;
        self
    }

    /// How many processes read samples; 0 (the default) reads them in this process, when the batch
    /// is asked for. A program with workers calls [`torchrs::init`](crate::init) first of all, or has
    /// [`#[torchrs::main]`](macro@crate::main) on its `main`. Each worker computes with one thread.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Digits};
    /// torchrs::init();
    /// let loader = DataLoader::builder(Digits::all()).batch_size(1000).workers(2).build()?;
    /// let sizes: Vec<usize> = loader.iter().map(|batch| batch.unwrap().1.numel()).collect();
    /// assert_eq!(sizes, [1000, 797]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many batches per worker are made ahead (default: 2).
    #[must_use]
    pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
        self.prefetch_factor = prefetch_factor;
        self
    }

    /// Whether a last batch that would be smaller is left out (default: false). A loader of which no batch
    /// would be left is refused by [`build`](Self::build).
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Synthetic};
    /// let loader = DataLoader::builder(Synthetic::new(10)).batch_size(4).drop_last(true).build()?;
    /// assert_eq!(loader.iter().map(|batch| batch.unwrap().1.numel()).collect::<Vec<_>>(), [4, 4]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Seed of the order, of the default generator in [`Dataset::get`], of
    /// [`sample_random`](super::sample_random) and [`sample_seed`](super::sample_seed). Default: what
    /// [`manual_seed`](crate::manual_seed) was given before the loader is built, else 0. A
    /// [`DistributedSampler`](super::DistributedSampler) orders by a seed of its own.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Digits};
    /// let options = |seed| DataLoader::builder(Digits::all()).batch_size(1797).shuffle(true).seed(seed);
    /// let labels = |s| options(s).build().unwrap().iter().next().unwrap().unwrap().1.to_vec::<i64>();
    /// assert_eq!(labels(3), labels(3));
    /// assert_ne!(labels(3), labels(4));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The longest wait for a batch of the workers (default: for ever, as in PyTorch; a worker that
    /// dies ends the wait in any case).
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::{Error, Result, data::{DataLoader, Dataset}};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Slow;
    /// impl Dataset for Slow {
    /// #     type Sample = i64;
    /// #     fn len(&self) -> usize { 1 }
    ///     fn get(&self, _: usize) -> Result<i64> { sleep(Duration::from_secs(2)); Ok(0) }
    /// }
    /// let loader = DataLoader::builder(Slow).workers(1).timeout(Duration::from_millis(200)).build()?;
    /// let waited = loader.iter().next().unwrap();
    /// assert!(matches!(waited, Err(Error::Timeout { .. })));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The device on which batches' tensors are (default: the CPU). For a GPU the loader's memory is pinned, and
    /// each batch is copied from the worker's slot while the one before it is in use.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// The loader. Workers start with the first iteration.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, datasets::Digits};
    /// assert_eq!(DataLoader::builder(Digits::all()).build()?.len(), 1797);
    /// let error = DataLoader::builder(Digits::all()).batch_size(0).build().err().unwrap();
    /// assert_eq!(error.to_string(), "DataLoader: argument `batch_size`: is 0, must be at least 1");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when an option has a value that cannot be, or `drop_last` leaves no batch of a
    /// dataset that has samples.
    pub fn build(mut self) -> Result<DataLoader<D>> {
        let wrong =
            |argument: &str, message: &str| Err(Error::argument("DataLoader", argument, message));
        if self.batch_size == 0 {
            return wrong("batch_size", "is 0, must be at least 1");
        }
        self.device.check()?;
        let batches = BatchSampler::new(self.batch_size, self.drop_last)?;
        if self.prefetch_factor == 0 {
            return wrong("prefetch_factor", "is 0, must be at least 1");
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return wrong("timeout", "is 0, must be positive; leave it out to wait for ever");
        }
        if self.shuffle && self.sampler.is_some() {
            return wrong(
                "shuffle",
                "is true although a sampler, which has its own order, is given",
            );
        }
        if self.ranks.is_some() && (self.sampler.is_some() || self.batch_sampler.is_some()) {
            return wrong("ranks", "is given beside a sampler, which has its own share");
        }
        if self.batch_sampler.is_some() {
            let other = [
                ("batch_size", self.batch_size != 1),
                ("shuffle", self.shuffle),
                ("sampler", self.sampler.is_some()),
                ("drop_last", self.drop_last),
            ];
            if let Some((argument, _)) = other.into_iter().find(|(_, given)| *given) {
                return wrong(argument, "is given beside batch_sampler, which says it already");
            }
        }
        if self.has_worker_init && self.workers == 0 {
            return wrong("worker_init", "would never run: there are no workers; set workers(n)");
        }
        if let Some((num_replicas, rank)) = self.ranks {
            let len = self.dataset.len();
            self.sampler = Some(match self.shuffle {
                true => {
                    let sampler = DistributedSampler::new(len, num_replicas, rank)?;
                    Box::new(sampler.drop_last(self.drop_last))
                }
                false => Box::new(SubsetSampler::share(len, num_replicas, rank)?),
            });
        } else if self.shuffle {
            warn_of_whole_copies();
        }
        let loader = DataLoader::new(self, batches);
        loader.refuse_no_batch()?;
        Ok(loader)
    }
}

/// How workers start that run a function of this type first.
fn start_workers<D, F>(_: F) -> StartWorkers<D>
where
    D: Dataset,
    F: Fn(WorkerInfo) -> Result<()> + Copy + 'static,
{
    Pool::start::<D, F>
}

/// Says once, in a job of several ranks, that a shuffled loader without a sampler is not divided among them.
fn warn_of_whole_copies() {
    static SAID: Once = Once::new();
    let (rank, world) = told_rank().unwrap_or((0, 1));
    if world > 1 && rank == 0 && worker_info().worker.is_none() {
        SAID.call_once(|| {
            // Not `eprintln!`, which panics where nobody listens.
            let _ = writeln!(
                stderr(),
                "torchrs: a DataLoader with shuffle(true) reads the whole dataset on each of the {world} ranks; \
                 ranks({world}, rank) deals it out, sampler(RandomSampler::new(len)) \
                 says that this is meant"
            );
        });
    }
}
