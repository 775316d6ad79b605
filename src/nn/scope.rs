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
pub(super) fn enter<M: Module>(module: &M) -> Within<'_> {
    // SAFETY: `AtWork` is transparent: a module and its `AtWork` have one layout.
    let at_work = unsafe { &*(&raw const *module).cast::<AtWork<M>>() };
    within::enter(at_work)
}

/// A module, as a type of this crate: `Describe` is another crate's.
#[repr(transparent)]
struct AtWork<M>(M);

/// The dotted name of a module in its model, by the names of its parameters.
pub(super) fn path(module: &dyn Module) -> Option<String> {
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

impl<M: Module> Describe for AtWork<M> {
    fn describe(&self, outer: &[&dyn Describe]) -> String {
        let mut children = false;
        walk(&self.0, "", &mut |_, entry| children |= matches!(entry, Entry::Module(_)));
        let text = if children { self.0.name().to_owned() } else { self.0.repr() };
        let address = (&raw const self.0).cast();
        // One without a size has no address of its own.
        let found_outside = || {
            let outer = outer.iter().filter(|_| size_of::<M>() > 0);
            outer.filter_map(|outer| outer.path_to(address, self.0.name())).next()
        };
        match path(&self.0).or_else(found_outside) {
            Some(path) => format!("{path}: {text}"),
            None => text,
        }
    }

    fn path_to(&self, address: *const (), name: &str) -> Option<String> {
        let mut found = None;
        walk(&self.0, "", &mut |path, entry| {
            if let Entry::Module(module) = entry
                && found.is_none()
                && (&raw const *module).cast() == address
                && module.name() == name
            {
                found = Some(path);
            }
        });
        let own = path(&self.0).unwrap_or_else(|| self.0.name().to_owned());
        found.map(|path| format!("{own}.{path}"))
    }
}
