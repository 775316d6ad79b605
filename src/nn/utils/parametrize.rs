//! Weights that are computed from other tensors at each forward (`torch.nn.utils.parametrize`).
//!
//! [`register_parametrization`] puts a module into a [`Parametrized`], which holds the tensors that are
//! trained (the originals) in the weight's place, and the [`Parametrization`]s that compute the weight
//! from them. State dicts have PyTorch's names, `parametrizations.weight.original`.
//!
//! ```
//! use torchrs::nn::utils::parametrize::{Parametrization, register_parametrization};
//! use torchrs::nn::{Forward, Linear, Module};
//! use torchrs::{Dtype, Tensor};
//!
//! #[derive(Module, Clone)]
//! struct Symmetric;
//!
//! impl Parametrization for Symmetric {
//!     fn forward(&self, originals: &[Tensor]) -> Tensor {
//!         let upper = originals[0].triu(0);
//!         &upper + upper.triu(1).transpose(-1, -2)
//!     }
//! }
//!
//! let layer = register_parametrization(Linear::new(3, 3), "weight", Symmetric);
//! let weight = layer.value("weight");
//! assert_eq!(weight.to_vec::<f32>(), weight.t().to_vec::<f32>());
//! layer.forward(&Tensor::ones([2, 3], Dtype::F32)).sum().backward();
//! let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["bias", "parametrizations.weight.original"]);
//! ```

use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::nn::{
    Buffer, Forward, Module, Parameter, StatisticsGroup, Training, Visitor, VisitorMut,
    walk::own_fields,
};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// How a tensor is computed from others. A module, so it may have buffers or parameters of its own.
///
/// ```
/// use torchrs::nn::{Linear, Module, utils::parametrize::{Parametrization, register_parametrization}};
/// use torchrs::Tensor;
/// #[derive(Module, Clone)]
/// struct Positive;
/// impl Parametrization for Positive {
///     fn forward(&self, originals: &[Tensor]) -> Tensor { originals[0].exp() }
///     fn right_inverse(&self, value: &Tensor) -> Option<Vec<Tensor>> { Some(vec![value.log()]) }
/// }
/// let layer = register_parametrization(Linear::new(3, 2), "bias", Positive);
/// layer.assign("bias", &Tensor::from([1f32, 2.]));
/// assert!((layer.value("bias") - Tensor::from([1f32, 2.])).abs().max().item() < 1e-6);
/// ```
pub trait Parametrization: Module + CloneBoxed {
    /// The value, from one original or several; behind another parametrization, from its value.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Module, utils::parametrize::Parametrization}};
    /// #[derive(Module, Clone)]
    /// struct Symmetric;
    /// impl Parametrization for Symmetric {
    ///     fn forward(&self, originals: &[Tensor]) -> Tensor { originals[0].triu(0) + originals[0].triu(1).t() }
    /// }
    /// let value = Symmetric.forward(&[Tensor::from([[1f32, 2.], [9., 4.]])]);
    /// assert_eq!(value.to_vec::<f32>(), [1.0, 2.0, 2.0, 4.0]);
    /// ```
    // Not `#[track_caller]`; see `Forward`.
    fn forward(&self, originals: &[Tensor]) -> Tensor;

    /// Originals from which [`forward`](Self::forward) makes `value`: what a module's weight becomes
    /// when it is parametrized, and what [`Parametrized::assign`] sets. `None`, as at first, where they
    /// cannot be found; then the weight is the original.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, utils::parametrize::{Parametrization, register_parametrization}};
    /// use torchrs::Tensor;
    /// #[derive(Module, Clone)]
    /// struct Square;
    /// impl Parametrization for Square {
    ///     fn forward(&self, originals: &[Tensor]) -> Tensor { originals[0].square() }
    ///     fn right_inverse(&self, value: &Tensor) -> Option<Vec<Tensor>> { Some(vec![value.abs().sqrt()]) }
    /// }
    /// // The weight stays near the one that the layer had.
    /// let (plain, weight) = (Linear::new(3, 2), "weight");
    /// let before = plain.weight.detach().abs();
    /// let layer = register_parametrization(plain, weight, Square);
    /// assert!((layer.value(weight) - before).abs().max().item() < 1e-6);
    /// ```
    #[track_caller]
    fn right_inverse(&self, _value: &Tensor) -> Option<Vec<Tensor>> {
        None
    }
}

