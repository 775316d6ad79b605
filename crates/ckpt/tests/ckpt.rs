//! `torchrs ckpt` as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use torchrs::checkpoint::{
    Checkpoint, CheckpointFiles, TensorMap, load_pt, load_sharded, save_file,
};
use torchrs::{Dtype, Tensor};

struct Done {
    code: Option<i32>,
    out: String,
    errors: String,
}

fn ckpt(folder: &Path, arguments: &[&str]) -> Done {
    let program = env!("CARGO_BIN_EXE_torchrs-ckpt");
    let done = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: done.status.code(), out: text(done.stdout), errors: text(done.stderr) }
}

/// A checkpoint `step-10` in a folder.
fn with_checkpoint() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let weight = Tensor::arange(0i64, 21i64, 1i64, Dtype::I64).to_dtype(Dtype::F32).view([7, 3]);
    let model = [("weight", weight), ("count", Tensor::scalar(5i64))];
    let model: TensorMap = model.map(|(name, tensor)| (name.to_owned(), tensor)).into();
    Checkpoint::new()
        .with_tensors("model", model)
        .with_value("step", &10)
        .unwrap()
        .save(folder.path().join("step-10"))
        .unwrap();
    folder
}

fn dcp() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/dcp")
}

#[test]
fn inspect_lists_tensors_totals_and_values() {
    let folder = with_checkpoint();
    let done = ckpt(folder.path(), &["inspect", "step-10"]);
    let expected = "\
step-10: folder

tensor        dtype  shape   pieces  bytes
model.count   i64    []           1    8 B
model.weight  f32    [7, 3]       1   84 B

model: 2 tensors, 22 parameters, 92 B
all: 2 tensors, 22 parameters, 92 B

step = 10
";
    assert_eq!((done.code, done.out.as_str(), done.errors.as_str()), (Some(0), expected, ""));
    let one = ckpt(folder.path(), &["inspect", "step-10", "model.weight"]);
    assert!(
        one.out.contains("min 0, max 20, mean 10, not finite: 0\nfirst: 0 1 2 3"),
        "{}",
        one.out
    );
    assert_eq!(ckpt(folder.path(), &["inspect", "step-10", "step"]).out, "10\n");
    let part = ckpt(folder.path(), &["inspect", "step-10", "model.w"]);
    assert!(
        part.out.contains("all: 1 tensor, 21") && !part.out.contains("step = "),
        "{}",
        part.out
    );
    let none = ckpt(folder.path(), &["inspect", "step-10", "modle"]);
    assert_eq!(none.code, Some(2));
    assert!(none.errors.contains("has no tensor or value `modle`"), "{}", none.errors);
}

#[test]
fn inspect_gives_json() {
    let folder = with_checkpoint();
    let all = ckpt(folder.path(), &["inspect", "step-10", "--json"]);
    let document: Value = serde_json::from_str(&all.out).unwrap();
    let weight = json!({ "name": "model.weight", "dtype": "f32", "shape": [7, 3], "pieces": 1, "bytes": 84 });
    assert_eq!(document["tensors"][1], weight);
    assert_eq!((&document["bytes"], &document["elements"]), (&json!(92), &json!(22)));
    assert_eq!(
        (&document["values"], &document["format"]),
        (&json!({ "step": 10 }), &json!("folder"))
    );
    let one = ckpt(folder.path(), &["inspect", "--json", "step-10", "model.weight"]);
    let document: Value = serde_json::from_str(&one.out).unwrap();
    assert_eq!(document["statistics"]["mean"], 10.0);
    let shards = ckpt(&dcp(), &["inspect", "fsdp", "--json"]);
    let document: Value = serde_json::from_str(&shards.out).unwrap();
    assert_eq!((&document["format"], &document["values"]["epoch"]), (&json!("dcp"), &json!(3)));
    assert_eq!(document["groups"], json!(["model", "optim"]));
}

