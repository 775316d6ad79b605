//! Loading: each rank gets its parts of any checkpoint, whoever wrote it. A piece that several ranks of a host need is
//! read by one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::agree::{agree, all_have};
use super::casts;
use super::fetch::{BLOCK, Files, Of, Stream, Target};
use super::formats;
use super::index::{Entry, Index, Location, Piece};
use super::region::Region;
use super::state::{Shard, State};
use crate::autograd::no_grad;
use crate::checkpoint::raw::{bytes_mut, check_bools, zeros};
use crate::checkpoint::words;
use crate::distributed::{Origin, ProcessGroup, WorkerEnv};
use crate::error::{Error, Result, catch};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// What [`load`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether the checkpoint and the state have the same tensors. Otherwise what both have is loaded, and the report
    /// says what only one of them has.
    pub strict: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { strict: true }
    }
}

/// What [`load`] has found.
#[derive(Debug, Default)]
pub struct Loaded {
    path: PathBuf,
    values: BTreeMap<String, Value>,
    /// Tensors of the state that the checkpoint does not have.
    pub missing: Vec<String>,
    /// Tensors of the checkpoint that the state does not have.
    pub unexpected: Vec<String>,
    /// How many ranks wrote the checkpoint, where it says so.
    pub world_size: Option<usize>,
}

impl Loaded {
    /// A value of the checkpoint.
    ///
    /// # Errors
    /// [`Error::File`] when it is not there or of another type.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        value(&self.path, &self.values, name)
    }
}

pub(crate) fn value<T: DeserializeOwned>(
    path: &Path,
    values: &BTreeMap<String, Value>,
    name: &str,
) -> Result<T> {
    let value = values.get(name).ok_or_else(|| {
        let known: Vec<&String> = values.keys().collect();
        Error::file(path, format!("has no value `{name}`; there are {known:?}"))
    })?;
    words::from_value(value).map_err(|e| Error::file(path, format!("value `{name}`: {e}")))
}

/// Brings a checkpoint's values into the tensors of `state`, each rank its parts. Collective.
///
/// Any number of ranks may have written it, with any parts; each rank says what it needs. It may be of any format
/// of [`CheckpointFiles`](crate::checkpoint::CheckpointFiles). Each byte is read once on a host, and checked; a file of
/// `torch.save` is read by every rank. Dtypes are converted,
/// unless numbers would be infinite or, as integers, others.
///
/// # Errors
/// The same on all ranks, naming those on which it is so: [`Error::Other`] for shapes that differ, tensors that only one
/// side has (unless `strict` is false), and files that are damaged: some tensors may have been loaded then.
/// [`Error::Argument`] where ranks open other checkpoints. That of a collective.
#[track_caller]
pub fn load(
    state: &State,
    path: impl AsRef<Path>,
    group: &ProcessGroup,
    options: LoadOptions,
) -> Result<Loaded> {
    let path = path.as_ref();
    Origin::here().over(|| {
        let opened = formats::open(path).and_then(|index| {
            let mut loaded = Loaded { path: path.to_owned(), ..Default::default() };
            let missing = state.names().filter(|name| !index.tensors.contains_key(*name));
            loaded.missing = missing.map(str::to_owned).collect();
            let unexpected = index.tensors.keys().filter(|name| state.tensor(name).is_none());
            loaded.unexpected = unexpected.cloned().collect();
            if options.strict && !(loaded.missing.is_empty() && loaded.unexpected.is_empty()) {
                return Err(Error::file(path, differing(&loaded.missing, &loaded.unexpected)));
            }
            loaded.world_size = index.world_size;
            loaded.values = index.values.clone();
            Ok((index, loaded))
        });
        let wanted = opened.and_then(|(index, loaded)| {
            let have: Vec<(&str, &Shard)> = state
                .tensors
                .iter()
                .map(|(name, shard)| (name.as_str(), shard))
                .filter(|(name, _)| index.tensors.contains_key(*name))
                .collect();
            check(&index, &have)?;
            Ok((have, index, loaded))
        });
        let what = format!("loading {}", path.display());
        let (have, index, loaded) = all_have(group, &what, wanted)?;
        read(&index, &have, group)?;
        Ok(loaded)
    })
}

