//! Where a run's numbers go: lines of JSON, CSV, TensorBoard's event files, and the terminal.

mod csv;
mod json_lines;
mod progress;
mod tensorboard;

pub use csv::Csv;
pub use json_lines::JsonLines;
pub use progress::Progress;
pub use tensorboard::TensorBoard;

use super::RunDir;
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};
use crate::profiler::notes;
use crate::tensor::Tensor;

/// A hyperparameter's value, for [`Logger::hparams`].
///
/// ```
/// use torchrs::train::HParam;
/// assert_eq!(HParam::from(0.1), HParam::Number(0.1));
/// assert_eq!(HParam::from("adamw"), HParam::Text("adamw".into()));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum HParam {
    /// A number.
    Number(f64),
    /// Yes or no.
    Bool(bool),
    /// A word.
    Text(String),
}

impl From<f64> for HParam {
    fn from(value: f64) -> Self {
        HParam::Number(value)
    }
}

impl From<usize> for HParam {
    fn from(value: usize) -> Self {
        HParam::Number(value as f64)
    }
}

impl From<u64> for HParam {
    fn from(value: u64) -> Self {
        HParam::Number(value as f64)
    }
}

impl From<bool> for HParam {
    fn from(value: bool) -> Self {
        HParam::Bool(value)
    }
}

impl From<&str> for HParam {
    fn from(value: &str) -> Self {
        HParam::Text(value.to_owned())
    }
}

/// Takes what a run has to show. What a logger has no form for it leaves out, and says so by `false`.
///
/// ```
/// use torchrs::{Result, train::Logger};
/// struct Print;
/// impl Logger for Print {
///     fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
///         println!("{step}: {scalars:?}");
///         Ok(())
///     }
/// }
/// Print.scalars(1, &[("loss", 0.5)])?;
/// assert!(!Print.text(1, "note", "it begins")?);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub trait Logger {
    /// Numbers of a step, by name.
    ///
    /// # Errors
    /// [`Error::Os`] for what cannot be written.
    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()>;

    /// How the elements of a tensor are distributed.
    ///
    /// # Errors
    /// As [`scalars`](Self::scalars); [`Error::Argument`] for elements that are not finite.
    fn histogram(&mut self, _step: u64, _name: &str, _values: &Tensor) -> Result<bool> {
        Ok(false)
    }

    /// An image `[channels, height, width]` of 1 (grey), 3 or 4 channels: uint8, or numbers from 0 to 1.
    ///
    /// # Errors
    /// As [`scalars`](Self::scalars); [`Error::Argument`] for another shape, or numbers outside of 0 to 1.
    fn image(&mut self, _step: u64, _name: &str, _image: &Tensor) -> Result<bool> {
        Ok(false)
    }

    /// A text, as Markdown.
    ///
    /// # Errors
    /// As [`scalars`](Self::scalars).
    fn text(&mut self, _step: u64, _name: &str, _text: &str) -> Result<bool> {
        Ok(false)
    }

    /// What the run was made with, and the names of the scalars that runs are compared by. Once, at its beginning.
    ///
    /// # Errors
    /// As [`scalars`](Self::scalars).
    fn hparams(&mut self, _hparams: &[(&str, HParam)], _metrics: &[&str]) -> Result<bool> {
        Ok(false)
    }
}

/// All loggers of a run. Rank 0 writes; on the other ranks the same calls do nothing.
///
/// ```
/// use torchrs::train::{Loggers, RunDir, RunDirOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = RunDirOptions { runs: folder.path().to_owned(), ..Default::default() };
/// let group = torchrs::distributed::init_process_group(Default::default())?;
/// let run = RunDir::agree("net", &options, &group)?;
/// let mut log = Loggers::new(&run, &group).json_lines()?.csv()?.tensorboard()?;
/// log.hparams(&[("lr", 0.1.into()), ("optimizer", "sgd".into())], &["val/accuracy"])?;
/// for step in 1..=3 {
///     log.scalars(step, &[("train/loss", 1.0 / step as f64), ("lr", 0.1)])?;
/// }
/// log.text(3, "note", "it learns")?;
/// let lines = std::fs::read_to_string(run.path().join("metrics.jsonl")).unwrap();
/// assert_eq!(lines.lines().next(), Some(r#"{"step":1,"train/loss":1.0,"lr":0.1}"#));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// A run that goes on continues its files: what a killed run wrote after its last checkpoint is dropped.
pub struct Loggers<'a> {
    run: &'a RunDir,
    is_writer: bool,
    loggers: Vec<Box<dyn Logger + 'a>>,
}

impl<'a> Loggers<'a> {
    /// None so far.
    pub fn new(run: &'a RunDir, group: &ProcessGroup) -> Self {
        Loggers { run, is_writer: group.rank() == 0, loggers: Vec::new() }
    }

