//! Scaled dot-product attention, in blocks on the CPU, by own kernels or cuDNN on a GPU.
//!
//! ```text
//! S = scale Q K^T + mask     P = softmax(S), row by row     Y = P V
//! dV = P^T dY    dP = dY V^T    dS = P (dP - rowsum(dY Y))    dQ = scale dS K    dK = scale dS^T Q
//! ```
//!
//! Q is `[.., L, E]`, K `[.., S, E]`, V `[.., S, D]`; Y is `[.., L, D]`; the leading dimensions
//! broadcast. Forward keeps Y and the logarithm of each row's sum of exponentials; `cpu::attention`
//! does the rest in blocks without ever holding S. A query whose keys are all masked gives 0.
//! Second derivatives, and the gradient of a mask, are composed of recorded ops.

mod composed;
mod cpu;
pub(super) mod cuda;
mod cudnn;
pub(super) mod flash;
mod joint;
mod plan;
pub(in crate::ops) mod rotary;
mod varlen;

use composed::added;
use cpu::Sequence;
use flash::Dropout;
use smallvec::SmallVec;

use crate::amp::cast_op;
use crate::autograd::{Grads, no_grad, record};
use crate::error::{Error, throw, within};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{
    gpu,
    recompute::{keep, recalled},
};
use crate::profiler::flops;
use crate::tensor::Tensor;
use plan::{BACKWARD, NO_WINDOW, OP, Plan, Rules};
pub use varlen::VarlenOptions;

/// Options of [`Tensor::scaled_dot_product_attention_with`].
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// use torchrs::ops::AttentionOptions;
/// let (q, v) = (Tensor::zeros([2, 1], Dtype::F64), Tensor::from([[1f64], [3.]]));
/// let options = AttentionOptions { is_causal: true, ..Default::default() };
/// assert_eq!(q.scaled_dot_product_attention_with(&q, &v, &options).to_vec::<f64>(), [1.0, 2.0]);
/// ```
#[derive(Clone, Debug)]
pub struct AttentionOptions {
    /// Which keys take part (bool), or what is added to the scores.
    pub attn_mask: Option<Tensor>,
    /// The probability with which an attention weight is dropped, whether in training or not.
    pub dropout_p: f64,
    /// Whether query i sees keys 0 to i only.
    pub is_causal: bool,
    /// Factor of the scores; `None` is 1 / sqrt(E).
    pub scale: Option<f64>,
    /// Whether queries may have more heads (the third last dimension) than keys and values, of which
    /// each then serves several neighbouring query heads.
    pub enable_gqa: bool,
    /// A sliding window (left, right), as flash-attention has it: query i of L sees the keys from i + S - L - left to
    /// i + S - L + right of S; -1 is no limit. What lies outside costs nothing.
    pub window_size: (i64, i64),
}

impl Default for AttentionOptions {
    fn default() -> Self {
        AttentionOptions {
            attn_mask: None,
            dropout_p: 0.0,
            is_causal: false,
            scale: None,
            enable_gqa: false,
            window_size: NO_WINDOW,
        }
    }
}

