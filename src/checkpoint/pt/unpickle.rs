//! The stack machine that a pickle is a program for, as far as data needs it. Values live in an arena
//! and refer to each other by index, so that nothing here recurses; [`Machine::finish`] makes a tree of
//! them, of limited depth and size.

use std::collections::HashMap;

use super::storages::{Storages, dtype_named, storage_dtype, view};
use super::value::PtValue;
use crate::checkpoint::raw::shown;
use crate::{Dtype, Tensor};

/// Deepest nesting of lists and dicts.
const MAX_DEPTH: usize = 100;

type Id = usize;

/// Python objects that a file may name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Global {
    /// `OrderedDict`, `Counter`, `defaultdict`.
    Dict,
    List,
    Size,
    /// A storage class; `None` for bytes without a type.
    Storage(Option<Dtype>),
    Dtype(Dtype),
    Device,
    Encode,
    RebuildTensor,
    /// With the dtype apart from the storage.
    RebuildTyped,
    RebuildParameter,
    /// Of a subclass: rebuilt as a plain tensor.
    RebuildFromType,
    /// Classes that are only arguments here.
    Class,
}

fn global(module: &str, name: &str) -> Option<Global> {
    Some(match (module, name) {
        ("collections", "OrderedDict" | "Counter" | "defaultdict") => Global::Dict,
        ("builtins" | "__builtin__", "set" | "frozenset" | "list") => Global::List,
        ("builtins" | "__builtin__", "dict") => Global::Dict,
        ("torch", "Size") => Global::Size,
        ("torch", "device") => Global::Device,
        ("torch", "Tensor") | ("torch.nn.parameter", "Parameter") => Global::Class,
        ("torch" | "torch.storage", "UntypedStorage") => Global::Storage(None),
        ("torch", name) if storage_dtype(name).is_some() => Global::Storage(storage_dtype(name)),
        ("torch", name) if dtype_named(name).is_some() => Global::Dtype(dtype_named(name)?),
        ("_codecs", "encode") => Global::Encode,
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Global::RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v3") => Global::RebuildTyped,
        ("torch._utils", "_rebuild_parameter") => Global::RebuildParameter,
        ("torch._tensor", "_rebuild_from_type_v2") => Global::RebuildFromType,
        _ => return None,
    })
}

#[derive(Debug)]
enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, little-endian.
    Long(Vec<u8>),
    Float(f64),
    Str(String),
    Bytes(Vec<u8>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    /// A storage's elements; the flag says that their type is not known yet.
    Storage(Tensor, bool),
    Tensor(Tensor),
}

/// Runs one pickle.
pub(super) struct Machine<'a, 's> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Id>,
    /// Heights of the stack at marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    storages: Option<&'a mut Storages<'s>>,
}

type Step<T> = Result<T, String>;

impl<'a, 's> Machine<'a, 's> {
    /// Runs the pickle at the start of `bytes`. Gives its value, and how many bytes it has.
    /// Without `storages` it may hold no tensors.
    pub(super) fn run(
        bytes: &'a [u8],
        storages: Option<&'a mut Storages<'s>>,
    ) -> Step<(PtValue, usize)> {
        let mut machine = Machine {
            bytes,
            at: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            storages,
        };
        let place = |machine: &Machine, what: String| format!("{what} (byte {})", machine.at);
        loop {
            match machine.step() {
                Ok(None) => {}
                Ok(Some(value)) => {
                    let tree = machine.finish(value).map_err(|e| place(&machine, e))?;
                    return Ok((tree, machine.at));
                }
                Err(what) => return Err(place(&machine, what)),
            }
        }
    }

