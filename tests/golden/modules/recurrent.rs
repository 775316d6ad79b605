//! Recurrent modules: cells and layers.

use serde_json::Value;
use torchrs::Tensor;
use torchrs::nn::{
    self, PackPaddedSequenceOptions, PackedSequence, PadPackedSequenceOptions, RNNNonlinearity,
    RNNOptions, pack_padded_sequence, pad_packed_sequence,
};

use super::{Built, Setup, built};
use crate::arg::{Arg, Call, Outcome, lacks};

fn nonlinearity(c: &Call, i: usize) -> Outcome<RNNNonlinearity> {
    c.choice(i, "nonlinearity", &[("tanh", RNNNonlinearity::Tanh), ("relu", RNNNonlinearity::Relu)])
}

fn options(c: &Call, first: usize) -> Outcome<RNNOptions> {
    Ok(RNNOptions {
        num_layers: c.count(first, "num_layers", 1)?,
        bias: c.flag(first + 1, "bias", true)?,
        batch_first: c.flag(first + 2, "batch_first", false)?,
        dropout: c.float(first + 3, "dropout", 0.0)?,
        bidirectional: c.flag(first + 4, "bidirectional", false)?,
        proj_size: c.count(first + 5, "proj_size", 0)?,
    })
}

/// The first and second of a pair.
fn pair(c: &Call, i: usize) -> Outcome<Option<(Tensor, Tensor)>> {
    Ok(match c.get(i, "hx") {
        Arg::None => None,
        _ => {
            let list = c.tensor_list(i, "hx")?;
            Some((list[0].clone(), list[1].clone()))
        }
    })
}

fn both((a, b): (Tensor, Tensor)) -> Arg {
    Arg::List(vec![Arg::Tensor(a), Arg::Tensor(b)])
}

/// The case's packing: packs an input, and pads an output back to the input's length.
#[derive(Clone)]
struct Packing {
    lengths: Vec<usize>,
    batch_first: bool,
    enforce_sorted: bool,
}

impl Packing {
    fn of(packed: &Value) -> Option<Self> {
        let lengths = packed.get("lengths")?.as_array()?;
        Some(Packing {
            lengths: lengths.iter().filter_map(Value::as_u64).map(|n| n as usize).collect(),
            batch_first: packed["batch_first"] == true,
            enforce_sorted: packed["enforce_sorted"] != false,
        })
    }

    fn pack(&self, x: &Tensor) -> PackedSequence {
        let Packing { batch_first, enforce_sorted, .. } = *self;
        pack_padded_sequence(
            x,
            &self.lengths,
            PackPaddedSequenceOptions { batch_first, enforce_sorted },
        )
    }

    fn pad(&self, packed: &PackedSequence, x: &Tensor) -> Tensor {
        let time = x.size(if self.batch_first { 1 } else { 0 });
        let options = PadPackedSequenceOptions {
            batch_first: self.batch_first,
            total_length: Some(time),
            ..Default::default()
        };
        pad_packed_sequence(packed, options).0
    }
}

macro_rules! layers_with_one_state {
    ($setup:ident, $layers:expr) => {{
        let packing = Packing::of(&$setup.packed);
        built($setup, $layers, move |layers, c| {
            let (x, hx) = (c.tensor(0, "input")?, c.maybe_tensor(1, "hx")?);
            Ok(both(match &packing {
                None => layers.forward(x, hx),
                Some(packing) => {
                    let (out, h) = layers.forward_packed(&packing.pack(x), hx);
                    (packing.pad(&out, x), h)
                }
            }))
        })
    }};
}

pub fn build(setup: &Setup) -> Option<Outcome<Built>> {
    let c = &setup.args;
    let sizes = || -> Outcome<(usize, usize)> {
        Ok((c.count(0, "input_size", 0)?, c.count(1, "hidden_size", 0)?))
    };
    let build = || match setup.op.as_str() {
        "nn.RNNCell" => {
            let (inputs, hidden) = sizes()?;
            let mut cell = nn::RNNCell::new(inputs, hidden);
            if !c.truth(2, "bias", true)? {
                cell = cell.no_bias();
            }
            cell = cell.nonlinearity(nonlinearity(c, 3)?);
            built(setup, cell, |cell, c| {
                let hx = c.maybe_tensor(1, "hx")?;
                Ok(Arg::Tensor(cell.forward(c.tensor(0, "input")?, hx)))
            })
        }
        "nn.GRUCell" => {
            let (inputs, hidden) = sizes()?;
            let mut cell = nn::GRUCell::new(inputs, hidden);
            if !c.truth(2, "bias", true)? {
                cell = cell.no_bias();
            }
            built(setup, cell, |cell, c| {
                let hx = c.maybe_tensor(1, "hx")?;
                Ok(Arg::Tensor(cell.forward(c.tensor(0, "input")?, hx)))
            })
        }
        "nn.LSTMCell" => {
            let (inputs, hidden) = sizes()?;
            let mut cell = nn::LSTMCell::new(inputs, hidden);
            if !c.flag(2, "bias", true)? {
                cell = cell.no_bias();
            }
            built(setup, cell, |cell, c| {
                let hx = pair(c, 1)?;
                let hx = hx.as_ref().map(|(h, c)| (h, c));
                Ok(both(cell.forward(c.tensor(0, "input")?, hx)))
            })
        }
        "nn.RNN" => {
            let ((inputs, hidden), kind) = (sizes()?, nonlinearity(c, usize::MAX)?);
            let layers = nn::RNN::with_nonlinearity(inputs, hidden, kind, options(c, 2)?);
            layers_with_one_state!(setup, layers)
        }
        "nn.GRU" => {
            let (inputs, hidden) = sizes()?;
            layers_with_one_state!(setup, nn::GRU::new(inputs, hidden, options(c, 2)?))
        }
        "nn.LSTM" => {
            let (inputs, hidden) = sizes()?;
            let packing = Packing::of(&setup.packed);
            built(setup, nn::LSTM::new(inputs, hidden, options(c, 2)?), move |layers, c| {
                let (x, hx) = (c.tensor(0, "input")?, pair(c, 1)?);
                let hx = hx.as_ref().map(|(h, c)| (h, c));
                let (out, state) = match &packing {
                    None => layers.forward(x, hx),
                    Some(packing) => {
                        let (out, state) = layers.forward_packed(&packing.pack(x), hx);
                        (packing.pad(&out, x), state)
                    }
                };
                Ok(Arg::List(vec![Arg::Tensor(out), both(state)]))
            })
        }
        _ => lacks(""),
    };
    Some(build())
        .filter(|b| !matches!(b, Err(crate::arg::Stop::NotImplemented(why)) if why.is_empty()))
}
