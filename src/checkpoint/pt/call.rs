//! What calls of Python's functions stand for. None is made: the few that rebuild tensors, arrays and
//! containers are known here, and any other becomes an [`Object`] that says what would be called.

use super::globals::Global;
use super::numpy::{Array, ArrayType};
use super::storages::{raw_view, reinterpret, view};
use super::unpickle::{Id, Machine, Node, Object, Step};
use super::value::PtValue;
use crate::autograd::no_grad;
use crate::error::catch;
use crate::tensor::{Complex, Tensor};

impl Machine<'_, '_> {
    pub(super) fn call(&mut self, callee: Id, arguments: Id) -> Step<Node> {
        let (callee, name) = match &self.nodes[callee] {
            Node::Global(callee, name) => (*callee, name.clone()),
            // A method of an object, or what another call would give.
            Node::Object(object) => (Global::Foreign, format!("{}(..)", object.class)),
            _ => return Err("calls what is no function".into()),
        };
        let arguments = self.tuple(arguments, "a list of arguments")?.to_vec();
        self.memory.take(size_of_val(&arguments[..]))?;
        let first = arguments.first().map(|&id| &self.nodes[id]);
        Ok(match (callee, first) {
            (Global::Dict, Some(Node::Dict(entries))) => Node::Dict(entries.clone()),
            // Pairs.
            (Global::Dict, Some(Node::List(pairs))) => {
                let pair = |&id: &Id| match self.tuple(id, "an entry")? {
                    &[key, value] => Ok((key, value)),
                    _ => Err("an entry is no pair".to_owned()),
                };
                Node::Dict(pairs.iter().map(pair).collect::<Step<_>>()?)
            }
            (Global::Dict, _) => Node::Dict(Vec::new()),
            (Global::List, Some(Node::List(items) | Node::Tuple(items))) => {
                Node::List(items.clone())
            }
            (Global::List, None) => Node::List(Vec::new()),
            (Global::Size, Some(Node::Tuple(items) | Node::List(items))) => {
                Node::Tuple(items.clone())
            }
            (Global::Device, Some(Node::Str(name))) => Node::Str(name.clone()),
            (Global::Encode, Some(Node::Str(text))) => {
                let byte =
                    |c: char| u8::try_from(c).map_err(|_| "holds bytes above 255".to_owned());
                Node::Bytes(text.chars().map(byte).collect::<Step<_>>()?)
            }
            (Global::Complex, _) => match arguments[..] {
                [re, im] => Node::Complex(Complex::new(self.float(re)?, self.float(im)?)),
                _ => return Err("has a complex number without two parts".into()),
            },
            (Global::Encode, None) => Node::Bytes(Vec::new()),
            (Global::Encode, Some(Node::Bytes(bytes))) => Node::Bytes(bytes.clone()),
            (Global::RebuildTensor | Global::RebuildTyped, _) => {
                match self.tensor(callee, &arguments)? {
                    Some(rebuilt) => rebuilt,
                    None => object(&name, arguments),
                }
            }
            // What is a parameter of a raw tensor, or of one that is an object, stays that.
            (Global::RebuildParameter, Some(Node::Raw(raw))) => Node::Raw(raw.clone()),
            (Global::RebuildParameter, Some(Node::Object(_))) => object(&name, arguments),
            (Global::ArrayType, Some(Node::Str(of))) => Node::ArrayType(ArrayType {
                name: of.trim_start_matches(['<', '=', '|', '>']).to_owned(),
                big_endian: of.starts_with('>'),
                compound: false,
            }),
            (Global::Array, Some(Node::Global(Global::ArrayClass, _))) => Node::EmptyArray,
            (Global::Array, Some(Node::Global(_, class))) => object(class, Vec::new()),
            (Global::ArrayOf, _) => match self.array_of(&arguments)? {
                Some(array) => array,
                None => object("numpy.ndarray", arguments),
            },
            (Global::ArrayScalar, Some(Node::ArrayType(of))) => {
                let value = match arguments.get(1).map(|&id| &self.nodes[id]) {
                    Some(Node::Bytes(bytes)) => of.scalar(bytes)?,
                    _ => None,
                };
                match value {
                    Some(value) => plain(value),
                    None => object(&name, arguments),
                }
            }
            (Global::New, Some(Node::Global(_, class))) => object(class, arguments[1..].to_vec()),
            (Global::RebuildParameter, Some(Node::Tensor(t))) => {
                let trained = arguments.get(1).map(|&id| &self.nodes[id]);
                let trained = matches!(trained, Some(Node::Bool(true)));
                // Another handle: the data may be a tensor of its own in the file.
                let t = t.detach();
                Node::Tensor(match trained && t.dtype().is_differentiable() {
                    true => t.requires_grad_(true),
                    false => t,
                })
            }
            (Global::RebuildFromType, _) => match arguments[..] {
                [function, class, inner, ..] => match (&self.nodes[function], &self.nodes[class]) {
                    (&Node::Global(f @ (Global::RebuildTensor | Global::RebuildTyped), _), _) => {
                        let inner = self.tuple(inner, "a list of arguments")?.to_vec();
                        match self.tensor(f, &inner)? {
                            Some(rebuilt) => rebuilt,
                            None => object(&name, arguments),
                        }
                    }
                    (_, Node::Global(_, class)) => object(class, arguments),
                    _ => object(&name, arguments),
                },
                _ => return Err("rebuilds a tensor from too few arguments".into()),
            },
            (
                Global::Foreign
                | Global::Array
                | Global::ArrayType
                | Global::ArrayClass
                | Global::ArrayScalar
                | Global::New,
                _,
            ) => object(&name, arguments),
            _ => return Err(format!("calls {name} with arguments that do not fit")),
        })
    }

