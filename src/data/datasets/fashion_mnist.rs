//! Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60,000 training and 10,000 test images of clothing,
//! 28x28 grey, ten classes, from a folder of IDX files. Any dataset in MNIST's four files can be
//! read with it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::idx::{self, Idx};
use crate::data::{Dataset, sample_random};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Mean and standard deviation of the training pixels, scaled to 0..1.
const MEAN: f32 = 0.2860;
const STD: f32 = 0.3530;

/// Images of clothing; a sample is (image `[1, 28, 28]` f32 of mean 0 and deviation 1, label).
///
/// ```no_run
/// use torchrs::data::{DataLoader, datasets::FashionMnist};
/// let clothes = FashionMnist::train(FashionMnist::DEBIAN_FOLDER)?.augment(true);
/// let loader = DataLoader::builder(clothes).batch_size(64).shuffle(true).build()?;
/// let (images, labels) = loader.iter().next().unwrap()?;
/// assert_eq!((images.shape(), labels.shape()), (&[64, 1, 28, 28][..], &[64][..]));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Serialize, Deserialize)]
pub struct FashionMnist {
    images: PathBuf,
    labels: PathBuf,
    len: usize,
    height: usize,
    width: usize,
    augment: bool,
    #[serde(skip)]
    data: OnceLock<Data>,
}

#[derive(Debug)]
struct Data {
    pixels: Vec<u8>,
    labels: Vec<u8>,
    /// The normalised value of each pixel value.
    values: Vec<f32>,
}

impl FashionMnist {
    /// Number of classes.
    pub const CLASSES: usize = 10;
    /// Where Debian's package `dataset-fashion-mnist` puts the files.
    pub const DEBIAN_FOLDER: &str = "/usr/share/datasets/fashion-mnist";

    /// The training images: `train-images-idx3-ubyte` and `train-labels-idx1-ubyte` in `folder`,
    /// with or without `.gz`.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::FashionMnist};
    /// # // One row of two pixels in each image.
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (images, labels) = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    /// # let header = [0u8, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    /// # std::fs::write(folder.path().join(images), [&header[..], &[0, 255, 0, 0]].concat()).unwrap();
    /// # std::fs::write(folder.path().join(labels), [0u8, 0, 8, 1, 0, 0, 0, 2, 7, 3]).unwrap();
    /// let data = FashionMnist::train(folder.path())?;
    /// assert_eq!((data.len(), data.get(1)?.1), (2, 3));
    /// let black = data.get(1)?.0.to_vec::<f32>()[0];
    /// assert!((black - (0.0 - 0.286) / 0.353).abs() < 1e-6);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] when a file is missing, is not IDX, or does not go with the other one.
    pub fn train(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open(folder.as_ref(), "train")
    }

    /// The test images: `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn test(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open(folder.as_ref(), "t10k")
    }

    /// Whether images are mirrored at random, anew in every epoch (default: false). Which ones is a
    /// pure function of the loader's seed, the epoch and the index.
    ///
    /// ```
    /// use torchrs::data::{DataLoader, Dataset, datasets::FashionMnist};
    /// # // One row of two pixels in each image.
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (images, labels) = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    /// # let header = [0u8, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    /// # std::fs::write(folder.path().join(images), [&header[..], &[0, 255, 0, 0]].concat()).unwrap();
    /// # std::fs::write(folder.path().join(labels), [0u8, 0, 8, 1, 0, 0, 0, 2, 7, 3]).unwrap();
    /// // The first image is a black pixel and a white one.
    /// let loader = DataLoader::builder(FashionMnist::train(folder.path())?.augment(true)).build()?;
    /// let first = || loader.iter().next().unwrap().unwrap().0.to_vec::<f32>()[0];
    /// let mirrored = (0..20).filter(|_| first() > 0.0).count();
    /// assert!(0 < mirrored && mirrored < 20);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn augment(mut self, augment: bool) -> Self {
        self.augment = augment;
        self
    }

    fn open(folder: &Path, part: &str) -> Result<Self> {
        let images = idx::find(folder, &format!("{part}-images-idx3-ubyte"))?;
        let labels = idx::find(folder, &format!("{part}-labels-idx1-ubyte"))?;
        let (image_shape, label_shape) = (Idx::read_shape(&images)?, Idx::read_shape(&labels)?);
        let [len, height, width] = image_shape[..] else {
            let message = format!("holds an array of shape {image_shape:?}, not a list of images");
            return Err(Error::file(&images, message));
        };
        if label_shape != [len] {
            let (images, labels) = (images.display(), &labels);
            let message = format!("holds {label_shape:?} labels for the {len} images of {images}");
            return Err(Error::file(labels, message));
        }
        let data = OnceLock::new();
        Ok(FashionMnist { images, labels, len, height, width, augment: false, data })
    }

    /// The unpacked files, read at the first use in a process.
    fn data(&self) -> Result<&Data> {
        if let Some(data) = self.data.get() {
            return Ok(data);
        }
        let (images, labels) = (Idx::read(&self.images)?, Idx::read(&self.labels)?);
        for (idx, path, shape) in [
            (&images, &self.images, &[self.len, self.height, self.width][..]),
            (&labels, &self.labels, &[self.len][..]),
        ] {
            if idx.shape != shape {
                let message = format!("changed: its shape was {shape:?} and is {:?}", idx.shape);
                return Err(Error::file(path, message));
            }
        }
        if let Some(place) = labels.bytes.iter().position(|&l| usize::from(l) >= Self::CLASSES) {
            let message = format!("label {place} is {}, must be below 10", labels.bytes[place]);
            return Err(Error::file(&self.labels, message));
        }
        let values = (0..=255u8).map(|p| (f32::from(p) / 255.0 - MEAN) / STD).collect();
        let data = Data { pixels: images.bytes, labels: labels.bytes, values };
        Ok(self.data.get_or_init(|| data))
    }
}