    /// Adds a logger, which `open` makes on rank 0 of the run's folder and the step that it goes on from.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn with<L: Logger + 'a>(
        mut self,
        open: impl FnOnce(&std::path::Path, Option<u64>) -> Result<L>,
    ) -> Result<Self> {
        if self.is_writer {
            self.loggers.push(Box::new(open(self.run.path(), self.run.resume_step())?));
        }
        Ok(self)
    }

    /// Adds [`JsonLines`], the file `metrics.jsonl`.
    ///
    /// # Errors
    /// As [`JsonLines::open`].
    pub fn json_lines(self) -> Result<Self> {
        self.with(|path, step| JsonLines::open(path.join("metrics.jsonl"), step))
    }

    /// Adds [`Csv`], the file `metrics.csv`.
    ///
    /// # Errors
    /// As [`Csv::open`].
    pub fn csv(self) -> Result<Self> {
        self.with(|path, step| Csv::open(path.join("metrics.csv"), step))
    }

    /// Adds [`TensorBoard`], in the folder `tensorboard`.
    ///
    /// # Errors
    /// As [`TensorBoard::open`].
    pub fn tensorboard(self) -> Result<Self> {
        self.with(|path, step| TensorBoard::open(path.join("tensorboard"), step))
    }

    /// [`Logger::scalars`] of all. The launcher's status page shows them, those of each rank.
    ///
    /// # Errors
    /// Those of the loggers, and as below.
    pub fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        notes::scalars(step, scalars);
        self.each("scalars", |logger| logger.scalars(step, scalars).map(|()| true))
    }

    /// [`Logger::histogram`] of those that take histograms.
    ///
    /// # Errors
    /// [`Error::Argument`] where there is no logger that does, so below; those of the loggers.
    pub fn histogram(&mut self, step: u64, name: &str, values: &Tensor) -> Result<()> {
        self.each("histogram", |logger| logger.histogram(step, name, values))
    }

    /// [`Logger::image`] of those that take images.
    ///
    /// # Errors
    /// As [`histogram`](Self::histogram).
    pub fn image(&mut self, step: u64, name: &str, image: &Tensor) -> Result<()> {
        self.each("image", |logger| logger.image(step, name, image))
    }

    /// [`Logger::text`] of those that take texts.
    ///
    /// # Errors
    /// As [`histogram`](Self::histogram).
    pub fn text(&mut self, step: u64, name: &str, text: &str) -> Result<()> {
        self.each("text", |logger| logger.text(step, name, text))
    }

    /// [`Logger::hparams`] of those that take hyperparameters.
    ///
    /// # Errors
    /// As [`histogram`](Self::histogram).
    pub fn hparams(&mut self, hparams: &[(&str, HParam)], metrics: &[&str]) -> Result<()> {
        self.each("hparams", |logger| logger.hparams(hparams, metrics))
    }

    fn each(
        &mut self,
        call: &str,
        mut f: impl FnMut(&mut Box<dyn Logger + 'a>) -> Result<bool>,
    ) -> Result<()> {
        let mut taken = !self.is_writer;
        for logger in &mut self.loggers {
            taken |= f(logger)?;
        }
        if taken {
            return Ok(());
        }
        let what = match self.loggers.len() {
            0 => "there are none; add one, as by `Loggers::json_lines`".to_owned(),
            n => format!("none of {n} takes this; add one that does, as by `Loggers::tensorboard`"),
        };
        Err(Error::argument(&format!("Loggers::{call}"), "loggers", what))
    }
}

/// Shows numbers of a step on the launcher's status page, under their names, for loops without [`Loggers`], which do so
/// by themselves. Any rank may call it. Without a launcher nothing happens.
///
/// ```
/// use torchrs::train::publish_scalars;
/// for step in 1..=3 {
///     publish_scalars(step, &[("loss", 1.0 / step as f64)])?;
/// }
/// assert!(publish_scalars(4, &[("loss", 0.1), ("loss", 0.2)]).is_err());
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// The page has room for 32 names of 40 bytes; later names are left out. Of a longer one it shows the beginning and a
/// mark by which it differs from others.
///
/// # Errors
/// [`Error::Argument`] for a name that is empty, `step`, or there twice.
pub fn publish_scalars(step: u64, scalars: &[(&str, f64)]) -> Result<()> {
    check_names("publish_scalars", scalars)?;
    notes::scalars(step, scalars);
    Ok(())
}

/// A step's numbers have names, which differ.
fn check_names(call: &str, scalars: &[(&str, f64)]) -> Result<()> {
    for (i, (name, _)) in scalars.iter().enumerate() {
        let why = if name.is_empty() {
            "is empty"
        } else if *name == "step" {
            "is the step's own name"
        } else if scalars[..i].iter().any(|(other, _)| other == name) {
            "is there twice"
        } else {
            continue;
        };
        return Err(Error::argument(call, "scalars", format!("the name `{name}` {why}")));
    }
    Ok(())
}
