//! Samples per second of the `DataLoader`, row by row as `peer_bench.py loader` measures PyTorch's:
//! a new loader per run, the first batch apart, then the time for the rest of the epoch.
//! `cargo bench --bench loader [-- part-of-a-row-name]`

use std::sync::OnceLock;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use torchrs::data::{DataLoader, Dataset};
use torchrs::{Dtype, Result, Tensor};

/// Images of ImageNet's size, filled with their number.
#[derive(Serialize, Deserialize)]
struct Big(usize);

impl Dataset for Big {
    type Sample = (Tensor, i64);
    fn len(&self) -> usize {
        self.0
    }
    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        Ok((Tensor::full([3, 224, 224], index as f64, Dtype::F32), index as i64 % 1000))
    }
}

/// Images of MNIST's size, scaled from bytes.
#[derive(Serialize, Deserialize)]
struct Tiny {
    len: usize,
    #[serde(skip)]
    images: OnceLock<Vec<u8>>,
}

impl Dataset for Tiny {
    type Sample = (Tensor, i64);
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let images = self.images.get_or_init(|| {
            (0..1024 * 784u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect()
        });
        let pixels = &images[index % 1024 * 784..][..784];
        let image: Vec<f32> = pixels.iter().map(|&p| f32::from(p) / 255.0).collect();
        Ok((Tensor::from_slice(&image, [1, 28, 28]), index as i64 % 10))
    }
}

/// Runs one row: `batches` batches of `batch_size`, four times.
fn row<D: Dataset>(
    name: &str,
    make: impl Fn() -> D,
    batch_size: usize,
    bytes: usize,
    workers: usize,
) {
    let name = format!("loader_{name}_workers{workers}");
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    if filter.is_some_and(|filter| !name.contains(&filter)) {
        return;
    }
    let (mut seconds, mut first) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let loader = DataLoader::builder(make())
            .batch_size(batch_size)
            .shuffle(true)
            .workers(workers)
            .build()
            .expect("a loader");
        let start = Instant::now();
        let mut batches = loader.iter();
        drop(batches.next().expect("a batch").expect("no error"));
        first.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let count = batches.inspect(|batch| assert!(batch.is_ok(), "no error")).count();
        seconds.push(start.elapsed().as_secs_f64() / count as f64);
    }
    seconds.sort_by(f64::total_cmp);
    first.sort_by(f64::total_cmp);
    let (least, median) = (seconds[0], seconds[seconds.len() / 2]);
    println!(
        "{}",
        serde_json::json!({
            "name": name, "threads": 1, "median_s": median, "min_s": least, "unit": "sample/s",
            "rate": (batch_size as f64 / least).round(), "batches_per_s": (1.0 / least).round(),
            "gb_s": (bytes as f64 / least / 1e7).round() / 100.0,
            "first_batch_ms": (first[0] * 1e4).round() / 10.0,
        })
    );
}

fn main() {
    torchrs::init();
    for workers in [0, 2] {
        row("3x224x224_b32", || Big(32 * 80), 32, 32 * 3 * 224 * 224 * 4, workers);
    }
    for workers in [0, 2] {
        let tiny = || Tiny { len: 64 * 600, images: OnceLock::new() };
        row("28x28_b64", tiny, 64, 64 * 784 * 4, workers);
    }
}