/// A boxed copy; there for all that is `Clone`.
///
/// ```
/// use torchrs::{Tensor, nn::{Module, utils::parametrize::{CloneBoxed, Parametrization}}};
/// #[derive(Module, Clone)]
/// struct Twice;
/// impl Parametrization for Twice {
///     fn forward(&self, originals: &[Tensor]) -> Tensor { &originals[0] * 2.0 }
/// }
/// let copy: Box<dyn Parametrization> = Twice.clone_boxed();
/// assert_eq!(copy.forward(&[Tensor::from([3f32])]).item(), 6.0);
/// ```
pub trait CloneBoxed {
    /// The copy.
    fn clone_boxed(&self) -> Box<dyn Parametrization>;
}

impl<P: Parametrization + Clone + 'static> CloneBoxed for P {
    fn clone_boxed(&self) -> Box<dyn Parametrization> {
        Box::new(self.clone())
    }
}

/// The originals of one tensor, and what makes it of them, one after the other
/// (`torch.nn.utils.parametrize.ParametrizationList`).
///
/// ```
/// use torchrs::nn::{Linear, Module, utils::parametrizations::weight_norm};
/// let layer = weight_norm(Linear::new(3, 2), "weight", 0);
/// let list = layer.get_submodule("parametrizations.weight").unwrap();
/// assert_eq!(list.name(), "ParametrizationList");
/// let names: Vec<String> = list.own_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["original0", "original1"]);
/// ```
pub struct ParametrizationList {
    /// `original`, or `original0`, `original1`, ...
    originals: Vec<(String, Parameter)>,
    chain: Vec<Box<dyn Parametrization>>,
}

impl Clone for ParametrizationList {
    fn clone(&self) -> Self {
        let chain = self.chain.iter().map(|p| p.clone_boxed()).collect();
        ParametrizationList { originals: self.originals.clone(), chain }
    }
}

impl ParametrizationList {
    #[track_caller]
    fn new(parameter: &Parameter, first: Box<dyn Parametrization>) -> Self {
        let value = parameter.detach();
        let values = no_grad(|| first.right_inverse(&value)).unwrap_or_else(|| vec![value]);
        let originals = match &values[..] {
            [value] if value.shape() == parameter.shape() => {
                // The same parameter, so that an optimizer that has it goes on.
                no_grad(|| parameter.copy_(&value.clone_contiguous()));
                vec![("original".to_owned(), parameter.clone())]
            }
            several => {
                let fresh = |value: &Tensor| {
                    let own = Parameter::new(value.clone_contiguous());
                    own.requires_grad_(parameter.requires_grad());
                    own
                };
                let name = |i: usize| match several.len() {
                    1 => "original".to_owned(),
                    _ => format!("original{i}"),
                };
                several.iter().enumerate().map(|(i, v)| (name(i), fresh(v))).collect()
            }
        };
        ParametrizationList { originals, chain: vec![first] }
    }

    #[track_caller]
    fn value(&self) -> Tensor {
        let originals: Vec<Tensor> =
            self.originals.iter().map(|(_, p)| p.tensor().clone()).collect();
        let mut steps = self.chain.iter();
        let first = steps.next().expect("made with one").forward(&originals);
        steps.fold(first, |value, step| step.forward(&[value]))
    }

