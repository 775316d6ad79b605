//! Boxes of a tensor's elements, and which bytes two of them share. Pure arithmetic.

use serde::{Deserialize, Serialize};

/// A box of a tensor's elements: where it begins in each dimension, and its sizes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Region {
    pub offsets: Vec<usize>,
    pub shape: Vec<usize>,
}

/// A stretch that lies in one piece in each of two boxes, in bytes from their beginnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub from: usize,
    pub to: usize,
    pub len: usize,
}

impl Region {
    /// All of a tensor.
    pub fn whole(shape: &[usize]) -> Region {
        Region { offsets: vec![0; shape.len()], shape: shape.to_vec() }
    }

    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it lies in a tensor of this shape.
    pub fn is_within(&self, shape: &[usize]) -> bool {
        self.offsets.len() == shape.len()
            && self.shape.len() == shape.len()
            && (0..shape.len()).all(|d| {
                self.offsets[d].checked_add(self.shape[d]).is_some_and(|end| end <= shape[d])
            })
    }

    /// What both have, if that is anything. They are boxes of one tensor.
    pub fn intersect(&self, other: &Region) -> Option<Region> {
        let mut common =
            Region { offsets: Vec::with_capacity(self.shape.len()), shape: Vec::new() };
        for d in 0..self.shape.len() {
            let start = self.offsets[d].max(other.offsets[d]);
            let end = (self.offsets[d] + self.shape[d]).min(other.offsets[d] + other.shape[d]);
            if end <= start {
                return None;
            }
            common.offsets.push(start);
            common.shape.push(end - start);
        }
        Some(common)
    }

    /// The bytes that `self`, a part of both, has in `source` and in `target`, whose elements lie in row-major order
    /// and have `size` bytes.
    pub fn runs<'a>(&'a self, source: &'a Region, target: &'a Region, size: usize) -> Runs<'a> {
        let dims = self.shape.len();
        // Dimensions from `inner` on are complete in both, so that rows of the one before it lie in one piece.
        let complete =
            |d: &usize| self.shape[*d] == source.shape[*d] && self.shape[*d] == target.shape[*d];
        let inner = (0..dims).rev().take_while(complete).last().unwrap_or(dims);
        let outer = inner.saturating_sub(1);
        let len = self.shape[outer..].iter().product::<usize>() * size;
        let count = if self.numel() == 0 { 0 } else { self.shape[..outer].iter().product() };
        Runs { common: self, source, target, size, outer, len, count }
    }
}

/// The [`Run`]s of a box that two others share, ascending in both.
pub(crate) struct Runs<'a> {
    common: &'a Region,
    source: &'a Region,
    target: &'a Region,
    size: usize,
    /// Dimensions that runs are counted along.
    outer: usize,
    len: usize,
    count: usize,
}

