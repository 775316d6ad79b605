//! The options of a `StreamLoader`.

use std::time::Duration;

use torchrs_job::cluster::told_rank;

use super::iterable::IterableDataset;
use super::loader::StreamLoader;
use super::worker::{self, Start};
use crate::data::dataset::WorkerInfo;
use crate::data::sample::Sample;
use crate::error::{Error, Result};
use crate::tensor::Device;

/// What happens where ranks have different numbers of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Uneven {
    /// All ranks stop when the first one has no more: some samples are left out of the epoch.
    Cut,
    /// All ranks go on until the last one has no more: the others give samples of the epoch's beginning again.
    Repeat,
}

/// Options of a [`StreamLoader`]; made by [`StreamLoader::builder`].
pub struct StreamLoaderBuilder<S> {
    pub(super) dataset: S,
    pub(super) batch_size: usize,
    pub(super) drop_last: bool,
    pub(super) ranks: Option<(usize, usize)>,
    pub(super) workers: usize,
    pub(super) lanes: Option<usize>,
    pub(super) prefetch_factor: usize,
    pub(super) seed: Option<u64>,
    pub(super) shuffle_shards: bool,
    pub(super) batches_per_epoch: Option<u64>,
    pub(super) uneven: Option<Uneven>,
    pub(super) timeout: Option<Duration>,
    pub(super) device: Device,
    pub(super) start_worker: Start<S>,
    has_worker_init: bool,
}

