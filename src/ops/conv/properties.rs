//! What holds for convolutions of any sizes: sums as defined, and gradients that are the transposes of them.

use proptest::prelude::*;

use super::*;
use crate::autograd::{GraphMode, grad, no_grad};
use crate::tensor::Dtype;

/// Sizes in three dimensions; those in two have a first one of 1.
#[derive(Clone, Debug)]
struct Case {
    flat: bool,
    batch: usize,
    groups: usize,
    /// Channels of a group.
    inputs: usize,
    outputs: usize,
    size: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    dtype: Dtype,
    seed: u64,
}

prop_compose! {
    fn cases()(
        (flat, seed) in any::<(bool, u64)>(),
        (batch, groups) in (1..=2usize, prop_oneof![3 => Just(1), 1 => 2..=4usize]),
        (inputs, outputs) in (1..=40usize, 1..=48usize),
        (depth, side) in (1..=6usize, [1..=18usize, 1..=18]),
        kernel in [1..=4usize, 1..=4, 1..=4],
        stride in [1..=3usize, 1..=3, 1..=3],
        padding in [0..=4usize, 0..=4, 0..=4],
        dilation in [1..=2usize, 1..=2, 1..=2],
        dtype in prop_oneof![3 => Just(Dtype::F32), 1 => Just(Dtype::F64), 2 => Just(Dtype::BF16)],
    ) -> Case {
        let size = [depth, side[0], side[1]];
        let mut case = Case {
            flat, batch, groups, inputs, outputs, size, kernel, stride, padding, dilation, dtype, seed
        };
        if flat {
            (case.size[0], case.kernel[0], case.padding[0]) = (1, 1, 0);
            (case.stride[0], case.dilation[0]) = (1, 1);
        }
        case
    }
}

impl Case {
    /// The output's size, if the filter fits.
    fn output(&self) -> Option<[usize; 3]> {
        let mut out = [0; 3];
        for d in 0..3 {
            let room = self.size[d] + 2 * self.padding[d];
            out[d] =
                room.checked_sub((self.kernel[d] - 1) * self.dilation[d] + 1)? / self.stride[d] + 1;
        }
        Some(out)
    }

    fn tensor(&self, first: [usize; 2], sizes: [usize; 3], seed: u64) -> Tensor {
        let shape: Vec<usize> =
            first.into_iter().chain(sizes[self.flat as usize..].to_vec()).collect();
        let n = shape.iter().product::<usize>() as u64;
        let mix =
            |i: u64| (i + 1 + seed + self.seed % 1000).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let v: Vec<f64> = (0..n).map(|i| mix(i) as f64 / (1 << 23) as f64 - 1.0).collect();
        Tensor::from_slice(&v, shape).to_dtype(self.dtype)
    }

    fn conv(&self, x: &Tensor, w: &Tensor) -> Tensor {
        let &Case { stride, padding, dilation, groups, .. } = self;
        if !self.flat {
            return x.conv3d(w, None, Conv3dOptions { stride, padding, dilation, groups });
        }
        let [stride, padding, dilation] = [stride, padding, dilation].map(|[_, h, w]| [h, w]);
        x.conv2d(w, None, Conv2dOptions { stride, padding, dilation, groups })
    }

    /// One number of the result by the definition.
    fn sum(&self, x: &[f64], w: &[f64], [n, o]: [usize; 2], at: [usize; 3]) -> f64 {
        let (group, channels) = (o / self.outputs, self.groups * self.inputs);
        let offset = |first: usize, sizes: [usize; 3], at: [usize; 3]| {
            (0..3).fold(first, |offset, d| offset * sizes[d] + at[d])
        };
        let mut sum = 0.0;
        for c in 0..self.inputs {
            for t in 0..self.kernel.iter().product() {
                let [_, h, v] = self.kernel;
                let tap = [t / (h * v), t / v % h, t % v];
                let from: [usize; 3] = std::array::from_fn(|d| {
                    (at[d] * self.stride[d] + tap[d] * self.dilation[d])
                        .wrapping_sub(self.padding[d])
                });
                if (0..3).all(|d| from[d] < self.size[d]) {
                    let x = x[offset(n * channels + group * self.inputs + c, self.size, from)];
                    sum += x * w[offset(o * self.inputs + c, self.kernel, tap)];
                }
            }
        }
        sum
    }
}

/// The sum of products, in f64.
fn dot(a: &Tensor, b: &Tensor) -> f64 {
    (a.detach().to_dtype(Dtype::F64) * b.detach().to_dtype(Dtype::F64)).sum().item()
}

fn sums_are_as_defined_and_gradients_their_transposes(case: &Case) -> Result<(), TestCaseError> {
    let Some(out) = case.output() else { return Ok(()) };
    let &Case { batch, groups, inputs, outputs, size, kernel, .. } = case;
    let [x, u] = [1, 2].map(|seed| case.tensor([batch, groups * inputs], size, seed));
    let [w, v] = [3, 4].map(|seed| case.tensor([groups * outputs, inputs], kernel, seed));
    let (x, w) = (x.requires_grad_(true), w.requires_grad_(true));
    let y = case.conv(&x, &w);
    let dy = case.tensor([batch, groups * outputs], out, 5);
    prop_assert_eq!(y.shape(), dy.shape());
    let taps = inputs * kernel.iter().product::<usize>();
    // What rounding changes.
    let half = if case.dtype == Dtype::BF16 { 2f64.powi(-8) } else { 0.0 };

    let [xs, ws, ys] = [&x, &w, &y].map(|t| t.detach().to_dtype(Dtype::F64).to_vec::<f64>());
    // Some of the results, the last among them.
    let step = ys.len() / 64 + 1;
    for i in (0..ys.len()).rev().step_by(step) {
        let [_, h, v] = out;
        let (channel, p) = (i / (out[0] * h * v), i % (out[0] * h * v));
        let channel = [channel / (groups * outputs), channel % (groups * outputs)];
        let want = case.sum(&xs, &ws, channel, [p / (h * v), p / v % h, p % v]);
        let bound = 1e-4 * (taps as f64).sqrt() + half * want.abs();
        prop_assert!((ys[i] - want).abs() <= bound, "{} {want}", ys[i]);
    }

    // <dx, u> is <dy, conv(u, w)>, and <dw, v> is <dy, conv(x, v)>.
    let grads = grad(&[&y], &[&x, &w], &[Some(&dy)], GraphMode::Free);
    let scale = ((y.numel() * taps) as f64).sqrt();
    let sides = no_grad(|| [(&u, case.conv(&u, &w)), (&v, case.conv(&x, &v))]);
    for (gradient, (other, result)) in grads.iter().zip(&sides) {
        let gradient = gradient.as_ref().expect("a gradient");
        let (left, right) = (dot(gradient, other), dot(&dy, result));
        prop_assert!((left - right).abs() <= (1e-4 + 4.0 * half) * scale, "{left} {right}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_sizes(case in cases()) {
        sums_are_as_defined_and_gradients_their_transposes(&case)?;
    }
}

/// All taps of a dilated filter reach the same points of the gradient, which are not neighbours.
#[test]
fn stride_and_dilation_of_two() -> Result<(), TestCaseError> {
    sums_are_as_defined_and_gradients_their_transposes(&Case {
        flat: true,
        batch: 2,
        groups: 1,
        inputs: 40,
        outputs: 40,
        size: [1, 40, 40],
        kernel: [1, 3, 3],
        stride: [1, 2, 2],
        padding: [0, 2, 2],
        dilation: [1, 2, 2],
        dtype: Dtype::F32,
        seed: 0,
    })
}
