//! The `DataLoader` with real worker processes: order, collation, resuming, and the faults that a
//! loader can meet, injected for real.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use torchrs::data::{
    Blob, Columns, DataLoader, Dataset, DistributedSampler, LoaderState, Sample, SampleWriter,
    Sampler, SubsetSampler, sample_random, worker_info,
};
use torchrs::multiprocessing::{Channel, Process};
use torchrs::{Error, Result, Tensor};

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
fn labels<D>(batches: impl Iterator<Item = Result<(Tensor, Tensor)>>) -> Vec<Vec<i64>>
where
    D: Dataset<Sample = (Tensor, i64)>,
{
    batches.map(|batch| batch.unwrap().1.to_vec()).collect()
}

fn epoch(loader: &DataLoader<Plain>) -> Vec<Vec<i64>> {
    labels::<Plain>(loader.iter())
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

#[test]
fn nothing_is_left_in_dev_shm() {
    let mine = format!("torchrs-{}", std::process::id());
    let count = || {
        let entries = fs::read_dir("/dev/shm").map(|dir| dir.flatten().collect::<Vec<_>>());
        let entries = entries.unwrap_or_default();
        entries.iter().filter(|e| e.file_name().to_string_lossy().contains("torchrs")).count()
    };
    let before = count();
    let loader = DataLoader::builder(Plain { len: 64 }).batch_size(8).workers(2).build().unwrap();
    let mut batches = loader.iter();
    let batch = batches.next().unwrap().unwrap();
    assert_eq!(count(), before, "{mine}");
    // The memory is a memfd, which /dev/shm's size does not limit.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let address = batch.0.data_ptr() as usize;
    let line = maps.lines().find(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split_once(' ').unwrap().0;
        let bounds = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
        (bounds[0]..bounds[1]).contains(&address)
    });
    assert!(line.unwrap().contains("memfd:torchrs-loader"), "{line:?}");
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
            let seen = labels::<Plain>(loader.iter().take(batches)).concat();
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

// ---- row 40: early break, empty dataset, bad samplers and options

#[test]
fn an_early_break_is_clean_and_the_next_epoch_is_whole() {
    for workers in [0, 2] {
        let loader = DataLoader::builder(Plain { len: 200 }).batch_size(3).workers(workers);
        let loader = loader.timeout(PATIENCE).build().unwrap();
        for after in [0, 1, 5] {
            for batch in loader.iter().take(after) {
                batch.unwrap();
            }
        }
        let all = epoch(&loader).concat();
        assert_eq!(all, (0..200).collect::<Vec<i64>>());
        // An iterator that is still held when the next one begins is over, and says so.
        let mut old = loader.iter();
        old.next().unwrap().unwrap();
        assert_eq!(epoch(&loader).concat().len(), 200);
        assert!(old.next().unwrap().unwrap_err().to_string().contains("newer iteration"));
    }
}

#[test]
fn an_empty_dataset_has_no_batches_and_starts_no_workers() {
    let loader = DataLoader::builder(Plain { len: 0 }).batch_size(4).shuffle(true).workers(2);
    let loader = loader.build().unwrap();
    assert_eq!((loader.len(), loader.is_empty()), (0, true));
    assert!(loader.iter().next().is_none());
    let short = DataLoader::builder(Plain { len: 3 }).batch_size(4).drop_last(true).workers(1);
    assert!(short.build().unwrap().iter().next().is_none());
}

/// Says that it has another length than it has.
struct Liar;

impl Sampler for Liar {
    fn len(&self) -> usize {
        3
    }
    fn indices(&self, _seed: u64, _epoch: u64) -> std::borrow::Cow<'_, [usize]> {
        vec![0; 4].into()
    }
}

