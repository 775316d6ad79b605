//! Streams read by a `StreamLoader`, here and by worker processes: nothing comes twice or is left out, over ranks,
//! workers, epochs and resumes. A run that is killed again and again is in `stream_kills.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchrs::data::stream::{
    Csv, IterableDataset, JsonLines, Mapping, ShardFiles, StreamIter, StreamLoader,
    StreamLoaderBuilder, StreamState, TokenFiles, TokenType, Uneven, WebDataset,
};
use torchrs::data::{ChainDataset, Sample, sample_random, worker_info};
use torchrs::{Error, Result, Tensor};

/// Files of numbers, one on each line: as many files as `rows`, file `f` with `rows[f]` of them, counted through.
pub fn numbers(folder: &Path, rows: &[usize]) -> Vec<PathBuf> {
    let mut next = 0;
    let file = |(f, rows): (usize, &usize)| {
        let text: String = (next..next + rows).map(|n| format!("{n}\n")).collect();
        next += rows;
        let path = folder.join(format!("{f}.jsonl"));
        fs::write(&path, text).unwrap();
        path
    };
    rows.iter().enumerate().map(file).collect()
}

fn stream(folder: &Path, rows: &[usize]) -> JsonLines<i64> {
    JsonLines::new(numbers(folder, rows)).unwrap()
}

/// The batches that are left of an iteration.
fn drain<S>(batches: StreamIter<'_, S>) -> Vec<Vec<i64>>
where
    S: IterableDataset,
    S::Sample: Sample<Batch = Tensor>,
{
    batches.map(|batch| batch.unwrap().to_vec::<i64>()).collect()
}

fn sorted(batches: &[Vec<i64>]) -> Vec<i64> {
    let mut all = batches.concat();
    all.sort_unstable();
    all
}

/// A shuffled loader of 90 numbers in 7 files.
fn loader(
    folder: &Path,
    (world, rank): (usize, usize),
    workers: usize,
) -> StreamLoaderBuilder<impl IterableDataset<Sample = i64> + use<>> {
    let rows = [20, 5, 8, 30, 9, 14, 4];
    StreamLoader::builder(stream(folder, &rows).shuffle(8).unwrap())
        .batch_size(4)
        .lanes(6)
        .seed(11)
        .shuffle_shards(true)
        .ranks(world, rank)
        .workers(workers)
        .timeout(Duration::from_secs(120))
}

#[test]
fn an_epoch_has_every_sample_once_for_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let epochs = |workers| {
        let loader = loader(folder.path(), (1, 0), workers).build().unwrap();
        [drain(loader.iter()), drain(loader.iter())]
    };
    let here = epochs(0);
    assert_eq!(here, epochs(2));
    assert_eq!(here, epochs(3));
    assert_ne!(here[0], here[1]);
    for epoch in &here {
        assert_eq!(sorted(epoch), (0..90).collect::<Vec<_>>());
        assert_ne!(epoch.concat(), (0..90).collect::<Vec<_>>());
    }
    let loader = loader(folder.path(), (1, 0), 0).build().unwrap();
    loader.set_epoch(1);
    assert_eq!(drain(loader.iter()), here[1]);
}

#[test]
fn a_state_behind_every_batch_goes_on_with_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let whole = drain(loader(folder.path(), (1, 0), 0).build().unwrap().iter());
    for (stop, workers) in (0..=whole.len()).zip([0, 1, 0, 2, 0, 0, 3].into_iter().cycle()) {
        let stopped = loader(folder.path(), (1, 0), if stop == 5 { 2 } else { 0 }).build().unwrap();
        let mut batches = stopped.iter();
        assert_eq!(batches.by_ref().take(stop).count(), stop);
        // Read ahead, but not yielded.
        let state = serde_json::to_string(&stopped.state_dict()).unwrap();
        let state: StreamState = serde_json::from_str(&state).unwrap();
        assert_eq!((state.batches, state.finished), (stop as u64, false));
        let resumed = loader(folder.path(), (1, 0), workers).seed(0).build().unwrap();
        resumed.load_state_dict(&state).unwrap();
        resumed.set_epoch(0);
        assert_eq!(resumed.state_dict(), state);
        assert_eq!(drain(resumed.iter()), whole[stop..], "from batch {stop}, {workers} workers");
        let end = resumed.state_dict();
        assert!(end.finished);
        // Behind an epoch's end comes the next epoch.
        let next = loader(folder.path(), (1, 0), 0).build().unwrap();
        next.load_state_dict(&end).unwrap();
        assert_eq!(next.state_dict().epoch, 1);
        assert_eq!(sorted(&drain(next.iter())), (0..90).collect::<Vec<_>>());
    }
}

