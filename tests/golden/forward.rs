//! Cases of one call: its result, its gradients, its second derivatives; and calls that must fail.

use std::collections::BTreeMap;

use serde_json::Value;
use torchrs::{Device, Dtype, Tensor, autograd};

use crate::arg::{Arg, Call, Stop};
use crate::case::Case;
use crate::compare::{self, Tolerance};
use crate::ops::Table;
use crate::report::Outcome;
use crate::ties::Ties;

pub type Named = BTreeMap<String, Tensor>;

pub fn run(table: &Table, case: &Case) -> Outcome {
    let must_fail = case.kind() == "error";
    let inputs = match case.inputs() {
        Ok(inputs) => inputs,
        Err(why) => return Outcome::NotImplemented(why),
    };
    match call(table, case, &inputs) {
        Err(Stop::NotImplemented(why)) => Outcome::NotImplemented(why),
        Err(Stop::Unwritable(_)) if must_fail => Outcome::Passed,
        Err(Stop::Unwritable(why)) => Outcome::NotImplemented(why),
        Ok(Err(error)) if must_fail => match meant(&error) {
            Ok(()) => Outcome::Passed,
            Err(why) => Outcome::Wrong(why),
        },
        Ok(Err(error)) => Outcome::Wrong(format!("error: {error}")),
        Ok(Ok(_)) if must_fail => {
            Outcome::Wrong(format!("no error, expected {}", case.json["message"]))
        }
        Ok(Ok(got)) => match check(case, &got, &inputs) {
            Ok(()) => Outcome::Passed,
            Err(why) => Outcome::Wrong(why),
        },
    }
}

/// Device and type of the `autocast` that a call is to be inside of.
fn precision(autocast: &Value) -> Option<(Device, Dtype)> {
    let device = autocast["device"].as_str()?.parse().expect("a device");
    let dtype = autocast["dtype"].as_str().and_then(crate::arg::dtype).expect("a dtype");
    Some((device, dtype))
}

/// Whether the library raised `error` on purpose. [`torchrs::Error::Other`] is what `catch` makes of
/// a plain panic: an index out of bounds, an `unwrap`, an assertion.
pub fn meant(error: &torchrs::Error) -> Result<(), String> {
    match error {
        torchrs::Error::Other(text) => {
            Err(format!("no error of the library's but a panic: {text}"))
        }
        _ if error.to_string().is_empty() => Err("an error without a message".into()),
        _ => Ok(()),
    }
}

/// Makes the call; the inner result is the library's.
fn call(table: &Table, case: &Case, inputs: &Named) -> Result<Result<Arg, torchrs::Error>, Stop> {
    let Arg::List(mut args) = case.decode(&case.json["args"], inputs) else {
        panic!("args is a list");
    };
    let named = case.json["kwargs"].as_object().into_iter().flatten();
    let named = named.map(|(name, value)| (name.clone(), case.decode(value, inputs))).collect();
    let inplace = case.call() == "inplace";
    let mut op = case.op().to_string();
    if inplace && !op.ends_with('_') {
        op.push('_');
    }
    let Some(closure) = table.get(op.as_str()) else {
        return Err(Stop::NotImplemented(format!("no op {op}")));
    };
    let mut target = None;
    if let (true, Some(Arg::Tensor(x))) = (inplace, args.first()) {
        let copy = x.clone_contiguous();
        target = Some(copy.clone());
        args[0] = Arg::Tensor(copy);
    }
    let call = Call::new(args, named);
    let result = torchrs::catch(|| match precision(&case.json["autocast"]) {
        None => closure(&call),
        Some((device, dtype)) => torchrs::amp::autocast(device, dtype, || closure(&call)),
    });
    let result = match result {
        Err(error) => Err(error),
        Ok(result) => Ok(result?),
    };
    // An argument that is ignored may be what the expected error is about.
    match call.unused() {
        Some(unused) => Err(Stop::NotImplemented(unused)),
        None => Ok(result.map(|result| match (target, result) {
            // A change of layout replaces the handle.
            (Some(target), Arg::Tensor(view))
                if view.base().is_some_and(|base| base.ptr_eq(&target)) =>
            {
                Arg::Tensor(view)
            }
            (Some(target), _) => Arg::Tensor(target),
            (None, result) => result,
        })),
    }
}

pub fn check(case: &Case, got: &Arg, inputs: &Named) -> Result<(), String> {
    let outputs = compare::results(case, got, inputs)?;
    for (name, key) in case.json["mutated"].as_object().into_iter().flatten() {
        let want = case.tensor(key.as_str().expect("a key"));
        let tol = Tolerance::of(&case.json["tol"]);
        compare::numbers(&format!("{name} afterwards"), &inputs[name], &want, tol)?;
    }
    match case.json.get("grads").and_then(Value::as_object) {
        Some(grads) => derivatives(case, &outputs, inputs, grads),
        None => Ok(()),
    }
}

