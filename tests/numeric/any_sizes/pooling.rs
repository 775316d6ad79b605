//! Maxima and averages of windows.

use proptest::prelude::*;
use torchrs::autograd::{GraphMode, grad};
use torchrs::ops::PoolOptions;
use torchrs::{Dtype, Tensor};

use super::laid::{close, dtypes, random, rounding, tolerance};

/// Three dimensions; those that are missing have one position.
#[derive(Clone, Debug)]
struct Case {
    dims: usize,
    planes: [usize; 2],
    size: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Option<i64>,
    dtype: Dtype,
    seed: u64,
}

prop_compose! {
    fn cases()(
        dims in prop_oneof![1 => Just(1usize), 3 => Just(2), 1 => Just(3)],
        planes in [1..=3usize, 1..=20],
        size in [1..=8usize, 1..=24, 1..=70],
        kernel in [1..=3usize, 1..=4, 1..=4],
        stride in [1..=3usize, 1..=3, 1..=3],
        room in [0..=2usize, 0..=2, 0..=2],
        dilation in prop_oneof![3 => Just([1, 1, 1]), 1 => [1..=2usize, 1..=2, 1..=2]],
        (ceil_mode, count_include_pad, seed) in any::<(bool, bool, u64)>(),
        divisor in prop_oneof![4 => Just(None), 1 => (1..=9i64).prop_map(Some)],
        dtype in dtypes(),
    ) -> Case {
        let mut case = Case {
            dims, planes, size, kernel, stride, padding: [0; 3], dilation, ceil_mode, count_include_pad, divisor,
            dtype, seed,
        };
        for d in 0..3 {
            if d + dims < 3 {
                (case.size[d], case.kernel[d], case.stride[d], case.dilation[d]) = (1, 1, 1, 1);
            }
            case.padding[d] = room[d].min(case.kernel[d] / 2);
        }
        case
    }
}

impl Case {
    fn options<const D: usize>(&self) -> PoolOptions<D> {
        let last = |all: [usize; 3]| std::array::from_fn(|d| all[3 - D + d]);
        PoolOptions {
            stride: Some(last(self.stride)),
            padding: last(self.padding),
            dilation: last(self.dilation),
            ceil_mode: self.ceil_mode,
            count_include_pad: self.count_include_pad,
            divisor_override: self.divisor,
            ..PoolOptions::new(last(self.kernel))
        }
    }

    /// How many windows there are, if one fits.
    fn windows(&self) -> Option<[usize; 3]> {
        let mut out = [0; 3];
        for d in 0..3 {
            let span = (self.kernel[d] - 1) * self.dilation[d] + 1;
            let room = (self.size[d] + 2 * self.padding[d]).checked_sub(span)?;
            out[d] = room / self.stride[d] + 1;
            let one_more = out[d] * self.stride[d] < self.size[d] + self.padding[d];
            if self.ceil_mode && room % self.stride[d] != 0 && one_more {
                out[d] += 1;
            }
        }
        Some(out)
    }

    /// The positions of a plane that a window covers.
    fn window(&self, at: [usize; 3]) -> Vec<usize> {
        let mut covered = Vec::new();
        for t in 0..self.kernel.iter().product() {
            let [_, h, v] = self.kernel;
            let tap = [t / (h * v), t / v % h, t % v];
            let p: [usize; 3] = std::array::from_fn(|d| {
                (at[d] * self.stride[d] + tap[d] * self.dilation[d]).wrapping_sub(self.padding[d])
            });
            if (0..3).all(|d| p[d] < self.size[d]) {
                covered.push((p[0] * self.size[1] + p[1]) * self.size[2] + p[2]);
            }
        }
        covered
    }

    /// What the sum of a window is divided by: its positions, within the padding if that counts.
    fn divisor(&self, at: [usize; 3]) -> f64 {
        if let Some(divisor) = self.divisor {
            return divisor as f64;
        }
        let count = |d: usize| {
            let pad = self.padding[d];
            let (low, high) = if self.count_include_pad {
                (0, self.size[d] + 2 * pad)
            } else {
                (pad, pad + self.size[d])
            };
            let start = at[d] * self.stride[d];
            (start + self.kernel[d]).min(high) - start.max(low)
        };
        (0..3).map(count).product::<usize>() as f64
    }

