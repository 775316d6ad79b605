//! Maxima over windows that start at random places, a given number of them (Graham 2014). With n windows of k elements
//! over a dimension of size s, and a number u from 0 to 1,
//!
//! ```text
//! a = (s - k) / (n - 1)      start_i = trunc((i + u) a) - trunc(u a)      start_(n-1) = s - k
//! ```

use crate::autograd::no_grad;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::{Dtype, Tensor};

/// How many windows [`Tensor::fractional_max_pool2d`] has along each dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FractionalSize<const D: usize> {
    /// So many.
    Size([usize; D]),
    /// This part of the input's size, rounded down; between 0 and 1.
    Ratio([f64; D]),
}

impl<const D: usize> FractionalSize<D> {
    /// The numbers of windows for an input of these sizes.
    #[track_caller]
    pub(crate) fn of(self, op: &'static str, sizes: &[usize]) -> [usize; D] {
        match self {
            FractionalSize::Size(size) => size,
            FractionalSize::Ratio(ratio) => {
                if !ratio.iter().all(|r| *r > 0.0 && *r < 1.0) {
                    let message = format!("{ratio:?}; must be between 0 and 1");
                    throw(Error::argument(op, "output_ratio", message));
                }
                std::array::from_fn(|d| (sizes[d] as f64 * ratio[d]) as usize)
            }
        }
    }
}

impl Tensor {
    /// The maxima of windows that start at random places of `[N, C, H, W]` or `[C, H, W]`, and their positions in the
    /// plane (`torch.nn.functional.fractional_max_pool2d`). `samples`, `[N, C, 2]`, are the numbers from 0 to 1 that
    /// place the windows, for the width first; without them they are drawn.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::FractionalSize};
    /// let x = Tensor::range(16).float().view([1, 1, 4, 4]);
    /// let samples = Tensor::from([[[0f32, 0.]]]);
    /// let (y, places) = x.fractional_max_pool2d([2, 2], FractionalSize::Size([2, 2]), Some(&samples));
    /// assert_eq!(y.to_vec::<f32>(), [5.0, 7.0, 13.0, 15.0]);
    /// assert_eq!(places.to_vec::<i64>(), [5, 7, 13, 15]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for other shapes, [`Error::Argument`] where windows do not fit, or a ratio is not between 0
    /// and 1, and [`Error::Dtype`] for integers, and for samples of another type.
    #[track_caller]
    pub fn fractional_max_pool2d(
        &self,
        kernel_size: [usize; 2],
        output: FractionalSize<2>,
        samples: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        // The width's number is the first one there.
        pool("fractional_max_pool2d", self, kernel_size, output, samples, [1, 0])
    }

    /// [`Tensor::fractional_max_pool2d`] of `[N, C, D, H, W]` or `[C, D, H, W]`, with `samples` `[N, C, 3]`, for the depth
    /// first (`torch.nn.functional.fractional_max_pool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, ops::FractionalSize};
    /// let x = Tensor::ones([2, 4, 5, 6], Dtype::F32);
    /// let (y, _) = x.fractional_max_pool3d([1, 2, 2], FractionalSize::Ratio([0.5; 3]), None);
    /// assert_eq!(y.shape(), &[2, 2, 2, 3]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::fractional_max_pool2d`].
    #[track_caller]
    pub fn fractional_max_pool3d(
        &self,
        kernel_size: [usize; 3],
        output: FractionalSize<3>,
        samples: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        pool("fractional_max_pool3d", self, kernel_size, output, samples, [0, 1, 2])
    }
}

/// Maxima and places; `order` says which of the samples is a dimension's.
#[track_caller]
fn pool<const D: usize>(
    op: &'static str,
    x: &Tensor,
    kernel_size: [usize; D],
    output: FractionalSize<D>,
    samples: Option<&Tensor>,
    order: [usize; D],
) -> (Tensor, Tensor) {
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(op, x.dtype());
    }
    let Some(planes) = x.dim().checked_sub(D).filter(|n| (1..=2).contains(n)) else {
        let (shape, n) = (x.shape(), D + 1);
        throw(Error::shape(
            op,
            format!("input of shape {shape:?}; must have {n} dimensions or one more"),
        ))
    };
    let (outer, sizes) = x.shape().split_at(planes);
    let counts = output.of(op, sizes);
    for d in 0..D {
        let (size, window, count) = (sizes[d], kernel_size[d], counts[d]);
        if window == 0 || count == 0 || window + count - 1 > size {
            let message = format!(
                "{count} windows of {window} do not fit a dimension of size {size}: at most {} do",
                (size + 1).saturating_sub(window)
            );
            throw(Error::argument(op, "output_size", message));
        }
    }
    let expected = if planes == 1 { [1, outer[0], D] } else { [outer[0], outer[1], D] };
    let samples = match samples {
        None => Tensor::rand(expected, (x.dtype(), x.device())),
        Some(samples) if samples.shape() != expected => {
            let message = format!("of shape {:?}; must be {expected:?}", samples.shape());
            throw(Error::argument(op, "samples", message))
        }
        Some(samples) if samples.dtype() != x.dtype() => {
            let (s, x) = (samples.dtype(), x.dtype());
            throw(Error::dtype(
                op,
                format!("samples are {s} and the input {x}; must have one type"),
            ))
        }
        Some(samples) => samples.clone(),
    };
    let count: usize = outer.iter().product();
    let positions = no_grad(|| {
        let samples = samples.detach().reshape([count as i64, D as i64]);
        positions(&samples, sizes, kernel_size, counts, order)
    });
    // One row of elements for each window.
    let windows: usize = counts.iter().product();
    let elements: usize = kernel_size.iter().product();
    let plane: usize = sizes.iter().product();
    let taken = x
        .reshape_to(&[count, plane])
        .gather(1, &positions.reshape_to(&[count, windows * elements]));
    let (maxima, which) = taken.reshape_to(&[count, windows, elements]).max_dim(-1, true);
    let rows = positions.reshape_to(&[count, windows, elements]);
    let places = rows.gather(-1, &which);
    let result = [outer, &counts[..]].concat();
    (maxima.reshape_to(&result), places.reshape_to(&result))
}

