//! Tensors kept for backward.

use std::sync::Arc;

use super::node::{Edge, Node};
use crate::Tensor;
use crate::error::{Error, throw};

/// A tensor kept for backward: its bytes and where its own gradient would go, but not the tensor
/// object, so that a graph never refers to itself in a circle.
pub struct SavedTensor {
    data: Tensor,
    version: u32,
    source: Source,
}

enum Source {
    /// Needs no gradient.
    Constant,
    /// Its gradient goes there.
    Edge(Edge),
    /// It is this output of the node that saved it.
    OwnOutput(usize),
}

impl SavedTensor {
    pub(crate) fn input(tensor: &Tensor) -> Self {
        let source = tensor.gradient_edge().map_or(Source::Constant, Source::Edge);
        SavedTensor { data: tensor.detach(), version: tensor.version(), source }
    }

    pub(crate) fn output(tensor: &Tensor, index: usize) -> Self {
        SavedTensor {
            data: tensor.detach(),
            version: tensor.version(),
            source: Source::OwnOutput(index),
        }
    }

    pub(crate) fn unpack(&self, node: &Arc<Node>) -> Tensor {
        let now = self.data.version();
        if now != self.version {
            throw(Error::Autograd(format!(
                "a tensor of shape {:?} and dtype {} that `{}` saved for backward was changed in \
                 place since: it is at version {now}, version {} was saved; use the op without the \
                 trailing underscore, or change a clone",
                self.data.shape(),
                self.data.dtype(),
                node.name,
                self.version
            )));
        }
        // Without recording nobody asks for the history.
        if !super::is_grad_enabled() {
            return self.data.clone();
        }
        match &self.source {
            Source::Constant => self.data.clone(),
            Source::Edge(edge) => self.data.detach().with_history(edge.clone()),
            Source::OwnOutput(output) => {
                self.data.detach().with_history(Edge { node: node.clone(), output: *output })
            }
        }
    }
}
