//! Samples of functions that are made of ops: what they are made of is right by its own samples, and what is put
//! together may still be on the wrong device, of the wrong type or without a second derivative.

use super::samples::{OpSample, Order, positive, values};
use crate::nn::llm;
use crate::ops::{AttentionOptions, Indexing};
use crate::tensor::{Dtype, Tensor};

/// All of them.
pub fn list() -> Vec<OpSample> {
    [language_models(), statistics(), shapes(), numbers()].into_iter().flatten().collect()
}

/// Classes below 4, a list.
fn classes(n: usize) -> Tensor {
    let all: Vec<i64> = (0..n as i64).map(|i| (i * 3 + 1) % 4).collect();
    Tensor::from_slice(&all, [n])
}

/// What every type has of whole numbers, on the device of `like`.
fn places(n: i64, like: &Tensor) -> Tensor {
    Tensor::arange(0i64, n, 1i64, (Dtype::I64, like.device()))
}

fn language_models() -> Vec<OpSample> {
    let heads = || [values([2, 4, 3, 4], 1), values([2, 2, 5, 4], 2), values([2, 2, 5, 4], 3)];
    let grouped = |name: &str, options: llm::GroupedQueryOptions| {
        OpSample::new(name, heads(), move |x| {
            llm::grouped_query_attention(&x[0], &x[1], &x[2], &options)
        })
        .slack(16.0)
    };
    let attention = llm::GroupedQueryOptions::default();
    let turned =
        llm::RotaryOptions { interleaved: true, rotary_dim: Some(4), ..Default::default() };
    let logits = || [values([4, 5], 1)];
    let experts = || {
        let shapes: [&[usize]; 5] = [&[5, 4], &[3, 4], &[3, 2, 4], &[3, 2, 4], &[3, 4, 2]];
        let inputs: Vec<Tensor> =
            shapes.iter().enumerate().map(|(i, shape)| values(shape, i as u64)).collect();
        inputs
    };
    vec![
        OpSample::new("llm.softcap", [values([2, 5], 1)], |x| llm::softcap(&x[0], 1.5)).slack(4.0),
        OpSample::new("llm.geglu", [values([2, 5], 1), values([2, 5], 2)], |x| {
            llm::geglu(&x[0], &x[1])
        })
        .slack(8.0),
        grouped("llm.grouped_query_attention", attention),
        grouped(
            "llm.grouped_query_attention(window, alibi)",
            llm::GroupedQueryOptions { window: Some(2), alibi: true, ..attention },
        ),
        grouped(
            "llm.grouped_query_attention(softcap)",
            llm::GroupedQueryOptions { softcap: Some(2.0), ..attention },
        ),
        grouped(
            "llm.grouped_query_attention(softcap, window, alibi)",
            llm::GroupedQueryOptions {
                softcap: Some(2.0),
                window: Some(3),
                alibi: true,
                causal: false,
                ..attention
            },
        ),
        OpSample::new("llm.cross_entropy_z", [values([4, 5], 1), classes(4)], |x| {
            let options =
                llm::CrossEntropyZOptions { z_weight: 0.1, ignore_index: 3, ..Default::default() };
            llm::cross_entropy_z(&x[0], &x[1], &options).loss
        })
        .slack(8.0),
        OpSample::new("llm.gather_log_probs", [values([4, 5], 1), classes(4)], |x| {
            llm::gather_log_probs(&x[0], &x[1])
        })
        .slack(4.0),
        OpSample::new(
            "llm.dpo_loss",
            [values([3], 1), values([3], 2), values([3], 3), values([3], 4)],
            |x| llm::dpo_loss([&x[0], &x[1]], [&x[2], &x[3]], 0.5),
        )
        .slack(8.0),
        OpSample::new("llm.distillation_loss", [values([3, 4], 1), values([3, 4], 2)], |x| {
            llm::distillation_loss(&x[0], &x[1], 1.5)
        })
        .slack(16.0),
        OpSample::new("llm.rotary", [values([2, 3, 6], 1)], |x| {
            llm::rotary(&x[0], &places(3, &x[0]), &Default::default())
        })
        .slack(4.0),
        OpSample::new("llm.rotary(interleaved)", [values([2, 3, 6], 2)], move |x| {
            llm::rotary(&x[0], &places(3, &x[0]), &turned)
        })
        .slack(4.0),
        OpSample::new("llm.filter_logits", logits(), |x| {
            let options = llm::LogitsOptions { top_k: 3, temperature: 0.5, ..Default::default() };
            let kept = llm::filter_logits(&x[0], &options, None);
            kept.masked_fill(&kept.isinf(), 0.0)
        }),
        OpSample::new("llm.filter_logits(top_p, min_p)", logits(), |x| {
            let options = llm::LogitsOptions { top_p: 0.8, min_p: 0.05, ..Default::default() };
            llm::filter_logits(&x[0], &options, None).softmax(-1)
        })
        .slack(8.0),
        OpSample::new(
            "llm.filter_logits(repetition_penalty)",
            [values([2, 4], 1), classes(6).view([2, 3])],
            |x| {
                let options = llm::LogitsOptions { repetition_penalty: 1.5, ..Default::default() };
                llm::filter_logits(&x[0], &options, Some(&x[1]))
            },
        ),
        OpSample::new("llm.route", [values([5, 4], 1), values([3, 4], 2)], |x| {
            let options = llm::RouterOptions { k: 2, capacity: Some(3) };
            let routed = llm::route(&x[0], &x[1], &options);
            routed.gates.sum_dim(&[0], false) * routed.balance_loss
        })
        .slack(16.0),
        OpSample::new("llm.router_z_loss", logits(), |x| llm::router_z_loss(&x[0])).slack(8.0),
        OpSample::new("nonzero, in llm.mixture_of_experts", experts(), |x| {
            let layers = [&x[2], &x[3], &x[4]];
            llm::mixture_of_experts(&x[0], &x[1], layers, &Default::default()).0
        })
        .slack(64.0),
    ]
}

