//! Values, nodes and constants of a graph.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::error::{Error, Result};
use crate::protobuf::Message;
use crate::tensor::{Dtype, Tensor};

/// A dimension of a value's shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Always of this size.
    Fixed(usize),
    /// Any size, the same wherever the name stands.
    Named(String),
}

impl From<usize> for Dim {
    fn from(size: usize) -> Dim {
        Dim::Fixed(size)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Dim {
        Dim::Named(name.to_owned())
    }
}

impl Dim {
    /// Both together.
    pub(super) fn plus(&self, other: &Dim) -> Dim {
        match (self, other) {
            (_, Dim::Fixed(more)) => self.offset(*more as i64),
            (Dim::Fixed(less), Dim::Named(_)) => other.offset(*less as i64),
            _ => Dim::Named(format!("{self} + {other}")),
        }
    }

    /// Larger by a number, which fits.
    pub(super) fn offset(&self, by: i64) -> Dim {
        let name = match self {
            Dim::Fixed(size) => return Dim::Fixed((*size as i64 + by).max(0) as usize),
            Dim::Named(name) => name,
        };
        // "n + 1" and 1 are "n + 2".
        let known = name.rsplit_once(" + ").and_then(|(n, more)| Some((n, more.parse().ok()?)));
        let (name, known): (&str, i64) = known.unwrap_or((name, 0));
        match known + by {
            0 => Dim::from(name),
            sum if sum > 0 => Dim::Named(format!("{name} + {sum}")),
            sum => Dim::Named(format!("{name} - {}", -sum)),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Named(name) => f.write_str(name),
        }
    }
}

/// What flows between nodes.
#[derive(Clone, Debug)]
pub struct Value {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<Dim>,
}

impl Value {
    /// Its name in the graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its shape.
    pub fn shape(&self) -> &[Dim] {
        &self.shape
    }

    /// The number of its dimensions.
    pub fn dim(&self) -> usize {
        self.shape.len()
    }

    /// The shape as text: `[batch, 3, 224, 224]`.
    pub(super) fn text(&self) -> String {
        let dims: Vec<String> = self.shape.iter().map(Dim::to_string).collect();
        format!("[{}]", dims.join(", "))
    }

    /// An input that a node may have, and has not.
    pub(super) fn absent() -> Value {
        Value { name: String::new(), dtype: Dtype::F32, shape: Vec::new() }
    }

    /// The size of a dimension that has to be known.
    pub(super) fn fixed(&self, op: &str, d: usize) -> Result<usize> {
        match self.shape.get(d) {
            Some(&Dim::Fixed(size)) => Ok(size),
            _ => Err(Error::shape(
                op,
                format!("dimension {d} of {} must have a fixed size in ONNX", self.text()),
            )),
        }
    }
}

/// A setting of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// Several of them.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// A text.
    Text(String),
    /// Several of them.
    Texts(Vec<String>),
}

impl Attribute {
    pub(super) fn message(&self, name: &str) -> Message {
        let message = Message::new().string(1, name);
        // The last field is the type.
        match self {
            Attribute::Float(x) => message.float(2, *x).int(20, 1),
            Attribute::Int(n) => message.int(3, *n as u64).int(20, 2),
            Attribute::Text(text) => message.string(4, text).int(20, 3),
            Attribute::Ints(all) => all.iter().fold(message, |m, &n| m.int(8, n as u64)).int(20, 7),
            Attribute::Texts(all) => all.iter().fold(message, |m, s| m.string(9, s)).int(20, 8),
        }
    }
}

/// A graph that grows node by node.
#[derive(Default)]
pub struct Graph {
    pub(super) nodes: Vec<Message>,
    pub(super) constants: Vec<(String, Tensor)>,
    pub(super) inputs: Vec<Value>,
    pub(super) outputs: Vec<Value>,
    /// Names of a model's tensors, by their identities; a tensor that is held keeps its own.
    names: HashMap<usize, (Tensor, String)>,
    /// Constants that are there, likewise.
    known: HashMap<usize, (Tensor, Value)>,
    /// How many names of each kind there are.
    taken: BTreeMap<String, usize>,
}