    fn float(&self, id: Id) -> Step<f64> {
        match self.nodes[id] {
            Node::Float(x) => Ok(x),
            Node::Int(n) => Ok(n as f64),
            _ => Err("has a part of a complex number that is no number".into()),
        }
    }

    /// `(storage, offset, shape, strides, requires_grad, hooks, [dtype], [metadata])`; nothing for a
    /// dtype of which not even the size is known.
    fn tensor(&self, function: Global, arguments: &[Id]) -> Step<Option<Node>> {
        let [storage, offset, shape, strides, rest @ ..] = arguments else {
            return Err("rebuilds a tensor from too few arguments".into());
        };
        let (storage, untyped) = match &self.nodes[*storage] {
            Node::Storage(storage, untyped) => (storage, untyped),
            // One that is only named.
            Node::Object(object) if object.class == "storage" => return Ok(None),
            _ => return Err("rebuilds a tensor from what is no storage".into()),
        };
        let offset = self.int(*offset, "a tensor's offset")?;
        let shape = self.ints(*shape, "a tensor's shape")?;
        let strides = self.ints(*strides, "a tensor's strides")?;
        let dtype = rest.get(2).map(|&id| &self.nodes[id]);
        let (typed, metadata) = match (function, untyped) {
            (Global::RebuildTyped, true) => match dtype {
                Some(Node::Global(Global::Dtype(dtype), _)) => {
                    (reinterpret(storage, *dtype)?, rest.get(3))
                }
                Some(&Node::Global(Global::RawDtype(name, size), _)) => {
                    let raw = raw_view(storage, (name, size), offset, &shape, &strides)?;
                    self.marks_of(rest.get(3))?.refuse(name)?;
                    return Ok(Some(Node::Raw(Box::new(raw))));
                }
                Some(Node::Global(Global::Foreign, _)) => return Ok(None),
                _ => return Err("rebuilds a tensor without a dtype".into()),
            },
            (Global::RebuildTensor, false) => (storage.clone(), rest.get(2)),
            _ => return Err("rebuilds a tensor from a storage of another kind".into()),
        };
        // Of the storage, so that what a view repeats is computed once.
        let typed = self.marks_of(metadata)?.applied(typed)?;
        let tensor = view(&typed, offset, &shape, &strides)?;
        let wanted = matches!(rest.first().map(|&id| &self.nodes[id]), Some(Node::Bool(true)));
        Ok(Some(Node::Tensor(match wanted && tensor.dtype().is_differentiable() {
            true => tensor.requires_grad_(true),
            false => tensor,
        })))
    }

    /// What a tensor's metadata says.
    fn marks_of(&self, metadata: Option<&Id>) -> Step<Marks> {
        let mut marks = Marks::default();
        let entries = match metadata.map(|&id| &self.nodes[id]) {
            None | Some(Node::None) => return Ok(marks),
            Some(Node::Dict(entries)) => entries,
            Some(_) => return Err("has a tensor with metadata that is no dict".into()),
        };
        for &(key, value) in entries {
            match (&self.nodes[key], &self.nodes[value]) {
                (Node::Str(key), &Node::Bool(on)) if key == "conj" => marks.conj = on,
                (Node::Str(key), &Node::Bool(on)) if key == "neg" => marks.neg = on,
                (Node::Str(key), _) => {
                    let key = crate::checkpoint::raw::shown(key.as_bytes());
                    return Err(format!("has a tensor with metadata `{key}`, which is not known"));
                }
                _ => return Err("has a tensor with metadata without a name".into()),
            }
        }
        Ok(marks)
    }

