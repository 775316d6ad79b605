//! Graphs of ONNX: what is written, and what is refused. `tools/checks/check-onnx` runs them.

use std::collections::BTreeSet;

use torchrs::checkpoint::{export_onnx, onnx_graph};
use torchrs::models::{BertConfig, BertModel, BertOnnxInputs, GPT2Config, GPT2LMHeadModel};
use torchrs::nn::{
    AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, BatchNorm2d, Conv2d, Embedding, Forward,
    FractionalMaxPool2d, GRU, Hooked, LSTM, LayerNorm, LazyLinear, Linear, Module,
    MultiheadAttention, RNNOptions, ReplicationPad1d, Sequential,
};
use torchrs::onnx::{Dim, Graph};
use torchrs::ops::{FractionalSize, PadMode, PoolOptions};
use torchrs::{Dtype, Tensor};

#[derive(Module)]
struct Square;

impl Forward for Square {
    fn forward(&self, x: &Tensor) -> Tensor {
        x * x
    }
}

fn refusal(model: &impl Forward, shape: &[usize]) -> String {
    let mut graph = Graph::new();
    let x = graph.input("x", Dtype::F32, shape.iter().map(|&size| Dim::Fixed(size)));
    model.onnx(&mut graph, &x).unwrap_err().to_string()
}

#[test]
fn what_has_no_place_in_onnx_is_named() {
    let own = refusal(&Sequential::new().append(Linear::new(2, 2)).append(Square), &[1, 2]);
    assert!(own.contains("`Square`") && own.contains("Forward::onnx"), "{own}");
    let pooled = refusal(&AdaptiveMaxPool2d::new(3), &[1, 2, 6, 4]);
    assert!(pooled.contains("[1, 2, 6, 4]") && pooled.contains("multiple of 3"), "{pooled}");
    let uneven = refusal(&AdaptiveAvgPool2d::new(3), &[1, 2, 4, 6]);
    assert!(uneven.contains("[1, 2, 4, 6]") && uneven.contains("multiple of 3"), "{uneven}");
    let reflect = Conv2d::new(2, 2, 3).padding(4).padding_mode(PadMode::Reflect);
    let reflect = refusal(&reflect, &[1, 2, 4, 4]);
    assert!(reflect.contains("[4, 4, 4, 4]") && reflect.contains("not so many"), "{reflect}");
    let cut = refusal(&ReplicationPad1d::new([1, -1]), &[1, 2, 4]);
    assert!(cut.contains("[1, -1]") && cut.contains("cuts off"), "{cut}");
    let random = refusal(&FractionalMaxPool2d::new(2, FractionalSize::Size([2, 2])), &[1, 2, 8, 8]);
    assert!(random.contains("FractionalMaxPool2d") && random.contains("random"), "{random}");
    let lazy = refusal(&LazyLinear::new(2), &[1, 2]);
    assert!(lazy.contains("LazyLinear") && lazy.contains("no weights"), "{lazy}");
    let divided =
        PoolOptions { divisor_override: Some(3), ceil_mode: true, ..PoolOptions::new([2, 2]) };
    let divided = refusal(&AvgPool2d::with_options(divided), &[1, 2, 5, 5]);
    assert!(divided.contains("divisor_override") && divided.contains('3'), "{divided}");
    let own = refusal(&BatchNorm2d::new(2).track_running_stats(false), &[1, 2, 4, 4]);
    assert!(own.contains("track_running_stats"), "{own}");
    let hooked = Hooked::new(Linear::new(2, 2));
    let x = &[1, 2];
    let handle = hooked.register_forward_hook(|_, _, y| Some(y * 2.0));
    let hooks = refusal(&hooked, x);
    assert!(hooks.contains("`Linear` has hooks"), "{hooks}");
    handle.remove();
    let mut graph = Graph::new();
    let x = graph.input("x", Dtype::F32, x.map(Dim::Fixed));
    hooked.onnx(&mut graph, &x).expect("without hooks it is its module");
    let channels = refusal(&Conv2d::new(3, 2, 3), &[1, 2, 4, 4]);
    assert!(channels.contains("[1, 2, 4, 4]") && channels.contains("[2, 3, 3, 3]"), "{channels}");
    let norm = refusal(&BatchNorm2d::new(3), &[1, 2, 4, 4]);
    assert!(norm.contains("3 channels"), "{norm}");
    let sizes = refusal(&Linear::new(3, 2), &[5, 2]);
    assert!(sizes.contains("[5, 2]") && sizes.contains("[3, 2]"), "{sizes}");
    let tokens = GPT2LMHeadModel::new(GPT2Config {
        n_layer: 1,
        n_embd: 8,
        n_head: 2,
        vocab_size: 9,
        ..GPT2Config::gpt2()
    });
    let tokens = refusal(&tokens, &[2, 3]);
    assert!(tokens.contains("i64"), "{tokens}");
}

