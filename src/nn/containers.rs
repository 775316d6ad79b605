//! Modules made of modules: [`Sequential`], and the standard containers, which take the place of
//! PyTorch's `ModuleList` (`Vec`, arrays) and `ModuleDict` (maps).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Field, Forward, Module, NamedTensors, Visitor, VisitorMut};
use crate::error::{Error, Result, throw, within};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

/// Modules applied one after the other (`torch.nn.Sequential`), named `0`, `1`, ... or as given.
///
/// ```
/// use torchrs::nn::{Identity, Module, ReLU, Sequential};
/// let net = Sequential::new().append(Identity).append(ReLU).append_named("head", Identity);
/// assert_eq!(net.repr(), "Sequential(\n  (0): Identity()\n  (1): ReLU()\n  (head): Identity()\n)");
/// ```
#[derive(Default)]
pub struct Sequential {
    modules: Vec<(String, Box<dyn Forward>)>,
}

impl Sequential {
    /// An empty one, which gives back its input.
    pub fn new() -> Self {
        Self::default()
    }

    /// With `module` behind the others, named by its position.
    #[must_use]
    pub fn append(self, module: impl Forward + 'static) -> Self {
        let name = self.modules.len().to_string();
        self.append_named(name, module)
    }

    /// With `module` behind the others under a name of its own (`add_module`).
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, Sequential};
    /// let net = Sequential::new().append_named("head", Linear::no_bias(2, 1));
    /// assert_eq!(net.named_parameters()[0].0, "head.weight");
    /// ```
    ///
    /// # Panics
    /// Throws when the name is taken, empty, or has a dot.
    #[track_caller]
    #[must_use]
    pub fn append_named(mut self, name: impl Into<String>, module: impl Forward + 'static) -> Self {
        let name = name.into();
        if name.is_empty() || name.contains('.') || self.modules.iter().any(|(n, _)| *n == name) {
            throw(Error::argument(
                "Sequential::append_named",
                "name",
                format!("`{name}` is empty, has a dot, or is taken"),
            ));
        }
        self.modules.push((name, Box::new(module)));
        self
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// True when there are no modules.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// The modules in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &dyn Forward> {
        self.modules.iter().map(|(_, module)| &**module)
    }

    /// The modules in order, to be changed.
    ///
    /// ```
    /// use torchrs::{Dtype, nn::{Linear, Module, Sequential}};
    /// let mut net = Sequential::new().append(Linear::new(2, 3)).append(Linear::new(3, 1));
    /// net.iter_mut().next().unwrap().to(Dtype::F64);
    /// assert_eq!(net.parameters()[0].dtype(), Dtype::F64);
    /// ```
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut (dyn Forward + 'static)> {
        self.modules.iter_mut().map(|(_, module)| &mut **module)
    }

    /// The module at a position.
    pub fn get(&self, index: usize) -> Option<&dyn Forward> {
        self.modules.get(index).map(|(_, module)| &**module)
    }
}

/// The modules by their positions: `nn.Sequential(*modules)`.
impl FromIterator<Box<dyn Forward>> for Sequential {
    fn from_iter<I: IntoIterator<Item = Box<dyn Forward>>>(modules: I) -> Self {
        let named = |(i, module): (usize, Box<dyn Forward>)| (i.to_string(), module);
        Sequential { modules: modules.into_iter().enumerate().map(named).collect() }
    }
}

impl Module for Sequential {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        for (name, module) in &self.modules {
            visitor.module(name, &**module);
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        for (name, module) in &mut self.modules {
            visitor.module(name, &mut **module);
        }
    }
    fn name(&self) -> &str {
        "Sequential"
    }
}

impl Forward for Sequential {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        match self.modules.split_first() {
            None => input.clone(),
            Some(((_, first), rest)) => {
                rest.iter().fold(first.forward(input), |x, (_, module)| module.forward(&x))
            }
        }
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        self.modules.iter().try_fold(input.clone(), |x, (_, module)| module.onnx(graph, &x))
    }
}

impl<F: Field> Module for Vec<F> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        for (i, field) in self.iter().enumerate() {
            field.visit_field(&i.to_string(), visitor);
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        for (i, field) in self.iter_mut().enumerate() {
            field.visit_field_mut(&i.to_string(), visitor);
        }
    }
    fn name(&self) -> &str {
        "ModuleList"
    }
}

impl<F: Field, const N: usize> Module for [F; N] {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        for (i, field) in self.iter().enumerate() {
            field.visit_field(&i.to_string(), visitor);
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        for (i, field) in self.iter_mut().enumerate() {
            field.visit_field_mut(&i.to_string(), visitor);
        }
    }
    fn name(&self) -> &str {
        "ModuleList"
    }
}

impl<K: AsRef<str> + Ord + Send + Sync, F: Field> Module for BTreeMap<K, F> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        for (name, field) in self {
            field.visit_field(name.as_ref(), visitor);
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        for (name, field) in self {
            field.visit_field_mut(name.as_ref(), visitor);
        }
    }
    fn name(&self) -> &str {
        "ModuleDict"
    }
}

/// In the order of the names, so that all processes see the same order.
impl<K: AsRef<str> + Ord + Send + Sync, F: Field, S: Send + Sync> Module for HashMap<K, F, S> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        let mut fields: Vec<(&K, &F)> = self.iter().collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, field) in fields {
            field.visit_field(name.as_ref(), visitor);
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        let mut fields: Vec<(&K, &mut F)> = self.iter_mut().collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, field) in fields {
            field.visit_field_mut(name.as_ref(), visitor);
        }
    }
    fn name(&self) -> &str {
        "ModuleDict"
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        (**self).visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        (**self).visit_mut(visitor);
    }
    fn name(&self) -> &str {
        (**self).name()
    }
    fn extra_repr(&self) -> String {
        (**self).extra_repr()
    }
    fn cast_around(&self, input: Option<Dtype>, output: Option<Dtype>) -> bool {
        (**self).cast_around(input, output)
    }
    fn has_sizes(&self) -> bool {
        (**self).has_sizes()
    }
    fn take_sizes(&self, state: &dyn NamedTensors, prefix: &str) {
        (**self).take_sizes(state, prefix);
    }
}

impl<M: Forward + ?Sized> Forward for Box<M> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        let _line = within::line();
        (**self).forward(input)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        (**self).onnx(graph, input)
    }
}

/// A module used in several places: all of its parameters are tied.
impl<M: Module + ?Sized> Module for Arc<M> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        (**self).visit(visitor);
    }
    /// # Panics
    /// Throws when the module is used in several places: it cannot be changed in one of them.
    #[track_caller]
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        match Arc::get_mut(self) {
            Some(module) => module.visit_mut(visitor),
            None => throw(Error::argument(
                "visit_mut",
                "self",
                format!(
                    "this {} is shared by `Arc` and cannot be changed; convert it before sharing it",
                    self.name()
                ),
            )),
        }
    }
    fn name(&self) -> &str {
        (**self).name()
    }
    fn extra_repr(&self) -> String {
        (**self).extra_repr()
    }
    fn cast_around(&self, input: Option<Dtype>, output: Option<Dtype>) -> bool {
        (**self).cast_around(input, output)
    }
    fn has_sizes(&self) -> bool {
        (**self).has_sizes()
    }
    fn take_sizes(&self, state: &dyn NamedTensors, prefix: &str) {
        (**self).take_sizes(state, prefix);
    }
}

impl<M: Forward + ?Sized> Forward for Arc<M> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        let _line = within::line();
        (**self).forward(input)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        (**self).onnx(graph, input)
    }
}
