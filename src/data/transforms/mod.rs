//! Image transforms with the names and results of `torchvision.transforms.v2`, on u8 and f32 tensors `[.., C, H, W]`
//! on the CPU.
//!
//! [`functional`] has them as plain functions, here are the ones with random parameters, and [`Compose`]. Random
//! numbers are of the default generator: inside a dataset's `get` or a stream's map they belong to the sample,
//! whatever worker reads it. Values are those of torchvision on tensors; random parameters have its distributions,
//! from other numbers.
//!
//! ```
//! use torchrs::data::transforms::{CenterCrop, Compose, Normalize, RandomHorizontalFlip, Resize, ToDtype, Transform};
//! use torchrs::{Dtype, Tensor};
//! let train = Compose::new([
//!     Resize::new(256)?.into(),
//!     CenterCrop::new([224, 224]).into(),
//!     RandomHorizontalFlip::new(0.5)?.into(),
//!     ToDtype::new(Dtype::F32, true).into(),
//!     Normalize::new(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])?.into(),
//! ]);
//! let image = Tensor::full([3, 300, 400], 127, Dtype::U8);
//! assert_eq!(train.forward(&image)?.shape(), [3, 224, 224]);
//! # Ok::<(), torchrs::Error>(())
//! ```

mod auto;
mod batch;
mod classes;
pub mod functional;
mod image;
mod pixelwise;
mod random;
mod region;

pub use auto::RandAugment;
pub use batch::{CutMix, MixUp};
pub use classes::{
    CenterCrop, Compose, GaussianBlur, Grayscale, Normalize, Pad, Resize, Step, ToDtype, Transform,
};
pub use random::{
    ColorJitter, RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop,
    RandomRotation, RandomVerticalFlip,
};
#[cfg(feature = "image")]
pub(in crate::data) use region::Region;
