//! Python's values as tensors by name and JSON, and back.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::index::{Entry, Index, Location, Piece};
use super::super::region::Region;
use crate::checkpoint::pt::PtValue;
use crate::checkpoint::words;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The key of a value that JSON cannot hold, with what it is.
const UNREAD: &str = "not read";

/// A value as JSON. What that cannot hold becomes `{"not read": "an object of class .."}`, which is none of what a program
/// could take it for.
pub(super) fn to_json(value: &PtValue) -> Value {
    let list = |items: &[PtValue]| Value::Array(items.iter().map(to_json).collect());
    match value {
        PtValue::None => Value::Null,
        PtValue::Bool(b) => json!(b),
        PtValue::Int(n) => json!(n),
        PtValue::Float(x) => words::to_value(x).unwrap_or_else(|_| unread(value)),
        PtValue::Str(text) => json!(text),
        PtValue::List(items) | PtValue::Tuple(items) => list(items),
        PtValue::Dict(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let Some(key) = name_of(key) else {
                    return unread_as("a dict with keys that are no text");
                };
                if map.insert(key, to_json(value)).is_some() {
                    return unread_as("a dict with keys that are equal as text");
                }
            }
            Value::Object(map)
        }
        other => unread(other),
    }
}

fn unread(value: &PtValue) -> Value {
    match value {
        PtValue::Object(object) => unread_as(&format!("an object of class {}", object.class)),
        other => unread_as(other.kind()),
    }
}

fn unread_as(what: &str) -> Value {
    json!({ UNREAD: what })
}

/// Of JSON what could not be read as such, if anything.
fn not_read(value: &Value) -> Option<&str> {
    match value {
        Value::Array(items) => items.iter().find_map(not_read),
        Value::Object(map) => match map.get(UNREAD) {
            Some(Value::String(what)) if map.len() == 1 => Some(what),
            _ => map.values().find_map(not_read),
        },
        _ => None,
    }
}

/// The same as a value of Python's.
///
/// # Errors
/// [`Error::File`] that names what was not read, and cannot be written again.
pub(crate) fn from_json(path: &Path, name: &str, value: &Value) -> Result<PtValue> {
    if let Some(what) = not_read(value) {
        let what = format!("value `{name}` is {what}, which cannot be written again");
        return Err(Error::file(path, what));
    }
    if let Some(n) = too_large(value) {
        let what = format!("value `{name}` has the number {n}; at most {} are written", i64::MAX);
        return Err(Error::file(path, what));
    }
    Ok(PtValue::of_json(value))
}

/// The first number that is no `i64`, nor a float.
fn too_large(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) if n.as_i64().is_none() => n.as_u64(),
        Value::Array(items) => items.iter().find_map(too_large),
        Value::Object(map) => map.values().find_map(too_large),
        _ => None,
    }
}

fn name_of(key: &PtValue) -> Option<String> {
    match key {
        PtValue::Str(key) => Some(key.clone()),
        PtValue::Int(key) => Some(key.to_string()),
        _ => None,
    }
}

/// A piece that is all of a tensor in memory.
pub(super) fn held(tensor: Tensor) -> Entry {
    let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
    let region = Region::whole(&shape);
    Entry { dtype, shape, pieces: vec![Piece { region, at: Location::Memory(tensor) }] }
}

/// The tensors of nested dicts and lists by their keys, joined by points, and all else as JSON: dicts and lists without
/// tensors as they are.
///
/// # Errors
/// [`Error::File`] for two tensors whose keys are the same when joined.
pub(super) fn flattened(path: &Path, value: PtValue) -> Result<Index> {
    let mut index = Index { path: path.to_owned(), ..Default::default() };
    let PtValue::Dict(entries) = value else {
        let what = format!("holds {}; a dict is wanted", value.kind());
        return Err(Error::file(path, what));
    };
    let mut groups = BTreeSet::new();
    for (key, value) in entries {
        let name = name_of(&key).ok_or_else(|| {
            Error::file(path, format!("has {} as a key; texts are wanted", key.kind()))
        })?;
        if matches!(value, PtValue::Dict(_)) && has_tensor(&value) {
            groups.insert(name.clone());
        }
        flatten(path, name, value, &mut index)?;
    }
    index.groups = groups.into_iter().collect();
    Ok(index)
}

fn flatten(path: &Path, name: String, value: PtValue, index: &mut Index) -> Result<()> {
    let twice = match value {
        PtValue::Tensor(tensor) => index.tensors.insert(name.clone(), held(tensor)).is_some(),
        PtValue::Raw(raw) => {
            let what = format!("tensor `{name}` has dtype {}, which is not known", raw.dtype);
            return Err(Error::file(path, what));
        }
        PtValue::Dict(entries) if entries.iter().any(|(_, value)| has_tensor(value)) => {
            for (key, value) in entries {
                let key = name_of(&key).ok_or_else(|| {
                    let what = format!("`{name}` has {} as a key; texts are wanted", key.kind());
                    Error::file(path, what)
                })?;
                flatten(path, format!("{name}.{key}"), value, index)?;
            }
            false
        }
        PtValue::List(items) | PtValue::Tuple(items) if items.iter().any(has_tensor) => {
            for (place, value) in items.into_iter().enumerate() {
                flatten(path, format!("{name}.{place}"), value, index)?;
            }
            false
        }
        value => index.values.insert(name.clone(), to_json(&value)).is_some(),
    };
    match twice {
        true => Err(Error::file(path, format!("has `{name}` twice"))),
        false => Ok(()),
    }
}

fn has_tensor(value: &PtValue) -> bool {
    match value {
        PtValue::Tensor(_) | PtValue::Raw(_) => true,
        PtValue::List(items) | PtValue::Tuple(items) => items.iter().any(has_tensor),
        PtValue::Dict(entries) => entries.iter().any(|(_, value)| has_tensor(value)),
        _ => false,
    }
}

/// The keys that a name stands for: its group's, if it has one, and the rest.
pub(crate) fn keys<'a>(groups: &[String], name: &'a str) -> (Option<&'a str>, &'a str) {
    // The longest group, as one may begin like another.
    let of = |group: &&String| {
        name.strip_prefix(group.as_str()).is_some_and(|rest| rest.starts_with('.'))
    };
    match groups.iter().filter(of).map(|group| group.len()).max() {
        Some(length) => (Some(&name[..length]), &name[length + 1..]),
        None => (None, name),
    }
}
