//! Modules of one tensor.

use super::Module;
use crate::error::{Error, Result};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// A module that maps one tensor to one tensor; what a [`Sequential`](super::Sequential) is made of.
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, Module, Sequential}};
/// #[derive(Module)]
/// struct Square;
/// impl Forward for Square {
///     fn forward(&self, x: &Tensor) -> Tensor { x * x }
/// }
/// let net = Sequential::new().append(Square).append(Square);
/// assert_eq!(net.forward(&Tensor::from([3f32])).item(), 81.0);
/// ```
pub trait Forward: Module {
    /// Computes the module's output.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReLU}};
    /// assert_eq!(ReLU.forward(&Tensor::from([-1f32, 2.])).to_vec::<f32>(), [0.0, 2.0]);
    /// ```
    // Not `#[track_caller]`, which every implementation would inherit: an error inside a user's `forward` would be
    // blamed on whoever called that. The library's own modules carry the attribute themselves.
    fn forward(&self, input: &Tensor) -> Tensor;

    /// Adds what [`forward`](Self::forward) computes in evaluation to a graph of [ONNX](crate::onnx); see
    /// [`export_onnx`](crate::checkpoint::export_onnx).
    ///
    /// ```
    /// use torchrs::{Dtype, Result, Tensor, nn::{Forward, Linear, Module}, onnx::{Graph, Value}};
    /// #[derive(Module)]
    /// struct Net {
    ///     fc1: Linear,
    ///     fc2: Linear,
    /// }
    /// impl Forward for Net {
    ///     fn forward(&self, x: &Tensor) -> Tensor {
    ///         self.fc2.forward(&self.fc1.forward(x).relu())
    ///     }
    ///     fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
    ///         let hidden = self.fc1.onnx(graph, x)?;
    ///         let hidden = graph.unary("Relu", &hidden);
    ///         self.fc2.onnx(graph, &hidden)
    ///     }
    /// }
    /// let net = Net { fc1: Linear::new(4, 8), fc2: Linear::new(8, 2) };
    /// let mut graph = Graph::new();
    /// let x = graph.input("x", Dtype::F32, ["batch".into(), 4.into()]);
    /// assert_eq!(net.onnx(&mut graph, &x)?.shape(), ["batch".into(), 2.into()]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] that names the module where it does not say what it is in ONNX; as the nodes, for shapes that
    /// do not fit.
    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let _ = (graph, input);
        let message = format!(
            "`{}` does not say what it is in ONNX: implement `Forward::onnx` for it",
            self.name()
        );
        Err(Error::argument("onnx", "module", message))
    }
}
