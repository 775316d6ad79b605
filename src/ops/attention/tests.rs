//! Attention against its definition.

use super::*;
use crate::autograd;
use crate::cpu::attention::{Attention, Band};
use crate::tensor::{Dtype::F32, Dtype::F64};

/// Attention by its definition for one batch item, which the kernel is tested against.
fn reference(a: &Attention, q: &[f64], k: &[f64], v: &[f64], mask: Option<&[f64]>) -> Vec<f64> {
    let mut out = Vec::new();
    for i in 0..a.queries {
        let score = |j: usize| {
            let dot: f64 = (0..a.depth).map(|p| q[i * a.depth + p] * k[j * a.depth + p]).sum();
            let hidden = !a.band.seen(i, 0, a.keys).contains(&j);
            if hidden {
                f64::NEG_INFINITY
            } else {
                dot * a.scale + mask.map_or(0.0, |m| m[i * a.keys + j])
            }
        };
        let scores: Vec<f64> = (0..a.keys).map(score).collect();
        let highest = scores.iter().fold(f64::NEG_INFINITY, |m, &s| m.max(s));
        let weights: Vec<f64> = scores
            .iter()
            .map(|s| if highest == f64::NEG_INFINITY { 0.0 } else { (s - highest).exp() })
            .collect();
        let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        for c in 0..a.width {
            out.push(weights.iter().enumerate().map(|(j, w)| w / sum * v[j * a.width + c]).sum());
        }
    }
    out
}

#[test]
fn dropout_takes_weights_away_and_changes_nothing_else() {
    crate::ops::random::fork_rng(|| {
        let leaf = |shape: [usize; 3], seed| values(shape, seed).requires_grad_(true);
        let (q, k, v) = (leaf([2, 4, 3], 1), leaf([2, 5, 3], 2), leaf([2, 5, 6], 3));
        let seen = Tensor::from([
            [true, true, false, true, false],
            [false; 5],
            [true; 5],
            [false, false, false, false, true],
        ]);
        let with = |dropout_p, attn_mask: Option<&Tensor>, is_causal| {
            let options = AttentionOptions { dropout_p, is_causal, ..Default::default() };
            let options = AttentionOptions { attn_mask: attn_mask.cloned(), ..options };
            let y = q.scaled_dot_product_attention_with(&k, &v, &options);
            let grads = autograd::grad(
                &[&y.square().sum()],
                &[&q, &k, &v],
                &[None],
                autograd::GraphMode::Free,
            );
            (y, grads)
        };
        // So rarely that it never happens, but computed in the other way.
        for (mask, causal) in [(None, false), (None, true), (Some(&seen), false)] {
            let ((y, grads), (want, expected)) =
                (with(1e-13, mask, causal), with(0.0, mask, causal));
            let same = |a: &Tensor, b: &Tensor| {
                let error = (a - b).abs().amax(&[], false).item();
                assert!(error < 1e-11, "causal {causal}, {mask:?}: {a:?}, not {b:?}");
            };
            same(&y, &want);
            for (grad, want) in grads.iter().zip(&expected) {
                same(grad.as_ref().unwrap(), want.as_ref().unwrap());
            }
        }
        crate::ops::random::manual_seed(0);
        let (q, k, v) = (values([64, 8], 1), values([64, 8], 2), Tensor::eye(64, F64));
        let options = AttentionOptions { dropout_p: 0.25, ..Default::default() };
        let weights = q.scaled_dot_product_attention(&k, &v, None, false, None).to_vec::<f64>();
        let dropped = q.scaled_dot_product_attention_with(&k, &v, &options).to_vec::<f64>();
        let zeros = dropped.iter().filter(|w| **w == 0.0).count();
        assert!((900..1150).contains(&zeros), "about a quarter of 4096, got {zeros}");
        let kept = |(d, w): (&f64, &f64)| *d == 0.0 || (d - w / 0.75).abs() < 1e-12;
        assert!(dropped.iter().zip(&weights).all(kept));
        let wrong = AttentionOptions { dropout_p: 1.5, ..Default::default() };
        let error = crate::error::catch(|| q.scaled_dot_product_attention_with(&k, &v, &wrong));
        assert!(error.unwrap_err().to_string().contains("dropout_p"));
    })
}

