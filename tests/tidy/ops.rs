//! Every op's samples and kernels are named by a table: `ops!` in the `mod.rs` of their room (`src/ops/table.rs`).

use std::collections::BTreeSet;

use crate::lexer::{Token, tokens};
use crate::{Fault, Tree};

const OPS: &str = "src/ops/";
/// The macro, and who reads what the tables name.
const READERS: [&str; 2] = ["src/ops/table.rs", "src/ops/catalogue.rs"];

/// The rule.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let mut named = BTreeSet::new();
    let mut there = Vec::new();
    for (path, text) in tree.below(OPS).filter(|(path, _)| !READERS.contains(path)) {
        let Some(file) = path.strip_prefix(OPS).and_then(|path| path.strip_suffix(".rs")) else {
            continue;
        };
        let module = match file.strip_suffix("mod") {
            Some(folder) => folder.replace('/', "::"),
            None => format!("{}::", file.replace('/', "::")),
        };
        let tokens = tokens(text);
        let found = defined(&tokens).map(|(line, what)| (path, line, format!("{module}{what}")));
        // Nobody names the first table.
        there.extend(found.filter(|(_, _, what)| what != "room"));
        named.extend(rows(&tokens).into_iter().map(|row| format!("{module}{row}")));
    }
    let forgotten = there.into_iter().filter(|(_, _, what)| !named.contains(what));
    let fault = |(path, line, what): (&str, usize, String)| {
        let text =
            format!("no table names `{what}`; give it a line in `ops!` of its room's mod.rs");
        Fault::new(path, line, text)
    };
    forgotten.map(fault).collect()
}

/// What a file has for a table: `samples`, `programs`, statics of kernels, and a table of its own, with their lines.
fn defined<'a>(tokens: &'a [Token<'a>]) -> impl Iterator<Item = (usize, String)> + 'a {
    let mut depth = 0;
    tokens.iter().enumerate().filter_map(move |(i, token)| {
        let text = |k: usize| tokens.get(i + k).map_or("", |token| token.text);
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            // Macros make both.
            "fn" if matches!(text(1), "samples" | "programs") && text(2) == "(" => {
                return Some((token.line, text(1).to_owned()));
            }
            "static" if depth == 0 && matches!(text(3), "Program" | "Family") => {
                return Some((token.line, text(1).to_owned()));
            }
            "ops" if text(1) == "!" => return Some((token.line, "room".to_owned())),
            _ => {}
        }
        None
    })
}

/// What the tables of a file name, from the file's module on.
fn rows(tokens: &[Token<'_>]) -> Vec<String> {
    let mut rows = Vec::new();
    let starts = (2..tokens.len()).filter(|&i| {
        tokens[i].text == "{" && tokens[i - 1].text == "!" && tokens[i - 2].text == "ops"
    });
    for start in starts {
        // Braces of the table and of an op, and the brackets of its kernels.
        let (mut depth, mut op, mut path) = (0, String::new(), String::new());
        for token in &tokens[start..] {
            match (token.text, depth) {
                ("{" | "[", _) => depth += 1,
                ("}" | "]" | ",", _) => {
                    if !path.is_empty() {
                        rows.push(format!("{op}{}", std::mem::take(&mut path)));
                    }
                    depth -= i32::from(token.text != ",");
                    if depth == 0 {
                        break;
                    }
                }
                ("self", 1) => op.clear(),
                (name, 1) => op = format!("{name}::"),
                ("samples" | "room", 2) | (_, 3) => path.push_str(token.text),
                _ => {}
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_table_names_is_found() {
        let softmax = "static ROWS: Family = f();\nstatic OTHER: u8 = 0;\n\
                       fn inside() {\n    static OWN: Program = p();\n}\n#[cfg(test)]\nfn samples() {}\n";
        let tree = Tree::of(&[
            ("src/ops/mod.rs", "ops! {\n    norm { room }\n}\n"),
            (
                "src/ops/norm/mod.rs",
                "ops! {\n    softmax { samples, kernels: [cuda::A, cuda::own::B] }\n}\n",
            ),
            ("src/ops/norm/softmax/mod.rs", softmax),
            (
                "src/ops/norm/softmax/cuda/mod.rs",
                "pub static A: Program = p();\nstatic C: Program = p();\n",
            ),
            ("src/ops/norm/softmax/cuda/own.rs", "static B: Family = f();\n"),
            (
                "src/ops/loss/mod.rs",
                "fn samples() {}\nfn programs() {}\nops! {\n    self { samples }\n}\n",
            ),
        ]);
        let faults = check(&tree);
        let places: Vec<_> = faults.iter().map(|f| (&f.file[..], f.line)).collect();
        let (loss, cuda) = ("src/ops/loss/mod.rs", "src/ops/norm/softmax/cuda/mod.rs");
        assert_eq!(places, [(loss, 2), (loss, 3), (cuda, 2), ("src/ops/norm/softmax/mod.rs", 1)]);
    }
}
