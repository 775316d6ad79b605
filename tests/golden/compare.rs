//! What came back against what was recorded.

use std::collections::BTreeMap;

use serde_json::Value;
use torchrs::{Complex, Device, Tensor};

use crate::arg::{Arg, dtype};
use crate::case::Case;
use crate::ties::Ties;

/// Absolute and relative tolerance.
#[derive(Clone, Copy, Default)]
pub struct Tolerance {
    pub atol: f64,
    pub rtol: f64,
}

impl Tolerance {
    pub fn of(value: &Value) -> Self {
        let get = |key: &str| value.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        Tolerance { atol: get("atol"), rtol: get("rtol") }
    }

    pub fn at_least(self, bound: f64) -> Self {
        Tolerance { atol: self.atol.max(bound), rtol: self.rtol.max(bound) }
    }

    /// Whether two numbers agree: NaN with NaN, an infinity with itself only.
    pub fn near(self, got: f64, want: f64) -> bool {
        let same = got == want || (got.is_nan() && want.is_nan());
        same || want.is_finite() && (got - want).abs() <= self.atol + self.rtol * want.abs()
    }
}

/// Elementwise, NaN equal to NaN.
pub fn numbers(what: &str, got: &Tensor, want: &Tensor, tol: Tolerance) -> Result<(), String> {
    if got.shape() != want.shape() {
        return Err(format!("{what}: shape {:?}, expected {:?}", got.shape(), want.shape()));
    }
    if got.is_complex() && want.is_complex() {
        let (g, w) = (got.to_vec::<Complex<f64>>(), want.to_vec::<Complex<f64>>());
        let far = |(g, w): (&Complex<f64>, &Complex<f64>)| {
            !same_number(g.re, w.re, w.norm(), tol) || !same_number(g.im, w.im, w.norm(), tol)
        };
        return match g.iter().zip(&w).position(far) {
            None => Ok(()),
            Some(i) => Err(format!("{what}: element {i} is {}, expected {}", g[i], w[i])),
        };
    }
    if !got.dtype().is_floating_point() && !want.dtype().is_floating_point() {
        let (g, w) = (got.to_vec::<i64>(), want.to_vec::<i64>());
        return match g.iter().zip(&w).position(|(g, w)| g != w) {
            None => Ok(()),
            Some(i) => Err(format!("{what}: element {i} is {}, expected {}", g[i], w[i])),
        };
    }
    for (i, (g, w)) in got.to_vec::<f64>().into_iter().zip(want.to_vec::<f64>()).enumerate() {
        if !tol.near(g, w) {
            return Err(format!("{what}: element {i} is {g}, expected {w}"));
        }
    }
    Ok(())
}

/// A part of a complex number of size `norm`.
fn same_number(got: f64, want: f64, norm: f64, tol: Tolerance) -> bool {
    let same = got == want || (got.is_nan() && want.is_nan());
    same || want.is_finite() && (got - want).abs() <= tol.atol + tol.rtol * norm
}

/// A result (tree) against `case.result`. Gives the output tensors by name.
pub fn results(
    case: &Case,
    got: &Arg,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<BTreeMap<String, Tensor>, String> {
    let mut outputs = BTreeMap::new();
    tree(case, "result", got, &case.json["result"], inputs, &mut outputs)?;
    Ok(outputs)
}

fn tree(
    case: &Case,
    what: &str,
    got: &Arg,
    want: &Value,
    inputs: &BTreeMap<String, Tensor>,
    outputs: &mut BTreeMap<String, Tensor>,
) -> Result<(), String> {
    let differs = || Err(format!("{what}: got {got:?}, expected {want}"));
    if let Some(name) = want.get("tensor").and_then(Value::as_str) {
        let Arg::Tensor(t) = got else { return differs() };
        outputs.insert(name.into(), t.clone());
        return output(case, name, t, inputs);
    }
    if let Some(name) = want.get("dtype").and_then(Value::as_str) {
        let same = matches!(got, Arg::Dtype(d) if d.is_some() && *d == dtype(name));
        return if same { Ok(()) } else { differs() };
    }
    if let Some(size) = want.get("size") {
        return tree(case, what, got, size, inputs, outputs);
    }
    let tol = Tolerance::of(&case.json["tol"]);
    let same = match (got, want) {
        (Arg::List(got), Value::Array(want)) if got.len() == want.len() => {
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                tree(case, &format!("{what}[{i}]"), got, want, inputs, outputs)?;
            }
            true
        }
        (Arg::None, Value::Null) => true,
        (Arg::Bool(g), Value::Bool(w)) => g == w,
        (Arg::Str(g), Value::String(w)) => g == w,
        (Arg::Int(g), Value::Number(w)) => w.as_i64() == Some(*g),
        (Arg::Float(g), Value::Number(w)) => w.as_f64().is_some_and(|w| tol.near(*g, w)),
        (Arg::Float(g), Value::Object(_)) => {
            let w = want.get("float").and_then(Value::as_str).and_then(|w| w.parse().ok());
            w.is_some_and(|w| tol.near(*g, w))
        }
        _ => false,
    };
    if same { Ok(()) } else { differs() }
}

