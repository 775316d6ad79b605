//! From a formula's Rust text to CUDA C: numbers and constants become values of the compute type `C`,
//! functions get the prefix that they have in `kernels/formula.cuh`. Where each function is, the table says
//! (`loops/functions.rs`).

use crate::kernel_text;
use crate::kernels::module::Program;
use std::fmt::Write;

use torchrs_loops::{Compute, Cuda, FUNCTIONS, Text};

/// The program of a formula for a compute type, without the prelude.
pub(crate) fn program(text: &Text, compute: Compute) -> String {
    function(text, compute) + kernel_text!("walk.cuh", "pointwise.cuh")
}

/// The program of such a text, behind the prelude.
pub(crate) fn compiled(source: String) -> Program {
    Program::owned("pointwise", kernel_text!("prelude.cuh"), source)
}

/// The formula as a function, and what it needs.
pub(crate) fn function(text: &Text, compute: Compute) -> String {
    let (flag, c) = match compute {
        Compute::F32 => ("COMPUTE_F32", "float"),
        Compute::F64 => ("COMPUTE_F64", "double"),
        Compute::I64 => ("COMPUTE_I64", "i64"),
    };
    let outputs = text.written.len().max(1);
    let mut out = format!(
        "#define {flag} 1\ntypedef {c} C;\n{}\n#define OUTPUTS {outputs}\n#define INPUTS {}\n#define PARAMS {}\n#define UPDATE {}\n",
        kernel_text!("formula.cuh"),
        text.inputs.len(),
        text.params.len(),
        !text.written.is_empty() as u32,
    );
    let body = expression(text.body, compute);
    define_called(&mut out, &body, compute);
    out.push_str(
        "__device__ __forceinline__ void evaluate(C* out, const C* in, const C* param) {\n",
    );
    for (k, name) in text.inputs.iter().enumerate() {
        line(&mut out, format_args!("    C v_{name} = in[{k}];"));
    }
    for (k, name) in text.params.iter().enumerate() {
        line(&mut out, format_args!("    C v_{name} = param[{k}];"));
    }
    for (k, name) in text.locals.iter().enumerate() {
        if !text.locals[..k].contains(name) {
            line(&mut out, format_args!("    C v_{name};"));
        }
    }
    if text.written.is_empty() {
        line(&mut out, format_args!("    out[0] = (C)({body});"));
    } else {
        line(&mut out, format_args!("    {body}"));
        for (k, name) in text.written.iter().enumerate() {
            line(&mut out, format_args!("    out[{k}] = v_{name};"));
        }
    }
    out.push_str("}\n");
    out
}

/// Functions that the table alone has, and the file of special ones, which few formulas need.
fn define_called(out: &mut String, body: &str, compute: Compute) {
    let called = FUNCTIONS.iter().filter(|f| body.contains(&format!("t_{}(", f.name)));
    if called.clone().any(|f| matches!(f.cuda, Cuda::Special | Cuda::SpecialFormula)) {
        out.push_str(kernel_text!("special.cuh"));
    }
    if called.clone().any(|f| f.cuda == Cuda::Bessel) {
        out.push_str(kernel_text!("bessel.cuh"));
    }
    if called.clone().any(|f| f.cuda == Cuda::IncompleteGamma) {
        out.push_str(kernel_text!("incomplete_gamma.cuh"));
    }
    if called.clone().any(|f| f.cuda == Cuda::Polynomial) {
        out.push_str(kernel_text!("polynomials.cuh"));
    }
    if compute == Compute::I64 {
        return;
    }
    for function in called {
        match function.cuda {
            Cuda::Math => line(out, format_args!("ONE({})", function.name)),
            Cuda::Special => line(out, format_args!("SPECIAL({})", function.name)),
            Cuda::Bessel => line(out, format_args!("BESSEL({})", function.name)),
            Cuda::Formula | Cuda::SpecialFormula | Cuda::IncompleteGamma | Cuda::Polynomial => {}
        }
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes all text");
}

/// The same expression, or assignments, in CUDA C.
fn expression(text: &str, compute: Compute) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(2 * text.len());
    let mut at = 0;
    while at < bytes.len() {
        let first = bytes[at];
        let start = at;
        if first.is_ascii_digit() {
            at = end_of_number(bytes, at);
            let digits: String = text[start..at].chars().filter(|&c| c != '_').collect();
            out += &format!("C({digits})");
        } else if first == b'_' || first.is_ascii_alphabetic() {
            while at < bytes.len() && (bytes[at] == b'_' || bytes[at].is_ascii_alphanumeric()) {
                at += 1;
            }
            let name = &text[start..at];
            let called = text[at..].trim_start().starts_with('(');
            let constant =
                name.bytes().all(|b| b == b'_' || b.is_ascii_uppercase() || b.is_ascii_digit());
            out += &match (called, constant) {
                (true, _) => format!("t_{name}"),
                (_, true) => format!("C(T_{name})"),
                _ => format!("v_{name}"),
            };
        } else if first == b'!' && compute == Compute::I64 && is_number(&text[at + 1..]) {
            out.push('~');
            at += 1;
        } else if first == b'/' && compute == Compute::I64 {
            // The divisor may be 0: not the language's division, in an operator that binds as tightly.
            out.push_str("* t_over *");
            at += 1;
        } else {
            out.push(first as char);
            at += 1;
        }
    }
    out
}

