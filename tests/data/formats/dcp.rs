//! Folders that PyTorch wrote (`tools/golden/dcp_folders.py`), and what PyTorch reads from them.

use std::fs;

use torchrs::checkpoint::{CheckpointFiles, CheckpointFormat, PtValue, TensorMap, load_pt};

use super::{assert_all_same, copied, fixture, why};

/// The tensors of nested dicts and lists, by the names that PyTorch gives them.
fn collect(prefix: &str, value: &PtValue, found: &mut TensorMap) {
    let join = |key: &dyn std::fmt::Display| match prefix {
        "" => key.to_string(),
        prefix => format!("{prefix}.{key}"),
    };
    match value {
        PtValue::Tensor(tensor) => _ = found.insert(prefix.to_owned(), tensor.clone()),
        PtValue::List(items) => {
            items.iter().enumerate().for_each(|(i, item)| collect(&join(&i), item, found));
        }
        PtValue::Dict(entries) => {
            for (key, value) in entries {
                match key {
                    PtValue::Str(key) => collect(&join(key), value, found),
                    PtValue::Int(key) => collect(&join(key), value, found),
                    other => panic!("{other:?}"),
                }
            }
        }
        _ => {}
    }
}

fn expected(name: &str) -> TensorMap {
    let mut found = TensorMap::new();
    collect("", &load_pt(fixture(&format!("{name}.pt"))).unwrap(), &mut found);
    found
}

#[test]
fn tensors_are_to_the_bit_what_pytorch_reads() {
    for (name, count, pieces) in
        [("plain", 21, 20), ("plain_2_5", 21, 20), ("sharded", 4, 9), ("fsdp", 12, 21)]
    {
        let files = CheckpointFiles::open(fixture(name)).unwrap();
        assert_eq!(
            (files.format(), files.tensors().count()),
            (CheckpointFormat::Dcp, count),
            "{name}"
        );
        assert_eq!(files.tensors().map(|t| t.pieces).sum::<usize>(), pieces, "{name}");
        assert_all_same(&files, &expected(name));
        let verified = files.verify();
        assert!(verified.damaged.is_empty(), "{name}: {:?}", verified.damaged);
        let bytes: u64 = files.tensors().map(|t| t.nbytes).sum();
        assert_eq!((verified.checked, verified.unchecked), (bytes, 0), "{name}");
    }
}

#[test]
fn what_is_no_tensor_is_a_value() {
    for name in ["plain", "plain_2_5"] {
        let files = CheckpointFiles::open(fixture(name)).unwrap();
        assert_eq!(files.groups(), ["list", "types"], "{name}");
        let text = |name: &str| files.value::<serde_json::Value>(name).unwrap().to_string();
        for (value, expected) in [
            ("step", "7"),
            ("lr", "0.1"),
            ("name", "\"run\""),
            ("nothing", "null"),
            ("flags", "[true,false]"),
            ("pair", "[0.9,0.999]"),
            ("betas.first", "0.9"),
            ("betas.of.0", "\"a\""),
            ("device", "\"cpu\""),
            ("list.1.name", "\"täst\""),
        ] {
            assert_eq!(text(value), expected, "{name}: {value}");
        }
        assert_eq!(files.value::<f64>("worst").unwrap(), f64::INFINITY);
    }
    let files = CheckpointFiles::open(fixture("fsdp")).unwrap();
    assert_eq!(files.groups(), ["model", "optim"]);
    assert_eq!(files.value::<u32>("epoch").unwrap(), 3);
    assert_eq!(files.value::<Vec<f64>>("optim.param_groups.0.betas").unwrap(), [0.9, 0.999]);
    let params: Vec<String> = files.value("optim.param_groups.0.params").unwrap();
    assert_eq!(params, ["0.weight", "0.bias", "2.weight"]);
}

/// Whether all can be read and is as PyTorch reads it; or else an error.
fn reads(folder: &std::path::Path, expected: &TensorMap) -> bool {
    let Ok(files) = CheckpointFiles::open(folder) else { return false };
    if !files.verify().damaged.is_empty() {
        assert!(expected.keys().any(|name| files.tensor(name).is_err()));
        return false;
    }
    assert_all_same(&files, expected);
    true
}

