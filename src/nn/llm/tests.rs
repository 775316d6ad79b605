//! Parts of language models against their definitions.

use super::*;
use crate::autograd::no_grad;
use crate::error::catch;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

fn random(shape: &[usize]) -> Tensor {
    Tensor::randn(shape, Dtype::F64)
}

fn near(a: &Tensor, b: &Tensor) -> bool {
    a.shape() == b.shape() && (a - b).abs().max().item() < 1e-9
}

fn refusal(f: impl Fn() -> Tensor) -> String {
    catch(f).unwrap_err().to_string()
}

#[test]
fn pairs_of_neighbours_turn_as_complex_numbers() {
    let (x, places) = (random(&[2, 3, 8]), Tensor::from([0i64, 3, 11]));
    let options =
        RotaryOptions { interleaved: true, rotary_dim: Some(6), scale: 2.0, ..Default::default() };
    let y = rotary(&x, &places, &options);
    for (t, place) in [0.0, 3.0, 11.0].into_iter().enumerate() {
        for i in 0..3 {
            let angle = place / 2.0 * 10000f64.powf(-2.0 * i as f64 / 6.0);
            let at = |z: &Tensor, k: usize| z.i(1).i(t).i(2 * i + k).item();
            let (a, b) = (at(&x, 0), at(&x, 1));
            assert!((at(&y, 0) - (a * angle.cos() - b * angle.sin())).abs() < 1e-12);
            assert!((at(&y, 1) - (b * angle.cos() + a * angle.sin())).abs() < 1e-12);
        }
    }
    assert!(y.narrow(2, 6, 2).equal(&x.narrow(2, 6, 2)));
    let odd = RotaryOptions { rotary_dim: Some(5), ..options };
    assert!(refusal(|| rotary(&x, &places, &odd)).contains("even"));
    let wide = RotaryOptions { rotary_dim: Some(10), ..options };
    assert!(refusal(|| rotary(&x, &places, &wide)).contains("rotary_dim"));
    assert!(refusal(|| rotary(&x, &Tensor::from([0i64]), &options)).contains("positions"));
    assert!(refusal(|| rotary_tables(&places, 6, &options).0).contains("interleaved"));
    let halves = RotaryOptions { interleaved: false, ..options };
    assert!(refusal(|| rotary_tables(&places, 8, &halves).0).contains("rotary_dim"));
    assert_eq!(rotary_tables(&places, 6, &halves).0.shape(), &[3, 6]);
}

#[test]
fn capped_and_uncapped_attention_agree_where_the_cap_is_far() {
    let (q, k, v) = (random(&[2, 6, 4, 8]), random(&[2, 3, 7, 8]), random(&[2, 3, 7, 5]));
    for (causal, window, alibi) in
        [(true, None, false), (true, Some(3), true), (false, None, true), (false, Some(2), false)]
    {
        let plain = GroupedQueryOptions { causal, window, alibi, ..Default::default() };
        let capped = GroupedQueryOptions { softcap: Some(1e6), ..plain };
        let [a, b] = [plain, capped].map(|o| grouped_query_attention(&q, &k, &v, &o));
        assert!(near(&a, &b), "causal {causal}, window {window:?}, alibi {alibi}");
    }
    let none = GroupedQueryOptions { window: Some(0), ..Default::default() };
    assert!(refusal(|| grouped_query_attention(&q, &k, &v, &none)).contains("window"));
    let three = random(&[2, 4, 7, 8]);
    assert!(
        refusal(|| grouped_query_attention(&q, &three, &three, &Default::default()))
            .contains("multiple")
    );
    let few = k.narrow(2, 0, 2);
    assert!(
        refusal(|| grouped_query_attention(&q, &few, &few, &Default::default()))
            .contains("queries")
    );
    assert!(refusal(|| attention_mask(2, 2, Some(0), true, Device::Cpu)).contains("window"));
}

