//! Which modules a model has, by their addresses.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::nn::Module;
use crate::nn::walk::own_fields;

struct Place {
    path: Arc<str>,
    /// How often it was found.
    found: usize,
}

/// The modules of a model, by address and type: a struct and its first field have one address.
pub(in crate::nn) struct Tree {
    root: Arc<str>,
    places: HashMap<(usize, String), Vec<Place>>,
    kinds: HashMap<Arc<str>, String>,
    /// Where each one lies.
    ranges: Vec<(Range<usize>, Arc<str>)>,
}

impl Tree {
    /// All of `root`, whose name the paths begin with.
    pub fn new<M: Module>(root: &M, name: &str) -> Tree {
        let (places, kinds) = (HashMap::new(), HashMap::new());
        let mut tree = Tree { root: name.into(), places, kinds, ranges: Vec::new() };
        let path = tree.root.clone();
        tree.add((&raw const *root).addr(), size_of::<M>(), root.name(), path.clone());
        for (field, child) in own_fields(root).modules {
            tree.add_all(&path, &field, child);
        }
        tree
    }

    fn add(&mut self, address: usize, size: usize, kind: &str, path: Arc<str>) {
        self.ranges.push((address..address + size, path.clone()));
        self.kinds.insert(path.clone(), kind.to_owned());
        self.places.entry((address, kind.to_owned())).or_default().push(Place { path, found: 0 });
    }

    fn add_all(&mut self, outer: &str, field: &str, module: &dyn Module) {
        let path: Arc<str> = format!("{outer}.{field}").into();
        self.add((&raw const *module).addr(), size_of_val(module), module.name(), path.clone());
        for (field, child) in own_fields(module).modules {
            self.add_all(&path, &field, child);
        }
    }

    /// The type of the module of that path.
    pub fn kind(&self, path: &str) -> Option<&str> {
        self.kinds.get(path).map(String::as_str)
    }

    /// A path without the root's name.
    pub fn inside_root<'a>(&self, path: &'a str) -> &'a str {
        let rest = path.strip_prefix(&*self.root).unwrap_or(path);
        rest.strip_prefix('.').unwrap_or(rest)
    }

    /// The path of the module of that address and type, called by the one at `around`.
    ///
    /// Several modules without a size have one address, and a shared module has several paths: those inside `around`
    /// come first, and of several each in its turn. One inside another that stands for it, as in a
    /// [`Hooked`](crate::nn::Hooked) or an enum, is that. A module that is not in the model stands in the one that calls
    /// it, under its type.
    pub fn find(&mut self, address: usize, kind: &str, around: Option<&str>) -> Arc<str> {
        let is_inside = |path: &str| {
            around.is_none_or(|around| {
                path.strip_prefix(around).is_some_and(|rest| rest.starts_with('.'))
            })
        };
        let places = self.places.get_mut(&(address, kind.to_owned()));
        let place = places.and_then(|places| {
            let least = |inside: bool, places: &[Place]| {
                let fits = |place: &Place| !inside || is_inside(&place.path);
                let fitting = places.iter().enumerate().filter(|(_, place)| fits(place));
                fitting.min_by_key(|(_, place)| place.found).map(|(i, _)| i)
            };
            let i = least(true, places).or_else(|| least(false, places))?;
            Some(&mut places[i])
        });
        match (place, around) {
            (Some(place), _) => {
                place.found += 1;
                place.path.clone()
            }
            (None, around) => {
                let holds = |(range, path): &&(Range<usize>, Arc<str>)| {
                    range.contains(&address) && is_inside(path) && *path != self.root
                };
                let holder = self.ranges.iter().filter(holds).min_by_key(|(range, _)| range.len());
                match (holder, around) {
                    (Some((_, path)), _) => path.clone(),
                    (None, Some(around)) => format!("{around}.{kind}").into(),
                    (None, None) => kind.into(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Linear, ReLU, Sequential};

    #[test]
    fn modules_of_one_address_are_found_in_their_order_inside_the_caller() {
        let inner = || Sequential::new().append(ReLU).append(Linear::new(1, 1)).append(ReLU);
        let net = Sequential::new().append(inner()).append(inner());
        let mut tree = Tree::new(&net, "net");
        let mut relu =
            |around: &str| tree.find(std::ptr::dangling::<ReLU>().addr(), "ReLU", Some(around));
        assert_eq!([relu("net.1"), relu("net.1")].map(|p| p.to_string()), ["net.1.0", "net.1.2"]);
        assert_eq!([relu("net.0"), relu("net.0")].map(|p| p.to_string()), ["net.0.0", "net.0.2"]);
        assert_eq!(&*tree.find(0, "Other", Some("net.0")), "net.0.Other");
        assert_eq!((tree.inside_root("net.1.0"), tree.inside_root("net")), ("1.0", ""));
    }
}
