//! Padding of the last dimensions with a number or with more of the tensor itself.

use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::windows::taps::Windows;
use crate::tensor::{Scalar, Shape, Tensor};

/// What [`Tensor::pad`] adds.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::PadMode;
/// let x = Tensor::from([[1i64, 2, 3]]);
/// let padded = |mode| x.pad(&[2, 1], mode).to_vec::<i64>();
/// assert_eq!(padded(PadMode::Constant(0.into())), [0, 0, 1, 2, 3, 0]);
/// assert_eq!(padded(PadMode::Reflect), [3, 2, 1, 2, 3, 2]);
/// assert_eq!(padded(PadMode::Replicate), [1, 1, 1, 2, 3, 3]);
/// assert_eq!(padded(PadMode::Circular), [2, 3, 1, 2, 3, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PadMode {
    /// This number.
    Constant(Scalar),
    /// The numbers before the edge, mirrored in it.
    Reflect,
    /// The number at the edge.
    Replicate,
    /// The numbers at the other end.
    Circular,
}

/// The name under which `autocast` knows a mode over `n` dimensions.
fn autocast_name(mode: PadMode, n: usize) -> &'static str {
    match (mode, n) {
        (PadMode::Reflect, 1) => "reflection_pad1d",
        (PadMode::Reflect, 2) => "reflection_pad2d",
        (PadMode::Replicate, _) => "replication_pad",
        _ => "pad",
    }
}

impl Tensor {
    /// Adds to both ends of the last dimensions (`torch.nn.functional.pad`). `padding` has two numbers
    /// for each of them, from the last one on: at its start, at its end; negative ones take away.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `padding` has an odd length or is longer than the dimensions,
    /// and where a mode has nothing to add: `Reflect` takes less than a dimension's size, `Circular`
    /// at most that; these modes leave one or two leading dimensions.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::PadMode};
    /// let x = Tensor::from([[1i64, 2, 3]]);
    /// assert_eq!(x.pad(&[1, 0], PadMode::Constant(9.into())).to_vec::<i64>(), [9, 1, 2, 3]);
    /// assert_eq!(x.pad(&[2, -1], PadMode::Reflect).to_vec::<i64>(), [3, 2, 1, 2]);
    /// ```
    #[track_caller]
    pub fn pad(&self, padding: &[i64], mode: PadMode) -> Tensor {
        cast_op!(autocast_name(mode, padding.len() / 2), [x = self] => x.pad(padding, mode));
        let fail = |rule: String| -> ! {
            throw(Error::argument(
                "pad",
                "padding",
                format!("{padding:?} for input {:?}: {rule}", self.shape()),
            ))
        };
        let n = padding.len() / 2;
        if !padding.len().is_multiple_of(2) || n > self.dim() {
            fail(format!("must have two numbers for each of at most {} dimensions", self.dim()));
        }
        if let PadMode::Constant(value) = mode {
            return self.constant_pad_nd(padding, value);
        }
        if !(1..=3).contains(&n) || !(n + 1..=n + 2).contains(&self.dim()) {
            fail(format!("{mode:?} pads 1, 2 or 3 dimensions and leaves one or two before them"));
        }
        let mut windows = Vec::new();
        for (i, ends) in padding.chunks_exact(2).enumerate() {
            let d = self.dim() - 1 - i;
            let size = self.shape()[d] as i64;
            let out = size + ends[0] + ends[1];
            if out <= 0 {
                fail(format!("nothing is left of dimension {d}"));
            }
            let most = ends[0].max(ends[1]);
            match mode {
                PadMode::Reflect if most >= size.max(1) => {
                    fail(format!("Reflect adds less than the {size} of dimension {d}"))
                }
                PadMode::Circular if most > size + ends[0].min(0) + ends[1].min(0) => {
                    fail(format!("Circular adds at most what is left of dimension {d}"))
                }
                PadMode::Replicate if most > 0 && size == 0 => {
                    fail(format!("dimension {d} is empty"))
                }
                _ => {}
            }
            windows.push(Windows::new(size as usize, out as usize, 1, |i, _| {
                place(mode, i as i64, ends, size) as isize
            }));
        }
        windows.reverse();
        Windows::pick("pad", self, self.dim() - n, &windows)
    }

    /// A larger copy: `pad` has, from the last dimension to the first, how many entries of `value`
    /// are added before and after; negative numbers cut (`torch.constant_pad_nd`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.constant_pad_nd(&[1, -1, 0, 1], 9).to_vec::<i64>(), [9, 1, 9, 3, 9, 9]);
    /// ```
    ///
    /// # Panics
    /// Throws when `pad` has an odd length or is for more dimensions than there are, or cuts more
    /// than there is.
    #[track_caller]
    pub fn constant_pad_nd(&self, pad: &[i64], value: impl Into<Scalar>) -> Tensor {
        if !pad.len().is_multiple_of(2) || pad.len() / 2 > self.dim() {
            throw(Error::argument(
                "constant_pad_nd",
                "pad",
                format!("{pad:?} must have two entries for some of {:?}", self.shape()),
            ));
        }
        let (mut shape, mut inner) = (Shape::from(self.shape()), self.clone());
        let mut offsets = Vec::new();
        for (i, ends) in pad.chunks(2).enumerate() {
            let d = self.dim() - 1 - i;
            let n = shape[d] as i64;
            let (from, to) = ((-ends[0]).max(0), n - (-ends[1]).max(0));
            if from > to {
                throw(Error::argument(
                    "constant_pad_nd",
                    "pad",
                    format!("{pad:?} cuts more than dimension {d} of {:?} has", self.shape()),
                ))
            }
            shape[d] = (n + ends[0] + ends[1]) as usize;
            inner = inner.narrow(d as i64, from as usize, (to - from) as usize);
            offsets.push((d as i64, ends[0].max(0) as usize));
        }
        let out = Tensor::full(&shape, value, (self.dtype(), self.device()));
        let mut place = out.clone();
        for (d, start) in offsets {
            place = place.narrow(d, start, inner.size(d));
        }
        place.copy_(&inner);
        out
    }
}

/// The position that output `i` reads.
fn place(mode: PadMode, i: i64, ends: &[i64], size: i64) -> i64 {
    let p = i - ends[0];
    match mode {
        // What is taken away is not repeated.
        PadMode::Circular => {
            let (from, to) = ((-ends[0]).max(0), size + ends[1].min(0));
            from + (p - from).rem_euclid(to - from)
        }
        PadMode::Reflect if p < 0 => -p,
        PadMode::Reflect if p >= size => 2 * (size - 1) - p,
        _ => p.clamp(0, size - 1),
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || [values([2, 3, 4, 5], 1)];
    let pad = |name: &str, padding: &'static [i64], mode| {
        OpSample::new(format!("pad({name})"), x(), move |x| x[0].pad(padding, mode))
    };
    vec![
        pad("constant", &[1, 2, 0, -1, 2, 0], PadMode::Constant(0.5.into())),
        pad("reflect", &[2, 1, 3, -1], PadMode::Reflect),
        pad("replicate", &[6, 1, -1, 2], PadMode::Replicate),
        pad("circular", &[5, 1, 0, 2], PadMode::Circular),
    ]
}
