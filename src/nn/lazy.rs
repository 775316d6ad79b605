//! Modules whose sizes come from their first input (`torch/nn/modules/lazy.py`).

use std::sync::{Mutex, OnceLock, PoisonError};

use super::state_dict::NamedTensors;
use super::walk::{Entry, walk};
use super::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, Buffer, Conv1d, Conv2d, Conv3d, ConvTranspose1d,
    ConvTranspose2d, ConvTranspose3d, Forward, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d,
    Linear, Module, PerDim, Training, Visitor, VisitorMut,
};
use crate::autograd::no_grad;
use crate::error::{Error, Result, catch, throw};
use crate::onnx::{Graph, Value};
use crate::ops::ConvTransposeOptions;
use crate::tensor::{Dtype, Tensor};

/// A module that is made when its first input, or a state that is loaded, tells the input's size.
///
/// Until then it has no parameters, and asking for them throws: run one batch before an optimizer is made. It may be moved
/// and converted before. [`built_by`](Lazy::built_by) takes any settings:
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{Conv2d, Forward, LazyConv2d, LazyLinear, Module, Sequential}};
/// let net = Sequential::new()
///     .append(LazyConv2d::built_by(|channels| Conv2d::new(channels, 4, 3).padding(1)))
///     .append(torchrs::nn::Flatten::new())
///     .append(LazyLinear::new(10));
/// assert!(torchrs::catch(|| net.parameters()).is_err());
/// assert_eq!(net.forward(&Tensor::ones([2, 3, 5, 5], Dtype::F32)).shape(), &[2, 10]);
/// assert_eq!(net.named_parameters()[2].1.shape(), &[10, 100]);
/// ```
pub struct Lazy<M> {
    module: OnceLock<M>,
    /// Held while the module is made, so that it is made once.
    make: Mutex<Box<dyn Fn(usize) -> M + Send>>,
    /// Has the type and the device of what will be made.
    like: Buffer,
    training: Training,
}

/// What [`Lazy`] asks of the module that it makes.
pub trait LazySize: Forward + Sized {
    /// The name while nothing is made.
    #[doc(hidden)]
    const LAZY_NAME: &'static str;
    /// The size that an input tells.
    #[doc(hidden)]
    fn size_of_input(input: &Tensor) -> Option<usize>;
    /// The size that a parameter in a state tells, by its name, and what it is multiplied by until the module made with it
    /// has a parameter of that shape.
    #[doc(hidden)]
    fn size_of_state(name: &str, shape: &[usize]) -> Option<usize>;
    /// Whether groups may share out the channels, so that a weight shows a part of them.
    #[doc(hidden)]
    const GROUPED: bool = false;
}

impl<M: LazySize> Lazy<M> {
    /// A module that `make` makes for inputs of a size: features or channels.
    pub fn built_by(make: impl Fn(usize) -> M + Send + 'static) -> Self {
        Lazy {
            module: OnceLock::new(),
            make: Mutex::new(Box::new(make)),
            like: Buffer::non_persistent(Tensor::empty([0], Dtype::F32)),
            training: Training::default(),
        }
    }

    /// The module, once it is made.
    pub fn get(&self) -> Option<&M> {
        self.module.get()
    }

    /// The module, made for inputs of this size if there is none yet.
    #[track_caller]
    fn made(&self, size: usize) -> &M {
        let make = self.make.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = self.module.get() {
            return module;
        }
        let module = self.converted(make(size));
        self.module.get_or_init(|| module)
    }

    fn converted(&self, mut module: M) -> M {
        module.set_training(self.training.get());
        if module.parameters().iter().chain(&module.buffers()).next().is_some() {
            module.to(self.like.dtype());
            if self.like.device() != crate::storage::Device::Cpu {
                module.to_device(self.like.device());
            }
        }
        module
    }

