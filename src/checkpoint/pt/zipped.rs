//! The format since PyTorch 1.6: a zip archive with the pickle in `data.pkl` and a storage in each of
//! `data/0`, `data/1`, ...

use std::io::Write;
use std::path::Path;

use super::pickle::{Pickle, Stored};
use super::storages::{Source, Storages};
use super::unpickle::{Machine, Outside};
use super::value::PtValue;
use crate::checkpoint::{
    archive::Archive, archive::ArchiveWriter, raw::Bytes, raw::error_of, raw::read_tensor,
    raw::size_within, raw::swap_bytes, replacing::write_file,
};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// No pickle of numbers and names is larger.
const MAX_PICKLE: u64 = 256 << 20;

/// An open file of this format, or an archive that is a part of one.
pub(super) struct Zipped {
    archive: Archive,
    /// The folder that everything in the archive is in, with its slash.
    folder: String,
    big_endian: bool,
}

impl Source for &Zipped {
    fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    fn storage(&mut self, key: &str, dtype: Dtype, numel: usize) -> Result<Tensor, String> {
        let name = self.storage_name(key);
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

impl Zipped {
    pub(super) fn new(archive: Archive) -> Result<Self> {
        let wrong = |what: String| Error::file(archive.path(), what);
        let pickles: Vec<&str> = archive.names().filter(|n| n.ends_with("data.pkl")).collect();
        let &[pickle] = &pickles[..] else {
            return Err(wrong(format!(
                "has {} entries `data.pkl`, a file of torch.save has one",
                pickles.len()
            )));
        };
        let folder = pickle.trim_end_matches("data.pkl").to_owned();
        if archive.names().any(|name| name == format!("{folder}constants.pkl")) {
            return Err(wrong(
                "is a TorchScript program; only files of torch.save are read".into(),
            ));
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
        Ok(Zipped { archive, folder, big_endian })
    }

    fn storage_name(&self, key: &str) -> String {
        format!("{}data/{key}", self.folder)
    }

    /// Its value, with the tensors of its storages.
    pub(super) fn value(&self) -> Result<PtValue> {
        let mut source = self;
        let mut storages = Storages::new(&mut source);
        self.run(Outside::Storages(&mut storages))
    }

    /// Its value, of which no storage is read.
    pub(super) fn outline(&self) -> Result<PtValue> {
        self.run(Outside::Names)
    }

    fn run(&self, outside: Outside<'_, '_>) -> Result<PtValue> {
        let pickle = format!("{}data.pkl", self.folder);
        let bytes = self.archive.read(&pickle, MAX_PICKLE)?;
        match Machine::run(&bytes, outside) {
            Ok((value, _)) => Ok(value),
            Err(e) => Err(error_of(self.archive.path(), format!("`{pickle}`: {e}"))),
        }
    }

    /// From which byte of the file on a storage of so many bytes lies as this machine has it, and its checksum.
    pub(super) fn stored(&self, key: &str, nbytes: usize) -> Result<Option<(u64, Option<u32>)>> {
        let name = self.storage_name(key);
        let fits = !self.big_endian && self.archive.size(&name)? == nbytes as u64;
        if fits { self.archive.stored(&name) } else { Ok(None) }
    }
}

pub(super) fn load(path: &Path) -> Result<PtValue> {
    Zipped::new(Archive::open(path)?)?.value()
}

pub(super) fn save(value: &PtValue, path: &Path) -> Result<()> {
    let pickle = Pickle::of(value)?;
    write_file(path, |file| write(&pickle, path, file))
}

/// Writes the archive of a pickle. `path` is only named in errors.
pub(super) fn write(pickle: &Pickle<'_>, path: &Path, out: impl Write) -> Result<()> {
    let mut writer = ArchiveWriter::new(path, out);
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
}
