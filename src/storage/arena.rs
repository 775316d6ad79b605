//! Large blocks of host memory: pieces of one range of addresses, cut as they are asked for and
//! joined again when they are free. A list per size class would hold the sum of what every size
//! needs at its worst time; a network's gradients can lie where its activations were.
//!
//! A request takes the smallest free piece that fits, of equal ones the highest; without one the part
//! of the range that is in use grows. (Traces of training steps of eight models, from an LSTM to
//! GPT-2, so need 0.4 to 5% more than their blocks, AlexNet 13%. By the lowest of equal pieces it is
//! up to 9%, by the first that fits 8%, by classes of sizes 18 to 63%.) Memory is advised to be in huge
//! pages: the first touch of a page then costs an interrupt for 2 MiB and not for 4 KiB.
//!
//! The range is as long as the machine's memory and costs nothing until it is used: addresses which
//! other mappings cannot take in between. Where the process' addresses are limited (`ulimit -v`), each
//! range is only as long as the request that it is for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use parking_lot::Mutex;

/// Lengths of pieces are multiples of it: little waste, and few pieces too small for anything.
pub(super) const UNIT: usize = 64 << 10;
/// Mappings start and end where a huge page can.
const HUGE: usize = 2 << 20;

/// Free pieces by address (the key) with their length, and by length; and addresses that have no
/// memory yet.
struct Arena {
    free: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    unused: Range<usize>,
    mapped: usize,
}

static ARENA: Mutex<Arena> = Mutex::new(Arena::new());

/// A piece of `length` bytes, a multiple of [`UNIT`], where one can be; uninitialised.
pub(super) fn take(length: usize) -> Option<NonNull<u8>> {
    debug_assert!(length > 0 && length.is_multiple_of(UNIT));
    let mut arena = ARENA.lock();
    let start = arena.cut(length).or_else(|| {
        arena.grow(length)?;
        arena.cut(length)
    })?;
    NonNull::new(start as *mut u8)
}

/// Frees a piece.
///
/// # Safety
/// It is of [`take`], with this length, and nobody uses it any more.
pub(super) unsafe fn give(piece: NonNull<u8>, length: usize) {
    ARENA.lock().join(piece.as_ptr() as usize, length);
}

/// Bytes of all mappings.
pub(super) fn mapped() -> usize {
    ARENA.lock().mapped
}

/// Gives all free pieces back to the system.
pub(super) fn release() {
    let mut arena = ARENA.lock();
    arena.by_length.clear();
    for (start, length) in std::mem::take(&mut arena.free) {
        // SAFETY: a part of our mappings that is in no block.
        unsafe { libc::munmap(start as *mut libc::c_void, length) };
        arena.mapped -= length;
    }
}

impl Arena {
    const fn new() -> Self {
        Arena { free: BTreeMap::new(), by_length: BTreeSet::new(), unused: 0..0, mapped: 0 }
    }

    fn insert(&mut self, start: usize, length: usize) {
        self.free.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.free.remove(&start);
        self.by_length.remove(&(length, start));
    }

    /// The start of the smallest free piece that has `length` bytes; the rest of it stays free.
    fn cut(&mut self, length: usize) -> Option<usize> {
        let &(whole, _) = self.by_length.range((length, 0)..).next()?;
        let &(_, start) = self.by_length.range(..=(whole, usize::MAX)).next_back()?;
        self.remove(start, whole);
        if whole > length {
            self.insert(start + length, whole - length);
        }
        Some(start)
    }

    /// Makes a piece free, and one with its free neighbours.
    fn join(&mut self, mut start: usize, mut length: usize) {
        if let Some((&before, &its)) = self.free.range(..start).next_back()
            && before + its == start
        {
            self.remove(before, its);
            (start, length) = (before, length + its);
        }
        if let Some(&its) = self.free.get(&(start + length)) {
            self.remove(start + length, its);
            length += its;
        }
        self.insert(start, length);
    }

