//! The parametrizations of `torch.nn.utils.parametrizations`: weight norm, spectral norm, orthogonal
//! matrices.

mod orthogonal;
mod reflections;
mod spectral_norm;
mod weight_norm;

pub use orthogonal::{OrthogonalMap, OrthogonalOptions, orthogonal};
pub use spectral_norm::{SpectralNormOptions, spectral_norm};
pub use weight_norm::weight_norm;
