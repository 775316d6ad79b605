//! `torch.nn.MultiheadAttention`.

use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::nn::{Forward, Linear, Module, Parameter, Training, init};
use crate::onnx::{Dim, Graph, Value};
use crate::ops::{AttentionOptions, PadMode};
use crate::tensor::{Dtype, Tensor};

/// Options of [`MultiheadAttention`].
///
/// ```
/// use torchrs::nn::{MultiheadAttention, MultiheadAttentionOptions};
/// let options = MultiheadAttentionOptions { bias: false, kdim: Some(3), ..Default::default() };
/// let attention = MultiheadAttention::new(8, 2, options);
/// assert_eq!(attention.k_proj_weight.unwrap().shape(), &[8, 3]);
/// assert!(attention.in_proj_bias.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiheadAttentionOptions {
    /// Dropout on the attention weights, in training.
    pub dropout: f64,
    /// Biases of the projections.
    pub bias: bool,
    /// A learned key and value behind the others.
    pub add_bias_kv: bool,
    /// A key and value of zeros behind the others.
    pub add_zero_attn: bool,
    /// Width of the keys; `None`: `embed_dim`.
    pub kdim: Option<usize>,
    /// Width of the values; `None`: `embed_dim`.
    pub vdim: Option<usize>,
    /// `[batch, length, width]`, not `[length, batch, width]`.
    pub batch_first: bool,
}

impl Default for MultiheadAttentionOptions {
    fn default() -> Self {
        MultiheadAttentionOptions {
            dropout: 0.0,
            bias: true,
            add_bias_kv: false,
            add_zero_attn: false,
            kdim: None,
            vdim: None,
            batch_first: false,
        }
    }
}

/// Which attention weights are given back.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{AttentionWeights, MultiheadAttention}};
/// let attention = MultiheadAttention::new(8, 2, Default::default());
/// let x = Tensor::ones([5, 3, 8], Dtype::F32);
/// let (_, weights) = attention.forward(&x, &x, &x, None, None, AttentionWeights::PerHead);
/// assert_eq!(weights.unwrap().shape(), &[3, 2, 5, 5]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttentionWeights {
    /// None; the fastest.
    #[default]
    None,
    /// Their mean over the heads, `[batch, queries, keys]`.
    Average,
    /// All, `[batch, heads, queries, keys]`.
    PerHead,
}

/// Attention of several heads, each over its part of projected queries, keys and values
/// (`torch.nn.MultiheadAttention`).
///
/// ```
/// use torchrs::nn::{AttentionWeights, MultiheadAttention};
/// use torchrs::{Dtype, Tensor};
/// let attention = MultiheadAttention::new(8, 2, Default::default());
/// let x = Tensor::randn([5, 3, 8], Dtype::F32);
/// let (out, weights) = attention.forward(&x, &x, &x, None, None, AttentionWeights::Average);
/// assert_eq!((out.shape(), weights.unwrap().shape()), (&[5, 3, 8][..], &[3, 5, 5][..]));
/// ```
#[derive(Module, Clone)]
pub struct MultiheadAttention {
    /// `[3 * embed_dim, embed_dim]`, where keys and values are as wide as queries.
    pub in_proj_weight: Option<Parameter>,
    /// `[embed_dim, embed_dim]`, else.
    pub q_proj_weight: Option<Parameter>,
    /// `[embed_dim, kdim]`.
    pub k_proj_weight: Option<Parameter>,
    /// `[embed_dim, vdim]`.
    pub v_proj_weight: Option<Parameter>,
    /// `[3 * embed_dim]`.
    pub in_proj_bias: Option<Parameter>,
    /// `[1, 1, embed_dim]`.
    pub bias_k: Option<Parameter>,
    /// `[1, 1, embed_dim]`.
    pub bias_v: Option<Parameter>,
    /// The projection of the heads' results.
    pub out_proj: Linear,
    training: Training,
    #[module(skip)]
    options: MultiheadAttentionOptions,
    #[module(skip)]
    num_heads: usize,
}

