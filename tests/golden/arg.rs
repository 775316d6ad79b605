//! Arguments and results, and how an op's closure asks for them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use torchrs::{Dtype, MemoryFormat, Operand, Scalar, Tensor};

/// A value of a call: Python's, as far as the cases have them.
#[derive(Clone, Debug)]
pub enum Arg {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Tensor(Tensor),
    List(Vec<Arg>),
    /// `None`: a type that the library does not have.
    Dtype(Option<Dtype>),
    Slice([Option<i64>; 3]),
    Ellipsis,
    Format(MemoryFormat),
    Dict(BTreeMap<String, Arg>),
    /// Anything else, as it is written.
    Other(String),
}

impl Arg {
    pub fn decode(value: &Value, named: &BTreeMap<String, Tensor>) -> Arg {
        let get = |key: &str| value.get(key).and_then(Value::as_str);
        match value {
            Value::Null => Arg::None,
            Value::Bool(b) => Arg::Bool(*b),
            Value::Number(n) => match n.as_i64() {
                Some(i) if !n.is_f64() => Arg::Int(i),
                _ => Arg::Float(n.as_f64().expect("a number")),
            },
            Value::String(s) => Arg::Str(s.clone()),
            Value::Array(list) => Arg::List(list.iter().map(|v| Arg::decode(v, named)).collect()),
            Value::Object(_) => {
                if let Some(name) = get("tensor").or(get("var")) {
                    return match named.get(name) {
                        Some(tensor) => Arg::Tensor(tensor.clone()),
                        None => Arg::Other(value.to_string()),
                    };
                }
                if let Some(Value::Object(dict)) = value.get("dict") {
                    let entry =
                        |(name, v): (&String, &Value)| (name.clone(), Arg::decode(v, named));
                    return Arg::Dict(dict.iter().map(entry).collect());
                }
                if let Some(format) = get("memory_format").and_then(memory_format) {
                    return Arg::Format(format);
                }
                match (get("float"), get("dtype"), value.get("slice"), value.get("size")) {
                    (Some(text), ..) => Arg::Float(text.parse().expect("nan, inf or -inf")),
                    (_, Some(name), ..) => Arg::Dtype(dtype(name)),
                    (_, _, Some(Value::Array(parts)), _) => {
                        Arg::Slice(std::array::from_fn(|i| parts[i].as_i64()))
                    }
                    (.., Some(size)) => Arg::decode(size, named),
                    _ if value.get("ellipsis").is_some() => Arg::Ellipsis,
                    _ => Arg::Other(value.to_string()),
                }
            }
        }
    }

    /// The part of this value that the runner has no word for.
    fn unknown(&self) -> Option<&str> {
        match self {
            Arg::Other(text) => Some(text),
            Arg::List(list) => list.iter().find_map(Arg::unknown),
            Arg::Dict(dict) => dict.values().find_map(Arg::unknown),
            _ => None,
        }
    }
}

fn memory_format(name: &str) -> Option<MemoryFormat> {
    Some(match name {
        "contiguous_format" => MemoryFormat::Contiguous,
        "preserve_format" => MemoryFormat::Preserve,
        "channels_last" => MemoryFormat::ChannelsLast,
        "channels_last_3d" => MemoryFormat::ChannelsLast3d,
        _ => return None,
    })
}

pub fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "float64" => Dtype::F64,
        "float32" => Dtype::F32,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        "int64" => Dtype::I64,
        "int32" => Dtype::I32,
        "int16" => Dtype::I16,
        "int8" => Dtype::I8,
        "uint8" => Dtype::U8,
        "bool" => Dtype::Bool,
        "complex64" => Dtype::C64,
        "complex128" => Dtype::C128,
        _ => return None,
    })
}

/// Why a call was not made.
#[derive(Debug)]
pub enum Stop {
    /// The library lacks this.
    NotImplemented(String),
    /// Rust's types do not let anyone write this.
    Unwritable(String),
}

