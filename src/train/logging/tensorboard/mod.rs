//! TensorBoard's event files: scalars, histograms, images, texts and hyperparameters.
//!
//! Events are messages of protocol buffers  in frames with checksums (`record`). Fields are numbered as in
//! TensorFlow's `event.proto`, `summary.proto` and TensorBoard's `plugins/hparams`. Scalars, histograms and images have
//! the older forms, which all versions of TensorBoard read.

mod histogram;
mod png;
mod record;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::protobuf::Message;

use super::{HParam, Logger, check_names};
use crate::error::{Context, Result};
use crate::tensor::Tensor;

/// Fields of `Event`.
mod event {
    pub(super) const WALL_TIME: u64 = 1;
    pub(super) const STEP: u64 = 2;
    pub(super) const FILE_VERSION: u64 = 3;
    pub(super) const SUMMARY: u64 = 5;
    pub(super) const SESSION_LOG: u64 = 7;
}

/// Fields of `Summary.Value`.
mod value {
    pub(super) const TAG: u64 = 1;
    pub(super) const SIMPLE_VALUE: u64 = 2;
    pub(super) const IMAGE: u64 = 4;
    pub(super) const HISTOGRAM: u64 = 5;
    pub(super) const TENSOR: u64 = 8;
    pub(super) const METADATA: u64 = 9;
}

/// Fields of `HParamsPluginData`.
mod hparams_data {
    pub(super) const EXPERIMENT: u64 = 2;
    pub(super) const SESSION_START_INFO: u64 = 3;
}

/// An event file of TensorBoard (`torch.utils.tensorboard.SummaryWriter`): `tensorboard --logdir runs` shows it.
///
/// ```
/// use torchrs::{Tensor, train::{Logger, TensorBoard}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path();
/// let mut board = TensorBoard::open(path, None)?;
/// board.scalars(1, &[("train/loss", 0.5), ("lr", 0.1)])?;
/// board.histogram(1, "fc.weight", &Tensor::from([0.1f32, -0.2, 0.3]))?;
/// board.image(1, "first", &Tensor::from([[[0f32, 0.5], [1.0, 0.25]]]))?;
/// board.text(1, "sample", "It was a *dark* night")?;
/// board.hparams(&[("lr", 0.1.into())], &["train/loss"])?;
/// let normalised = Tensor::from([[[-1.5f32, 0.5], [1.0, 0.25]]]);
/// assert!(board.image(1, "wrong", &normalised).is_err());
/// assert!(board.path().file_name().unwrap().to_str().unwrap().contains("tfevents"));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    file: File,
    path: PathBuf,
}

