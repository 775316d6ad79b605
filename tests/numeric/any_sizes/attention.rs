//! Attention of any lengths.

use proptest::prelude::*;
use torchrs::autograd::{GraphMode, grad};
use torchrs::ops::AttentionOptions;
use torchrs::{Dtype, Tensor};

use super::laid::{close, dtypes, random, slack};
use crate::draw::Draw;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    Causal,
    /// True where a key counts; a row may have none.
    Bool,
    /// Added to the scores.
    Added,
}

#[derive(Clone, Debug)]
struct Case {
    batch: usize,
    /// Heads of keys, and how many heads of queries share one.
    heads: [usize; 2],
    /// Queries, keys.
    lengths: [usize; 2],
    /// Numbers of a query and of a value.
    widths: [usize; 2],
    mask: Mask,
    scale: Option<f64>,
    dtype: Dtype,
    seed: u64,
}

prop_compose! {
    fn cases()(
        batch in 1..=2usize,
        heads in [1..=3usize, 1..=2],
        lengths in [1..=150usize, 1..=150],
        widths in [1..=72usize, 1..=72],
        alike in prop_oneof![Just(true), Just(false)],
        mask in prop_oneof![Just(Mask::None), Just(Mask::Causal), Just(Mask::Bool), Just(Mask::Added)],
        scale in prop_oneof![2 => Just(None), 1 => (0.1..2.0f64).prop_map(Some)],
        dtype in dtypes(),
        seed in any::<u64>(),
    ) -> Case {
        let same = |pair: [usize; 2]| if alike { [pair[0]; 2] } else { pair };
        Case { batch, heads, lengths: same(lengths), widths: same(widths), mask, scale, dtype, seed }
    }
}

/// Output and gradients of queries, keys and values of one head.
fn head(
    [q, k, v, dy]: [&[f64]; 4],
    [l, s]: [usize; 2],
    [e, d]: [usize; 2],
    scale: f64,
    added: impl Fn(usize, usize) -> f64,
) -> [Vec<f64>; 4] {
    let [mut y, mut dq, mut dk, mut dv] = [l * d, l * e, s * e, s * d].map(|n| vec![0.0; n]);
    for i in 0..l {
        let score = |j: usize| {
            let product: f64 = (0..e).map(|c| q[i * e + c] * k[j * e + c]).sum();
            product * scale + added(i, j)
        };
        let scores: Vec<f64> = (0..s).map(score).collect();
        let most = scores.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
        if most == f64::NEG_INFINITY {
            continue;
        }
        let total: f64 = scores.iter().map(|v| (v - most).exp()).sum();
        let p: Vec<f64> = scores.iter().map(|v| (v - most).exp() / total).collect();
        let dp: Vec<f64> =
            (0..s).map(|j| (0..d).map(|c| dy[i * d + c] * v[j * d + c]).sum()).collect();
        let inner: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
        for j in 0..s {
            let ds = p[j] * (dp[j] - inner) * scale;
            for c in 0..d {
                y[i * d + c] += p[j] * v[j * d + c];
                dv[j * d + c] += p[j] * dy[i * d + c];
            }
            for c in 0..e {
                dq[i * e + c] += ds * k[j * e + c];
                dk[j * e + c] += ds * q[i * e + c];
            }
        }
    }
    [y, dq, dk, dv]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn any_lengths(case in cases()) {
        let &Case { batch, heads: [heads, shared], lengths: [l, s], widths: [e, d], mask, dtype, seed, .. } = &case;
        let (q, qv) = random(&[batch, heads * shared, l, e], dtype, seed);
        let (k, kv) = random(&[batch, heads, s, e], dtype, seed ^ 1);
        let (v, vv) = random(&[batch, heads, s, d], dtype, seed ^ 2);
        let (dy, dv) = random(&[batch, heads * shared, l, d], dtype, seed ^ 3);
        let draw = &mut Draw(seed ^ 4);
        // A mask for all, each image, each head, or each head of each image.
        let alike = |n: usize, one: bool| if one { 1 } else { n };
        let dims = [alike(batch, draw.below(2) == 0), alike(heads * shared, draw.below(2) == 0)];
        let stacks = dims[0] * dims[1];
        let (attn_mask, added) = match mask {
            Mask::None | Mask::Causal => (None, Vec::new()),
            Mask::Bool => {
                let most = draw.below(8) + 1;
                let keys: Vec<bool> = (0..stacks * l * s).map(|_| draw.below(9) < most).collect();
                let added = keys.iter().map(|k| if *k { 0.0 } else { f64::NEG_INFINITY }).collect();
                (Some(Tensor::from_slice(&keys, [stacks * l * s])), added)
            }
            Mask::Added => {
                let (mask, added) = random(&[stacks * l * s], dtype, seed ^ 5);
                (Some(mask.detach()), added)
            }
        };
        let attn_mask = attn_mask.map(|m| m.reshape([dims[0] as i64, dims[1] as i64, l as i64, s as i64]));
        let options = AttentionOptions {
            attn_mask,
            is_causal: mask == Mask::Causal,
            scale: case.scale,
            enable_gqa: shared > 1,
            ..Default::default()
        };
        let scale = case.scale.unwrap_or(1.0 / (e as f64).sqrt());
        let y = q.scaled_dot_product_attention_with(&k, &v, &options);
        let [mut ys, mut dqs] = [Vec::new(), Vec::new()];
        let [mut dks, mut dvs] = [vec![0.0; kv.len()], vec![0.0; vv.len()]];
        for h in 0..batch * heads * shared {
            // The head of keys that it shares.
            let own = h / shared;
            let (image, turn) = (h / (heads * shared), h % (heads * shared));
            let at = image % dims[0] * dims[1] + turn % dims[1];
            let extra = |i: usize, j: usize| match mask {
                Mask::None => 0.0,
                Mask::Causal if j > i => f64::NEG_INFINITY,
                Mask::Causal => 0.0,
                _ => added[(at * l + i) * s + j],
            };
            let parts = [&qv[h * l * e..][..l * e], &kv[own * s * e..][..s * e], &vv[own * s * d..][..s * d], &dv[h * l * d..][..l * d]];
            let [y, dq, dk, dv] = head(parts, [l, s], [e, d], scale, extra);
            ys.extend(y);
            dqs.extend(dq);
            dks[own * s * e..][..s * e].iter_mut().zip(dk).for_each(|(sum, v)| *sum += v);
            dvs[own * s * d..][..s * d].iter_mut().zip(dv).for_each(|(sum, v)| *sum += v);
        }
        // An error of a score is one of all that it weighs.
        let slack = if dtype.size() == 2 { slack(dtype) } else { 5.0 * slack(dtype) };
        close("y", &y, &ys, |_, v| slack * (v.abs() + 0.5))?;
        let grads = grad(&[&y], &[&q, &k, &v], &[Some(&dy.detach())], GraphMode::Free);
        for (name, (got, want)) in ["dq", "dk", "dv"].into_iter().zip(grads.iter().zip([&dqs, &dks, &dvs])) {
            let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            close(name, got.as_ref().unwrap(), want, |_, v| slack * (v.abs() + largest + 4.0))?;
        }
    }
}
