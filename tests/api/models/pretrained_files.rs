//! Folders of models as they are found: names with prefixes, old files, old buffers, and what does not fit.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use torchrs::checkpoint::{PtValue, TensorMap, load_file, save_file, save_pt};
use torchrs::models::*;
use torchrs::nn::{Forward, Linear, Module, Sequential, StateDict};
use torchrs::{Dtype, Tensor};

use super::pretrained::{close, folder, recorded};

/// A folder with the settings of a recorded one, other weights, and what `change` makes of the settings.
fn with(
    name: &str,
    weights: &TensorMap,
    change: impl FnOnce(&mut Map<String, Value>),
) -> tempfile::TempDir {
    let made = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(folder(name).join("config.json")).unwrap();
    let mut config: Map<String, Value> = serde_json::from_str(&text).unwrap();
    change(&mut config);
    fs::write(made.path().join("config.json"), json!(config).to_string()).unwrap();
    save_file(weights, &Default::default(), made.path().join("model.safetensors")).unwrap();
    made
}

fn weights(name: &str) -> TensorMap {
    load_file(folder(name).join("model.safetensors")).unwrap()
}

fn renamed(weights: &TensorMap, name: impl Fn(&str) -> String) -> TensorMap {
    weights.iter().map(|(old, tensor)| (name(old), tensor.clone())).collect()
}

#[track_caller]
fn bert_computes(folder: &Path) {
    let want = recorded("bert_mlm");
    let model = BertForMaskedLM::from_pretrained(folder).unwrap();
    model.eval();
    close("plain", &model.forward(&want["input.input_ids"]), &want["plain"]);
}

#[test]
fn names_have_prefixes_of_wrappers_and_of_the_base_or_none() {
    let plain = weights("bert_mlm");
    let bare = |name: &str| name.strip_prefix("bert.").unwrap_or(name).to_owned();
    type Rename<'a> = &'a dyn Fn(&str) -> String;
    let cases: [Rename; 6] = [
        &|name| format!("module.{name}"),
        &|name| format!("_orig_mod.module.{name}"),
        &|name| format!("module._orig_mod.{}", bare(name)),
        &|name| name.replace("layer.1.", "layer.1._orig_mod._checkpoint_wrapped_module."),
        &bare,
        &|name| {
            name.replace("LayerNorm.weight", "LayerNorm.gamma")
                .replace("LayerNorm.bias", "LayerNorm.beta")
        },
    ];
    for case in cases {
        bert_computes(with("bert_mlm", &renamed(&plain, case), |_| {}).path());
    }
    // Buffers of old versions, tied tensors that are there, another head, and a pooler.
    let mut more = plain.clone();
    more.insert("bert.embeddings.position_ids".into(), Tensor::range(16).unsqueeze(0));
    let table = plain["bert.embeddings.word_embeddings.weight"].clone();
    more.insert("cls.predictions.decoder.weight".into(), table);
    more.insert("cls.predictions.decoder.bias".into(), plain["cls.predictions.bias"].clone());
    more.insert("cls.seq_relationship.weight".into(), Tensor::zeros([2, 16], Dtype::F32));
    more.insert("bert.pooler.dense.bias".into(), Tensor::zeros([16], Dtype::F32));
    let made = with("bert_mlm", &more, |_| {});
    bert_computes(made.path());
    let model = BertForMaskedLM::from_pretrained(made.path()).unwrap();
    let report = model.load_folder(made.path()).unwrap();
    assert_eq!(report.unexpected_keys, ["bert.pooler.dense.bias", "cls.seq_relationship.weight"]);
    // The tied one alone.
    let mut other = plain.clone();
    let table = other.remove("bert.embeddings.word_embeddings.weight").unwrap();
    other.insert("cls.predictions.decoder.weight".into(), table);
    bert_computes(with("bert_mlm", &other, |_| {}).path());

    // ViT's names in version 5 of transformers.
    let v5 = |name: &str| {
        let name = name.replace("encoder.layer.", "layers.");
        let name = name.replace("attention.attention.query", "attention.q_proj");
        let name = name.replace("attention.attention.key", "attention.k_proj");
        let name = name.replace("attention.attention.value", "attention.v_proj");
        let name = name.replace("attention.output.dense", "attention.o_proj");
        name.replace("intermediate.dense", "mlp.fc1").replace("output.dense", "mlp.fc2")
    };
    let (plain, want) = (weights("vit"), recorded("vit"));
    let changed = renamed(&plain, v5);
    assert!(changed.contains_key("vit.layers.1.mlp.fc2.bias"));
    let model =
        ViTForImageClassification::from_pretrained(with("vit", &changed, |_| {}).path()).unwrap();
    close("vit", &model.forward(&want["input.pixel_values"]), &want["logits"]);

    // GPT-2's masks, which were stored for each block.
    let mut old = weights("gpt2");
    old.insert("transformer.h.0.attn.bias".into(), Tensor::ones([1, 1, 24, 24], Dtype::U8));
    old.insert("transformer.h.0.attn.masked_bias".into(), Tensor::scalar(-1e4f32));
    let model = GPT2LMHeadModel::from_pretrained(with("gpt2", &old, |_| {}).path()).unwrap();
    model.eval();
    let want = recorded("gpt2");
    close("gpt2", &model.forward(&want["input.input_ids"]), &want["logits"]);
}

