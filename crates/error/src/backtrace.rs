//! Cuts a backtrace down to the program's own part: the frames of the panic machinery above it and
//! of the runtime's start below it say nothing about the failure. The standard library marks both
//! borders, for its own printing, with two functions of known names.

use std::backtrace::Backtrace;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};

/// The innermost frame that is not panic machinery comes soon after this one.
const END: &str = "__rust_end_short_backtrace";
/// The program begins inside this one.
const BEGIN: &str = "__rust_begin_short_backtrace";

/// What may stand between [`END`] and the program's own code. Inlined frames have no path.
const MACHINERY: [&str; 10] = [
    "rust_begin_unwind",
    "core::panicking",
    "core::option",
    "core::result",
    "std::panicking",
    "begin_panic",
    "panic_any",
    "std::panic::panic_any",
    "torchrs_error::throw",
    "throw",
];

/// What `RUST_BACKTRACE` asks for below a panic's message, as the standard library has it: the program's
/// own frames, all for `full`, and once per process, where it is not set, that there is such a variable.
pub(super) fn asked_for() -> String {
    static TOLD: AtomicBool = AtomicBool::new(false);
    match env::var_os("RUST_BACKTRACE") {
        Some(value) if value == "full" => {
            format!("stack backtrace:\n{}", Backtrace::force_capture())
        }
        Some(value) if value != "0" => {
            format!("stack backtrace:\n{}", trimmed(&Backtrace::force_capture().to_string()))
        }
        _ if TOLD.swap(true, Ordering::Relaxed) => String::new(),
        _ => "note: run with `RUST_BACKTRACE=1` in the environment to see a backtrace\n".to_owned(),
    }
}

/// The frames of `text`, a printed `std::backtrace::Backtrace`, that belong to the program,
/// numbered from 0. The whole text when the borders are not found.
pub fn trimmed(text: &str) -> String {
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
    let Some(end) = frames.iter().position(|(name, _)| name.contains(END)) else {
        return text.to_owned();
    };
    let own = frames[end + 1..].iter().skip_while(|(name, _)| is_machinery(name));
    let own = own.take_while(|(name, _)| !name.contains(BEGIN));
    let mut out = String::new();
    for (i, (name, places)) in own.enumerate() {
        out += &format!("{i:4}: {name}\n");
        for place in places {
            out += place;
            out.push('\n');
        }
    }
    out
}

fn is_machinery(name: &str) -> bool {
    let name = name.trim_start_matches('<').trim_start_matches("__rustc::");
    MACHINERY.iter().any(|part| {
        name.strip_prefix(part)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Runs `f` below a frame that marks where the program's own code begins.
#[inline(never)]
pub fn __rust_begin_short_backtrace<T>(f: impl FnOnce() -> T) -> T {
    let result = f();
    // Keeps the call of `f` from becoming a jump, which would leave no frame.
    std::hint::black_box(());
    result
}

/// The function's name in a line like `  12: core::panicking::panic_fmt`.
fn function(line: &str) -> Option<&str> {
    let (number, name) = line.trim_start().split_once(": ")?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "   0: record_panic
             at ./src/multiprocessing/report.rs:264:30
   1: <alloc::boxed::Box<F,A> as core::ops::function::Fn<Args>>::call
   2: std::panicking::panic_with_hook
   3: std::sys::backtrace::__rust_end_short_backtrace::<std::panicking::begin_panic, !>
   4: std::panicking::begin_panic::<torchrs_error::Error>
   5: std::panic::panic_any::<torchrs_error::Error>
   6: torchrs_error::throw
   7: throw_away_the_batch
             at ./examples/train.rs:12:5
   8: core::ops::function::FnOnce::call_once
   9: std::sys::backtrace::__rust_begin_short_backtrace
  10: main
";

    #[test]
    fn keeps_the_programs_own_frames() {
        assert_eq!(
            trimmed(TEXT),
            "   0: throw_away_the_batch\n             at ./examples/train.rs:12:5\n   1: core::ops::function::FnOnce::call_once\n"
        );
    }

    #[test]
    fn unknown_text_is_left_whole() {
        assert_eq!(trimmed("unsupported backtrace"), "unsupported backtrace");
    }
}
