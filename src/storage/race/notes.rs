//! Who uses which bytes now. There are few notes at a time (threads times depth times operands), so
//! a short list in a few shards is searched from end to end.

use std::cell::RefCell;
use std::panic::Location;
use std::thread::{self, Thread, ThreadId};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{Elements, Use};

/// Pieces of memory beyond which a strided tensor counts as all bytes between its first and last.
const MOST_PIECES: usize = 1 << 16;

/// An op that runs on a thread, or what was started in the background.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub name: &'static str,
    pub at: &'static Location<'static>,
}

/// Whose note it is.
enum Owner {
    /// An op on this thread, of which so many scopes were open.
    Thread { thread: Thread, depth: usize },
    /// Something in the background, by its number.
    Background(u64),
}

impl Owner {
    fn is_thread(&self, id: ThreadId) -> bool {
        matches!(self, Owner::Thread { thread, .. } if thread.id() == id)
    }

    fn is_scope(&self, id: ThreadId, at: usize) -> bool {
        matches!(self, Owner::Thread { thread, depth } if *depth == at && thread.id() == id)
    }
}

struct Open {
    call: Call,
    /// The storages of its notes.
    noted: SmallVec<[u64; 8]>,
}

/// A use of a storage's bytes.
struct Note {
    storage: u64,
    owner: Owner,
    /// The outermost op on the thread, which is the one that the program called.
    call: Call,
    how: Use,
    place: Place,
}

/// [`Elements`] that stay, counted in bytes.
#[derive(Clone, PartialEq)]
struct Place {
    start: isize,
    size: usize,
    dims: SmallVec<[(usize, isize); 4]>,
}

static NOTES: [Mutex<Vec<Note>>; 16] = [const { Mutex::new(Vec::new()) }; 16];

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

fn shard(storage: u64) -> &'static Mutex<Vec<Note>> {
    &NOTES[storage as usize % NOTES.len()]
}

pub(super) fn enter(name: &'static str, at: &'static Location<'static>) {
    let open = Open { call: Call { name, at }, noted: SmallVec::new() };
    // Not where the thread is about to end: ops of its last destructors are not looked at.
    _ = OPEN.try_with(|all| all.borrow_mut().push(open));
}

pub(super) fn leave() {
    let left = OPEN.try_with(|all| {
        let mut all = all.borrow_mut();
        let depth = all.len();
        all.pop().map(|open| (open.noted, depth))
    });
    let Ok(Some((noted, depth))) = left else { return };
    if noted.is_empty() {
        return;
    }
    let me = thread::current().id();
    for storage in noted {
        let mine = |n: &Note| n.storage == storage && n.owner.is_scope(me, depth);
        shard(storage).lock().retain(|n| !mine(n));
    }
}

#[track_caller]
pub(super) fn note(storage: u64, how: Use, place: Elements<'_>) {
    let found = OPEN.try_with(|all| {
        let mut all = all.borrow_mut();
        let depth = all.len();
        let call = all.first()?.call;
        let place = Place::of(place)?;
        let thread = thread::current();
        let me = thread.id();
        let mut notes = shard(storage).lock();
        let mut known = false;
        for n in notes.iter().filter(|n| n.storage == storage) {
            if n.owner.is_thread(me) {
                known |= n.owner.is_scope(me, depth) && n.how == how && n.place == place;
            } else if n.disagrees(how, &place) {
                return Some(report(n, how, call));
            }
        }
        if !known {
            let owner = Owner::Thread { thread, depth };
            notes.push(Note { storage, owner, call, how, place });
            let noted = &mut all.last_mut()?.noted;
            if !noted.contains(&storage) {
                noted.push(storage);
            }
        }
        None
    });
    // Out of the locks, because the scopes that unwind take them.
    if let Ok(Some(message)) = found {
        panic!("{message}");
    }
}

