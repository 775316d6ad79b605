//! Scaled dot-product attention.
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

pub(super) mod cuda;
mod cudnn;
pub(super) mod flash;

use flash::Dropout;
use smallvec::{SmallVec, smallvec};

use super::random;
#[cfg(test)]
use super::samples::{OpSample, values};
use super::{compute, gpu};
use crate::Tensor;
use crate::amp::cast_op;
use crate::autograd::{Grads, no_grad, record};
use crate::cpu::attention::{Attention, Rows};
use crate::cpu::float::Float;
use crate::cpu::parts::Parts;
use crate::cpu::threads::{get_num_threads, parallel_for};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Shape, broadcast_shapes, dispatch};

/// Options of [`Tensor::scaled_dot_product_attention_with`].
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// use torchrs::ops::AttentionOptions;
/// let (q, v) = (Tensor::zeros([2, 1], Dtype::F64), Tensor::from([[1f64], [3.]]));
/// let options = AttentionOptions { is_causal: true, ..Default::default() };
/// assert_eq!(q.scaled_dot_product_attention_with(&q, &v, &options).to_vec::<f64>(), [1.0, 2.0]);
/// ```
#[derive(Clone, Debug, Default)]
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
    /// As that, and throws [`Error::Argument`] for a `dropout_p` that is not from 0 to 1,
    /// [`Error::Shape`] where the queries' heads are no multiple of the keys' under `enable_gqa`.
    #[track_caller]
    pub fn scaled_dot_product_attention_with(
        &self,
        key: &Tensor,
        value: &Tensor,
        options: &AttentionOptions,
    ) -> Tensor {
        cast_op!("scaled_dot_product_attention", [q = self, k = key, v = value] => {
            q.scaled_dot_product_attention_with(&k, &v, options)
        });
        let p = options.dropout_p;
        if !(0.0..=1.0).contains(&p) {
            throw(Error::argument(OP, "dropout_p", format!("{p}; must be from 0 to 1")));
        }
        let (mask, causal, scale) = (options.attn_mask.as_ref(), options.is_causal, options.scale);
        let attend = |q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>| match p {
            0.0 => q.scaled_dot_product_attention(k, v, mask, causal, scale),
            _ => Plan::new(q, k, v, mask, causal, scale).dropped([q, k, v], mask, p),
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
        let plan = Plan::new(self, key, value, attn_mask, is_causal, scale);
        let mask = attn_mask.map(|m| added(m, self.dtype()));
        let qkv = [self, key, value];
        let (y, logsum) = no_grad(|| plan.forward(qkv, mask.as_ref()));
        plan.recorded(qkv, mask.as_ref(), y, logsum, None)
    }
}

/// 0 where `mask` holds, else minus infinity.
fn additive(mask: &Tensor, dtype: Dtype) -> Tensor {
    no_grad(|| {
        let zeros = Tensor::zeros(mask.shape(), (dtype, mask.device()));
        zeros.masked_fill(&mask.logical_not(), f64::NEG_INFINITY)
    })
}

/// A mask that is added: a bool one becomes such.
fn added(mask: &Tensor, dtype: Dtype) -> Tensor {
    if mask.dtype() == Dtype::Bool { additive(mask, dtype) } else { mask.clone() }
}

/// The op's name.
const OP: &str = "scaled_dot_product_attention";

/// What forward and backward agree on.
#[derive(Clone)]
struct Plan {
    batch: Shape,
    attention: Attention,
}

