//! Which streams a backward pass uses on GPUs. A node's backward runs on the stream that its forward ran on, where the
//! tensors that it saved are there and go back to; what it hands on to a node of another stream is waited for there. A
//! leaf collects its gradient on the stream that was current when the pass began, and at the pass's end that stream
//! waits for all others: for the caller a pass is as any other work on the current stream.

use smallvec::SmallVec;

use super::node::{Kind, Node};
use crate::cuda::{Stream, StreamGuard, stream::others_were_current};
use crate::error::{Result, throw};
use crate::storage::Device;
use crate::tensor::{Dtype, Shape, Tensor};

/// The stream on which a node's outputs were computed, if that is no default stream.
#[inline]
pub(super) fn of_outputs(outputs: &[(Shape, Dtype, Device)]) -> Option<Stream> {
    if others_were_current() { other_current(outputs) } else { None }
}

#[cold]
fn other_current(outputs: &[(Shape, Dtype, Device)]) -> Option<Stream> {
    let index = outputs.iter().find_map(|(_, _, device)| device.gpu())?;
    let current = Stream::current(index).ok()?;
    (current != Stream::default_of(index).ok()?).then_some(current)
}

/// The GPU on whose stream a node's backward runs.
fn gpu_of(node: &Node) -> Option<usize> {
    node.0.outputs.iter().find_map(|(_, _, device)| device.gpu())
}

/// The streams of a pass that has more than one.
pub(super) struct Order {
    /// Those that were current on each GPU of the pass when it began.
    callers: SmallVec<[Stream; 2]>,
    /// The others that nodes ran on.
    used: SmallVec<[Stream; 4]>,
}

impl Order {
    /// How the nodes of a pass depend on each other's streams; `None` where all is on the current ones.
    pub fn of<'a>(nodes: impl Iterator<Item = &'a Node> + Clone) -> Option<Order> {
        if !others_were_current() {
            return None;
        }
        let mut order = Order { callers: SmallVec::new(), used: SmallVec::new() };
        for (_, _, device) in nodes.clone().flat_map(|node| node.0.outputs.iter()) {
            if let Some(index) = device.gpu()
                && !order.callers.iter().any(|stream| stream.device() == index)
            {
                order.callers.push(or_throw(Stream::current(index)));
            }
        }
        let mut nodes = nodes.filter_map(|node| Some((node, gpu_of(node)?)));
        nodes
            .any(|(node, index)| order.stream_of(node, index) != order.caller(index))
            .then_some(order)
    }

    /// The stream of a GPU that was current when the pass began.
    fn caller(&self, index: usize) -> Stream {
        let known = self.callers.iter().find(|stream| stream.device() == index);
        known.copied().unwrap_or_else(|| or_throw(Stream::current(index)))
    }

    /// The stream of a GPU on which a node wants its gradients.
    fn stream_of(&self, node: &Node, index: usize) -> Stream {
        match node.0.kind {
            Kind::Function if gpu_of(node) == Some(index) => {
                node.0.stream.unwrap_or_else(|| or_throw(Stream::default_of(index)))
            }
            _ => self.caller(index),
        }
    }

    /// Makes a node's stream the current one.
    pub fn enter(&mut self, node: &Node) -> Option<StreamGuard> {
        let index = gpu_of(node)?;
        self.switch(self.stream_of(node, index))
    }

    /// Hands a gradient on from the current stream to a node, whose stream is the current one then.
    pub fn hand_over(&mut self, grad: &Tensor, node: &Node) -> Option<StreamGuard> {
        let index = grad.device().gpu()?;
        let (from, to) = (or_throw(Stream::current(index)), self.stream_of(node, index));
        if from == to {
            return None;
        }
        or_throw(to.wait_stream(from));
        grad.storage().record_stream(to);
        self.switch(to)
    }

    fn switch(&mut self, stream: Stream) -> Option<StreamGuard> {
        if stream != self.caller(stream.device()) && !self.used.contains(&stream) {
            self.used.push(stream);
        }
        let current = or_throw(Stream::current(stream.device()));
        (current != stream).then(|| or_throw(StreamGuard::new(stream)))
    }

    /// Lets the caller's streams go on after all others, and with what the pass returns.
    pub fn join(&self, returned: &[Option<Tensor>]) {
        for stream in &self.used {
            or_throw(self.caller(stream.device()).wait_stream(*stream));
        }
        for grad in returned.iter().flatten() {
            if let Some(index) = grad.device().gpu() {
                grad.storage().record_stream(self.caller(index));
            }
        }
    }
}

fn or_throw<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| throw(error))
}
