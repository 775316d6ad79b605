//! Parquet files that pyarrow wrote (`tests/fixtures/parquet`), as streams.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use torchrs::Tensor;
use torchrs::data::stream::{IterableDataset, Parquet, Part, StreamLoader, StreamReader, Uneven};

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/parquet")).join(name)
}

#[derive(Debug, Deserialize)]
struct Row {
    n: i64,
    x: f32,
    text: Option<String>,
    raw: Vec<u8>,
    tokens: Vec<i64>,
    pair: Pair,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Pair {
    a: i16,
    b: bool,
}

#[test]
fn rows_have_pyarrows_values_from_every_place() {
    for name in ["rows.parquet", "gzip.parquet"] {
        let rows = Parquet::<Row>::new(fixture(name)).unwrap();
        let part = Part::new(0, 1).unwrap();
        assert_eq!(rows.count(part).unwrap(), Some(25));
        let mut reader = rows.open(part, None).unwrap();
        for i in 0..25 {
            let resumed = rows.open(part, Some(&reader.position())).unwrap().next().unwrap();
            let row = reader.next().unwrap().unwrap();
            assert_eq!((row.n, resumed.unwrap().n), (i, i));
            assert!(if i == 3 { row.x.is_nan() } else { row.x == i as f32 / 4.0 });
            assert_eq!(row.text, (i % 5 != 4).then(|| format!("row {i}")));
            assert_eq!(row.raw, [i as u8, 255]);
            assert_eq!(row.tokens, (0..i % 4).collect::<Vec<_>>());
            assert_eq!(row.pair, Pair { a: i as i16, b: i % 2 == 0 });
        }
        assert!(reader.next().unwrap().is_none());
    }
}

#[test]
fn ranks_and_workers_share_files_and_states_go_on() {
    let rows = || {
        let rows = Parquet::<Row>::new(vec![fixture("rows.parquet"), fixture("gzip.parquet")]);
        rows.unwrap().shuffle(6).unwrap().map(|row| Ok(row.n))
    };
    let read = |batch: torchrs::Result<Tensor>| batch.unwrap().to_vec::<i64>();
    let loader = |workers| StreamLoader::builder(rows()).batch_size(4).lanes(2).workers(workers);
    let whole: Vec<Vec<i64>> = loader(0).build().unwrap().iter().map(read).collect();
    let mut all = whole.concat();
    all.sort_unstable();
    assert_eq!(all, (0..50).map(|i| i / 2).collect::<Vec<_>>());
    let stopped = loader(2).build().unwrap();
    assert_eq!(stopped.iter().take(5).count(), 5);
    let resumed = loader(1).build().unwrap();
    resumed.load_state_dict(&stopped.state_dict()).unwrap();
    assert_eq!(resumed.iter().map(read).collect::<Vec<_>>(), whole[5..]);
    for rank in 0..2 {
        let dealt = StreamLoader::builder(rows()).ranks(2, rank).uneven(Uneven::Cut);
        assert_eq!(dealt.build().unwrap().iter().count(), 25);
    }
}

#[test]
fn columns_by_order_and_faults() {
    type Columns = (i64, f32, Option<String>, Vec<u8>, Vec<i32>, (i16, bool));
    let part = Part::new(0, 1).unwrap();
    let rows = Parquet::<Columns>::new(fixture("rows.parquet")).unwrap();
    let row = rows.open(part, None).unwrap().next().unwrap().unwrap();
    assert_eq!((row.0, row.5), (0, (0, true)));
    #[derive(Debug, Deserialize)]
    #[allow(dead_code)] // What is missing fails before.
    struct Other {
        label: i64,
    }
    let rows = Parquet::<Other>::new(fixture("rows.parquet")).unwrap();
    let error = rows.open(part, None).unwrap().next().unwrap_err().to_string();
    assert!(error.contains("row 0: missing field `label`"), "{error}");
    let cut = tempfile::NamedTempFile::new().unwrap();
    let bytes = fs::read(fixture("rows.parquet")).unwrap();
    fs::write(cut.path(), &bytes[..bytes.len() / 2]).unwrap();
    let rows = Parquet::<Row>::new(cut.path()).unwrap();
    let error = rows.open(part, None).and_then(|mut reader| reader.next()).unwrap_err();
    assert!(error.to_string().contains("cannot be read as Parquet"), "{error}");
}

/// The crate panics at some of these bytes.
#[test]
fn damaged_files_are_errors_that_name_them() {
    let bytes = fs::read(fixture("rows.parquet")).unwrap();
    let damaged = tempfile::NamedTempFile::new().unwrap();
    let name = damaged.path().display().to_string();
    let rows = Parquet::<serde_json::Value>::new(damaged.path()).unwrap();
    let mut faults = 0;
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] = 255;
        fs::write(damaged.path(), &bytes).unwrap();
        let read = || {
            rows.count(Part::new(0, 1)?)?;
            let mut reader = rows.open(Part::new(0, 1)?, None)?;
            while reader.next()?.is_some() {}
            Ok::<(), torchrs::Error>(())
        };
        if let Err(error) = read() {
            faults += 1;
            assert!(error.to_string().contains(&name), "byte {at}: {error}");
        }
    }
    assert!(faults > bytes.len() / 2, "{faults} of {} bytes", bytes.len());
}
