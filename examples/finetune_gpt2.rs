//! Fine-tunes GPT-2 on a text of one's own: from a published folder (`config.json`, weights and `tokenizer.json`, with
//! `--features tokenizers`), or without any from a tiny GPT-2 that has just learned another text, letter by letter.
//!
//! ```text
//! cargo launch --nproc 2 finetune_gpt2 [FOLDER]
//! ```

use torchrs::models::{GPT2Config, GPT2LMHeadModel};
use torchrs::prelude::*;
use torchrs::train::Learner;

const BEFORE: &str = "the cat sat on the mat. the dog sat on the log. the hen sat on the pen. ";
const WINDOW: usize = 16;
const TEXT: &str = "a cat has a hat. a dog has a frog. a hen has a den. the mat is on the log. ";

/// Steps on windows of the tokens; the mean loss of the last five.
fn learn(learner: &mut Learner<GPT2LMHeadModel>, tokens: &[i64], steps: u64) -> Result<f64> {
    let batch = || {
        let starts = Tensor::randint(0, (tokens.len() - WINDOW) as i64 + 1, [16], Dtype::I64);
        let window = |start: i64| tokens[start as usize..][..WINDOW].to_vec();
        let rows: Vec<i64> = starts.to_vec::<i64>().into_iter().flat_map(window).collect();
        Ok(Tensor::from_slice(&rows, [16, WINDOW]))
    };
    let mut batches = (0..steps).map(|_| batch());
    let mut losses = Vec::new();
    while let Some(step) = learner.step(&mut batches, |net, x| net.loss(x, x))? {
        losses.push(step.loss);
    }
    let last = &losses[losses.len().saturating_sub(5)..];
    Ok(last.iter().sum::<f64>() / last.len() as f64)
}

#[cfg(feature = "tokenizers")]
fn tokens(folder: &str) -> Result<Vec<i64>> {
    torchrs::data::text::Tokenizer::from_file(format!("{folder}/tokenizer.json"))?
        .encode(TEXT, false)
}

#[cfg(not(feature = "tokenizers"))]
fn tokens(_: &str) -> Result<Vec<i64>> {
    Err(Error::config("FOLDER", "needs a tokenizer: build with --features tokenizers"))
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    manual_seed(0);
    let folder = std::env::args().nth(1);
    let letters = |text: &str| text.bytes().map(i64::from).cycle().take(400).collect::<Vec<_>>();
    let tiny = GPT2Config { vocab_size: 128, n_positions: 32, n_embd: 48, ..Default::default() };
    let tiny = GPT2Config { n_layer: 2, n_head: 4, ..tiny }.no_dropout();
    let net = match &folder {
        Some(folder) => GPT2LMHeadModel::from_pretrained(folder)?,
        None => GPT2LMHeadModel::new(tiny),
    };
    let options = optim::AdamWOptions { lr: 1e-3, ..Default::default() };
    let optimizer = optim::AdamW::new(net.parameters(), options);
    let mut learner = Learner::new(net, optimizer, &group)?.clip_norm(1.0);
    manual_seed(1 + group.rank() as u64);
    let tokens = match &folder {
        Some(folder) => tokens(folder)?,
        None => {
            learn(&mut learner, &letters(BEFORE), 100)?;
            letters(TEXT)
        }
    };
    learner.optimizer().set_lr(0, if folder.is_some() { 5e-5 } else { 1e-3 });
    let first = learn(&mut learner, &tokens, 1)?;
    let last = learn(&mut learner, &tokens, 80)?;
    if group.rank() == 0 {
        println!("loss {first:.3} on the new text at first, {last:.3} after");
    }
    let failed = || Error::Other(format!("{first} at first, {last} after: it has not learned"));
    if last < 0.5 * first { Ok(()) } else { Err(failed()) }
}
