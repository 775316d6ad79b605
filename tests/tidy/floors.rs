//! Which folder may import which.
//!
//! A floor is a folder of the library, or a package beside it. [`FLOORS`] has them from the lowest to the
//! highest; a floor imports only from those above it in the table that its row names. What tests and
//! documentation import is not looked at.

use std::collections::{BTreeMap, BTreeSet};

use crate::packages::{File, LIBRARY, Package, Packages};
use crate::source::Visibility;
use crate::{Fault, Tree};

/// A floor, and the floors that it may import from.
pub type Floor = (&'static str, &'static [&'static str]);

/// From the lowest floor to the highest. A folder of `src/` and a package of the same name in `crates/` are the
/// same floor, so that a folder may become a crate.
pub const FLOORS: &[Floor] = &[
    ("error", &[]),
    ("counted", &[]),
    ("backends", &[]),
    ("numeric", &[]),
    ("macros", &[]),
    ("protobuf", &[]),
    ("job", &["error"]),
    ("rendezvous", &["error", "job"]),
    ("links", &["error", "job", "rendezvous"]),
    ("mpi", &["error", "job"]),
    ("loops", &["error"]),
    ("cpu", &["error", "loops"]),
    ("cuda", &["error", "loops"]),
    ("storage", &["counted", "cuda", "error"]),
    ("profiler", &["cuda", "error", "job", "storage"]),
    ("tensor", &["counted", "cpu", "cuda", "error", "profiler", "storage"]),
    ("autograd", &["counted", "cuda", "error", "profiler", "storage", "tensor"]),
    ("exchange", &["cuda", "error", "storage", "tensor"]),
    ("amp", &["autograd", "error", "profiler", "storage", "tensor"]),
    (
        "ops",
        &[
            "amp", "autograd", "backends", "cpu", "cuda", "error", "loops", "numeric", "profiler",
            "storage", "tensor",
        ],
    ),
    ("distributions", &["autograd", "error", "ops", "tensor"]),
    ("multiprocessing", &["cuda", "error", "job", "profiler", "storage", "tensor"]),
    (
        "data",
        &[
            "autograd",
            "cpu",
            "cuda",
            "error",
            "job",
            "multiprocessing",
            "ops",
            "profiler",
            "storage",
            "tensor",
        ],
    ),
    (
        "distributed",
        &[
            "autograd",
            "cpu",
            "cuda",
            "error",
            "job",
            "links",
            "mpi",
            "multiprocessing",
            "ops",
            "profiler",
            "rendezvous",
            "storage",
            "tensor",
        ],
    ),
    ("onnx", &["error", "ops", "protobuf", "tensor"]),
    (
        "nn",
        &[
            "amp",
            "autograd",
            "cuda",
            "distributed",
            "error",
            "macros",
            "onnx",
            "ops",
            "profiler",
            "storage",
            "tensor",
        ],
    ),
    (
        "optim",
        &[
            "autograd",
            "cuda",
            "distributed",
            "error",
            "nn",
            "onnx",
            "ops",
            "profiler",
            "storage",
            "tensor",
        ],
    ),
    (
        "checkpoint",
        &[
            "autograd",
            "distributed",
            "error",
            "multiprocessing",
            "nn",
            "onnx",
            "optim",
            "profiler",
            "storage",
            "tensor",
        ],
    ),
    ("models", &["autograd", "checkpoint", "error", "nn", "onnx", "ops", "storage", "tensor"]),
    ("cuda_graphs", &["autograd", "cuda", "error", "ops", "storage", "tensor"]),
    (
        "train",
        &[
            "autograd",
            "checkpoint",
            "cuda",
            "data",
            "distributed",
            "error",
            "nn",
            "ops",
            "optim",
            "profiler",
            "protobuf",
            "tensor",
        ],
    ),
    ("book", &[]),
    (
        "prelude",
        &[
            "autograd",
            "data",
            "distributed",
            "error",
            "macros",
            "nn",
            "ops",
            "optim",
            "storage",
            "tensor",
        ],
    ),
    // The extension module for Python.
    (
        "python",
        &[
            "autograd",
            "checkpoint",
            "cuda",
            "data",
            "exchange",
            "models",
            "multiprocessing",
            "nn",
            "ops",
            "tensor",
        ],
    ),
    // Models for loom, which include files of the library.
    ("interleavings", &[]),
    ("torchrs", &[]),
    ("simulator", &["job", "links", "numeric"]),
    ("launcher", &["distributed", "error", "job", "links", "multiprocessing", "rendezvous"]),
    ("ckpt", &["autograd", "checkpoint", "error", "tensor"]),
    ("warm", &["cuda", "error", "ops"]),
    ("declarations", &[]),
];

/// Floors that know each other, of which the table has the first below the second: one idea in two folders.
/// A tensor holds what autograd knows of it.
pub const PAIRS: &[(&str, &str)] = &[("tensor", "autograd")];

/// Packages that write code for others: a path in them is text.
const WRITERS: [&str; 1] = ["macros"];

/// Names that a floor's `mod.rs` re-exports from above, for users who look for them there. Nothing inside the
/// library imports them by that way.
pub const FACES: &[(&str, &str)] =
    &[("amp", "optim"), ("autograd", "ops"), ("cuda", "ops"), ("distributed", "nn")];

/// The rule on this repository.
pub fn check(tree: &Tree, packages: &Packages<'_>) -> Vec<Fault> {
    let mut faults = check_table(packages, FLOORS, PAIRS, FACES);
    faults.extend(check_claims(tree, FLOORS, PAIRS));
    faults
}

/// What heads of folders claim, "Knows nothing of `a` and `b`.": true of all that the floor reaches.
pub fn check_claims(tree: &Tree, floors: &[Floor], pairs: &[(&str, &str)]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (floor, _) in floors {
        let heads = [
            format!("src/{floor}/mod.rs"),
            format!("src/{floor}.rs"),
            format!("crates/{floor}/src/lib.rs"),
        ];
        for path in heads {
            let Some(text) = tree.text(&path) else { continue };
            let head: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
            let head = head.join(" ");
            let Some((_, claim)) = head.split_once("Knows nothing of ") else { continue };
            // A reason may follow a colon.
            let claim = claim.split(['.', ':']).next().unwrap_or_default();
            let reached = reached(floor, floors, pairs);
            let names =
                claim.split('`').skip(1).step_by(2).map(|name| name.trim_start_matches("crate::"));
            for name in names {
                let line =
                    1 + text.lines().take_while(|line| !line.contains("Knows nothing of")).count();
                if !floors.iter().any(|floor| floor.0 == name) {
                    faults.push(Fault::new(&path, line, format!("`{name}` is no floor")));
                } else if reached.contains(name) {
                    let text = format!("`{floor}` does know `{name}`, by the table of floors");
                    faults.push(Fault::new(&path, line, text));
                }
            }
        }
    }
    faults
}

/// The floors that `floor` imports, and those that they do.
fn reached<'a>(
    floor: &'a str,
    floors: &[Floor],
    pairs: &[(&'a str, &'a str)],
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![floor];
    while let Some(next) = open.pop() {
        let below = floors.iter().find(|floor| floor.0 == next).map_or(&[][..], |floor| floor.1);
        let paired =
            pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).filter(|pair| pair.0 == next);
        for other in below.iter().copied().chain(paired.map(|pair| pair.1)) {
            if reached.insert(other) {
                open.push(other);
            }
        }
    }
    reached
}

