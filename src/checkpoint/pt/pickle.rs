//! Writes a value as a pickle of protocol 2, the instructions that PyTorch itself writes.

use std::collections::HashMap;

use super::MAX_DEPTH;
use super::raw::PtRaw;
use super::storages::names_of;
use super::value::PtValue;
use crate::checkpoint::safetensors::Written;
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// What of a storage goes into the file.
pub(super) enum Stored<'a> {
    /// The storage of a tensor, as elements of its type.
    Typed(&'a Tensor),
    Bytes(&'a [u8]),
}

/// A pickle, and the storages it refers to by their places.
#[derive(Default)]
pub(super) struct Pickle<'a> {
    pub(super) bytes: Vec<u8>,
    pub(super) storages: Vec<Stored<'a>>,
    /// Places of storages by their address, size and type.
    places: HashMap<(usize, usize, Dtype), usize>,
}

fn wrong(what: String) -> Error {
    Error::argument("save_pt", "value", what)
}

impl<'a> Pickle<'a> {
    /// # Errors
    /// [`Error::Argument`] for what no such file can hold, or nobody could read.
    pub(super) fn of(value: &'a PtValue) -> Result<Self> {
        let mut pickle = Pickle::default();
        pickle.bytes.extend([0x80, 2]);
        pickle.value(value, 0)?;
        pickle.bytes.push(b'.');
        Ok(pickle)
    }