#[test]
fn a_merged_state_goes_on_with_another_number_of_ranks_and_another_batch_size() {
    let folder = tempfile::tempdir().unwrap();
    let options = |world, rank| loader(folder.path(), (world, rank), 0).uneven(Uneven::Cut);
    let three: Vec<_> = (0..3).map(|rank| options(3, rank).build().unwrap()).collect();
    let mut seen = Vec::new();
    for loader in &three {
        seen.extend(loader.iter().take(3).map(|batch| batch.unwrap().to_vec::<i64>()));
    }
    let states: Vec<StreamState> = three.iter().map(StreamLoader::state_dict).collect();
    let error = options(2, 0).build().unwrap().load_state_dict(&states[0]).unwrap_err().to_string();
    assert!(error.contains("merge the states"), "{error}");
    let error = options(3, 1).build().unwrap().load_state_dict(&states[0]).unwrap_err().to_string();
    assert!(error.contains("lane 1 of rank 1 is not in the state"), "{error}");
    let error = StreamState::merge(&states[..2]).unwrap_err().to_string();
    assert!(error.contains("4 of 6 lanes") && error.contains("all 3 ranks"), "{error}");
    let error = StreamState::merge(&[states[0].clone(), states[0].clone()]).unwrap_err();
    assert!(error.to_string().contains("lane 0 is in two"), "{error}");
    let merged = StreamState::merge(&states).unwrap();
    let before = sorted(&seen).len();
    let mut counts = Vec::new();
    for rank in 0..2 {
        let loader = options(2, rank).batch_size(1).build().unwrap();
        loader.load_state_dict(&merged).unwrap();
        let rest = drain(loader.iter());
        counts.push(rest.len());
        seen.extend(rest);
    }
    assert_eq!(counts[0], counts[1], "ranks stay even");
    let all = sorted(&seen);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "nothing twice: {all:?}");
    assert!(counts[0] > 0 && all.len() == before + 2 * counts[0], "{all:?} {counts:?}");
    // On one rank nothing is cut.
    let one = options(1, 0).build().unwrap();
    one.load_state_dict(&merged).unwrap();
    let mut seen: Vec<Vec<i64>> = seen[..9].to_vec();
    seen.extend(drain(one.iter()));
    assert_eq!(sorted(&seen), (0..90).collect::<Vec<_>>());
    let five = loader(folder.path(), (5, 0), 0).lanes(5).uneven(Uneven::Cut).build().unwrap();
    let error = five.load_state_dict(&merged).unwrap_err().to_string();
    assert!(error.contains("6 lanes do not divide among 5 ranks"), "{error}");
}

#[test]
fn ranks_have_equally_many_batches() {
    let folder = tempfile::tempdir().unwrap();
    let all = |uneven| -> Vec<Vec<Vec<i64>>> {
        (0..3)
            .map(|rank| {
                let loader = loader(folder.path(), (3, rank), rank % 2).uneven(uneven).build();
                drain(loader.unwrap().iter())
            })
            .collect()
    };
    let (cut, repeated) = (all(Uneven::Cut), all(Uneven::Repeat));
    let lens = |ranks: &[Vec<Vec<i64>>]| ranks.iter().map(Vec::len).collect::<Vec<_>>();
    let (least, most) = (lens(&cut)[0], lens(&repeated)[0]);
    assert_eq!((lens(&cut), lens(&repeated)), (vec![least; 3], vec![most; 3]));
    assert!(least < most, "the files are uneven");
    let seen = sorted(&cut.concat());
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
    let mut seen = sorted(&repeated.concat());
    seen.dedup();
    assert_eq!(seen, (0..90).collect::<Vec<_>>());
    // Fewer files than lanes: records are dealt out, and ranks differ by one at most.
    let one = |rank| {
        let loader = StreamLoader::builder(stream(folder.path(), &[11])).ranks(2, rank).lanes(4);
        drain(loader.uneven(Uneven::Repeat).build().unwrap().iter())
    };
    assert_eq!((one(0).len(), one(1).len()), (6, 6));
    let mut both = sorted(&[one(0), one(1)].concat());
    both.dedup();
    assert_eq!(both, (0..11).collect::<Vec<_>>());
}

