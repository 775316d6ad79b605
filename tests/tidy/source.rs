//! What a file imports and declares.

use crate::lexer::{Kind, Token, tokens};

/// Who sees an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// This module.
    Private,
    /// `pub(...)`.
    Restricted,
    /// `pub`.
    Public,
}

/// A path of a `use` or in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Its line.
    pub line: usize,
    /// Its segments as written; `$crate` is `crate`, `*` the last of a glob.
    pub segments: Vec<String>,
    /// The name that it brings, where it is a `use`.
    pub name: Option<String>,
    /// Of a `use`; `Private` in a body.
    pub visibility: Visibility,
    /// The inline modules around it.
    pub inline: Vec<String>,
}

/// A named item of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its line.
    pub line: usize,
    /// Its keyword.
    pub keyword: String,
    /// Its name.
    pub name: String,
    /// Who sees it.
    pub visibility: Visibility,
    /// The inline modules around it.
    pub inline: Vec<String>,
    /// Of a module: it is for tests or documentation only.
    pub test: bool,
}

/// A file, without what is for tests or documentation only.
#[derive(Debug, Default)]
pub struct Source {
    /// In the order of the file.
    pub imports: Vec<Import>,
    /// Items of modules, not of blocks or `impl`s.
    pub items: Vec<Item>,
    /// Macros of `#[macro_export]`, which the language puts at the crate's root.
    pub macros: Vec<String>,
    /// `#[test]` functions, also those of test modules.
    pub tests: Vec<(usize, String)>,
}

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "static", "type", "union"];
const STARTS: [&str; 14] = [
    "pub", "fn", "struct", "enum", "trait", "const", "static", "type", "union", "mod", "use",
    "impl", "unsafe", "extern",
];

/// Reads a file.
pub fn parse(text: &str) -> Source {
    let tokens = tokens(text);
    let (tests, macros) = (tests(&tokens), macros(&tokens));
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        inline: Vec::new(),
        source: Source { tests, macros, ..Source::default() },
    };
    parser.block(true);
    parser.source
}

/// The functions below `#[test]`.
fn tests(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut pending = false;
    for (i, token) in tokens.iter().enumerate() {
        let before = |n: usize| i.checked_sub(n).map(|i| tokens[i].text);
        match token.text {
            "test" if before(1) == Some("[") && before(2) == Some("#") => pending = true,
            "fn" if pending => {
                pending = false;
                found.extend(tokens.get(i + 1).map(|name| (name.line, name.text.to_owned())));
            }
            _ => {}
        }
    }
    found
}

