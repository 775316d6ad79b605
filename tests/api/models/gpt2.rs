//! GPT-2: numbers, the cache, generation, published weights.

use std::collections::BTreeSet;

use torchrs::checkpoint::TensorMap;
use torchrs::models::*;
use torchrs::nn::llm::{LogitsOptions, filter_logits};
use torchrs::nn::{Forward, Module};
use torchrs::{Dtype, Dtype::F32, Dtype::F64, Tensor, catch, no_grad};

use super::formula::{fill, recorded, same_as_recorded, same_gradients, same_output, tokens};

fn config() -> GPT2Config {
    let sizes = GPT2Config { vocab_size: 23, n_positions: 24, n_embd: 16, ..Default::default() };
    GPT2Config { n_layer: 3, n_head: 4, ..sizes }
}

fn model(config: GPT2Config, dtype: Dtype) -> GPT2LMHeadModel {
    let model = fill(GPT2LMHeadModel::new(config), dtype);
    model.eval();
    model
}

fn ids() -> Tensor {
    tokens("input_ids", &[2, 7], 23)
}

#[test]
fn it_computes_as_the_original() {
    let case = recorded("gpt2");
    let other = GPT2Config {
        n_inner: Some(24),
        activation_function: GPT2Activation::Relu,
        scale_attn_by_inverse_layer_idx: true,
        tie_word_embeddings: false,
        ..config()
    };
    for dtype in [F64, F32] {
        for (name, config) in [("plain", config()), ("other", other)] {
            let gpt = model(config, dtype);
            let logits = gpt.forward(&ids());
            same_as_recorded(&format!("{name} in {dtype}"), &gpt, &logits, &[], &case[name]);
        }
        let gpt = model(config(), dtype);
        let loss = gpt.loss(&ids(), &ids());
        loss.backward();
        let want = &case["loss"];
        same_output("loss", &loss.reshape([1]), &want["loss"]);
        same_gradients("loss", &gpt, &[], &want["grads"]);
    }
}

#[test]
fn attention_with_dropout_computes_the_same() {
    let case = recorded("gpt2");
    // So small that nothing is ever dropped, but computed the other way.
    let gpt = model(GPT2Config { attn_pdrop: 1e-13, ..config().no_dropout() }, F64);
    gpt.train();
    let logits = gpt.forward(&ids());
    same_as_recorded("dropout", &gpt, &logits, &[], &case["plain"]);
    let gpt = model(GPT2Config { attn_pdrop: 0.5, ..config().no_dropout() }, F64);
    gpt.train();
    let (a, b) = no_grad(|| (gpt.forward(&ids()), gpt.forward(&ids())));
    assert!(!a.equal(&b));
    // The first token attends to itself only: its share is dropped or doubled, nothing else is.
    assert!(a.isfinite().all().item() == 1.0);
}

#[test]
fn padding_is_not_seen() {
    let case = recorded("gpt2");
    let mask = Tensor::from([[0i64, 0, 1, 1, 1, 1, 1], [1; 7]]);
    let positions = Tensor::from([[0i64, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6]]);
    for pdrop in [0.0, 1e-13] {
        let gpt = model(GPT2Config { attn_pdrop: pdrop, ..config().no_dropout() }, F64);
        gpt.train();
        let inputs = DecoderInputs {
            attention_mask: Some(&mask),
            position_ids: Some(&positions),
            cache: None,
        };
        let logits = gpt.forward_with(&ids(), inputs);
        assert!(logits.isfinite().all().item() == 1.0);
        same_output("padded", &logits.narrow(1, 2, 5), &case["padded"]["output"]);
    }
    let gpt = model(config(), F64);
    let short = Tensor::ones([2, 6], Dtype::I64);
    let inputs = DecoderInputs { attention_mask: Some(&short), ..Default::default() };
    let error = catch(|| gpt.forward_with(&ids(), inputs)).unwrap_err().to_string();
    assert!(error.contains("attention_mask") && error.contains("[2, 7]"), "{error}");
}

#[test]
fn the_cache_changes_nothing() {
    let gpt = model(config(), F64);
    let whole = gpt.forward(&ids());
    let mut cache = KeyValueCache::new();
    let mut parts = Vec::new();
    // All at once, then several tokens behind others, then one.
    for (start, length) in [(0, 3), (3, 3), (6, 1)] {
        let part = ids().narrow(1, start, length);
        let inputs = DecoderInputs { cache: Some(&mut cache), ..Default::default() };
        parts.push(gpt.forward_with(&part, inputs));
    }
    assert_eq!(cache.length(), 7);
    let error = (Tensor::cat(&parts, 1) - whole).abs().amax(&[], false).item();
    assert!(error < 1e-12, "{error}");
}