#[test]
fn files_of_torch_save_are_read() {
    let plain = weights("bert_mlm");
    let made = with("bert_mlm", &plain, |_| {});
    fs::remove_file(made.path().join("model.safetensors")).unwrap();
    save_pt(&PtValue::from(&plain), made.path().join("pytorch_model.bin")).unwrap();
    bert_computes(made.path());
    // The same in two files.
    fs::remove_file(made.path().join("pytorch_model.bin")).unwrap();
    let part = |i: usize| format!("pytorch_model-0000{}-of-00002.bin", i + 1);
    let mut parts = [TensorMap::new(), TensorMap::new()];
    let mut places = Map::new();
    for (i, (name, tensor)) in plain.iter().enumerate() {
        parts[i % 2].insert(name.clone(), tensor.clone());
        places.insert(name.clone(), json!(part(i % 2)));
    }
    for (i, tensors) in parts.iter().enumerate() {
        save_pt(&PtValue::from(tensors), made.path().join(part(i))).unwrap();
    }
    let index = made.path().join("pytorch_model.bin.index.json");
    fs::write(&index, json!({"weight_map": places}).to_string()).unwrap();
    bert_computes(made.path());
    let fails = |what: &str| {
        let error = BertForMaskedLM::from_pretrained(made.path()).err().expect(what).to_string();
        assert!(error.contains(what), "{error}");
    };
    places.insert("more".into(), json!(part(0)));
    fs::write(&index, json!({"weight_map": places}).to_string()).unwrap();
    fails("says that tensor `more` is in pytorch_model-00001-of-00002.bin");
    fs::write(&index, json!({"weight_map": {"a": "../b.bin"}}).to_string()).unwrap();
    fails("`../b.bin`, which is none of its folder");
    fs::remove_file(&index).unwrap();
    fails("is no checkpoint");
}

