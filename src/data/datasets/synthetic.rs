//! Images that are computed: each class has a bright Gaussian blob at a place of its own, under
//! noise. For benchmarks and demonstrations without data; learnable, but not trivially.

use serde::{Deserialize, Serialize};

use crate::cpu::numbers::philox::PhiloxStream;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Blobs in noise; a sample is (image `[channels, height, width]` f32, label). Sample `i` is a pure
/// function of the seed and `offset + i`.
///
/// ```
/// use torchrs::data::{Dataset, datasets::Synthetic};
/// let problem = Synthetic::new(100).classes(4)?.shape([3, 9, 7]);
/// let (image, label) = problem.get(6)?;
/// assert_eq!((image.shape(), label), (&[3, 9, 7][..], 2));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Synthetic {
    len: usize,
    classes: usize,
    shape: [usize; 3],
    noise: f32,
    seed: u64,
    offset: usize,
}

impl Synthetic {
    /// `len` samples of 10 classes, `[1, 28, 28]`, noise 0.5, seed 0.
    pub fn new(len: usize) -> Self {
        Synthetic { len, classes: 10, shape: [1, 28, 28], noise: 0.5, seed: 0, offset: 0 }
    }

    /// Number of classes; sample `i` has class `(offset + i) % classes`.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::Synthetic};
    /// assert_eq!(Synthetic::new(100).classes(4)?.get(13)?.1, 1);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when it is 0.
    pub fn classes(mut self, classes: usize) -> Result<Self> {
        if classes == 0 {
            return Err(Error::argument("Synthetic::classes", "classes", "is 0, must be >= 1"));
        }
        self.classes = classes;
        Ok(self)
    }

    /// Channels, height and width.
    #[must_use]
    pub fn shape(mut self, shape: [usize; 3]) -> Self {
        self.shape = shape;
        self
    }

    /// Standard deviation of the noise; the blobs are 1 high.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::Synthetic};
    /// let (clean, noisy) = (Synthetic::new(100).noise(0.0), Synthetic::new(100).noise(0.1));
    /// assert!(clean.get(3)?.0.equal(&clean.get(13)?.0));
    /// assert!(!noisy.get(3)?.0.equal(&noisy.get(13)?.0));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn noise(mut self, noise: f32) -> Self {
        self.noise = noise;
        self
    }

    /// Seed of the noise and of the blobs' places.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Number of the first sample. Two parts of one problem (training, validation) have the same
    /// seed, and the second one the first one's length as its offset.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::Synthetic};
    /// let (train, validation) = (Synthetic::new(1000), Synthetic::new(100).offset(1000));
    /// assert!(!validation.get(0)?.0.equal(&train.get(0)?.0));
    /// assert!(validation.get(7)?.0.equal(&Synthetic::new(1100).get(1007)?.0));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn offset(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// The blob of a class: its centre in 0..1, and its strength in each channel.
    fn blob(&self, class: usize) -> ([f32; 2], Vec<f32>) {
        // Streams from the top are the classes', those from 0 on the samples'.
        let mut random = PhiloxStream::new(self.seed, u64::MAX - class as u64);
        let centre = [0.15 + 0.7 * random.uniform(), 0.15 + 0.7 * random.uniform()];
        (centre, (0..self.shape[0]).map(|_| 0.5 + 0.5 * random.uniform()).collect())
    }
}

impl Dataset for Synthetic {
    type Sample = (Tensor, i64);

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let index = self.offset + index;
        let class = index % self.classes;
        let (centre, strengths) = self.blob(class);
        let [channels, height, width] = self.shape;
        // A tenth of the image wide; exp(-(dx^2 + dy^2) / 2 sigma^2) is a product.
        let bell = |place: usize, size: usize, centre: f32| {
            let distance = (place as f32 + 0.5) / size as f32 - centre;
            (-distance * distance / 0.02).exp()
        };
        let rows: Vec<f32> = (0..height).map(|y| bell(y, height, centre[0])).collect();
        let columns: Vec<f32> = (0..width).map(|x| bell(x, width, centre[1])).collect();
        let mut random = PhiloxStream::new(self.seed, index as u64);
        let mut pixels = Vec::with_capacity(channels * height * width + 1);
        for strength in strengths {
            pixels.extend(rows.iter().flat_map(|r| columns.iter().map(move |c| strength * r * c)));
        }
        for pair in pixels.chunks_mut(2) {
            for (pixel, noise) in pair.iter_mut().zip(random.normal_pair()) {
                *pixel += self.noise * noise;
            }
        }
        Ok((Tensor::from_slice(&pixels, self.shape), class as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_reproducible_and_differ() {
        let data = Synthetic::new(100).shape([3, 9, 7]).classes(4).unwrap();
        let (a, label) = data.get(5).unwrap();
        assert_eq!((a.shape(), label), (&[3, 9, 7][..], 1));
        let values = |data: &Synthetic, i| data.get(i).unwrap().0.to_vec::<f32>();
        assert_eq!(values(&data, 5), a.to_vec::<f32>());
        assert_eq!(values(&data.clone().offset(3), 2), a.to_vec::<f32>());
        assert_ne!(values(&data, 9), a.to_vec::<f32>());
        assert_ne!(values(&data.clone().seed(1), 5), a.to_vec::<f32>());
    }

    #[test]
    fn classes_can_be_told_apart() {
        let data = Synthetic::new(200).noise(0.3);
        let clean = Synthetic::new(10).noise(0.0);
        let patterns: Vec<Vec<f32>> = (0..10).map(|c| clean.get(c).unwrap().0.to_vec()).collect();
        let right = (0..200).filter(|&i| {
            let (image, label) = data.get(i).unwrap();
            let image = image.to_vec::<f32>();
            let distance = |p: &Vec<f32>| p.iter().zip(&image).map(|(a, b)| (a - b).powi(2)).sum();
            let distances: Vec<f32> = patterns.iter().map(distance).collect();
            let nearest = distances.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            nearest.0 as i64 == label
        });
        assert!(right.count() > 190);
    }
}