    /// A module whose parameters have the shapes of those in a state.
    fn fitting(&self, shapes: &[(String, Vec<usize>)]) -> Option<M> {
        let make = self.make.lock().unwrap_or_else(PoisonError::into_inner);
        let (size, outputs) = shapes.iter().find_map(|(name, shape)| {
            Some((M::size_of_state(name, shape)?, shape.first().copied()?))
        })?;
        // Groups share out the outputs, too.
        let most = if M::GROUPED { outputs.max(1) } else { 1 };
        (1..=most).filter(|&groups| outputs.is_multiple_of(groups)).find_map(|groups| {
            let module = catch(|| make(size * groups)).ok()?;
            let own = module.state_dict();
            let fits = |(name, shape): &(String, Vec<usize>)| {
                own.get(name).is_none_or(|own| own.shape() == &shape[..])
            };
            shapes.iter().all(fits).then_some(module)
        })
    }
}

impl<M: LazySize> Module for Lazy<M> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        match self.module.get() {
            Some(module) => module.visit(visitor),
            None => {
                visitor.buffer("uninitialized", &self.like);
                visitor.training(&self.training);
            }
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        match self.module.get_mut() {
            Some(module) => module.visit_mut(visitor),
            None => visitor.buffer("uninitialized", &mut self.like),
        }
    }
    fn name(&self) -> &str {
        self.module.get().map_or(M::LAZY_NAME, |module| module.name())
    }
    fn extra_repr(&self) -> String {
        self.module.get().map_or(String::new(), Module::extra_repr)
    }
    fn has_sizes(&self) -> bool {
        self.module.get().is_some()
    }
    fn take_sizes(&self, state: &dyn NamedTensors, prefix: &str) {
        if self.has_sizes() {
            return;
        }
        let inside = |name: &&str| match prefix {
            "" => true,
            _ => name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.')),
        };
        let shape = |name: &str| {
            let own = name[prefix.len()..].trim_start_matches('.').to_owned();
            state.tensor(name).map(|tensor| (own, tensor.shape().to_vec()))
        };
        let shapes: Vec<_> = state.names().into_iter().filter(inside).filter_map(shape).collect();
        if let Some(module) = no_grad(|| self.fitting(&shapes)) {
            let module = self.converted(module);
            _ = self.module.set(module);
        }
    }
}

impl<M: LazySize> Forward for Lazy<M> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        let module = match self.module.get() {
            Some(module) => module,
            None => {
                let Some(size) = M::size_of_input(input) else {
                    let shape = input.shape();
                    let message = format!("input of shape {shape:?} has too few dimensions");
                    throw(Error::shape(M::LAZY_NAME, message))
                };
                self.made(size)
            }
        };
        module.forward(input)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        match self.module.get() {
            Some(module) => module.onnx(graph, input),
            None => {
                let message =
                    format!("`{}` has no weights yet: call it, or load a state dict", M::LAZY_NAME);
                Err(Error::argument("onnx", "module", message))
            }
        }
    }
}

impl LazySize for Linear {
    const LAZY_NAME: &'static str = "LazyLinear";
    fn size_of_input(input: &Tensor) -> Option<usize> {
        input.shape().last().copied()
    }
    fn size_of_state(name: &str, shape: &[usize]) -> Option<usize> {
        shape.get(1).copied().filter(|_| name == "weight")
    }
}

/// Size `$place` of the weight, where the channels of the input are `$dims` before the last dimension; whether that is the
/// size of one group.
macro_rules! of_weight {
    ($($module:ident, $name:literal, $dims:literal, $place:literal, $grouped:literal;)*) => {$(
        impl LazySize for $module {
            const LAZY_NAME: &'static str = $name;
            const GROUPED: bool = $grouped;
            fn size_of_input(input: &Tensor) -> Option<usize> {
                channels(input, $dims)
            }
            fn size_of_state(name: &str, shape: &[usize]) -> Option<usize> {
                shape.get($place).copied().filter(|_| name == "weight")
            }
        }
    )*};
}