    pub(super) fn global(&mut self, module: &str, name: &str) {
        self.bytes.push(b'c');
        self.bytes.extend(format!("{module}\n{name}\n").bytes());
    }

    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        let length = u32::try_from(text.len())
            .map_err(|_| wrong(format!("holds a text of {} bytes; at most 4 GiB", text.len())))?;
        self.bytes.push(b'X');
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(text.bytes());
        Ok(())
    }

    pub(super) fn int(&mut self, n: i64) {
        match (u8::try_from(n), i32::try_from(n)) {
            (Ok(n), _) => self.bytes.extend([b'K', n]),
            (_, Ok(n)) => {
                self.bytes.push(b'J');
                self.bytes.extend(n.to_le_bytes());
            }
            _ => {
                self.bytes.extend([0x8A, 8]);
                self.bytes.extend(n.to_le_bytes());
            }
        }
    }

    pub(super) fn bool(&mut self, b: bool) {
        self.bytes.push(if b { 0x88 } else { 0x89 });
    }

    fn float(&mut self, x: f64) {
        self.bytes.push(b'G');
        self.bytes.extend(x.to_be_bytes());
    }

    pub(super) fn tuple(&mut self, items: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.bytes.push(b'(');
        items(self)?;
        self.bytes.push(b't');
        Ok(())
    }

    pub(super) fn value(&mut self, value: &'a PtValue, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(wrong(format!("is nested more than {MAX_DEPTH} deep")));
        }
        let each = |p: &mut Self, items: &'a [PtValue]| -> Result<()> {
            items.iter().try_for_each(|item| p.value(item, depth + 1))
        };
        match value {
            PtValue::None => self.bytes.push(b'N'),
            PtValue::Bool(b) => self.bool(*b),
            PtValue::Int(n) => self.int(*n),
            PtValue::Float(x) => self.float(*x),
            PtValue::Complex(z) => {
                self.global("__builtin__", "complex");
                self.tuple(|p| {
                    p.float(z.re);
                    p.float(z.im);
                    Ok(())
                })?;
                self.bytes.push(b'R');
            }
            PtValue::Str(text) => self.text(text)?,
            // Protocol 2 has no bytes.
            PtValue::Bytes(bytes) => {
                self.global("_codecs", "encode");
                let text: String = bytes.iter().map(|&b| char::from(b)).collect();
                self.tuple(|p| {
                    p.text(&text)?;
                    p.text("latin1")
                })?;
                self.bytes.push(b'R');
            }
            PtValue::Dtype(dtype) => self.global("torch", names_of(*dtype).1),
            PtValue::Tensor(tensor) => self.tensor(tensor)?,
            PtValue::Raw(raw) => self.raw(raw)?,
            PtValue::List(items) => {
                self.bytes.extend(b"](");
                each(self, items)?;
                self.bytes.push(b'e');
            }
            PtValue::Tuple(items) => self.tuple(|p| each(p, items))?,
            PtValue::Dict(entries) => {
                self.bytes.extend(b"}(");
                for (key, value) in entries {
                    if !hashable(key) {
                        let kind = key.kind();
                        return Err(wrong(format!(
                            "has {kind} as a key, which Python cannot have"
                        )));
                    }
                    self.value(key, depth + 1)?;
                    self.value(value, depth + 1)?;
                }
                self.bytes.push(b'u');
            }
            PtValue::Object(object) => {
                let class = &object.class;
                return Err(wrong(format!(
                    "holds an object of class {class}; leave it out, or put its values in its place"
                )));
            }
        }
        Ok(())
    }

    fn tensor(&mut self, tensor: &'a Tensor) -> Result<()> {
        let (dtype, storage) = (tensor.dtype(), tensor.storage());
        let key = (storage.address() as usize, storage.nbytes(), dtype);
        let place = *self.places.entry(key).or_insert_with(|| {
            self.storages.push(Stored::Typed(tensor));
            self.storages.len() - 1
        });
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.tuple(|p| {
            let numel = storage.nbytes() / dtype.size();
            p.storage(("torch", names_of(dtype).0), place, numel)?;
            p.view(tensor.storage_offset(), tensor.shape(), |p| {
                tensor.strides().iter().for_each(|&n| p.int(n as i64));
            })?;
            p.bool(tensor.requires_grad() && tensor.is_leaf());
            p.no_hooks();
            Ok(())
        })?;
        self.bytes.push(b'R');
        Ok(())
    }

    /// A contiguous tensor that is all of the storage of this place.
    pub(super) fn plain_tensor(&mut self, place: usize, tensor: &Written<'_>) -> Result<()> {
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.tuple(|p| {
            let numel = tensor.shape.iter().product();
            p.storage(("torch", names_of(tensor.dtype).0), place, numel)?;
            p.view(0, tensor.shape, |p| p.steps(tensor.shape))?;
            p.bool(false);
            p.no_hooks();
            Ok(())
        })?;
        self.bytes.push(b'R');
        Ok(())
    }

    /// The strides of a contiguous tensor.
    fn steps(&mut self, shape: &[usize]) {
        let mut steps = vec![1usize; shape.len()];
        for d in (1..shape.len()).rev() {
            steps[d - 1] = steps[d].saturating_mul(shape[d].max(1));
        }
        steps.into_iter().for_each(|n| self.int(n as i64));
    }

    fn raw(&mut self, raw: &'a PtRaw) -> Result<()> {
        let dtype = raw.checked().map_err(|why| wrong(format!("holds a raw tensor of {why}")))?;
        self.storages.push(Stored::Bytes(&raw.bytes));
        let place = self.storages.len() - 1;
        self.global("torch._utils", "_rebuild_tensor_v3");
        self.tuple(|p| {
            p.storage(("torch.storage", "UntypedStorage"), place, raw.bytes.len())?;
            p.view(0, &raw.shape, |p| p.steps(&raw.shape))?;
            p.bool(false);
            p.no_hooks();
            p.global("torch", dtype);
            Ok(())
        })?;
        self.bytes.push(b'R');
        Ok(())
    }

    fn storage(&mut self, class: (&str, &str), place: usize, numel: usize) -> Result<()> {
        self.tuple(|p| {
            p.text("storage")?;
            p.global(class.0, class.1);
            p.text(&place.to_string())?;
            p.text("cpu")?;
            p.int(numel as i64);
            Ok(())
        })?;
        self.bytes.push(b'Q');
        Ok(())
    }

    /// Offset, shape and strides.
    fn view(
        &mut self,
        offset: usize,
        shape: &[usize],
        steps: impl FnOnce(&mut Self),
    ) -> Result<()> {
        self.int(offset as i64);
        self.tuple(|p| {
            shape.iter().for_each(|&n| p.int(n as i64));
            Ok(())
        })?;
        self.tuple(|p| {
            steps(p);
            Ok(())
        })
    }

    fn no_hooks(&mut self) {
        self.global("collections", "OrderedDict");
        self.bytes.extend(b")R");
    }
}

/// Whether Python takes it as a key.
fn hashable(key: &PtValue) -> bool {
    match key {
        PtValue::List(_) | PtValue::Dict(_) => false,
        PtValue::Tuple(items) => items.iter().all(hashable),
        _ => true,
    }
}