#[test]
fn every_damage_of_items_is_an_error_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sharded");
    copied(&fixture("sharded"), &folder);
    let expected = expected("sharded");
    let path = folder.join("__2_0.distcp");
    let bytes = fs::read(&path).unwrap();
    let (mut errors, mut same) = (0, 0);
    for place in (0..bytes.len()).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&path, damaged).unwrap();
        match reads(&folder, &expected) {
            true => same += 1,
            false => errors += 1,
        }
    }
    assert!(errors > 200 && same > 200, "{errors} {same}");
    for cut in (0..bytes.len()).step_by(5) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let error = why(CheckpointFiles::open(&folder));
        assert!(error.contains("__2_0.distcp: is cut off"), "{cut}: {error}");
    }
    fs::remove_file(&path).unwrap();
    fs::remove_file(folder.join("__1_0.distcp")).unwrap();
    let error = why(CheckpointFiles::open(&folder));
    assert!(error.contains("names __1_0.distcp, __2_0.distcp, not there"), "{error}");
}

#[test]
fn damaged_values_are_errors_or_values() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("plain");
    copied(&fixture("plain"), &folder);
    let path = folder.join("__0_0.distcp");
    let bytes = fs::read(&path).unwrap();
    // The values come first. Their pickles have checksums; what else there is changes nothing.
    let text = |folder| {
        let files = CheckpointFiles::open(folder)?;
        let value = |name| Ok(format!("{name} {:?}", files.value::<serde_json::Value>(name)?));
        files.value_names().map(value).collect::<torchrs::Result<Vec<String>>>()
    };
    let before = text(&folder).unwrap();
    let mut errors = 0;
    for place in (0..2 * 1261).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&path, damaged).unwrap();
        match text(&folder) {
            Ok(values) => assert_eq!(values, before, "{place}"),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 100, "{errors}");
}

/// It has no checksum: what is changed may be a name or a number.
#[test]
fn damaged_metadata_is_an_error_or_another_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sharded");
    copied(&fixture("sharded"), &folder);
    let path = folder.join(".metadata");
    let bytes = fs::read(&path).unwrap();
    let mut errors = 0;
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&path, damaged).unwrap();
        let Ok(files) = CheckpointFiles::open(&folder) else {
            errors += 1;
            continue;
        };
        for name in files.tensors().map(|stored| stored.name.to_owned()) {
            errors += usize::from(files.tensor(&name).is_err());
        }
    }
    assert!(errors > 1000, "{errors}");
    for cut in (0..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..cut]).unwrap();
        assert!(CheckpointFiles::open(&folder).is_err(), "{cut}");
    }
}

#[test]
fn what_it_cannot_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sharded");
    let with = |old: &str, new: &str| {
        copied(&fixture("sharded"), &folder);
        let path = folder.join(".metadata");
        let bytes = fs::read(&path).unwrap();
        let at = bytes.windows(old.len()).position(|w| w == old.as_bytes()).unwrap();
        let mut bytes = bytes;
        bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
        fs::write(&path, bytes).unwrap();
        match CheckpointFiles::open(&folder) {
            Ok(files) => format!("{:?}", files.verify().damaged),
            Err(error) => error.to_string(),
        }
    };
    for (old, new, part) in [
        (
            "_StorageInfo",
            "_StorageEvil",
            "_StorageEvil where torch.distributed.checkpoint.filesystem._StorageInfo",
        ),
        ("bfloat16", "float8_0", "tensor `columns` has dtype torch.float8_0; known are"),
        ("float32", "float64", "has a tensor f32 [3, 3]; f64 [3, 3] was to be there"),
        ("torch.strided", "torch.sparse0", "strided ones are read"),
        ("__1_0.distcp", "../../distcp", "none of its folder"),
        ("__2_0.distcp", "__0_0.distcp", "two items at byte"),
        ("1.0.0", "2.0.0", "1.0.0 is read"),
    ] {
        let error = with(old, new);
        assert!(error.contains(part), "{old} {new}: {error}");
    }
}
