//! A folder of images for each class, by the rules of `torchvision.datasets.ImageFolder`: classes
//! are the sorted names of the subfolders, and everything below them is searched, in the order of the paths.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::decode::{Picture, of_file};
use super::pictures::read_and_transform;
use super::scale::scaled_square;
use crate::data::transforms::Compose;
use crate::data::{Dataset, sample_random};
use crate::error::{Context, Error, Result, throw};
use crate::tensor::Tensor;

/// File names with these endings are images.
const ENDINGS: [&str; 9] = ["jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "pam", "bmp"];
/// torchvision reads these too; they are refused rather than passed over.
const UNSUPPORTED: [&str; 3] = ["tif", "tiff", "webp"];
/// Mean and standard deviation of ImageNet's channels, which torchvision's models expect.
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Images in class folders; a sample is (image, class).
///
/// Of [`new`](Self::new) an image is f32 `[3, size, size]`: scaled so that its shorter side has
/// [`resize`](Self::resize) pixels (bilinear, with anti-aliasing), cut to a square of `size` pixels around its centre,
/// and normalised. Of [`with_transform`](Self::with_transform) it is what the transform makes of it.
///
/// ```
/// use torchrs::data::{Dataset, datasets::ImageFolder};
/// # let root = tempfile::tempdir().unwrap();
/// # for (class, pixels) in [("cat", [0u8, 255]), ("dog", [255, 255])] {
/// #     let (folder, image) = (root.path().join(class), [&b"P5 2 1 255\n"[..], &pixels].concat());
/// #     std::fs::create_dir(&folder).unwrap();
/// #     std::fs::write(folder.join("1.pgm"), image).unwrap();
/// # }
/// // cat/1.pgm, dog/1.pgm
/// let images = ImageFolder::new(root.path(), 1)?.normalize([0.0; 3], [1.0; 3]);
/// let (image, class) = images.get(1)?;
/// assert_eq!((image.to_vec::<f32>(), class), (vec![1.0; 3], 1));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    /// Path below `root`, and class.
    files: Vec<(PathBuf, usize)>,
    squares: Squares,
    /// In place of squares.
    transform: Option<Compose>,
}

/// How an image becomes a square.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Squares {
    size: u32,
    resize: u32,
    mean: [f32; 3],
    std: [f32; 3],
    augment: bool,
}

impl ImageFolder {
    /// The images under `root`, as squares of `size` pixels.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::ImageFolder};
    /// # let root = tempfile::tempdir().unwrap();
    /// # for (class, pixels) in [("cat", [0u8, 255]), ("dog", [255, 255])] {
    /// #     let (folder, image) = (root.path().join(class), [&b"P5 2 1 255\n"[..], &pixels].concat());
    /// #     std::fs::create_dir(&folder).unwrap();
    /// #     std::fs::write(folder.join("1.pgm"), image).unwrap();
    /// # }
    /// // cat/1.pgm, dog/1.pgm
    /// let images = ImageFolder::new(root.path(), 1)?;
    /// assert_eq!((images.len(), images.get(0)?.0.shape(), images.get(0)?.1), (2, &[3, 1, 1][..], 0));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when a folder cannot be read, [`Error::File`] when there is no class, a class
    /// without images, or an image in a format that is not supported; [`Error::Argument`] when
    /// `size` is 0.
    pub fn new(root: impl AsRef<Path>, size: u32) -> Result<Self> {
        if size == 0 {
            return Err(Error::argument("ImageFolder::new", "size", "is 0, must be >= 1"));
        }
        let (mean, std) = (IMAGENET_MEAN, IMAGENET_STD);
        let squares = Squares { size, resize: size, mean, std, augment: false };
        Self::find(root.as_ref(), squares, None)
    }

