//! Checkpoints that are made of others.

use std::fs;
use std::path::Path;

use torchrs::checkpoint::{
    Checkpoint, CheckpointFiles, CheckpointFormat, ConvertOptions, PtValue, TensorMap, load_pt,
    load_sharded, save_file,
};
use torchrs::{Dtype, Tensor};

use super::{assert_same, fixture, names, why};

fn state() -> Checkpoint {
    let numbers = |n: i64| Tensor::arange(0i64, n, 1i64, Dtype::I64).to_dtype(Dtype::F32);
    let model = [
        ("0.weight", numbers(21).view([7, 3]) / 7.0),
        ("0.bias", numbers(7)),
        ("count", Tensor::scalar(5i64)),
        ("half", numbers(3).to_dtype(Dtype::BF16)),
        ("mask", Tensor::from([true, false])),
        ("none", Tensor::zeros([0, 2], Dtype::F32)),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor));
    let optimizer = TensorMap::from([("0.weight.exp_avg".to_owned(), numbers(21).view([7, 3]))]);
    Checkpoint::new()
        .with_tensors("model", model.into())
        .with_tensors("optimizer", optimizer)
        .with_value("step", &10)
        .and_then(|c| c.with_value("best", &f64::INFINITY))
        .and_then(|c| c.with_value("rates", &[0.5, 0.25]))
        .unwrap()
}

fn saved(folder: &Path) -> CheckpointFiles {
    state().save(folder).unwrap();
    CheckpointFiles::open(folder).unwrap()
}

fn options(to: CheckpointFormat, change: impl FnOnce(&mut ConvertOptions)) -> ConvertOptions {
    let mut options = ConvertOptions::new(to);
    change(&mut options);
    options
}

#[test]
fn every_format_becomes_every_other() {
    use CheckpointFormat::{Dcp, HuggingFace, Pt, Safetensors, Sharded};
    let dir = tempfile::tempdir().unwrap();
    let first = saved(&dir.path().join("first"));
    let groups = first.groups().to_vec();
    for through in [Sharded, Dcp, Pt, HuggingFace, Safetensors] {
        let out = dir.path().join(through.name());
        let options = options(through, |o| (o.ranks, o.max_shard_size) = (3, 50));
        let made = first.convert(&out, &options).unwrap();
        let has_values = matches!(through, Sharded | Dcp | Pt);
        let left_out: &[&str] = if has_values { &[] } else { &["best", "rates", "step"] };
        assert_eq!((made.tensors, &made.values_left_out[..]), (7, &left_out.map_owned()[..]));
        let files = CheckpointFiles::open(&out).unwrap();
        assert_eq!(files.format(), through);
        let found = first.diff(&files, 0.0).unwrap();
        assert_eq!(found.values, left_out, "{through:?}");
        assert!(found.tensors.is_empty() && found.kinds.is_empty(), "{through:?}: {found:?}");
        assert!(found.only_first.is_empty() && found.only_second.is_empty(), "{found:?}");
        if has_values {
            assert_eq!(files.groups(), groups, "{through:?}");
            assert_eq!(files.value::<f64>("best").unwrap(), f64::INFINITY);
        }
        let verified = files.verify();
        assert!(verified.damaged.is_empty(), "{through:?} {verified:?}");
        assert_eq!(verified.unchecked, 0, "{through:?} {verified:?}");
        for to in [Sharded, Dcp, Pt, HuggingFace, Safetensors] {
            let out = dir.path().join(format!("{}-{}", through.name(), to.name()));
            files.convert(&out, &ConvertOptions::new(to)).unwrap();
            let found = files.diff(&CheckpointFiles::open(&out).unwrap(), 0.0).unwrap();
            let is_same = found.tensors.is_empty() && found.kinds.is_empty();
            assert!(is_same && found.only_first.is_empty(), "{through:?} {to:?}: {found:?}");
        }
    }
    assert!(names(dir.path()).iter().all(|name| !name.starts_with('.')), "nothing is left over");
}

trait MapOwned {
    fn map_owned(&self) -> Vec<String>;
}