#[test]
fn epochs_of_a_given_length_go_on_through_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let options = |workers| {
        let stream = stream(folder.path(), &[7, 6]).shuffle(3).unwrap();
        StreamLoader::builder(stream).batch_size(2).lanes(2).workers(workers).batches_per_epoch(5)
    };
    let endless = options(2).build().unwrap();
    let epochs: Vec<_> = (0..6).map(|_| drain(endless.iter())).collect();
    assert!(epochs.iter().all(|epoch| epoch.len() == 5));
    // A pass has 4 + 3 batches.
    let all = epochs.concat();
    for pass in all.chunks_exact(7) {
        assert_eq!(sorted(pass), (0..13).collect::<Vec<_>>());
    }
    assert_ne!(all[..7], all[7..14]);
    for stop in [0, 1, 4, 5, 7, 12, 14] {
        let stopped = options(stop % 3 % 2).build().unwrap();
        let mut left = stop;
        while left > 0 {
            left -= stopped.iter().take(left).count();
        }
        let resumed = options((stop + 1) % 2).build().unwrap();
        resumed.load_state_dict(&stopped.state_dict()).unwrap();
        let rest: Vec<_> = (0..3).flat_map(|_| drain(resumed.iter())).collect();
        assert_eq!(rest, all[stop..stop + rest.len()], "from batch {stop}");
    }
    // Ranks with and without much data have the same number of batches.
    for rank in 0..2 {
        let stream = stream(folder.path(), &[30, 1]);
        let loader = StreamLoader::builder(stream).ranks(2, rank).batches_per_epoch(9).build();
        assert_eq!(loader.unwrap().iter().count(), 9);
    }
    let stream = stream(folder.path(), &[1]);
    let loader = StreamLoader::builder(stream).batch_size(2).drop_last(true).batches_per_epoch(1);
    let error = loader.build().unwrap().iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("gave no batch"), "{error}");
}

#[test]
fn an_iteration_that_is_left_ends_and_the_next_begins() {
    let folder = tempfile::tempdir().unwrap();
    for workers in [0, 2] {
        let loader = loader(folder.path(), (1, 0), workers).prefetch_factor(3).build().unwrap();
        let mut old = loader.iter();
        let first: Vec<_> = old.by_ref().take(2).map(Result::unwrap).collect();
        loader.set_epoch(0);
        let again = loader.iter();
        assert!(old.next().unwrap().unwrap_err().to_string().contains("newer iteration"));
        assert!(old.next().is_none());
        let whole = drain(again);
        assert_eq!(whole[..2], [first[0].to_vec::<i64>(), first[1].to_vec::<i64>()]);
        assert_eq!(sorted(&whole), (0..90).collect::<Vec<_>>());
    }
}

// ---- random numbers, maps, chains

#[derive(Serialize, Deserialize)]
struct Noise(f64);

impl Mapping<i64> for Noise {
    type Output = (i64, f32, f32, i64);
    fn map(&self, sample: i64) -> Result<Self::Output> {
        let own = sample_random(worker_info().index.unwrap()).uniform();
        let drawn = Tensor::rand([1], torchrs::Dtype::F32).item() as f32;
        Ok((sample, own, drawn * self.0 as f32, worker_info().epoch as i64))
    }
}