#[test]
fn verify_names_what_is_damaged() {
    let folder = with_checkpoint();
    let whole = ckpt(folder.path(), &["verify", "step-10"]);
    assert_eq!(
        (whole.code, whole.out.as_str()),
        (Some(0), "2 tensors, 92 B as they were written\n")
    );
    let reshard = ckpt(folder.path(), &["reshard", "step-10", "ranks", "--ranks", "3"]);
    assert_eq!(reshard.code, Some(0), "{}", reshard.errors);
    let path = folder.path().join("ranks/rank-00001.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::remove_file(folder.path().join("ranks/rank-00002.safetensors")).unwrap();
    let damaged = ckpt(folder.path(), &["verify", "ranks"]);
    assert_eq!(damaged.code, Some(1));
    assert_eq!(damaged.out, "1 of 2 tensors damaged: model.weight\n");
    for part in
        ["rank-00001.safetensors: tensor `model.weight` is damaged", "rank-00002.safetensors"]
    {
        assert!(damaged.errors.contains(part), "{part}: {}", damaged.errors);
    }
    let unchecked = {
        let tensors = TensorMap::from([("x".to_owned(), Tensor::from([1f32]))]);
        save_file(&tensors, &Default::default(), folder.path().join("x.safetensors")).unwrap();
        // As other programs write them: without checksums.
        let header = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}   ";
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend(1f32.to_le_bytes());
        fs::write(folder.path().join("x.safetensors"), bytes).unwrap();
        ckpt(folder.path(), &["verify", "x.safetensors"])
    };
    assert_eq!(unchecked.code, Some(0), "{}", unchecked.errors);
    assert!(unchecked.out.contains("4 B could be read, and have no checksum"), "{}", unchecked.out);
    let none = ckpt(folder.path(), &["verify", "none"]);
    assert_eq!(none.code, Some(1));
    assert!(none.errors.contains("open none"), "{}", none.errors);
}

#[test]
fn convert_makes_every_format_and_overwrites_nothing() {
    let folder = with_checkpoint();
    for to in ["safetensors", "huggingface", "dcp", "sharded", "pt"] {
        let arguments =
            ["convert", "step-10", to, "--to", to, "--only", "model", "--dtype", "bf16"];
        let made = ckpt(folder.path(), &arguments);
        assert_eq!(made.code, Some(0), "{to}: {}", made.errors);
        assert!(made.out.starts_with(&format!("made {to}: 2 tensors as {to}, ")), "{}", made.out);
        assert!(
            made.out.ends_with("left out, as there are only tensors in it: step\n"),
            "{}",
            made.out
        );
        let files = CheckpointFiles::open(folder.path().join(to)).unwrap();
        assert_eq!(files.tensor("weight").unwrap().dtype(), Dtype::BF16);
        let again = ckpt(folder.path(), &arguments);
        assert_eq!(again.code, Some(2));
        assert!(again.errors.contains("nothing is overwritten"), "{}", again.errors);
    }
    let made = ckpt(
        folder.path(),
        &["convert", "step-10", "small", "--to", "huggingface", "--max-shard-size", "90B"],
    );
    assert_eq!(made.code, Some(0), "{}", made.errors);
    assert!(folder.path().join("small/model-00002-of-00002.safetensors").exists());
    assert_eq!(load_sharded(folder.path().join("small")).unwrap().len(), 2);
    let pt = ckpt(folder.path(), &["convert", "step-10", "all.pt", "--to", "pt"]);
    assert_eq!((pt.code, pt.out.lines().count()), (Some(0), 1), "{}", pt.errors);
    assert!(load_pt(folder.path().join("all.pt")).unwrap().get("step").is_some());
    let size =
        ckpt(folder.path(), &["convert", "step-10", "y", "--to", "pt", "--max-shard-size", "5GB"]);
    assert_eq!(size.code, Some(2));
    assert!(size.errors.contains("--max-shard-size is of --to huggingface"), "{}", size.errors);
    for arguments in [&["--to", "npz"][..], &["--to", "pt", "--dtype", "i64"], &[]] {
        let refused = ckpt(folder.path(), &[&["convert", "step-10", "y"], arguments].concat());
        assert_eq!(refused.code, Some(2), "{arguments:?}");
    }
    assert!(!folder.path().join("y").exists());
}

