//! A rank's file: safetensors, whose checksums are known only when all bytes are written.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ::safetensors::tensor::TensorInfo;

use super::region::Region;
use crate::checkpoint::header::written;
use crate::checkpoint::raw::Bytes;
use crate::checkpoint::safetensors::{CHECKSUMS, MAX_HEADER, file_dtype, type_checksum};
use crate::error::{Context, Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Bytes that are written at once, while they are in the processor's cache.
const CACHED: usize = 256 << 10;
/// After so many bytes the system begins to bring them to disk.
const BEHIND: u64 = 16 << 20;

/// A piece that is to be written: contiguous elements of a box.
pub(super) struct ToWrite<'a> {
    pub name: &'a str,
    pub region: &'a Region,
    pub tensor: &'a Tensor,
}

/// Where a piece has come to lie.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct Lies {
    pub start: u64,
    pub end: u64,
    pub crc32: u32,
}

/// What a piece is, whose contents are brought when they are written.
#[derive(Debug, Clone)]
pub(super) struct Planned<'a> {
    pub name: &'a str,
    pub region: Region,
    pub dtype: Dtype,
}

/// Writes a new file of these pieces and brings it to disk; where each lies, in their order.
///
/// # Errors
/// [`Error::Os`] when it cannot be written, [`Error::File`] for a dtype that the format lacks.
pub(super) fn write_pieces(path: &Path, pieces: &[ToWrite]) -> Result<Vec<Lies>> {
    let planned: Vec<Planned> = pieces
        .iter()
        .map(|ToWrite { name, region, tensor }| Planned {
            name,
            region: (*region).clone(),
            dtype: tensor.dtype(),
        })
        .collect();
    write_planned(path, &planned, &|place| Ok(pieces[place].tensor.clone()))
}

/// The same of pieces that `bring` brings by their places, one at a time.
///
/// # Errors
/// As [`write_pieces`]; those of `bring`.
pub(super) fn write_planned(
    path: &Path,
    pieces: &[Planned],
    bring: &dyn Fn(usize) -> Result<Tensor>,
) -> Result<Vec<Lies>> {
    let what = || format!("write {}", path.display());
    let mut infos = Vec::with_capacity(pieces.len());
    // The widest elements first, so that all are aligned.
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(pieces[place].dtype.size()));
    let mut end = 0;
    for &place in &order {
        let Planned { name, region, dtype: of } = &pieces[place];
        let dtype = file_dtype(*of).ok_or_else(|| {
            let dtype = of;
            Error::file(
                path,
                format!(
                    "tensor `{name}` is {dtype}, which safetensors lacks; save its `view_as_real`"
                ),
            )
        })?;
        let data_offsets = (end, end + region.numel() * of.size());
        end = data_offsets.1;
        infos.push((
            piece_name(name, region),
            TensorInfo { dtype, shape: region.shape.clone(), data_offsets },
        ));
    }
    let head = |sums: &BTreeMap<&str, u32>| {
        let sums = serde_json::to_string(sums).expect("a map of numbers");
        let metadata =
            [("format".to_owned(), "pt".to_owned()), (CHECKSUMS.to_owned(), sums)].into();
        let infos: Vec<(&str, TensorInfo)> =
            infos.iter().map(|(name, info)| (name.as_str(), info.clone())).collect();
        written(&metadata, &infos)
    };
    // No number has more digits.
    let widest = infos.iter().map(|(name, _)| (name.as_str(), u32::MAX)).collect();
    let length = head(&widest).len();
    if length as u64 > MAX_HEADER {
        return Err(Error::file(
            path,
            format!("a header of {length} bytes is too large for readers"),
        ));
    }
    let file = OpenOptions::new().write(true).create_new(true).open(path).context(what)?;
    let data = 8 + length as u64;
    let mut behind = Behind { file: &file, begun: 0 };
    let mut lies = vec![Lies { start: 0, end: 0, crc32: 0 }; pieces.len()];
    let mut sums = BTreeMap::new();
    for (&place, (name, info)) in order.iter().zip(&infos) {
        let tensor = bring(place)?;
        let bytes = Bytes::new(&tensor)?;
        let mut crc = type_checksum(tensor.dtype(), &info.shape);
        let (start, end) = info.data_offsets;
        let (start, end) = (data + start as u64, data + end as u64);
        let mut at = start;
        for part in bytes.as_slice().chunks(CACHED) {
            crc.update(part);
            file.write_all_at(part, at).context(what)?;
            at += part.len() as u64;
            behind.reached(at);
        }
        sums.insert(name.as_str(), crc.sum());
        lies[place] = Lies { start, end, crc32: crc.sum() };
    }
    let mut text = head(&sums);
    text.extend(std::iter::repeat_n(' ', length - text.len()));
    file.write_all_at(&(length as u64).to_le_bytes(), 0).context(what)?;
    file.write_all_at(text.as_bytes(), 8).context(what)?;
    file.sync_all().context(what)?;
    Ok(lies)
}

/// The name of a piece in its file: the tensor's, and where it begins, if that is not at the beginning.
fn piece_name(name: &str, region: &Region) -> String {
    match region.offsets.iter().all(|&offset| offset == 0) {
        true => name.to_owned(),
        false => {
            let offsets: Vec<String> = region.offsets.iter().map(usize::to_string).collect();
            format!("{name}@{}", offsets.join(","))
        }
    }
}

/// Has the system write to disk what has been written to the file so far, while more is written.
struct Behind<'a> {
    file: &'a File,
    begun: u64,
}

impl Behind<'_> {
    fn reached(&mut self, end: u64) {
        if end - self.begun >= BEHIND {
            let length = end - self.begun;
            // SAFETY: the file is open. A hint: whether it works shows when the file is synced.
            unsafe {
                libc::sync_file_range(
                    self.file.as_raw_fd(),
                    self.begun as libc::off64_t,
                    length as libc::off64_t,
                    libc::SYNC_FILE_RANGE_WRITE,
                );
            }
            self.begun = end;
        }
    }
}
