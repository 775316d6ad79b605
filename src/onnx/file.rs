//! The bytes of a model's file, and of the one beside it for what is too large.

use super::graph::{Dim, Graph, Value};
use crate::error::{Error, Result};
use crate::protobuf::Message;
use crate::tensor::{Dtype, Tensor};

/// The opset: the first that has `Gelu`.
const OPSET: u64 = 20;
/// The version of the format that goes with it.
const IR_VERSION: u64 = 9;
/// Bytes from which constants lie in a file of their own: a message of protocol buffers has at most 2 GiB.
const MOST_BYTES: usize = 1 << 30;
/// Constants in that file begin at multiples of this.
const ALIGNMENT: usize = 4096;
/// Smaller constants stay with the graph.
const LEAST_EXTERNAL: usize = 1024;

/// `TensorProto.DataType`.
pub(super) fn number_of(dtype: Dtype) -> Result<i64> {
    Ok(match dtype {
        Dtype::F32 => 1,
        Dtype::U8 => 2,
        Dtype::I8 => 3,
        Dtype::I16 => 5,
        Dtype::I32 => 6,
        Dtype::I64 => 7,
        Dtype::Bool => 9,
        Dtype::F16 => 10,
        Dtype::F64 => 11,
        Dtype::BF16 => 16,
        _ => return Err(Error::dtype("onnx", format!("{dtype} has no place in a graph of ONNX"))),
    })
}

/// What is to be written: the model, and the constants that it says lie in a file beside it.
pub(crate) struct Parts {
    pub(crate) model: Vec<u8>,
    /// Constants with the places where they begin.
    pub(crate) beside: Vec<(usize, Tensor)>,
}

impl Graph {
    /// The model as bytes, with all constants in it.
    ///
    /// # Errors
    /// [`Error::Dtype`] for a type that ONNX lacks, [`Error::Argument`] for more than a file takes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let bytes = self.bytes_of_constants();
        if bytes > i32::MAX as usize {
            let message = format!("{bytes} bytes of constants; one file takes 2 GiB");
            return Err(Error::argument("onnx", "graph", message));
        }
        Ok(self.written(None)?.model)
    }

    /// The model as bytes; constants lie in a file of this name beside it where they are together more than 1 GiB, or if
    /// that is wanted.
    pub(crate) fn to_parts(&self, beside: &str, is_wanted: bool) -> Result<Parts> {
        let is_large = self.bytes_of_constants() > MOST_BYTES;
        self.written((is_wanted || is_large).then_some(beside))
    }

    fn bytes_of_constants(&self) -> usize {
        self.constants.iter().map(|(_, t)| t.numel() * t.dtype().size()).sum()
    }

    fn written(&self, beside: Option<&str>) -> Result<Parts> {
        let mut parts = Parts { model: Vec::new(), beside: Vec::new() };
        let mut end = 0usize;
        let mut graph = Message::new();
        for node in &self.nodes {
            graph = graph.bytes(1, node.as_bytes());
        }
        graph = graph.string(2, "torchrs");
        for (name, tensor) in &self.constants {
            let bytes = tensor.numel() * tensor.dtype().size();
            let mut message = Message::new();
            for &size in tensor.shape() {
                message = message.int(1, size as u64);
            }
            message = message.int(2, number_of(tensor.dtype())? as u64).string(8, name);
            message = match beside.filter(|_| bytes >= LEAST_EXTERNAL) {
                None => message.bytes(9, bytes_of(tensor)),
                Some(file) => {
                    let start = end.next_multiple_of(ALIGNMENT);
                    end = start + bytes;
                    parts.beside.push((start, tensor.clone()));
                    let texts = [start.to_string(), bytes.to_string()];
                    let entries =
                        [("location", file), ("offset", &texts[0]), ("length", &texts[1])];
                    let message = entries.iter().fold(message, |message, (key, value)| {
                        message.message(13, Message::new().string(1, key).string(2, value))
                    });
                    message.int(14, 1)
                }
            };
            graph = graph.message(5, message);
        }
        for value in &self.inputs {
            graph = graph.message(11, described(value)?);
        }
        for value in &self.outputs {
            graph = graph.message(12, described(value)?);
        }
        parts.model = Message::new()
            .int(1, IR_VERSION)
            .string(2, "torchrs")
            .string(3, env!("CARGO_PKG_VERSION"))
            .message(7, graph)
            .message(8, Message::new().string(1, "").int(2, OPSET))
            .into_bytes();
        Ok(parts)
    }
}

/// The elements, row by row.
pub(crate) fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let tensor = tensor.detach().cpu().contiguous();
    let count = tensor.numel() * tensor.dtype().size();
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: a contiguous tensor in host memory, which nobody writes while it is read.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr(), count) }.to_vec()
}

/// Name, type and shape of an input or output.
fn described(value: &Value) -> Result<Message> {
    let shape = value.shape.iter().fold(Message::new(), |shape, dim| {
        let dim = match dim {
            Dim::Fixed(size) => Message::new().int(1, *size as u64),
            Dim::Named(name) => Message::new().string(2, name),
        };
        shape.message(1, dim)
    });
    let tensor = Message::new().int(1, number_of(value.dtype)? as u64).message(2, shape);
    let kind = Message::new().message(1, tensor);
    Ok(Message::new().string(1, &value.name).message(2, kind))
}
