//! 3x3 convolutions by Winograd's minimal filtering: at stride 1 F(4x4, 3x3), where a tile of 4x4 outputs takes 36
//! products per pair of channels instead of 144, at stride 2 F(4x4, 2x2) of the source's phases, where it takes 81.
//! Tiles and filters are transformed (see [`points`], [`phases`] and, for the data gradient at stride 2, [`residues`] for
//! the transforms and their accuracy), each of the products is a matrix product over the channels, and its results are
//! transformed back. The gradient of the filters is the transposed computation, summed over the tiles.
//!
//! At stride 1 a row's or column's last tile that has two outputs at most is short: F(2x4, 3x3) at four of the six
//! points, so that nothing is multiplied for outputs that are not there.
//!
//! f32 only.

mod correlation;
mod cut;
mod dense;
mod few_tiles;
mod filters;
mod gradient;
mod lanes;
pub mod phases;
mod points;
mod residues;
mod scheme;
mod spread;
pub mod tiles;

pub use correlation::{Stride, Winograd};
pub use filters::{Filters, TAPS};
pub use lanes::OUT;
pub use scheme::Scheme;
