//! Ops of group `indexing`.

use super::Table;

pub fn fill(_t: &mut Table) {}
