//! Elementary functions that vectorise: plain scalar Rust without branches, so that a loop around
//! one of them inside a `#[target_feature]` function becomes vector code of that instruction set.
//!
//! Rules that keep the vectoriser happy: choose with `if c { a } else { b }` on values that are both
//! already computed, never by early return; turn a float into an integer by adding a magic constant
//! and reading the bits (`as` saturates, which is a branch); clamp with comparisons, which let NaN
//! through, not with `min`/`max`.
//!
//! `FMA` says whether `mul_add` is an instruction here. Where it is not it would be a library call,
//! so the two-step form is used. The coefficients are minimax fits (Remez, in 50 digits) for these
//! intervals.

mod basic;
mod bessel;
pub mod double;
mod incomplete_gamma;
mod polynomials;
pub mod single;
pub mod special;
#[doc(hidden)]
pub mod ulps;
