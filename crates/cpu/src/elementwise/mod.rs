//! Formulas and copies, element by element, over operands of any strides and types.
//!
//! Knows nothing of matrices, windows and folds.

pub mod copy;
pub mod dense;
pub mod format;
pub mod kernel;
pub mod numbered;
pub mod reversed;
pub mod streaming;
pub mod tile;
