//! `.metadata` of PyTorch's distributed checkpoints: a pickle of the class `Metadata`, which says what pieces tensors
//! have and where items lie. Read from the machine's values and not from a tree of them, in which file names that
//! every item refers to would be copied over and over. Of the classes it may name those of
//! `torch.distributed.checkpoint` are known, at the places where they belong; any other is an error.

use std::collections::{BTreeMap, HashMap};

use super::globals::Global;
use super::pickle::Pickle;
use super::storages::names_of;
use super::unpickle::{Id, Machine, Node, Outside, Step};
use crate::checkpoint::raw::{bytes_within, reserve};
use crate::error::Result;
use crate::tensor::Dtype;

const CLASSES: &str = "torch.distributed.checkpoint.metadata";
/// Where tensors' properties were before PyTorch 2.3.
const OLD_CLASSES: &str = "torch.distributed._shard.sharded_tensor.metadata";
const FILESYSTEM: &str = "torch.distributed.checkpoint.filesystem";
/// The format's own version, which is not PyTorch's. Before 2.7 there was none.
const VERSION: &str = "1.0.0";

/// What is saved.
#[derive(Debug, Default, PartialEq)]
pub(in crate::checkpoint) struct Saved {
    pub(in crate::checkpoint) tensors: BTreeMap<String, SavedTensor>,
    /// What is no tensor.
    pub(in crate::checkpoint) values: BTreeMap<String, Item>,
    /// The keys of nested dicts and lists that names stand for.
    pub(in crate::checkpoint) paths: BTreeMap<String, Vec<Key>>,
}

#[derive(Debug, PartialEq)]
pub(in crate::checkpoint) struct SavedTensor {
    pub(in crate::checkpoint) dtype: Dtype,
    pub(in crate::checkpoint) shape: Vec<usize>,
    pub(in crate::checkpoint) chunks: Vec<Chunk>,
}

/// A box of a tensor.
#[derive(Debug, PartialEq)]
pub(in crate::checkpoint) struct Chunk {
    pub(in crate::checkpoint) offsets: Vec<usize>,
    pub(in crate::checkpoint) sizes: Vec<usize>,
    pub(in crate::checkpoint) item: Item,
}

/// A stretch of a file.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::checkpoint) struct Item {
    pub(in crate::checkpoint) file: String,
    pub(in crate::checkpoint) start: u64,
    pub(in crate::checkpoint) length: u64,
}

/// A key of a dict, or a place in a list.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::checkpoint) enum Key {
    Name(String),
    Place(i64),
}

/// Where items lie, by name and, of a tensor's box, where that begins.
type Items = HashMap<(String, Option<Vec<usize>>), Item>;

/// Reads the pickle.
///
/// # Errors
/// What is wrong.
pub(in crate::checkpoint) fn read(bytes: &[u8]) -> Result<Saved, String> {
    let (machine, root) = Machine::ended(bytes, Outside::Nothing)?;
    let mut reader = Reader { machine };
    reader.saved(root)
}

struct Reader<'a> {
    machine: Machine<'a, 'static>,
}

