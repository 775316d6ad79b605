//! The one error type of the library, and the bridge between panics and values.
//!
//! Tensor operations do not return `Result`: a misuse panics at the caller's line with an
//! [`Error`] as its payload ([`throw`]), and [`catch`] turns that into a value. Everything that
//! meets the outside world (files, processes, peers, configuration) returns [`Result`].
//!
//! The crate `torchrs-error` defines all this: the launcher shares it.

#[doc(inline)]
pub use torchrs_error::{Context, Error, Result, catch, panic_message, throw};
pub(crate) use torchrs_error::{backtrace, install_hook, pipes, within};
