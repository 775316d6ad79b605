//! Samples per second of image and token data, as `tools/bench/peer_images.py` measures PyTorch's: JPEG files in a folder
//! and in tar shards, each cropped at random to 224 x 224, mirrored and normalised; windows of a file of tokens. Two worker
//! processes. `_cpu`: processor seconds of a pass.
//! `cargo bench --bench images [-- part-of-a-row-name]`

#[path = "common/passes.rs"]
mod passes;

use torchrs::Dtype;
use torchrs::data::DataLoader;
use torchrs::data::datasets::{ImageFolder, decode_and_transform};
use torchrs::data::stream::{IterableDataset, StreamLoader, TokenFiles, TokenType, WebDataset};
use torchrs::data::transforms::{
    Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype,
};

const IMAGES: usize = 2000;
const BATCH: usize = 32;
const WINDOW: usize = 1024;

fn transform() -> Compose {
    let crop = RandomResizedCrop::new([224, 224]).expect("a size");
    let flip = RandomHorizontalFlip::new(0.5).expect("a probability");
    let normalize = Normalize::new(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]);
    Compose::new([
        crop.into(),
        flip.into(),
        ToDtype::new(Dtype::F32, true).into(),
        normalize.expect("three of both").into(),
    ])
}

fn main() {
    torchrs::init();
    let folder = passes::folder();
    let samples = IMAGES / BATCH * BATCH - BATCH;
    let jpeg = || ImageFolder::with_transform(folder.join("jpeg"), transform()).expect("a folder");
    let loader = || {
        let loader = DataLoader::builder(jpeg()).batch_size(BATCH).shuffle(true).drop_last(true);
        loader.workers(2).build().expect("a loader")
    };
    if passes::wants("images_jpeg_workers2") {
        let loader = loader();
        passes::row("images_jpeg_workers2", samples, || loader.iter());
    }
    if passes::wants("images_tar_workers2") {
        let shards = folder.join("tar").join("shard-{0000..0003}.tar");
        let shards = WebDataset::new(shards.to_str().expect("UTF-8")).expect("shards");
        let images = shards.shuffle(256).expect("a size").map(|sample| {
            thread_local!(static TRANSFORM: Compose = transform());
            let image = TRANSFORM.with(|t| decode_and_transform(sample.bytes("jpg")?, t))?;
            Ok((image, sample.text("cls")?.trim().parse::<i64>().expect("a class")))
        });
        let loader = StreamLoader::builder(images).batch_size(BATCH).drop_last(true).workers(2);
        let loader = loader.build().expect("a loader");
        passes::row("images_tar_workers2", samples, || loader.iter());
    }
    if passes::wants("tokens_workers2") {
        let tokens = folder.join("tokens.bin");
        let count = std::fs::metadata(&tokens).expect("it is there").len() as usize / 2 / WINDOW;
        let windows = TokenFiles::new(tokens, TokenType::U16, WINDOW).expect("tokens");
        let loader = StreamLoader::builder(windows).batch_size(16).drop_last(true).workers(2);
        let loader = loader.build().expect("a loader");
        passes::row("tokens_workers2", count / 16 * 16 - 16, || loader.iter());
    }
}
