//! Ops of group `fft`.

use super::Table;

pub fn fill(_t: &mut Table) {}
