//! Rows per second of Parquet files, as `tools/bench/peer_images.py` measures pyarrow with PyTorch's loader. Two worker
//! processes. `_cpu`: processor seconds of a pass.
//! `cargo bench --features parquet --bench parquet`

#[path = "common/passes.rs"]
mod passes;

use serde::Deserialize;
use torchrs::Tensor;
use torchrs::data::stream::{IterableDataset, Parquet, StreamLoader};

#[derive(Deserialize)]
struct Row {
    features: Vec<f32>,
    label: i64,
}

fn main() {
    torchrs::init();
    let files = passes::folder().join("parquet").join("part-{0000..0003}.parquet");
    let rows = Parquet::<Row>::new(files.to_str().expect("UTF-8")).expect("files");
    let samples =
        rows.map(|row| Ok((Tensor::from_slice(&row.features, [row.features.len()]), row.label)));
    let loader = StreamLoader::builder(samples).batch_size(256).drop_last(true).workers(2);
    let loader = loader.build().expect("a loader");
    passes::row("parquet_workers2", 100_000 - 256, || loader.iter());
}
