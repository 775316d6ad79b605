//! Ops of group `creation`.

use super::Table;

pub fn fill(_t: &mut Table) {}
