//! The plans that are kept for what was asked before, and what follows one that fails: cuDNN's next one, or one with less
//! workspace where memory is short, then our own kernels.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use super::descriptor::{Address, Descriptor, Kind as Type};
use super::plan::{ALL, Plan, Target};
use super::table::{handle, table};
use crate::device;
use crate::driver::Relaxed;
use crate::loading::library::{self, Kind};
use crate::memo::bounded::Bounded;
use crate::memory::Block;
use crate::work::event::{Event, EventOptions};
use crate::work::recording;
use crate::work::stream::Stream;
use crate::work::traffic;
use torchrs_error::{Error, Result};

/// Rounds in which plans are timed; the least time counts.
const ROUNDS: usize = 3;

/// All that the choice of a plan depends on, beside the device.
pub(super) trait Question: Copy + Debug + Eq + Hash {
    /// The most workspace in bytes.
    fn workspace(&self) -> usize;

    /// How many plans are timed where the fastest is wanted.
    fn candidates(&self) -> usize {
        1
    }

    /// At most `most` plans with at most so much workspace, as [`plans`](super::plan::plans) finds them.
    fn plans(&self, target: &Target, workspace: usize, most: usize) -> Result<Vec<Plan>>;
}

/// What plans are started with: the names of a graph's tensors, their addresses, and the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) names: &'a [i64],
    pub(super) at: &'a [Address],
    pub(super) stream: Stream,
}

type Key<Q> = (usize, Q);
/// The most plans of one kind of question: each has code of its own.
const MOST: usize = 1024;

/// The plans in use on all devices; none for what cuDNN does not compute.
pub(super) struct Kept<Q>(Bounded<Key<Q>, Option<Arc<Plan>>>);

impl<Q: Question> Kept<Q> {
    pub(super) const fn new() -> Kept<Q> {
        Kept(Bounded::new(MOST))
    }

    /// Starts what was asked; false where cuDNN does not compute such, or fails whatever it is asked, which is said once.
    ///
    /// # Errors
    /// [`Error::Device`] where the device refuses.
    ///
    /// # Safety
    /// The addresses are of what the question's graph says, in memory of the stream's device that is valid until the
    /// stream has done this work; those of numbers are the host's. No result overlaps an operand.
    pub(super) unsafe fn start(&self, asked: &Q, work: &Work) -> Result<bool> {
        let _relaxed = prepared(work.stream)?;
        // SAFETY: the caller's promise.
        let plan = unsafe { self.planned(asked, work) };
        let Some(plan) = plan else { return Ok(false) };
        // SAFETY: the caller's promise.
        let Err(error) = (unsafe { run(&plan, work) }) else {
            keep_for_graph(&plan, work.stream);
            return Ok(true);
        };
        // SAFETY: the caller's promise.
        let done = unsafe { self.start_another(asked, &plan, &error, work) };
        if !done {
            say(asked, &error);
        }
        Ok(done)
    }

    /// The plan of a question that asks for none to be timed, if cuDNN computes such.
    ///
    /// # Errors
    /// [`Error::Device`] where the device refuses.
    pub(super) fn plan(&self, asked: &Q, stream: Stream) -> Result<Option<Arc<Plan>>> {
        let _relaxed = prepared(stream)?;
        assert_eq!(asked.candidates(), 1, "plans that are timed");
        // SAFETY: nothing is timed, so nothing started, and no address read.
        Ok(unsafe { self.planned(asked, &Work { names: &[], at: &[], stream }) })
    }

    /// The plan of a question: what was found before, or else is now.
    ///
    /// # Safety
    /// As for [`start`](Self::start), if several plans are timed.
    unsafe fn planned(&self, asked: &Q, work: &Work) -> Option<Arc<Plan>> {
        let key = (work.stream.device(), *asked);
        self.0.get(&key).unwrap_or_else(|| {
            // SAFETY: the caller's promise.
            let chosen = unsafe { choose(asked, work) };
            if let Err(error) = &chosen {
                say(asked, error);
            }
            if let Err(Error::OutOfMemory(_)) = chosen {
                // There may be memory at the next call.
                return None;
            }
            self.0.get_or_insert(key, chosen.ok().flatten().map(Arc::new))
        })
    }

    /// After a plan failed: starts the first other one that does not, and keeps it; false where there is none. Plans
    /// with less workspace are looked for where memory was lacking.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    unsafe fn start_another(&self, asked: &Q, failed: &Plan, error: &Error, work: &Work) -> bool {
        let device = work.stream.device();
        let is_short = matches!(error, Error::OutOfMemory(_));
        let most = asked.workspace();
        let workspace = if is_short { failed.workspace.saturating_sub(1) } else { most };
        let others =
            handle(device).and_then(|on| asked.plans(&Target::Handle(*on), workspace, ALL));
        for plan in others.unwrap_or_default() {
            // SAFETY: the caller's promise; a plan that failed has started nothing.
            if unsafe { run(&plan, work) }.is_ok() {
                let plan = Arc::new(plan);
                keep_for_graph(&plan, work.stream);
                self.0.replace((device, *asked), Some(plan));
                return true;
            }
        }
        if !is_short {
            self.0.replace((device, *asked), None);
        }
        false
    }
}

