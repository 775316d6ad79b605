//! The [`Module`] trait: what a model is made of, by name. `#[derive(Module)]` writes the two
//! visiting methods from the struct's fields; everything else here is built on them.

use super::lazy::assert_sizes;
use super::state_dict::{LoadReport, NamedTensors, StateDict, differ_by_wrappers, load_failure};
use super::walk::{Entry, Replace, Unique, move_all, own_fields, walk};
use super::{Buffer, Parameter, StatisticsGroup, Training, display};
use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// A part of a model that holds parameters, buffers and other modules (`torch.nn.Module`).
///
/// Derive it. A field is found by its type: [`Parameter`], [`Buffer`], [`Training`], any module,
/// and `Option`, `Vec`, arrays, `Box`, `Arc`, and maps from names to these. Other fields are
/// skipped, as long as they hold no tensors. Names are the fields' names, so they are PyTorch's
/// when the fields are named as there. On an enum each variant holds one module, which stands for
/// the enum itself.
///
/// Attributes: `#[module(rename = "h")]` gives a field another name, `#[module(skip)]` hides it;
/// on the type, `#[module(name = "GPT")]` (or a method's path) and
/// `#[module(extra_repr = Self::method)]` change what [`repr`](Module::repr) prints.
///
/// A module that derives `Clone` besides is cheap to clone, and its clone has the same parameters and
/// buffers: the two are tied. [`deep_copy`](Module::deep_copy) gives one with its own.
///
/// A module has whatever `forward` it needs, as an ordinary method; one that maps a tensor to a
/// tensor also implements [`Forward`](super::Forward).
///
/// ```
/// use torchrs::{Tensor, Dtype::F32, nn::{Module, Parameter}};
///
/// #[derive(Module)]
/// struct Scale { weight: Parameter, power: i32 }
///
/// #[derive(Module)]
/// struct Net { input: Scale, layers: Vec<Scale>, bias: Option<Parameter> }
///
/// let scale = || Scale { weight: Parameter::new(Tensor::ones([2], F32)), power: 2 };
/// let net = Net { input: scale(), layers: vec![scale(), scale()], bias: None };
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["input.weight", "layers.0.weight", "layers.1.weight"]);
/// ```
///
/// A field that holds parameters but is no module is refused, so that nothing is left untrained by
/// accident:
/// ```compile_fail,E0277
/// use torchrs::nn::{Module, Parameter};
/// struct Head { weight: Parameter }
/// #[derive(Module)]
/// struct Net { head: Head }
/// ```
///
/// So is a plain tensor, which would not be trained, moved or saved. It is a `Parameter`, a `Buffer`, or has
/// `#[module(skip)]`:
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { masks: Vec<Tensor> }
/// ```
/// ```
/// use torchrs::{Tensor, nn::{Buffer, Module}};
/// #[derive(Module)]
/// struct Net { masks: Vec<Buffer>, #[module(skip)] last_input: Option<Tensor> }
/// ```
pub trait Module: Send + Sync {
    /// Shows the fields to `visitor`, in the order of their declaration; not those of modules
    /// inside. Written by the derive.
    ///
    /// ```
    /// use torchrs::nn::{Buffer, Linear, Module, Parameter, ReLU, Sequential, Training, Visitor};
    /// struct Names(Vec<String>);
    /// impl<'a> Visitor<'a> for Names {
    ///     fn parameter(&mut self, name: &str, _: &'a Parameter) { self.0.push(name.to_owned()) }
    ///     fn buffer(&mut self, _: &str, _: &'a Buffer) {}
    ///     fn module(&mut self, name: &str, module: &'a dyn Module) { self.0.push(name.to_owned() + "/") }
    ///     fn training(&mut self, _: &'a Training) {}
    /// }
    /// let mut names = Names(Vec::new());
    /// Linear::new(2, 3).visit(&mut names);
    /// Sequential::new().append(Linear::new(2, 3)).append(ReLU).visit(&mut names);
    /// assert_eq!(names.0, ["weight", "bias", "0/", "1/"]);
    /// ```
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>);

    /// [`visit`](Self::visit) for visitors that change what they see. Written by the derive.
    ///
    /// ```
    /// use torchrs::nn::{Buffer, Linear, Module, Parameter, VisitorMut};
    /// /// Takes clones of the parameters of one module as those of another.
    /// struct Tie(Vec<Parameter>);
    /// impl VisitorMut for Tie {
    ///     fn parameter(&mut self, _: &str, p: &mut Parameter) { *p = self.0.remove(0) }
    ///     fn buffer(&mut self, _: &str, _: &mut Buffer) {}
    ///     fn module(&mut self, _: &str, module: &mut dyn Module) { module.visit_mut(self) }
    /// }
    /// let (first, mut second) = (Linear::no_bias(2, 3), Linear::no_bias(2, 3));
    /// second.visit_mut(&mut Tie(vec![first.weight.clone()]));
    /// assert!(second.weight.ptr_eq(&first.weight));
    /// ```
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut);

    /// The type's name, as [`repr`](Self::repr) shows it. Written by the derive.
    fn name(&self) -> &str;

    /// The module's own settings, as [`repr`](Self::repr) shows them:
    /// `in_features=2, out_features=3`.
    fn extra_repr(&self) -> String {
        String::new()
    }

    /// Has forward take floating-point inputs as `input` and give its output as `output`, and says whether it can: only
    /// [`Hooked`](super::Hooked) does.
    #[doc(hidden)]
    fn cast_around(&self, _input: Option<Dtype>, _output: Option<Dtype>) -> bool {
        false
    }

    #[doc(hidden)] // Of a `Linear`, for what adds adapters to it.
    fn as_linear(&self) -> Option<&super::Linear> {
        None
    }
    #[doc(hidden)]
    fn as_linear_mut(&mut self) -> Option<&mut super::Linear> {
        None
    }

    /// Whether the sizes of parameters are known: of [`Lazy`](super::Lazy) modules only once there was an input.
    #[doc(hidden)]
    fn has_sizes(&self) -> bool {
        true
    }

    /// Takes sizes that are not known yet from a state, in which the module's own names begin with a prefix.
    #[doc(hidden)]
    fn take_sizes(&self, _state: &dyn NamedTensors, _prefix: &str) {}

    /// All parameters, also those of modules inside, with their dotted names. A parameter that is
    /// there more than once appears once, under its first name.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, Sequential};
    /// let first = Linear::no_bias(2, 2);
    /// let net = Sequential::new().append(first.clone()).append(first).append(Linear::no_bias(2, 1));
    /// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["0.weight", "2.weight"]);
    /// ```
    #[track_caller]
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        assert_sizes("named_parameters", self);
        let mut found = Unique::default();
        walk(self, "", &mut |path, entry| {
            if let Entry::Parameter(parameter) = entry {
                found.add(path, &parameter.tensor().local());
            }
        });
        found.named
    }

    /// All parameters, in the order of [`named_parameters`](Self::named_parameters): what an
    /// optimizer takes.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module};
    /// let shapes: Vec<usize> = Linear::new(3, 2).parameters().iter().map(|p| p.numel()).collect();
    /// assert_eq!(shapes, [6, 2]);
    /// ```
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// All buffers, persistent or not, with their dotted names, each once.
    ///
    /// ```
    /// use torchrs::nn::{BatchNorm1d, Module};
    /// let buffers = BatchNorm1d::new(4).named_buffers();
    /// let names: Vec<&str> = buffers.iter().map(|(name, _)| name.as_str()).collect();
    /// assert_eq!(names, ["running_mean", "running_var", "num_batches_tracked"]);
    /// ```
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        let mut found = Unique::default();
        walk(self, "", &mut |path, entry| {
            if let Entry::Buffer(buffer) = entry {
                found.add(path, buffer.tensor());
            }
        });
        found.named
    }

    /// All buffers, in the order of [`named_buffers`](Self::named_buffers).
    fn buffers(&self) -> Vec<Tensor> {
        self.named_buffers().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// This module under the name `""` and all modules inside with their dotted names, each module
    /// before those inside it.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, ReLU, Sequential};
    /// let net = Sequential::new().append(Sequential::new().append(ReLU)).append(Linear::new(2, 1));
    /// let names: Vec<String> = net.named_modules().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["", "0", "0.0", "1"]);
    /// ```
    fn named_modules(&self) -> Vec<(String, &dyn Module)>
    where
        Self: Sized,
    {
        let mut found: Vec<(String, &dyn Module)> = vec![(String::new(), self)];
        walk(self, "", &mut |path, entry| {
            if let Entry::Module(module) = entry {
                found.push((path, module));
            }
        });
        found
    }

    /// The modules directly inside, with their names.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, ReLU, Sequential};
    /// let net = Sequential::new().append(Sequential::new().append(ReLU)).append(Linear::new(2, 1));
    /// let names: Vec<&str> = net.named_children().into_iter().map(|(_, module)| module.name()).collect();
    /// assert_eq!(names, ["Sequential", "Linear"]);
    /// ```
    fn named_children(&self) -> Vec<(String, &dyn Module)> {
        own_fields(self).modules
    }

    /// The module of this dotted name inside this one (`get_submodule`); `""` is the module itself.
    ///
    /// ```
    /// use torchrs::nn::{Module, ReLU, Sequential};
    /// let net = Sequential::new().append(Sequential::new().append(ReLU));
    /// assert_eq!(net.get_submodule("0.0").unwrap().name(), "ReLU");
    /// assert!(net.get_submodule("0.1").is_none());
    /// ```
    fn get_submodule(&self, name: &str) -> Option<&dyn Module>
    where
        Self: Sized,
    {
        self.named_modules().into_iter().find(|(path, _)| path == name).map(|(_, module)| module)
    }

    /// The parameters of this module alone, not of those inside
    /// (`named_parameters(recurse=False)`).
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, Sequential};
    /// let net = Sequential::new().append(Linear::new(3, 2));
    /// assert!(net.own_parameters().is_empty());
    /// assert_eq!(net.get_submodule("0").unwrap().own_parameters()[1].0, "bias");
    /// ```
    fn own_parameters(&self) -> Vec<(String, Tensor)> {
        let own = own_fields(self).parameters;
        own.into_iter().map(|(name, parameter)| (name, parameter.tensor().local())).collect()
    }

    /// Calls `f` with every module inside and then with this one (`apply`): to set initial values by
    /// kind of layer.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, ReLU, Sequential, init};
    /// let net = Sequential::new().append(Linear::new(2, 3)).append(ReLU).append(Linear::new(3, 1));
    /// net.apply(&mut |module| {
    ///     if module.name() == "Linear" {
    ///         module.own_parameters().iter().for_each(|(_, p)| init::constant_(p, 0.5));
    ///     }
    /// });
    /// assert!(net.parameters().iter().all(|p| p.to_vec::<f32>().iter().all(|&v| v == 0.5)));
    /// ```
    fn apply(&self, f: &mut dyn FnMut(&dyn Module))
    where
        Self: Sized,
    {
        fn inner_first(module: &dyn Module, f: &mut dyn FnMut(&dyn Module)) {
            for (_, child) in own_fields(module).modules {
                inner_first(child, f);
            }
            f(module);
        }
        inner_first(self, f);
    }

    /// Number of trainable and frozen elements in all parameters, tied ones counted once.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }

    /// All parameters and persistent buffers by name, under PyTorch's names. The tensors share the
    /// module's memory. Tied parameters appear under each of their names.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, Sequential};
    /// let net = Sequential::new().append(Linear::new(3, 2)).append(Linear::no_bias(2, 1));
    /// let state = net.state_dict();
    /// assert_eq!(state.keys().collect::<Vec<_>>(), ["0.weight", "0.bias", "1.weight"]);
    /// ```
    #[track_caller]
    fn state_dict(&self) -> StateDict {
        assert_sizes("state_dict", self);
        let mut state = StateDict::new();
        walk(self, "", &mut |path, entry| {
            if let Some(tensor) = entry.saved() {
                state.insert(path, tensor.detach());
            }
        });
        state
    }

    /// Copies the tensors of `state` into the parameters and buffers of the same names, converting
    /// dtypes. With `strict` the two sets of names must be equal; without, what differs is in the
    /// report. When there is an error nothing has been copied.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module};
    /// let (trained, fresh) = (Linear::new(3, 2), Linear::new(3, 2));
    /// fresh.load_state_dict(&trained.state_dict(), true).unwrap();
    /// assert!(fresh.weight.equal(&trained.weight));
    /// let error = Linear::new(4, 2).load_state_dict(&trained.state_dict(), true).unwrap_err();
    /// assert!(error.to_string().contains("`weight` is [2, 3] in the state dict and [2, 4] in the module"));
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] that names all missing and unexpected keys (`strict`), and always all tensors
    /// whose shape differs, and names that differ by those of wrappers alone (`module.`, `_orig_mod.`; see
    /// [`StateDict::unwrapped`]).
    fn load_state_dict(&self, state: &dyn NamedTensors, strict: bool) -> Result<LoadReport> {
        self.take_sizes(state, "");
        walk(self, "", &mut |path, entry| {
            if let Entry::Module(module) = entry {
                module.take_sizes(state, &path);
            }
        });
        let mut report = LoadReport::default();
        let mut targets = StateDict::new();
        let mut mismatched = Vec::new();
        walk(self, "", &mut |path, entry| {
            let Some(target) = entry.saved() else { return };
            match state.tensor(&path) {
                None => report.missing_keys.push(path.clone()),
                Some(source) if source.shape() != target.shape() => mismatched.push(format!(
                    "shape mismatch: `{path}` is {:?} in the state dict and {:?} in the module",
                    source.shape(),
                    target.shape()
                )),
                Some(_) => {}
            }
            targets.insert(path, target.clone());
        });
        let unexpected = state.names().into_iter().filter(|key| !targets.contains_key(key));
        report.unexpected_keys = unexpected.map(str::to_owned).collect();
        let differs = !report.missing_keys.is_empty() || !report.unexpected_keys.is_empty();
        // Without `strict`, a wrapper's names would leave everything as it was.
        let wrapped = differs && differ_by_wrappers(&report);
        if !mismatched.is_empty() || (strict && differs) || wrapped {
            let message = format!(
                "does not fit {}:\n    {}",
                self.name(),
                load_failure(&report, &mismatched, strict)
            );
            return Err(Error::argument("load_state_dict", "state", message));
        }
        no_grad(|| {
            for (name, target) in targets.iter() {
                if let Some(source) = state.tensor(name) {
                    target.copy_(source);
                }
            }
        });
        Ok(report)
    }

    /// Clears the gradients of all parameters (`zero_grad(set_to_none=True)`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Linear, Module}};
    /// let layer = Linear::new(1, 1);
    /// layer.forward(&Tensor::from([2f32])).sum().backward();
    /// assert_eq!(layer.weight.grad().unwrap().item(), 2.0);
    /// layer.zero_grad();
    /// assert!(layer.weight.grad().is_none());
    /// ```
    fn zero_grad(&self) {
        self.parameters().iter().for_each(|parameter| parameter.set_grad(None));
    }

    /// Makes all parameters collect gradients, or not: `requires_grad_(false)` freezes the module.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Linear, Module}};
    /// let layer = Linear::new(1, 1);
    /// layer.requires_grad_(false);
    /// assert!(!layer.forward(&Tensor::from([2f32])).requires_grad());
    /// ```
    fn requires_grad_(&self, requires_grad: bool) {
        for parameter in self.parameters() {
            parameter.requires_grad_(requires_grad);
        }
    }

    /// Switches this module and all inside to training.
    fn train(&self) {
        self.set_training(true);
    }

    /// Switches this module and all inside to evaluation.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Dropout, Forward, Module, Sequential}};
    /// let net = Sequential::new().append(Dropout::new(1.0));
    /// net.eval();
    /// assert_eq!(net.forward(&Tensor::from([3f32])).item(), 3.0);
    /// ```
    fn eval(&self) {
        self.set_training(false);
    }

    /// [`train`](Self::train) or [`eval`](Self::eval).
    ///
    /// ```
    /// use torchrs::nn::{Dropout, Module};
    /// let dropout = Dropout::new(0.5);
    /// dropout.set_training(false);
    /// assert!(!dropout.is_training());
    /// ```
    fn set_training(&self, training: bool) {
        walk(self, "", &mut |_, entry| {
            if let Entry::Training(flag) = entry {
                flag.set(training);
            }
        });
    }

    /// True when this module or a module inside it is in training; true as well when no module
    /// inside makes a difference between training and evaluation.
    ///
    /// ```
    /// use torchrs::nn::{Dropout, Linear, Module};
    /// let (dropout, linear) = (Dropout::new(0.5), Linear::new(1, 1));
    /// dropout.eval();
    /// linear.eval();
    /// assert!(!dropout.is_training() && linear.is_training());
    /// ```
    fn is_training(&self) -> bool {
        let (mut any, mut training) = (false, false);
        walk(self, "", &mut |_, entry| {
            if let Entry::Training(flag) = entry {
                any = true;
                training |= flag.get();
            }
        });
        training || !any
    }

    /// Converts all floating-point parameters and buffers to `dtype`, and gradients with them. They stay the
    /// same tensors, for all who hold them: optimizers, hooks, averages, tied modules. An optimizer converts
    /// its state at its next step. No other thread may use the module meanwhile.
    ///
    /// A graph that was recorded before still has a right backward, on the values that it saved.
    /// [`state_dict`](Self::state_dict)s taken before keep the old tensors.
    ///
    /// ```
    /// use torchrs::{Dtype, nn::{BatchNorm1d, Module}};
    /// let mut norm = BatchNorm1d::new(2);
    /// norm.to(Dtype::BF16);
    /// assert_eq!(norm.weight.as_ref().unwrap().dtype(), Dtype::BF16);
    /// assert_eq!(norm.num_batches_tracked.as_ref().unwrap().dtype(), Dtype::I64);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] when `dtype` is not a floating-point type; [`Error::Argument`], which names the
    /// parameter, for one that cannot follow: it is in a bucket of
    /// [`DistributedDataParallel`](crate::distributed::DistributedDataParallel), or may be part of a recorded
    /// [`CudaGraph`](crate::cuda_graphs::CudaGraph). Both are made after the move.
    #[track_caller]
    fn to(&mut self, dtype: Dtype) {
        if !dtype.is_floating_point() {
            crate::error::throw(Error::dtype(
                "Module::to",
                format!("{dtype} is not a floating-point type; use f64, f32, f16 or bf16"),
            ));
        }
        let moves = |old: &Tensor| old.dtype().is_floating_point() && old.dtype() != dtype;
        move_all("Module::to", self, &moves, &|old| old.to_dtype(dtype));
    }

    /// Moves all parameters and buffers to a device (`torch.nn.Module.to`), and gradients with them. They stay the
    /// same tensors, as with [`to`](Self::to).
    ///
    /// ```
    /// use torchrs::{Device, cuda, nn::{Linear, Module}};
    /// let mut layer = Linear::new(2, 1);
    /// let device = if cuda::is_available() { Device::Cuda(0) } else { Device::Cpu };
    /// layer.to_device(device);
    /// assert_eq!(layer.weight.device(), device);
    /// ```
    ///
    /// # Panics
    /// Throws when the machine lacks the device, and for a parameter that cannot follow, as
    /// [`to`](Self::to) does.
    #[track_caller]
    fn to_device(&mut self, device: Device) {
        let moves = |old: &Tensor| old.device() != device;
        move_all("Module::to_device", self, &moves, &|old| old.to_device(device));
    }

    /// Gives parameters and buffers on the meta device memory, without values (`torch.nn.Module.to_empty`). They stay the
    /// same tensors, as with [`to`](Self::to). Values come from [`reset_parameters`](Self::reset_parameters), or
    /// [`load_state_dict`](Self::load_state_dict). Tensors that have values are moved with them, other than in PyTorch.
    ///
    /// Of a module that was sharded on the meta device each rank gets memory for its part; all ranks call it.
    ///
    /// ```
    /// use torchrs::{Device, nn::{Linear, Module}};
    /// let trained = Linear::new(3, 2);
    /// let mut layer = Device::Meta.scope(|| Linear::new(3, 2));
    /// layer.to_empty(Device::Cpu);
    /// layer.load_state_dict(&trained.state_dict(), true)?;
    /// assert!(layer.weight.equal(&trained.weight));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Panics
    /// Throws when the machine lacks the device or the memory, and where [`to_device`](Self::to_device) would.
    #[track_caller]
    fn to_empty(&mut self, device: Device) {
        super::materialise::to_empty(self, device).unwrap_or_else(|error| throw(error));
    }

    /// Gives all parameters and buffers of a module that was built on the meta device, and has memory by
    /// [`to_empty`](Self::to_empty), their initial values: those that a module which is built now, where this one is, would
    /// have. Numbers are drawn from the default generator, as many as for that module.
    ///
    /// Known are values that were set by [`init`](super::init), or made by `zeros`, `ones`, `full`, `rand` and `randn`.
    /// Buffers that had values all the time keep them.
    ///
    /// Of a sharded module each rank gets its part of what the first rank's generator draws; all ranks call it. No rank has
    /// more than one whole parameter at a time.
    ///
    /// ```
    /// use torchrs::nn::{BatchNorm1d, Linear, Module, Sequential};
    /// use torchrs::{Device, manual_seed};
    /// let build = || Sequential::new().append(Linear::new(3, 4)).append(BatchNorm1d::new(4));
    /// let mut model = Device::Meta.scope(build);
    /// model.to_empty(Device::Cpu);
    /// manual_seed(1);
    /// model.reset_parameters();
    /// manual_seed(1);
    /// let direct = build();
    /// for (a, b) in model.state_dict().iter().zip(direct.state_dict().iter()) {
    ///     assert!(a.1.equal(b.1), "{}", a.0);
    /// }
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`], which names the parameter, for one whose initial values are not known: of a module that
    /// was not built on the meta device, or where an op computed or changed them. [`init::by`](super::init::by) is for these.
    #[track_caller]
    fn reset_parameters(&self) {
        super::materialise::reset_parameters(self).unwrap_or_else(|error| throw(error));
    }

    /// [`to`](Self::to) f32.
    #[track_caller]
    fn float(&mut self) {
        self.to(Dtype::F32);
    }

    /// [`to`](Self::to) f64.
    #[track_caller]
    fn double(&mut self) {
        self.to(Dtype::F64);
    }

    /// [`to`](Self::to) f16.
    #[track_caller]
    fn half(&mut self) {
        self.to(Dtype::F16);
    }

    /// [`to`](Self::to) bf16.
    #[track_caller]
    fn bfloat16(&mut self) {
        self.to(Dtype::BF16);
    }

    /// A module like this one with copies of all parameters and buffers (`copy.deepcopy`); ties stay,
    /// gradients are not copied.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module};
    /// let net = Linear::new(2, 2);
    /// assert!(net.clone().weight.ptr_eq(&net.weight));
    /// assert!(!net.deep_copy().weight.ptr_eq(&net.weight));
    /// ```
    ///
    /// # Panics
    /// Throws when a module inside is shared by `Arc`.
    #[track_caller]
    fn deep_copy(&self) -> Self
    where
        Self: Clone + Sized,
    {
        let mut copy = self.clone();
        let convert = |old: &Tensor| Some(old.clone_contiguous());
        Replace::all(&mut copy, &convert);
        copy
    }

    /// Moves all parameters and buffers into shared memory, so that they can be sent to other
    /// processes without a copy (`torch.nn.Module.share_memory`).
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module};
    /// # fn main() -> torchrs::Result<()> {
    /// let layer = Linear::new(2, 1);
    /// layer.share_memory()?;
    /// assert!(layer.weight.is_shared());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when there is no memory or descriptor left.
    fn share_memory(&self) -> Result<()> {
        for tensor in self.parameters().iter().chain(&self.buffers()) {
            tensor.storage().share_memory()?;
        }
        Ok(())
    }

    /// The module and all inside as text, in the form of Python's `repr(module)`.
    ///
    /// ```
    /// use torchrs::nn::{Module, ReLU, Sequential, Softmax};
    /// let net = Sequential::new().append(ReLU).append(Softmax::new(1));
    /// assert_eq!(net.repr(), "Sequential(\n  (0): ReLU()\n  (1): Softmax(dim=1)\n)");
    /// ```
    fn repr(&self) -> String {
        display::repr(self)
    }
}

