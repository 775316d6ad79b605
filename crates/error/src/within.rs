//! Who is at work when an error is thrown: the modules whose `forward` runs on this thread, with the
//! lines that called them. [`throw`](super::throw) adds both to its message.
//!
//! `#[track_caller]` ends at calls through trait objects and at closures. There the lines noted here
//! take over: the innermost one outside the library is the user's.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::transmute;
use std::panic::Location;

use super::Error;

/// What can say who it is, in the words of an error message.
pub trait Describe {
    /// `net.0: Linear(...)`. `outer` are those at work around it, the innermost first.
    fn describe(&self, outer: &[&dyn Describe]) -> String;
    /// The dotted name of what stands at that address inside this one and has that type's name.
    fn path_to(&self, address: *const (), name: &str) -> Option<String>;
}

struct Entry {
    /// `None` where only a line is passed on.
    who: Option<*const dyn Describe>,
    at: &'static Location<'static>,
}

thread_local! {
    static AT_WORK: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    /// Where the last error was thrown in the library, and the user's line that led there.
    static BLAMED: Cell<Option<[&'static Location<'static>; 2]>> = const { Cell::new(None) };
}

/// Ends the work that [`enter`] began.
pub struct Within<'a> {
    depth: usize,
    /// Keeps what was entered borrowed, and the guard on its thread.
    _who: PhantomData<(&'a (), *const ())>,
}

/// Notes that `who` is at work until the guard is dropped, called from the caller's line.
#[track_caller]
#[inline]
pub fn enter<'a>(who: &'a (dyn Describe + 'a)) -> Within<'a> {
    let at = Location::caller();
    // SAFETY: only the lifetime is changed. The guard borrows `who` for `'a` and takes the entry away before that ends;
    // no code of these crates leaks a guard.
    let who =
        unsafe { transmute::<*const (dyn Describe + 'a), *const (dyn Describe + 'static)>(who) };
    push(Entry { who: Some(who), at })
}

/// Notes the caller's line alone, before a call through a trait object.
#[track_caller]
#[inline]
pub fn line() -> Within<'static> {
    push(Entry { who: None, at: Location::caller() })
}

#[inline]
fn push<'a>(entry: Entry) -> Within<'a> {
    AT_WORK.with_borrow_mut(|entries| {
        entries.push(entry);
        Within { depth: entries.len() - 1, _who: PhantomData }
    })
}

impl Drop for Within<'_> {
    #[inline]
    fn drop(&mut self) {
        AT_WORK.with_borrow_mut(|entries| entries.truncate(self.depth));
    }
}

/// The user's line that led to `at`: that itself, or the innermost line noted here that is outside the library.
pub fn users_line(at: &'static Location<'static>) -> &'static Location<'static> {
    if !is_library(at) {
        return at;
    }
    let noted = AT_WORK.try_with(|entries| {
        let entries = entries.try_borrow().ok()?;
        entries.iter().rev().map(|e| e.at).find(|at| !is_library(at))
    });
    noted.ok().flatten().unwrap_or(at)
}

/// True for a line of the library's own sources, in whichever of its crates.
pub fn is_library(at: &Location<'_>) -> bool {
    is_sibling(file!(), at.file())
}

/// Whether `file` is a source of one of the library's crates, of which `own` is this file. The crates stand
/// in one workspace, or as packages side by side.
fn is_sibling(own: &str, file: &str) -> bool {
    let package = own.trim_end_matches("src/within.rs");
    let is_source = |path: &str| path.starts_with("src/");
    if file.strip_prefix(package).is_some_and(is_source) {
        return true;
    }
    if let Some(workspace) = package.strip_suffix("crates/error/") {
        let Some(path) = file.strip_prefix(workspace) else { return false };
        let inside = path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
        return is_source(inside.map_or(path, |(_, path)| path));
    }
    // `torchrs-0.1.0/`, `torchrs-error-0.1.0/`; without versions where packages are vendored.
    let Some((parent, _)) = package.trim_end_matches('/').rsplit_once('/') else { return false };
    let name = file.strip_prefix(parent).and_then(|path| path.strip_prefix("/torchrs"));
    name.is_some_and(|name| name.starts_with(['-', '/']))
}

/// `error` with the module that was at work, and with the user's line where `at` is not that.
#[cold]
pub(super) fn placed(mut error: Error, at: &'static Location<'static>) -> Error {
    let note = AT_WORK.with_borrow(|entries| {
        let user = if is_library(at) {
            entries.iter().rev().map(|e| e.at).find(|at| !is_library(at))
        } else {
            None
        };
        BLAMED.set(user.map(|user| [at, user]));
        // SAFETY: entries are taken away before what they point to ends (`enter`).
        let at_work = entries.iter().rev().filter_map(|e| e.who).map(|who| unsafe { &*who });
        let at_work: Vec<&dyn Describe> = at_work.collect();
        let mut note = String::new();
        if let Some((innermost, outer)) = at_work.split_first() {
            note = format!("\n  in {}", innermost.describe(outer));
        }
        if let Some(user) = user {
            note += &format!("\n  called at {user}");
        }
        note
    });
    if let Some(message) = error.message_mut()
        // An error that was caught and is thrown again says it already.
        && !message.contains(&note)
    {
        message.push_str(&note);
    }
    error
}

/// The line to blame for the panic at `at`: the user's, where that is known.
pub fn blamed<'a>(at: &'a Location<'a>) -> &'a Location<'a> {
    BLAMED.get().filter(|[thrown, _]| *thrown == at).map_or(at, |[_, user]| user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_crates_of_a_workspace_are_the_library() {
        for root in ["", "/home/u/torchrs/"] {
            let own = format!("{root}crates/error/src/within.rs");
            let at = |path: &str| is_sibling(&own, &format!("{root}{path}"));
            for path in
                ["src/ops/matmul.rs", "crates/cpu/src/gemm/mod.rs", "crates/error/src/lib.rs"]
            {
                assert!(at(path), "{root}{path}");
            }
            for path in [
                "tests/nn/blame.rs",
                "examples/train/main.rs",
                "crates/error/tests/a.rs",
                "launcher/src/main.rs",
            ] {
                assert!(!at(path), "{root}{path}");
            }
        }
        // A user's own package beside a library that is elsewhere.
        assert!(!is_sibling("/home/u/torchrs/crates/error/src/within.rs", "src/main.rs"));
        assert!(!is_sibling(
            "/home/u/torchrs/crates/error/src/within.rs",
            "/home/u/mine/src/main.rs"
        ));
    }

    #[test]
    fn all_packages_side_by_side_are_the_library() {
        for (root, version) in
            [("/home/u/.cargo/registry/src/index/", "-0.1.0"), ("/home/u/mine/vendor/", "")]
        {
            let own = format!("{root}torchrs-error{version}/src/within.rs");
            let at = |path: &str| is_sibling(&own, &format!("{root}{path}"));
            for name in ["torchrs", "torchrs-cpu", "torchrs-error"] {
                assert!(at(&format!("{name}{version}/src/lib.rs")), "{name}");
            }
            assert!(!at("serde-1.0.0/src/lib.rs"));
            assert!(!at("torch/src/lib.rs"));
            assert!(!is_sibling(&own, "src/main.rs"));
        }
        // Where the package itself is what is built.
        assert!(is_sibling("src/within.rs", "src/lib.rs"));
        assert!(!is_sibling("src/within.rs", "tests/a.rs"));
    }

    #[test]
    fn this_file_is_the_library() {
        assert!(is_library(Location::caller()));
    }
}