    fn shape(&self, sizes: [usize; 3]) -> Vec<usize> {
        [&self.planes[..], &sizes[3 - self.dims..]].concat()
    }

    /// The windows' places in row-major order.
    fn places(out: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
        (0..out.iter().product())
            .map(move |i| [i / (out[1] * out[2]), i / out[2] % out[1], i % out[2]])
    }
}

fn max_pool(case: &Case, x: &Tensor) -> Tensor {
    match case.dims {
        1 => x.max_pool1d(case.options()),
        2 => x.max_pool2d(case.options()),
        _ => x.max_pool3d(case.options()),
    }
}

fn avg_pool(case: &Case, x: &Tensor) -> Tensor {
    match case.dims {
        1 => x.avg_pool1d(case.options()),
        2 => x.avg_pool2d(case.options()),
        _ => x.avg_pool3d(case.options()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn maxima(case in cases()) {
        let Some(out) = case.windows() else { return Ok(()) };
        let windows: Vec<Vec<usize>> = Case::places(out).map(|at| case.window(at)).collect();
        if windows.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let (x, xv) = random(&case.shape(case.size), case.dtype, case.seed);
        let (dy, dv) = random(&case.shape(out), case.dtype, case.seed ^ 1);
        let (plane, planes) = (case.size.iter().product::<usize>(), case.planes[0] * case.planes[1]);
        let (mut want, mut dx, mut magnitude) = (Vec::new(), vec![0.0; xv.len()], vec![0.0; xv.len()]);
        for p in 0..planes {
            for window in &windows {
                // Of equal numbers the first.
                let mut best = p * plane + window[0];
                window.iter().map(|i| p * plane + i).for_each(|i| if xv[i] > xv[best] { best = i });
                let dy = dv[want.len()];
                want.push(xv[best]);
                dx[best] += dy;
                magnitude[best] += dy.abs();
            }
        }
        let y = max_pool(&case, &x);
        close("maximum", &y, &want, |_, _| 0.0)?;
        let grads = grad(&[&y], &[&x], &[Some(&dy.detach())], GraphMode::Free);
        let bound = |i: usize, v: f64| sum_of_few(case.dtype, v, magnitude[i]);
        close("gradient", grads[0].as_ref().unwrap(), &dx, bound)?;
    }

    #[test]
    fn averages(case in cases()) {
        let case = Case { dilation: [1; 3], ..case };
        let Some(out) = case.windows() else { return Ok(()) };
        let windows: Vec<(Vec<usize>, f64)> =
            Case::places(out).map(|at| (case.window(at), case.divisor(at))).collect();
        let (x, xv) = random(&case.shape(case.size), case.dtype, case.seed);
        let (dy, dv) = random(&case.shape(out), case.dtype, case.seed ^ 1);
        let (plane, planes) = (case.size.iter().product::<usize>(), case.planes[0] * case.planes[1]);
        let (mut want, mut magnitudes) = (Vec::new(), Vec::new());
        let (mut dx, mut magnitude) = (vec![0.0; xv.len()], vec![0.0; xv.len()]);
        for p in 0..planes {
            for (window, divisor) in &windows {
                let share = dv[want.len()] / divisor;
                let inside = || window.iter().map(|i| p * plane + i);
                want.push(inside().map(|i| xv[i]).sum::<f64>() / divisor);
                magnitudes.push(inside().map(|i| xv[i].abs()).sum::<f64>() / divisor);
                inside().for_each(|i| {
                    dx[i] += share;
                    magnitude[i] += share.abs();
                });
            }
        }
        let y = avg_pool(&case, &x);
        close("average", &y, &want, |i, v| tolerance(case.dtype, v, magnitudes[i], 64))?;
        let grads = grad(&[&y], &[&x], &[Some(&dy.detach())], GraphMode::Free);
        let bound = |i: usize, v: f64| sum_of_few(case.dtype, v, magnitude[i]);
        close("gradient", grads[0].as_ref().unwrap(), &dx, bound)?;
    }
}

/// A sum of few numbers, which half types may round at each step.
fn sum_of_few(dtype: Dtype, value: f64, magnitude: f64) -> f64 {
    let steps = if dtype.size() == 2 { 4.0 * rounding(dtype) } else { 0.0 };
    tolerance(dtype, value, magnitude, 64) + steps * magnitude
}
