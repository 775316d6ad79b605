//! Squares of f32 numbers transposed in registers, one after the other.

use super::sizes::GROUP;
use crate::cpu::arch::vectorize::Kernel;
use crate::cpu::numbers::vector::{Plain, Square, with_registers};

/// Where the squares of one side are.
#[derive(Clone, Copy)]
pub struct Places {
    /// Numbers from one line of a square to the next.
    pub line: usize,
    /// Numbers from one square to the next.
    pub square: usize,
}

/// Squares of [`GROUP`] by [`GROUP`] numbers whose lines become columns.
pub struct Squares<'a> {
    pub count: usize,
    pub from: &'a [f32],
    pub from_places: Places,
    pub to: &'a mut [f32],
    pub to_places: Places,
}

impl Squares<'_> {
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn transpose<V: Square<Number = f32>>(self) {
        let Squares { count, from, from_places, to, to_places } = self;
        let reach = |p: Places| count.saturating_sub(1) * p.square + (GROUP - 1) * p.line + GROUP;
        if count == 0 {
            return;
        }
        assert!(reach(from_places) <= from.len() && reach(to_places) <= to.len());
        assert!(GROUP.is_multiple_of(V::LANES) && V::LANES <= 8);
        for i in 0..count {
            for line in (0..GROUP).step_by(V::LANES) {
                for column in (0..GROUP).step_by(V::LANES) {
                    let source = i * from_places.square + line * from_places.line + column;
                    let target = i * to_places.square + column * to_places.line + line;
                    // SAFETY: lines and columns below GROUP of the squares, whose last one is inside both sides by the
                    // assertion; `Vector`'s *Instructions*.
                    unsafe {
                        let from = from.as_ptr().add(source);
                        let mut rows = [V::load(from); 8];
                        for k in 1..V::LANES {
                            rows[k] = V::load(from.add(k * from_places.line));
                        }
                        let columns = V::transpose(rows);
                        for k in 0..V::LANES {
                            columns[k].store(to.as_mut_ptr().add(target + k * to_places.line));
                        }
                    }
                }
            }
        }
    }
}

impl Kernel for Squares<'_> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: registers are chosen by the instruction set that this is compiled for.
        unsafe { with_registers!(FMA, V = Plain<f32> => self.transpose::<V>()) }
    }
}
