//! Parts of programs. A program of many entry points takes seconds to compile, and a step uses one or two of them. So a
//! text may say which of its entry points belong together:
//!
//! ```text
//! #if !PARTED || PART_f32
//! RANDOM(f32, float)
//! #endif
//! ```
//!
//! An entry point is of the part whose name it has, or begins or ends with (`f32_a`, `a_f32`), and of the longest such name.
//! A part is compiled with `PARTED` and its own name defined, at its first use; what has no `#if` is in all of them.

use std::collections::HashMap;

use parking_lot::RwLock;

use crate::kernels::module::Program;

const MARK: &str = "!PARTED || PART_";

/// The parts of a program.
pub(super) struct Parts {
    names: Vec<String>,
    made: RwLock<HashMap<String, &'static Program>>,
}

impl Parts {
    /// Of a program's text.
    pub(super) fn of(text: &str) -> Parts {
        let name = |rest: &str| {
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            rest[..end.unwrap_or(rest.len())].to_owned()
        };
        let mut names: Vec<String> = text.split(MARK).skip(1).map(name).collect();
        names.sort_unstable();
        names.dedup();
        Parts { names, made: RwLock::default() }
    }

    /// The part with an entry point.
    pub(super) fn part_with(&self, entry: &str) -> Option<&str> {
        let has = |part: &str| {
            entry == part
                || entry.strip_prefix(part).is_some_and(|rest| rest.starts_with('_'))
                || entry.strip_suffix(part).is_some_and(|rest| rest.ends_with('_'))
        };
        let with = self.names.iter().map(String::as_str).filter(|part| has(part));
        with.max_by_key(|part| part.len())
    }

    pub(super) fn named(&self, name: &str) -> Option<&str> {
        self.names.iter().map(String::as_str).find(|part| *part == name)
    }

    /// The program of a part, made at its first use.
    pub(super) fn program(&self, part: &str, make: impl FnOnce() -> Program) -> &'static Program {
        if let Some(program) = self.made.read().get(part) {
            return program;
        }
        let mut made = self.made.write();
        // Lives as long as the process, as a static would.
        made.entry(part.to_owned()).or_insert_with(|| Box::leak(Box::new(make())))
    }
}

/// The line by which lists name a part of a program.
pub(super) fn recipe(whole: &str, part: &str) -> String {
    format!("{whole} #{part}")
}

/// The program's line and the part of such a line.
pub(super) fn parsed(line: &str) -> Option<(&str, &str)> {
    line.rsplit_once(" #")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_point_is_of_the_longest_part_whose_name_it_has() {
        let text = "#if !PARTED || PART_f32\nA\n#endif\n#if X && (!PARTED || PART_rows)\n#if !PARTED || PART_rows_wide\n\
                    #if !PARTED || PART_f32";
        let parts = Parts::of(text);
        assert_eq!(parts.names, ["f32", "rows", "rows_wide"]);
        for (entry, part) in [
            ("uniform_f32", Some("f32")),
            ("rows", Some("rows")),
            ("rows_wide", Some("rows_wide")),
            ("rows_wide_f32", Some("rows_wide")),
            ("rows_short", Some("rows")),
            ("uniform_bf32", None),
            ("rowsum", None),
        ] {
            assert_eq!(parts.part_with(entry), part, "{entry}");
        }
        assert!(Parts::of("PART_x").part_with("x").is_none());
    }

    #[test]
    fn a_part_is_a_program_of_the_same_text_with_options_of_its_own() {
        const TEXT: &str = "#if !PARTED || PART_f32\nf\n#endif\n";
        let program = Program::new("p", "", TEXT).options(&["--fmad=false"]);
        let part = program.part_with("a_f32");
        assert_eq!(
            (part.text(), part.recipe()),
            (program.text(), "p --fmad=false #f32".to_owned())
        );
        assert_eq!(
            part.own_options(),
            ["--fmad=false", "--define-macro=PARTED=1", "--define-macro=PART_f32=1"]
        );
        assert!(std::ptr::eq(part, program.part_with("b_f32")));
        assert!(std::ptr::eq(program.part_with("other"), &raw const program));
        assert_eq!(parsed(&part.recipe()), Some(("p --fmad=false", "f32")));
        assert!(program.part("f32").is_some() && program.part("f64").is_none());
    }
}