#[test]
fn the_kernel_equals_the_definition_and_its_gradients_the_composed_ones() {
    for (queries, keys, depth, width, causal, masked) in [
        (1, 1, 1, 1, false, false),
        (100, 300, 20, 17, false, true),
        (150, 150, 64, 64, true, false),
        (60, 200, 8, 33, true, false),
        (200, 60, 8, 8, true, false),
    ] {
        let band = if causal { Band::CAUSAL } else { Band::ALL };
        let a = Attention { queries, keys, depth, width, scale: 0.3, band };
        let leaf = |rows, columns, seed| values([2, rows, columns], seed).requires_grad_(true);
        let (q, k, v) = (leaf(queries, depth, 1), leaf(keys, depth, 2), leaf(keys, width, 3));
        let mut mask = values([queries, keys], 5).to_vec::<f64>();
        mask[..keys].fill(f64::NEG_INFINITY);
        mask[keys * queries - 1] = f64::NEG_INFINITY;
        let mask_tensor = masked.then(|| Tensor::from_slice(&mask, [queries, keys]));
        let y = q.scaled_dot_product_attention(&k, &v, mask_tensor.as_ref(), causal, Some(0.3));
        let [dq, dk, dv] = [&q, &k, &v].map(|t| t.to_vec::<f64>());
        for b in 0..2 {
            let item = |x: &[f64]| x[x.len() / 2 * b..x.len() / 2 * (b + 1)].to_vec();
            let want =
                reference(&a, &item(&dq), &item(&dk), &item(&dv), masked.then_some(&mask[..]));
            for (y, want) in item(&y.to_vec::<f64>()).iter().zip(want) {
                assert!((y - want).abs() < 1e-12, "{y} {want}: {a:?}");
            }
        }
        let dy = values(y.shape(), 4);
        let inputs = [&q, &k, &v];
        let fused = autograd::grad(&[&y], &inputs, &[Some(&dy)], autograd::GraphMode::Retain);
        let composed = autograd::grad(&[&y], &inputs, &[Some(&dy)], autograd::GraphMode::Create);
        let [q32, k32, v32] = inputs.map(|t| t.detach().to_dtype(F32).requires_grad_(true));
        let mask32 = mask_tensor.map(|m| m.to_dtype(F32));
        let y32 = q32.scaled_dot_product_attention(&k32, &v32, mask32.as_ref(), causal, Some(0.3));
        let g32 = autograd::grad(
            &[&y32],
            &[&q32, &k32, &v32],
            &[Some(&dy.to_dtype(F32))],
            autograd::GraphMode::Free,
        );
        for ((fused, composed), g32) in fused.iter().zip(&composed).zip(&g32) {
            let [fused, composed, g32] =
                [fused, composed, g32].map(|g| g.as_ref().unwrap().to_vec::<f64>());
            for ((f, c), g) in fused.iter().zip(composed).zip(g32) {
                assert!((f - c).abs() < 1e-11, "{f} {c}: {a:?}");
                assert!((f - g).abs() < 1e-4 * (1.0 + f.abs()), "{f} {g} in f32: {a:?}");
            }
        }
    }
}

#[test]
fn operands_may_be_strided_and_broadcast() {
    let (q, k, v) = (values([5, 2, 3, 4], 1), values([3, 6, 4], 2), values([2, 1, 6, 4], 3));
    let y = q.transpose(0, 2).scaled_dot_product_attention(
        &k.unsqueeze(1).expand(&[3, 2, 6, 4]),
        &v.transpose(0, 1).expand(&[3, 2, 6, 4]),
        None,
        false,
        None,
    );
    let [q, k, v] = [
        q.transpose(0, 2).contiguous(),
        k.unsqueeze(1).expand(&[3, 2, 6, 4]).contiguous(),
        v.transpose(0, 1).expand(&[3, 2, 6, 4]).contiguous(),
    ];
    let want = q.scaled_dot_product_attention(&k, &v, None, false, None);
    assert_eq!(y.shape(), &[3, 2, 5, 4]);
    assert_eq!(y.to_vec::<f64>(), want.to_vec::<f64>());
}

