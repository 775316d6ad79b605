//! Our own format: a safetensors file of each rank beside `index.json`, which says what pieces make each tensor.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::index::{Checksum, Entry, Index, Location, Piece, file_of};
use super::region::Region;
use crate::checkpoint::folder::crc;
use crate::checkpoint::raw::{error_of, room_for_json};
use crate::error::{Context, Error, Result};
use crate::tensor::Dtype;

pub(crate) const INDEX: &str = "index.json";
const FORMAT: &str = "torchrs-sharded-checkpoint";
const VERSION: u64 = 1;

/// What `index.json` says of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub pieces: Vec<ListedPiece>,
}

/// What it says of a piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ListedPiece {
    pub file: String,
    #[serde(flatten)]
    pub region: Region,
    /// From and to which byte of the file.
    pub bytes: (u64, u64),
    pub crc32: u32,
}

/// The name of the file that a rank writes.
pub(super) fn file_name(rank: usize) -> String {
    format!("rank-{rank:05}.safetensors")
}

/// The text of `index.json`: a line for each tensor.
pub(super) fn written(
    world_size: usize,
    groups: &[String],
    tensors: &BTreeMap<String, Listed>,
    values: &BTreeMap<String, Value>,
) -> String {
    let crc = crc(&json!([world_size, groups, tensors, values]));
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "{{\"format\":\"{FORMAT}\",\"version\":{VERSION},\"torchrs\":\"{version}\",\"crc32\":\"{crc}\",\n\
         \"world_size\":{world_size},\"groups\":{},\n\"tensors\":{{",
        json!(groups)
    );
    for (place, (name, listed)) in tensors.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        text += &format!("{comma}\n{}:{}", json!(name), json!(listed));
    }
    text += &format!(
        "}},\n\"values\":{}}}\n",
        serde_json::to_string_pretty(values).expect("JSON is JSON")
    );
    text
}

/// Reads `index.json` of a folder.
///
/// # Errors
/// [`Error::File`] for one that is damaged or of another format, names files outside of the folder, or pieces that
/// are not the whole tensor; [`Error::Os`] when it cannot be read.
pub(super) fn open(folder: &Path) -> Result<Index> {
    let path = folder.join(INDEX);
    let bytes = fs::read(&path).context(|| format!("open {}", path.display()))?;
    let damaged = |why: String| Error::file(&path, format!("is damaged: {why}"));
    room_for_json(bytes.len()).map_err(|why| error_of(&path, why))?;
    let mut document: Value =
        serde_json::from_slice(&bytes).map_err(|e| damaged(format!("not JSON: {e}")))?;
    if document["format"] != FORMAT || document["version"] != VERSION {
        return Err(Error::file(
            &path,
            format!(
                "format {} version {}; this torchrs reads \"{FORMAT}\" version {VERSION}",
                document["format"], document["version"]
            ),
        ));
    }
    let parts = ["world_size", "groups", "tensors", "values"].map(|key| document[key].take());
    if document["crc32"] != crc(&json!(parts)) {
        return Err(damaged("its checksum does not match its contents".into()));
    }
    let [world_size, groups, tensors, values] = parts;
    let wrong = |what: &str, e: serde_json::Error| damaged(format!("`{what}`: {e}"));
    let world_size = serde_json::from_value(world_size).map_err(|e| wrong("world_size", e))?;
    let groups = serde_json::from_value(groups).map_err(|e| wrong("groups", e))?;
    let values = serde_json::from_value(values).map_err(|e| wrong("values", e))?;
    let listed: BTreeMap<String, Listed> =
        serde_json::from_value(tensors).map_err(|e| wrong("tensors", e))?;
    let mut tensors = BTreeMap::new();
    for (name, listed) in listed {
        let dtype = Dtype::ALL.into_iter().find(|dtype| dtype.name() == listed.dtype);
        let dtype = dtype.ok_or_else(|| {
            Error::file(&path, format!("tensor `{name}` has an unknown dtype `{}`", listed.dtype))
        })?;
        let piece = |piece: ListedPiece| {
            let (start, end) = piece.bytes;
            let nbytes = piece.region.shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
            if nbytes.is_none_or(|n| start.checked_add(n as u64) != Some(end)) {
                let what = format!(
                    "tensor `{name}` has a piece of shape {:?} at bytes {start} to {end}",
                    piece.region.shape
                );
                return Err(damaged(what));
            }
            let checksum = Some(Checksum { crc32: piece.crc32, has_type: true });
            let at = Location::File { path: file_of(folder, &path, &piece.file)?, start, checksum };
            Ok(Piece { region: piece.region, at })
        };
        let pieces = listed.pieces.into_iter().map(piece).collect::<Result<_>>()?;
        tensors.insert(name, Entry { dtype, shape: listed.shape, pieces });
    }
    let path = folder.to_owned();
    Ok(Index { path, world_size: Some(world_size), groups, tensors, values })
}
