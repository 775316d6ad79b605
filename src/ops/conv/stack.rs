//! Direct sums over the planes of a volume: a slice of the result reads the source planes that its depth
//! taps name. The planes of a block of slices are prepared once, whatever the number of taps that read them;
//! a depth tap is then a constant offset as the other taps are.

use std::ops::Range;

use smallvec::SmallVec;

use super::scratch::field_of;
use super::scratch::minimal;
use super::scratch::scratch;
use crate::cpu::convolution::direct::{
    Correlation, FilterSums, Sizes, Spread, Target, Work, run_together,
};
use crate::cpu::convolution::field::{Field, Window, seen};
use crate::cpu::convolution::winograd::Winograd;
use crate::cpu::products::tiled::Tiled;
use crate::tensor::{Dtype, Element};

/// Elements of the planes that are prepared together; few in tests, so that there are several blocks.
const BLOCK: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };

/// The source planes that the slices of a result read: slice i those at `i * step + taps[t]`, where there are such.
pub struct Depth {
    pub step: usize,
    pub taps: Vec<isize>,
    /// Source planes of a channel.
    pub size: usize,
    /// Slices of a result.
    pub count: usize,
}

/// What slices read of the source and of each plane.
pub struct Stack<'a> {
    /// What a plane's points read.
    pub window: &'a Window,
    pub depth: &'a Depth,
}

/// Sums over what a part of the stack's taps read.
pub struct Part<'a, T> {
    pub window: &'a Window,
    /// The row-major `groups * outputs x (inputs * depth taps * taps)` matrix.
    pub weight: &'a [T],
    /// Where the points of each image's slice 0 go.
    pub target: Target,
}

