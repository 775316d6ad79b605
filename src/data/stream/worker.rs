//! Worker processes of a stream's loader: each reads lanes of its own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::iterable::IterableDataset;
use super::lanes::{Begin, Lanes, Scheme, Wanted};
use crate::data::assemble::Failure;
use crate::data::control::{Control, Dimensions};
use crate::data::dataset::WorkerInfo;
use crate::data::pool::Pool;
use crate::data::sample::Sample;
use crate::data::shared::Shared;
use crate::data::worker::{Init, ToParent, Wake, Worker, begin_worker};
use crate::error::{Error, Result};
use crate::multiprocessing::{Channel, Process, handles};
use crate::storage::SharedMemory;

/// What a worker is started with.
#[derive(Serialize, Deserialize)]
#[serde(bound = "S: IterableDataset")]
struct Args<S> {
    number: usize,
    num_workers: usize,
    dimensions: Dimensions,
    #[serde(with = "handles::shared_memory")]
    control: Arc<SharedMemory>,
    dataset: Shared<S>,
    scheme: Scheme,
    begin: Begin,
}

/// Starts a worker of a stream `S`, that begins with an `Init`.
pub(super) type Start<S> = fn(&Shared<S>, &Scheme, &Begin, (usize, usize), usize) -> Result<Pool>;

/// Starts worker `number`, with a ring of `tasks` tasks of its own.
pub(super) fn start<S: IterableDataset, F: Init>(
    dataset: &Shared<S>,
    scheme: &Scheme,
    begin: &Begin,
    (number, num_workers): (usize, usize),
    tasks: usize,
) -> Result<Pool>
where
    S::Sample: Sample,
{
    let dimensions = Dimensions { workers: 1, tasks, batch_size: Wanted::WORDS };
    Pool::of(dimensions, number, |number, control| {
        let args = Args {
            number,
            num_workers,
            dimensions,
            control: control.memory().clone(),
            dataset: dataset.clone(),
            scheme: scheme.clone(),
            begin: begin.clone(),
        };
        Process::builder()
            .name(format!("loader worker {number}"))
            .env("OMP_NUM_THREADS", "1")
            .spawn_connected(run::<S, F>, args)
    })
}

/// The worker's `main`.
fn run<S: IterableDataset, F: Init>(args: Args<S>, parent: Channel<ToParent, Wake>) -> Result<()>
where
    S::Sample: Sample,
{
    let Args { number, num_workers, dimensions, control, dataset, scheme, begin } = args;
    let control = Control::open(control, dimensions);
    let seed = scheme.seed;
    let info = WorkerInfo { worker: Some(number), num_workers, seed, ..WorkerInfo::default() };
    begin_worker::<F>(info)?;
    let mut lanes = Lanes::new(dataset, scheme, begin);
    Worker::new((number, num_workers), seed, control, parent).work(|words, space| {
        let Some(wanted) = Wanted::of_words(&words) else {
            return Err(Failure::Loader(Error::Other(format!("{words:?} is no task"))));
        };
        lanes.next(wanted, space)
    })
}
