//! The files that the rules read, and what the rules give.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The file, from the repository's root.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl Fault {
    /// A fault on a line of a file.
    pub fn new(file: &str, line: usize, text: impl Into<String>) -> Self {
        Fault { file: file.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// The files of a repository, by their paths from its root.
#[derive(Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    /// Files and folders.
    paths: BTreeSet<String>,
}

/// Whose contents rules read.
const READ: [&str; 5] = ["rs", "md", "toml", "cu", "cuh"];
const SCRIPTS: [&str; 2] = ["scripts/", "tools/"];

impl Tree {
    /// The files under `root`, without what `.gitignore` names.
    ///
    /// # Panics
    /// When a folder or file cannot be read.
    pub fn read(root: &Path) -> Tree {
        let mut ignored: BTreeSet<String> = [".git".to_owned()].into();
        if let Ok(text) = std::fs::read_to_string(root.join(".gitignore")) {
            let names = text.lines().map(|line| line.trim_end_matches('/'));
            ignored.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        let mut tree = Tree::default();
        tree.walk(root, "", &ignored);
        tree
    }

    fn walk(&mut self, folder: &Path, at: &str, ignored: &BTreeSet<String>) {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{at}: {e}"));
        for entry in entries {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if at.is_empty() { name.clone() } else { format!("{at}/{name}") };
            if ignored.contains(&name) || ignored.contains(&format!("/{path}")) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                self.walk(&entry.path(), &path, ignored);
            } else if READ.contains(&path.rsplit('.').next().unwrap_or_default())
                || SCRIPTS.iter().any(|folder| path.starts_with(folder))
            {
                // What is no text is nothing to read.
                if let Ok(text) = std::fs::read_to_string(entry.path()) {
                    self.texts.insert(path.clone(), text);
                }
            }
            self.paths.insert(path);
        }
    }

    /// A tree for a rule's own test.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for &(path, text) in files {
            tree.texts.insert(path.to_owned(), text.to_owned());
            for (end, _) in path.match_indices('/') {
                tree.paths.insert(path[..end].to_owned());
            }
            tree.paths.insert(path.to_owned());
        }
        tree
    }

    /// The files that end with `ending`, and their text.
    pub fn files<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        let files = self.texts.iter().filter(move |(path, _)| path.ends_with(ending));
        files.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The files below a folder, whose name ends with `/`, and their text.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        let files = self.texts.iter().filter(move |(path, _)| path.starts_with(folder));
        files.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Whether there is a file or folder of that path.
    pub fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    /// All files and folders.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }
}
