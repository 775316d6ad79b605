//! New tensors: numbers by rule, another type, another device, another order in memory.
//!
//! Knows nothing of the ops that compute.

pub(in crate::ops) mod by_rule;
pub(in crate::ops) mod memory_format;
pub(in crate::ops) mod to;
pub(in crate::ops) mod to_device;