/// The rule with another table.
pub fn check_table(
    packages: &Packages<'_>,
    floors: &[Floor],
    pairs: &[(&str, &str)],
    faces: &[(&str, &str)],
) -> Vec<Fault> {
    let library = packages.all.iter().position(|p| p.name == LIBRARY).unwrap_or_default();
    let modules = packages.modules(library).into_keys().collect();
    let house = House { packages, floors, pairs, faces, modules };
    let behind = house.behind_faces();
    let mut faults = Vec::new();
    for file in packages.files.iter().filter(|file| !file.test) {
        let Some(floor) = house.floor(file.package, &file.module) else { continue };
        if WRITERS.contains(&floor) {
            continue;
        }
        if house.row(floor).is_none() {
            let text = format!(
                "`{floor}` is not in the table of floors (tests/tidy/floors.rs): add a row"
            );
            faults.push(Fault::new(file.path, 1, text));
            continue;
        }
        for import in &file.source.imports {
            let Some((package, path)) = packages.resolve(file, import) else { continue };
            let Some(mut target) = house.floor(package, &path) else { continue };
            let mut way = String::new();
            if let Some(name) = path.get(1)
                && let Some(&true_floor) = behind.get(&(target.to_owned(), name.clone()))
                && floor != target
            {
                way = format!(" (by the way of `{target}`)");
                target = true_floor;
            }
            let is_face = import.visibility == Visibility::Public
                && house.is_face_file(file)
                && faces.contains(&(floor, target));
            if !is_face && let Some(why) = house.wrong(floor, target) {
                let path = import.segments.join("::");
                faults.push(Fault::new(file.path, import.line, format!("`{path}`{way}: {why}")));
            }
        }
    }
    for package in &packages.all {
        let Some(floor) = house.package_floor(package) else { continue };
        for (line, name) in &package.dependencies {
            let other = packages.all.iter().find(|p| p.name == *name);
            let target = other.and_then(|p| house.package_floor(p));
            if let Some(why) = target.and_then(|target| house.wrong(floor, target)) {
                let path = format!("{}Cargo.toml", package.folder);
                faults.push(Fault::new(&path, *line, format!("`{name}`: {why}")));
            }
        }
    }
    faults
}