impl Plan {
    #[track_caller]
    fn new(
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        is_causal: bool,
        scale: Option<f64>,
    ) -> Self {
        let fail = |rule: &str| -> ! {
            let mask = mask.map_or(String::new(), |m| format!(", attn_mask {:?}", m.shape()));
            throw(Error::shape(
                OP,
                format!(
                    "query {:?}, key {:?}, value {:?}{mask} do not fit: {rule}",
                    q.shape(),
                    k.shape(),
                    v.shape()
                ),
            ))
        };
        if [q, k, v].iter().any(|t| t.dim() < 2) {
            fail("each must have at least 2 dimensions, [.., length, features]")
        }
        let last = |t: &Tensor| (t.shape()[t.dim() - 2], t.shape()[t.dim() - 1]);
        let ((queries, depth), (keys, key_depth), (values, width)) = (last(q), last(k), last(v));
        if depth != key_depth {
            fail("queries and keys must have the same last size")
        }
        if keys != values {
            fail("keys and values must have the same length")
        }
        let outer = |t: &Tensor| Shape::from_slice(&t.shape()[..t.dim() - 2]);
        let Some(batch) = broadcast_shapes(&outer(q), &outer(k))
            .and_then(|batch| broadcast_shapes(&batch, &outer(v)))
            .ok()
        else {
            fail("the leading dimensions must broadcast")
        };
        if let Some(mask) = mask {
            let mut full = batch.clone();
            full.extend([queries, keys]);
            if broadcast_shapes(mask.shape(), &full).map_or(true, |s| s != full) {
                fail("attn_mask must broadcast to [.., query length, key length]")
            }
            if is_causal {
                throw(Error::argument(
                    OP,
                    "is_causal",
                    "true beside an attn_mask; give one of them",
                ));
            }
            if mask.dtype() != Dtype::Bool && mask.dtype() != q.dtype() {
                throw(Error::dtype(
                    OP,
                    format!(
                        "attn_mask is {}, must be bool or the query's {}",
                        mask.dtype(),
                        q.dtype()
                    ),
                ));
            }
        }
        if k.dtype() != q.dtype() || v.dtype() != q.dtype() {
            throw(Error::dtype(
                OP,
                format!(
                    "query {}, key {}, value {}: must be equal",
                    q.dtype(),
                    k.dtype(),
                    v.dtype()
                ),
            ));
        }
        let scale = scale.unwrap_or(1.0 / (depth as f64).sqrt());
        let attention = Attention { queries, keys, depth, width, scale, causal: is_causal };
        Plan { batch, attention }
    }

    fn count(&self) -> usize {
        self.batch.iter().product()
    }

    fn with_batch(&self, last: [usize; 2]) -> Shape {
        let mut shape = self.batch.clone();
        shape.extend(last);
        shape
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
        if let Some(gpu) = gpu::of(OP, &[q, k, v, mask.unwrap_or(q)]) {
            return cuda::forward(gpu, self, [q, k, v], mask);
        }
        let a = self.attention;
        let dtype = q.dtype();
        let [q, k, v] = [q, k, v].map(|t| Operand::new(t, &self.batch));
        let mask = mask.map(|m| Operand::mask(m, self));
        let y = Tensor::empty(self.with_batch([a.queries, a.width]), dtype.compute());
        let logsum = Tensor::empty(self.with_batch([a.queries, 1]), dtype.compute());
        // Each share of a batch item's queries packs its keys: only as many as there are threads.
        let count = self.count();
        let shares = get_num_threads().div_ceil(count.max(1)).min(a.queries.div_ceil(64)).max(1);
        let flops = 4 * a.queries * a.keys * (a.depth + a.width) / shares;
        dispatch!(compute dtype.compute(), "scaled_dot_product_attention", T => {
            // SAFETY: new contiguous tensors of this type.
            let (y, logsum) = unsafe { (y.as_mut_slice::<T>(), logsum.as_mut_slice::<T>()) };
            let (y, logsum) = (Parts::new(y), Parts::new(logsum));
            parallel_for(count * shares, 1_000_000 / flops.max(1) + 1, |range| for item in range {
                let (b, share) = (item / shares, item % shares);
                let part = |s: usize| a.queries * s / shares;
                let range = part(share)..part(share + 1);
                let (from, to) = (b * a.queries + range.start, b * a.queries + range.end);
                // SAFETY: each share of the queries is one thread's.
                let (y, logsum) = unsafe { (y.slice(from * a.width..to * a.width), logsum.slice(from..to)) };
                let mask = mask.as_ref().map(|m| m.rows::<T>(b, a.queries, a.keys));
                let (q, k, v) = (q.rows(b, a.queries, a.depth), k.rows(b, a.keys, a.depth), v.rows(b, a.keys, a.width));
                a.forward(range, q, k, v, mask, y, logsum);
            });
        });
        (compute::narrow(y, dtype), logsum)
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
        if let Some(gpu) = gpu::of(OP, &[q, k, v, dy]) {
            if let Some(dropout) = dropout {
                let of_y = (y, logsum);
                return no_grad(|| {
                    cuda::dropped_backward(gpu, self, [q, k, v], mask, of_y, dy, dropout)
                });
            }
            return no_grad(|| cuda::backward(gpu, self, [q, k, v], mask, (y, logsum), dy));
        }
        let a = self.attention;
        let dtype = q.dtype();
        let [q, k, v] = [q, k, v].map(|t| Operand::new(t, &self.batch));
        let mask = mask.map(|m| Operand::mask(m, self));
        let (y, dy) = (compute::widen(y), compute::widen(dy));
        let zeros =
            |rows, columns| Tensor::zeros(self.with_batch([rows, columns]), dtype.compute());
        let grads = [zeros(a.queries, a.depth), zeros(a.keys, a.depth), zeros(a.keys, a.width)];
        let flops = 10 * a.queries * a.keys * (a.depth + a.width);
        dispatch!(compute dtype.compute(), "scaled_dot_product_attention", T => {
            // SAFETY: contiguous tensors of this type, the gradients new.
            let (y, logsum, dy) = unsafe { (y.as_slice::<T>(), logsum.as_slice::<T>(), dy.as_slice::<T>()) };
            // SAFETY: as above.
            let parts = grads.each_ref().map(|g| Parts::new(unsafe { g.as_mut_slice::<T>() }));
            parallel_for(self.count(), 1_000_000 / flops.max(1) + 1, |range| for b in range {
                let mask = mask.as_ref().map(|m| m.rows::<T>(b, a.queries, a.keys));
                let item = |len: usize| b * len..(b + 1) * len;
                let lens = [a.queries * a.depth, a.keys * a.depth, a.keys * a.width];
                let [dq, dk, dv] = [0, 1, 2].map(|i| {
                    // SAFETY: each batch item is one thread's.
                    unsafe { parts[i].slice(item(lens[i])) }
                });
                let (q, k, v) = (q.rows(b, a.queries, a.depth), k.rows(b, a.keys, a.depth), v.rows(b, a.keys, a.width));
                let of_y = item(a.queries * a.width);
                a.backward(q, k, v, mask, &y[of_y.clone()], &logsum[item(a.queries)], &dy[of_y], [dq, dk, dv]);
            });
        });
        let [dq, dk, dv] = grads.map(|g| Some(compute::narrow(g, dtype)));
        smallvec![dq, dk, dv, None]
    }

