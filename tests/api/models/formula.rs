//! Weights and inputs made from names and indices, as `tools/golden/export-models.py` makes them, and the
//! comparison with what it recorded.

use serde_json::Value;
use torchrs::nn::{Module, StateDict};
use torchrs::{Dtype, Tensor, no_grad};

/// Numbers in [-1, 1) with 24 bits: splitmix64 with the FNV-1a hash of `name` as its seed.
pub fn units(name: &str) -> impl Iterator<Item = f64> {
    let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
    (1u64..).map(move |i| {
        let z = seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f64 / f64::from(1 << 23) - 1.0
    })
}

/// What the entry `name` of a state dict holds.
fn values(name: &str, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let fan_in = count / shape.first().copied().unwrap_or(1).max(1);
    let (centre, spread) = match shape.len() {
        _ if name.ends_with("running_var") => (1.0, 0.5),
        2.. => (0.0, (6.0 / fan_in as f64).sqrt()),
        _ if name.ends_with("weight") => (1.0, 0.25),
        _ => (0.0, 0.25),
    };
    let values: Vec<f32> = units(name).take(count).map(|u| (centre + spread * u) as f32).collect();
    Tensor::from_slice(&values, shape)
}

/// Converts `model` to `dtype` and gives it its weights, by way of a state dict.
pub fn fill<M: Module>(mut model: M, dtype: Dtype) -> M {
    model.to(dtype);
    let fresh = |(name, tensor): (String, Tensor)| {
        let value = match tensor.dtype().is_floating_point() {
            true => values(&name, tensor.shape()),
            false => tensor.zeros_like(),
        };
        (name, value)
    };
    let state: StateDict = model.state_dict().into_iter().map(fresh).collect();
    model.load_state_dict(&state, true).expect("its own names and shapes");
    model
}

/// Such numbers as a tensor.
pub fn noise(name: &str, shape: &[usize], dtype: Dtype) -> Tensor {
    let values: Vec<f64> = units(name).take(shape.iter().product()).collect();
    Tensor::from_slice(&values, shape).to_dtype(dtype)
}

/// Integers from 0 to `vocabulary`.
pub fn tokens(name: &str, shape: &[usize], vocabulary: usize) -> Tensor {
    let token = |u: f64| ((u + 1.0) / 2.0 * vocabulary as f64).floor() as i64;
    let values: Vec<i64> = units(name).take(shape.iter().product()).map(token).collect();
    Tensor::from_slice(&values, shape)
}

/// The recorded numbers of a model.
pub fn recorded(model: &str) -> Value {
    let text = include_str!("numbers.json");
    let mut all: Value = serde_json::from_str(text).expect("the script writes JSON");
    all[model].take()
}

pub fn list(value: &Value) -> Vec<f64> {
    let number = |v: &Value| v.as_f64().expect("a number");
    value.as_array().expect("a list").iter().map(number).collect()
}

/// How much f64 and f32 may differ from the record, in units of the numbers' size. In f32 a sum that is
/// rounded otherwise moves a number across a ReLU's kink now and then, and one unit's gradient comes or goes:
/// of `resnext_dilated` with inputs moved by 6e-8 two thirds are within 5e-6 of the record and the others
/// jump, by up to 1.5e-3.
pub fn tolerance(dtype: Dtype) -> f64 {
    if dtype == Dtype::F64 { 1e-9 } else { 3e-3 }
}

#[track_caller]
pub fn same_output(what: &str, got: &Tensor, want: &Value) {
    let (values, want) = (got.to_vec::<f64>(), list(want));
    assert_eq!(values.len(), want.len(), "{what}");
    let size = want.iter().fold(0f64, |m, w| m.max(w.abs()));
    let error = values.iter().zip(&want).fold(0f64, |m, (g, w)| m.max((g - w).abs()));
    // Not `>`, which lets NaN pass.
    assert!(error <= tolerance(got.dtype()) * size, "{what}: off by {error} of {size}: {values:?}");
}

/// Norms and products with fixed numbers of named tensors.
#[track_caller]
fn same_probes(what: &str, got: &[(String, Tensor)], want: &Value) {
    let want = want.as_object().expect("a table");
    let mut names: Vec<&str> = got.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let mut expected: Vec<&str> = want.keys().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(names, expected, "{what}");
    let largest = want.values().fold(0f64, |m, probe| m.max(list(probe)[0]));
    for (name, tensor) in got {
        let values = tensor.to_vec::<f64>();
        let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let product: f64 =
            values.iter().zip(units(&format!("{name}.probe"))).map(|(v, u)| v * u).sum();
        let want = list(&want[name]);
        // Some gradients are 0 but for rounding: that of a bias before a batch norm.
        let allowed = tolerance(tensor.dtype()) * (want[0] + 0.01 * largest);
        for (got, want) in [norm, product].iter().zip(&want) {
            assert!((got - want).abs() <= allowed, "{what}, {name}: {got}, not {want}");
        }
    }
}

/// Compares outputs, all gradients and, in training, buffers with the record. `inputs` are those
/// with a gradient.
#[track_caller]
pub fn same_as_recorded<M: Module>(
    what: &str,
    model: &M,
    output: &Tensor,
    inputs: &[(&str, &Tensor)],
    case: &Value,
) {
    same_output(what, output, &case["output"]);
    (output * noise("loss", output.shape(), output.dtype())).sum().backward();
    same_gradients(what, model, inputs, &case["grads"]);
    let buffers = match model.is_training() {
        true => no_grad(|| {
            let real = |(name, b): (String, Tensor)| (name, b.to_dtype(output.dtype()));
            model.named_buffers().into_iter().map(real).collect()
        }),
        false => Vec::new(),
    };
    if !buffers.is_empty() {
        same_probes(&format!("buffers of {what}"), &buffers, &case["buffers"]);
    }
}

#[track_caller]
pub fn same_gradients<M: Module>(what: &str, model: &M, inputs: &[(&str, &Tensor)], want: &Value) {
    let inputs = inputs.iter().map(|&(name, x)| (name.to_owned(), x.clone()));
    let grads: Vec<(String, Tensor)> = model
        .named_parameters()
        .into_iter()
        .chain(inputs)
        .filter_map(|(name, p)| p.grad().map(|grad| (name, grad)))
        .collect();
    same_probes(&format!("gradients of {what}"), &grads, want);
}
