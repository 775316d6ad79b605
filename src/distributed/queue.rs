//! The order of a group's collectives. All ranks have to run them in the same order, whether they
//! are called or started in the background: each takes a number when it is submitted, and runs when
//! that number is up. A call runs on the caller's thread, without a detour; what is started in the
//! background runs on the group's communication thread. What a job submits itself runs at once, as a part
//! of it.
//!
//! What uses a GPU waits for a second number, of the GPU: NCCL wants the collectives of all groups of a GPU
//! in the same order on all ranks, which is that of their submission.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::Work;
use super::nccl::Started;
use crate::cuda::MAX_DEVICES;
use crate::error::{Context, Result, catch};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one at a time, in the order of their submission.
#[derive(Debug)]
pub(super) struct Queue {
    line: Arc<Line>,
    worker: Mutex<Worker>,
}

#[derive(Debug)]
struct Worker {
    jobs: Option<Sender<(Ticket, Job)>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Line {
    numbers: Mutex<Numbers>,
    changed: Condvar,
}

/// One for each GPU.
static GPUS: [Line; MAX_DEVICES] = [const { Line::new() }; MAX_DEVICES];

#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    serving: u64,
}

thread_local! {
    /// The lines in which it is this thread's turn, by their addresses.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Held while a job runs; the next one's number comes up when it is dropped, also by a panic.
struct Turn<'a>(&'a Line);

/// A job's numbers.
#[derive(Debug)]
struct Ticket {
    line: Arc<Line>,
    number: u64,
    gpu: Option<(&'static Line, u64)>,
}

impl Ticket {
    /// Waits until both are up. The GPU's is the last: nobody who has it waits for a group's.
    fn wait(&self) -> (Option<Turn<'static>>, Turn<'_>) {
        let turn = self.line.wait_for(self.number);
        (self.gpu.map(|(line, number)| line.wait_for(number)), turn)
    }
}

/// Runs `launch` after everything that was submitted for a GPU before.
pub(super) fn run_on_gpu<T>(gpu: usize, launch: impl FnOnce() -> T) -> T {
    if is_gpu_held() {
        return launch();
    }
    let number = GPUS[gpu].take_number();
    let _turn = GPUS[gpu].wait_for(number);
    launch()
}

/// Whether this thread runs a job on a GPU, of whatever group.
fn is_gpu_held() -> bool {
    GPUS.iter().any(Line::is_held)
}

impl Line {
    const fn new() -> Line {
        Line { numbers: Mutex::new(Numbers { next: 0, serving: 0 }), changed: Condvar::new() }
    }

    fn take_number(&self) -> u64 {
        let mut numbers = self.numbers.lock();
        numbers.next += 1;
        numbers.next - 1
    }

    fn wait_for(&self, number: u64) -> Turn<'_> {
        let mut numbers = self.numbers.lock();
        while numbers.serving != number {
            self.changed.wait(&mut numbers);
        }
        HELD.with_borrow_mut(|held| held.push(self.address()));
        Turn(self)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Whether this thread runs a job of this line.
    fn is_held(&self) -> bool {
        HELD.with_borrow(|held| held.contains(&self.address()))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let address = self.0.address();
        HELD.with_borrow_mut(|held| held.retain(|&line| line != address));
        let mut numbers = self.0.numbers.lock();
        numbers.serving += 1;
        if numbers.next != numbers.serving {
            drop(numbers);
            self.0.changed.notify_all();
        }
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        Queue { line: Arc::default(), worker: Mutex::new(Worker { jobs: None, thread: None }) }
    }

    /// Runs `job`, which uses `gpu`, here, after everything that was submitted before; at once in another
    /// job.
    pub(super) fn run<T>(&self, gpu: Option<usize>, job: impl FnOnce() -> T) -> T {
        if self.is_in_job() {
            return job();
        }
        let ticket = self.take(gpu);
        let _turns = ticket.wait();
        job()
    }

    /// Whether this thread runs a job of this group, or one on a GPU: what holds the GPU waits for no group.
    fn is_in_job(&self) -> bool {
        self.line.is_held() || is_gpu_held()
    }

    /// Takes the numbers, both at once: so the two orders never contradict each other.
    fn take(&self, gpu: Option<usize>) -> Ticket {
        let mut numbers = self.line.numbers.lock();
        let number = numbers.next;
        numbers.next += 1;
        let gpu = gpu.map(|gpu| (&GPUS[gpu], GPUS[gpu].take_number()));
        Ticket { line: self.line.clone(), number, gpu }
    }