impl Tensor {
    /// [`Tensor::scaled_dot_product_attention`] with all of PyTorch's options.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// use torchrs::ops::AttentionOptions;
    /// let (q, v) = (Tensor::zeros([2, 1], Dtype::F64), Tensor::from([[1f64], [3.]]));
    /// let attn_mask = Some(Tensor::from([[false, true], [true, true]]));
    /// let options = AttentionOptions { attn_mask, ..Default::default() };
    /// assert_eq!(q.scaled_dot_product_attention_with(&q, &v, &options).to_vec::<f64>(), [3.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// As that, and throws [`Error::Argument`] for a `dropout_p` that is not from 0 to 1, for a
    /// `window_size` below -1, and for one beside `is_causal` where there are not as many queries as keys;
    /// [`Error::Shape`] where the queries' heads are no multiple of the keys' under `enable_gqa`.
    #[track_caller]
    pub fn scaled_dot_product_attention_with(
        &self,
        key: &Tensor,
        value: &Tensor,
        options: &AttentionOptions,
    ) -> Tensor {
        cast_op!(
            "scaled_dot_product_attention",
            [q = self, k = key, v = value, attn_mask = options.attn_mask.as_ref()] => {
                let options = AttentionOptions { attn_mask, ..options.clone() };
                q.scaled_dot_product_attention_with(&k, &v, &options)
            }
        );
        let p = options.dropout_p;
        if !(0.0..=1.0).contains(&p) {
            throw(Error::argument(OP, "dropout_p", format!("{p}; must be from 0 to 1")));
        }
        let mask = options.attn_mask.as_ref();
        let &AttentionOptions { is_causal, window_size: window, scale, .. } = options;
        let attend = |q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>| {
            let plan = Plan::new(q, k, v, mask, Rules { is_causal, window, scale });
            match p {
                0.0 => plan.attend([q, k, v], mask),
                _ => plan.dropped([q, k, v], mask, p),
            }
        };
        if !options.enable_gqa {
            return attend(self, key, value, mask);
        }
        let heads = |t: &Tensor| t.dim().checked_sub(3).map_or(0, |d| t.shape()[d]);
        let group = |t: &Tensor| match (heads(self), heads(t)) {
            (q, k) if q == k => 1,
            (q, k) if q > 0 && k > 0 && q % k == 0 => q / k,
            (q, k) => throw(Error::shape(
                OP,
                format!("{q} query heads cannot share {k} key or value heads"),
            )),
        };
        match [key, value].map(group) {
            [1, 1] => attend(self, key, value, mask),
            [k, v] if k == v => {
                // Heads that share keys are a dimension of their own, along which those broadcast.
                let apart = |t: &Tensor| t.unflatten(-3, &[(heads(t) / k) as i64, k as i64]);
                let mask = mask.map(|m| match heads(m) {
                    0 => m.clone(),
                    1 => m.unsqueeze(-3),
                    _ => apart(m),
                });
                let [key, value] = [key, value].map(|t| t.unsqueeze(-3));
                attend(&apart(self), &key, &value, mask.as_ref()).flatten(-4, -3)
            }
            [k, v] => {
                let repeated = |t: &Tensor, n| t.repeat_interleave(n, -3);
                attend(self, &repeated(key, k), &repeated(value, v), mask)
            }
        }
    }

    /// Attention of these queries to `key` and `value`
    /// (`torch.nn.functional.scaled_dot_product_attention`).
    ///
    /// `attn_mask` broadcasts to `[.., L, S]`: a bool mask says which keys take part, a
    /// floating-point one is added to the scores. `is_causal` lets query i see keys 0 to i. `scale`
    /// is 1 / sqrt(E) unless given.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when shapes do not fit, [`Error::Argument`] for a mask beside
    /// `is_causal`, and [`Error::Dtype`] when dtypes differ or are not floating-point.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (q, v) = (Tensor::from([[0f64, 0.], [0., 0.]]), Tensor::from([[1f64], [3.]]));
    /// assert_eq!(q.scaled_dot_product_attention(&q, &v, None, true, None).to_vec::<f64>(), [1., 2.]);
    /// ```
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        attn_mask: Option<&Tensor>,
        is_causal: bool,
        scale: Option<f64>,
    ) -> Tensor {
        cast_op!(
            "scaled_dot_product_attention",
            [q = self, k = key, v = value, mask = attn_mask] =>
            q.scaled_dot_product_attention(&k, &v, mask.as_ref(), is_causal, scale)
        );
        let rules = Rules { is_causal, window: NO_WINDOW, scale };
        Plan::new(self, key, value, attn_mask, rules).attend([self, key, value], attn_mask)
    }
}

impl Plan {
    /// Y with its gradients, of weights none of which is dropped.
    #[track_caller]
    fn attend(self, qkv: [&Tensor; 3], mask: Option<&Tensor>) -> Tensor {
        let mask = mask.map(|m| added(m, qkv[0].dtype()));
        let _line = within::line();
        let (y, logsum) = no_grad(|| self.forward(qkv, mask.as_ref()));
        self.recorded(qkv, mask.as_ref(), y, logsum, None)
    }

