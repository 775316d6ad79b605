//! A product of f32 or f64: which way it is computed, and its parts.

use super::operands::{Gemm, Matrix};
use super::share::{WORTH_A_THREAD, each_of};
use super::{blocked, gemv};
use crate::products::tiled::Tiled;
use crate::threads::parts::{Shared, with_scratch};
use crate::threads::{get_num_threads, parallel_for};

/// How a product is computed. It depends on the whole product's shape and not on how it is divided among
/// threads: results must not either.
#[derive(Clone, Copy)]
enum Way {
    /// By adding multiples of B's rows.
    Sums,
    /// By dot products with B's columns.
    Dots,
    /// In blocks for the caches.
    Blocked,
    /// As `Blocked`, of the transposed product: to pack B, whose columns are dense, would take longer than
    /// to use it for the few rows of A, and a left operand is used in place.
    Transposed,
}

/// Most rows for which B's packing is not worth its while.
const FEW: usize = 48;

impl<T: Tiled> Gemm<T> {
    /// The product.
    ///
    /// # Safety
    /// The *Gemm invariant*.
    #[inline]
    pub unsafe fn run(self) {
        // SAFETY: the *Gemm invariant*, which turning C and both operands keeps.
        unsafe { self.with_oriented(|all| all.run_on(all.way(), std::ptr::null())) }
    }

    /// The product plus a row of n numbers, `C = alpha A B + row`, in one go, if it is computed in a way that
    /// can do so; else nothing happens, and it is false.
    ///
    /// # Safety
    /// As [`Gemm::run`], and `row` is readable.
    pub unsafe fn run_plus_row(self, row: *const T) -> bool {
        let way = self.way();
        let can = !self.turns() && matches!(way, Way::Transposed) && self.size.2 > 0;
        if can {
            // SAFETY: the *Gemm invariant*; `row` is readable, and no turning is needed.
            unsafe { Gemm { beta: T::ZERO, ..self }.run_on(way, row) }
        }
        can
    }

    /// # Safety
    /// As [`Gemm::run`], of one that needs no turning; `row` is null or as [`Gemm::run_plus_row`] wants it.
    unsafe fn run_on(&self, way: Way, row: *const T) {
        let (m, n, k) = self.size;
        let flops = 2 * m * n * k;
        if flops < 2 * WORTH_A_THREAD || get_num_threads() == 1 {
            // SAFETY: the *Gemm invariant*; `row` is as for this function.
            return unsafe { self.run_here(way, row) };
        }
        let all = *self;
        // Along the longer side, in pieces that whole register tiles fill.
        let (long, piece) = if n >= m { (n, 16) } else { (m, 12) };
        let pieces = long.div_ceil(piece);
        let grain = (pieces * WORTH_A_THREAD).div_ceil(flops);
        let shared = Shared::new((all, row));
        parallel_for(pieces, grain, |range| {
            let (all, mut row) = shared.get();
            let (from, to) = (range.start * piece, (range.end * piece).min(long));
            let part = if n >= m {
                row = if row.is_null() { row } else { row.wrapping_add(from) };
                Gemm { size: (m, to - from, k), b: all.b.at(0, from), c: all.c.at(0, from), ..all }
            } else {
                Gemm { size: (to - from, n, k), a: all.a.at(from, 0), c: all.c.at(from, 0), ..all }
            };
            // SAFETY: the *Gemm invariant*; the threads' parts of C are disjoint.
            unsafe { part.run_here(way, row) };
        });
    }

    /// One product per item of `offsets`: of A, of B and of C, in elements.
    ///
    /// # Safety
    /// As [`Gemm::run`], for every product; the results are disjoint.
    pub unsafe fn run_batched(self, offsets: &[[isize; 3]]) {
        let shared = Shared::new(self);
        // SAFETY: the *Gemm invariant* of each product; the results are disjoint.
        let whole = |item| unsafe { shared.get().moved(item).run() };
        let here = |item| {
            let one = shared.get().moved(item);
            // SAFETY: the *Gemm invariant* of each product; the results are disjoint.
            unsafe { one.with_oriented(|one| one.run_here(one.way(), std::ptr::null())) }
        };
        each_of(self.size, offsets, whole, here);
    }

    pub(super) fn moved(self, [a, b, c]: [isize; 3]) -> Self {
        Gemm { a: self.a.moved(a), b: self.b.moved(b), c: self.c.moved(c), ..self }
    }

