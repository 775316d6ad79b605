//! Which programs an executable loads, kept beside the compiled ones: what its next start needs on a GPU, or with a
//! compiler, for which nothing is compiled yet. A line for each program, in the order of first use.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::kernels::compile::code;
use crate::kernels::module::Program;

/// Bytes of a list from which on it begins anew: an executable that changes leaves lines of what it was.
const MOST_BYTES: u64 = 256 << 10;
const ENDING: &str = ".used";

struct Used {
    path: PathBuf,
    lines: HashSet<String>,
}

impl Used {
    fn of(path: PathBuf) -> Used {
        if fs::metadata(&path).is_ok_and(|file| file.len() > MOST_BYTES) {
            let _ = fs::remove_file(&path);
        }
        Used { lines: lines(&path).into_iter().collect(), path }
    }

    /// Adds a line, in one write, so that processes that start together do not mix theirs. What goes wrong only means that
    /// nothing is compiled ahead.
    fn note(&mut self, line: String) {
        if line.contains('\n') || self.lines.contains(&line) {
            return;
        }
        let opened = OpenOptions::new().create(true).append(true).open(&self.path);
        let _ = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        self.lines.insert(line);
    }
}

/// Notes that this process has loaded a program.
pub(crate) fn note(program: &Program) {
    static USED: Mutex<Option<Used>> = Mutex::new(None);
    let Ok(Some(path)) = code::disk().map(|disk| disk.folder().and_then(own)) else { return };
    USED.lock().get_or_insert_with(|| Used::of(path)).note(program.recipe());
}

/// The list of this process's executable.
pub(crate) fn own(folder: &Path) -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    Some(folder.join(format!("{}{ENDING}", stem(executable.file_name()?.to_str()?))))
}

/// An executable's name without the number that cargo gives to those of tests.
fn stem(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            stem
        }
        _ => name,
    }
}

/// The lines of a list; none where there is no list. A last line that is cut off is none.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut seen = HashSet::new();
    whole.lines().filter(|line| seen.insert(*line)).map(str::to_owned).collect()
}

/// The lists of all executables that have used a folder.
pub(crate) fn all(folder: &Path) -> Vec<Vec<String>> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> =
        files.filter(|path| path.to_str().is_some_and(|path| path.ends_with(ENDING))).collect();
    paths.sort();
    paths.iter().map(|path| lines(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_once_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("train{ENDING}"));
        let mut one = Used::of(path.clone());
        let mut other = Used::of(path.clone());
        for line in ["b", "a", "b", "two\nlines"] {
            one.note(line.to_owned());
        }
        other.note("a".to_owned());
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\na\na\n");
        assert_eq!(lines(&path), ["b", "a"]);
        assert_eq!(all(folder.path()), [["b", "a"]]);
        fs::write(&path, "b\na\ncut o").unwrap();
        assert_eq!(lines(&path), ["b", "a"]);
    }

    #[test]
    fn a_list_that_has_grown_too_long_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.used");
        fs::write(&path, "a\n".repeat(MOST_BYTES as usize / 2 + 1)).unwrap();
        Used::of(path.clone()).note("b".to_owned());
        assert_eq!(lines(&path), ["b"]);
    }

    #[test]
    fn executables_of_tests_are_told_by_their_names() {
        assert_eq!(stem("cuda-0123456789abcdef"), "cuda");
        assert_eq!(stem("my-program"), "my-program");
    }
}
