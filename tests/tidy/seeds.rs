//! Tests that seed or read the default generator do it in `fork_rng`: `cargo test` runs tests as threads of one
//! process, whose draws go into each other.

use crate::lexer::{Kind, Token, tokens};
use crate::{Fault, Tree};

/// What reaches the default generator.
const GLOBAL: [&str; 2] = ["manual_seed", "default_generator"];

/// The rule.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.files(".rs") {
        let tokens = tokens(text);
        for body in tests(&tokens) {
            let has = |token: &&Token<'_>, names: &[&str]| {
                token.kind == Kind::Word && names.contains(&token.text)
            };
            let Some(first) = body.iter().find(|token| has(token, &GLOBAL)) else { continue };
            if !body.iter().any(|token| has(&token, &["fork_rng"])) {
                let text = format!(
                    "a test calls `{}` outside of `fork_rng`: other tests' threads draw from the same generator",
                    first.text
                );
                faults.push(Fault::new(path, first.line, text));
            }
        }
    }
    faults
}

/// The bodies of the functions that are marked `#[test]`.
fn tests<'a>(tokens: &'a [Token<'a>]) -> impl Iterator<Item = &'a [Token<'a>]> + 'a {
    let marks = tokens.windows(4).enumerate();
    let marks =
        marks.filter(|(_, mark)| ["#", "[", "test", "]"] == [0, 1, 2, 3].map(|i| mark[i].text));
    marks.filter_map(|(at, _)| {
        let start = at + tokens[at..].iter().position(|token| token.text == "{")?;
        let mut depth = 0;
        let length = tokens[start..].iter().position(|token| {
            depth += i32::from(token.text == "{") - i32::from(token.text == "}");
            depth == 0
        })?;
        Some(&tokens[start..start + length])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_other_threads_see_is_found() {
        let text = "//! Tests.\n#[test]\nfn bad() {\n    if true { manual_seed(1) }\n}\n\
                    #[test]\nfn good() {\n    fork_rng(|| { manual_seed(1) })\n}\n\
                    fn part() {\n    manual_seed(1)\n}\n";
        let tree = Tree::of(&[("a.rs", text)]);
        let places: Vec<_> = check(&tree).into_iter().map(|f| (f.file, f.line)).collect();
        assert_eq!(places, [("a.rs".to_owned(), 4)]);
    }
}