impl Reader<'_> {
    fn saved(&mut self, root: Id) -> Step<Saved> {
        let fields = self.fields(root, CLASSES, "Metadata")?;
        if let Some(id) = fields.get("version")
            && !matches!(&self.machine.nodes[id], Node::None)
            && !matches!(&self.machine.nodes[id], Node::Str(version) if version.starts_with("1."))
        {
            let found = self.shown(id);
            return Err(format!("is of version {found}; {VERSION} is read"));
        }
        let mut items = self.items(fields.need("storage_data")?)?;
        let mut saved = Saved::default();
        for (key, value) in self.entries(fields.need("state_dict_metadata")?, "the state dict")? {
            let name = self.text(key, "a tensor's name")?;
            let is_tensor = match &self.machine.nodes[value] {
                Node::Object(object) => match object.class.rsplit_once('.') {
                    Some((CLASSES, "TensorStorageMetadata")) => true,
                    Some((CLASSES, "BytesStorageMetadata")) => false,
                    _ => return Err(format!("`{name}` is saved as {}", self.shown(value))),
                },
                _ => return Err(format!("`{name}` is saved as {}", self.shown(value))),
            };
            let twice = match is_tensor {
                true => {
                    let tensor = self.tensor(&name, value, &mut items)?;
                    saved.tensors.insert(name.clone(), tensor).is_some()
                }
                false => {
                    let item = items.remove(&(name.clone(), None));
                    let item = item.ok_or_else(|| format!("says nowhere where `{name}` lies"))?;
                    saved.values.insert(name.clone(), item).is_some()
                }
            };
            if twice {
                return Err(format!("has `{name}` twice"));
            }
        }
        if let Some(((name, at), _)) = items.iter().min_by_key(|(key, _)| *key) {
            let at = at.as_ref().map(|at| format!(" at {at:?}")).unwrap_or_default();
            return Err(format!("says where `{name}`{at} lies, but not what it is"));
        }
        saved.paths = self.paths(fields.get("planner_data"))?;
        Ok(saved)
    }

    fn items(&mut self, storage: Id) -> Step<Items> {
        let mut items = Items::new();
        for (key, value) in self.entries(storage, "the table of items")? {
            let index = self.fields(key, CLASSES, "MetadataIndex")?;
            let name = self.text(index.need("fqn")?, "an item's name")?;
            let offset = match index.get("offset") {
                Some(id) if !matches!(self.machine.nodes[id], Node::None) => {
                    Some(self.sizes(id, "an item's offset")?)
                }
                _ => None,
            };
            let info = self.fields(value, FILESYSTEM, "_StorageInfo")?;
            if let Some(id) = info.get("transform_descriptors")
                && !self.is_nothing(id)
            {
                let how = self.shown(id);
                return Err(format!("`{name}` is transformed ({how}); items as they are are read"));
            }
            let number = |id: Id, what: &str| {
                let number = self.machine.int(id, what)?;
                u64::try_from(number).map_err(|_| format!("{what} is {number}"))
            };
            let start = number(info.need("offset")?, "an item's place")?;
            let length = number(info.need("length")?, "an item's length")?;
            let file = self.text(info.need("relative_path")?, "an item's file")?;
            self.machine.memory.take(
                size_of::<Items>()
                    + name.len()
                    + file.len()
                    + 128
                    + offset.as_ref().map_or(0, |at| size_of_val(&at[..])),
            )?;
            if items.insert((name.clone(), offset), Item { file, start, length }).is_some() {
                return Err(format!("says twice where `{name}` lies"));
            }
        }
        Ok(items)
    }

    fn tensor(&mut self, name: &str, id: Id, items: &mut Items) -> Step<SavedTensor> {
        let fields = self.fields(id, CLASSES, "TensorStorageMetadata")?;
        let dtype = self.dtype(name, fields.need("properties")?)?;
        let shape = self.sizes(fields.need("size")?, "a tensor's shape")?;
        let some: Vec<usize> = shape.iter().map(|&n| n.max(1)).collect();
        if shape.len() > 64 || bytes_within(&some, dtype.size(), isize::MAX as u64).is_none() {
            return Err(format!("tensor `{name}` has shape {shape:?}"));
        }
        let Node::List(list) = &self.machine.nodes[fields.need("chunks")?] else {
            return Err(format!("the pieces of tensor `{name}` are no list"));
        };
        let list = list.clone();
        // Many tensors may share one list.
        self.machine.memory.take(size_of_val(&list[..]))?;
        let mut chunks = Vec::new();
        for id in list {
            let chunk = self.fields(id, CLASSES, "ChunkStorageMetadata")?;
            let offsets = self.sizes(chunk.need("offsets")?, "a piece's offset")?;
            let sizes = self.sizes(chunk.need("sizes")?, "a piece's shape")?;
            let Some(item) = items.remove(&(name.to_owned(), Some(offsets.clone()))) else {
                // Of a rank that has nothing of the tensor.
                if sizes.contains(&0) && !shape.contains(&0) {
                    continue;
                }
                return Err(format!("says nowhere where tensor `{name}` at {offsets:?} lies"));
            };
            let more = size_of::<Chunk>() + 2 * size_of_val(&sizes[..]);
            self.machine.memory.take(more)?;
            reserve(&mut chunks, 1)?;
            chunks.push(Chunk { offsets, sizes, item });
        }
        Ok(SavedTensor { dtype, shape, chunks })
    }

    /// `(dtype, layout, requires_grad, memory_format, pin_memory, [strides])`.
    fn dtype(&self, name: &str, properties: Id) -> Step<Dtype> {
        let class = |module| self.object(properties, module, "TensorProperties");
        let state = class(OLD_CLASSES)
            .or_else(|_| class(CLASSES))?
            .ok_or_else(|| "has a tensor without properties".to_owned())?;
        let &[dtype, layout, ..] = self.machine.tuple(state, "a tensor's properties")? else {
            return Err(format!("tensor `{name}` has too few properties"));
        };
        let is_strided = match &self.machine.nodes[layout] {
            Node::Object(object) if object.class == "torch.serialization._get_layout" => {
                matches!(&object.arguments[..], &[name] if
                    matches!(&self.machine.nodes[name], Node::Str(name) if name == "torch.strided"))
            }
            _ => false,
        };
        if !is_strided {
            let layout = self.shown(layout);
            return Err(format!("tensor `{name}` is laid out as {layout}; strided ones are read"));
        }
        match &self.machine.nodes[dtype] {
            Node::Global(Global::Dtype(dtype), _) => Ok(*dtype),
            _ => {
                let known = Dtype::ALL.map(|d| names_of(d).1).join(", ");
                Err(format!("tensor `{name}` has dtype {}; known are {known}", self.shown(dtype)))
            }
        }
    }

    fn paths(&mut self, planner: Option<Id>) -> Step<BTreeMap<String, Vec<Key>>> {
        let mut paths = BTreeMap::new();
        let Some(planner) = planner.filter(|&id| !self.is_nothing(id)) else { return Ok(paths) };
        for (name, path) in self.entries(planner, "the planner's data")? {
            let name = self.text(name, "the planner's data")?;
            let keys = self.machine.tuple(path, "the path of a name")?.to_vec();
            let mut found = Vec::new();
            for id in keys {
                let key = match &self.machine.nodes[id] {
                    Node::Str(name) => Key::Name(name.clone()),
                    Node::Int(place) => Key::Place(*place),
                    _ => return Err(format!("`{name}` has {} in its path", self.shown(id))),
                };
                let more =
                    size_of::<Key>() + if let Key::Name(name) = &key { name.len() } else { 0 };
                self.machine.memory.take(more)?;
                found.push(key);
            }
            paths.insert(name, found);
        }
        Ok(paths)
    }

    /// The state of an object that must be of this class; its constructor has no arguments.
    fn object(&self, id: Id, module: &str, class: &str) -> Step<Option<Id>> {
        match &self.machine.nodes[id] {
            Node::Object(object)
                if object.class.rsplit_once('.') == Some((module, class))
                    && object.arguments.is_empty() =>
            {
                Ok(object.state)
            }
            _ => Err(format!("has {} where {module}.{class} belongs", self.shown(id))),
        }
    }

    fn fields(&self, id: Id, module: &str, class: &'static str) -> Step<Fields> {
        let mut fields = Fields { class, of: HashMap::new() };
        let Some(state) = self.object(id, module, class)? else { return Ok(fields) };
        let Node::Dict(entries) = &self.machine.nodes[state] else {
            return Err(format!("has a {class} whose attributes are no dict"));
        };
        // No class has more; a long dict that many objects share would be gone through for each.
        if entries.len() > 16 {
            return Err(format!("has a {class} with {} attributes", entries.len()));
        }
        for &(key, value) in entries {
            match &self.machine.nodes[key] {
                Node::Str(name) => _ = fields.of.insert(name.clone(), value),
                _ => return Err(format!("has a {class} with {} as attribute", self.shown(key))),
            }
        }
        Ok(fields)
    }

    fn entries(&self, id: Id, what: &str) -> Step<Vec<(Id, Id)>> {
        match &self.machine.nodes[id] {
            Node::Dict(entries) => Ok(entries.clone()),
            _ => Err(format!("{what} is {}, no dict", self.shown(id))),
        }
    }

    fn text(&self, id: Id, what: &str) -> Step<String> {
        match &self.machine.nodes[id] {
            Node::Str(text) => Ok(text.clone()),
            _ => Err(format!("{what} is {}, no text", self.shown(id))),
        }
    }

    fn sizes(&self, id: Id, what: &str) -> Step<Vec<usize>> {
        let (Node::Tuple(items) | Node::List(items)) = &self.machine.nodes[id] else {
            return Err(format!("{what} is {}, no torch.Size", self.shown(id)));
        };
        if items.len() > 64 {
            return Err(format!("{what} has {} numbers", items.len()));
        }
        let size = |&id: &Id| {
            let size = self.machine.int(id, what)?;
            usize::try_from(size).map_err(|_| format!("{what} has {size} in it"))
        };
        items.iter().map(size).collect()
    }

    fn is_nothing(&self, id: Id) -> bool {
        match &self.machine.nodes[id] {
            Node::None => true,
            Node::Tuple(items) | Node::List(items) => items.is_empty(),
            _ => false,
        }
    }

    /// A value for a message.
    fn shown(&self, id: Id) -> String {
        let text = match &self.machine.nodes[id] {
            Node::None => "None".into(),
            Node::Bool(b) => b.to_string(),
            Node::Int(n) => n.to_string(),
            Node::Float(x) => x.to_string(),
            Node::Str(text) => format!("the text `{text}`"),
            Node::Tuple(_) | Node::List(_) => "a list".into(),
            Node::Dict(_) => "a dict".into(),
            Node::Global(_, name) => name.clone(),
            Node::Object(object) => format!("an object of class {}", object.class),
            _ => "something else".into(),
        };
        crate::checkpoint::raw::shown(text.as_bytes()).into_owned()
    }
}