/// The macros below `#[macro_export]`.
fn macros(tokens: &[Token<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = false;
    for (i, token) in tokens.iter().enumerate() {
        match token.text {
            "macro_export" => pending = true,
            "macro_rules" if pending => {
                pending = false;
                found.extend(tokens.get(i + 2).map(|name| name.text.to_owned()));
            }
            _ => {}
        }
    }
    found
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    inline: Vec<String>,
    source: Source,
}

impl<'a> Parser<'a> {
    fn text(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn is_word(&self, ahead: usize) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|token| token.kind == Kind::Word)
    }

    /// Whether a path of more than one segment begins here.
    fn begins_path(&self) -> bool {
        let colon = |i: Option<usize>| i.is_some_and(|i| self.tokens[i].text == ":");
        let goes_on = colon(self.at.checked_sub(1)) && colon(self.at.checked_sub(2));
        self.is_word(0) && self.text(1) == ":" && self.text(2) == ":" && !goes_on
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    /// Reads to the end of a block, of a module's or of another's.
    fn block(&mut self, is_module: bool) {
        let mut visibility = Visibility::Private;
        while self.at < self.tokens.len() {
            let before = self.at.checked_sub(1).map_or("", |i| self.tokens[i].text);
            match self.text(0) {
                "}" => {
                    self.at += 1;
                    return;
                }
                "{" => {
                    self.at += 1;
                    self.block(false);
                    visibility = Visibility::Private;
                }
                "#" if self.text(1) == "[" => {
                    if self.attribute() {
                        self.skip_item();
                        visibility = Visibility::Private;
                    }
                }
                "pub" => visibility = self.visibility(),
                "use" if self.text(1) != "<" => {
                    self.at += 1;
                    let line = self.line();
                    self.tree(&mut Vec::new(), visibility, line);
                    visibility = Visibility::Private;
                }
                "mod" if self.is_word(1) => {
                    self.module(visibility, false);
                    visibility = Visibility::Private;
                }
                word if is_module && ITEMS.contains(&word) && self.is_word(1) => {
                    // `const fn`, `unsafe fn` and `const unsafe fn` are functions.
                    if !matches!(self.text(1), "fn" | "unsafe" | "extern") && before != "*" {
                        self.item(visibility, false);
                        visibility = Visibility::Private;
                    }
                    self.at += 1;
                }
                "(" | "[" if is_module => {
                    self.group();
                }
                ";" => {
                    visibility = Visibility::Private;
                    self.at += 1;
                }
                _ if self.begins_path() => {
                    self.path();
                }
                _ => self.at += 1,
            }
        }
    }

    /// What stands between brackets outside of blocks: paths, no items.
    fn group(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ if self.begins_path() => {
                    self.path();
                    continue;
                }
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    fn visibility(&mut self) -> Visibility {
        self.at += 1;
        if self.text(0) != "(" || !matches!(self.text(1), "crate" | "super" | "self" | "in") {
            return Visibility::Public;
        }
        while self.at < self.tokens.len() && self.text(0) != ")" {
            self.at += 1;
        }
        self.at += 1;
        Visibility::Restricted
    }

    fn item(&mut self, visibility: Visibility, test: bool) {
        let (line, keyword, name) = (self.line(), self.text(0).to_owned(), self.text(1).to_owned());
        let inline = self.inline.clone();
        self.source.items.push(Item { line, keyword, name, visibility, inline, test });
    }

    fn module(&mut self, visibility: Visibility, test: bool) {
        self.item(visibility, test);
        let name = self.text(1).to_owned();
        self.at += 2;
        if self.text(0) == "{" {
            self.at += 1;
            self.inline.push(name);
            self.block(true);
            self.inline.pop();
        }
    }

    /// Goes past an attribute; true for one by which what follows is for tests or documentation only.
    fn attribute(&mut self) -> bool {
        let start = self.at;
        let mut depth = 0;
        self.at += 1;
        loop {
            match self.text(0) {
                "[" => depth += 1,
                "]" => depth -= 1,
                "" => return false,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
        let words: Vec<&str> = self.tokens[start + 2..self.at - 1].iter().map(|t| t.text).collect();
        matches!(
            &words[..],
            ["test"]
                | ["cfg", "(", "test" | "doc" | "doctest", ")"]
                | ["cfg", "(", "all", "(", "test", ..]
        )
    }

    /// Goes past an item, field or statement, and keeps the name of a module.
    fn skip_item(&mut self) {
        while self.text(0) == "#" && self.text(1) == "[" {
            self.attribute();
        }
        let is_item = STARTS.contains(&self.text(0));
        let is_use = self.text(0) == "use" || self.text(1) == "use";
        let (mut depth, start) = (0, self.at);
        while self.at < self.tokens.len() {
            match self.text(0) {
                "mod" if self.at - start <= 4 && self.is_word(1) && depth == 0 => {
                    self.item(Visibility::Private, true);
                }
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" if depth == 0 => return,
                closing @ (")" | "]" | "}") => {
                    depth -= 1;
                    if depth == 0 && closing == "}" && !is_use {
                        self.at += 1;
                        return;
                    }
                }
                ";" if depth == 0 => {
                    self.at += 1;
                    return;
                }
                "," if depth == 0 && !is_item => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// A tree of a `use`, below `prefix`.
    fn tree(&mut self, prefix: &mut Vec<String>, visibility: Visibility, line: usize) {
        let depth = prefix.len();
        loop {
            match self.text(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.text(0), "}" | "") {
                        let line = self.line();
                        self.tree(prefix, visibility, line);
                        if self.text(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    prefix.truncate(depth);
                    return;
                }
                ":" | "$" => self.at += 1,
                "," | "}" | ";" | "as" | "" => break,
                word => {
                    prefix.push(word.to_owned());
                    self.at += 1;
                }
            }
        }
        let mut segments = prefix.clone();
        if segments.len() > 1 && segments.last().is_some_and(|s| s == "self") {
            segments.pop();
        }
        let mut name = segments.last().cloned();
        if self.text(0) == "as" {
            name = Some(self.text(1).to_owned());
            self.at += 2;
        }
        let inline = self.inline.clone();
        self.source.imports.push(Import { line, segments, name, visibility, inline });
        prefix.truncate(depth);
    }

    /// A path in a body.
    fn path(&mut self) {
        let line = self.line();
        let mut segments = vec![self.text(0).to_owned()];
        self.at += 1;
        while self.text(0) == ":" && self.text(1) == ":" && self.is_word(2) {
            segments.push(self.text(2).to_owned());
            self.at += 3;
        }
        let inline = self.inline.clone();
        let visibility = Visibility::Private;
        self.source.imports.push(Import { line, segments, name: None, visibility, inline });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        parse(text).imports.iter().map(|import| import.segments.join("::")).collect()
    }

    #[test]
    fn trees_become_paths() {
        let text = "use crate::{a, b::{self, c as d, e::*}};\npub(crate) use super::f;";
        assert_eq!(
            paths(text),
            ["crate::a", "crate::b", "crate::b::c", "crate::b::e::*", "super::f"]
        );
    }

    #[test]
    fn bodies_macros_and_signatures_have_paths() {
        let text = "fn f(x: crate::a::A) -> crate::B { crate::c::d::<u8>(x) }\n\
                    macro_rules! m { () => { $crate::e::f() } }";
        assert_eq!(paths(text), ["crate::a::A", "crate::B", "crate::c::d", "crate::e::f"]);
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        let text = "#[cfg(test)]\nmod tests { use crate::a::b; }\n#[cfg(doc)]\nuse crate::c;\n\
                    #[cfg(test)]\nmod more;\nstruct S { #[cfg(test)] x: crate::d::E, y: crate::f::G }";
        assert_eq!(paths(text), ["crate::f::G"]);
        let source = parse(text);
        let modules: Vec<_> = source.items.iter().map(|item| (&item.name[..], item.test)).collect();
        assert_eq!(modules, [("tests", true), ("more", true), ("S", false)]);
    }

    #[test]
    fn items_have_names_and_visibility() {
        let text = "pub const fn f() {}\npub(crate) struct S;\npub mod m { pub enum E { A } }\n\
                    impl S { pub fn method() {} }\npub const N: usize = 1;";
        let items = parse(text).items;
        let of = |i: &Item| format!("{} {} {:?} {:?}", i.keyword, i.name, i.visibility, i.inline);
        let expected = [
            "fn f Public []",
            "struct S Restricted []",
            "mod m Public []",
            "enum E Public [\"m\"]",
            "const N Public []",
        ];
        assert_eq!(items.iter().map(of).collect::<Vec<_>>(), expected);
    }
}
