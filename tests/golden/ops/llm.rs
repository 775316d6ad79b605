//! Ops of group `llm`: parts of language models, made of the ops that `models::llama` is made of.

use torchrs::ops::AttentionOptions;
use torchrs::{Dtype, Tensor};

use super::Table;
use crate::arg::{Call, Outcome, lacks};

/// Turned by angles that are computed in f64; tables of half types are of f32.
fn rope_half(x: &Tensor, places: &Tensor, base: f64, width: usize) -> Tensor {
    let frequencies: Vec<f64> =
        (0..width / 2).map(|i| base.powf(-2.0 * i as f64 / width as f64)).collect();
    let frequencies = Tensor::from_slice(&frequencies, [width / 2]).to_device(x.device());
    let angles = places.to_dtype(Dtype::F64).unsqueeze(-1) * frequencies;
    let table = |t: Tensor| match x.dtype() {
        Dtype::F16 | Dtype::BF16 => t.to_dtype(Dtype::F32),
        other => t.to_dtype(other),
    };
    x.rotary_embedding(&table(angles.cos()), &table(angles.sin()))
}

/// Attention of queries at the end of the keys.
fn gqa([q, k, v]: [&Tensor; 3], causal: bool, window: Option<usize>, scale: Option<f64>) -> Tensor {
    let (queries, keys) = (q.size(-2), k.size(-2));
    let past = (keys - queries) as i64;
    let all = Tensor::ones([queries, keys], (Dtype::Bool, q.device()));
    let mut seen = if causal { all.tril(past) } else { all };
    if let Some(window) = window {
        seen = seen.triu(past + 1 - window as i64);
    }
    let options =
        AttentionOptions { attn_mask: Some(seen), scale, enable_gqa: true, ..Default::default() };
    q.scaled_dot_product_attention_with(k, v, &options)
}

fn swiglu(x: &Tensor, gate: &Tensor, up: &Tensor, down: &Tensor) -> Tensor {
    x.linear(gate, None).swiglu(&x.linear(up, None)).linear(down, None)
}

fn norm(x: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    x.rms_norm(weight.shape(), Some(weight), Some(eps))
}

fn decoder_layer(c: &Call) -> Outcome<Tensor> {
    let (x, weights) = (c.tensor(0, "x")?, c.tensors_by_name(1, "weights")?);
    let w = |name: &str| &weights[&format!("{name}.weight")];
    let heads = [c.count(2, "n_heads", 0)?, c.count(3, "n_kv_heads", 0)?];
    let (places, base) = (c.tensor(4, "positions")?, c.float(5, "base", 10000.0)?);
    let (eps, window) = (c.float(6, "eps", 1e-6)?, c.maybe_count(7, "window")?);
    let normed = norm(x, w("input_layernorm"), eps);
    let of = |name: &str, heads: usize| {
        let all = normed.linear(w(&format!("self_attn.{name}")), None);
        all.unflatten(-1, &[heads as i64, -1]).transpose(1, 2)
    };
    let turned = |t: Tensor| rope_half(&t, places, base, t.size(-1));
    let (q, k) = (turned(of("q_proj", heads[0])), turned(of("k_proj", heads[1])));
    let y = gqa([&q, &k, &of("v_proj", heads[1])], true, window, None);
    let x = x + y.transpose(1, 2).flatten(-2, -1).linear(w("self_attn.o_proj"), None);
    let normed = norm(&x, w("post_attention_layernorm"), eps);
    let [gate, up, down] = ["gate_proj", "up_proj", "down_proj"].map(|n| w(&format!("mlp.{n}")));
    Ok(&x + swiglu(&normed, gate, up, down))
}

pub fn fill(t: &mut Table) {
    t.op("llm.rope_half", |c| {
        let (x, places) = (c.tensor(0, "x")?, c.tensor(1, "positions")?);
        let width = c.count(3, "rotary_dim", x.size(-1))?;
        Ok(rope_half(x, places, c.float(2, "base", 10000.0)?, width))
    });
    t.op("llm.rms_norm", |c| {
        Ok(norm(c.tensor(0, "x")?, c.tensor(1, "weight")?, c.float(2, "eps", 1e-6)?))
    });
    t.op("llm.swiglu", |c| {
        let [x, gate, up, down] = [(0, "x"), (1, "w_gate"), (2, "w_up"), (3, "w_down")]
            .map(|(i, name)| c.tensor(i, name));
        Ok(swiglu(x?, gate?, up?, down?))
    });
    t.op("llm.gqa", |c| {
        if c.given(6, "softcap") || c.given(7, "alibi") {
            return lacks("no attention with changed scores");
        }
        let qkv = [c.tensor(0, "q")?, c.tensor(1, "k")?, c.tensor(2, "v")?];
        let window = c.maybe_count(4, "window")?;
        Ok(gqa(qkv, c.flag(3, "causal", true)?, window, c.maybe_float(5, "scale")?))
    });
    t.op("llm.decoder_layer", decoder_layer);
}
