//! Ready-made datasets.
//!
//! | dataset | where the data comes from | sample |
//! | --- | --- | --- |
//! | [`Digits`] | in the library | `([1, 8, 8]` f32`, label)` |
//! | [`FashionMnist`] | a folder of IDX files (Debian: package `dataset-fashion-mnist`) | `([1, 28, 28]` f32`, label)` |
//! | [`Cifar10`] | a folder of CIFAR-10's binary files | `([3, 32, 32]` u8`, label)` |
//! | [`ImageFolder`] | a folder of images for each class | `([3, h, w]` f32`, label)` |
//! | [`TextWindows`] | any file, byte by byte | `([t]` i64`, [t]` i64`)` |
//! | [`Synthetic`] | computed | `([c, h, w]` f32`, label)` |
//!
//! ```
//! use torchrs::data::{Dataset, datasets::{Digits, Synthetic}};
//! assert_eq!((Digits::all().len(), Digits::all().get(0)?.0.shape()), (1797, &[1, 8, 8][..]));
//! assert_eq!(Synthetic::new(100).get(42)?.1, 2);
//! # Ok::<(), torchrs::Error>(())
//! ```

mod cifar10;
#[cfg(feature = "image")]
mod decode;
mod digits;
mod fashion_mnist;
pub mod idx;
#[cfg(feature = "image")]
mod image_folder;
#[cfg(feature = "image")]
mod pictures;
#[cfg(feature = "image")]
mod scale;
mod synthetic;
mod text;

pub use cifar10::Cifar10;
pub use digits::Digits;
pub use fashion_mnist::FashionMnist;
#[cfg(feature = "image")]
pub use image_folder::ImageFolder;
#[cfg(feature = "image")]
pub use pictures::{decode_and_transform, decode_image, read_image};
pub use synthetic::Synthetic;
pub use text::TextWindows;