fn differing(missing: &[String], unexpected: &[String]) -> String {
    let some = |names: &[String]| crate::distributed::join_some(names.iter(), ", ");
    let mut what = String::new();
    if !missing.is_empty() {
        what += &format!("does not have {}", some(missing));
    }
    if !unexpected.is_empty() {
        let and = if what.is_empty() { "has " } else { "; it has " };
        what += &format!("{and}{}, which the state does not have", some(unexpected));
    }
    what + "; to load what both have, say `strict: false`"
}

/// Makes sure that shapes are the same, and that there is memory to load into.
pub(crate) fn check(index: &Index, wanted: &[(&str, &Shard)]) -> Result<()> {
    for (name, shard) in wanted {
        let entry = index.entry(name)?;
        if entry.shape != shard.shape() {
            let (there, here) = (&entry.shape, shard.shape());
            let what = format!("tensor `{name}` is {there:?} in it and {here:?} in the state");
            return Err(Error::file(&index.path, what));
        }
        if shard.tensor().device() == Device::Meta {
            let what =
                format!("`{name}` is on the meta device, without memory; call `to_empty` first");
            return Err(Error::argument("load", "state", what));
        }
    }
    Ok(())
}

/// Reads what this rank needs. Collective; all have agreed on what the index says.
///
/// # Errors
/// As [`load`].
pub(crate) fn read(index: &Index, wanted: &[(&str, &Shard)], group: &ProcessGroup) -> Result<()> {
    let what = format!("loading {}", index.path.display());
    // Nobody begins to read with others before all can.
    let (reading, host) = match Reading::new(index, wanted) {
        Ok(reading) => (Some(reading), host()),
        Err(error) => (None, Err(error)),
    };
    let mine = host.map(|host| (host, (index.fingerprint(), index.path.clone())));
    let (hosts, opened): (Vec<_>, Vec<_>) = agree(group, &what, mine)?.into_iter().unzip();
    check_same(&opened)?;
    let mine = &hosts[group.rank()];
    let mut local = None;
    let mut seen = BTreeSet::new();
    for host in &hosts {
        if !seen.insert(host) {
            continue;
        }
        let ranks: Vec<usize> = (0..hosts.len()).filter(|&rank| &hosts[rank] == host).collect();
        let members = match ranks.len() == group.world_size() {
            true => group.clone(),
            false => group.new_group(&ranks)?,
        };
        if host == mine {
            local = Some(members);
        }
    }
    let outcome = match (local, reading) {
        (Some(local), Some(reading)) => reading.run(&local),
        _ => Ok(()),
    };
    // A rank that has failed in the middle has told those of its host.
    all_have(group, &what, outcome)
}

/// Refuses to read where ranks have opened other checkpoints: each would get pieces of another's.
fn check_same(opened: &[(u64, PathBuf)]) -> Result<()> {
    let Some((first, path)) = opened.first() else { return Ok(()) };
    let Some(rank) = opened.iter().position(|(other, _)| other != first) else { return Ok(()) };
    let what = format!(
        "is another checkpoint on rank 0, {}, than on rank {rank}, {}; all ranks load the same one",
        path.display(),
        opened[rank].1.display()
    );
    Err(Error::argument("load", "path", what))
}

/// What tells hosts apart: their numbers in the job, and what the system says of itself.
fn host() -> Result<String> {
    let number = WorkerEnv::from_env()?.group_rank;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = nix::unistd::gethostname().unwrap_or_default();
    Ok(format!("{number} {} {}", boot.trim(), name.display()))
}

/// A piece of the checkpoint: its tensor's place among all, and its own in that.
type Id = (u32, u32);

/// What a rank reads into.
struct Reading<'a> {
    index: &'a Index,
    files: Files,
    /// The names of all tensors of the checkpoint.
    names: Vec<&'a str>,
    /// By the place of the name.
    places: BTreeMap<u32, Place<'a>>,
}

struct Place<'a> {
    entry: &'a Entry,
    region: &'a Region,
    /// Memory of the host in the file's dtype: of the tensor itself, where it is that.
    memory: Tensor,
    /// The tensor, where it is not.
    into: Option<&'a Tensor>,
}