    /// S, from recorded ops; minus infinity where a query does not see a key.
    fn scores(&self, q: &Tensor, k: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let a = self.attention;
        let mut scores = q.matmul(&k.transpose(-1, -2)) * a.scale;
        if let Some(mask) = mask {
            scores += mask;
        }
        if a.causal {
            let seen = Tensor::ones([a.queries, a.keys], (Dtype::Bool, q.device())).tril(0);
            scores = scores + additive(&seen, q.dtype());
        }
        scores
    }

    /// Y where each element of P is dropped with probability `p`: by kernels that draw as they go, or else from recorded
    /// ops, for which P must be there.
    fn dropped(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, p: f64) -> Tensor {
        let mask = mask.map(|m| added(m, q.dtype()));
        let mask = mask.as_ref();
        if let Some(gpu) = gpu::of(OP, &[q, k, v, mask.unwrap_or(q)]) {
            let qkv = [q, k, v];
            let done = no_grad(|| cuda::dropped(gpu, self, qkv, mask, p));
            if let Some((y, logsum, dropout)) = done {
                return self.clone().recorded(qkv, mask, y, logsum, Some(dropout));
            }
            cuda::allow_products();
        }
        let scores = self.scores(q, k, mask);
        if mask.is_none() {
            return scores.softmax(-1).dropout(p, true).matmul(v);
        }
        // A query that sees nothing gives 0, where softmax and its derivative are NaN.
        let blind = no_grad(|| scores.detach().amax(&[-1], true).eq(f64::NEG_INFINITY));
        let weights = scores.masked_fill(&blind, 0.0).softmax(-1).masked_fill(&blind, 0.0);
        weights.dropout(p, true).matmul(v)
    }

