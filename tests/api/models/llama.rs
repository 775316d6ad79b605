//! Llama: names, the cache, generation, settings, folders of weights.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};
use torchrs::checkpoint::{TensorMap, load_file, save_file};
use torchrs::models::*;
use torchrs::nn::{Forward, Module, StateDict};
use torchrs::{Dtype, Dtype::F32, Dtype::F64, Tensor, amp, autograd, catch, no_grad};

use super::formula::{fill, tokens};

fn config() -> LlamaConfig {
    LlamaConfig {
        vocab_size: 23,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 24,
        ..Default::default()
    }
}

fn model(config: LlamaConfig) -> LlamaForCausalLM {
    let model = fill(LlamaForCausalLM::new(config), F64);
    model.eval();
    model
}

fn ids() -> Tensor {
    tokens("input_ids", &[2, 7], 23)
}

#[track_caller]
fn same(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape(), b.shape());
    let error = (a - b).abs().amax(&[], false).item();
    // Not `>`, which lets NaN pass.
    assert!(error < 1e-12, "{error}");
}

#[test]
fn names_and_numbers_are_the_originals() {
    let names = |config| -> Vec<String> {
        LlamaForCausalLM::new(config).state_dict().keys().map(str::to_owned).collect()
    };
    let of_block = |i: usize, bias: bool| {
        let linear =
            ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
                .into_iter()
                .chain(["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"])
                .flat_map(move |layer| {
                    let bias = bias.then(|| format!("{layer}.bias"));
                    [format!("{layer}.weight")].into_iter().chain(bias)
                });
        let norms = ["input_layernorm.weight", "post_attention_layernorm.weight"];
        let all = linear.chain(norms.map(str::to_owned));
        all.map(move |name| format!("model.layers.{i}.{name}"))
    };
    let want = |bias| -> Vec<String> {
        ["model.embed_tokens.weight".to_owned()]
            .into_iter()
            .chain((0..2).flat_map(|i| of_block(i, bias)))
            .chain(["model.norm.weight", "lm_head.weight"].map(str::to_owned))
            .collect()
    };
    assert_eq!(names(config()), want(false));
    let tied = LlamaConfig { tie_word_embeddings: true, ..config() };
    assert_eq!(names(tied.clone()), want(false));
    let biased = LlamaConfig { attention_bias: true, mlp_bias: true, ..config() };
    assert_eq!(names(biased.clone()), want(true));
    let wide = LlamaConfig { head_dim: Some(6), num_key_value_heads: None, ..config() };
    for config in [config(), tied, biased, wide] {
        let model = LlamaForCausalLM::new(config.clone());
        assert_eq!(model.num_parameters(), config.num_parameters(), "{config:?}");
        assert_eq!(model.forward(&ids()).shape(), &[2, 7, 23]);
    }
}

#[test]
fn a_tied_head_is_the_table() {
    let tied = LlamaForCausalLM::new(LlamaConfig { tie_word_embeddings: true, ..config() });
    assert!(tied.lm_head.weight.ptr_eq(&tied.model.embed_tokens.weight));
    assert_eq!(tied.parameters().len(), LlamaForCausalLM::new(config()).parameters().len() - 1);
    tied.loss(&ids(), &ids()).backward();
    let grad = tied.model.embed_tokens.weight.grad().unwrap();
    // Every token's row gets a gradient by the head, also those that are not in the text.
    let rows = grad.abs().sum_dim(&[1], false).to_vec::<f64>();
    assert!(rows.iter().all(|&sum| sum > 0.0), "{rows:?}");
}

#[test]
fn the_cache_and_given_places_change_nothing() {
    let llama = model(config());
    let whole = no_grad(|| llama.forward(&ids()));
    let mut cache = KeyValueCache::new();
    let mut parts = Vec::new();
    // All at once, then several tokens behind others, then one.
    for (start, length) in [(0, 3), (3, 3), (6, 1)] {
        let part = ids().narrow(1, start, length);
        let inputs = DecoderInputs { cache: Some(&mut cache), ..Default::default() };
        parts.push(no_grad(|| llama.forward_with(&part, inputs)));
    }
    assert_eq!(cache.length(), 7);
    same(&Tensor::cat(&parts, 1), &whole);
    for places in [Tensor::range(7), Tensor::range(7).expand(&[2, 7])] {
        let inputs = DecoderInputs { position_ids: Some(&places), ..Default::default() };
        same(&llama.forward_with(&ids(), inputs), &whole);
    }
    // Rotary embeddings know distances alone.
    let places = Tensor::range(7) + 1000;
    let inputs = DecoderInputs { position_ids: Some(&places), ..Default::default() };
    let error = (llama.forward_with(&ids(), inputs) - &whole).abs().amax(&[], false).item();
    assert!(error < 1e-9, "{error}");
    let places = Tensor::range(7) * 2;
    let inputs = DecoderInputs { position_ids: Some(&places), ..Default::default() };
    let change = (llama.forward_with(&ids(), inputs) - &whole).abs().amax(&[], false).item();
    assert!(change > 1e-3, "{change}");
    let places = Tensor::range(6);
    let inputs = DecoderInputs { position_ids: Some(&places), ..Default::default() };
    let error = catch(|| llama.forward_with(&ids(), inputs)).unwrap_err().to_string();
    assert!(error.contains("position_ids") && error.contains("[2, 7]"), "{error}");
}

