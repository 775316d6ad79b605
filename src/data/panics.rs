//! Runs a dataset's code so that its panic becomes text: message, place and the dataset's own part of
//! the backtrace. Without this, a trainer would only learn that a worker is gone.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::error::{install_hook, panic_message};

thread_local! {
    /// True while the user's code runs on this thread on a loader's behalf.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    /// Where a panic inside that code happened: place and backtrace.
    static PANICKED: RefCell<Option<(String, Backtrace)>> = const { RefCell::new(None) };
}

/// The result of `f`, or what its panic said and where it was.
pub(super) fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    install_guard_hook();
    // What a panic that `f` catches itself leaves behind says nothing about the next one.
    PANICKED.set(None);
    let outer = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(outer);
    result.map_err(|payload| {
        let message = panic_message(&*payload);
        match PANICKED.take() {
            Some((place, backtrace)) => {
                let frames = own_frames(&backtrace.to_string());
                format!("panicked at {place}: {message}\nbacktrace:\n{frames}")
            }
            None => format!("panicked: {message}"),
        }
    })
}

/// Inside [`guarded`], panics are recorded with a backtrace and not printed. The hook goes in front
/// of those that are there.
fn install_guard_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        install_hook();
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                let place = info.location().map_or("an unknown place".into(), ToString::to_string);
                PANICKED.set(Some((place, Backtrace::force_capture())));
            } else {
                previous(info);
            }
        }));
    });
}

/// Marks of frames of this file, by source file or, without debug information, by path.
const HERE: [&str; 2] = ["src/data/panics.rs", "torchrs::data::panics::"];
/// Marks of the frames between a panic and this file's hook.
const MACHINERY: [&str; 8] = [
    "library/std/src/",
    "library/core/src/panicking.rs",
    "library/core/src/ops/function.rs",
    "library/alloc/src/boxed.rs",
    "std::",
    "core::panicking",
    "rust_begin_unwind",
    "<alloc::boxed::Box",
];

/// The frames of a printed backtrace between the panic machinery and [`guarded`]; all of the text
/// when there is nothing in between.
fn own_frames(text: &str) -> String {
    let mut frames: Vec<String> = Vec::new();
    for line in text.lines() {
        let number = line.trim_start().split(':').next().unwrap_or_default();
        match frames.last_mut() {
            Some(frame) if number.parse::<u32>().is_err() => {
                frame.push('\n');
                frame.push_str(line);
            }
            _ => frames.push(line.to_owned()),
        }
    }
    let has = |frame: &String, marks: &[&str]| marks.iter().any(|mark| frame.contains(mark));
    let machinery = |frame: &&String| has(frame, &HERE) || has(frame, &MACHINERY);
    let first = frames.iter().take_while(machinery).count();
    let own = frames[first..].iter().take_while(|frame| !has(frame, &HERE));
    let own: Vec<&str> = own.map(String::as_str).collect();
    if own.is_empty() { text.to_owned() } else { own.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn fails_deep_inside(n: usize) -> usize {
        if n == 0 {
            panic!("no {}", "luck")
        }
        fails_deep_inside(n - 1) + 1
    }

    #[test]
    fn a_panic_is_its_message_place_and_own_frames() {
        let text = guarded(|| fails_deep_inside(2)).unwrap_err();
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("panicked at src/data/panics.rs:"), "{first}");
        assert!(first.ends_with(": no luck"), "{first}");
        assert_eq!(guarded(|| 3), Ok(3));
    }

    #[test]
    fn frames_of_the_machinery_and_of_the_loader_are_cut() {
        let text = "   0: std::backtrace::Backtrace::force_capture\n   \
            1: {closure#0}\n             at ./src/data/panics.rs:50:1\n   \
            2: call\n             at /rustc/x/library/alloc/src/boxed.rs:1:1\n   \
            3: rust_begin_unwind\n   \
            4: decode\n             at ./examples/train.rs:12:5\n   \
            5: get\n             at ./examples/train.rs:9:5\n   \
            6: guarded\n             at ./src/data/panics.rs:30:1\n   \
            7: main\n";
        let expected = "   4: decode\n             at ./examples/train.rs:12:5\n   \
            5: get\n             at ./examples/train.rs:9:5";
        assert_eq!(own_frames(text), expected);
        assert_eq!(own_frames("disabled backtrace"), "disabled backtrace");
    }
}