#[test]
fn random_numbers_of_a_map_belong_to_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    // Behind the buffer, and before it, where a resume maps again.
    fn all<S>(build: impl Fn(usize) -> StreamLoaderBuilder<S>) -> Vec<Vec<f64>>
    where
        S: IterableDataset,
        S::Sample: Sample<Batch = (Tensor, Tensor, Tensor, Tensor)>,
    {
        let read = |batch: Result<(Tensor, Tensor, Tensor, Tensor)>| {
            let (a, b, c, d) = batch.unwrap();
            [a, b, c, d].iter().flat_map(|t| t.to_dtype(torchrs::Dtype::F64).to_vec()).collect()
        };
        let whole: Vec<Vec<f64>> = build(0).build().unwrap().iter().map(read).collect();
        for (stop, workers) in [(0, 2), (1, 0), (4, 1)] {
            let stopped = build(0).build().unwrap();
            assert_eq!(stopped.iter().take(stop).count(), stop);
            let resumed = build(workers).build().unwrap();
            resumed.load_state_dict(&stopped.state_dict()).unwrap();
            assert_eq!(resumed.iter().map(read).collect::<Vec<_>>(), whole[stop..]);
        }
        whole
    }
    let stream = || stream(folder.path(), &[9, 12]);
    let options = |seed: u64| {
        move |workers| {
            StreamLoader::builder(stream().shuffle(5).unwrap().apply(Noise(2.0)))
                .batch_size(3)
                .lanes(2)
                .workers(workers)
                .seed(seed)
        }
    };
    let behind = all(options(1));
    assert_ne!(behind, all(options(2)));
    let numbers: BTreeSet<u64> =
        behind.iter().flat_map(|row| row[3..].iter().map(|x| x.to_bits())).collect();
    assert!(numbers.len() > 40, "numbers repeat");
    all(|workers| {
        StreamLoader::builder(stream().apply(Noise(2.0)).shuffle(5).unwrap())
            .batch_size(3)
            .lanes(2)
            .workers(workers)
    });
}

#[test]
fn chains_and_filters_are_read_by_workers() {
    let folder = tempfile::tempdir().unwrap();
    let chain = || {
        let files = numbers(folder.path(), &[8, 9]);
        let one = |path: &PathBuf| {
            let rows = JsonLines::<i64>::new(path.as_path()).unwrap();
            rows.filter(|n| n % 3 != 0).map(|n| Ok(n * 2))
        };
        ChainDataset::new(files.iter().map(one).collect()).unwrap()
    };
    let all = |workers| {
        let options = StreamLoader::builder(chain()).lanes(2).workers(workers).batch_size(3);
        drain(options.build().unwrap().iter())
    };
    let expected: Vec<i64> = (0..17).filter(|n| n % 3 != 0).map(|n| n * 2).collect();
    assert_eq!((sorted(&all(0)), all(0)), (expected, all(2)));
    let error = StreamLoader::builder(chain()).ranks(2, 0).uneven(Uneven::Cut).build();
    let error = error.err().unwrap().to_string();
    assert!(error.contains("a filter?") && error.contains("batches_per_epoch"), "{error}");
}

// ---- formats

