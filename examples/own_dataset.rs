//! A dataset of one's own: a description that can be serialised, and `get(index)`. Loader workers are processes, which
//! receive the description. Here two spirals, whose points are moved at random in each epoch.
//!
//! ```text
//! cargo launch --nproc 2 own_dataset
//! ```

use std::f32::consts::TAU;

use serde::{Deserialize, Serialize};
use torchrs::data::sample_random;
use torchrs::prelude::*;
use torchrs::train::Learner;
use torchrs::train::metrics::{Accuracy, Metric};

const EPOCHS: u64 = 12;

#[derive(Serialize, Deserialize)]
struct Spirals {
    len: usize,
    /// How far points are moved at most: augmentation.
    shake: f32,
}

impl Dataset for Spirals {
    /// A point and its spiral; a batch is a tensor of each.
    type Sample = (Tensor, i64);

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let spiral = index % 2;
        let t = (index / 2 + 1) as f32 / (self.len / 2) as f32;
        let angle = TAU * (1.25 * t + spiral as f32 / 2.0);
        // The same numbers for any number of workers: they belong to the epoch and the sample.
        let mut random = sample_random(index);
        let mut moved = |x: f32| x + self.shake * (2.0 * random.uniform() - 1.0);
        Ok((Tensor::from([moved(t * angle.cos()), moved(t * angle.sin())]), spiral as i64))
    }
}

#[torchrs::main]
fn main() -> Result<()> {
    let group = distributed::init_process_group(Default::default())?;
    let (rank, world) = (group.rank(), group.world_size());
    manual_seed(0);
    let data = Spirals { len: 2000, shake: 0.03 };
    let data = DataLoader::builder(data).batch_size(64 / world).shuffle(true);
    let data = data.ranks(world, rank).workers(2).build()?;
    let test = Spirals { len: 501, shake: 0.0 };
    let test = DataLoader::builder(test).batch_size(100).ranks(world, rank).build()?;
    let net = nn::Sequential::new().append(nn::Linear::new(2, 64)).append(nn::ReLU);
    let net = net.append(nn::Linear::new(64, 64)).append(nn::ReLU).append(nn::Linear::new(64, 2));
    let options = optim::AdamWOptions { lr: 0.01, ..Default::default() };
    let optimizer = optim::AdamW::new(net.parameters(), options);
    let mut learner = Learner::new(net, optimizer, &group)?;
    while learner.epoch() < EPOCHS {
        learner.train_epoch(&data, |net, (x, y)| F::cross_entropy(&net.forward(x), y))?;
    }
    let mut accuracy = Accuracy::new();
    learner.evaluate(&test, |net, (x, y)| accuracy.update(&net.forward(x), y))?;
    let right = accuracy.compute(&group)?;
    if rank == 0 {
        println!("{right:.3} of the points are on the spiral that the network says");
    }
    let failed = || Error::Other(format!("accuracy {right}: it has not learned"));
    if right > 0.95 { Ok(()) } else { Err(failed()) }
}
