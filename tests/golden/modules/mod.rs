//! Modules: constructed, loaded, called; outputs, changed state, gradients of inputs and parameters.

mod layers;
pub mod names;
mod parametrized;
mod recurrent;
mod sized_later;
mod spatial;
mod stateless;
mod transformer;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use torchrs::nn::{Module, StateDict};
use torchrs::{Device, Dtype, Tensor};

use crate::arg::{Arg, Call, Outcome as Called, Stop, dtype, lacks};
use crate::case::Case;
use crate::compare::{self, Tolerance};
use crate::forward;
use crate::report::Outcome;

/// A module that is ready to be called.
pub struct Built {
    module: Arc<dyn Module>,
    call: Box<dyn Fn(&Call) -> Called>,
}

/// What a class's constructor gives: a module of any type and how it is called.
pub fn built<M: Module + 'static>(
    setup: &Setup,
    mut module: M,
    call: impl Fn(&M, &Call) -> Called + 'static,
) -> Called<Built> {
    module.to(setup.dtype);
    if setup.device.is_cuda() {
        module.to_device(setup.device);
    }
    let module = Arc::new(module);
    Ok(Built { module: module.clone(), call: Box::new(move |c| call(&module, c)) })
}

/// A class's constructor arguments.
pub struct Setup {
    pub op: String,
    pub args: Call,
    pub dtype: Dtype,
    pub device: Device,
    /// `init` where it is a tree of modules.
    pub tree: Value,
    /// How the input is packed before the call.
    pub packed: Value,
}

pub fn run(case: &Case) -> Outcome {
    let must_fail = case.kind() == "module_error";
    let inputs = match case.inputs() {
        Ok(inputs) => inputs,
        Err(why) => return Outcome::NotImplemented(why),
    };
    let end = match checked(case, &inputs) {
        Ok(Ok(())) if must_fail => {
            return Outcome::Wrong(format!("no error, expected {}", case.json["message"]));
        }
        Ok(Ok(())) => return Outcome::Passed,
        Ok(Err(why)) => return Outcome::Wrong(why),
        Err(end) => end,
    };
    match end {
        End::Stop(_, Stop::NotImplemented(why)) => Outcome::NotImplemented(why),
        End::Stop(at, Stop::Unwritable(_)) if must_fail && case.json["raises_at"] == at => {
            Outcome::Passed
        }
        End::Stop(_, Stop::Unwritable(why)) => Outcome::NotImplemented(why),
        End::Raised(at, error) if must_fail && case.json["raises_at"] == at => {
            match forward::meant(&error) {
                Ok(()) => Outcome::Passed,
                Err(why) => Outcome::Wrong(why),
            }
        }
        End::Raised(at, error) => Outcome::Wrong(format!("error at {at}: {error}")),
    }
}