#[test]
fn greedy_generation_is_the_originals() {
    let want: Vec<Vec<i64>> = serde_json::from_value(recorded("gpt2")["greedy"].clone()).unwrap();
    for use_cache in [true, false] {
        let gpt = model(config(), F64);
        let options = GenerateOptions { max_new_tokens: 12, use_cache, ..Default::default() };
        let got = gpt.generate(&ids(), options.clone());
        assert_eq!(got.to_vec::<i64>(), want.concat(), "use_cache {use_cache}");
        // The first sequence ends with its fifth new token, the second goes on without that one.
        let end = want[0][11];
        assert!(!want[0][7..11].contains(&end) && !want[1][7..].contains(&end));
        let options =
            GenerateOptions { eos_token_id: vec![end], pad_token_id: Some(22), ..options };
        let got = gpt.generate(&ids(), options);
        let row: Vec<i64> = got.select(0, 0).to_vec();
        assert_eq!(row[..12], want[0][..12]);
        assert!(row[12..].iter().all(|&t| t == 22), "{row:?}");
        assert_eq!(got.select(0, 1).to_vec::<i64>(), want[1]);
    }
}

#[test]
fn sampling_keeps_to_the_likeliest_and_to_the_temperature() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(3);
        let gpt = model(config(), F32);
        let prompt = ids().narrow(1, 0, 1).repeat(&[400, 1]);
        let logits = no_grad(|| gpt.forward(&prompt)).select(1, -1);
        let draw = |top_k, temperature| {
            let options =
                GenerateOptions { max_new_tokens: 1, do_sample: true, ..Default::default() };
            let options = GenerateOptions { top_k, temperature, ..options };
            gpt.generate(&prompt, options).select(1, -1)
        };
        // One choice is no choice, and so is a temperature near 0.
        let best = logits.argmax_dim(-1, false);
        assert!(draw(1, 1.0).equal(&best) && draw(0, 1e-4).equal(&best));
        let among = logits.topk(3, -1, true).1;
        let drawn = draw(3, 1.0).unsqueeze(1);
        assert_eq!(among.eq(&drawn).any_dim(&[1], false).sum().item(), 800.0);
        // Shares of the drawn tokens are those of the softmax.
        let row = |t: &Tensor| t.view([400, 2, -1]).select(1, 0);
        let shares = (row(&logits).select(0, 0) / 2.0).softmax(-1);
        let drawn = row(&draw(0, 2.0).unsqueeze(1));
        for token in 0..23i64 {
            let share = drawn.eq(token).to_dtype(F64).mean().item();
            let want = shares.select(0, token).item();
            assert!((share - want).abs() < 0.1, "{token}: {share}, not {want}");
        }
    })
}

#[test]
fn sampling_keeps_to_the_nucleus_and_to_shares_of_the_likeliest() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(4);
        let gpt = model(config(), F32);
        let prompt = ids().narrow(1, 0, 1).narrow(0, 0, 1).repeat(&[300, 1]);
        let options = GenerateOptions { max_new_tokens: 1, do_sample: true, ..Default::default() };
        let options = GenerateOptions { top_k: 0, ..options };
        let drawn = |options| -> BTreeSet<i64> {
            gpt.generate(&prompt, options).select(1, -1).to_vec().into_iter().collect()
        };
        let logits = no_grad(|| gpt.forward(&prompt.narrow(0, 0, 1))).select(1, -1).to_dtype(F64);
        let allowed = |options: LogitsOptions| -> BTreeSet<i64> {
            let left = filter_logits(&logits, &options, None).select(0, 0).to_vec::<f64>();
            (0..).zip(left).filter(|(_, logit)| logit.is_finite()).map(|(token, _)| token).collect()
        };
        let some = |options: fn(f64) -> LogitsOptions| {
            let bounds = (1..20).map(|i| f64::from(i) / 20.0);
            let mut found = bounds.map(|bound| (bound, allowed(options(bound))));
            found
                .find(|(_, tokens)| (2..12).contains(&tokens.len()))
                .expect("a bound that leaves some")
        };
        let (top_p, nucleus) = some(|top_p| LogitsOptions { top_p, ..Default::default() });
        let (min_p, shares) = some(|min_p| LogitsOptions { min_p, ..Default::default() });
        for (options, allowed) in [
            (GenerateOptions { top_p, ..options.clone() }, nucleus),
            (GenerateOptions { min_p, ..options }, shares),
        ] {
            let drawn = drawn(options);
            assert!(drawn.is_subset(&allowed) && drawn.len() > 1, "{drawn:?} of {allowed:?}");
        }
        // What is there already is pushed away, without drawing too.
        let greedy = GenerateOptions { max_new_tokens: 8, ..Default::default() };
        let greedy = GenerateOptions { repetition_penalty: 1e6, ..greedy };
        let row = gpt.generate(&ids().narrow(0, 0, 1), greedy).select(0, 0).to_vec::<i64>();
        let logits = no_grad(|| gpt.forward(&ids().narrow(0, 0, 1))).select(1, -1).select(0, 0);
        let seen: BTreeSet<i64> = ids().select(0, 0).to_vec().into_iter().collect();
        let positive: Vec<f64> = logits.to_vec();
        let new = (0..).zip(&positive).filter(|(token, _)| !seen.contains(token));
        let best = new.max_by(|a, b| a.1.total_cmp(b.1)).map(|(token, _)| token).unwrap();
        assert_eq!(row[ids().size(1)], best);
    })
}

