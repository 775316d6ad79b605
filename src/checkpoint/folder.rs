//! A checkpoint as a folder that appears whole or not at all, and the folder of a run's checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::TensorMap;
use super::distributed::INDEX;
use super::raw::{error_of, room_for};
use super::replacing::{
    Temporary, followed, is_temporary_of, no_name, remove_leftovers, split, sync_folder, write_file,
};
use super::safetensors::{load_file, save_file};
use super::words;
use crate::error::{Context, Error, Result};
use crate::profiler::{Phase, notes};

pub(super) const STATE: &str = "state.json";
const FORMAT: &str = "torchrs-checkpoint";
const VERSION: u64 = 1;
/// The value that [`Checkpoint::with_score`] adds.
pub(crate) const SCORE: &str = "score";
/// Parsed JSON takes at most this of one byte of its text.
const PARSED: usize = 64;

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
    tensors: BTreeMap<String, TensorMap>,
    values: BTreeMap<String, Value>,
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
        self.tensors.insert(group.to_owned(), tensors);
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

    /// Says how good it is, by the measure that [`CheckpointDir::keep_best`] compares: the value `score`.
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
        if !score.is_finite() {
            let what = format!("{score}; must be finite, to be compared with others");
            return Err(Error::argument("Checkpoint::with_score", "score", what));
        }
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

    /// A group of tensors.
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
    /// [`Error::File`] when the checkpoint has no such group; says which there are.
    pub fn tensors(&self, group: &str) -> Result<&TensorMap> {
        self.tensors.get(group).ok_or_else(|| {
            let known: Vec<&String> = self.tensors.keys().collect();
            Error::file(&self.path, format!("has no tensors `{group}`; there are {known:?}"))
        })
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
        let file = self.path.join(STATE);
        let value = self.values.get(name).ok_or_else(|| {
            let known: Vec<&String> = self.values.keys().collect();
            Error::file(&file, format!("has no value `{name}`; there are {known:?}"))
        })?;
        words::from_value(value).map_err(|e| Error::file(&file, format!("value `{name}`: {e}")))
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
    /// [`Error::Argument`] for a group that cannot be the name of a file, and for a `path` where something
    /// else than a checkpoint is.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _phase = Phase::checkpoint();
        let path = &followed(path.as_ref())?;
        if let Some(group) = self.tensors.keys().find(|group| !is_file_name(group)) {
            let message = format!("`{group}` cannot be the name of a file; use no `/` in it");
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
        for (group, tensors) in &self.tensors {
            let header = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
            save_file(tensors, &header, folder.join(format!("{group}.safetensors")))?;
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
        let path = path.as_ref();
        let (groups, values) = read_state(path)?;
        let mut tensors = BTreeMap::new();
        for group in groups {
            let loaded = load_file(path.join(format!("{group}.safetensors")))?;
            tensors.insert(group, loaded);
        }
        Ok(Checkpoint { path: path.to_owned(), tensors, values })
    }
}

/// The names of the groups of tensors, and the values, that `state.json` of the folder holds.
pub(super) fn read_state(path: &Path) -> Result<(Vec<String>, BTreeMap<String, Value>)> {
    let file = path.join(STATE);
    let bytes = fs::read(&file).context(|| format!("open {}", file.display()))?;
    let damaged = |why: String| Error::file(&file, why);
    room_for(bytes.len().saturating_mul(PARSED))
        .map_err(|why| error_of(&file, format!("its values: {why}")))?;
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
fn crc(value: &Value) -> String {
    let mut crc = flate2::Crc::new();
    crc.update(value.to_string().as_bytes());
    format!("{:08x}", crc.sum())
}

/// Refuses to replace what is neither a checkpoint nor an empty folder.
pub(super) fn check_replaceable(path: &Path) -> Result<()> {
    let fits = match fs::read_dir(path) {
        Ok(mut entries) => {
            [STATE, INDEX].iter().any(|file| path.join(file).exists()) || entries.next().is_none()
        }
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    if fits {
        return Ok(());
    }
    let message = format!(
        "{} is there and no checkpoint (it has neither {STATE} nor {INDEX}); name a folder that is new, empty or one",
        path.display()
    );
    Err(Error::argument("Checkpoint::save", "path", message))
}

/// Whether a group's file lies in the checkpoint's folder.
fn is_file_name(group: &str) -> bool {
    !group.contains(['/', '\0'])
}

fn remove_dir(path: &Path) -> Result<()> {
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

/// The checkpoints of a run: folders `step-<number>` in one folder.
///
/// ```
/// use torchrs::checkpoint::{Checkpoint, CheckpointDir};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path();
/// let run = CheckpointDir::new(path, 2);
/// for step in [10, 20, 30] {
///     run.save(step, &Checkpoint::new().with_value("step", &step)?)?;
/// }
/// assert_eq!((run.steps()?, run.latest()?), (vec![20, 30], Some((30, run.at(30)))));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CheckpointDir {
    path: PathBuf,
    keep: usize,
    best: Option<(usize, Best)>,
}

/// Which score is best.
///
/// ```
/// use torchrs::checkpoint::Best;
/// assert!(Best::Lowest.is_better(0.1, 0.2) && Best::Highest.is_better(0.2, 0.1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Best {
    /// As of a loss.
    Lowest,
    /// As of an accuracy.
    Highest,
}

impl Best {
    /// Whether `score` is better than `other`.
    pub fn is_better(self, score: f64, other: f64) -> bool {
        match self {
            Best::Lowest => score < other,
            Best::Highest => score > other,
        }
    }
}

impl CheckpointDir {
    /// In `path`, keeping the latest `keep` (at least one).
    ///
    /// ```
    /// use torchrs::checkpoint::{Checkpoint, CheckpointDir};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path();
    /// let run = CheckpointDir::new(path, 1);
    /// run.save(1, &Checkpoint::new())?;
    /// run.save(2, &Checkpoint::new())?;
    /// assert_eq!(run.steps()?, [2]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn new(path: impl Into<PathBuf>, keep: usize) -> Self {
        CheckpointDir { path: path.into(), keep: keep.max(1), best: None }
    }

    /// Keeps the `k` best as well, by their [scores](Checkpoint::with_score), however old they are. Those without a
    /// score are kept while they are among the latest. Of equal scores the earlier is better.
    ///
    /// ```
    /// use torchrs::checkpoint::{Best, Checkpoint, CheckpointDir};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path();
    /// let run = CheckpointDir::new(path, 1).keep_best(1, Best::Highest);
    /// for (step, accuracy) in [(10, 0.5), (20, 0.9), (30, 0.8), (40, 0.7)] {
    ///     run.save(step, &Checkpoint::new().with_score(accuracy)?)?;
    /// }
    /// assert_eq!((run.steps()?, run.best()?), (vec![20, 40], Some((20, run.at(20)))));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn keep_best(mut self, k: usize, best: Best) -> Self {
        self.best = Some((k, best));
        self
    }

    /// Folder of the checkpoint of a step.
    pub fn at(&self, step: u64) -> PathBuf {
        self.path.join(format!("step-{step:08}"))
    }

    /// The steps of which there are checkpoints, ascending. Unfinished ones have no such name.
    ///
    /// ```
    /// use torchrs::checkpoint::{Checkpoint, CheckpointDir};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run");
    /// let run = CheckpointDir::new(&path, 3);
    /// assert!(run.steps()?.is_empty());
    /// run.save(20, &Checkpoint::new())?;
    /// run.save(10, &Checkpoint::new())?;
    /// assert_eq!(run.steps()?, [10, 20]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the folder is there but cannot be read.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context(|| format!("read folder {}", self.path.display()))?,
        };
        let step = |e: fs::DirEntry| {
            let step = e.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?;
            // Another spelling of the number is not a checkpoint of ours.
            (e.path().file_name() == self.at(step).file_name()).then_some(step)
        };
        let mut steps: Vec<u64> = entries.flatten().filter_map(step).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The latest checkpoint's step and folder, if there is one.
    ///
    /// ```
    /// use torchrs::checkpoint::{Checkpoint, CheckpointDir};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path();
    /// let run = CheckpointDir::new(path, 3);
    /// assert_eq!(run.latest()?, None);
    /// run.save(10, &Checkpoint::new())?;
    /// assert_eq!(run.latest()?, Some((10, run.at(10))));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`steps`](Self::steps).
    pub fn latest(&self) -> Result<Option<(u64, PathBuf)>> {
        Ok(self.steps()?.last().map(|&step| (step, self.at(step))))
    }

    /// The step and folder of the checkpoint with the best score, if one has a score.
    ///
    /// # Errors
    /// [`Error::Argument`] where [`keep_best`](Self::keep_best) has not said which score is best; [`Error::Os`] and
    /// [`Error::File`] for a checkpoint that cannot be read.
    pub fn best(&self) -> Result<Option<(u64, PathBuf)>> {
        let Some((_, best)) = self.best else {
            let what = "is not said; `keep_best` tells which score is best";
            return Err(Error::argument("CheckpointDir::best", "best", what));
        };
        let mut found: Option<(f64, u64)> = None;
        for step in self.steps()? {
            if let Some(score) = self.score(step)?
                && found.is_none_or(|(other, _)| best.is_better(score, other))
            {
                found = Some((score, step));
            }
        }
        Ok(found.map(|(_, step)| (step, self.at(step))))
    }

    fn score(&self, step: u64) -> Result<Option<f64>> {
        let (_, values) = read_state(&self.at(step))?;
        Ok(values.get(SCORE).and_then(Value::as_f64))
    }

    /// Those of `steps` that are the best, and those that cannot be read: nobody knows how good they are.
    fn kept_for_score(&self, steps: &[u64]) -> Vec<u64> {
        let Some((k, best)) = self.best else { return Vec::new() };
        let mut scored: Vec<(f64, u64)> = Vec::new();
        let mut kept = Vec::new();
        for &step in steps {
            match self.score(step) {
                Ok(Some(score)) => scored.push((score, step)),
                Ok(None) => {}
                Err(_) => kept.push(step),
            }
        }
        scored.sort_by(|a, b| match best {
            Best::Lowest => a.0.total_cmp(&b.0),
            Best::Highest => b.0.total_cmp(&a.0),
        });
        kept.extend(scored.into_iter().take(k).map(|(_, step)| step));
        kept
    }

    /// Saves the checkpoint of `step`, then removes those that are too old, unless they are among the
    /// [best](Self::keep_best), and what killed runs left unfinished. Beside this one the highest steps are kept, also those of an earlier run that had
    /// come further: [`latest`](Self::latest) is then still one of them.
    ///
    /// ```
    /// use torchrs::checkpoint::{Checkpoint, CheckpointDir};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path();
    /// let run = CheckpointDir::new(path, 3);
    /// let saved = run.save(10, &Checkpoint::new().with_value("epoch", &2)?)?;
    /// assert_eq!(Checkpoint::load(saved)?.value::<u32>("epoch")?, 2);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Checkpoint::save`].
    pub fn save(&self, step: u64, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let path = self.at(step);
        notes::saving(step, || checkpoint.save(&path))?;
        let all = self.steps()?;
        let kept = self.kept_for_score(&all);
        let others: Vec<u64> = all.into_iter().filter(|other| *other != step).collect();
        let old = &others[..others.len().saturating_sub(self.keep - 1)];
        for &old in old.iter().filter(|old| !kept.contains(old)) {
            remove_dir(&self.at(old))?;
        }
        remove_leftovers(&self.path, |name| {
            let step = name.to_str().and_then(|n| n.strip_prefix(".step-")?.split_once(".tmp-"));
            step.is_some_and(|(step, _)| is_temporary_of(name, format!("step-{step}").as_ref()))
        });
        Ok(path)
    }
}
