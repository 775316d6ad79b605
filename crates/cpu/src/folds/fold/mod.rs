//! Folding a strided buffer along some of its dimensions into one value per output: sums, maxima,
//! norms. An op says how an element becomes a value and how two values become one ([`Fold`]); the
//! driver finds the fast order for the strides.
//!
//! Floating-point sums are taken pairwise: leaves of some thousand elements in several lanes, then a
//! binary tree over the leaves, so the error grows with the logarithm of the count. The order
//! depends on shape and strides only, never on the number of threads.

mod driver;
mod kernel;
mod operation;

pub use driver::fold;
pub use kernel::{Order, Tree, gather, in_pairs, leaf};
pub use operation::{Fold, Shared, SharedMut};