#[test]
fn options_of_generation_that_cannot_be_are_refused() {
    let gpt = model(config(), F32);
    let few = GenerateOptions { max_new_tokens: 2, ..Default::default() };
    let draw = GenerateOptions { do_sample: true, ..few.clone() };
    for (options, name) in [
        (GenerateOptions { temperature: 0.0, ..draw.clone() }, "temperature"),
        (GenerateOptions { top_p: 1.5, ..draw.clone() }, "top_p"),
        (GenerateOptions { min_p: -0.1, ..draw.clone() }, "min_p"),
        (GenerateOptions { repetition_penalty: 0.0, ..draw }, "repetition_penalty"),
        // Nothing is drawn, so nothing would be left out.
        (GenerateOptions { top_p: 0.9, ..few.clone() }, "do_sample"),
        (GenerateOptions { top_k: 5, ..few }, "do_sample"),
    ] {
        let error = catch(|| gpt.generate(&ids(), options)).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn published_weights_load_under_their_names() {
    let gpt = model(config(), F32);
    let mut published = TensorMap::new();
    for (name, tensor) in gpt.state_dict() {
        if let Some(name) = name.strip_prefix("transformer.") {
            published.insert(name.into(), tensor.clone_contiguous());
        }
    }
    published.insert("h.0.attn.bias".into(), Tensor::ones([1, 1, 24, 24], Dtype::U8));
    let other = GPT2LMHeadModel::new(config());
    other.load_pretrained(&published).unwrap();
    other.eval();
    assert!(other.forward(&ids()).equal(&gpt.forward(&ids())));
    // With the names of the whole model, too; and nothing may be missing.
    other.load_pretrained(&gpt.state_dict()).unwrap();
    published.remove("ln_f.bias");
    let error = other.load_pretrained(&published).unwrap_err().to_string();
    assert!(error.contains("missing keys: `transformer.ln_f.bias`"), "{error}");
}

#[test]
fn too_long_sequences_are_refused() {
    let gpt = model(config(), F32);
    let long = Tensor::zeros([1, 25], Dtype::I64);
    let error = catch(|| gpt.forward(&long)).unwrap_err().to_string();
    assert!(error.contains("n_positions, 24"), "{error}");
    let options = GenerateOptions { max_new_tokens: 18, ..Default::default() };
    let error = catch(|| gpt.generate(&ids(), options)).unwrap_err().to_string();
    assert!(error.contains("max_new_tokens") && error.contains("24"), "{error}");
    let error = catch(|| GPT2Model::new(GPT2Config { n_head: 3, ..config() }).is_training());
    assert!(error.unwrap_err().to_string().contains("3 heads"));
}

#[test]
fn initial_values_are_the_originals() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(0);
        let sizes =
            GPT2Config { n_embd: 64, n_layer: 2, vocab_size: 500, n_positions: 100, ..config() };
        for (name, p) in GPT2LMHeadModel::new(sizes).named_parameters() {
            let got = p.std_dim(&[], 0, false).item();
            match (p.dim(), name.contains("c_proj")) {
                (1, _) => assert_eq!(got, 0.0, "{name}"),
                (_, true) => assert!((got / 0.01 - 1.0).abs() < 0.1, "{name}: {got}"),
                (_, false) => assert!((got / 0.02 - 1.0).abs() < 0.1, "{name}: {got}"),
            }
        }
    })
}