struct House<'a> {
    packages: &'a Packages<'a>,
    floors: &'a [Floor],
    pairs: &'a [(&'a str, &'a str)],
    faces: &'a [(&'a str, &'a str)],
    /// What the library's root declares.
    modules: BTreeSet<&'a str>,
}

impl<'a> House<'a> {
    fn row(&self, name: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.0 == name)
    }

    fn package_floor(&self, package: &'a Package) -> Option<&'a str> {
        let tool = package.folder.starts_with("tests/") || package.folder.starts_with("tools/");
        let floor = package.folder.trim_end_matches('/').rsplit('/').next()?;
        (package.name != LIBRARY && !tool).then_some(floor)
    }

    /// The floor of a module, or of a name at it. The library's root is none: it is the users' face.
    fn floor<'b>(&'b self, package: usize, path: &'b [String]) -> Option<&'b str> {
        let package: &Package = &self.packages.all[package];
        if package.name != LIBRARY {
            return self.package_floor(package);
        }
        let first = path.first()?.as_str();
        self.modules.contains(first).then_some(first)
    }

    fn is_face_file(&self, file: &File<'_>) -> bool {
        file.module.len() == 1 && file.path.ends_with("/mod.rs")
    }

    /// What faces re-export: of each floor and name the floor that has it.
    fn behind_faces(&self) -> BTreeMap<(String, String), &'a str> {
        let mut behind = BTreeMap::new();
        for file in self.packages.files.iter().filter(|file| self.is_face_file(file)) {
            for import in file.source.imports.iter().filter(|i| i.visibility == Visibility::Public)
            {
                let Some((_, path)) = self.packages.resolve(file, import) else { continue };
                let (Some(name), Some(target)) = (&import.name, path.first()) else { continue };
                let face = self.faces.iter().find(|f| f.0 == file.module[0] && f.1 == target);
                if let Some(face) = face {
                    behind.insert((face.0.to_owned(), name.clone()), face.1);
                }
            }
        }
        behind
    }

    fn wrong(&self, from: &str, to: &str) -> Option<String> {
        let (own, other) = (self.row(from)?, self.row(to));
        let paired = |&(a, b): &(&str, &str)| (a, b) == (from, to) || (b, a) == (from, to);
        if from == to || self.floors[own].1.contains(&to) || self.pairs.iter().any(paired) {
            return None;
        }
        let why = match other {
            Some(other) if other > own => format!(
                "`{from}` is below `{to}`, and imports nothing of it; move what it needs down, or the file up"
            ),
            _ => format!(
                "`{from}` does not import `{to}` so far; if it should, say so in its row of the table"
            ),
        };
        Some(why)
    }
}

