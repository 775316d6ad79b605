//! The `DataLoader` with real worker processes: order, collation, memory, resuming in mid-epoch.
//! What it does when things go wrong is in `loader_faults.rs`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchrs::data::{
    Blob, Columns, DataLoader, Dataset, DistributedSampler, LoaderState, Sample, SampleWriter,
    sample_random, sample_seed, worker_info,
};
use torchrs::{Dtype, Error, Result, Tensor};

/// Far more than a loaded machine needs for anything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sample `i`: (a tensor of three numbers, `i`).
#[derive(Clone, Serialize, Deserialize)]
struct Plain {
    len: usize,
}

impl Dataset for Plain {
    type Sample = (Tensor, i64);
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let x = index as f32;
        Ok((Tensor::from_slice(&[x, x + 0.25, -x], [3]), index as i64))
    }
}

/// The labels of every batch.
fn labels(batches: impl Iterator<Item = Result<(Tensor, Tensor)>>) -> Vec<Vec<i64>> {
    batches.map(|batch| batch.unwrap().1.to_vec()).collect()
}

fn epoch(loader: &DataLoader<Plain>) -> Vec<Vec<i64>> {
    labels(loader.iter())
}

#[test]
fn batches_hold_the_samples_in_order_whatever_the_number_of_workers() {
    for workers in [0, 1, 3] {
        let loader = DataLoader::builder(Plain { len: 23 })
            .batch_size(5)
            .workers(workers)
            .timeout(PATIENCE)
            .build()
            .unwrap();
        assert_eq!(loader.len(), 5);
        for _ in 0..3 {
            let mut index = 0;
            for batch in &loader {
                let (x, y) = batch.unwrap();
                let n = 5.min(23 - index);
                assert_eq!((x.shape(), y.shape()), (&[n, 3][..], &[n][..]));
                let expected: Vec<f32> = (index..index + n)
                    .flat_map(|i| [i as f32, i as f32 + 0.25, -(i as f32)])
                    .collect();
                assert_eq!(x.to_vec::<f32>(), expected);
                assert_eq!(
                    y.to_vec::<i64>(),
                    (index as i64..(index + n) as i64).collect::<Vec<_>>()
                );
                assert_eq!(x.data_ptr() as usize % 64, 0);
                index += n;
            }
            assert_eq!(index, 23);
        }
    }
}

#[test]
fn shuffled_epochs_are_the_same_for_any_number_of_workers() {
    let epochs = |workers, seed| {
        let loader = DataLoader::builder(Plain { len: 100 })
            .batch_size(8)
            .shuffle(true)
            .seed(seed)
            .drop_last(true)
            .workers(workers)
            .build()
            .unwrap();
        [epoch(&loader), epoch(&loader), epoch(&loader)]
    };
    let reference = epochs(0, 7);
    assert_eq!(reference, epochs(2, 7));
    assert_ne!(reference, epochs(0, 8));
    assert_ne!(reference[0], reference[1]);
    assert!(reference.iter().all(|e| e.len() == 12 && e.iter().all(|batch| batch.len() == 8)));
    let loader = DataLoader::builder(Plain { len: 100 }).batch_size(8).shuffle(true).seed(7);
    let loader = loader.drop_last(true).workers(1).build().unwrap();
    loader.set_epoch(2);
    assert_eq!(epoch(&loader), reference[2]);
    loader.set_epoch(1);
    assert_eq!(epoch(&loader), reference[1]);
}

#[test]
fn the_ranks_of_a_distributed_sampler_share_an_epoch() {
    let mut all: Vec<i64> = Vec::new();
    for rank in 0..3 {
        let sampler = DistributedSampler::new(30, 3, rank).unwrap();
        let builder = DataLoader::builder(Plain { len: 30 }).sampler(sampler).batch_size(4);
        let loader = builder.workers(1).build().unwrap();
        all.extend(epoch(&loader).concat());
    }
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<i64>>());
}

// ---- collation

struct Record {
    name: String,
    raw: Blob,
    images: Vec<Tensor>,
    flag: bool,
    scores: Vec<f32>,
    pair: [i32; 2],
}

struct Records {
    names: Vec<String>,
    raw: Vec<Blob>,
    images: Vec<Tensor>,
    flags: Tensor,
    scores: Tensor,
    pairs: Tensor,
}