#[test]
fn a_sampler_out_of_range_is_an_error_that_names_index_and_place() {
    for workers in [0, 1] {
        let builder = DataLoader::builder(Plain { len: 5 }).workers(workers);
        let loader = builder.sampler(SubsetSampler::new(vec![0, 1, 5])).build().unwrap();
        let mut batches = loader.iter();
        let error = batches.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Argument { .. }));
        let message = error.to_string();
        assert!(
            message.contains("index 5 at place 2") && message.contains("5 samples"),
            "{message}"
        );
        assert!(batches.next().is_none());
        let builder = DataLoader::builder(Plain { len: 5 }).workers(workers);
        let loader = builder.sampler(Liar).build().unwrap();
        let error = loader.iter().next().unwrap().unwrap_err().to_string();
        assert!(error.contains("gives 4 indices, but its len() is 3"), "{error}");
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let builder = || DataLoader::builder(Plain { len: 5 });
    let refused = |builder: torchrs::data::DataLoaderBuilder<Plain>, expected: &str| {
        let error = builder.build().err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(builder().batch_size(0), "`batch_size`: is 0");
    refused(builder().prefetch_factor(0), "`prefetch_factor`: is 0");
    refused(builder().timeout(Duration::ZERO), "`timeout`: is 0");
    refused(builder().shuffle(true).sampler(SubsetSampler::new(vec![])), "`shuffle`");
}

// ---- rows 34 to 36: a dataset that fails, dies, hangs

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Fault {
    Error,
    Panic,
    Sigkill,
    Sigsegv,
    Exit,
    MemoryLimit,
    Hang,
    Stop,
    /// Writes its pid to the file, then hangs.
    HangAfterNote,
}

/// `Plain`, except at index 17.
#[derive(Serialize, Deserialize)]
struct Faulty {
    fault: Fault,
    note: Option<PathBuf>,
}

impl Dataset for Faulty {
    type Sample = i64;
    fn len(&self) -> usize {
        40
    }
    fn get(&self, index: usize) -> Result<i64> {
        if index == 17 {
            self.fail_here(index)?;
        }
        Ok(index as i64)
    }
}

impl Faulty {
    fn fail_here(&self, index: usize) -> Result<()> {
        match self.fault {
            Fault::Error => Err(Error::Other(format!("record {index} has no label"))),
            Fault::Panic => panic!("cannot decode record {index}"),
            // SAFETY: signals to this very process, which is the point.
            Fault::Sigkill => unsafe { sleep_after(libc::kill(libc::getpid(), libc::SIGKILL)) },
            // SAFETY: as above; handlers are reset so that no runtime's handler steps in.
            Fault::Sigsegv => unsafe {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                sleep_after(libc::raise(libc::SIGSEGV))
            },
            Fault::Exit => std::process::exit(7),
            Fault::MemoryLimit => {
                let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
                // SAFETY: sets a limit of this process.
                unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
                let huge = vec![1u8; 4 << 30];
                Err(Error::Other(format!("allocated {}", huge.len())))
            }
            // SAFETY: stops this very process, which is the point.
            Fault::Stop => unsafe { sleep_after(libc::raise(libc::SIGSTOP)) },
            Fault::Hang => sleep_after(0),
            Fault::HangAfterNote => {
                let note = self.note.as_ref().unwrap();
                let draft = note.with_extension("draft");
                fs::write(&draft, std::process::id().to_string()).unwrap();
                fs::rename(draft, note).unwrap();
                sleep_after(0)
            }
        }
    }
}

