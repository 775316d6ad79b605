//! Which of two halves of a job goes on, decided in a folder that all hosts share.
//!
//! Ties of a job are numbered. Each is a file that is written once: whoever makes it first has the tie and goes on, and
//! no other host ever does after the same round. No clock plays a part, and nothing has to be renewed. The file stays
//! when the job has ended: a half that comes back later must not begin again.
//!
//! What the folder's file system has to give: a hard link that fails where the name is taken (`link`), and reads of a
//! file after it was opened that show what its writer had written. Local file systems, NFS (any version), Lustre, GPFS
//! and CephFS do; object stores behind FUSE mostly do not, which [`Lock::new`] finds out.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::protocol::HostId;

/// Another host's file may not be seen at once where names are cached.
const LOOKS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What two halves of a job may both want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tie {
    /// The job.
    pub job: String,
    /// Who began it: another run of the same name has ties of its own.
    pub begun_by: HostId,
    /// Counts the ties of this run, from 1.
    pub number: u32,
}

/// Whose a tie is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// This host's.
    Ours,
    /// That of the host with this name.
    Theirs(String),
    /// Nobody can say.
    Failed(String),
}

/// A folder in which ties are decided.
#[derive(Debug, Clone)]
pub struct Lock {
    folder: PathBuf,
}

impl Lock {
    /// In this folder, which is made if it is not there, and tried.
    ///
    /// # Errors
    /// Why no tie can be decided there.
    pub fn new(folder: &Path, host: HostId) -> Result<Self, String> {
        let lock = Lock { folder: folder.to_owned() };
        let wrong = |what: &str, error: std::io::Error| {
            format!("`{}`: {what}: {error}", lock.folder.display())
        };
        fs::create_dir_all(folder).map_err(|error| wrong("cannot be made a folder", error))?;
        let [first, second] = ["a", "b"]
            .map(|which| lock.folder.join(format!(".torchrs-try-{:016x}{which}", host.0)));
        let tried = write(&first, "a test of links").and_then(|()| {
            fs::hard_link(&first, &second)?;
            match fs::hard_link(&first, &second) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error),
                Ok(()) => Err(std::io::Error::other("two links have one name")),
            }
        });
        let _ = (fs::remove_file(&first), fs::remove_file(&second));
        tried.map_err(|error| wrong("hard links do not work there, which decide ties", error))?;
        Ok(lock)
    }

    /// Takes a tie for a host, unless another has it. May wait as long as the file system lets it.
    pub fn take(&self, tie: &Tie, host: HostId, name: &str) -> Taken {
        self.try_take(tie, host, name)
            .unwrap_or_else(|error| Taken::Failed(format!("`{}`: {error}", self.folder.display())))
    }

    fn try_take(&self, tie: &Tie, host: HostId, name: &str) -> std::io::Result<Taken> {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
        let job: String = tie.job.chars().take(80).map(safe).collect();
        let (begun_by, number) = (tie.begun_by.0, tie.number);
        let path = self.folder.join(format!("torchrs-{job}-{begun_by:016x}-tie-{number}"));
        // Whole before it has its name.
        let draft = self.folder.join(format!(".torchrs-{:016x}-{number}", host.0));
        write(&draft, &text(tie, host, name))?;
        // Whether an answer was lost and the link is there all the same, its text tells.
        let linked = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        for _ in 0..LOOKS {
            match fs::read_to_string(&path) {
                Ok(text) => return Ok(whose(&text, host)),
                Err(error) if error.kind() == ErrorKind::NotFound => match &linked {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => break,
                    _ => std::thread::sleep(LOOK_EVERY),
                },
                Err(error) => return Err(error),
            }
        }
        Err(linked
            .err()
            .unwrap_or_else(|| std::io::Error::other("a file that was made is not there")))
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The first line is for launchers, the others for people.
fn text(tie: &Tie, host: HostId, name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_whitespace()).collect();
    format!(
        "{:016x} {name}\nHalf of the hosts of job `{}` could not reach the other half. The half of {name} goes on.\n",
        host.0, tie.job
    )
}

fn whose(text: &str, host: HostId) -> Taken {
    let line = text.lines().next().unwrap_or_default();
    let (id, name) = line.split_once(' ').unwrap_or((line, "another host"));
    match u64::from_str_radix(id, 16) {
        Ok(id) if id == host.0 => Taken::Ours,
        _ => Taken::Theirs(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn tie(number: u32) -> Tie {
        Tie { job: "a/b c".into(), begun_by: HostId(7), number }
    }

    #[test]
    fn one_of_many_has_a_tie_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = 8;
        let start = Barrier::new(hosts);
        let take = |host: usize| {
            let lock = Lock::new(&folder.path().join("shared"), HostId(host as u64)).unwrap();
            start.wait();
            lock.take(&tie(1), HostId(host as u64), &format!("h{host}"))
        };
        let taken: Vec<Taken> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..hosts).map(|host| scope.spawn(move || take(host))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winner = taken.iter().position(|taken| *taken == Taken::Ours).expect("one has it");
        for (host, taken) in taken.iter().enumerate().filter(|(host, _)| *host != winner) {
            assert_eq!(*taken, Taken::Theirs(format!("h{winner}")), "h{host}");
        }
        // Who has it has it when it asks again, and the next one is free; another run's is another one.
        let lock = Lock::new(&folder.path().join("shared"), HostId(99)).unwrap();
        assert_eq!(lock.take(&tie(1), HostId(winner as u64), "w"), Taken::Ours);
        assert_eq!(lock.take(&tie(2), HostId(99), "new"), Taken::Ours);
        let other = Tie { begun_by: HostId(8), ..tie(1) };
        assert_eq!(lock.take(&other, HostId(99), "new"), Taken::Ours);
        // Nothing but the ties is left.
        let left = fs::read_dir(folder.path().join("shared")).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(
            left.len() == 3 && left.iter().all(|name| name.starts_with("torchrs-a_b_c-")),
            "{left:?}"
        );
    }

    #[test]
    fn a_folder_that_cannot_decide_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let why = Lock::new(&file, HostId(1)).unwrap_err();
        assert!(why.contains("file") && why.contains("folder"), "{why}");
        let lock = Lock::new(&folder.path().join("gone"), HostId(1)).unwrap();
        fs::remove_dir(folder.path().join("gone")).unwrap();
        assert!(
            matches!(lock.take(&tie(1), HostId(1), "h"), Taken::Failed(why) if why.contains("gone"))
        );
    }

    #[test]
    fn a_text_that_is_nobodys_is_anothers() {
        assert_eq!(whose("", HostId(0)), Taken::Theirs("another host".into()));
        assert_eq!(whose("zz h9\n", HostId(0)), Taken::Theirs("h9".into()));
        assert_eq!(whose("0000000000000005 h5\n", HostId(5)), Taken::Ours);
    }
}
