//! `--shared-folder`: whether all hosts see the same files there, with the same content, and each other's locks.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::finding::Finding;

const SUBJECT: &str = "shared folder";
/// How long a file may take to be seen on another host: NFS remembers for some seconds that there was none.
const SEEN_WITHIN: Duration = Duration::from_secs(8);

/// What the first host has put there, locked; gone when this is dropped.
pub struct Mark {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// On the first host: puts a file there, with `content`, and locks it.
///
/// # Errors
/// What is wrong with the folder.
pub fn put(folder: &Path, content: &str) -> Result<Mark, Finding> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| {
        Finding::error(SUBJECT, format!("{}: {what}: {error}", folder.display()))
    };
    let path = file(folder, content);
    let mut file = File::create_new(&path).map_err(|e| wrong("no file can be made there", &e))?;
    let written = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(&path);
        return Err(wrong("a file cannot be written", &error));
    }
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Mark { path, _lock: lock }),
        Err((_, errno)) => {
            let _ = fs::remove_file(&path);
            Err(wrong(
                "flock does not work there (on NFS: version 4, or `local_lock=none`)",
                &errno,
            ))
        }
    }
}

fn file(folder: &Path, content: &str) -> PathBuf {
    folder.join(format!(".torchrs-check-{content}"))
}

/// On another host: whether that file is there, with that content, and locked.
pub fn look(folder: &Path, content: &str) -> Finding {
    let (path, shown) = (file(folder, content), folder.display());
    let until = Instant::now() + SEEN_WITHIN;
    let read = loop {
        match fs::read_to_string(&path) {
            Ok(text) if text == content => break Ok(()),
            Ok(text) if Instant::now() >= until => {
                break Err(format!("has other content ({} bytes)", text.len()));
            }
            Err(error) if Instant::now() >= until => {
                break Err(format!("is not seen here ({error})"));
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    if let Err(what) = read {
        let there = if folder.is_dir() { "" } else { "; the folder itself is not there" };
        return Finding::error(
            SUBJECT,
            format!(
                "a file that the first host has put into {shown} {what}{there}: mount the same folder on all hosts"
            ),
        );
    }
    let opened = File::options().read(true).write(true).open(&path);
    let Ok(opened) = opened else {
        return Finding::error(
            SUBJECT,
            format!("files of the first host in {shown} cannot be written here"),
        );
    };
    match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
        Err((_, Errno::EWOULDBLOCK)) => {
            Finding::ok(SUBJECT, format!("{shown}: the same files, content and locks"))
        }
        Err((_, errno)) => {
            Finding::error(SUBJECT, format!("{shown}: flock does not work: {errno}"))
        }
        Ok(_) => Finding::error(
            SUBJECT,
            format!(
                "{shown}: a lock of the first host is not seen here (on NFS: version 4, or `local_lock=none`)"
            ),
        ),
    }
}

/// On the first host, after all others have looked.
pub fn of_first(folder: &Path) -> Finding {
    Finding::ok(SUBJECT, format!("{}: files can be made and locked", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_folder_that_is_shared_is_told_from_one_that_is_not() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mark = put(one.path(), "abc").unwrap();
        assert_eq!(look(one.path(), "abc").level, Level::Ok);
        let apart = look(other.path(), "abc");
        assert!(
            apart.level == Level::Error && apart.text.contains("mount the same folder"),
            "{apart:?}"
        );
        drop(mark);
        assert_eq!(fs::read_dir(one.path()).unwrap().count(), 0);
        assert_eq!(put(&one.path().join("no"), "abc").err().unwrap().level, Level::Error);
        // No lock: as on a file system that keeps locks to itself.
        fs::write(file(one.path(), "abc"), "abc").unwrap();
        assert!(look(one.path(), "abc").text.contains("is not seen here"));
    }
}
