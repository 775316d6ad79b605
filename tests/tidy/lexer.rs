//! Rust's tokens, without comments: all that the rules need to find imports and items by.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A keyword or name; of a raw name what follows `r#`.
    Word,
    /// One character of punctuation.
    Sign,
    /// A number, string, character or lifetime.
    Other,
}

/// A token of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: &'a str,
    /// Its line, counted from 1.
    pub line: usize,
}

/// The tokens of a file.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let (mut at, mut line, mut tokens) = (0, 1, Vec::new());
    while at < bytes.len() {
        let start = at;
        let rest = &text[at..];
        let kind = if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            None
        } else if rest.starts_with("/*") {
            at += block_comment(rest);
            None
        } else if let Some(length) = string(rest) {
            at += length;
            Some(Kind::Other)
        } else if bytes[at] == b'\'' {
            at += quote(rest);
            Some(Kind::Other)
        } else {
            let first = rest.chars().next().unwrap_or(' ');
            let word = |c: char| c.is_alphanumeric() || c == '_';
            if first.is_whitespace() {
                at += first.len_utf8();
                None
            } else if word(first) {
                at += rest.find(|c| !word(c)).unwrap_or(rest.len());
                Some(if first.is_ascii_digit() { Kind::Other } else { Kind::Word })
            } else {
                at += first.len_utf8();
                Some(Kind::Sign)
            }
        };
        if let Some(kind) = kind {
            // A raw name is three tokens, `r`, `#` and the name, of which the first two do no harm.
            tokens.push(Token { kind, text: &text[start..at], line });
        }
        line += bytes[start..at].iter().filter(|&&byte| byte == b'\n').count();
    }
    tokens
}

/// The length of a comment, which may have others inside.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of a string of any form that begins here.
fn string(text: &str) -> Option<usize> {
    let prefix = ["b", "c", ""].into_iter().find(|prefix| {
        let rest = &text[prefix.len().min(text.len())..];
        text.starts_with(prefix) && (rest.starts_with('"') || raw(rest).is_some())
    })?;
    let rest = &text[prefix.len()..];
    if let Some(hashes) = raw(rest) {
        let end = format!("\"{}", "#".repeat(hashes));
        let from = hashes + 2;
        return Some(
            prefix.len() + rest[from..].find(&end).map_or(rest.len(), |n| from + n + end.len()),
        );
    }
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Some(prefix.len() + (at + 1).min(rest.len()))
}

/// The hashes of a raw string that begins here.
fn raw(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a character, or of a lifetime.
fn quote(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            let after = 3.min(text.len());
            text[after..].find('\'').map_or(text.len(), |n| after + n + 1)
        }
        Some((_, _)) => match chars.next() {
            Some((end, '\'')) => end + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text).into_iter().filter(|t| t.kind == Kind::Word).map(|t| t.text).collect()
    }

    #[test]
    fn comments_and_strings_have_no_words() {
        let text =
            "a // b\n/* c /* d */ e */ f \"g \\\" h\" r#\"i \" j\"# b\"k\" 'l' '\\'' m::n<'o>";
        assert_eq!(words(text), ["a", "f", "m", "n", "o"]);
        assert_eq!(tokens(text).last().unwrap().line, 2);
    }
}
