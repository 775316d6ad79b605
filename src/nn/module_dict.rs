//! Modules by name, in the order in which they were put in (`torch/nn/modules/container.py`).

use super::{Field, Forward, Module, Visitor, VisitorMut};
use crate::error::{Error, throw};

/// Modules, or parameters, by name, in the order in which they were put in (`torch.nn.ModuleDict`,
/// `torch.nn.ParameterDict`). Where the order of names will do, a `BTreeMap` is as good a field.
///
/// ```
/// use torchrs::nn::{Linear, Module, ModuleDict};
/// let heads: ModuleDict<Linear> = [("train", Linear::new(4, 2)), ("aside", Linear::new(4, 1))].into_iter().collect();
/// assert_eq!(heads.keys().collect::<Vec<_>>(), ["train", "aside"]);
/// assert_eq!(heads.named_parameters()[0].0, "train.weight");
/// assert_eq!(heads["aside"].out_features(), 1);
/// ```
pub struct ModuleDict<F = Box<dyn Forward>> {
    fields: Vec<(String, F)>,
}

impl<F> Default for ModuleDict<F> {
    fn default() -> Self {
        ModuleDict { fields: Vec::new() }
    }
}

impl<F> ModuleDict<F> {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a module under a name, behind the others, or in the place of the one of that name, which it gives.
    ///
    /// ```
    /// use torchrs::nn::{ModuleDict, ReLU};
    /// let mut modules = ModuleDict::new();
    /// assert!(modules.insert("act", ReLU).is_none() && modules.insert("act", ReLU).is_some());
    /// assert_eq!(modules.len(), 1);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a name that is empty or has a dot.
    #[track_caller]
    pub fn insert(&mut self, name: impl Into<String>, module: F) -> Option<F> {
        let name = name.into();
        if name.is_empty() || name.contains('.') {
            let message = format!("`{name}` is empty or has a dot");
            throw(Error::argument("ModuleDict::insert", "name", message));
        }
        match self.fields.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => Some(std::mem::replace(own, module)),
            None => {
                self.fields.push((name, module));
                None
            }
        }
    }

    /// Takes out the module of a name (`pop`).
    pub fn remove(&mut self, name: &str) -> Option<F> {
        let at = self.fields.iter().position(|(own, _)| own == name)?;
        Some(self.fields.remove(at).1)
    }

    /// The module of a name.
    pub fn get(&self, name: &str) -> Option<&F> {
        self.iter().find(|(own, _)| *own == name).map(|(_, module)| module)
    }

    /// The module of a name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut F> {
        self.fields.iter_mut().find(|(own, _)| own == name).map(|(_, module)| module)
    }

    /// The names in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// Names and modules in order (`items`).
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &F)> {
        self.fields.iter().map(|(name, module)| (name.as_str(), module))
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// True when there are no modules.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl<F> std::ops::Index<&str> for ModuleDict<F> {
    type Output = F;

    /// # Panics
    /// Throws [`Error::Argument`] when there is no module of that name.
    #[track_caller]
    fn index(&self, name: &str) -> &F {
        self.get(name).unwrap_or_else(|| {
            let names: Vec<&str> = self.keys().collect();
            let message = format!("`{name}`; there are {names:?}");
            throw(Error::argument("ModuleDict", "name", message))
        })
    }
}

/// A later module takes the place of one with the same name.
impl<N: Into<String>, F> FromIterator<(N, F)> for ModuleDict<F> {
    fn from_iter<I: IntoIterator<Item = (N, F)>>(modules: I) -> Self {
        let mut dict = ModuleDict::new();
        modules.into_iter().for_each(|(name, module)| _ = dict.insert(name, module));
        dict
    }
}

impl<F: Field> Module for ModuleDict<F> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        for (name, field) in &self.fields {
            field.visit_field(name, visitor);
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        for (name, field) in &mut self.fields {
            field.visit_field_mut(name, visitor);
        }
    }
    fn name(&self) -> &str {
        "ModuleDict"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;
    use crate::nn::{Linear, Parameter, ReLU};
    use crate::tensor::{Dtype, Tensor};

    #[test]
    fn names_keep_their_order_and_their_places() {
        let mut dict: ModuleDict<Box<dyn Forward>> = ModuleDict::new();
        dict.insert("z", Box::new(Linear::new(2, 3)));
        dict.insert("a", Box::new(ReLU));
        dict.insert("z", Box::new(Linear::no_bias(2, 3)));
        assert_eq!(dict.keys().collect::<Vec<_>>(), ["z", "a"]);
        let names: Vec<String> =
            dict.named_parameters().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["z.weight"]);
        assert!(dict.remove("z").is_some() && dict.remove("z").is_none() && dict.len() == 1);
        let mut parameters = ModuleDict::new();
        parameters.insert("b", Parameter::new(Tensor::ones([2], Dtype::F32)));
        assert_eq!(parameters.state_dict().keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(dict.repr(), "ModuleDict(\n  (a): ReLU()\n)");
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for name in ["", "a.b"] {
            assert!(catch(|| ModuleDict::new().insert(name, ReLU)).is_err());
        }
        let dict: ModuleDict<ReLU> = [("act", ReLU)].into_iter().collect();
        assert!(catch(|| _ = &dict["b"]).unwrap_err().to_string().contains("act"));
    }
}
