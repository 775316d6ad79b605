//! The workspace's packages, and which module a file is.

use std::collections::{BTreeMap, BTreeSet};

use crate::Tree;
use crate::source::{Import, Source, parse};

/// The package with the folders of the library.
pub const LIBRARY: &str = "torchrs";

/// A package of the workspace.
#[derive(Debug)]
pub struct Package {
    /// As other crates write it.
    pub name: String,
    /// Its folder from the repository's root, with a `/` at the end; empty for the root's.
    pub folder: String,
    /// The folder of its `lib.rs` or `main.rs`, with a `/` at the end.
    pub root: String,
    /// False for what no other package can import, or only the workspace's.
    pub published: bool,
    /// The `torchrs` packages of its `[dependencies]`, with their lines.
    pub dependencies: Vec<(usize, String)>,
}

/// A file of a package's library or program.
#[derive(Debug)]
pub struct File<'a> {
    /// From the repository's root.
    pub path: &'a str,
    /// Its package in [`Packages::all`].
    pub package: usize,
    /// Its path in the crate.
    pub module: Vec<String>,
    /// What it imports and declares.
    pub source: Source,
    /// It or a module around it is for tests only.
    pub test: bool,
}

/// All packages and the files of their libraries and programs.
#[derive(Debug)]
pub struct Packages<'a> {
    /// In the order of their folders.
    pub all: Vec<Package>,
    /// In the order of their paths.
    pub files: Vec<File<'a>>,
    /// The modules of exported macros.
    macros: BTreeMap<(usize, String), Vec<String>>,
}

impl<'a> Packages<'a> {
    /// Reads manifests and sources.
    pub fn read(tree: &'a Tree) -> Self {
        let mut all = Vec::new();
        for (path, text) in tree.files("Cargo.toml") {
            let folder = path.trim_end_matches("Cargo.toml");
            if let Some(name) = package_name(text) {
                let root = match tree.exists(&format!("{folder}src")) {
                    true => format!("{folder}src/"),
                    false => folder.to_owned(),
                };
                let (name, folder) = (name.replace('-', "_"), folder.to_owned());
                let fenced = ["publish = false", "proc-macro = true", "crate-type = [\"cdylib\""];
                let published = !fenced.iter().any(|line| text.contains(&format!("\n{line}")));
                all.push(Package {
                    name,
                    folder,
                    root,
                    published,
                    dependencies: dependencies(text),
                });
            }
        }
        let mut files = Vec::new();
        // What examples include is no module.
        let included = |text: &str| text.starts_with("// Part of ");
        for (path, text) in tree.files(".rs").filter(|(_, text)| !included(text)) {
            let inside = |(_, p): &(usize, &Package)| path.starts_with(&p.root);
            let of = all.iter().enumerate().filter(inside).max_by_key(|(_, p)| p.root.len());
            let Some((package, Package { root, .. })) = of else { continue };
            let inner = path[root.len()..].trim_end_matches(".rs");
            let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
            let is_root = matches!(inner, "lib" | "main");
            if is_root || module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            files.push(File { path, package, module, source: parse(text), test: false });
        }
        let exported = |file: &File<'_>| {
            let (package, module) = (file.package, file.module.clone());
            let names = file.source.macros.clone().into_iter();
            names.map(move |name| ((package, name), module.clone())).collect::<Vec<_>>()
        };
        let macros = files.iter().flat_map(exported).collect();
        let mut packages = Packages { all, files, macros };
        packages.mark_tests();
        packages
    }

    fn mark_tests(&mut self) {
        let mut tests = BTreeSet::new();
        for file in &self.files {
            for item in file.source.items.iter().filter(|item| item.test) {
                let mut module = file.module.clone();
                module.extend(item.inline.iter().cloned());
                module.push(item.name.clone());
                tests.insert((file.package, module));
            }
        }
        for file in &mut self.files {
            let above = |n: usize| tests.contains(&(file.package, file.module[..n].to_vec()));
            file.test = (1..=file.module.len()).any(above);
        }
    }

    /// The package and the path in it that `import` means, if that is in this workspace and not relative to
    /// a child or a name in scope.
    pub fn resolve(&self, file: &File<'_>, import: &Import) -> Option<(usize, Vec<String>)> {
        let (package, path) = self.resolve_path(file, import)?;
        // An exported macro belongs to the module that has it.
        let home = path.first().and_then(|name| self.macros.get(&(package, name.clone())));
        Some((package, home.cloned().unwrap_or(path)))
    }

    fn resolve_path(&self, file: &File<'_>, import: &Import) -> Option<(usize, Vec<String>)> {
        let mut module = file.module.clone();
        module.extend(import.inline.iter().cloned());
        let mut rest = &import.segments[..];
        match rest.first()?.as_str() {
            "crate" => return Some((file.package, rest[1..].to_vec())),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
            }
            name => {
                let package = self.all.iter().position(|p| p.name == name)?;
                return Some((package, rest[1..].to_vec()));
            }
        }
        module.extend(rest.iter().cloned());
        Some((file.package, module))
    }

    /// The modules that the crate root of a package declares, with `true` for public ones.
    pub fn modules(&self, package: usize) -> BTreeMap<&str, bool> {
        let roots = self.files.iter().filter(|f| f.package == package && f.module.is_empty());
        let items = roots.flat_map(|file| &file.source.items).filter(|i| i.keyword == "mod");
        let public = crate::source::Visibility::Public;
        items.map(|item| (item.name.as_str(), item.visibility == public)).collect()
    }
}

fn package_name(manifest: &str) -> Option<String> {
    let (_, package) = manifest.split_once("[package]\n")?;
    let line = package.lines().find(|line| line.starts_with("name = "))?;
    Some(line.split('"').nth(1)?.to_owned())
}

fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (i, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && line.starts_with(LIBRARY) {
            let name = line.split([' ', '=', '.']).next().unwrap_or_default();
            found.push((i + 1, name.replace('-', "_")));
        }
    }
    found
}