    /// The gradients, of the mask too, from recorded ops.
    fn composed(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        logsum: &Tensor,
        dy: &Tensor,
        dropout: Option<Dropout>,
    ) -> Grads {
        let a = self.attention;
        let scores = self.scores(q, k, mask);
        // The saved logarithms only keep the exponentials in range; the sums are taken again, because
        // the graph must know that they depend on the scores. They are about 1, or 0 where a query
        // sees nothing: there 1 is added, which leaves its weights 0.
        let weights = (scores - logsum.to_dtype(q.dtype())).exp();
        let mut per_row = Shape::from_slice(weights.shape());
        *per_row.last_mut().expect("two dimensions") = 1;
        let sums = weights.sum_to_size(&per_row);
        let nothing = no_grad(|| sums.detach().eq(0.0).to_dtype(q.dtype()));
        let weights = weights / (sums + nothing);
        // What dropout multiplied the weights by.
        let factors = dropout.map(|dropout| {
            let ones = Tensor::ones(weights.shape(), (weights.dtype(), weights.device()));
            let gpu = gpu::of(OP, &[&ones]).expect("such dropout is of kernels");
            random::cuda::dropout(gpu, &ones, dropout.words, dropout.p).0
        });
        let dropped = |t: Tensor| match &factors {
            Some(factors) => t * factors,
            None => t,
        };
        let dv = dropped(weights.clone()).transpose(-1, -2).matmul(dy);
        let dweights = dropped(dy.matmul(&v.transpose(-1, -2)));
        let along = (&dweights * &weights).sum_to_size(&per_row);
        let dscores = &weights * (dweights - along);
        let dq = dscores.matmul(k) * a.scale;
        let dk = dscores.transpose(-1, -2).matmul(q) * a.scale;
        smallvec![Some(dq), Some(dk), Some(dv), mask.map(|_| dscores)]
    }
}

/// An operand as rows per batch item, widened if it is of a half type, without a copy if its rows
/// are contiguous.
struct Operand {
    tensor: Tensor,
    /// Where each batch item starts, from the tensor's first element.
    starts: Vec<usize>,
}

impl Operand {
    fn new(t: &Tensor, batch: &[usize]) -> Self {
        let mut t = t.detach();
        if t.dtype() != t.dtype().compute() {
            t = compute::widen(&t);
        }
        // A row of one number may have any stride.
        if t.strides()[t.dim() - 1] != 1 {
            t = no_grad(|| t.clone_contiguous()).detach();
        }
        let mut shape = Shape::from_slice(batch);
        shape.extend_from_slice(&t.shape()[t.dim() - 2..]);
        let tensor = no_grad(|| t.expand(&shape));
        let mut starts = vec![0];
        for (&n, &stride) in batch.iter().zip(tensor.strides()) {
            let step = |at: usize| (0..n).map(move |i| at + i * stride as usize);
            starts = starts.into_iter().flat_map(step).collect();
        }
        Operand { tensor, starts }
    }

    /// A mask, its last two dimensions in full.
    fn mask(mask: &Tensor, plan: &Plan) -> Self {
        let a = plan.attention;
        let outer = mask.dim().saturating_sub(2);
        let mut shape = Shape::from_slice(&mask.shape()[..outer]);
        shape.extend([a.queries, a.keys]);
        let full = no_grad(|| compute::widen(&mask.detach().expand(&shape)));
        Operand::new(&full, &plan.batch)
    }

    fn rows<T: Float>(&self, b: usize, rows: usize, len: usize) -> Rows<'_, T> {
        let row = self.tensor.strides()[self.tensor.dim() - 2] as usize;
        let extent = if rows == 0 || len == 0 { 0 } else { (rows - 1) * row + len };
        // SAFETY: `extent` elements from the batch item's start are inside the tensor's layout; the
        // dispatch gave its type.
        let data = unsafe {
            std::slice::from_raw_parts(
                self.tensor.data_ptr().cast::<T>().add(self.starts[b]),
                extent,
            )
        };
        Rows { data, row }
    }
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