impl Stack<'_> {
    /// Whether sums of this type are best taken here: planes that need no preparation are gathered sooner,
    /// and minimal filtering may be faster still, of which `minimally` says whether it pays.
    pub fn pays<T: Tiled + Element>(
        &self,
        sizes: Sizes,
        minimally: impl Fn(&Winograd) -> bool,
    ) -> bool {
        let merged = Sizes {
            batch: self.depth.count,
            inputs: sizes.inputs * self.depth.taps.len(),
            ..sizes
        };
        if self.depth.taps.len() < 2
            || self.window.taps.is_empty()
            || field_of::<T>(self.window).direct
        {
            return false;
        }
        let other = minimal(merged, self.window).filter(|_| T::DTYPE == Dtype::F32);
        !other.is_some_and(|(winograd, _)| minimally(&winograd))
    }

    /// The first source plane of a slice's taps, and how many planes there are to the last.
    fn reach(&self) -> (isize, usize) {
        let low = self.depth.taps.iter().copied().min().unwrap_or(0);
        let high = self.depth.taps.iter().copied().max().unwrap_or(0);
        (low, (high - low) as usize + 1)
    }

    /// Source planes that so many slices read.
    fn planes(&self, slices: usize) -> usize {
        (slices - 1) * self.depth.step + self.reach().1
    }

    /// Slices of a block, which divide all of them, the field of a plane, and which of a slice's planes its taps read.
    fn block(&self, channels: usize) -> (usize, Field, Vec<usize>) {
        let plane = Field::copied(self.window);
        let fits = |slices: usize| self.planes(slices) * channels * plane.plane <= BLOCK;
        let whole = |slices: &usize| self.depth.count.is_multiple_of(*slices) && fits(*slices);
        let slices = (2..=self.depth.count).rev().find(whole).unwrap_or(1);
        let low = self.reach().0;
        (slices, plane, self.depth.taps.iter().map(|t| (t - low) as usize).collect())
    }

    /// The depth taps through which each of some slices sees the source; one, if it sees nothing.
    fn sees(&self, slices: Range<usize>) -> Vec<Range<usize>> {
        let Depth { step, taps, size, .. } = self.depth;
        slices.map(|i| seen(taps, i * step, *size)).collect()
    }

    /// Prepares the planes of the slices from `first` on of an image, `channels x planes` of them: for who reads one slice
    /// after the other with `depth` the planes of a channel, for who reads one channel after the other with 1.
    fn fill<T: Tiled>(
        &self,
        field: &Field,
        image: &[T],
        first: usize,
        depth: usize,
        copy: &mut [T],
    ) {
        let [h, w] = self.window.source;
        let (planes, low) = (field.channel / field.plane, self.reach().0);
        let plane = |p: usize| {
            let d = (first * self.depth.step + p % planes) as isize + low;
            let at = p / planes * self.depth.size
                + usize::try_from(d).ok().filter(|&d| d < self.depth.size)?;
            Some(&image[at * h * w..(at + 1) * h * w])
        };
        field.fill_planes(plane, [h, w], depth, copy);
    }

    /// For each image, and each block of its slices: `body(image, slices)`.
    fn blocks(&self, batch: usize, size: usize, mut body: impl FnMut(usize, Range<usize>)) {
        for n in 0..batch {
            for from in (0..self.depth.count).step_by(size) {
                body(n, from..from + size);
            }
        }
    }

    /// The sums of source times filter, plus `bias`, of parts whose windows are in the stack's. `source` is
    /// `[batch, groups * inputs, depth, ..]`; the points of the next slice go `slice` places behind one's.
    ///
    /// # Safety
    /// The parts' targets are disjoint.
    pub unsafe fn correlate<T: Tiled + Element>(
        &self,
        sizes: Sizes,
        source: &[T],
        parts: &[Part<T>],
        bias: Option<&[T]>,
        slice: usize,
        out: &mut [T],
    ) {
        let channels = sizes.groups * sizes.inputs;
        let (slices, plane, depths) = self.block(channels);
        let depth = self.planes(slices);
        let planes = plane.stacked(depth, &depths, self.depth.step);
        let fields: Vec<Field> = parts
            .iter()
            .map(|part| {
                let plane = plane.with_taps(&part.window.taps);
                plane.stacked(depth, &depths, self.depth.step)
            })
            .collect();
        let correlations: Vec<Correlation<T>> = (parts.iter().zip(&fields))
            .map(|(part, field)| {
                let sizes = Sizes { batch: slices, grid: part.window.grid, ..sizes };
                Correlation::new(sizes, field)
            })
            .collect();
        let filters = scratch::<T>(correlations.iter().map(Correlation::filters_len).sum());
        let copy = scratch::<T>(channels * planes.channel + Field::SLACK);
        // SAFETY: new tensors that nobody else has.
        let (filters, copy) = unsafe { (filters.as_mut_slice::<T>(), copy.as_mut_slice::<T>()) };
        let mut rest = filters;
        let filters: Vec<&[T]> = (parts.iter().zip(&correlations))
            .map(|(part, correlation)| {
                let own = rest.split_off_mut(..correlation.filters_len()).expect("the sum of all");
                let group = part.weight.len() / sizes.groups;
                correlation.pack_filters(|g| &part.weight[g * group..(g + 1) * group], own);
                &*own
            })
            .collect();
        let image = channels * self.depth.size * self.window.source[0] * self.window.source[1];
        self.blocks(sizes.batch, slices, |n, block| {
            self.fill(&planes, &source[n * image..(n + 1) * image], block.start, depth, copy);
            let sees = self.sees(block.clone());
            let works: SmallVec<[Work<T>; 8]> = (parts.iter().zip(&correlations).zip(&filters))
                .map(|((part, correlation), filters)| {
                    let first = part.target.first + n * part.target.image + block.start * slice;
                    let target = Target { first, image: slice, ..part.target };
                    correlation.work((copy, &sees), filters, bias, target)
                })
                .collect();
            // SAFETY: the parts' targets are disjoint, by this function's contract.
            unsafe { run_together(&works, out) };
        });
    }

    /// The gradient of the filters, `[groups * outputs, inputs * depth taps * taps]`, from the source and
    /// the gradient `[batch, groups * outputs, slices, grid]`.
    pub fn correlate_filters<T: Tiled + Element>(
        &self,
        sizes: Sizes,
        source: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let (channels, results) = (sizes.groups * sizes.inputs, sizes.groups * sizes.outputs);
        let (slices, plane, depths) = self.block(channels);
        let field = plane.stacked(self.planes(slices), &depths, self.depth.step);
        let sizes = Sizes { batch: slices, ..sizes };
        let copy = scratch::<T>(channels * field.channel + Field::SLACK);
        let all = FilterSums::new(sizes, &field);
        let sums = scratch::<T>(all.len());
        // SAFETY: new tensors that nobody else has.
        let (copy, sums) = unsafe { (copy.as_mut_slice::<T>(), sums.as_mut_slice::<T>()) };
        let points = self.window.points();
        let spread = Spread { image: points, channel: self.depth.count * points };
        let image = channels * self.depth.size * self.window.source[0] * self.window.source[1];
        let batch = source.len() / image.max(1);
        let mut first = true;
        self.blocks(batch, slices, |n, block| {
            self.fill(&field, &source[n * image..(n + 1) * image], block.start, 1, copy);
            let gradient = &gradient[n * results * spread.channel + block.start * points..];
            let sees = self.sees(block);
            all.add((copy, &sees), (gradient, spread), std::mem::take(&mut first), sums);
        });
        if first {
            // There was no image.
            return out.fill(T::ZERO);
        }
        all.bring(sums, out);
    }
}
