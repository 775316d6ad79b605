//! Checkpoints made of others.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::super::casts;
use super::super::formats::new::{check_free, new_folder};
use super::super::formats::{CheckpointFormat, dcp, huggingface, values};
use super::super::index::{Entry, prefix_of};
use super::super::own::{INDEX, Listed, ListedPiece, file_name, written};
use super::super::region::Region;
use super::super::write::{Planned, write_planned};
use super::CheckpointFiles;
use crate::checkpoint::pt::PtValue;
use crate::checkpoint::pt::streamed::{self, Branch};
use crate::checkpoint::replacing::write_file;
use crate::checkpoint::safetensors::{Written, write_tensors};
use crate::error::{Context, Error, Result};
use crate::tensor::{Dtype, Tensor};

/// What [`CheckpointFiles::convert`] makes.
///
/// ```
/// use torchrs::{Dtype, checkpoint::{CheckpointFormat, ConvertOptions}};
/// let all = ConvertOptions::new(CheckpointFormat::HuggingFace);
/// let options = ConvertOptions { only: Some("model".into()), dtype: Some(Dtype::BF16), ..all };
/// assert_eq!(options.max_shard_size, 5_000_000_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertOptions {
    /// The format.
    pub to: CheckpointFormat,
    /// Of Hugging Face's folders, most bytes of tensors in one file.
    pub max_shard_size: u64,
    /// For how many ranks a sharded checkpoint is: how many files it has.
    pub ranks: usize,
    /// Only tensors whose names begin with this, and without it. What ends in no point is a group's name.
    pub only: Option<String>,
    /// Floating-point tensors become of this dtype; others stay as they are.
    pub dtype: Option<Dtype>,
}

impl ConvertOptions {
    /// All tensors as they are.
    pub fn new(to: CheckpointFormat) -> Self {
        ConvertOptions { to, max_shard_size: 5_000_000_000, ranks: 1, only: None, dtype: None }
    }
}

/// What [`CheckpointFiles::convert`] has made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Converted {
    /// How many tensors were written.
    pub tensors: usize,
    /// Values that were not: the format has only tensors, or only some were asked for.
    pub values_left_out: Vec<String>,
}

const NAME: &str = "CheckpointFiles::convert";

/// What is to be written.
struct Plan<'a> {
    files: &'a CheckpointFiles,
    dtype: Option<Dtype>,
    /// The names of tensors here, and there, sorted by these.
    names: Vec<(String, String)>,
    groups: Vec<String>,
    values: BTreeMap<String, Value>,
}

impl CheckpointFiles {
    /// Writes this checkpoint in another format, to a path where nothing is. One tensor is in memory at a time; of a file
    /// of `torch.save` that is read, all of them.
    ///
    /// ```
    /// use torchrs::{Tensor, checkpoint::{self, CheckpointFiles, CheckpointFormat, ConvertOptions, TensorMap}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (path, out) = (folder.path().join("step-10"), folder.path().join("out"));
    /// let model = TensorMap::from([("weight".into(), Tensor::from([1f32, 2.]))]);
    /// checkpoint::Checkpoint::new().with_tensors("model", model).with_value("step", &10)?.save(&path)?;
    /// let mut options = ConvertOptions::new(CheckpointFormat::HuggingFace);
    /// options.only = Some("model".into());
    /// let made = CheckpointFiles::open(&path)?.convert(&out, &options)?;
    /// assert_eq!(made.values_left_out, ["step"]);
    /// assert_eq!(checkpoint::load_sharded(&out)?["weight"].to_vec::<f32>(), [1.0, 2.0]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] where something is already, for options that cannot be, and when no tensor's name begins with
    /// `only`; those of reading and writing.
    pub fn convert(&self, out: impl AsRef<Path>, options: &ConvertOptions) -> Result<Converted> {
        let out = out.as_ref();
        check_free(NAME, out)?;
        if self.contains(out) {
            let what = format!("{} lies in the checkpoint that is read", out.display());
            return Err(Error::argument(NAME, "out", what));
        }
        let mut plan = self.plan(options)?;
        let has_values = matches!(
            options.to,
            CheckpointFormat::Sharded | CheckpointFormat::Dcp | CheckpointFormat::Pt
        );
        let kept = options.only.is_none() && has_values;
        let values_left_out = match kept {
            true => Vec::new(),
            false => std::mem::take(&mut plan.values).into_keys().collect(),
        };
        match options.to {
            CheckpointFormat::Safetensors => plan.safetensors(out),
            CheckpointFormat::HuggingFace => plan.huggingface(out, options.max_shard_size),
            CheckpointFormat::Dcp => plan.dcp(out),
            CheckpointFormat::Sharded => plan.sharded(out, options.ranks),
            CheckpointFormat::Pt => plan.pt(out),
            CheckpointFormat::Folder => {
                let known = CheckpointFormat::ALL.iter().filter(|f| **f != options.to);
                let known: Vec<&str> = known.map(|f| f.name()).collect();
                let what = format!("folder; can be {}", known.join(", "));
                Err(Error::argument(NAME, "to", what))
            }
        }?;
        Ok(Converted { tensors: plan.names.len(), values_left_out })
    }