impl MapOwned for &[&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

#[test]
fn pytorchs_own_folder_becomes_what_pytorch_makes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("fsdp.pt");
    let files = CheckpointFiles::open(fixture("fsdp")).unwrap();
    files.convert(&out, &ConvertOptions::new(CheckpointFormat::Pt)).unwrap();
    let (ours, theirs) = (load_pt(&out).unwrap(), load_pt(fixture("fsdp.pt")).unwrap());
    let model = |value: &PtValue| value.get("model").unwrap().tensors().unwrap();
    assert_eq!(model(&ours).len(), 3);
    let lr = ours.get("optim").unwrap().get("param_groups.0.lr");
    assert!(matches!(lr, Some(PtValue::Float(lr)) if *lr == 0.01), "{lr:?}");
    for (name, tensor) in model(&theirs) {
        assert_same(&name, &model(&ours)[&name], &tensor);
    }
}

#[test]
fn a_part_is_converted_without_its_prefix_and_floats_to_a_dtype() {
    let dir = tempfile::tempdir().unwrap();
    let files = saved(&dir.path().join("first"));
    let out = dir.path().join("bf16");
    let to = options(CheckpointFormat::HuggingFace, |o| {
        (o.only, o.dtype) = (Some("model".into()), Some(Dtype::BF16));
    });
    let made = files.convert(&out, &to).unwrap();
    assert_eq!(made.values_left_out, ["best", "rates", "step"]);
    let tensors = load_sharded(&out).unwrap();
    let weight = state().tensors("model").unwrap()["0.weight"].to_dtype(Dtype::BF16);
    assert_same("0.weight", &tensors["0.weight"], &weight);
    let dtypes: Vec<(&str, Dtype)> = tensors.iter().map(|(n, t)| (n.as_str(), t.dtype())).collect();
    let (bf16, i64, bool) = (Dtype::BF16, Dtype::I64, Dtype::Bool);
    let expected = [
        ("0.bias", bf16),
        ("0.weight", bf16),
        ("count", i64),
        ("half", bf16),
        ("mask", bool),
        ("none", bf16),
    ];
    assert_eq!(dtypes, expected);
    for to in [CheckpointFormat::Dcp, CheckpointFormat::Pt, CheckpointFormat::Sharded] {
        let out = dir.path().join(format!("bf16-{}", to.name()));
        let to = options(to, |o| (o.only, o.dtype) = (Some("model.".into()), Some(Dtype::BF16)));
        files.convert(&out, &to).unwrap();
        let found = CheckpointFiles::open(&out)
            .unwrap()
            .diff(&CheckpointFiles::open(dir.path().join("bf16")).unwrap(), 0.0);
        assert!(found.unwrap().is_empty(), "{to:?}");
    }
}

#[test]
fn ranks_have_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let files = saved(&dir.path().join("first"));
    let out = dir.path().join("three");
    files.convert(&out, &options(CheckpointFormat::Sharded, |o| o.ranks = 3)).unwrap();
    let file = |rank: usize| format!("rank-0000{rank}.safetensors");
    assert_eq!(names(&out), ["index.json".to_owned(), file(0), file(1), file(2)]);
    let made = CheckpointFiles::open(&out).unwrap();
    assert_eq!(made.world_size(), Some(3));
    let pieces: Vec<usize> = made.tensors().map(|t| t.pieces).collect();
    // 7, 7, a number, 3, 2, none, 7 rows.
    assert_eq!(pieces, [3, 3, 1, 3, 2, 0, 3]);
    let part = torchrs::checkpoint::load_file(out.join(file(2))).unwrap();
    assert_eq!(part["model.0.bias@6"].to_vec::<f32>(), [6.0]);
    // More ranks than rows: those without any have no file.
    let out = dir.path().join("nine");
    files.convert(&out, &options(CheckpointFormat::Sharded, |o| o.ranks = 9)).unwrap();
    assert_eq!(names(&out).len(), 8);
    assert!(CheckpointFiles::open(&out).unwrap().diff(&files, 0.0).unwrap().is_empty());
}