/// Angles that inference has computed are kept, and serve training.
#[test]
fn a_cache_that_is_not_whole_is_refused() {
    let one = model(LlamaConfig { num_hidden_layers: 1, ..config() });
    let two = model(config());
    let mut cache = KeyValueCache::new();
    let next = |model: &LlamaForCausalLM, cache: &mut KeyValueCache| {
        let inputs = DecoderInputs { cache: Some(cache), ..Default::default() };
        catch(|| model.forward_with(&ids().narrow(1, 0, 1), inputs)).map_err(|e| e.to_string())
    };
    next(&one, &mut cache).unwrap();
    // Alone, a token sees all there is: no shape is wrong.
    let error = next(&two, &mut cache).unwrap_err();
    assert!(error.contains("has 1 tokens in layer 1 and 2 in the first"), "{error}");
}

#[test]
fn a_model_that_was_used_for_inference_trains() {
    let (used, fresh) = (model(config()), model(config()));
    let options = GenerateOptions { max_new_tokens: 9, ..Default::default() };
    autograd::inference_mode(|| used.generate(&ids(), options));
    let gradients = |llama: &LlamaForCausalLM| -> Vec<Vec<f64>> {
        llama.loss(&ids(), &ids()).backward();
        llama.parameters().iter().map(|p| p.grad().unwrap().to_vec()).collect()
    };
    assert_eq!(gradients(&used), gradients(&fresh));
}

#[test]
fn padding_is_not_seen() {
    let llama = model(config());
    let alone = no_grad(|| llama.forward(&ids().narrow(0, 0, 1).narrow(1, 2, 5)));
    let mask = Tensor::from([[0i64, 0, 1, 1, 1, 1, 1], [1; 7]]);
    let inputs = DecoderInputs { attention_mask: Some(&mask), ..Default::default() };
    let padded = no_grad(|| llama.forward_with(&ids(), inputs));
    same(&padded.narrow(0, 0, 1).narrow(1, 2, 5), &alone);
    same(&padded.narrow(0, 1, 1), &no_grad(|| llama.forward(&ids().narrow(0, 1, 1))));
}

#[test]
fn queries_share_keys_as_if_these_were_repeated() {
    let shared = model(config());
    let repeated = LlamaForCausalLM::new(LlamaConfig { num_key_value_heads: None, ..config() });
    let wide = |(name, tensor): (String, Tensor)| {
        if !name.contains("k_proj") && !name.contains("v_proj") {
            return (name, tensor);
        }
        let heads = tensor.detach().view([2, 4, 16]).repeat_interleave(2, 0).flatten(0, 1);
        (name, heads)
    };
    let state: StateDict = shared.state_dict().into_iter().map(wide).collect();
    let mut repeated = repeated;
    repeated.to(F64);
    repeated.load_state_dict(&state, true).unwrap();
    same(&shared.forward(&ids()), &repeated.forward(&ids()));
}

#[test]
fn generation_is_that_of_the_whole_text() {
    let llama = model(config());
    let mut want = ids();
    for _ in 0..9 {
        let next = no_grad(|| llama.forward(&want)).select(1, -1).argmax_dim(-1, true);
        want = Tensor::cat(&[want, next], 1);
    }
    for use_cache in [true, false] {
        let options = GenerateOptions { max_new_tokens: 9, use_cache, ..Default::default() };
        assert!(llama.generate(&ids(), options).equal(&want), "use_cache {use_cache}");
    }
    let options = GenerateOptions { max_new_tokens: 18, ..Default::default() };
    let error = catch(|| llama.generate(&ids(), options)).unwrap_err().to_string();
    assert!(error.contains("max_position_embeddings, 24"), "{error}");
    let error = catch(|| llama.forward(&tokens("long", &[1, 25], 23))).unwrap_err().to_string();
    assert!(error.contains("25 tokens") && error.contains("max_position_embeddings"), "{error}");
}

