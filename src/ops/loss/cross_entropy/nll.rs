//! Negative log likelihood: `loss = -w_t x_t` for log-probabilities `x` and class `t`;
//! `dx_c = -g w_t [c = t]`.

use smallvec::smallvec;

use super::batch::{Batch, of_one_row};
use super::cuda;
use super::options::Reduction;
use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::numbers::widen::{Real, Widen};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, positive, values};
use crate::ops::gpu;
use crate::tensor::{Element, Tensor, dispatch};

/// Options of [`Tensor::nll_loss_with`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::NLLLossOptions;
/// let x = Tensor::from([[-1f64, -2.], [-3., -4.]]);
/// let options = NLLLossOptions { weight: Some(Tensor::from([1f64, 3.])), ..Default::default() };
/// assert_eq!(x.nll_loss_with(&Tensor::from([1i64, 0]), options).item(), 2.25);
/// ```
#[derive(Clone, Debug)]
pub struct NLLLossOptions {
    /// A weight per class.
    pub weight: Option<Tensor>,
    /// Targets of this value are left out.
    pub ignore_index: i64,
    /// What is returned.
    pub reduction: Reduction,
}

impl Default for NLLLossOptions {
    fn default() -> Self {
        NLLLossOptions { weight: None, ignore_index: -100, reduction: Reduction::Mean }
    }
}

impl Tensor {
    /// Mean negative log likelihood of these log-probabilities (`torch.nn.functional.nll_loss`):
    /// `[N, C]`, `[N, C, d...]` or `[C]` with classes (i64 or u8) `[N]`, `[N, d...]` or `[]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[-1f64, -2.], [-3., -4.]]);
    /// assert_eq!(x.nll_loss(&Tensor::from([1i64, 0])).item(), 2.5);
    /// ```
    ///
    /// # Panics
    /// Throws when shapes or types do not fit, and for a class that is out of range, naming it.
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor) -> Tensor {
        self.nll_loss_with(target, NLLLossOptions::default())
    }

    /// [`nll_loss`](Self::nll_loss) with options.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::{NLLLossOptions, Reduction};
    /// let x = Tensor::from([[-1f64, -2.], [-3., -4.]]);
    /// let options = NLLLossOptions { ignore_index: 0, reduction: Reduction::Sum, ..Default::default() };
    /// assert_eq!(x.nll_loss_with(&Tensor::from([1i64, 0]), options).item(), 2.0);
    /// ```
    ///
    /// # Panics
    /// As `nll_loss`, and for weights of another shape.
    #[track_caller]
    pub fn nll_loss_with(&self, target: &Tensor, options: NLLLossOptions) -> Tensor {
        cast_op!("nll_loss", [x = self] => x.nll_loss_with(target, options));
        let options = &options;
        let target = &of_one_row(self, target);
        let weight = options.weight.as_ref();
        let batch = Batch::new("nll_loss", self, target, weight, options.ignore_index);
        let factors = batch.factors();
        let losses = pick(&batch.x, &batch.target, &factors);
        if batch.x.device().is_apart() && options.reduction == Reduction::Mean {
            // The divisor stays on the device.
            let wide = losses.to_dtype(factors.dtype());
            return (wide.sum() / -factors.sum()).to_dtype(losses.dtype());
        }
        let total = if options.reduction == Reduction::Mean { batch.total_weight() } else { 1.0 };
        batch.reduce(losses, total, options.reduction, target.shape())
    }
}

impl Batch {
    /// `-w_t` of every row, 0 for the ignored; the ignored targets become 0 in [`pick`].
    #[track_caller]
    fn factors(&self) -> Tensor {
        if let Some(gpu) = gpu::of("nll_loss", &[&self.x]) {
            return cuda::factors(gpu, self);
        }
        let w = self.weight.as_ref().map(|w| w.to_vec::<f64>());
        let factor = |t: i64| match &w {
            _ if t == self.ignore_index => 0.0,
            Some(w) => -w[t as usize],
            None => -1.0,
        };
        let factors: Vec<f64> = self.target.to_vec::<i64>().into_iter().map(factor).collect();
        Tensor::from(factors).to_dtype(self.x.dtype().compute())
    }
}