#[test]
fn misuse_is_named() {
    let t = |shape: &[usize]| Tensor::zeros(shape, F64);
    let text = |k: &Tensor, v: &Tensor, m: Option<&Tensor>, causal| {
        let q = t(&[2, 3, 4]);
        crate::error::catch(|| q.scaled_dot_product_attention(k, v, m, causal, None))
            .unwrap_err()
            .to_string()
    };
    let (k, v) = (t(&[2, 5, 4]), t(&[2, 5, 6]));
    assert!(text(&t(&[2, 5, 3]), &v, None, false).contains("same last size"));
    assert!(text(&k, &t(&[2, 4, 6]), None, false).contains("same length"));
    assert!(text(&k, &v, Some(&t(&[4, 5])), false).contains("attn_mask must broadcast"));
    assert!(text(&k, &v, Some(&t(&[3, 5])), true).contains("is_causal"));
    for (is_causal, window_size, word) in
        [(true, (2, 0), "is_causal"), (false, (-2, 0), "window_size")]
    {
        let options = AttentionOptions { is_causal, window_size, ..Default::default() };
        let q = t(&[2, 3, 4]);
        let y = crate::error::catch(|| q.scaled_dot_product_attention_with(&k, &v, &options));
        let text = y.unwrap_err().to_string();
        assert!(text.contains(word) && text.contains("window_size"), "{text}");
    }
    let options = AttentionOptions { enable_gqa: true, ..Default::default() };
    for q in [t(&[3, 4]), t(&[0, 3, 4])] {
        let y = crate::error::catch(|| q.scaled_dot_product_attention_with(&k, &v, &options));
        assert!(y.unwrap_err().to_string().contains("0 query heads"));
    }
}

/// A window that hides nothing is none, so that other kernels may take it; the longest lengths may be any numbers.
#[test]
fn limits_that_hide_nothing_are_none() {
    use super::plan::{Plan, Rules};
    use crate::cpu::attention::Band;
    let x = Tensor::zeros([2, 5, 4], F64);
    let band = |window| {
        let rules = Rules { is_causal: false, window, scale: None };
        Plan::new(&x, &x, &x, None, rules).attention.band
    };
    assert_eq!(band((4, 0)), Band::CAUSAL);
    assert_eq!(band((4, 4)), Band::ALL);
    assert!(band((3, 0)) != Band::CAUSAL && band((4, 3)) != Band::ALL);
    let (rows, starts) = (Tensor::ones([3, 1, 2], F64), Tensor::from([0i32, 1, 3]));
    let of =
        |most| rows.varlen_attn(&rows, &rows, &starts, &starts, most, most, Default::default());
    assert!(of(usize::MAX).equal(&of(2)));
}

/// As masks of programs do that take a large number for an infinite one.
#[test]
fn large_numbers_hide_as_they_do_in_a_softmax() {
    let leaf = |shape: [usize; 3], seed| values(shape, seed).to_dtype(F32).requires_grad_(true);
    let (q, k, v) = (leaf([1, 3, 8], 1), leaf([1, 200, 8], 2), leaf([1, 200, 5], 3));
    let weights = values([1, 3, 5], 4).to_dtype(F32);
    for large in [-1e4f32, -1e9, -1e30, f32::MIN] {
        // Everything, a part in all blocks of keys, nothing.
        let hidden = |row: usize, key: usize| row == 0 || (row == 1 && !key.is_multiple_of(3));
        let numbers: Vec<f32> =
            (0..3 * 200).map(|i| if hidden(i / 200, i % 200) { large } else { 0.0 }).collect();
        let mask = Tensor::from(numbers).view([3, 200]);
        let options = AttentionOptions { attn_mask: Some(mask.clone()), ..Default::default() };
        let y = q.scaled_dot_product_attention_with(&k, &v, &options);
        let scores = q.matmul(&k.transpose(-1, -2)) * (1.0 / 8f64.sqrt()) + &mask;
        let want = scores.softmax(-1).matmul(&v);
        let grads = |y: &Tensor| {
            autograd::grad(&[y], &[&q, &k, &v], &[Some(&weights)], autograd::GraphMode::Free)
        };
        let compare = |a: &Tensor, b: &Tensor, what: &str| {
            let error = (a - b).abs().max().item();
            assert!(error <= 5e-3 * b.abs().max().item(), "{large} {what}: {error}");
        };
        compare(&y, &want, "forward");
        for (i, (a, b)) in grads(&y).iter().zip(grads(&want)).enumerate() {
            compare(a.as_ref().unwrap(), b.as_ref().unwrap(), &format!("gradient {i}"));
        }
    }
}