#[test]
fn both_caches_give_the_same_keys() {
    let tokens: Vec<Tensor> = (0..3).map(|_| random(&[1, 2, 2, 4])).collect();
    let buffer = || Tensor::zeros([1, 2, 6, 4], Dtype::F64);
    let (mut growing, mut fixed) = (GrowingCache::default(), StaticCache::new(buffer(), buffer()));
    let place = fixed.buffers().0.clone();
    for token in &tokens {
        let (a, b) = no_grad(|| (growing.extend(token, token), fixed.extend(token, token)));
        assert!(a.0.equal(&b.0) && a.1.equal(&b.1));
    }
    // Without gradients the buffer is written in place.
    assert!(place.equal(fixed.buffers().0) && growing.length() == 6);
    assert!(refusal(|| fixed.clone().extend(&tokens[0], &tokens[0]).0).contains("room"));
    let wide = random(&[1, 2, 1, 5]);
    fixed.clear();
    assert!(refusal(|| fixed.clone().extend(&wide, &wide).0).contains("buffers"));
    // With gradients it is not, and backward reaches what was written.
    let token = tokens[0].requires_grad_(true);
    let before = fixed.buffers().0.clone();
    fixed.extend(&token, &token).0.sum().backward();
    assert!(before.equal(&place) && token.grad().unwrap().equal(&token.ones_like()));
}

#[test]
fn experts_give_the_sum_of_their_gates() {
    let (x, router) = (random(&[9, 4]), random(&[3, 4]));
    let [gate, up, down] = [random(&[3, 5, 4]), random(&[3, 5, 4]), random(&[3, 4, 5])];
    let options = RouterOptions { k: 2, capacity: Some(4) };
    let (y, _) = mixture_of_experts(&x, &router, [&gate, &up, &down], &options);
    let routed = route(&x, &router, &options);
    let mut want = x.zeros_like();
    for e in 0..3 {
        let layer =
            x.linear(&gate.i(e), None).swiglu(&x.linear(&up.i(e), None)).linear(&down.i(e), None);
        let chosen = routed.experts.eq(e as i64).logical_and(&routed.slots.ge(0i64));
        let shares = (chosen.to_dtype(Dtype::F64) * &routed.gates).sum_dim(&[1], true);
        want = want + layer * shares;
    }
    assert!(near(&y, &want));
    // No expert has more tokens than places, and their places differ.
    for e in 0..3i64 {
        let own = routed.experts.eq(e).logical_and(&routed.slots.ge(0i64));
        let mut slots: Vec<i64> = routed.slots.masked_select(&own).to_vec();
        slots.sort_unstable();
        assert_eq!(slots, (0..slots.len() as i64).collect::<Vec<_>>());
        assert!(slots.len() <= 4);
    }
    // An expert that nobody chose has a gradient of 0, not none.
    let weights = [&gate, &up, &down].map(|w| w.detach().requires_grad_(true));
    let one = RouterOptions { k: 1, capacity: None };
    let far = Tensor::from([[9f64, 0., 0., 0.], [-9., 0., 0., 0.], [-9., 0., 0., 0.]]);
    let x = Tensor::ones([2, 4], Dtype::F64);
    let refs = [&weights[0], &weights[1], &weights[2]];
    mixture_of_experts(&x, &far, refs, &one).0.sum().backward();
    assert_eq!(weights[0].grad().unwrap().i(1).abs().max().item(), 0.0);
    assert!(catch(|| route(&x, &far, &RouterOptions { k: 4, ..one })).is_err());
}

#[test]
fn penalties_need_the_tokens_and_change_both_signs_downwards() {
    let logits = Tensor::from([[2f64, -2., 1.]]);
    let options = LogitsOptions { repetition_penalty: 2.0, ..Default::default() };
    assert!(refusal(|| filter_logits(&logits, &options, None)).contains("previous"));
    let y = filter_logits(&logits, &options, Some(&Tensor::from([[0i64, 1, 1]])));
    assert_eq!(y.i(0).to_vec::<f64>(), [1.0, -4.0, 1.0]);
    for options in [
        LogitsOptions { top_p: 2.0, ..Default::default() },
        LogitsOptions { temperature: f64::NAN, ..Default::default() },
    ] {
        assert!(catch(|| filter_logits(&logits, &options, None)).is_err());
    }
}

#[test]
fn tokens_that_were_filtered_out_are_never_drawn() {
    // Rounded sums may end below the number that was drawn.
    let logits = Tensor::from([[0f32, 0.3, 0.1, -0.2, -50.], [3., 0., 0., 0., 0.]]);
    let options = LogitsOptions { top_k: 4, ..Default::default() };
    let uniform = Tensor::from([1f32 - f32::EPSILON / 2.0, 0.0]);
    let (tokens, shares) = sample_by(&logits, &uniform, &options, None);
    assert_eq!(tokens.to_vec::<i64>(), [3, 0]);
    assert_eq!(shares.i(0).i(4).item(), 0.0);
    let certain = Tensor::from([1f32, 1.0]);
    assert_eq!(sample_by(&logits, &certain, &options, None).0.i(0).item_i64(), 3);
}
