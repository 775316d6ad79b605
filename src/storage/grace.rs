//! When memory that comes and goes may be given back: once no op runs that may have asked for its address
//! (quiescence, as in read-copy-update: McKenney and Slingwine, 1998).
//!
//! A thread's word is odd while an op runs on it. Memory that is retired waits for the words that were odd then to
//! change, and for the next op of its own thread to end: an address that was asked for outside an op is valid till
//! then. Until the first storage on demand is made ops look at one flag, and nothing else.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence,
};

use parking_lot::Mutex;

use super::Storage;

/// Whether there has been a storage on demand.
static WATCHES: AtomicBool = AtomicBool::new(false);
/// The words of all threads that ran an op since.
static THREADS: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());
static RETIRED: Mutex<Vec<Retired>> = Mutex::new(Vec::new());
static WAITING: AtomicUsize = AtomicUsize::new(0);

struct Retired {
    /// Held for its drop.
    _memory: Storage,
    /// Words, and what they must have come to.
    until: Vec<(Arc<AtomicU64>, u64)>,
}

/// A thread's word, taken from the list as the thread ends.
struct Word(Arc<AtomicU64>);

impl Drop for Word {
    fn drop(&mut self) {
        THREADS.lock().retain(|word| !Arc::ptr_eq(word, &self.0));
        // Nobody waits for a thread that has ended.
        self.0.store(u64::MAX - 1, SeqCst);
    }
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static WORD: RefCell<Option<Word>> = const { RefCell::new(None) };
}

/// From now on ops say that they run.
pub(super) fn watch() {
    WATCHES.store(true, SeqCst);
}

/// An op begins on this thread. Whether [`leave`] is to be called at its end.
#[inline(always)]
pub(crate) fn enter() -> bool {
    WATCHES.load(Relaxed) && enter_watched()
}

#[cold]
fn enter_watched() -> bool {
    DEPTH.set(DEPTH.get() + 1);
    if DEPTH.get() == 1 {
        with_word(|word| {
            word.store(word.load(Relaxed) + 1, Relaxed);
            // Before any address is loaded: who has retired memory sees the word, or its address is not seen.
            fence(SeqCst);
        });
    }
    true
}

/// The op that said so in [`enter`] has ended.
#[cold]
pub(crate) fn leave() {
    DEPTH.set(DEPTH.get() - 1);
    if DEPTH.get() > 0 {
        return;
    }
    with_word(|word| word.store(word.load(Relaxed) + 1, SeqCst));
    if WAITING.load(Relaxed) > 0 {
        collect();
    }
}

/// Drops memory when nobody can be using its address, which is to be had no more.
pub(crate) fn retire(memory: Storage) {
    fence(SeqCst);
    let mut own = None;
    let _ = WORD.try_with(|_| with_word(|word| own = Some(word.clone())));
    let mut until = Vec::new();
    for word in &*THREADS.lock() {
        let now = word.load(SeqCst);
        let is_own = own.as_ref().is_some_and(|own| Arc::ptr_eq(own, word));
        match now % 2 {
            1 => until.push((word.clone(), now + 1)),
            _ if is_own => until.push((word.clone(), now + 2)),
            _ => {}
        }
    }
    if until.is_empty() {
        return;
    }
    RETIRED.lock().push(Retired { _memory: memory, until });
    WAITING.fetch_add(1, SeqCst);
}

/// Drops what nobody uses any more.
fn collect() {
    let is_over = |retired: &mut Retired| {
        retired.until.iter().all(|(word, value)| word.load(SeqCst) >= *value)
    };
    let over: Vec<Retired> = RETIRED.lock().extract_if(.., is_over).collect();
    WAITING.fetch_sub(over.len(), SeqCst);
    drop(over);
}

fn with_word(f: impl FnOnce(&Arc<AtomicU64>)) {
    let _ = WORD.try_with(|word| {
        let mut word = word.borrow_mut();
        let word = word.get_or_insert_with(|| {
            let word = Arc::new(AtomicU64::new(0));
            THREADS.lock().push(word.clone());
            Word(word)
        });
        f(&word.0);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::storage::SharedMemory;

    /// Memory that says when it is dropped.
    fn watched() -> (Storage, Arc<()>) {
        let (alive, memory) = (Arc::new(()), SharedMemory::create("grace", 64).unwrap());
        (Storage::shared(memory, 0, 64, Some(Box::new(alive.clone()))), alive)
    }

    /// Whether it goes, now that ops of this thread may end. Ops of other tests may keep it for a while.
    fn goes(alive: &Arc<()>) -> bool {
        (0..5000).any(|_| {
            enter();
            leave();
            std::thread::sleep(std::time::Duration::from_millis(2));
            Arc::strong_count(alive) == 1
        })
    }

    #[test]
    fn memory_lives_until_the_ops_that_ran_have_ended() {
        watch();
        let (memory, alive) = watched();
        let is_alive = || Arc::strong_count(&alive) == 2;
        // Outside an op: an address may be in use until the next one has ended.
        retire(memory);
        assert!(is_alive());
        assert!(enter());
        assert!(enter());
        leave();
        assert!(is_alive());
        leave();
        assert!(goes(&alive));

        // In an op of this thread.
        enter();
        let (memory, alive) = watched();
        retire(memory);
        assert_eq!(Arc::strong_count(&alive), 2);
        leave();
        assert!(goes(&alive));
    }

    #[test]
    fn an_op_of_another_thread_is_waited_for() {
        watch();
        let (memory, alive) = watched();
        let (begun, end) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                enter();
                begun.wait();
                end.wait();
                leave();
            });
            begun.wait();
            enter();
            retire(memory);
            leave();
            assert_eq!(Arc::strong_count(&alive), 2);
            end.wait();
            other.join().unwrap();
        });
        assert!(goes(&alive));
    }

    #[test]
    fn a_thread_that_has_ended_is_waited_for_no_more() {
        watch();
        let (memory, alive) = watched();
        std::thread::scope(|scope| {
            scope.spawn(|| retire(memory));
        });
        assert!(goes(&alive));
    }
}