    pub(super) fn transposed(&self) -> Self {
        let (m, n, k) = self.size;
        Gemm {
            size: (n, m, k),
            a: self.b.transposed(),
            b: self.a.transposed(),
            c: self.c.transposed(),
            ..*self
        }
    }

    /// Calls `f` with the product, or the transposed one where that has few rows.
    #[inline]
    fn with_oriented(&self, f: impl FnOnce(&Self)) {
        if self.turns() { f(&self.transposed()) } else { f(self) }
    }

    #[inline]
    fn turns(&self) -> bool {
        let &Gemm { size: (m, n, _), a, c, .. } = self;
        n <= gemv::ROWS && n < m && (a.column == 1 || (a.row == 1 && c.row == 1))
    }

    #[inline]
    fn way(&self) -> Way {
        let &Gemm { size: (m, n, _), b, c, .. } = self;
        match m {
            0..=gemv::ROWS if b.column == 1 && c.column == 1 => Way::Sums,
            0..=gemv::ROWS if b.row == 1 => Way::Dots,
            0..=FEW if b.row == 1 && m < n => Way::Transposed,
            _ => Way::Blocked,
        }
    }

    /// The product, on this thread, plus a row if that is not null.
    ///
    /// # Safety
    /// As [`Gemm::run_on`].
    unsafe fn run_here(&self, way: Way, row: *const T) {
        let (m, n, k) = self.size;
        if m == 0 || n == 0 {
            return;
        }
        // SAFETY: the *Gemm invariant*. All but the first sums of blocks, which overwrite C where it is not
        // wanted, are added to it.
        unsafe {
            if k == 0 || self.beta != T::ZERO || matches!(way, Way::Sums | Way::Dots) {
                self.scale();
            }
            match way {
                _ if k == 0 => {}
                Way::Sums if k > gemv::LONGEST => self.sums_in_parts(),
                Way::Sums => gemv::sums(*self),
                Way::Dots => self.parts(gemv::LONGEST * gemv::LANES).for_each(|p| gemv::dots(p)),
                Way::Blocked => blocked::multiply(self, std::ptr::null()),
                Way::Transposed => blocked::multiply(&self.transposed(), row),
            }
        }
    }

    /// Products of at most `deep` columns of A with the rows of B, which add up to this one.
    pub(super) fn parts(&self, deep: usize) -> impl Iterator<Item = Self> {
        let (all, (m, n, k)) = (*self, self.size);
        (0..k).step_by(deep).map(move |p| Gemm {
            size: (m, n, deep.min(k - p)),
            a: all.a.at(0, p),
            b: all.b.at(p, 0),
            ..all
        })
    }

    /// `C += alpha A B` as [`gemv::sums`], which adds to one number as often as k, in parts of few enough.
    ///
    /// # Safety
    /// As [`gemv::sums`].
    unsafe fn sums_in_parts(&self) {
        let (m, n, k) = self.size;
        let width = n.min(gemv::LINE);
        with_scratch(m * width, |sums: &mut [T]| {
            for j in (0..n).step_by(width) {
                let count = width.min(n - j);
                let (b, c) = (self.b.at(0, j), self.c.at(0, j));
                let sum = Matrix { ptr: sums.as_mut_ptr(), row: width as isize, column: 1 };
                for part in (Gemm { size: (m, count, k), b, c: sum, ..*self }).parts(gemv::LONGEST)
                {
                    sums.fill(T::ZERO);
                    // SAFETY: the *Gemm invariant* for A and B; the scratch is for these sums only.
                    unsafe { gemv::sums(part) };
                    for (i, row) in sums.chunks_exact(width).enumerate() {
                        for (l, &more) in row[..count].iter().enumerate() {
                            // SAFETY: an element of C.
                            unsafe { *c.at(i, l).ptr += more };
                        }
                    }
                }
            }
        })
    }

    /// `C = beta C`; C is not read for 0.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn scale(&self) {
        let (m, n, _) = self.size;
        if self.beta == T::of(1.0) {
            return;
        }
        for i in 0..m {
            for j in 0..n {
                // SAFETY: an element of C.
                let c = unsafe { &mut *self.c.at(i, j).ptr };
                *c = if self.beta == T::ZERO { self.beta } else { self.beta * *c };
            }
        }
    }
}