    #[track_caller]
    fn assign(&self, value: &Tensor) {
        no_grad(|| {
            let mut values = vec![value.detach()];
            for step in self.chain.iter().rev() {
                values = step.right_inverse(&values[0]).unwrap_or_else(|| {
                    let message = format!("{} has no right inverse", step.name());
                    throw(Error::argument("assign", "value", message))
                });
            }
            for ((_, original), value) in self.originals.iter().zip(&values) {
                original.copy_(value);
            }
        });
    }
}

impl Module for ParametrizationList {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        self.originals.iter().for_each(|(name, p)| visitor.parameter(name, p));
        self.chain.iter().enumerate().for_each(|(i, p)| visitor.module(&i.to_string(), p));
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        self.originals.iter_mut().for_each(|(name, p)| visitor.parameter(name, p));
        self.chain.iter_mut().enumerate().for_each(|(i, p)| visitor.module(&i.to_string(), p));
    }
    fn name(&self) -> &str {
        "ParametrizationList"
    }
}

/// The lists by the names of their tensors.
#[derive(Clone, Default)]
struct Lists(Vec<(String, ParametrizationList)>);

impl Module for Lists {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        self.0.iter().for_each(|(name, list)| visitor.module(name, list));
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        self.0.iter_mut().for_each(|(name, list)| visitor.module(name, list));
    }
    fn name(&self) -> &str {
        "ModuleDict"
    }
}

/// A module of which some parameters are computed.
///
/// Where `M` has a `forward` from tensor to tensor, so has this. For any other, as of an
/// [`LSTM`](crate::nn::LSTM), [`computed`](Self::computed) gives the module as it is now: a clone
/// (which is cheap) with the values in place, to be called once or, as under PyTorch's `cached()`,
/// several times.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{Forward, Linear, Module, utils::parametrizations::weight_norm}};
/// let layer = weight_norm(Linear::new(3, 2), "weight", 0);
/// assert!(layer.name() == "ParametrizedLinear" && layer.is_parametrized("weight"));
/// layer.forward(&Tensor::ones([3], Dtype::F32)).sum().backward();
/// assert!(layer.parameters().iter().all(|p| p.grad().is_some()));
/// ```
#[derive(Clone)]
pub struct Parametrized<M> {
    /// Its parametrized parameters have the right shapes, but no values.
    module: M,
    name: String,
    lists: Lists,
}

impl<M: Module + Clone> Parametrized<M> {
    fn new(module: M) -> Self {
        let name = format!("Parametrized{}", module.name());
        Parametrized { module, name, lists: Lists::default() }
    }

    /// With another parametrization: of a tensor that has none yet, or behind those that it has.
    ///
    /// ```
    /// use torchrs::nn::utils::parametrize::{Parametrization, register_parametrization};
    /// use torchrs::{Tensor, nn::{Linear, Module, init}};
    /// #[derive(Module, Clone)]
    /// struct Add(f64);
    /// impl Parametrization for Add {
    ///     fn forward(&self, originals: &[Tensor]) -> Tensor { &originals[0] + self.0 }
    /// }
    /// let layer = Linear::new(1, 1);
    /// init::zeros_(&layer.weight);
    /// let layer = register_parametrization(layer, "weight", Add(1.0)).register("weight", Add(2.0));
    /// assert_eq!(layer.value("weight").item(), 3.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the module itself has no parameter of this name, and
    /// [`Error::Shape`] when the value has another shape or type than the parameter.
    #[track_caller]
    #[must_use]
    pub fn register(self, name: &str, parametrization: impl Parametrization + 'static) -> Self {
        let before = no_grad(|| self.value(name));
        let parametrized = self.register_unchecked(name, parametrization);
        let after = no_grad(|| parametrized.value(name));
        if (before.shape(), before.dtype()) != (after.shape(), after.dtype()) {
            let message = format!(
                "the parametrization makes `{name}` {} {:?}, it is {} {:?}; if that is meant, use \
                 `register_unchecked`",
                after.dtype(),
                after.shape(),
                before.dtype(),
                before.shape()
            );
            throw(Error::shape("register_parametrization", message));
        }
        parametrized
    }

