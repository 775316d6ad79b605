//! Straight-line programs: steps that name their results, in-place ones among them, then backward.

use std::collections::BTreeMap;

use serde_json::Value;
use torchrs::{Tensor, autograd};

use crate::arg::{Arg, Call, Stop};
use crate::case::Case;
use crate::compare::{self, Tolerance};
use crate::forward;
use crate::ops::Table;
use crate::report::Outcome;

type Named = BTreeMap<String, Tensor>;

/// Where a program ended early: at which step, and why.
enum End {
    Missing(String),
    Unwritable(String, String),
    Raised(String, torchrs::Error),
}

pub fn run(table: &Table, case: &Case) -> Outcome {
    let inputs = match case.inputs() {
        Ok(inputs) => inputs,
        Err(why) => return Outcome::NotImplemented(why),
    };
    let outcome = match case.kind() {
        "program_error" => must_fail(table, case, &inputs),
        _ => variables(table, case, &inputs).map(|v| check(case, &v, &inputs)),
    };
    match outcome {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(why)) => Outcome::Wrong(why),
        Err(End::Missing(why)) => Outcome::NotImplemented(why),
        Err(End::Unwritable(at, why)) => Outcome::NotImplemented(format!("{at}: {why}")),
        Err(End::Raised(at, error)) => Outcome::Wrong(format!("{at}: {error}")),
    }
}

/// Runs the steps.
fn variables(table: &Table, case: &Case, inputs: &Named) -> Result<Named, End> {
    let mut variables = inputs.clone();
    for (i, step) in case.json["steps"].as_array().into_iter().flatten().enumerate() {
        let op = step["op"].as_str().expect("an op");
        let Some(closure) = table.get(op) else { return Err(End::Missing(format!("no op {op}"))) };
        let Arg::List(args) = case.decode(&step["args"], &variables) else {
            panic!("args is a list")
        };
        let named = step["kwargs"].as_object().into_iter().flatten();
        let named = named.map(|(n, v)| (n.clone(), case.decode(v, &variables))).collect();
        let call = Call::new(args, named);
        let at = format!("step {i}");
        let result = torchrs::catch(|| closure(&call));
        let result = match result {
            Ok(Err(Stop::NotImplemented(why))) => return Err(End::Missing(why)),
            Ok(Err(Stop::Unwritable(why))) => return Err(End::Unwritable(at, why)),
            Ok(Ok(result)) => Ok(result),
            Err(error) => Err(End::Raised(at, error)),
        };
        if let Some(unused) = call.unused() {
            return Err(End::Missing(format!("step {i}: {unused}")));
        }
        let result = result?;
        let result = match (step["pick"].as_u64(), result) {
            (Some(k), Arg::List(mut list)) => list.swap_remove(k as usize),
            (_, result) => result,
        };
        if let (Some(out), Arg::Tensor(t)) = (step["out"].as_str(), result) {
            variables.insert(out.into(), t);
        }
    }
    Ok(variables)
}