impl Graph {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a tensor a name, under which it will be a constant of the graph.
    pub fn name(&mut self, tensor: &Tensor, name: impl Into<String>) {
        self.names.insert(tensor.identity(), (tensor.clone(), name.into()));
    }

    /// A name that nothing in the graph has.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let count = self.taken.entry(name.to_owned()).or_default();
        *count += 1;
        if *count == 1 { name.to_owned() } else { format!("{name}_{}", *count - 1) }
    }

    /// An input of the graph.
    pub fn input(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: impl IntoIterator<Item = Dim>,
    ) -> Value {
        let value = Value { name: self.unique(name), dtype, shape: shape.into_iter().collect() };
        self.inputs.push(value.clone());
        value
    }

    /// Makes a value an output of the graph, under a name.
    pub fn output(&mut self, name: &str, value: &Value) {
        let output = Value { name: self.unique(name), ..value.clone() };
        self.add("Identity", &[value], &[&output.name], &[]);
        self.outputs.push(output);
    }

    /// A tensor as a constant: a parameter or buffer of the model under its name, once.
    pub fn constant(&mut self, tensor: &Tensor) -> Value {
        if let Some((_, known)) = self.known.get(&tensor.identity()) {
            return known.clone();
        }
        let name = self.name_of(tensor).unwrap_or("constant").to_owned();
        let value = self.fresh(&name, tensor.detach());
        self.known.insert(tensor.identity(), (tensor.clone(), value.clone()));
        value
    }

    fn name_of(&self, tensor: &Tensor) -> Option<&str> {
        self.names.get(&tensor.identity()).map(|(_, name)| name.as_str())
    }

    /// What is made of a parameter, as a constant: its name begins with that one's.
    pub(super) fn derived(&mut self, of: &Tensor, tensor: Tensor) -> Value {
        let name = self.name_of(of).map_or("constant".to_owned(), |name| format!("{name}.onnx"));
        self.fresh(&name, tensor.detach())
    }

    /// Whole numbers as a constant: a shape, axes.
    pub(super) fn numbers(&mut self, numbers: &[i64]) -> Value {
        let tensor = Tensor::from_slice(numbers, [numbers.len()]);
        self.fresh("constant", tensor)
    }

    /// A number of this type as a constant.
    pub fn number(&mut self, number: f64, dtype: Dtype) -> Value {
        self.fresh("constant", Tensor::full([], number, dtype))
    }

    /// A constant that nobody else has.
    pub(super) fn fresh(&mut self, name: &str, tensor: Tensor) -> Value {
        let name = self.unique(name);
        let shape = tensor.shape().iter().map(|&size| Dim::Fixed(size)).collect();
        let value = Value { name: name.clone(), dtype: tensor.dtype(), shape };
        self.constants.push((name, tensor));
        value
    }

    /// A node of any operator of the standard, whose result has this type and shape.
    pub fn node(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: &[(&str, Attribute)],
        dtype: Dtype,
        shape: impl IntoIterator<Item = Dim>,
    ) -> Value {
        let name = self.unique(&operator.to_lowercase());
        self.add(operator, inputs, &[&name], attributes);
        Value { name, dtype, shape: shape.into_iter().collect() }
    }

    /// A node with several results.
    pub(super) fn add(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        outputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) {
        let mut node = Message::new();
        for input in inputs {
            node = node.string(1, &input.name);
        }
        for output in outputs {
            node = node.string(2, output);
        }
        node = node.string(3, &format!("{operator}_{}", self.nodes.len())).string(4, operator);
        for (name, attribute) in attributes {
            node = node.message(5, attribute.message(name));
        }
        self.nodes.push(node);
    }
}