/// Attention by its definition for one batch item, which the kernel is tested against.
#[cfg(test)]
fn reference(a: &Attention, q: &[f64], k: &[f64], v: &[f64], mask: Option<&[f64]>) -> Vec<f64> {
    let mut out = Vec::new();
    for i in 0..a.queries {
        let score = |j: usize| {
            let dot: f64 = (0..a.depth).map(|p| q[i * a.depth + p] * k[j * a.depth + p]).sum();
            let hidden = a.causal && j > i;
            if hidden {
                f64::NEG_INFINITY
            } else {
                dot * a.scale + mask.map_or(0.0, |m| m[i * a.keys + j])
            }
        };
        let scores: Vec<f64> = (0..a.keys).map(score).collect();
        let highest = scores.iter().fold(f64::NEG_INFINITY, |m, &s| m.max(s));
        let weights: Vec<f64> = scores
            .iter()
            .map(|s| if highest == f64::NEG_INFINITY { 0.0 } else { (s - highest).exp() })
            .collect();
        let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        for c in 0..a.width {
            out.push(weights.iter().enumerate().map(|(j, w)| w / sum * v[j * a.width + c]).sum());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype::{F32, F64};
    use crate::autograd;

    #[test]
    fn dropout_takes_weights_away_and_changes_nothing_else() {
        crate::fork_rng(|| {
            let leaf = |shape: [usize; 3], seed| values(shape, seed).requires_grad_(true);
            let (q, k, v) = (leaf([2, 4, 3], 1), leaf([2, 5, 3], 2), leaf([2, 5, 6], 3));
            let seen = Tensor::from([
                [true, true, false, true, false],
                [false; 5],
                [true; 5],
                [false, false, false, false, true],
            ]);
            let with = |dropout_p, attn_mask: Option<&Tensor>, is_causal| {
                let options = AttentionOptions { dropout_p, is_causal, ..Default::default() };
                let options = AttentionOptions { attn_mask: attn_mask.cloned(), ..options };
                let y = q.scaled_dot_product_attention_with(&k, &v, &options);
                let grads =
                    autograd::grad(&[&y.square().sum()], &[&q, &k, &v], &[None], false, false);
                (y, grads)
            };
            // So rarely that it never happens, but computed in the other way.
            for (mask, causal) in [(None, false), (None, true), (Some(&seen), false)] {
                let ((y, grads), (want, expected)) =
                    (with(1e-13, mask, causal), with(0.0, mask, causal));
                let same = |a: &Tensor, b: &Tensor| {
                    let error = (a - b).abs().amax(&[], false).item();
                    assert!(error < 1e-11, "causal {causal}, {mask:?}: {a:?}, not {b:?}");
                };
                same(&y, &want);
                for (grad, want) in grads.iter().zip(&expected) {
                    same(grad.as_ref().unwrap(), want.as_ref().unwrap());
                }
            }
            crate::manual_seed(0);
            let (q, k, v) = (values([64, 8], 1), values([64, 8], 2), Tensor::eye(64, F64));
            let options = AttentionOptions { dropout_p: 0.25, ..Default::default() };
            let weights = q.scaled_dot_product_attention(&k, &v, None, false, None).to_vec::<f64>();
            let dropped = q.scaled_dot_product_attention_with(&k, &v, &options).to_vec::<f64>();
            let zeros = dropped.iter().filter(|w| **w == 0.0).count();
            assert!((900..1150).contains(&zeros), "about a quarter of 4096, got {zeros}");
            let kept = |(d, w): (&f64, &f64)| *d == 0.0 || (d - w / 0.75).abs() < 1e-12;
            assert!(dropped.iter().zip(&weights).all(kept));
            let wrong = AttentionOptions { dropout_p: 1.5, ..Default::default() };
            let error = crate::catch(|| q.scaled_dot_product_attention_with(&k, &v, &wrong));
            assert!(error.unwrap_err().to_string().contains("dropout_p"));
        })
    }

    #[test]
    fn the_kernel_equals_the_definition_and_its_gradients_the_composed_ones() {
        for (queries, keys, depth, width, causal, masked) in [
            (1, 1, 1, 1, false, false),
            (100, 300, 20, 17, false, true),
            (150, 150, 64, 64, true, false),
            (60, 200, 8, 33, true, false),
            (200, 60, 8, 8, true, false),
        ] {
            let a = Attention { queries, keys, depth, width, scale: 0.3, causal };
            let leaf = |rows, columns, seed| values([2, rows, columns], seed).requires_grad_(true);
            let (q, k, v) = (leaf(queries, depth, 1), leaf(keys, depth, 2), leaf(keys, width, 3));
            let mut mask = values([queries, keys], 5).to_vec::<f64>();
            mask[..keys].fill(f64::NEG_INFINITY);
            mask[keys * queries - 1] = f64::NEG_INFINITY;
            let mask_tensor = masked.then(|| Tensor::from_slice(&mask, [queries, keys]));
            let y = q.scaled_dot_product_attention(&k, &v, mask_tensor.as_ref(), causal, Some(0.3));
            let [dq, dk, dv] = [&q, &k, &v].map(|t| t.to_vec::<f64>());
            for b in 0..2 {
                let item = |x: &[f64]| x[x.len() / 2 * b..x.len() / 2 * (b + 1)].to_vec();
                let want =
                    reference(&a, &item(&dq), &item(&dk), &item(&dv), masked.then_some(&mask[..]));
                for (y, want) in item(&y.to_vec::<f64>()).iter().zip(want) {
                    assert!((y - want).abs() < 1e-12, "{y} {want}: {a:?}");
                }
            }
            let dy = values(y.shape(), 4);
            let inputs = [&q, &k, &v];
            let fused = autograd::grad(&[&y], &inputs, &[Some(&dy)], true, false);
            let composed = autograd::grad(&[&y], &inputs, &[Some(&dy)], true, true);
            let [q32, k32, v32] = inputs.map(|t| t.detach().to_dtype(F32).requires_grad_(true));
            let mask32 = mask_tensor.map(|m| m.to_dtype(F32));
            let y32 =
                q32.scaled_dot_product_attention(&k32, &v32, mask32.as_ref(), causal, Some(0.3));
            let g32 = autograd::grad(
                &[&y32],
                &[&q32, &k32, &v32],
                &[Some(&dy.to_dtype(F32))],
                false,
                false,
            );
            for ((fused, composed), g32) in fused.iter().zip(&composed).zip(&g32) {
                let [fused, composed, g32] =
                    [fused, composed, g32].map(|g| g.as_ref().unwrap().to_vec::<f64>());
                for ((f, c), g) in fused.iter().zip(composed).zip(g32) {
                    assert!((f - c).abs() < 1e-11, "{f} {c}: {a:?}");
                    assert!((f - g).abs() < 1e-4 * (1.0 + f.abs()), "{f} {g} in f32: {a:?}");
                }
            }
        }
    }

    #[test]
    fn operands_may_be_strided_and_broadcast() {
        let (q, k, v) = (values([5, 2, 3, 4], 1), values([3, 6, 4], 2), values([2, 1, 6, 4], 3));
        let y = q.transpose(0, 2).scaled_dot_product_attention(
            &k.unsqueeze(1).expand(&[3, 2, 6, 4]),
            &v.transpose(0, 1).expand(&[3, 2, 6, 4]),
            None,
            false,
            None,
        );
        let [q, k, v] = [
            q.transpose(0, 2).contiguous(),
            k.unsqueeze(1).expand(&[3, 2, 6, 4]).contiguous(),
            v.transpose(0, 1).expand(&[3, 2, 6, 4]).contiguous(),
        ];
        let want = q.scaled_dot_product_attention(&k, &v, None, false, None);
        assert_eq!(y.shape(), &[3, 2, 5, 4]);
        assert_eq!(y.to_vec::<f64>(), want.to_vec::<f64>());
    }

    #[test]
    fn misuse_is_named() {
        let t = |shape: &[usize]| Tensor::zeros(shape, F64);
        let text = |k: &Tensor, v: &Tensor, m: Option<&Tensor>, causal| {
            let q = t(&[2, 3, 4]);
            crate::catch(|| q.scaled_dot_product_attention(k, v, m, causal, None))
                .unwrap_err()
                .to_string()
        };
        let (k, v) = (t(&[2, 5, 4]), t(&[2, 5, 6]));
        assert!(text(&t(&[2, 5, 3]), &v, None, false).contains("same last size"));
        assert!(text(&k, &t(&[2, 4, 6]), None, false).contains("same length"));
        assert!(text(&k, &v, Some(&t(&[4, 5])), false).contains("attn_mask must broadcast"));
        assert!(text(&k, &v, Some(&t(&[3, 5])), true).contains("is_causal"));
        let options = AttentionOptions { enable_gqa: true, ..Default::default() };
        for q in [t(&[3, 4]), t(&[0, 3, 4])] {
            let y = crate::catch(|| q.scaled_dot_product_attention_with(&k, &v, &options));
            assert!(y.unwrap_err().to_string().contains("0 query heads"));
        }
    }
}