/// Attributes of an object.
struct Fields {
    class: &'static str,
    of: HashMap<String, Id>,
}

impl Fields {
    fn get(&self, name: &str) -> Option<Id> {
        self.of.get(name).copied()
    }

    fn need(&self, name: &str) -> Step<Id> {
        self.get(name).ok_or_else(|| format!("has a {} without `{name}`", self.class))
    }
}

/// The pickle that PyTorch reads as this.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for a name of more than 4 GiB.
pub(in crate::checkpoint) fn written(saved: &Saved) -> Result<Vec<u8>> {
    let mut w = Writer { pickle: Pickle::default(), known: HashMap::new() };
    w.pickle.bytes.extend([0x80, 2]);
    w.object(CLASSES, "Metadata", |w| {
        w.pickle.text("state_dict_metadata")?;
        w.dict(|w| w.state_dict(saved))?;
        w.pickle.text("planner_data")?;
        w.dict(|w| {
            saved.paths.iter().try_for_each(|(name, path)| {
                w.name(name)?;
                w.pickle.tuple(|p| {
                    path.iter().try_for_each(|key| match key {
                        Key::Name(name) => p.text(name),
                        Key::Place(place) => {
                            p.int(*place);
                            Ok(())
                        }
                    })
                })
            })
        })?;
        w.pickle.text("storage_data")?;
        w.dict(|w| w.storage(saved))?;
        w.pickle.text("storage_meta")?;
        w.pickle.bytes.push(b'N');
        w.pickle.text("version")?;
        w.pickle.text(VERSION)
    })?;
    w.pickle.bytes.push(b'.');
    Ok(w.pickle.bytes)
}

