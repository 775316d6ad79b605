//! Every kind of view by itself in every format, there and back, and as PyTorch and NumPy read it where
//! they are installed (`TORCHRS_TEST_PYTHON` names another Python than `python3`).

use std::path::Path;
use std::process::Command;

use torchrs::checkpoint::{
    PtValue, TensorMap, load_file, load_file_mapped, load_npy, load_npz, load_pt, save_file,
    save_npy, save_npz, save_pt,
};
use torchrs::{Complex, Dtype, Tensor};

/// Views of a tensor of 4 x 6.
fn views(x: &Tensor) -> Vec<(&'static str, Tensor)> {
    let mut views = vec![
        ("whole", x.clone()),
        ("narrow", x.narrow(0, 1, 2)),
        ("narrow_columns", x.narrow(1, 2, 3)),
        ("select", x.select(0, 2)),
        ("select_column", x.select(1, 3)),
        ("element", x.select(0, 3).select(0, 5)),
        ("transposed", x.t()),
        ("part_transposed", x.narrow(0, 1, 2).t()),
        ("chunk", x.chunk(3, 1)[1].clone()),
        ("unbind", x.unbind(0)[2].clone()),
        ("expanded", x.narrow(0, 2, 1).expand(&[3, 6])),
        ("unsqueezed", x.select(0, 1).unsqueeze(1)),
        ("flat", x.view([24])),
        ("permuted", x.view([2, 2, 6]).permute(&[2, 0, 1])),
        ("nothing", x.narrow(0, 4, 0)),
        ("overlapping", x.as_strided(&[3, 3], &[2, 1], 4)),
    ];
    if x.dtype().is_complex() {
        views.push(("real", x.real()));
        views.push(("imag", x.imag()));
        views.push(("parts", x.select(0, 1).view_as_real()));
    }
    views
}

fn base(dtype: Dtype) -> Tensor {
    let parts: Vec<Complex<f64>> =
        (0..24).map(|i| Complex::new(f64::from(i), f64::from(i) * -0.5)).collect();
    match dtype.is_complex() {
        true => Tensor::from_slice(&parts, [4, 6]).to_dtype(dtype),
        false => Tensor::arange(0, 24, 1, Dtype::I64).view([4, 6]).to_dtype(dtype),
    }
}

#[test]
fn every_view_alone_comes_back_from_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for dtype in Dtype::ALL {
        for (name, view) in views(&base(dtype)) {
            let same = |format: &str, back: &Tensor| {
                let (what, found) = ((view.shape(), view.dtype()), (back.shape(), back.dtype()));
                assert_eq!(found, what, "{dtype} {name} in {format}");
                assert!(back.equal(&view), "{dtype} {name} in {format}: {back} for {view}");
            };
            let map = TensorMap::from([("x".to_owned(), view.clone())]);
            save_pt(&PtValue::from(&map), at("x.pt")).unwrap_or_else(|e| panic!("{name}: {e}"));
            same("pt", &load_pt(at("x.pt")).unwrap().tensors().unwrap()["x"]);
            if view.dtype() != Dtype::BF16 {
                save_npy(&view, at("x.npy")).unwrap();
                same("npy", &load_npy(at("x.npy")).unwrap());
                save_npz(&map, at("x.npz")).unwrap();
                same("npz", &load_npz(at("x.npz")).unwrap()["x"]);
            }
            if view.dtype() != Dtype::C128 {
                save_file(&map, &Default::default(), at("x.safetensors")).unwrap();
                same("safetensors", &load_file(at("x.safetensors")).unwrap()["x"]);
                same("mapped", &load_file_mapped(at("x.safetensors")).unwrap()["x"]);
            }
        }
    }
}