#[test]
fn diff_tells_what_differs() {
    let folder = with_checkpoint();
    let same = ckpt(folder.path(), &["diff", "step-10", "step-10"]);
    assert_eq!((same.code, same.out.as_str()), (Some(0), "they are the same: 2 tensors\n"));
    let made = ckpt(folder.path(), &["reshard", "step-10", "ranks", "--ranks", "2"]);
    assert_eq!(made.code, Some(0), "{}", made.errors);
    assert_eq!(ckpt(folder.path(), &["diff", "step-10", "ranks"]).code, Some(0));
    let weight = Tensor::arange(0i64, 21i64, 1i64, Dtype::I64).to_dtype(Dtype::F32).view([7, 3]);
    let model = [("weight", &weight + 0.5), ("new", Tensor::scalar(5i64))];
    let model: TensorMap = model.map(|(name, tensor)| (name.to_owned(), tensor)).into();
    Checkpoint::new().with_tensors("model", model).save(folder.path().join("other")).unwrap();
    let found = ckpt(folder.path(), &["diff", "step-10", "other"]);
    let expected = "\
model.count: only in step-10
model.new: only in other
model.weight: 21 of 21 numbers differ, by at most 5e-1
step: value 10 and none
";
    assert_eq!((found.code, found.out.as_str()), (Some(1), expected), "{}", found.errors);
    let near = ckpt(folder.path(), &["diff", "step-10", "other", "--tolerance", "0.5"]);
    assert!(near.code == Some(1) && !near.out.contains("numbers differ"), "{}", near.out);
    assert_eq!(ckpt(folder.path(), &["diff", "step-10", "none"]).code, Some(2));
    // What was made of a group has its tensors alone, by shorter names.
    let arguments = ["convert", "step-10", "hf", "--to", "huggingface", "--only", "model"];
    assert_eq!(ckpt(folder.path(), &arguments).code, Some(0));
    for pair in [["step-10", "hf"], ["hf", "step-10"], ["step-10", "ranks"]] {
        let same = ckpt(folder.path(), &["diff", pair[0], pair[1], "--only", "model"]);
        assert_eq!((same.code, &same.out[..]), (Some(0), "they are the same: 2 tensors\n"));
    }
    assert_eq!(ckpt(folder.path(), &["diff", "step-10", "hf"]).code, Some(1));
    let none = ckpt(folder.path(), &["diff", "step-10", "hf", "--only", "modle"]);
    assert!(none.code == Some(2) && none.errors.contains("there are the groups [\"model\"]"));
}

#[test]
fn what_pytorch_wrote_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let fsdp = dcp().join("fsdp");
    let verify = ckpt(&dcp(), &["verify", "fsdp"]);
    assert_eq!(verify.code, Some(0), "{}", verify.errors);
    let out = folder.path().join("ranks");
    let made = ckpt(&dcp(), &["reshard", "fsdp", out.to_str().unwrap(), "--ranks", "4"]);
    assert_eq!(made.code, Some(0), "{}", made.errors);
    let done = ckpt(folder.path(), &["diff", fsdp.to_str().unwrap(), "ranks"]);
    assert_eq!(done.code, Some(0), "{}", done.out);
}

/// Names that move a terminal's cursor or are longer than any line, and a path that is no text.
#[test]
fn odd_names_and_paths_are_shown() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let long = "n".repeat(70_000);
    let numbers = |name: &str| (name.to_owned(), Tensor::from([1f32, 2.]));
    let tensors: TensorMap = [numbers("a\nb\x1b[2J"), numbers(&long), numbers("../c")].into();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"step-\xff"));
    save_file(&tensors, &Default::default(), &path).unwrap();
    let ckpt = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchrs-ckpt"));
        command.arg(arguments[0]).arg(&path).args(&arguments[1..]).current_dir(folder.path());
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let text = ckpt(&["inspect"]);
    assert!(text.contains(&long) && text.contains("a\\nb\\u{1b}[2J "), "{}", &text[..900]);
    assert_eq!(text.lines().count(), 8, "{}", &text[..900]);
    let json: Value = serde_json::from_str(&ckpt(&["inspect", "--json"])).unwrap();
    assert_eq!(json["tensors"].as_array().unwrap().len(), 3);
    assert!(ckpt(&["verify"]).contains("as they were written"));
    for to in ["dcp", "pt", "sharded", "huggingface", "safetensors"] {
        ckpt(&["convert", to, "--to", to]);
        assert!(ckpt(&["diff", to]).contains("they are the same"), "{to}");
    }
}
