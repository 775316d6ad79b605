//! A `pub` function or constant is one that someone outside can name: `pub(crate)` says of the others what they are.
//! A type may be public and without a name: signatures have it, or a trait is sealed by it.

use std::collections::{BTreeMap, BTreeSet};

use crate::packages::{File, Packages};
use crate::source::{Item, Visibility};
use crate::{Fault, Tree};

/// What `crates/interleavings` includes, as a module of its own.
const INCLUDED: [&str; 1] = ["src/distributed/shm/sleepers.rs"];

/// Packages whose library is for the library, or for programs beside it: there `pub` is for these.
const INSIDES: [&str; 6] = [
    "crates/cpu/src/",
    "crates/cuda/src/",
    "crates/error/src/",
    "crates/job/src/",
    "crates/loops/src/",
    // Of its own programs.
    "launcher/src/",
];

/// The rule. It knows names, not paths: an item counts as re-exported where a `pub use` of the same package
/// brings its name, or all of its module.
pub fn check(tree: &Tree, packages: &Packages<'_>) -> Vec<Fault> {
    let mut public: BTreeMap<(usize, Vec<String>), bool> = BTreeMap::new();
    let mut exported: BTreeSet<(usize, &str)> = BTreeSet::new();
    for file in packages.files.iter().filter(|file| !file.test) {
        for item in file.source.items.iter().filter(|i| i.keyword == "mod") {
            let is_public = item.visibility == Visibility::Public;
            public
                .insert((file.package, module_of(file, &item.inline, Some(&item.name))), is_public);
        }
        for import in file.source.imports.iter().filter(|i| i.visibility == Visibility::Public) {
            let last = import.segments.len().checked_sub(if import.name.as_deref() == Some("*") {
                2
            } else {
                1
            });
            if let Some(last) = last {
                exported.insert((file.package, import.segments[last].as_str()));
            }
        }
    }
    let mut faults = Vec::new();
    let fenced = |item: &&Item| matches!(item.keyword.as_str(), "fn" | "const" | "static");
    for file in packages.files.iter().filter(|file| !file.test && is_library(tree, packages, file))
    {
        for item in file.source.items.iter().filter(fenced) {
            let module = module_of(file, &item.inline, None);
            let named = |name: &str| exported.contains(&(file.package, name));
            // A private module may be brought out by a name of its own, or all of it by a glob.
            let is_private =
                |&n: &usize| public.get(&(file.package, module[..n].to_vec())) == Some(&false);
            let innermost = (1..=module.len()).rev().find(is_private);
            let reached = innermost.is_none_or(|n| named(&module[n - 1]));
            if item.visibility == Visibility::Public && !reached && !named(&item.name) {
                let text = format!(
                    "`pub {} {}` is in a private module and re-exported from nowhere: `pub(crate)`",
                    item.keyword, item.name
                );
                faults.push(Fault::new(file.path, item.line, text));
            }
        }
    }
    faults
}

fn module_of(file: &File<'_>, inline: &[String], name: Option<&String>) -> Vec<String> {
    file.module.iter().chain(inline).chain(name).cloned().collect()
}

/// Programs, and libraries that only tests use, have nobody outside.
fn is_library(tree: &Tree, packages: &Packages<'_>, file: &File<'_>) -> bool {
    let package = &packages.all[file.package];
    package.published
        && tree.exists(&format!("{}lib.rs", package.root))
        && !INSIDES.contains(&package.root.as_str())
        && !INCLUDED.contains(&file.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_item_that_nobody_can_name_is_found() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[package]\nname = \"torchrs\"\n"),
            ("src/lib.rs", "mod a;\npub mod b;\npub use a::{Named, c::*};"),
            ("src/a/mod.rs", "mod c;\npub struct Named;\npub fn hidden() {}\npub(crate) fn f() {}"),
            ("src/a/c.rs", "pub fn all() {}"),
            (
                "src/b.rs",
                "pub fn seen() {}\nmod d { pub const INNER: u8 = 1; }\nmod e { pub struct Sealed; }",
            ),
        ]);
        let faults = check(&tree, &Packages::read(&tree));
        let places: Vec<_> = faults.iter().map(|f| (&f.file[..], f.line)).collect();
        assert_eq!(places, [("src/a/mod.rs", 3), ("src/b.rs", 2)]);
    }
}
