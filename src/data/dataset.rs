//! What a dataset is, and what one may know about where its `get` runs.

use std::cell::Cell;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::compose::TransformDataset;
use super::sample::Sample;
use super::transforms::Compose;
use crate::cpu::numbers::philox::{PhiloxStream, philox4x32_10};
use crate::error::Result;
use crate::ops::random::{GeneratorState, fork_rng_at};
use crate::tensor::Tensor;

/// A map-style dataset (`torch.utils.data.Dataset`): a *description* of the data that can be
/// serialised, and `get(index)`.
///
/// Loader workers are processes: each receives the serialised description and opens what is
/// expensive (files, decoded arrays, database connections) for itself, lazily:
///
/// ```
/// use std::sync::OnceLock;
/// use serde::{Deserialize, Serialize};
/// use torchrs::{Result, data::Dataset};
///
/// #[derive(Serialize, Deserialize)]
/// struct Squares {
///     len: usize,
///     #[serde(skip)]
///     table: OnceLock<Vec<i64>>,
/// }
///
/// impl Dataset for Squares {
///     type Sample = (i64, f32);
///     fn len(&self) -> usize {
///         self.len
///     }
///     fn get(&self, index: usize) -> Result<(i64, f32)> {
///         let table = self.table.get_or_init(|| (0..self.len as i64).map(|i| i * i).collect());
///         Ok((table[index], index as f32))
///     }
/// }
/// ```
pub trait Dataset: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What `get` returns.
    type Sample: Sample;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Sample number `index`, which is below [`len`](Self::len). A failure or panic here becomes
    /// [`Error::Dataset`](crate::Error::Dataset) in the training process, with the index and the worker named.
    ///
    /// Random numbers in here are reproducible by three ways, each a pure function of the loader's seed,
    /// the epoch and `index`, for any number of workers:
    ///
    /// - tensor ops (`Tensor::rand`, `dropout`, `randperm`): the loader gives each sample a default
    ///   generator of its own, on the thread that calls `get`, and leaves the program's alone;
    /// - numbers one by one: [`sample_random`];
    /// - other crates' generators: `StdRng::seed_from_u64(sample_seed(index))`, with [`sample_seed`].
    fn get(&self, index: usize) -> Result<Self::Sample>;

    /// True when there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same samples with transformed images, by one transform or a [`Compose`] (`transform` of torchvision's datasets). Random transforms draw from the
    /// sample's own numbers, as [`get`](Self::get) says.
    ///
    /// ```
    /// use torchrs::data::transforms::RandomCrop;
    /// use torchrs::data::{Dataset, datasets::Digits};
    /// let digits = Digits::train().transform(RandomCrop::new([8, 8]).padding([1; 4]));
    /// assert_eq!((digits.len(), digits.get(0)?.0.shape()), (1438, &[1, 8, 8][..]));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    fn transform<T>(self, transform: impl Into<Compose>) -> TransformDataset<Self>
    where
        Self: Dataset<Sample = (Tensor, T)> + Sized,
    {
        TransformDataset::new(self, transform.into())
    }
}

/// What a [`DataLoader`](super::DataLoader) over a dataset `D` yields.
///
/// ```
/// use torchrs::{Tensor, data::{Batch, DataLoader, datasets::Digits}};
/// fn images(batch: Batch<Digits>) -> Tensor { batch.0 }
/// let loader = DataLoader::builder(Digits::all()).batch_size(5).build()?;
/// assert_eq!(images(loader.iter().next().unwrap()?).shape(), [5, 1, 8, 8]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub type Batch<D> = <<D as Dataset>::Sample as Sample>::Batch;

/// Where a `get` runs, and for which epoch (`torch.utils.data.get_worker_info`).
///
/// ```
/// # use torchrs::{Result, data::{DataLoader, Dataset, worker_info}};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Info;
/// impl Dataset for Info {
/// #     type Sample = i64;
/// #     fn len(&self) -> usize { 2 }
///     fn get(&self, _: usize) -> Result<i64> { Ok(worker_info().num_workers as i64) }
/// }
/// let loader = DataLoader::builder(Info).batch_size(2).workers(3).build()?;
/// assert_eq!(loader.iter().next().unwrap()?.to_vec::<i64>(), [3, 3]);
/// assert_eq!(worker_info().worker, None);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Number of the loader worker; `None` in the main process.
    pub worker: Option<usize>,
    /// How many workers the loader has.
    pub num_workers: usize,
    /// The loader's seed.
    pub seed: u64,
    /// The epoch that the sample is read for.
    pub epoch: u64,
    /// The sample that is being read: its index, or in a stream its number, which is another for each
    /// sample of an epoch on all ranks. To be given to [`sample_random`] where `get`'s index is out of reach.
    pub index: Option<usize>,
}

thread_local! {
    static INFO: Cell<WorkerInfo> = const {
        Cell::new(WorkerInfo { worker: None, num_workers: 0, seed: 0, epoch: 0, index: None })
    };
}

/// Where the running [`Dataset::get`] was called from. Outside a `DataLoader` all is zero.
///
/// ```
/// # use torchrs::{Result, data::{DataLoader, Dataset, worker_info}};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Info;
/// impl Dataset for Info {
/// #     type Sample = i64;
/// #     fn len(&self) -> usize { 2 }
///     fn get(&self, _: usize) -> Result<i64> { Ok(worker_info().epoch as i64) }
/// }
/// let loader = DataLoader::builder(Info).batch_size(2).build()?;
/// loader.set_epoch(7);
/// assert_eq!(loader.iter().next().unwrap()?.to_vec::<i64>(), [7, 7]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub fn worker_info() -> WorkerInfo {
    INFO.get()
}

