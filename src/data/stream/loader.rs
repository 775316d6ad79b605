//! The `StreamLoader`: batches of a stream, read by this rank's part of the lanes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::builder::{StreamLoaderBuilder, Uneven};
use super::iterable::IterableDataset;
use super::lanes::{Lanes, Scheme, Wanted, state_of};
use super::run::{Place, Repeats, Run};
use super::state::{LaneState, StreamState};
use super::worker::Start;
use crate::data::arena::{Slot, Slots};
use crate::data::assemble::{Failure, Space};
use crate::data::columns::Columns;
use crate::data::dataset::{WorkerInfo, set_worker_info};
use crate::data::layout::BatchLayout;
use crate::data::pool::{Collected, Pool};
use crate::data::sample::Sample;
use crate::data::shared::Shared;
use crate::data::upload::Ready;
use crate::error::{Error, Result};
use crate::ops::random::seed_by_hand;
use crate::profiler::{self, Category};
use crate::tensor::Device;

/// What a loader over a stream `S` yields.
type StreamBatch<S> = <<S as IterableDataset>::Sample as Sample>::Batch;

/// Batches of a stream (`torch.utils.data.DataLoader` over an `IterableDataset`).
///
/// - The lanes take turns, and a batch is of one lane; lanes that have ended are passed over.
/// - [`state_dict`](Self::state_dict) says where every lane of this rank is behind the last batch that was yielded,
///   however far workers have read ahead; [`load_state_dict`](Self::load_state_dict) goes on there.
/// - A dataset that fails, a worker that dies or hangs is an [`Err`] item, after which the iteration is over.
///
/// ```
/// use torchrs::data::stream::{JsonLines, StreamLoader};
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// # let path = file.path();
/// std::fs::write(path, "1\n2\n3\n4\n5\n").unwrap();
/// let loader = || StreamLoader::builder(JsonLines::<i64>::new(path).unwrap()).batch_size(2).build();
/// let (stopped, resumed) = (loader()?, loader()?);
/// assert_eq!(stopped.iter().next().unwrap()?.to_vec::<i64>(), [1, 2]);
/// resumed.load_state_dict(&stopped.state_dict())?;
/// assert_eq!(resumed.iter().next().unwrap()?.to_vec::<i64>(), [3, 4]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct StreamLoader<S: IterableDataset> {
    dataset: Shared<S>,
    scheme: Scheme,
    world_size: usize,
    rank: usize,
    workers: usize,
    prefetch_factor: usize,
    batches_per_epoch: Option<u64>,
    uneven: Option<Uneven>,
    timeout: Option<Duration>,
    device: Device,
    start_worker: Start<S>,
    inner: Mutex<Inner<S>>,
}

struct Inner<S: IterableDataset> {
    seed: u64,
    lanes: usize,
    /// Where the next iteration starts.
    next: Place,
    /// The epoch's batches from `next` on, where they are known by the state.
    next_limit: Option<u64>,
    /// The epoch whose position was loaded and not used yet: `set_epoch` with it keeps it.
    loaded: Option<u64>,
    run: Option<Run>,
    runs: u64,
    generations: u64,
    engine: Option<Engine<S>>,
}

/// Who makes batches.
enum Engine<S: IterableDataset> {
    Here(Box<Lanes<S>>, Slots),
    Workers(Vec<Pool>),
}

