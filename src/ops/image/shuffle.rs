//! Rearrangements of channels: each is a reshape, a permutation and a reshape.

use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::tensor::Tensor;

impl Tensor {
    /// `[.., C r^2, H, W]` as `[.., C, H r, W r]` (`torch.nn.functional.pixel_shuffle`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when there are fewer than 3 dimensions or the channels are no multiple
    /// of `upscale_factor`^2, [`Error::Argument`] for a factor of 0.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[[1i64]], [[2]], [[3]], [[4]]]);
    /// assert_eq!(x.pixel_shuffle(2).to_vec::<i64>(), [1, 2, 3, 4]);
    /// ```
    #[track_caller]
    pub fn pixel_shuffle(&self, upscale_factor: usize) -> Tensor {
        let r = upscale_factor;
        let (outer, [c, h, w]) = image("pixel_shuffle", self, r);
        if c % (r * r) != 0 {
            throw(Error::shape(
                "pixel_shuffle",
                format!("input {:?}: its {c} channels are no multiple of {r}^2", self.shape()),
            ));
        }
        let with = |last: &[usize]| [outer, last].concat();
        let order = [0, 3, 1, 4, 2];
        let x = self.reshape_to(&with(&[c / (r * r), r, r, h, w]));
        permuted(&x, outer.len(), &order).reshape_to(&with(&[c / (r * r), h * r, w * r]))
    }

    /// `[.., C, H r, W r]` as `[.., C r^2, H, W]` (`torch.nn.functional.pixel_unshuffle`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[[1i64, 2], [3, 4]]]).pixel_unshuffle(2);
    /// assert_eq!((x.shape(), x.to_vec::<i64>()), (&[4, 1, 1][..], vec![1, 2, 3, 4]));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when there are fewer than 3 dimensions or height and width are no
    /// multiples of `downscale_factor`, [`Error::Argument`] for a factor of 0.
    #[track_caller]
    pub fn pixel_unshuffle(&self, downscale_factor: usize) -> Tensor {
        let r = downscale_factor;
        let (outer, [c, h, w]) = image("pixel_unshuffle", self, r);
        if h % r != 0 || w % r != 0 {
            throw(Error::shape(
                "pixel_unshuffle",
                format!("input {:?}: height and width must be multiples of {r}", self.shape()),
            ));
        }
        let with = |last: &[usize]| [outer, last].concat();
        let x = self.reshape_to(&with(&[c, h / r, r, w / r, r]));
        permuted(&x, outer.len(), &[0, 2, 4, 1, 3]).reshape_to(&with(&[c * r * r, h / r, w / r]))
    }

    /// The channels (dimension 1), in `groups` parts, dealt out in turn
    /// (`torch.nn.functional.channel_shuffle`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when there are fewer than 3 dimensions or the channels are no multiple
    /// of `groups`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[[1i64], [2], [3], [4]]]);
    /// assert_eq!(x.channel_shuffle(2).to_vec::<i64>(), [1, 3, 2, 4]);
    /// ```
    #[track_caller]
    pub fn channel_shuffle(&self, groups: usize) -> Tensor {
        let shape = self.shape();
        if shape.len() < 3 || groups == 0 || !shape[1].is_multiple_of(groups) {
            throw(Error::shape(
                "channel_shuffle",
                format!("input {shape:?} must be [N, C, ..], C a multiple of groups {groups}"),
            ));
        }
        let mut parts = vec![shape[0], groups, shape[1] / groups];
        parts.push(shape[2..].iter().product());
        self.reshape_to(&parts).transpose(1, 2).reshape_to(shape)
    }
}

/// The leading dimensions, and channels, height and width.
#[track_caller]
fn image<'t>(op: &str, x: &'t Tensor, factor: usize) -> (&'t [usize], [usize; 3]) {
    if factor == 0 {
        throw(Error::argument(op, "factor", "0; must be at least 1"));
    }
    match x.shape() {
        [outer @ .., c, h, w] => (outer, [*c, *h, *w]),
        shape => throw(Error::shape(op, format!("input {shape:?} must be [.., C, H, W]"))),
    }
}

/// A copy with the dimensions from `n` on in another order.
fn permuted(x: &Tensor, n: usize, order: &[i64]) -> Tensor {
    let dims: Vec<i64> = (0..n as i64).chain(order.iter().map(|d| n as i64 + d)).collect();
    x.permute(&dims).clone_contiguous()
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    vec![
        OpSample::new("pixel_shuffle(2)", [values([2, 8, 3, 2], 1)], |x| x[0].pixel_shuffle(2)),
        OpSample::new("pixel_unshuffle(3)", [values([2, 3, 6], 1)], |x| x[0].pixel_unshuffle(3)),
        OpSample::new("channel_shuffle(3)", [values([2, 6, 3, 2], 1)], |x| x[0].channel_shuffle(3)),
    ]
}