#[test]
fn names_of_any_length_and_kind_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let long = "layer.".repeat(60) + "weight";
    let strange = ["a/b", "../up", "/top", "a\\b", "a//b", "täst", "", ".", "a b\n"];
    let all: TensorMap = strange
        .iter()
        .map(|name| (*name).to_owned())
        .chain([long])
        .enumerate()
        .map(|(i, name)| (name, Tensor::scalar(i as i64)))
        .collect();
    let check = |back: TensorMap| {
        assert_eq!(back.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
        assert!(all.iter().all(|(name, t)| back[name].equal(t)));
    };
    let at = |name: &str| dir.path().join(name);
    save_npz(&all, at("x.npz")).unwrap();
    check(load_npz(at("x.npz")).unwrap());
    save_pt(&PtValue::from(&all), at("x.pt")).unwrap();
    check(load_pt(at("x.pt")).unwrap().tensors().unwrap());
    save_file(&all, &Default::default(), at("x.safetensors")).unwrap();
    check(load_file(at("x.safetensors")).unwrap());
    let zero = TensorMap::from([("a\0b".to_owned(), Tensor::scalar(1))]);
    let error = save_npz(&zero, at("zero.npz")).unwrap_err().to_string();
    assert!(error.contains("cannot be the name") && !at("zero.npz").exists(), "{error}");
}

#[test]
fn equal_state_is_equal_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let tensors: TensorMap = Dtype::ALL
        .into_iter()
        .filter(|d| !matches!(d, Dtype::C128 | Dtype::BF16))
        .map(|dtype| (format!("t.{dtype}"), base(dtype)))
        .collect();
    let metadata = (0..8).map(|i| (format!("key {i}"), i.to_string())).collect();
    let write = |name: &str| {
        let path = dir.path().join(name);
        let mut all = Vec::new();
        save_pt(&PtValue::from(&tensors), &path).unwrap();
        all.push(std::fs::read(&path).unwrap());
        save_npz(&tensors, &path).unwrap();
        all.push(std::fs::read(&path).unwrap());
        save_file(&tensors, &metadata, &path).unwrap();
        all.push(std::fs::read(&path).unwrap());
        all
    };
    let first = write("a");
    for _ in 0..5 {
        assert!(write("b") == first);
    }
}

const CHECK: &str = r#"
import pathlib, sys, warnings
import numpy as np
try:
    import torch
except ImportError:
    torch = None
folder = pathlib.Path(sys.argv[1])
count = 0
for expected in sorted(folder.glob("*.expected.npy")):
    name = expected.name.removesuffix(".expected.npy")
    wanted = np.load(expected)
    found = {"npy": np.load(folder / f"{name}.npy"), "npz": np.load(folder / f"{name}.npz")["x"]}
    if torch is not None:
        x = torch.load(folder / f"{name}.pt", weights_only=True)["x"]
        found["pt"] = x.detach().numpy()
    for kind, array in found.items():
        if array.dtype != wanted.dtype or array.shape != wanted.shape or not np.array_equal(array, wanted):
            sys.exit(f"{name} in {kind}: {array} for {wanted}")
        count += 1
print(count, "read by NumPy", np.__version__, "and PyTorch", torch and torch.__version__)
"#;

#[test]
fn pytorch_and_numpy_read_every_view() {
    let python = std::env::var("TORCHRS_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let there = Command::new(&python).args(["-c", "import numpy"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python} has no NumPy");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: String| dir.path().join(name);
    let mut count = 0;
    for dtype in Dtype::ALL.into_iter().filter(|d| *d != Dtype::BF16) {
        for (name, view) in views(&base(dtype)) {
            let name = format!("{dtype}-{name}");
            let map = TensorMap::from([("x".to_owned(), view.clone())]);
            save_npy(&view.clone_contiguous(), at(format!("{name}.expected.npy"))).unwrap();
            save_npy(&view, at(format!("{name}.npy"))).unwrap();
            save_npz(&map, at(format!("{name}.npz"))).unwrap();
            save_pt(&PtValue::from(&map), at(format!("{name}.pt"))).unwrap();
            count += 1;
        }
    }
    let output = run(&python, dir.path());
    println!("{output}");
    let read: usize = output.split_whitespace().next().unwrap().parse().unwrap();
    assert!(read >= 2 * count, "{output}");
}

fn run(python: &str, folder: &Path) -> String {
    let output = Command::new(python).args(["-c", CHECK]).arg(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
