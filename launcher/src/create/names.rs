//! Which names a package may have.

/// Words that Rust keeps for itself.
const KEYWORDS: [&str; 53] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "_",
];
/// Names of other packages, which a program could not use then.
const TAKEN: [&str; 6] = ["alloc", "core", "proc_macro", "std", "test", "torchrs"];

/// Why a package cannot have this name.
pub fn misfit(name: &str) -> Option<String> {
    let first = name.chars().next();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let wrong = if name.is_empty() {
        "names no project"
    } else if let Some(c) = name.chars().find(|c| !is_plain(*c)) {
        return Some(format!("`{c}` is not for names: use letters, digits, `-` and `_`"));
    } else if !first.is_some_and(|c| c.is_ascii_alphabetic()) {
        "a name begins with a letter"
    } else if KEYWORDS.contains(&&name.to_ascii_lowercase()[..]) {
        "is a word of Rust's: take another"
    } else if TAKEN.contains(&&name.replace('-', "_")[..]) {
        "is the name of a library that a program uses: take another"
    } else {
        return None;
    };
    Some(wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_packages() {
        for name in ["digits", "my-net", "a_1"] {
            assert_eq!(misfit(name), None, "{name}");
        }
        for (name, part) in [
            ("", "no project"),
            ("1a", "begins with a letter"),
            ("a b", "` ` is not for names"),
            ("fn", "a word of Rust's"),
            ("std", "a library"),
            ("torchrs", "a library"),
        ] {
            assert!(misfit(name).is_some_and(|why| why.contains(part)), "{name}");
        }
    }
}