#[test]
fn nothing_is_overwritten_and_what_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("first");
    let files = saved(&path);
    let there = dir.path().join("there");
    fs::write(&there, "mine").unwrap();
    for to in CheckpointFormat::ALL {
        let error = why(files.convert(&there, &ConvertOptions::new(to)));
        assert!(error.contains("there is there; nothing is overwritten"), "{error}");
        let inside = why(files.convert(path.join("new"), &ConvertOptions::new(to)));
        assert!(inside.contains("lies in the checkpoint that is read"), "{inside}");
    }
    assert_eq!(fs::read_to_string(&there).unwrap(), "mine");
    let new = dir.path().join("new");
    let refused =
        |to, change: fn(&mut ConvertOptions)| why(files.convert(&new, &options(to, change)));
    let safetensors = CheckpointFormat::Safetensors;
    for (error, part) in [
        (refused(CheckpointFormat::Folder, |_| ()), "folder; can be sharded, huggingface"),
        (refused(safetensors, |o| o.dtype = Some(Dtype::I64)), "i64; floating-point"),
        (
            refused(safetensors, |o| o.only = Some("modle".into())),
            "begins with `modle.`; there are the groups [\"model\", \"optimizer\"]",
        ),
        (
            refused(safetensors, |o| o.only = Some("model.count.".into())),
            "begins with `model.count.`",
        ),
        (refused(CheckpointFormat::Sharded, |o| o.ranks = 0), "ranks"),
        (refused(CheckpointFormat::HuggingFace, |o| o.max_shard_size = 0), "max_shard_size"),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // Finite numbers stay such.
    let large = TensorMap::from([("w".to_owned(), Tensor::from([1f32, 1e6, f32::INFINITY]))]);
    save_file(&large, &Default::default(), dir.path().join("large")).unwrap();
    let wide = CheckpointFiles::open(dir.path().join("large")).unwrap();
    for to in [safetensors, CheckpointFormat::Dcp, CheckpointFormat::Pt, CheckpointFormat::Sharded]
    {
        let error = why(wide.convert(&new, &options(to, |o| o.dtype = Some(Dtype::F16))));
        assert!(error.contains("f16, in which some numbers of a tensor of shape [3]"), "{error}");
    }
    fs::remove_file(dir.path().join("large")).unwrap();
    // A checkpoint that turns out to be damaged leaves nothing.
    let file = path.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    for to in CheckpointFormat::ALL {
        assert!(files.convert(&new, &ConvertOptions::new(to)).is_err(), "{to:?}");
    }
    assert_eq!(names(dir.path()), ["first", "there"]);
    assert_eq!(files.verify().damaged.len(), 1);
}

#[test]
fn differences_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let save = |name: &str, tensors: Vec<(&str, Tensor)>, step: i64| {
        let tensors = tensors.into_iter().map(|(name, t)| (name.to_owned(), t)).collect();
        let checkpoint = Checkpoint::new().with_tensors("m", tensors).with_value("step", &step);
        checkpoint.unwrap().save(at(name)).unwrap();
        CheckpointFiles::open(at(name)).unwrap()
    };
    let nan = f32::NAN;
    let a = save(
        "a",
        vec![
            ("big", Tensor::from([i64::MAX, 0])),
            ("nan", Tensor::from([nan, nan, 1.0])),
            ("only_a", Tensor::from([1f32])),
            ("same", Tensor::from([0f32, -1.0])),
            ("shape", Tensor::from([1f32, 2.0])),
            ("x", Tensor::from([1f32, 2.0, 3.0])),
        ],
        1,
    );
    let b = save(
        "b",
        vec![
            ("big", Tensor::from([i64::MAX - 1, 0])),
            ("nan", Tensor::from([nan, 1.0, 1.0])),
            ("only_b", Tensor::from([1f32])),
            ("same", Tensor::from([-0f32, -1.0])),
            ("shape", Tensor::from([[1f32, 2.0]])),
            ("x", Tensor::from([1.5f32, 2.0, 1.0])),
        ],
        2,
    );
    let found = a.diff(&b, 0.0).unwrap();
    assert_eq!(
        (&found.only_first[..], &found.only_second[..]),
        (&["m.only_a".to_owned()][..], &["m.only_b".to_owned()][..])
    );
    assert_eq!(found.kinds.len(), 1);
    assert_eq!(found.values, ["step"]);
    let tensors: Vec<(&str, usize, usize, f64)> =
        found.tensors.iter().map(|t| (t.name.as_str(), t.count, t.numel, t.largest)).collect();
    assert_eq!(tensors, [("m.big", 1, 2, 1.0), ("m.nan", 1, 3, f64::INFINITY), ("m.x", 2, 3, 2.0)]);
    let near = a.diff(&b, 1.0).unwrap();
    let names: Vec<&str> = near.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!((names, near.tensors[1].count), (vec!["m.nan", "m.x"], 1));
    assert!(a.diff(&a, 0.0).unwrap().is_empty());
    assert!(why(a.diff(&b, f64::NAN)).contains("must be finite"));
}
