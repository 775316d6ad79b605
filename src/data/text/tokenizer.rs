//! The `tokenizers` library behind what training needs.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use tokenizers::AddedToken;
use tokenizers::decoders::byte_level::ByteLevel as ByteLevelDecoder;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use crate::data::Ragged;
use crate::data::stream::Mapping;
use crate::error::{Context, Error, Result};

/// Text to tokens and back. It is serialised with all that it knows, so that it can be part of a dataset, and maps
/// the texts of a stream: `texts.apply(tokenizer)`.
///
/// ```
/// use torchrs::data::text::{BpeOptions, Tokenizer};
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// # let path = file.path();
/// std::fs::write(path, "low low low lower lowest\n".repeat(20)).unwrap();
/// let options = BpeOptions { vocab_size: 300, ..Default::default() };
/// let tokenizer = Tokenizer::train_bpe(&[path], options)?;
/// let tokens = tokenizer.encode("low lowest", false)?;
/// assert_eq!(tokenizer.decode(&tokens, true)?, "low lowest");
/// assert!(tokens.len() < 5);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone)]
pub struct Tokenizer(tokenizers::Tokenizer);

/// Options of [`Tokenizer::train_bpe`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpeOptions {
    /// Tokens in all, 256 bytes and the special ones among them (default: 30,000).
    pub vocab_size: usize,
    /// How often a pair occurs at least that becomes a token (default: 2).
    pub min_frequency: u64,
    /// Tokens that text never becomes unless it spells them, with the first numbers (default: `<|endoftext|>`).
    pub special_tokens: Vec<String>,
}

impl Default for BpeOptions {
    fn default() -> Self {
        BpeOptions {
            vocab_size: 30_000,
            min_frequency: 2,
            special_tokens: vec!["<|endoftext|>".to_owned()],
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer of {} tokens", self.vocab_size())
    }
}

impl Tokenizer {
    /// The tokenizer of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`Error::Os`] when the file cannot be read, [`Error::File`] when it is none.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let json = fs::read(path).context(|| format!("open {}", path.display()))?;
        let made = tokenizers::Tokenizer::from_bytes(json);
        made.map(Tokenizer).map_err(|e| Error::file(path, format!("is no tokenizer: {e}")))
    }

    /// The tokenizer of a folder as Hugging Face publishes it: its `tokenizer.json`.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file); [`Error::File`] for a folder with older files alone (`vocab.json`,
    /// `vocab.txt`, `tokenizer.model`), which are not read.
    pub fn from_pretrained(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join("tokenizer.json");
        let older = ["vocab.json", "vocab.txt", "tokenizer.model", "spiece.model"];
        let older = older.iter().find(|name| folder.join(name).exists());
        if let Some(older) = older.filter(|_| !path.exists()) {
            let what = format!(
                "has {older}, but no tokenizer.json; `AutoTokenizer.from_pretrained(..).save_pretrained(..)` of \
                 transformers writes one"
            );
            return Err(Error::file(folder, what));
        }
        Self::from_file(path)
    }

    /// Writes a `tokenizer.json`.
    ///
    /// # Errors
    /// [`Error::Os`] when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let json = self.0.to_string(true).map_err(|e| Error::Other(format!("Tokenizer: {e}")))?;
        fs::write(path, json).context(|| format!("write {}", path.display()))
    }

    /// Byte-pair encoding of bytes, as GPT-2 has it, trained on files of text.
    ///
    /// # Errors
    /// [`Error::Os`] when a file cannot be read, [`Error::Argument`] when there is none, or the vocabulary has no
    /// room for bytes and special tokens.
    pub fn train_bpe<P: AsRef<Path>>(files: &[P], options: BpeOptions) -> Result<Self> {
        let op = "Tokenizer::train_bpe";
        if files.is_empty() {
            return Err(Error::argument(op, "files", "are none, must be some"));
        }
        let least = 256 + options.special_tokens.len();
        if options.vocab_size < least {
            let message =
                format!("is {}, bytes and special tokens are {least}", options.vocab_size);
            return Err(Error::argument(op, "vocab_size", message));
        }
        let mut texts = Vec::with_capacity(files.len());
        for file in files.iter().map(|file| file.as_ref()) {
            let what = || format!("read {}", file.display());
            fs::metadata(file).context(what)?;
            let name = file.to_str().ok_or_else(|| Error::file(file, "its name is not UTF-8"))?;
            texts.push(name.to_owned());
        }
        let special = options.special_tokens.iter().map(|token| AddedToken::from(token, true));
        let trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(options.vocab_size)
            .min_frequency(options.min_frequency)
            .special_tokens(special.collect())
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build();
        let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        tokenizer.with_decoder(Some(ByteLevelDecoder::default()));
        let trained = tokenizer.train_from_files(&mut TrainerWrapper::from(trainer), texts);
        trained.map_err(|error| Error::Other(format!("{op}: {error}")))?;
        Ok(Tokenizer(tokenizer))
    }

    /// How many tokens there are, special ones too.
    pub fn vocab_size(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    /// The number of a token, if it is one.
    pub fn token_to_id(&self, token: &str) -> Option<i64> {
        self.0.token_to_id(token).map(i64::from)
    }

    /// The tokens of a text; with `add_special_tokens` those that the tokenizer puts around it.
    ///
    /// # Errors
    /// [`Error::Other`] in the library's words.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<i64>> {
        let encoding = self.0.encode(text, add_special_tokens);
        let encoding = encoding.map_err(|e| Error::Other(format!("Tokenizer::encode: {e}")))?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }

    /// The text of some tokens, without the special ones with `skip_special_tokens`.
    ///
    /// # Errors
    /// [`Error::Argument`] when a number is no token's.
    pub fn decode(&self, tokens: &[i64], skip_special_tokens: bool) -> Result<String> {
        let wrong = |message| Err(Error::argument("Tokenizer::decode", "tokens", message));
        let mut ids = Vec::with_capacity(tokens.len());
        for (place, &token) in tokens.iter().enumerate() {
            match u32::try_from(token).ok().filter(|id| self.0.id_to_token(*id).is_some()) {
                Some(id) => ids.push(id),
                None => return wrong(format!("place {place} holds {token}, which is no token")),
            }
        }
        match self.0.decode(&ids, skip_special_tokens) {
            Ok(text) => Ok(text),
            Err(error) => wrong(error.to_string()),
        }
    }
}

impl Mapping<String> for Tokenizer {
    type Output = Ragged;
    /// The tokens of a text, with those that the tokenizer puts around it.
    fn map(&self, text: String) -> Result<Ragged> {
        Ok(Ragged::from(self.encode(&text, true)?))
    }
}

impl Serialize for Tokenizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_string(false).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tokenizer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = String::deserialize(deserializer)?;
        tokenizers::Tokenizer::from_bytes(json).map(Tokenizer).map_err(D::Error::custom)
    }
}