/// Waits for the end that a signal brings, or hangs.
fn sleep_after(_: i32) -> Result<()> {
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

fn faulty(fault: Fault, workers: usize, timeout: Duration) -> DataLoader<Faulty> {
    let builder = DataLoader::builder(Faulty { fault, note: None });
    builder.batch_size(4).workers(workers).timeout(timeout).build().unwrap()
}

/// The first error of an epoch, and what came before it.
fn until_error(loader: &DataLoader<Faulty>) -> (Vec<i64>, Error) {
    let mut seen = Vec::new();
    for batch in loader {
        match batch {
            Ok(batch) => seen.extend(batch.to_vec::<i64>()),
            Err(error) => return (seen, error),
        }
    }
    panic!("no error after {seen:?}");
}

#[test]
fn a_dataset_that_fails_is_reported_with_index_worker_message_and_backtrace() {
    for workers in [0, 2] {
        for fault in [Fault::Error, Fault::Panic] {
            let loader = faulty(fault, workers, PATIENCE);
            let (seen, error) = until_error(&loader);
            assert_eq!(seen, (0..16).collect::<Vec<i64>>());
            let Error::Dataset { index, worker, message } = &error else { panic!("{error}") };
            assert_eq!(*index, 17);
            let expected = if workers == 0 { "the main process" } else { "loader worker " };
            assert!(worker.starts_with(expected), "{worker}");
            if fault == Fault::Error {
                assert_eq!(message, "record 17 has no label");
            } else {
                assert!(message.contains("cannot decode record 17"), "{message}");
                assert!(message.contains("panicked at tests/data_loader.rs:"), "{message}");
                assert!(message.contains("fail_here"), "no backtrace in {message}");
            }
            // The workers have survived it: the rest of the epoch comes, and further epochs.
            let mut batches = loader.iter();
            let ok: Vec<bool> = batches.by_ref().map(|batch| batch.is_ok()).collect();
            assert_eq!(ok.len(), 10);
            assert_eq!(ok.iter().filter(|ok| !**ok).count(), 1);
        }
    }
}

#[test]
fn a_worker_that_dies_is_reported_with_its_cause() {
    let cases: [(Fault, &[&str]); 4] = [
        (Fault::Sigkill, &["SIGKILL"]),
        (Fault::Sigsegv, &["SIGSEGV", "segmentation fault"]),
        (Fault::Exit, &["exited with code 7"]),
        (Fault::MemoryLimit, &["SIGABRT", "memory limit", "1073741824 bytes"]),
    ];
    for (fault, expected) in cases {
        let loader = faulty(fault, 2, PATIENCE);
        for _ in 0..2 {
            // The second time with new workers.
            let (seen, error) = until_error(&loader);
            assert!(seen.len() <= 16 && seen.iter().copied().eq(0..seen.len() as i64), "{seen:?}");
            let Error::Child { who, message } = &error else { panic!("{fault:?}: {error}") };
            assert!(who.starts_with("loader worker "), "{who}");
            for part in expected.iter().chain(&["index 17"]) {
                assert!(message.contains(part), "{fault:?}: {message}");
            }
        }
    }
}

#[test]
fn a_worker_that_hangs_is_named_with_its_index_when_time_is_up() {
    for (fault, state) in [(Fault::Hang, "sleeping"), (Fault::Stop, "stopped")] {
        let loader = faulty(fault, 2, Duration::from_secs(2));
        let (seen, error) = until_error(&loader);
        assert_eq!(seen, (0..16).collect::<Vec<i64>>());
        let Error::Timeout { seconds, message } = &error else { panic!("{error}") };
        assert!(*seconds >= 2.0, "{seconds}");
        let blamed = message.split(';').next().unwrap();
        for part in ["loader worker ", "index 17 of the awaited batch", state] {
            assert!(blamed.contains(part), "{message}");
        }
    }
}

/// Joins a memory cgroup, as a training process in a container does, and tells what its loader
/// says about a worker that takes more memory than the group may have.
fn loader_in_group(procs: PathBuf, test: Channel<String, ()>) -> Result<()> {
    fs::write(procs, std::process::id().to_string()).unwrap();
    let loader = DataLoader::builder(Glutton).workers(1).timeout(PATIENCE).build()?;
    let error = loader.iter().find_map(Result::err).unwrap();
    test.send(&error.to_string())
}

#[test]
fn a_worker_that_the_kernel_kills_for_memory_is_reported_so() {
    let Some(group) = MemoryGroup::create(64 << 20) else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let procs = group.path.join("cgroup.procs");
    let (parent, channel) = Process::builder().spawn_connected(loader_in_group, procs).unwrap();
    let message = channel.recv_timeout(PATIENCE).unwrap();
    parent.join().unwrap();
    for part in ["loader worker 0", "SIGKILL", "index 0", "the memory limit was reached"] {
        assert!(message.contains(part), "{message}");
    }
}

/// Takes 512 MiB.
#[derive(Serialize, Deserialize)]
struct Glutton;

impl Dataset for Glutton {
    type Sample = i64;
    fn len(&self) -> usize {
        1
    }
    fn get(&self, _index: usize) -> Result<i64> {
        let much = vec![1u8; 512 << 20];
        Ok(much.iter().map(|&b| i64::from(b)).sum())
    }
}

struct MemoryGroup {
    path: PathBuf,
}

impl MemoryGroup {
    fn create(limit: usize) -> Option<Self> {
        for (root, file) in
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
        {
            let path = PathBuf::from(root).join(format!("torchrs-test-{}", std::process::id()));
            if fs::create_dir(&path).is_ok() {
                let group = MemoryGroup { path };
                // Where the folder is no cgroup hierarchy, the file would be an ordinary new one.
                let limit_file = group.path.join(file);
                if limit_file.exists() && fs::write(limit_file, limit.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        None
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

// ---- row 39: the parent is killed

/// A process that has a loader whose workers wait on a full ring (nobody takes batches), or are in
/// the middle of a sample.
fn parent_of_workers(fault: Option<Fault>, test: Channel<(), ()>) -> Result<()> {
    match fault {
        None => {
            let loader = DataLoader::builder(Plain { len: 1000 }).workers(2).build()?;
            let mut batches = loader.iter();
            batches.next().unwrap()?;
            test.send(&())?;
            test.recv()
        }
        Some(fault) => {
            let folder = tempfile::tempdir().unwrap();
            let note = folder.path().join("pid");
            let loader = DataLoader::builder(Faulty { fault, note: Some(note.clone()) });
            let loader = loader.batch_size(1).workers(2).build()?;
            let mut batches = loader.iter();
            (0..17).try_for_each(|_| batches.next().unwrap().map(drop))?;
            while !note.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            test.send(&())?;
            test.recv()
        }
    }
}

/// The children of a process.
fn children_of(parent: i32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name in parentheses: state, parent.
        let ppid = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        ppid == Some(&parent.to_string())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

fn pidfd(pid: i32) -> Option<OwnedFd> {
    // SAFETY: plain system call; a descriptor that it returns is new and ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

#[test]
fn workers_are_gone_when_their_parent_is_killed() {
    for fault in [None, Some(Fault::HangAfterNote)] {
        let (parent, channel) =
            Process::builder().spawn_connected(parent_of_workers, fault).unwrap();
        channel.recv_timeout(PATIENCE).unwrap();
        let workers: Vec<OwnedFd> =
            children_of(parent.pid()).into_iter().filter_map(pidfd).collect();
        assert_eq!(workers.len(), 2, "both are alive");
        parent.kill().unwrap();
        let killed = Instant::now();
        parent.wait().unwrap();
        for worker in &workers {
            let mut fds = [PollFd::new(worker.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(30_000).unwrap();
            assert_eq!(poll(&mut fds, timeout), Ok(1), "worker {} lives", worker.as_raw_fd());
        }
        let gone = killed.elapsed();
        assert!(gone < Duration::from_secs(5), "the workers were gone after {gone:?}");
    }
}

#[test]
fn dropping_a_loader_ends_its_workers_even_if_they_hang() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("pid");
    let loader =
        DataLoader::builder(Faulty { fault: Fault::HangAfterNote, note: Some(note.clone()) });
    let loader = loader.batch_size(4).workers(1).timeout(Duration::from_secs(300)).build().unwrap();
    let mut batches = loader.iter();
    for _ in 0..4 {
        batches.next().unwrap().unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while !note.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = fs::read_to_string(&note).unwrap().parse().unwrap();
    drop(batches);
    drop(loader);
    assert!(pidfd(pid).is_none(), "worker {pid} outlived its loader");
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
