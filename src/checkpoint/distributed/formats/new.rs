//! Folders that are made and never replaced.

use std::fs;
use std::path::Path;

use crate::checkpoint::replacing::{
    Temporary, is_temporary_of, no_name, remove_leftovers, split, sync_folder,
};
use crate::error::{Context, Error, Result};

/// Refuses a path where something is.
///
/// # Errors
/// [`Error::Argument`] that names it.
pub(crate) fn check_free(function: &str, path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(_) => {
            let what =
                format!("{} is there; nothing is overwritten: name a new one", path.display());
            Err(Error::argument(function, "out", what))
        }
        Err(_) => Ok(()),
    }
}

/// A new folder that `write` fills, which appears whole or not at all.
///
/// # Errors
/// Those of `write`; [`Error::Argument`] where something is; [`Error::Os`] when it cannot be made.
pub(crate) fn new_folder(
    function: &str,
    path: &Path,
    write: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    check_free(function, path)?;
    let (parent, name) = split(path).ok_or_else(|| no_name("out", path))?;
    fs::create_dir_all(parent).context(|| format!("create {}", parent.display()))?;
    remove_leftovers(parent, |temporary| is_temporary_of(temporary, name));
    let temporary = Temporary::folder(parent, name)
        .context(|| format!("create a folder in {}", parent.display()))?;
    write(&temporary.path)?;
    sync_folder(&temporary.path)?;
    check_free(function, path)?;
    let what = || format!("rename {} to {}", temporary.path.display(), path.display());
    fs::rename(&temporary.path, path).context(what)?;
    temporary.settle();
    sync_folder(parent)
}