pub type Outcome<T = Arg> = Result<T, Stop>;

/// The op lacks this form.
pub fn lacks<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Stop::NotImplemented(what.into()))
}

/// A call: positional and named arguments. What a closure did not ask for, it does not support:
/// [`Call::unused`] tells, so that no argument is silently ignored.
pub struct Call {
    args: Vec<Arg>,
    named: BTreeMap<String, Arg>,
    asked: RefCell<BTreeSet<String>>,
    seen: RefCell<BTreeSet<usize>>,
}

impl Call {
    pub fn new(args: Vec<Arg>, named: BTreeMap<String, Arg>) -> Self {
        let (asked, seen) = Default::default();
        Call { args, named, asked, seen }
    }

    /// An argument that was given and that nobody asked for.
    pub fn unused(&self) -> Option<String> {
        let (asked, seen) = (self.asked.borrow(), self.seen.borrow());
        let named = self.named.iter().filter(|(name, _)| !asked.contains(*name));
        let named = named.map(|(name, value)| format!("argument {name}={value:?}"));
        let rest = self.args.iter().enumerate().filter(|(i, _)| !seen.contains(i));
        named.chain(rest.map(|(i, value)| format!("argument {i}: {value:?}"))).next()
    }

    /// Argument `i`, or the one of that name; [`Arg::None`] if it was not given.
    pub fn get(&self, i: usize, name: &str) -> &Arg {
        self.asked.borrow_mut().insert(name.into());
        self.seen.borrow_mut().insert(i);
        self.args.get(i).or_else(|| self.named.get(name)).unwrap_or(&Arg::None)
    }

    /// An argument that is only ever named.
    pub fn keyword(&self, name: &str) -> &Arg {
        self.get(usize::MAX, name)
    }

    pub fn given(&self, i: usize, name: &str) -> bool {
        i < self.args.len() || self.named.contains_key(name)
    }

    /// The argument has a type or value that the parameter's Rust type rules out; or the runner does
    /// not know it.
    pub fn odd<T>(&self, i: usize, name: &str) -> Outcome<T> {
        let value = self.get(i, name);
        match value.unknown() {
            Some(what) => lacks(format!("{name}={what}")),
            None => Err(Stop::Unwritable(format!("{value:?} for {name}"))),
        }
    }

    pub fn tensor(&self, i: usize, name: &str) -> Outcome<&Tensor> {
        match self.get(i, name) {
            Arg::Tensor(t) => Ok(t),
            _ => self.odd(i, name),
        }
    }