impl MultiheadAttention {
    /// Projections start by Xavier's rule, biases at zero.
    ///
    /// ```
    /// use torchrs::{catch, nn::MultiheadAttention};
    /// let attention = MultiheadAttention::new(8, 2, Default::default());
    /// assert_eq!(attention.in_proj_weight.unwrap().shape(), &[24, 8]);
    /// assert!(catch(|| MultiheadAttention::new(8, 3, Default::default())).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `embed_dim` is not a multiple of `num_heads`.
    #[track_caller]
    pub fn new(embed_dim: usize, num_heads: usize, options: MultiheadAttentionOptions) -> Self {
        if num_heads == 0 || embed_dim == 0 || !embed_dim.is_multiple_of(num_heads) {
            let message = format!("{num_heads} heads cannot share an embed_dim of {embed_dim}");
            throw(Error::argument("MultiheadAttention", "num_heads", message));
        }
        let matrix = |rows: usize, columns: usize| {
            let weight = Parameter::new(Tensor::empty([rows, columns], Dtype::F32));
            init::xavier_uniform_(&weight, 1.0);
            weight
        };
        let (kdim, vdim) = (options.kdim.unwrap_or(embed_dim), options.vdim.unwrap_or(embed_dim));
        let same = kdim == embed_dim && vdim == embed_dim;
        let apart = |columns| (!same).then(|| matrix(embed_dim, columns));
        let extra = || {
            options.add_bias_kv.then(|| {
                let bias = Parameter::new(Tensor::empty([1, 1, embed_dim], Dtype::F32));
                init::xavier_normal_(&bias, 1.0);
                bias
            })
        };
        let out_proj = match options.bias {
            true => Linear::new(embed_dim, embed_dim),
            false => Linear::no_bias(embed_dim, embed_dim),
        };
        if let Some(bias) = &out_proj.bias {
            init::zeros_(bias);
        }
        MultiheadAttention {
            in_proj_weight: same.then(|| matrix(3 * embed_dim, embed_dim)),
            q_proj_weight: apart(embed_dim),
            k_proj_weight: apart(kdim),
            v_proj_weight: apart(vdim),
            in_proj_bias: options
                .bias
                .then(|| Parameter::new(Tensor::zeros([3 * embed_dim], Dtype::F32))),
            bias_k: extra(),
            bias_v: extra(),
            out_proj,
            training: Training::default(),
            options,
            num_heads,
        }
    }

    pub(super) fn batch_first(&self) -> bool {
        self.options.batch_first
    }