#[test]
fn blocks_computed_again_give_the_same_gradients() {
    let gradients = |how: ActivationCheckpointing, autocast: bool| -> Vec<Vec<f64>> {
        torchrs::fork_rng(|| {
            torchrs::manual_seed(1);
            let dropped = LlamaConfig { attention_dropout: 0.2, ..config() };
            let mut llama = fill(LlamaForCausalLM::new(dropped), F32);
            llama.model.set_activation_checkpointing(how);
            let loss = || llama.loss(&ids(), &ids());
            let loss = match autocast {
                true => amp::autocast(torchrs::Device::Cpu, Dtype::BF16, loss),
                false => loss(),
            };
            loss.backward();
            llama.parameters().iter().map(|p| p.grad().unwrap().to_vec()).collect()
        })
    };
    for autocast in [false, true] {
        let want = gradients(ActivationCheckpointing::None, autocast);
        assert_eq!(gradients(ActivationCheckpointing::Full, autocast), want);
        assert_eq!(gradients(ActivationCheckpointing::Selective, autocast), want);
    }
}

/// Tensors that are kept for backward outside of the blocks' own bookkeeping.
#[test]
fn blocks_computed_again_keep_their_input_alone() {
    let kept = |how| {
        let mut llama = fill(LlamaForCausalLM::new(config()), F32);
        llama.model.set_activation_checkpointing(how);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let pack = move |t: &Tensor| {
            counted.fetch_add(1, Relaxed);
            t.clone()
        };
        let loss = || llama.loss(&ids(), &ids());
        autograd::saved_tensors_hooks(pack, |t: &Tensor| t.clone(), loss).backward();
        count.load(Relaxed)
    };
    let [none, full, selective] = [
        ActivationCheckpointing::None,
        ActivationCheckpointing::Full,
        ActivationCheckpointing::Selective,
    ]
    .map(kept);
    assert!(none > full + 2 * 15 && full == selective, "{none} {full} {selective}");
}

/// What `config.json` of Llama 3.1 has, with other sizes.
fn published() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
        "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 24,
        "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "pretraining_tp": 1, "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"
        },
        "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 23
    })
}

#[test]
fn settings_are_read_and_written() {
    let read = |value: Value| serde_json::from_value::<LlamaConfig>(value);
    let config = read(published()).unwrap();
    let want = LlamaConfig {
        vocab_size: 23,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        ..LlamaConfig::llama3_1_8b()
    };
    assert_eq!(config, want);
    assert_eq!(read(serde_json::to_value(&config).unwrap()).unwrap(), config);
    // The form of version 5 of transformers, and the older name of the type.
    let mut newer = published();
    newer["rope_parameters"] = newer["rope_scaling"].take();
    newer["rope_parameters"]["rope_theta"] = newer["rope_theta"].take();
    assert_eq!(read(newer).unwrap(), config);
    let mut older = published();
    older["rope_scaling"]["type"] = older["rope_scaling"]["rope_type"].take();
    assert_eq!(read(older).unwrap(), config);
    let mut plain = published();
    plain["rope_scaling"] = json!({"rope_type": "default"});
    assert_eq!(read(plain).unwrap().rope_scaling, None);

    let cases: [(&str, Value, &str); 16] = [
        ("model_type", json!("mistral"), "mistral"),
        ("hidden_act", json!("gelu"), "silu"),
        ("sliding_window", json!(4096), "not known"),
        ("quantization_config", json!({"bits": 4}), "not known"),
        ("hiden_size", json!(32), "not known"),
        ("partial_rotary_factor", json!(0.5), "0.5"),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0}), "yarn"),
        ("rope_scaling", json!({"rope_type": "llama3", "factor": 4.0}), "low_freq_factor"),
        ("rope_scaling", json!({"rope_type": "default", "factor": 4.0}), "4.0"),
        ("rope_scaling", json!(2.0), "rope_type"),
        ("rope_parameters", json!({"rope_type": "default"}), "rope_scaling"),
        ("num_key_value_heads", json!(3), "4 heads"),
        ("num_attention_heads", json!(3), "hidden_size of 16"),
        ("head_dim", json!(5), "even"),
        ("hidden_size", json!("16"), "16"),
        ("hidden_size", json!(null), "missing field"),
    ];
    for (key, value, says) in cases {
        let mut changed = published();
        changed[key] = value;
        let error = read(changed).unwrap_err().to_string();
        assert!(error.contains(key) || says == "16", "{error}");
        assert!(error.contains(says), "{key}: {error}");
    }
}

