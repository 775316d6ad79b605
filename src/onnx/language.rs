//! Nodes of language models: positions, causal masks, attention, rotary embeddings.

use super::graph::{Attribute, Dim, Graph, Value};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

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
    pub fn attention(
        &mut self,
        [q, k, v]: [&Value; 3],
        scale: f64,
        is_causal: bool,
    ) -> Result<Value> {
        let [k, v] = [k, v].map(|t| self.shared_heads(t, q));
        let (k, v) = (k?, v?);
        let turned = self.transpose(&k, &[0, 1, 3, 2])?;
        let scale = self.number(scale, q.dtype);
        let q = self.binary("Mul", q, &scale)?;
        let mut scores = self.matmul(&q, &turned)?;
        if is_causal {
            let places = self.positions(&scores, 3);
            let rows = self.positions(&scores, 2);
            let axes = self.numbers(&[1]);
            let rows_shape = [rows.shape[0].clone(), Dim::Fixed(1)];
            let rows = self.node("Unsqueeze", &[&rows, &axes], &[], Dtype::I64, rows_shape);
            let shape = [rows.shape[0].clone(), places.shape[0].clone()];
            let seen = self.node("LessOrEqual", &[&places, &rows], &[], Dtype::Bool, shape);
            let nothing = self.number(f64::NEG_INFINITY, scores.dtype);
            let shape = scores.shape.clone();
            scores = self.node("Where", &[&seen, &scores, &nothing], &[], scores.dtype, shape);
        }
        let shares = self.softmax("Softmax", &scores, -1)?;
        self.matmul(&shares, &v)
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