    fn take(&mut self, n: usize) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..n).ok_or_else(|| {
            format!("the pickle is cut off: {n} more bytes are needed, {} are there", rest.len())
        })?;
        self.at += n;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Step<u64> {
        let mut wide = [0; 8];
        wide[..N].copy_from_slice(self.take(N)?);
        Ok(u64::from_le_bytes(wide))
    }

    /// Bytes after their count, which has `N` bytes.
    fn counted<const N: usize>(&mut self) -> Step<&'a [u8]> {
        let n = self.number::<N>()?;
        self.take(usize::try_from(n).unwrap_or(usize::MAX))
    }

    fn text(bytes: &[u8]) -> Step<String> {
        // Python may write lone surrogates, which are no text elsewhere.
        String::from_utf8(bytes.to_vec()).map_err(|_| "holds a text that is not UTF-8".into())
    }

    fn line(&mut self) -> Step<String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&b| b == b'\n').ok_or("the pickle is cut off in a name")?;
        self.at += end + 1;
        Self::text(&rest[..end])
    }

    fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.stack.push(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// The highest value above the last mark.
    fn pop(&mut self) -> Step<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len() > floor {
            true => Ok(self.stack.pop().expect("above the floor")),
            false => Err("takes a value from an empty stack".into()),
        }
    }

    fn top(&self) -> Step<Id> {
        self.stack.last().copied().ok_or_else(|| "looks at an empty stack".into())
    }

    fn pop_to_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or("goes back to a mark that is not there")?;
        Ok(self.stack.split_off(mark))
    }

    fn remember(&mut self, key: u32) -> Step<()> {
        let value = self.top()?;
        self.memo.insert(key, value);
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Step<()> {
        let value = self.memo.get(&key).copied();
        self.stack.push(value.ok_or_else(|| format!("recalls value {key}, which is not there"))?);
        Ok(())
    }

    fn append(&mut self, items: Vec<Id>) -> Step<()> {
        let list = self.top()?;
        match &mut self.nodes[list] {
            Node::List(list) => list.extend(items),
            _ => return Err("appends to what is no list".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Id>) -> Step<()> {
        let dict = self.top()?;
        match &mut self.nodes[dict] {
            Node::Dict(dict) if items.len() % 2 == 0 => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return Err("sets entries of what is no dict".into()),
        }
        Ok(())
    }

    fn push_long(&mut self, bytes: &[u8]) -> Id {
        let mut wide = match bytes.last() {
            Some(last) if last & 0x80 != 0 => [0xFF; 8],
            _ => [0; 8],
        };
        if bytes.len() > 8 {
            return self.push(Node::Long(bytes.to_vec()));
        }
        wide[..bytes.len()].copy_from_slice(bytes);
        self.push(Node::Int(i64::from_le_bytes(wide)))
    }

    fn push_global(&mut self, module: &str, name: &str) -> Step<()> {
        let Some(found) = global(module, name) else {
            return Err(format!(
                "holds a `{}.{}`; only tensors, dicts, lists, numbers and text are read",
                shown(module.as_bytes()),
                shown(name.as_bytes())
            ));
        };
        self.push(Node::Global(found));
        Ok(())
    }

    /// One instruction; the value at the end.
    fn step(&mut self) -> Step<Option<Id>> {
        let code = self.take(1)?[0];
        match code {
            0x80 => match self.number::<1>()? {
                2..=5 => {}
                other => return Err(format!("is a pickle of protocol {other}; 2 to 5 are read")),
            },
            0x95 => _ = self.number::<8>()?,
            b'.' => return self.pop().map(Some),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => match self.marks.last() == Some(&self.stack.len()) {
                true => _ = self.marks.pop(),
                false => _ = self.pop()?,
            },
            b'1' => _ = self.pop_to_mark()?,
            b'N' => _ = self.push(Node::None),
            0x88 => _ = self.push(Node::Bool(true)),
            0x89 => _ = self.push(Node::Bool(false)),
            b'J' => {
                let n = self.number::<4>()? as u32 as i32;
                self.push(Node::Int(n.into()));
            }
            b'K' => {
                let n = self.number::<1>()?;
                self.push(Node::Int(n as i64));
            }
            b'M' => {
                let n = self.number::<2>()?;
                self.push(Node::Int(n as i64));
            }
            0x8A => {
                let bytes = self.counted::<1>()?;
                self.push_long(bytes);
            }
            0x8B => {
                let bytes = self.counted::<4>()?;
                self.push_long(bytes);
            }
            b'G' => {
                let bytes = self.take(8)?.try_into().expect("eight bytes");
                self.push(Node::Float(f64::from_be_bytes(bytes)));
            }
            b'X' => {
                let text = Self::text(self.counted::<4>()?)?;
                self.push(Node::Str(text));
            }
            0x8C => {
                let text = Self::text(self.counted::<1>()?)?;
                self.push(Node::Str(text));
            }
            0x8D => {
                let text = Self::text(self.counted::<8>()?)?;
                self.push(Node::Str(text));
            }
            // Texts of Python 2.
            b'U' => {
                let text = Self::text(self.counted::<1>()?)?;
                self.push(Node::Str(text));
            }
            b'T' => {
                let text = Self::text(self.counted::<4>()?)?;
                self.push(Node::Str(text));
            }
            b'C' => {
                let bytes = self.counted::<1>()?.to_vec();
                self.push(Node::Bytes(bytes));
            }
            b'B' => {
                let bytes = self.counted::<4>()?.to_vec();
                self.push(Node::Bytes(bytes));
            }
            0x8E | 0x96 => {
                let bytes = self.counted::<8>()?.to_vec();
                self.push(Node::Bytes(bytes));
            }
            b'}' => _ = self.push(Node::Dict(Vec::new())),
            b']' | 0x8F => _ = self.push(Node::List(Vec::new())),
            b')' => _ = self.push(Node::Tuple(Vec::new())),
            b't' => {
                let items = self.pop_to_mark()?;
                self.push(Node::Tuple(items));
            }
            b'l' | 0x91 => {
                let items = self.pop_to_mark()?;
                self.push(Node::List(items));
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                self.push(Node::Dict(Vec::new()));
                self.set_items(items)?;
            }
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0..code - 0x84 {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push(Node::Tuple(items));
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' | 0x90 => {
                let items = self.pop_to_mark()?;
                self.append(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(items)?;
            }
            b'q' => {
                let key = self.number::<1>()? as u32;
                self.remember(key)?;
            }
            b'r' => {
                let key = self.number::<4>()? as u32;
                self.remember(key)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            b'h' => {
                let key = self.number::<1>()? as u32;
                self.recall(key)?;
            }
            b'j' => {
                let key = self.number::<4>()? as u32;
                self.recall(key)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push_global(&module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Node::Str(module), Node::Str(name)) = (&self.nodes[module], &self.nodes[name])
                else {
                    return Err("names an object by what is no text".into());
                };
                let (module, name) = (module.clone(), name.clone());
                self.push_global(&module, &name)?;
            }
            b'R' | 0x81 => {
                let (arguments, callee) = (self.pop()?, self.pop()?);
                let made = self.call(callee, arguments)?;
                self.push(made);
            }
            // Attributes, such as a state dict's `_metadata`, are left out.
            b'b' => {
                self.pop()?;
                match &self.nodes[self.top()?] {
                    Node::Dict(_) | Node::Tensor(_) => {}
                    _ => return Err("sets attributes of what has none".into()),
                }
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(id)?;
                self.push(storage);
            }
            other => {
                return Err(format!("has the instruction 0x{other:02x}, which data does not need"));
            }
        }
        Ok(None)
    }

    fn tuple(&self, id: Id, what: &str) -> Step<&[Id]> {
        match &self.nodes[id] {
            Node::Tuple(items) => Ok(items),
            _ => Err(format!("{what} is no tuple")),
        }
    }

    fn int(&self, id: Id, what: &str) -> Step<i64> {
        match self.nodes[id] {
            Node::Int(n) => Ok(n),
            _ => Err(format!("{what} is no integer")),
        }
    }

    fn ints(&self, id: Id, what: &str) -> Step<Vec<i64>> {
        let (Node::Tuple(items) | Node::List(items)) = &self.nodes[id] else {
            return Err(format!("{what} is no tuple"));
        };
        items.iter().map(|&item| self.int(item, what)).collect()
    }

    /// The storage of a persistent id: `("storage", class, key, location, numel, ..)`.
    fn storage(&mut self, id: Id) -> Step<Node> {
        let wrong = || "refers to something outside that is no storage".to_owned();
        let &[kind, class, key, _, numel, ..] = self.tuple(id, "a persistent id")? else {
            return Err(wrong());
        };
        let (Node::Str(kind), &Node::Global(Global::Storage(dtype)), Node::Str(key)) =
            (&self.nodes[kind], &self.nodes[class], &self.nodes[key])
        else {
            return Err(wrong());
        };
        if kind != "storage" {
            return Err(wrong());
        }
        let (key, numel) = (key.clone(), self.int(numel, "a storage's size")?);
        let storages = self.storages.as_deref_mut().ok_or_else(wrong)?;
        let storage = storages.get(&key, dtype.unwrap_or(Dtype::U8), numel)?;
        Ok(Node::Storage(storage, dtype.is_none()))
    }

    fn call(&mut self, callee: Id, arguments: Id) -> Step<Node> {
        let Node::Global(callee) = self.nodes[callee] else {
            return Err("calls what is no function".into());
        };
        let arguments = self.tuple(arguments, "a list of arguments")?.to_vec();
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
            (Global::RebuildTensor | Global::RebuildTyped, _) => self.tensor(callee, &arguments)?,
            (Global::RebuildParameter, Some(Node::Tensor(t))) => {
                let trained = arguments.get(1).map(|&id| &self.nodes[id]);
                let trained = matches!(trained, Some(Node::Bool(true)));
                // Another handle: the data may be a tensor of its own in the file.
                let t = t.detach();
                Node::Tensor(match trained && t.dtype().is_floating_point() {
                    true => t.requires_grad_(true),
                    false => t,
                })
            }
            (Global::RebuildFromType, _) => match arguments[..] {
                [function, _, inner, ..] => match self.nodes[function] {
                    Node::Global(f @ (Global::RebuildTensor | Global::RebuildTyped)) => {
                        let inner = self.tuple(inner, "a list of arguments")?.to_vec();
                        self.tensor(f, &inner)?
                    }
                    _ => return Err("rebuilds a tensor by another function".into()),
                },
                _ => return Err("rebuilds a tensor from too few arguments".into()),
            },
            _ => return Err(format!("calls {callee:?} with arguments that do not fit")),
        })
    }

    /// `(storage, offset, shape, strides, requires_grad, hooks, [dtype], ..)`.
    fn tensor(&self, function: Global, arguments: &[Id]) -> Step<Node> {
        let [storage, offset, shape, strides, rest @ ..] = arguments else {
            return Err("rebuilds a tensor from too few arguments".into());
        };
        let Node::Storage(storage, untyped) = &self.nodes[*storage] else {
            return Err("rebuilds a tensor from what is no storage".into());
        };
        let offset = self.int(*offset, "a tensor's offset")?;
        let shape = self.ints(*shape, "a tensor's shape")?;
        let strides = self.ints(*strides, "a tensor's strides")?;
        let typed = match (function, untyped) {
            (Global::RebuildTyped, true) => {
                let Some(Node::Global(Global::Dtype(dtype))) =
                    rest.get(2).map(|&id| &self.nodes[id])
                else {
                    return Err("rebuilds a tensor without a dtype that is known here".into());
                };
                reinterpret(storage, *dtype)?
            }
            (Global::RebuildTensor, false) => storage.clone(),
            _ => return Err("rebuilds a tensor from a storage of another kind".into()),
        };
        let tensor = view(&typed, offset, &shape, &strides)?;
        let wanted = matches!(rest.first().map(|&id| &self.nodes[id]), Some(Node::Bool(true)));
        Ok(Node::Tensor(match wanted && tensor.dtype().is_floating_point() {
            true => tensor.requires_grad_(true),
            false => tensor,
        }))
    }

    /// The value as a tree.
    fn finish(&self, root: Id) -> Step<PtValue> {
        // Values that are recalled often are many in the tree: no more than the file is long.
        let mut budget = self.bytes.len().saturating_mul(4);
        self.tree(root, 0, &mut budget)
    }

    fn tree(&self, id: Id, depth: usize, budget: &mut usize) -> Step<PtValue> {
        if depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        // A copied text counts by its length.
        let cost = match &self.nodes[id] {
            Node::Str(text) => 1 + text.len(),
            Node::Bytes(bytes) => 1 + bytes.len(),
            _ => 1,
        };
        *budget = budget.checked_sub(cost).ok_or("unfolds to far more than the file holds")?;
        let mut list = |items: &[Id]| -> Step<Vec<PtValue>> {
            items.iter().map(|&item| self.tree(item, depth + 1, budget)).collect()
        };
        Ok(match &self.nodes[id] {
            Node::None => PtValue::None,
            Node::Bool(b) => PtValue::Bool(*b),
            Node::Int(n) => PtValue::Int(*n),
            Node::Long(bytes) => PtValue::Bytes(bytes.clone()),
            Node::Float(x) => PtValue::Float(*x),
            Node::Str(text) => PtValue::Str(text.clone()),
            Node::Bytes(bytes) => PtValue::Bytes(bytes.clone()),
            Node::Tensor(t) => PtValue::Tensor(t.clone()),
            Node::Global(Global::Dtype(dtype)) => PtValue::Dtype(*dtype),
            Node::Tuple(items) => PtValue::Tuple(list(items)?),
            Node::List(items) => PtValue::List(list(items)?),
            Node::Dict(entries) => {
                let mut tree = Vec::with_capacity(entries.len());
                for &(key, value) in entries {
                    tree.push((
                        self.tree(key, depth + 1, budget)?,
                        self.tree(value, depth + 1, budget)?,
                    ));
                }
                PtValue::Dict(tree)
            }
            Node::Storage(..) | Node::Global(_) => {
                return Err("holds a storage or a class by itself; only tensors are read".into());
            }
        })
    }
}

/// The bytes of a storage as elements of a type.
fn reinterpret(bytes: &Tensor, dtype: Dtype) -> Step<Tensor> {
    if !bytes.numel().is_multiple_of(dtype.size()) {
        return Err(format!("has a storage of {} bytes for {dtype}", bytes.numel()));
    }
    let bytes = bytes.to_vec::<u8>();
    let mut typed = Tensor::zeros([bytes.len() / dtype.size()], dtype);
    crate::checkpoint::raw::bytes_mut(&mut typed).copy_from_slice(&bytes);
    Ok(typed)
}
