//! Checkpoints: round trips, damage of every byte, a kill at any moment of a save.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use torchrs::checkpoint::{Checkpoint, CheckpointDir, TensorMap, load_file, save_file};
use torchrs::{Dtype, Tensor};

fn tensors() -> TensorMap {
    let mut map = TensorMap::new();
    // The format has no c128.
    for dtype in Dtype::ALL.into_iter().filter(|&dtype| dtype != Dtype::C128) {
        map.insert(
            format!("t.{dtype}"),
            Tensor::arange(0i64, 6i64, 1i64, Dtype::I64).to_dtype(dtype).view([2, 3]),
        );
    }
    map.insert("empty".into(), Tensor::zeros([0, 3], Dtype::F32));
    map.insert("number".into(), Tensor::scalar(2.5));
    map.insert("transposed".into(), Tensor::from([[1f32, 2., 3.], [4., 5., 6.]]).t());
    map
}

#[test]
fn every_dtype_and_layout_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.safetensors");
    let out = tensors();
    save_file(&out, &BTreeMap::new(), &file).unwrap();
    let back = load_file(&file).unwrap();
    assert_eq!(back.keys().collect::<Vec<_>>(), out.keys().collect::<Vec<_>>());
    for (name, t) in &out {
        assert_eq!((back[name].shape(), back[name].dtype()), (t.shape(), t.dtype()), "{name}");
        assert!(back[name].equal(t), "{name}");
    }
    let pair = TensorMap::from([("z".into(), Tensor::zeros([2], Dtype::C128))]);
    let error = save_file(&pair, &BTreeMap::new(), &file).unwrap_err().to_string();
    assert!(error.contains("`z` is c128"), "{error}");
}

#[test]
fn row_44_any_flipped_byte_and_any_truncation_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let model = TensorMap::from([
        ("first.weight".into(), Tensor::from([1f32, 2., 3.])),
        ("second.weight".into(), Tensor::from([4f32, 5.])),
    ]);
    Checkpoint::new()
        .with_tensors("model", model)
        .with_value("epoch", &7)
        .unwrap()
        .with_value("loss", &0.1f64)
        .unwrap()
        .save(&path)
        .unwrap();
    for name in ["model.safetensors", "state.json"] {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        let mut unnoticed = Vec::new();
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1 << (i % 8);
            fs::write(&file, &bad).unwrap();
            match Checkpoint::load(&path) {
                Err(e) => assert!(e.to_string().contains(name), "byte {i} of {name}: {e}"),
                // Outside the checked part of the JSON only what nothing depends on may change.
                Ok(c) => {
                    assert_eq!(c.value::<i64>("epoch").unwrap(), 7);
                    assert_eq!(c.value::<f64>("loss").unwrap(), 0.1);
                    assert_eq!(
                        c.tensors("model").unwrap()["first.weight"].to_vec::<f32>(),
                        [1., 2., 3.]
                    );
                    unnoticed.push(i);
                }
            }
        }
        // White space, the `torchrs` version text and the `format` note of the header.
        assert!(unnoticed.len() < good.len() / 3, "{name}: {} of {}", unnoticed.len(), good.len());
        for keep in 0..good.len() {
            fs::write(&file, &good[..keep]).unwrap();
            let e =
                Checkpoint::load(&path).err().expect("a truncated file is an error").to_string();
            assert!(e.contains(name), "{keep} bytes of {name}: {e}");
        }
        fs::write(&file, &good).unwrap();
    }
    // The tensor is named.
    let file = path.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x40;
    fs::write(&file, &bytes).unwrap();
    let e = Checkpoint::load(&path).err().unwrap().to_string();
    assert!(e.contains("second.weight") && e.contains("damaged"), "{e}");
    bytes.truncate(last - 2);
    fs::write(&file, &bytes).unwrap();
    let e = Checkpoint::load(&path).err().unwrap().to_string();
    assert!(e.contains("second.weight") && e.contains("truncated"), "{e}");
}

#[test]
fn a_checkpoint_of_an_earlier_step_than_those_that_are_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    let run = CheckpointDir::new(dir.path(), 2);
    for step in [100, 200, 50] {
        let saved = run.save(step, &Checkpoint::new()).unwrap();
        assert!(saved.is_dir(), "step {step}");
    }
    assert_eq!(run.steps().unwrap(), [50, 200]);
}

/// A hash map's order is another in each map, so that two saves in one process can tell.
#[test]
fn equal_states_are_equal_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let read = |folder: &Path| -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let name = |p: &Path| p.file_name().unwrap().to_string_lossy().into_owned();
        files.iter().map(|p| (name(p), fs::read(p).unwrap())).collect()
    };
    let saved: Vec<_> = (0..8)
        .map(|i| {
            let path = dir.path().join(i.to_string());
            let checkpoint = Checkpoint::new().with_tensors("model", tensors());
            checkpoint.with_value("epoch", &3).unwrap().save(&path).unwrap();
            let file = path.join("more.safetensors");
            let metadata = ["a", "b", "c", "d"].map(|k| (k.to_owned(), k.to_owned())).into();
            save_file(&tensors(), &metadata, &file).unwrap();
            load_file(&file).unwrap();
            read(&path)
        })
        .collect();
    assert!(saved.iter().all(|files| *files == saved[0]));
}

