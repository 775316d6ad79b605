//! What the processor is.

mod cache;
mod isa;
mod vectorize;
