//! Dropout: `y = x m / (1 - p)` with a random mask m that is 0 with probability p;
//! `dx = g m / (1 - p)`. One pass makes random words, mask and result; the mask is kept for backward
//! as one byte per element, which is read faster than words are made again.

use smallvec::smallvec;

use super::cuda;
use super::fill::with_words;
use super::generator::{Draw, Generator};
use super::recorded::resolve;
use super::words::kept;
use crate::autograd::record;
use crate::cpu::{
    arch::vectorize::Kernel, arch::vectorize::vectorize, folds::fold::Shared,
    folds::fold::SharedMut, numbers::widen::Real, numbers::widen::Widen, threads::GRAIN,
    threads::parallel_for,
};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::tensor::{Dtype, Tensor, dispatch};

/// Some elements with their words.
struct Drop<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    mask: &'a mut [bool],
    words: &'a [u32],
    /// An element is kept when its word is at least this (a word has 32 bits).
    threshold: u64,
    scale: f64,
}

impl<T: Widen<Wide: Real>> Kernel for Drop<'_, T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let scale = T::Wide::of(self.scale);
        // With p = 1 nothing is kept.
        let any = self.threshold <= u32::MAX as u64;
        let threshold = self.threshold as u32;
        let elements = self.x.iter().zip(self.y).zip(self.mask).zip(self.words);
        for (((&x, y), m), &word) in elements {
            let keep = (word >= threshold) & any;
            *m = keep;
            *y = T::narrow(if keep { x.widen() * scale } else { T::Wide::ZERO });
        }
    }
}

impl Generator {
    /// In training, each element of `x` is set to zero with probability `p` and otherwise divided by
    /// `1 - p`; else `x` itself (`torch.nn.functional.dropout`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::ones([1000], Dtype::F32);
    /// let y = Generator::new(0).dropout(&x, 0.75, true);
    /// assert!(y.eq(0.0).logical_or(&y.eq(4.0)).all().item() == 1.0);
    /// assert!((650.0..850.0).contains(&y.eq(0.0).sum().item()));
    /// assert!(Generator::new(0).dropout(&x, 0.75, false).equal(&x));
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when `p` is not a probability.
    #[track_caller]
    pub fn dropout(&self, x: &Tensor, p: f64, training: bool) -> Tensor {
        if !(0.0..=1.0).contains(&p) {
            throw(Error::argument(
                "dropout",
                "p",
                format!("{p}; a probability between 0 and 1 is needed"),
            ));
        }
        super::assert_floating("dropout", x);
        if !training || p == 0.0 {
            return x.clone();
        }
        let (_, scale) = kept(p);
        let (y, mask) = drop_elements(x, self.draw_on(x.device()), p);
        record("dropout", &[x], y, |saver| {
            let mask = saver.save(&mask);
            move |ctx| smallvec![Some(apply_mask(&ctx.grad(0), &ctx.get(&mask), scale))]
        })
    }
}

/// The result and the mask, not recorded.
fn drop_elements(x: &Tensor, draw: Draw, p: f64) -> (Tensor, Tensor) {
    let dense = x.detach().contiguous();
    if let Some(gpu) = gpu::of("dropout", &[x]) {
        return cuda::dropout(gpu, &dense, resolve(gpu, draw), p);
    }
    let (threshold, scale) = kept(p);
    let (y, mask) = (dense.empty_like(), Tensor::empty(x.shape(), Dtype::Bool.on_host()));
    dispatch!(float x.dtype(), "dropout", T => {
        let from = Shared(dense.data_ptr().cast::<T>());
        let masks = SharedMut(mask.data_ptr().cast::<bool>());
        with_words(x.numel(), 1, draw, SharedMut(y.data_ptr().cast::<T>()), |y, words, start| {
            // SAFETY: the same elements of the input and the mask, which is fresh: its bytes are
            // written before they are read as bools.
            let (x, mask) = unsafe {
                masks.at(start).write_bytes(0, y.len());
                (std::slice::from_raw_parts(from.at(start), y.len()), masks.slice(start..start + y.len()))
            };
            vectorize(Drop { x, y, mask, words, threshold, scale });
        });
    });
    (y, mask)
}

/// `g mask scale`. Linear in `g`: its gradient is the same again.
fn apply_mask(g: &Tensor, mask: &Tensor, scale: f64) -> Tensor {
    let dense = g.detach().contiguous();
    let out = match gpu::of("dropout_backward", &[g, mask]) {
        Some(gpu) => cuda::apply_mask(gpu, &dense, mask, scale),
        None => masked(&dense, mask, scale),
    };
    record("dropout_backward", &[g], out, |saver| {
        let mask = saver.save(mask);
        move |ctx| smallvec![Some(apply_mask(&ctx.grad(0), &ctx.get(&mask), scale))]
    })
}

/// [`apply_mask`] of dense tensors on the host.
fn masked(dense: &Tensor, mask: &Tensor, scale: f64) -> Tensor {
    let out = dense.empty_like();
    dispatch!(float dense.dtype(), "dropout", T => {
        // SAFETY: dense and of these types; `out` is fresh.
        let (g, mask) = unsafe { (dense.as_slice::<T>(), mask.as_slice::<bool>()) };
        let out = SharedMut(out.data_ptr().cast::<T>());
        parallel_for(g.len(), GRAIN, |part| {
            // SAFETY: as long as `g`; parts are disjoint.
            let out = unsafe { out.slice(part.clone()) };
            vectorize(Mask { g: &g[part.clone()], mask: &mask[part], out, scale });
        });
    });
    out
}

struct Mask<'a, T> {
    g: &'a [T],
    mask: &'a [bool],
    out: &'a mut [T],
    scale: f64,
}

impl<T: Widen<Wide: Real>> Kernel for Mask<'_, T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let scale = T::Wide::of(self.scale);
        for ((o, &g), &m) in self.out.iter_mut().zip(self.g).zip(self.mask) {
            *o = T::narrow(if m { g.widen() * scale } else { T::Wide::ZERO });
        }
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    // A generator per call: the same mask each time.
    vec![
        OpSample::new("dropout(0.4)", [values([5, 30], 1)], |x| {
            Generator::new(1).dropout(&x[0], 0.4, true)
        }),
        OpSample::new("dropout(1)", [values([5], 1)], |x| {
            Generator::new(1).dropout(&x[0], 1.0, true)
        }),
        OpSample::new("dropout, not training", [values([5], 1)], |x| x[0].dropout(0.4, false)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_zeros_is_p_and_the_mean_stays() {
        for p in [0.1, 0.5, 0.9] {
            let y = Generator::new(5).dropout(&Tensor::ones([100_000], Dtype::F32), p, true);
            let zeros = y.eq(0.0).sum().item() / 1e5;
            assert!((zeros - p).abs() < 0.006, "{zeros} of {p}");
            let mean = y.mean().item();
            assert!((mean - 1.0).abs() < 0.03, "{mean}");
        }
    }

    #[test]
    fn draws_differ_and_the_seed_repeats_them() {
        crate::fork_rng(|| {
            let x = Tensor::ones([64], Dtype::F32);
            let g = Generator::new(6);
            let (a, b) = (g.dropout(&x, 0.5, true), g.dropout(&x, 0.5, true));
            assert_ne!(a.to_vec::<f32>(), b.to_vec::<f32>());
            g.manual_seed(6);
            assert_eq!(a.to_vec::<f32>(), g.dropout(&x, 0.5, true).to_vec::<f32>());
        });
    }
}
