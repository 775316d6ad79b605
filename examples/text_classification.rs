//! Text classification with an embedding bag (Joulin et al., "Bag of Tricks for Efficient Text Classification", 2016): which
//! language is it? A text is its groups of three letters, of which texts have different numbers (`Ragged`).
//!
//! ```text
//! cargo launch --nproc 2 text_classification
//! ```

use serde::{Deserialize, Serialize};
use torchrs::data::{Ragged, RaggedBatch};
use torchrs::prelude::*;
use torchrs::train::Learner;
use torchrs::train::metrics::{Accuracy, Metric};

const BUCKETS: usize = 4096;
const TEXTS: [&str; 4] = [
    "all human beings are born free and equal in dignity and rights they are endowed with reason and \
     conscience and should act towards one another in a spirit of brotherhood everyone has the right to life",
    "alle menschen sind frei und gleich an würde und rechten geboren sie sind mit vernunft und gewissen \
     begabt und sollen einander im geist der brüderlichkeit begegnen jeder hat das recht auf leben und freiheit",
    "tous les êtres humains naissent libres et égaux en dignité et en droits ils sont doués de raison et de \
     conscience et doivent agir les uns envers les autres dans un esprit de fraternité tout individu a droit",
    "todos los seres humanos nacen libres e iguales en dignidad y derechos y dotados como están de razón y \
     conciencia deben comportarse fraternalmente los unos con los otros todo individuo tiene derecho a la vida",
];

/// Pieces of three to six words, one from each word of a text on.
#[derive(Serialize, Deserialize)]
struct Pieces {
    from: usize,
    len: usize,
}

impl Dataset for Pieces {
    type Sample = (Ragged, i64);

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<(Ragged, i64)> {
        let (language, place) = (index % 4, self.from + index / 4);
        let words = TEXTS[language].split(' ').skip(place).take(3 + place % 4);
        let letters: Vec<char> = words.flat_map(|word| word.chars().chain([' '])).collect();
        let bucket =
            |group: &[char]| group.iter().fold(7, |h, c| (h * 131 + *c as usize) % BUCKETS);
        let groups: Vec<i64> = letters.windows(3).map(|group| bucket(group) as i64).collect();
        Ok((Ragged::from(groups), language as i64))
    }
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    manual_seed(0);
    let data = DataLoader::builder(Pieces { from: 0, len: 80 }).batch_size(8).shuffle(true);
    let data = data.ranks(world, rank).build()?;
    let test = DataLoader::builder(Pieces { from: 24, len: 32 }).batch_size(8);
    let test = test.ranks(world, rank).build()?;
    let bag = nn::EmbeddingBag::new(BUCKETS, 4).include_last_offset();
    let options = optim::AdamOptions { lr: 0.05, ..Default::default() };
    let optimizer = optim::Adam::new(bag.parameters(), options);
    let mut learner = Learner::new(bag, optimizer, &group)?;
    let logits = |bag: &nn::EmbeddingBag, text: &RaggedBatch| {
        bag.forward(text.values(), Some(text.offsets()), None)
    };
    while learner.epoch() < 10 {
        learner.train_epoch(&data, |bag, (x, y)| F::cross_entropy(&logits(bag, x), y))?;
    }
    let mut accuracy = Accuracy::new();
    learner.evaluate(&test, |bag, (x, y)| accuracy.update(&logits(bag, x), y))?;
    let right = accuracy.compute(&group)?;
    if rank == 0 {
        println!("the language of {right:.3} of the new pieces is named rightly");
    }
    let failed = || Error::Other(format!("accuracy {right}: it has not learned"));
    if right > 0.8 { Ok(()) } else { Err(failed()) }
}
