//! A checkpoint as a folder that appears whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::TensorMap;
use super::distributed::{self, Entry, Files, INDEX, Index};
use super::raw::{error_of, room_for_json};
use super::replacing::{
    Temporary, followed, is_temporary_of, no_name, remove_leftovers, split, sync_folder, write_file,
};
use super::safetensors::{load_file, save_file};
use super::words;
use crate::error::{Context, Error, Result};
use crate::profiler::Phase;

pub(super) const STATE: &str = "state.json";
const FORMAT: &str = "torchrs-checkpoint";
const VERSION: u64 = 1;
/// The value that [`Checkpoint::with_score`] adds.
pub(crate) const SCORE: &str = "score";

/// Everything a training run needs to go on: groups of named tensors (`model`, `optimizer`), each
/// a safetensors file, and named JSON values (epoch, sampler, random state) in `state.json`.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{Checkpoint, TensorMap}};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("checkpoint");
/// let model = TensorMap::from([("weight".into(), Tensor::from([1f32, 2.]))]);
/// Checkpoint::new().with_tensors("model", model).with_value("epoch", &3)?.save(&path)?;
/// let back = Checkpoint::load(&path)?;
/// assert_eq!(back.value::<u32>("epoch")?, 3);
/// assert_eq!(back.tensors("model")?["weight"].to_vec::<f32>(), [1., 2.]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Default)]
pub struct Checkpoint {
    /// Where it was loaded from, for messages.
    path: PathBuf,
    tensors: BTreeMap<String, OnceLock<TensorMap>>,
    values: BTreeMap<String, Value>,
    /// Where groups that are not read yet lie.
    opened: Option<Index>,
}