/// Gradients by `leaves` against `grads`, and second derivatives against the entry `double` if there is
/// one.
pub fn derivatives(
    case: &Case,
    outputs: &Named,
    leaves: &Named,
    grads: &serde_json::Map<String, Value>,
) -> Result<(), String> {
    let second = case.json.get("double").filter(|d| !d.is_null());
    let cotangents = cotangents(case, second.is_some());
    let first = gradients(case, outputs, &cotangents, leaves, second.is_some())?;
    let tol = Tolerance::of(&case.json["grad_tol"]);
    let ties = Ties::of(case, leaves);
    let comparable = |name: &str, gradient: Tensor| match &ties {
        Some(ties) => ties.added_up(name, gradient),
        None => gradient,
    };
    compared(case, "gradient", &first, grads, tol, comparable)?;
    let Some(second) = second else { return Ok(()) };
    let tol = tol.at_least(1e-6);
    let mut roots = Vec::new();
    let mut vs = Vec::new();
    for (name, key) in second["v"].as_object().into_iter().flatten() {
        if let (Some(Some(g)), Some(key)) = (first.get(name), key.as_str())
            && g.requires_grad()
        {
            roots.push(g);
            vs.push(case.tensor_like(key, g).to_device(case.device()));
        }
    }
    for (what, key, by) in [
        ("second derivative", "grad", leaves),
        ("derivative by cotangent", "grad_cot", &cotangents),
    ] {
        let Some(want) = second.get(key).and_then(Value::as_object) else { continue };
        let names: Vec<&String> = want.keys().filter(|n| by.contains_key(*n)).collect();
        let wrt: Vec<&Tensor> = names.iter().map(|n| &by[*n]).collect();
        let found: Vec<Option<Tensor>> = if roots.is_empty() || wrt.is_empty() {
            vec![None; wrt.len()]
        } else {
            let vs: Vec<Option<&Tensor>> = vs.iter().map(Some).collect();
            torchrs::catch(|| autograd::grad(&roots, &wrt, &vs, autograd::GraphMode::Retain))
                .map_err(|e| format!("{what}: {e}"))?
        };
        let found = names.into_iter().cloned().zip(found).collect();
        expected(case, what, &found, want, tol)?;
    }
    Ok(())
}

/// The recorded cotangents, by output name.
pub fn cotangents(case: &Case, requires_grad: bool) -> Named {
    let recorded = case.json["cotangents"].as_object().into_iter().flatten();
    let tensor = |name: &str, key: &Value| {
        let t = case.tensor(key.as_str()?).to_device(case.device());
        Some(if case.has_complex(name) { t.view_as_complex().detach() } else { t })
    };
    let leaf = |t: Tensor| if requires_grad { t.requires_grad_(true) } else { t };
    recorded.filter_map(|(n, key)| Some((n.clone(), leaf(tensor(n, key)?)))).collect()
}

/// Gradients by the inputs that require one.
fn gradients(
    case: &Case,
    outputs: &Named,
    cotangents: &Named,
    inputs: &Named,
    create_graph: bool,
) -> Result<BTreeMap<String, Option<Tensor>>, String> {
    let names: Vec<&String> =
        inputs.iter().filter(|(_, t)| t.requires_grad()).map(|(name, _)| name).collect();
    let squares: Vec<(Tensor, &Tensor)> = outputs
        .iter()
        .filter(|(name, t)| t.requires_grad() && cotangents.contains_key(*name))
        .map(|(name, t)| {
            (if compare::squared(case) { t * t } else { t.clone() }, &cotangents[name])
        })
        .collect();
    let roots: Vec<&Tensor> = squares.iter().map(|(t, _)| t).collect();
    let cots: Vec<Option<&Tensor>> = squares.iter().map(|(_, c)| Some(*c)).collect();
    let wrt: Vec<&Tensor> = names.iter().map(|n| &inputs[*n]).collect();
    let found = if roots.is_empty() || wrt.is_empty() {
        vec![None; wrt.len()]
    } else {
        torchrs::catch(|| {
            autograd::grad(
                &roots,
                &wrt,
                &cots,
                if create_graph { autograd::GraphMode::Create } else { autograd::GraphMode::Free },
            )
        })
        .map_err(|e| format!("backward: {e}"))?
    };
    Ok(names.into_iter().cloned().zip(found).collect())
}

pub fn expected(
    case: &Case,
    what: &str,
    got: &BTreeMap<String, Option<Tensor>>,
    want: &serde_json::Map<String, Value>,
    tol: Tolerance,
) -> Result<(), String> {
    compared(case, what, got, want, tol, |_, gradient| gradient)
}

/// [`expected`] of what `comparable` makes of both gradients by an input.
fn compared(
    case: &Case,
    what: &str,
    got: &BTreeMap<String, Option<Tensor>>,
    want: &serde_json::Map<String, Value>,
    tol: Tolerance,
    comparable: impl Fn(&str, Tensor) -> Tensor,
) -> Result<(), String> {
    for (name, key) in want {
        let found = got.get(name).cloned().flatten();
        match (key.as_str(), found) {
            // Zeros are as good an answer as none.
            (None, None) => {}
            (None, Some(g)) => {
                compare::numbers(&format!("{what} by {name}"), &g, &g.zeros_like(), tol)?
            }
            (Some(key), found) => {
                let want = match &found {
                    Some(found) => case.tensor_like(key, found),
                    None => case.tensor(key),
                };
                let found = match found {
                    Some(found) => {
                        compare::on_device(case, &format!("{what} by {name}"), &found)?;
                        found
                    }
                    None => want.zeros_like(),
                };
                if found.dtype() != want.dtype() {
                    let (f, w) = (found.dtype(), want.dtype());
                    return Err(format!("{what} by {name}: type {f}, expected {w}"));
                }
                let (found, want) = (comparable(name, found.detach()), comparable(name, want));
                compare::numbers(&format!("{what} by {name}"), &found, &want, tol)?
            }
        }
    }
    Ok(())
}
