//! The stack machine that a pickle is a program for, as far as data needs it. Values live in an arena
//! and refer to each other by index, so that nothing here recurses; `tree.rs` makes a tree of them, of
//! limited depth and size, and `call.rs` what calls of functions stand for.

use std::collections::HashMap;

use super::globals::{Global, global};
use super::memory::Memory;
use super::numpy::ArrayType;
use super::raw::PtRaw;
use super::storages::Storages;
use super::value::PtValue;
use crate::checkpoint::raw::{reserve, scarce};
use crate::tensor::{Complex, Dtype, Tensor};

pub(super) type Id = usize;

/// An object of a class that is not known here.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) class: String,
    pub(super) arguments: Vec<Id>,
    pub(super) state: Option<Id>,
    pub(super) items: Vec<Id>,
    pub(super) entries: Vec<(Id, Id)>,
}

#[derive(Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, little-endian.
    Long(Vec<u8>),
    Float(f64),
    Complex(Complex<f64>),
    Str(String),
    Bytes(Vec<u8>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// With its module and name.
    Global(Global, String),
    /// A storage's elements; the flag says that their type is not known yet.
    Storage(Tensor, bool),
    Tensor(Tensor),
    Raw(Box<PtRaw>),
    ArrayType(ArrayType),
    /// An array of NumPy before its contents.
    EmptyArray,
    Object(Box<Object>),
}

/// What a pickle may refer to that lies outside of it.
pub(super) enum Outside<'a, 's> {
    Nothing,
    Storages(&'a mut Storages<'s>),
    /// Storages, of which none is read: each is an [`Object`] `storage` of class, key and number of elements, and a
    /// tensor what would be called.
    Names,
}

/// Runs one pickle.
pub(super) struct Machine<'a, 's> {
    bytes: &'a [u8],
    at: usize,
    pub(super) nodes: Vec<Node>,
    stack: Vec<Id>,
    /// Heights of the stack at marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    outside: Outside<'a, 's>,
    pub(super) memory: Memory,
}

pub(super) type Step<T> = Result<T, String>;

impl<'a, 's> Machine<'a, 's> {
    /// Runs the pickle at the start of `bytes`. Gives its value, and how many bytes it has.
    pub(super) fn run(bytes: &'a [u8], outside: Outside<'a, 's>) -> Step<(PtValue, usize)> {
        let (mut machine, value) = Self::ended(bytes, outside)?;
        let tree = machine.finish(value, bytes.len()).map_err(|e| machine.placed(e))?;
        Ok((tree, machine.at))
    }

    /// The same, its value as the machine has it.
    pub(super) fn ended(bytes: &'a [u8], outside: Outside<'a, 's>) -> Step<(Self, Id)> {
        let mut machine = Machine {
            bytes,
            at: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            outside,
            memory: Memory::new(bytes.len()),
        };
        loop {
            match machine.step() {
                Ok(None) => {}
                Ok(Some(value)) => return Ok((machine, value)),
                Err(what) => return Err(machine.placed(what)),
            }
        }
    }

