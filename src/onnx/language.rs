//! Nodes of language models: positions, causal masks, attention, rotary embeddings.

use super::graph::{Attribute, Dim, Graph, Value};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// What queries see.
#[derive(Clone, Copy)]
pub(crate) enum Seen<'a> {
    /// Everything.
    All,
    /// What is not behind them.
    Before,
    /// By numbers that are added, among which is minus infinity: who sees nothing gets 0.
    Masked(&'a Value),
}

impl Graph {
    /// 0, 1, .. for each place along a dimension of `x`.
    pub fn positions(&mut self, x: &Value, dim: usize) -> Value {
        let shape = self.node("Shape", &[x], &[], Dtype::I64, [Dim::Fixed(x.dim())]);
        let [place, zero, one] =
            [dim as f64, 0.0, 1.0].map(|number| self.number(number, Dtype::I64));
        let axis = [("axis", Attribute::Int(0))];
        let length = self.node("Gather", &[&shape, &place], &axis, Dtype::I64, []);
        self.node("Range", &[&zero, &length, &one], &[], Dtype::I64, [x.shape[dim].clone()])
    }

    /// Attention of `[N, heads, length, width]` each, to all places or to those up to one's own. Keys and values may have
    /// fewer heads, which queries share.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes do not fit.
    pub fn attention(&mut self, qkv: [&Value; 3], scale: f64, is_causal: bool) -> Result<Value> {
        self.attend(qkv, scale, if is_causal { Seen::Before } else { Seen::All })
    }

    /// [`attention`](Self::attention) with numbers that are added to the scores, `[N, heads, queries, keys]` or what
    /// broadcasts to it. A query that sees nothing, by minus infinity, gives 0.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes do not fit.
    pub fn attention_masked(
        &mut self,
        qkv: [&Value; 3],
        scale: f64,
        added: &Value,
    ) -> Result<Value> {
        self.attend(qkv, scale, Seen::Masked(added))
    }

    pub(crate) fn attend(
        &mut self,
        [q, k, v]: [&Value; 3],
        scale: f64,
        seen: Seen,
    ) -> Result<Value> {
        let [k, v] = [k, v].map(|t| self.shared_heads(t, q));
        let (k, v) = (k?, v?);
        let turned = self.transpose(&k, &[0, 1, 3, 2])?;
        let scale = self.number(scale, q.dtype);
        let q = self.binary("Mul", q, &scale)?;
        let mut scores = self.matmul(&q, &turned)?;
        match seen {
            Seen::All => {}
            Seen::Before => {
                let places = self.positions(&scores, 3);
                let rows = self.positions(&scores, 2);
                let rows = self.unsqueeze(&rows, &[1]);
                let seen = self.compare("LessOrEqual", &places, &rows)?;
                let nothing = self.number(f64::NEG_INFINITY, scores.dtype);
                scores = self.choose(&seen, &scores, &nothing)?;
            }
            Seen::Masked(added) => {
                let scores = self.binary("Add", &scores, added)?;
                let most = self.max_along(&scores, -1)?;
                let nothing = self.number(f64::NEG_INFINITY, scores.dtype);
                let blind = self.compare("Equal", &most, &nothing)?;
                let zero = self.number(0.0, scores.dtype);
                let scores = self.choose(&blind, &zero, &scores)?;
                let shares = self.softmax("Softmax", &scores, -1)?;
                let shares = self.choose(&blind, &zero, &shares)?;
                return self.matmul(&shares, &v);
            }
        }
        let shares = self.softmax("Softmax", &scores, -1)?;
        self.matmul(&shares, &v)
    }

    /// `[N, length, heads * width]` as `[N, heads, length, width]`.
    ///
    /// # Errors
    /// [`Error::Shape`] for other dimensions, and heads that do not divide the width.
    pub(crate) fn heads_apart(&mut self, x: &Value, heads: usize) -> Result<Value> {
        let apart = self.unflatten(x, -1, &[heads as i64, -1])?;
        self.transpose(&apart, &[0, 2, 1, 3])
    }

