//! How direct sums are cut. The sums themselves are tested by the convolutions of `torchrs`.

mod steps;
mod zones;
