//! Files and folders that appear whole or not at all: written under a temporary name beside their own,
//! brought to disk, renamed.
//!
//! What a save that was killed has left is removed by the next one of the same name. A save holds a
//! lock (`flock`) on what it writes, which ends with its process: what nobody holds is left over.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Context, Error, Result};

/// Bytes of a name that its temporary name has; names have at most 255.
const KEPT: usize = 200;
/// More symbolic links after each other are a circle.
const MAX_LINKS: usize = 40;

/// Gives `path` the contents that `write` writes, or leaves what was there.
///
/// As for a program that opens the file and writes into it, a symbolic link stays one, an existing file
/// keeps its permissions (a new one has those of the process' umask), and what is no regular file is
/// written to as it is. Other hard links to an old file keep the old contents.
pub(super) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    let what = || format!("write {}", path.display());
    let target = followed(path)?;
    let old = match OpenOptions::new().write(true).open(&target) {
        Ok(file) => Some(file),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(e).context(what),
    };
    let mut permissions = None;
    if let Some(old) = old {
        let metadata = old.metadata().context(what)?;
        if !metadata.is_file() {
            let mut out = BufWriter::new(old);
            write(&mut out)?;
            return out.flush().context(what);
        }
        permissions = Some((metadata.permissions(), metadata.uid(), metadata.gid()));
    }
    let (folder, name) = split(&target).ok_or_else(|| no_name("path", path))?;
    remove_leftovers(folder, |temporary| is_temporary_of(temporary, name));
    let (temporary, file) = Temporary::file(folder, name).context(what)?;
    if let Some((permissions, user, group)) = permissions {
        like(&file, permissions, user, group).context(what)?;
    }
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&mut out)?;
    out.flush().and_then(|()| out.get_ref().sync_all()).context(what)?;
    fs::rename(&temporary.path, &target).context(what)?;
    temporary.settle();
    sync_folder(folder)
}

fn like(file: &File, permissions: Permissions, user: u32, group: u32) -> io::Result<()> {
    // Only root may give files away; another owner's file then becomes this process' own.
    let _ = fchown(file, Some(user), Some(group));
    file.set_permissions(permissions)
}

/// Where a path leads when its last part is a symbolic link, also one to nothing.
pub(super) fn followed(path: &Path) -> Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else { return Ok(target) };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    let circle = io::Error::from_raw_os_error(libc::ELOOP);
    Err(Error::os(format!("write {}", path.display()), circle))
}

/// Folder and name of a path, if it has one.
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let parent = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    parent.zip(path.file_name())
}

/// The error for a path that [`split`] finds no name in.
pub(super) fn no_name(argument: &str, path: &Path) -> Error {
    let message = format!("{} ends in no name", path.display());
    Error::argument("save", argument, message)
}

/// Waits until a folder's entries are on disk.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    match File::open(folder).and_then(|f| f.sync_all()) {
        // Some file systems cannot.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        done => done.context(|| format!("sync {}", folder.display())),
    }
}

/// A file or folder that is removed unless it gets its name, and its lock.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    is_folder: bool,
    gone: bool,
    _lock: File,
}

impl Temporary {
    /// A new file beside the one of that name, open for writing.
    fn file(folder: &Path, name: &OsStr) -> io::Result<(Self, File)> {
        Self::create(folder, name, false, |path| {
            OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
        })
    }

    /// A new folder beside the one of that name.
    pub(super) fn folder(folder: &Path, name: &OsStr) -> io::Result<Self> {
        let made = |path: &Path| {
            fs::create_dir(path)?;
            File::open(path).map_err(|error| match error.kind() {
                // Another save has taken it for left over: the next name.
                ErrorKind::NotFound => ErrorKind::AlreadyExists.into(),
                _ => error,
            })
        };
        Ok(Self::create(folder, name, true, made)?.0)
    }

    fn create(
        folder: &Path,
        name: &OsStr,
        is_folder: bool,
        make: impl Fn(&Path) -> io::Result<File>,
    ) -> io::Result<(Self, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Relaxed);
            let mut own = prefix(name);
            own.push(format!("{}-{number}", std::process::id()));
            let path = folder.join(own);
            let file = match make(&path) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            // Another save may have taken it for left over before it was locked, and is about to remove it or has done so.
            // Where a file system has no locks, nothing is taken.
            if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
                continue;
            }
            if is_at(&file, &path) {
                let lock = file.try_clone()?;
                return Ok((Temporary { path, is_folder, gone: false, _lock: lock }, file));
            }
        }
    }

    /// Nothing of this name is left to be removed.
    pub(super) fn settle(mut self) {
        self.gone = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.gone {
            remove(&self.path, self.is_folder);
        }
    }
}

