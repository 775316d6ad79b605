//! Graphs: work that a stream's capture wrote down instead of performing it, to be launched whole.

pub mod capture;
pub mod exec;