/// One output against its entry in the case.
pub fn output(
    case: &Case,
    name: &str,
    got: &Tensor,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<(), String> {
    let entry = case.json["outputs"].as_array().into_iter().flatten();
    let entry = entry.clone().find(|o| o["name"] == name).expect("every output is described");
    let want = case.tensor_like(entry["key"].as_str().expect("a key"), got);
    let expected = entry["dtype"].as_str().and_then(dtype);
    if Some(got.dtype()) != expected {
        return Err(format!("{name}: type {}, expected {}", got.dtype(), entry["dtype"]));
    }
    on_device(case, name, got)?;
    // Of the two outputs of such an op the second one has the places.
    let ties = if name == "out1" { Ties::of(case, inputs) } else { None };
    if let Some(ties) = ties {
        return ties.same_places(got, &want).map_err(|why| format!("{name}: {why}"));
    }
    let plain = |t: &Tensor| torchrs::no_grad(|| if squared(case) { t * t } else { t.detach() });
    numbers(name, &plain(got), &plain(&want), Tolerance::of(&case.json["tol"]))?;
    match entry["alias_of"].as_str() {
        Some(base) => view_of(name, got, base, &inputs[base], entry),
        None => match inputs.iter().find(|(_, x)| x.storage().ptr_eq(got.storage())) {
            Some((base, _)) if got.numel() > 0 && records_views(case) => {
                Err(format!("{name}: shares memory with {base}, expected a copy"))
            }
            _ => Ok(()),
        },
    }
}

/// What takes no options, and is on the host where no tensor says otherwise.
const ON_HOST: [&str; 4] = ["arange", "llm.alibi_slopes", "tril_indices", "triu_indices"];
/// Of these all but the first result are lists here, of which the runner makes tensors.
const LISTS: [&str; 3] = ["pack_padded_sequence", "pack_sequence", "pad_packed_sequence"];

/// A result that is silently elsewhere than the call was made is wrong, whatever its numbers.
pub fn on_device(case: &Case, what: &str, got: &Tensor) -> Result<(), String> {
    let is_list = what != "out0" && LISTS.iter().any(|name| case.op().ends_with(name));
    let (got, wanted) = (got.device(), case.device());
    if got == wanted || is_list || got == Device::Cpu && ON_HOST.contains(&case.op()) {
        return Ok(());
    }
    Err(format!("{what}: on {got}, expected on {wanted}"))
}

/// Whether a case says which results are views: programs and distributions do not.
fn records_views(case: &Case) -> bool {
    !matches!(case.kind(), "program" | "distribution" | "kl_divergence" | "transform")
}

/// Whether `got` is the recorded view of the input `base`.
fn view_of(
    name: &str,
    got: &Tensor,
    base_name: &str,
    base: &Tensor,
    entry: &Value,
) -> Result<(), String> {
    // No element, no place.
    if got.numel() == 0 {
        return Ok(());
    }
    if !got.storage().ptr_eq(base.storage()) {
        return Err(format!("{name}: a copy, expected a view of {base_name}"));
    }
    let strides = entry["stride"].as_array().into_iter().flatten();
    let strides: Vec<i64> = strides.filter_map(Value::as_i64).collect();
    let moves = |d: usize| got.shape()[d] > 1 && got.strides()[d] as i64 != strides[d];
    if strides.len() != got.dim() || (0..got.dim()).any(moves) {
        return Err(format!("{name}: strides {:?}, expected {strides:?}", got.strides()));
    }
    let offset = got.storage_offset() as i64 - base.storage_offset() as i64;
    match entry["offset"].as_i64() {
        Some(want) if want != offset => {
            Err(format!("{name}: starts {offset} after {base_name}, expected {want}"))
        }
        _ => Ok(()),
    }
}

/// Eigenvectors and the like are fixed up to sign: their squares are compared.
pub fn squared(case: &Case) -> bool {
    case.json["post"] == "square"
}
