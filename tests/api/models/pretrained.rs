//! Folders that Hugging Face's `transformers` wrote (`tools/golden/hf_folders.py`): the same logits, losses and gradients,
//! and the same again from a folder of ours. These stay in the build folder's `tmp/hf`, for the script's `--check`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use torchrs::checkpoint::{TensorMap, load_file};
use torchrs::models::*;
use torchrs::nn::{Forward, Module};
use torchrs::{Dtype, Tensor, no_grad};

pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hf").join(name)
}

pub fn recorded(name: &str) -> TensorMap {
    load_file(folder(name).join("inputs.safetensors")).unwrap()
}

#[track_caller]
pub fn close(what: &str, got: &Tensor, want: &Tensor) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let error = (got - want).abs().amax(&[], false).item();
    let largest = want.abs().amax(&[], false).item().max(1.0);
    // Not `>`, which lets NaN pass.
    assert!(error <= 1e-5 * largest, "{what}: {error} of {largest}");
}

/// Logits, loss and gradients against those of `transformers`.
#[track_caller]
fn same_as_recorded(model: &dyn Module, logits: &Tensor, loss: &Tensor, want: &TensorMap) {
    close("logits", logits, &want["logits"]);
    close("loss", &loss.reshape([1]), &want["loss"]);
    loss.backward();
    let parameters: TensorMap = model
        .named_parameters()
        .into_iter()
        .map(|(name, p)| (name, p.grad().expect("all have one")))
        .collect();
    let mut compared = 0;
    for (name, gradient) in want {
        let Some(name) = name.strip_prefix("grad.") else { continue };
        close(name, &parameters[name], gradient);
        compared += 1;
    }
    assert_eq!(compared, parameters.len());
}