struct Writer {
    pickle: Pickle<'static>,
    /// Classes and texts that are in the pickle already, by their number in its memo.
    known: HashMap<String, u32>,
}

impl Writer {
    fn state_dict(&mut self, saved: &Saved) -> Result<()> {
        for (name, tensor) in &saved.tensors {
            self.name(name)?;
            self.object(CLASSES, "TensorStorageMetadata", |w| {
                w.pickle.text("properties")?;
                w.properties(tensor.dtype)?;
                w.pickle.text("size")?;
                w.size(&tensor.shape)?;
                w.pickle.text("chunks")?;
                w.pickle.bytes.extend(b"](");
                for chunk in &tensor.chunks {
                    w.object(CLASSES, "ChunkStorageMetadata", |w| {
                        w.pickle.text("offsets")?;
                        w.size(&chunk.offsets)?;
                        w.pickle.text("sizes")?;
                        w.size(&chunk.sizes)
                    })?;
                }
                w.pickle.bytes.push(b'e');
                Ok(())
            })?;
        }
        for name in saved.values.keys() {
            self.name(name)?;
            self.global(CLASSES, "BytesStorageMetadata");
            self.pickle.bytes.extend(b")\x81");
        }
        Ok(())
    }

    fn storage(&mut self, saved: &Saved) -> Result<()> {
        for (name, tensor) in &saved.tensors {
            for (place, chunk) in tensor.chunks.iter().enumerate() {
                self.item(name, Some((place, &chunk.offsets)), &chunk.item)?;
            }
        }
        saved.values.iter().try_for_each(|(name, item)| self.item(name, None, item))
    }

