//! How a strided, broadcasting operation is walked: dimensions of size 1 dropped, ordered by the
//! output's strides, and joined where all operands allow it. What is left is mostly one long loop.

use std::ops::Range;

use smallvec::SmallVec;

use super::axes::sort_axes;
use super::element::{Constant, Format};

/// What an operation reads or writes.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// Elements in memory; broadcasts to the operation's shape.
    Memory {
        /// The first element.
        ptr: *mut u8,
        /// How the elements lie.
        format: Format,
        /// Sizes of the dimensions.
        shape: &'a [usize],
        /// Strides in elements.
        strides: &'a [isize],
    },
    /// The same number for all elements.
    Constant(Constant),
}

impl Operand<'_> {
    /// True when the elements lie densely in row-major order and fill `shape`; true for numbers.
    #[inline]
    pub fn fills(&self, shape: &[usize]) -> bool {
        match self {
            Operand::Memory { shape: own, strides, .. } => {
                *own == shape && is_contiguous(shape, strides)
            }
            Operand::Constant(_) => true,
        }
    }

    /// Bytes from the lowest to past the highest element, as addresses; empty for numbers.
    fn range(&self) -> std::ops::Range<isize> {
        match *self {
            Operand::Memory { ptr, format, shape, strides } if !shape.contains(&0) => {
                let (mut low, mut high) = (ptr as isize, ptr as isize + format.size() as isize);
                for (&n, &s) in shape.iter().zip(strides) {
                    let span = (n as isize - 1) * s * format.size() as isize;
                    if span < 0 { low += span } else { high += span }
                }
                low..high
            }
            _ => 0..0,
        }
    }

    /// True when the two share memory.
    pub fn overlaps(&self, other: &Operand<'_>) -> bool {
        let (a, b) = (self.range(), other.range());
        a.start < b.end && b.start < a.end
    }

    /// True when both name the same elements in the same places.
    #[inline]
    pub fn is_same_view(&self, other: &Operand<'_>) -> bool {
        match (self, other) {
            (
                Operand::Memory { ptr: p, format: f, shape: a, strides: s },
                Operand::Memory { ptr: q, format: g, shape: b, strides: t },
            ) => {
                p == q
                    && f.size() == g.size()
                    && a == b
                    && (0..a.len()).all(|d| a[d] <= 1 || s[d] == t[d])
            }
            _ => false,
        }
    }
}

#[inline]
fn is_contiguous(shape: &[usize], strides: &[isize]) -> bool {
    let mut expected = 1;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected *= size as isize;
        }
    }
    true
}

/// A walk over all elements. Dimensions go from outermost to innermost; there is at least one.
#[derive(Debug)]
pub struct Plan {
    /// Sizes.
    pub dims: SmallVec<[usize; 4]>,
    /// Strides in bytes: `operands` numbers for each dimension.
    strides: SmallVec<[isize; 24]>,
    operands: usize,
}

impl Plan {
    /// The plan for operands that broadcast to `shape`; `operands[0]` decides the order.
    pub fn new(shape: &[usize], operands: &[Operand<'_>]) -> Plan {
        let count = operands.len();
        let mut order: SmallVec<[usize; 8]> = (0..shape.len()).filter(|&d| shape[d] != 1).collect();
        let stride = |k: usize, d: usize| match operands[k] {
            Operand::Memory { format, shape: own, strides, .. } => {
                let missing = shape.len() - own.len();
                if d < missing || own[d - missing] == 1 {
                    0
                } else {
                    strides[d - missing] * format.size() as isize
                }
            }
            Operand::Constant(_) => 0,
        };
        // Stable, so that equal strides keep row-major order. Later operands break ties.
        sort_axes(&mut order, |a, b| {
            let wider = |k| stride(k, b).abs().cmp(&stride(k, a).abs());
            (0..count).map(wider).find(|o| o.is_ne()).is_some_and(|o| o.is_lt())
        });

        let mut plan = Plan { dims: SmallVec::new(), strides: SmallVec::new(), operands: count };
        for &d in &order {
            let joins = plan.dims.last().is_some()
                && (0..count).all(|k| {
                    let outer = plan.strides[(plan.dims.len() - 1) * count + k];
                    outer == stride(k, d) * shape[d] as isize
                });
            if joins {
                let last = plan.dims.len() - 1;
                plan.dims[last] *= shape[d];
                for k in 0..count {
                    plan.strides[last * count + k] = stride(k, d);
                }
            } else {
                plan.dims.push(shape[d]);
                plan.strides.extend((0..count).map(|k| stride(k, d)));
            }
        }
        if plan.dims.is_empty() {
            plan.dims.push(shape.iter().product());
            plan.strides.extend(std::iter::repeat_n(0, count));
        }
        plan
    }

    /// Stride in bytes of operand `k` along dimension `d`.
    #[inline]
    pub fn stride(&self, d: usize, k: usize) -> isize {
        self.strides[d * self.operands + k]
    }

    /// Size of the innermost dimension.
    #[inline]
    pub fn inner(&self) -> usize {
        self.dims[self.dims.len() - 1]
    }

    /// Stride in bytes of operand `k` along the innermost dimension.
    #[inline]
    pub fn inner_stride(&self, k: usize) -> isize {
        self.stride(self.dims.len() - 1, k)
    }

    /// Number of runs of the innermost dimension.
    #[inline]
    pub fn rows(&self) -> usize {
        self.dims[..self.dims.len() - 1].iter().product()
    }

    /// Bytes from operand `k`'s first element to the start of row `row`.
    #[inline]
    pub fn row_offset(&self, mut row: usize, k: usize) -> isize {
        let mut offset = 0;
        for d in (0..self.dims.len() - 1).rev() {
            offset += (row % self.dims[d]) as isize * self.stride(d, k);
            row /= self.dims[d];
        }
        offset
    }

    /// Calls `each` for these rows with the bytes from the first element of operands `0..N` to the row.
    #[inline]
    pub fn for_rows<const N: usize>(&self, rows: Range<usize>, mut each: impl FnMut([isize; N])) {
        let dims = &self.dims[..self.dims.len() - 1];
        let mut offsets: [isize; N] = std::array::from_fn(|k| self.row_offset(rows.start, k));
        let Some((&size, outer)) = dims.split_last() else {
            return rows.for_each(|_| each(offsets));
        };
        let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, outer.len());
        let index = &mut index[..];
        let mut before = rows.start / size;
        for (i, &size) in index.iter_mut().zip(outer).rev() {
            *i = before % size;
            before /= size;
        }
        // No iterators from here on: where they are not inlined, they cost more than a short row's copy.
        let steps_along = |d: usize| {
            let mut steps = [0; N];
            steps.copy_from_slice(&self.strides[d * self.operands..][..N]);
            steps
        };
        let steps = steps_along(outer.len());
        let (mut at, mut left) = (rows.start % size, rows.len());
        while left > 0 {
            // Up to the end of the last of these dimensions, without a look at the others.
            let run = left.min(size - at);
            let mut i = 0;
            while i < run {
                each(offsets);
                for k in 0..N {
                    offsets[k] += steps[k];
                }
                i += 1;
            }
            left -= run;
            at = 0;
            for k in 0..N {
                offsets[k] -= size as isize * steps[k];
            }
            for d in (0..outer.len()).rev() {
                index[d] += 1;
                let ended = index[d] == outer[d];
                let turns = if ended { 1 - outer[d] as isize } else { 1 };
                let steps = steps_along(d);
                for k in 0..N {
                    offsets[k] += turns * steps[k];
                }
                if !ended {
                    break;
                }
                index[d] = 0;
            }
        }
    }

