//! Going through a module and all that is in it: to list its tensors, or to put others in their place.

use std::collections::HashMap;

use super::module::{Visitor, VisitorMut};
use super::{Buffer, Module, Parameter, StatisticsGroup, Training};
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// The fields of one module by kind.
#[derive(Default)]
pub(super) struct OwnFields<'a> {
    pub parameters: Vec<(String, &'a Parameter)>,
    pub buffers: Vec<(String, &'a Buffer)>,
    pub modules: Vec<(String, &'a dyn Module)>,
    pub training: Vec<&'a Training>,
    pub statistics: Vec<&'a StatisticsGroup>,
}

impl<'a> Visitor<'a> for OwnFields<'a> {
    fn parameter(&mut self, name: &str, parameter: &'a Parameter) {
        self.parameters.push((name.to_owned(), parameter));
    }
    fn buffer(&mut self, name: &str, buffer: &'a Buffer) {
        self.buffers.push((name.to_owned(), buffer));
    }
    fn module(&mut self, name: &str, module: &'a dyn Module) {
        self.modules.push((name.to_owned(), module));
    }
    fn training(&mut self, flag: &'a Training) {
        self.training.push(flag);
    }
    fn statistics_group(&mut self, group: &'a StatisticsGroup) {
        self.statistics.push(group);
    }
}

pub(super) fn own_fields<M: Module + ?Sized>(module: &M) -> OwnFields<'_> {
    let mut own = OwnFields::default();
    module.visit(&mut own);
    own
}

/// Calls `see` with whose rows each of the norms in `module` sees.
pub(super) fn each_statistics_group<M: Module + ?Sized>(
    module: &M,
    see: &mut dyn FnMut(&StatisticsGroup),
) {
    let own = own_fields(module);
    own.statistics.into_iter().for_each(&mut *see);
    own.modules.into_iter().for_each(|(_, child)| each_statistics_group(child, see));
}

/// Something met by [`walk`].
pub(super) enum Entry<'a> {
    Parameter(&'a Parameter),
    Buffer(&'a Buffer),
    Module(&'a dyn Module),
    Training(&'a Training),
}

impl Entry<'_> {
    /// The tensor, if it is part of the state dict.
    pub fn saved(&self) -> Option<&Tensor> {
        match self {
            Entry::Parameter(parameter) => Some(parameter.tensor()),
            Entry::Buffer(buffer) if buffer.is_persistent() => Some(buffer.tensor()),
            _ => None,
        }
    }
}

/// The parameters and persistent buffers of a module by name, in the order of its state dict: the tensors themselves.
pub(crate) fn saved_tensors(module: &dyn Module) -> Vec<(String, Tensor)> {
    let mut saved = Vec::new();
    walk(module, "", &mut |path, entry| {
        if let Some(tensor) = entry.saved() {
            saved.push((path, tensor.clone()));
        }
    });
    saved
}

/// Calls `see` with everything in `module` and its dotted name, in PyTorch's order: of each module
/// first its parameters, then its buffers, then the modules inside, one after the other.
pub(super) fn walk<'a, M: Module + ?Sized>(
    module: &'a M,
    prefix: &str,
    see: &mut dyn FnMut(String, Entry<'a>),
) {
    let own = own_fields(module);
    let path = |name: String| if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
    for flag in own.training {
        see(prefix.to_owned(), Entry::Training(flag));
    }
    for (name, parameter) in own.parameters {
        see(path(name), Entry::Parameter(parameter));
    }
    for (name, buffer) in own.buffers {
        see(path(name), Entry::Buffer(buffer));
    }
    for (name, child) in own.modules {
        let name = path(name);
        see(name.clone(), Entry::Module(child));
        walk(child, &name, see);
    }
}

/// Named tensors, each tensor once.
#[derive(Default)]
pub(super) struct Unique {
    pub named: Vec<(String, Tensor)>,
    seen: std::collections::HashSet<usize>,
}

impl Unique {
    pub fn add(&mut self, name: String, tensor: &Tensor) {
        if self.seen.insert(tensor.identity()) {
            tensor.hint_name(&name);
            self.named.push((name, tensor.clone()));
        }
    }
}

/// Gives the parameters and buffers of a module other elements: those that `convert` makes of the ones for which
/// `moves` is true. The tensors stay what they are, for all who hold them. When there is an error nothing has moved,
/// unless memory ran out.
#[track_caller]
pub(super) fn move_all<M: Module + ?Sized>(
    call: &str,
    module: &mut M,
    moves: &dyn Fn(&Tensor) -> bool,
    convert: &dyn Fn(&Tensor) -> Tensor,
) {
    let mut found = Unique::default();
    walk(module, "", &mut |path, entry| match entry {
        Entry::Parameter(parameter) => found.add(path, parameter.tensor()),
        Entry::Buffer(buffer) => found.add(path, buffer.tensor()),
        Entry::Module(_) | Entry::Training(_) => {}
    });
    found.named.retain(|(_, tensor)| moves(tensor));
    for (name, tensor) in &found.named {
        if let Some(why) = tensor.why_not_moved() {
            throw(Error::argument(call, name, why));
        }
    }
    for (_, tensor) in &found.named {
        // SAFETY: other threads keep away, which those who move a module promise, as those who move a storage to
        // shared memory do; addresses are used no longer than an op runs.
        unsafe { tensor.move_data(convert) };
    }
}

/// Puts other tensors in place of parameters and buffers: [`Module::deep_copy`].
pub(super) struct Replace<'a> {
    /// The tensor to put in place of one, if it is to be another.
    convert: &'a dyn Fn(&Tensor) -> Option<Tensor>,
    /// What became of each one met, with the old one, whose identity must stay taken.
    done: HashMap<usize, (Tensor, Option<Tensor>)>,
}

impl<'a> Replace<'a> {
    /// Puts what `convert` gives for a tensor, if anything, in its place, everywhere in a module.
    pub fn all(
        module: &mut (impl Module + ?Sized),
        convert: &'a dyn Fn(&Tensor) -> Option<Tensor>,
    ) {
        module.visit_mut(&mut Replace { convert, done: HashMap::new() });
    }

    fn converted(&mut self, old: &Tensor) -> Option<Tensor> {
        let convert = || {
            let new = no_grad(|| (self.convert)(old));
            (old.clone(), new.map(|new| new.requires_grad_(old.requires_grad())))
        };
        self.done.entry(old.identity()).or_insert_with(convert).1.clone()
    }
}

impl VisitorMut for Replace<'_> {
    fn parameter(&mut self, _name: &str, parameter: &mut Parameter) {
        if let Some(tensor) = self.converted(parameter) {
            parameter.replace(tensor);
        }
    }
    fn buffer(&mut self, _name: &str, buffer: &mut Buffer) {
        if let Some(tensor) = self.converted(buffer) {
            buffer.replace(tensor);
        }
    }
    fn module(&mut self, _name: &str, module: &mut dyn Module) {
        module.visit_mut(self);
    }
}
