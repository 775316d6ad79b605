//! Lists of files, as users name them.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};

/// The files of a stream, in order: a path, a list of paths, or webdataset's pattern, in which braces stand for
/// ranges of numbers and `::` for one list after the other.
///
/// ```
/// use torchrs::data::stream::ShardFiles;
/// let files = ShardFiles::from("a-{08..10}.tar::b.tar").expand()?;
/// let names: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
/// assert_eq!(names, ["a-08.tar", "a-09.tar", "a-10.tar", "b.tar"]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardFiles {
    /// These files.
    Paths(Vec<PathBuf>),
    /// Those of a pattern.
    Pattern(String),
}

impl From<&str> for ShardFiles {
    fn from(pattern: &str) -> Self {
        ShardFiles::Pattern(pattern.to_owned())
    }
}

impl From<String> for ShardFiles {
    fn from(pattern: String) -> Self {
        ShardFiles::Pattern(pattern)
    }
}

impl From<&Path> for ShardFiles {
    fn from(path: &Path) -> Self {
        ShardFiles::Paths(vec![path.to_owned()])
    }
}

impl From<PathBuf> for ShardFiles {
    fn from(path: PathBuf) -> Self {
        ShardFiles::Paths(vec![path])
    }
}

impl<P: Into<PathBuf>> From<Vec<P>> for ShardFiles {
    fn from(paths: Vec<P>) -> Self {
        ShardFiles::Paths(paths.into_iter().map(Into::into).collect())
    }
}

impl ShardFiles {
    /// The paths.
    ///
    /// # Errors
    /// [`Error::Argument`] when a pattern has a brace that is no range.
    pub fn expand(self) -> Result<Vec<PathBuf>> {
        let pattern = match self {
            ShardFiles::Paths(paths) => return Ok(paths),
            ShardFiles::Pattern(pattern) => pattern,
        };
        let mut paths = Vec::new();
        for part in pattern.split("::") {
            expand(part, &mut paths)
                .map_err(|why| Error::argument("ShardFiles", "pattern", why))?;
        }
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }

    /// The paths of files that are all there, at least one.
    pub(super) fn existing(self, op: &str) -> Result<Vec<PathBuf>> {
        let paths = self.expand()?;
        if paths.is_empty() {
            return Err(Error::argument(op, "files", "are none, must be some"));
        }
        for path in &paths {
            let what = || format!("look at {}", path.display());
            if !path.metadata().context(what)?.is_file() {
                return Err(Error::file(path, "is not a file"));
            }
        }
        Ok(paths)
    }
}

/// Replaces the first range of a pattern, then those behind it.
fn expand(pattern: &str, out: &mut Vec<String>) -> Result<(), String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        out.push(pattern.to_owned());
        return Ok(());
    };
    let (inside, after) =
        rest.split_once('}').ok_or_else(|| format!("`{pattern}` has a `{{` that is not closed"))?;
    if let Some((first, last)) = inside.split_once("..") {
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| format!("`{text}` in `{{{inside}}}` is not a number"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("`{{{inside}}}` counts down"));
        }
        // Zeros in front say how wide the numbers are.
        let width = if first.starts_with('0') || last.starts_with('0') { first.len() } else { 0 };
        for n in from..=to {
            expand(&format!("{before}{n:0width$}{after}"), out)?;
        }
        return Ok(());
    }
    for choice in inside.split(',') {
        expand(&format!("{before}{choice}{after}"), out)?;
    }
    Ok(())
}

/// A file of text from `cursor` on.
///
/// # Errors
/// [`Error::File`] when it is compressed, or shorter.
pub(super) fn open_text(path: &Path, cursor: u64) -> Result<BufReader<File>> {
    let what = || format!("open {}", path.display());
    let mut file = File::open(path).context(what)?;
    let len = file.metadata().context(what)?.len();
    if cursor > len {
        return Err(shorter(path, cursor, len));
    }
    let mut magic = [0; 2];
    if len >= 2 && file.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b] {
        let message = "is compressed by gzip, in which nobody can go on from a place; unpack it";
        return Err(Error::file(path, message));
    }
    file.seek(SeekFrom::Start(cursor)).context(what)?;
    Ok(BufReader::with_capacity(64 << 10, file))
}

/// Checks that a row begins at `cursor`: behind one of the bytes that end rows. The last row may end with the file.
///
/// # Errors
/// [`Error::File`] where the file is another one than when the cursor was saved.
pub(super) fn check_row_begins(path: &Path, cursor: u64, ends: &[u8]) -> Result<()> {
    let what = || format!("read {}", path.display());
    let file = File::open(path).context(what)?;
    if cursor == 0 || cursor == file.metadata().context(what)?.len() {
        return Ok(());
    }
    let mut before = [0];
    file.read_exact_at(&mut before, cursor - 1).context(what)?;
    if ends.contains(&before[0]) {
        return Ok(());
    }
    Err(Error::file(path, format!("changed: the state is at {cursor}, in the middle of a row")))
}

/// The error of a place behind a file's end.
pub(super) fn shorter(path: &Path, cursor: u64, len: u64) -> Error {
    Error::file(path, format!("changed: the state is at {cursor}, but it ends at {len}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_expanded_and_wrong_ones_named() {
        let names = |pattern: &str| ShardFiles::from(pattern).expand().unwrap();
        assert_eq!(names("x{1..3}"), ["x1", "x2", "x3"].map(PathBuf::from));
        assert_eq!(names("{a,b}/{9..10}"), ["a/9", "a/10", "b/9", "b/10"].map(PathBuf::from));
        assert_eq!(names("{000098..000100}").len(), 3);
        assert_eq!(names("{000098..000100}")[2], Path::new("000100"));
        let fails = |pattern: &str, expected: &str| {
            let error = ShardFiles::from(pattern).expand().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        fails("a{1..x}", "`x` in `{1..x}` is not a number");
        fails("a{3..1}", "counts down");
        fails("a{1", "not closed");
        assert!(
            ShardFiles::from("/no/such")
                .existing("X")
                .unwrap_err()
                .to_string()
                .contains("/no/such")
        );
        assert!(
            ShardFiles::Paths(vec![]).existing("X").unwrap_err().to_string().contains("are none")
        );
    }
}
