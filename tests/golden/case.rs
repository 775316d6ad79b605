//! The cases of a folder: `manifest.json` and the tensors beside it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use safetensors::tensor::Metadata;
use safetensors::{Dtype as FileDtype, SafeTensors};
use serde_json::Value;
use torchrs::{Device, Dtype, Tensor};

use crate::arg::Arg;

/// A file of tensors: its bytes, where the data starts, and what is where.
struct File {
    bytes: Vec<u8>,
    start: usize,
    metadata: Metadata,
}

pub struct Cases {
    folder: PathBuf,
    split: String,
    device: Device,
    cases: Vec<Value>,
    files: RefCell<HashMap<String, Rc<File>>>,
}

impl Cases {
    pub fn open(folder: &Path, device: Device) -> std::io::Result<Self> {
        let text = fs::read_to_string(folder.join("manifest.json"))?;
        let mut manifest: Value = serde_json::from_str(&text)?;
        let cases = match manifest["cases"].take() {
            Value::Array(cases) => cases,
            _ => return Err(std::io::Error::other("manifest.json has no list of cases")),
        };
        let split = manifest["split"].as_str().unwrap_or_default().to_string();
        Ok(Cases { folder: folder.into(), split, device, cases, files: RefCell::default() })
    }

    /// Which part of all recorded cases these are from.
    pub fn split(&self) -> &str {
        &self.split
    }

    pub fn iter(&self) -> impl Iterator<Item = Case<'_>> {
        self.cases.iter().map(|json| Case { json, all: self })
    }

    fn file(&self, name: &str) -> Rc<File> {
        let read = || {
            let bytes = fs::read(self.folder.join(name)).expect("a file of the folder");
            let (header, metadata) = SafeTensors::read_metadata(&bytes).expect("a valid file");
            Rc::new(File { bytes, start: header + 8, metadata })
        };
        self.files.borrow_mut().entry(name.into()).or_insert_with(read).clone()
    }
}

/// One case. `json` has what the format describes.
pub struct Case<'a> {
    pub json: &'a Value,
    all: &'a Cases,
}

impl<'a> Case<'a> {
    fn text(&self, key: &str) -> &'a str {
        self.json[key].as_str().unwrap_or("")
    }

    pub fn op(&self) -> &'a str {
        self.text("op")
    }

    pub fn id(&self) -> String {
        self.json["id"].as_str().map_or_else(|| self.json["id"].to_string(), String::from)
    }

    pub fn kind(&self) -> &'a str {
        self.text("kind")
    }

    pub fn call(&self) -> &'a str {
        self.text("call")
    }

    /// Where the call is made.
    pub fn device(&self) -> Device {
        self.all.device
    }

    pub fn core(&self) -> bool {
        self.text("tier") == "core"
    }

    pub fn fragile(&self) -> bool {
        self.json["fragile"] == true
    }

    /// The stored tensor.
    pub fn tensor(&self, key: &str) -> Tensor {
        let file = self.all.file(self.text("file"));
        let info = file.metadata.info(key).unwrap_or_else(|| panic!("no tensor {key}"));
        let dtype = match info.dtype {
            FileDtype::F64 => Dtype::F64,
            FileDtype::F32 => Dtype::F32,
            FileDtype::F16 => Dtype::F16,
            FileDtype::BF16 => Dtype::BF16,
            FileDtype::I64 => Dtype::I64,
            FileDtype::I32 => Dtype::I32,
            FileDtype::I16 => Dtype::I16,
            FileDtype::I8 => Dtype::I8,
            FileDtype::U8 => Dtype::U8,
            FileDtype::BOOL => Dtype::Bool,
            other => panic!("{key}: type {other:?}"),
        };
        let tensor = Tensor::empty(&info.shape, (dtype, Device::Cpu));
        let data = &file.bytes[file.start + info.data_offsets.0..file.start + info.data_offsets.1];
        assert_eq!(data.len(), tensor.numel() * dtype.size());
        // SAFETY: a new contiguous tensor of as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), tensor.data_ptr(), data.len()) };
        tensor
    }

    /// Whether the output of that name is complex.
    pub fn has_complex(&self, output: &str) -> bool {
        let mut outputs = self.json["outputs"].as_array().into_iter().flatten();
        outputs.any(|o| o["name"] == output && o["complex"] == true)
    }

    /// The stored tensor, or, if it stands for a complex one, the complex one.
    pub fn tensor_like(&self, key: &str, other: &Tensor) -> Tensor {
        let stored = self.tensor(key);
        if other.is_complex() { stored.view_as_complex().detach() } else { stored }
    }

    /// The inputs by name, as leaves. An error for what the library has no type for.
    pub fn inputs(&self) -> Result<BTreeMap<String, Tensor>, String> {
        let mut inputs = BTreeMap::new();
        for entry in self.json["inputs"].as_array().into_iter().flatten() {
            let name = entry["name"].as_str().expect("a name").to_string();
            let stored = self.tensor(entry["key"].as_str().expect("a key"));
            let stored = stored.to_device(self.device());
            // Stored are pairs of parts.
            let complex = entry["complex"] == true;
            let stored = if complex { stored.view_as_complex().detach() } else { stored };
            let tensor = match entry.get("strided") {
                None | Some(Value::Null) => stored,
                Some(strided) => {
                    let shape: Vec<usize> = list(&entry["shape"]);
                    let stride: Vec<isize> = list(&strided["stride"]);
                    let offset = strided["offset"].as_u64().unwrap_or(0) as usize;
                    stored.as_strided(&shape, &stride, offset).detach()
                }
            };
            let wanted = entry["requires_grad"] == true;
            inputs.insert(name, if wanted { tensor.requires_grad_(true) } else { tensor });
        }
        Ok(inputs)
    }

    /// An argument or result, with the tensors of `named` in place.
    pub fn decode(&self, value: &Value, named: &BTreeMap<String, Tensor>) -> Arg {
        Arg::decode(value, named)
    }
}

fn list<T: TryFrom<i64>>(value: &Value) -> Vec<T> {
    let number = |v: &Value| T::try_from(v.as_i64().expect("an integer")).ok();
    value.as_array().into_iter().flatten().map(|v| number(v).expect("in range")).collect()
}