/// A graph that is being captured starts the plan's code as long as it lives.
fn keep_for_graph(plan: &Arc<Plan>, stream: Stream) {
    if stream.is_capturing().unwrap_or(true) {
        recording::keep_for_replays(stream.device(), plan.clone());
    }
}

/// cuDNN may load code at a first call, which a capture forbids otherwise.
fn prepared(stream: Stream) -> Result<Relaxed> {
    device::bind(stream.device())?;
    Relaxed::new()
}

/// Says on standard error that cuDNN fails on something, the first time that it does on any.
pub(super) fn say(asked: &impl Debug, error: &Error) {
    library::say_failing(Kind::Cudnn, error, asked);
}

/// The plan for a question, if cuDNN computes such.
///
/// # Safety
/// As for [`Kept::start`], if several plans are timed.
unsafe fn choose(asked: &impl Question, work: &Work) -> Result<Option<Plan>> {
    let plans = {
        let handle = handle(work.stream.device())?;
        asked.plans(&Target::Handle(*handle), asked.workspace(), asked.candidates())?
    };
    if plans.len() < 2 {
        return Ok(plans.into_iter().next());
    }
    let mut least = vec![f32::INFINITY; plans.len()];
    for _ in 0..ROUNDS {
        for (plan, least) in plans.iter().zip(&mut least) {
            // SAFETY: the caller's promise; a plan does not read what it writes.
            *least = least.min(unsafe { time(plan, work) }?);
        }
    }
    let timed = plans.into_iter().zip(least);
    Ok(timed.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(plan, _)| plan))
}

/// The milliseconds that a plan takes; infinitely many where it fails.
///
/// # Safety
/// As for [`Kept::start`].
unsafe fn time(plan: &Plan, work: &Work) -> Result<f32> {
    let stream = work.stream;
    let event = || Event::new(stream.device(), EventOptions { timing: true, ..Default::default() });
    let (start, end) = (event()?, event()?);
    start.record(stream)?;
    // SAFETY: the caller's promise.
    if unsafe { run(plan, work) }.is_err() {
        return Ok(f32::INFINITY);
    }
    end.record(stream)?;
    end.finish()?;
    start.elapsed_ms(&end)
}

/// Starts a plan's work.
///
/// # Safety
/// As for [`Kept::start`].
unsafe fn run(plan: &Plan, work: &Work) -> Result<()> {
    let stream = work.stream;
    if traffic::is_counted() {
        let at: Vec<*const u8> = work.at.iter().map(|at| at.0.cast_const()).collect();
        traffic::called("cudnnBackendExecute", &at);
    }
    let workspace = Block::on(plan.workspace, stream)?;
    let pack = Descriptor::new(Type::Pack)?;
    pack.set(1000, work.names)?;
    pack.set(1001, work.at)?;
    pack.set(1003, &[Address(workspace.as_ptr())])?;
    let pack = pack.finish()?;
    let (table, handle) = (table()?, handle(stream.device())?);
    // SAFETY: objects of this library; nobody else has the handle meanwhile; the caller answers for the addresses,
    // and the workspace goes back to its own stream's pool.
    unsafe {
        table.cudnnSetStream(*handle, stream.handle())?;
        table.cudnnBackendExecute(*handle, plan.descriptor.object, pack.object)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::simulated_test::on_gpu;

    /// One that fails, for want of memory or not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Fails(bool);

    thread_local! {
        static ASKED: Cell<usize> = const { Cell::new(0) };
    }

    impl Question for Fails {
        fn workspace(&self) -> usize {
            0
        }

        fn plans(&self, _: &Target, _: usize, _: usize) -> Result<Vec<Plan>> {
            ASKED.set(ASKED.get() + 1);
            let why = "as expected".to_owned();
            Err(if self.0 { Error::OutOfMemory(why) } else { Error::Device(why) })
        }
    }

    /// One of many, none of which cuDNN computes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Many(usize);

    impl Question for Many {
        fn workspace(&self) -> usize {
            0
        }

        fn plans(&self, _: &Target, _: usize, _: usize) -> Result<Vec<Plan>> {
            ASKED.set(ASKED.get() + 1);
            Ok(Vec::new())
        }
    }

    fn ask_many() {
        static PLANS: Kept<Many> = Kept::new();
        let stream = Stream::current(0).unwrap();
        for which in 0..3 * MOST {
            for which in [which, 0] {
                assert!(PLANS.plan(&Many(which), stream).unwrap().is_none());
            }
            assert!(PLANS.0.len() <= MOST);
        }
        assert_eq!(ASKED.get(), 3 * MOST, "what is in use is not asked again");
    }

    #[test]
    fn plans_do_not_pile_up() {
        on_gpu("libraries::cudnn::kept::tests::plans_do_not_pile_up", ask_many);
    }

    fn ask_twice() {
        static PLANS: Kept<Fails> = Kept::new();
        let stream = Stream::current(0).unwrap();
        for (fails, asked) in [(Fails(false), 1), (Fails(true), 3)] {
            for _ in 0..2 {
                assert!(PLANS.plan(&fails, stream).unwrap().is_none());
            }
            assert_eq!(ASKED.get(), asked);
        }
    }

    #[test]
    fn what_failed_for_want_of_memory_is_asked_again() {
        let test = "libraries::cudnn::kept::tests::what_failed_for_want_of_memory_is_asked_again";
        on_gpu(test, ask_twice);
    }
}