    fn item(&mut self, name: &str, chunk: Option<(usize, &[usize])>, item: &Item) -> Result<()> {
        self.object(CLASSES, "MetadataIndex", |w| {
            w.pickle.text("fqn")?;
            w.name(name)?;
            if let Some((place, offsets)) = chunk {
                w.pickle.text("offset")?;
                w.size(offsets)?;
                w.pickle.text("index")?;
                w.pickle.int(place as i64);
                return Ok(());
            }
            w.pickle.text("index")?;
            w.pickle.bytes.push(b'N');
            Ok(())
        })?;
        self.object(FILESYSTEM, "_StorageInfo", |w| {
            w.pickle.text("relative_path")?;
            w.name(&item.file)?;
            w.pickle.text("offset")?;
            w.pickle.int(item.start as i64);
            w.pickle.text("length")?;
            w.pickle.int(item.length as i64);
            Ok(())
        })
    }

    fn properties(&mut self, dtype: Dtype) -> Result<()> {
        self.global(CLASSES, "TensorProperties");
        self.pickle.bytes.extend(b")\x81(");
        self.global("torch", names_of(dtype).1);
        self.global("torch.serialization", "_get_layout");
        self.pickle.tuple(|p| p.text("torch.strided"))?;
        self.pickle.bytes.push(b'R');
        self.pickle.bool(false);
        self.global(CLASSES, "_MEM_FORMAT_ENCODING");
        self.pickle.tuple(|p| {
            p.int(0);
            Ok(())
        })?;
        self.pickle.bytes.push(b'R');
        self.pickle.bool(false);
        self.pickle.bytes.extend(b"tb");
        Ok(())
    }

    fn size(&mut self, sizes: &[usize]) -> Result<()> {
        self.global("torch", "Size");
        self.pickle.tuple(|p| {
            p.tuple(|p| {
                sizes.iter().for_each(|&n| p.int(n as i64));
                Ok(())
            })
        })?;
        self.pickle.bytes.push(b'R');
        Ok(())
    }

    /// An object without arguments, of attributes that `fields` writes.
    fn object(
        &mut self,
        module: &str,
        class: &str,
        fields: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.global(module, class);
        self.pickle.bytes.extend(b")\x81");
        self.dict(fields)?;
        self.pickle.bytes.push(b'b');
        Ok(())
    }

