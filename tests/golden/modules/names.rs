//! Kind `state_names`: trees of modules that are built for the names and shapes of what is in them.

use std::collections::BTreeMap;

use serde_json::Value;
use torchrs::nn::{Module, ModuleDict, Parameter};
use torchrs::{Device, Dtype, Tensor};

use super::{Setup, arguments, build};
use crate::arg::{Outcome as Called, Stop, dtype, lacks};
use crate::case::Case;
use crate::report::Outcome;

pub fn run(case: &Case) -> Outcome {
    let module = match torchrs::catch(|| tree(case, &case.json["init"], case.op())) {
        Ok(Ok(module)) => module,
        Ok(Err(Stop::NotImplemented(why) | Stop::Unwritable(why))) => {
            return Outcome::NotImplemented(why);
        }
        Err(error) => return Outcome::Wrong(format!("error at init: {error}")),
    };
    match compared(case, &module) {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Wrong(why),
    }
}

fn parameter(shape: &Value) -> Parameter {
    let sizes = shape.as_array().into_iter().flatten();
    let sizes: Vec<usize> = sizes.map(|n| n.as_u64().expect("a size") as usize).collect();
    Parameter::new(Tensor::ones(sizes, Dtype::F32))
}

/// The keys of a dictionary in the order in which the case lists the modules: objects forget their own.
fn ordered<'a>(case: &Case, dict: &'a serde_json::Map<String, Value>) -> Vec<&'a String> {
    let order: Vec<&Value> = case.json["modules"].as_array().into_iter().flatten().collect();
    let mut keys: Vec<&String> = dict.keys().collect();
    keys.sort_by_key(|key| order.iter().position(|name| **name == **key));
    keys
}

fn tree(case: &Case, entry: &Value, op: &str) -> Called<Box<dyn Module>> {
    if let Some(list) = entry["module_list"].as_array() {
        let modules: Vec<Box<dyn Module>> =
            list.iter().map(|entry| tree(case, entry, "")).collect::<Called<_>>()?;
        return Ok(Box::new(modules));
    }
    if let Some(dict) = entry["module_dict"].as_object() {
        let mut modules: ModuleDict<Box<dyn Module>> = ModuleDict::new();
        for key in ordered(case, dict) {
            modules.insert(key, tree(case, &dict[key], "")?);
        }
        return Ok(Box::new(modules));
    }
    if let Some(list) = entry["parameter_list"].as_array() {
        return Ok(Box::new(list.iter().map(parameter).collect::<Vec<Parameter>>()));
    }
    if let Some(dict) = entry["parameter_dict"].as_object() {
        let all = dict.iter().map(|(name, shape)| (name.clone(), parameter(shape)));
        return Ok(Box::new(all.collect::<BTreeMap<String, Parameter>>()));
    }
    if let Some(dict) = entry["sequential"].as_object() {
        let mut layers = torchrs::nn::Sequential::new();
        for key in ordered(case, dict) {
            layers = super::layers::appended_as(layers, key, &dict[key])?;
        }
        return Ok(Box::new(layers));
    }
    let class = match entry["parametrization"].as_str() {
        Some(function) => function,
        None => entry["op"].as_str().unwrap_or(op),
    };
    let none = BTreeMap::new();
    let setup = Setup {
        op: class.into(),
        args: arguments(case, entry, &none),
        dtype: Dtype::F32,
        device: Device::Cpu,
        tree: entry.clone(),
        packed: Value::Null,
    };
    let built = build(&setup)?;
    match setup.args.unused() {
        Some(unused) => lacks(unused),
        None => Ok(Box::new(built.module)),
    }
}

fn compared(case: &Case, module: &impl Module) -> Result<(), String> {
    let same = |what: &str, got: Vec<String>, want: &Value| {
        let wanted = want.as_array().into_iter().flatten();
        let wanted: Vec<&str> = wanted.map(|name| name.as_str().unwrap_or("")).collect();
        if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, expected {wanted:?}")) }
    };
    let names = |all: Vec<(String, Tensor)>| all.into_iter().map(|(name, _)| name).collect();
    let parameters: Vec<String> = names(module.named_parameters());
    let modules = module.named_modules().into_iter().map(|(name, _)| name).collect();
    let state = module.state_dict();
    let entries: Vec<&Value> = case.json["entries"].as_array().into_iter().flatten().collect();
    let wanted = Value::Array(entries.iter().map(|entry| entry[0].clone()).collect());
    same("entries", state.keys().map(str::to_owned).collect(), &wanted)?;
    for (entry, (name, tensor)) in entries.iter().zip(state.iter()) {
        let shape: Vec<u64> = tensor.shape().iter().map(|&n| n as u64).collect();
        let kind = if parameters.iter().any(|p| p == name) { "parameter" } else { "buffer" };
        let kept = entry[3].as_str().and_then(dtype) == Some(tensor.dtype());
        if entry[1] != serde_json::json!(shape) || entry[2] != kind || !kept {
            let got = format!("{shape:?}, {kind}, {}", tensor.dtype());
            return Err(format!("{name}: {got}, expected {entry}"));
        }
    }
    same("parameters", parameters, &case.json["parameters"])?;
    same("modules", modules, &case.json["modules"])
}
