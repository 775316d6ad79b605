//! Files in which Linux says what a machine is, below a root that tests choose.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The machine whose files lie below `root`.
#[derive(Debug, Clone)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// This one.
    pub fn here() -> Self {
        Self::at(Path::new("/"))
    }

    pub fn at(root: &Path) -> Self {
        System { root: root.to_owned() }
    }

    /// One that has these files alone, while the folder lives.
    #[cfg(test)]
    pub fn of_files(files: &[(&str, &str)]) -> (tempfile::TempDir, Self) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = Self::at(folder.path());
        (folder, system)
    }

    /// A file's text without blanks at its ends; `None` if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim().to_owned())
    }

    /// The names in a folder, sorted.
    pub fn names(&self, path: &str) -> Vec<String> {
        let folder = fs::read_dir(self.root.join(path.trim_start_matches('/')));
        let names = folder.into_iter().flatten().flatten();
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The value of the first line `name: value`.
    pub fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.text(path)?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines
            .map(|(n, v)| (n.trim(), v.trim()))
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.to_owned())
    }

    /// Of a file with the word that holds in brackets, as `always [madvise] never`.
    pub fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }
}

/// The numbers of a list such as `0-3,8`; `None` if it is none.
pub fn list(text: &str) -> Option<BTreeSet<usize>> {
    let mut all = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to {
            return None;
        }
        all.extend(from..=to);
    }
    Some(all)
}

/// The list of these numbers, as `0-3,8`.
pub fn as_list(numbers: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut().filter(|(_, end)| *end + 1 == number) {
            Some((_, end)) => *end = number,
            None => runs.push((number, number)),
        }
    }
    let runs: Vec<String> = (runs.into_iter())
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") })
        .collect();
    runs.join(",")
}

/// How many a list such as `0-3,8` has.
pub fn count_of_list(text: &str) -> Option<usize> {
    Some(list(text)?.len())
}

/// `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_048_576 => format!("{} KiB", count >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", count >> 20),
        _ => format!("{:.1} GiB", count as f64 / (1u64 << 30) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_sizes_and_choices_are_read() {
        assert_eq!(count_of_list("0-3,8"), Some(5));
        assert_eq!(count_of_list("7"), Some(1));
        assert_eq!(count_of_list("x"), None);
        assert_eq!(list("3-1"), None);
        assert_eq!(as_list(&list("0-3,8,10-11\n").unwrap()), "0-3,8,10-11");
        assert_eq!(as_list(&BTreeSet::new()), "");
        assert_eq!(
            [bytes(65536), bytes(64 << 20), bytes(3 << 29)],
            ["64 KiB", "64 MiB", "1.5 GiB"]
        );
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("choice"), "always [madvise] never\n").unwrap();
        fs::write(folder.path().join("fields"), "MemTotal:  5 kB\nMemFree: 1 kB\n").unwrap();
        let system = System::at(folder.path());
        assert_eq!(system.chosen("/choice").as_deref(), Some("madvise"));
        assert_eq!(system.field("/fields", "MemFree").as_deref(), Some("1 kB"));
        assert_eq!(system.text("/absent"), None);
        assert_eq!(system.names("/"), ["choice", "fields"]);
    }
}
