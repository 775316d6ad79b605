//! Average pooling of f32 planes by windows at a stride of 2, in vector registers. Lines that come from memory are
//! read one after the other: processors foresee what is read from one place better than from two in turns.

use std::ops::Range;

use crate::cpu::arch::vectorize::Kernel;
use crate::cpu::numbers::vector::{Pairs, Plain, Vector, with_registers};

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
    /// Whether planes come from memory ([`is_far`](crate::cpu::arch::cache::is_far)).
    pub far: bool,
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

    /// The means of a plane; `line` is the scratch memory.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    unsafe fn means<V: Pairs<Number = f32>>(&self, x: &[f32], y: &mut [f32], line: &mut [f32]) {
        let &Twos { width, out, kernel, padding, .. } = self;
        for i in 0..self.rows.len() {
            let (y, shares) = (&mut y[i * out..][..out], &self.shares[i * out..][..out]);
            let Range { start, end } = self.rows[i];
            let row = |row: usize| &x[row * width..][..width];
            let sums = &mut line[padding..][..width];
            if kernel == 2 && padding == 0 && end == start + 2 && 2 * out <= width {
                // SAFETY: `Vector`'s *Instructions*, which both functions ask for.
                unsafe {
                    if self.far {
                        join::<V, false>(row(start), sums);
                        two_by_two::<V>([sums, row(start + 1)], shares, y);
                    } else {
                        two_by_two::<V>([row(start), row(start + 1)], shares, y);
                    }
                }
                continue;
            }
            if start >= end {
                sums.fill(0.0);
            } else {
                // SAFETY: `Vector`'s *Instructions*, which `join` asks for.
                unsafe { join::<V, false>(row(start), sums) };
            }
            for r in start + 1..end {
                // SAFETY: `Vector`'s *Instructions*, which `join` asks for.
                unsafe { join::<V, true>(row(r), sums) };
            }
            // SAFETY: `Vector`'s *Instructions*, which `means_of_windows` asks for.
            unsafe {
                match kernel {
                    3 => means_of_windows::<V>(line, 3, shares, y),
                    _ => means_of_windows::<V>(line, kernel, shares, y),
                }
            }
        }
    }

    /// The shares of a plane of gradients; `line` is the scratch memory.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
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
                // after those zeros; `Vector`'s *Instructions*.
                unsafe {
                    let share = V::load(dy.as_ptr().add(j))
                        .fma(V::load(own.as_ptr().add(j)), V::splat(0.0));
                    share.store(shares.as_mut_ptr().add(before + j));
                }
            }
            for q in (0..phase - LANES).step_by(V::LANES) {
                // SAFETY: `t / 2` is at most `before`, and there are `phase + kernel` shares and zeros; two registers
                // from `2 q` on are below `2 phase`; `Vector`'s *Instructions*.
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
                    // SAFETY: `Vector`'s *Instructions*, which `join` asks for.
                    unsafe { join::<V, false>(line, &mut dx[row * width..][..width]) };
                } else {
                    // SAFETY: `Vector`'s *Instructions*, which `join` asks for.
                    unsafe { join::<V, true>(line, &mut dx[row * width..][..width]) };
                }
            }
        }
        dx[fresh * width..].fill(0.0);
    }
}

/// Means of windows of so many columns, of which `sums` has the sums and the padding around them.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn means_of_windows<V: Pairs<Number = f32>>(
    sums: &[f32],
    kernel: usize,
    shares: &[f32],
    y: &mut [f32],
) {
    let out = y.len();
    assert!(out >= V::LANES && shares.len() == out && sums.len() >= 2 * out + kernel);
    for j in (0..out).step_by(V::LANES) {
        let j = j.min(out - V::LANES);
        // SAFETY: a register from window `j` on is inside `y`, its columns and the next one inside `sums`; `Vector`'s
        // *Instructions*.
        unsafe {
            let at = |c: usize| V::load(sums.as_ptr().add(2 * j + c));
            let [mut sum, odd] = V::split(at(0), at(V::LANES));
            if kernel > 1 {
                sum = sum.add(odd);
            }
            for t in (2..kernel).step_by(2) {
                let [even, odd] = V::split(at(t), at(t + V::LANES));
                sum = sum.add(even);
                if t + 1 < kernel {
                    sum = sum.add(odd);
                }
            }
            let mean = sum.reordered().fma(V::load(shares.as_ptr().add(j)), V::splat(0.0));
            mean.store(y.as_mut_ptr().add(j));
        }
    }
}

/// Means of two by two numbers: windows without padding.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn two_by_two<V: Pairs<Number = f32>>(
    [upper, lower]: [&[f32]; 2],
    shares: &[f32],
    y: &mut [f32],
) {
    let out = y.len();
    assert!(out >= V::LANES && shares.len() == out);
    assert!(upper.len() >= 2 * out && lower.len() >= 2 * out);
    for j in (0..out).step_by(V::LANES) {
        let j = j.min(out - V::LANES);
        // SAFETY: a register from window `j` on is inside `y`, the two of its columns inside both rows; `Vector`'s
        // *Instructions*.
        unsafe {
            let (upper, lower) = (upper.as_ptr().add(2 * j), lower.as_ptr().add(2 * j));
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
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn join<V: Vector<Number = f32>, const ADD: bool>(x: &[f32], y: &mut [f32]) {
    let n = y.len();
    assert!(x.len() == n);
    let whole = n / V::LANES * V::LANES;
    for c in (0..whole).step_by(V::LANES) {
        // SAFETY: a register from `c` on is inside both; `Vector`'s *Instructions*.
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
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    unsafe fn all<V: Pairs<Number = f32>>(self) {
        let (from, to) = (self.from.len() / self.count, self.to.len() / self.count);
        for p in 0..self.count {
            let (x, y) = (&self.from[p * from..][..from], &mut self.to[p * to..][..to]);
            // SAFETY: `Vector`'s *Instructions*, which both functions ask for.
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