fn statistics() -> Vec<OpSample> {
    let x = || [values([3, 5], 1)];
    let two = || [values([2, 3, 4], 1), values([2, 5, 4], 2)];
    vec![
        OpSample::new("var_mean, var", x(), |x| x[0].var_mean_dim(&[1], 1, false).0),
        OpSample::new("std_mean, mean", x(), |x| x[0].std_mean_dim(&[0], 0, true).1),
        OpSample::new("nansum", x(), |x| x[0].nansum_dim(&[1], false)),
        OpSample::new("nanmean", x(), |x| x[0].nanmean_dim(&[0], true)),
        OpSample::new("dist", [values([2, 3], 1), values([3], 2)], |x| x[0].dist(&x[1], 3))
            .slack(4.0),
        OpSample::new("cdist", two(), |x| x[0].cdist(&x[1], 2.0)).slack(4.0),
        OpSample::new("cdist(p=3)", two(), |x| x[0].cdist(&x[1], 3.0)).slack(4.0),
        OpSample::new("diff", [values([3, 4], 1), values([3, 1], 2)], |x| {
            x[0].diff(2, -1, Some(&x[1]), None)
        })
        .slack(16.0),
        OpSample::new("trapezoid", x(), |x| x[0].trapezoid(0.5, 0)).slack(8.0),
        OpSample::new("trapezoid_at", [values([3, 5], 1), positive([5], 2)], |x| {
            x[0].trapezoid_at(&x[1].cumsum(0), 1)
        })
        .slack(32.0),
        OpSample::new("cumulative_trapezoid", x(), |x| x[0].cumulative_trapezoid(0.5, 1))
            .slack(8.0),
        OpSample::new("renorm", x(), |x| x[0].renorm(2.0, 0, 2.0)).slack(4.0),
        OpSample::new("cov", x(), |x| x[0].cov(1, None, None)).slack(32.0),
        OpSample::new("corrcoef", [values([2, 6], 1)], |x| x[0].corrcoef().select(0, 0))
            .no_half()
            .slack(32.0),
        OpSample::new("aminmax, the least", x(), |x| x[0].aminmax().0),
        OpSample::new("aminmax, the greatest", x(), |x| x[0].aminmax_dim(1, true).1),
        OpSample::new("count_nonzero", x(), |x| x[0].count_nonzero(&[1])).order(Order::None),
    ]
}

fn shapes() -> Vec<OpSample> {
    let two = || [values([2, 3], 1), values([2, 3], 2)];
    vec![
        OpSample::new("block_diag", [values([2, 3], 1), values([1, 2], 2)], |x| {
            Tensor::block_diag(x)
        }),
        OpSample::new("hstack", two(), |x| Tensor::hstack(x)),
        OpSample::new("dstack", two(), |x| Tensor::dstack(x)),
        OpSample::new("column_stack", [values([3], 1), values([3, 2], 2)], |x| {
            Tensor::column_stack(x)
        }),
        OpSample::new("tile", [values([2, 3], 1)], |x| x[0].tile(&[2, 1, 2])),
        OpSample::new("rot90", [values([2, 3, 4], 1)], |x| x[0].rot90(3, [0, 2])),
        OpSample::new("meshgrid", [values([2], 1), values([3], 2)], |x| {
            Tensor::meshgrid(x, Indexing::Xy).remove(1)
        }),
        OpSample::new("cartesian_prod", [values([2], 1), values([3], 2)], |x| {
            Tensor::cartesian_prod(x)
        }),
        OpSample::new("combinations", [values([4], 1)], |x| x[0].combinations(2, true)),
        OpSample::new("index_copy", [values([4, 3], 1), values([2, 3], 2)], |x| {
            let index = places(2, &x[0]) * 2i64;
            x[0].index_copy(0, &index, &x[1])
        }),
        OpSample::new("index_fill", [values([4, 3], 1)], |x| {
            x[0].index_fill(1, &places(2, &x[0]), 0.5)
        }),
        OpSample::new("adjoint", [values([2, 3, 4], 1)], |x| x[0].adjoint()),
        OpSample::new(
            "scaled_dot_product_attention(mask)",
            [values([2, 3, 4], 1), values([2, 5, 4], 2), values([2, 5, 4], 3)],
            |x| {
                let mask = llm::attention_mask(3, 5, Some(2), true, x[0].device());
                let options = AttentionOptions { attn_mask: Some(mask), ..Default::default() };
                x[0].scaled_dot_product_attention_with(&x[1], &x[2], &options)
            },
        )
        .slack(16.0),
    ]
}

fn numbers() -> Vec<OpSample> {
    let x = || [values([2, 5], 3)];
    vec![
        OpSample::new("frexp, mantissas", x(), |x| x[0].frexp().0),
        OpSample::new("frexp, exponents", x(), |x| x[0].frexp().1).order(Order::None),
        OpSample::new("quantile of a number", x(), |x| {
            x[0].quantile_dim(0.3, 1, true, Default::default())
        })
        .no_half()
        .slack(8.0),
        OpSample::new("nanquantile of a number", x(), |x| x[0].nanquantile(0.6))
            .no_half()
            .slack(8.0),
    ]
}
