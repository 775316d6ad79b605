//! Models as files of ONNX.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use super::replacing::write_file;
use crate::error::{Context, Error, Result};
use crate::nn::{Forward, Module};
use crate::onnx::{Dim, Graph, bytes_of};
use crate::tensor::Dtype;

/// Writes what a model computes in evaluation as a file of ONNX (`torch.onnx.export`; opset 20), for onnxruntime and other
/// programs. `input` is the model's input: its name, type and shape, in which a text is a dimension of any size. Constants
/// have the names of the model's state dict. Where they are together more than 1 GiB they lie beside the file, in one whose
/// name ends with `.data`.
///
/// ```
/// use torchrs::{Dtype, checkpoint::export_onnx, nn::{Linear, ReLU, Sequential}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.onnx");
/// let model = Sequential::new().append(Linear::new(4, 8)).append(ReLU).append(Linear::new(8, 2));
/// export_onnx(&model, ("x", Dtype::F32, ["batch".into(), 4.into()]), &path)?;
/// # assert!(path.metadata().unwrap().len() > 200);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// A model with several inputs adds its part to [`onnx_graph`], which [`save_onnx`] writes.
///
/// # Errors
/// As [`Forward::onnx`] of the modules; [`Error::Argument`] for a path without a name, and for a sharded model, of which a
/// rank has a part; [`Error::Os`] where the file cannot be written.
pub fn export_onnx<const N: usize>(
    model: &impl Forward,
    input: (&str, Dtype, [Dim; N]),
    path: impl AsRef<Path>,
) -> Result<()> {
    let path = path.as_ref();
    let mut graph = onnx_graph(model)?;
    let (name, dtype, shape) = input;
    let x = graph.input(name, dtype, shape);
    let y = model.onnx(&mut graph, &x)?;
    graph.output("output", &y);
    save_onnx(&graph, path, OnnxOptions::default())
}

/// A graph without nodes, in which a model's parameters and buffers will have the names of its state dict.
///
/// ```
/// use torchrs::{Dtype, checkpoint::{onnx_graph, save_onnx}, models::{NeuMF, NeuMFOptions}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.onnx");
/// let model = NeuMF::new(10, 20, NeuMFOptions { mf_dim: 4, mlp_layer_sizes: vec![8, 4], dropout: 0.0 });
/// let mut graph = onnx_graph(&model)?;
/// let [user, item] = ["user", "item"].map(|name| graph.input(name, Dtype::I64, ["batch".into()]));
/// let score = model.onnx(&mut graph, &user, &item, true)?;
/// graph.output("score", &score);
/// save_onnx(&graph, &path, Default::default())?;
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a sharded model, of which a rank has a part.
pub fn onnx_graph(model: &impl Module) -> Result<Graph> {
    let mut graph = Graph::new();
    for (name, tensor) in model.named_parameters().iter().chain(&model.named_buffers()) {
        if tensor.is_sharded() {
            let message = format!("`{name}` is sharded; gather the model first");
            return Err(Error::argument("onnx_graph", "model", message));
        }
        graph.name(tensor, name.clone());
    }
    Ok(graph)
}

/// How a graph is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnnxOptions {
    /// Whether constants lie in a file beside it though they are small (`torch.onnx.export(external_data=True)`).
    pub external_data: bool,
}

/// Writes a graph, and its constants beside it where they are together more than 1 GiB.
///
/// # Errors
/// As [`export_onnx`].
pub fn save_onnx(graph: &Graph, path: impl AsRef<Path>, options: OnnxOptions) -> Result<()> {
    let path = path.as_ref();
    let Some(name) = path.file_name() else { return Err(super::replacing::no_name("path", path)) };
    let mut beside = name.to_owned();
    beside.push(".data");
    let Some(text) = beside.to_str() else {
        let message = format!("{}: the name is no UTF-8", path.display());
        return Err(Error::argument("export_onnx", "path", message));
    };
    let parts = graph.to_parts(text, options.external_data)?;
    if !parts.beside.is_empty() {
        let data = path.with_file_name(&beside);
        let what = || format!("write {}", data.display());
        write_file(&data, |file| {
            for (start, tensor) in &parts.beside {
                file.seek(SeekFrom::Start(*start as u64)).context(what)?;
                file.write_all(&bytes_of(tensor)).context(what)?;
            }
            Ok(())
        })?;
    }
    let what = || format!("write {}", path.display());
    write_file(path, |file| file.write_all(&parts.model).context(what))
}