    /// The reverse of [`heads_apart`](Self::heads_apart).
    pub(crate) fn heads_together(&mut self, x: &Value) -> Result<Value> {
        let turned = self.transpose(x, &[0, 2, 1, 3])?;
        self.flatten(&turned, 2, 3)
    }

    /// What is added to scores: `number` at places that are not seen, else 0. `mask` is 0 or false at one kind of places:
    /// those that are not seen, if it `is_seen`, else the others.
    pub(crate) fn added_mask(
        &mut self,
        mask: &Value,
        number: f64,
        is_seen: bool,
        dtype: Dtype,
    ) -> Result<Value> {
        let mask = self.cast(mask, Dtype::Bool)?;
        let [number, zero] = [number, 0.0].map(|number| self.number(number, dtype));
        match is_seen {
            true => self.choose(&mask, &zero, &number),
            false => self.choose(&mask, &number, &zero),
        }
    }

    /// Heads repeated until there are as many as of `q`.
    fn shared_heads(&mut self, t: &Value, q: &Value) -> Result<Value> {
        let op = "onnx attention";
        let ([n, _, length, width], true) = (&t.shape[..], q.dim() == 4) else {
            let message = format!("{}; must be [N, heads, length, width]", t.text());
            return Err(Error::shape(op, message));
        };
        let (own, wanted) = (t.fixed(op, 1)?, q.fixed(op, 1)?);
        if own == wanted {
            return Ok(t.clone());
        }
        if own == 0 || !wanted.is_multiple_of(own) {
            let message = format!("{wanted} query heads cannot share {own}");
            return Err(Error::shape(op, message));
        }
        let each = wanted / own;
        let axes = self.numbers(&[2]);
        let dims = |each| vec![n.clone(), own.into(), each, length.clone(), width.clone()];
        let apart = self.node("Unsqueeze", &[t, &axes], &[], t.dtype, dims(Dim::Fixed(1)));
        let ones = self.numbers(&[1, 1, each as i64, 1, 1]);
        let many = self.node("Expand", &[&apart, &ones], &[], t.dtype, dims(Dim::Fixed(each)));
        // The batch stays, the length is what is left.
        let to = self.numbers(&[0, wanted as i64, -1, t.fixed(op, 3)? as i64]);
        let shape = vec![n.clone(), wanted.into(), length.clone(), width.clone()];
        Ok(self.node("Reshape", &[&many, &to], &[], t.dtype, shape))
    }

    /// Turns pairs of the halves of the last dimension of `[N, length, heads, width]` by the angles of their places; the
    /// tables of cosines and sines are `[longest, width / 2]`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes do not fit.
    pub fn rotary(
        &mut self,
        x: &Value,
        positions: &Value,
        [cos, sin]: [&Tensor; 2],
    ) -> Result<Value> {
        let shape =
            [x.shape[1].clone(), Dim::Fixed(1), Dim::Fixed(cos.shape().last().map_or(0, |&n| n))];
        let mut rows = |table| {
            let rows = self.embedding(table, positions)?;
            let axes = self.numbers(&[1]);
            Ok(self.node("Unsqueeze", &[&rows, &axes], &[], rows.dtype, shape.clone()))
        };
        let (cos, sin) = (rows(cos)?, rows(sin)?);
        let halves = self.split(x, 2, -1)?;
        let (a, b) = (&halves[0], &halves[1]);
        let products = [(a, &cos), (b, &sin), (b, &cos), (a, &sin)];
        let mut done = Vec::with_capacity(4);
        for (half, table) in products {
            done.push(self.binary("Mul", half, table)?);
        }
        let first = self.binary("Sub", &done[0], &done[1])?;
        let second = self.binary("Add", &done[2], &done[3])?;
        self.concat(&[&first, &second], -1)
    }
}
