//! What a file of `torch.save` holds.

use serde_json::Value;

use super::raw::PtRaw;
use crate::checkpoint::{TensorMap, words};
use crate::error::{Error, Result};
use crate::nn::StateDict;
use crate::tensor::{Complex, Dtype, Tensor};

/// A Python value of the kinds that checkpoints are made of. NumPy's scalars are plain numbers, its arrays
/// tensors.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{PtValue, TensorMap}};
/// let value = PtValue::from(&TensorMap::from([("w".to_owned(), Tensor::from([1f32, 2.]))]));
/// assert!(matches!(value.get("w"), Some(PtValue::Tensor(w)) if w.shape() == [2]));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PtValue {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
    /// A text.
    Str(String),
    /// Bytes; also an integer of more than 64 bits, little-endian.
    Bytes(Vec<u8>),
    /// A dtype, such as `torch.float32`.
    Dtype(Dtype),
    /// A tensor or parameter, an array of NumPy, or a storage by itself (then of one dimension).
    Tensor(Tensor),
    /// A tensor of a dtype that is not known here: unsigned integers of more than a byte, floats of
    /// eight bits.
    Raw(Box<PtRaw>),
    /// A list, or a set.
    List(Vec<PtValue>),
    /// A tuple, or a `torch.Size`.
    Tuple(Vec<PtValue>),
    /// A dict, of any of Python's kinds, in its order.
    Dict(Vec<(PtValue, PtValue)>),
    /// An object of any other class, of which nothing was run.
    Object(Box<PtObject>),
}

impl PtValue {
    /// What a dict has under a name, or an object as its attribute.
    ///
    /// ```
    /// use torchrs::checkpoint::PtValue;
    /// let value = PtValue::Dict(vec![(PtValue::Str("epoch".into()), PtValue::Int(3))]);
    /// assert!(matches!(value.get("epoch"), Some(PtValue::Int(3))));
    /// ```
    pub fn get(&self, name: &str) -> Option<&PtValue> {
        let entries = match self {
            PtValue::Dict(entries) => entries,
            PtValue::Object(object) => return object.get(name),
            _ => return None,
        };
        let named =
            |(key, _): &&(PtValue, PtValue)| matches!(key, PtValue::Str(key) if key == name);
        entries.iter().rev().find(named).map(|(_, value)| value)
    }

    /// The tensors of a dict by name: what [`load_state_dict`](crate::nn::Module::load_state_dict)
    /// takes. Dicts inside are gone into; the names are then joined by dots.
    ///
    /// ```
    /// use torchrs::{Tensor, checkpoint::PtValue};
    /// let dict = |name: &str, value| PtValue::Dict(vec![(PtValue::Str(name.into()), value)]);
    /// let value = dict("model", dict("weight", PtValue::Tensor(Tensor::from([1f32, 2.]))));
    /// assert_eq!(value.tensors()?["model.weight"].to_vec::<f32>(), [1.0, 2.0]);
    /// assert!(dict("epoch", PtValue::Int(3)).tensors().is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when this is no dict, or has something else than tensors in it; names it.
    pub fn tensors(&self) -> Result<TensorMap> {
        let mut found = TensorMap::new();
        self.collect("", &mut found)?;
        Ok(found)
    }

    fn collect(&self, prefix: &str, found: &mut TensorMap) -> Result<()> {
        let wrong = |what: String| Err(Error::argument("PtValue::tensors", "value", what));
        let PtValue::Dict(entries) = self else {
            let hint = match self {
                PtValue::Raw(raw) => format!(" of {}; see `PtRaw::to_tensor`", raw.dtype),
                PtValue::Object(object) => format!(" of class {}", object.class),
                _ => String::new(),
            };
            let what = match prefix {
                "" => "the value".to_owned(),
                name => format!("`{name}`"),
            };
            return wrong(format!("{what} is {}{hint}; tensors are wanted", self.kind()));
        };
        for (key, value) in entries {
            let key = match key {
                PtValue::Str(key) => key.clone(),
                PtValue::Int(key) => key.to_string(),
                key => return wrong(format!("`{prefix}` has a key that is {}", key.kind())),
            };
            let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
            match value {
                PtValue::Tensor(tensor) => _ = found.insert(name, tensor.clone()),
                value => value.collect(&name, found)?,
            }
        }
        Ok(())
    }

