//! Attention of any lengths.

use proptest::prelude::*;
use torchrs::autograd::{GraphMode, grad};
use torchrs::ops::{AttentionOptions, VarlenOptions};
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
    window: (i64, i64),
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
        window in windows(),
        scale in prop_oneof![2 => Just(None), 1 => (0.1..2.0f64).prop_map(Some)],
        dtype in dtypes(),
        seed in any::<u64>(),
    ) -> Case {
        let same = |pair: [usize; 2]| if alike { [pair[0]; 2] } else { pair };
        let [lengths, widths] = [lengths, widths].map(same);
        // These count from other ends.
        let both = mask == Mask::Causal && lengths[0] != lengths[1];
        let window = if both { (-1, -1) } else { window };
        Case { batch, heads, lengths, widths, mask, window, scale, dtype, seed }
    }
}

fn windows() -> impl Strategy<Value = (i64, i64)> {
    let side = || prop_oneof![Just(-1i64), 0..=150i64];
    prop_oneof![Just((-1, -1)), (side(), side())]
}

/// Whether query i of `l` sees key j of `s`.
fn in_window((left, right): (i64, i64), [i, j]: [usize; 2], [l, s]: [usize; 2]) -> bool {
    let ahead = j as i64 - (i as i64 + s as i64 - l as i64);
    (left < 0 || ahead >= -left) && (right < 0 || ahead <= right)
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

#[derive(Clone, Debug)]
struct PackedCase {
    /// Heads of keys, and how many heads of queries share one.
    heads: [usize; 2],
    /// Queries and keys of each sequence.
    lengths: Vec<[usize; 2]>,
    /// Numbers of a query and of a value.
    widths: [usize; 2],
    is_causal: bool,
    window: (i64, i64),
    dtype: Dtype,
    seed: u64,
}

prop_compose! {
    fn packed_cases()(
        heads in [1..=2usize, 1..=2],
        lengths in prop::collection::vec([0..=70usize, 0..=70], 0..=4),
        widths in [1..=40usize, 1..=40],
        is_causal in any::<bool>(),
        window in windows(),
        dtype in dtypes(),
        seed in any::<u64>(),
    ) -> PackedCase {
        PackedCase { heads, lengths, widths, is_causal, window, dtype, seed }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn any_lengths(case in cases()) {
        let &Case { batch, heads: [heads, shared], lengths: [l, s], widths: [e, d], mask, window, dtype, seed, .. } = &case;
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
            window_size: window,
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
                _ if !in_window(window, [i, j], [l, s]) => f64::NEG_INFINITY,
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

    #[test]
    fn any_lengths_that_lie_one_after_the_other(case in packed_cases()) {
        let &PackedCase { heads: [heads, shared], widths: [e, d], is_causal, window, dtype, seed, .. } = &case;
        let starts = [0, 1].map(|side| {
            let ends = case.lengths.iter().scan(0, |end, pair| { *end += pair[side] as i32; Some(*end) });
            std::iter::once(0).chain(ends).collect::<Vec<i32>>()
        });
        let [total, keys] = starts.each_ref().map(|starts| *starts.last().unwrap() as usize);
        let longest = [0, 1].map(|side| case.lengths.iter().map(|pair| pair[side]).max().unwrap_or(0));
        let all = heads * shared;
        let (q, qv) = random(&[total, all, e], dtype, seed);
        let (k, kv) = random(&[keys, heads, e], dtype, seed ^ 1);
        let (v, vv) = random(&[keys, heads, d], dtype, seed ^ 2);
        let (dy, dyv) = random(&[total, all, d], dtype, seed ^ 3);
        let options = VarlenOptions { is_causal, window_size: window, enable_gqa: shared > 1, ..Default::default() };
        let [q_starts, k_starts] = starts.each_ref().map(|starts| Tensor::from_slice(starts, [starts.len()]));
        let y = q.varlen_attn(&k, &v, &q_starts, &k_starts, longest[0], longest[1] + 3, options);
        let [mut ys, mut dqs] = [vec![0.0; total * all * d], vec![0.0; qv.len()]];
        let [mut dks, mut dvs] = [vec![0.0; kv.len()], vec![0.0; vv.len()]];
        for (n, &[l, s]) in case.lengths.iter().enumerate() {
            let [first, first_key] = starts.each_ref().map(|starts| starts[n] as usize);
            for h in 0..all {
                let own = h / shared;
                // Rows of a head, and where each is.
                let places = |first: usize, rows: usize, of: usize, h: usize, width: usize| -> Vec<usize> {
                    (0..rows).flat_map(|i| (0..width).map(move |c| ((first + i) * of + h) * width + c)).collect()
                };
                let at = [
                    places(first, l, all, h, e),
                    places(first_key, s, heads, own, e),
                    places(first_key, s, heads, own, d),
                    places(first, l, all, h, d),
                ];
                let taken = |from: &[f64], at: &[usize]| at.iter().map(|&i| from[i]).collect::<Vec<f64>>();
                let parts = [taken(&qv, &at[0]), taken(&kv, &at[1]), taken(&vv, &at[2]), taken(&dyv, &at[3])];
                let seen = |i: usize, j: usize| {
                    in_window(window, [i, j], [l, s]) && (!is_causal || in_window((-1, 0), [i, j], [l, s]))
                };
                let added = |i: usize, j: usize| if seen(i, j) { 0.0 } else { f64::NEG_INFINITY };
                let results = head(parts.each_ref().map(|p| &p[..]), [l, s], [e, d], 1.0 / (e as f64).sqrt(), added);
                let sums = [&mut ys, &mut dqs, &mut dks, &mut dvs];
                for ((sums, of), at) in sums.into_iter().zip(&results).zip([&at[3], &at[0], &at[1], &at[2]]) {
                    at.iter().zip(of).for_each(|(&i, x)| sums[i] += x);
                }
            }
        }
        let slack = if dtype.size() == 2 { slack(dtype) } else { 5.0 * slack(dtype) };
        close("y", &y, &ys, |_, v| slack * (v.abs() + 0.5))?;
        let grads = grad(&[&y], &[&q, &k, &v], &[Some(&dy.detach())], GraphMode::Free);
        for (name, (got, want)) in ["dq", "dk", "dv"].into_iter().zip(grads.iter().zip([&dqs, &dks, &dvs])) {
            let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            close(name, got.as_ref().unwrap(), want, |_, v| slack * (v.abs() + largest + 4.0))?;
        }
    }
}
