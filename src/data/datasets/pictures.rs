//! Image files as tensors, for transforms.

use std::path::Path;

use super::decode::{Picture, of_file};
use crate::data::transforms::{Compose, Region};
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
    of_file(path.as_ref(), tensor)
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
    tensor(bytes).map_err(|why| undecodable("decode_image", &why))
}

/// The pixels of an image file's bytes through a transform, as `transform.forward(&decode_image(bytes)?)` gives them.
/// What a [`RandomResizedCrop`](crate::data::transforms::RandomResizedCrop) or
/// [`CenterCrop`](crate::data::transforms::CenterCrop) at its beginning leaves out of a JPEG is not decoded.
///
/// ```
/// use torchrs::data::datasets::decode_and_transform;
/// use torchrs::data::transforms::{CenterCrop, Compose};
/// let middle = Compose::new([CenterCrop::new([1, 1]).into()]);
/// let image = decode_and_transform(b"P5 3 1 255\n\x07\x08\x09", &middle)?;
/// assert_eq!(image.to_vec::<u8>(), [8, 8, 8]);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`decode_image`], and as the transform.
pub fn decode_and_transform(bytes: &[u8], transform: &Compose) -> Result<Tensor> {
    transformed(bytes, transform)
        .unwrap_or_else(|why| Err(undecodable("decode_and_transform", &why)))
}

/// The same of a file, as [`read_image`] reads it.
pub(super) fn read_and_transform(path: &Path, transform: &Compose) -> Result<Tensor> {
    of_file(path, |bytes| transformed(bytes, transform))?
}

/// What is wrong with the bytes; else what the transform gives or refuses.
fn transformed(bytes: &[u8], transform: &Compose) -> Result<Result<Tensor>, String> {
    let picture = Picture::new(bytes)?;
    let mut damaged = None;
    let made = transform.of_regions(picture.size(), |region| match picture.planes(region) {
        Ok(planes) => Ok(tensor_of(&planes, region)),
        Err(why) => {
            damaged = Some(why.clone());
            Err(undecodable("decode_and_transform", &why))
        }
    });
    damaged.map_or(Ok(made), Err)
}

fn undecodable(op: &str, why: &str) -> Error {
    Error::argument(op, "bytes", format!("cannot be decoded: {why}"))
}

fn tensor_of(planes: &[u8], region: Region) -> Tensor {
    Tensor::from_slice(planes, [3, region.height, region.width])
}

fn tensor(bytes: &[u8]) -> Result<Tensor, String> {
    let picture = Picture::new(bytes)?;
    let region = Region::whole(picture.size());
    Ok(tensor_of(&picture.planes(region)?, region))
}
