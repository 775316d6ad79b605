//! The exported symbols, a folder for each library.

pub mod driver;
pub mod nvrtc;