impl TensorBoard {
    /// A new file in the folder, which a run that goes on after `step` may have others in. TensorBoard then leaves out
    /// what these have after that step.
    ///
    /// # Errors
    /// [`Error::Os`](crate::Error::Os) for a file that cannot be written.
    pub fn open(folder: impl AsRef<Path>, step: Option<u64>) -> Result<Self> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).context(|| format!("create {}", folder.display()))?;
        let (now, pid) = (now(), std::process::id());
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let host = host.unwrap_or_else(|| "host".to_owned());
        let name =
            |n: usize| folder.join(format!("events.out.tfevents.{}.{host}.{pid}.{n}", now as u64));
        // Of one process and second there may be several.
        let path = (0..).map(name).find(|path| !path.exists()).expect("one that is not there");
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = file.context(|| format!("create {}", path.display()))?;
        let mut board = TensorBoard { file, path };
        let version = Message::new().double(event::WALL_TIME, now);
        board.write(version.bytes(event::FILE_VERSION, "brain.Event:2"))?;
        if let Some(step) = step {
            // `SessionLog.START`: events of other files from the next step on are of a run that was killed.
            let start = Message::new().int(1, 1);
            board.write(
                Message::new()
                    .double(event::WALL_TIME, now)
                    .int(event::STEP, step + 1)
                    .message(event::SESSION_LOG, start),
            )?;
        }
        Ok(board)
    }

    /// The event file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, event: Message) -> Result<()> {
        // In one piece: a reader takes whole records, and waits for the rest of others.
        let record = record::record(&event.into_bytes());
        self.file.write_all(&record).context(|| format!("write {}", self.path.display()))
    }

    fn summary(&mut self, step: u64, values: impl IntoIterator<Item = Message>) -> Result<()> {
        let summary = values.into_iter().fold(Message::new(), |all, value| all.message(1, value));
        self.write(
            Message::new()
                .double(event::WALL_TIME, now())
                .int(event::STEP, step)
                .message(event::SUMMARY, summary),
        )
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn tagged(name: &str) -> Message {
    Message::new().bytes(value::TAG, name)
}

/// `SummaryMetadata` of a plugin.
fn metadata(plugin: &str, content: Option<Message>) -> Message {
    let data = Message::new().bytes(1, plugin);
    let data = match content {
        Some(content) => data.message(2, content),
        None => data,
    };
    Message::new().message(1, data)
}

impl Logger for TensorBoard {
    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        check_names("TensorBoard::scalars", scalars)?;
        let of =
            |(name, value): &(&str, f64)| tagged(name).float(value::SIMPLE_VALUE, *value as f32);
        self.summary(step, scalars.iter().map(of).collect::<Vec<_>>())
    }

    fn histogram(&mut self, step: u64, name: &str, values: &Tensor) -> Result<bool> {
        let histogram = histogram::histogram("TensorBoard::histogram", values)?;
        self.summary(step, [tagged(name).message(value::HISTOGRAM, histogram)])?;
        Ok(true)
    }

    fn image(&mut self, step: u64, name: &str, image: &Tensor) -> Result<bool> {
        let png = png::encode("TensorBoard::image", image)?;
        let sizes = [png.height, png.width, png.channels];
        let image = sizes
            .iter()
            .zip(1..)
            .fold(Message::new(), |m, (size, field)| m.int(field, *size as u64));
        self.summary(step, [tagged(name).message(value::IMAGE, image.bytes(4, png.bytes))])?;
        Ok(true)
    }

    fn text(&mut self, step: u64, name: &str, text: &str) -> Result<bool> {
        // `TensorProto` of one string.
        let shape = Message::new().message(2, Message::new().int(1, 1));
        let tensor = Message::new().int(1, 7).message(2, shape).bytes(8, text);
        let value = tagged(&format!("{name}/text_summary"))
            .message(value::METADATA, metadata("text", None));
        self.summary(step, [value.message(value::TENSOR, tensor)])?;
        Ok(true)
    }

    fn hparams(&mut self, hparams: &[(&str, HParam)], metrics: &[&str]) -> Result<bool> {
        let (mut experiment, mut start) = (Message::new(), Message::new());
        for (name, value) in hparams {
            // Numbers of `DataType`, and `google.protobuf.Value`.
            let (kind, value) = match value {
                HParam::Text(text) => (1, Message::new().bytes(3, text)),
                HParam::Bool(bool) => (2, Message::new().int(4, u64::from(*bool))),
                HParam::Number(number) => (3, Message::new().double(2, *number)),
            };
            experiment = experiment.message(4, Message::new().bytes(1, name).int(4, kind));
            start = start.message(1, Message::new().bytes(1, name).message(2, value));
        }
        for metric in metrics {
            experiment =
                experiment.message(5, Message::new().message(1, Message::new().bytes(2, metric)));
        }
        let start = start.double(5, now());
        let parts = [
            ("_hparams_/experiment", hparams_data::EXPERIMENT, experiment),
            ("_hparams_/session_start_info", hparams_data::SESSION_START_INFO, start),
        ];
        let values = parts.map(|(tag, field, content)| {
            let data = Message::new().message(field, content);
            tagged(tag).message(value::METADATA, metadata("hparams", Some(data)))
        });
        self.summary(0, values)?;
        Ok(true)
    }
}
