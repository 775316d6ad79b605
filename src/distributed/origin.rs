//! Where in the program a collective was called. Every rank publishes it with the call, and it is read only
//! when something is wrong: then messages name a line of the user's on both sides.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// Where a collective comes from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// A line of the program.
    Code(&'static Location<'static>),
    /// Something of the library's own that no line of the program calls, such as a bucket of gradients.
    Named(Arc<str>),
    /// One of several that are alike: its name, and a number that all ranks have to agree on.
    Numbered(Arc<str>, u32),
}

thread_local! {
    /// What the collectives of this thread are parts of; the innermost is the last.
    static WITHIN: RefCell<Vec<Origin>> = const { RefCell::new(Vec::new()) };
}

impl Origin {
    /// What this thread's collectives are a part of, else the caller's line.
    #[track_caller]
    #[inline]
    pub(crate) fn here() -> Origin {
        let line = Location::caller();
        WITHIN.with_borrow(|within| within.last().cloned()).unwrap_or(Origin::Code(line))
    }

    /// Something of the library's own.
    pub(crate) fn named(name: impl Into<Arc<str>>) -> Origin {
        Origin::Named(name.into())
    }

    /// One of several things of the library's own whose collectives look alike. Ranks that are at different ones get an
    /// error; `number` tells them apart, from 1.
    pub(crate) fn numbered(name: impl Into<Arc<str>>, number: u32) -> Origin {
        Origin::Numbered(name.into(), number)
    }

    /// What all ranks have to agree on; mostly nothing, 0.
    pub(super) fn number(&self) -> u32 {
        match self {
            Origin::Numbered(_, number) => *number,
            _ => 0,
        }
    }

    /// Runs `f`, whose collectives come from here.
    pub(crate) fn over<T>(&self, f: impl FnOnce() -> T) -> T {
        /// Leaves also when `f` panics.
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                WITHIN.with_borrow_mut(|within| within.pop());
            }
        }
        WITHIN.with_borrow_mut(|within| within.push(self.clone()));
        let _leave = Leave;
        f()
    }

    /// The text and, of a line, its number.
    pub(super) fn parts(&self) -> (&str, u32) {
        match self {
            Origin::Code(line) => (line.file(), line.line()),
            Origin::Named(name) | Origin::Numbered(name, _) => (name, 0),
        }
    }
}

/// `src/main.rs:41`, or the name.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, line) = self.parts();
        f.write_str(&shown(text, line))
    }
}

/// As the origin was, from its published parts.
pub(super) fn shown(text: &str, line: u32) -> String {
    if line == 0 { text.to_owned() } else { format!("{text}:{line}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_name_stands_before_the_line() {
        let (file, line) = (file!(), line!());
        assert_eq!(Origin::here().to_string(), format!("{file}:{}", line + 1));
        let outer = Origin::named("a bucket");
        let (inside, within) = outer.over(|| {
            let within = Origin::named("a hook").over(|| Origin::here().to_string());
            (Origin::here().to_string(), within)
        });
        assert_eq!((inside.as_str(), within.as_str()), ("a bucket", "a hook"));
        let panicked = crate::error::catch(|| outer.over(|| panic!("boom")));
        assert!(panicked.is_err());
        assert!(matches!(Origin::here(), Origin::Code(_)));
    }
}
