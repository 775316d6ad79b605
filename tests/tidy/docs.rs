//! Links and paths in the documentation lead somewhere.

use std::collections::BTreeSet;

use crate::{Fault, Tree};

/// The rule: links of all pages, and paths between backticks in pages and comments.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    let tops: BTreeSet<&str> = tree.paths().filter(|path| !path.contains('/')).collect();
    for (page, text) in tree.files(".md") {
        let mut is_code = false;
        for (i, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                for target in links(line) {
                    if let Some(why) = broken(tree, page, target) {
                        faults.push(Fault::new(page, i + 1, format!("the link `{target}` {why}")));
                    }
                }
                paths(tree, &tops, page, i + 1, line, &mut faults);
            }
        }
    }
    for (file, text) in ["rs", "cu", "cuh"].iter().flat_map(|ending| tree.files(ending)) {
        // The rules' own examples.
        if file.starts_with("tests/tidy/") {
            continue;
        }
        for (i, line) in text.lines().enumerate() {
            if let Some((_, comment)) = line.split_once("//") {
                paths(tree, &tops, file, i + 1, comment, &mut faults);
            }
        }
    }
    faults
}

/// The targets of a line's links.
fn links(line: &str) -> Vec<&str> {
    let outside: Vec<(usize, &str)> = line.match_indices("](").collect();
    let inside_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
    let targets =
        outside.into_iter().filter(|&(at, _)| !inside_code(at)).map(|(at, _)| &line[at + 2..]);
    targets.filter_map(|rest| rest.split([')', ' ']).next()).collect()
}

fn broken(tree: &Tree, page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") || target.is_empty() {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { page.to_owned() } else { join(page, path) };
    if !tree.exists(&file) {
        return Some(format!("leads to `{file}`, which does not exist"));
    }
    let text = tree.text(&file)?;
    let lost = !anchor.is_empty() && file.ends_with(".md") && !anchors(text).contains(anchor);
    lost.then(|| format!("leads to a heading that `{file}` does not have"))
}

/// `path` as seen from the folder of `page`.
fn join(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names by which a page's headings are linked.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() {
            continue;
        }
        let kept =
            title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String =
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.clone()).chain(again).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// Paths of this repository between backticks: those whose first part is a file or folder at its top and, in
/// pages, also those that begin in `src/`.
fn paths(
    tree: &Tree,
    tops: &BTreeSet<&str>,
    file: &str,
    line: usize,
    text: &str,
    faults: &mut Vec<Fault>,
) {
    let is_page = file.ends_with(".md");
    for span in text.split('`').skip(1).step_by(2) {
        // Arguments, and the number of a line, follow.
        let span = span.split(' ').next().unwrap_or_default();
        let span = span.split(':').next().unwrap_or_default().trim_end_matches(['/', '.']);
        let plain = |c: char| c.is_ascii_alphanumeric() || "_./-{},".contains(c);
        let Some((first, rest)) = span.split_once('/') else { continue };
        if rest.is_empty() || !span.chars().all(plain) || span.contains("..") {
            continue;
        }
        let begins_in_src = is_page && tree.exists(&format!("src/{first}"));
        // A name to fill in, or a file of the reader's own project.
        let is_pattern = span.split(['/', '.']).any(|part| part == "NAME") || span == "src/main.rs";
        if !tops.contains(first) && !begins_in_src || is_pattern {
            continue;
        }
        for path in alternatives(span) {
            let there = |path: &str| {
                tree.exists(path)
                    || tree.exists(&format!("{path}.rs"))
                    || tree.paths().any(|p| p.starts_with(path) && p[path.len()..].starts_with('.'))
            };
            let near = join(file, &path);
            let in_src = || begins_in_src && there(&format!("src/{path}"));
            if !(there(&path) || there(&near) || in_src()) {
                faults.push(Fault::new(file, line, format!("`{path}` does not exist")));
            }
        }
    }
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(a, rest)| Some((a, rest.split_once('}')?))) {
        Some((before, (middle, after))) => {
            middle.split(',').map(|name| format!("{before}{name}{after}")).collect()
        }
        None => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_nowhere_is_found() {
        let page = "# A page\n[a](b.md) [c](gone.md) [d](#a-page) [e](#gone) [f](https://x.y/z)\n\
                    `src/lib.rs` `src/gone.rs` `cpu/gemm` `cpu/gone` `torch/nn.py` `src/{lib,gone}.rs`\n\
                    ```\n[g](gone.md) `src/gone.rs`\n```\n[h](../README.md) [i](b.md#two-words) `[j](gone.md)`\n";
        let tree = Tree::of(&[
            ("README.md", ""),
            ("docs/a.md", page),
            ("docs/b.md", "## Two `words`\n"),
            ("src/lib.rs", "//! As `docs/a.md` says, not `docs/gone.md`.\n"),
            ("src/cpu/gemm.rs", ""),
        ]);
        let faults: Vec<String> = check(&tree).iter().map(Fault::to_string).collect();
        let expected = [
            "docs/a.md:2: the link `gone.md` leads to `docs/gone.md`, which does not exist",
            "docs/a.md:2: the link `#gone` leads to a heading that `docs/a.md` does not have",
            "docs/a.md:3: `src/gone.rs` does not exist",
            "docs/a.md:3: `cpu/gone` does not exist",
            "docs/a.md:3: `src/gone.rs` does not exist",
            "src/lib.rs:1: `docs/gone.md` does not exist",
        ];
        assert_eq!(faults, expected);
    }
}