    /// The attended values, shaped like `query`, and the weights that were asked for, without a batch
    /// dimension if the inputs have none. `key_padding_mask` is `[batch, keys]`, `attn_mask` is
    /// `[queries, keys]` or `[batch * heads, queries, keys]`; a bool mask is true where there must be
    /// no attention, a floating-point one is added to the scores.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{AttentionWeights, MultiheadAttention}};
    /// let attention = MultiheadAttention::new(8, 2, Default::default());
    /// // The first of the two keys is padding.
    /// let (x, padding) = (Tensor::ones([2, 8], Dtype::F32), Tensor::from([[true, false]]));
    /// let average = AttentionWeights::Average;
    /// let (_, weights) = attention.forward(&x, &x, &x, Some(&padding), None, average);
    /// assert_eq!(weights.unwrap().to_vec::<f32>(), [0.0, 1.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        key_padding_mask: Option<&Tensor>,
        attn_mask: Option<&Tensor>,
        weights: AttentionWeights,
    ) -> (Tensor, Option<Tensor>) {
        let single = query.dim() == 2;
        for (name, t) in [("query", query), ("key", key), ("value", value)] {
            if t.dim() != query.dim() || !(t.dim() == 2 || t.dim() == 3) {
                let message = format!(
                    "query, key and value must all have 3 dimensions (2 without a batch); query is \
                     {:?}, {name} is {:?}",
                    query.shape(),
                    t.shape()
                );
                throw(Error::shape("MultiheadAttention", message));
            }
        }
        // Everything as [batch, length, width].
        let lift = |t: &Tensor| match (single, self.options.batch_first) {
            (true, _) => t.unsqueeze(0),
            (_, true) => t.clone(),
            _ => t.transpose(0, 1),
        };
        let (q, k, v) = self.project(&lift(query), &lift(key), &lift(value));
        let (batch, queries) = (q.size(0), q.size(1));
        let mut mask = self.mask(&q, k.size(1), key_padding_mask, attn_mask);
        let (mut k, mut v) = (k, v);
        if let (Some(bias_k), Some(bias_v)) = (&self.bias_k, &self.bias_v) {
            let width = k.size(2);
            k = Tensor::cat(&[k, bias_k.expand(&[batch, 1, width])], 1);
            v = Tensor::cat(&[v, bias_v.expand(&[batch, 1, width])], 1);
        }
        if self.options.add_zero_attn {
            let zeros = Tensor::zeros([batch, 1, k.size(2)], (k.dtype(), k.device()));
            k = Tensor::cat(&[k, zeros.clone()], 1);
            v = Tensor::cat(&[v, zeros], 1);
        }
        if let Some(known) = &mask
            && known.size(-1) < k.size(1)
        {
            let mut shape = known.shape().to_vec();
            shape[3] = k.size(1) - known.size(-1);
            let open = Tensor::zeros(&shape[..], (known.dtype(), known.device()));
            mask = Some(Tensor::cat(&[known.clone(), open], -1));
        }
        let heads = |t: &Tensor| {
            let shape = [batch as i64, t.size(1) as i64, self.num_heads as i64, -1];
            t.reshape(shape).transpose(1, 2)
        };
        let (q, k, v) = (heads(&q), heads(&k), heads(&v));
        let dropout_p = if self.training.get() { self.options.dropout } else { 0.0 };
        let (out, shares) = if weights == AttentionWeights::None {
            let options = AttentionOptions { attn_mask: mask, dropout_p, ..Default::default() };
            (q.scaled_dot_product_attention_with(&k, &v, &options), None)
        } else {
            let scale = 1.0 / (q.size(3) as f64).sqrt();
            let mut scores = (&q * scale).matmul(&k.transpose(2, 3));
            let shares = match &mask {
                None => scores.softmax(-1),
                Some(mask) => {
                    scores += mask;
                    attentive(&scores)
                }
            };
            let shares = shares.dropout(dropout_p, true);
            (shares.matmul(&v), Some(shares))
        };
        let out = out.transpose(1, 2).reshape([batch as i64, queries as i64, -1]);
        let out = out.linear(&self.out_proj.adapted_weight(), self.out_proj.bias.as_deref());
        let out = match (single, self.options.batch_first) {
            (true, _) => out.squeeze_dim(0),
            (_, true) => out,
            _ => out.transpose(0, 1),
        };
        let shares = shares.and_then(|shares| match weights {
            AttentionWeights::None => None,
            AttentionWeights::Average => Some(shares.mean_dim(&[1], false)),
            AttentionWeights::PerHead => Some(shares),
        });
        (out, shares.map(|s| if single { s.squeeze_dim(0) } else { s }))
    }

    /// What [`forward`](Self::forward) computes in evaluation without weights, as part of a graph of
    /// [ONNX](crate::onnx): of query, key and value, and of the padding of the keys and the mask, each bool or numbers.
    ///
    /// ```
    /// use torchrs::{Dtype, nn::MultiheadAttention, onnx::Graph};
    /// let (attention, mut graph) = (MultiheadAttention::new(8, 2, Default::default()), Graph::new());
    /// let x = graph.input("x", Dtype::F32, ["length".into(), "batch".into(), 8.into()]);
    /// assert_eq!(attention.onnx(&mut graph, [&x; 3], None, None)?.shape(), x.shape());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] for shapes that do not fit, and for masks of each head whose sizes are not fixed.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        qkv: [&Value; 3],
        key_padding_mask: Option<&Value>,
        attn_mask: Option<&Value>,
    ) -> Result<Value> {
        let op = "onnx MultiheadAttention";
        let single = qkv[0].dim() == 2;
        if qkv.iter().any(|t| t.dim() != qkv[0].dim() || !(2..=3).contains(&t.dim())) {
            let message = format!(
                "query, key and value must all have 3 dimensions (2 without a batch): {:?}",
                qkv.map(Value::shape)
            );
            return Err(Error::shape(op, message));
        }
        let mut lifted = Vec::with_capacity(3);
        for t in qkv {
            lifted.push(match (single, self.options.batch_first) {
                (true, _) => graph.unsqueeze(t, &[0]),
                (_, true) => t.clone(),
                _ => graph.transpose(t, &[1, 0, 2])?,
            });
        }
        let [q, mut k, mut v] = self.onnx_projections(graph, &lifted)?;
        let mut mask = self.onnx_mask(graph, key_padding_mask, attn_mask, (single, q.dtype()))?;
        let mut extra = 0;
        if let (Some(bias_k), Some(bias_v)) = (&self.bias_k, &self.bias_v) {
            for (t, bias) in [(&mut k, bias_k), (&mut v, bias_v)] {
                let bias = graph.constant(bias);
                let bias = graph.for_each(&bias, t)?;
                *t = graph.concat(&[t, &bias], 1)?;
            }
            extra += 1;
        }
        let zero = PadMode::Constant(0i64.into());
        if self.options.add_zero_attn {
            for t in [&mut k, &mut v] {
                *t = graph.pad(t, &[0, 0, 0, 1], zero)?;
            }
            extra += 1;
        }
        if let Some(known) = mask.as_mut().filter(|_| extra > 0) {
            *known = graph.pad(known, &[0, extra], zero)?;
        }
        let [q, k, v] = [q, k, v].map(|t| graph.heads_apart(&t, self.num_heads));
        let (q, k, v) = (q?, k?, v?);
        let scale = ((self.out_proj.in_features() / self.num_heads) as f64).sqrt().recip();
        let out = match &mask {
            None => graph.attention([&q, &k, &v], scale, false)?,
            Some(mask) => graph.attention_masked([&q, &k, &v], scale, mask)?,
        };
        let out = graph.heads_together(&out)?;
        let out = self.out_proj.onnx(graph, &out)?;
        match (single, self.options.batch_first) {
            (true, _) => graph.squeeze(&out, 0),
            (_, true) => Ok(out),
            _ => graph.transpose(&out, &[1, 0, 2]),
        }
    }

    fn onnx_projections(&self, graph: &mut Graph, qkv: &[Value]) -> Result<[Value; 3]> {
        let weights = match (&self.in_proj_weight, &self.q_proj_weight) {
            (Some(weight), _) => {
                let weight = graph.constant(weight);
                graph.split(&weight, 3, 0)?
            }
            _ => [&self.q_proj_weight, &self.k_proj_weight, &self.v_proj_weight]
                .map(|weight| graph.constant(weight.as_ref().expect("made in new")))
                .to_vec(),
        };
        let biases = match &self.in_proj_bias {
            None => None,
            Some(bias) => {
                let bias = graph.constant(bias);
                Some(graph.split(&bias, 3, 0)?)
            }
        };
        let mut project =
            |i: usize| graph.affine(&qkv[i], &weights[i], biases.as_ref().map(|bias| &bias[i]));
        Ok([project(0)?, project(1)?, project(2)?])
    }

    /// Both masks as one that is added.
    fn onnx_mask(
        &self,
        graph: &mut Graph,
        padding: Option<&Value>,
        attn: Option<&Value>,
        (single, dtype): (bool, Dtype),
    ) -> Result<Option<Value>> {
        let op = "onnx MultiheadAttention";
        let mut added = |mask: &Value| match mask.dtype() {
            Dtype::Bool => graph.added_mask(mask, f64::NEG_INFINITY, false, dtype),
            _ => graph.cast(mask, dtype),
        };
        let padding = padding.map(&mut added).transpose()?;
        let attn = attn.map(added).transpose()?;
        let padding = match padding {
            None => None,
            Some(mask) if mask.dim() == 1 && single => Some(graph.unsqueeze(&mask, &[0, 1, 2])),
            Some(mask) if mask.dim() == 2 => Some(graph.unsqueeze(&mask, &[1, 2])),
            Some(mask) => {
                let message = format!("key_padding_mask {:?} must be [batch, keys]", mask.shape());
                return Err(Error::shape(op, message));
            }
        };
        let attn = match attn {
            None => None,
            Some(mask) if mask.dim() == 2 => Some(graph.unsqueeze(&mask, &[0, 1])),
            Some(mask) if mask.dim() == 3 => {
                let [rows, queries, keys] = mask.shape() else { unreachable!("as was looked") };
                let batch = match rows {
                    Dim::Fixed(rows) => Dim::Fixed(rows / self.num_heads),
                    Dim::Named(_) => Dim::from("batch of the mask"),
                };
                let shape = vec![batch, self.num_heads.into(), queries.clone(), keys.clone()];
                Some(graph.reshape(&mask, shape)?)
            }
            Some(mask) => {
                let message = format!(
                    "attn_mask {:?} must be [queries, keys] or [batch * heads, queries, keys]",
                    mask.shape()
                );
                return Err(Error::shape(op, message));
            }
        };
        match (padding, attn) {
            (Some(a), Some(b)) => Ok(Some(graph.binary("Add", &a, &b)?)),
            (a, b) => Ok(a.or(b)),
        }
    }

    #[track_caller]
    fn project(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> (Tensor, Tensor, Tensor) {
        let bias = self.in_proj_bias.as_ref().map(|bias| bias.chunk(3, 0));
        let bias = |i: usize| bias.as_ref().map(|bias| &bias[i]);
        if let Some(weight) = &self.in_proj_weight {
            if q.ptr_eq(k) && k.ptr_eq(v) {
                let all = q.linear(weight, self.in_proj_bias.as_deref()).chunk(3, -1);
                return (all[0].clone(), all[1].clone(), all[2].clone());
            }
            let w = weight.chunk(3, 0);
            return (q.linear(&w[0], bias(0)), k.linear(&w[1], bias(1)), v.linear(&w[2], bias(2)));
        }
        let weight = |w: &Option<Parameter>| w.as_ref().expect("made in new").tensor().clone();
        (
            q.linear(&weight(&self.q_proj_weight), bias(0)),
            k.linear(&weight(&self.k_proj_weight), bias(1)),
            v.linear(&weight(&self.v_proj_weight), bias(2)),
        )
    }

    /// Both masks as one that is added, `[batch or 1, heads or 1, queries, keys]`.
    #[track_caller]
    fn mask(
        &self,
        q: &Tensor,
        keys: usize,
        padding: Option<&Tensor>,
        attn: Option<&Tensor>,
    ) -> Option<Tensor> {
        let (batch, queries) = (q.size(0), q.size(1));
        let misfit = |name: &str, expected: String, got: &Tensor| -> ! {
            let message = format!("{name} must be {expected}, got {:?}", got.shape());
            throw(Error::shape("MultiheadAttention", message))
        };
        let padding = padding.map(|mask| {
            if mask.numel() != batch * keys || mask.size(-1) != keys {
                misfit("key_padding_mask", format!("[{batch}, {keys}]"), mask);
            }
            added(mask, q.dtype()).reshape([batch as i64, 1, 1, keys as i64])
        });
        let attn = attn.map(|mask| {
            let heads = self.num_heads;
            let shape = match mask.shape() {
                s if s == [queries, keys] => [1, 1, queries, keys],
                s if s == [batch * heads, queries, keys] => [batch, heads, queries, keys],
                _ => {
                    let expected =
                        format!("[{queries}, {keys}] or [{}, {queries}, {keys}]", batch * heads);
                    misfit("attn_mask", expected, mask)
                }
            };
            added(mask, q.dtype()).reshape(shape.map(|n| n as i64))
        });
        match (padding, attn) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        }
    }
}

