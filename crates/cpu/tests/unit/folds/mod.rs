//! Many values become one.

mod extreme;
mod fold;
mod moments;
mod row;
