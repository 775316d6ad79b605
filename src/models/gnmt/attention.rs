//! Additive attention.

use super::INIT_WEIGHT;
use crate::autograd::no_grad;
use crate::error::Result;
use crate::nn::{Forward, Linear, Module, Parameter, init::uniform_};
use crate::onnx::{Graph, Value};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// The score of a key that is padding: what a half-precision number still holds.
const MASKED: f64 = -65504.0;

/// Options of [`BahdanauAttention`].
#[derive(Debug, Clone, Copy, Default)]
pub struct BahdanauAttentionOptions {
    /// Whether v is normalised to a learned length.
    pub normalize: bool,
    /// Whether queries and keys are `[batch, time, size]`; otherwise they are `[time, batch, size]`.
    pub batch_first: bool,
}

/// Attention by the score `v tanh(W_q q + W_k k)`, in which v is learned, or, normalised,
/// `g v / |v| tanh(W_q q + W_k k + b)` (`BahdanauAttention`; Bahdanau et al. 2014, Salimans & Kingma
/// 2016).
#[derive(Module)]
pub struct BahdanauAttention {
    /// v, `[num_units]`.
    pub linear_att: Parameter,
    /// g, `[1]`.
    pub normalize_scalar: Option<Parameter>,
    /// b, `[num_units]`.
    pub normalize_bias: Option<Parameter>,
    /// W_q.
    pub linear_q: Linear,
    /// W_k.
    pub linear_k: Linear,
    batch_first: bool,
}

impl BahdanauAttention {
    /// Weights start uniform within 0.1, g at 1 / sqrt(num_units).
    #[track_caller]
    pub fn new(
        query_size: usize,
        key_size: usize,
        num_units: usize,
        options: BahdanauAttentionOptions,
    ) -> Self {
        let BahdanauAttentionOptions { normalize, batch_first } = options;
        let linear_att = Parameter::new(Tensor::empty([num_units], Dtype::F32));
        let linear_q = Linear::no_bias(query_size, num_units);
        let linear_k = Linear::no_bias(key_size, num_units);
        for weight in [&linear_att, &linear_q.weight, &linear_k.weight] {
            uniform_(weight, -INIT_WEIGHT, INIT_WEIGHT);
        }
        let scalar = || Tensor::full([1], 1.0 / (num_units as f64).sqrt(), Dtype::F32);
        let bias = || Tensor::zeros([num_units], Dtype::F32);
        BahdanauAttention {
            linear_att,
            normalize_scalar: normalize.then(|| Parameter::new(scalar())),
            normalize_bias: normalize.then(|| Parameter::new(bias())),
            linear_q,
            linear_k,
            batch_first,
        }
    }

    /// For each query the mean of the keys, weighted by their shares of attention, and these shares:
    /// `[queries, batch, key_size]` and `[queries, batch, keys]` from `[queries, batch, query_size]`
    /// and `[keys, batch, key_size]` (batch first in all of them with `batch_first`). Keys from each
    /// sequence's length on get no attention.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, query: &Tensor, keys: &Tensor, lengths: &[usize]) -> (Tensor, Tensor) {
        let turned = |t: &Tensor| if self.batch_first { t.clone() } else { t.transpose(0, 1) };
        let (query, keys) = (turned(query), turned(keys));
        let scores = self.scores(&self.linear_q.forward(&query), &self.linear_k.forward(&keys));
        let shares =
            scores.masked_fill(&padding(lengths, keys.size(1), keys.device()), MASKED).softmax(-1);
        (turned(&shares.bmm(&keys)), turned(&shares))
    }

    /// `[batch, queries, keys]`.
    #[track_caller]
    fn scores(&self, query: &Tensor, keys: &Tensor) -> Tensor {
        let sum = query.unsqueeze(2) + keys.unsqueeze(1);
        let v = self.linear_att.tensor();
        let (Some(scalar), Some(bias)) = (&self.normalize_scalar, &self.normalize_bias) else {
            return sum.tanh().matmul(v);
        };
        (sum + bias.tensor()).tanh().matmul(&(v / v.norm() * scalar.tensor()))
    }
}

impl BahdanauAttention {
    /// [`forward`](Self::forward) as part of a graph of [ONNX](crate::onnx); lengths are `[batch]` of i64.
    ///
    /// # Errors
    /// As the nodes, for shapes that do not fit.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        query: &Value,
        keys: &Value,
        lengths: &Value,
    ) -> Result<(Value, Value)> {
        let turned = |graph: &mut Graph, t: &Value| match self.batch_first {
            true => Ok(t.clone()),
            false => graph.transpose(t, &[1, 0, 2]),
        };
        let (query, keys) = (turned(graph, query)?, turned(graph, keys)?);
        let q = self.linear_q.onnx(graph, &query)?;
        let q = graph.unsqueeze(&q, &[2]);
        let k = self.linear_k.onnx(graph, &keys)?;
        let k = graph.unsqueeze(&k, &[1]);
        let mut sum = graph.binary("Add", &q, &k)?;
        let mut v = self.linear_att.tensor().clone();
        if let (Some(scalar), Some(bias)) = (&self.normalize_scalar, &self.normalize_bias) {
            sum = graph.plus(&sum, Some(bias))?;
            v = no_grad(|| &v / v.norm() * scalar.tensor());
        }
        let sum = graph.unary("Tanh", &sum);
        let v = graph.constant(&v);
        let v = graph.unsqueeze(&v, &[1]);
        let scores = graph.matmul(&sum, &v)?;
        let scores = graph.squeeze(&scores, -1)?;
        let places = graph.positions(&scores, 2);
        let lengths = graph.unsqueeze(lengths, &[1, 2]);
        let behind = graph.compare("GreaterOrEqual", &places, &lengths)?;
        let masked = graph.number(MASKED, scores.dtype());
        let scores = graph.choose(&behind, &masked, &scores)?;
        let shares = graph.softmax("Softmax", &scores, -1)?;
        let attended = graph.matmul(&shares, &keys)?;
        Ok((turned(graph, &attended)?, turned(graph, &shares)?))
    }
}

/// True where a key lies behind its sequence, `[batch, 1, keys]`.
fn padding(lengths: &[usize], keys: usize, device: Device) -> Tensor {
    let lengths: Vec<i64> = lengths.iter().map(|&n| n as i64).collect();
    let lengths = Tensor::from_slice(&lengths, [lengths.len(), 1, 1]);
    no_grad(|| Tensor::range(keys).ge(&lengths).to_device(device))
}
