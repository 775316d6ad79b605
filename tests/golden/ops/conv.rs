//! Ops of group `conv`.

use super::Table;

pub fn fill(_t: &mut Table) {}
