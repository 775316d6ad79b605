//! The collective operations of a communicator: each starts requests of MPI and returns at once.
//!
//! Counts are of bytes where elements are only moved. What is longer than one call of MPI may be is cut. Where the
//! parts of all ranks lie in one buffer and displacements would not fit MPI's int, each part goes by a call of its
//! own. All ranks decide this by numbers that all of them have.

use std::ffi::c_int;

use torchrs_error::Error;

use crate::combination::{Combination, combination};
use crate::communicator::Communicator;
use crate::element::{Element, Reduction};
use crate::failure::Failure;
use crate::request::{Memory, Request, place};
use crate::start::{Start, Way, cut};

/// Where parts of these lengths begin, and where the last ends.
fn ends(counts: &[usize]) -> Option<(Vec<usize>, usize)> {
    let mut at = 0usize;
    let starts = counts.iter().map(|count| {
        let start = at;
        at = at.checked_add(*count)?;
        Some(start)
    });
    let starts = starts.collect::<Option<_>>()?;
    Some((starts, at))
}

impl Communicator {
    /// Waits for all ranks.
    ///
    /// # Errors
    /// [`Failure::Failed`] in MPI's words, also that the communicator is unusable.
    pub fn barrier(&self) -> Result<Request<()>, Failure> {
        let mpi = &self.mpi().functions;
        // SAFETY: no memory.
        let start = Start::new(self, "barrier", 0, ())?
            .piece(None, |of, to| unsafe { (mpi.MPI_Ibarrier)(of, to) })?;
        Ok(start.request())
    }

    /// Replaces each element by the reduction of all ranks'.
    ///
    /// # Errors
    /// [`Failure::Argument`] of what cannot be; [`Failure::Failed`] in MPI's words.
    pub fn all_reduce<M: Memory>(
        &self,
        mut memory: M,
        element: Element,
        reduction: Reduction,
    ) -> Result<Request<M>, Failure> {
        let (own, len) = self.elements("all_reduce", &mut memory, (element, reduction))?;
        let (mpi, size) = (self.mpi(), memory.size());
        let mut start = Start::new(self, "all_reduce", size, memory)?;
        let at = place(start.memory());
        let width = element.size() / own.numbers;
        // One piece is added while another is on its way: 100 MiB between two hosts took half as long in pieces of
        // 1 MiB as in one. All are in flight at once, so there are not more than 64.
        let piece = (size / 64).max(1 << 20).min(self.longest);
        for (first, n) in cut(len, piece / width) {
            // SAFETY: `n` numbers from `first` on are inside the memory, which the request holds.
            start = start.piece(None, |of, to| unsafe {
                let (data, n) = (at.add(first * width), n as c_int);
                let (f, in_place) = (&mpi.functions, mpi.handles.in_place);
                (f.MPI_Iallreduce)(in_place, data, n, own.datatype, own.operation, of, to)
            })?;
        }
        Ok(start.request())
    }