/// Where a folder of ours stays.
fn saved(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hf").join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[track_caller]
fn same_state(one: &dyn Module, other: &dyn Module) {
    let (one, other) = (one.state_dict(), other.state_dict());
    assert!(one.keys().eq(other.keys()));
    for (name, tensor) in one.iter() {
        assert!(tensor.equal(&other[name]), "{name}");
    }
}

#[test]
fn gpt2() {
    let want = recorded("gpt2");
    let model = GPT2LMHeadModel::from_pretrained(folder("gpt2")).unwrap();
    model.eval();
    let (ids, labels) = (&want["input.input_ids"], &want["input.labels"]);
    same_as_recorded(&model, &model.forward(ids), &model.loss(ids, labels), &want);
    let options = GenerateOptions { max_new_tokens: 6, ..Default::default() };
    assert!(model.generate(ids, options).equal(&want["greedy"]));
    let config = GenerationConfig::from_pretrained(folder("gpt2")).unwrap();
    assert_eq!(
        (&config.eos_token_id[..], config.options(6).unwrap().eos_token_id),
        (&[2][..], vec![2])
    );

    let ours = saved("gpt2");
    model.save_pretrained(&ours).unwrap();
    assert!(!load_file(ours.join("model.safetensors")).unwrap().contains_key("lm_head.weight"));
    same_state(&GPT2LMHeadModel::from_pretrained(&ours).unwrap(), &model);
    let base = GPT2Model::from_pretrained(folder("gpt2")).unwrap();
    base.eval();
    let logits = base.forward(ids).linear(&model.lm_head.weight, None);
    close("from the base", &logits, &want["logits"]);
    // A folder of the base alone, into the model with its head.
    base.save_pretrained(&ours).unwrap();
    same_state(&GPT2LMHeadModel::from_pretrained(&ours).unwrap(), &model);
    model.save_pretrained(&ours).unwrap();
}

#[test]
fn llama() {
    for name in ["llama", "llama_tied"] {
        let want = recorded(name);
        let model = LlamaForCausalLM::from_pretrained(folder(name)).unwrap();
        assert_eq!(model.config().tie_word_embeddings, name == "llama_tied");
        let (ids, labels) = (&want["input.input_ids"], &want["input.labels"]);
        same_as_recorded(&model, &model.forward(ids), &model.loss(ids, labels), &want);
        let ours = saved(name);
        model.save_pretrained(&ours).unwrap();
        same_state(&LlamaForCausalLM::from_pretrained(&ours).unwrap(), &model);
        let base = LlamaModel::from_pretrained(&ours).unwrap();
        let logits = base.forward(ids).linear(&model.lm_head.weight, None);
        close("from the base", &logits, &want["logits"]);
    }
    assert!(
        folder("llama").join("model.safetensors.index.json").exists(),
        "it is in several files"
    );
    let config = GenerationConfig::from_pretrained(folder("llama")).unwrap();
    assert_eq!(config.eos_token_id, [2, 3]);
    assert_eq!((config.do_sample, config.temperature), (Some(true), Some(0.6)));
    assert_eq!((config.top_p, config.max_new_tokens), (Some(0.9), Some(5)));
    assert_eq!((config.pad_token_id, config.bos_token_id), (Some(0), Some(1)));
    assert_eq!(config.options(6).unwrap().eos_token_id, [2, 3]);
}

/// What `transformers` 5.24 makes of the same folder, with several tokens that end a sequence.
#[test]
fn any_of_several_tokens_ends_a_sequence() {
    let ids = &recorded("llama")["input.input_ids"];
    let model = LlamaForCausalLM::from_pretrained(folder("llama")).unwrap();
    model.eval();
    let cases = [
        (vec![36, 4], None, [[29, 26, 1, 36], [1, 4, 36, 36]]),
        (vec![4, 36], None, [[29, 26, 1, 36], [1, 4, 4, 4]]),
        (vec![36, 4], Some(5), [[29, 26, 1, 36], [1, 4, 5, 5]]),
    ];
    for (eos_token_id, pad_token_id, want) in cases {
        for use_cache in [true, false] {
            let options = GenerateOptions {
                max_new_tokens: 10,
                eos_token_id: eos_token_id.clone(),
                pad_token_id,
                use_cache,
                ..Default::default()
            };
            let got = model.generate(ids, options).narrow(1, 6, 4);
            assert_eq!(got.to_vec::<i64>(), want.concat(), "{eos_token_id:?} {pad_token_id:?}");
        }
    }
}

/// `transformers` warns that such an end is never met.
#[test]
fn what_is_no_token_ends_no_sequence() {
    let ids = &recorded("llama")["input.input_ids"];
    let model = LlamaForCausalLM::from_pretrained(folder("llama")).unwrap();
    let fails = |eos_token_id: Vec<i64>, pad_token_id, name: &str| {
        let options = GenerateOptions { eos_token_id, pad_token_id, ..Default::default() };
        let error = torchrs::catch(|| model.generate(ids, options)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("-1 is no token"), "{error}");
    };
    fails(vec![4, -1], None, "eos_token_id");
    fails(vec![4], Some(-1), "pad_token_id");
}

/// Settings of generation in `config.json`, as `transformers` 5.24 reads them where nothing else has them.
#[test]
fn a_folder_without_settings_of_generation_has_those_of_its_model() {
    let ours = tempfile::tempdir().unwrap();
    let mut config: Map<String, Value> =
        serde_json::from_slice(&fs::read(folder("gpt2").join("config.json")).unwrap()).unwrap();
    let settings =
        [("eos_token_id", json!([7, 8])), ("pad_token_id", json!(3)), ("max_length", json!(9))];
    config.extend(settings.map(|(key, value)| (key.to_owned(), value)));
    let write = |config: &Map<String, Value>| {
        fs::write(ours.path().join("config.json"), serde_json::to_string(config).unwrap()).unwrap();
    };
    write(&config);
    let read = GenerationConfig::from_pretrained(&ours).unwrap();
    assert_eq!(
        (read.eos_token_id, read.pad_token_id, read.max_length),
        (vec![7, 8], Some(3), Some(9))
    );
    assert_eq!((read.bos_token_id, read.do_sample), (Some(1), None));
    config.insert("num_beams".into(), json!(4));
    write(&config);
    let error = GenerationConfig::from_pretrained(&ours).unwrap_err().to_string();
    assert!(error.contains("num_beams") && error.contains("config.json"), "{error}");
}

fn bert_inputs(recorded: &TensorMap) -> BertInputs<'_> {
    BertInputs {
        attention_mask: Some(&recorded["input.attention_mask"]),
        token_type_ids: Some(&recorded["input.token_type_ids"]),
        position_ids: None,
    }
}

#[test]
fn bert_that_guesses_tokens() {
    let want = recorded("bert_mlm");
    let model = BertForMaskedLM::from_pretrained(folder("bert_mlm")).unwrap();
    model.eval();
    let (ids, labels, inputs) =
        (&want["input.input_ids"], &want["input.labels"], bert_inputs(&want));
    let logits = model.forward_with(ids, inputs);
    same_as_recorded(&model, &logits, &model.loss(ids, inputs, labels), &want);
    close("plain", &model.forward(ids), &want["plain"]);
    close("features", &model.bert.forward_with(ids, inputs), &want["features"]);
    let places = Tensor::range(6);
    let placed = BertInputs { position_ids: Some(&places), ..inputs };
    close("places", &model.forward_with(ids, placed), &want["logits"]);

    let ours = saved("bert_mlm");
    model.save_pretrained(&ours).unwrap();
    let names = load_file(ours.join("model.safetensors")).unwrap();
    assert!(
        names.keys().eq(load_file(folder("bert_mlm").join("model.safetensors")).unwrap().keys())
    );
    same_state(&BertForMaskedLM::from_pretrained(&ours).unwrap(), &model);
}

