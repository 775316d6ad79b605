//! Cuts a backtrace down to the program's own part: the frames of the panic machinery above it and
//! of the runtime's start below it say nothing about the failure.

/// Above the failure: everything down to the last of these among the leading frames.
const MACHINERY: [&str; 13] = [
    "std::backtrace",
    "std::panicking",
    "std::sys::backtrace",
    "core::panicking",
    "rust_begin_unwind",
    "__rustc::",
    "core::option::unwrap_failed",
    "core::option::expect_failed",
    "core::result::unwrap_failed",
    "core::ops::function::Fn",
    "alloc::boxed::Box",
    "torchrs::error::throw",
    "torchrs::multiprocessing::report",
];

/// Below the failure: everything from the first of these on.
const START: [&str; 2] =
    ["std::sys::backtrace::__rust_begin_short_backtrace", "std::rt::lang_start"];

/// The frames of `text`, a printed `std::backtrace::Backtrace`, that belong to the program,
/// numbered from 0. The whole text when nothing would be left.
pub(super) fn trimmed(text: &str) -> String {
    let mut frames: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match function(line) {
            Some(name) => frames.push((name, Vec::new())),
            None => {
                if let Some((_, places)) = frames.last_mut() {
                    places.push(line);
                }
            }
        }
    }
    let is = |name: &str, list: &[&str]| {
        list.iter().any(|part| name.trim_start_matches('<').starts_with(part))
    };
    let first = frames.iter().take_while(|(name, _)| is(name, &MACHINERY)).count();
    let own: Vec<_> = frames[first..].iter().take_while(|(name, _)| !is(name, &START)).collect();
    if own.is_empty() {
        return text.to_owned();
    }
    let mut out = String::new();
    for (i, (name, places)) in own.iter().enumerate() {
        out += &format!("{i:4}: {name}\n");
        for place in places {
            out += place;
            out.push('\n');
        }
    }
    out
}

/// The function's name in a line like `  12: core::panicking::panic_fmt`.
fn function(line: &str) -> Option<&str> {
    let (number, name) = line.trim_start().split_once(": ")?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "   0: std::backtrace::Backtrace::force_capture
             at /rustc/x/library/std/src/backtrace.rs:1:2
   1: torchrs::multiprocessing::report::record_panic
   2: <alloc::boxed::Box<F,A> as core::ops::function::Fn<Args>>::call
   3: core::panicking::panic_fmt
   4: train::step
             at ./examples/train.rs:12:5
   5: core::ops::function::FnOnce::call_once
   6: std::sys::backtrace::__rust_begin_short_backtrace
   7: main
";

    #[test]
    fn keeps_the_programs_own_frames() {
        assert_eq!(
            trimmed(TEXT),
            "   0: train::step\n             at ./examples/train.rs:12:5\n   1: core::ops::function::FnOnce::call_once\n"
        );
    }

    #[test]
    fn unknown_text_is_left_whole() {
        assert_eq!(trimmed("unsupported backtrace"), "unsupported backtrace");
    }
}
