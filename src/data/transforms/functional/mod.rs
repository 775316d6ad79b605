//! Transforms as plain functions (`torchvision.transforms.v2.functional`), of tensors `[.., C, H, W]` of u8 (0 to 255)
//! or f32 (0 to 1).
//!
//! ```
//! use torchrs::data::transforms::functional::{self as F, InterpolationMode};
//! use torchrs::{Dtype, Tensor};
//! let image = Tensor::full([3, 20, 30], 200, Dtype::U8);
//! let small = F::resize(&image, &[10], InterpolationMode::Bilinear, None, true)?;
//! assert_eq!(small.shape(), [3, 10, 15]);
//! assert_eq!(F::invert(&small)?.to_vec::<u8>()[0], 55);
//! # Ok::<(), torchrs::Error>(())
//! ```

mod blur;
mod colour;
mod crops;
mod hue;
mod resampling;
mod resize;
mod tones;
mod values;
mod warp;

pub use blur::{adjust_sharpness, gaussian_blur};
pub use colour::{adjust_brightness, adjust_contrast, adjust_saturation, rgb_to_grayscale};
#[cfg(feature = "image")]
pub(super) use crops::middle;
pub use crops::{
    PaddingMode, center_crop, crop, five_crop, horizontal_flip, pad, ten_crop, vertical_flip,
};
pub use hue::adjust_hue;
pub use resize::{InterpolationMode, resize, resized_crop};
pub use tones::{adjust_gamma, autocontrast, equalize, invert, posterize, solarize};
pub(super) use values::scaled_and_normalized;
pub use values::{erase, normalize, to_dtype};
pub use warp::{affine, perspective, rotate};
