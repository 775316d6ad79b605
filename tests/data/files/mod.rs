//! Files of PyTorch and NumPy: those that Python wrote (`tools/golden/torch_files.py`), those that are
//! written here, and thousands of damaged ones, which must be errors or values but nothing worse.

mod failures;
mod kills;
mod memory;
mod values;
mod views;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use torchrs::checkpoint::{
    PtValue, TensorMap, load_file, load_file_mapped, load_npy, load_npz, load_pt, save_file,
    save_npy, save_npz, save_pt,
};
use torchrs::nn::{self, Module};
use torchrs::optim::{Adam, AdamOptions, Optimizer};
use torchrs::{Dtype, Error, Result, Tensor, catch, no_grad};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/files").join(name)
}

fn tensor<'a>(value: &'a PtValue, name: &str) -> &'a Tensor {
    match value.get(name) {
        Some(PtValue::Tensor(tensor)) => tensor,
        other => panic!("{name}: {other:?}"),
    }
}

/// This program again, to run one ignored test.
fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(value: &PtValue) -> String {
    format!("{value:?}")
}

/// What `nested` of the script holds.
fn check_nested(value: &PtValue) {
    let get = |name: &str| value.get(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(text(get("epoch")), "Int(3)");
    assert_eq!(text(get("lr")), "Float(0.1)");
    assert_eq!(text(get("name")), "Str(\"täst\")");
    assert_eq!(
        text(get("list")),
        "List([Bool(true), Bool(false), None, Int(-5), Int(1099511627776), Int(-1099511627776), \
         Int(300), Int(70000)])"
    );
    assert_eq!(text(get("pair")), "Tuple([Float(0.9), Float(0.999)])");
    assert_eq!(text(get("shape")), "Tuple([Int(2), Int(3)])");
    assert_eq!(text(get("dtype")), "Dtype(F16)");
    assert_eq!(text(get("bytes")), "Bytes([0, 255])");
    assert_eq!(text(get("set")), "List([Int(1)])");
    assert_eq!(text(get("counter")), "Dict([(Int(2), Int(1))])");
    assert_eq!(text(get("ordered")), "Dict([(Str(\"b\"), Int(1)), (Str(\"a\"), Int(2))])");
    assert_eq!(text(get("device")), "Str(\"cpu\")");
    let PtValue::Dict(entries) = value else { panic!("a dict") };
    assert!(entries.iter().any(|(k, v)| matches!((k, v), (PtValue::Int(7), PtValue::Str(_)))));

    for dtype in Dtype::ALL.into_iter().filter(|d| !d.is_complex()) {
        let name = match dtype {
            Dtype::F64 => "float64",
            Dtype::F32 => "float32",
            Dtype::F16 => "float16",
            Dtype::BF16 => "bfloat16",
            Dtype::I64 => "int64",
            Dtype::I32 => "int32",
            Dtype::I16 => "int16",
            Dtype::I8 => "int8",
            Dtype::U8 => "uint8",
            Dtype::Bool => "bool",
            _ => unreachable!("complex numbers are left out above"),
        };
        let t = tensor(get("types"), name);
        assert_eq!((t.dtype(), t.to_vec::<f64>()), (dtype, vec![0.0, 1.0, 1.0, 0.0, 1.0]));
    }
    let base = tensor(value, "base");
    assert_eq!(base.to_vec::<f32>(), (0..12).map(|i| i as f32).collect::<Vec<_>>());
    let part = tensor(value, "part");
    assert_eq!((part.shape(), part.strides()), (&[2, 2][..], &[4, 2][..]));
    assert_eq!(part.to_vec::<f32>(), [4.0, 6.0, 8.0, 10.0]);
    let turned = tensor(value, "turned");
    assert_eq!((turned.shape(), turned.strides()), (&[4, 3][..], &[1, 4][..]));
    // They share memory, as they did.
    no_grad(|| _ = base.fill_(9.0));
    assert_eq!((part.to_vec::<f32>(), turned.sum().item()), (vec![9.0; 4], 108.0));
    assert_eq!(tensor(value, "expanded").to_vec::<f32>(), [5.0; 6]);
    assert_eq!(tensor(value, "empty").shape(), &[0, 3]);
    assert_eq!(tensor(value, "scalar").item(), 2.5);
    assert!(tensor(value, "parameter").requires_grad() && !part.requires_grad());

    // A model and its optimizer's running averages.
    let model = nn::Sequential::new().append(nn::Linear::new(3, 2)).append(nn::BatchNorm1d::new(2));
    model.load_state_dict(&get("model").tensors().unwrap(), true).unwrap();
    let averages = get("optimizer").get("state").unwrap();
    let PtValue::Dict(states) = averages else { panic!("a dict") };
    assert_eq!(states.len(), 4);
    assert_eq!(tensor(&states[0].1, "exp_avg").shape(), &[2, 3]);
    assert_eq!(text(get("scheduler").get("last_epoch").unwrap()), "Int(1)");
    assert!(get("scheduler").tensors().unwrap_err().to_string().contains("milestones"));
}

#[test]
fn files_of_pytorch_are_read() {
    for name in ["nested.pt", "legacy.pt", "protocol4.pt"] {
        check_nested(&load_pt(fixture(name)).unwrap_or_else(|e| panic!("{e}")));
    }
    let state = load_pt(fixture("model.pt")).unwrap().tensors().unwrap();
    assert_eq!(state["0.weight"].shape(), &[2, 3]);
    assert_eq!(state["1.num_batches_tracked"].dtype(), Dtype::I64);
}

#[test]
fn files_of_big_endian_machines_are_read_or_refused() {
    let file = load_pt(fixture("big_endian.pt")).unwrap();
    for name in ["float64", "float32", "bfloat16", "int64", "int16"] {
        let read = tensor(&file, name).to_dtype(Dtype::F64);
        assert_eq!(read.to_vec::<f64>(), [-2.0, 1.0, 300.0], "{name}");
    }
    let complex = tensor(&file, "complex64").view_as_real().to_vec::<f32>();
    assert_eq!(complex, [1.0, 2.0, 0.0, -3.0]);
    // Of what is kept as bytes nobody knows where a number begins.
    refused(load_pt(fixture("big_endian_unsigned.pt")), "big-endian");

    let mut legacy = std::fs::read(fixture("legacy.pt")).unwrap();
    let key = b"little_endian";
    let at = legacy.windows(key.len()).position(|w| w == key).expect("the machine's facts");
    let [yes, no] = [0x88, 0x89];
    let value = at + key.len() + legacy[at + key.len()..].iter().position(|b| *b == yes).unwrap();
    legacy[value] = no;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    std::fs::write(&path, legacy).unwrap();
    refused(load_pt(&path), "big-endian");
}

#[test]
fn complex_numbers_are_read() {
    let parts = |t: &Tensor| t.view_as_real().to_vec::<f64>();
    let file = load_pt(fixture("complex.pt")).unwrap();
    assert_eq!(parts(tensor(&file, "x")), [1.0, 2.0, 3.0, 0.0]);
    assert_eq!(
        (parts(tensor(&file, "y")), tensor(&file, "y").dtype()),
        (vec![0.0, 4.0], Dtype::C128)
    );
    let array = load_npy(fixture("complex.npy")).unwrap();
    assert_eq!((parts(&array)[10..].to_vec(), array.dtype()), (vec![0.0, 5.0], Dtype::C64));
    assert_eq!(parts(&load_npy(fixture("big_complex.npy")).unwrap())[10..], [5.0, 1.0]);
}

#[test]
fn an_optimizer_of_pytorch_goes_on() {
    let file = load_pt(fixture("adam.pt")).unwrap();
    let list = |name: &str| match file.get(name) {
        Some(PtValue::List(items)) => {
            let tensor = |item: &PtValue| match item {
                PtValue::Tensor(t) => t.clone(),
                other => panic!("{other:?}"),
            };
            items.iter().map(tensor).collect::<Vec<_>>()
        }
        other => panic!("{name}: {other:?}"),
    };
    let state = file.get("optimizer").unwrap().optimizer_state().unwrap();
    // Written here and read again, it is the same.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("optimizer.pt");
    save_pt(&PtValue::from(&state), &path).unwrap();
    for state in [&state, &load_pt(&path).unwrap().optimizer_state().unwrap()] {
        let copies = list("before").iter().map(Tensor::clone_contiguous).collect::<Vec<_>>();
        let params: Vec<Tensor> = copies.into_iter().map(|t| t.requires_grad_(true)).collect();
        let mut adam = Adam::new(params.clone(), AdamOptions::default());
        adam.load_state_dict(state).unwrap();
        assert_eq!(adam.options(0).lr, 0.01);
        for (p, grad) in params.iter().zip(list("grads")) {
            p.set_grad(Some(grad));
        }
        adam.step();
        for (p, after) in params.iter().zip(list("after")) {
            let error = (p.detach() - after).abs().max().item();
            assert!(error < 1e-7, "{error}");
        }
    }
    let wrong = PtValue::Dict(vec![]).optimizer_state().unwrap_err().to_string();
    assert!(wrong.contains("param_groups"), "{wrong}");
}

#[track_caller]
fn refused<T>(result: Result<T>, about: &str) {
    match result {
        Err(error @ Error::File { .. }) => {
            assert!(error.to_string().contains(about), "{error}");
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("was read"),
    }
}

#[test]
fn what_is_no_data_is_refused() {
    refused(load_pt(fixture("doubling.pt")), "unfolds");
    refused(load_pt(fixture("deep.pt")), "deep");
    refused(load_pt(fixture("cycle.pt")), "unfolds");
    refused(load_pt(fixture("arrays.npz")), "data.pkl");
    refused(load_pt(fixture("plain.npy")), "neither");
    refused(load_npz(fixture("model.pt")), "is no array");
    refused(load_npy(fixture("model.pt")), "no array of NumPy");
    refused(load_npy(fixture("unsigned.npy")), "<u4");
    refused(load_npy(fixture("objects.npy")), "|O");
    refused(load_npy(fixture("fields.npy")), "plain elements");
}

#[test]
fn what_is_written_for_pytorch_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    let whole = load_pt(fixture("nested.pt")).unwrap();
    save_pt(&whole, &path).unwrap();
    check_nested(&load_pt(&path).unwrap());
    // Memory that is shared is written once.
    let base = Tensor::zeros([1000], Dtype::F32);
    let views = (0..50).map(|i| (format!("v{i}"), base.narrow(0, i, 900))).collect::<TensorMap>();
    save_pt(&PtValue::from(&views), &path).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 20_000);
    let back = load_pt(&path).unwrap().tensors().unwrap();
    no_grad(|| _ = back["v0"].fill_(1.0));
    assert_eq!(back["v49"].sum().item(), 851.0);
    for value in [PtValue::Int(i64::MIN), PtValue::Float(f64::NAN), PtValue::Bytes(vec![7; 300])] {
        save_pt(&value, &path).unwrap();
        assert_eq!(text(&load_pt(&path).unwrap()), text(&value));
    }
}