impl Runs<'_> {
    fn get(&self, number: usize) -> Run {
        let (mut rest, mut volume) = (number, [self.size; 2]);
        let mut at = [0; 2];
        for d in (0..self.common.shape.len()).rev() {
            let place = match d < self.outer {
                true => {
                    let place = rest % self.common.shape[d];
                    rest /= self.common.shape[d];
                    place
                }
                false => 0,
            };
            for (side, region) in [self.source, self.target].into_iter().enumerate() {
                at[side] += (self.common.offsets[d] + place - region.offsets[d]) * volume[side];
                volume[side] *= region.shape[d];
            }
        }
        Run { from: at[0], to: at[1], len: self.len }
    }

    /// The only run, if there is but one.
    pub fn only(&self) -> Option<Run> {
        (self.count == 1).then(|| self.get(0))
    }

    /// All of them.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = Run> {
        (0..self.count).map(|number| self.get(number))
    }

    /// What lies between two bytes of the source.
    pub fn between(&self, start: usize, end: usize) -> impl Iterator<Item = Run> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).from + self.len <= start {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let cut = move |run: Run| {
            let (from, to) = (run.from.max(start), (run.from + run.len).min(end));
            (from < to).then(|| Run { from, to: run.to + (from - run.from), len: to - from })
        };
        (low..self.count).map_while(move |number| cut(self.get(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(offsets: &[usize], shape: &[usize]) -> Region {
        Region { offsets: offsets.to_vec(), shape: shape.to_vec() }
    }

    #[test]
    fn rows_of_a_matrix_are_one_run_and_columns_are_one_for_each_row() {
        let whole = Region::whole(&[4, 6]);
        let rows = region(&[1, 0], &[2, 6]);
        let run = |from, to, len| Run { from, to, len };
        let of_rows = rows.runs(&whole, &rows, 4).iter().collect::<Vec<_>>();
        assert_eq!(of_rows, [run(24, 0, 48)]);
        let columns = region(&[0, 2], &[4, 3]);
        let of_columns = columns.runs(&whole, &columns, 1).iter().collect::<Vec<_>>();
        assert_eq!(of_columns, [run(2, 0, 3), run(8, 3, 3), run(14, 6, 3), run(20, 9, 3)]);
        let scalar = Region::whole(&[]);
        assert_eq!(scalar.runs(&scalar, &scalar, 8).iter().collect::<Vec<_>>(), [run(0, 0, 8)]);
        let none = region(&[4, 0], &[0, 6]);
        assert_eq!(none.runs(&whole, &none, 4).iter().count(), 0);
        assert!(none.is_within(&[4, 6]) && !none.is_within(&[3, 6]) && !none.is_within(&[4]));
        assert!(!region(&[usize::MAX], &[2]).is_within(&[4]));
        assert_eq!(rows.intersect(&region(&[3, 0], &[1, 6])), None);
    }

    /// A shape, and two boxes of it.
    fn boxes() -> impl Strategy<Value = (Vec<usize>, Region, Region)> {
        // Of each dimension its size, and where the boxes begin and end.
        prop::collection::vec((1usize..5, prop::array::uniform4(0usize..5)), 0..4).prop_map(
            |dims| {
                let shape: Vec<usize> = dims.iter().map(|(size, _)| *size).collect();
                let cut = |first: usize| {
                    let ends = |(size, ends): &(usize, [usize; 4])| {
                        let (a, b) = (ends[first] % (size + 1), ends[first + 1] % (size + 1));
                        (a.min(b), a.max(b))
                    };
                    let offsets = dims.iter().map(|d| ends(d).0).collect();
                    let shape = dims.iter().map(|d| ends(d).1 - ends(d).0).collect();
                    Region { offsets, shape }
                };
                let (source, target) = (cut(0), cut(2));
                (shape, source, target)
            },
        )
    }

    proptest! {
        #[test]
        fn runs_copy_exactly_the_common_elements((shape, source, target) in boxes()) {
            // Every element of the tensor is its own number.
            let numbers = |region: &Region| -> Vec<usize> {
                let whole = Region::whole(&shape);
                region.runs(&whole, region, 1).iter().flat_map(|run| run.from..run.from + run.len).collect()
            };
            let (from, expected) = (numbers(&source), numbers(&target));
            prop_assert_eq!(from.len(), source.numel());
            let mut copied = vec![usize::MAX; target.numel()];
            if let Some(common) = source.intersect(&target) {
                let mut last = 0;
                let runs = common.runs(&source, &target, 1);
                let (start, end) = (source.numel() / 3, source.numel() / 2);
                let within = |run: &Run| (start..end).filter(|i| (run.from..run.from + run.len).contains(i)).count();
                let between: usize = runs.between(start, end).map(|run| run.len).sum();
                prop_assert_eq!(between, runs.iter().map(|run| within(&run)).sum::<usize>());
                for run in runs.between(0, source.numel()) {
                    prop_assert!(run.from >= last);
                    last = run.from + run.len;
                    copied[run.to..run.to + run.len].copy_from_slice(&from[run.from..last]);
                }
            }
            for (place, number) in expected.iter().enumerate() {
                let is_common = from.contains(number);
                prop_assert_eq!(copied[place], if is_common { *number } else { usize::MAX });
            }
        }
    }
}