impl Checkpoint {
    /// An empty one, to be filled and saved.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a group of tensors; it becomes the file `<group>.safetensors`.
    ///
    /// ```
    /// use torchrs::{checkpoint::Checkpoint, nn::{self, Module}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("checkpoint");
    /// let model = nn::Linear::new(2, 1);
    /// let tensors = model.state_dict().iter().map(|(name, t)| (name.to_owned(), t.clone())).collect();
    /// Checkpoint::new().with_tensors("model", tensors).save(&path)?;
    /// assert!(path.join("model.safetensors").exists());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn with_tensors(mut self, group: &str, tensors: TensorMap) -> Self {
        self.tensors.insert(group.to_owned(), OnceLock::from(tensors));
        self
    }

    /// Adds a value to `state.json`. Numbers in it that are not finite are words there, and come back as numbers.
    ///
    /// ```
    /// use torchrs::checkpoint::Checkpoint;
    /// let checkpoint = Checkpoint::new().with_value("rates", &[0.1, 0.01])?;
    /// assert_eq!(checkpoint.value::<Vec<f64>>("rates")?, [0.1, 0.01]);
    /// let checkpoint = Checkpoint::new().with_value("best loss", &f64::INFINITY)?;
    /// assert_eq!(checkpoint.value::<f64>("best loss")?, f64::INFINITY);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when it cannot be JSON (a map with keys that are no strings).
    pub fn with_value(mut self, name: &str, value: &impl Serialize) -> Result<Self> {
        let value = words::to_value(value).map_err(|e| {
            Error::argument("Checkpoint::with_value", name, format!("cannot be JSON: {e}"))
        })?;
        self.values.insert(name.to_owned(), value);
        Ok(self)
    }

    /// Says how good it is, by the measure that [`keep_best`](super::CheckpointDir::keep_best) compares: the value `score`.
    ///
    /// ```
    /// use torchrs::checkpoint::Checkpoint;
    /// assert_eq!(Checkpoint::new().with_score(0.97)?.value::<f64>("score")?, 0.97);
    /// assert!(Checkpoint::new().with_score(f64::NAN).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a score that is not finite: none would be better or worse.
    pub fn with_score(self, score: f64) -> Result<Self> {
        check_score(score)?;
        self.with_value(SCORE, &score)
    }

    /// Where it was loaded from; empty for a new one.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the groups of tensors.
    pub fn tensor_groups(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The names of the values.
    pub fn value_names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// A group of tensors. One that was [opened](Self::open) is read now.
    ///
    /// ```
    /// use torchrs::{Tensor, checkpoint::{Checkpoint, TensorMap}};
    /// let tensors = TensorMap::from([("w".into(), Tensor::from([1f32, 2.]))]);
    /// let checkpoint = Checkpoint::new().with_tensors("model", tensors);
    /// assert_eq!(checkpoint.tensors("model")?["w"].to_vec::<f32>(), [1.0, 2.0]);
    /// assert!(checkpoint.tensors("modle").unwrap_err().to_string().contains("there are [\"model\"]"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] when the checkpoint has no such group; says which there are. As [`load`](Self::load) for one that
    /// is read now.
    pub fn tensors(&self, group: &str) -> Result<&TensorMap> {
        let tensors = self.tensors.get(group).ok_or_else(|| {
            let known: Vec<&String> = self.tensors.keys().collect();
            Error::file(&self.path, format!("has no tensors `{group}`; there are {known:?}"))
        })?;
        if let Some(tensors) = tensors.get() {
            return Ok(tensors);
        }
        let read = self.read(group)?;
        Ok(tensors.get_or_init(|| read))
    }

    fn read(&self, group: &str) -> Result<TensorMap> {
        let Some(index) = self.opened.as_ref().filter(|index| index.world_size.is_some()) else {
            return load_file(self.path.join(format!("{group}.safetensors")));
        };
        let files = Files::default();
        let of_group = index.tensors.keys().filter_map(|name| Some((name, in_group(name, group)?)));
        of_group.map(|(name, own)| Ok((own.to_owned(), index.read(name, &files)?))).collect()
    }

    /// What it holds and where that lies: in memory, or in files that have not been read.
    pub(crate) fn index(&self) -> Index {
        let mut index = Index {
            path: self.path.clone(),
            groups: self.tensors.keys().cloned().collect(),
            values: self.values.clone(),
            ..Default::default()
        };
        for (group, tensors) in &self.tensors {
            match (tensors.get(), &self.opened) {
                (Some(tensors), _) => {
                    for (name, tensor) in tensors {
                        index.tensors.insert(format!("{group}.{name}"), Entry::held(tensor));
                    }
                }
                (None, Some(opened)) => {
                    let own = |(name, _): &(&String, &Entry)| in_group(name, group).is_some();
                    let own = opened.tensors.iter().filter(own);
                    index.tensors.extend(own.map(|(name, entry)| (name.clone(), entry.clone())));
                }
                (None, None) => {}
            }
        }
        index
    }

    /// A value of `state.json`.
    ///
    /// ```
    /// use torchrs::checkpoint::Checkpoint;
    /// let checkpoint = Checkpoint::new().with_value("epoch", &3)?;
    /// assert_eq!(checkpoint.value::<u32>("epoch")?, 3);
    /// assert!(checkpoint.value::<String>("epoch").is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] when it is not there or of another type.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        distributed::value(&self.path, &self.values, name)
    }

    /// Writes the checkpoint to the folder `path`. All files are written under a temporary name and
    /// synced before the folder gets its name, so a kill at any moment leaves either the whole
    /// checkpoint or none. An existing checkpoint of that name is replaced; what is none is not.
    ///
    /// ```
    /// use torchrs::checkpoint::Checkpoint;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("checkpoint");
    /// Checkpoint::new().with_value("epoch", &3)?.save(&path)?;
    /// Checkpoint::new().with_value("epoch", &4)?.save(&path)?;
    /// assert_eq!(Checkpoint::load(&path)?.value::<u32>("epoch")?, 4);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when something cannot be written; the temporary folder is then removed.
    /// [`Error::Argument`] for a group that cannot be the name of a file, for one whose name begins with that of another
    /// and a point, and for a `path` where something else than a checkpoint is, or more than one.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _phase = Phase::checkpoint();
        let path = &followed(path.as_ref())?;
        if let Some(group) = self.tensors.keys().find(|group| !is_file_name(group)) {
            let message = format!("`{group}` cannot be the name of a file; use no `/` in it");
            return Err(Error::argument("Checkpoint::save", "group", message));
        }
        let mut groups =
            self.tensors.keys().flat_map(|one| self.tensors.keys().map(move |b| (one, b)));
        if let Some((one, other)) = groups.find(|(one, other)| in_group(one, other).is_some()) {
            let message = format!("`{one}` is beside `{other}`, whose tensors' names begin alike");
            return Err(Error::argument("Checkpoint::save", "group", message));
        }
        let (parent, name) = split(path).ok_or_else(|| no_name("path", path))?;
        check_replaceable(path)?;
        fs::create_dir_all(parent).context(|| format!("create {}", parent.display()))?;
        remove_leftovers(parent, |temporary| is_temporary_of(temporary, name));
        let temporary = Temporary::folder(parent, name)
            .context(|| format!("create a folder in {}", parent.display()))?;
        self.write_into(&temporary.path)?;
        replace(&temporary.path, path)?;
        temporary.settle();
        sync_folder(parent)
    }

    fn write_into(&self, folder: &Path) -> Result<()> {
        for group in self.tensors.keys() {
            let header = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
            save_file(self.tensors(group)?, &header, folder.join(format!("{group}.safetensors")))?;
        }
        let groups: Vec<&String> = self.tensors.keys().collect();
        let document = json!({
            "format": FORMAT,
            "version": VERSION,
            "torchrs": env!("CARGO_PKG_VERSION"),
            "crc32": crc(&json!([groups, self.values])),
            "tensors": groups,
            "state": self.values,
        });
        let text = serde_json::to_string_pretty(&document).expect("JSON values are JSON");
        let state = folder.join(STATE);
        write_file(&state, |file| {
            file.write_all(text.as_bytes()).context(|| format!("write {}", state.display()))
        })
    }

    /// Reads a checkpoint and checks every byte of it.
    ///
    /// ```
    /// use torchrs::checkpoint::Checkpoint;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("checkpoint");
    /// Checkpoint::new().with_value("epoch", &3)?.save(&path)?;
    /// assert_eq!(Checkpoint::load(&path)?.value::<u32>("epoch")?, 3);
    /// let state = path.join("state.json");
    /// let text = std::fs::read_to_string(&state).unwrap();
    /// std::fs::write(&state, text.replace("\"epoch\": 3", "\"epoch\": 4")).unwrap();
    /// assert!(Checkpoint::load(&path).err().unwrap().to_string().contains("is damaged"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] naming the file, and the tensor where it is one, that is missing, cut off or
    /// damaged.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let checkpoint = Self::open(path)?;
        checkpoint.tensors.keys().try_for_each(|group| checkpoint.tensors(group).map(drop))?;
        Ok(checkpoint)
    }

    /// Finds out what a checkpoint holds. Its tensors are read, and checked, when they are asked for.
    ///
    /// # Errors
    /// [`Error::File`] for a folder that is none, or whose `state.json` or `index.json` is damaged; [`Error::Os`] when it
    /// cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let index = distributed::open(path)?;
        let lost = |name: &&String| !index.groups.iter().any(|g| in_group(name, g).is_some());
        if let Some(name) = index.tensors.keys().find(lost) {
            let what = format!(
                "tensor `{name}` is in no group, so that it is no `Checkpoint`; use `checkpoint::distributed::load`"
            );
            return Err(Error::file(path, what));
        }
        let tensors = index.groups.iter().map(|group| (group.clone(), OnceLock::new())).collect();
        let values = index.values.clone();
        Ok(Checkpoint { path: path.to_owned(), tensors, values, opened: Some(index) })
    }
}

