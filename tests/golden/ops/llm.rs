//! Ops of group `llm`: parts of language models, which PyTorch has no functions for.

use torchrs::Tensor;
use torchrs::nn::llm::{self, GroupedQueryOptions, LogitsOptions, RotaryOptions, RouterOptions};
use torchrs::nn::lora;

use super::Table;
use crate::arg::{Call, Outcome};

fn rotary(x: &Tensor, places: &Tensor, base: f64) -> Tensor {
    llm::rotary(x, places, &RotaryOptions { base, ..Default::default() })
}

fn gated(c: &Call, gate: impl Fn(&Tensor, &Tensor) -> Tensor) -> Outcome<Tensor> {
    let (x, down) = (c.tensor(0, "x")?, c.tensor(3, "w_down")?);
    let [a, b] = [c.tensor(1, "w_gate")?, c.tensor(2, "w_up")?].map(|w| x.linear(w, None));
    Ok(gate(&a, &b).linear(down, None))
}

fn norm(x: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    x.rms_norm(weight.shape(), Some(weight), Some(eps))
}

fn attend(q: &Tensor, k: &Tensor, v: &Tensor, window: Option<usize>) -> Tensor {
    let options = GroupedQueryOptions { window, ..Default::default() };
    llm::grouped_query_attention(q, k, v, &options)
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
    let turned = |t: Tensor| rotary(&t, places, base);
    let (q, k) = (turned(of("q_proj", heads[0])), turned(of("k_proj", heads[1])));
    let y = attend(&q, &k, &of("v_proj", heads[1]), window);
    let x = x + y.transpose(1, 2).flatten(-2, -1).linear(w("self_attn.o_proj"), None);
    let normed = norm(&x, w("post_attention_layernorm"), eps);
    let [gate, up, down] = ["gate_proj", "up_proj", "down_proj"].map(|n| w(&format!("mlp.{n}")));
    let inner = normed.linear(gate, None).swiglu(&normed.linear(up, None));
    Ok(&x + inner.linear(down, None))
}

fn positions(t: &mut Table) {
    for (name, interleaved) in [("llm.rope_half", false), ("llm.rope_interleaved", true)] {
        t.op(name, move |c| {
            let options = RotaryOptions {
                base: c.float(2, "base", 10000.0)?,
                rotary_dim: c.maybe_count(3, "rotary_dim")?,
                scale: c.float(4, "scale", 1.0)?,
                interleaved,
            };
            Ok(llm::rotary(c.tensor(0, "x")?, c.tensor(1, "positions")?, &options))
        });
    }
    t.many("llm.rope_tables", |c| {
        let (base, scale) = (c.float(2, "base", 10000.0)?, c.float(3, "scale", 1.0)?);
        let options = RotaryOptions { base, scale, ..Default::default() };
        let (places, dim) = (c.tensor(0, "positions")?, c.count(1, "dim", 0)?);
        let (cos, sin) = llm::rotary_tables(places, dim, &options);
        Ok(vec![cos, sin])
    });
    t.op("llm.alibi_slopes", |c| Ok(llm::alibi_slopes(c.count(0, "n", 0)?)));
    t.op("llm.sinusoidal", |c| {
        let (places, dim) = (c.tensor(0, "positions")?, c.count(1, "dim", 0)?);
        Ok(llm::sinusoidal_positions(places, dim, c.float(2, "base", 10000.0)?))
    });
}

fn attention(t: &mut Table) {
    t.op("llm.attention_mask", |c| {
        let (queries, keys) = (c.count(0, "tq", 0)?, c.count(1, "tk", 0)?);
        let (window, causal) = (c.maybe_count(2, "window")?, c.flag(3, "causal", true)?);
        Ok(llm::attention_mask(queries, keys, window, causal, torchrs::default_device()))
    });
    t.op("llm.gqa", |c| {
        let options = GroupedQueryOptions {
            causal: c.flag(3, "causal", true)?,
            window: c.maybe_count(4, "window")?,
            scale: c.maybe_float(5, "scale")?,
            softcap: c.maybe_float(6, "softcap")?,
            alibi: c.flag(7, "alibi", false)?,
        };
        let [q, k, v] = [c.tensor(0, "q")?, c.tensor(1, "k")?, c.tensor(2, "v")?];
        Ok(llm::grouped_query_attention(q, k, v, &options))
    });
    t.op("llm.softcap", |c| Ok(llm::softcap(c.tensor(0, "x")?, c.float(1, "c", 0.0)?)));
    t.many("llm.kv_cache_step", |c| {
        let (keys, values) = (c.tensor(3, "k_cache")?, c.tensor(4, "v_cache")?);
        let mut cache = llm::GrowingCache::from_tensors(keys.clone(), values.clone());
        let (k, v) = cache.extend(c.tensor(1, "k_new")?, c.tensor(2, "v_new")?);
        let y = attend(c.tensor(0, "q")?, &k, &v, c.maybe_count(5, "window")?);
        Ok(vec![y, k, v])
    });
    t.many("llm.static_cache_step", |c| {
        let [keys, values] = [c.tensor(3, "k_buf")?, c.tensor(4, "v_buf")?].map(Tensor::clone);
        // The step is told apart from the buffers that it began with.
        let [keys, values] = [keys * 1.0, values * 1.0];
        let mut cache = llm::StaticCache::with_length(keys, values, c.count(5, "length", 0)?);
        let (k, v) = cache.extend(c.tensor(1, "k_new")?, c.tensor(2, "v_new")?);
        let y = attend(c.tensor(0, "q")?, &k, &v, None);
        let (keys, values) = cache.buffers();
        Ok(vec![y, keys.clone(), values.clone()])
    });
}

