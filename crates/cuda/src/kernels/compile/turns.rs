//! Turns to compile, among all processes that share a folder of compiled kernels: of several that need the same code one
//! compiles, and the others wait for its file.
//!
//! A turn is a lock on one byte of one file, whose place is the key: there is nothing to clean up, and the kernel gives
//! it back when its process ends, however that ends.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::kernels::compile::fingerprint::Fingerprint;

/// The file whose bytes are locked.
const FILE: &str = ".turns";
/// How long a process waits for one that lives and does not finish, as one that is stopped.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(5);

/// The turn, until it is dropped.
pub(crate) struct Turn {
    /// The lock is this open file's. None where the folder has no locks: everyone has a turn then.
    lock: Option<File>,
}

impl Turn {
    /// Where nobody else takes turns.
    pub(crate) fn alone() -> Turn {
        Turn { lock: None }
    }

    /// Whether nobody else has it.
    pub(crate) fn is_had(&self) -> bool {
        self.lock.is_some()
    }
}

/// The turns of a folder.
pub(crate) struct Turns {
    path: PathBuf,
    patience: Duration,
}

impl Turns {
    pub(crate) fn of(folder: &Path) -> Turns {
        Turns { path: folder.join(FILE), patience: PATIENCE }
    }

    /// The turn for a key, unless somebody has it. Each call opens the file: threads of a process take turns, too.
    pub(crate) fn try_one(&self, key: Fingerprint) -> Option<Turn> {
        let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&self.path);
        let opened = open().or_else(|_| {
            fs::create_dir_all(self.path.parent().unwrap_or(Path::new("")))?;
            open()
        });
        let Ok(file) = opened else { return Some(Turn::alone()) };
        // SAFETY: all zero is a valid value; the fields that matter follow.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = key.place();
        lock.l_len = 1;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => Some(Turn { lock: Some(file) }),
            Err(Errno::EAGAIN | Errno::EACCES) => None,
            // No locks here.
            Err(_) => Some(Turn::alone()),
        }
    }

    /// The turn for a key, as soon as nobody else has it.
    pub(crate) fn one(&self, key: Fingerprint) -> Turn {
        let until = Instant::now() + self.patience;
        loop {
            match self.try_one(key) {
                Some(turn) => return turn,
                None if Instant::now() > until => return Turn::alone(),
                None => thread::sleep(PAUSE),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn key(text: &str) -> Fingerprint {
        Fingerprint::new().with(text)
    }

    #[test]
    fn one_at_a_time_has_a_keys_turn() {
        let folder = tempfile::tempdir().unwrap();
        let turns = Turns::of(folder.path());
        let first = turns.try_one(key("a")).unwrap();
        assert!(first.is_had());
        assert!(turns.try_one(key("a")).is_none());
        assert!(turns.try_one(key("b")).is_some_and(|turn| turn.is_had()));
        thread::scope(|scope| {
            let waits = scope.spawn(|| turns.one(key("a")));
            thread::sleep(Duration::from_millis(30));
            assert!(!waits.is_finished());
            drop(first);
            assert!(waits.join().unwrap().is_had());
        });
    }

    #[test]
    fn who_is_stopped_does_not_hold_up_the_others_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let turns = Turns { patience: Duration::from_millis(20), ..Turns::of(folder.path()) };
        let _stopped = turns.try_one(key("a")).unwrap();
        assert!(!turns.one(key("a")).is_had());
    }

    #[test]
    fn a_folder_that_cannot_be_written_gives_everyone_a_turn() {
        let turns = Turns::of(Path::new("/proc/no such folder"));
        let both = [turns.one(key("a")), turns.one(key("a"))];
        assert!(both.iter().all(|turn| !turn.is_had()));
    }

    const FOLDER: &str = "TORCHRS_TEST_TURNS";

    #[test]
    #[ignore = "a part of the test below"]
    fn a_process_that_keeps_its_turn() {
        let Some(folder) = std::env::var_os(FOLDER) else { return };
        let turn = Turns::of(Path::new(&folder)).one(key("a"));
        fs::write(Path::new(&folder).join("has"), "").unwrap();
        thread::sleep(Duration::from_secs(600));
        drop(turn);
    }

    #[test]
    fn a_process_that_is_killed_gives_its_turn_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact"])
            .arg("kernels::compile::turns::tests::a_process_that_keeps_its_turn")
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !folder.path().join("has").exists() {
            assert!(child.try_wait().unwrap().is_none(), "the child has ended");
            thread::sleep(PAUSE);
        }
        let turns = Turns::of(folder.path());
        assert!(turns.try_one(key("a")).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(turns.one(key("a")).is_had());
    }
}
