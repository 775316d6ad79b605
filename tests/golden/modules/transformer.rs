//! Attention and transformer modules.

use torchrs::nn::{
    self, AttentionWeights, MultiheadAttentionOptions, TransformerActivation, TransformerMasks,
    TransformerOptions,
};

use super::{Built, Setup, built, with_arguments_of};
use crate::arg::{Arg, Call, Outcome, Stop, lacks};

/// Options of layers, whose first is positional argument `i`.
fn options(c: &Call, i: usize) -> Outcome<TransformerOptions> {
    Ok(TransformerOptions {
        dim_feedforward: c.count(i, "dim_feedforward", 2048)?,
        dropout: c.float(i + 1, "dropout", 0.1)?,
        activation: match c.text(i + 2, "activation", "relu")?.as_str() {
            "gelu" => TransformerActivation::Gelu,
            "relu" => TransformerActivation::Relu,
            other => return lacks(other),
        },
        layer_norm_eps: c.float(usize::MAX, "layer_norm_eps", 1e-5)?,
        batch_first: c.flag(usize::MAX, "batch_first", false)?,
        norm_first: c.flag(usize::MAX, "norm_first", false)?,
        bias: c.flag(usize::MAX, "bias", true)?,
    })
}

fn encoder_layer(c: &Call) -> Outcome<nn::TransformerEncoderLayer> {
    let (width, heads) = (c.count(0, "d_model", 0)?, c.count(1, "nhead", 0)?);
    Ok(nn::TransformerEncoderLayer::new(width, heads, options(c, 2)?))
}

pub fn build(setup: &Setup) -> Option<Outcome<Built>> {
    let c = &setup.args;
    let build = || match setup.op.as_str() {
        "nn.MultiheadAttention" => {
            let options = MultiheadAttentionOptions {
                dropout: c.float(2, "dropout", 0.0)?,
                bias: c.flag(3, "bias", true)?,
                add_bias_kv: c.flag(4, "add_bias_kv", false)?,
                add_zero_attn: c.flag(5, "add_zero_attn", false)?,
                kdim: c.maybe_int(6, "kdim")?.map(|n| n as usize),
                vdim: c.maybe_int(7, "vdim")?.map(|n| n as usize),
                batch_first: c.flag(8, "batch_first", false)?,
            };
            let (width, heads) = (c.count(0, "embed_dim", 0)?, c.count(1, "num_heads", 0)?);
            built(setup, nn::MultiheadAttention::new(width, heads, options), attend)
        }
        "nn.TransformerEncoderLayer" => built(setup, encoder_layer(c)?, |layer, c| {
            let mask = c.maybe_tensor(1, "src_mask")?;
            let padding = c.maybe_tensor(2, "src_key_padding_mask")?;
            Ok(Arg::Tensor(layer.forward(c.tensor(0, "src")?, mask, padding)))
        }),
        "nn.TransformerEncoder" => {
            let (layer, norm) = (&setup.tree["encoder_layer"], &setup.tree["norm"]);
            let count = setup.tree["num_layers"].as_u64().unwrap_or(1);
            let layers = (0..count)
                .map(|_| with_arguments_of(layer, encoder_layer))
                .collect::<Outcome<_>>()?;
            let norm = match norm.is_null() {
                true => None,
                false => Some(with_arguments_of(norm, |c| {
                    Ok(nn::LayerNorm::new(c.count(0, "normalized_shape", 1)?))
                })?),
            };
            built(setup, nn::TransformerEncoder::new(layers, norm), |encoder, c| {
                let mask = c.maybe_tensor(1, "mask")?;
                let padding = c.maybe_tensor(2, "src_key_padding_mask")?;
                Ok(Arg::Tensor(encoder.forward(c.tensor(0, "src")?, mask, padding)))
            })
        }
        "nn.TransformerDecoderLayer" => {
            let (width, heads) = (c.count(0, "d_model", 0)?, c.count(1, "nhead", 0)?);
            let layer = nn::TransformerDecoderLayer::new(width, heads, options(c, 2)?);
            built(setup, layer, |layer, c| {
                let masks =
                    (c.maybe_tensor(2, "tgt_mask")?, c.maybe_tensor(4, "tgt_key_padding_mask")?);
                let memory_masks = (
                    c.maybe_tensor(3, "memory_mask")?,
                    c.maybe_tensor(5, "memory_key_padding_mask")?,
                );
                let (tgt, memory) = (c.tensor(0, "tgt")?, c.tensor(1, "memory")?);
                Ok(Arg::Tensor(layer.forward(tgt, memory, masks, memory_masks)))
            })
        }
        "nn.Transformer" => {
            let (width, heads) = (c.count(0, "d_model", 512)?, c.count(1, "nhead", 8)?);
            let encoders = c.count(2, "num_encoder_layers", 6)?;
            let decoders = c.count(3, "num_decoder_layers", 6)?;
            let model = nn::Transformer::new(width, heads, encoders, decoders, options(c, 4)?);
            built(setup, model, |model, c| {
                let mask = |i, name| Outcome::Ok(c.maybe_tensor(i, name)?.cloned());
                let masks = TransformerMasks {
                    src_mask: mask(2, "src_mask")?,
                    tgt_mask: mask(3, "tgt_mask")?,
                    memory_mask: mask(4, "memory_mask")?,
                    src_key_padding_mask: mask(5, "src_key_padding_mask")?,
                    tgt_key_padding_mask: mask(6, "tgt_key_padding_mask")?,
                    memory_key_padding_mask: mask(7, "memory_key_padding_mask")?,
                };
                let (src, tgt) = (c.tensor(0, "src")?, c.tensor(1, "tgt")?);
                Ok(Arg::Tensor(model.forward(src, tgt, &masks)))
            })
        }
        _ => lacks(""),
    };
    Some(build()).filter(|b| !matches!(b, Err(Stop::NotImplemented(why)) if why.is_empty()))
}

fn attend(layer: &nn::MultiheadAttention, c: &Call) -> Outcome {
    let (q, k, v) = (c.tensor(0, "query")?, c.tensor(1, "key")?, c.tensor(2, "value")?);
    let padding = c.maybe_tensor(3, "key_padding_mask")?;
    let weights = match c.flag(4, "need_weights", true)? {
        false => AttentionWeights::None,
        true if c.flag(6, "average_attn_weights", true)? => AttentionWeights::Average,
        true => AttentionWeights::PerHead,
    };
    let mask = c.maybe_tensor(5, "attn_mask")?;
    // A hint of what the mask is.
    if c.flag(7, "is_causal", false)? && mask.is_none() {
        return c.odd(7, "is_causal");
    }
    let (out, weights) = layer.forward(q, k, v, padding, mask, weights);
    Ok(Arg::List(vec![Arg::Tensor(out), weights.map_or(Arg::None, Arg::Tensor)]))
}
