//! How many records files have, counted once in a process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::error::{Context, Result};

/// A file as it was when its records were counted.
type Counted = (PathBuf, u64, Option<SystemTime>);

static COUNTS: Mutex<Option<HashMap<Counted, u64>>> = Mutex::new(None);

/// What `count` gives for a file, or gave before while the file had the same length and time.
pub(super) fn counted(path: &Path, count: impl FnOnce() -> Result<u64>) -> Result<u64> {
    let metadata = path.metadata().context(|| format!("look at {}", path.display()))?;
    let key = (path.to_owned(), metadata.len(), metadata.modified().ok());
    if let Some(&known) = COUNTS.lock().get_or_insert_default().get(&key) {
        return Ok(known);
    }
    let found = count()?;
    COUNTS.lock().get_or_insert_default().insert(key, found);
    Ok(found)
}