    /// Makes `length` bytes free in one piece by memory for addresses that have none yet.
    fn grow(&mut self, length: usize) -> Option<()> {
        let last =
            self.free.last_key_value().filter(|(start, its)| *start + *its == self.unused.start);
        let mut more = (length - last.map_or(0, |(_, its)| *its)).next_multiple_of(HUGE);
        if more > self.unused.len() {
            self.unused = reserve(length.next_multiple_of(HUGE))?;
            more = length.next_multiple_of(HUGE);
        }
        let start = self.unused.start;
        // SAFETY: addresses of our range that nobody uses yet.
        if unsafe { libc::mprotect(start as *mut _, more, libc::PROT_READ | libc::PROT_WRITE) } != 0
        {
            return None;
        }
        self.unused.start += more;
        self.mapped += more;
        self.join(start, more);
        Some(())
    }
}

/// Addresses without memory, at least `length`, that start and end where a huge page can.
fn reserve(length: usize) -> Option<Range<usize>> {
    range(length.max(wanted())).or_else(|| range(length))
}

/// As many addresses as the machine has memory; none if they are limited.
fn wanted() -> usize {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_AS);
    if limit.is_ok_and(|(soft, _)| soft != nix::sys::resource::RLIM_INFINITY) {
        return 0;
    }
    // SAFETY: a question about the machine.
    let [pages, size] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|n| unsafe { libc::sysconf(n) });
    (pages.max(0) as usize * size.max(0) as usize).next_multiple_of(HUGE)
}

/// `length` addresses without memory, a multiple of a huge page's.
fn range(length: usize) -> Option<Range<usize>> {
    let around = length.checked_add(HUGE)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, wherever the system likes.
    let raw = unsafe { libc::mmap(null_mut(), around, libc::PROT_NONE, flags, -1, 0) };
    if raw == libc::MAP_FAILED {
        return None;
    }
    let raw = raw as usize;
    let start = raw.next_multiple_of(HUGE);
    for (from, to) in [(raw, start), (start + length, raw + around)] {
        if to > from {
            // SAFETY: an end of the new mapping that nobody has seen.
            unsafe { libc::munmap(from as *mut libc::c_void, to - from) };
        }
    }
    // SAFETY: advice about addresses that are ours; a refusal changes nothing.
    unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    Some(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(free: &[(usize, usize)]) -> Arena {
        let mut arena = Arena::new();
        free.iter().for_each(|&(start, length)| arena.join(start, length));
        arena
    }

    #[test]
    fn the_smallest_piece_that_fits_is_cut() {
        let mut arena = arena(&[(100, 50), (200, 20), (300, 30), (400, 20)]);
        assert_eq!(arena.cut(20), Some(400));
        assert_eq!(arena.cut(15), Some(200));
        assert_eq!(arena.cut(31), Some(100));
        assert_eq!(arena.cut(31), None);
        assert_eq!(Vec::from_iter(arena.free), [(131, 19), (215, 5), (300, 30)]);
    }

    #[test]
    fn neighbours_become_one() {
        let mut arena = arena(&[(100, 10), (120, 10), (140, 10)]);
        arena.join(110, 10);
        assert_eq!(Vec::from_iter(arena.free.clone()), [(100, 30), (140, 10)]);
        arena.join(130, 10);
        assert_eq!(Vec::from_iter(arena.free), [(100, 50)]);
        assert_eq!(Vec::from_iter(arena.by_length), [(50, 100)]);
    }

    /// Random requests over a plain model: no two pieces in use share a byte, and what is free and
    /// in use is always what there was.
    #[test]
    fn pieces_never_overlap_and_none_gets_lost() {
        let whole = 1 << 20;
        let mut arena = arena(&[(1 << 30, whole)]);
        let mut in_use: Vec<(usize, usize)> = Vec::new();
        let random = crate::ops::random::Generator::new(1);
        for _ in 0..2000 {
            let n = random.randint(0, 1 << 30, [1], crate::tensor::Dtype::I64).item() as usize;
            if n.is_multiple_of(2) && !in_use.is_empty() {
                let (start, length) = in_use.swap_remove(n / 2 % in_use.len());
                arena.join(start, length);
            } else if let Some(start) = arena.cut(1 + n % (whole / 20)) {
                in_use.push((start, 1 + n % (whole / 20)));
            }
            let mut all: Vec<_> = in_use.iter().copied().chain(arena.free.clone()).collect();
            all.sort_unstable();
            assert!(all.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0));
            assert_eq!(all.iter().map(|piece| piece.1).sum::<usize>(), whole);
            let free: BTreeSet<_> = arena.free.iter().map(|(&s, &l)| (l, s)).collect();
            assert_eq!(free, arena.by_length);
        }
    }
}
