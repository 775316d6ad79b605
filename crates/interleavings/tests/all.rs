//! The protocols in every order.

use std::collections::HashSet;
use std::sync::Mutex;

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;
use torchrs_interleavings::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Fences, Ordering, set_fences,
};
use torchrs_interleavings::{Owner, handover, sleepers};

/// Runs a model in every order with at most so many switches from a thread that could go on.
fn in_every_order(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let model = std::sync::Arc::new(model);
    for fences in [Fences::AfterWrites, Fences::BeforeReads] {
        set_fences(fences);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(switches);
        let model = model.clone();
        builder.check(move || model());
    }
}

/// How often values were dropped.
fn dropped(drops: &AtomicUsize) -> usize {
    drops.load(Ordering::Relaxed)
}

#[test]
fn owners_on_threads_drop_the_value_once_and_after_all_reads() {
    in_every_order(4, || {
        let drops = Arc::new(AtomicUsize::new(0));
        let owner = Owner::new(drops.clone());
        let threads = [owner.share(), owner.share()].map(|other| {
            thread::spawn(move || {
                assert_eq!(other.read(), 1);
                let more = other.share();
                drop(other);
                assert_eq!(more.read(), 1);
            })
        });
        assert_eq!(owner.read(), 1);
        drop(owner);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(dropped(&drops), 1);
    });
}

#[test]
fn a_weak_reference_finds_the_value_whole_or_not_at_all() {
    static ENDS: Mutex<Option<HashSet<bool>>> = Mutex::new(None);
    in_every_order(4, || {
        let drops = Arc::new(AtomicUsize::new(0));
        let owner = Owner::new(drops.clone());
        let weak = owner.weak();
        let other = thread::spawn(move || {
            let found = weak.owner();
            if let Some(owner) = &found {
                assert_eq!(owner.read(), 1);
            }
            ENDS.lock().unwrap().get_or_insert_default().insert(found.is_some());
        });
        assert_eq!(owner.read(), 1);
        drop(owner);
        other.join().unwrap();
        assert_eq!(dropped(&drops), 1);
    });
    assert_eq!(ENDS.lock().unwrap().as_ref().unwrap().len(), 2, "both ends were met");
}

#[test]
fn who_is_alone_writes_after_all_others_reads() {
    in_every_order(4, || {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut owner = Owner::new(drops.clone());
        let other = owner.share();
        let reads = thread::spawn(move || assert_eq!(other.read(), 1));
        owner.write_alone();
        reads.join().unwrap();
        assert!(owner.write_alone());
        drop(owner);
        assert_eq!(dropped(&drops), 1);
    });
}

/// The pool for one helper and jobs of two parts, as `crates/cpu/src/threads/pool.rs` puts the steps together.
struct Pool {
    ticket: AtomicU64,
    taken: [AtomicU64; 2],
    /// The job whose body is in use: a part reads it, and the caller writes it after its job's end.
    bodies: [loom::cell::UnsafeCell<u64>; JOBS],
    done: torchrs_interleavings::atomic::AtomicUsize,
    waits: AtomicBool,
}

const JOBS: usize = 2;

// SAFETY: loom looks at each use of the cells.
unsafe impl Sync for Pool {}

impl Pool {
    /// Does the parts of a job that are left. `after` is called for each with whether the caller waits.
    fn work(&self, job: u64, first: usize, mut after: impl FnMut(bool)) {
        for part in [first, 1 - first] {
            if handover::take(&self.taken[part], job) {
                // SAFETY: the caller writes when all parts are done.
                self.bodies[job as usize - 1].with(|body| assert_eq!(unsafe { *body }, job));
                after(handover::finish(&self.done, &self.waits));
            }
        }
    }
}

#[test]
fn a_job_ends_when_all_its_parts_are_done_and_nobody_touches_it_later() {
    in_every_order(2, || {
        let pool = Arc::new(Pool {
            ticket: AtomicU64::new(0),
            taken: [(); 2].map(|()| AtomicU64::new(0)),
            bodies: std::array::from_fn(|job| loom::cell::UnsafeCell::new(job as u64 + 1)),
            done: torchrs_interleavings::atomic::AtomicUsize::new(0),
            waits: AtomicBool::new(false),
        });
        let (shared, caller) = (pool.clone(), thread::current());
        let helper = thread::spawn(move || {
            let mut last = 0;
            while last < JOBS as u64 {
                let job = shared.ticket.load(Ordering::Acquire);
                if job == last {
                    thread::park();
                    continue;
                }
                last = job;
                shared.work(job, 1, |waits| {
                    if waits {
                        caller.unpark();
                    }
                });
            }
        });
        for job in 1..=JOBS as u64 {
            pool.done.store(0, Ordering::Relaxed);
            pool.ticket.store(job, Ordering::Release);
            helper.thread().unpark();
            pool.work(job, 0, |_| ());
            handover::wait(&pool.done, 2, &pool.waits, thread::park);
            // SAFETY: the job is over: loom finds whoever still reads.
            pool.bodies[job as usize - 1].with_mut(|body| unsafe { *body = 0 });
        }
        helper.join().unwrap();
    });
}

/// The kernel's futex: it compares and sleeps under one lock, and wakes under the same.
struct Futex {
    lock: loom::sync::Mutex<()>,
    woken: loom::sync::Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let lock = self.lock.lock().unwrap();
        if word.load(Ordering::SeqCst) == expected {
            drop(self.woken.wait(lock).unwrap());
        }
    }

    fn wake_all(&self) {
        let _lock = self.lock.lock().unwrap();
        self.woken.notify_all();
    }
}

/// One rank's word and what it wrote before it arrived.
struct Rank {
    flag: AtomicU32,
    sleepers: AtomicU32,
    futex: Futex,
    written: loom::cell::UnsafeCell<u32>,
}

// SAFETY: loom looks at each use of the cell.
unsafe impl Sync for Rank {}

impl Rank {
    fn new() -> Rank {
        Rank {
            flag: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            futex: Futex { lock: loom::sync::Mutex::new(()), woken: loom::sync::Condvar::new() },
            written: loom::cell::UnsafeCell::new(0),
        }
    }

    fn arrive(&self) {
        // SAFETY: others read when they see the arrival.
        self.written.with_mut(|p| unsafe { *p = 7 });
        sleepers::arrive(&self.flag, 4, &self.sleepers, || self.futex.wake_all());
    }

    fn wait(&self) {
        let look = |flag| (flag >= 4).then_some(());
        let sleep = |flag| {
            self.futex.wait(&self.flag, flag);
            None
        };
        sleepers::sleep_until(&self.flag, &self.sleepers, look, sleep);
        // SAFETY: the rank has arrived, and writes no more.
        self.written.with(|p| assert_eq!(unsafe { *p }, 7));
    }
}

#[test]
fn two_ranks_meet_and_see_what_the_other_wrote() {
    in_every_order(3, || {
        let ranks = Arc::new([Rank::new(), Rank::new()]);
        let others = ranks.clone();
        let other = thread::spawn(move || {
            others[1].arrive();
            others[0].wait();
        });
        ranks[0].arrive();
        ranks[1].wait();
        other.join().unwrap();
    });
}

#[test]
fn an_arrival_wakes_all_who_sleep() {
    in_every_order(2, || {
        let rank = Arc::new(Rank::new());
        let sleepers = [(); 2].map(|()| {
            let rank = rank.clone();
            thread::spawn(move || rank.wait())
        });
        rank.arrive();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}
