//! Pointwise operations: one row each, in tables.
//!
//! A row (see [`pointwise!`](crate::pointwise)) is a formula and its derivatives. The same tokens
//! become an inlined Rust function that is compiled into vector loops (`cpu::elementwise::kernel`), an evaluation
//! over tensors for gradients of gradients (`symbolic.rs`), and text, from which CUDA code can be
//! made. Everything else is here once: promotion, broadcasting,
//! memory (`operands.rs`), running (`apply.rs`), autograd (`derivative.rs`).
//!
//! The tables: `arithmetic.rs`, `elementary.rs`, `special.rs`, `bessel.rs`, `incomplete_gamma.rs`,
//! `polynomials.rs`, `activation.rs`, `comparison.rs`,
//! `conditional.rs`, `losses.rs`, and of updates `updates.rs`.
//! Copies and conversions (`copying.rs`) use the same loops; `operators.rs` has Rust's operators.
//!
//! ```
//! use torchrs::Tensor;
//! torchrs::pointwise! {
//!     table rows;
//!     /// The square above 0, else 0.
//!     pub float half_parabola(x) = maximum(x, 0.0) * x;
//!         grad(g, x) { x: g * 2.0 * maximum(x, 0.0) }
//! }
//! let x = Tensor::from([-1f32, 3.]).requires_grad_(true);
//! half_parabola(&x).sum().backward();
//! assert_eq!(x.grad().unwrap().to_vec::<f32>(), [0.0, 6.0]);
//! ```

#[cfg(test)]
mod accuracy;
pub(crate) mod activation;
mod apply;
mod arithmetic;
mod batched_updates;
mod bessel;
mod casts;
mod comparison;
pub(in crate::ops) mod complex;
mod conditional;
mod copying;
mod derivative;
mod division;
#[cfg(test)]
mod edges;
pub(crate) mod elementary;
mod format;
pub mod formula;
mod frexp;
pub(in crate::ops) mod incomplete_gamma;
mod losses;
mod macros;
mod operands;
mod operators;
mod out;
pub(in crate::ops) mod polynomials;
#[doc(hidden)]
pub mod row;
mod slopes;
pub(in crate::ops) mod special;
mod symbolic;
#[cfg(test)]
mod tests;
mod underived;
mod updates;

pub use apply::{apply, apply_inplace, apply_update};
pub(crate) use batched_updates::together;
pub use comparison::Closeness;
pub(crate) use copying::{assign_strided, zero_all};
pub use division::Rounding;
pub(in crate::ops) use format::format_of;
pub(crate) use losses::{
    absolute_error, divergence, huber_error, log_divergence, logit_error, probability_error,
    squared_error,
};
pub use out::apply_out;
pub use row::{Kind, Row};
pub use symbolic::Symbol;
pub(crate) use updates::{
    adadelta_step, adagrad_step, adam_counted_step, adam_step, adamax_step, amsgrad_counted_step,
    amsgrad_step, asgd_step, nadam_step, radam_start, rmsprop_centered_step, rmsprop_momentum_step,
    rmsprop_step, rprop_step, sgd_momentum_step, sgd_nesterov_step, sgd_step,
};

#[doc(hidden)]
pub use crate::cpu::elementwise::kernel::{Formula, Kernel};
pub use crate::loops::Compute;

crate::ops::table::ops! {
    casts { kernels: [PROGRAM] }
    complex { samples, kernels: [cuda::COMPLEX] }
}

/// The rows of all tables of this crate.
///
/// ```
/// use torchrs::ops::pointwise;
/// let row = pointwise::tables().find(|row| row.name == "exp").unwrap();
/// assert_eq!((row.formula, row.kind), ("exp(x)", pointwise::Kind::Float));
/// ```
pub fn tables() -> impl Iterator<Item = &'static Row> {
    [
        arithmetic::rows::ROWS,
        arithmetic::checked::ROWS,
        division::checked::ROWS,
        elementary::rows::ROWS,
        elementary::checked::ROWS,
        special::rows::ROWS,
        special::checked::ROWS,
        bessel::rows::ROWS,
        incomplete_gamma::rows::ROWS,
        polynomials::rows::ROWS,
        activation::rows::ROWS,
        activation::checked::ROWS,
        comparison::rows::ROWS,
        conditional::rows::ROWS,
        conditional::checked::ROWS,
        losses::rows::ROWS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The rows of all updates of this crate.
///
/// ```
/// use torchrs::ops::pointwise;
/// let row = pointwise::updates().find(|row| row.name == "sgd_step").unwrap();
/// assert_eq!((row.inputs.len(), row.writes), (2, &[0][..]));
/// ```
pub fn updates() -> impl Iterator<Item = &'static Row> {
    updates::updates::ROWS.iter().copied()
}