/// Imports inside the library from its users' face, in place of the module that has the name.
pub fn check_face(packages: &Packages<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let roots = packages.files.iter().filter(|f| f.module.is_empty());
    let roots = roots.filter(|f| packages.all[f.package].name == LIBRARY);
    let uses = roots.flat_map(|f| &f.source.imports).filter(|i| i.visibility == Visibility::Public);
    let face: BTreeSet<&str> = uses
        // An own name for a package beside it is no face.
        .filter(|import| !import.segments[0].starts_with("torchrs_") || import.segments.len() > 1)
        .filter_map(|import| import.name.as_deref())
        .collect();
    for file in packages.files.iter().filter(|f| !f.test && !f.module.is_empty()) {
        if packages.all[file.package].name != LIBRARY {
            continue;
        }
        for import in &file.source.imports {
            let Some((package, path)) = packages.resolve(file, import) else { continue };
            let Some(name) = path.first() else { continue };
            if package == file.package && face.contains(name.as_str()) {
                let text = format!(
                    "`{}` comes through lib.rs, which is for users; import `{name}` from the folder that has it",
                    import.segments.join("::")
                );
                faults.push(Fault::new(file.path, import.line, text));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Floor] =
        &[("low", &[]), ("mid", &["low"]), ("side", &["low"]), ("high", &["low", "mid"])];

    fn house(more: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![
            ("Cargo.toml", "[package]\nname = \"torchrs\"\n"),
            ("src/lib.rs", "mod low;\npub mod mid;\nmod side;\nmod high;\npub use mid::Thing;"),
        ];
        files.extend(more);
        let tree = Tree::of(&files);
        let faults = check_table(&Packages::read(&tree), TABLE, &[], &[("mid", "high")]);
        faults.iter().map(|f| format!("{}:{}", f.file, f.line)).collect()
    }

    #[test]
    fn the_table_goes_up() {
        for (i, (name, below)) in FLOORS.iter().enumerate() {
            for other in *below {
                let row = FLOORS.iter().position(|floor| floor.0 == *other);
                assert!(
                    row.is_some_and(|row| row < i),
                    "`{name}` names `{other}`, which is not above it"
                );
            }
        }
    }

    #[test]
    fn an_import_that_climbs_is_found() {
        let text = "//! Low.\nuse std::fmt;\nuse crate::mid::Thing;\nfn f() { crate::high::g() }";
        assert_eq!(house(&[("src/low.rs", text)]), ["src/low.rs:3", "src/low.rs:4"]);
    }

    #[test]
    fn an_exported_macro_belongs_to_its_module() {
        let high = ("src/high.rs", "#[macro_export]\nmacro_rules! build { () => {} }");
        assert_eq!(house(&[high, ("src/low.rs", "fn f() { crate::build!() }")]), ["src/low.rs:1"]);
    }

    #[test]
    fn one_that_goes_sideways_is_found_and_one_down_is_not() {
        let text = "use super::super::side;\nuse crate::low::{self, x};\nuse super::y;";
        assert_eq!(house(&[("src/mid/a.rs", text)]), ["src/mid/a.rs:1"]);
    }

    #[test]
    fn tests_may_import_anything() {
        let text = "#[cfg(test)]\nmod tests { use crate::high; }\n#[cfg(test)]\nmod more;";
        assert!(
            house(&[("src/low/mod.rs", text), ("src/low/more.rs", "use crate::high;")]).is_empty()
        );
    }

    #[test]
    fn a_face_is_no_arrow_but_no_way_around_one() {
        let face = ("src/mid/mod.rs", "pub use crate::high::Wrapped;");
        assert!(house(&[face]).is_empty());
        assert_eq!(house(&[face, ("src/mid/a.rs", "pub use crate::high::X;")]), ["src/mid/a.rs:1"]);
        let around = ("src/side.rs", "use crate::mid::Wrapped;");
        assert_eq!(house(&[face, around]), ["src/side.rs:1"]);
    }

    #[test]
    fn packages_are_floors_too() {
        let high = ("crates/high/Cargo.toml", "[package]\nname = \"torchrs-high\"\n");
        let low =
            "[package]\nname = \"torchrs-low\"\n[dependencies]\ntorchrs-high.workspace = true\n";
        let low = ("crates/low/Cargo.toml", low);
        let text = ("crates/low/src/lib.rs", "use torchrs_high::X;");
        assert_eq!(
            house(&[high, low, text]),
            ["crates/low/src/lib.rs:1", "crates/low/Cargo.toml:4"]
        );
    }

    #[test]
    fn a_folder_without_a_row_is_found() {
        let root = ("src/lib.rs", "mod attic;");
        assert_eq!(house(&[root, ("src/attic.rs", "//! New.")]), ["src/attic.rs:1"]);
    }

    #[test]
    fn a_head_that_claims_too_much_is_found() {
        let head =
            "//! The middle.\n//!\n//! Knows nothing of `high`, `low` and `attic`: `reason`.\n";
        let faults = check_claims(&Tree::of(&[("src/mid/mod.rs", head)]), TABLE, &[]);
        let texts: Vec<String> = faults.iter().map(Fault::to_string).collect();
        let (low, attic) = ("`mid` does know `low`, by the table of floors", "`attic` is no floor");
        assert_eq!(
            texts,
            [format!("src/mid/mod.rs:3: {low}"), format!("src/mid/mod.rs:3: {attic}")]
        );
    }

    #[test]
    fn the_face_is_for_users() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[package]\nname = \"torchrs\"\n"),
            ("src/lib.rs", "mod mid;\npub use mid::Thing;"),
            ("src/mid.rs", "use crate::Thing;\nuse crate::mid::Thing as T;"),
        ]);
        let faults = check_face(&Packages::read(&tree));
        assert_eq!(faults.iter().map(|f| f.line).collect::<Vec<_>>(), [1]);
    }
}
