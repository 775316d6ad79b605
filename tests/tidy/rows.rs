//! Every row of the page of faults has tests, and every test named for a row has one.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::tokens;
use crate::source::parse;
use crate::{Fault, Tree};

/// The rule, for each page named `faults.md`.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let known = Known::read(tree);
    let mut faults = Vec::new();
    let mut rows = BTreeSet::new();
    for (page, text) in tree.files("faults.md") {
        for (line, cells) in tables(text) {
            let [head, .., tests] = &cells[..] else { continue };
            if let Ok(number) = head.parse::<usize>()
                && !rows.insert(number)
            {
                faults.push(Fault::new(page, line, format!("row {number} is there twice")));
            }
            let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
            if names.is_empty() {
                faults.push(Fault::new(page, line, "the row names no test in its last column"));
            }
            for name in names.into_iter().filter(|name| !known.has(tree, name)) {
                let text = format!("no test is called `{name}`; name one, or remove the row");
                faults.push(Fault::new(page, line, text));
            }
        }
    }
    for ((file, line), name) in &known.tests {
        let number =
            name.strip_prefix("row_").and_then(|rest| rest.split('_').next()?.parse().ok());
        if let Some(number) = number.filter(|number: &usize| !rows.contains(number)) {
            let text =
                format!("`{name}` is of row {number}, which the page of faults does not have");
            faults.push(Fault::new(file, *line, text));
        }
    }
    faults
}

/// What a row may name.
struct Known {
    tests: BTreeMap<(String, usize), String>,
    names: BTreeSet<String>,
    /// Files and folders, without endings, and inline modules.
    modules: BTreeSet<String>,
}

impl Known {
    fn read(tree: &Tree) -> Self {
        let mut known =
            Known { tests: BTreeMap::new(), names: BTreeSet::new(), modules: BTreeSet::new() };
        for (path, text) in tree.files(".rs") {
            known.modules.extend(path.trim_end_matches(".rs").split('/').map(str::to_owned));
            for (line, name) in parse(text).tests {
                known.names.insert(name.clone());
                known.tests.insert((path.to_owned(), line), name);
            }
            // Tests that a macro or a list of names makes.
            if format!("/{path}").contains("/tests/") {
                let tokens = tokens(text);
                let functions = tokens.windows(2).filter(|pair| pair[0].text == "fn");
                known.names.extend(functions.map(|pair| pair[1].text.to_owned()));
                let quoted = tokens.iter().filter(|token| token.text.starts_with('"'));
                known.names.extend(quoted.map(|token| token.text.trim_matches('"').to_owned()));
            }
        }
        known
    }

    /// `a_test`, `a_test_that_*`, `module::*`, `module::a_test`, `test_program`, `path/of/a.rs`.
    fn has(&self, tree: &Tree, name: &str) -> bool {
        if name.contains('/') {
            return tree.exists(name.trim_end_matches('/'));
        }
        let mut parts: Vec<&str> = name.split("::").collect();
        let last = parts.pop().unwrap_or_default();
        let named = match last.strip_suffix('*') {
            Some("") => !parts.is_empty(),
            Some(start) => self.names.iter().any(|name| name.starts_with(start)),
            // The documentation tests of a type.
            None if last.starts_with(char::is_uppercase) => !parts.is_empty(),
            None => self.names.contains(last) || self.modules.contains(last),
        };
        named && parts.iter().all(|part| self.modules.contains(*part))
    }
}

/// The rows of a page's tables, without their heads: their lines, and their cells.
fn tables(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut rows = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let is_head = lines
            .get(i + 1)
            .is_some_and(|next| next.starts_with("| ---") || next.starts_with("|--"));
        if !line.starts_with('|') || line.starts_with("| ---") || line.starts_with("|--") || is_head
        {
            continue;
        }
        let inner = line.trim_matches(['|', ' ']);
        rows.push((i + 1, inner.split('|').map(str::trim).collect()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_tests_and_tests_without_rows_are_found() {
        let page = "# Faults\n\n| row | fault | tests |\n| --- | --- | --- |\n| 1 | a | `row_01_*` |\n\
                    | 2 | b | by hand |\n| 3 | c | `a_gone_*`, `here` |\n| 3 | d | `tests/x.rs`: `x::*` |\n";
        let test = "#[test]\nfn row_01_a() {}\n#[test]\nfn here() {}\n#[test]\nfn row_09_b() {}\n";
        let tree = Tree::of(&[("docs/faults.md", page), ("tests/x.rs", test)]);
        let faults = check(&tree);
        let places: Vec<_> = faults.iter().map(|f| (&f.file[..], f.line)).collect();
        let page = "docs/faults.md";
        assert_eq!(places, [(page, 6), (page, 7), (page, 8), ("tests/x.rs", 6)]);
    }
}