    /// [`register`](Self::register) of a value that may have another shape or type (`unsafe=True`).
    ///
    /// ```
    /// use torchrs::nn::utils::parametrize::{Parametrization, register_parametrization};
    /// use torchrs::{Tensor, nn::{Linear, Module}};
    /// #[derive(Module, Clone)]
    /// struct Transposed;
    /// impl Parametrization for Transposed {
    ///     fn forward(&self, originals: &[Tensor]) -> Tensor { originals[0].t() }
    /// }
    /// let layer = register_parametrization(Linear::new(2, 2), "weight", Transposed);
    /// let layer = layer.register_unchecked("bias", Transposed);
    /// assert_eq!(layer.value("bias").shape(), &[2]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the module itself has no parameter of this name.
    #[track_caller]
    #[must_use]
    pub fn register_unchecked(
        mut self,
        name: &str,
        parametrization: impl Parametrization + 'static,
    ) -> Self {
        parametrization.set_training(self.module.is_training());
        let parametrization = Box::new(parametrization);
        match self.lists.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, list)) => list.chain.push(parametrization),
            None => {
                let parameter = self.parameter(name);
                let list = ParametrizationList::new(&parameter, parametrization);
                // Of the right shape, for those who print or ask, in the memory of one number.
                let room = Tensor::zeros([1], (parameter.dtype(), parameter.device()))
                    .expand(parameter.shape());
                put(&mut self.module, name, room);
                self.lists.0.push((name.to_owned(), list));
            }
        }
        self
    }

    /// Without the parametrizations of a tensor: it becomes a parameter that has their value, or, with
    /// `leave_parametrized` false, the original. Where there is one original, that is the parameter.
    ///
    /// ```
    /// use torchrs::nn::{Linear, utils::parametrizations::weight_norm};
    /// let layer = weight_norm(Linear::new(3, 2), "weight", 0);
    /// let value = layer.value("weight");
    /// let layer = layer.remove("weight", true);
    /// assert!(!layer.is_parametrized("weight") && layer.value("weight").equal(&value));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the tensor is not parametrized, and when it should become its
    /// original but has several.
    #[track_caller]
    #[must_use]
    pub fn remove(mut self, name: &str, leave_parametrized: bool) -> Self {
        let Some(at) = self.lists.0.iter().position(|(n, _)| n == name) else {
            self.missing("remove_parametrizations", name, "is not parametrized")
        };
        let (_, list) = self.lists.0.remove(at);
        let parameter = match &list.originals[..] {
            [(_, original)] => {
                if leave_parametrized {
                    let value = no_grad(|| list.value());
                    match value.shape() == original.shape() {
                        true => no_grad(|| _ = original.copy_(&value)),
                        false => {
                            put(&mut self.module, name, leaf(&value, original.requires_grad()));
                            return self;
                        }
                    }
                }
                original.tensor().clone()
            }
            several if leave_parametrized => {
                let trained = several.iter().any(|(_, p)| p.requires_grad());
                leaf(&no_grad(|| list.value()), trained)
            }
            several => {
                let message = format!(
                    "`{name}` has {} originals and cannot become one of them; leave it parametrized",
                    several.len()
                );
                throw(Error::argument("remove_parametrizations", "leave_parametrized", message))
            }
        };
        put(&mut self.module, name, parameter);
        self
    }

    /// The module itself, when nothing of it is parametrized any more.
    ///
    /// ```
    /// use torchrs::{catch, nn::{Linear, utils::parametrizations::weight_norm}};
    /// let layer = weight_norm(Linear::new(3, 2), "weight", 0);
    /// let plain: Linear = layer.clone().remove("weight", true).into_module();
    /// assert_eq!(plain.in_features(), 3);
    /// assert!(catch(|| layer.into_module()).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when something is.
    #[track_caller]
    pub fn into_module(self) -> M {
        if let Some((name, _)) = self.lists.0.first() {
            self.missing("into_module", name, "is still parametrized; remove that first")
        }
        self.module
    }

    /// The module with the values of now in their places, through which gradients reach the originals.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{LSTM, Module, utils::parametrizations::weight_norm}};
    /// let rnn = weight_norm(LSTM::new(4, 3, Default::default()), "weight_hh_l0", 0);
    /// let (out, _) = rnn.computed().forward(&Tensor::ones([2, 4], Dtype::F32), None);
    /// out.sum().backward();
    /// assert!(rnn.parameters().iter().all(|p| p.grad().is_some()));
    /// ```
    #[track_caller]
    pub fn computed(&self) -> M {
        let mut module = self.module.clone();
        for (name, list) in &self.lists.0 {
            put(&mut module, name, list.value());
        }
        module
    }

    /// The value of a parameter: computed, if it is parametrized (`module.weight`).
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, utils::parametrizations::weight_norm};
    /// let layer = weight_norm(Linear::new(3, 2), "weight", None);
    /// let length = &layer.state_dict()["parametrizations.weight.original0"];
    /// length.fill_(5.0);
    /// assert!((layer.value("weight").norm().item() - 5.0).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the module itself has no parameter of this name.
    #[track_caller]
    pub fn value(&self, name: &str) -> Tensor {
        match self.list(name) {
            Some(list) => list.value(),
            None => self.parameter(name).tensor().clone(),
        }
    }

    /// Sets the originals so that the tensor has this value, as far as the parametrizations allow
    /// (`module.weight = value`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Linear, utils::parametrizations::weight_norm}};
    /// let layer = weight_norm(Linear::new(2, 1), "weight", 0);
    /// let value = Tensor::from([[3f32, 4.]]);
    /// layer.assign("weight", &value);
    /// assert!((layer.value("weight") - value).abs().max().item() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when the tensor is not parametrized or one of its parametrizations has
    /// no right inverse, and for shapes that do not fit.
    #[track_caller]
    pub fn assign(&self, name: &str, value: &Tensor) {
        match self.list(name) {
            Some(list) => list.assign(value),
            None => self.missing("assign", name, "is not parametrized"),
        }
    }

    /// Whether a tensor is parametrized (`is_parametrized`).
    pub fn is_parametrized(&self, name: &str) -> bool {
        self.list(name).is_some()
    }

    fn list(&self, name: &str) -> Option<&ParametrizationList> {
        self.lists.0.iter().find(|(n, _)| n == name).map(|(_, list)| list)
    }

    #[track_caller]
    fn parameter(&self, name: &str) -> Parameter {
        match own_fields(&self.module).parameters.into_iter().find(|(n, _)| n == name) {
            Some((_, parameter)) => parameter.clone(),
            None => self.missing("register_parametrization", name, "is not one of its parameters"),
        }
    }

    #[track_caller]
    fn missing(&self, call: &str, name: &str, what: &str) -> ! {
        let own = own_fields(&self.module).parameters;
        let own: Vec<String> = own.into_iter().map(|(n, _)| n).collect();
        let message = format!("`{name}` {what}; {} has {own:?}", self.module.name());
        throw(Error::argument(call, "name", message))
    }
}