    /// True when operand `k` has one stride along all elements in the plan's order: its element `i`
    /// is `i` times the inner stride away.
    #[inline]
    pub fn is_linear(&self, k: usize) -> bool {
        (1..self.dims.len())
            .all(|d| self.stride(d - 1, k) == self.stride(d, k) * self.dims[d] as isize)
    }

    /// True when operand `k` is the same in every row.
    #[inline]
    pub fn repeats_rows(&self, k: usize) -> bool {
        (0..self.dims.len() - 1).all(|d| self.stride(d, k) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory<'a>(shape: &'a [usize], strides: &'a [isize]) -> Operand<'a> {
        Operand::Memory { ptr: std::ptr::null_mut(), format: Format::F32, shape, strides }
    }

    #[test]
    fn dense_operands_are_one_loop_in_any_order() {
        let plan = Plan::new(&[2, 3, 4], &[memory(&[2, 3, 4], &[12, 4, 1]); 2]);
        assert_eq!((&plan.dims[..], plan.inner_stride(0)), (&[24][..], 4));
        // Both transposed alike, and a dimension of size 1 with an odd stride.
        let plan = Plan::new(&[3, 1, 4], &[memory(&[3, 1, 4], &[1, 77, 3]); 2]);
        assert_eq!((&plan.dims[..], plan.inner_stride(1)), (&[12][..], 4));
    }

    #[test]
    fn a_row_that_broadcasts_keeps_two_dimensions() {
        let plan = Plan::new(&[2, 3, 4], &[memory(&[2, 3, 4], &[12, 4, 1]), memory(&[4], &[1])]);
        assert_eq!(&plan.dims[..], [6, 4]);
        assert!(plan.is_linear(0) && !plan.is_linear(1) && plan.repeats_rows(1));
    }

    #[test]
    fn overlap_is_seen() {
        let mut bytes = [0u8; 64];
        let at = |offset: usize, bytes: &mut [u8; 64]| bytes.as_mut_ptr().wrapping_add(offset);
        let view =
            |ptr, shape, strides| Operand::Memory { ptr, format: Format::F32, shape, strides };
        let a = view(at(0, &mut bytes), &[4], &[1]);
        assert!(a.overlaps(&view(at(12, &mut bytes), &[4], &[1])));
        assert!(!a.overlaps(&view(at(16, &mut bytes), &[4], &[1])));
        assert!(a.overlaps(&view(at(16, &mut bytes), &[4], &[-1])));
        assert!(!a.overlaps(&Operand::Constant(Constant::I(0))));
        assert!(a.is_same_view(&a) && !a.is_same_view(&view(at(0, &mut bytes), &[4], &[0])));
    }

    proptest! {
        #[test]
        fn every_element_is_met_once_at_its_place(
            dims in prop::collection::vec((1usize..4, 0isize..9, 0isize..9), 0..5),
        ) {
            let shape: Vec<usize> = dims.iter().map(|d| d.0).collect();
            let (s, t): (Vec<isize>, Vec<isize>) = dims.iter().map(|d| (d.1, d.2)).unzip();
            let plan = Plan::new(&shape, &[memory(&shape, &s), memory(&shape, &t)]);
            let mut want = vec![(0, 0)];
            for (&n, (s, t)) in shape.iter().zip(s.iter().zip(&t)) {
                want = want.iter().flat_map(|&(a, b)| (0..n as isize).map(move |i| (a + 4 * i * s, b + 4 * i * t))).collect();
            }
            let mut got = Vec::new();
            for row in 0..plan.rows() {
                for i in 0..plan.inner() as isize {
                    let place = |k| plan.row_offset(row, k) + i * plan.inner_stride(k);
                    got.push((place(0), place(1)));
                }
            }
            want.sort_unstable();
            got.sort_unstable();
            prop_assert_eq!(got, want);
        }
    }
}
