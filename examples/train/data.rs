//! The data of `--data`, as one dataset type: an image with its class, or a window of text with the
//! bytes or tokens that follow.

use std::path::Path;

use serde::{Deserialize, Serialize};
use torchrs::data::datasets::{Digits, FashionMnist, ImageFolder, Synthetic, TextWindows};
use torchrs::data::stream::TokenType;
use torchrs::data::{Columns, Dataset, Sample, SampleWriter, Subset};
use torchrs::{Error, Result, Tensor};

use crate::args::Source;
use crate::settings::Settings;

/// Side of the square that images of `--data image-folder` are cut to.
const IMAGE_SIZE: u32 = 64;

#[derive(Serialize, Deserialize)]
pub enum Data {
    Digits(Digits),
    FashionMnist(FashionMnist),
    ImageFolder(ImageFolder),
    PartOfImageFolder(Subset<ImageFolder>),
    Synthetic(Synthetic),
    Text(TextWindows),
}

/// What a model has to fit.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Channels, height, width, and the number of classes.
    Images { channels: usize, height: usize, width: usize, classes: usize },
    /// Number of different tokens.
    Text { vocabulary: usize },
}

impl Data {
    /// The training and the validation part of what `--data` names, and its shape.
    pub fn open(settings: &Settings) -> Result<(Data, Data, Shape)> {
        let images = |channels, side, classes| Shape::Images {
            channels,
            height: side,
            width: side,
            classes,
        };
        Ok(match &settings.data {
            Source::Digits => (
                Data::Digits(Digits::train()),
                Data::Digits(Digits::validation()),
                images(1, 8, 10),
            ),
            Source::FashionMnist(folder) => (
                Data::FashionMnist(FashionMnist::train(folder)?.augment(true)),
                Data::FashionMnist(FashionMnist::test(folder)?),
                images(1, 28, 10),
            ),
            Source::ImageFolder(folder) => {
                let (training, validation, classes) = image_folder(folder)?;
                (training, validation, images(3, IMAGE_SIZE as usize, classes))
            }
            Source::Synthetic => {
                let part = |len, offset| Data::Synthetic(Synthetic::new(len).offset(offset));
                (part(8192, 0), part(1024, 8192), images(1, 28, 10))
            }
            Source::Text(file) => {
                let (training, validation) =
                    TextWindows::new(file, settings.context_length)?.split(0.05)?;
                (
                    Data::Text(training),
                    Data::Text(validation),
                    Shape::Text { vocabulary: TextWindows::VOCABULARY },
                )
            }
            Source::TokensU16(file) => tokens(settings, file, TokenType::U16)?,
            Source::TokensU32(file) => tokens(settings, file, TokenType::U32)?,
        })
    }
}

/// Windows of tokens, of which the model's settings say how many different ones there are.
fn tokens(settings: &Settings, file: &Path, token: TokenType) -> Result<(Data, Data, Shape)> {
    let Some(config) = &settings.config else {
        let message = "tokens need --model llama with --config FILE, which says how many different ones there are";
        return Err(Error::config("--data", message));
    };
    let vocabulary = config.vocab_size;
    let windows = TextWindows::of_tokens(file, token, settings.context_length)?;
    let (training, validation) = windows.vocabulary(vocabulary).split(0.05)?;
    Ok((Data::Text(training), Data::Text(validation), Shape::Text { vocabulary }))
}

/// `train/` and `val/` (or `test/`) below the folder if they are there; else every fifth image of the
/// folder is held back.
fn image_folder(folder: &Path) -> Result<(Data, Data, usize)> {
    let held_back =
        ["val", "test"].into_iter().map(|part| folder.join(part)).find(|path| path.is_dir());
    if let (true, Some(held_back)) = (folder.join("train").is_dir(), held_back) {
        let training = ImageFolder::new(folder.join("train"), IMAGE_SIZE)?;
        let classes = training.classes().len();
        let validation = ImageFolder::new(held_back, IMAGE_SIZE)?;
        return Ok((
            Data::ImageFolder(training.augment(true)),
            Data::ImageFolder(validation),
            classes,
        ));
    }
    let all = ImageFolder::new(folder, IMAGE_SIZE)?;
    let classes = all.classes().len();
    let (validation, training): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(|i| i % 5 == 4);
    let part = |set: ImageFolder, indices| Ok(Data::PartOfImageFolder(Subset::new(set, indices)?));
    Ok((part(all.clone().augment(true), training)?, part(all, validation)?, classes))
}

/// A sample of any of them; its batch is the pair (inputs, targets).
pub enum Item {
    Image(Tensor, i64),
    Text(Vec<i64>, Vec<i64>),
}

impl Sample for Item {
    type Batch = (Tensor, Tensor);

    fn write(&self, out: &mut SampleWriter) {
        match self {
            Item::Image(image, class) => {
                image.write(out);
                class.write(out);
            }
            Item::Text(tokens, next) => {
                tokens.write(out);
                next.write(out);
            }
        }
    }

    fn batch(columns: &mut Columns) -> (Tensor, Tensor) {
        (columns.tensor(), columns.tensor())
    }
}

impl Dataset for Data {
    type Sample = Item;

    fn len(&self) -> usize {
        match self {
            Data::Digits(d) => d.len(),
            Data::FashionMnist(d) => d.len(),
            Data::ImageFolder(d) => d.len(),
            Data::PartOfImageFolder(d) => d.len(),
            Data::Synthetic(d) => d.len(),
            Data::Text(d) => d.len(),
        }
    }

    fn get(&self, index: usize) -> Result<Item> {
        let image = |(image, class): (Tensor, i64)| Item::Image(image, class);
        match self {
            Data::Digits(d) => d.get(index).map(image),
            Data::FashionMnist(d) => d.get(index).map(image),
            Data::ImageFolder(d) => d.get(index).map(image),
            Data::PartOfImageFolder(d) => d.get(index).map(image),
            Data::Synthetic(d) => d.get(index).map(image),
            Data::Text(d) => d.get(index).map(|(tokens, next)| Item::Text(tokens, next)),
        }
    }
}