    fn plan(&self, options: &ConvertOptions) -> Result<Plan<'_>> {
        let wrong = |argument, what: String| Err(Error::argument(NAME, argument, what));
        if let Some(dtype) = options.dtype
            && !dtype.is_floating_point()
        {
            let what = format!("{dtype}; floating-point tensors stay such: f64, f32, f16 or bf16");
            return wrong("dtype", what);
        }
        if options.ranks == 0 {
            return wrong("ranks", "0; must be for how many ranks the checkpoint is".into());
        }
        let group = options.only.as_deref().unwrap_or_default();
        let mut names = match &options.only {
            None => self.index.tensors.keys().map(|name| (name.clone(), name.clone())).collect(),
            Some(only) => self.index.names_in(NAME, "only", only)?,
        };
        names.sort_by(|a, b| a.1.cmp(&b.1));
        let both = |name: &&String| self.index.tensors.contains_key(*name);
        if let Some(name) = self.index.values.keys().find(both)
            && options.only.is_none()
        {
            let what =
                format!("has both a tensor and a value `{name}`; convert a part with `only`");
            return Err(Error::file(&self.index.path, what));
        }
        let prefix = prefix_of(group);
        let groups = self.index.groups.iter().filter_map(|group| {
            let rest = group.strip_prefix(&prefix)?;
            (!rest.is_empty()).then(|| rest.to_owned())
        });
        Ok(Plan {
            files: self,
            dtype: options.dtype,
            names,
            groups: groups.collect(),
            values: self.index.values.clone(),
        })
    }
}

impl<'a> Plan<'a> {
    fn entry(&self, name: &str) -> &Entry {
        &self.files.index.tensors[name]
    }

    fn dtype_of(&self, entry: &Entry) -> Dtype {
        match self.dtype {
            Some(dtype) if entry.dtype.is_floating_point() => dtype,
            _ => entry.dtype,
        }
    }

    fn cast(&self, tensor: Tensor) -> Result<Tensor> {
        match self.dtype {
            Some(dtype) if tensor.dtype().is_floating_point() => {
                casts::cast(&tensor, dtype)?.map_err(|lost| {
                    let what = format!(
                        "{dtype}, in which some numbers of a tensor of shape {:?} would be {lost}; bf16 has room for those of \
                         f32",
                        tensor.shape()
                    );
                    Error::argument(NAME, "dtype", what)
                })
            }
            _ => Ok(tensor),
        }
    }

