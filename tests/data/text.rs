//! Tokenizers: trained, saved, and as part of a stream that worker processes read.

use std::fs;

use torchrs::data::stream::{IterableDataset, JsonLines, StreamLoader};
use torchrs::data::text::{BpeOptions, Tokenizer};

fn trained() -> Tokenizer {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "the cat sat on the mat; the dog sat too\n".repeat(50)).unwrap();
    let options = BpeOptions { vocab_size: 290, ..Default::default() };
    Tokenizer::train_bpe(&[file.path()], options).unwrap()
}

#[test]
fn texts_come_back_from_their_tokens() {
    let tokenizer = trained();
    // So short a text has fewer pairs than there is room for.
    assert!((258..=290).contains(&tokenizer.vocab_size()), "{}", tokenizer.vocab_size());
    assert_eq!(tokenizer.token_to_id("<|endoftext|>"), Some(0));
    for text in ["the cat sat", "naïve 猫 \n\t x", ""] {
        let tokens = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(&tokens, true).unwrap(), text);
    }
    assert!(tokenizer.encode("the cat sat on the mat", false).unwrap().len() < 10);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    tokenizer.save(&path).unwrap();
    let back = Tokenizer::from_file(&path).unwrap();
    let encode = |tokenizer: &Tokenizer| tokenizer.encode("the dog sat", false).unwrap();
    assert_eq!(encode(&back), encode(&tokenizer));
    let published = Tokenizer::from_pretrained(folder.path()).unwrap();
    assert_eq!(encode(&published), encode(&tokenizer));
    let older = tempfile::tempdir().unwrap();
    fs::write(older.path().join("vocab.txt"), "").unwrap();
    let error = Tokenizer::from_pretrained(older.path()).unwrap_err().to_string();
    assert!(error.contains("has vocab.txt, but no tokenizer.json"), "{error}");
    fs::write(&path, "{}").unwrap();
    assert!(Tokenizer::from_file(&path).unwrap_err().to_string().contains("is no tokenizer"));
    let error = tokenizer.decode(&[1, 9999], true).unwrap_err().to_string();
    assert!(error.contains("place 1 holds 9999"), "{error}");
    let small = BpeOptions { vocab_size: 200, ..Default::default() };
    assert!(Tokenizer::train_bpe(&[path], small).unwrap_err().to_string().contains("are 257"));
}

#[test]
fn workers_tokenize_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    fs::write(&path, "\"the cat\"\n\"the dog sat on the mat\"\n\"猫\"\n").unwrap();
    let tokenizer = trained();
    let expected = tokenizer.encode("the dog sat on the mat", true).unwrap();
    let texts = JsonLines::<String>::new(path).unwrap().apply(tokenizer);
    let loader = StreamLoader::builder(texts).batch_size(3).workers(1).build().unwrap();
    let batch = loader.iter().next().unwrap().unwrap();
    assert_eq!((batch.len(), batch.get(1).to_vec::<i64>()), (3, expected));
}
