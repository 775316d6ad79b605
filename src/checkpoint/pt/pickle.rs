//! Writes a value as a pickle of protocol 2, the instructions that PyTorch itself writes.

use super::storages::names_of;
use super::value::PtValue;
use crate::{Dtype, Tensor};

/// A storage that the pickle refers to.
pub(super) struct Stored {
    /// A tensor of the storage.
    pub(super) tensor: Tensor,
    pub(super) dtype: Dtype,
}

impl Stored {
    /// How many elements the storage has.
    pub(super) fn numel(&self) -> usize {
        self.tensor.storage().nbytes() / self.dtype.size()
    }
}

/// A pickle, and the storages it refers to by their places.
#[derive(Default)]
pub(super) struct Pickle {
    pub(super) bytes: Vec<u8>,
    pub(super) storages: Vec<Stored>,
}

impl Pickle {
    pub(super) fn of(value: &PtValue) -> Self {
        let mut pickle = Pickle::default();
        pickle.bytes.extend([0x80, 2]);
        pickle.value(value);
        pickle.bytes.push(b'.');
        pickle
    }

    fn global(&mut self, module: &str, name: &str) {
        self.bytes.push(b'c');
        self.bytes.extend(format!("{module}\n{name}\n").bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.bytes());
    }

    fn int(&mut self, n: i64) {
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

    fn bool(&mut self, b: bool) {
        self.bytes.push(if b { 0x88 } else { 0x89 });
    }

    fn tuple(&mut self, items: impl FnOnce(&mut Self)) {
        self.bytes.push(b'(');
        items(self);
        self.bytes.push(b't');
    }

    fn value(&mut self, value: &PtValue) {
        match value {
            PtValue::None => self.bytes.push(b'N'),
            PtValue::Bool(b) => self.bool(*b),
            PtValue::Int(n) => self.int(*n),
            PtValue::Float(x) => {
                self.bytes.push(b'G');
                self.bytes.extend(x.to_be_bytes());
            }
            PtValue::Str(text) => self.text(text),
            // Protocol 2 has no bytes.
            PtValue::Bytes(bytes) => {
                self.global("_codecs", "encode");
                let text: String = bytes.iter().map(|&b| char::from(b)).collect();
                self.tuple(|p| {
                    p.text(&text);
                    p.text("latin1");
                });
                self.bytes.push(b'R');
            }
            PtValue::Dtype(dtype) => self.global("torch", names_of(*dtype).1),
            PtValue::Tensor(tensor) => self.tensor(tensor),
            PtValue::List(items) => {
                self.bytes.extend(b"](");
                items.iter().for_each(|item| self.value(item));
                self.bytes.push(b'e');
            }
            PtValue::Tuple(items) => {
                self.tuple(|p| items.iter().for_each(|item| p.value(item)));
            }
            PtValue::Dict(entries) => {
                self.bytes.extend(b"}(");
                for (key, value) in entries {
                    self.value(key);
                    self.value(value);
                }
                self.bytes.push(b'u');
            }
        }
    }

    fn tensor(&mut self, tensor: &Tensor) {
        let dtype = tensor.dtype();
        let same = |s: &Stored| s.dtype == dtype && s.tensor.storage().ptr_eq(tensor.storage());
        let place = self.storages.iter().position(same).unwrap_or_else(|| {
            self.storages.push(Stored { tensor: tensor.detach(), dtype });
            self.storages.len() - 1
        });
        let numel = self.storages[place].numel();
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.tuple(|p| {
            p.tuple(|p| {
                p.text("storage");
                p.global("torch", names_of(dtype).0);
                p.text(&place.to_string());
                p.text("cpu");
                p.int(numel as i64);
            });
            p.bytes.push(b'Q');
            p.int(tensor.storage_offset() as i64);
            p.tuple(|p| tensor.shape().iter().for_each(|&n| p.int(n as i64)));
            p.tuple(|p| tensor.strides().iter().for_each(|&n| p.int(n as i64)));
            p.bool(tensor.requires_grad() && tensor.is_leaf());
            p.global("collections", "OrderedDict");
            p.bytes.extend(b")R");
        });
        self.bytes.push(b'R');
    }
}
