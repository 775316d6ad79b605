//! Nodes of recurrent layers.

use super::graph::{Attribute, Dim, Graph, Value};
use super::layers::of_one_type;
use crate::error::{Error, Result};
use crate::ops::rnn::Cell;
use crate::tensor::{Dtype, Tensor};

/// The weights of one direction.
#[derive(Clone, Copy)]
pub(crate) struct DirectionWeights<'a> {
    /// `[gates * hidden, inputs]`.
    pub(crate) weight_ih: &'a Tensor,
    /// `[gates * hidden, hidden]`.
    pub(crate) weight_hh: &'a Tensor,
    /// Of inputs and of states, `[gates * hidden]` each.
    pub(crate) biases: Option<[&'a Tensor; 2]>,
}

/// The operator, and where ONNX has which of our gates.
fn operator(cell: Cell) -> (&'static str, &'static [usize]) {
    match cell {
        // Ours: input, forget, cell, output. ONNX: input, output, forget, cell.
        Cell::Lstm => ("LSTM", &[0, 3, 1, 2]),
        // Ours: reset, update, new. ONNX: update, reset, new.
        Cell::Gru => ("GRU", &[1, 0, 2]),
        Cell::Tanh | Cell::Relu => ("RNN", &[0]),
    }
}

/// Rows gate by gate in another order.
fn reordered(t: &Tensor, order: &[usize]) -> Tensor {
    let gates = t.detach().chunk(order.len(), 0);
    Tensor::cat(&order.iter().map(|&gate| gates[gate].clone()).collect::<Vec<_>>(), 0)
}

impl Graph {
    /// One layer over sequences `[time, N, inputs]`: outputs `[time, N, directions * hidden]` and the last states,
    /// `[directions, N, hidden]`. The second direction reads backwards. With `lengths`, `[N]`, outputs behind a sequence's
    /// end are 0. `first` are the states before.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::Dtype`] for inputs that do not fit the weights.
    pub(crate) fn recurrent(
        &mut self,
        cell: Cell,
        x: &Value,
        weights: &[DirectionWeights],
        lengths: Option<&Value>,
        first: Option<&[Value]>,
    ) -> Result<(Value, Vec<Value>)> {
        let (operator, order) = operator(cell);
        let op = format!("onnx {operator}");
        let one = weights[0];
        let [inputs, hidden] = [one.weight_ih, one.weight_hh].map(|weight| weight.shape()[1]);
        of_one_type(&op, x, &[Some(one.weight_ih)])?;
        if x.dim() != 3 || x.fixed(&op, 2)? != inputs {
            let message = format!("input {} must be [time, N, {inputs}]", x.text());
            return Err(Error::shape(&op, message));
        }
        let count = Dim::Fixed(weights.len());
        let state_shape = [count.clone(), x.shape[1].clone(), Dim::Fixed(hidden)];
        for state in first.into_iter().flatten() {
            let fits = |(own, wanted): (&Dim, &Dim)| {
                own == wanted || matches!((own, wanted), (Dim::Named(_), _) | (_, Dim::Named(_)))
            };
            if state.dim() != 3 || !state.shape.iter().zip(&state_shape).all(fits) {
                let message =
                    format!("state {} of each layer must be [{count}, N, {hidden}]", state.text());
                return Err(Error::shape(&op, message));
            }
        }
        let stacked = |part: &dyn Fn(&DirectionWeights) -> Tensor| {
            Tensor::stack(&weights.iter().map(part).collect::<Vec<_>>(), 0)
        };
        let w = stacked(&|d| reordered(d.weight_ih, order));
        let r = stacked(&|d| reordered(d.weight_hh, order));
        let (w, r) = (self.derived(one.weight_ih, w), self.derived(one.weight_hh, r));
        let bias = match one.biases {
            None => Value::absent(),
            Some([of, _]) => {
                let both = stacked(&|d| {
                    let [ih, hh] =
                        d.biases.expect("all directions have them").map(|b| reordered(b, order));
                    Tensor::cat(&[ih, hh], 0)
                });
                self.derived(of, both)
            }
        };
        let lengths = match lengths {
            None => Value::absent(),
            Some(lengths) if lengths.dim() == 1 => self.cast(lengths, Dtype::I32)?,
            Some(lengths) => {
                let message = format!("lengths {} must be [N]", lengths.text());
                return Err(Error::shape(&op, message));
            }
        };
        let mut inputs = vec![x, &w, &r, &bias, &lengths];
        inputs.extend(first.into_iter().flatten());
        while inputs.last().is_some_and(|input| input.name.is_empty()) {
            inputs.pop();
        }
        let direction = if weights.len() == 2 { "bidirectional" } else { "forward" };
        let mut attributes = vec![
            ("hidden_size", Attribute::Int(hidden as i64)),
            ("direction", Attribute::Text(direction.to_owned())),
        ];
        match cell {
            Cell::Gru => attributes.push(("linear_before_reset", Attribute::Int(1))),
            Cell::Relu => {
                let relu = vec!["Relu".to_owned(); weights.len()];
                attributes.push(("activations", Attribute::Texts(relu)));
            }
            Cell::Tanh | Cell::Lstm => {}
        }
        let states = if cell == Cell::Lstm { 2 } else { 1 };
        let names: Vec<String> =
            (0..=states).map(|_| self.unique(&operator.to_lowercase())).collect();
        let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        self.add(operator, &inputs, &outputs, &attributes);
        let [time, batch, _] = &x.shape[..] else { unreachable!("as was looked") };
        let mut values = names.into_iter().enumerate().map(|(i, name)| {
            let shape = match i {
                0 => vec![time.clone(), count.clone(), batch.clone(), Dim::Fixed(hidden)],
                _ => state_shape.to_vec(),
            };
            Value { name, dtype: x.dtype, shape }
        });
        let y = values.next().expect("at least one");
        let states = values.collect();
        let y = match weights.len() {
            1 => self.squeeze(&y, 1)?,
            n => {
                let y = self.transpose(&y, &[0, 2, 1, 3])?;
                self.reshape(&y, vec![time.clone(), batch.clone(), Dim::Fixed(n * hidden)])?
            }
        };
        Ok((y, states))
    }
}