    /// `(bytes, dtype, shape, order)`.
    fn array_of(&self, arguments: &[Id]) -> Step<Option<Node>> {
        let &[bytes, of, shape, order] = arguments else { return Ok(None) };
        let (Node::Bytes(bytes), Node::ArrayType(of), Node::Str(order)) =
            (&self.nodes[bytes], &self.nodes[of], &self.nodes[order])
        else {
            return Ok(None);
        };
        let shape = self.sizes(shape)?;
        Ok(of.array(&shape, order == "F", bytes)?.map(array))
    }

    /// An array's state: `(version, shape, dtype, is_fortran, contents)`.
    fn array(&self, state: Id) -> Step<Option<Node>> {
        let &[.., shape, of, fortran, contents] = self.tuple(state, "an array's state")? else {
            return Err("has an array without contents".into());
        };
        let (Node::ArrayType(of), &Node::Bool(fortran), Node::Bytes(bytes)) =
            (&self.nodes[of], &self.nodes[fortran], &self.nodes[contents])
        else {
            return Ok(None);
        };
        let shape = self.sizes(shape)?;
        Ok(of.array(&shape, fortran, bytes)?.map(array))
    }

    fn sizes(&self, shape: Id) -> Step<Vec<usize>> {
        let sizes = self.ints(shape, "an array's shape")?;
        if sizes.len() > 64 {
            return Err("has an array of more than 64 dimensions".into());
        }
        let size = |n: i64| usize::try_from(n).map_err(|_| format!("has an array of size {n}"));
        sizes.into_iter().map(size).collect()
    }

    /// Sets the state of a value that a call has made.
    pub(super) fn build(&mut self, target: Id, state: Id) -> Step<()> {
        let built = match &self.nodes[target] {
            // Attributes, such as a state dict's `_metadata`, are left out.
            Node::Dict(_) | Node::Tensor(_) | Node::Raw(_) => return Ok(()),
            Node::EmptyArray => match self.array(state)? {
                Some(array) => array,
                None => Node::Object(Box::new(Object {
                    class: "numpy.ndarray".into(),
                    state: Some(state),
                    ..Object::default()
                })),
            },
            Node::ArrayType(of) => {
                let &[_, order, parts, names, fields, ..] = self.tuple(state, "a dtype's state")?
                else {
                    return Err("has a dtype with another state".into());
                };
                let given = |id: Id| !matches!(self.nodes[id], Node::None);
                let big_endian = matches!(&self.nodes[order], Node::Str(order) if order == ">");
                let compound = [parts, names, fields].into_iter().any(given);
                Node::ArrayType(ArrayType { name: of.name.clone(), big_endian, compound })
            }
            Node::Object(_) => {
                if let Node::Object(object) = &mut self.nodes[target] {
                    object.state = Some(state);
                }
                return Ok(());
            }
            _ => return Err("sets attributes of what has none".into()),
        };
        self.memory.take(match &built {
            Node::Raw(raw) => raw.bytes.len(),
            _ => 512,
        })?;
        self.nodes[target] = built;
        Ok(())
    }
}

/// What PyTorch has not computed yet for a tensor.
#[derive(Clone, Copy, Default)]
struct Marks {
    conj: bool,
    neg: bool,
}

impl Marks {
    /// The elements with it.
    fn applied(self, storage: Tensor) -> Step<Tensor> {
        if self.conj && !storage.dtype().is_complex() {
            return Err(format!("has a {} tensor that is a conjugate", storage.dtype()));
        }
        let marked = || {
            no_grad(|| {
                let t = if self.conj { storage.conj() } else { storage.clone() };
                if self.neg { -&t } else { t }
            })
        };
        catch(marked).map_err(|e| e.to_string())
    }

    fn refuse(self, dtype: &str) -> Step<()> {
        match self.conj || self.neg {
            true => Err(format!("has a {dtype} tensor that is a conjugate or negative")),
            false => Ok(()),
        }
    }
}

fn object(class: &str, arguments: Vec<Id>) -> Node {
    Node::Object(Box::new(Object { class: class.to_owned(), arguments, ..Object::default() }))
}

fn array(array: Array) -> Node {
    match array {
        Array::Tensor(tensor) => Node::Tensor(tensor),
        Array::Raw(raw) => Node::Raw(Box::new(raw)),
    }
}

/// A scalar's value as a node.
fn plain(value: PtValue) -> Node {
    match value {
        PtValue::Bool(b) => Node::Bool(b),
        PtValue::Int(n) => Node::Int(n),
        PtValue::Float(x) => Node::Float(x),
        PtValue::Complex(z) => Node::Complex(z),
        PtValue::Str(text) => Node::Str(text),
        PtValue::Bytes(bytes) => Node::Bytes(bytes),
        PtValue::Raw(raw) => Node::Raw(raw),
        _ => Node::None,
    }
}
