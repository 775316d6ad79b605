//! Ops of group `util`: clipping, packing, initial values. What their arguments stand for is in the
//! cases' notes.

use torchrs::nn::{self, init};
use torchrs::{Dtype, Tensor};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

/// Parameters whose gradients are the given tensors.
fn with_gradients(grads: &[Tensor]) -> Vec<Tensor> {
    let parameter = |g: &Tensor| {
        let p = g.zeros_like().requires_grad_(true);
        p.set_grad(Some(g.detach().clone_contiguous()));
        p
    };
    grads.iter().map(parameter).collect()
}

fn gradients(parameters: &[Tensor]) -> Vec<Arg> {
    parameters.iter().map(|p| Arg::Tensor(p.grad().expect("set before"))).collect()
}

/// A fresh float32 tensor of the shape that argument 0 is.
fn fresh(c: &Call) -> Outcome<Tensor> {
    Ok(Tensor::ones(c.sizes(0, "tensor")?, Dtype::F32))
}

fn integers(values: &[i64]) -> Arg {
    Arg::Tensor(Tensor::from_slice(values, [values.len()]))
}

pub fn fill(t: &mut Table) {
    t.any("nn.utils.clip_grad_norm_", |c| {
        let parameters = with_gradients(&c.tensor_list(0, "parameters")?);
        let (max, kind) = (c.float(1, "max_norm", 0.0)?, c.float(2, "norm_type", 2.0)?);
        let strict = c.flag(3, "error_if_nonfinite", false)?;
        c.get(4, "foreach");
        let norm = nn::clip_grad_norm_with(&parameters, max, kind, strict)
            .unwrap_or_else(|error| torchrs::error::throw(error));
        let mut result = vec![Arg::Tensor(norm)];
        result.extend(gradients(&parameters));
        Ok(Arg::List(result))
    });
    t.any("nn.utils.clip_grad_value_", |c| {
        let parameters = with_gradients(&c.tensor_list(0, "parameters")?);
        nn::clip_grad_value_(&parameters, c.float(1, "clip_value", 0.0)?);
        Ok(Arg::List(gradients(&parameters)))
    });
    t.op("nn.utils.get_total_norm", |c| {
        Ok(nn::get_total_norm(&c.tensor_list(0, "tensors")?, c.float(1, "norm_type", 2.0)?))
    });
    t.op("nn.utils.parameters_to_vector", |c| {
        Ok(nn::parameters_to_vector(&c.tensor_list(0, "parameters")?))
    });
    t.op("nn.utils.rnn.pad_sequence", |c| {
        let sequences = c.tensor_list(0, "sequences")?;
        let batch_first = c.flag(1, "batch_first", false)?;
        let padding_value = c.float(2, "padding_value", 0.0)?;
        let padding_left = c.choice(3, "padding_side", &[("right", false), ("left", true)])?;
        Ok(nn::pad_sequence(
            &sequences,
            nn::PadSequenceOptions { batch_first, padding_value, padding_left },
        ))
    });
    packing(t);
    t.op("nn.init.zeros_", |c| {
        let x = fresh(c)?;
        init::zeros_(&x);
        Ok(x)
    });
    t.op("nn.init.ones_", |c| {
        let x = fresh(c)?;
        x.fill_(0.0);
        init::ones_(&x);
        Ok(x)
    });
    t.op("nn.init.constant_", |c| {
        let x = fresh(c)?;
        init::constant_(&x, c.float(1, "val", 0.0)?);
        Ok(x)
    });
    t.op("nn.init.eye_", |c| {
        let x = fresh(c)?;
        init::eye_(&x);
        Ok(x)
    });
    t.op("nn.init.dirac_", |c| {
        let x = fresh(c)?;
        init::dirac_(&x, c.count(1, "groups", 1)?);
        Ok(x)
    });
    t.any("nn.init.calculate_gain", |c| {
        let slope = c.float(1, "param", 0.01)?;
        let kind = match c.text(0, "nonlinearity", "")?.as_str() {
            "relu" => init::Nonlinearity::Relu,
            "tanh" => init::Nonlinearity::Tanh,
            "selu" => init::Nonlinearity::Selu,
            "leaky_relu" => init::Nonlinearity::LeakyRelu(slope),
            "linear" | "sigmoid" | "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d"
            | "conv_transpose2d" | "conv_transpose3d" => init::Nonlinearity::Linear,
            other => return Err(Stop::Unwritable(format!("nonlinearity {other}"))),
        };
        Ok(Arg::Float(init::calculate_gain(kind)))
    });
    t.any("nn.init._calculate_fan_in_and_fan_out", |c| {
        let (fan_in, fan_out) = init::fan_in_and_fan_out(&fresh(c)?);
        Ok(Arg::List(vec![Arg::Int(fan_in as i64), Arg::Int(fan_out as i64)]))
    });
}

