//! The checkpoints of a run, by step.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::distributed;
use super::folder::{Checkpoint, SCORE, remove_dir};
use super::replacing::{is_temporary_of, remove_leftovers};
use crate::error::{Context, Error, Result};
use crate::profiler::notes;

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
        let values = distributed::open(&self.at(step))?.values;
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
        self.prune(step)?;
        Ok(path)
    }

    /// Removes what is too old when the checkpoint of `step` is there.
    pub(crate) fn prune(&self, step: u64) -> Result<()> {
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
        Ok(())
    }
}
