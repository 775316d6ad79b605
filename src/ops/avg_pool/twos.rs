//! Average pooling of f32 planes by windows at a stride of 2, in vector registers: columns with even and with
//! odd places (counted with the padding) are kept apart, so that what neighbouring windows read at one place
//! of theirs, or give to it, are neighbours.

use std::ops::Range;

use crate::cpu::vector::{Pairs, Plain, Vector, with_registers};
use crate::cpu::vectorize::Kernel;

/// Numbers of a register, at most.
const LANES: usize = 8;

/// The windows of a plane.
#[derive(Clone, Copy)]
pub struct Twos<'a> {
    /// The rows of each row of windows.
    pub rows: &'a [Range<usize>],
    /// What each window's sum is multiplied by.
    pub shares: &'a [f32],
    /// Columns of a window, and of padding before the first.
    pub kernel: usize,
    pub padding: usize,
    /// Columns of the plane, and windows in a row.
    pub width: usize,
    pub out: usize,
}

impl Twos<'_> {
    /// Whether rows fill registers.
    pub fn fits(&self) -> bool {
        self.width >= 2 * LANES && self.out >= LANES
    }

    /// Even columns that windows reach, as a multiple of a register, and one register more.
    fn phase(&self) -> usize {
        let reach = (2 * (self.out - 1) + self.kernel).max(self.padding + self.width);
        reach.div_ceil(2).next_multiple_of(LANES) + LANES
    }

    /// Numbers of scratch memory that a call needs, zeros at first.
    pub fn room(&self) -> usize {
        3 * self.phase() + self.kernel
    }

    /// The sums of columns over `ROWS` rows from the begin of `x` on, even and odd ones apart.
    ///
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn columns<V: Pairs<Number = f32>, const ROWS: usize>(
        &self,
        x: &[f32],
        line: &mut [f32],
    ) {
        let (width, phase) = (self.width, self.phase());
        assert!(x.len() >= ROWS * width && width >= 2 * V::LANES && line.len() >= 2 * phase);
        assert!(self.padding + width <= 2 * (phase - LANES));
        for c in (0..width).step_by(2 * V::LANES) {
            // The last registers may overlap those before.
            let c = c.min(width - 2 * V::LANES);
            // SAFETY: two registers from column `c` on are inside each of the rows, and half of them fit behind
            // the even and the odd columns before, by the assertions; the rest is the caller's promise.
            unsafe {
                let x = x.as_ptr().add(c);
                let (mut a, mut b) = (V::load(x), V::load(x.add(V::LANES)));
                for row in 1..ROWS {
                    let x = x.add(row * width);
                    (a, b) = (a.add(V::load(x)), b.add(V::load(x.add(V::LANES))));
                }
                let [even, odd] = V::split(a, b);
                let at = c + self.padding;
                let line = line.as_mut_ptr();
                even.reordered().store(line.add(at % 2 * phase + at / 2));
                odd.reordered().store(line.add((at + 1) % 2 * phase + at.div_ceil(2)));
            }
        }
    }

    /// The means of a plane; `line` is the scratch memory.
    ///
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn means<V: Pairs<Number = f32>>(&self, x: &[f32], y: &mut [f32], line: &mut [f32]) {
        let (width, out, phase) = (self.width, self.out, self.phase());
        assert!(line.len() >= self.room() && self.out >= V::LANES);
        for i in 0..self.rows.len() {
            let Range { start, end } = self.rows[i];
            let rows = &x[start * width..end.max(start) * width];
            let (y, shares) = (&mut y[i * out..][..out], &self.shares[i * out..][..out]);
            if self.kernel == 2 && self.padding == 0 && rows.len() == 2 * width && 2 * out <= width
            {
                // SAFETY: the caller's promise.
                unsafe { two_by_two::<V>(rows, shares, y) };
                continue;
            }
            // SAFETY: the caller's promise.
            unsafe {
                match end.saturating_sub(start) {
                    0 => line[..2 * phase].fill(0.0),
                    1 => self.columns::<V, 1>(rows, line),
                    2 => self.columns::<V, 2>(rows, line),
                    3 => self.columns::<V, 3>(rows, line),
                    _ => self.many_columns::<V>(rows, line),
                }
            }
            for j in (0..out).step_by(V::LANES) {
                let j = j.min(out - V::LANES);
                // SAFETY: a register from window `j` on is inside the row of windows, and what its columns are
                // in the scratch memory is below `phase`; the rest is the caller's promise.
                unsafe {
                    let line = line.as_ptr().add(j);
                    let mut sum = V::load(line);
                    for t in 1..self.kernel {
                        sum = sum.add(V::load(line.add(t % 2 * phase + t / 2)));
                    }
                    let mean = sum.fma(V::load(shares.as_ptr().add(j)), V::splat(0.0));
                    mean.store(y.as_mut_ptr().add(j));
                }
            }
        }
    }

    /// [`Self::columns`] of any number of rows.
    ///
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn many_columns<V: Pairs<Number = f32>>(&self, x: &[f32], line: &mut [f32]) {
        let mut sums = x[..self.width].to_vec();
        for row in x.chunks_exact(self.width).skip(1) {
            // SAFETY: the caller's promise.
            unsafe { join::<V, true>(row, &mut sums) };
        }
        // SAFETY: as above.
        unsafe { self.columns::<V, 1>(&sums, line) };
    }

    /// The shares of a plane of gradients; `line` is the scratch memory.
    ///
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn spread<V: Pairs<Number = f32>>(&self, dy: &[f32], dx: &mut [f32], line: &mut [f32]) {
        let (width, out, phase) = (self.width, self.out, self.phase());
        assert!(line.len() >= self.room() && self.out >= V::LANES);
        let (line, shares) = line.split_at_mut(2 * phase);
        // So many zeros before the shares.
        let before = self.kernel / 2;
        // Rows before this one are written.
        let mut fresh = 0;
        for i in 0..self.rows.len() {
            let (dy, own) = (&dy[i * out..][..out], &self.shares[i * out..][..out]);
            for j in (0..out).step_by(V::LANES) {
                let j = j.min(out - V::LANES);
                // SAFETY: a register from window `j` on is inside the row of windows, for which there is room
                // after those zeros; the rest is the caller's promise.
                unsafe {
                    let share = V::load(dy.as_ptr().add(j))
                        .fma(V::load(own.as_ptr().add(j)), V::splat(0.0));
                    share.store(shares.as_mut_ptr().add(before + j));
                }
            }
            for q in (0..phase - LANES).step_by(V::LANES) {
                // SAFETY: `t / 2` is at most `before`, and there are `phase + kernel` shares and zeros; two registers
                // from `2 q` on are below `2 phase`; the rest is the caller's promise.
                unsafe {
                    let share = |t: usize| V::load(shares.as_ptr().add(before + q - t / 2));
                    let mut even = share(0);
                    let mut odd = if self.kernel > 1 { even } else { V::splat(0.0) };
                    for t in 2..self.kernel {
                        if t % 2 == 0 {
                            even = even.add(share(t));
                        } else {
                            odd = odd.add(share(t));
                        }
                    }
                    let [low, high] = V::interleave(even, odd);
                    low.store(line.as_mut_ptr().add(2 * q));
                    high.store(line.as_mut_ptr().add(2 * q + V::LANES));
                }
            }
            let line = &line[self.padding..][..width];
            for row in self.rows[i].start..self.rows[i].end {
                if row >= fresh {
                    dx[fresh * width..row * width].fill(0.0);
                    fresh = row + 1;
                    // SAFETY: the caller's promise.
                    unsafe { join::<V, false>(line, &mut dx[row * width..][..width]) };
                } else {
                    // SAFETY: the caller's promise.
                    unsafe { join::<V, true>(line, &mut dx[row * width..][..width]) };
                }
            }
        }
        dx[fresh * width..].fill(0.0);
    }
}

