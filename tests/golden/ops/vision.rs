//! Ops of group `vision`.

use super::Table;

pub fn fill(_t: &mut Table) {}