/// Where a case ended early (`init` or `forward`), and why.
enum End {
    Stop(&'static str, Stop),
    Raised(&'static str, torchrs::Error),
}

/// Runs a stage of a case. What the library raises there comes after an argument that was not looked
/// at: the error may be about that.
fn stage<T>(at: &'static str, call: &Call, run: impl FnOnce() -> Called<T>) -> Result<T, End> {
    let result = match torchrs::catch(run) {
        Ok(Err(stop)) => return Err(End::Stop(at, stop)),
        Ok(Ok(result)) => Ok(result),
        Err(error) => Err(End::Raised(at, error)),
    };
    match call.unused() {
        Some(unused) => Err(End::Stop(at, Stop::NotImplemented(format!("{at}: {unused}")))),
        None => result,
    }
}

fn checked(case: &Case, inputs: &BTreeMap<String, Tensor>) -> Result<Result<(), String>, End> {
    let setup = setup(case, inputs).map_err(|stop| End::Stop("init", stop))?;
    let Built { module, call } = stage("init", &setup.args, || build(&setup))?;
    if let Some(state) = case.json["state"].as_object() {
        let mut loaded = StateDict::new();
        for (name, key) in state {
            loaded.insert(name, case.tensor(key.as_str().expect("a key")));
        }
        if let Err(error) = module.load_state_dict(&loaded, true) {
            return Ok(Err(error.to_string()));
        }
    }
    module.set_training(case.json["training"] != false);
    let Arg::List(args) = case.decode(&case.json["args"], inputs) else { panic!("args is a list") };
    let named = case.json["kwargs"].as_object().into_iter().flatten();
    let named = named.map(|(name, value)| (name.clone(), case.decode(value, inputs))).collect();
    let arguments = Call::new(args, named);
    let got = stage("forward", &arguments, || call(&arguments))?;
    Ok(compared(case, &*module, &got, inputs))
}

fn compared(
    case: &Case,
    module: &dyn Module,
    got: &Arg,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<(), String> {
    let outputs = compare::results(case, got, inputs)?;
    let state = module.state_dict();
    for (name, key) in case.json["state_after"].as_object().into_iter().flatten() {
        let want = case.tensor(key.as_str().expect("a key"));
        let got = state.get(name).ok_or_else(|| format!("no {name} in the state"))?;
        compare::numbers(name, got, &want, Tolerance::of(&case.json["tol"]))?;
    }
    for (name, got) in state.iter().filter(|(name, _)| case.json["state_after"][*name].is_null()) {
        if let Some(key) = case.json["state"][name].as_str() {
            let what = format!("{name}, which stays as it is,");
            compare::numbers(&what, got, &case.tensor(key), Tolerance::default())?;
        }
    }
    let mut leaves = inputs.clone();
    leaves.extend(module.named_parameters());
    let mut grads = Map::new();
    for key in ["grads", "param_grads"] {
        let entries = case.json[key].as_object().into_iter().flatten();
        grads.extend(entries.map(|(name, key)| (name.clone(), key.clone())));
    }
    if grads.is_empty() {
        return Ok(());
    }
    forward::derivatives(case, &outputs, &leaves, &grads)
}

fn setup(case: &Case, inputs: &BTreeMap<String, Tensor>) -> Called<Setup> {
    let init = &case.json["init"];
    let Some(dtype) = case.json["dtype"].as_str().and_then(dtype) else { return lacks("the type") };
    Ok(Setup {
        op: case.op().into(),
        args: arguments(case, init, inputs),
        dtype,
        device: case.device(),
        tree: init.clone(),
        packed: case.json["packed"].clone(),
    })
}

/// `args` and `kwargs` of a constructor.
fn arguments(case: &Case, entry: &Value, inputs: &BTreeMap<String, Tensor>) -> Call {
    let args = match case.decode(&entry["args"], inputs) {
        Arg::List(args) => args,
        _ => Vec::new(),
    };
    let named = entry["kwargs"].as_object().into_iter().flatten();
    let named = named.map(|(name, value)| (name.clone(), case.decode(value, inputs))).collect();
    Call::new(args, named)
}

/// Makes something of the arguments, plain numbers and names, of a module inside a tree, all of which
/// `make` must ask for.
pub fn with_arguments_of<T>(entry: &Value, make: impl FnOnce(&Call) -> Called<T>) -> Called<T> {
    let none = BTreeMap::new();
    let args = match Arg::decode(&entry["args"], &none) {
        Arg::List(args) => args,
        _ => Vec::new(),
    };
    let named = entry["kwargs"].as_object().into_iter().flatten();
    let named = named.map(|(name, value)| (name.clone(), Arg::decode(value, &none))).collect();
    let call = Call::new(args, named);
    let made = make(&call)?;
    match call.unused() {
        Some(unused) => lacks(format!("{}: {unused}", entry["op"])),
        None => Ok(made),
    }
}

/// Constructs a module of class `setup.op`.
fn build(setup: &Setup) -> Called<Built> {
    let tables = [
        layers::build,
        parametrized::build,
        stateless::build,
        spatial::build,
        recurrent::build,
        sized_later::build,
        transformer::build,
    ];
    for table in tables {
        if let Some(built) = table(setup) {
            return built;
        }
    }
    lacks(format!("no class {}", setup.op))
}
