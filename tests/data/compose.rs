//! Datasets of tensors and of datasets, batches of ragged and named samples, orders of batches, and what workers
//! run first: with and without worker processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use torchrs::data::{
    Batch, BucketBatchSampler, ConcatDataset, DataLoader, DataLoaderBuilder, Dataset,
    DistributedBatchSampler, Ragged, StackDataset, Subset, TensorDataset, random_split,
    worker_info,
};
use torchrs::{Dtype, Error, Result, Tensor};

/// All batches, for some numbers of workers; they have to be the same.
fn batches<D: Dataset, T: PartialEq + std::fmt::Debug>(
    options: impl Fn() -> DataLoaderBuilder<D>,
    read: impl Fn(Batch<D>) -> T,
) -> Vec<T> {
    let all = |workers| -> Vec<T> {
        let loader = options().workers(workers).build().unwrap();
        loader.iter().map(|batch| read(batch.unwrap())).collect()
    };
    let here = all(0);
    assert_eq!(here, all(2));
    here
}

fn rows() -> TensorDataset<(Tensor, Tensor)> {
    let x = Tensor::arange(0i64, 14i64, 1i64, Dtype::I64).to_dtype(Dtype::F32).view([7, 2]);
    TensorDataset::new((x, Tensor::arange(0i64, 7i64, 1i64, Dtype::I64))).unwrap()
}

#[test]
fn tensors_and_what_is_made_of_them_reach_workers() {
    let labels = |(x, y): (Tensor, Tensor)| {
        let (x, y) = (x.to_vec::<f32>(), y.to_vec::<i64>());
        assert!(y.iter().enumerate().all(|(i, &y)| x[2 * i] == 2.0 * y as f32));
        y
    };
    let all = batches(|| DataLoader::builder(rows()).batch_size(4), labels);
    assert_eq!(all, [vec![0, 1, 2, 3], vec![4, 5, 6]]);
    let twice = || ConcatDataset::new((rows(), Subset::new(rows(), vec![6, 5]).unwrap())).unwrap();
    let all = batches(|| DataLoader::builder(twice()).batch_size(9), labels);
    assert_eq!(all, [[0, 1, 2, 3, 4, 5, 6, 6, 5]]);
    let stacked = || StackDataset::new((rows(), rows())).unwrap();
    let both = |(a, b): ((Tensor, Tensor), (Tensor, Tensor))| (labels(a), labels(b));
    let all = batches(|| DataLoader::builder(stacked()).batch_size(7), both);
    assert_eq!(all[0].0, all[0].1);
    let parts = random_split(rows(), [4, 3], 0).unwrap();
    let mut seen: Vec<i64> = parts
        .into_iter()
        .flat_map(|part| batches(|| DataLoader::builder(part.clone()).batch_size(2), labels))
        .flatten()
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn datasets_that_do_not_fit_are_refused() {
    let short = Subset::new(rows(), vec![1]).unwrap();
    let error = StackDataset::new((rows(), short)).unwrap_err().to_string();
    assert!(error.contains("dataset 1 has 1 samples, dataset 0 has 7"), "{error}");
    let none: Vec<TensorDataset<(Tensor,)>> = Vec::new();
    assert!(ConcatDataset::new(none).unwrap_err().to_string().contains("are none"));
    let error = TensorDataset::new((Tensor::scalar(1.0),)).unwrap_err().to_string();
    assert!(error.contains("tensor 0 has no dimension"), "{error}");
}

/// Sample `i` has `i` rows of two numbers, and columns with names.
#[derive(Serialize, Deserialize)]
struct Uneven;

impl Dataset for Uneven {
    type Sample = (Ragged, BTreeMap<String, i64>);
    fn len(&self) -> usize {
        6
    }
    fn get(&self, index: usize) -> Result<Self::Sample> {
        let rows = Tensor::full([index, 2], index as f64, Dtype::F32);
        let mut columns = BTreeMap::from([("a".to_owned(), index as i64), ("b".to_owned(), 7)]);
        if index == 5 {
            columns.remove("b");
            columns.insert("c".to_owned(), 1);
        }
        Ok((Ragged::new(rows)?, columns))
    }
}

#[test]
fn ragged_rows_and_named_columns_are_batched() {
    let all = batches(
        || DataLoader::builder(Subset::new(Uneven, vec![2, 0, 3]).unwrap()).batch_size(3),
        |(rows, columns)| {
            assert_eq!((rows.len(), rows.values().shape()), (3, &[5, 2][..]));
            assert_eq!(rows.offsets().to_vec::<i64>(), [0, 2, 2, 5]);
            assert_eq!(rows.lengths().to_vec::<i64>(), [2, 0, 3]);
            assert_eq!(rows.get(2).to_vec::<f32>(), [3.0; 6]);
            let padded = rows.padded(-1.0);
            assert_eq!(padded.shape(), [3, 3, 2]);
            let first = [2.0, 2.0, 2.0, 2.0, -1.0, -1.0];
            assert_eq!(padded.to_vec::<f32>()[..6], first);
            let mask = [true, true, false, false, false, false, true, true, true];
            assert_eq!(rows.mask().to_vec::<bool>(), mask);
            columns.into_iter().map(|(name, t)| (name, t.to_vec::<i64>())).collect::<Vec<_>>()
        },
    );
    assert_eq!(all[0], [("a".to_owned(), vec![2, 0, 3]), ("b".to_owned(), vec![7, 7, 7])]);
    // A batch of nothing but empty samples has values, of no rows.
    let empty = Subset::new(Uneven, vec![0]).unwrap();
    let (rows, _) = DataLoader::builder(empty).build().unwrap().iter().next().unwrap().unwrap();
    assert_eq!((rows.values().shape(), rows.padded(0).shape()), (&[0, 2][..], &[1, 0, 2][..]));
    for workers in [0, 1] {
        let loader = DataLoader::builder(Uneven).batch_size(6).workers(workers).build().unwrap();
        let error = loader.iter().next().unwrap().err().unwrap().to_string();
        assert!(error.contains("the name `c`, but the name `b`"), "{error}");
        assert!(error.contains("index 5"), "{error}");
    }
}

#[test]
fn batches_of_an_order_are_read_and_resumed_for_any_number_of_workers_and_ranks() {
    let lengths: Vec<usize> = (0..40).map(|i| i * 29 % 40).collect();
    let loader = |ranks, rank, workers| {
        let batches = BucketBatchSampler::new(&lengths, &[10, 20, 30], 4).unwrap();
        let share = DistributedBatchSampler::new(batches, ranks, rank).unwrap().seed(3);
        let x = Tensor::arange(0i64, 40i64, 1i64, Dtype::I64);
        DataLoader::builder(TensorDataset::new((x,)).unwrap())
            .batch_sampler(share)
            .workers(workers)
            .build()
            .unwrap()
    };
    let read = |batch: Result<(Tensor,)>| batch.unwrap().0.to_vec::<i64>();
    let whole: Vec<Vec<i64>> = loader(1, 0, 0).iter().map(read).collect();
    assert_eq!((whole.len(), loader(1, 0, 0).len()), (12, 12));
    let mut all: Vec<i64> = whole.concat();
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<i64>>());
    // Two ranks read three batches each, then one rank goes on with two workers.
    let two: Vec<_> = (0..2).map(|rank| loader(2, rank, rank)).collect();
    let first: Vec<Vec<Vec<i64>>> =
        two.iter().map(|loader| loader.iter().take(3).map(read).collect()).collect();
    for k in 0..6 {
        assert_eq!(first[k % 2][k / 2], whole[k]);
    }
    let state = two[0].state_dict();
    assert_eq!((state.position, &state), (6, &two[1].state_dict()));
    let resumed = loader(1, 0, 2);
    resumed.load_state_dict(&state).unwrap();
    let mut rest = resumed.iter();
    assert_eq!(rest.size_hint().1, Some(7));
    assert_eq!(rest.by_ref().map(read).collect::<Vec<_>>(), whole[6..]);
    // A loader by samples does not take it.
    let other =
        DataLoader::builder(TensorDataset::new((Tensor::zeros([40], Dtype::F32),)).unwrap());
    let error = other.build().unwrap().load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("counts batches"), "{error}");
}

