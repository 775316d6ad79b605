//! Saving: who writes what is agreed, each rank writes its file, and rank 0 makes it a checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::agree::{agree, check_paths, follow};
use super::own::{INDEX, Listed, ListedPiece, file_name, written};
use super::plan::{Assignment, Part, Written, assign};
use super::region::Region;
use super::state::State;
use super::write::{Lies, ToWrite, write_pieces};
use crate::autograd::no_grad;
use crate::checkpoint::folder::{check_replaceable, replace};
use crate::checkpoint::replacing::{
    Temporary, followed, is_temporary_of, no_name, remove_leftovers, split, sync_folder, write_file,
};
use crate::distributed::{Origin, ProcessGroup};
use crate::error::{Context, Error, Result, catch};
use crate::profiler::Phase;
use crate::tensor::Tensor;

/// How many plans are kept: of a model and its average, for several groups.
const KEPT: usize = 4;

/// Writes a state that all ranks have together to the folder `path`, and returns on all ranks when it is on disk.
/// Collective: each rank writes its own file, and what several have is written by one of them.
///
/// The folder appears when it is complete. One of that name that is a checkpoint is replaced by then, and not before.
/// All hosts see the same folder: a shared file system.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::checkpoint::distributed::{self, Shard, State};
/// use torchrs::Tensor;
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = group.broadcast_object(Some(&folder.path().join("checkpoint")), 0)?;
/// // Each of two ranks has one of two rows.
/// let row = Tensor::from([[group.rank() as f32; 3]]);
/// let shard = Shard::new(row.clone(), &[2, 3], &[group.rank(), 0])?;
/// let state = State::new().with_tensor("weight", shard)?.with_value("epoch", &3)?;
/// distributed::save(&state, &path, &group)?;
/// // One process has both.
/// let whole = Tensor::from([[9f32; 3]; 2]);
/// let state = State::new().with_tensor("weight", whole.clone())?;
/// let loaded = distributed::load(&state, &path, &group, Default::default())?;
/// assert_eq!(whole.to_vec::<f32>(), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
/// assert_eq!(loaded.value::<u32>("epoch")?, 3);
/// # group.barrier()?;
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// The same on all ranks, naming those on which it is so: [`Error::Other`] for a tensor that is not there whole or of
/// which ranks say different things, and for what cannot be written; what was at `path` is still there then.
/// [`Error::Argument`] where ranks name other paths. That of a collective.
#[track_caller]
pub fn save(state: &State, path: impl AsRef<Path>, group: &ProcessGroup) -> Result<()> {
    let path = path.as_ref();
    Origin::here().over(|| {
        let _phase = Phase::checkpoint();
        let plan = Plan::new(state, path, group)?;
        let folder = begin(path, group)?;
        let lies = write_own(&folder, state, &plan.own(group), group.rank());
        finish(folder, plan, lies, group)
    })
}

/// What all ranks have, and who writes what.
pub(super) struct Plan {
    world: usize,
    parts: Arc<Vec<Vec<Part>>>,
    assignment: Arc<Assignment>,
    groups: Vec<String>,
    /// Rank 0's.
    values: BTreeMap<String, Value>,
}

/// A plan, by the hashes of what ranks have.
struct Kept {
    hashes: Vec<u64>,
    parts: Arc<Vec<Vec<Part>>>,
    assignment: Arc<Assignment>,
}

/// The plans that the ranks of a group have made last. All of them have the same here.
static PLANS: Mutex<BTreeMap<Vec<usize>, Vec<Kept>>> = Mutex::new(BTreeMap::new());

const PLANNING: &str = "planning a checkpoint";

impl Plan {
    /// Collective. A plan of the same parts as an earlier one takes one small exchange.
    pub fn new(state: &State, path: &Path, group: &ProcessGroup) -> Result<Plan> {
        let mine: Vec<Part> = state
            .tensors
            .iter()
            .map(|(name, shard)| Part {
                name: name.clone(),
                dtype: shard.tensor().dtype(),
                shape: shard.shape().to_vec(),
                region: shard.region().clone(),
            })
            .collect();
        let mut hasher = DefaultHasher::new();
        mine.hash(&mut hasher);
        let told = agree(group, PLANNING, Ok((hasher.finish(), path.to_owned())))?;
        let (hashes, paths): (Vec<u64>, Vec<PathBuf>) = told.into_iter().unzip();
        check_paths("save", "path", &paths)?;
        let known = PLANS.lock().get(group.ranks()).and_then(|kept| {
            let same = kept.iter().find(|kept| kept.hashes == hashes)?;
            Some((same.parts.clone(), same.assignment.clone()))
        });
        let (parts, assignment) = match known {
            Some(known) => known,
            None => {
                let parts = Arc::new(agree(group, PLANNING, Ok(mine))?);
                let assignment =
                    assign(&parts).map_err(|why| Error::Other(format!("{PLANNING}: {why}")))?;
                let assignment = Arc::new(assignment);
                let mut plans = PLANS.lock();
                let plans = plans.entry(group.ranks().to_vec()).or_default();
                plans.truncate(KEPT - 1);
                let kept = Kept { hashes, parts: parts.clone(), assignment: assignment.clone() };
                plans.insert(0, kept);
                (parts, assignment)
            }
        };
        let (groups, values) = (state.groups.clone(), state.values.clone());
        Ok(Plan { world: group.world_size(), parts, assignment, groups, values })
    }

