//! A file of lines of JSON, one for each step or epoch.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Logger, check_names};
use crate::checkpoint::words;
use crate::error::{Context, Error, Result};
use crate::profiler::notes;

/// A growing file of lines of JSON.
///
/// Numbers that are not finite are the words `"NaN"`, `"Infinity"` and `"-Infinity"`, as JSON has no such numbers.
///
/// ```
/// use torchrs::train::{JsonLines, Logger};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("metrics.jsonl");
/// let mut file = JsonLines::open(&path, None)?;
/// file.scalars(1, &[("loss", 0.5)])?;
/// file.scalars(2, &[("loss", f64::NAN)])?;
/// // Killed after its checkpoint at step 1, it goes on:
/// JsonLines::open(&path, Some(1))?.scalars(2, &[("loss", 0.25)])?;
/// let text = std::fs::read_to_string(&path).unwrap();
/// assert_eq!(text, "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n");
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct JsonLines {
    file: File,
    path: PathBuf,
}

impl JsonLines {
    /// Opens the file of a run that goes on after `step`; of a run that begins without one. Later lines, of a run that
    /// was killed before its next checkpoint, are dropped, and so are all from the first one on that is cut off.
    ///
    /// # Errors
    /// [`Error::Os`] for a file that cannot be read or written.
    pub fn open(path: impl Into<PathBuf>, step: Option<u64>) -> Result<Self> {
        let path = path.into();
        let kept = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(step.is_some_and(|step| line["step"].as_u64().is_none_or(|of| of <= step)))
        };
        let file = continued(&path, |text| {
            let whole = text.lines().map_while(|line| Some((line, kept(line)?)));
            whole.filter(|(_, kept)| *kept).map(|(line, _)| format!("{line}\n")).collect()
        })?;
        Ok(JsonLines { file, path })
    }

    /// Adds a line. What is to be dropped when a run goes on has a field `step`. The launcher's status page shows the
    /// numbers of such a line.
    ///
    /// # Errors
    /// [`Error::Argument`] for what cannot be JSON, [`Error::Os`] where it cannot be written.
    pub fn push(&mut self, line: &impl Serialize) -> Result<()> {
        let wrong =
            |why| Error::argument("JsonLines::push", "line", format!("cannot be JSON: {why}"));
        let mut text = serde_json::to_string(line).map_err(wrong)?;
        // It may be that of a number that is not finite.
        if text.contains("null") {
            let with_words = words::to_value(line).map_err(wrong)?;
            if serde_json::from_str::<Value>(&text).ok().as_ref() != Some(&with_words) {
                text = with_words.to_string();
            }
        }
        if notes::is_noted() {
            note(&text);
        }
        write_line(&mut self.file, &self.path, text)
    }
}

impl Logger for JsonLines {
    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        check_names("JsonLines::scalars", scalars)?;
        notes::scalars(step, scalars);
        // By hand, for the order of the fields.
        let fields = scalars.iter().map(|(name, value)| {
            let value = match serde_json::Number::from_f64(*value) {
                Some(number) => Value::Number(number),
                None if value.is_nan() => "NaN".into(),
                None => (if *value > 0.0 { "Infinity" } else { "-Infinity" }).into(),
            };
            format!(",{}:{value}", Value::from(*name))
        });
        let text = format!("{{\"step\":{step}{}}}", fields.collect::<String>());
        debug_assert!(serde_json::from_str::<Map<String, Value>>(&text).is_ok(), "{text}");
        write_line(&mut self.file, &self.path, text)
    }
}

/// Notes the numbers of a line that has a step, for the status page.
fn note(line: &str) {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return };
    let Some(step) = fields.get("step").and_then(Value::as_u64) else { return };
    let numbers = fields.iter().filter(|(name, _)| *name != "step");
    let numbers = numbers.filter_map(|(name, value)| Some((&**name, value.as_f64()?)));
    notes::scalars(step, &numbers.collect::<Vec<_>>());
}

/// Opens a file to append to, with what `keep` leaves of its text.
pub(super) fn continued(path: &Path, keep: impl FnOnce(&str) -> String) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).context(|| format!("create {}", folder.display()))?;
    }
    // What is behind a pipe or a device cannot be taken back.
    let is_file = fs::metadata(path).map_or(true, |metadata| metadata.is_file());
    let text = match if is_file { fs::read(path) } else { Ok(Vec::new()) } {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        text => text.context(|| format!("read {}", path.display()))?,
    };
    let text = String::from_utf8_lossy(&text);
    let kept = keep(&text);
    if is_file && kept != text {
        // A kill leaves the one or the other.
        let mut beside = path.as_os_str().to_owned();
        beside.push(".tmp");
        let beside = PathBuf::from(beside);
        fs::write(&beside, kept).context(|| format!("write {}", beside.display()))?;
        fs::rename(&beside, path).context(|| format!("rename {}", beside.display()))?;
    }
    let open = OpenOptions::new().append(true).create(true).open(path);
    open.context(|| format!("open {}", path.display()))
}

pub(super) fn write_line(file: &mut File, path: &Path, mut line: String) -> Result<()> {
    line.push('\n');
    file.write_all(line.as_bytes()).context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ones_own_have_words_too() {
        #[derive(Serialize)]
        struct Line {
            step: u64,
            note: Option<&'static str>,
            loss: f32,
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        let mut file = JsonLines::open(&path, None).unwrap();
        for loss in [0.5, f32::NEG_INFINITY, f32::NAN] {
            file.push(&Line { step: 1, note: None, loss }).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                r#"{"step":1,"note":null,"loss":0.5}"#,
                r#"{"loss":"-Infinity","note":null,"step":1}"#,
                r#"{"loss":"NaN","note":null,"step":1}"#,
            ]
        );
    }

    /// A device gives zeros without end to whoever reads it.
    #[test]
    fn a_device_is_not_read() {
        let mut file = JsonLines::open("/dev/full", Some(3)).unwrap();
        let error = file.scalars(4, &[("loss", 0.5)]).unwrap_err().to_string();
        assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
    }
}