/// Whether a file or folder that is open is still the one of that name.
fn is_at(file: &File, path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| {
        file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
    })
}

fn remove(path: &Path, is_folder: bool) {
    let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// What temporary names of `name` begin with.
fn prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(OsStr::from_bytes(&name.as_bytes()[..name.len().min(KEPT)]));
    prefix.push(".tmp-");
    prefix
}

/// Whether `temporary` is a temporary name of `name`.
pub(super) fn is_temporary_of(temporary: &OsStr, name: &OsStr) -> bool {
    let end = temporary.as_bytes().strip_prefix(prefix(name).as_bytes());
    end.is_some_and(|end| !end.is_empty() && end.iter().all(|b| b.is_ascii_digit() || *b == b'-'))
}

/// Removes what killed saves left in a folder under the temporary names that `is_one` knows. Those of
/// saves that are going on stay; what cannot be removed stays too, and harms nobody.
pub(super) fn remove_leftovers(folder: &Path, is_one: impl Fn(&OsStr) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !is_one(&entry.file_name()) {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened =
            OpenOptions::new().read(true).write(!is_folder).custom_flags(flags).open(entry.path());
        // The lock is held until it is gone: who makes one of this name meanwhile takes another.
        if let Ok(file) = opened
            && file.try_lock().is_ok()
            && is_at(&file, &entry.path())
        {
            remove(&entry.path(), is_folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(path: &Path, text: &str) -> Result<()> {
        write_file(path, |out| out.write_all(text.as_bytes()).context(|| "write"))
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_has_the_permissions_of_any_new_file_and_an_old_one_keeps_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, ours) = (dir.path().join("plain"), dir.path().join("ours"));
        File::create(&plain).unwrap();
        put(&ours, "1").unwrap();
        assert_eq!(mode(&ours), mode(&plain));
        for kept in [0o600, 0o664, 0o640] {
            fs::set_permissions(&ours, Permissions::from_mode(kept)).unwrap();
            put(&ours, "2").unwrap();
            assert_eq!(mode(&ours), kept);
        }
    }

    #[test]
    fn links_stay_links_and_devices_stay_devices() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("far")).unwrap();
        put(&at("far/file"), "old").unwrap();
        std::os::unix::fs::symlink("far/file", at("link")).unwrap();
        std::os::unix::fs::symlink("link", at("chain")).unwrap();
        std::os::unix::fs::symlink("far/new", at("dangling")).unwrap();
        std::os::unix::fs::symlink("circle", at("circle")).unwrap();
        put(&at("chain"), "new").unwrap();
        put(&at("dangling"), "made").unwrap();
        let text = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((text("far/file"), text("far/new")), ("new".into(), "made".into()));
        for link in ["link", "chain", "dangling"] {
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link}");
        }
        assert!(put(&at("circle"), "x").unwrap_err().to_string().contains("symbolic links"));
        put(Path::new("/dev/null"), "x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let folder = put(&at("far"), "x").unwrap_err().to_string();
        assert!(folder.contains("far") && folder.contains("directory"), "{folder}");
        assert_eq!(names(&at("far")), ["file", "new"]);
    }

    #[test]
    fn saves_at_once_take_nothing_from_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let name = OsStr::new("x");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        remove_leftovers(dir.path(), |other| is_temporary_of(other, name));
                        let own = Temporary::folder(dir.path(), name).unwrap();
                        assert!(own.path.is_dir());
                    }
                });
            }
        });
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        put(&path, "old").unwrap();
        let failed = write_file(&path, |out| {
            out.write_all(b"new").unwrap();
            Err(Error::Other("no".into()))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[test]
    fn leftovers_of_killed_saves_go_and_files_of_running_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let (running, _) = Temporary::file(dir.path(), OsStr::new("x")).unwrap();
        for left in [".x.tmp-1-0", ".x.tmp-99999-7", ".y.tmp-1-0", ".x.tmp-"] {
            fs::write(dir.path().join(left), "").unwrap();
        }
        put(&path, "new").unwrap();
        let own = running.path.file_name().unwrap().to_owned();
        let mut expected: Vec<OsString> =
            [".x.tmp-", ".y.tmp-1-0", "x"].map(OsString::from).to_vec();
        expected.push(own);
        expected.sort();
        assert_eq!(names(dir.path()), expected);
        drop(running);
        // A name of the greatest length has a temporary one too.
        let long = dir.path().join("n".repeat(255));
        put(&long, "long").unwrap();
        put(&long, "longer").unwrap();
        assert_eq!(fs::read_to_string(&long).unwrap(), "longer");
    }
}
