//! The UCI handwritten digits: 1,797 grey images of 8x8 pixels, part of the library (see
//! `digits/README.md` for source and licence). Small enough to train on in seconds, hard enough to
//! show whether training works.

use std::path::Path;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::idx::Idx;
use crate::data::Dataset;
use crate::error::Result;
use crate::tensor::Tensor;

static IMAGES: &[u8] = include_bytes!("digits/images-idx3-ubyte.gz");
static LABELS: &[u8] = include_bytes!("digits/labels-idx1-ubyte.gz");
const LEN: usize = 1797;
const PIXELS: usize = 64;
/// Values of the source: 0 to 16.
const WHITE: f32 = 16.0;
/// Every fifth image, from this one on, is held back for validation.
const HELD_BACK: usize = 4;

/// Handwritten digits; a sample is (image `[1, 8, 8]` f32 from 0 to 1, label).
///
/// ```
/// use torchrs::data::{Dataset, datasets::Digits};
/// let (image, label) = Digits::all().get(0)?;
/// assert_eq!((image.shape(), label), (&[1, 8, 8][..], 0));
/// assert!(image.to_vec::<f32>().iter().all(|pixel| (0.0..=1.0).contains(pixel)));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Digits {
    part: Part,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Part {
    All,
    Train,
    Validation,
}

impl Digits {
    /// Number of classes.
    pub const CLASSES: usize = 10;

    /// All 1,797 images.
    pub fn all() -> Self {
        Digits { part: Part::All }
    }

    /// The 1,438 images that are not held back.
    pub fn train() -> Self {
        Digits { part: Part::Train }
    }

    /// The 359 held-back images: every fifth one.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::Digits};
    /// assert_eq!(Digits::validation().len(), 359);
    /// assert!(Digits::validation().get(1)?.0.equal(&Digits::all().get(9)?.0));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn validation() -> Self {
        Digits { part: Part::Validation }
    }
}

impl Dataset for Digits {
    type Sample = (Tensor, i64);

    fn len(&self) -> usize {
        let validation = (LEN - HELD_BACK).div_ceil(5);
        match self.part {
            Part::All => LEN,
            Part::Train => LEN - validation,
            Part::Validation => validation,
        }
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let index = match self.part {
            Part::All => index,
            Part::Train => index / HELD_BACK * 5 + index % HELD_BACK,
            Part::Validation => index * 5 + HELD_BACK,
        };
        let (images, labels) = data();
        let pixels = &images[index * PIXELS..][..PIXELS];
        let scaled: Vec<f32> = pixels.iter().map(|&p| f32::from(p) / WHITE).collect();
        Ok((Tensor::from_slice(&scaled, [1, 8, 8]), i64::from(labels[index])))
    }
}

/// Images and labels, unpacked at the first use in a process.
fn data() -> &'static (Vec<u8>, Vec<u8>) {
    static DATA: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    DATA.get_or_init(|| {
        let unpack = |file, name: &str| match Idx::parse(file, Path::new(name)) {
            Ok(idx) => idx.bytes,
            Err(error) => unreachable!("a file inside the library is damaged: {error}"),
        };
        (unpack(IMAGES, "digits/images"), unpack(LABELS, "digits/labels"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_what_its_readme_says() {
        let (images, labels) = data();
        assert_eq!((images.len(), labels.len()), (LEN * PIXELS, LEN));
        assert_eq!(images.iter().max(), Some(&16));
        let count = |digit| labels.iter().filter(|&&label| label == digit).count();
        assert_eq!(
            (0..10).map(count).collect::<Vec<_>>(),
            [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
        );
    }

    #[test]
    fn the_parts_are_disjoint_and_complete() {
        let rows = |part: &Digits| -> Vec<(Vec<f32>, i64)> {
            let get = |i| part.get(i).map(|(image, label)| (image.to_vec(), label)).unwrap();
            (0..part.len()).map(get).collect()
        };
        let (all, train) = (rows(&Digits::all()), rows(&Digits::train()));
        let validation = rows(&Digits::validation());
        assert_eq!((train.len(), validation.len()), (1438, 359));
        let (mut train, mut validation) = (train.into_iter(), validation.into_iter());
        for (index, row) in all.into_iter().enumerate() {
            let part = if index % 5 == 4 { &mut validation } else { &mut train };
            assert_eq!(part.next(), Some(row), "image {index}");
        }
        assert!(train.next().is_none() && validation.next().is_none());
    }

    #[test]
    fn the_first_image_is_a_zero() {
        let (image, label) = Digits::all().get(0).unwrap();
        assert_eq!((image.shape(), label), (&[1, 8, 8][..], 0));
        assert_eq!(image.to_vec::<f32>()[2..5], [5.0 / 16.0, 13.0 / 16.0, 9.0 / 16.0]);
    }
}