    /// What JSON says. Words for numbers that are not finite are numbers.
    pub(in crate::checkpoint) fn of_json(value: &Value) -> PtValue {
        match value {
            Value::Null => PtValue::None,
            Value::Bool(b) => PtValue::Bool(*b),
            Value::Number(n) => match n.as_i64() {
                Some(n) => PtValue::Int(n),
                None => PtValue::Float(n.as_f64().unwrap_or(f64::NAN)),
            },
            // A number that is not finite, as `words` has it.
            Value::String(text) => match words::from_value::<f64>(value) {
                Ok(number) => PtValue::Float(number),
                Err(_) => PtValue::Str(text.clone()),
            },
            Value::Array(items) => PtValue::List(items.iter().map(Self::of_json).collect()),
            Value::Object(map) => {
                let entry = |(key, value): (&String, &Value)| {
                    (PtValue::Str(key.clone()), Self::of_json(value))
                };
                PtValue::Dict(map.iter().map(entry).collect())
            }
        }
    }

    /// What it is, for messages.
    pub(in crate::checkpoint) fn kind(&self) -> &'static str {
        match self {
            PtValue::None => "None",
            PtValue::Bool(_) => "a bool",
            PtValue::Int(_) => "an integer",
            PtValue::Float(_) => "a float",
            PtValue::Complex(_) => "a complex number",
            PtValue::Str(_) => "a text",
            PtValue::Bytes(_) => "bytes",
            PtValue::Dtype(_) => "a dtype",
            PtValue::Tensor(_) => "a tensor",
            PtValue::List(_) => "a list",
            PtValue::Tuple(_) => "a tuple",
            PtValue::Dict(_) => "a dict",
            PtValue::Raw(_) => "a tensor",
            PtValue::Object(_) => "an object",
        }
    }
}

impl From<&TensorMap> for PtValue {
    fn from(tensors: &TensorMap) -> Self {
        let entry = |(name, t): (&String, &Tensor)| {
            (PtValue::Str(name.clone()), PtValue::Tensor(t.detach()))
        };
        PtValue::Dict(tensors.iter().map(entry).collect())
    }
}

impl From<&StateDict> for PtValue {
    fn from(state: &StateDict) -> Self {
        let entry = |(name, t): (&str, &Tensor)| {
            (PtValue::Str(name.to_owned()), PtValue::Tensor(t.detach()))
        };
        PtValue::Dict(state.iter().map(entry).collect())
    }
}

/// An object that a file of `torch.save` holds beside tensors, of a class that is not known here (an
/// `argparse.Namespace`, a whole module): its class's name and the parts it would be built from. Nothing
/// of it was run, and it cannot be written again.
///
/// ```
/// use torchrs::checkpoint::{PtObject, PtValue};
/// let entry = |name: &str, value| (PtValue::Str(name.into()), value);
/// let namespace = PtObject {
///     class: "argparse.Namespace".into(),
///     state: Some(PtValue::Dict(vec![entry("lr", PtValue::Float(0.1))])),
///     ..Default::default()
/// };
/// assert!(matches!(namespace.get("lr"), Some(PtValue::Float(0.1))));
/// ```
#[derive(Clone, Debug, Default)]
pub struct PtObject {
    /// Module and name. A function's where the object would be what it returns; `type` for a class or
    /// function by itself, which the one argument names.
    pub class: String,
    /// What it would be called with.
    pub arguments: Vec<PtValue>,
    /// What its attributes would be set from; most often a dict of them.
    pub state: Option<PtValue>,
    /// Of a kind of list.
    pub items: Vec<PtValue>,
    /// Of a kind of dict.
    pub entries: Vec<(PtValue, PtValue)>,
}

impl PtObject {
    /// The attribute of a name, if `state` has it.
    ///
    /// ```
    /// use torchrs::checkpoint::PtObject;
    /// assert!(PtObject { class: "a.B".into(), ..Default::default() }.get("lr").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&PtValue> {
        match self.state.as_ref()? {
            // Of classes with slots.
            PtValue::Tuple(parts) => parts.iter().find_map(|part| part.get(name)),
            state => state.get(name),
        }
    }
}