of_weight! {
    Conv1d, "LazyConv1d", 1, 1, true;
    Conv2d, "LazyConv2d", 2, 1, true;
    Conv3d, "LazyConv3d", 3, 1, true;
    ConvTranspose1d, "LazyConvTranspose1d", 1, 0, false;
    ConvTranspose2d, "LazyConvTranspose2d", 2, 0, false;
    ConvTranspose3d, "LazyConvTranspose3d", 3, 0, false;
}

/// Any list of the state, where the channels of the input are dimension 1, or `$dims` before the last one.
macro_rules! of_lists {
    ($($module:ident, $name:literal, |$x:ident| $channels:expr;)*) => {$(
        impl LazySize for $module {
            const LAZY_NAME: &'static str = $name;
            fn size_of_input($x: &Tensor) -> Option<usize> {
                $channels
            }
            fn size_of_state(_: &str, shape: &[usize]) -> Option<usize> {
                shape.first().copied()
            }
        }

        impl Default for Lazy<$module> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl Lazy<$module> {
            /// With PyTorch's settings.
            pub fn new() -> Self {
                Self::built_by($module::new)
            }
        }
    )*};
}

fn channels(x: &Tensor, dims: usize) -> Option<usize> {
    x.dim().checked_sub(dims + 1).map(|d| x.size(d as i64))
}

of_lists! {
    BatchNorm1d, "LazyBatchNorm1d", |x| x.shape().get(1).copied();
    BatchNorm2d, "LazyBatchNorm2d", |x| x.shape().get(1).copied();
    BatchNorm3d, "LazyBatchNorm3d", |x| x.shape().get(1).copied();
    InstanceNorm1d, "LazyInstanceNorm1d", |x| channels(x, 1);
    InstanceNorm2d, "LazyInstanceNorm2d", |x| channels(x, 2);
    InstanceNorm3d, "LazyInstanceNorm3d", |x| channels(x, 3);
}

impl Lazy<Linear> {
    /// With a bias.
    pub fn new(out_features: usize) -> Self {
        Self::built_by(move |inputs| Linear::new(inputs, out_features))
    }

    /// Without a bias.
    pub fn no_bias(out_features: usize) -> Self {
        Self::built_by(move |inputs| Linear::no_bias(inputs, out_features))
    }
}

macro_rules! convolutions {
    ($($module:ident $dims:literal;)*) => {$(
        impl Lazy<$module> {
            /// Stride 1, no padding, with a bias; [`built_by`](Lazy::built_by) takes other settings.
            pub fn new(out_channels: usize, kernel_size: impl Into<PerDim<$dims>>) -> Self {
                let size = kernel_size.into().0;
                Self::built_by(move |channels| $module::new(channels, out_channels, size))
            }
        }
    )*};
}
convolutions! { Conv1d 1; Conv2d 2; Conv3d 3; }

macro_rules! transposed {
    ($($module:ident $dims:literal;)*) => {$(
        impl Lazy<$module> {
            /// With a bias.
            pub fn new(
                out_channels: usize,
                kernel_size: impl Into<PerDim<$dims>>,
                options: ConvTransposeOptions<$dims>,
            ) -> Self {
                let size = kernel_size.into().0;
                Self::built_by(move |channels| $module::new(channels, out_channels, size, options))
            }
        }
    )*};
}
transposed! { ConvTranspose1d 1; ConvTranspose2d 2; ConvTranspose3d 3; }

macro_rules! names {
    ($($name:ident = $module:ident;)*) => {$(
        #[doc = concat!("[`", stringify!($module), "`] whose input tells its size (`torch.nn.", stringify!($name), "`); see [`Lazy`].")]
        pub type $name = Lazy<$module>;
    )*};
}
names! {
    LazyLinear = Linear;
    LazyConv1d = Conv1d;
    LazyConv2d = Conv2d;
    LazyConv3d = Conv3d;
    LazyConvTranspose1d = ConvTranspose1d;
    LazyConvTranspose2d = ConvTranspose2d;
    LazyConvTranspose3d = ConvTranspose3d;
    LazyBatchNorm1d = BatchNorm1d;
    LazyBatchNorm2d = BatchNorm2d;
    LazyBatchNorm3d = BatchNorm3d;
    LazyInstanceNorm1d = InstanceNorm1d;
    LazyInstanceNorm2d = InstanceNorm2d;
    LazyInstanceNorm3d = InstanceNorm3d;
}