impl<S: IterableDataset> StreamLoader<S>
where
    S::Sample: Sample,
{
    /// Options for a loader over `dataset`.
    pub fn builder(dataset: S) -> StreamLoaderBuilder<S> {
        StreamLoaderBuilder::new(dataset)
    }

    pub(super) fn new(
        options: StreamLoaderBuilder<S>,
        (world_size, rank): (usize, usize),
        lanes: usize,
    ) -> Result<Self> {
        let seed = options.seed.or_else(seed_by_hand).unwrap_or(0);
        let loader = StreamLoader {
            dataset: Shared::new(options.dataset),
            scheme: Scheme {
                seed,
                lanes,
                shuffle_shards: options.shuffle_shards,
                batch_size: options.batch_size,
                drop_last: options.drop_last,
            },
            world_size,
            rank,
            workers: options.workers,
            prefetch_factor: options.prefetch_factor,
            batches_per_epoch: options.batches_per_epoch,
            uneven: options.uneven,
            timeout: options.timeout,
            device: options.device,
            start_worker: options.start_worker,
            inner: Mutex::new(Inner {
                seed,
                lanes,
                next: Place::default(),
                next_limit: None,
                loaded: None,
                run: None,
                runs: 0,
                generations: 0,
                engine: None,
            }),
        };
        loader.limit(&loader.inner.lock(), &start_of(0, 0))?;
        Ok(loader)
    }

    fn is_endless(&self) -> bool {
        self.batches_per_epoch.is_some()
    }

    fn scheme(&self, inner: &Inner<S>) -> Scheme {
        Scheme { seed: inner.seed, lanes: inner.lanes, ..self.scheme.clone() }
    }

    /// The numbers of a rank's lanes.
    fn lanes_of(&self, inner: &Inner<S>, rank: usize) -> impl Iterator<Item = usize> + use<S> {
        (rank..inner.lanes).step_by(self.world_size)
    }

    /// How many batches are left of a pass on each rank, if that is limited; `at` has the lanes that are begun.
    ///
    /// # Errors
    /// When the samples cannot be counted, or a rank has none.
    fn limit(&self, inner: &Inner<S>, at: &Place) -> Result<Option<u64>> {
        let Some(uneven) = self.uneven.filter(|_| self.world_size > 1) else { return Ok(None) };
        let scheme = self.scheme(inner);
        let mut least_and_most = (u64::MAX, 0);
        for rank in 0..self.world_size {
            let mut batches = 0;
            for lane in self.lanes_of(inner, rank) {
                let Some(samples) = self.dataset.count(scheme.part(lane, at.pass))? else {
                    let message = "the stream does not know how many samples it has (a filter?); say \
                                   batches_per_epoch(n)";
                    return Err(Error::argument("StreamLoader", "uneven", message));
                };
                let done = at.lanes.get(&lane).map_or(0, |lane| lane.samples);
                batches += scheme.batches(samples.saturating_sub(done));
            }
            if batches == 0 && at.lanes.is_empty() {
                let message = format!("rank {rank} of {} would have no batch", self.world_size);
                return Err(Error::argument("StreamLoader", "uneven", message));
            }
            least_and_most = (least_and_most.0.min(batches), least_and_most.1.max(batches));
        }
        Ok(Some(match uneven {
            Uneven::Cut => least_and_most.0,
            Uneven::Repeat => least_and_most.1,
        }))
    }

    /// Chooses the epoch of the next iteration. Without it, epochs count up from 0. After
    /// [`load_state_dict`](Self::load_state_dict), choosing the loaded epoch keeps the loaded position. With
    /// [`batches_per_epoch`](StreamLoaderBuilder::batches_per_epoch), where the stream goes on from epoch to epoch, it
    /// names the epoch and moves nothing.
    pub fn set_epoch(&self, epoch: u64) {
        let mut inner = self.inner.lock();
        if inner.loaded == Some(epoch) {
            return;
        }
        if self.is_endless() {
            inner.next.epoch = epoch;
            return;
        }
        inner.next = start_of(epoch, epoch);
        (inner.next_limit, inner.loaded) = (None, None);
        if inner.run.as_ref().is_some_and(|run| !run.live) {
            inner.run = None;
        }
    }

    /// The batches of the next epoch, or what is left of it after a resume. A loader has one iteration at a time: a
    /// new one ends the one before.
    pub fn iter(&self) -> StreamIter<'_, S> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.runs += 1;
        let id = inner.runs;
        inner.loaded = None;
        if self.is_endless()
            && let Some(run) = inner.run.as_mut().filter(|run| run.failed.is_none())
            && inner.engine.is_some()
        {
            // The stream goes on, and so does what workers are at.
            run.place.epoch = inner.next.epoch;
            run.place.batches = 0;
            (run.id, run.live, run.finished) = (id, true, false);
            inner.next.epoch += 1;
        } else {
            inner.cancel();
            let mut place = inner.next.clone();
            if let Some(run) = inner.run.as_ref().filter(|_| self.is_endless()) {
                // After an error the stream goes on behind the last batch that was yielded.
                place = Place { epoch: place.epoch, batches: 0, ..run.place.clone() };
            }
            let limit = match (self.batches_per_epoch, inner.next_limit) {
                (Some(batches), _) => Ok(Some(batches)),
                (None, Some(limit)) => Ok(Some(limit)),
                (None, None) => self.limit(inner, &place),
            };
            for lane in self.lanes_of(inner, self.rank) {
                place.lanes.entry(lane).or_default();
            }
            if place.lanes.values().any(|lane| !lane.position.is_empty()) {
                // Workers know from their start where lanes begin.
                inner.engine = None;
            }
            let repeats = match (self.is_endless(), self.uneven) {
                (true, _) => Repeats::Next,
                (false, Some(Uneven::Repeat)) if self.world_size > 1 => Repeats::Same,
                _ => Repeats::Never,
            };
            inner.generations += 1;
            inner.next = start_of(place.epoch + 1, place.epoch + 1);
            inner.next_limit = None;
            let (limit, failed) = limit.map_or_else(|e| (Some(0), Some(e)), |limit| (limit, None));
            let mut run = Run::new(id, inner.generations, place, limit, repeats);
            run.failed = failed;
            inner.run = Some(run);
        }
        if let Err(error) = self.prefetch(inner) {
            inner.fail(error);
        }
        StreamIter { loader: self, id, over: false }
    }

    /// Where the iteration is, on this rank: behind the last batch that was yielded.
    pub fn state_dict(&self) -> StreamState {
        let inner = self.inner.lock();
        let (mut place, finished) = match &inner.run {
            Some(run) => (run.place.clone(), run.finished),
            None => (inner.next.clone(), false),
        };
        for lane in self.lanes_of(&inner, self.rank) {
            place.lanes.entry(lane).or_default();
        }
        StreamState {
            seed: inner.seed,
            epoch: place.epoch,
            batches: place.batches,
            finished,
            pass: place.pass,
            num_lanes: inner.lanes,
            world_size: self.world_size,
            batch_size: self.scheme.batch_size,
            shuffle_shards: self.scheme.shuffle_shards,
            num_shards: self.dataset.num_shards(),
            turn: place.turn,
            lanes: place.lanes,
        }
    }

    /// Goes on from a saved position, with the saved seed and lanes, whatever the number of workers. With another
    /// number of ranks or another batch size, the state has to be [merged](StreamState::merge) of all ranks' states.
    /// After the end of an epoch it is the next epoch.
    ///
    /// # Errors
    /// [`Error::Config`] when the state is of another dataset, or does not know this rank's lanes.
    pub fn load_state_dict(&self, state: &StreamState) -> Result<()> {
        let wrong = |message: String| Err(Error::config("StreamLoader::load_state_dict", message));
        let shards = self.dataset.num_shards();
        if state.num_shards != shards {
            let (old, new) = (state.num_shards.unwrap_or(0), shards.unwrap_or(0));
            return wrong(format!("the state is of a dataset of {old} files, this one has {new}"));
        }
        if state.shuffle_shards != self.scheme.shuffle_shards {
            return wrong(format!(
                "the state was saved with shuffle_shards({})",
                state.shuffle_shards
            ));
        }
        if state.num_lanes == 0 || !state.num_lanes.is_multiple_of(self.world_size) {
            return wrong(format!(
                "the state's {} lanes do not divide among {} ranks",
                state.num_lanes, self.world_size
            ));
        }
        let is_complete = state.is_complete();
        let is_same =
            state.world_size == self.world_size && state.batch_size == self.scheme.batch_size;
        if !is_same && !is_complete {
            return wrong(format!(
                "the state is one rank's of {} with batches of {}; for {} ranks with batches of {} merge the states \
                 of all ranks (StreamState::merge)",
                state.world_size, state.batch_size, self.world_size, self.scheme.batch_size
            ));
        }
        let mut inner = self.inner.lock();
        let own = (self.rank..state.num_lanes).step_by(self.world_size);
        let own: Vec<usize> = own.collect();
        if let Some(lane) = own.iter().find(|lane| !state.lanes.contains_key(lane)) {
            return wrong(format!(
                "lane {lane} of rank {} is not in the state, which another rank has saved",
                self.rank
            ));
        }
        inner.cancel();
        (inner.engine, inner.run) = (None, None);
        (inner.seed, inner.lanes) = (state.seed, state.num_lanes);
        if state.finished && !self.is_endless() {
            inner.next = start_of(state.epoch + 1, state.epoch + 1);
            (inner.next_limit, inner.loaded) = (None, None);
            return Ok(());
        }
        let (epoch, batches) = match state.finished {
            true => (state.epoch + 1, 0),
            false => (state.epoch, state.batches),
        };
        let lanes = |lanes: &[usize]| -> std::collections::BTreeMap<usize, LaneState> {
            lanes.iter().map(|lane| (*lane, state.lanes[lane].clone())).collect()
        };
        let place = Place {
            epoch,
            pass: state.pass,
            batches,
            turn: if is_same { state.turn } else { 0 },
            lanes: lanes(&own),
        };
        inner.next_limit = match (self.is_endless(), is_same) {
            (true, _) => None,
            // As it was when the epoch began.
            (false, true) => self.limit(&inner, &start_of(epoch, state.pass))?,
            (false, false) => {
                let all: Vec<usize> = (0..state.num_lanes).collect();
                let all = Place { lanes: lanes(&all), ..place.clone() };
                self.limit(&inner, &all)?.map(|left| batches + left)
            }
        };
        inner.loaded = (!state.finished).then_some(epoch);
        inner.next = place;
        Ok(())
    }

    /// Starts readers if there is anything to do, and asks for as many batches as workers may make ahead.
    fn prefetch(&self, inner: &mut Inner<S>) -> Result<()> {
        let scheme = self.scheme(inner);
        let Some(run) = inner.run.as_mut().filter(|run| run.live && run.failed.is_none()) else {
            return Ok(());
        };
        let engine = match &mut inner.engine {
            Some(engine) => engine,
            none => {
                let begin = run.begin();
                none.insert(match self.workers {
                    0 => {
                        let lanes = Lanes::new(self.dataset.clone(), scheme, begin);
                        Engine::Here(Box::new(lanes), Slots::new(2))
                    }
                    workers => {
                        let workers = workers.min(run.place.lanes.len());
                        let tasks = self.prefetch_factor;
                        let start = |number| {
                            (self.start_worker)(
                                &self.dataset,
                                &scheme,
                                &begin,
                                (number, workers),
                                tasks,
                            )
                        };
                        Engine::Workers((0..workers).map(start).collect::<Result<_>>()?)
                    }
                })
            }
        };
        let Engine::Workers(pools) = engine else { return Ok(()) };
        while let Some(place) = run.to_ask() {
            let count = pools.len();
            let pool = &mut pools[place % count];
            if !pool.has_room() {
                break;
            }
            let wanted = run.asked(place);
            pool.publish(&wanted.words(), wanted.pass)?;
        }
        Ok(())
    }

    /// The next item of iteration `id`, which is over after a `None` or once `over` is set.
    fn next(&self, id: u64, over: &mut bool) -> Option<Result<StreamBatch<S>>> {
        let _span = profiler::span("StreamLoader", Category::Data);
        let _phase = profiler::Phase::data();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(run) = inner.run.as_mut().filter(|run| run.id == id) else {
            *over = true;
            let message = "a newer iteration of this StreamLoader has begun; this one is over";
            return Some(Err(Error::Other(message.to_owned())));
        };
        if !run.live {
            return None;
        }
        if let Some(error) = run.failed.take() {
            run.live = false;
            return Some(Err(error));
        }
        let made = self.make(inner);
        if made.is_err() {
            // Where the reader is now is not known: the next iteration opens it anew.
            inner.stop();
        }
        made.transpose()
    }

    /// The next batch; `None` at the epoch's end.
    fn make(&self, inner: &mut Inner<S>) -> Result<Option<StreamBatch<S>>> {
        loop {
            self.prefetch(inner)?;
            let Some(run) = inner.run.as_mut() else { return Ok(None) };
            if run.is_full() {
                (run.live, run.finished) = (false, true);
                if !self.is_endless() {
                    inner.cancel();
                }
                return Ok(None);
            }
            let found = match inner.engine.as_mut() {
                Some(Engine::Here(lanes, slots)) => match run.to_ask() {
                    Some(place) => Some(make_here(lanes, run.asked(place), slots, inner.seed)?),
                    None => None,
                },
                Some(Engine::Workers(pools)) => match run.front() {
                    Some(place) => {
                        let count = pools.len();
                        match pools[place % count].collect(self.timeout)? {
                            Some(Collected::Batch(layout, slot)) => Some(Some((layout, slot))),
                            Some(Collected::Nothing) => Some(None),
                            Some(Collected::Failed(error)) => return Err(error),
                            None => return Err(lost()),
                        }
                    }
                    // Batches of an iteration that was left can fill the ring: then ours are still to be asked for.
                    None => match run.to_ask() {
                        Some(place) => {
                            let count = pools.len();
                            match pools[place % count].collect(self.timeout)? {
                                None => continue,
                                Some(_) => return Err(lost()),
                            }
                        }
                        None => None,
                    },
                },
                None => return Err(Error::Other("StreamLoader: nobody reads".to_owned())),
            };
            match found {
                Some(Some((layout, slot))) => {
                    let (memory, start) = (slot.arena().memory.clone(), slot.start());
                    let guard = Arc::new(slot);
                    let mut columns = Columns::new(layout, memory, start, guard, self.device);
                    let state = state_of(&columns);
                    let made =
                        Ready::new(self.device, || S::Sample::batch(&mut columns))?.take()?;
                    run.got(state)?;
                    self.prefetch(inner)?;
                    return Ok(Some(made));
                }
                Some(None) => run.ended(),
                None => {
                    inner.generations += 1;
                    if !run.again(inner.generations)? {
                        (run.live, run.finished) = (false, true);
                        return Ok(None);
                    }
                }
            }
        }
    }
}

