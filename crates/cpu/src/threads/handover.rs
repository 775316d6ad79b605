//! How a job of the thread pool goes from its caller to the helpers and back.
//!
//! | word | written by | says |
//! | --- | --- | --- |
//! | ticket | the caller, `Release` | a job's number; all that the caller wrote before is seen by who reads it |
//! | taken, one a part | who takes the part, `AcqRel` | the last job in which the part was taken |
//! | done | who has done a part, `SeqCst` | how many parts of this job are done |
//! | waits | the caller, `SeqCst` | the caller sleeps, or is about to |
//!
//! A part is taken once: by the one exchange that replaces an older job's number. A helper that comes late, with an
//! older ticket, finds that number or a later one everywhere and takes nothing; so it never touches the body of a
//! job whose caller has returned.
//!
//! No end is missed: the caller announces that it waits and then counts what is done; a helper counts a part done and
//! then looks whether the caller waits. All four are sequentially consistent, so that one of the two sees the other.
//! No beginning is missed: the caller unparks helpers after it wrote the ticket, and an unpark that comes before the
//! park makes that return at once.
//!
//! `crates/interleavings` runs this file in every order.

use super::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Relaxed, SeqCst},
};

/// Takes a part of a job, by the word of that part; whether it was still there.
pub fn take(taken: &AtomicU64, job: u64) -> bool {
    let seen = taken.load(Relaxed);
    seen < job && taken.compare_exchange(seen, job, AcqRel, Relaxed).is_ok()
}

/// Counts a part as done. Whether the caller may sleep, and is to be woken.
pub fn finish(done: &AtomicUsize, waits: &AtomicBool) -> bool {
    done.fetch_add(1, SeqCst);
    waits.load(SeqCst)
}

/// Whether all parts are done, and all that was done in them is seen.
pub fn is_done(done: &AtomicUsize, parts: usize) -> bool {
    done.load(SeqCst) == parts
}

/// The caller sleeps until all parts are done. `sleep` returns when it was woken since the last time, or for no reason.
pub fn wait(done: &AtomicUsize, parts: usize, waits: &AtomicBool, mut sleep: impl FnMut()) {
    waits.store(true, SeqCst);
    while !is_done(done, parts) {
        sleep();
    }
    waits.store(false, SeqCst);
}
