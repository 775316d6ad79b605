//! Models as files of ONNX, each with an input and what the model makes of it, to be compared by another program
//! (`tools/checks/check-onnx` does so with onnxruntime).
//!
//! ```sh
//! cargo run --release --example onnx -- FOLDER
//! ```

use std::path::Path;

use torchrs::checkpoint::{OnnxOptions, TensorMap, export_onnx, save_file, save_onnx};
use torchrs::models::{
    self, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, NeuMF, NeuMFOptions, VGG,
    VGGOptions,
};
use torchrs::nn::{
    AvgPool2d, BatchNorm2d, Conv2d, ELU, Embedding, Flatten, Forward, GELU, Hardswish, LayerNorm,
    LeakyReLU, Linear, LogSoftmax, MaxPool2d, Mish, Module, RMSNorm, ReLU6, Sequential, SiLU,
    Softmax,
};
use torchrs::onnx::{Dim, Graph};
use torchrs::{Dtype, Result, Tensor, no_grad};

fn main() -> Result<()> {
    torchrs::init();
    let folder = std::env::args().nth(1).unwrap_or_else(|| "onnx".into());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder).expect("the folder can be made");
    torchrs::manual_seed(0);

    let image = || Tensor::randn([2, 3, 64, 64], Dtype::F32);
    let dims = || ["batch".into(), 3.into(), 64.into(), 64.into()];
    write(folder, "resnet18", &models::resnet18(10), image(), dims())?;
    write(folder, "resnet50", &models::resnet50(10), image(), dims())?;
    write(folder, "mobilenet_v2", &models::mobilenet_v2(10), image(), dims())?;
    let large = Tensor::randn([1, 3, 224, 224], Dtype::F32);
    let large_dims = ["batch".into(), 3.into(), 224.into(), 224.into()];
    let options = VGGOptions { hidden: 64, num_classes: 10, ..VGGOptions::new([1, 1, 1, 1, 1]) };
    write(folder, "vgg", &VGG::new(options), large.clone(), large_dims.clone())?;
    write(folder, "alexnet", &models::alexnet(10), large, large_dims)?;

    let config = GPT2Config {
        n_layer: 2,
        n_embd: 32,
        n_head: 4,
        vocab_size: 50,
        n_positions: 24,
        ..GPT2Config::gpt2()
    };
    let tokens = || Tensor::randint(0, 50, [3, 11], Dtype::I64);
    let token_dims = || ["batch".into(), "length".into()];
    write(folder, "gpt2", &GPT2LMHeadModel::new(config), tokens(), token_dims())?;
    let config = LlamaConfig {
        vocab_size: 50,
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 24,
        ..Default::default()
    };
    write(folder, "llama", &LlamaForCausalLM::new(config), tokens(), token_dims())?;

    let layers = Sequential::new()
        .append(Conv2d::new(3, 8, 3).padding(1).stride(2))
        .append(BatchNorm2d::new(8))
        .append(ReLU6)
        .append(MaxPool2d::new(3).stride(2).padding(1))
        .append(Hardswish)
        .append(Conv2d::new(8, 8, 3).groups(4).dilation(2).padding(2))
        .append(SiLU)
        .append(AvgPool2d::new(2))
        .append(Mish)
        .append(Flatten::new())
        .append(Linear::new(8 * 8 * 8, 16))
        .append(ELU::new(0.7))
        .append(LayerNorm::new(16))
        .append(GELU::new())
        .append(RMSNorm::new(16))
        .append(LeakyReLU::new(0.1))
        .append(GELU::tanh())
        .append(LogSoftmax::new(-1))
        .append(Softmax::new(1));
    write(folder, "layers", &layers, image(), dims())?;
    let table = Sequential::new().append(Embedding::new(50, 8)).append(Linear::no_bias(8, 3));
    write(folder, "table", &table, tokens(), token_dims())?;

    let sizes = NeuMFOptions { mf_dim: 4, mlp_layer_sizes: vec![64, 48], dropout: 0.5 };
    let (model, mut graph) = (NeuMF::new(10, 20, sizes), Graph::new());
    model.eval();
    let [user, item] = ["user", "item"].map(|name| graph.input(name, Dtype::I64, ["batch".into()]));
    let score = model.onnx(&mut graph, &user, &item, true)?;
    graph.output("output", &score);
    // As models of more than 1 GiB are.
    save_onnx(&graph, folder.join("neumf.onnx"), OnnxOptions { external_data: true })?;
    let ids = [10, 20].map(|rows| Tensor::randint(0, rows, [7], Dtype::I64));
    let output = no_grad(|| model.forward(&ids[0], &ids[1], true));
    let [user, item] = ids;
    keep(folder, "neumf", [("user", user), ("item", item), ("output", output)])
}

/// A model's file, and its input and output.
fn write<const N: usize>(
    folder: &Path,
    name: &str,
    model: &impl Forward,
    input: Tensor,
    shape: [Dim; N],
) -> Result<()> {
    // Statistics that are not those of a new model.
    if input.dtype() == Dtype::F32 {
        no_grad(|| drop(model.forward(&input)));
    }
    model.eval();
    let output = no_grad(|| model.forward(&input));
    export_onnx(model, ("input", input.dtype(), shape), folder.join(format!("{name}.onnx")))?;
    keep(folder, name, [("input", input), ("output", output)])
}

fn keep<const N: usize>(folder: &Path, name: &str, tensors: [(&str, Tensor); N]) -> Result<()> {
    let tensors = TensorMap::from(tensors.map(|(name, tensor)| (name.to_owned(), tensor)));
    save_file(&tensors, &Default::default(), folder.join(format!("{name}.safetensors")))
}
