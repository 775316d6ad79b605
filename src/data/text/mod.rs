//! Text as tokens: Hugging Face's tokenizers, loaded from `tokenizer.json` or trained.

mod tokenizer;

pub use tokenizer::{BpeOptions, Tokenizer};
