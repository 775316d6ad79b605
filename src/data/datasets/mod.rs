//! Ready-made datasets.
//!
//! | dataset | where the data comes from | sample |
//! | --- | --- | --- |
//! | [`Digits`] | in the library | `([1, 8, 8]` f32`, label)` |
//! | [`FashionMnist`] | a folder of IDX files (Debian: package `dataset-fashion-mnist`) | `([1, 28, 28]` f32`, label)` |
//! | [`ImageFolder`] | a folder of images for each class | `([3, h, w]` f32`, label)` |
//! | [`TextWindows`] | any file, byte by byte | `([t]` i64`, [t]` i64`)` |
//! | [`Synthetic`] | computed | `([c, h, w]` f32`, label)` |

mod digits;
mod fashion_mnist;
pub mod idx;
#[cfg(feature = "image")]
mod image_folder;
mod synthetic;
mod text;

pub use digits::Digits;
pub use fashion_mnist::FashionMnist;
#[cfg(feature = "image")]
pub use image_folder::ImageFolder;
pub use synthetic::Synthetic;
pub use text::TextWindows;