/// Sees the fields of a module; see [`Module::visit`].
///
/// ```
/// use torchrs::nn::{Buffer, Linear, Module, Parameter, Sequential, Training, Visitor};
/// /// The largest depth of modules inside modules.
/// struct Depth(usize);
/// impl<'a> Visitor<'a> for Depth {
///     fn parameter(&mut self, _: &str, _: &'a Parameter) {}
///     fn buffer(&mut self, _: &str, _: &'a Buffer) {}
///     fn module(&mut self, _: &str, module: &'a dyn Module) {
///         let mut inside = Depth(0);
///         module.visit(&mut inside);
///         self.0 = self.0.max(1 + inside.0);
///     }
///     fn training(&mut self, _: &'a Training) {}
/// }
/// let mut depth = Depth(0);
/// Sequential::new().append(Sequential::new().append(Linear::new(2, 1))).visit(&mut depth);
/// assert_eq!(depth.0, 2);
/// ```
pub trait Visitor<'a> {
    /// A parameter.
    fn parameter(&mut self, name: &str, parameter: &'a Parameter);
    /// A buffer.
    fn buffer(&mut self, name: &str, buffer: &'a Buffer);
    /// A module. Its fields are visited only if the visitor calls its `visit`.
    fn module(&mut self, name: &str, module: &'a dyn Module);
    /// The module's own training flag.
    fn training(&mut self, flag: &'a Training);
    /// Whose rows the module's statistics are of.
    fn statistics_group(&mut self, _group: &'a StatisticsGroup) {}
}

/// Changes the fields of a module; see [`Module::visit_mut`].
///
/// ```
/// use torchrs::{Tensor, nn::{BatchNorm1d, Buffer, Module, Parameter, Sequential, VisitorMut}};
/// /// Buffers that are no longer part of the state dict.
/// struct Forget;
/// impl VisitorMut for Forget {
///     fn parameter(&mut self, _: &str, _: &mut Parameter) {}
///     fn buffer(&mut self, _: &str, b: &mut Buffer) { *b = Buffer::non_persistent(b.tensor().clone()) }
///     fn module(&mut self, _: &str, module: &mut dyn Module) { module.visit_mut(self) }
/// }
/// let mut net = Sequential::new().append(BatchNorm1d::new(2));
/// net.visit_mut(&mut Forget);
/// assert_eq!(net.state_dict().keys().collect::<Vec<_>>(), ["0.weight", "0.bias"]);
/// ```
pub trait VisitorMut {
    /// A parameter.
    fn parameter(&mut self, name: &str, parameter: &mut Parameter);
    /// A buffer.
    fn buffer(&mut self, name: &str, buffer: &mut Buffer);
    /// A module. Its fields are visited only if the visitor calls its `visit_mut`.
    fn module(&mut self, name: &str, module: &mut dyn Module);
}