#[test]
fn every_format_is_read_whole_and_from_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    #[derive(Deserialize)]
    struct Row {
        n: i64,
        text: String,
    }
    let csv: String = (0..20).map(|n| format!("\"a, {n}\nb\";{n}\n")).collect();
    fs::write(at("a.csv"), format!("text;n\n{csv}")).unwrap();
    let tokens: Vec<u8> = (0..41u32).flat_map(u32::to_le_bytes).collect();
    fs::write(at("a.bin"), [&[9; 16][..], &tokens].concat()).unwrap();
    let mut tar = tar::Builder::new(fs::File::create(at("a-0.tar")).unwrap());
    for n in 0..20 {
        let mut header = tar::Header::new_gnu();
        let text = n.to_string();
        header.set_size(text.len() as u64);
        header.set_cksum();
        tar.append_data(&mut header, format!("x/{n:03}.n.txt"), text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap();

    fn check<S>(stream: impl Fn() -> S)
    where
        S: IterableDataset,
        S::Sample: Sample<Batch = Tensor>,
    {
        for lanes in [1, 3] {
            let build = |workers| {
                let options = StreamLoader::builder(stream()).lanes(lanes).workers(workers);
                options.batch_size(2).build().unwrap()
            };
            let whole = drain(build(0).iter());
            assert_eq!(sorted(&whole), (0..20).collect::<Vec<_>>());
            let stopped = build(0);
            assert_eq!(stopped.iter().take(4).count(), 4);
            let resumed = build(1);
            resumed.load_state_dict(&stopped.state_dict()).unwrap();
            assert_eq!(drain(resumed.iter()), whole[4..]);
            let dealt = |rank| {
                let options = StreamLoader::builder(stream()).ranks(2, rank);
                options.uneven(Uneven::Cut).build().unwrap().iter().count()
            };
            assert_eq!((dealt(0), dealt(1)), (10, 10));
        }
    }
    check(|| {
        let rows = Csv::<Row>::new(at("a.csv")).unwrap().delimiter(b';');
        rows.map(|row| {
            assert_eq!(row.text, format!("a, {}\nb", row.n));
            Ok(row.n)
        })
    });
    check(|| {
        let windows = TokenFiles::new(at("a.bin"), TokenType::U32, 2).unwrap().header(16);
        windows.map(|(tokens, next)| {
            assert_eq!(next, [tokens[0] + 1, tokens[0] + 2]);
            Ok(tokens[0] / 2)
        })
    });
    check(|| {
        let pattern = at("a-{0..0}.tar").to_str().unwrap().to_owned();
        let samples = WebDataset::new(ShardFiles::from(pattern)).unwrap();
        samples.map(|sample| {
            let n: i64 = sample.text("n.txt")?.parse().unwrap();
            assert_eq!(sample.key, format!("x/{n:03}"));
            Ok(n)
        })
    });
}

// ---- faults

#[test]
fn faults_of_data_are_named_and_end_the_iteration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let good = "1\n2\n3\n\n";
    fs::write(&path, format!("{good}x4\n5\n")).unwrap();
    let build = |workers| {
        let rows = JsonLines::<i64>::new(path.as_path()).unwrap();
        StreamLoader::builder(rows).batch_size(3).workers(workers).build().unwrap()
    };
    for workers in [0, 1] {
        let loader = build(workers);
        let mut batches = loader.iter();
        assert_eq!(batches.next().unwrap().unwrap().to_vec::<i64>(), [1, 2, 3]);
        let error = batches.next().unwrap().unwrap_err();
        assert!(matches!(&error, Error::Dataset { index: 3, .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("a.jsonl") && error.contains("byte 7, `x4`"), "{error}");
        assert!(batches.next().is_none());
        // The state is behind the last good batch.
        assert_eq!(loader.state_dict().batches, 1);
        fs::write(&path, format!("{good}4\n5\n")).unwrap();
        let resumed = build(0);
        resumed.load_state_dict(&loader.state_dict()).unwrap();
        assert_eq!(drain(resumed.iter()), [[4, 5]]);
        fs::write(&path, format!("{good}x4\n5\n")).unwrap();
    }
    fs::write(&path, [0x1f, 0x8b, 8, 0]).unwrap();
    let error = build(0).iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("compressed by gzip"), "{error}");
}

#[test]
fn a_panic_and_a_dying_worker_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for workers in [0, 2] {
        let rows = stream(folder.path(), &[3, 3]).map(|n| {
            assert!(n < 4, "no {n}");
            Ok(n)
        });
        let loader = StreamLoader::builder(rows).lanes(2).workers(workers).build().unwrap();
        let error = loader.iter().find_map(Result::err).unwrap().to_string();
        assert!(error.contains("no 4") && error.contains("tests/data/stream.rs"), "{error}");
    }
    let rows = stream(folder.path(), &[3, 3]).map(|n| {
        if n == 4 {
            std::process::abort();
        }
        Ok(n)
    });
    let loader = StreamLoader::builder(rows).lanes(2).workers(2).build().unwrap();
    let error = loader.iter().find_map(Result::err).unwrap().to_string();
    assert!(error.contains("loader worker 1") && error.contains("SIGABRT"), "{error}");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |options: fn(StreamLoaderBuilder<JsonLines<i64>>) -> _, expected: &str| {
        let options: StreamLoaderBuilder<_> =
            options(StreamLoader::builder(stream(folder.path(), &[4])));
        let error = options.build().err().expect(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(|o| o.batch_size(0), "`batch_size`: is 0");
    refused(|o| o.ranks(2, 2).batches_per_epoch(1), "rank is 2, must be below 2");
    refused(|o| o.ranks(2, 0), "training would hang");
    refused(|o| o.uneven(Uneven::Cut).batches_per_epoch(3), "beside batches_per_epoch");
    refused(|o| o.ranks(2, 0).uneven(Uneven::Cut).lanes(3), "must be a multiple of 2");
    refused(|o| o.workers(3).lanes(2), "more than the 2 lanes");
    refused(|o| o.ranks(5, 0).uneven(Uneven::Cut), "rank 4 of 5 would have no batch");
    let state = loader(folder.path(), (1, 0), 0).build().unwrap().state_dict();
    let other = StreamLoader::builder(stream(folder.path(), &[4, 4])).build().unwrap();
    let error = other.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("of 7 files, this one has 2"), "{error}");
}