/// Whether what follows a `!` is a number and not a truth value, which is a comparison's.
fn is_number(text: &str) -> bool {
    let name = text.trim_start();
    let rest = name.trim_start_matches(|c: char| c == '_' || c.is_ascii_alphanumeric());
    rest.len() < name.len() && !rest.trim_start().starts_with('(')
}

/// Where the number that begins at `at` ends: digits, a fraction, an exponent.
fn end_of_number(bytes: &[u8], mut at: usize) -> usize {
    let digits = |at: &mut usize| {
        while *at < bytes.len() && (bytes[*at].is_ascii_digit() || bytes[*at] == b'_') {
            *at += 1;
        }
    };
    digits(&mut at);
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at += 1;
        digits(&mut at);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = matches!(bytes.get(at + 1), Some(b'+' | b'-')) as usize;
        if bytes.get(at + 1 + sign).is_some_and(u8::is_ascii_digit) {
            at += 1 + sign;
            digits(&mut at);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_functions_are_in_the_kernels_files() {
        for f in FUNCTIONS {
            let (file, text) = match f.cuda {
                Cuda::Math => continue,
                Cuda::Formula => (kernel_text!("formula.cuh"), format!(" t_{}(C ", f.name)),
                Cuda::Special => (
                    kernel_text!("special.cuh"),
                    format!("__device__ inline double special_{}(double ", f.name),
                ),
                Cuda::SpecialFormula => (kernel_text!("special.cuh"), format!(" t_{}(C ", f.name)),
                Cuda::Bessel => (
                    kernel_text!("bessel.cuh"),
                    format!("__device__ inline double special_{}(double ", f.name),
                ),
                Cuda::IncompleteGamma => {
                    (kernel_text!("incomplete_gamma.cuh"), format!(" t_{}(C ", f.name))
                }
                Cuda::Polynomial => (kernel_text!("polynomials.cuh"), format!(" t_{}(C ", f.name)),
            };
            assert!(file.contains(&text), "{f:?}: no `{text}` in its file in kernels/");
        }
    }

    #[test]
    fn programs_have_the_functions_that_they_call() {
        let of = |body| {
            let text = Text { inputs: &["x"], params: &[], locals: &[], written: &[], body };
            function(&text, Compute::F32)
        };
        let (plain, special) = (of("x * tanh(x)"), of("ndtri(x)"));
        assert!(plain.contains("\nONE(tanh)\n") && !plain.contains("ONE(exp)"));
        assert!(!plain.contains("special_ndtri"));
        assert!(special.contains("\nSPECIAL(ndtri)\n") && special.contains("special_ndtri(double"));
    }

    #[test]
    fn numbers_names_and_calls() {
        let cases = [
            ("select(gt(x, 0.0), x, x * slope)", "t_select(t_gt(v_x, C(0.0)), v_x, v_x * v_slope)"),
            ("0.398_942 * x + 1e-6 * x1", "C(0.398942) * v_x + C(1e-6) * v_x1"),
            ("x * FRAC_1_SQRT_2 - 2.5e+3", "v_x * C(T_FRAC_1_SQRT_2) - C(2.5e+3)"),
            ("b = m * b; p = p - lr * b;", "v_b = v_m * v_b; v_p = v_p - v_lr * v_b;"),
        ];
        for (rust, cuda) in cases {
            assert_eq!(expression(rust, Compute::F32), cuda);
        }
        assert_eq!(expression("-x / y", Compute::I64), "-v_x * t_over * v_y");
        assert_eq!(expression("!x & !lt(x, y)", Compute::I64), "~v_x & !t_lt(v_x, v_y)");
    }
}
