//! The module whose `forward` runs, for messages of errors: `in head.proj: Linear(in_features=64, ...)`.
//!
//! A module does not know where it stands in a model. Its parameters do, from the time that the model's
//! [`named_parameters`](Module::named_parameters) were first asked for, by an optimizer or `load_state_dict`.

use super::Module;
use super::walk::{Entry, walk};
use crate::error::within::{self, Describe, Within};

/// Notes that `module` computes, called from the caller's line, until the guard is dropped.
#[track_caller]
#[inline]
pub(crate) fn enter<M: Module>(module: &M) -> Within<'_> {
    within::enter(module)
}

/// The dotted name of a module in its model, by the names of its parameters.
fn path(module: &dyn Module) -> Option<String> {
    let mut found = None;
    walk(module, "", &mut |name, entry| {
        if let Entry::Parameter(parameter) = entry
            && found.is_none()
            && let Some(full) = parameter.tensor().name_hint()
            && let Some(path) = full.strip_suffix(&name)
        {
            found = path.strip_suffix('.').map(str::to_owned);
        }
    });
    found
}

impl<M: Module> Describe for M {
    fn describe(&self, outer: &[&dyn Describe]) -> String {
        let mut children = false;
        walk(self, "", &mut |_, entry| children |= matches!(entry, Entry::Module(_)));
        let text = if children { self.name().to_owned() } else { self.repr() };
        let address = (&raw const *self).cast();
        // One without a size has no address of its own.
        let found_outside = || {
            let outer = outer.iter().filter(|_| size_of::<M>() > 0);
            outer.filter_map(|outer| outer.path_to(address, self.name())).next()
        };
        match path(self).or_else(found_outside) {
            Some(path) => format!("{path}: {text}"),
            None => text,
        }
    }

    fn path_to(&self, address: *const (), name: &str) -> Option<String> {
        let mut found = None;
        walk(self, "", &mut |path, entry| {
            if let Entry::Module(module) = entry
                && found.is_none()
                && (&raw const *module).cast() == address
                && module.name() == name
            {
                found = Some(path);
            }
        });
        let own = path(self).unwrap_or_else(|| self.name().to_owned());
        found.map(|path| format!("{own}.{path}"))
    }
}
