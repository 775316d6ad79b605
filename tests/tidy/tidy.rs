//! The rules of [`torchrs_tidy`] on this repository. A failure names file, line and what would be right.

use std::path::Path;
use std::sync::OnceLock;

use torchrs_tidy::packages::Packages;
use torchrs_tidy::{Fault, Tree, docs, floors, generated, heads, ops, reach, rows, seeds};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| Tree::read(root()))
}

fn packages() -> &'static Packages<'static> {
    static PACKAGES: OnceLock<Packages<'_>> = OnceLock::new();
    PACKAGES.get_or_init(|| Packages::read(tree()))
}

#[track_caller]
fn none(faults: Vec<Fault>) {
    let lines: Vec<String> = faults.iter().map(|fault| format!("\n{fault}")).collect();
    assert!(faults.is_empty(), "{} faults:{}", faults.len(), lines.concat());
}

#[test]
fn imports_go_down() {
    none(floors::check(tree(), packages()));
}

#[test]
fn the_library_does_not_import_its_own_face() {
    none(floors::check_face(packages()));
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    none(heads::check(tree()));
}

#[test]
fn public_items_can_be_named() {
    none(reach::check(tree(), packages()));
}

#[test]
fn faults_have_tests() {
    none(rows::check(tree()));
}

#[test]
fn tables_name_all_samples_and_kernels_of_ops() {
    none(ops::check(tree()));
}

#[test]
fn links_and_paths_lead_somewhere() {
    none(docs::check(tree()));
}

#[test]
fn generated_tables_are_fresh() {
    none(generated::check(tree()));
    none(generated::check_contents(root(), tree()));
}

#[test]
fn tests_draw_numbers_of_their_own() {
    none(seeds::check(tree()));
}
