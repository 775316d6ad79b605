//! Pooling of integers, which has no gradient: the windows, gathered.
//!
//! Means are sums, divided and rounded towards zero, as in `torch.nn.functional.avg_pool2d`.

use super::max::PoolOptions;
use crate::error::{Error, throw};
use crate::ops::{pointwise::Rounding, windows::taps::Windows};
use crate::tensor::{Dtype, Tensor};

/// The windows along each of the last dimensions.
fn windows<const D: usize>(x: &Tensor, out: [usize; D], o: &PoolOptions<D>) -> [Windows; D] {
    std::array::from_fn(|d| {
        let rule = [o.strides()[d], o.padding[d], o.dilation[d]];
        Windows::sliding(x.shape()[x.dim() - D + d], out[d], o.kernel_size[d], rule)
    })
}

/// `[.., out.., taps]` of `x` `[.., sizes..]`, with `fill` outside.
fn gathered<const D: usize>(x: &Tensor, windows: &[Windows; D], fill: i64) -> Tensor {
    let first = x.dim() - D;
    let mut y = x.clone();
    for (d, windows) in windows.iter().enumerate() {
        y = windows.gather(&y, first + 2 * d, fill);
    }
    let leading = 0..first as i64;
    let outputs = (0..D).map(|d| (first + 2 * d) as i64);
    let taps = (0..D).map(|d| (first + 2 * d + 1) as i64);
    let order: Vec<i64> = leading.chain(outputs).chain(taps).collect();
    y.permute(&order).flatten((first + D) as i64, -1)
}

/// The maxima of the windows, and where each is in the plane, as i64: the first of equal ones.
pub(super) fn maxima<const D: usize>(
    x: &Tensor,
    out: [usize; D],
    options: &PoolOptions<D>,
) -> (Tensor, Tensor) {
    let windows = windows(x, out, options);
    let sizes = &x.shape()[x.dim() - D..];
    let volume: usize = sizes.iter().product();
    let places = Tensor::range(volume).to_device(x.device()).reshape_to(sizes);
    let places = gathered(&places, &windows, -1);
    let values = gathered(x, &windows, 0);
    let inside = places.ge(0i64);
    let values = values.masked_fill(&inside.logical_not(), x.dtype().iinfo().min);
    let best = values.amax(&[-1], true);
    // What lies outside may be as small as all that lies inside.
    let first = values.eq(&best).logical_and(&inside).to_dtype(Dtype::U8).argmax_dim(-1, true);
    let places = places.expand(values.shape()).gather(-1, &first);
    (best.squeeze_dim(-1), places.squeeze_dim(-1))
}

/// The means of the windows: of i64 alone, as in PyTorch.
#[track_caller]
pub(super) fn means<const D: usize>(
    op: &'static str,
    x: &Tensor,
    out: [usize; D],
    options: &PoolOptions<D>,
) -> Tensor {
    if x.dtype() != Dtype::I64 {
        let message = format!("takes floating-point tensors and i64, got {}", x.dtype());
        throw(Error::dtype(op, message));
    }
    let windows = windows(x, out, options);
    let sums = gathered(x, &windows, 0).sum_dim(&[-1], false);
    if let Some(divisor) = options.divisor_override {
        return sums.div_rounded(divisor, Rounding::Trunc);
    }
    let mut divisors = Tensor::scalar(1i64);
    for (d, windows) in windows.iter().enumerate() {
        let counts: Vec<i64> = options
            .counts(d, x.shape()[x.dim() - D + d], windows)
            .into_iter()
            .map(|count| count as i64)
            .collect();
        divisors = divisors.unsqueeze(-1) * Tensor::from_slice(&counts, [counts.len()]);
    }
    sums.div_rounded(&divisors.to_device(x.device()), Rounding::Trunc)
}