pub(super) fn set_worker_info(info: WorkerInfo) {
    INFO.set(info);
}

/// Random numbers for the augmentation of sample `index`: a pure function of the loader's seed, the
/// epoch and the index, so that they do not depend on the number of workers and are the same after
/// a resume.
///
/// ```
/// use torchrs::data::sample_random;
/// assert_eq!(sample_random(3).uniform(), sample_random(3).uniform());
/// assert_ne!(sample_random(3).uniform(), sample_random(4).uniform());
/// ```
pub fn sample_random(index: usize) -> SampleRandom {
    SampleRandom(stream(Purpose::SampleRandom, index))
}

/// A seed for another crate's generator in [`Dataset::get`]: a pure function of the loader's seed, the
/// epoch and the index, as [`sample_random`] is. A generator seeded otherwise, or kept from sample to
/// sample, depends on the number of workers.
///
/// ```
/// # use torchrs::{Result, data::{DataLoader, Dataset, sample_seed}};
/// # use std::{collections::hash_map::DefaultHasher, hash::{Hash, Hasher}};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Noise;
/// # struct StdRng(DefaultHasher);
/// # impl StdRng {
/// #     fn seed_from_u64(seed: u64) -> Self { let mut h = DefaultHasher::new(); seed.hash(&mut h); StdRng(h) }
/// #     fn next_u64(&self) -> u64 { self.0.finish() >> 1 }
/// # }
/// impl Dataset for Noise {
///     type Sample = i64;
///     fn get(&self, index: usize) -> Result<i64> {
///         let rng = StdRng::seed_from_u64(sample_seed(index)); // of the crate `rand`
///         Ok(rng.next_u64() as i64)
///     }
/// #     fn len(&self) -> usize { 4 }
/// }
/// let draw = |workers| {
///     let loader = DataLoader::builder(Noise).batch_size(4).seed(7).workers(workers).build().unwrap();
///     loader.iter().next().unwrap().unwrap().to_vec::<i64>()
/// };
/// assert_eq!(draw(0), draw(2));
/// ```
pub fn sample_seed(index: usize) -> u64 {
    stream(Purpose::Seed, index).next_u64()
}

/// Runs `f`, which reads sample `index`, with a default generator of its own.
pub(super) fn with_generator<R>(index: usize, f: impl FnOnce() -> R) -> R {
    let seed = stream(Purpose::Generator, index).next_u64();
    let outer = INFO.get();
    INFO.set(WorkerInfo { index: Some(index), ..outer });
    let made = fork_rng_at(GeneratorState { seed, offset: 0 }, f);
    INFO.set(outer);
    made
}

/// What a sample's random numbers are for: each purpose has numbers of its own.
#[derive(Clone, Copy)]
enum Purpose {
    SampleRandom = 1,
    Generator,
    Seed,
}

/// The numbers of sample `index` for a purpose.
fn stream(purpose: Purpose, index: usize) -> PhiloxStream {
    let WorkerInfo { seed, epoch, .. } = worker_info();
    // A key of its own for every epoch, away from the seed itself, which orders the samplers.
    let counter = [epoch as u32, (epoch >> 32) as u32, 0x5A3D_91C7, purpose as u32];
    let key = philox4x32_10(counter, [seed as u32, (seed >> 32) as u32]);
    let key = u64::from(key[0]) | u64::from(key[1]) << 32;
    PhiloxStream::new(key, index as u64)
}

/// The random numbers of [`sample_random`].
///
/// ```
/// use torchrs::data::{SampleRandom, sample_random};
/// let mut random: SampleRandom = sample_random(0);
/// let mut again = random.clone();
/// assert_eq!((random.uniform(), random.below(6)), (again.uniform(), again.below(6)));
/// assert_ne!(random.uniform(), random.uniform());
/// ```
#[derive(Debug, Clone)]
pub struct SampleRandom(PhiloxStream);

impl SampleRandom {
    /// A uniform number in [0, 1).
    pub fn uniform(&mut self) -> f32 {
        self.0.uniform()
    }

    /// A uniform integer in `0..bound`.
    ///
    /// ```
    /// let mut random = torchrs::data::sample_random(0);
    /// let thrown: std::collections::BTreeSet<u64> = (0..100).map(|_| random.below(6)).collect();
    /// assert_eq!(thrown, (0..6).collect());
    /// ```
    ///
    /// # Panics
    /// When `bound` is 0.
    #[track_caller]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A standard normal number.
    pub fn normal(&mut self) -> f32 {
        self.0.normal_pair()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn augmentation_depends_on_seed_epoch_and_index_alone() {
        let draw = |seed, epoch, index, worker| {
            set_worker_info(WorkerInfo { seed, epoch, worker, num_workers: 3, index: None });
            let mut random = sample_random(index);
            let drawn =
                (random.below(1 << 40), random.uniform().to_bits(), random.normal().to_bits());
            (
                drawn,
                sample_seed(index),
                with_generator(index, || crate::tensor::Tensor::randperm(9).to_vec::<i64>()),
            )
        };
        let reference = draw(1, 2, 3, None);
        assert_eq!(reference, draw(1, 2, 3, Some(1)));
        for other in [draw(0, 2, 3, None), draw(1, 3, 3, None), draw(1, 2, 4, None)] {
            assert_ne!(reference.0, other.0);
            assert_ne!(reference.1, other.1);
            assert_ne!(reference.2, other.2);
        }
        set_worker_info(WorkerInfo::default());
    }
}