    /// The images under `root`, each through a transform of u8 images `[3, height, width]`
    /// (`torchvision.datasets.ImageFolder(root, transform)`). The results have to have one size, to be batched.
    ///
    /// A JPEG is decoded no further than a [`RandomResizedCrop`](crate::data::transforms::RandomResizedCrop) or
    /// [`CenterCrop`](crate::data::transforms::CenterCrop) at the beginning asks for.
    ///
    /// ```
    /// use torchrs::Dtype;
    /// use torchrs::data::{Dataset, datasets::ImageFolder};
    /// use torchrs::data::transforms::{Compose, RandomHorizontalFlip, RandomResizedCrop, ToDtype};
    /// # let root = tempfile::tempdir().unwrap();
    /// # std::fs::create_dir(root.path().join("cat")).unwrap();
    /// # std::fs::write(root.path().join("cat/1.pgm"), b"P5 2 1 255\n\0\xff").unwrap();
    /// // cat/1.pgm
    /// let images = ImageFolder::with_transform(root.path(), Compose::new([
    ///     RandomResizedCrop::new([8, 8])?.into(),
    ///     RandomHorizontalFlip::new(0.5)?.into(),
    ///     ToDtype::new(Dtype::F32, true).into(),
    /// ]))?;
    /// assert_eq!(images.get(0)?.0.shape(), [3, 8, 8]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_transform(root: impl AsRef<Path>, transform: Compose) -> Result<Self> {
        let (mean, std) = (IMAGENET_MEAN, IMAGENET_STD);
        let squares = Squares { size: 1, resize: 1, mean, std, augment: false };
        Self::find(root.as_ref(), squares, Some(transform))
    }

    fn find(root: &Path, squares: Squares, transform: Option<Compose>) -> Result<Self> {
        let mut classes = Vec::new();
        for (folder, _) in sorted(root)?.into_iter().filter(|(_, is_folder)| *is_folder) {
            classes.push(name_of(&folder)?);
        }
        if classes.is_empty() {
            return Err(Error::file(root, "has no subfolder; there should be one for each class"));
        }
        let mut files = Vec::new();
        for (class, name) in classes.iter().enumerate() {
            let found = find_images(&root.join(name))?;
            if found.is_empty() {
                let message = format!("has no image; files should end in {}", ENDINGS.join(", "));
                return Err(Error::file(root.join(name), message));
            }
            // Kept short: a worker gets the whole list.
            let below = |path: PathBuf| path.strip_prefix(root).map(Path::to_owned).unwrap_or(path);
            files.extend(found.into_iter().map(|path| (below(path), class)));
        }
        Ok(ImageFolder { root: root.to_owned(), classes, files, squares, transform })
    }

    /// Refuses a choice that a transform would make without effect.
    #[track_caller]
    fn has_squares(&self, op: &str, instead: &str) {
        if self.transform.is_some() {
            throw(Error::argument(
                op,
                "self",
                format!("has a transform of its own, which this would not change: {instead} there"),
            ));
        }
    }

    /// Pixels of the shorter side before the square is cut out (default: the square's size; 256 for
    /// 224 is usual).
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::ImageFolder};
    /// # let root = tempfile::tempdir().unwrap();
    /// # for (class, pixels) in [("cat", [0u8, 255]), ("dog", [255, 255])] {
    /// #     let (folder, image) = (root.path().join(class), [&b"P5 2 1 255\n"[..], &pixels].concat());
    /// #     std::fs::create_dir(&folder).unwrap();
    /// #     std::fs::write(folder.join("1.pgm"), image).unwrap();
    /// # }
    /// assert_eq!(ImageFolder::new(root.path(), 4)?.resize(6)?.get(0)?.0.shape(), [3, 4, 4]);
    /// assert!(ImageFolder::new(root.path(), 4)?.resize(3).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when it is smaller than the square.
    ///
    /// # Panics
    /// On a folder [with a transform](Self::with_transform), as do [`normalize`](Self::normalize) and
    /// [`augment`](Self::augment).
    #[track_caller]
    pub fn resize(mut self, resize: u32) -> Result<Self> {
        self.has_squares("ImageFolder::resize", "add Resize");
        let size = self.squares.size;
        if resize < size {
            let message = format!("is {resize}, must be at least size, which is {size}");
            return Err(Error::argument("ImageFolder::resize", "resize", message));
        }
        self.squares.resize = resize;
        Ok(self)
    }

    /// Mean and standard deviation of each channel, for values from 0 to 1 (default: ImageNet's).
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::ImageFolder};
    /// # let root = tempfile::tempdir().unwrap();
    /// # for (class, pixels) in [("cat", [0u8, 255]), ("dog", [255, 255])] {
    /// #     let (folder, image) = (root.path().join(class), [&b"P5 2 1 255\n"[..], &pixels].concat());
    /// #     std::fs::create_dir(&folder).unwrap();
    /// #     std::fs::write(folder.join("1.pgm"), image).unwrap();
    /// # }
    /// // White is 1 in each channel.
    /// let images = ImageFolder::new(root.path(), 1)?.normalize([0.5, 0.0, 0.0], [0.25, 0.5, 1.0]);
    /// assert_eq!(images.get(1)?.0.to_vec::<f32>(), [2.0, 2.0, 1.0]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn normalize(mut self, mean: [f32; 3], std: [f32; 3]) -> Self {
        self.has_squares("ImageFolder::normalize", "add Normalize");
        (self.squares.mean, self.squares.std) = (mean, std);
        self
    }

    /// Whether images are mirrored at random, anew in every epoch (default: false).
    #[must_use]
    #[track_caller]
    pub fn augment(mut self, augment: bool) -> Self {
        self.has_squares("ImageFolder::augment", "add RandomHorizontalFlip");
        self.squares.augment = augment;
        self
    }

    /// Names of the classes, in the order of their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Path of image `index`.
    pub fn path(&self, index: usize) -> PathBuf {
        self.root.join(&self.files[index].0)
    }

    /// The scaled square, red, green and blue of a pixel side by side.
    fn load(&self, path: &Path) -> Result<Vec<u8>> {
        let image = of_file(path, |bytes| Picture::new(bytes)?.decoded())?;
        let (size, resize) = (self.squares.size as usize, self.squares.resize as usize);
        let short = image.width.min(image.height);
        // torchvision's rounding: the longer side is cut off.
        let scaled = |side: usize| resize * side / short;
        // As Python rounds: halves to the even neighbour.
        let margin = |side: usize| ((side - size) as f64 / 2.0).round_ties_even() as usize;
        let (width, height) = (scaled(image.width), scaled(image.height));
        Ok(scaled_square(&image, (width, height), (margin(width), margin(height)), size))
    }
}