#[test]
fn arrays_of_numpy_are_read() {
    for name in ["arrays.npz", "packed.npz"] {
        let arrays = load_npz(fixture(name)).unwrap();
        for (name, dtype) in [
            ("f8", Dtype::F64),
            ("f4", Dtype::F32),
            ("f2", Dtype::F16),
            ("i8", Dtype::I64),
            ("i4", Dtype::I32),
            ("i2", Dtype::I16),
            ("i1", Dtype::I8),
            ("u1", Dtype::U8),
        ] {
            let t = &arrays[name];
            assert_eq!((t.dtype(), t.shape()), (dtype, &[2, 3][..]));
            assert_eq!(t.to_vec::<f64>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        }
        assert_eq!(arrays["?"].to_vec::<bool>(), [false, true, true, true, true, true]);
        assert_eq!((arrays["scalar"].dim(), arrays["scalar"].item()), (0, 2.5));
        assert_eq!((arrays["empty"].shape(), arrays["line"].shape()), (&[0, 3][..], &[3][..]));
    }
    let plain = load_npy(fixture("plain.npy")).unwrap();
    let fortran = load_npy(fixture("fortran.npy")).unwrap();
    assert_eq!((fortran.shape(), fortran.strides()), (&[2, 3][..], &[1, 2][..]));
    assert_eq!(fortran.to_vec::<f32>(), plain.to_vec::<f32>());
    let big = load_npy(fixture("big_endian.npy")).unwrap();
    assert_eq!((big.dtype(), big.to_vec::<i32>()), (Dtype::I32, vec![0, 1, 2, 3, 4, 5]));
}

#[test]
fn arrays_that_are_written_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (npy, npz) = (dir.path().join("x.npy"), dir.path().join("x.npz"));
    let mut all = TensorMap::new();
    for dtype in Dtype::ALL.into_iter().filter(|d| *d != Dtype::BF16) {
        for shape in [&[][..], &[3], &[0, 2], &[2, 3, 4]] {
            let n = shape.iter().product::<usize>() as f64;
            let t = Tensor::arange(0.0, n, 1.0, Dtype::F64)
                .to_dtype(dtype)
                .reshape(&shape.iter().map(|&n| n as i64).collect::<Vec<_>>()[..]);
            save_npy(&t, &npy).unwrap();
            assert!(load_npy(&npy).unwrap().equal(&t));
            // As NumPy does, for the elements to be aligned.
            assert_eq!(
                fs::metadata(&npy).unwrap().len() as usize % 64,
                t.numel() * dtype.size() % 64
            );
            all.insert(format!("{dtype}-{}", shape.len()), t);
        }
    }
    save_npz(&all, &npz).unwrap();
    let back = load_npz(&npz).unwrap();
    assert_eq!(back.len(), all.len());
    assert!(all.iter().all(|(name, t)| back[name].equal(t) && back[name].dtype() == t.dtype()));
    let half = Tensor::ones([2], Dtype::BF16);
    assert!(save_npy(&half, &npy).unwrap_err().to_string().contains("bf16"));
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below.max(1)
    }
}