/// The filters, whose arguments begin at `at`, and the tokens before.
fn filters(c: &Call, at: usize) -> Outcome<(LogitsOptions, Option<&Tensor>)> {
    let options = LogitsOptions {
        temperature: c.float(at, "temperature", 1.0)?,
        top_k: c.count(at + 1, "top_k", 0)?,
        top_p: c.float(at + 2, "top_p", 1.0)?,
        min_p: c.float(at + 3, "min_p", 0.0)?,
        repetition_penalty: c.float(at + 4, "penalty", 1.0)?,
    };
    Ok((options, c.maybe_tensor(at + 5, "previous")?))
}

fn sampling(t: &mut Table) {
    t.op("llm.filter_logits", |c| {
        let (options, previous) = filters(c, 1)?;
        Ok(llm::filter_logits(c.tensor(0, "logits")?, &options, previous))
    });
    t.many("llm.sample", |c| {
        let (options, previous) = filters(c, 2)?;
        let (logits, uniform) = (c.tensor(0, "logits")?, c.tensor(1, "u")?);
        let (tokens, probabilities) = llm::sample_by(logits, uniform, &options, previous);
        Ok(vec![tokens, probabilities])
    });
}

fn experts(t: &mut Table) {
    t.many("llm.router", |c| {
        let options =
            RouterOptions { k: c.count(2, "k", 2)?, capacity: c.maybe_count(3, "capacity")? };
        let routed = llm::route(c.tensor(0, "x")?, c.tensor(1, "w_router")?, &options);
        Ok(vec![routed.gates, routed.experts, routed.slots, routed.balance_loss])
    });
    t.many("llm.moe", |c| {
        let options =
            RouterOptions { k: c.count(5, "k", 2)?, capacity: c.maybe_count(6, "capacity")? };
        let weights = [c.tensor(2, "w_gate")?, c.tensor(3, "w_up")?, c.tensor(4, "w_down")?];
        let (x, router) = (c.tensor(0, "x")?, c.tensor(1, "w_router")?);
        let (y, balance) = llm::mixture_of_experts(x, router, weights, &options);
        Ok(vec![y, balance])
    });
    t.op("llm.router_z_loss", |c| Ok(llm::router_z_loss(c.tensor(0, "logits")?)));
}

fn losses(t: &mut Table) {
    t.many("llm.cross_entropy_z", |c| {
        let options = llm::CrossEntropyZOptions {
            z_weight: c.float(2, "z_weight", 1e-4)?,
            label_smoothing: c.float(3, "label_smoothing", 0.0)?,
            ignore_index: c.int(4, "ignore_index", -100)?,
        };
        let (logits, targets) = (c.tensor(0, "logits")?, c.tensor(1, "targets")?);
        let all = llm::cross_entropy_z(logits, targets, &options);
        Ok(vec![all.loss, all.cross_entropy, all.z])
    });
    t.op("llm.dpo_loss", |c| {
        let policy = [c.tensor(0, "pc")?, c.tensor(1, "pr")?];
        let reference = [c.tensor(2, "rc")?, c.tensor(3, "rr")?];
        Ok(llm::dpo_loss(policy, reference, c.float(4, "beta", 0.1)?))
    });
    t.op("llm.gather_log_probs", |c| {
        Ok(llm::gather_log_probs(c.tensor(0, "logits")?, c.tensor(1, "tokens")?))
    });
    t.op("llm.kl_distill", |c| {
        let (student, teacher) = (c.tensor(0, "student")?, c.tensor(1, "teacher")?);
        Ok(llm::distillation_loss(student, teacher, c.float(2, "temperature", 2.0)?))
    });
}

pub fn fill(t: &mut Table) {
    t.op("llm.rms_norm", |c| {
        Ok(norm(c.tensor(0, "x")?, c.tensor(1, "weight")?, c.float(2, "eps", 1e-6)?))
    });
    t.op("llm.swiglu", |c| gated(c, |gate, up| gate.swiglu(up)));
    t.op("llm.geglu", |c| gated(c, llm::geglu));
    t.op("llm.decoder_layer", decoder_layer);
    t.op("llm.lora_linear", |c| {
        let matrices = [c.tensor(2, "a")?, c.tensor(3, "b")?];
        let (x, w, alpha) = (c.tensor(0, "x")?, c.tensor(1, "w")?, c.float(4, "alpha", 8.0)?);
        Ok(lora::lora_linear(x, w, matrices, alpha))
    });
    positions(t);
    attention(t);
    sampling(t);
    experts(t);
    losses(t);
}