impl Dataset for ImageFolder {
    type Sample = (Tensor, i64);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let class = self.files[index].1 as i64;
        if let Some(transform) = &self.transform {
            return Ok((read_and_transform(&self.path(index), transform)?, class));
        }
        let image = self.load(&self.path(index))?;
        let squares = &self.squares;
        let size = squares.size as usize;
        let mirrored = squares.augment && sample_random(index).below(2) == 1;
        let mut planes = Vec::with_capacity(3 * size * size);
        for channel in 0..3 {
            let (mean, std) = (squares.mean[channel], squares.std[channel]);
            let values: Vec<f32> =
                (0..=255u8).map(|value| (f32::from(value) / 255.0 - mean) / std).collect();
            for row in image.chunks_exact(3 * size) {
                let value = |pixel: &[u8]| values[usize::from(pixel[channel])];
                match mirrored {
                    true => planes.extend(row.chunks_exact(3).rev().map(value)),
                    false => planes.extend(row.chunks_exact(3).map(value)),
                }
            }
        }
        Ok((Tensor::from_slice(&planes, [3, size, size]), class))
    }
}

/// The entries of a folder, sorted by name, and whether each is a folder itself. The list has that already: only links
/// are looked behind, so that there is no call for each of a million files.
fn sorted(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let what = || format!("read folder {}", folder.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).context(what)? {
        let entry = entry.context(what)?;
        let (path, kind) = (entry.path(), entry.file_type().context(what)?);
        let is_folder = kind.is_dir() || kind.is_symlink() && path.is_dir();
        entries.push((path, is_folder));
    }
    entries.sort_unstable();
    Ok(entries)
}

fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| Error::file(path, "the name of a class folder has to be UTF-8"))
}

