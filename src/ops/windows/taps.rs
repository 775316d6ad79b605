//! Windows over one dimension, from which pooling, padding, unfolding and interpolation in any number
//! of dimensions are composed: a table of the positions that each output reads.
//!
//! ```text
//! gather:   y[.., i, t, ..] = x[.., place(i, t), ..], or `fill` where a tap is outside
//! weighted: y[.., i, ..]    = sum over t of weight[i, t] x[.., place(i, t), ..]
//! add_back: x[.., p, ..]    = sum over the i, t with place(i, t) = p of y[.., i, t, ..]
//! ```
//!
//! Weighted sums are one fused op ([`resample`]); the others are made of recorded ops, so their
//! derivatives follow. `add_back` is the transpose of `gather`.

use std::ops::Range;

use super::resample::{LinearMap, resample};
use crate::storage::Device;
use crate::tensor::{Dtype, Scalar, Shape, Tensor};

/// Which positions of a dimension of `size` the `taps` of each of `out` windows read.
pub(in crate::ops) struct Windows {
    size: usize,
    out: usize,
    taps: usize,
    /// `[out, taps]`; `size` stands for a tap outside.
    places: Vec<i64>,
}

/// How many numbers lie between the ends, both included, of a window of `kernel` numbers `dilation`
/// apart.
pub(in crate::ops) fn window_span(kernel: usize, dilation: usize) -> usize {
    kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1)
}

/// The numbers that are left of `size` with `padding` more on both sides behind the first window of
/// `kernel` numbers `dilation` apart; `None` when it does not fit.
pub(in crate::ops) fn window_room(
    size: usize,
    kernel: usize,
    padding: usize,
    dilation: usize,
) -> Option<usize> {
    size.checked_add(padding.checked_mul(2)?)?.checked_sub(window_span(kernel, dilation))
}

/// How many windows there are in `size` numbers: [`window_room`] over the stride, and the first.
pub(in crate::ops) fn window_count(
    size: usize,
    kernel: usize,
    [stride, padding, dilation]: [usize; 3],
) -> Option<usize> {
    Some(window_room(size, kernel, padding, dilation)? / stride + 1)
}

/// The ranges of `out` nearly equal windows that cover `size`.
pub(in crate::ops) fn adaptive_ranges(size: usize, out: usize) -> Vec<std::ops::Range<usize>> {
    (0..out).map(|i| i * size / out..((i + 1) * size).div_ceil(out)).collect()
}

impl Windows {
    /// Tap t of window i reads `place(i, t)`; what is not in `0..size` is outside.
    pub fn new(
        size: usize,
        out: usize,
        taps: usize,
        place: impl Fn(usize, usize) -> isize,
    ) -> Self {
        let inside =
            |p: isize| if (0..size as isize).contains(&p) { p as i64 } else { size as i64 };
        let place = &place;
        let places = (0..out).flat_map(|i| (0..taps).map(move |t| inside(place(i, t)))).collect();
        Windows { size, out, taps, places }
    }

    /// Tap t of window i reads `i * stride + t * dilation - padding`.
    pub fn sliding(
        size: usize,
        out: usize,
        kernel: usize,
        [stride, padding, dilation]: [usize; 3],
    ) -> Self {
        let place = |i, t| (i * stride + t * dilation) as isize - padding as isize;
        Windows::new(size, out, kernel, place)
    }

    /// Windows that are ranges of positions.
    pub fn ranges(size: usize, ranges: &[Range<usize>]) -> Self {
        let taps = ranges.iter().map(Range::len).max().unwrap_or(0);
        let place = |i: usize, t: usize| {
            if t < ranges[i].len() { (ranges[i].start + t) as isize } else { -1 }
        };
        Windows::new(size, ranges.len(), taps, place)
    }

    /// How many windows there are.
    pub fn len(&self) -> usize {
        self.out
    }

    /// The taps inside, for each window.
    pub fn counts(&self) -> Vec<usize> {
        let inside = |w: &[i64]| w.iter().filter(|&&p| p < self.size as i64).count();
        self.places.chunks_exact(self.taps.max(1)).map(inside).collect()
    }