impl<M: Module> Module for Parametrized<M> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        self.module.visit(&mut Rest { lists: &self.lists, visitor });
        visitor.module("parametrizations", &self.lists);
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        self.module.visit_mut(&mut RestMut { lists: &self.lists, visitor });
        visitor.module("parametrizations", &mut self.lists);
    }
    fn name(&self) -> &str {
        if self.lists.0.is_empty() { self.module.name() } else { &self.name }
    }
    fn extra_repr(&self) -> String {
        self.module.extra_repr()
    }
}

impl<M: Forward + Clone> Forward for Parametrized<M> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        self.computed().forward(input)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        no_grad(|| self.computed()).onnx(graph, input)
    }
}

/// Shows a visitor all but the parametrized parameters.
struct Rest<'v, 'a> {
    lists: &'v Lists,
    visitor: &'v mut dyn Visitor<'a>,
}

impl<'a> Visitor<'a> for Rest<'_, 'a> {
    fn parameter(&mut self, name: &str, parameter: &'a Parameter) {
        if self.lists.0.iter().all(|(n, _)| n != name) {
            self.visitor.parameter(name, parameter);
        }
    }
    fn buffer(&mut self, name: &str, buffer: &'a Buffer) {
        self.visitor.buffer(name, buffer);
    }
    fn module(&mut self, name: &str, module: &'a dyn Module) {
        self.visitor.module(name, module);
    }
    fn training(&mut self, flag: &'a Training) {
        self.visitor.training(flag);
    }
    fn statistics_group(&mut self, group: &'a StatisticsGroup) {
        self.visitor.statistics_group(group);
    }
}

