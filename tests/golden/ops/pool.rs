//! Ops of group `pool`.

use super::Table;

pub fn fill(_t: &mut Table) {}