#[test]
fn all_that_does_not_fit_is_named_at_once_and_nothing_is_copied() {
    let mut wrong = weights("bert_mlm");
    wrong.remove("bert.encoder.layer.0.output.dense.bias").unwrap();
    wrong.remove("bert.embeddings.word_embeddings.weight").unwrap();
    wrong.insert("bert.encoder.layer.0.output.dense.bais".into(), Tensor::zeros([16], Dtype::F32));
    wrong.insert("bert.encoder.layer.0.gate.weight".into(), Tensor::zeros([16], Dtype::F32));
    wrong.insert("bert.embeddings.LayerNorm.weight".into(), Tensor::zeros([3], Dtype::F32));
    wrong.insert("bert.embeddings.LayerNorm.bias".into(), Tensor::zeros([16], Dtype::I8));
    let made = with("bert_mlm", &wrong, |_| {});
    let model = BertForMaskedLM::from_pretrained(folder("bert_mlm")).unwrap();
    let before = model.state_dict().iter().map(|(_, t)| t.clone_contiguous()).collect::<Vec<_>>();
    let error = model.load_folder(made.path()).unwrap_err().to_string();
    for part in [
        "does not fit BertForMaskedLM",
        "missing keys: `bert.embeddings.word_embeddings.weight`, `bert.encoder.layer.0.output.dense.bias`",
        "unexpected keys: `bert.encoder.layer.0.gate.weight`, `bert.encoder.layer.0.output.dense.bais`",
        "shape mismatch: `bert.embeddings.LayerNorm.weight` is [3] in the weights and [16] in the model",
        "dtype mismatch: `bert.embeddings.LayerNorm.bias` is i8 in the weights and f32 in the model",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    for ((name, after), before) in model.state_dict().iter().zip(&before) {
        assert!(after.equal(before), "{name}");
    }
    let mut twice = weights("bert_mlm");
    let bias = twice["cls.predictions.bias"].clone();
    twice.insert("module.cls.predictions.bias".into(), bias.clone());
    let error = model.load_pretrained(&twice).unwrap_err().to_string();
    assert!(error.contains("are both `cls.predictions.bias`"), "{error}");
    let mut apart = weights("bert_mlm");
    apart.insert("cls.predictions.decoder.bias".into(), bias + 1.0);
    let error = model.load_pretrained(&apart).unwrap_err().to_string();
    assert!(
        error.contains("`cls.predictions.decoder.bias` differs from `cls.predictions.bias`"),
        "{error}"
    );
    for ((name, after), before) in model.state_dict().iter().zip(&before) {
        assert!(after.equal(before), "{name}");
    }
}

#[test]
fn a_head_begins_anew_only_if_that_is_asked_for() {
    let error = BertForSequenceClassification::from_pretrained(folder("bert_mlm"))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("missing keys: `bert.pooler.dense.weight`"), "{error}");
    assert!(error.contains("`classifier.bias`") && error.contains("new_head: true"), "{error}");
    let options = PretrainedOptions { new_head: true };
    let model =
        BertForSequenceClassification::from_pretrained_with(folder("bert_mlm"), options).unwrap();
    let plain = weights("bert_mlm");
    let table = &model.bert.embeddings.word_embeddings.weight;
    assert!(table.equal(&plain["bert.embeddings.word_embeddings.weight"]));
    // It has initial values, and none that were left out.
    let spread = model.classifier.weight.std_dim(&[], 0, false).item();
    assert!((0.005..0.05).contains(&spread), "{spread}");
    assert_eq!(model.classifier.bias.as_ref().unwrap().abs().max().item(), 0.0);

    // Of another number of classes: the pooler is taken, the classifier of the file is not.
    let config = BertConfig::from_file(folder("bert_classes").join("config.json")).unwrap();
    let model = BertForSequenceClassification::new(config.with_labels(["a", "b", "c", "d", "e"]));
    let error = model.load_folder(folder("bert_classes")).unwrap_err().to_string();
    assert!(error.contains("`classifier.weight` is [3, 16] in the weights and [5, 16]"), "{error}");
    let report = model.load_folder_with(folder("bert_classes"), options).unwrap();
    assert_eq!(report.missing_keys, ["classifier.weight", "classifier.bias"]);
    let pooler = model.bert.pooler.as_ref().unwrap();
    assert!(pooler.dense.weight.equal(&weights("bert_classes")["bert.pooler.dense.weight"]));
}

#[test]
fn settings_that_are_not_known_are_named() {
    #[track_caller]
    fn refused<T>(
        name: &str,
        load: fn(&Path) -> torchrs::Result<T>,
        key: &str,
        value: Value,
        says: &str,
    ) {
        let made = with(name, &weights(name), |config| _ = config.insert(key.into(), value));
        let error = load(made.path()).err().expect(key).to_string();
        assert!(error.contains(key), "{key}: {error}");
        assert!(error.contains(says), "{key}: {error}");
    }
    let bert: fn(&Path) -> _ = |folder| BertForMaskedLM::from_pretrained(folder);
    refused("bert_mlm", bert, "model_type", json!("roberta"), "this is \"bert\"");
    refused("bert_mlm", bert, "position_embedding_type", json!("relative_key"), "absolute");
    refused("bert_mlm", bert, "is_decoder", json!(true), "false");
    refused("bert_mlm", bert, "hidden_act", json!("mish"), "variant");
    refused("bert_mlm", bert, "embedding_size", json!(8), "not known");
    refused("bert_mlm", bert, "num_attention_heads", json!(3), "hidden_size of 16");
    refused("bert_mlm", bert, "pad_token_id", json!(40), "below 40");
    let vit: fn(&Path) -> _ = |folder| ViTForImageClassification::from_pretrained(folder);
    refused("vit", vit, "model_type", json!("deit"), "deit");
    refused("vit", vit, "num_labels", json!(4), "`id2label` has 3");
    refused("vit", vit, "patch_size", json!(0), "must be positive");
    refused("vit", vit, "image_size", json!(2), "below a patch");
    let gpt2: fn(&Path) -> _ = |folder| GPT2LMHeadModel::from_pretrained(folder);
    refused("gpt2", gpt2, "model_type", json!("gpt_neo"), "gpt_neo");
    refused("gpt2", gpt2, "activation_function", json!("mish"), "variant");
    refused("gpt2", gpt2, "n_head", json!(3), "cannot share");
    refused("gpt2", gpt2, "rotary", json!(true), "not known");
    refused(
        "llama_tied",
        |folder| LlamaForCausalLM::from_pretrained(folder),
        "hidden_act",
        json!("gelu"),
        "silu",
    );

    // What changes nothing is left alone, and null is none.
    let made = with("bert_mlm", &weights("bert_mlm"), |config| {
        config.insert("directionality".into(), json!("bidi"));
        config.insert("gradient_checkpointing".into(), json!(false));
        config.insert("position_embedding_type".into(), json!("absolute"));
        config.insert("pad_token_id".into(), Value::Null);
        config.insert("layer_norm_eps".into(), Value::Null);
        config.insert("num_labels".into(), json!(7));
    });
    let config = BertConfig::from_file(made.path().join("config.json")).unwrap();
    assert_eq!((config.pad_token_id, config.layer_norm_eps, config.num_labels()), (None, 1e-12, 7));
    let made = with("vit", &weights("vit"), |config| {
        _ = config.insert("image_size".into(), json!([8, 12]))
    });
    let config = ViTConfig::from_file(made.path().join("config.json")).unwrap();
    assert_eq!((config.image_size, config.patch_size, config.num_patches()), ([8, 12], [4, 4], 6));
}

