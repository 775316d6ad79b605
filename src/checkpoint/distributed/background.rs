//! Saving while training goes on: a state is copied to shared memory, and a process in the background writes it.

use std::fmt;
use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::own::file_name;
use super::plan::Written;
use super::region::Region;
use super::save::{Folder, Plan, begin, boxes, finish};
use super::state::State;
use super::write::{Lies, ToWrite, write_pieces};
use crate::autograd::no_grad;
use crate::distributed::{Origin, ProcessGroup};
use crate::error::{Error, Result, catch};
use crate::multiprocessing::{Channel, Process};
use crate::profiler::Phase;
use crate::tensor::{Dtype, Layout, Tensor};

/// Pieces begin at cache lines of the copy.
const ALIGNMENT: usize = 64;

/// Saves states in the background: what [`save`](Self::save) is given is copied to memory of the host, and a process of
/// each rank writes the copy while training goes on (`torch.distributed.checkpoint.async_save`).
///
/// The memory for the copy is kept for the next save. One save is under way at a time: the next one waits for it.
///
/// ```
/// use torchrs::checkpoint::distributed::{AsyncCheckpointer, State, load};
/// use torchrs::{Tensor, distributed};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("checkpoint");
/// let group = distributed::init_process_group(Default::default())?;
/// let mut checkpointer = AsyncCheckpointer::new(&group)?;
/// let weight = Tensor::from([1f32, 2.]);
/// let state = State::new().with_tensor("weight", weight.clone())?;
/// checkpointer.save(&state, &path)?;
/// weight.fill_(0.0); // the next step
/// checkpointer.wait()?;
/// load(&state, &path, &group, Default::default())?;
/// assert_eq!(weight.to_vec::<f32>(), [1.0, 2.0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub struct AsyncCheckpointer {
    /// Of the caller's thread.
    group: ProcessGroup,
    /// The same ranks, of the thread that waits for the writer.
    background: ProcessGroup,
    writer: Option<Writer>,
    copy: Option<Copy>,
    running: Option<Running>,
}

struct Running {
    path: PathBuf,
    thread: JoinHandle<(Option<Writer>, Result<()>)>,
}

/// The process that writes, and the way to it.
struct Writer {
    process: Process,
    channel: Channel<Job, Done>,
}

/// Shared memory with a place for each piece.
struct Copy {
    memory: Tensor,
    places: Vec<Tensor>,
    jobs: Vec<JobPiece>,
}

#[derive(Serialize, Deserialize)]
struct Job {
    path: PathBuf,
    memory: Tensor,
    pieces: Vec<JobPiece>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct JobPiece {
    name: String,
    region: Region,
    dtype: Dtype,
    /// Where it begins in the memory, in bytes.
    start: usize,
}

type Done = std::result::Result<Vec<Lies>, String>;

impl AsyncCheckpointer {
    /// For states that the ranks of `group` have together. Collective.
    ///
    /// # Errors
    /// Those of a collective.
    #[track_caller]
    pub fn new(group: &ProcessGroup) -> Result<Self> {
        let ranks: Vec<usize> = (0..group.world_size()).collect();
        let background = Origin::here().over(|| group.new_group(&ranks))?;
        Ok(AsyncCheckpointer {
            group: group.clone(),
            background,
            writer: None,
            copy: None,
            running: None,
        })
    }

    /// As [`save`](super::save), but returns when the state is copied. Collective.
    ///
    /// # Errors
    /// That of the save before, whose checkpoint is not there then. What goes wrong in the background is known to the
    /// next call and to [`wait`](Self::wait). Otherwise as [`save`](super::save).
    #[track_caller]
    pub fn save(&mut self, state: &State, path: impl AsRef<Path>) -> Result<()> {
        Origin::here().over(|| self.save_then(state, path.as_ref(), || Ok(())))
    }

    /// The same; on rank 0 `then` runs when the checkpoint is there.
    pub(crate) fn save_then(
        &mut self,
        state: &State,
        path: &Path,
        then: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.wait()?;
        let _phase = Phase::checkpoint();
        let plan = Plan::new(state, path, &self.group)?;
        let own = plan.own(&self.group);
        let copied = self.copy(state, &own);
        let (group, path) = (self.background.clone(), path.to_owned());
        let writer = self.writer.take();
        let target = path.clone();
        let work = move || {
            let mut writer = writer;
            let outcome = begin(&target, &group).and_then(|folder| {
                let lies = copied.and_then(|job| written(&mut writer, job, &folder, group.rank()));
                finish(folder, plan, lies, &group)?;
                super::agree::follow(&group, "removing old checkpoints", then)
            });
            (writer, outcome)
        };
        let thread = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::os("start a thread that saves", error))?;
        self.running = Some(Running { path, thread });
        Ok(())
    }