/// Tied weights are one constant, under the first of their names in the state dict; sizes without a number stay free.
#[test]
fn constants_have_the_names_of_the_state_dict() {
    let model = GPT2LMHeadModel::new(GPT2Config {
        n_layer: 1,
        n_embd: 8,
        n_head: 2,
        vocab_size: 9,
        n_positions: 16,
        ..GPT2Config::gpt2()
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpt2.onnx");
    export_onnx(&model, ("tokens", Dtype::I64, ["batch".into(), "length".into()]), &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let count = |text: &str| bytes.windows(text.len()).filter(|w| *w == text.as_bytes()).count();
    // As a constant and as the input of a node.
    assert_eq!(count("transformer.h.0.attn.c_attn.weight"), 2);
    assert_eq!(count("wte.weight") + count("lm_head.weight"), 3, "a constant, a table, a head");
    assert!(count("batch") > 1 && count("tokens") > 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing beside it");
}

#[test]
fn types_that_onnx_does_not_mix_are_refused() {
    let mut graph = Graph::new();
    let dims = || [Dim::from("batch"), Dim::Fixed(3)];
    let half = graph.input("half", Dtype::BF16, dims());
    let full = graph.input("full", Dtype::F32, dims());
    let refused = [
        Linear::new(3, 2).onnx(&mut graph, &half),
        graph.binary("Add", &half, &full),
        graph.concat(&[&half, &full], 1),
        LayerNorm::new(3).onnx(&mut graph, &half),
        Embedding::new(4, 2).onnx(&mut graph, &full),
    ];
    for (i, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err("two types");
        assert!(matches!(error, torchrs::Error::Dtype { .. }), "{i}: {error}");
    }
}

/// Of tensors that live no longer, another may have the address: these stay.
#[test]
fn constants_that_nobody_holds_are_not_mixed_up() {
    let mut graph = Graph::new();
    let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut names = BTreeSet::new();
    for &number in &numbers {
        let constant = graph.constant(&Tensor::from([number]));
        names.insert(constant.name().to_owned());
    }
    assert_eq!(names.len(), numbers.len(), "each has a name of its own");
    for number in 0..8 {
        graph.name(&Tensor::from([0f32]), format!("gone{number}"));
        assert!(!graph.constant(&Tensor::from([1f32])).name().starts_with("gone"));
    }
}

#[test]
fn inputs_of_sequences_are_looked_at() {
    let mut graph = Graph::new();
    let x = graph.input("x", Dtype::F32, ["time".into(), "batch".into(), Dim::Fixed(5)]);
    let wide = graph.input("wide", Dtype::F32, ["time".into(), "batch".into(), Dim::Fixed(6)]);
    let state = graph.input("state", Dtype::F32, [Dim::Fixed(1), "batch".into(), Dim::Fixed(4)]);
    let ids = graph.input("ids", Dtype::I64, ["batch".into(), "length".into()]);
    let mask = graph.input("mask", Dtype::I64, ["batch".into(), "other".into()]);
    let lstm = |options| LSTM::new(5, 3, options);
    let projected = RNNOptions { proj_size: 2, ..Default::default() };
    let two = RNNOptions { num_layers: 2, ..Default::default() };
    let small = BertConfig {
        vocab_size: 9,
        hidden_size: 4,
        intermediate_size: 4,
        num_attention_heads: 2,
        num_hidden_layers: 1,
        ..Default::default()
    };
    let bert = BertModel::with_pooler(small, false);
    let padded = BertOnnxInputs { attention_mask: Some(&mask), ..Default::default() };
    let attention = MultiheadAttention::new(6, 2, Default::default());
    let features = bert.onnx(&mut graph, &ids).unwrap();
    let cases = [
        (lstm(projected).onnx(&mut graph, &x, None, None).err(), "proj_size"),
        (lstm(Default::default()).onnx(&mut graph, &wide, None, None).err(), "[time, N, 5]"),
        (
            lstm(Default::default()).onnx(&mut graph, &x, None, Some((&state, &state))).err(),
            "must be [1, N, 3]",
        ),
        (lstm(two).onnx(&mut graph, &x, None, Some((&state, &state))).err(), "must be [2, batch"),
        (GRU::new(5, 3, Default::default()).onnx(&mut graph, &x, Some(&mask), None).err(), "[N]"),
        (bert.onnx_with(&mut graph, &ids, padded).err(), "attention_mask"),
        (bert.onnx(&mut graph, &x).err(), "i64"),
        (bert.pooled_onnx(&mut graph, &features).err(), "without a pooler"),
        (attention.onnx(&mut graph, [&wide; 3], Some(&x), None).err(), "key_padding_mask"),
        (attention.onnx(&mut graph, [&x; 3], None, None).err(), "do not fit"),
    ];
    for (error, says) in cases {
        let error = error.unwrap_or_else(|| panic!("{says}: taken")).to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

/// Gates stand in another order in ONNX; the names say which parameter a constant was made of.
#[test]
fn recurrent_weights_keep_their_names() {
    let lstm = LSTM::new(2, 3, RNNOptions { bidirectional: true, ..Default::default() });
    let mut graph = onnx_graph(&lstm).unwrap();
    let x = graph.input("x", Dtype::F32, ["time".into(), "batch".into(), Dim::Fixed(2)]);
    let (out, (h, c)) = lstm.onnx(&mut graph, &x, None, None).unwrap();
    assert_eq!(out.shape(), ["time".into(), "batch".into(), Dim::Fixed(6)]);
    assert_eq!((h.shape(), c.shape()), (c.shape(), h.shape()));
    let bytes = graph.to_bytes().unwrap();
    for name in ["weight_ih_l0.onnx", "weight_hh_l0.onnx", "bias_ih_l0.onnx"] {
        assert!(bytes.windows(name.len()).any(|w| w == name.as_bytes()), "{name}");
    }
}

#[test]
fn a_table_that_changes_is_refused() {
    let table = Embedding::new(4, 2).max_norm(1.0, 2.0);
    let mut graph = Graph::new();
    let x = graph.input("x", Dtype::I64, [Dim::Fixed(3)]);
    let message = table.onnx(&mut graph, &x).unwrap_err().to_string();
    assert!(message.contains("max_norm"), "{message}");
}
