//! Cases of probability distributions: their methods, divergences, transforms, and calls that must fail.

mod build;

use std::sync::Arc;

use serde_json::{Value, json};
use torchrs::distributions::{Constraint, Distribution, Param, kl_divergence};
use torchrs::{Error, Tensor};

use crate::arg::{Arg, Outcome as Built, Stop, lacks};
use crate::case::Case;
use crate::forward::{self, Named, meant};
use crate::report::Outcome;

/// What a case gives: a value, or what a distribution says of itself.
enum Given {
    Value(Arg),
    Description(Value),
}

pub fn run(case: &Case) -> Outcome {
    let must_fail = case.kind().ends_with("_error");
    let inputs = match case.inputs() {
        Ok(inputs) => inputs,
        Err(why) => return Outcome::NotImplemented(why),
    };
    let called: Result<Built<Given>, Error> = torchrs::catch(|| match case.kind() {
        "distribution" | "distribution_error" => distribution(case, &inputs),
        "kl_divergence" | "kl_divergence_error" => divergence(case, &inputs),
        _ => transform(case, &inputs),
    });
    match called {
        Ok(Err(Stop::NotImplemented(why))) => Outcome::NotImplemented(why),
        Ok(Err(Stop::Unwritable(_))) if must_fail => Outcome::Passed,
        Ok(Err(Stop::Unwritable(why))) => Outcome::NotImplemented(why),
        Err(error) if must_fail => match meant(&error) {
            Ok(()) => Outcome::Passed,
            Err(why) => Outcome::Wrong(why),
        },
        Err(error) => Outcome::Wrong(format!("error: {error}")),
        Ok(Ok(_)) if must_fail => {
            Outcome::Wrong(format!("no error, expected {}", case.json["message"]))
        }
        Ok(Ok(given)) => match compare(case, given, &inputs) {
            Ok(()) => Outcome::Passed,
            Err(why) => Outcome::Wrong(why),
        },
    }
}

fn compare(case: &Case, given: Given, inputs: &Named) -> Result<(), String> {
    match given {
        Given::Value(value) => forward::check(case, &value, inputs),
        Given::Description(got) => {
            let want = case.json["describe"].as_object().into_iter().flatten();
            for (name, want) in want {
                if !alike(&got[name], want) {
                    return Err(format!("{name}: {}, expected {want}", got[name]));
                }
            }
            Ok(())
        }
    }
}

/// Whether two descriptions say the same; numbers count, not how they are written.
fn alike(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && b.iter().all(|(key, b)| a.get(key).is_some_and(|a| alike(a, b)))
        }
        _ => got == want,
    }
}

fn tensors(case: &Case, inputs: &Named) -> Vec<Arg> {
    match case.decode(&case.json["args"], inputs) {
        Arg::List(list) => list,
        _ => Vec::new(),
    }
}

fn tensor(args: &[Arg], i: usize) -> Built<&Tensor> {
    match args.get(i) {
        Some(Arg::Tensor(t)) => Ok(t),
        other => Err(Stop::Unwritable(format!("{other:?} for a tensor"))),
    }
}

fn shape(arg: Option<&Arg>) -> Built<Vec<usize>> {
    let Some(Arg::List(list)) = arg else {
        return Err(Stop::Unwritable(format!("{arg:?} for a shape")));
    };
    let size = |n: &Arg| match n {
        Arg::Int(n) => usize::try_from(*n).map_err(|_| Stop::Unwritable(format!("size {n}"))),
        other => Err(Stop::Unwritable(format!("{other:?} for a size"))),
    };
    list.iter().map(size).collect()
}