    /// Whether nothing is being written at the moment.
    pub fn is_done(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.thread.is_finished())
    }

    /// Waits until the last save is on disk. All ranks call it, or none: they get the same error.
    ///
    /// # Errors
    /// Why the last save is not there; as [`save`](super::save).
    pub fn wait(&mut self) -> Result<()> {
        let Some(Running { path, thread }) = self.running.take() else { return Ok(()) };
        match thread.join() {
            Ok((writer, outcome)) => {
                self.writer = writer;
                outcome.map_err(|error| {
                    Error::Other(format!("saving {} in the background: {error}", path.display()))
                })
            }
            Err(_) => Err(Error::Other(format!(
                "saving {} in the background: its thread has panicked",
                path.display()
            ))),
        }
    }

    /// Copies what this rank writes. The job for the writer, if that is anything.
    fn copy(&mut self, state: &State, own: &[Written]) -> Result<Option<Job>> {
        let boxes = boxes(state, own)?;
        let mut end = 0;
        let jobs: Vec<JobPiece> = boxes
            .iter()
            .map(|(written, tensor)| {
                let start = end;
                let nbytes = tensor.numel() * tensor.dtype().size();
                end = (start + nbytes).next_multiple_of(ALIGNMENT);
                let (name, region) = (written.name.clone(), written.region.clone());
                JobPiece { name, region, dtype: tensor.dtype(), start }
            })
            .collect();
        if jobs.is_empty() {
            return Ok(None);
        }
        let copy = match self.copy.take().filter(|copy| copy.jobs == jobs) {
            Some(copy) => copy,
            None => catch(|| Tensor::empty([end], Dtype::U8)).and_then(|memory| {
                memory.share_memory_()?;
                let places = jobs.iter().map(|piece| piece.of(&memory)).collect();
                Ok(Copy { memory, places, jobs })
            })?,
        };
        catch(|| {
            no_grad(|| {
                for (place, (_, tensor)) in copy.places.iter().zip(&boxes) {
                    place.copy_(tensor);
                }
            });
        })?;
        let memory = copy.memory.clone();
        let job = Job { path: PathBuf::new(), memory, pieces: copy.jobs.clone() };
        self.copy = Some(copy);
        Ok(Some(job))
    }
}

impl JobPiece {
    /// Its place in the memory.
    fn of(&self, memory: &Tensor) -> Tensor {
        let offset = self.start / self.dtype.size();
        let layout = Layout { offset, ..Layout::contiguous(&self.region.shape) };
        Tensor::from_parts(memory.storage().clone(), layout, self.dtype)
    }
}

/// Has the writer write; it is started for the first one, and anew when it was killed.
fn written(
    writer: &mut Option<Writer>,
    job: Option<Job>,
    folder: &Folder,
    rank: usize,
) -> Result<Vec<Lies>> {
    let Some(job) = job else { return Ok(Vec::new()) };
    let job = Job { path: folder.path.join(file_name(rank)), ..job };
    let mut running = match writer.take() {
        Some(running) => running,
        None => {
            let builder = Process::builder().name("checkpoint writer");
            let (process, channel) = builder.spawn_connected(write_jobs, ())?;
            Writer { process, channel }
        }
    };
    let done = running.channel.send(&job).and_then(|()| running.channel.recv());
    match done {
        Ok(done) => {
            *writer = Some(running);
            done.map_err(Error::Other)
        }
        // Its end says more than that of the channel.
        Err(error) => Err(running.ended().unwrap_or(error)),
    }
}

impl Writer {
    fn ended(&mut self) -> Option<Error> {
        let status = self.process.wait_timeout(std::time::Duration::from_secs(1)).ok()?;
        self.process.failure(status)
    }
}

/// What the process in the background does.
fn write_jobs(_: (), parent: Channel<Done, Job>) -> Result<()> {
    // Training comes first.
    // SAFETY: changes this process's priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
    while let Ok(job) = parent.recv() {
        let tensors: Vec<Tensor> = job.pieces.iter().map(|piece| piece.of(&job.memory)).collect();
        let pieces: Vec<ToWrite> = job
            .pieces
            .iter()
            .zip(&tensors)
            .map(|(piece, tensor)| ToWrite { name: &piece.name, region: &piece.region, tensor })
            .collect();
        parent.send(&write_pieces(&job.path, &pieces).map_err(|error| error.to_string()))?;
    }
    Ok(())
}

impl Drop for AsyncCheckpointer {
    /// Waits for what is being written; what has gone wrong is said.
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            // Not `eprintln!`, which panics where nobody listens.
            let _ = writeln!(stderr(), "torchrs: warning: {error}");
        }
    }
}

impl fmt::Debug for AsyncCheckpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.running.as_ref().map(|running| &running.path);
        f.debug_struct("AsyncCheckpointer").field("saving", &path).finish_non_exhaustive()
    }
}
