//! Graphs of ONNX (Open Neural Network Exchange, opset 20): what a model computes in evaluation, for other programs to
//! run. A module adds its part by [`Forward::onnx`](crate::nn::Forward::onnx);
//! [`export_onnx`](crate::checkpoint::export_onnx) writes a whole model.
//!
//! A [`Value`] has a type and a shape, whose dimensions may be names: those are free when the graph runs. What is wrong
//! is said when the graph is made, with both shapes.
//!
//! ```
//! use torchrs::{Dtype, Tensor, onnx::{Dim, Graph}};
//! let mut graph = Graph::new();
//! let x = graph.input("x", Dtype::F32, [Dim::from("batch"), 2.into()]);
//! let y = graph.linear(&x, &Tensor::from([[1f32, 2.0]]), None)?;
//! let y = graph.unary("Relu", &y);
//! graph.output("y", &y);
//! assert_eq!(y.shape(), [Dim::from("batch"), 1.into()]);
//! assert!(!graph.to_bytes()?.is_empty());
//! # Ok::<(), torchrs::Error>(())
//! ```

mod activations;
mod arrange;
mod file;
mod graph;
mod images;
mod language;
mod layers;
mod norms;
mod pools;
mod recurrent;
mod shapes;

pub(crate) use file::bytes_of;
pub use graph::{Attribute, Dim, Graph, Value};
pub(crate) use language::Seen;
pub(crate) use recurrent::DirectionWeights;