/// A text of padding alone sees nothing, which is no NaN.
#[test]
fn a_text_of_padding_alone_is_finite() {
    let model = BertForMaskedLM::from_pretrained(folder("bert_mlm")).unwrap();
    model.eval();
    let (ids, mask) = (Tensor::from([[5i64, 7], [9, 8]]), Tensor::from([[0i64, 0], [1, 1]]));
    let inputs = BertInputs { attention_mask: Some(&mask), ..Default::default() };
    let scores = model.forward_with(&ids, inputs);
    assert!(scores.to_vec::<f32>().iter().all(|x| x.is_finite()));
    close("the other", &scores.narrow(0, 1, 1), &model.forward(&ids).narrow(0, 1, 1));
}

#[test]
fn bert_that_classifies() {
    let want = recorded("bert_classes");
    let model = BertForSequenceClassification::from_pretrained(folder("bert_classes")).unwrap();
    model.eval();
    assert_eq!(model.config().id2label[&2], "good");
    let (ids, labels, inputs) =
        (&want["input.input_ids"], &want["input.labels"], bert_inputs(&want));
    let logits = model.forward_with(ids, inputs);
    same_as_recorded(&model, &logits, &model.loss(ids, inputs, labels), &want);
    close("plain", &model.forward(ids), &want["plain"]);
    let ours = saved("bert_classes");
    model.save_pretrained(&ours).unwrap();
    let again = BertForSequenceClassification::from_pretrained(&ours).unwrap();
    same_state(&again, &model);
    assert_eq!(again.config(), model.config());
    let base = BertModel::from_pretrained(&ours).unwrap();
    base.eval();
    close("features", &base.forward_with(ids, inputs), &want["features"]);
}

#[test]
fn vit() {
    let want = recorded("vit");
    let model = ViTForImageClassification::from_pretrained(folder("vit")).unwrap();
    model.eval();
    let (images, labels) = (&want["input.pixel_values"], &want["input.labels"]);
    same_as_recorded(&model, &model.forward(images), &model.loss(images, labels), &want);
    let ours = saved("vit");
    model.save_pretrained(&ours).unwrap();
    let again = ViTForImageClassification::from_pretrained(&ours).unwrap();
    same_state(&again, &model);
    assert_eq!(again.config(), model.config());
    let error = torchrs::catch(|| model.forward(&images.narrow(2, 0, 4))).unwrap_err().to_string();
    assert!(error.contains("must be [batch, 3, 8, 8]"), "{error}");
}

/// What `transformers` chooses by the labels.
#[test]
fn losses_of_classifiers_are_chosen_by_labels() {
    let config = |labels| {
        BertConfig {
            vocab_size: 20,
            hidden_size: 8,
            intermediate_size: 8,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            ..Default::default()
        }
        .with_num_labels(labels)
    };
    let ids = Tensor::from([[3i64, 4], [5, 6]]);
    let inputs = BertInputs::default();
    let loss = |model: &BertForSequenceClassification, labels: &Tensor| {
        no_grad(|| model.loss(&ids, inputs, labels)).item()
    };
    let model = BertForSequenceClassification::new(config(1));
    model.eval();
    let scores = no_grad(|| model.forward(&ids)).flatten(0, 1);
    let numbers = Tensor::from([1f32, -2.]);
    let want = ((scores - &numbers).square()).mean().item();
    assert!((loss(&model, &numbers) - want).abs() < 1e-6);

    let model = BertForSequenceClassification::new(config(2));
    model.eval();
    let scores = no_grad(|| model.forward(&ids));
    let want = scores.cross_entropy(&Tensor::from([1i64, 0])).item();
    assert_eq!(loss(&model, &Tensor::from([1i64, 0])), want);
    let shares = Tensor::from([[1f32, 0.], [1., 1.]]);
    let want = torchrs::nn::functional::binary_cross_entropy_with_logits(&scores, &shares).item();
    assert_eq!(loss(&model, &shares), want);
    let wrong = torchrs::catch(|| model.loss(&ids, inputs, &Tensor::zeros([2, 3], Dtype::F32)));
    assert!(wrong.unwrap_err().to_string().contains("labels is [2, 3]; must be [2, 2]"));
    let none = torchrs::catch(|| BertForSequenceClassification::new(config(0))).err();
    assert!(none.expect("there are no classes").to_string().contains("id2label"));
}
