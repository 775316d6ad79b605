//! From calls to work on streams. Calls between `ncclGroupStart` and `ncclGroupEnd` are started together;
//! any other call is a group of its own.

use super::collective::Collective;
use super::communicator::Communicator;
use super::mailbox::Transfer;
use super::outcome::{Outcome, Result};
use crate::code::Code;
use crate::counters;
use crate::event::Mark;
use crate::faults;
use crate::graph::capture;
use crate::memory::block::Block;
use crate::memory::device_range;
use crate::random::Random;
use crate::settings::{self, Fault};
use crate::stream::Stream;
use crate::work::Work;
use crate::{context, executor};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

/// What one call asks for.
#[derive(Debug, Clone)]
pub enum Operation {
    /// All ranks take part.
    Collective(Collective),
    /// Pairs of ranks take part.
    Transfers(Vec<Transfer>),
}

/// A call with all that it needs later.
#[derive(Debug, Clone)]
struct Pending {
    communicator: Arc<Communicator>,
    /// The first is the one it was called on; transfers of a group may come from several.
    streams: Vec<Arc<Stream>>,
    operation: Operation,
    /// Where the data is: addresses, and the blocks, which stay mapped.
    blocks: Vec<(usize, usize, Arc<Block>)>,
    fault: Option<Fault>,
}

/// The calls of a thread between start and end, and how deep it is.
#[derive(Default)]
struct Group {
    depth: usize,
    calls: Vec<Pending>,
    error: Option<Outcome>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Begins a group.
pub fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Ends a group; the outermost end starts its calls.
pub fn end() -> Result {
    let group = GROUP.with_borrow_mut(|group| match group.depth {
        0 => Err(Outcome::INVALID_USAGE),
        1 => Ok(std::mem::take(group)),
        _ => {
            group.depth -= 1;
            Ok(Group::default())
        }
    })?;
    match group.error {
        Some(error) => Err(error),
        None => launch(join_transfers(group.calls)),
    }
}

/// Takes a call, whose buffers are given as addresses and lengths, into the group or starts it.
pub fn call(
    communicator: &Arc<Communicator>,
    stream: &Arc<Stream>,
    operation: Operation,
    buffers: &[(usize, usize)],
) -> Result {
    let made = prepare(communicator, stream, operation, buffers);
    let call = GROUP.with_borrow_mut(|group| match (group.depth, made) {
        (0, made) => made.map(Some),
        (_, Ok(call)) => {
            group.calls.push(call);
            Ok(None)
        }
        (_, Err(error)) => {
            group.error.get_or_insert(error);
            Err(error)
        }
    })?;
    call.map_or(Ok(()), |call| launch(vec![call]))
}

fn prepare(
    communicator: &Arc<Communicator>,
    stream: &Arc<Stream>,
    operation: Operation,
    buffers: &[(usize, usize)],
) -> Result<Pending> {
    communicator.check_ready()?;
    if stream.device != communicator.device {
        return Err(Outcome::INVALID_ARGUMENT);
    }
    context::of(stream.device).check()?;
    let mut blocks = Vec::new();
    for &(address, bytes) in buffers.iter().filter(|(_, bytes)| *bytes > 0) {
        blocks.push((address, bytes, device_range(address, bytes)?));
    }
    let number = counters::COLLECTIVES.count();
    let fault =
        [Fault::NcclHang, Fault::NcclError].into_iter().find(|one| faults::strikes(*one, number));
    let (communicator, streams) = (communicator.clone(), vec![stream.clone()]);
    Ok(Pending { communicator, streams, operation, blocks, fault })
}

/// Makes one call of all transfers of a communicator: they go on side by side.
fn join_transfers(calls: Vec<Pending>) -> Vec<Pending> {
    let mut joined: Vec<Pending> = Vec::new();
    for call in calls {
        let Operation::Transfers(more) = &call.operation else {
            joined.push(call);
            continue;
        };
        let same = joined.iter_mut().find(|one| {
            matches!(one.operation, Operation::Transfers(_))
                && Arc::ptr_eq(&one.communicator, &call.communicator)
        });
        match same {
            Some(Pending {
                operation: Operation::Transfers(all), streams, blocks, fault, ..
            }) => {
                all.extend(more);
                blocks.extend(call.blocks);
                if !streams.iter().any(|stream| stream.id == call.streams[0].id) {
                    streams.extend(call.streams);
                }
                *fault = fault.or(call.fault);
            }
            _ => joined.push(call),
        }
    }
    joined
}

/// Starts calls. A communicator that does not block may say that it is still at it: with the adversary it
/// always does.
fn launch(calls: Vec<Pending>) -> Result {
    let slow = calls.iter().any(|call| !call.communicator.blocking);
    let Some(seed) = settings::adversary().filter(|_| slow) else {
        return calls.into_iter().try_for_each(enqueue);
    };
    calls.iter().for_each(|call| call.communicator.set_in_progress(true));
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(Random::fresh(seed).below(2000)));
        let communicators: Vec<_> = calls.iter().map(|call| call.communicator.clone()).collect();
        for call in calls {
            let communicator = call.communicator.clone();
            if let Err(outcome) = enqueue(call) {
                communicator.fail(outcome, "a call could not be started");
            }
        }
        communicators.iter().for_each(|one| one.set_in_progress(false));
    });
    Err(Outcome::IN_PROGRESS)
}

