//! The helper threads of parallel loops. One job at a time is cut into parts, of which the calling thread and
//! each helper take their own first: what a part of one loop wrote is near the thread that reads it in the
//! next. Then they take what is left; a helper that sleeps delays nothing, because the others take its part.
//! Helpers look out for the next job for a while before they sleep: between two loops of a training step there
//! are microseconds, and waking a thread takes tens of them.

use std::any::Any;
use std::cell::Cell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::handover;
use torchrs_error::{Error, throw};

use Ordering::{Acquire, Relaxed, Release};

/// How long a helper looks out for the next job, and a caller for its last part's end: waking a thread takes
/// the waker 20 us.
const LOOKOUT: Duration = Duration::from_micros(200);
/// Most parts of a job.
pub const MOST: usize = 1 << 12;

/// A job's body, called with the number of a part.
type Body<'a> = dyn Fn(usize) + Sync + 'a;

/// What helpers see of the current job.
struct Pool {
    /// The current job's number and parts, see [`Ticket`].
    ticket: AtomicU64,
    /// The last job in which each part was taken. A part is taken by writing the job's number here, which is done
    /// only over an older one: once all parts are taken nobody, however late, takes one any more.
    taken: [Taken; MOST],
    /// The current job's body: a pointer to its caller's `&Body`.
    body: AtomicPtr<()>,
    /// Parts that are done.
    done: AtomicUsize,
    /// Whether the caller sleeps until the last part is done.
    waits: AtomicBool,
    caller: Mutex<Option<Thread>>,
    /// What a helper's part panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The helpers. Held for as long as a job lasts, so that there is one at a time.
    helpers: Mutex<Vec<Thread>>,
    /// Whether there are as many processors as threads: else looking out would be at another's cost.
    looks_out: AtomicBool,
}

static POOL: Pool = Pool {
    ticket: AtomicU64::new(0),
    taken: [const { Taken(AtomicU64::new(0)) }; MOST],
    body: AtomicPtr::new(std::ptr::null_mut()),
    done: AtomicUsize::new(0),
    waits: AtomicBool::new(false),
    caller: Mutex::new(None),
    panic: Mutex::new(None),
    helpers: Mutex::new(Vec::new()),
    looks_out: AtomicBool::new(false),
};

thread_local! {
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

/// A job's number, in a cache line of its own.
#[repr(align(64))]
struct Taken(AtomicU64);

/// A job's number (48 bits, which would last nine years at a job a microsecond) and its parts (16).
#[derive(Clone, Copy)]
struct Ticket(u64);

impl Ticket {
    fn job(self) -> u64 {
        self.0 >> 16
    }

    fn parts(self) -> usize {
        self.0 as u16 as usize
    }

    /// The next job's.
    fn following(self, parts: usize) -> Ticket {
        Ticket((self.job() + 1) << 16 | parts as u64)
    }
}

/// Whether this thread works on a part: a loop inside it is not divided.
pub fn works() -> bool {
    WORKS.get()
}

/// Calls `body` with 0 to `parts - 1`, on this thread and up to `parts - 1` others. While another thread's
/// job runs, it is this thread alone that does so. A panic reaches the caller with its payload, when all
/// parts are done.
///
/// # Panics
/// Throws [`Error::Other`] when the system refuses a thread.
pub fn run(parts: usize, body: &Body<'_>) {
    assert!(parts <= MOST);
    let Some(mut helpers) = POOL.helpers.try_lock() else {
        return (0..parts).for_each(body);
    };
    while helpers.len() + 1 < parts {
        let helper = start(helpers.len() + 1);
        helpers.push(helper);
        let processors = thread::available_parallelism().map_or(1, |n| n.get());
        POOL.looks_out.store(helpers.len() < processors, Relaxed);
    }
    // It is used by those who took a part, and this function does not return before all parts are done.
    let mut pointed = body;
    POOL.body.store((&raw mut pointed).cast(), Relaxed);
    POOL.done.store(0, Relaxed);
    let ticket = Ticket(POOL.ticket.load(Relaxed)).following(parts);
    // Whoever sees the ticket sees the body.
    POOL.ticket.store(ticket.0, Release);
    for helper in &helpers[..parts - 1] {
        helper.unpark();
    }
    WORKS.set(true);
    let mut panic = None;
    // After a panic in a part of this thread the other parts are still to be done.
    while let Some((part, _)) = take(ticket, 0) {
        let result = catch_unwind(AssertUnwindSafe(|| body(part)));
        panic = panic.or(result.err());
        handover::finish(&POOL.done, &POOL.waits);
    }
    WORKS.set(false);
    wait(parts);
    let others = POOL.panic.lock().take();
    drop(helpers);
    if let Some(panic) = panic.or(others) {
        resume_unwind(panic);
    }
}

/// Takes a part of a job, if one is left, `first` before others: its number, and the job's body.
fn take(ticket: Ticket, first: usize) -> Option<(usize, *mut ())> {
    let parts = ticket.parts();
    // The job's, or one of a later job: then no part of this one is left.
    let body = POOL.body.load(Relaxed);
    for i in 0..parts {
        let part = (first + i) % parts;
        if handover::take(&POOL.taken[part].0, ticket.job()) {
            return Some((part, body));
        }
    }
    None
}

/// Waits until all parts are done.
fn wait(parts: usize) {
    if look_out(|| handover::is_done(&POOL.done, parts)) {
        return;
    }
    *POOL.caller.lock() = Some(thread::current());
    handover::wait(&POOL.done, parts, &POOL.waits, thread::park);
}

/// Whether `found` becomes true within a while.
fn look_out(found: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if found() {
                return true;
            }
            spin_loop();
        }
        if !POOL.looks_out.load(Relaxed) || start.elapsed() > LOOKOUT {
            return found();
        }
    }
}

fn start(number: usize) -> Thread {
    let helper =
        thread::Builder::new().name(format!("torchrs-cpu-{number}")).spawn(move || help(number));
    match helper {
        Ok(helper) => helper.thread().clone(),
        Err(e) => throw(Error::Other(format!("cannot start compute thread {number}: {e}"))),
    }
}

/// The life of a helper, whose own part has this number.
fn help(number: usize) {
    WORKS.set(true);
    loop {
        // Whoever sees the ticket sees the body.
        let ticket = Ticket(POOL.ticket.load(Acquire));
        while number < ticket.parts()
            && let Some((part, body)) = take(ticket, number)
        {
            // SAFETY: `run` points there to its `&Body`, and does not return before this part is done.
            let body = unsafe { *body.cast::<&Body<'_>>() };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(part))) {
                *POOL.panic.lock() = Some(panic);
            }
            if handover::finish(&POOL.done, &POOL.waits)
                && let Some(caller) = &*POOL.caller.lock()
            {
                caller.unpark();
            }
        }
        if !look_out(|| Ticket(POOL.ticket.load(Relaxed)).job() != ticket.job()) {
            // Whoever brings a job wakes its helpers: if that was before this, it returns at once.
            thread::park();
        }
    }
}
