//! Cases of optimizers: parameters after each step with recorded gradients, and the state at the
//! end; constructions that must fail; L-BFGS on two small problems.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use torchrs::optim::{
    ASGD, Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, LBFGS, Muon, NAdam, Optimizer,
    OptimizerState, ParamGroup, RAdam, RMSprop, Rprop, SGD, SparseAdam, StateValue,
};
use torchrs::{Tensor, no_grad};

use crate::case::Case;
use crate::compare::{Tolerance, numbers};
use crate::forward;
use crate::report::Outcome;

/// Options that choose among PyTorch's implementations, which all give the same.
const NO_OPS: [&str; 4] = ["foreach", "fused", "capturable", "differentiable"];

pub fn run(case: &Case) -> Outcome {
    let outcome = match case.kind() {
        "optimizer_error" => must_fail(case),
        "lbfgs" => lbfgs(case),
        _ => trajectory(case),
    };
    conclude(outcome)
}

pub fn conclude(result: Result<(), Stop>) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed,
        Err(Stop::Wrong(why)) => Outcome::Wrong(why),
        Err(Stop::Lacks(what)) => Outcome::NotImplemented(what),
    }
}

/// Why a case did not pass.
pub enum Stop {
    Wrong(String),
    Lacks(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Wrong(why)
    }
}

/// Parameters with their options.
type Group = (Vec<Tensor>, Map<String, Value>);

/// Options from the given ones and the defaults.
pub fn options<O>(given: &Map<String, Value>) -> Result<O, Stop>
where
    O: Default + serde::Serialize + serde::de::DeserializeOwned,
{
    let mut all = serde_json::to_value(O::default()).expect("plain data");
    for (name, value) in given.iter().filter(|(n, v)| !NO_OPS.contains(&n.as_str()) && !v.is_null())
    {
        if all.get(name).is_none() {
            return Err(Stop::Lacks(format!("option {name}")));
        }
        all[name] = value.clone();
    }
    serde_json::from_value(all).map_err(|e| Stop::Lacks(e.to_string()))
}

/// An optimizer by PyTorch's name; the inner error is the library's.
pub fn make(op: &str, groups: Vec<Group>) -> Result<torchrs::Result<Box<dyn Optimizer>>, Stop> {
    macro_rules! with_groups {
        ($optimizer:ident) => {{
            let groups = groups
                .into_iter()
                .map(|(params, given)| Ok(ParamGroup::new(params, options(&given)?)))
                .collect::<Result<Vec<_>, Stop>>()?;
            torchrs::catch(|| -> Box<dyn Optimizer> { Box::new($optimizer::with_groups(groups)) })
        }};
    }
    Ok(match op {
        "optim.SGD" => with_groups!(SGD),
        "optim.Adam" => with_groups!(Adam),
        "optim.AdamW" => with_groups!(AdamW),
        "optim.Adadelta" => with_groups!(Adadelta),
        "optim.Adafactor" => with_groups!(Adafactor),
        "optim.Adagrad" => with_groups!(Adagrad),
        "optim.Adamax" => with_groups!(Adamax),
        "optim.ASGD" => with_groups!(ASGD),
        "optim.Muon" => with_groups!(Muon),
        "optim.SparseAdam" => with_groups!(SparseAdam),
        "optim.NAdam" => with_groups!(NAdam),
        "optim.RAdam" => with_groups!(RAdam),
        "optim.RMSprop" => with_groups!(RMSprop),
        "optim.Rprop" => with_groups!(Rprop),
        "optim.LBFGS" if groups.len() == 1 => {
            let (params, given) = groups.into_iter().next().expect("one group");
            let options = options(&given)?;
            torchrs::catch(|| -> Box<dyn Optimizer> { Box::new(LBFGS::new(params, options)) })
        }
        _ => return Err(Stop::Lacks(format!("no {op}"))),
    })
}

pub fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Tensor `t` of a stack.
fn row(stack: &Tensor, t: usize) -> Tensor {
    no_grad(|| stack.select(0, t as i64).clone_contiguous())
}

fn must_fail(case: &Case) -> Result<(), Stop> {
    let parameter = Tensor::zeros([2], torchrs::Dtype::F64).requires_grad_(true);
    match make(case.op(), vec![(vec![parameter], object(&case.json["kwargs"]))])? {
        Err(error) => Ok(forward::meant(&error)?),
        Ok(_) => Err(Stop::Wrong(format!("no error, expected {}", case.json["message"]))),
    }
}

