//! Image files as tensors, for transforms.

use std::path::Path;

use super::decode::{Rgb, decode, decode_bytes};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The pixels of an image file (PNG, JPEG, BMP, PNM), u8 `[3, height, width]` (`torchvision.io.read_image` with RGB).
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.ppm");
/// std::fs::write(&path, b"P6 2 1 255\n\x01\x02\x03\x04\x05\x06").unwrap();
/// let image = torchrs::data::datasets::read_image(&path)?;
/// assert_eq!((image.shape(), image.to_vec::<u8>()), (&[3, 1, 2][..], vec![1, 4, 2, 5, 3, 6]));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Os`] when the file cannot be read, [`Error::File`] when it is no image or damaged.
pub fn read_image(path: impl AsRef<Path>) -> Result<Tensor> {
    decode(path.as_ref()).map(|image| planes(&image))
}

/// The pixels of an image file's bytes (`torchvision.io.decode_image` with RGB), as [`read_image`] gives them: for
/// images in tar shards and Parquet files.
///
/// ```
/// let image = torchrs::data::datasets::decode_image(b"P6 1 1 255\n\x07\x08\x09")?;
/// assert_eq!((image.shape(), image.to_vec::<u8>()), (&[3, 1, 1][..], vec![7, 8, 9]));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] when they are no image, or damaged.
pub fn decode_image(bytes: &[u8]) -> Result<Tensor> {
    match decode_bytes(bytes) {
        Ok(image) => Ok(planes(&image)),
        Err(why) => {
            Err(Error::argument("decode_image", "bytes", format!("cannot be decoded: {why}")))
        }
    }
}

/// Red, green and blue one after the other.
fn planes(image: &Rgb) -> Tensor {
    let mut planes: Vec<u8> = Vec::with_capacity(image.pixels.len());
    (0..3).for_each(|c| planes.extend(image.pixels.iter().skip(c).step_by(3)));
    Tensor::from_slice(&planes, [3, image.height, image.width])
}
