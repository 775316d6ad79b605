//! The format before PyTorch 1.6 (`_use_new_zipfile_serialization=False`): pickles of a magic number,
//! a version, facts about the machine, the value, and the list of storages; then the storages, each
//! after its number of elements.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::storages::{Source, Storages};
use super::unpickle::{Machine, Outside};
use super::value::PtValue;
use crate::checkpoint::raw::{check_bools, error_of, size_within, zeros};
use crate::error::{Context, Error, Result};
use crate::tensor::{Dtype, Tensor};

/// 0x1950a86a20f9469cfc6c, little-endian.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const VERSION: i64 = 1001;

/// Storages to be filled later.
struct Behind {
    /// By key.
    made: Vec<(String, Tensor)>,
    /// Bytes of the file that no storage has claimed.
    left: u64,
}

impl Source for Behind {
    fn storage(&mut self, key: &str, dtype: Dtype, numel: usize) -> Result<Tensor, String> {
        let Some(size) = size_within(&[numel], dtype, self.left) else {
            return Err(format!("storage `{key}` of {numel} {dtype} is larger than the file"));
        };
        self.left -= size as u64;
        let storage = zeros(&[numel], dtype)?;
        self.made.push((key.to_owned(), storage.clone()));
        Ok(storage)
    }
}

/// Storages as the file has them.
#[derive(Default)]
struct Filled(BTreeMap<String, Tensor>);

impl Source for Filled {
    fn storage(&mut self, key: &str, _: Dtype, _: usize) -> Result<Tensor, String> {
        self.0.remove(key).ok_or_else(|| format!("has no storage `{key}`"))
    }
}

pub(super) fn load(path: &Path) -> Result<PtValue> {
    let bytes = fs::read(path).context(|| format!("read {}", path.display()))?;
    let wrong = |what: String| error_of(path, what);
    let not_ours =
        || wrong("is no file of torch.save: neither a zip archive nor its pickles".into());
    let mut at = 0;
    let mut plain = || -> Result<PtValue> {
        let (value, read) = Machine::run(&bytes[at..], Outside::Nothing).map_err(|_| not_ours())?;
        at += read;
        Ok(value)
    };
    if !matches!(plain()?, PtValue::Bytes(magic) if magic == MAGIC) {
        return Err(not_ours());
    }
    match plain()? {
        PtValue::Int(VERSION) => {}
        other => return Err(wrong(format!("is of version {other:?}; {VERSION} is read"))),
    }
    let facts = plain()?;
    if matches!(facts.get("little_endian"), Some(PtValue::Bool(false))) {
        return Err(wrong("was written on a big-endian machine; save it again as a zip".into()));
    }
    let mut behind = Behind { made: Vec::new(), left: (bytes.len() - at) as u64 };
    let pickle = &bytes[at..];
    // Says which storages there are. What is computed from their elements cannot be right yet.
    let (_, read) =
        Machine::run(pickle, Outside::Storages(&mut Storages::new(&mut behind))).map_err(&wrong)?;
    at += read;
    let (keys, read) = Machine::run(&bytes[at..], Outside::Nothing).map_err(&wrong)?;
    at += read;
    let PtValue::List(keys) = keys else {
        return Err(wrong("the list of storages is no list".into()));
    };
    let mut made: BTreeMap<String, Tensor> = behind.made.into_iter().collect();
    let mut filled = Filled::default();
    for key in keys {
        let PtValue::Str(key) = key else {
            return Err(wrong("a storage's key is no text".into()));
        };
        let storage =
            made.remove(&key).ok_or_else(|| wrong(format!("has storage `{key}` for no tensor")))?;
        let cut_off = || wrong(format!("is cut off in storage `{key}`"));
        let mut take = |n: usize| {
            let part = bytes[at..].get(..n).ok_or_else(cut_off)?;
            at += n;
            Ok::<_, Error>(part)
        };
        let numel = u64::from_le_bytes(take(8)?.try_into().expect("eight bytes"));
        if numel != storage.numel() as u64 {
            let ours = storage.numel();
            return Err(wrong(format!("storage `{key}` has {numel} elements, must have {ours}")));
        }
        let data = take(storage.numel() * storage.dtype().size())?;
        // SAFETY: `storage` is contiguous and has `data.len()` bytes; nobody else has it.
        unsafe { storage.data_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        check_bools(path, &format!("storage `{key}`"), &storage)?;
        filled.0.insert(key, storage);
    }
    if let Some(key) = made.keys().next() {
        return Err(wrong(format!("has no storage `{key}`")));
    }
    let (value, _) =
        Machine::run(pickle, Outside::Storages(&mut Storages::new(&mut filled))).map_err(&wrong)?;
    Ok(value)
}