#[test]
fn options_beside_an_order_of_batches_are_refused() {
    let refused = |options: fn(DataLoaderBuilder<TensorDataset<(Tensor, Tensor)>>) -> _,
                   what: &str| {
        let order = BucketBatchSampler::new(&[1; 7], &[], 2).unwrap();
        let options: DataLoaderBuilder<_> = options(DataLoader::builder(rows()));
        let error = options.batch_sampler(order).build().err().unwrap().to_string();
        assert!(error.contains(&format!("`{what}`: is given beside batch_sampler")), "{error}");
    };
    refused(|options| options.batch_size(3), "batch_size");
    refused(|options| options.shuffle(true), "shuffle");
    refused(|options| options.drop_last(true), "drop_last");
    // An order that speaks of samples that are not there.
    let order = BucketBatchSampler::new(&[1; 9], &[], 3).unwrap().shuffle(false);
    let loader = DataLoader::builder(rows()).batch_sampler(order).build().unwrap();
    let error = loader.iter().next().unwrap().err().unwrap().to_string();
    assert!(error.contains("gives index 7 at place 7"), "{error}");
}

/// Says which number the worker's initialisation left.
#[derive(Serialize, Deserialize)]
struct Left;

thread_local! {
    static NUMBER: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

impl Dataset for Left {
    type Sample = (i64, i64);
    fn len(&self) -> usize {
        8
    }
    fn get(&self, index: usize) -> Result<(i64, i64)> {
        assert_eq!(worker_info().index, Some(index));
        Ok((NUMBER.get(), worker_info().worker.map_or(-1, |worker| worker as i64)))
    }
}

#[test]
fn workers_run_their_initialisation_first() {
    let loader = DataLoader::builder(Left).workers(2).worker_init(|info| {
        NUMBER.set(100 * info.worker.unwrap() as i64 + info.seed as i64);
        Ok(())
    });
    for batch in &loader.seed(5).build().unwrap() {
        let (number, worker) = batch.unwrap();
        assert_eq!(number.to_vec::<i64>()[0], 100 * worker.to_vec::<i64>()[0] + 5);
    }
    let fails = DataLoader::builder(Left)
        .workers(1)
        .worker_init(|_| Err(Error::Other("no licence for the decoder".to_owned())));
    let error = fails.build().unwrap().iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("loader worker 0") && error.contains("no licence"), "{error}");
    let error = DataLoader::builder(Left).worker_init(|_| Ok(())).build().err().unwrap();
    assert!(error.to_string().contains("would never run"), "{error}");
}