fn trajectory(case: &Case) -> Result<(), Stop> {
    let json = case.json;
    let names: Vec<&str> =
        json["params"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let stored = |field: &str, name: &str| {
        let tensor = case.tensor(json[field][name].as_str().expect("a key"));
        tensor.to_device(case.device())
    };
    let params: BTreeMap<&str, Tensor> =
        names.iter().map(|&n| (n, stored("initial", n).requires_grad_(true))).collect();
    let given = object(&json["kwargs"]);
    let groups = || match json["param_groups"].as_array() {
        None => vec![(names.iter().map(|n| params[n].clone()).collect(), given.clone())],
        Some(groups) => groups
            .iter()
            .map(|group| {
                let mut own = object(group);
                own.remove("params");
                let list = group["params"].as_array().into_iter().flatten();
                let list = list.filter_map(Value::as_str).map(|n| params[n].clone()).collect();
                let mut merged = given.clone();
                merged.extend(own);
                (list, merged)
            })
            .collect(),
    };
    let mut optimizer = make(case.op(), groups())?.map_err(|e| format!("error: {e}"))?;
    let tol = Tolerance::of(&json["tol"]);
    let column = |field: &str| -> Vec<Tensor> { names.iter().map(|n| stored(field, n)).collect() };
    let (gradients, wanted) = (column("gradients"), column("trajectory"));
    let steps = json["steps"].as_u64().expect("a count") as usize;
    for t in 0..steps {
        // Half-way a new optimizer goes on from what was saved.
        if t == steps / 2 {
            optimizer = reloaded(&*optimizer, make(case.op(), groups())?)?;
        }
        for (i, name) in names.iter().enumerate() {
            let absent =
                json["grad_present"][i][t] == false || json["grad_present"][name][t] == false;
            params[name].set_grad((!absent).then(|| row(&gradients[i], t)));
        }
        if let Some(lr) = json["lr_per_step"][t].as_f64() {
            (0..optimizer.num_groups()).for_each(|group| optimizer.set_lr(group, lr));
        }
        torchrs::catch(|| optimizer.step()).map_err(|e| format!("error: {e}"))?;
        for (name, wanted) in names.iter().zip(&wanted) {
            numbers(
                &format!("{name} after step {t}"),
                &params[name].detach(),
                &row(wanted, t),
                tol,
            )?;
        }
    }
    let state = optimizer.state_dict().state;
    let order = optimizer.parameters();
    let place = |name: &str| {
        let storage = params[name].storage();
        order.iter().position(|p| p.storage().ptr_eq(storage)).expect("is there")
    };
    for (entry, key) in json["final_state"].as_object().into_iter().flatten() {
        let Some(key) = key.as_str() else { continue };
        let want = case.tensor(key);
        let (name, entry_name) = entry.split_once('.').expect("parameter and entry");
        match state[place(name)].get(entry_name) {
            None => return Err(Stop::Wrong(format!("no state {entry}"))),
            Some(StateValue::Tensor(t)) => numbers(entry, t, &want, tol)?,
            Some(StateValue::Number(n)) => numbers(entry, &Tensor::scalar(*n), &want, tol)?,
            Some(_) => {
                return Err(Stop::Wrong(format!("{entry} is a kind of state without a check")));
            }
        }
    }
    Ok(())
}

/// `fresh` with the state of `old`, by way of what a checkpoint stores.
pub fn reloaded(
    old: &dyn Optimizer,
    fresh: torchrs::Result<Box<dyn Optimizer>>,
) -> Result<Box<dyn Optimizer>, Stop> {
    let failed = |e: torchrs::Error| Stop::Wrong(format!("reload: {e}"));
    let mut fresh = fresh.map_err(failed)?;
    let (tensors, rest) = old.state_dict().split();
    let tensors = tensors.into_iter().map(|(name, t)| (name, t.clone_contiguous())).collect();
    let rest = serde_json::from_str(&rest.to_string()).expect("JSON values are JSON");
    let state = OptimizerState::join(&tensors, &rest).map_err(failed)?;
    fresh.load_state_dict(&state).map_err(failed)?;
    Ok(fresh)
}

fn lbfgs(case: &Case) -> Result<(), Stop> {
    let keys = &case.json["keys"];
    let stored =
        |name: &str| case.tensor(keys[name].as_str().expect("a key")).to_device(case.device());
    let (a, b) = (stored("A"), stored("b"));
    let x = stored("x0").requires_grad_(true);
    let group = || vec![(vec![x.clone()], object(&case.json["kwargs"]))];
    let mut optimizer = make(case.op(), group())?.map_err(|e| format!("error: {e}"))?;
    let tol = Tolerance::of(&case.json["tol"]);
    let (wanted, losses) = (stored("trajectory"), stored("losses").to_vec::<f64>());
    let rosenbrock = case.json["problem"] == "rosenbrock";
    let steps = case.json["steps"].as_u64().expect("a count") as usize;
    for (t, &recorded) in losses.iter().enumerate().take(steps) {
        if t == steps / 2 {
            optimizer = reloaded(&*optimizer, make(case.op(), group())?)?;
        }
        let mut evaluations = 0;
        let mut closure = || {
            evaluations += 1;
            x.set_grad(None);
            let loss = if rosenbrock {
                let (x0, x1) = (x.select(0, 0), x.select(0, 1));
                (&x0 - 1.0).square() + (x1 - x0.square()).square() * 100.0
            } else {
                (a.matmul(&x) - &b).square().sum() * 0.5
            };
            loss.backward();
            loss
        };
        let loss = torchrs::catch(std::panic::AssertUnwindSafe(|| {
            optimizer.step_with(&mut closure).item()
        }))
        .map_err(|e| format!("error: {e}"))?;
        if let Some(recorded) = case.json["evaluations"][t].as_u64().filter(|n| *n != evaluations) {
            let why = format!("step {t} called the closure {evaluations} times, not {recorded}");
            return Err(Stop::Wrong(why));
        }
        let got = Tensor::scalar(loss);
        numbers(&format!("loss of step {t}"), &got, &Tensor::scalar(recorded), tol)?;
        numbers(&format!("x after step {t}"), &x.detach(), &row(&wanted, t), tol)?;
    }
    Ok(())
}