/// The name of a tensor in its group, if it is in that one.
fn in_group<'a>(name: &'a str, group: &str) -> Option<&'a str> {
    name.strip_prefix(group)?.strip_prefix('.')
}

/// Refuses a score that no other is better or worse than.
pub(super) fn check_score(score: f64) -> Result<()> {
    if score.is_finite() {
        return Ok(());
    }
    let what = format!("{score}; must be finite, to be compared with others");
    Err(Error::argument("Checkpoint::with_score", "score", what))
}

/// The names of the groups of tensors, and the values, that `state.json` of the folder holds.
pub(super) fn read_state(path: &Path) -> Result<(Vec<String>, BTreeMap<String, Value>)> {
    let file = path.join(STATE);
    let bytes = fs::read(&file).context(|| format!("open {}", file.display()))?;
    let damaged = |why: String| Error::file(&file, why);
    room_for_json(bytes.len()).map_err(|why| error_of(&file, format!("its values: {why}")))?;
    let document: Value = serde_json::from_slice(&bytes)
        .map_err(|e| damaged(format!("is damaged: not JSON: {e}")))?;
    if document["format"] != FORMAT || document["version"] != VERSION {
        return Err(damaged(format!(
            "format {} version {}; this torchrs reads \"{FORMAT}\" version {VERSION}",
            document["format"], document["version"]
        )));
    }
    let values: BTreeMap<String, Value> = serde_json::from_value(document["state"].clone())
        .map_err(|e| damaged(format!("is damaged: `state`: {e}")))?;
    let groups: Vec<String> = serde_json::from_value(document["tensors"].clone())
        .map_err(|e| damaged(format!("is damaged: `tensors`: {e}")))?;
    if document["crc32"] != crc(&json!([groups, values])) {
        return Err(damaged("is damaged: its checksum does not match its contents".into()));
    }
    if let Some(group) = groups.iter().find(|group| !is_file_name(group)) {
        return Err(damaged(format!("names tensors `{group}`, which is no file beside it")));
    }
    Ok((groups, values))
}