impl Dataset for FashionMnist {
    type Sample = (Tensor, i64);

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let data = self.data()?;
        let size = self.height * self.width;
        let pixels = &data.pixels[index * size..][..size];
        let value = |&pixel: &u8| data.values[usize::from(pixel)];
        let mirrored = self.augment && sample_random(index).below(2) == 1;
        let image: Vec<f32> = if mirrored {
            pixels.chunks_exact(self.width).flat_map(|row| row.iter().rev().map(value)).collect()
        } else {
            pixels.iter().map(value).collect()
        };
        let image = Tensor::from_slice(&image, [1, self.height, self.width]);
        Ok((image, i64::from(data.labels[index])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::dataset::{WorkerInfo, set_worker_info};
    use std::fs;

    /// Four images of 2x3 pixels.
    fn folder(labels: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut images = vec![0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 3];
        images.extend((0..24).map(|i| i * 10));
        fs::write(folder.path().join("train-images-idx3-ubyte"), images).unwrap();
        let mut file = vec![0, 0, 8, 1, 0, 0, 0, labels.len() as u8];
        file.extend(labels);
        fs::write(folder.path().join("train-labels-idx1-ubyte"), file).unwrap();
        folder
    }

    #[test]
    fn pixels_are_normalised() {
        let folder = folder(&[1, 0, 9, 3]);
        let data = FashionMnist::train(folder.path()).unwrap();
        assert_eq!(data.len(), 4);
        let (image, label) = data.get(2).unwrap();
        assert_eq!((image.shape(), label), (&[1, 2, 3][..], 9));
        let expected: Vec<f32> =
            (12..18).map(|i| ((i * 10) as f32 / 255.0 - 0.2860) / 0.3530).collect();
        assert_eq!(image.to_vec::<f32>(), expected);
    }

    #[test]
    fn augmentation_mirrors_about_half_of_the_images_anew_in_each_epoch() {
        let folder = folder(&[0; 4]);
        let plain = FashionMnist::train(folder.path()).unwrap();
        let data = FashionMnist::train(folder.path()).unwrap().augment(true);
        let mut mirrored = 0;
        for epoch in 0..50 {
            set_worker_info(WorkerInfo { epoch, ..WorkerInfo::default() });
            for index in 0..4 {
                let (a, b): (Vec<f32>, Vec<f32>) =
                    (plain.get(index).unwrap().0.to_vec(), data.get(index).unwrap().0.to_vec());
                if a != b {
                    assert_eq!((a[0], a[1], a[3]), (b[2], b[1], b[5]));
                    mirrored += 1;
                }
            }
        }
        set_worker_info(WorkerInfo::default());
        assert!((70..130).contains(&mirrored), "{mirrored} of 200");
    }

    #[test]
    fn files_that_do_not_go_together_are_named() {
        let error = FashionMnist::train(folder(&[0; 3]).path()).unwrap_err().to_string();
        assert!(error.contains("labels-idx1") && error.contains("[3] labels for the 4"), "{error}");
        let bad_label = folder(&[0, 10, 0, 0]);
        let error = FashionMnist::train(bad_label.path()).unwrap().get(0).unwrap_err().to_string();
        assert!(error.contains("label 1 is 10"), "{error}");
        let error = FashionMnist::test(bad_label.path()).unwrap_err().to_string();
        assert!(error.contains("t10k-images-idx3-ubyte.gz"), "{error}");
    }

    /// Reads the real files where Debian's package is installed.
    #[test]
    fn reads_debians_files() {
        if !Path::new(FashionMnist::DEBIAN_FOLDER).exists() {
            return;
        }
        let train = FashionMnist::train(FashionMnist::DEBIAN_FOLDER).unwrap();
        let test = FashionMnist::test(FashionMnist::DEBIAN_FOLDER).unwrap();
        assert_eq!((train.len(), test.len()), (60_000, 10_000));
        assert_eq!(train.get(0).unwrap().1, 9);
        let mean: f32 = (0..1000)
            .map(|i| test.get(i).unwrap().0.to_vec::<f32>().iter().sum::<f32>() / 784.0)
            .sum::<f32>()
            / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
    }
}