impl<S: IterableDataset> StreamLoaderBuilder<S>
where
    S::Sample: Sample,
{
    pub(super) fn new(dataset: S) -> Self {
        StreamLoaderBuilder {
            dataset,
            batch_size: 1,
            drop_last: false,
            ranks: None,
            workers: 0,
            lanes: None,
            prefetch_factor: 2,
            seed: None,
            shuffle_shards: false,
            batches_per_epoch: None,
            uneven: None,
            timeout: None,
            device: Device::Cpu,
            start_worker: start_worker(|_| Ok(())),
            has_worker_init: false,
        }
    }

    /// Samples in a batch (default: 1). They are all of one lane.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Whether a lane's last batch is left out when it is smaller (default: false).
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// How many ranks share the stream, and which this is. In a job of several ranks it has to be said: `ranks(1, 0)`
    /// reads the whole stream on each.
    #[must_use]
    pub fn ranks(mut self, world_size: usize, rank: usize) -> Self {
        self.ranks = Some((world_size, rank));
        self
    }

    /// How many processes of this rank read samples; 0 (the default) reads them in this process. A program with
    /// workers calls [`torchrs::init`](crate::init) first of all.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Into how many lanes the stream is divided, on all ranks together: a multiple of the number of ranks (default:
    /// one for each worker of each rank). The order depends on it, and not on the workers.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// How many batches per worker are made ahead (default: 2).
    #[must_use]
    pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
        self.prefetch_factor = prefetch_factor;
        self
    }

    /// Seed of shuffles and of random numbers in maps, the same on all ranks (default: 0).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Whether files are in a new random order in every pass (default: false).
    #[must_use]
    pub fn shuffle_shards(mut self, shuffle_shards: bool) -> Self {
        self.shuffle_shards = shuffle_shards;
        self
    }

    /// Makes epochs of this many batches on each rank. The stream goes on from epoch to epoch, and begins again (in a
    /// new order) when all of a rank's lanes have ended.
    #[must_use]
    pub fn batches_per_epoch(mut self, batches: u64) -> Self {
        self.batches_per_epoch = Some(batches);
        self
    }

    /// What happens where ranks have different numbers of batches. The samples are counted for it, for which all
    /// files of JSON, CSV or tar are read once in each process.
    #[must_use]
    pub fn uneven(mut self, uneven: Uneven) -> Self {
        self.uneven = Some(uneven);
        self
    }

    /// The longest wait for a batch of the workers (default: for ever; a worker that dies ends the wait).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The device on which batches' tensors are (default: the CPU).
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// What each worker process runs before its first sample, as
    /// [`DataLoaderBuilder::worker_init`](crate::data::DataLoaderBuilder::worker_init).
    ///
    /// ```
    /// use torchrs::data::stream::{JsonLines, StreamLoader};
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// # std::fs::write(file.path(), "1").unwrap();
    /// torchrs::init();
    /// let options = StreamLoader::builder(JsonLines::<i64>::new(file.path())?).workers(1);
    /// let options = options.worker_init(|info| Err(torchrs::Error::Other(format!("{:?} cannot", info.worker))));
    /// let error = options.build()?.iter().next().unwrap().unwrap_err().to_string();
    /// assert!(error.contains("Some(0) cannot"), "{error}");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn worker_init<F>(mut self, f: F) -> Self
    where
        F: Fn(WorkerInfo) -> Result<()> + Copy + 'static,
    {
        self.start_worker = start_worker(f);
        self.has_worker_init = true;
        self
    }

    /// The loader. Workers start with the first iteration.
    ///
    /// Several ranks must yield equally many batches, else those that have more wait for the others for ever
    /// (`DistributedDataParallel`). So with several ranks either
    /// [`batches_per_epoch`](Self::batches_per_epoch) or [`uneven`](Self::uneven) is wanted.
    ///
    /// ```
    /// use torchrs::data::stream::{StreamLoader, TokenFiles, TokenType, Uneven};
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// # std::fs::write(file.path(), [0; 82]).unwrap();
    /// let windows = || TokenFiles::new(file.path(), TokenType::U16, 8).unwrap(); // 5 windows
    /// let error = StreamLoader::builder(windows()).ranks(2, 0).build().err().unwrap().to_string();
    /// assert!(error.contains("batches_per_epoch(n)"), "{error}");
    /// for rank in 0..2 {
    ///     let loader = StreamLoader::builder(windows()).ranks(2, rank).uneven(Uneven::Cut).build()?;
    ///     assert_eq!(loader.iter().count(), 2);
    /// }
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when an option has a value that cannot be, when ranks are not named in a job of several,
    /// and when these could yield different numbers of batches.
    pub fn build(self) -> Result<StreamLoader<S>> {
        let wrong = |argument: &str, message: String| {
            Err(Error::argument("StreamLoader", argument, message))
        };
        let told = told_rank().map_or(1, |(_, world)| world);
        let (world_size, rank) = match self.ranks {
            Some(ranks) => ranks,
            None if told > 1 => {
                return wrong(
                    "ranks",
                    format!(
                        "is not given in a job of {told}: ranks(world_size, rank) shares the stream, ranks(1, 0) \
                         reads all of it on each"
                    ),
                );
            }
            None => (1, 0),
        };
        if rank >= world_size {
            return wrong("ranks", format!("rank is {rank}, must be below {world_size}"));
        }
        let zero = [
            ("batch_size", self.batch_size == 0),
            ("prefetch_factor", self.prefetch_factor == 0),
            ("lanes", self.lanes == Some(0)),
            ("batches_per_epoch", self.batches_per_epoch == Some(0)),
            ("timeout", self.timeout.is_some_and(|timeout| timeout.is_zero())),
        ];
        if let Some((argument, _)) = zero.iter().find(|(_, zero)| *zero) {
            return wrong(argument, "is 0, must be at least 1".to_owned());
        }
        if self.batches_per_epoch.is_some() && self.uneven.is_some() {
            return wrong(
                "uneven",
                "is given beside batches_per_epoch, by which ranks are even".into(),
            );
        }
        if world_size > 1 && self.batches_per_epoch.is_none() && self.uneven.is_none() {
            return wrong(
                "uneven",
                format!(
                    "is not given: {world_size} ranks could yield different numbers of batches, and training would \
                     hang; say batches_per_epoch(n), uneven(Uneven::Cut) or uneven(Uneven::Repeat)"
                ),
            );
        }
        let lanes = self.lanes.unwrap_or(world_size * self.workers.max(1));
        if !lanes.is_multiple_of(world_size) {
            return wrong("lanes", format!("is {lanes}, must be a multiple of {world_size} ranks"));
        }
        if lanes / world_size < self.workers {
            let message = format!(
                "is {}, more than the {} lanes of a rank: some would have nothing to do",
                self.workers,
                lanes / world_size
            );
            return wrong("workers", message);
        }
        if self.has_worker_init && self.workers == 0 {
            let message = "would never run: there are no workers; set workers(n)".to_owned();
            return wrong("worker_init", message);
        }
        self.device.check()?;
        StreamLoader::new(self, (world_size, rank), lanes)
    }
}

/// The function by which workers are started that begin with `f`.
fn start_worker<S, F>(_: F) -> Start<S>
where
    S: IterableDataset,
    S::Sample: Sample,
    F: Fn(WorkerInfo) -> Result<()> + Copy + 'static,
{
    worker::start::<S, F>
}