/// CRC-32 of a value's compact text, in which object keys are sorted.
pub(super) fn crc(value: &Value) -> String {
    let mut crc = flate2::Crc::new();
    crc.update(value.to_string().as_bytes());
    format!("{:08x}", crc.sum())
}

/// Refuses to replace what is neither a checkpoint nor an empty folder, and a checkpoint with something else beside it,
/// which would be lost.
pub(super) fn check_replaceable(path: &Path) -> Result<()> {
    let wrong = |what: String| {
        Err(Error::argument("Checkpoint::save", "path", format!("{} {what}", path.display())))
    };
    let neither = || {
        let what = "is there and no checkpoint (it has neither";
        wrong(format!("{what} {STATE} nor {INDEX}); name a folder that is new, empty or one"))
    };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {
            let is_file = |above: &&Path| above.exists() && !above.is_dir();
            return match path.ancestors().skip(1).find(is_file) {
                Some(file) => wrong(format!("lies in {}, which is no folder", file.display())),
                None => neither(),
            };
        }
    };
    let is_checkpoint = [STATE, INDEX].iter().any(|file| path.join(file).exists());
    for entry in entries {
        let entry = entry.context(|| format!("open {}", path.display()))?;
        if !is_checkpoint {
            return neither();
        }
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // The last are what a shared file system keeps of files that are open elsewhere.
        let is_ours = [STATE, INDEX].contains(&&*name)
            || name.ends_with(".safetensors")
            || name.starts_with(".nfs");
        if !is_ours || entry.path().is_dir() {
            return wrong(format!(
                "holds {name} beside its checkpoint, which would be lost; move it, or name a new folder"
            ));
        }
    }
    for file in [STATE, INDEX].map(|file| path.join(file)) {
        if is_of_others(&file) {
            return wrong(format!("is there, and its {} is none of torchrs'", file.display()));
        }
    }
    Ok(())
}

/// Whether a file is JSON of another program. What is damaged may be replaced.
fn is_of_others(file: &Path) -> bool {
    let document = fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let ours = |document: &Value| {
        let format = document["format"].as_str();
        format.is_some_and(|format| format.starts_with("torchrs-"))
    };
    document.is_some_and(|document: Value| !ours(&document))
}

/// Whether a group's file lies in the checkpoint's folder.
fn is_file_name(group: &str) -> bool {
    !group.contains(['/', '\0'])
}

pub(super) fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Gives the finished folder its name. A folder of that name is moved aside first, in one step
/// where the file system can exchange names.
pub(super) fn replace(temporary: &Path, path: &Path) -> Result<()> {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    let renamed = || format!("rename {} to {}", temporary.display(), path.display());
    if !path.exists() {
        return fs::rename(temporary, path).context(renamed);
    }
    let exchange = RenameFlags::RENAME_EXCHANGE;
    if renameat2(AT_FDCWD, temporary, AT_FDCWD, path, exchange).is_ok() {
        return remove_dir(temporary);
    }
    let aside = temporary.with_extension("old");
    remove_dir(&aside)?;
    fs::rename(path, &aside).context(|| format!("move {} aside", path.display()))?;
    fs::rename(temporary, path).context(renamed)?;
    remove_dir(&aside)
}
