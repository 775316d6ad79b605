//! The programs of formulas: one for each formula and compute type, made at its first use.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::RwLock;
use torchrs_loops::{Compute, Format, Text};

use super::{packed, recipe, translate};
use crate::kernels::module::{Kernel, Program};
use crate::memo::quick_hash::QuickHash;

/// A formula's entry points for a compute type.
pub(super) struct Entries {
    pub(super) strided: Kernel,
    pub(super) dense: Vec<(Format, Kernel)>,
    /// Of updates: for many tensors at once.
    pub(super) many: Vec<(Format, Kernel)>,
    /// For operands of certain types that lie in certain ways.
    pub(super) packed: packed::Known,
}

/// By the text's address, which is inside a static, and compute type.
type Programs = HashMap<(usize, u8), &'static Entries, QuickHash>;
static PROGRAMS: LazyLock<RwLock<Programs>> = LazyLock::new(RwLock::default);

/// A formula's entry points for a compute type, made at the first use.
pub(super) fn program(text: &'static Text, compute: Compute) -> &'static Entries {
    let key = (std::ptr::from_ref(text) as usize, compute as u8);
    if let Some(program) = PROGRAMS.read().get(&key) {
        return program;
    }
    PROGRAMS.write().entry(key).or_insert_with(|| {
        let program: &Program = Box::leak(Box::new(source(text, compute)));
        let dense = |format, name| (format, Kernel::new(program, name));
        let many = match compute {
            _ if text.written.is_empty() => vec![],
            Compute::F32 => vec![
                dense(Format::F32, "many_f32"),
                dense(Format::F16, "many_f16"),
                dense(Format::BF16, "many_bf16"),
            ],
            Compute::F64 => vec![dense(Format::F64, "many_f64")],
            Compute::I64 => vec![],
        };
        Box::leak(Box::new(Entries {
            strided: Kernel::new(program, "strided"),
            dense: match compute {
                Compute::F32 => vec![
                    dense(Format::F32, "dense_f32"),
                    dense(Format::F16, "dense_f16"),
                    dense(Format::BF16, "dense_bf16"),
                ],
                Compute::F64 => vec![dense(Format::F64, "dense_f64")],
                Compute::I64 => vec![dense(Format::I64, "dense_i64")],
            },
            many,
            packed: packed::Known::default(),
        }))
    })
}

/// The program of a formula for a compute type, by itself: what is compiled at the formula's first use.
pub fn source(text: &Text, compute: Compute) -> Program {
    translate::compiled(translate::program(text, compute)).made_by(recipe::line(text, compute, ""))
}