    /// What this rank writes.
    pub fn own(&self, group: &ProcessGroup) -> Arc<[Written]> {
        self.assignment[group.rank()].as_slice().into()
    }

    /// What `index.json` says of the tensors.
    fn listed(&self, lies: &[Vec<Lies>]) -> BTreeMap<String, Listed> {
        let mut listed: BTreeMap<String, Listed> = BTreeMap::new();
        for part in self.parts.iter().flatten() {
            listed.entry(part.name.clone()).or_insert_with(|| Listed {
                dtype: part.dtype.name().to_owned(),
                shape: part.shape.clone(),
                pieces: Vec::new(),
            });
        }
        for (rank, (written, lies)) in self.assignment.iter().zip(lies).enumerate() {
            for (written, lies) in written.iter().zip(lies) {
                if let Some(listed) = listed.get_mut(&written.name) {
                    listed.pieces.push(ListedPiece {
                        file: file_name(rank),
                        region: written.region.clone(),
                        bytes: (lies.start, lies.end),
                        crc32: lies.crc32,
                    });
                }
            }
        }
        for listed in listed.values_mut() {
            listed.pieces.sort_by(|a, b| a.region.cmp(&b.region));
        }
        listed
    }
}

/// A checkpoint that is being written.
pub(super) struct Folder {
    /// Where the ranks write.
    pub path: PathBuf,
    /// What it will be called.
    target: PathBuf,
    /// Rank 0's.
    temporary: Option<Temporary>,
}

/// Rank 0 makes the folder that all write to. Collective.
pub(super) fn begin(path: &Path, group: &ProcessGroup) -> Result<Folder> {
    let what = format!("saving {}", path.display());
    let (mut temporary, mut target) = (None, PathBuf::new());
    let path = follow(group, &what, || {
        target = followed(path)?;
        let (parent, name) = split(&target).ok_or_else(|| no_name("path", path))?;
        check_replaceable(&target)?;
        fs::create_dir_all(parent).context(|| format!("create {}", parent.display()))?;
        remove_leftovers(parent, |temporary| is_temporary_of(temporary, name));
        let made = Temporary::folder(parent, name)
            .context(|| format!("create a folder in {}", parent.display()))?;
        Ok(temporary.insert(made).path.clone())
    })?;
    Ok(Folder { path, target, temporary })
}

/// The boxes that this rank writes, of its tensors.
pub(super) fn boxes<'a>(state: &State, own: &'a [Written]) -> Result<Vec<(&'a Written, Tensor)>> {
    let cut = |written: &'a Written| {
        let shard = state.tensors.get(&written.name).ok_or_else(|| {
            Error::Other(format!("tensor `{}` of the plan is not in the state", written.name))
        })?;
        let of_region = |tensor: Tensor| narrowed(tensor, &written.of, &written.region);
        Ok((written, catch(|| no_grad(|| of_region(shard.tensor().detach())))?))
    };
    own.iter().map(cut).collect()
}

/// The box `region` of a tensor that is the box `of`.
pub(super) fn narrowed(mut tensor: Tensor, of: &Region, region: &Region) -> Tensor {
    for d in 0..region.shape.len() {
        if region.shape[d] != of.shape[d] {
            tensor = tensor.narrow(d as i64, region.offsets[d] - of.offsets[d], region.shape[d]);
        }
    }
    tensor
}

fn write_own(folder: &Folder, state: &State, own: &[Written], rank: usize) -> Result<Vec<Lies>> {
    let boxes = boxes(state, own)?;
    let pieces: Vec<ToWrite> = boxes
        .iter()
        .map(|(written, tensor)| ToWrite { name: &written.name, region: &written.region, tensor })
        .collect();
    match pieces.is_empty() {
        true => Ok(Vec::new()),
        false => write_pieces(&folder.path.join(file_name(rank)), &pieces),
    }
}

/// Rank 0 makes the folder a checkpoint when all have written. Collective.
pub(super) fn finish(
    folder: Folder,
    plan: Plan,
    lies: Result<Vec<Lies>>,
    group: &ProcessGroup,
) -> Result<()> {
    let Folder { path, target, temporary } = folder;
    let what = "writing a checkpoint";
    let lies = agree(group, what, lies)?;
    follow(group, what, || {
        let index = path.join(INDEX);
        let text = written(plan.world, &plan.groups, &plan.listed(&lies), &plan.values);
        write_file(&index, |file| {
            file.write_all(text.as_bytes()).context(|| format!("write {}", index.display()))
        })?;
        sync_folder(&path)?;
        replace(&path, &target)?;
        temporary.into_iter().for_each(Temporary::settle);
        let (parent, _) = split(&target).ok_or_else(|| no_name("path", &target))?;
        sync_folder(parent)
    })
}