/// [`Rest`] for visitors that change what they see.
struct RestMut<'v> {
    lists: &'v Lists,
    visitor: &'v mut dyn VisitorMut,
}

impl VisitorMut for RestMut<'_> {
    fn parameter(&mut self, name: &str, parameter: &mut Parameter) {
        if self.lists.0.iter().all(|(n, _)| n != name) {
            self.visitor.parameter(name, parameter);
        }
    }
    fn buffer(&mut self, name: &str, buffer: &mut Buffer) {
        self.visitor.buffer(name, buffer);
    }
    fn module(&mut self, name: &str, module: &mut dyn Module) {
        self.visitor.module(name, module);
    }
}

/// A leaf with these elements.
fn leaf(value: &Tensor, trained: bool) -> Tensor {
    value.detach().requires_grad_(trained)
}

/// Puts a tensor in the place of a parameter of the module itself.
fn put<M: Module>(module: &mut M, name: &str, tensor: Tensor) {
    struct Put<'a>(&'a str, Tensor);
    impl VisitorMut for Put<'_> {
        fn parameter(&mut self, name: &str, parameter: &mut Parameter) {
            if name == self.0 {
                parameter.replace(self.1.clone());
            }
        }
        fn buffer(&mut self, _name: &str, _buffer: &mut Buffer) {}
        fn module(&mut self, _name: &str, _module: &mut dyn Module) {}
    }
    module.visit_mut(&mut Put(name, tensor));
}

/// `module` with a parametrized parameter (`torch.nn.utils.parametrize.register_parametrization`). For
/// another one use [`Parametrized::register`].
///
/// ```
/// use torchrs::nn::utils::parametrize::{Parametrization, register_parametrization};
/// use torchrs::{Tensor, nn::{Forward, Linear, Module}};
/// #[derive(Module, Clone)]
/// struct Clamped;
/// impl Parametrization for Clamped {
///     fn forward(&self, originals: &[Tensor]) -> Tensor { originals[0].clamp(-0.1, 0.1) }
/// }
/// let layer = register_parametrization(Linear::new(30, 20), "weight", Clamped);
/// assert!(layer.value("weight").abs().max().item() <= 0.1000001);
/// ```
///
/// # Panics
/// As [`Parametrized::register`].
#[track_caller]
pub fn register_parametrization<M: Module + Clone>(
    module: M,
    name: &str,
    parametrization: impl Parametrization + 'static,
) -> Parametrized<M> {
    Parametrized::new(module).register(name, parametrization)
}

/// See [`Parametrized::remove`] (`torch.nn.utils.parametrize.remove_parametrizations`).
///
/// # Panics
/// As there.
#[track_caller]
pub fn remove_parametrizations<M: Module + Clone>(
    module: Parametrized<M>,
    name: &str,
    leave_parametrized: bool,
) -> Parametrized<M> {
    module.remove(name, leave_parametrized)
}