    /// What is wrong, and where.
    fn placed(&self, what: String) -> String {
        format!("{what} (byte {})", self.at)
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

    fn push(&mut self, node: Node) -> Step<()> {
        self.memory.take(size_of::<Node>() + size_of::<Id>() + node.payload())?;
        reserve(&mut self.nodes, 1)?;
        reserve(&mut self.stack, 1)?;
        self.nodes.push(node);
        self.stack.push(self.nodes.len() - 1);
        Ok(())
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
        let mut items = Vec::new();
        reserve(&mut items, self.stack.len().saturating_sub(mark))?;
        items.extend(self.stack.drain(mark..));
        Ok(items)
    }

    fn remember(&mut self, key: u32) -> Step<()> {
        let value = self.top()?;
        self.memory.take(4 * size_of::<Id>())?;
        self.memo.try_reserve(1).map_err(|_| scarce())?;
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
        self.memory.take(2 * size_of::<Id>() * items.len())?;
        match &mut self.nodes[list] {
            Node::List(list) => {
                reserve(list, items.len())?;
                list.extend(items);
            }
            Node::Object(object) => {
                reserve(&mut object.items, items.len())?;
                object.items.extend(items);
            }
            _ => return Err("appends to what is no list".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Id>) -> Step<()> {
        let dict = self.top()?;
        self.memory.take(2 * size_of::<Id>() * items.len())?;
        let pairs = items.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        match &mut self.nodes[dict] {
            _ if !items.len().is_multiple_of(2) => return Err("sets half an entry".into()),
            Node::Dict(dict) => {
                reserve(dict, pairs.len())?;
                dict.extend(pairs);
            }
            Node::Object(object) => {
                reserve(&mut object.entries, pairs.len())?;
                object.entries.extend(pairs);
            }
            _ => return Err("sets entries of what is no dict".into()),
        }
        Ok(())
    }

    fn push_long(&mut self, bytes: &[u8]) -> Step<()> {
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
        self.push(Node::Global(global(module, name), format!("{module}.{name}")))
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
            b'(' => {
                self.memory.take(size_of::<usize>())?;
                reserve(&mut self.marks, 1)?;
                self.marks.push(self.stack.len());
            }
            b'0' => match self.marks.last() == Some(&self.stack.len()) {
                true => _ = self.marks.pop(),
                false => _ = self.pop()?,
            },
            b'1' => drop(self.pop_to_mark()?),
            b'N' => self.push(Node::None)?,
            0x88 => self.push(Node::Bool(true))?,
            0x89 => self.push(Node::Bool(false))?,
            b'J' => {
                let n = self.number::<4>()? as u32 as i32;
                self.push(Node::Int(n.into()))?;
            }
            b'K' => {
                let n = self.number::<1>()?;
                self.push(Node::Int(n as i64))?;
            }
            b'M' => {
                let n = self.number::<2>()?;
                self.push(Node::Int(n as i64))?;
            }
            0x8A => {
                let bytes = self.counted::<1>()?;
                self.push_long(bytes)?;
            }
            0x8B => {
                let bytes = self.counted::<4>()?;
                self.push_long(bytes)?;
            }
            b'G' => {
                let bytes = self.take(8)?.try_into().expect("eight bytes");
                self.push(Node::Float(f64::from_be_bytes(bytes)))?;
            }
            b'X' => {
                let text = Self::text(self.counted::<4>()?)?;
                self.push(Node::Str(text))?;
            }
            0x8C => {
                let text = Self::text(self.counted::<1>()?)?;
                self.push(Node::Str(text))?;
            }
            0x8D => {
                let text = Self::text(self.counted::<8>()?)?;
                self.push(Node::Str(text))?;
            }
            // Texts of Python 2.
            b'U' => {
                let text = Self::text(self.counted::<1>()?)?;
                self.push(Node::Str(text))?;
            }
            b'T' => {
                let text = Self::text(self.counted::<4>()?)?;
                self.push(Node::Str(text))?;
            }
            b'C' => {
                let bytes = self.counted::<1>()?.to_vec();
                self.push(Node::Bytes(bytes))?;
            }
            b'B' => {
                let bytes = self.counted::<4>()?.to_vec();
                self.push(Node::Bytes(bytes))?;
            }
            0x8E | 0x96 => {
                let bytes = self.counted::<8>()?.to_vec();
                self.push(Node::Bytes(bytes))?;
            }
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b']' | 0x8F => self.push(Node::List(Vec::new()))?,
            b')' => self.push(Node::Tuple(Vec::new()))?,
            b't' => {
                let items = self.pop_to_mark()?;
                self.push(Node::Tuple(items))?;
            }
            b'l' | 0x91 => {
                let items = self.pop_to_mark()?;
                self.push(Node::List(items))?;
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                self.push(Node::Dict(Vec::new()))?;
                self.set_items(items)?;
            }
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0..code - 0x84 {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push(Node::Tuple(items))?;
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
                self.push(made)?;
            }
            // With arguments by name, of which the dict becomes the last argument.
            0x92 => {
                let (by_name, arguments, callee) = (self.pop()?, self.pop()?, self.pop()?);
                let mut all = self.tuple(arguments, "a list of arguments")?.to_vec();
                all.push(by_name);
                self.push(Node::Tuple(all))?;
                let all = self.pop()?;
                let made = self.call(callee, all)?;
                self.push(made)?;
            }
            b'b' => {
                let state = self.pop()?;
                let target = self.top()?;
                self.build(target, state)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(id)?;
                self.push(storage)?;
            }
            other => {
                return Err(format!("has the instruction 0x{other:02x}, which data does not need"));
            }
        }
        Ok(None)
    }

    pub(super) fn tuple(&self, id: Id, what: &str) -> Step<&[Id]> {
        match &self.nodes[id] {
            Node::Tuple(items) => Ok(items),
            _ => Err(format!("{what} is no tuple")),
        }
    }

    pub(super) fn int(&self, id: Id, what: &str) -> Step<i64> {
        match self.nodes[id] {
            Node::Int(n) => Ok(n),
            _ => Err(format!("{what} is no integer")),
        }
    }

    pub(super) fn ints(&self, id: Id, what: &str) -> Step<Vec<i64>> {
        let (Node::Tuple(items) | Node::List(items)) = &self.nodes[id] else {
            return Err(format!("{what} is no tuple"));
        };
        items.iter().map(|&item| self.int(item, what)).collect()
    }

    /// The storage of a persistent id: `("storage", class, key, location, numel, ..)`; or a class with its
    /// source, `("module", class, ..)`, of old files.
    fn storage(&mut self, id: Id) -> Step<Node> {
        let wrong = || "refers to something outside that is no storage".to_owned();
        let parts = self.tuple(id, "a persistent id")?.to_vec();
        let kind = parts.first().map(|&id| &self.nodes[id]);
        if let (Some(Node::Str(kind)), Some(&class)) = (kind, parts.get(1))
            && kind == "module"
            && let Node::Global(found, name) = &self.nodes[class]
        {
            return Ok(Node::Global(*found, name.clone()));
        }
        let [kind, class, key, _, numel, ..] = parts[..] else { return Err(wrong()) };
        let (Node::Str(kind), &Node::Global(Global::Storage(dtype), _), Node::Str(key)) =
            (&self.nodes[kind], &self.nodes[class], &self.nodes[key])
        else {
            return Err(match &self.nodes[class] {
                Node::Global(_, name) => format!("refers to a storage of the unknown class {name}"),
                _ => wrong(),
            });
        };
        let part = parts.get(5).map(|&id| &self.nodes[id]);
        if kind != "storage" || !matches!(part, None | Some(Node::None)) {
            return Err(wrong());
        }
        let (key, size) = (key.clone(), self.int(numel, "a storage's size")?);
        let storages = match &mut self.outside {
            Outside::Nothing => return Err(wrong()),
            Outside::Storages(storages) => storages,
            Outside::Names => {
                let arguments = parts[1..].to_vec();
                let class = "storage".to_owned();
                return Ok(Node::Object(Box::new(Object {
                    class,
                    arguments,
                    ..Object::default()
                })));
            }
        };
        if dtype.is_none() && storages.is_big_endian() {
            // How long its numbers are is said only where it is used, which may be in several ways.
            return Err(format!(
                "has the untyped storage `{key}` of a big-endian machine; save it again on a little-endian one"
            ));
        }
        let storage = storages.get(&key, dtype.unwrap_or(Dtype::U8), size)?;
        Ok(Node::Storage(storage, dtype.is_none()))
    }
}

impl Node {
    /// About how many bytes it has beside its place.
    fn payload(&self) -> usize {
        match self {
            Node::Long(bytes) | Node::Bytes(bytes) => bytes.len(),
            Node::Str(text) | Node::Global(_, text) => text.len(),
            Node::Tuple(items) | Node::List(items) => items.len() * size_of::<Id>(),
            Node::Dict(entries) => entries.len() * size_of::<(Id, Id)>(),
            Node::Storage(..) | Node::Tensor(_) => 512,
            Node::Raw(raw) => size_of::<PtRaw>() + raw.bytes.len(),
            Node::ArrayType(_) => 64,
            Node::Object(object) => {
                size_of::<Object>() + object.class.len() + object.arguments.len() * size_of::<Id>()
            }
            Node::None
            | Node::Bool(_)
            | Node::Int(_)
            | Node::Float(_)
            | Node::Complex(_)
            | Node::EmptyArray => 0,
        }
    }
}