impl<'a> Reading<'a> {
    fn new(index: &'a Index, wanted: &[(&'a str, &'a Shard)]) -> Result<Self> {
        let names: Vec<&str> = index.tensors.keys().map(String::as_str).collect();
        let mut places = BTreeMap::new();
        for (name, shard) in wanted {
            let Ok(place) = names.binary_search(name) else { continue };
            let (entry, tensor) = (index.entry(name)?, shard.tensor());
            // What may not be written is refused where it would be.
            let is_direct = tensor.device() == Device::Cpu
                && !tensor.storage().is_read_only()
                && tensor.dtype() == entry.dtype
                && tensor.is_contiguous();
            let (memory, into) = match is_direct {
                true => (tensor.detach(), None),
                false => {
                    let scarce =
                        |why: String| Error::OutOfMemory(format!("tensor `{name}`: {why}"));
                    (zeros(&shard.region().shape, entry.dtype).map_err(scarce)?, Some(tensor))
                }
            };
            let region = shard.region();
            places.insert(place as u32, Place { entry, region, memory, into });
        }
        Ok(Reading { index, files: Files::default(), names, places })
    }

    /// The pieces that this rank needs something of, in the order of the checkpoint: those in files, and those that it
    /// has in memory.
    fn needed(&self) -> (Vec<Id>, Vec<Id>) {
        let (mut needed, mut held) = (Vec::new(), Vec::new());
        for (&name, place) in &self.places {
            for (number, piece) in place.entry.pieces.iter().enumerate() {
                if piece.region.intersect(place.region).is_some() {
                    match piece.at {
                        Location::Memory(_) => held.push((name, number as u32)),
                        Location::File { .. } | Location::Item { .. } => {
                            needed.push((name, number as u32));
                        }
                    }
                }
            }
        }
        (needed, held)
    }

    fn piece(&self, (name, number): Id) -> (Of<'a>, &'a Piece) {
        let name = self.names[name as usize];
        let entry = &self.index.tensors[name];
        (Of { name, dtype: entry.dtype }, &entry.pieces[number as usize])
    }

    fn run(mut self, local: &ProcessGroup) -> Result<()> {
        let (needed, held) = self.needed();
        let needed = local.all_gather_object(&needed)?;
        let (alone, shared) = divided(&needed, |id| {
            let (of, piece) = self.piece(id);
            piece.nbytes(of.dtype)
        });
        if !self.exchange(&shared, local)? {
            return Ok(());
        }
        self.read_alone(&alone[local.rank()])?;
        self.read_alone(&held)?;
        self.settle()
    }

    fn read_alone(&mut self, pieces: &[Id]) -> Result<()> {
        for &id in pieces {
            let (of, piece) = self.piece(id);
            if let Some(place) = self.places.get_mut(&id.0) {
                place.target().read(piece, of, &self.files)?;
            }
        }
        Ok(())
    }

    /// Reads pieces that several ranks need, each by one of them, and gives every block to all. Whether all could be
    /// read; this rank's error, if it could not.
    fn exchange(&mut self, shared: &[Vec<Id>], local: &ProcessGroup) -> Result<bool> {
        let blocks: Vec<Vec<(Id, usize, usize)>> = shared
            .iter()
            .map(|pieces| {
                let of_piece = |&id: &Id| {
                    let (of, piece) = self.piece(id);
                    let nbytes = piece.nbytes(of.dtype);
                    (0..nbytes)
                        .step_by(BLOCK)
                        .map(move |start| (id, start, BLOCK.min(nbytes - start)))
                };
                pieces.iter().flat_map(of_piece).collect()
            })
            .collect();
        let rounds = blocks.iter().map(Vec::len).max().unwrap_or(0);
        if rounds == 0 {
            return Ok(true);
        }
        // A byte behind each block says whether it was read.
        let size = BLOCK + 1;
        let mine = local.empty_shared(&[size], Dtype::U8)?;
        let mut all = Tensor::empty([size * local.world_size()], Dtype::U8);
        let mut stream: Option<(Id, Stream)> = None;
        for round in 0..rounds {
            let bytes = memory_of(&mine);
            let read = match blocks[local.rank()].get(round) {
                Some(&(id, _, length)) => self.next_block(&mut stream, id, &mut bytes[..length]),
                None => Ok(()),
            };
            bytes[BLOCK] = u8::from(read.is_ok());
            local.all_gather_into_tensor(&all, &mine)?;
            let gathered = bytes_mut(&mut all);
            // All of this host stop here together; the one that has failed says why.
            if (0..local.world_size()).any(|rank| gathered[rank * size + BLOCK] == 0) {
                return read.map(|()| false);
            }
            for (rank, blocks) in blocks.iter().enumerate() {
                let Some(&(id, start, length)) = blocks.get(round) else { continue };
                let (of, piece) = self.piece(id);
                let bytes = &gathered[rank * size..rank * size + length];
                if let Some(place) = self.places.get_mut(&id.0)
                    && let Some(common) = piece.region.intersect(place.region)
                {
                    place.target().take(&common, &piece.region, of.dtype.size(), start, bytes);
                }
            }
        }
        Ok(true)
    }

