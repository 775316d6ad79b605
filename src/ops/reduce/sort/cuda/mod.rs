//! Sorting on a GPU: orders, elements of a rank, and elements by their places.

mod order;
mod rank;
mod select;

pub(super) use order::order;
pub(in crate::ops) use order::{FIRST, SORT};
pub(in crate::ops) use rank::RANK;
pub(super) use rank::{Rank, place_of_rank};
pub(in crate::ops) use select::SELECT;
pub(super) use select::{put_back, take};
