//! The log files of a worker: `<run folder>/attempt_<k>/<rank>/{stdout,stderr}.log`, and its
//! error record as `error.json` beside them. A full disk costs the logs and one warning, never
//! the training.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::outputs::Stream;

/// A file that takes a stream's bytes as long as it can.
pub struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

impl LogFile {
    /// Makes the file; a failure is the warning to show, if none was shown before.
    pub fn create(
        run_folder: &Path,
        attempt: u32,
        rank: usize,
        stream: Stream,
    ) -> (Self, Option<String>) {
        let folder = rank_folder(run_folder, attempt, rank);
        let path = folder.join(format!("{}.log", stream.name()));
        match fs::create_dir_all(&folder).and_then(|()| File::create(&path)) {
            Ok(file) => (LogFile { path, file: Some(file) }, None),
            Err(error) => {
                let warning = lost(&path, &error);
                (LogFile { path, file: None }, warning)
            }
        }
    }

    /// Appends `bytes`; a failure ends this file and is the warning to show, if none was before.
    pub fn write(&mut self, bytes: &[u8]) -> Option<String> {
        let error = self.file.as_mut()?.write_all(bytes).err()?;
        self.file = None;
        lost(&self.path, &error)
    }
}

/// Keeps a worker's error record beside its logs.
pub fn keep_record(run_folder: &Path, attempt: u32, rank: usize, record: &[u8]) -> Option<String> {
    let folder = rank_folder(run_folder, attempt, rank);
    let path = folder.join("error.json");
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, record));
    written.err().and_then(|error| lost(&path, &error))
}

fn rank_folder(run_folder: &Path, attempt: u32, rank: usize) -> PathBuf {
    run_folder.join(format!("attempt_{attempt}")).join(rank.to_string())
}

/// The one warning about lost logs: a full disk hits every file, and one line says it all.
fn lost(path: &Path, error: &std::io::Error) -> Option<String> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    (!WARNED.swap(true, Relaxed)).then(|| {
        format!(
            "torchrs-launch: warning: cannot write {}: {error}; the job goes on, but what \
             it prints is no longer all logged",
            path.display()
        )
    })
}
