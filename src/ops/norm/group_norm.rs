//! Normalisations over groups of channels, over each channel of each image, and over neighbouring
//! channels: compositions of layer and batch normalisation.

use crate::amp::cast_op;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, positive, values};
use crate::ops::pointwise::Rounding;
use crate::ops::windows::taps::{Windows, in_compute_type};
use crate::tensor::{Dtype, Tensor};

impl Tensor {
    /// Each of `num_groups` parts of each item's channels (dimension 1) shifted and scaled to mean 0
    /// and variance 1, then times `weight` plus `bias`, both `[C]` (`torch.nn.functional.group_norm`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the input is not `[N, C, ..]`, C a multiple of `num_groups`, or is
    /// empty but for N, and when weight or bias have another shape.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[1f64, 3., 10., 30.]]).group_norm(2, None, None, 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1., 1., -1., 1.]);
    /// ```
    #[track_caller]
    pub fn group_norm(
        &self,
        num_groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        cast_op!("group_norm", [x = self, w = weight, b = bias] => {
            x.group_norm(num_groups, w.as_ref(), b.as_ref(), eps)
        });
        let shape = self.shape();
        let fits = |c: usize| {
            num_groups > 0
                && c > 0
                && c.is_multiple_of(num_groups)
                && !shape[2..].contains(&0)
                && [weight, bias].iter().flatten().all(|p| p.shape() == [c])
        };
        if shape.len() < 2 || !fits(shape[1]) {
            throw(Error::shape(
                "group_norm",
                format!(
                    "input {shape:?}, weight {:?}, bias {:?} do not fit: the input must be [N, C, ..], C \
                     a multiple of num_groups {num_groups}, only N may be 0, the others be [C]",
                    weight.map(Tensor::shape),
                    bias.map(Tensor::shape)
                ),
            ));
        }
        let row = shape[1..].iter().product::<usize>() / num_groups;
        in_compute_type(self, |x| {
            let rows = x.reshape_to(&[shape[0], num_groups, row]);
            let mut y = rows.layer_norm(&[row], None, None, eps).reshape_to(shape);
            let mut per_channel = vec![1; shape.len() - 1];
            per_channel[0] = shape[1];
            if let Some(w) = weight {
                y = y * w.to_dtype(x.dtype()).reshape_to(&per_channel);
            }
            match bias {
                Some(b) => y + b.to_dtype(x.dtype()).reshape_to(&per_channel),
                None => y,
            }
        })
    }

    /// `nn::functional::instance_norm`, whose options these are.
    #[allow(clippy::too_many_arguments, reason = "PyTorch's signature")]
    #[track_caller]
    pub(crate) fn instance_norm(
        &self,
        running_mean: Option<&Tensor>,
        running_var: Option<&Tensor>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        use_input_stats: bool,
        momentum: f64,
        eps: f64,
    ) -> Tensor {
        if !use_input_stats {
            return self.batch_norm(running_mean, running_var, weight, bias, false, momentum, eps);
        }
        let shape = self.shape();
        let parameters = [running_mean, running_var, weight, bias];
        if shape.len() < 3 || parameters.iter().flatten().any(|p| p.shape() != [shape[1]]) {
            throw(Error::shape(
                "instance_norm",
                format!(
                    "input {shape:?} must be [N, C, ..], statistics, weight and bias be [C]: {:?}",
                    parameters.map(|p| p.map(Tensor::shape))
                ),
            ));
        }
        let [n, c] = [shape[0], shape[1]];
        let repeated = |p: Option<&Tensor>| p.map(|p| p.repeat(&[n]));
        let running = no_grad(|| [running_mean, running_var].map(repeated));
        let [w, b] = [weight, bias].map(repeated);
        let mut channels = vec![1, n * c];
        channels.extend(&shape[2..]);
        let [mean, var] = running.each_ref().map(Option::as_ref);
        let x = self.reshape_to(&channels);
        let y = x.batch_norm(mean, var, w.as_ref(), b.as_ref(), true, momentum, eps);
        // Without a sample the running statistics stay.
        no_grad(|| {
            if n == 0 {
                return;
            }
            for (to, from) in [running_mean, running_var].into_iter().zip(&running) {
                if let (Some(to), Some(from)) = (to, from) {
                    to.copy_(&from.reshape_to(&[n, c]).mean_dim(&[0], false));
                }
            }
        });
        y.reshape_to(shape)
    }

    /// `nn::functional::local_response_norm`, whose options these are.
    #[track_caller]
    pub(crate) fn local_response_norm(&self, size: usize, alpha: f64, beta: f64, k: f64) -> Tensor {
        cast_op!("local_response_norm", [x = self] => x.local_response_norm(size, alpha, beta, k));
        if self.dim() < 3 {
            throw(Error::shape(
                "local_response_norm",
                format!("input {:?} must have at least 3 dimensions", self.shape()),
            ));
        }
        if size == 0 {
            throw(Error::argument("local_response_norm", "size", "0; must be at least 1"));
        }
        let channels = self.shape()[1];
        let near =
            Windows::new(channels, channels, size, |i, t| (i + t) as isize - (size / 2) as isize);
        if self.dtype() == Dtype::I64 {
            // The mean of integers is one.
            let sum = near.gather(&self.square(), 1, 0).sum_dim(&[2], false);
            let mean = sum.div_rounded(size as i64, Rounding::Trunc);
            return self / (mean * alpha + k).pow(beta);
        }
        in_compute_type(self, |x| {
            let mean = near.mean(&x.square(), 1, &vec![size; channels]);
            x / (mean * alpha + k).pow(beta)
        })
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    vec![
        OpSample::new(
            "group_norm(2)",
            [values([2, 4, 3], 1), positive([4], 2), values([4], 3)],
            |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5),
        )
        .slack(4.0),
        OpSample::new(
            "instance_norm",
            [values([2, 3, 4, 2], 1), positive([3], 2), values([3], 3)],
            |x| x[0].instance_norm(None, None, Some(&x[1]), Some(&x[2]), true, 0.1, 1e-5),
        )
        .slack(4.0),
        OpSample::new("local_response_norm(3)", [values([2, 4, 3], 1)], |x| {
            x[0].local_response_norm(3, 0.1, 0.75, 1.0)
        }),
    ]
}