#[test]
fn rope_scaling_changes_what_is_computed() {
    let scaled = LlamaConfig {
        rope_scaling: Some(RopeScaling::Llama3 {
            factor: 4.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8,
        }),
        ..config()
    };
    let [a, b] = [config(), scaled].map(|config| model(config).forward(&ids()));
    // The first token has no distance to any other.
    same(&a.narrow(1, 0, 1), &b.narrow(1, 0, 1));
    assert!((a - b).abs().amax(&[], false).item() > 1e-4);
}

#[test]
fn folders_of_weights_are_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    for tie_word_embeddings in [false, true] {
        let folder = folder.path().join(format!("tied-{tie_word_embeddings}"));
        let config = LlamaConfig { tie_word_embeddings, ..config() };
        let llama = fill(LlamaForCausalLM::new(config), F32);
        llama.save_pretrained(&folder).unwrap();
        let file = folder.join("model.safetensors");
        assert_eq!(load_file(&file).unwrap().contains_key("lm_head.weight"), !tie_word_embeddings);
        let again = LlamaForCausalLM::from_pretrained(&folder).unwrap();
        assert!(again.forward(&ids()).equal(&llama.forward(&ids())));
    }

    // The same in two files, of half types, with what old versions had beside.
    let folder = folder.path().join("sharded");
    let llama = fill(LlamaForCausalLM::new(config()), F32);
    llama.save_pretrained(&folder).unwrap();
    let mut weights = load_file(folder.join("model.safetensors")).unwrap();
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    weights.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), Tensor::from([1f32]));
    let part = |i: usize| format!("model-0000{i}-of-00002.safetensors");
    let write = |weights: &TensorMap| {
        let mut parts = [TensorMap::new(), TensorMap::new()];
        let mut places = serde_json::Map::new();
        for (i, (name, tensor)) in weights.iter().enumerate() {
            parts[i % 2].insert(name.clone(), tensor.to_dtype(Dtype::BF16));
            places.insert(name.clone(), json!(part(1 + i % 2)));
        }
        for (i, tensors) in parts.iter().enumerate() {
            save_file(tensors, &Default::default(), folder.join(part(1 + i))).unwrap();
        }
        let index = json!({"metadata": {"total_size": 1}, "weight_map": places});
        fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    };
    write(&weights);
    let again = LlamaForCausalLM::from_pretrained(&folder).unwrap();
    for (name, tensor) in again.state_dict().iter() {
        let want = weights[name].to_dtype(Dtype::BF16).to_dtype(F32);
        assert!(tensor.equal(&want), "{name}");
    }

    // Without the prefix, as a folder of the model without its head has it.
    let bare: TensorMap = weights
        .iter()
        .map(|(name, t)| (name.strip_prefix("model.").unwrap_or(name).to_owned(), t.clone()))
        .collect();
    again.load_pretrained(&bare).unwrap();
    assert!(again.model.norm.weight.as_ref().unwrap().equal(&weights["model.norm.weight"]));

    let fails = |what: &str| {
        let error = LlamaForCausalLM::from_pretrained(&folder).err().expect(what).to_string();
        assert!(error.contains(what), "{error}");
    };
    let norm = weights.remove("model.norm.weight").unwrap();
    write(&weights);
    fails("missing keys: `model.norm.weight`");
    weights.insert("model.norm.weight".into(), norm.clone());
    weights.insert("model.norm.bias".into(), norm.clone());
    write(&weights);
    fails("unexpected keys: `model.norm.bias`");
    weights.remove("model.norm.bias");
    weights.insert("model.norm.weight".into(), Tensor::zeros([3], F32));
    write(&weights);
    fails("model.norm.weight` is [3]");
    fs::remove_file(folder.join(part(2))).unwrap();
    fails("model-00002-of-00002");
    let index = json!({"weight_map": {"lm_head.weight": "../other.safetensors"}}).to_string();
    fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    fails("names the file `../other.safetensors`, which is none of its folder");
    fs::remove_file(folder.join("model.safetensors.index.json")).unwrap();
    fails("is no checkpoint: it has none of");

    // A head that is said to be the table, and is another.
    let tied = LlamaForCausalLM::new(LlamaConfig { tie_word_embeddings: true, ..config() });
    weights.insert("model.norm.weight".into(), norm);
    let error = tied.load_pretrained(&weights).unwrap_err().to_string();
    assert!(error.contains("tie_word_embeddings"), "{error}");
    weights.insert("lm_head.weight".into(), weights["model.embed_tokens.weight"].clone());
    tied.load_pretrained(&weights).unwrap();
    weights.remove("lm_head.weight");
    tied.load_pretrained(&weights).unwrap();
}
