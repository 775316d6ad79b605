//! Folders as Hugging Face's tools write them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use torchrs::checkpoint::{
    Checkpoint, CheckpointDir, CheckpointFiles, CheckpointFormat, SaveShardedOptions, TensorMap,
    load_sharded, save_file, save_sharded,
};
use torchrs::{Dtype, Tensor};

use super::{assert_all_same, names, why};

const INDEX: &str = "model.safetensors.index.json";

fn tensors() -> TensorMap {
    let of = |n: usize, dtype| Tensor::arange(0i64, n as i64, 1i64, Dtype::I64).to_dtype(dtype);
    [
        ("a.weight", of(4, Dtype::F32)),
        ("b.weight", of(3, Dtype::BF16).view([3, 1])),
        ("c.weight", of(40, Dtype::F32)),
        ("d.bias", Tensor::scalar(2.5)),
        ("e", Tensor::zeros([0, 3], Dtype::F32)),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor))
    .into()
}

fn saved(folder: &Path, max_shard_size: u64) {
    save_sharded(&tensors(), folder, SaveShardedOptions { max_shard_size }).unwrap();
}

fn index(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join(INDEX)).unwrap()).unwrap()
}

#[test]
fn what_is_saved_in_files_of_a_size_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("llama");
    saved(&folder, 24);
    // 16 + 6 bytes, 160 bytes, 4 + 0 bytes.
    let file = |n: usize| format!("model-0000{n}-of-00003.safetensors");
    assert_eq!(names(&folder), [file(1), file(2), file(3), INDEX.to_owned()]);
    let expected = json!({
        "metadata": { "total_size": 16 + 6 + 160 + 4 },
        "weight_map": {
            "a.weight": file(2), "b.weight": file(2), "c.weight": file(1), "d.bias": file(3), "e": file(3),
        },
    });
    assert_eq!(index(&folder), expected);
    let files = CheckpointFiles::open(&folder).unwrap();
    assert_eq!(files.format(), CheckpointFormat::HuggingFace);
    assert_all_same(&files, &tensors());
    assert_eq!(load_sharded(&folder).unwrap().len(), 5);
    // A single file needs no index, and takes the place of the others.
    saved(&folder, 1000);
    assert_eq!(names(&folder), ["model.safetensors"]);
    assert_all_same(&CheckpointFiles::open(&folder).unwrap(), &tensors());
    save_sharded(&TensorMap::new(), &folder, SaveShardedOptions::default()).unwrap();
    assert!(load_sharded(&folder).unwrap().is_empty());
}

#[test]
fn a_folder_that_holds_more_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("llama");
    saved(&folder, 24);
    fs::write(folder.join("config.json"), "{}").unwrap();
    let before = names(&folder);
    let refused = why(save_sharded(&tensors(), &folder, SaveShardedOptions::default()));
    assert!(refused.contains("holds config.json, which would be lost"), "{refused}");
    assert_eq!((names(&folder), names(dir.path())), (before, vec!["llama".to_owned()]));
    let none = SaveShardedOptions { max_shard_size: 0 };
    let zero = why(save_sharded(&tensors(), dir.path().join("x"), none));
    assert!(zero.contains("max_shard_size"), "{zero}");
    let complex = TensorMap::from([("z".into(), Tensor::zeros([2], Dtype::C128))]);
    let lacks = why(save_sharded(&complex, dir.path().join("x"), SaveShardedOptions::default()));
    assert!(lacks.contains("safetensors lacks"), "{lacks}");
    assert_eq!(names(dir.path()), ["llama"]);
    // It is still read: what else is in the folder is none of its business.
    assert_eq!(load_sharded(&folder).unwrap().len(), 5);
}

/// The error after the index was changed.
fn changed(change: impl FnOnce(&mut Value, &Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("llama");
    saved(&folder, 24);
    let mut document = index(&folder);
    change(&mut document, &folder);
    fs::write(folder.join(INDEX), document.to_string()).unwrap();
    let error = why(load_sharded(&folder));
    assert_eq!(error, why(CheckpointFiles::open(&folder)));
    error
}

#[test]
fn an_index_that_does_not_agree_with_its_files_names_both() {
    let third = "model-00003-of-00003.safetensors";
    for (error, parts) in [
        (
            changed(|_, folder| fs::remove_file(folder.join(third)).unwrap()),
            vec![INDEX, third, "not there"],
        ),
        (
            changed(|d, _| d["weight_map"]["new"] = json!(third)),
            vec![INDEX, third, "`new`", "none of that name"],
        ),
        (
            changed(|d, _| _ = d["weight_map"].as_object_mut().unwrap().remove("d.bias")),
            vec![INDEX, third, "does not name tensor `d.bias`"],
        ),
        (
            changed(|d, _| d["weight_map"]["a.weight"] = json!(third)),
            vec![INDEX, third, "`a.weight`", "model-00002-of-00003.safetensors has one"],
        ),
        (
            changed(|d, _| d["weight_map"]["d.bias"] = json!("../d.safetensors")),
            vec![INDEX, "../d.safetensors", "none of its folder"],
        ),
        (
            changed(|_, folder| {
                save_file(&TensorMap::new(), &Default::default(), folder.join("model.safetensors"))
                    .unwrap();
            }),
            vec![INDEX, "model.safetensors", "left over"],
        ),
        (changed(|d, _| *d = json!({})), vec![INDEX, "weight_map"]),
        (
            changed(|_, folder| {
                let bytes = fs::read(folder.join(third)).unwrap();
                fs::write(folder.join(third), &bytes[..bytes.len() - 1]).unwrap();
            }),
            vec![third, "truncated"],
        ),
    ] {
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(why(load_sharded(dir.path())).contains("has neither"), "an empty folder");
    assert!(why(load_sharded(dir.path().join("none"))).contains("none"), "no folder");
    let run = CheckpointDir::new(dir.path().join("run"), 1);
    let step = run.save(3, &Checkpoint::new().with_tensors("net", TensorMap::new())).unwrap();
    let error = why(load_sharded(&step));
    assert!(error.contains("its format is folder, which `Checkpoint::open` reads"), "{error}");
    let error = why(CheckpointFiles::open(dir.path().join("run")));
    assert!(error.contains("there is one inside: ") && error.contains("step-00000003"), "{error}");
}