    /// Replaces each element of `root`'s memory by the reduction of all ranks'; the others' stays.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn reduce<M: Memory>(
        &self,
        mut memory: M,
        element: Element,
        reduction: Reduction,
        root: usize,
    ) -> Result<Request<M>, Failure> {
        self.check_rank("reduce", "root", root)?;
        let (own, len) = self.elements("reduce", &mut memory, (element, reduction))?;
        let size = memory.size();
        let mut start = Start::new(self, "reduce", size, memory)?;
        let (at, width) = (place(start.memory()), element.size() / own.numbers);
        for (first, n) in cut(len, self.longest / width) {
            // SAFETY: inside the memory, which the request holds.
            let data = unsafe { at.add(first * width) };
            let from = if root == self.rank() { self.mpi().handles.in_place } else { data };
            start = self.reduce_piece(start, (from, data, n), own, root)?;
        }
        Ok(start.request())
    }

    /// One call of `MPI_Ireduce`.
    fn reduce_piece<'a, M: Send>(
        &self,
        start: Start<'a, M>,
        (from, into, n): (*const u8, *mut u8, usize),
        own: Combination,
        root: usize,
    ) -> Result<Start<'a, M>, Failure> {
        let f = &self.mpi().functions;
        // SAFETY: both callers pass memory of `n` numbers that the request holds.
        start.piece(None, |of, to| unsafe {
            let (n, root) = (n as c_int, root as c_int);
            (f.MPI_Ireduce)(from, into, n, own.datatype, own.operation, root, of, to)
        })
    }

    /// Reduces all ranks' `from`, and gives each rank its part: `counts[r]` elements to rank r, one after the other.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter<A: Memory, B: Memory>(
        &self,
        mut from: A,
        into: B,
        counts: &[usize],
        element: Element,
        reduction: Reduction,
    ) -> Result<Request<(A, B)>, Failure> {
        const CALL: &str = "reduce_scatter";
        let (own, len) = self.elements(CALL, &mut from, (element, reduction))?;
        let counts: Vec<usize> = counts.iter().map(|n| n.saturating_mul(own.numbers)).collect();
        let width = element.size() / own.numbers;
        let starts = self.parts(CALL, &counts, (len, "from"))?;
        self.fits(CALL, "into", into.size(), counts[self.rank()] * width)?;
        let (f, size) = (&self.mpi().functions, from.size());
        let mut start = Start::new(self, CALL, size, (from, into))?;
        let (from, into) = (place(&mut start.memory().0), place(&mut start.memory().1));
        let (datatype, operation) = (own.datatype, own.operation);
        if size > self.longest {
            for (root, (&first, &count)) in starts.iter().zip(&counts).enumerate() {
                for (at, n) in cut(count, self.longest / width) {
                    // SAFETY: the part is inside `from`; `into` has this rank's part, and others' results go nowhere.
                    let (data, to) = unsafe {
                        let to = if root == self.rank() { into.add(at * width) } else { into };
                        (from.add((first + at) * width), to)
                    };
                    start = self.reduce_piece(start, (data, to, n), own, root)?;
                }
            }
            return Ok(start.request());
        }
        if counts.iter().all(|count| *count == counts[0]) {
            let n = counts[0] as c_int;
            // SAFETY: `from` has `n` for each rank, `into` has `n`; the request holds both.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Ireduce_scatter_block)(from, into, n, datatype, operation, of, to)
            })?;
        } else {
            let counts = start.keep(counts);
            // SAFETY: `from` has the counts' sum, `into` this rank's count; the request holds all three.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Ireduce_scatter)(from, into, counts, datatype, operation, of, to)
            })?;
        }
        Ok(start.request())
    }

    /// Gives all ranks `root`'s bytes.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn broadcast<M: Memory>(&self, memory: M, root: usize) -> Result<Request<M>, Failure> {
        self.check_rank("broadcast", "root", root)?;
        let size = memory.size();
        let mut start = Start::new(self, "broadcast", size, memory)?;
        let at = place(start.memory());
        start = self.broadcast_pieces(start, (at, size), root)?;
        Ok(start.request())
    }

    fn broadcast_pieces<'a, M: Send>(
        &self,
        mut start: Start<'a, M>,
        (at, size): (*mut u8, usize),
        root: usize,
    ) -> Result<Start<'a, M>, Failure> {
        let (f, byte) = (&self.mpi().functions, self.mpi().handles.byte);
        for (first, n) in cut(size, self.longest) {
            // SAFETY: both callers pass memory of `size` bytes that the request holds.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Ibcast)(at.add(first), n as c_int, byte, root as c_int, of, to)
            })?;
        }
        Ok(start)
    }

    /// Gives all ranks the parts of all, `counts[r]` bytes of rank r, one after the other. The own part is in its
    /// place before.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_gather<M: Memory>(
        &self,
        memory: M,
        counts: &[usize],
    ) -> Result<Request<M>, Failure> {
        let size = memory.size();
        let starts = self.parts("all_gather", counts, (size, "memory"))?;
        let mut start = Start::new(self, "all_gather", size, memory)?;
        let at = place(start.memory());
        let (f, h) = (&self.mpi().functions, self.mpi().handles);
        if size > self.longest {
            for (root, (&first, &count)) in starts.iter().zip(counts).enumerate() {
                // SAFETY: the parts' sum is the memory's size.
                let part = unsafe { at.add(first) };
                start = self.broadcast_pieces(start, (part, count), root)?;
            }
        } else if counts.iter().all(|count| *count == counts[0]) {
            let n = counts[0] as c_int;
            // SAFETY: `n` bytes for each rank, which the request holds.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Iallgather)(h.in_place, 0, h.byte, at, n, h.byte, of, to)
            })?;
        } else {
            let (n, starts) = (start.keep(counts.to_vec()), start.keep(starts));
            // SAFETY: the counts' sum is the memory's size; the request holds all three.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Iallgatherv)(h.in_place, 0, h.byte, at, n, starts, h.byte, of, to)
            })?;
        }
        Ok(start.request())
    }

    /// Gives `root` the parts of all, `counts[r]` bytes of rank r, one after the other. The root's memory has its own
    /// part in its place; the others' is their part.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn gather<M: Memory>(
        &self,
        memory: M,
        counts: &[usize],
        root: usize,
    ) -> Result<Request<M>, Failure> {
        let (mut start, at, starts) = self.rooted("gather", memory, counts, root)?;
        let (is_root, own) = (root == self.rank(), counts[self.rank()] as c_int);
        if starts[counts.len()] > self.longest {
            return self.rooted_by_messages(start, at, counts, root, Way::of(!is_root));
        }
        let (f, h, root) = (&self.mpi().functions, self.mpi().handles, root as c_int);
        let from = if is_root { h.in_place } else { at };
        if counts.iter().all(|count| *count == counts[0]) {
            // SAFETY: the root has `own` bytes for each rank, the others `own`; the request holds them.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Igather)(from, own, h.byte, at, own, h.byte, root, of, to)
            })?;
        } else {
            let (n, starts) = (start.keep(counts.to_vec()), start.keep(starts));
            // SAFETY: the root has the counts' sum, the others `own` bytes; the request holds all.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Igatherv)(from, own, h.byte, at, n, starts, h.byte, root, of, to)
            })?;
        }
        Ok(start.request())
    }

    /// Gives each rank its part of `root`'s memory, `counts[r]` bytes to rank r, one after the other. The root keeps
    /// its own in its place; the others' memory is their part.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn scatter<M: Memory>(
        &self,
        memory: M,
        counts: &[usize],
        root: usize,
    ) -> Result<Request<M>, Failure> {
        let (mut start, at, starts) = self.rooted("scatter", memory, counts, root)?;
        let (is_root, own) = (root == self.rank(), counts[self.rank()] as c_int);
        if starts[counts.len()] > self.longest {
            return self.rooted_by_messages(start, at, counts, root, Way::of(is_root));
        }
        let (f, h, root) = (&self.mpi().functions, self.mpi().handles, root as c_int);
        let into = if is_root { h.in_place } else { at };
        if counts.iter().all(|count| *count == counts[0]) {
            // SAFETY: as in `gather`.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Iscatter)(at, own, h.byte, into, own, h.byte, root, of, to)
            })?;
        } else {
            let (n, starts) = (start.keep(counts.to_vec()), start.keep(starts));
            // SAFETY: as in `gather`.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Iscatterv)(at, n, starts, h.byte, into, own, h.byte, root, of, to)
            })?;
        }
        Ok(start.request())
    }

    /// What gather and scatter begin with: the request, where its memory begins, where parts begin and where they end.
    fn rooted<M: Memory>(
        &self,
        call: &'static str,
        memory: M,
        counts: &[usize],
        root: usize,
    ) -> Result<(Start<'_, M>, *mut u8, Vec<usize>), Failure> {
        self.check_rank(call, "root", root)?;
        let (mut starts, total) = self.starts(call, counts)?;
        let size = if root == self.rank() { total } else { counts[self.rank()] };
        self.fits(call, "memory", memory.size(), size)?;
        starts.push(total);
        let mut start = Start::new(self, call, size, memory)?;
        let at = place(start.memory());
        Ok((start, at, starts))
    }

    fn rooted_by_messages<'a, M: Memory>(
        &self,
        mut start: Start<'a, M>,
        at: *mut u8,
        counts: &[usize],
        root: usize,
        way: Way,
    ) -> Result<Request<M>, Failure> {
        let (tag, mut first) = (self.next_tag(), 0);
        for (rank, &count) in counts.iter().enumerate() {
            let (peer, part) = if root == self.rank() { (rank, first) } else { (root, 0) };
            let takes_part = (root == self.rank()) != (rank == self.rank());
            if takes_part {
                // SAFETY: the root has all parts, another rank its own.
                let data = unsafe { at.add(part) };
                start = self.message(start, (data, count), (peer, tag), way)?;
            }
            first += count;
        }
        Ok(start.request())
    }

    /// Gives rank r the r-th part of `from`, `sends[r]` bytes, and takes `receives[r]` bytes from it: one part after the
    /// other in both. `are_equal` is the same on all ranks: whether all parts of all ranks have one size, which MPI's
    /// own operation is quicker at.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_to_all<A: Memory, B: Memory>(
        &self,
        from: A,
        into: B,
        sends: &[usize],
        receives: &[usize],
        are_equal: bool,
    ) -> Result<Request<(A, B)>, Failure> {
        const CALL: &str = "all_to_all";
        let out = self.parts(CALL, sends, (from.size(), "from"))?;
        let back = self.parts(CALL, receives, (into.size(), "into"))?;
        let (own, size) = (self.rank(), from.size());
        self.fits(CALL, "receives", receives[own], sends[own])?;
        let is_one = |n: &usize| *n == sends[0];
        if are_equal && !(sends.iter().all(is_one) && receives.iter().all(is_one)) {
            let what =
                format!("{sends:?} and {receives:?}; `are_equal` says that all are one number");
            return Err(Error::argument(CALL, "sends", what).into());
        }
        let mut start = Start::new(self, CALL, size, (from, into))?;
        let (from, into) = (place(&mut start.memory().0), place(&mut start.memory().1));
        // Only equal parts are known to all ranks, and only what all know may choose between two ways.
        if are_equal && size <= self.longest {
            let (f, n, byte) = (&self.mpi().functions, sends[0] as c_int, self.mpi().handles.byte);
            // SAFETY: `n` bytes for each rank in both, which the request holds.
            start = start.piece(None, |of, to| unsafe {
                (f.MPI_Ialltoall)(from, n, byte, into, n, byte, of, to)
            })?;
            return Ok(start.request());
        }
        // SAFETY: the own part is of equal size in both, which are two values that each have their memory alone.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(out[own]), into.add(back[own]), sends[own]);
        }
        let tag = self.next_tag();
        // Each rank begins with its neighbour, so that not all send to one.
        for step in 1..self.size() {
            let to = (own + step) % self.size();
            let source = (own + self.size() - step) % self.size();
            // SAFETY: parts inside the two memories.
            let (data, place) = unsafe { (from.add(out[to]), into.add(back[source])) };
            start = self.message(start, (place, receives[source]), (source, tag), Way::Receive)?;
            start = self.message(start, (data, sends[to]), (to, tag), Way::Send)?;
        }
        Ok(start.request())
    }

    /// The blocking `MPI_Allreduce` of f32 sums, to measure against. It ends by no deadline.
    #[doc(hidden)]
    pub fn bare_all_reduce(&self, data: &mut [f32]) -> Result<(), Failure> {
        let (mpi, h) = (self.mpi(), self.mpi().handles);
        let n = c_int::try_from(data.len()).map_err(|e| Failure::failed(e.to_string()))?;
        let (at, of) = (data.as_mut_ptr().cast(), self.shared.handle);
        let _open = mpi.enter().map_err(Failure::failed)?;
        // SAFETY: `n` elements, borrowed through the call.
        let code = unsafe { (mpi.functions.MPI_Allreduce)(h.in_place, at, n, h.f32, h.sum, of) };
        mpi.check("MPI_Allreduce", code).map_err(Failure::failed)
    }

    /// What stands for a reduction, and how many numbers the memory has.
    fn elements<M: Memory>(
        &self,
        call: &str,
        memory: &mut M,
        (element, reduction): (Element, Reduction),
    ) -> Result<(Combination, usize), Failure> {
        let mpi = self.mpi();
        let own = combination(call, (element, reduction), &mpi.handles, &mpi.operators)?;
        let (size, at) = (memory.size(), memory.address());
        let width = element.size() / own.numbers;
        if size > 0 && !at.addr().is_multiple_of(width) {
            let what = format!("begins at {at:p}; {element} must begin at a multiple of {width}");
            return Err(Error::argument(call, "memory", what).into());
        }
        if !size.is_multiple_of(element.size()) {
            let what =
                format!("{size} bytes; must be a multiple of {element}'s {}", element.size());
            return Err(Error::argument(call, "memory", what).into());
        }
        Ok((own, size / element.size() * own.numbers))
    }

    pub(crate) fn check_rank(&self, call: &str, name: &str, rank: usize) -> Result<(), Failure> {
        if rank < self.size() {
            return Ok(());
        }
        let what = format!("{rank}; ranks are 0 to {}", self.size() - 1);
        Err(Error::argument(call, name, what).into())
    }

    fn fits(&self, call: &str, name: &str, size: usize, right: usize) -> Result<(), Failure> {
        if size == right {
            return Ok(());
        }
        let what = format!("{size}; must be {right} for {}", self.place());
        Err(Error::argument(call, name, what).into())
    }

    fn starts(&self, call: &str, counts: &[usize]) -> Result<(Vec<usize>, usize), Failure> {
        if counts.len() != self.size() {
            let what =
                format!("{} of them; must be one for each of {} ranks", counts.len(), self.size());
            return Err(Error::argument(call, "counts", what).into());
        }
        let overflow = || Error::argument(call, "counts", "their sum is no memory's size");
        Ok(ends(counts).ok_or_else(overflow)?)
    }

    /// Where parts begin whose sum is `size`.
    fn parts(
        &self,
        call: &str,
        counts: &[usize],
        (size, name): (usize, &str),
    ) -> Result<Vec<usize>, Failure> {
        let (starts, total) = self.starts(call, counts)?;
        if total != size {
            let what = format!("{size} long; the counts' sum is {total}");
            return Err(Error::argument(call, name, what).into());
        }
        Ok(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_one_after_the_other() {
        assert_eq!(ends(&[3, 0, 4]), Some((vec![0, 3, 3], 7)));
        assert_eq!(ends(&[usize::MAX, 1]), None);
    }
}