/// All images below a folder: folders by their paths as text, as torchvision sorts them, then files
/// by name.
fn find_images(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut listings = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        let (folders, files): (Vec<_>, Vec<_>) =
            sorted(&folder)?.into_iter().partition(|(_, is_folder)| *is_folder);
        pending.extend(folders.into_iter().map(|(path, _)| path));
        let files: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
        listings.push((folder.into_os_string(), files));
    }
    listings.sort_unstable();
    let mut images = Vec::new();
    for file in listings.into_iter().flat_map(|(_, files)| files) {
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        if ENDINGS.contains(&ending.as_str()) {
            images.push(file);
        } else if UNSUPPORTED.contains(&ending.as_str()) {
            return Err(Error::file(file, "images of this format are not supported"));
        }
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PIL's images and pixels; see tools/golden/image_files.py.
    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/images");

    fn save(folder: &Path, name: &str, bytes: &[u8]) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// As PNG: red grows to the right, green downwards.
    fn gradient(width: u32, height: u32) -> Vec<u8> {
        let pixels: Vec<u8> =
            (0..width * height).flat_map(|i| [(i % width) as u8, (i / width) as u8, 7]).collect();
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        bytes
    }

    #[test]
    fn classes_and_files_are_sorted() {
        let root = tempfile::tempdir().unwrap();
        let small = gradient(2, 2);
        for name in ["dog/b.png", "dog/a.bmp", "dog/0/z.PNG", "cat/x.png", "cat/sub/y.jpg"] {
            let bytes = match name.rsplit('.').next() {
                Some("jpg") => fs::read(Path::new(FIXTURES).join("colour.jpg")).unwrap(),
                Some("bmp") => fs::read(Path::new(FIXTURES).join("runs.bmp")).unwrap(),
                _ => small.clone(),
            };
            save(root.path(), name, &bytes);
        }
        fs::write(root.path().join("cat/notes.txt"), "no image").unwrap();
        fs::write(root.path().join("readme.md"), "no class").unwrap();
        let data = ImageFolder::new(root.path(), 2).unwrap();
        assert_eq!(data.classes(), ["cat", "dog"]);
        let files: Vec<String> =
            data.files.iter().map(|(path, class)| format!("{} {class}", path.display())).collect();
        assert_eq!(
            files,
            ["cat/x.png 0", "cat/sub/y.jpg 0", "dog/a.bmp 1", "dog/b.png 1", "dog/0/z.PNG 1"]
        );
        assert_eq!(data.get(3).unwrap().1, 1);
        // A link to a folder is a folder.
        std::os::unix::fs::symlink("cat", root.path().join("tiger")).unwrap();
        let data = ImageFolder::new(root.path(), 2).unwrap();
        assert_eq!(data.classes(), ["cat", "dog", "tiger"]);
        assert_eq!(data.files[5], (PathBuf::from("tiger/x.png"), 2));
    }

    #[test]
    fn the_square_is_cut_around_the_centre_and_normalised() {
        let root = tempfile::tempdir().unwrap();
        save(root.path(), "a/wide.png", &gradient(11, 4));
        let data = ImageFolder::new(root.path(), 4).unwrap();
        let data = data.normalize([0.0, 0.5, 0.0], [1.0, 2.0, 1.0]);
        let (image, _) = data.get(0).unwrap();
        assert_eq!(image.shape(), [3, 4, 4]);
        let values = image.to_vec::<f32>();
        // (11 - 4) / 2 = 3.5, which rounds to the even 4.
        assert_eq!(values[..4], [4.0 / 255.0, 5.0 / 255.0, 6.0 / 255.0, 7.0 / 255.0]);
        assert_eq!(values[16 + 4], (1.0 / 255.0 - 0.5) / 2.0);
        assert_eq!(values[47], 7.0 / 255.0);
    }

    #[test]
    fn the_shorter_side_is_scaled() {
        let root = tempfile::tempdir().unwrap();
        save(root.path(), "a/tall.png", &gradient(40, 80));
        let data = ImageFolder::new(root.path(), 8).unwrap().resize(10).unwrap();
        let (image, _) = data.normalize([0.0; 3], [1.0; 3]).get(0).unwrap();
        let values = image.to_vec::<f32>();
        // Column 1 of 10 covers pixels 4 to 7; row 6 of 20 covers 24 to 27.
        assert!((values[0] * 255.0 - 5.5).abs() < 1.0, "{}", values[0] * 255.0);
        assert!((values[64] * 255.0 - 25.5).abs() < 1.0, "{}", values[64] * 255.0);
        let error = ImageFolder::new(root.path(), 8).unwrap().resize(7).unwrap_err().to_string();
        assert!(error.contains("at least size, which is 8"), "{error}");
    }

    #[test]
    fn squares_are_those_of_torchvision() {
        // After the 21 x 17 pixels of the image; see tools/golden/image_files.py.
        let mut start = 3 * 21 * 17;
        for (resize, size) in [(10, 8), (22, 14)] {
            let end = start + 3 * size as usize * size as usize;
            for name in ["colour.jpg", "progressive.jpg", "cmyk.jpg", "palette.png", "short.bmp"] {
                let root = tempfile::tempdir().unwrap();
                let path = Path::new(FIXTURES).join(name);
                save(root.path(), &format!("a/{name}"), &fs::read(&path).unwrap());
                let expected = fs::read(path.with_extension("rgb")).unwrap();
                let data = ImageFolder::new(root.path(), size).unwrap().resize(resize).unwrap();
                let square = data.load(&data.path(0)).unwrap();
                let expected = &expected[start..end];
                assert_eq!(square.len(), expected.len());
                let differences = square.iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
                let difference = differences.max().unwrap();
                println!("{name} {resize}: {difference}");
                // Scaling is exact, decoding a JPEG that is not baseline is not.
                let general = ["progressive.jpg", "cmyk.jpg"].contains(&name);
                let allowed = if general { 2 } else { 0 };
                assert!(difference <= allowed, "{name}, resize {resize}: {difference}");
            }
            start = end;
        }
    }

    #[test]
    fn a_transform_gets_what_it_would_of_the_whole_image() {
        crate::fork_rng(|| {
            use crate::data::transforms::{
                CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype, Transform,
            };
            let root = tempfile::tempdir().unwrap();
            let wide = fs::read(Path::new(FIXTURES).join("../jpeg/wide_420.jpg")).unwrap();
            save(root.path(), "a/wide.jpg", &wide);
            save(root.path(), "b/plain.png", &gradient(50, 40));
            save(
                root.path(),
                "c/progressive.jpg",
                &fs::read(Path::new(FIXTURES).join("progressive.jpg")).unwrap(),
            );
            let last = [
                ToDtype::new(crate::Dtype::F32, true).into(),
                Normalize::new(&[0.5, 0.4, 0.3], &[0.2, 0.3, 0.4]).unwrap().into(),
            ];
            let random = [
                RandomResizedCrop::new([12, 9]).unwrap().into(),
                RandomHorizontalFlip::new(0.5).unwrap().into(),
            ];
            let random = Compose::new(random.into_iter().chain(last.clone()));
            let middle = Compose::new([CenterCrop::new([11, 15]).into()].into_iter().chain(last));
            for transform in [random, middle] {
                let data = ImageFolder::with_transform(root.path(), transform.clone()).unwrap();
                for index in 0..data.len() {
                    let image = crate::data::datasets::read_image(data.path(index)).unwrap();
                    crate::manual_seed(index as u64);
                    let whole = transform.forward(&image).unwrap();
                    crate::manual_seed(index as u64);
                    let (made, class) = data.get(index).unwrap();
                    assert_eq!((made.shape(), class), (whole.shape(), index as i64));
                    assert_eq!(made.to_vec::<f32>(), whole.to_vec::<f32>());
                }
            }
            save(root.path(), "a/wide.jpg", &wide[..wide.len() / 2]);
            let large = Compose::new([CenterCrop::new([30, 200]).into()]);
            let data = ImageFolder::with_transform(root.path(), large).unwrap();
            let error = data.get(0).unwrap_err().to_string();
            assert!(error.contains("wide.jpg: cannot be decoded: it ends too early"), "{error}");
            let error =
                crate::catch(|| data.normalize([0.0; 3], [1.0; 3])).unwrap_err().to_string();
            assert!(error.contains("add Normalize there"), "{error}");
        });
    }

    #[test]
    fn a_line_of_pixels_becomes_a_square() {
        let root = tempfile::tempdir().unwrap();
        // 64 million pixels high when scaled.
        let line = [&b"P5 1 1000000 255\n"[..], &[9; 1_000_000]].concat();
        save(root.path(), "a/line.pgm", &line);
        let data = ImageFolder::new(root.path(), 64).unwrap();
        assert_eq!(data.load(&data.path(0)).unwrap(), [9; 3 * 64 * 64]);
    }

    #[test]
    fn errors_name_the_file_or_folder() {
        let root = tempfile::tempdir().unwrap();
        let fails = |expected: &str| {
            let error = ImageFolder::new(root.path(), 2).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        fails("no subfolder");
        fs::create_dir(root.path().join("empty")).unwrap();
        fails("empty: has no image");
        fs::write(root.path().join("empty/x.webp"), "").unwrap();
        fails("x.webp: images of this format are not supported");
        fs::rename(root.path().join("empty/x.webp"), root.path().join("empty/x.png")).unwrap();
        let error = ImageFolder::new(root.path(), 2).unwrap().get(0).unwrap_err().to_string();
        assert!(error.contains("x.png: cannot be decoded"), "{error}");
        let missing = ImageFolder::new(root.path().join("absent"), 2).unwrap_err().to_string();
        assert!(missing.contains("absent"), "{missing}");
    }
}
