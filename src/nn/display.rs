//! Modules as text, in the form of Python's `repr(module)`.

use super::Module;
use super::walk::own_fields;

/// `Name(extra)` without modules inside, else a line for each of them.
pub(super) fn repr<M: Module + ?Sized>(module: &M) -> String {
    let name = module.name();
    let extra = module.extra_repr();
    let children: Vec<(String, String)> =
        own_fields(module).modules.into_iter().map(|(name, m)| (name, m.repr())).collect();
    if children.is_empty() && !extra.contains('\n') {
        return format!("{name}({extra})");
    }
    let mut lines: Vec<String> = extra.lines().map(str::to_owned).collect();
    lines.extend(if name == "ModuleList" { runs(&children) } else { plain(&children) });
    format!("{name}(\n  {}\n)", lines.join("\n").replace('\n', "\n  "))
}

fn plain(children: &[(String, String)]) -> Vec<String> {
    children.iter().map(|(name, text)| format!("({name}): {text}")).collect()
}

/// Neighbours with equal text in one line: `(0-3): 4 x Linear(...)`.
fn runs(children: &[(String, String)]) -> Vec<String> {
    children
        .chunk_by(|(_, a), (_, b)| a == b)
        .map(|run| match run {
            [(name, text)] => format!("({name}): {text}"),
            [(first, text), .., (last, _)] => {
                format!("({first}-{last}): {} x {text}", run.len())
            }
            [] => unreachable!("chunks are not empty"),
        })
        .collect()
}

/// A number as Python prints it: `0.1`, `1.0`, `1e-05`.
pub(super) fn python_float(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_finite() && magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').expect("an exponent was asked for");
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    if value.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}

/// `True` or `False`.
pub(super) fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// `(3, 3)`, `(3,)`.
pub(super) fn python_tuple(sizes: &[usize]) -> String {
    match sizes {
        [size] => format!("({size},)"),
        _ => {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            format!("({})", sizes.join(", "))
        }
    }
}

/// `2` for equal sizes, else `(3, 2)`.
pub(super) fn python_size(sizes: &[usize]) -> String {
    let same = sizes.iter().all(|size| *size == sizes[0]);
    if same { sizes[0].to_string() } else { python_tuple(sizes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_python() {
        for (value, text) in [
            (0.1, "0.1"),
            (1.0, "1.0"),
            (0.0, "0.0"),
            (1e-5, "1e-05"),
            (-1.5e-12, "-1.5e-12"),
            (1e-4, "0.0001"),
            (1e16, "1e+16"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }
}