/// Throws where a module's parameters have no sizes yet.
#[track_caller]
pub(super) fn assert_sizes<M: Module + ?Sized>(call: &'static str, module: &M) {
    let mut without = (!module.has_sizes()).then(|| ("self".to_owned(), module.name().to_owned()));
    walk(module, "", &mut |path, entry| {
        if let Entry::Module(inside) = entry
            && !inside.has_sizes()
        {
            without.get_or_insert((path, inside.name().to_owned()));
        }
    });
    if let Some((path, name)) = without {
        let message = format!(
            "`{path}` is a {name} that has no parameters until its first input tells their sizes; run a batch, or load a \
             state, first"
        );
        throw(Error::argument(call, "self", message));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::nn::Sequential;

    #[test]
    fn a_state_that_does_not_fit_is_tried_once() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let layer = Lazy::<Linear>::built_by(move |inputs| {
            count.fetch_add(1, Relaxed);
            Linear::new(inputs, 7)
        });
        assert!(layer.load_state_dict(&Linear::new(2, 64).state_dict(), true).is_err());
        assert_eq!(made.load(Relaxed), 1);
    }

    #[test]
    fn parameters_are_refused_until_there_are_some() {
        let net = Sequential::new().append_named("fc", LazyLinear::new(3));
        for asked in [catch(|| _ = net.parameters()), catch(|| _ = net.state_dict())] {
            let error = asked.unwrap_err().to_string();
            assert!(error.contains("`fc`") && error.contains("LazyLinear"), "{error}");
        }
        assert!(net.repr().contains("LazyLinear"));
        net.eval();
        net.forward(&Tensor::ones([2, 5], Dtype::F32));
        assert!(net.repr().contains("Linear(in_features=5, out_features=3"));
        assert_eq!(net.parameters()[0].shape(), &[3, 5]);
        assert!(catch(|| net.forward(&Tensor::ones([2, 4], Dtype::F32))).is_err());
    }

    #[test]
    fn what_was_asked_of_it_before_holds_for_what_is_made() {
        let mut net = Sequential::new().append(LazyBatchNorm1d::new());
        net.to(Dtype::F64);
        net.eval();
        // In evaluation by the running statistics, which are 0 and 1.
        let x = Tensor::from([[1f64, 2.], [3., 4.]]);
        assert!((net.forward(&x) - &x).abs().max().item() < 1e-4);
        assert_eq!(net.parameters()[0].dtype(), Dtype::F64);
    }

    #[test]
    fn sizes_come_from_a_state_too() {
        let full = Sequential::new()
            .append(Conv2d::new(6, 4, 3).groups(2))
            .append(BatchNorm2d::new(4))
            .append(ConvTranspose2d::new(4, 2, 2, Default::default()));
        let lazy = Sequential::new()
            .append(LazyConv2d::built_by(|channels| Conv2d::new(channels, 4, 3).groups(2)))
            .append(LazyBatchNorm2d::new())
            .append(LazyConvTranspose2d::new(2, 2, Default::default()));
        lazy.load_state_dict(&full.state_dict(), true).expect("fits");
        let x = Tensor::randn([2, 6, 5, 5], Dtype::F32);
        assert!(lazy.forward(&x).equal(&full.forward(&x)));
        let other = LazyLinear::new(7);
        let refused = other.load_state_dict(&Linear::new(2, 3).state_dict(), true);
        assert!(refused.unwrap_err().to_string().contains("weight"));
    }
}