/// Means of two by two numbers: windows without padding need no scratch memory.
///
/// # Safety
/// The processor has the instruction set of `V`.
#[inline(always)]
unsafe fn two_by_two<V: Pairs<Number = f32>>(rows: &[f32], shares: &[f32], y: &mut [f32]) {
    let (out, width) = (y.len(), rows.len() / 2);
    assert!(out >= V::LANES && shares.len() == out && 2 * out <= width);
    for j in (0..out).step_by(V::LANES) {
        let j = j.min(out - V::LANES);
        // SAFETY: a register from window `j` on is inside `y`, the two of its columns inside both rows; the rest is
        // the caller's promise.
        unsafe {
            let (upper, lower) = (rows.as_ptr().add(2 * j), rows.as_ptr().add(width + 2 * j));
            let a = V::load(upper).add(V::load(lower));
            let b = V::load(upper.add(V::LANES)).add(V::load(lower.add(V::LANES)));
            let [even, odd] = V::split(a, b);
            let mean =
                even.add(odd).reordered().fma(V::load(shares.as_ptr().add(j)), V::splat(0.0));
            mean.store(y.as_mut_ptr().add(j));
        }
    }
}

/// y = x, or y += x.
///
/// # Safety
/// The processor has the instruction set of `V`.
#[inline(always)]
unsafe fn join<V: Vector<Number = f32>, const ADD: bool>(x: &[f32], y: &mut [f32]) {
    let n = y.len();
    assert!(x.len() == n);
    let whole = n / V::LANES * V::LANES;
    for c in (0..whole).step_by(V::LANES) {
        // SAFETY: a register from `c` on is inside both; the rest is the caller's promise.
        unsafe {
            let (x, to) = (V::load(x.as_ptr().add(c)), y.as_mut_ptr().add(c));
            (if ADD { x.add(V::load(to)) } else { x }).store(to);
        }
    }
    for c in whole..n {
        y[c] = if ADD { y[c] + x[c] } else { x[c] };
    }
}

/// Some planes: of means of `from`, or (`back`) of its shares.
pub struct Planes<'a> {
    pub windows: Twos<'a>,
    pub back: bool,
    pub count: usize,
    pub from: &'a [f32],
    pub to: &'a mut [f32],
    /// [`Twos::room`] zeros.
    pub line: &'a mut [f32],
}

impl Planes<'_> {
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn all<V: Pairs<Number = f32>>(self) {
        let (from, to) = (self.from.len() / self.count, self.to.len() / self.count);
        for p in 0..self.count {
            let (x, y) = (&self.from[p * from..][..from], &mut self.to[p * to..][..to]);
            // SAFETY: the caller's promise.
            unsafe {
                if self.back {
                    self.windows.spread::<V>(x, y, self.line);
                } else {
                    self.windows.means::<V>(x, y, self.line);
                }
            }
        }
    }
}

impl Kernel for Planes<'_> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: registers are chosen by the instruction set that this is compiled for.
        unsafe { with_registers!(FMA, V = Plain<f32> => self.all::<V>()) }
    }
}