/// Softmax over the keys, and 0 for a query that sees none, where softmax and its derivative are NaN: they would
/// reach all parameters.
fn attentive(scores: &Tensor) -> Tensor {
    let blind = no_grad(|| scores.detach().amax(&[-1], true).eq(f64::NEG_INFINITY));
    scores.masked_fill(&blind, 0.0).softmax(-1).masked_fill(&blind, 0.0)
}

/// A mask as numbers to add: a bool one as minus infinity where it is true.
fn added(mask: &Tensor, dtype: Dtype) -> Tensor {
    match mask.dtype() {
        Dtype::Bool => no_grad(|| {
            let open = Tensor::zeros(mask.shape(), (dtype, mask.device()));
            open.masked_fill(mask, f64::NEG_INFINITY)
        }),
        _ => mask.to_dtype(dtype),
    }
}

/// The mask that keeps each of `size` positions from those behind it: minus infinity above the
/// diagonal, else 0 (`torch.nn.Transformer.generate_square_subsequent_mask`).
///
/// ```
/// use torchrs::nn::generate_square_subsequent_mask;
/// let never = f32::NEG_INFINITY;
/// assert_eq!(generate_square_subsequent_mask(2).to_vec::<f32>(), [0.0, never, 0.0, 0.0]);
/// ```
pub fn generate_square_subsequent_mask(size: usize) -> Tensor {
    no_grad(|| Tensor::full([size, size], f64::NEG_INFINITY, Dtype::F32).triu(1))
}
