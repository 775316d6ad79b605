//! Numbers: operators against definitions, models and other layouts of the same, at any size and on any number of
//! threads.

mod any_sizes;
mod draw;
mod layout_properties;
mod long_sums;
mod ops_reference;
mod pointwise;
mod pointwise_semantics;
mod threads;