#[test]
fn the_latest_is_found_and_old_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = CheckpointDir::new(dir.path().join("run"), 2);
    assert!(checkpoints.latest().unwrap().is_none());
    for step in [5u64, 10, 15] {
        let c = Checkpoint::new().with_value("step", &step).unwrap();
        checkpoints.save(step, &c).unwrap();
        checkpoints.save(step, &c).unwrap();
    }
    assert_eq!(checkpoints.steps().unwrap(), [10, 15]);
    let (step, path) = checkpoints.latest().unwrap().unwrap();
    assert_eq!((step, Checkpoint::load(path).unwrap().value::<u64>("step").unwrap()), (15, 15));
}

#[test]
fn missing_parts_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    Checkpoint::new().with_value("epoch", &1).unwrap().save(&path).unwrap();
    let c = Checkpoint::load(&path).unwrap();
    assert!(c.value::<i64>("step").unwrap_err().to_string().contains("epoch"));
    assert!(c.value::<String>("epoch").unwrap_err().to_string().contains("epoch"));
    assert!(c.tensors("model").err().unwrap().to_string().contains("model"));
    let e = Checkpoint::load(dir.path().join("none")).err().unwrap().to_string();
    assert!(e.contains("none"), "{e}");
}

#[test]
fn groups_do_not_run_into_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| TensorMap::from([(name.to_owned(), Tensor::from([1f32]))]);
    let both = Checkpoint::new().with_tensors("a", of("b.w")).with_tensors("a.b", of("w"));
    let error = both.save(dir.path().join("c")).unwrap_err().to_string();
    assert!(error.contains("`a.b` is beside `a`"), "{error}");
    let apart = Checkpoint::new().with_tensors("a", of("b.w")).with_tensors("ab", of("w"));
    apart.save(dir.path().join("c")).unwrap();
}

#[test]
fn what_lies_beside_a_checkpoint_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let save = || Checkpoint::new().with_tensors("model", tensors()).save(&path);
    save().unwrap();
    save().unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    let error = save().unwrap_err().to_string();
    assert!(error.contains("run holds notes.txt beside its checkpoint"), "{error}");
    fs::remove_file(path.join("notes.txt")).unwrap();
    // The checkpoints of a run within one.
    let error = CheckpointDir::new(&path, 1).save(1, &Checkpoint::new()).and_then(|_| save());
    assert!(error.unwrap_err().to_string().contains("holds step-00000001 beside"));
    fs::remove_dir_all(path.join("step-00000001")).unwrap();
    // A damaged one is replaced; another program's file is not.
    fs::write(path.join("state.json"), "{").unwrap();
    save().unwrap();
    fs::write(path.join("index.json"), r#"{"pages": []}"#).unwrap();
    let error = save().unwrap_err().to_string();
    assert!(error.contains("index.json is none of torchrs'"), "{error}");
    assert_eq!(fs::read_to_string(path.join("index.json")).unwrap(), r#"{"pages": []}"#);
}

const FOLDER: &str = "TORCHRS_TEST_CHECKPOINT_FOLDER";

/// Not a test by itself: the process that `row_43` kills.
#[test]
#[ignore = "run by row_43 as a child process"]
fn save_until_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let checkpoints = CheckpointDir::new(folder, 2);
    for step in 1u64.. {
        let value = Tensor::full([256, 1024], step as f64, Dtype::F32);
        let c = Checkpoint::new()
            .with_tensors("model", TensorMap::from([("w".into(), value)]))
            .with_value("step", &step)
            .unwrap();
        checkpoints.save(step, &c).unwrap();
    }
}

#[test]
fn row_43_a_kill_during_a_save_leaves_the_previous_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (mut newest, mut interrupted) = (0, 0);
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "checkpoint::save_until_killed", "--ignored"])
            .env(FOLDER, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let checkpoints = CheckpointDir::new(dir.path(), 2);
        // However slow the disk is, later rounds get further than earlier ones.
        let wanted = 2 + round / 4;
        while checkpoints.steps().unwrap().last().is_none_or(|s| *s < wanted) {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_micros(1700 * round));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        interrupted += usize::from(has_unfinished(dir.path()));
        let (step, path) = checkpoints.latest().unwrap().expect("a checkpoint");
        let c = Checkpoint::load(path).unwrap();
        assert_eq!(c.value::<u64>("step").unwrap(), step);
        let w = c.tensors("model").unwrap()["w"].to_vec::<f32>();
        assert!(w.iter().all(|v| *v == step as f32));
        newest = newest.max(step);
    }
    assert!(newest > 2);
    println!("{interrupted} of 12 kills hit a save");
}

fn has_unfinished(folder: &Path) -> bool {
    fs::read_dir(folder)
        .unwrap()
        .flatten()
        .any(|e| e.file_name().to_string_lossy().contains(".tmp-"))
}
