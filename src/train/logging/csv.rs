//! A table of all steps as comma-separated values.

use std::fs::File;
use std::path::PathBuf;

use super::json_lines::{continued, write_line};
use super::{Logger, check_names};
use crate::error::{Error, Result};

/// A table with a row for each call and a column for each name. A name that comes later adds a column, and what a row
/// has no number for is empty.
///
/// ```
/// use torchrs::train::{Csv, Logger};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("metrics.csv");
/// let mut table = Csv::open(&path, None)?;
/// table.scalars(1, &[("loss", 0.5)])?;
/// table.scalars(2, &[("loss", 0.25), ("accuracy", 0.75)])?;
/// table.scalars(2, &[("accuracy", 0.5)])?;
/// let text = std::fs::read_to_string(&path).unwrap();
/// assert_eq!(text, "step,loss,accuracy\n1,0.5,\n2,0.25,0.75\n2,,0.5\n");
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct Csv {
    file: File,
    path: PathBuf,
    /// Without that of the step.
    columns: Vec<String>,
}

impl Csv {
    /// Opens the table of a run that goes on after `step`, whose later rows are dropped; of a run that begins without
    /// one.
    ///
    /// # Errors
    /// [`Error::Os`] for a file that cannot be read or written, [`Error::File`] for one that is no such table.
    pub fn open(path: impl Into<PathBuf>, step: Option<u64>) -> Result<Self> {
        let path = path.into();
        let mut header = None;
        let file = continued(&path, |text| {
            let Some(step) = step else { return String::new() };
            // The last row may be cut off.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let mut lines = whole.lines();
            header = lines.next().map(str::to_owned);
            let is_kept = |line: &&str| {
                let of = line.split(',').next().unwrap_or_default().parse::<u64>();
                of.is_ok_and(|of| of <= step)
            };
            let rows = header.as_deref().into_iter().chain(lines.filter(is_kept));
            rows.map(|line| format!("{line}\n")).collect()
        })?;
        let columns = match header.as_deref().map(|header| header.strip_prefix("step")) {
            None => Vec::new(),
            Some(Some(names)) if names.is_empty() || names.starts_with(',') => {
                names.split(',').skip(1).map(str::to_owned).collect()
            }
            Some(_) => {
                return Err(Error::file(
                    &path,
                    "is no table of steps: its first column is not `step`",
                ));
            }
        };
        Ok(Csv { file, path, columns })
    }

    fn add_columns(&mut self, scalars: &[(&str, f64)]) -> Result<()> {
        let is_new = |name: &&str| !self.columns.iter().any(|column| column == name);
        let new: Vec<&str> = scalars.iter().map(|(name, _)| *name).filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        if let Some(name) = new.iter().find(|name| name.contains([',', '"', '\n', '\r'])) {
            let what = format!(
                "the name `{name}` has a comma, a quote or a line's end; use another in a table"
            );
            return Err(Error::argument("Csv::scalars", "scalars", what));
        }
        self.columns.extend(new.iter().map(|name| (*name).to_owned()));
        let header = format!("step,{}\n", self.columns.join(","));
        let commas = ",".repeat(new.len());
        self.file = continued(&self.path, |text| {
            let rows = text.lines().skip(1).map(|line| format!("{line}{commas}\n"));
            header + &rows.collect::<String>()
        })?;
        Ok(())
    }
}

impl Logger for Csv {
    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        check_names("Csv::scalars", scalars)?;
        self.add_columns(scalars)?;
        let mut line = step.to_string();
        for column in &self.columns {
            line.push(',');
            if let Some((_, value)) = scalars.iter().find(|(name, _)| name == column) {
                line += &value.to_string();
            }
        }
        write_line(&mut self.file, &self.path, line)
    }
}
