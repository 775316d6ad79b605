//! Sorting on a GPU: orders, elements of a rank, and elements by their places.

pub(in crate::ops) mod order;
pub(in crate::ops) mod rank;
pub(in crate::ops) mod select;

pub(super) use order::order;
pub(super) use rank::{Rank, place_of_rank};
pub(super) use select::{put_back, take};
