//! The format since PyTorch 1.6: a zip archive with the pickle in `data.pkl` and a storage in each of
//! `data/0`, `data/1`, ...

use std::path::Path;

use super::pickle::{Pickle, Stored};
use super::storages::{Source, Storages};
use super::unpickle::Machine;
use super::value::PtValue;
use crate::checkpoint::{
    archive::Archive, archive::ArchiveWriter, raw::Bytes, raw::error_of, raw::read_tensor,
    raw::size_within, raw::swap_bytes, replacing::write_file,
};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// No pickle of numbers and names is larger.
const MAX_PICKLE: u64 = 256 << 20;

struct Entries<'a> {
    archive: &'a Archive,
    /// The folder that everything in the archive is in, with its slash.
    folder: &'a str,
    big_endian: bool,
}

impl Source for Entries<'_> {
    fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    fn storage(&mut self, key: &str, dtype: Dtype, numel: usize) -> Result<Tensor, String> {
        let name = format!("{}data/{key}", self.folder);
        let found = self.archive.size(&name).map_err(|e| e.to_string())?;
        let size = size_within(&[numel], dtype, u64::MAX).map(|n| n as u64);
        if size != Some(found) {
            return Err(format!("`{name}` has {found} bytes, must have {numel} of {dtype}"));
        }
        read_tensor(self.archive.path(), &name, &[numel], dtype, |bytes| {
            self.archive.read_into(&name, bytes)?;
            if self.big_endian {
                swap_bytes(bytes, dtype);
            }
            Ok(())
        })
        .map_err(|e| match e {
            Error::File { message, .. } | Error::OutOfMemory(message) => message,
            other => other.to_string(),
        })
    }
}

pub(super) fn load(path: &Path) -> Result<PtValue> {
    let archive = Archive::open(path)?;
    let wrong = |what: String| Error::file(path, what);
    let pickles: Vec<&str> = archive.names().filter(|n| n.ends_with("data.pkl")).collect();
    let &[pickle] = &pickles[..] else {
        return Err(wrong(format!(
            "has {} entries `data.pkl`, a file of torch.save has one",
            pickles.len()
        )));
    };
    let folder = pickle.trim_end_matches("data.pkl");
    if archive.names().any(|name| name == format!("{folder}constants.pkl")) {
        return Err(wrong("is a TorchScript program; only files of torch.save are read".into()));
    }
    let order = format!("{folder}byteorder");
    let big_endian = match archive.names().any(|name| name == order) {
        true => match &archive.read(&order, 16)?[..] {
            b"little" => false,
            b"big" => true,
            _ => return Err(wrong(format!("`{order}` is neither `little` nor `big`"))),
        },
        false => false,
    };
    let bytes = archive.read(pickle, MAX_PICKLE)?;
    let mut entries = Entries { archive: &archive, folder, big_endian };
    let mut storages = Storages::new(&mut entries);
    let (value, _) = Machine::run(&bytes, Some(&mut storages))
        .map_err(|e| error_of(path, format!("`{pickle}`: {e}")))?;
    Ok(value)
}

pub(super) fn save(value: &PtValue, path: &Path) -> Result<()> {
    let pickle = Pickle::of(value)?;
    write_file(path, |file| {
        let mut writer = ArchiveWriter::new(path, file);
        writer.add("archive/data.pkl", &[&pickle.bytes])?;
        writer.add("archive/byteorder", &[b"little"])?;
        for (place, stored) in pickle.storages.iter().enumerate() {
            let name = format!("archive/data/{place}");
            match stored {
                Stored::Typed(tensor) => {
                    writer.add(&name, &[Bytes::of_storage(tensor)?.as_slice()])?;
                }
                Stored::Bytes(bytes) => writer.add(&name, &[bytes])?,
            }
        }
        writer.add("archive/version", &[b"3\n"])?;
        writer.finish()
    })
}