/// Notes what a call in the background uses until [`land`].
pub(super) fn note_in_flight(storage: u64, number: u64, call: Call, how: Use, place: Elements<'_>) {
    let Some(place) = Place::of(place) else { return };
    let me = thread::current().id();
    let mut notes = shard(storage).lock();
    // Calls in the background have an order of their own.
    let others = notes.iter().filter(|n| {
        n.storage == storage && matches!(n.owner, Owner::Thread { .. }) && !n.owner.is_thread(me)
    });
    let found = others.filter(|n| n.disagrees(how, &place)).map(|n| report(n, how, call)).next();
    if found.is_none() {
        notes.push(Note { storage, owner: Owner::Background(number), call, how, place });
    }
    drop(notes);
    if let Some(message) = found {
        panic!("{message}");
    }
}

/// The call in the background is over.
pub(super) fn land(number: u64, noted: &[u64]) {
    for &storage in noted {
        let mine = |n: &Note| matches!(n.owner, Owner::Background(one) if one == number);
        shard(storage).lock().retain(|n| !mine(n));
    }
}

impl Note {
    /// Whether the other use must not happen at the same time.
    fn disagrees(&self, how: Use, place: &Place) -> bool {
        (self.how == Use::Write || how == Use::Write) && self.place.meets(place)
    }
}

#[cold]
fn report(other: &Note, how: Use, call: Call) -> String {
    let does = |how| match how {
        Use::Read => "reads",
        Use::Write => "writes",
    };
    let name = |thread: &Thread, id: ThreadId| match thread.name() {
        Some(name) => format!("thread `{name}`"),
        None => format!("{id:?}"),
    };
    let me = thread::current();
    let Owner::Thread { thread, .. } = &other.owner else {
        return format!(
            "data race: `{}` at {} {} memory that `{}`, started at {}, still {}. Call `wait()` on what it \
             returned first, or use a copy",
            call.name,
            call.at,
            does(how),
            other.call.name,
            other.call.at,
            does(other.how),
        );
    };
    format!(
        "data race: `{}` at {} ({}) {} memory that `{}` at {} ({}) {} at the same time. Change a tensor \
         in place only while no other thread uses it: put a lock around both, or let each thread have \
         its own",
        call.name,
        call.at,
        name(&me, me.id()),
        does(how),
        other.call.name,
        other.call.at,
        name(thread, thread.id()),
        does(other.how),
    )
}

impl Place {
    /// Nothing for a tensor without elements.
    fn of(e: Elements<'_>) -> Option<Place> {
        let size = e.size as isize;
        let dims = e.shape.iter().zip(e.strides).filter(|(n, _)| **n != 1);
        let mut dims: SmallVec<[(usize, isize); 4]> =
            dims.map(|(&n, &stride)| (n, stride * size)).collect();
        if dims.iter().any(|&(n, _)| n == 0) {
            return None;
        }
        let mut place =
            Place { start: e.offset as isize * size, size: e.size, dims: SmallVec::new() };
        // Dimensions whose elements follow each other are one piece.
        dims.sort_by_key(|&(_, stride)| stride.unsigned_abs());
        let dense = dims.iter().take_while(|&&(n, stride)| {
            let follows = stride == place.size as isize;
            place.size *= if follows { n } else { 1 };
            follows
        });
        let dense = dense.count();
        place.dims = dims[dense..].into();
        Some(place)
    }

    /// The first byte and the one behind the last.
    fn range(&self) -> (isize, isize) {
        let (mut low, mut high) = (self.start, self.start + self.size as isize);
        for &(n, stride) in &self.dims {
            let last = (n as isize - 1) * stride;
            (low, high) = (low + last.min(0), high + last.max(0));
        }
        (low, high)
    }

    /// The pieces' first bytes in order, unless there are too many.
    fn pieces(&self) -> Option<Vec<isize>> {
        let count = self.dims.iter().try_fold(1usize, |all, &(n, _)| all.checked_mul(n))?;
        if count > MOST_PIECES {
            return None;
        }
        let mut starts = vec![self.start];
        for &(n, stride) in &self.dims {
            let of = |k: usize| k as isize * stride;
            starts = (0..n).flat_map(|k| starts.iter().map(move |s| s + of(k))).collect();
        }
        starts.sort_unstable();
        Some(starts)
    }

