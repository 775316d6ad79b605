//! What a module holds besides other modules: parameters, buffers and the flag that says whether
//! it is in training. Each is a thin wrapper by whose type `#[derive(Module)]` tells it from a
//! plain field.

use std::fmt;
use std::marker::PhantomPinned;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::tensor::{Operand, Tensor};

/// A tensor that is trained (`torch.nn.Parameter`): a leaf that requires a gradient.
///
/// It is used like a `&Tensor`, but for operators, which take `x * &*self.weight` or
/// `x.mul(&self.weight)`. A clone is the same parameter: two modules that hold clones of one
/// parameter are tied, it then appears once in [`parameters`](super::Module::parameters) and under
/// both names in [`state_dict`](super::Module::state_dict).
///
/// ```
/// use torchrs::{Tensor, Dtype::F32, nn::Parameter};
/// let w = Parameter::new(Tensor::ones([2, 3], F32));
/// assert!(w.requires_grad());
/// assert!(w.clone().ptr_eq(&w));
/// ```
#[derive(Clone)]
pub struct Parameter {
    tensor: Tensor,
    /// Not `Unpin`, and so is every type that holds one: by that the derive refuses a field that
    /// holds parameters without being a module, instead of silently not training them.
    _not_plain: PhantomPinned,
}

impl Parameter {
    /// A parameter over `tensor`'s elements; its history, if any, is left behind.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::Parameter};
    /// let x = Tensor::from([2f32]).requires_grad_(true);
    /// let p = Parameter::new(&x * 3.0);
    /// assert!(p.is_leaf() && p.requires_grad());
    /// assert_eq!(p.item(), 6.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integer and bool tensors.
    #[track_caller]
    pub fn new(tensor: Tensor) -> Self {
        Parameter { tensor: tensor.detach().requires_grad_(true), _not_plain: PhantomPinned }
    }

    /// The tensor itself.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Puts another leaf in place of this one. Optimizers and other modules that hold the old tensor
    /// keep the old one.
    pub(crate) fn replace(&mut self, leaf: Tensor) {
        self.tensor = leaf;
    }
}

impl Deref for Parameter {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl From<Tensor> for Parameter {
    #[track_caller]
    fn from(tensor: Tensor) -> Self {
        Parameter::new(tensor)
    }
}

impl<'a> From<&'a Parameter> for Operand<'a> {
    fn from(parameter: &'a Parameter) -> Self {
        Operand::Tensor(&parameter.tensor)
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameter({:?}, {})", self.shape(), self.dtype())
    }
}

/// A tensor that is part of a module's state without being trained (`register_buffer`): running
/// statistics, masks. A clone is the same buffer.
///
/// ```
/// use torchrs::{Tensor, nn::{Buffer, Module}};
/// #[derive(Module)]
/// struct Mean { value: Buffer }
/// let mean = Mean { value: Buffer::new(Tensor::from([3f32])) };
/// assert!(mean.parameters().is_empty() && mean.state_dict()["value"].item() == 3.0);
/// ```
#[derive(Clone)]
pub struct Buffer {
    tensor: Tensor,
    persistent: bool,
    /// As in [`Parameter`].
    _not_plain: PhantomPinned,
}

impl Buffer {
    /// A buffer that is part of the state dict.
    pub fn new(tensor: Tensor) -> Self {
        Buffer { tensor, persistent: true, _not_plain: PhantomPinned }
    }

    /// A buffer that is not saved, because it can be computed again (`persistent=False`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Buffer, Module}};
    /// #[derive(Module)]
    /// struct Causal { mask: Buffer }
    /// let causal = Causal { mask: Buffer::non_persistent(Tensor::from([true, false])) };
    /// assert!(causal.state_dict().is_empty() && causal.buffers().len() == 1);
    /// ```
    pub fn non_persistent(tensor: Tensor) -> Self {
        Buffer { tensor, persistent: false, _not_plain: PhantomPinned }
    }

    /// True when the buffer is part of the state dict.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// The tensor itself.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub(crate) fn replace(&mut self, tensor: Tensor) {
        self.tensor = tensor;
    }
}

impl Deref for Buffer {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl<'a> From<&'a Buffer> for Operand<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Operand::Tensor(&buffer.tensor)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?}, {})", self.shape(), self.dtype())
    }
}

/// Whether a module is in training or in evaluation (`module.training`); at first in training. A
/// module whose `forward` differs between the two has a field of this type, which
/// [`train`](super::Module::train) and [`eval`](super::Module::eval) of any module above it set.
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, Module, Training}};
/// #[derive(Module, Default)]
/// struct Noise { training: Training }
/// impl Forward for Noise {
///     fn forward(&self, x: &Tensor) -> Tensor {
///         if self.training.get() { x + 9.0 } else { x.clone() }
///     }
/// }
/// let (noise, x) = (Noise::default(), Tensor::from([1f32]));
/// noise.eval();
/// assert_eq!(noise.forward(&x).item(), 1.0);
/// ```
pub struct Training {
    flag: AtomicBool,
    /// As in [`Parameter`].
    _not_plain: PhantomPinned,
}

impl Training {
    /// True in training.
    #[inline]
    pub fn get(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Switches to training or to evaluation.
    #[inline]
    pub fn set(&self, training: bool) {
        self.flag.store(training, Relaxed);
    }
}

impl Default for Training {
    fn default() -> Self {
        Training { flag: AtomicBool::new(true), _not_plain: PhantomPinned }
    }
}

impl Clone for Training {
    /// A flag of its own with the same value.
    fn clone(&self) -> Self {
        let copy = Training::default();
        copy.set(self.get());
        copy
    }
}

impl fmt::Debug for Training {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Training({})", self.get())
    }
}