    fn dict(&mut self, entries: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.pickle.bytes.extend(b"}(");
        entries(self)?;
        self.pickle.bytes.push(b'u');
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) {
        let key = format!("{module}\n{name}");
        if !self.recalled(&key) {
            self.pickle.global(module, name);
            self.remember(key);
        }
    }

    /// A text that comes again.
    fn name(&mut self, name: &str) -> Result<()> {
        // No global has such a key.
        let key = format!("\n{name}");
        if !self.recalled(&key) {
            self.pickle.text(name)?;
            self.remember(key);
        }
        Ok(())
    }

    fn recalled(&mut self, key: &str) -> bool {
        let Some(number) = self.known.get(key) else { return false };
        self.pickle.bytes.push(b'j');
        self.pickle.bytes.extend(number.to_le_bytes());
        true
    }

    fn remember(&mut self, key: String) {
        let number = self.known.len() as u32;
        self.pickle.bytes.push(b'r');
        self.pickle.bytes.extend(number.to_le_bytes());
        self.known.insert(key, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        let item = |start| Item { file: "__0_0.distcp".into(), start, length: 10 };
        let chunk = |at: usize, n: usize| Chunk {
            offsets: vec![at, 0],
            sizes: vec![n, 3],
            item: item(at as u64 * 10),
        };
        let tensor = SavedTensor {
            dtype: Dtype::BF16,
            shape: vec![300, 3],
            chunks: vec![chunk(0, 200), chunk(200, 100)],
        };
        let path = vec![Key::Name("model".into()), Key::Place(3), Key::Name("w".into())];
        Saved {
            tensors: [("model.3.w".to_owned(), tensor)].into(),
            values: [("epoch".to_owned(), item(70_000))].into(),
            paths: [("model.3.w".to_owned(), path)].into(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&written(&saved()).unwrap()).unwrap(), saved());
        assert_eq!(read(&written(&Saved::default()).unwrap()).unwrap(), Saved::default());
    }

    #[test]
    fn properties_may_have_their_old_class() {
        let text: String = written(&saved()).unwrap().iter().map(|&b| char::from(b)).collect();
        let (new, old) = (format!("{CLASSES}\nTensor"), format!("{OLD_CLASSES}\nTensor"));
        let bytes: Vec<u8> = text
            .replace(&format!("{new}Properties"), &format!("{old}Properties"))
            .chars()
            .map(|c| u8::try_from(c).unwrap())
            .collect();
        assert_ne!(bytes.len(), text.chars().count());
        assert_eq!(read(&bytes).unwrap(), saved());
    }

    #[test]
    fn every_damage_is_an_error_or_a_value() {
        let bytes = written(&saved()).unwrap();
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "{cut}");
        }
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[place] ^= 1 << bit;
                let _ = read(&bytes);
            }
        }
    }

    #[test]
    fn what_does_not_belong_is_named() {
        let bytes = written(&saved()).unwrap();
        let with = |old: &str, new: &str| {
            assert_eq!(old.len(), new.len());
            let mut bytes = bytes.clone();
            let at = bytes.windows(old.len()).position(|w| w == old.as_bytes()).unwrap();
            bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
            read(&bytes).unwrap_err()
        };
        let foreign = with("_StorageInfo", "_StorageEvil");
        assert!(foreign.contains("an object of class torch.distributed"), "{foreign}");
        assert!(foreign.contains("_StorageEvil where"), "{foreign}");
        let float = with("bfloat16", "bfloat61");
        assert!(float.contains("tensor `model.3.w` has dtype torch.bfloat61"), "{float}");
        let layout = with("torch.strided", "torch.sparse1");
        assert!(layout.contains("strided ones are read"), "{layout}");
        let version = with("1.0.0", "2.0.0");
        assert!(version.contains("`2.0.0`; 1.0.0 is read"), "{version}");
        let lost = with("storage_data", "storage_date");
        assert!(lost.contains("a Metadata without `storage_data`"), "{lost}");
    }
}
