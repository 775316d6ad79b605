//! The fused loops of cross entropy over dense rows of class scores.

use crate::cpu::arch::vectorize::{Kernel, vectorize};
use crate::cpu::folds::fold::SharedMut;
use crate::cpu::folds::row::{self, Float};
use crate::cpu::numbers::widen::Real;
use crate::cpu::threads::{GRAIN, parallel_for};
use crate::tensor::Element;

/// Elements of cheap work that an exponential is worth.
const EXP_COST: usize = 4;

/// An element type of class scores, whose wide type is an element type too.
pub trait Scores: Float<Wide: Element> + Element {}
impl<T: Float<Wide: Element> + Element> Scores for T {}

/// Rows of scores with their targets, which are in range or `ignore_index`.
pub struct Rows<'a, T: Scores> {
    /// `[rows, classes]`.
    pub x: &'a [T],
    /// A class per row.
    pub target: &'a [i64],
    /// A weight per class.
    pub weight: Option<&'a [T::Wide]>,
    /// Length of a row.
    pub classes: usize,
    /// Rows with this target have no loss.
    pub ignore_index: i64,
    /// Part of the target that is spread over all classes.
    pub smoothing: f64,
}

impl<T: Scores> Rows<'_, T> {
    /// The target of row `i` and its weight, unless it is ignored.
    #[inline(always)]
    fn target(&self, i: usize) -> Option<(usize, T::Wide)> {
        let t = self.target[i];
        (t != self.ignore_index)
            .then(|| (t as usize, self.weight.map_or(T::Wide::ONE, |w| w[t as usize])))
    }

    /// Sum of all classes' weights.
    fn all_weights(&self) -> T::Wide {
        let sum = |w: &[T::Wide]| w.iter().map(|w| Real::as_f64(*w)).sum::<f64>();
        T::Wide::of(self.weight.map_or(self.classes as f64, sum))
    }

    fn grain(&self) -> usize {
        GRAIN / (EXP_COST * self.classes).max(1)
    }
}

/// Writes the logarithm of the sum of exponentials and the loss of every row.
pub(crate) fn forward_rows<T: Scores>(rows: &Rows<T>, lse: *mut T::Wide, losses: *mut T::Wide) {
    let (lse, losses) = (SharedMut(lse), SharedMut(losses));
    let all_weights = rows.all_weights();
    parallel_for(rows.target.len(), rows.grain(), |part| {
        // SAFETY: the callers give room for a value per row; parts are disjoint.
        let (lse, losses) = unsafe { (lse.slice(part.clone()), losses.slice(part.clone())) };
        vectorize(Forward { rows, first: part.start, lse, losses, all_weights });
    });
}

struct Forward<'a, T: Scores> {
    rows: &'a Rows<'a, T>,
    first: usize,
    lse: &'a mut [T::Wide],
    losses: &'a mut [T::Wide],
    all_weights: T::Wide,
}

impl<T: Scores> Kernel for Forward<'_, T> {
    type Output = ();
    const WIDE: bool = size_of::<T>() <= 4;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let rows = self.rows;
        let own_part = T::Wide::of(1.0 - rows.smoothing);
        let spread = T::Wide::of(rows.smoothing / rows.classes as f64);
        let n = rows.classes;
        for (i, (lse, loss)) in self.lse.iter_mut().zip(self.losses.iter_mut()).enumerate() {
            let x = &rows.x[(self.first + i) * n..];
            let m = row::max(x, n);
            let s = row::sum!(T, x, n, T::Wide::NEG_INFINITY, |x| (x - m).exp_flushed::<FMA>());
            (*lse, *loss) = (m, s);
        }
        // Of all sums at once: one by one, logarithms would be a large part of short rows' time.
        for sum in self.losses.iter_mut() {
            *sum = sum.log::<FMA>();
        }
        for (i, (lse, loss)) in self.lse.iter_mut().zip(self.losses).enumerate() {
            let i = self.first + i;
            let Some((t, w)) = rows.target(i) else {
                (*lse, *loss) = (T::Wide::ZERO, T::Wide::ZERO);
                continue;
            };
            let (x, m, log_s) = (&rows.x[i * n..], *lse, *loss);
            *lse = m + log_s;
            // In this order the large parts cancel before the small one is added.
            *loss = own_part * w * ((m - x[t].widen()) + log_s);
            if rows.smoothing > 0.0 {
                let weighted = match rows.weight {
                    None => row::sum!(T, x, n, T::Wide::ZERO, |x| x),
                    Some(w) => {
                        let terms = x[..n].iter().zip(w).map(|(x, &w)| x.widen() * w);
                        terms.fold(T::Wide::ZERO, |a, b| a + b)
                    }
                };
                *loss += spread * (self.all_weights * *lse - weighted);
            }
        }
    }
}

/// Writes the gradient of the scores; `g` is one number for all rows, or one per row.
pub(crate) fn backward_rows<T: Scores>(
    rows: &Rows<T>,
    lse: &[T::Wide],
    g: &[T::Wide],
    out: &mut [T],
) {
    assert!(out.len() == rows.x.len() && lse.len() == rows.target.len());
    assert!(g.len() == 1 || g.len() == rows.target.len());
    let out = SharedMut(out.as_mut_ptr());
    let all_weights = rows.all_weights();
    parallel_for(rows.target.len(), rows.grain(), |part| {
        let c = rows.classes;
        // SAFETY: as long as the scores, as just checked; parts are disjoint.
        let out = unsafe { out.slice(part.start * c..part.end * c) };
        vectorize(Backward { rows, first: part.start, lse, g, out, all_weights });
    });
}

struct Backward<'a, T: Scores> {
    rows: &'a Rows<'a, T>,
    first: usize,
    lse: &'a [T::Wide],
    g: &'a [T::Wide],
    out: &'a mut [T],
    all_weights: T::Wide,
}

impl<T: Scores> Kernel for Backward<'_, T> {
    type Output = ();
    const WIDE: bool = size_of::<T>() <= 4;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let rows = self.rows;
        let own_part = T::Wide::of(1.0 - rows.smoothing);
        let spread = T::Wide::of(rows.smoothing / rows.classes as f64);
        for (i, out) in self.out.chunks_exact_mut(rows.classes.max(1)).enumerate() {
            let i = self.first + i;
            let Some((t, w)) = rows.target(i) else {
                out.fill(T::narrow(T::Wide::ZERO));
                continue;
            };
            let x = &rows.x[i * rows.classes..];
            let g = self.g[if self.g.len() == 1 { 0 } else { i }];
            let (own, lse) = (own_part * w, self.lse[i]);
            let (a, b) = (g * (own + spread * self.all_weights), g * spread);
            match rows.weight {
                Some(w) if rows.smoothing > 0.0 => {
                    for ((o, &x), &w) in out.iter_mut().zip(x).zip(w) {
                        *o = T::narrow(a * (x.widen() - lse).exp::<FMA>() - b * w);
                    }
                }
                _ => row::map!(T, x, out, |x| a * (x - lse).exp::<FMA>() - b),
            }
            // Of the target from the wide value, not from what was rounded.
            let b = if rows.smoothing > 0.0 { b * w } else { b };
            out[t] = T::narrow(a * (x[t].widen() - lse).exp::<FMA>() - b - g * own);
        }
    }
}