    /// Has the communication thread run `job`, which uses `gpu`, after everything that was submitted before. In another
    /// job it runs here and at once: the thread is taken.
    pub(super) fn start(
        &self,
        name: &str,
        gpu: Option<usize>,
        job: impl FnOnce() -> Result<Option<Started>> + Send + 'static,
    ) -> Result<Work> {
        if self.is_in_job() {
            let (work, complete) = Work::new();
            complete(catch(job).and_then(|result| result));
            return Ok(work);
        }
        let mut worker = self.worker.lock();
        if worker.jobs.is_none() {
            let (sender, jobs) = channel::<(Ticket, Job)>();
            let thread = std::thread::Builder::new()
                .name(format!("torchrs-comm-{name}"))
                .spawn(move || {
                    for (ticket, job) in jobs {
                        let _turns = ticket.wait();
                        job();
                    }
                })
                .context(|| "start a process group's communication thread")?;
            *worker = Worker { jobs: Some(sender), thread: Some(thread) };
        }
        let (work, complete) = Work::new();
        let job: Job = Box::new(move || complete(catch(job).and_then(|result| result)));
        // Under the lock of `worker`, so that numbers enter the thread's queue in order.
        let ticket = self.take(gpu);
        if let Some(jobs) = &worker.jobs {
            // The thread ends only after its sender is gone.
            let _ = jobs.send((ticket, job));
        }
        Ok(work)
    }

    /// Waits until everything that was started has run, and ends the thread.
    pub(super) fn close(&self) {
        let mut worker = self.worker.lock();
        worker.jobs = None;
        if let Some(thread) = worker.thread.take() {
            // The last handle of a group may be dropped by its own communication thread.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn calls_and_background_jobs_keep_their_order() {
        let queue = Queue::new();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut works = Vec::new();
        for i in 0..200 {
            if i % 3 == 0 {
                queue.run(None, || log.lock().push(i));
            } else {
                let log = log.clone();
                let job = move || {
                    log.lock().push(i);
                    Ok(None)
                };
                works.push(queue.start("test", None, job).unwrap());
            }
        }
        works.iter().for_each(|w| w.wait().unwrap());
        assert_eq!(*log.lock(), (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_in_a_job_is_its_works_error_and_the_queue_goes_on() {
        let queue = Queue::new();
        let bad = queue.start("test", None, || panic!("boom")).unwrap();
        let good = queue.start("test", None, || Ok(None)).unwrap();
        assert!(matches!(bad.wait(), Err(Error::Other(text)) if text == "boom"));
        good.wait().unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            queue.run(None, || std::panic::panic_any(7));
        }));
        assert!(caught.is_err());
        assert_eq!(queue.run(None, || 3), 3);
    }

    #[test]
    fn what_a_job_submits_is_a_part_of_it() {
        let queue = Arc::new(Queue::new());
        let log = Arc::new(Mutex::new(Vec::new()));
        let outer = {
            let (inside, log) = (queue.clone(), log.clone());
            move || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                inside.run(None, || log.lock().push(1));
                let own = log.clone();
                let work = inside.start("test", None, move || {
                    own.lock().push(2);
                    Ok(None)
                })?;
                assert!(work.is_completed());
                inside.run(None, || inside.run(None, || log.lock().push(3)));
                Ok(None)
            }
        };
        let outer = queue.start("test", None, outer).unwrap();
        queue.run(None, || log.lock().push(4));
        outer.wait().unwrap();
        assert_eq!(*log.lock(), [1, 2, 3, 4]);
    }

    #[test]
    fn the_groups_of_a_gpu_keep_one_order_and_others_do_not_wait_for_them() {
        let gpu = Some(MAX_DEVICES - 1);
        let groups = [Queue::new(), Queue::new(), Queue::new()];
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut works = Vec::new();
        for i in 0..200 {
            let (group, own) = (&groups[i * 7 % 3], log.clone());
            let job = move || {
                std::thread::sleep(std::time::Duration::from_micros((i * 37 % 100) as u64));
                own.lock().push(i);
            };
            match i % 4 {
                0 => group.run(gpu, job),
                _ => works.push(group.start("test", gpu, move || {
                    job();
                    Ok(None)
                })),
            }
        }
        works.into_iter().for_each(|work| work.unwrap().wait().unwrap());
        assert_eq!(*log.lock(), (0..200).collect::<Vec<_>>());
        // A job on the GPU may call other groups, which others have asked for the GPU meanwhile.
        let [a, b, _] = groups.map(Arc::new);
        let (started, inner) = (Arc::new(std::sync::Barrier::new(2)), b.clone());
        let own = started.clone();
        let outer = a.start("test", gpu, move || {
            own.wait();
            own.wait();
            inner.run(gpu, || ());
            inner.run(None, || ());
            Ok(None)
        });
        started.wait();
        let later = b.start("test", gpu, || Ok(None)).unwrap();
        a.start("test", None, || Ok(None)).map(drop).unwrap();
        started.wait();
        outer.unwrap().wait().unwrap();
        later.wait().unwrap();
    }

    #[test]
    fn closing_waits_for_what_was_started() {
        let queue = Queue::new();
        let done = Arc::new(Mutex::new(0));
        for _ in 0..10 {
            let done = done.clone();
            drop(queue.start("test", None, move || {
                std::thread::sleep(std::time::Duration::from_millis(1));
                *done.lock() += 1;
                Ok(None)
            }));
        }
        queue.close();
        assert_eq!(*done.lock(), 10);
    }
}
