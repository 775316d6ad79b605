//! A formula's program as a line of text, by which another process makes the same program: the formula itself, the type
//! that it computes in, and for operands of certain types their form.

use torchrs_loops::{Compute, Text};

use super::{packed, programs};
use crate::kernels::module::Program;

/// How such a line begins.
pub(crate) const RECIPE: &str = "formula\t";

const COMPUTES: [(&str, Compute); 3] =
    [("f32", Compute::F32), ("f64", Compute::F64), ("i64", Compute::I64)];

/// The line of a formula's program; `form` is empty for the one that takes all operands.
pub(super) fn line(text: &Text, compute: Compute, form: &str) -> String {
    let (compute, _) = COMPUTES[COMPUTES.iter().position(|(_, of)| *of == compute).unwrap_or(0)];
    let names = |names: &[&str]| names.join(",");
    let parts = [
        compute,
        form,
        &names(text.inputs),
        &names(text.params),
        &names(text.locals),
        &names(text.written),
        &text.body.replace('\\', "\\\\").replace('\n', "\\n"),
    ];
    format!("{RECIPE}{}", parts.join("\t"))
}

/// The program of a line; none where it is not one.
pub(crate) fn program_of(line: &str) -> Option<Program> {
    let parts: Vec<&str> = line.strip_prefix(RECIPE)?.splitn(7, '\t').collect();
    let [compute, form, inputs, params, locals, written, body] = parts[..] else { return None };
    let (_, compute) = *COMPUTES.iter().find(|(name, _)| *name == compute)?;
    // Texts live as long as the process, as those of statics do.
    let names = |list: &str| -> &'static [&'static str] {
        let names = list.split(',').filter(|name| !name.is_empty());
        names.map(|name| &*name.to_owned().leak()).collect::<Vec<_>>().leak()
    };
    let text = Text {
        inputs: names(inputs),
        params: names(params),
        locals: names(locals),
        written: names(written),
        body: unescaped(body).leak(),
    };
    match form {
        "" => Some(programs::source(&text, compute)),
        form => Some(packed::Form::read(form)?.program(&text, compute)),
    }
}

fn unescaped(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    let mut letters = body.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.as_str().starts_with('n') => {
                letters.next();
                out.push('\n');
            }
            '\\' => out.extend(letters.next()),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::pointwise::source_for;
    use torchrs_loops::Format;

    const TEXT: Text = Text {
        inputs: &["x", "y"],
        params: &["slope"],
        locals: &[],
        written: &[],
        body: "select(gt(x, 0.0),\n x, y * slope)",
    };

    #[test]
    fn a_line_makes_the_same_program_again() {
        for compute in [Compute::F32, Compute::F64, Compute::I64] {
            let program = programs::source(&TEXT, compute);
            let again = program_of(&program.recipe()).unwrap();
            assert_eq!((program.text(), program.recipe()), (again.text(), again.recipe()));
        }
        let update = Text { locals: &["a"], written: &["x"], body: "a = y; x = a;", ..TEXT };
        let program = programs::source(&update, Compute::F32);
        assert_eq!(program.text(), program_of(&program.recipe()).unwrap().text());
    }

    #[test]
    fn a_line_has_the_form_of_the_operands() {
        let formats = [Format::Bool, Format::BF16, Format::U8];
        let program = source_for(&TEXT, Compute::F32, 1, &formats).unwrap();
        let again = program_of(&program.recipe()).unwrap();
        assert_eq!((program.text(), program.recipe()), (again.text(), again.recipe()));
        assert_ne!(program.text(), programs::source(&TEXT, Compute::F32).text());
        assert!(!program.recipe().contains('\n'), "{}", program.recipe());
    }

    #[test]
    fn what_is_no_line_of_a_formula_makes_no_program() {
        let good = programs::source(&TEXT, Compute::F32).recipe();
        let bad = [good.replace("f32", "f17"), good.replace("f32\t", "f32\t3x"), "fill".to_owned()];
        for line in bad.iter().map(String::as_str).chain([&good[..12], RECIPE]) {
            assert!(program_of(line).is_none(), "{line}");
        }
    }
}
