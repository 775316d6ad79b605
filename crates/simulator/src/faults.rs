//! Faults on demand, and whether one strikes now.

use crate::settings::{self, Fault};

/// Whether the call with this number, counted from one, is to fail in this way.
pub fn strikes(fault: Fault, number: u64) -> bool {
    settings::get().faults.iter().any(|(one, at)| *one == fault && *at == number)
}

/// Whether this fault is set at all.
pub fn is_set(fault: Fault) -> bool {
    settings::get().faults.iter().any(|(one, _)| *one == fault)
}
