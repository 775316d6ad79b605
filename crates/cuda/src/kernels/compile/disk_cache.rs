//! Compiled kernels on disk: compiling takes seconds, and jobs start again and again.
//!
//! The folder is `TORCHRS_KERNEL_CACHE`, or `torchrs/kernels` in the user's cache folder. A file
//! appears whole or not at all, so that processes that start together can share the folder; one
//! that is damaged or not ours is compiled anew; a folder that cannot be written is no error.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::kernels::compile::fingerprint::Fingerprint;

/// The folder of compiled kernels; empty for none.
pub(crate) const VARIABLE: &str = "TORCHRS_KERNEL_CACHE";
/// How every file begins; changes with the format.
const MAGIC: &[u8; 8] = b"TRSKERN1";
/// Magic, key, fingerprint of the code.
const HEAD: usize = 8 + 16 + 16;

/// A folder of compiled kernels.
pub(crate) struct DiskCache {
    folder: Option<PathBuf>,
}

impl DiskCache {
    /// The folder that the environment names.
    pub(crate) fn of_environment() -> DiskCache {
        let path = |name| env::var_os(name).map(PathBuf::from);
        let absolute = |path: &PathBuf| path.is_absolute();
        let folder = match path(VARIABLE) {
            Some(folder) if folder.as_os_str().is_empty() => None,
            Some(folder) => Some(folder),
            None => path("XDG_CACHE_HOME")
                .filter(absolute)
                .or_else(|| path("HOME").filter(absolute).map(|home| home.join(".cache")))
                .map(|cache| cache.join("torchrs/kernels")),
        };
        DiskCache { folder }
    }

    /// In a folder.
    #[cfg(test)]
    fn at(folder: &Path) -> DiskCache {
        DiskCache { folder: Some(folder.to_owned()) }
    }

    /// Nowhere.
    #[cfg(test)]
    pub(crate) fn none() -> DiskCache {
        DiskCache { folder: None }
    }

    fn path(&self, name: &str, key: Fingerprint) -> Option<PathBuf> {
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
        self.folder.as_ref().map(|folder| folder.join(format!("{name}-{}.cubin", key.hex())))
    }

    /// The code with a key; none where it is not there or its file is damaged.
    pub(crate) fn read(&self, name: &str, key: Fingerprint) -> Option<Vec<u8>> {
        let mut file = fs::read(self.path(name, key)?).ok()?;
        let head = file.get(..HEAD)?;
        if head != head_of(key, &file[HEAD..]) {
            return None;
        }
        file.drain(..HEAD);
        Some(file)
    }

    /// Keeps code. What goes wrong only means that it is compiled again.
    pub(crate) fn write(&self, name: &str, key: Fingerprint, code: &[u8]) {
        let Some(path) = self.path(name, key) else { return };
        let Some(folder) = path.parent() else { return };
        let _ = fs::create_dir_all(folder);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        // A name that no other process uses; the host's name is for folders on a network.
        let host = nix::unistd::gethostname().unwrap_or_default();
        let host = host.to_string_lossy().replace('/', "-");
        let unfinished =
            folder.join(format!("{}.{host}.{}.{number}.tmp", key.hex(), process::id()));
        if write_whole(&unfinished, &path, key, code).is_err() {
            let _ = fs::remove_file(&unfinished);
        }
    }
}

fn head_of(key: Fingerprint, code: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..24].copy_from_slice(&key.to_bytes());
    head[24..].copy_from_slice(&Fingerprint::new().with(code).to_bytes());
    head
}

fn write_whole(
    unfinished: &Path,
    path: &Path,
    key: Fingerprint,
    code: &[u8],
) -> std::io::Result<()> {
    let mut file = fs::File::create_new(unfinished)?;
    file.write_all(&head_of(key, code))?;
    file.write_all(code)?;
    drop(file);
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &[u8] = b"\x7fELF and so on";

    fn key(text: &str) -> Fingerprint {
        Fingerprint::new().with(text)
    }

    #[test]
    fn what_is_kept_is_found_by_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(&folder.path().join("new/folder"));
        assert_eq!(cache.read("add", key("a")), None);
        cache.write("add", key("a"), CODE);
        assert_eq!(cache.read("add", key("a")).as_deref(), Some(CODE));
        assert_eq!(cache.read("add", key("b")), None);
        let files: Vec<_> = fs::read_dir(folder.path().join("new/folder")).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing unfinished is left");
    }

    #[test]
    fn damaged_and_foreign_files_are_not_used_and_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        cache.write("add", key("a"), CODE);
        let path = cache.path("add", key("a")).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let mut other_key = whole.clone();
        other_key[10] ^= 1;
        for damaged in [&whole[..whole.len() - 1], &whole[..20], b"", &flipped, &other_key] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.read("add", key("a")), None);
        }
        cache.write("add", key("a"), CODE);
        assert_eq!(cache.read("add", key("a")).as_deref(), Some(CODE));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for cache in [DiskCache::at(&file.join("below a file")), DiskCache::none()] {
            cache.write("add", key("a"), CODE);
            assert_eq!(cache.read("add", key("a")), None);
        }
    }

    #[test]
    fn names_become_file_names() {
        let cache = DiskCache::at(Path::new("/c"));
        let path = cache.path("../a b/c", key("a")).unwrap();
        assert_eq!(path.parent(), Some(Path::new("/c")));
    }
}