/// Variants of a file: cut off, with changed bytes, with numbers made huge, with parts that are
/// repeated or left out.
fn damaged(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bad = good.to_vec();
    for _ in 0..=dice.next(3) {
        let at = dice.next(bad.len());
        match dice.next(8) {
            0 => bad.truncate(at),
            1 | 2 if !bad.is_empty() => bad[at] ^= 1 << dice.next(8),
            3 if !bad.is_empty() => bad[at] = [0, 1, 0x7F, 0x80, 0xFF][dice.next(5)],
            4 if !bad.is_empty() => bad[at] = dice.next(256) as u8,
            5 => {
                let end = (at + 8).min(bad.len());
                bad[at..end].fill([0, 0xFF, 0x7F][dice.next(3)]);
            }
            6 => {
                let part = bad[at..(at + dice.next(40)).min(bad.len())].to_vec();
                let to = dice.next(bad.len());
                bad.splice(to..to, part);
            }
            _ => drop(bad.drain(at..(at + dice.next(40)).min(bad.len()))),
        }
    }
    bad
}

/// Reads `rounds` damaged variants of each file.
fn survives<T>(files: &[PathBuf], rounds: usize, load: impl Fn(&Path) -> Result<T>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged");
    let mut dice = Dice(7);
    let (mut read, mut refused) = (0, 0);
    for file in files {
        let good = fs::read(file).unwrap();
        assert!(load(file).is_ok(), "{}", file.display());
        for round in 0..rounds {
            // Every place of cutting off, then chance.
            let bad = match round {
                _ if round * 2 < rounds => good[..good.len() * round * 2 / rounds].to_vec(),
                _ => damaged(&good, &mut dice),
            };
            fs::write(&path, &bad).unwrap();
            let outcome = catch(std::panic::AssertUnwindSafe(|| load(&path)));
            match outcome.expect("an error is given back, not thrown") {
                Ok(_) => read += 1,
                Err(Error::File { path: named, .. }) => {
                    assert_eq!(named, path);
                    refused += 1;
                }
                Err(Error::Os { .. }) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > read, "{refused} of {} were refused", read + refused);
}

#[test]
fn damaged_files_of_pytorch_do_no_harm() {
    let names = ["model.pt", "nested.pt", "legacy.pt", "protocol4.pt", "foreign.pt", "marked.pt"];
    survives(&names.map(fixture), 400, |path| load_pt(path));
}

/// The pickle by itself: the archive's checksums would hide most damage from it.
#[test]
fn damaged_pickles_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    for file in ["legacy.pt", "foreign_legacy.pt"] {
        let good = fs::read(fixture(file)).unwrap();
        let end =
            good.windows(5).rposition(|w| w == b"\x80\x02]q\x00").expect("the storages' list");
        let mut dice = Dice(11);
        for _ in 0..1500 {
            let mut bad = damaged(&good[..end], &mut dice);
            bad.extend(&good[end..]);
            fs::write(&path, &bad).unwrap();
            let outcome = catch(std::panic::AssertUnwindSafe(|| load_pt(&path)));
            drop(outcome.expect("an error is given back, not thrown"));
        }
    }
}

#[test]
fn damaged_arrays_do_no_harm() {
    survives(&["plain.npy", "fortran.npy", "big_endian.npy"].map(fixture), 1000, |path| {
        load_npy(path)
    });
    survives(&["arrays.npz", "packed.npz"].map(fixture), 500, |path| load_npz(path));
}

#[test]
fn damaged_safetensors_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    let tensors = load_pt(fixture("model.pt")).unwrap().tensors().unwrap();
    save_file(&tensors, &Default::default(), &path).unwrap();
    let paths = [path];
    survives(&paths, 1000, |path| load_file(path));
    survives(&paths, 1000, |path| load_file_mapped(path));
}

#[test]
fn sizes_that_no_file_can_hold_are_errors_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let array = |shape: &str| {
        let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape}), }}\n");
        let head = [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()];
        fs::write(&path, head.concat()).unwrap();
        load_npy(&path)
    };
    refused(array("1000000000000,"), "0 bytes of elements");
    refused(array("4294967296, 4294967296, 4294967296"), "0 bytes of elements");
    refused(array("99999999999999999999,"), "a size");
    assert_eq!(array("0, 1000000000").unwrap().numel(), 0);
    let header = br#"{"x":{"dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,0]}}"#;
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header].concat()).unwrap();
    refused(load_file(&path), "not an intact");
    fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    refused(load_file(&path), "too large");
}