    fn next_block(&self, stream: &mut Option<(Id, Stream)>, id: Id, into: &mut [u8]) -> Result<()> {
        if stream.as_ref().is_none_or(|(other, _)| *other != id) {
            let (of, piece) = self.piece(id);
            *stream = Some((id, Stream::open(piece, of, &self.files)?));
        }
        match stream {
            Some((_, stream)) => stream.fill(into),
            None => Ok(()),
        }
    }

    /// What was read becomes what the tensors hold.
    fn settle(self) -> Result<()> {
        for (name, place) in &self.places {
            let name = self.names[*name as usize];
            check_bools(&self.index.path, &format!("tensor `{name}`"), &place.memory)?;
            match place.into {
                Some(tensor) => {
                    let wrong = |what: String| Error::Other(format!("tensor `{name}`: {what}"));
                    let (own, dtype) = (place.memory.dtype(), tensor.dtype());
                    let cast =
                        casts::cast(&place.memory, dtype).map_err(|e| wrong(e.to_string()))?;
                    let cast = cast.map_err(|lost| {
                        wrong(format!("is {own}; some of its numbers would be {lost} in {dtype}, which the state has"))
                    })?;
                    catch(|| no_grad(|| _ = tensor.detach().copy_(&cast)))
                        .map_err(|error| wrong(error.to_string()))?;
                }
                None => place.memory.storage().bump_version(),
            }
        }
        Ok(())
    }
}

impl Place<'_> {
    fn target(&mut self) -> Target<'_> {
        Target { region: self.region, bytes: memory_of(&self.memory) }
    }
}

/// The bytes of a contiguous tensor of the host.
#[allow(clippy::mut_from_ref, reason = "a tensor is a handle; whose its bytes are is said below")]
fn memory_of(tensor: &Tensor) -> &mut [u8] {
    assert!(tensor.is_contiguous() && tensor.device() == Device::Cpu);
    match tensor.numel() * tensor.dtype().size() {
        0 => &mut [],
        // SAFETY: the elements of a contiguous tensor, of which this module holds one slice at a time. Whoever loads a
        // state, and gives it to nobody meanwhile, has its tensors for himself; the others are made here.
        nbytes => unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr(), nbytes) },
    }
}

/// Which pieces each rank reads for itself, and which for all of its host: of what ranks need, by rank.
fn divided(needed: &[Vec<Id>], nbytes: impl Fn(Id) -> usize) -> (Vec<Vec<Id>>, Vec<Vec<Id>>) {
    let mut users: BTreeMap<Id, Vec<usize>> = BTreeMap::new();
    for (rank, ids) in needed.iter().enumerate() {
        ids.iter().for_each(|&id| users.entry(id).or_default().push(rank));
    }
    let (mut alone, mut shared) = (vec![Vec::new(); needed.len()], vec![Vec::new(); needed.len()]);
    let mut loads = vec![0; needed.len()];
    for (id, ranks) in users {
        match ranks[..] {
            [only] => alone[only].push(id),
            _ => {
                let reader = (0..loads.len()).min_by_key(|&rank| loads[rank]).unwrap_or(0);
                loads[reader] += nbytes(id);
                shared[reader].push(id);
            }
        }
    }
    (alone, shared)
}