    fn meets(&self, other: &Place) -> bool {
        let ((a, b), (c, d)) = (self.range(), other.range());
        if b <= c || d <= a {
            return false;
        }
        if self.dims.is_empty() && other.dims.is_empty() {
            return true;
        }
        let (Some(mine), Some(others)) = (self.pieces(), other.pieces()) else { return true };
        let (mut i, mut k) = (0, 0);
        while let (Some(&x), Some(&y)) = (mine.get(i), others.get(k)) {
            if x + self.size as isize <= y {
                i += 1;
            } else if y + other.size as isize <= x {
                k += 1;
            } else {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::race::{Scope, Tracked};

    fn elements<'a>(offset: usize, shape: &'a [usize], strides: &'a [isize]) -> Elements<'a> {
        Elements { offset, size: 4, shape, strides }
    }

    fn meet(a: Elements<'_>, b: Elements<'_>) -> bool {
        Place::of(a).zip(Place::of(b)).is_some_and(|(a, b)| a.meets(&b) && b.meets(&a))
    }

    #[test]
    fn places_meet_where_they_have_a_byte_in_common() {
        let matrix = elements(0, &[4, 6], &[6, 1]);
        let column = |k: usize| elements(k, &[4], &[6]);
        let columns = |k: usize| elements(k, &[4, 2], &[6, 1]);
        let rows = |k: usize| elements(6 * k, &[2, 6], &[6, 1]);
        assert!(meet(matrix, column(5)) && meet(matrix, rows(2)) && meet(columns(0), column(1)));
        assert!(meet(columns(2), rows(1)) && meet(elements(5, &[6], &[-1]), column(0)));
        assert!(!meet(column(0), column(1)) && !meet(columns(0), columns(2)));
        assert!(!meet(rows(0), rows(2)) && !meet(matrix, elements(24, &[], &[])));
        assert!(!meet(matrix, elements(0, &[0, 6], &[6, 1])));
        // Negative strides read the same bytes, and a broadcast dimension reads them again.
        assert!(meet(elements(18, &[4], &[-6]), column(0)));
        assert!(meet(elements(3, &[5, 1], &[0, 1]), column(3)));
    }

    /// Two scopes at once, on two threads, and what the second one's note says.
    fn second(first: Use, how: Use, place: Elements<'_>) -> Result<(), String> {
        let tracked = Tracked::new();
        let _scope = Scope::enter(|| "mul_");
        tracked.note(first, elements(0, &[8], &[1]));
        let other = || {
            let _scope = Scope::enter(|| "sum");
            tracked.note(how, place);
        };
        let joined = thread::scope(|s| {
            let named = thread::Builder::new().name("reader".into());
            named.spawn_scoped(s, other).expect("a thread").join()
        });
        joined.map_err(|message| message.downcast_ref::<String>().expect("a text").clone())
    }

    #[test]
    fn a_read_beside_a_write_panics_and_names_both() {
        let message = second(Use::Write, Use::Read, elements(7, &[2], &[1])).unwrap_err();
        for part in
            ["`sum` at src/", "thread `reader`) reads", "`mul_` at src/", "writes at the same"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
        let message = second(Use::Read, Use::Write, elements(0, &[1], &[1])).unwrap_err();
        assert!(message.contains("`sum`") && message.contains("reader`) writes"), "{message}");
        assert!(second(Use::Write, Use::Write, elements(0, &[8], &[1])).is_err());
    }

    #[test]
    fn reads_and_disjoint_writes_go_on() {
        assert_eq!(second(Use::Read, Use::Read, elements(0, &[8], &[1])), Ok(()));
        assert_eq!(second(Use::Write, Use::Write, elements(8, &[8], &[1])), Ok(()));
        // The scope above is over: nothing of it is left.
        let all = NOTES.iter().map(|shard| {
            shard.lock().iter().filter(|n| n.owner.is_thread(thread::current().id())).count()
        });
        assert_eq!(all.sum::<usize>(), 0);
    }
}