    /// Y with its gradients, of weights that were dropped or not.
    fn recorded(
        self,
        qkv: [&Tensor; 3],
        mask: Option<&Tensor>,
        y: Tensor,
        logsum: Tensor,
        dropout: Option<Dropout>,
    ) -> Tensor {
        let inputs: SmallVec<[&Tensor; 4]> = qkv.into_iter().chain(mask).collect();
        record(OP, &inputs, y, |saver| {
            let inputs: SmallVec<[_; 4]> = inputs.iter().map(|t| saver.save(t)).collect();
            let (y, logsum) = (saver.save_output(0), saver.save(&logsum));
            move |ctx| {
                let dy = ctx.grad(0);
                let of: SmallVec<[Tensor; 4]> = inputs.iter().map(|t| ctx.get(t)).collect();
                let (qkv, mask) = ([&of[0], &of[1], &of[2]], of.get(3));
                let mask_wanted = mask.is_some() && ctx.needs(3);
                let logsum = ctx.get(&logsum);
                let mut grads = if ctx.create_graph() || mask_wanted {
                    self.composed(qkv, mask, &logsum, &dy, dropout)
                } else {
                    self.backward(qkv, mask, &ctx.get(&y), &logsum, &dy, dropout)
                };
                grads.truncate(of.len());
                grads
            }
        })
    }

    /// Y and the logarithms of the sums.
    fn forward(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> (Tensor, Tensor) {
        if let Some([y, logsum]) = recalled(OP) {
            return (y, logsum);
        }
        flops(OP, || self.flops(1, 1));
        let (y, logsum) = match gpu::of(OP, &[q, k, v, mask.unwrap_or(q)]) {
            Some(gpu) => cuda::forward(gpu, self, [q, k, v], mask),
            None => cpu::forward(self, [q, k, v], mask, &Sequence::whole(self)),
        };
        let [y, logsum] = keep(OP, [y, logsum]);
        (y, logsum)
    }

    fn backward(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        y: &Tensor,
        logsum: &Tensor,
        dy: &Tensor,
        dropout: Option<Dropout>,
    ) -> Grads {
        // The weights again; their gradient and dV; dQ and dK.
        flops(BACKWARD, || self.flops(3, 2));
        if let Some(gpu) = gpu::of(OP, &[q, k, v, dy]) {
            if let Some(dropout) = dropout {
                let of_y = (y, logsum);
                return no_grad(|| {
                    cuda::dropped_backward(gpu, self, [q, k, v], mask, of_y, dy, dropout)
                });
            }
            return no_grad(|| cuda::backward(gpu, self, [q, k, v], mask, (y, logsum), dy));
        }
        cpu::backward(self, [q, k, v], mask, &Sequence::whole(self), (y, logsum), dy)
    }
}

crate::ops::table::ops! {
    self { samples, kernels: [cuda::programs, flash::programs] }
    rotary { samples, kernels: [cuda::PROGRAM] }
    varlen { samples, kernels: [PROGRAM] }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let qkv = |batch: &[usize], l: usize, s: usize, e: usize, d: usize| {
        let shape = |rows, columns| [batch, &[rows, columns]].concat();
        vec![values(shape(l, e), 1), values(shape(s, e), 2), values(shape(s, d), 3)]
    };
    let with_mask = |mut inputs: Vec<Tensor>, mask: Tensor| {
        inputs.push(mask);
        inputs
    };
    let seen: Vec<bool> = (0..12).map(|i| i % 5 != 0 && i / 4 != 1).collect();
    let seen = Tensor::from_slice(&seen, [3, 4]);
    let sample = |name: &str, inputs: Vec<Tensor>, causal: bool, scale: Option<f64>| {
        OpSample::new(format!("scaled_dot_product_attention({name})"), inputs, move |x| {
            x[0].scaled_dot_product_attention(&x[1], &x[2], x.get(3), causal, scale)
        })
        .slack(4.0)
    };
    vec![
        sample("plain", qkv(&[2, 2], 3, 4, 5, 2), false, None),
        sample("causal", qkv(&[2], 5, 4, 3, 3), true, None),
        sample("causal, more keys", qkv(&[], 3, 5, 2, 4), true, Some(0.7)).slack(8.0),
        sample("float mask", with_mask(qkv(&[2], 3, 4, 2, 2), values([3, 4], 4)), false, None),
        sample("bool mask", with_mask(qkv(&[2], 3, 4, 2, 2), seen), false, None),
    ]
}

#[cfg(test)]
mod tests;