/// Puts a call on its streams: each says when it has come to the call, and waits until it is done.
fn enqueue(call: Pending) -> Result {
    let call = Arc::new(call);
    if call.streams[0].capture.lock().is_some() {
        return record(&call);
    }
    let started: Vec<Arc<Mark>> = call.streams.iter().map(|_| Arc::default()).collect();
    let done = Arc::new(Mark::default());
    for (stream, mark) in call.streams.iter().zip(&started) {
        stream.submit(Work::Record(mark.clone()))?;
        stream.submit(Work::Wait(done.clone()))?;
    }
    call.communicator.clone().submit(Box::new(move |communicator| {
        if started.iter().all(|mark| communicator.wait_for_stream(mark)) {
            call.perform();
        }
        executor::complete(&done);
    }));
    Ok(())
}

/// Puts a call into the graph that its stream is captured for.
fn record(call: &Arc<Pending>) -> Result {
    let stream = &call.streams[0];
    if call.streams.len() > 1 {
        return Err(Outcome::INVALID_USAGE);
    }
    let held = Held::new(call);
    let work = Work::Library(Arc::new(move || {
        let (done, wait) = channel::<()>();
        let copy = held.0.clone();
        held.0.communicator.submit_of_graph(Box::new(move |_| {
            copy.perform();
            drop(done);
        }));
        // Ends when the other end is dropped, also by an abort.
        let _ = wait.recv();
        Ok(())
    }));
    capture::take(stream, work)?;
    Ok(())
}

/// A call in a graph, which its communicator cannot end before.
struct Held(Arc<Pending>);

impl Held {
    fn new(call: &Arc<Pending>) -> Held {
        call.communicator.in_graphs.fetch_add(1, Ordering::AcqRel);
        Held(call.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.communicator.in_graphs.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pending {
    /// Performs the call; what fails is the communicator's error, and lasts until it is aborted.
    fn perform(&self) {
        let communicator = &*self.communicator;
        if communicator.is_aborted() {
            return;
        }
        let lost = |(address, bytes, _): &(usize, usize, Arc<Block>)| {
            device_range(*address, *bytes).is_err()
        };
        if self.blocks.iter().any(lost) {
            let message = "a buffer was freed before the call came to it";
            communicator.fail(Outcome::UNHANDLED_CUDA_ERROR, message);
            context::of(communicator.device).break_with(Code::ILLEGAL_ADDRESS);
            return;
        }
        match self.fault {
            Some(Fault::NcclError) => {
                communicator.fail(Outcome::SYSTEM_ERROR, "a fault that was asked for");
                return communicator.hang();
            }
            Some(_) => return communicator.hang(),
            None => {}
        }
        let Ok(place) = communicator.place() else { return };
        let done = match &self.operation {
            Operation::Collective(call) => {
                let number = communicator.performed.fetch_add(1, Ordering::Relaxed) + 1;
                place.collective(call, number)
            }
            Operation::Transfers(transfers) => place.transfer(transfers),
        };
        if let Err(stop) = done {
            communicator.stopped(stop);
            communicator.hang();
        }
    }
}
