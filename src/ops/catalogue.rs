//! All programs of kernels that ops start, pointwise rows apart, so that they can be compiled without being used.

use super::table::Kernels;
use crate::cuda::{Program, fill};

/// The programs that the tables of ops name (`ops!` in `table.rs`), with their names. What is not here is compiled at its
/// first use only, and a test finds files of kernels that no program has.
pub fn programs() -> Vec<(String, &'static Program)> {
    let mut programs = super::all_programs();
    programs.extend(fill::PROGRAM.list());
    programs
}