/// `factor_i x[i, t_i]` of every row; where the factor is 0 the element is not looked at.
#[track_caller]
fn pick(x: &Tensor, target: &Tensor, factors: &Tensor) -> Tensor {
    let out = match gpu::of("nll_loss", &[x, target]) {
        Some(gpu) => cuda::pick(gpu, x, target, factors),
        None => pick_on_cpu(x, target, factors),
    };
    record("nll_loss", &[x], out, |saver| {
        let (target, factors) = (saver.save(target), saver.save(factors));
        let classes = x.shape()[1];
        move |ctx| {
            smallvec![Some(place(&ctx.grad(0), &ctx.get(&target), &ctx.get(&factors), classes))]
        }
    })
}

fn pick_on_cpu(x: &Tensor, target: &Tensor, factors: &Tensor) -> Tensor {
    let out = Tensor::empty([target.numel()], x.dtype().on_host());
    dispatch!(float x.dtype(), "nll_loss", T => {
        type Wide = <T as Widen>::Wide;
        // SAFETY: contiguous and of these types; `out` is fresh.
        let (x, t, f, out) = unsafe {
            (x.as_slice::<T>(), target.as_slice::<i64>(), factors.as_slice::<Wide>(), out.as_mut_slice::<T>())
        };
        let classes = x.len() / t.len().max(1);
        for (i, (o, (&t, &f))) in out.iter_mut().zip(t.iter().zip(f)).enumerate() {
            *o = if f == Wide::ZERO { T::from_i64(0) } else { T::narrow(f * x[i * classes + t as usize].widen()) };
        }
    });
    out
}

/// The inverse of [`pick`]: zeros of shape `[rows, classes]` with `factor_i g_i` at `t_i`.
#[track_caller]
fn place(g: &Tensor, target: &Tensor, factors: &Tensor, classes: usize) -> Tensor {
    let dense = g.detach().contiguous();
    let out = match gpu::of("nll_loss", &[g, target]) {
        Some(gpu) => cuda::place(gpu, &dense, target, factors, classes),
        None => place_on_cpu(&dense, target, factors, classes),
    };
    record("nll_loss_backward", &[g], out, |saver| {
        let (target, factors) = (saver.save(target), saver.save(factors));
        move |ctx| {
            smallvec![Some(pick(&ctx.grad(0).contiguous(), &ctx.get(&target), &ctx.get(&factors)))]
        }
    })
}

fn place_on_cpu(dense: &Tensor, target: &Tensor, factors: &Tensor, classes: usize) -> Tensor {
    let out = Tensor::zeros([target.numel(), classes], dense.dtype().on_host());
    dispatch!(float dense.dtype(), "nll_loss", T => {
        type Wide = <T as Widen>::Wide;
        // SAFETY: as in `pick`.
        let (g, t, f, out) = unsafe {
            (dense.as_slice::<T>(), target.as_slice::<i64>(), factors.as_slice::<Wide>(), out.as_mut_slice::<T>())
        };
        for (i, (&g, (&t, &f))) in g.iter().zip(t.iter().zip(f)).enumerate() {
            if f != Wide::ZERO {
                out[i * classes + t as usize] = T::narrow(f * g.widen());
            }
        }
    });
    out
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([4, 5], 2)];
    vec![
        OpSample::new("nll_loss", x(), |x| {
            x[0].nll_loss(&Tensor::from([0i64, 4, 2, 2]).to_device(x[0].device()))
        }),
        OpSample::new("nll_loss, weights, ignored", x(), |x| {
            let options = NLLLossOptions {
                weight: Some(positive([5], 1).to_dtype(x[0].dtype()).to_device(x[0].device())),
                ignore_index: 3,
                ..Default::default()
            };
            x[0].nll_loss_with(
                &Tensor::from([3i64, 4, 0, 3]).to_device(x[0].device()),
                options.clone(),
            )
        }),
        OpSample::new("nll_loss [N, C, d], none", [values([2, 3, 2], 2)], |x| {
            let options = NLLLossOptions { reduction: Reduction::None, ..Default::default() };
            x[0].nll_loss_with(
                &Tensor::from([[0i64, 1], [2, 2]]).to_device(x[0].device()),
                options.clone(),
            )
        }),
    ]
}