    fn listed(&'a self) -> Vec<Written<'a>> {
        let listed = |(name, new): &'a (String, String)| -> Written<'a> {
            let entry = &self.files.index.tensors[name];
            Written { name: new, dtype: self.dtype_of(entry), shape: &entry.shape }
        };
        self.names.iter().map(listed).collect()
    }

    /// A tensor by the name it gets.
    fn get(&self, new: &str) -> Result<Tensor> {
        let place = self.names.binary_search_by(|(_, name)| name.as_str().cmp(new));
        let name = place.map(|place| &self.names[place].0);
        let name = name.map_err(|_| Error::file(&self.files.index.path, format!("no `{new}`")))?;
        self.cast(self.files.tensor(name)?)
    }

    fn safetensors(&self, out: &Path) -> Result<()> {
        let metadata = [("format".to_owned(), "pt".to_owned())].into();
        write_tensors(NAME, &self.listed(), &metadata, out, &|name| self.get(name))
    }

    fn huggingface(&self, out: &Path, max_shard_size: u64) -> Result<()> {
        huggingface::write(&self.listed(), out, max_shard_size, &|name| self.get(name))
    }

    fn dcp(&self, out: &Path) -> Result<()> {
        let source = dcp::Source {
            index: &self.files.index,
            names: &self.names,
            groups: &self.groups,
            values: &self.values,
            files: &self.files.files,
            cast: &|tensor| self.cast(tensor),
        };
        dcp::write(NAME, &source, out)
    }

    /// A file of nested dicts: groups with their tensors, what is in no group, and values.
    fn pt(&self, out: &Path) -> Result<()> {
        let path = &self.files.index.path;
        let mut plain: Vec<(String, PtValue)> = Vec::new();
        for (name, value) in &self.values {
            plain.push((name.clone(), values::from_json(path, name, value)?));
        }
        let listed = self.listed();
        let of_tensors =
            listed.iter().enumerate().map(|(place, t)| (t.name, Branch::Tensor(place)));
        let of_values = plain.iter().map(|(name, value)| (name.as_str(), Branch::Value(value)));
        let mut root: Vec<(String, Branch<'_>)> = Vec::new();
        let mut groups: BTreeMap<&str, Vec<(String, Branch<'_>)>> = BTreeMap::new();
        for (name, branch) in of_tensors.chain(of_values) {
            let (group, rest) = values::keys(&self.groups, name);
            let entries = match group {
                Some(group) => groups.entry(group).or_default(),
                None => &mut root,
            };
            entries.push((rest.to_owned(), branch));
        }
        root.extend(
            groups.into_iter().map(|(name, entries)| (name.to_owned(), Branch::Dict(entries))),
        );
        let mut keys: Vec<&String> = root.iter().map(|(key, _)| key).collect();
        keys.sort();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!(
                "has two things named `{}`, which one dict cannot have; take the tensors of one group by `only`",
                twice[0]
            );
            return Err(Error::file(path, what));
        }
        streamed::save(&root, &listed, out, &|name| self.get(name))
    }

    /// Files of as many ranks, each with its rows of every tensor, as `torch.chunk` has them.
    fn sharded(&self, out: &Path, ranks: usize) -> Result<()> {
        new_folder(NAME, out, |folder| {
            let mut listed: BTreeMap<String, Listed> = BTreeMap::new();
            for (name, new) in &self.names {
                let entry = self.entry(name);
                let (dtype, shape) = (self.dtype_of(entry).name().to_owned(), entry.shape.clone());
                listed.insert(new.clone(), Listed { dtype, shape, pieces: Vec::new() });
            }
            for rank in 0..ranks {
                self.rank(folder, rank, ranks, &mut listed)?;
            }
            let text = written(ranks, &self.groups, &listed, &self.values);
            let index = folder.join(INDEX);
            write_file(&index, |file| {
                file.write_all(text.as_bytes()).context(|| format!("write {}", index.display()))
            })
        })
    }

    fn rank(
        &self,
        folder: &Path,
        rank: usize,
        ranks: usize,
        listed: &mut BTreeMap<String, Listed>,
    ) -> Result<()> {
        let mut planned = Vec::new();
        let mut names = Vec::new();
        for (name, new) in &self.names {
            let entry = self.entry(name);
            if let Some(region) = rows(&entry.shape, rank, ranks) {
                planned.push(Planned { name: new, region, dtype: self.dtype_of(entry) });
                names.push(name);
            }
        }
        if planned.is_empty() {
            return Ok(());
        }
        let file = file_name(rank);
        let lies = write_planned(&folder.join(&file), &planned, &|place| {
            let (name, region) = (names[place], &planned[place].region);
            let files = self.files;
            self.cast(files.index.read_region(name, self.entry(name), region, &files.files)?)
        })?;
        for (Planned { name, region, .. }, lies) in planned.into_iter().zip(lies) {
            if let Some(listed) = listed.get_mut(name) {
                let bytes = (lies.start, lies.end);
                let file = file.clone();
                listed.pieces.push(ListedPiece { file, region, bytes, crc32: lies.crc32 });
            }
        }
        Ok(())
    }
}

/// A rank's part of a tensor, if it has one: its chunk along the first dimension. What has none is rank 0's.
fn rows(shape: &[usize], rank: usize, ranks: usize) -> Option<Region> {
    let mut region = Region::whole(shape);
    if region.numel() == 0 {
        return None;
    }
    let Some(&count) = shape.first() else { return (rank == 0).then_some(region) };
    let most = count.div_ceil(ranks);
    let start = rank.checked_mul(most).filter(|start| *start < count)?;
    region.offsets[0] = start;
    region.shape[0] = most.min(count - start);
    Some(region)
}

#[cfg(test)]
mod tests {
    use super::rows;

    /// As `torch.chunk` cuts: `[len(c) for c in torch.arange(n).chunk(ranks)]`.
    #[test]
    fn ranks_have_the_chunks_of_pytorch() {
        let of = |count: usize, ranks: usize| -> Vec<usize> {
            (0..ranks).filter_map(|rank| Some(rows(&[count, 2], rank, ranks)?.shape[0])).collect()
        };
        assert_eq!(of(7, 3), [3, 3, 1]);
        assert_eq!(of(5, 4), [2, 2, 1]);
        assert_eq!(of(2, 3), [1, 1]);
        assert_eq!(of(8, 4), [2, 2, 2, 2]);
        assert!(rows(&[], 0, 2).is_some() && rows(&[], 1, 2).is_none());
        assert!(rows(&[0, 3], 0, 2).is_none());
    }
}
