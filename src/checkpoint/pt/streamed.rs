//! Files of `torch.save` of tensors that are brought one at a time.

use std::path::Path;

use super::pickle::Pickle;
use super::value::PtValue;
use crate::checkpoint::archive::ArchiveWriter;
use crate::checkpoint::raw::Bytes;
use crate::checkpoint::replacing::write_file;
use crate::checkpoint::safetensors::Written;
use crate::error::Result;
use crate::tensor::Tensor;

/// What a dict has.
pub(in crate::checkpoint) enum Branch<'a> {
    /// The tensor of this place.
    Tensor(usize),
    Value(&'a PtValue),
    Dict(Vec<(String, Branch<'a>)>),
}

/// Writes a dict as `save_pt` does, each of its tensors brought by `get` when it is written.
///
/// # Errors
/// As [`save_pt`](super::save_pt); those of `get`.
pub(in crate::checkpoint) fn save(
    root: &[(String, Branch<'_>)],
    tensors: &[Written<'_>],
    path: &Path,
    get: &dyn Fn(&str) -> Result<Tensor>,
) -> Result<()> {
    let mut pickle = Pickle::default();
    pickle.bytes.extend([0x80, 2]);
    dict(&mut pickle, root, tensors)?;
    pickle.bytes.push(b'.');
    write_file(path, |file| {
        let mut writer = ArchiveWriter::new(path, file);
        writer.add("archive/data.pkl", &[&pickle.bytes])?;
        writer.add("archive/byteorder", &[b"little"])?;
        for (place, tensor) in tensors.iter().enumerate() {
            let bytes = Bytes::new(&get(tensor.name)?)?;
            writer.add(&format!("archive/data/{place}"), &[bytes.as_slice()])?;
        }
        writer.add("archive/version", &[b"3\n"])?;
        writer.finish()
    })
}

fn dict<'a>(
    pickle: &mut Pickle<'a>,
    entries: &'a [(String, Branch<'_>)],
    tensors: &[Written<'_>],
) -> Result<()> {
    pickle.bytes.extend(b"}(");
    for (key, branch) in entries {
        pickle.text(key)?;
        match branch {
            Branch::Tensor(place) => pickle.plain_tensor(*place, &tensors[*place])?,
            Branch::Value(value) => pickle.value(value, 1)?,
            Branch::Dict(entries) => dict(pickle, entries, tensors)?,
        }
    }
    pickle.bytes.push(b'u');
    Ok(())
}