    fn index(&self, device: Device) -> Tensor {
        Tensor::from_slice(&self.places, [self.places.len()]).to_device(device)
    }

    fn has_outside(&self) -> bool {
        self.places.contains(&(self.size as i64))
    }

    /// Dimension `d` replaced by windows and taps, with `fill` outside.
    pub fn gather(&self, x: &Tensor, d: usize, fill: impl Into<Scalar>) -> Tensor {
        let mut shape = Shape::from_slice(x.shape());
        let x = if self.has_outside() {
            shape[d] = 1;
            Tensor::cat(&[x, &Tensor::full(&shape, fill, (x.dtype(), x.device()))], d as i64)
        } else {
            x.clone()
        };
        shape[d] = self.out;
        shape.insert(d + 1, self.taps);
        x.index_select(d as i64, &self.index(x.device())).reshape_to(&shape)
    }

    /// The weighted sum of each window, as a map of the dimension; `weights` is `[out, taps]`.
    pub fn weighted(&self, weights: &[f64]) -> LinearMap {
        let inside = |i: usize| {
            let taps = i * self.taps..(i + 1) * self.taps;
            let pairs = self.places[taps.clone()].iter().zip(&weights[taps]);
            pairs.map(|(&p, &w)| (p as usize, w)).filter(|(p, _)| *p < self.size)
        };
        LinearMap::new(self.size, (0..self.out).map(inside))
    }

    /// Adds up the weights of a window's taps at one place, in the first of these.
    pub fn join_weights(&self, weights: &mut [f64]) {
        let taps = self.taps.max(1);
        for (places, weights) in self.places.chunks_exact(taps).zip(weights.chunks_exact_mut(taps))
        {
            for t in 1..taps {
                if let Some(first) = places[..t].iter().position(|place| *place == places[t]) {
                    weights[first] += std::mem::take(&mut weights[t]);
                }
            }
        }
    }

    /// The mean of each window, where window i is counted as `counts[i]` numbers.
    pub fn means(&self, counts: &[usize]) -> LinearMap {
        let share = |c: &usize| std::iter::repeat_n(1.0 / *c as f64, self.taps);
        self.weighted(&counts.iter().flat_map(share).collect::<Vec<_>>())
    }

    /// The mean of each window of dimension `d`.
    pub fn mean(&self, x: &Tensor, d: usize, counts: &[usize]) -> Tensor {
        resample("mean_of_windows", x, d, [self.means(counts)])
    }

    /// Each of the dimensions from `first` on read at the single position of each of its windows, 0
    /// outside, for any type.
    pub fn pick(name: &'static str, x: &Tensor, first: usize, windows: &[Windows]) -> Tensor {
        if x.dtype().is_floating_point() {
            let maps: Vec<_> = windows.iter().map(|w| w.weighted(&vec![1.0; w.out])).collect();
            return resample(name, x, first, maps);
        }
        windows.iter().enumerate().fold(x.clone(), |y, (d, windows)| {
            windows.gather(&y, first + d, 0).squeeze_dim((first + d) as i64 + 1)
        })
    }

    /// The transpose of [`gather`](Self::gather): dimensions `d` and `d + 1` of `y`, windows and taps,
    /// are added up where they were read.
    pub fn add_back(&self, y: &Tensor, d: usize) -> Tensor {
        let mut shape = Shape::from_slice(y.shape());
        shape.remove(d + 1);
        shape[d] = self.places.len();
        let y = y.reshape_to(&shape);
        shape[d] = self.size + 1;
        let zeros = Tensor::zeros(&shape, (y.dtype(), y.device()));
        let sums = zeros.index_add(d as i64, &self.index(y.device()), &y);
        sums.narrow(d as i64, 0, self.size)
    }
}

/// `f` of a floating-point tensor, half types as f32; the result has the tensor's own type again.
pub(in crate::ops) fn in_compute_type(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    match x.dtype() {
        dtype @ (Dtype::F16 | Dtype::BF16) => f(&x.to_dtype(Dtype::F32)).to_dtype(dtype),
        _ => f(x),
    }
}
