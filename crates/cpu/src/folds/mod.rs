//! Many elements to one: sums, extremes, moments, along any dimensions or along rows.
//!
//! Knows nothing of formulas: what is folded is the caller's.

pub mod extreme;
pub mod fold;
pub mod moments;
pub mod row;
