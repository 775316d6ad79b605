//! Files are short, and say at their head what they are for.

use crate::{Fault, Tree};

/// The most lines of a file.
pub const LONGEST: usize = 700;

/// The rule.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in [".rs", ".cu", ".cuh"].iter().flat_map(|ending| tree.files(ending)) {
        let lines = text.lines().count();
        if lines > LONGEST {
            let text = format!(
                "{lines} lines; a file has at most {LONGEST}: give a part a file of its own"
            );
            faults.push(Fault::new(path, LONGEST + 1, text));
        }
        if !has_head(path, text) {
            let text = "begins without a comment (`//!`) that says what the file is for";
            faults.push(Fault::new(path, 1, text));
        }
    }
    faults
}

/// What others include cannot have inner documentation; there, and in CUDA C, a plain comment does.
fn has_head(path: &str, text: &str) -> bool {
    let first = text.lines().find(|line| !line.is_empty() && !line.starts_with("#!["));
    let plain = !path.ends_with(".rs") || text.starts_with("// Part of ");
    first.is_some_and(|line| line.starts_with("//!") || plain && line.starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_and_one_without_a_head_are_found() {
        let long = format!("//! Long.\n{}", "\n".repeat(LONGEST));
        let tree = Tree::of(&[
            ("a.rs", &long),
            ("b.rs", "use std::fmt;\n"),
            ("c.rs", "#![allow(x)]\n\n//! Good.\n"),
            ("d.cu", "// Good.\n"),
            ("e.rs", "// Part of others' examples.\n"),
            ("f.rs", "// Not good.\n"),
        ]);
        let faults = check(&tree);
        let places: Vec<_> = faults.iter().map(|f| (&f.file[..], f.line)).collect();
        assert_eq!(places, [("a.rs", LONGEST + 1), ("b.rs", 1), ("f.rs", 1)]);
    }
}