fn must_fail(table: &Table, case: &Case, inputs: &Named) -> Result<Result<(), String>, End> {
    let at = case.json["raises_at"].as_str().unwrap_or("");
    let variables = match variables(table, case, inputs) {
        Err(End::Raised(step, error)) if step == at => return Ok(forward::meant(&error)),
        Err(End::Unwritable(step, _)) if step == at => return Ok(Ok(())),
        other => other?,
    };
    let roots: Vec<&Tensor> = case.json["results"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| variables.get(name.as_str()?))
        .collect();
    let ones: Vec<Tensor> = roots.iter().map(|t| t.ones_like()).collect();
    let given = case.json["no_cotangent"] != true;
    let cotangents: Vec<Option<&Tensor>> = ones.iter().map(|t| given.then_some(t)).collect();
    let backward = || autograd::backward(&roots, &cotangents, autograd::GraphMode::Free);
    let leaves: Vec<&Tensor> = inputs.values().filter(|t| t.requires_grad()).collect();
    let gradients = |create_graph: bool| {
        let found = autograd::grad(
            &roots,
            &leaves,
            &cotangents,
            if create_graph { autograd::GraphMode::Create } else { autograd::GraphMode::Free },
        );
        let sums = found.into_iter().flatten().map(|gradient| gradient.sum());
        sums.reduce(|a, b| a + b).expect("a gradient")
    };
    // What must go well, and what must raise behind it.
    let prepared = |run: &mut dyn FnMut()| {
        let result = torchrs::catch(std::panic::AssertUnwindSafe(run));
        result.map_err(|error| format!("before what must raise: {error}"))
    };
    let mut sum = None;
    let (before, last): (_, Box<dyn Fn(Option<Tensor>)>) = match case.json["second_order"].as_str()
    {
        None => {
            let times = case.json["backward_times"].as_u64().unwrap_or(1);
            (prepared(&mut || (1..times).for_each(|_| backward())), Box::new(|_| backward()))
        }
        Some("after_backward") => (prepared(&mut || backward()), Box::new(|_| _ = gradients(true))),
        Some(kind) => {
            let before = prepared(&mut || {
                let total = gradients(kind != "no_create_graph");
                if kind == "freed" {
                    total.backward();
                }
                sum = Some(total);
            });
            (before, Box::new(|sum: Option<Tensor>| sum.expect("made before").backward()))
        }
    };
    if let Err(why) = before {
        return Ok(Err(why));
    }
    match torchrs::catch(std::panic::AssertUnwindSafe(|| last(sum.clone()))) {
        Err(error) if at == "backward" => Ok(forward::meant(&error)),
        Err(error) => Ok(Err(format!("backward: {error}, expected an error at {at}"))),
        Ok(()) => Ok(Err(format!("no error at {at}: {}", case.json["message"]))),
    }
}

fn check(case: &Case, variables: &Named, inputs: &Named) -> Result<(), String> {
    let mut outputs = Named::new();
    for entry in case.json["outputs"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().expect("a name");
        compare::output(case, name, &variables[name], inputs)?;
        outputs.insert(name.into(), variables[name].clone());
    }
    let Some(grads) = case.json.get("grads").and_then(Value::as_object) else { return Ok(()) };
    if case.json.get("double").is_some_and(|d| !d.is_null()) {
        return forward::derivatives(case, &outputs, inputs, grads);
    }
    let retained = case.json.get("retained_grads").and_then(Value::as_object);
    for name in retained.into_iter().flatten().map(|(name, _)| name) {
        variables[name].retain_grad();
    }
    let cotangents = forward::cotangents(case, false);
    let roots: Vec<(&Tensor, &Tensor)> = outputs
        .iter()
        .filter(|(_, t)| t.requires_grad())
        .filter_map(|(name, t)| Some((t, cotangents.get(name)?)))
        .collect();
    let (roots, cots): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
        roots.into_iter().map(|(t, c)| (t, Some(c))).unzip();
    let times = case.json["backward_times"].as_u64().unwrap_or(1);
    let kept = case.json["keep_graph"] != false;
    for time in 0..times {
        if !roots.is_empty() {
            torchrs::catch(|| {
                autograd::backward(
                    &roots,
                    &cots,
                    if kept && time + 1 < times {
                        autograd::GraphMode::Retain
                    } else {
                        autograd::GraphMode::Free
                    },
                )
            })
            .map_err(|e| format!("backward: {e}"))?;
        }
    }
    let tol = Tolerance::of(&case.json["grad_tol"]);
    let found = inputs.iter().map(|(name, t)| (name.clone(), t.grad())).collect();
    forward::expected(case, "gradient", &found, grads, tol)?;
    let Some(retained) = retained else { return Ok(()) };
    let found = variables.iter().map(|(name, t)| (name.clone(), t.grad())).collect();
    forward::expected(case, "retained gradient", &found, retained, tol)
}