/// The positions in the plane of all elements of all windows, `[planes, counts.., kernel..]`.
fn positions<const D: usize>(
    samples: &Tensor,
    sizes: &[usize],
    kernel_size: [usize; D],
    counts: [usize; D],
    order: [usize; D],
) -> Tensor {
    let planes = samples.size(0);
    // As PyTorch, half types in f32.
    let samples =
        if samples.dtype() == Dtype::F64 { samples.clone() } else { samples.to_dtype(Dtype::F32) };
    let number = (samples.dtype(), samples.device());
    let mut all = Tensor::zeros([1], (Dtype::I64, samples.device()));
    for d in 0..D {
        let (n, room) = (counts[d], sizes[d] - kernel_size[d]);
        let last = Tensor::full([planes, 1], room as i64, (Dtype::I64, samples.device()));
        let starts = match n {
            1 => last,
            _ => {
                // In the samples' precision, which decides where numbers end that are near whole ones.
                let step = Tensor::full([], room as f64, number)
                    / Tensor::full([], (n - 1) as f64, number);
                let own = samples.narrow(1, order[d] as i64, 1);
                let i = Tensor::arange(0i64, n as i64 - 1, 1i64, number).unsqueeze(0);
                let starts = ((i + &own) * &step).trunc().long() - (&own * &step).trunc().long();
                Tensor::cat(&[starts, last], 1)
            }
        };
        let inside =
            Tensor::arange(0i64, kernel_size[d] as i64, 1i64, (Dtype::I64, samples.device()));
        // [planes, 1.., n, 1.., 1.., k, 1..]
        let mut shape = vec![1i64; 1 + 2 * D];
        (shape[0], shape[1 + d], shape[1 + D + d]) =
            (planes as i64, n as i64, kernel_size[d] as i64);
        let here = (starts.unsqueeze(-1) + inside).view(&shape);
        all = all * sizes[d] as i64 + here;
    }
    let shape = [&[planes][..], &counts, &kernel_size].concat();
    all.expand(&shape).contiguous()
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use crate::ops::checks::samples::{Order, values};
    /// Numbers from 0 to 1 that every type has, so that windows start at the same places.
    fn numbers(shape: [usize; 3], like: &Tensor) -> Tensor {
        let n = shape.iter().product::<usize>();
        let eighths: Vec<f64> = (0..n).map(|i| (i * 3 % 8) as f64 / 8.0).collect();
        Tensor::from_slice(&eighths, shape).to_dtype(like.dtype()).to_device(like.device())
    }
    vec![
        OpSample::new("fractional_max_pool2d", [values([2, 2, 6, 5], 1)], |x| {
            let size = FractionalSize::Size([3, 2]);
            x[0].fractional_max_pool2d([2, 3], size, Some(&numbers([2, 2, 2], &x[0]))).0
        }),
        OpSample::new("fractional_max_pool2d, places", [values([2, 6, 5], 2)], |x| {
            let size = FractionalSize::Ratio([0.5, 0.5]);
            x[0].fractional_max_pool2d([2, 2], size, Some(&numbers([1, 2, 2], &x[0]))).1
        })
        .order(Order::None),
        OpSample::new("fractional_max_pool3d", [values([2, 4, 5, 3], 3)], |x| {
            let size = FractionalSize::Size([2, 3, 1]);
            x[0].fractional_max_pool3d([2, 2, 2], size, Some(&numbers([1, 2, 3], &x[0]))).0
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn windows_cover_what_is_left_and_carry_gradients() {
        let x = Tensor::range(35).double().view([1, 5, 7]).requires_grad_(true);
        let (y, places) = x.fractional_max_pool2d([2, 3], FractionalSize::Size([3, 2]), None);
        assert!(x.detach().view([-1]).take(&places).equal(&y.detach()));
        y.sum().backward();
        assert_eq!(x.grad().unwrap().sum().item(), 6.0);
        // The last window ends with the plane.
        assert_eq!(y.max().item(), 34.0);
        let (y, _) = x.detach().fractional_max_pool2d([5, 7], FractionalSize::Size([1, 1]), None);
        assert_eq!(y.to_vec::<f64>(), [34.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let x = Tensor::zeros([2, 1, 4, 4], Dtype::F32);
        let refused = |kernel, size, samples: Option<&Tensor>, what: &str| {
            let error = catch(|| x.fractional_max_pool2d(kernel, size, samples)).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        };
        refused([2, 2], FractionalSize::Size([4, 2]), None, "at most 3");
        refused([2, 2], FractionalSize::Ratio([0.5, 1.0]), None, "output_ratio");
        refused([0, 2], FractionalSize::Size([2, 2]), None, "0 do not fit");
        let few = Tensor::zeros([1, 1, 2], Dtype::F32);
        refused([2, 2], FractionalSize::Size([2, 2]), Some(&few), "samples");
        let wide = Tensor::zeros([2, 1, 2], Dtype::F64);
        refused([2, 2], FractionalSize::Size([2, 2]), Some(&wide), "one type");
        assert!(
            catch(|| x.fractional_max_pool3d([1; 3], FractionalSize::Size([1; 3]), None)).is_ok()
        );
        assert!(
            catch(|| x.long().fractional_max_pool2d([1; 2], FractionalSize::Size([1; 2]), None))
                .is_err()
        );
    }
}
