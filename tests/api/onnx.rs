//! Graphs of ONNX: what is written, and what is refused. `tools/checks/check-onnx` runs them.

use torchrs::checkpoint::export_onnx;
use torchrs::models::{GPT2Config, GPT2LMHeadModel};
use torchrs::nn::{
    AdaptiveAvgPool2d, AdaptiveMaxPool2d, BatchNorm2d, Conv2d, Embedding, Forward, LayerNorm,
    Linear, Module, Sequential,
};
use torchrs::onnx::{Dim, Graph};
use torchrs::ops::PadMode;
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
    let pooled = refusal(&AdaptiveMaxPool2d::new(1), &[1, 2, 4, 4]);
    assert!(pooled.contains("AdaptiveMaxPool"), "{pooled}");
    let uneven = refusal(&AdaptiveAvgPool2d::new(3), &[1, 2, 4, 6]);
    assert!(uneven.contains("[1, 2, 4, 6]") && uneven.contains("multiple of 3"), "{uneven}");
    let circular = refusal(&Conv2d::new(2, 2, 3).padding_mode(PadMode::Circular), &[1, 2, 4, 4]);
    assert!(circular.contains("padding"), "{circular}");
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

#[test]
fn a_table_that_changes_is_refused() {
    let table = Embedding::new(4, 2).max_norm(1.0, 2.0);
    let mut graph = Graph::new();
    let x = graph.input("x", Dtype::I64, [Dim::Fixed(3)]);
    let message = table.onnx(&mut graph, &x).unwrap_err().to_string();
    assert!(message.contains("max_norm"), "{message}");
}
