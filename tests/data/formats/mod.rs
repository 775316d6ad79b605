//! Checkpoints in other formats than ours: Hugging Face's folders, PyTorch's distributed checkpoints, and what is made of
//! one another.

mod convert;
mod dcp;
mod huggingface;

use std::fs;
use std::path::{Path, PathBuf};

use torchrs::checkpoint::{CheckpointFiles, TensorMap};
use torchrs::{Dtype, Tensor};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dcp").join(name)
}

/// Two tensors that have the same bits.
fn assert_same(name: &str, a: &Tensor, b: &Tensor) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{name}");
    let bits = |t: &Tensor| match t.dtype() {
        Dtype::C64 | Dtype::C128 => {
            format!("{:?}", t.view_as_real().to_dtype(Dtype::F64).to_vec::<f64>())
        }
        Dtype::I64 => format!("{:?}", t.to_vec::<i64>()),
        _ => format!("{:?}", t.to_dtype(Dtype::F64).to_vec::<f64>()),
    };
    assert_eq!(bits(a), bits(b), "{name}");
}

fn assert_all_same(files: &CheckpointFiles, expected: &TensorMap) {
    let names: Vec<&str> = files.tensors().map(|stored| stored.name).collect();
    assert_eq!(names, expected.keys().collect::<Vec<_>>());
    for (name, tensor) in expected {
        assert_same(name, &files.tensor(name).unwrap(), tensor);
    }
}

/// A copy of a folder.
fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn why<T>(result: torchrs::Result<T>) -> String {
    result.err().expect("an error").to_string()
}
