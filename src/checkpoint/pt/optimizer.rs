//! An optimizer's state as PyTorch saves it: `{"state": {0: {"exp_avg": ..}}, "param_groups": [..]}`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::value::PtValue;
use crate::error::{Error, Result};
use crate::optim::{OptimizerState, StateValue};

fn wrong(what: impl Into<String>) -> Error {
    Error::argument("PtValue::optimizer_state", "value", what)
}

impl PtValue {
    /// The `state_dict` of a PyTorch optimizer, for the optimizer of that name here to
    /// [load](crate::optim::Optimizer::load_state_dict). Options that only choose among PyTorch's
    /// implementations (`foreach`, `fused`, ..) are passed over there.
    ///
    /// ```
    /// use torchrs::checkpoint::PtValue::{self, Dict, Float, Int, List, Str};
    /// use torchrs::{Dtype, Tensor, optim::{Optimizer, SGD}};
    /// let entry = |name: &str, value: PtValue| (Str(name.into()), value);
    /// let group = Dict(vec![entry("lr", Float(0.5)), entry("params", List(vec![Int(0)]))]);
    /// let saved = Dict(vec![entry("state", Dict(vec![])), entry("param_groups", List(vec![group]))]);
    /// let mut optimizer = SGD::new([Tensor::zeros([2], Dtype::F32)], Default::default());
    /// optimizer.load_state_dict(&saved.optimizer_state()?)?;
    /// assert_eq!(optimizer.lr(0), 0.5);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when this has another form, or entries that are neither tensors nor numbers.
    pub fn optimizer_state(&self) -> Result<OptimizerState> {
        let (Some(PtValue::Dict(saved)), Some(groups)) =
            (self.get("state"), self.get("param_groups"))
        else {
            return Err(wrong("has no dict `state` or no `param_groups`"));
        };
        let param_groups = json(groups)?;
        let lengths = |g: &Value| g["params"].as_array().map_or(0, Vec::len);
        let count: usize = param_groups.as_array().into_iter().flatten().map(lengths).sum();
        let mut state = vec![BTreeMap::new(); count];
        for (place, entries) in saved {
            let PtValue::Int(place) = place else {
                return Err(wrong("a parameter's place is no integer"));
            };
            let target = usize::try_from(*place).ok().and_then(|place| state.get_mut(place));
            let (Some(target), PtValue::Dict(entries)) = (target, entries) else {
                return Err(wrong(format!("has a state for parameter {place} of {count}")));
            };
            for (name, value) in entries {
                let PtValue::Str(name) = name else {
                    return Err(wrong(format!("an entry of parameter {place} has no name")));
                };
                let value = match value {
                    PtValue::None => continue,
                    PtValue::Tensor(tensor) => StateValue::Tensor(tensor.clone()),
                    PtValue::Float(x) => StateValue::Number(*x),
                    PtValue::Int(n) => StateValue::Number(*n as f64),
                    PtValue::Bool(b) => StateValue::Number(f64::from(u8::from(*b))),
                    _ => {
                        let message =
                            format!("`{name}` of parameter {place} is no tensor or number");
                        return Err(wrong(message));
                    }
                };
                target.insert(name.clone(), value);
            }
        }
        Ok(OptimizerState { state, param_groups })
    }
}

impl From<&OptimizerState> for PtValue {
    fn from(saved: &OptimizerState) -> Self {
        let text = |name: &str| PtValue::Str(name.to_owned());
        let value = |value: &StateValue| match value {
            StateValue::Tensor(tensor) => PtValue::Tensor(tensor.detach()),
            StateValue::Number(number) => PtValue::Float(*number),
        };
        let entries = |entries: &BTreeMap<String, StateValue>| {
            PtValue::Dict(entries.iter().map(|(name, v)| (text(name), value(v))).collect())
        };
        let used = saved.state.iter().enumerate().filter(|(_, state)| !state.is_empty());
        let state = used.map(|(place, state)| (PtValue::Int(place as i64), entries(state)));
        PtValue::Dict(vec![
            (text("state"), PtValue::Dict(state.collect())),
            (text("param_groups"), PtValue::of_json(&saved.param_groups)),
        ])
    }
}

/// Options as JSON.
fn json(value: &PtValue) -> Result<Value> {
    Ok(match value {
        PtValue::None => Value::Null,
        PtValue::Bool(b) => (*b).into(),
        PtValue::Int(n) => (*n).into(),
        PtValue::Float(x) => (*x).into(),
        PtValue::Str(text) => text.clone().into(),
        PtValue::Tensor(tensor) if tensor.numel() == 1 => tensor.item().into(),
        PtValue::List(items) | PtValue::Tuple(items) => {
            Value::Array(items.iter().map(json).collect::<Result<_>>()?)
        }
        PtValue::Dict(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let PtValue::Str(key) = key else {
                    return Err(wrong("an option's name is no text"));
                };
                map.insert(key.clone(), json(value)?);
            }
            Value::Object(map)
        }
        _ => return Err(wrong("an option is no number, text or list")),
    })
}
