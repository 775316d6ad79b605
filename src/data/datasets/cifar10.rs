//! CIFAR-10 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009): 50,000 training and 10,000
//! test images of ten classes, 32x32 in colour, from the files of its "binary version".

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::data::Dataset;
use crate::error::{Context, Error, Result};
use crate::tensor::Tensor;

const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;
/// A label and an image, channel by channel and row by row.
const RECORD: usize = 1 + PIXELS;
/// The folder that the archive unpacks to.
const UNPACKED: &str = "cifar-10-batches-bin";
const TRAIN: [&str; 5] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
];
const TEST: [&str; 1] = ["test_batch.bin"];

/// Photographs of ten classes; a sample is (image `[3, 32, 32]` u8, label). Images are read from the files when they
/// are asked for, so that loader workers hold none.
///
/// The files are those of `cifar-10-binary.tar.gz` on <https://www.cs.toronto.edu/~kriz/cifar.html>. Other data in
/// files of these names and this form can be read as well, with any number of images.
///
/// ```
/// use torchrs::data::transforms::{RandomHorizontalFlip, ToDtype};
/// use torchrs::data::{Dataset, datasets::Cifar10};
/// use torchrs::Dtype;
/// # let folder = tempfile::tempdir().unwrap();
/// # for batch in 1..=5 {
/// #     let image = [&[batch][..], &[255; 3072]].concat();
/// #     std::fs::write(folder.path().join(format!("data_batch_{batch}.bin")), image).unwrap();
/// # }
/// # let folder = folder.path();
/// let data = Cifar10::train(folder)?.transform(RandomHorizontalFlip::new(0.5)?);
/// let data = data.transform(ToDtype::new(Dtype::F32, true));
/// let (image, label) = data.get(0)?;
/// assert_eq!((image.shape(), image.dtype(), label), (&[3, 32, 32][..], Dtype::F32, 1));
/// # assert_eq!((data.len(), image.max().item()), (5, 1.0));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Serialize, Deserialize)]
pub struct Cifar10 {
    parts: Vec<Part>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Part {
    path: PathBuf,
    len: usize,
    #[serde(skip)]
    file: OnceLock<File>,
}

impl Cifar10 {
    /// The classes, by label.
    pub const CLASSES: [&str; 10] =
        ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    /// Mean of the training images' channels, scaled to 0..1.
    pub const MEAN: [f32; 3] = [0.4914, 0.4822, 0.4465];
    /// Standard deviation of the training images' channels.
    pub const STD: [f32; 3] = [0.2470, 0.2435, 0.2616];

    /// The training images: `data_batch_1.bin` to `data_batch_5.bin` in `folder`, or in `cifar-10-batches-bin` there.
    ///
    /// # Errors
    /// [`Error::File`] when a file is missing, or is not made of labels with images.
    pub fn train(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open(folder.as_ref(), &TRAIN)
    }

    /// The test images: `test_batch.bin`.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn test(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open(folder.as_ref(), &TEST)
    }

    fn open(folder: &Path, names: &[&str]) -> Result<Self> {
        let unpacked = folder.join(UNPACKED);
        let folder = if unpacked.is_dir() { &unpacked } else { folder };
        Ok(Cifar10 { parts: names.iter().map(|name| part(folder, name)).collect::<Result<_>>()? })
    }
}

/// A file, which is there and of whole records.
fn part(folder: &Path, name: &str) -> Result<Part> {
    let path = folder.join(name);
    if !path.is_file() {
        let is_pickled = folder.join(name.trim_end_matches(".bin")).is_file()
            || folder.join("cifar-10-batches-py").is_dir();
        let why = if is_pickled {
            "; these are the files for Python: take CIFAR-10's \"binary version\""
        } else {
            ""
        };
        return Err(Error::file(folder, format!("has no file {name}{why}")));
    }
    let len = path.metadata().context(|| format!("read the size of {}", path.display()))?.len();
    if len == 0 || !len.is_multiple_of(RECORD as u64) {
        let message = format!("has {len} bytes; a label and an image are {RECORD}, one or more");
        return Err(Error::file(&path, message));
    }
    Ok(Part { path, len: len as usize / RECORD, file: OnceLock::new() })
}

impl Part {
    fn record(&self, index: usize) -> Result<[u8; RECORD]> {
        let shown = self.path.display();
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let file = File::open(&self.path).context(|| format!("open {shown}"))?;
                self.file.get_or_init(|| file)
            }
        };
        let mut record = [0; RECORD];
        file.read_exact_at(&mut record, (index * RECORD) as u64)
            .context(|| format!("read image {index} of {shown}"))?;
        if usize::from(record[0]) >= Cifar10::CLASSES.len() {
            let message = format!("label {index} is {}, must be below 10", record[0]);
            return Err(Error::file(&self.path, message));
        }
        Ok(record)
    }
}

impl Dataset for Cifar10 {
    type Sample = (Tensor, i64);

    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len).sum()
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let mut index = index;
        for part in &self.parts {
            if index < part.len {
                let record = part.record(index)?;
                return Ok((Tensor::from_slice(&record[1..], SHAPE), i64::from(record[0])));
            }
            index -= part.len;
        }
        let message = format!("is {index} beyond the last of the {} images", self.len());
        Err(Error::argument("Cifar10::get", "index", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Two images in each file but the last, which has one; pixels count from `file`.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let record = |label: u8| -> Vec<u8> {
            (0..RECORD)
                .map(|i| if i == 0 { label } else { (i - 1 + label as usize) as u8 })
                .collect()
        };
        for (file, name) in TRAIN.iter().enumerate() {
            let mut bytes = record(file as u8);
            if file < 4 {
                bytes.extend(record(file as u8 + 5));
            }
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    #[test]
    fn images_are_those_of_all_files_in_their_order() {
        let folder = folder();
        let data = Cifar10::train(folder.path()).unwrap();
        let labels: Vec<i64> = (0..data.len()).map(|i| data.get(i).unwrap().1).collect();
        assert_eq!(labels, [0, 5, 1, 6, 2, 7, 3, 8, 4]);
        let (image, _) = data.get(3).unwrap();
        assert_eq!(image.shape(), SHAPE);
        // Red first, row by row.
        let at = |c, y, x| image.select(0, c).select(0, y).select(0, x).item();
        assert_eq!([at(0, 0, 0), at(0, 0, 1), at(0, 1, 0), at(1, 0, 2)], [6.0, 7.0, 38.0, 8.0]);
        assert!(data.get(9).unwrap_err().to_string().contains("index"));
        // In the folder of the archive, too.
        let above = tempfile::tempdir().unwrap();
        fs::rename(folder.path(), above.path().join(UNPACKED)).unwrap();
        assert_eq!(Cifar10::train(above.path()).unwrap().len(), 9);
    }

    #[test]
    fn what_is_no_cifar_10_is_named() {
        let folder = folder();
        let error = Cifar10::test(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has no file test_batch.bin"), "{error}");
        fs::write(folder.path().join("test_batch"), "pickled").unwrap();
        let error = Cifar10::test(folder.path()).unwrap_err().to_string();
        assert!(error.contains("binary version"), "{error}");
        fs::write(folder.path().join(TEST[0]), [0; 100]).unwrap();
        let error = Cifar10::test(folder.path()).unwrap_err().to_string();
        assert!(error.contains("100 bytes") && error.contains("3073"), "{error}");
        fs::write(folder.path().join(TEST[0]), [10; RECORD]).unwrap();
        let error = Cifar10::test(folder.path()).unwrap().get(0).unwrap_err().to_string();
        assert!(error.contains("label 0 is 10"), "{error}");
    }
}
