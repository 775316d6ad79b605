//! All programs of kernels that ops start, pointwise rows apart, so that they can be compiled without being used.

use std::sync::Once;

use super::table::Kernels;
use crate::cuda::ahead::likely;
use crate::cuda::{Program, fill};

/// The programs that the tables of ops name (`ops!` in `table.rs`), with their names. What is not here is compiled at its
/// first use only, and a test finds files of kernels that no program has.
pub fn programs() -> Vec<(String, &'static Program)> {
    let mut programs = super::all_programs();
    programs.extend(fill::PROGRAM.list());
    programs
}

/// Tells the device layer of these programs, so that it finds those that its lists name.
pub(crate) fn tell() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        likely::set_catalogue(|| programs().into_iter().map(|(_, program)| program).collect())
    });
}