/// A batch that was asked for and never came.
fn lost() -> Error {
    Error::Other("StreamLoader: a batch got lost".to_owned())
}

/// The beginning of an epoch.
fn start_of(epoch: u64, pass: u64) -> Place {
    Place { epoch, pass, ..Place::default() }
}

/// A batch that is made in this process.
fn make_here<S: IterableDataset>(
    lanes: &mut Lanes<S>,
    wanted: Wanted,
    slots: &mut Slots,
    seed: u64,
) -> Result<Option<(BatchLayout, Slot)>>
where
    S::Sample: Sample,
{
    set_worker_info(WorkerInfo { seed, epoch: wanted.pass, ..WorkerInfo::default() });
    let made = lanes.next(wanted, &mut Here(slots));
    set_worker_info(WorkerInfo::default());
    made.map_err(|failure| match failure {
        Failure::Dataset { index, message } => {
            Error::Dataset { index, worker: "the main process".to_owned(), message }
        }
        Failure::Loader(error) => error,
    })
}

impl<S: IterableDataset> Inner<S> {
    /// Ends the current iteration; what workers have of it is not wanted any more.
    fn cancel(&mut self) {
        if let Some(run) = &mut self.run {
            run.live = false;
            run.forget();
        }
        if let Some(Engine::Workers(pools)) = &mut self.engine {
            pools.iter_mut().for_each(Pool::cancel_all);
        }
    }