/// Lengths, given as a tensor or a list.
fn lengths(c: &Call, i: usize, name: &str) -> Outcome<Vec<usize>> {
    match c.get(i, name) {
        Arg::Tensor(t) => t
            .to_vec::<i64>()
            .into_iter()
            .map(|n| n.try_into().or_else(|_| c.odd(i, name)))
            .collect(),
        _ => c.sizes(i, name),
    }
}

/// The parts of packed sequences that a case lists: with `enforce_sorted` given the indices too.
fn parts(packed: nn::PackedSequence, indices: bool) -> Arg {
    let sizes: Vec<i64> = packed.batch_sizes.iter().map(|&n| n as i64).collect();
    let mut parts = vec![Arg::Tensor(packed.data.clone()), integers(&sizes)];
    if indices {
        let list = |list: Option<Vec<i64>>| list.map_or(Arg::None, |list| integers(&list));
        parts.extend([list(packed.sorted_indices.clone()), list(packed.unsorted_indices())]);
    }
    Arg::List(parts)
}

/// Sequences of different lengths.
fn packing(t: &mut Table) {
    t.any("nn.utils.rnn.pack_padded_sequence", |c| {
        let lengths = lengths(c, 1, "lengths")?;
        let batch_first = c.flag(2, "batch_first", false)?;
        let (given, sorted) = (c.given(3, "enforce_sorted"), c.flag(3, "enforce_sorted", true)?);
        let x = c.tensor(0, "input")?;
        let options = nn::PackPaddedSequenceOptions { batch_first, enforce_sorted: sorted };
        Ok(parts(nn::pack_padded_sequence(x, &lengths, options), given))
    });
    t.any("nn.utils.rnn.pack_sequence", |c| {
        let sequences = c.tensor_list(0, "sequences")?;
        let (given, sorted) = (c.given(1, "enforce_sorted"), c.flag(1, "enforce_sorted", true)?);
        Ok(parts(nn::pack_sequence(&sequences, sorted), given))
    });
    t.any("nn.utils.rnn.pad_packed_sequence", |c| {
        let data = c.tensor(0, "data")?.clone();
        let batch_sizes = lengths(c, 1, "batch_sizes")?;
        let batch_first = c.flag(2, "batch_first", false)?;
        let padding_value = c.float(3, "padding_value", 0.0)?;
        let total_length = c.maybe_count(4, "total_length")?;
        let options = nn::PadPackedSequenceOptions { batch_first, padding_value, total_length };
        let packed = nn::PackedSequence { data, batch_sizes, sorted_indices: None };
        let (padded, lengths) = nn::pad_packed_sequence(&packed, options);
        let lengths: Vec<i64> = lengths.iter().map(|&n| n as i64).collect();
        Ok(Arg::List(vec![Arg::Tensor(padded), integers(&lengths)]))
    });
    t.many("nn.utils.rnn.unpad_sequence", |c| {
        let lengths = lengths(c, 1, "lengths")?;
        Ok(nn::unpad_sequence(
            c.tensor(0, "padded_sequences")?,
            &lengths,
            c.flag(2, "batch_first", false)?,
        ))
    });
    t.many("nn.utils.rnn.unpack_sequence", |c| {
        let data = c.tensor(0, "data")?.clone();
        let batch_sizes = lengths(c, 1, "batch_sizes")?;
        Ok(nn::unpack_sequence(&nn::PackedSequence { data, batch_sizes, sorted_indices: None }))
    });
}