fn distribution(case: &Case, inputs: &Named) -> Built<Given> {
    let mut d = build::distribution(case, case.op(), &case.json["init"], inputs)?;
    if case.json["expand"].is_array() {
        d = d.expand(&shape(Some(&case.decode(&case.json["expand"], inputs)))?);
    }
    let args = tensors(case, inputs);
    let method = case.json["method"].as_str().unwrap_or("");
    let value = match method {
        "describe" => return Ok(Given::Description(description(&*d))),
        "log_prob" => d.log_prob(tensor(&args, 0)?),
        "cdf" => d.cdf(tensor(&args, 0)?),
        "icdf" => d.icdf(tensor(&args, 0)?),
        "support_check" => d.support().check(tensor(&args, 0)?),
        "entropy" => d.entropy(),
        "perplexity" => d.perplexity(),
        "mean" => d.mean(),
        "mode" => d.mode(),
        "variance" => d.variance(),
        "stddev" => d.stddev(),
        "enumerate_support" => d.enumerate_support(!matches!(args.first(), Some(Arg::Bool(false)))),
        other => match build::attribute(&*d, other) {
            Some(value) => value,
            None => return lacks(format!("method {other}")),
        },
    };
    Ok(Given::Value(Arg::Tensor(value)))
}

fn divergence(case: &Case, inputs: &Named) -> Built<Given> {
    let of = |i: usize| -> Built<Arc<dyn Distribution>> {
        let spec = &case.json["args"][i]["distribution"];
        build::distribution(case, spec["op"].as_str().unwrap_or(""), spec, inputs)
    };
    Ok(Given::Value(Arg::Tensor(kl_divergence(&*of(0)?, &*of(1)?))))
}

fn transform(case: &Case, inputs: &Named) -> Built<Given> {
    let t = build::transform(case, case.op(), &case.json["init"], inputs)?;
    let args = tensors(case, inputs);
    let sizes = |shape: Vec<usize>| Arg::List(shape.iter().map(|&n| Arg::Int(n as i64)).collect());
    let value = match case.json["method"].as_str().unwrap_or("") {
        "forward" => Arg::Tensor(t.forward(tensor(&args, 0)?)),
        "inverse" => Arg::Tensor(t.inverse(tensor(&args, 0)?)),
        "log_abs_det_jacobian" => {
            Arg::Tensor(t.log_abs_det_jacobian(tensor(&args, 0)?, tensor(&args, 1)?))
        }
        "forward_shape" => sizes(t.forward_shape(&shape(args.first())?)),
        "inverse_shape" => sizes(t.inverse_shape(&shape(args.first())?)),
        other => return lacks(format!("method {other}")),
    };
    Ok(Given::Value(value))
}

fn description(d: &dyn Distribution) -> Value {
    let support = torchrs::catch(|| d.support()).ok();
    json!({
        "batch_shape": d.batch_shape(),
        "event_shape": d.event_shape(),
        "has_rsample": d.has_rsample(),
        "has_enumerate_support": d.has_enumerate_support(),
        "support": support.as_ref().map(region),
        "support_is_discrete": support.as_ref().map(Constraint::is_discrete),
        "support_event_dim": support.as_ref().map(Constraint::event_dim),
    })
}

fn region(c: &Constraint) -> Value {
    let mut out = json!({ "name": c.name() });
    match c {
        Constraint::Independent { base, reinterpreted_batch_ndims } => {
            out["base"] = region(base);
            out["reinterpreted_batch_ndims"] = json!(reinterpreted_batch_ndims);
        }
        Constraint::MixtureSameFamily { .. } => {}
        _ => {
            for (name, bound) in
                [("lower_bound", c.lower_bound()), ("upper_bound", c.upper_bound())]
            {
                if let Some(bound) = bound {
                    out[name] = numbers(bound);
                }
            }
        }
    }
    out
}

/// A bound as a number, or as nested lists.
fn numbers(bound: &Param) -> Value {
    fn nested(t: &Tensor) -> Value {
        match t.shape() {
            [] => match t.item() {
                v if v.is_finite() => json!(v),
                v if v.is_nan() => json!({ "float": "nan" }),
                v => json!({ "float": if v > 0.0 { "inf" } else { "-inf" } }),
            },
            _ => Value::Array(t.unbind(0).iter().map(nested).collect()),
        }
    }
    match bound {
        Param::Number(v) => json!(v),
        Param::Tensor(t) => nested(&t.detach()),
    }
}
