//! The table of ops: [`ops!`] in each room's `mod.rs` names what the checks call and which kernels are compiled.
//!
//! From it come the samples of `checks` and the programs of `catalogue`. A test (`tests/tidy/ops.rs`) finds samples and
//! kernels that no table names.

use crate::cuda::Program;
use crate::cuda::family::Family;

/// A program, and its name.
pub(in crate::ops) type Named = (String, &'static Program);

/// What a table may name as an op's kernels.
pub(in crate::ops) trait Kernels {
    /// All programs, with their names.
    fn list(&'static self) -> Vec<Named>;
}

impl Kernels for Program {
    fn list(&'static self) -> Vec<Named> {
        vec![(self.title(), self)]
    }
}

impl Kernels for Family {
    fn list(&'static self) -> Vec<Named> {
        self.programs()
    }
}

/// A function that lists the programs of statics that are told apart by type.
impl<F: Fn() -> Vec<&'static Program>> Kernels for F {
    fn list(&'static self) -> Vec<Named> {
        self().into_iter().flat_map(Kernels::list).collect()
    }
}

/// The ops of a room, a line each:
///
/// ```text
/// softmax { samples, kernels: [cuda::SOFTMAX] }
/// ```
///
/// The name is a file of the room, or `self`. `samples` stands for its function of that name. `kernels` names statics
/// ([`Program`], [`Family`]) and functions that list programs. `room` stands for the table of a folder.
macro_rules! ops {
    (@samples $op:ident samples) => { $op::samples() };
    (@samples $op:ident room) => { $op::all_samples() };
    (@samples $op:ident kernels) => { Vec::new() };
    (@programs $op:ident samples) => { Vec::new() };
    (@programs $op:ident room) => { $op::all_programs() };
    (@programs $op:ident kernels $($($kernel:ident)::+),+) => {
        [$($crate::ops::table::Kernels::list(&$op::$($kernel)::+)),+].concat()
    };
    ($($op:ident { $($part:ident $(: [$($($kernel:ident)::+),+ $(,)?])?),+ })+) => {
        /// The samples of the ops in this room.
        #[cfg(test)]
        pub(in crate::ops) fn all_samples() -> Vec<$crate::ops::checks::samples::OpSample> {
            let parts = [$($($crate::ops::table::ops!(@samples $op $part)),+),+];
            parts.into_iter().flatten().collect()
        }

        /// The programs that the ops in this room start, with names.
        pub(in crate::ops) fn all_programs() -> Vec<$crate::ops::table::Named> {
            [$($($crate::ops::table::ops!(@programs $op $part $($($($kernel)::+),+)?)),+),+].concat()
        }
    };
}
pub(in crate::ops) use ops;