#[test]
fn a_folder_in_several_files_is_not_written_into() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model.safetensors.index.json"), "{}").unwrap();
    let model = GPT2LMHeadModel::from_pretrained(super::pretrained::folder("gpt2")).unwrap();
    let error = model.save_pretrained(folder.path()).unwrap_err().to_string();
    assert!(error.contains("would not be read"), "{error}");
    assert!(!folder.path().join("config.json").exists());
}

#[test]
fn generation_settings_that_are_not_done_are_named() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        GenerationConfig::from_pretrained(folder.path()).unwrap(),
        GenerationConfig::default()
    );
    assert!(GenerationConfig::from_pretrained(folder.path().join("no")).is_err());
    let path = folder.path().join("generation_config.json");
    let read = |value: Value| {
        fs::write(&path, value.to_string()).unwrap();
        GenerationConfig::from_pretrained(folder.path())
    };
    let idle = json!({"num_beams": 1, "length_penalty": 1.0, "suppress_tokens": null, "eos_token_id": null});
    assert_eq!(read(idle).unwrap(), GenerationConfig::default());
    for (key, value) in [
        ("num_beams", json!(4)),
        ("no_repeat_ngram_size", json!(3)),
        ("max_time", json!(2.5)),
        ("suppress_tokens", json!([1])),
        ("temprature", json!(0.5)),
        ("stop_strings", json!(["."])),
    ] {
        let error = read(json!({ key: value })).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
    let error = read(json!({"top_k": "many"})).unwrap_err().to_string();
    assert!(error.contains("many"), "{error}");
    let settings =
        json!({"do_sample": false, "temperature": 0.5, "top_k": 4, "top_p": 0.9, "min_p": 0.1});
    assert_eq!(read(settings).unwrap().options(8).unwrap(), GenerateOptions::default());
    let config = read(json!({"max_length": 20, "do_sample": true, "temperature": 0.5})).unwrap();
    let options = config.options(8).unwrap();
    assert_eq!((options.max_new_tokens, options.do_sample, options.temperature), (12, true, 0.5));
    let error = config.options(20).unwrap_err().to_string();
    assert!(error.contains("the prompt has 20 tokens"), "{error}");
}

#[test]
fn settings_of_generation_among_those_of_a_model_are_for_generation() {
    let made = with("gpt2", &weights("gpt2"), |config| {
        for (key, value) in
            [("do_sample", json!(true)), ("top_p", json!(0.9)), ("num_beams", json!(1))]
        {
            config.insert(key.into(), value);
        }
    });
    GPT2LMHeadModel::from_pretrained(made.path()).unwrap();
    let config = GenerationConfig::from_pretrained(made.path()).unwrap();
    assert_eq!((config.do_sample, config.top_p), (Some(true), Some(0.9)));
}

/// Also without `strict`, which would load nothing.
#[test]
fn names_of_wrappers_are_no_silence() {
    let net = || Sequential::new().append(Linear::new(3, 2)).append(Linear::new(2, 1));
    let (trained, fresh) = (net(), net());
    let wrapped: StateDict =
        trained.state_dict().into_iter().map(|(name, t)| (format!("module.{name}"), t)).collect();
    for strict in [true, false] {
        let error = fresh.load_state_dict(&wrapped, strict).unwrap_err().to_string();
        assert!(error.contains("StateDict::unwrapped"), "{error}");
    }
    let bare = StateDict::unwrapped(&wrapped).unwrap();
    fresh.load_state_dict(&bare, true).unwrap();
    assert!(fresh.state_dict()["1.weight"].equal(&trained.state_dict()["1.weight"]));
    let mut both = bare;
    both.insert("module.1.weight", Tensor::zeros([1, 2], Dtype::F32));
    let error = StateDict::unwrapped(&both).unwrap_err().to_string();
    assert!(error.contains("`1.weight` twice"), "{error}");
}