impl Sample for Record {
    type Batch = Records;
    fn write(&self, out: &mut SampleWriter) {
        self.name.write(out);
        self.raw.write(out);
        self.images.write(out);
        self.flag.write(out);
        self.scores.write(out);
        self.pair.write(out);
    }
    fn batch(columns: &mut Columns) -> Records {
        Records {
            names: String::batch(columns),
            raw: Blob::batch(columns),
            images: Vec::<Tensor>::batch(columns),
            flags: bool::batch(columns),
            scores: Vec::<f32>::batch(columns),
            pairs: <[i32; 2]>::batch(columns),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct AllKinds;

impl Dataset for AllKinds {
    type Sample = Record;
    fn len(&self) -> usize {
        64
    }
    fn get(&self, index: usize) -> Result<Record> {
        let image = Tensor::from_slice(&[index as u8, 1, 2, 3, 4, 5], [2, 3]);
        Ok(Record {
            name: "x".repeat(index),
            // Grows, so that slots become too small in the middle of a batch, several times.
            raw: Blob(vec![index as u8; index * index * 40]),
            images: vec![image.transpose(0, 1), Tensor::from_slice(&[index as f64], [])],
            flag: index % 2 == 1,
            scores: vec![index as f32; 3],
            pair: [index as i32, -1],
        })
    }
}

#[test]
fn every_kind_of_field_arrives() {
    for workers in [0, 2] {
        let loader = DataLoader::builder(AllKinds).batch_size(5).workers(workers).build().unwrap();
        let mut kept = Vec::new();
        for (k, batch) in loader.iter().enumerate() {
            let batch = batch.unwrap();
            let indices: Vec<usize> = (k * 5..(k * 5 + 5).min(64)).collect();
            let n = indices.len();
            assert_eq!(batch.images[0].shape(), [n, 3, 2]);
            assert_eq!(batch.images[1].shape(), [n]);
            assert_eq!(batch.scores.shape(), [n, 3]);
            assert_eq!(batch.pairs.shape(), [n, 2]);
            for (row, &i) in indices.iter().enumerate() {
                assert_eq!(batch.names[row].len(), i);
                assert_eq!(batch.raw[row].0, vec![i as u8; i * i * 40]);
            }
            kept.push((indices, batch));
        }
        // All batches are still what they were, although memory was used again and replaced.
        for (indices, batch) in kept {
            let image: Vec<u8> = indices.iter().flat_map(|&i| [i as u8, 3, 1, 4, 2, 5]).collect();
            assert_eq!(batch.images[0].to_vec::<u8>(), image);
            let numbers: Vec<i64> = indices.iter().map(|&i| i as i64).collect();
            assert_eq!(batch.images[1].to_vec::<i64>(), numbers);
            assert_eq!(batch.scores.to_vec::<i64>()[2], numbers[0]);
            let flags: Vec<i64> = numbers.iter().map(|i| i % 2).collect();
            assert_eq!(batch.flags.to_vec::<i64>(), flags);
            let pairs: Vec<i64> = numbers.iter().flat_map(|&i| [i, -1]).collect();
            assert_eq!(batch.pairs.to_vec::<i64>(), pairs);
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Ragged;

impl Dataset for Ragged {
    type Sample = Tensor;
    fn len(&self) -> usize {
        10
    }
    fn get(&self, index: usize) -> Result<Tensor> {
        Ok(Tensor::zeros([4, 4 + index / 8], torchrs::Dtype::F32))
    }
}

#[test]
fn samples_that_do_not_fit_together_are_named_with_both_shapes() {
    for workers in [0, 1] {
        let loader = DataLoader::builder(Ragged).batch_size(5).workers(workers).build().unwrap();
        let mut batches = loader.iter();
        assert_eq!(batches.next().unwrap().unwrap().shape(), [5, 4, 4]);
        let error = batches.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Dataset { index: 8, .. }), "{error}");
        let message = error.to_string();
        for part in ["index 8", "f32 [4, 5]", "f32 [4, 4]", "first sample, index 5"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

// ---- memory

#[test]
fn batches_that_the_user_keeps_are_not_overwritten_and_block_nothing() {
    let loader = DataLoader::builder(Plain { len: 400 }).batch_size(2).workers(2);
    let loader = loader.timeout(PATIENCE).build().unwrap();
    let kept: Vec<(Tensor, Tensor)> = loader.iter().map(|batch| batch.unwrap()).collect();
    for (k, (x, y)) in kept.iter().enumerate() {
        assert_eq!(y.to_vec::<i64>(), [2 * k as i64, 2 * k as i64 + 1]);
        assert_eq!(x.to_vec::<f32>()[3], 2.0 * k as f32 + 1.0);
    }
    // They also outlive the loader and its workers.
    let (x, _) = kept.into_iter().next_back().unwrap();
    drop(loader);
    assert_eq!(x.to_vec::<f32>()[0], 398.0);
}

#[test]
fn memory_is_used_again_when_the_last_tensor_is_dropped() {
    for workers in [0, 1] {
        let loader = DataLoader::builder(Plain { len: 300 }).batch_size(1).workers(workers);
        let loader = loader.build().unwrap();
        let mut places = std::collections::HashSet::new();
        for batch in &loader {
            places.insert(batch.unwrap().0.data_ptr() as usize);
        }
        assert!(places.len() <= 8, "{} places for 300 batches", places.len());
    }
}

// ---- resuming (row 41)

#[test]
fn resuming_in_mid_epoch_repeats_and_drops_nothing() {
    let make = |workers| {
        DataLoader::builder(Plain { len: 50 })
            .batch_size(4)
            .shuffle(true)
            .seed(3)
            .workers(workers)
            .build()
            .unwrap()
    };
    let reference: Vec<Vec<i64>> = {
        let loader = make(0);
        (0..3).flat_map(|_| epoch(&loader)).collect()
    };
    let per_epoch = 13;
    // Interrupted twice in one epoch, at its last batch, after its end, and in the next epoch.
    let stops = [0, 3, 7, per_epoch, per_epoch + 5, 2 * per_epoch, 3 * per_epoch];
    let mut seen: Vec<Vec<i64>> = Vec::new();
    let mut state: Option<LoaderState> = None;
    for (k, &stop) in stops.iter().enumerate() {
        let loader = make([2, 0, 1, 3][k % 4]);
        if let Some(state) = &state {
            // A seed of its own is overruled by the state's.
            let json = serde_json::to_string(state).unwrap();
            loader.load_state_dict(&serde_json::from_str(&json).unwrap()).unwrap();
        }
        while seen.len() < stop {
            let mut batches = loader.iter();
            while seen.len() < stop {
                match batches.next() {
                    Some(batch) => seen.push(batch.unwrap().1.to_vec()),
                    None => break,
                }
            }
        }
        state = Some(loader.state_dict());
    }
    assert_eq!(seen, reference);
}

#[test]
fn a_state_after_the_end_continues_with_the_next_epoch_or_as_the_loop_says() {
    let make =
        || DataLoader::builder(Plain { len: 10 }).batch_size(3).shuffle(true).build().unwrap();
    let loader = make();
    let epochs: Vec<_> = (0..3).map(|_| epoch(&loader)).collect();
    let loader = make();
    epoch(&loader);
    let state = loader.state_dict();
    assert_eq!((state.epoch, state.position, state.finished), (0, 10, true));
    // A loop that only iterates.
    let resumed = make();
    resumed.load_state_dict(&state).unwrap();
    assert_eq!(epoch(&resumed), epochs[1]);
    // A loop over epochs that starts at the saved one, or at the next.
    resumed.load_state_dict(&state).unwrap();
    resumed.set_epoch(0);
    assert_eq!(epoch(&resumed), Vec::<Vec<i64>>::new());
    resumed.set_epoch(1);
    assert_eq!(epoch(&resumed), epochs[1]);
    // A saved position in the middle survives `set_epoch` of the same epoch, and no other.
    let mut batches = loader.iter();
    batches.next().unwrap().unwrap();
    let state = loader.state_dict();
    drop(batches);
    assert_eq!((state.epoch, state.position, state.finished), (1, 3, false));
    assert_eq!(loader.state_dict(), state);
    resumed.load_state_dict(&state).unwrap();
    resumed.set_epoch(1);
    assert_eq!(resumed.state_dict(), state);
    assert_eq!(epoch(&resumed), epochs[1][1..]);
    resumed.load_state_dict(&state).unwrap();
    resumed.set_epoch(2);
    assert_eq!(epoch(&resumed), epochs[2]);
}

#[test]
fn a_distributed_epoch_resumes_with_another_number_of_ranks() {
    let order = |world: usize, state: Option<&LoaderState>, batches: usize| {
        let mut states = Vec::new();
        let mut rows: Vec<Vec<i64>> = Vec::new();
        for rank in 0..world {
            let sampler = DistributedSampler::new(48, world, rank).unwrap();
            let builder = DataLoader::builder(Plain { len: 48 }).sampler(sampler).batch_size(2);
            let loader = builder.build().unwrap();
            if let Some(state) = state {
                loader.load_state_dict(state).unwrap();
            }
            let seen = labels(loader.iter().take(batches)).concat();
            rows.push(seen);
            states.push(loader.state_dict());
        }
        assert!(states.iter().all(|s| *s == states[0]), "{states:?}");
        // Place k of the global order is sample k / world of rank k % world.
        let global: Vec<i64> =
            (0..rows[0].len() * world).map(|k| rows[k % world][k / world]).collect();
        (global, states.swap_remove(0))
    };
    let (whole, _) = order(1, None, 24);
    let (first, state) = order(4, None, 3);
    assert_eq!((first.len(), state.position), (24, 24));
    let (second, state) = order(2, Some(&state), 2);
    let (third, _) = order(1, Some(&state), 24);
    assert_eq!([first, second, third].concat(), whole);
    let sampler = DistributedSampler::new(48, 5, 0).unwrap();
    let loader = DataLoader::builder(Plain { len: 48 }).sampler(sampler).build().unwrap();
    let error = loader.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("position 32") && error.contains("5 ranks"), "{error}");
}

#[test]
fn a_state_of_another_dataset_is_refused() {
    let loader = DataLoader::builder(Plain { len: 10 }).build().unwrap();
    let state = LoaderState { dataset_len: 11, ..loader.state_dict() };
    let error = loader.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("dataset of 11 samples, this one has 10"), "{error}");
    let state = LoaderState { position: 11, ..loader.state_dict() };
    assert!(loader.load_state_dict(&state).unwrap_err().to_string().contains("behind the epoch's"));
}

/// Draws from `sample_random`, and says where it ran.
#[derive(Serialize, Deserialize)]
struct Augmented;

impl Dataset for Augmented {
    type Sample = (i64, i64);
    fn len(&self) -> usize {
        20
    }
    fn get(&self, index: usize) -> Result<(i64, i64)> {
        let info = worker_info();
        assert_eq!(info.worker.is_some(), info.num_workers > 0);
        Ok((sample_random(index).below(1 << 40) as i64, info.epoch as i64))
    }
}

#[test]
fn augmentation_is_the_same_for_any_number_of_workers_and_new_in_each_epoch() {
    let draws = |workers| {
        let loader = DataLoader::builder(Augmented).batch_size(7).seed(5).workers(workers);
        let loader = loader.build().unwrap();
        (0..2)
            .map(|epoch| {
                let batch = |batch: Result<(Tensor, Tensor)>| {
                    let (draws, epochs) = batch.unwrap();
                    assert!(epochs.to_vec::<i64>().iter().all(|&e| e == epoch));
                    draws.to_vec::<i64>()
                };
                loader.iter().flat_map(batch).collect::<Vec<i64>>()
            })
            .collect::<Vec<_>>()
    };
    let reference = draws(0);
    assert_eq!(reference, draws(3));
    assert_ne!(reference[0], reference[1]);
}

/// Draws from the default generator, by ops and by other crates' generators.
#[derive(Serialize, Deserialize)]
struct Drawn;

impl Dataset for Drawn {
    type Sample = (Tensor, Tensor, Tensor, i64);
    fn len(&self) -> usize {
        10
    }
    fn get(&self, index: usize) -> Result<Self::Sample> {
        let noise = Tensor::rand([3], Dtype::F32);
        let dropped = Tensor::ones([16], Dtype::F32).dropout(0.5, true);
        Ok((noise, dropped, Tensor::randperm(6), (sample_seed(index) >> 1) as i64))
    }
}

/// Two epochs' numbers, a list per sample.
fn drawn(seed: Option<u64>, batch_size: usize, workers: usize) -> Vec<Vec<f64>> {
    let loader = DataLoader::builder(Drawn).batch_size(batch_size).workers(workers);
    let loader = match seed {
        Some(seed) => loader.seed(seed),
        None => loader,
    };
    let loader = loader.build().unwrap();
    let rows = |batch: Result<(Tensor, Tensor, Tensor, Tensor)>| {
        let (a, b, c, d) = batch.unwrap();
        let all = [a, b, c, d.unsqueeze(1)].map(|t| t.to_dtype(Dtype::F64));
        let all = Tensor::cat(&all, 1);
        (0..all.shape()[0]).map(|i| all.select(0, i as i64).to_vec::<f64>()).collect::<Vec<_>>()
    };
    (0..2).flat_map(|_| loader.iter().flat_map(rows).collect::<Vec<_>>()).collect()
}

#[test]
fn random_numbers_in_get_depend_on_seed_epoch_and_index_alone() {
    torchrs::fork_rng(|| {
        torchrs::manual_seed(3);
        let before = torchrs::default_generator().get_state();
        let reference = drawn(Some(5), 3, 0);
        for (batch_size, workers) in [(10, 0), (3, 1), (2, 3)] {
            assert_eq!(reference, drawn(Some(5), batch_size, workers), "{workers} workers");
        }
        assert_eq!(torchrs::default_generator().get_state(), before);
        for i in 0..reference.len() {
            for j in 0..i {
                assert_ne!(reference[i], reference[j], "samples {i} and {j} of two epochs");
            }
        }
        // Without a seed of its own a loader takes that of `manual_seed`.
        assert_ne!(reference, drawn(None, 3, 1));
        assert_eq!(drawn(Some(3), 3, 0), drawn(None, 3, 1));
        torchrs::manual_seed(5);
        assert_eq!(reference, drawn(None, 3, 1));
    });
}

#[test]
fn seeds_of_loaders_do_not_change_which_samples_ranks_are_dealt() {
    for workers in [0, 1] {
        let mut all: Vec<i64> = Vec::new();
        for rank in 0..3 {
            let sampler = DistributedSampler::new(30, 3, rank).unwrap();
            let loader = DataLoader::builder(Plain { len: 30 }).sampler(sampler).seed(rank as u64);
            all.extend(epoch(&loader.workers(workers).build().unwrap()).concat());
        }
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<i64>>(), "each sample once");
    }
    let loader = |seed| {
        let sampler = DistributedSampler::new(30, 3, 0).unwrap().seed(seed);
        DataLoader::builder(Plain { len: 30 }).sampler(sampler).seed(9).build().unwrap()
    };
    assert_ne!(epoch(&loader(0)), epoch(&loader(1)));
    let error = loader(1).load_state_dict(&loader(2).state_dict()).unwrap_err().to_string();
    assert!(error.contains("order with seed 2") && error.contains("seed is 1"), "{error}");
}

#[test]
fn a_loader_without_a_batch_is_refused() {
    let message = |options: torchrs::data::DataLoaderBuilder<Plain>| {
        options.drop_last(true).build().err().expect("refused").to_string()
    };
    let error = message(DataLoader::builder(Plain { len: 3 }).batch_size(4));
    assert!(
        error.contains("`drop_last`: leaves no batch") && error.contains("3 samples"),
        "{error}"
    );
    let dealt = DistributedSampler::new(3, 4, 1).unwrap().drop_last(true);
    let error = message(DataLoader::builder(Plain { len: 3 }).sampler(dealt));
    assert!(error.contains("3 samples are dealt to 4 ranks"), "{error}");
    assert!(DataLoader::builder(Plain { len: 0 }).drop_last(true).build().unwrap().is_empty());
}

// ---- many workers, small and big batches

/// Large enough that a batch does not fit a cache, with samples of very different cost.
#[derive(Serialize, Deserialize)]
struct Uneven;

impl Dataset for Uneven {
    type Sample = (Tensor, i64);
    fn len(&self) -> usize {
        60
    }
    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        std::thread::sleep(Duration::from_micros((index * 7919 % 13) as u64 * 300));
        Ok((Tensor::full([3, 50, 50], index as f64, torchrs::Dtype::F32), index as i64))
    }
}

#[test]
fn workers_of_different_speed_keep_the_order() {
    let loader = DataLoader::builder(Uneven).batch_size(2).workers(4).prefetch_factor(3);
    let loader = loader.timeout(PATIENCE).build().unwrap();
    let mut index = 0;
    for batch in &loader {
        let (x, y) = batch.unwrap();
        assert_eq!(y.to_vec::<i64>(), [index, index + 1]);
        assert!(x.to_vec::<f32>()[7500..].iter().all(|&v| v == (index + 1) as f32));
        index += 2;
    }
    assert_eq!(index, 60);
}