    pub fn maybe_tensor(&self, i: usize, name: &str) -> Outcome<Option<&Tensor>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            Arg::Tensor(t) => Ok(Some(t)),
            _ => self.odd(i, name),
        }
    }

    /// A list of tensors; a lone one counts as a list.
    pub fn tensor_list(&self, i: usize, name: &str) -> Outcome<Vec<Tensor>> {
        match self.get(i, name) {
            Arg::Tensor(t) => Ok(vec![t.clone()]),
            Arg::List(list) => list
                .iter()
                .map(|item| match item {
                    Arg::Tensor(t) => Ok(t.clone()),
                    _ => self.odd(i, name),
                })
                .collect(),
            _ => self.odd(i, name),
        }
    }

    /// Tensors by name.
    pub fn tensors_by_name(&self, i: usize, name: &str) -> Outcome<BTreeMap<String, Tensor>> {
        let Arg::Dict(dict) = self.get(i, name) else { return self.odd(i, name) };
        let tensor = |(key, value): (&String, &Arg)| match value {
            Arg::Tensor(t) => Ok((key.clone(), t.clone())),
            _ => self.odd(i, name),
        };
        dict.iter().map(tensor).collect()
    }

    /// All positional arguments from `i` on as tensors, or the list that argument `i` is.
    pub fn tensors_from(&self, i: usize) -> Outcome<Vec<Tensor>> {
        if let Arg::List(_) = self.get(i, "tensors") {
            return self.tensor_list(i, "tensors");
        }
        (i..self.args.len()).map(|k| self.tensor(k, "tensors").cloned()).collect()
    }

    pub fn maybe_int(&self, i: usize, name: &str) -> Outcome<Option<i64>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            Arg::Int(v) => Ok(Some(*v)),
            Arg::Tensor(t)
                if t.dim() == 0 && t.dtype().is_integral() && t.dtype() != Dtype::Bool =>
            {
                Ok(Some(t.item_i64()))
            }
            _ => self.odd(i, name),
        }
    }

    pub fn int(&self, i: usize, name: &str, default: i64) -> Outcome<i64> {
        Ok(self.maybe_int(i, name)?.unwrap_or(default))
    }

    /// A count or size; negative ones cannot be written.
    pub fn maybe_count(&self, i: usize, name: &str) -> Outcome<Option<usize>> {
        let count = |v: i64| v.try_into().or_else(|_| self.odd(i, name));
        self.maybe_int(i, name)?.map(count).transpose()
    }

    pub fn count(&self, i: usize, name: &str, default: usize) -> Outcome<usize> {
        Ok(self.maybe_count(i, name)?.unwrap_or(default))
    }

    pub fn maybe_float(&self, i: usize, name: &str) -> Outcome<Option<f64>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            Arg::Int(v) => Ok(Some(*v as f64)),
            Arg::Float(v) => Ok(Some(*v)),
            Arg::Bool(v) => Ok(Some(f64::from(*v))),
            _ => self.odd(i, name),
        }
    }

    pub fn float(&self, i: usize, name: &str, default: f64) -> Outcome<f64> {
        Ok(self.maybe_float(i, name)?.unwrap_or(default))
    }

    /// A list of numbers.
    pub fn floats(&self, i: usize, name: &str) -> Outcome<Vec<f64>> {
        let number = |item: &Arg| match item {
            Arg::Float(v) => Ok(*v),
            Arg::Int(v) => Ok(*v as f64),
            _ => self.odd(i, name),
        };
        match self.get(i, name) {
            Arg::List(list) => list.iter().map(number).collect(),
            _ => self.odd(i, name),
        }
    }

    /// A number with its kind.
    pub fn maybe_number(&self, i: usize, name: &str) -> Outcome<Option<Scalar>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            Arg::Int(v) => Ok(Some(Scalar::I(*v))),
            Arg::Float(v) => Ok(Some(Scalar::F(*v))),
            Arg::Bool(v) => Ok(Some(Scalar::B(*v))),
            _ => self.odd(i, name),
        }
    }

    /// A tensor or a number.
    pub fn operand(&self, i: usize, name: &str) -> Outcome<Operand<'_>> {
        match self.get(i, name) {
            Arg::Tensor(t) => Ok(Operand::Tensor(t)),
            _ => match self.maybe_number(i, name)? {
                Some(number) => Ok(number.into()),
                None => self.odd(i, name),
            },
        }
    }

    /// A tensor or a number, if one was given.
    pub fn given_operand(&self, i: usize, name: &str) -> Outcome<Option<Operand<'_>>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            _ => self.operand(i, name).map(Some),
        }
    }

    pub fn maybe_flag(&self, i: usize, name: &str) -> Outcome<Option<bool>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            Arg::Bool(v) => Ok(Some(*v)),
            _ => self.odd(i, name),
        }
    }

    pub fn flag(&self, i: usize, name: &str, default: bool) -> Outcome<bool> {
        Ok(self.maybe_flag(i, name)?.unwrap_or(default))
    }

    /// A flag that PyTorch reads as Python's `if` does: any value is one.
    pub fn truth(&self, i: usize, name: &str, default: bool) -> Outcome<bool> {
        match self.get(i, name) {
            Arg::Int(v) => Ok(*v != 0),
            Arg::Str(text) => Ok(!text.is_empty()),
            _ => self.flag(i, name, default),
        }
    }

    /// One of the names in `choices`, the first if none is given.
    pub fn choice<T: Copy>(&self, i: usize, name: &str, choices: &[(&str, T)]) -> Outcome<T> {
        match self.get(i, name) {
            Arg::None => Ok(choices[0].1),
            Arg::Str(text) => match choices.iter().find(|(choice, _)| choice == text) {
                Some((_, value)) => Ok(*value),
                None => self.odd(i, name),
            },
            _ => self.odd(i, name),
        }
    }

    pub fn text(&self, i: usize, name: &str, default: &str) -> Outcome<String> {
        match self.get(i, name) {
            Arg::None => Ok(default.into()),
            Arg::Str(v) => Ok(v.clone()),
            _ => self.odd(i, name),
        }
    }

    pub fn maybe_dtype(&self, i: usize, name: &str) -> Outcome<Option<Dtype>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            Arg::Dtype(Some(v)) => Ok(Some(*v)),
            Arg::Dtype(None) => lacks("this type"),
            _ => self.odd(i, name),
        }
    }

    /// A list of integers; a lone one counts as a list.
    pub fn maybe_ints(&self, i: usize, name: &str) -> Outcome<Option<Vec<i64>>> {
        match self.get(i, name) {
            Arg::None => Ok(None),
            Arg::Int(v) => Ok(Some(vec![*v])),
            Arg::List(list) => list
                .iter()
                .map(|item| match item {
                    Arg::Int(v) => Ok(*v),
                    _ => self.odd(i, name),
                })
                .collect::<Outcome<_>>()
                .map(Some),
            _ => self.odd(i, name),
        }
    }

    pub fn ints(&self, i: usize, name: &str) -> Outcome<Vec<i64>> {
        match self.maybe_ints(i, name)? {
            Some(list) => Ok(list),
            None => self.odd(i, name),
        }
    }

    /// A list of integers from position `i` on: one list, or several arguments (`view(2, 3)`).
    pub fn ints_from(&self, i: usize, name: &str) -> Outcome<Vec<i64>> {
        match self.get(i, name) {
            Arg::Int(_) => (i..self.args.len())
                .map(|k| match self.get(k, name) {
                    Arg::Int(v) => Ok(*v),
                    _ => self.odd(k, name),
                })
                .collect(),
            Arg::None => Ok(Vec::new()),
            _ => self.ints(i, name),
        }
    }

    /// A shape, as one list or several arguments; negative sizes cannot be written.
    pub fn sizes(&self, i: usize, name: &str) -> Outcome<Vec<usize>> {
        self.unsigned(self.ints_from(i, name)?, i, name)
    }

    /// A shape that is one list.
    pub fn size_list(&self, i: usize, name: &str) -> Outcome<Vec<usize>> {
        self.unsigned(self.ints(i, name)?, i, name)
    }

    fn unsigned(&self, list: Vec<i64>, i: usize, name: &str) -> Outcome<Vec<usize>> {
        list.into_iter().map(|v| v.try_into().or_else(|_| self.odd(i, name))).collect()
    }

    /// One number for each of `N` dimensions; a lone one counts for all.
    pub fn per_dim<const N: usize>(
        &self,
        i: usize,
        name: &str,
        default: usize,
    ) -> Outcome<[usize; N]> {
        let list = self.maybe_ints(i, name)?.unwrap_or_else(|| vec![default as i64]);
        let size = |k: usize| list.get(if list.len() == 1 { 0 } else { k }).copied();
        let mut out = [0; N];
        for (k, out) in out.iter_mut().enumerate() {
            match size(k).and_then(|v| usize::try_from(v).ok()) {
                Some(v) if list.len() == 1 || list.len() == N => *out = v,
                _ => return self.odd(i, name),
            }
        }
        Ok(out)
    }
}