    /// Makes the current iteration's next item this error.
    fn fail(&mut self, error: Error) {
        self.engine = None;
        if let Some(run) = &mut self.run {
            run.failed = Some(error);
        }
    }

    /// Ends the current iteration after an error. A new one begins as after a saved state.
    fn stop(&mut self) {
        self.engine = None;
        if let Some(run) = &mut self.run {
            run.live = false;
            run.forget();
        }
    }
}

/// Slots of this process.
struct Here<'a>(&'a mut Slots);

impl Space for Here<'_> {
    fn take(&mut self, bytes: usize) -> Result<Slot> {
        self.0.take(bytes).map(|(slot, _)| slot)
    }

    fn is_streaming(&self, _bytes: usize) -> bool {
        false
    }

    fn reading(&mut self, _index: usize) -> bool {
        true
    }
}

/// The batches of an epoch; made by [`StreamLoader::iter`]. After an error it is over.
pub struct StreamIter<'a, S: IterableDataset>
where
    S::Sample: Sample,
{
    loader: &'a StreamLoader<S>,
    id: u64,
    /// A newer iteration took over, and this one has said so.
    over: bool,
}

impl<S: IterableDataset> Iterator for StreamIter<'_, S>
where
    S::Sample: Sample,
{
    type Item = Result<StreamBatch<S>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over { None } else { self.loader.next(self.id, &mut self.over) }
    }
}

impl<S: IterableDataset> Drop for StreamIter<'_, S>
where
    S::Sample: Sample,
{
    fn drop(&mut self) {
        let mut inner = self.loader.inner.lock();
        let endless = self.loader.is_endless();
        let Some(run) = inner.run.as_mut().filter(|run| run.id == self.id && run.live) else {
            return;
        };
        match endless {
            true => run.live = false,
            false => inner.cancel(),
        }
    }
}

impl<'a, S: IterableDataset> IntoIterator for &'a StreamLoader<S>
where
    S::Sample: Sample,
{
    type Item = Result<StreamBatch<S>>;
    type IntoIter = StreamIter<'a, S>;
    fn into_iter(self) -> StreamIter<'a, S> {
        self.iter()
    }
}
