//! Models and layers as files of ONNX, each with inputs and what it makes of them, to be compared by another program
//! (`tools/checks/check-onnx` does so with onnxruntime).
//!
//! ```sh
//! cargo run --release --example onnx -- FOLDER
//! ```

mod layers;
mod models;
mod sequences;

use std::path::Path;

use torchrs::checkpoint::{OnnxOptions, TensorMap, onnx_graph, save_file, save_onnx};
use torchrs::nn::{Forward, Module};
use torchrs::onnx::{Dim, Graph, Value};
use torchrs::{Dtype, Result, Tensor, no_grad};

fn main() -> Result<()> {
    torchrs::init();
    let folder = std::env::args().nth(1).unwrap_or_else(|| "onnx".into());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder).expect("the folder can be made");
    torchrs::manual_seed(0);
    models::write(folder)?;
    layers::write(folder)?;
    sequences::write(folder)
}

/// A shape in words: a size that is a word is free.
fn dims(shape: &str) -> Vec<Dim> {
    let dim = |word: &str| word.parse().map_or_else(|_| Dim::from(word), |size: usize| size.into());
    shape.split(' ').map(dim).collect()
}

/// Tokens below 50, truths, or normal numbers.
fn draw(dtype: Dtype, shape: &[usize]) -> Tensor {
    match dtype {
        Dtype::I64 => Tensor::randint(0, 50, shape, Dtype::I64),
        Dtype::Bool => Tensor::rand(shape, Dtype::F32).lt(0.3),
        _ => Tensor::randn(shape, dtype),
    }
}

/// A model of one input, with an input of each of these shapes.
fn one(
    folder: &Path,
    name: &str,
    model: &impl Forward,
    dtype: Dtype,
    shape: &str,
    shapes: &[&[usize]],
) -> Result<()> {
    // Statistics that are not those of a new model.
    if dtype == Dtype::F32 {
        no_grad(|| drop(model.forward(&draw(dtype, shapes[0]))));
    }
    let cases: Vec<Vec<Tensor>> = shapes.iter().map(|&shape| vec![draw(dtype, shape)]).collect();
    let build = |graph: &mut Graph, x: &[Value]| Ok(vec![model.onnx(graph, &x[0])?]);
    many(folder, name, model, &[("input", dtype, shape)], build, &cases, |x| {
        vec![model.forward(&x[0])]
    })
}

/// A model of several inputs and outputs, with inputs of several cases.
fn many(
    folder: &Path,
    name: &str,
    model: &impl Module,
    inputs: &[(&str, Dtype, &str)],
    build: impl FnOnce(&mut Graph, &[Value]) -> Result<Vec<Value>>,
    cases: &[Vec<Tensor>],
    forward: impl Fn(&[Tensor]) -> Vec<Tensor>,
) -> Result<()> {
    model.eval();
    let mut graph = onnx_graph(model)?;
    let values: Vec<Value> =
        inputs.iter().map(|(name, dtype, shape)| graph.input(name, *dtype, dims(shape))).collect();
    for (i, output) in build(&mut graph, &values)?.iter().enumerate() {
        graph.output(&format!("output{i}"), output);
    }
    // As models of more than 1 GiB are.
    let options = OnnxOptions { external_data: name == "neumf" };
    save_onnx(&graph, folder.join(format!("{name}.onnx")), options)?;
    for (number, case) in cases.iter().enumerate() {
        let outputs = no_grad(|| forward(case));
        let names = inputs.iter().map(|(name, ..)| (*name).to_owned());
        let mut all: TensorMap = names.zip(case.iter().cloned()).collect();
        all.extend((0..).map(|i| format!("output{i}")).zip(outputs));
        save_file(&all, &Default::default(), folder.join(format!("{name}-{number}.safetensors")))?;
    }
    Ok(())
}
