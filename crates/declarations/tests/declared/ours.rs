//! torchrs's declarations, from the text of its tables.

use std::path::Path;

use super::headers::{Signature, function};
use super::types::{Names, Shape};

/// The files with tables of functions.
const TABLES: [&str; 5] = [
    "driver/table.rs",
    "kernels/compile/nvrtc.rs",
    "libraries/cublaslt/table.rs",
    "libraries/cudnn/table.rs",
    "libraries/nccl/table.rs",
];
/// Names of handles, each an address of something of the library's.
const HANDLES: [&str; 10] = [
    "Context",
    "StreamHandle",
    "EventHandle",
    "ModuleHandle",
    "FunctionHandle",
    "GraphHandle",
    "GraphExecHandle",
    "ProgramHandle",
    "CommHandle",
    "Object",
];
/// Names of numbers that the headers have as enumerations.
const NUMBERS: [&str; 6] = ["Code", "NvrtcCode", "Status", "NcclCode", "DataType", "Reduction"];
/// Versions are asked for by functions that stand in no table (`loading/version.rs`).
const VERSIONS: [(&str, &[&str], &str); 4] = [
    ("nvrtcVersion", &["*mut c_int", "*mut c_int"], "c_int"),
    ("cublasLtGetVersion", &[], "usize"),
    ("cudnnGetCudartVersion", &[], "usize"),
    ("ncclGetVersion", &["*mut c_int"], "c_int"),
];

/// The text of a file of `crates/cuda/src`.
pub fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/src").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All functions by their names.
pub fn functions() -> Vec<(String, Signature)> {
    let mut all = Vec::new();
    for file in TABLES {
        let text = text(file);
        let start = text.find("function_table! {").expect("a table");
        let table = &text[start..start + text[start..].find("\n}\n").expect("its end")];
        let lines = table.lines().filter(|line| !line.trim_start().starts_with("///"));
        let table: String = lines.collect::<Vec<_>>().join(" ");
        let (head, body) = table.split_once(';').expect("a head");
        let code = head.rsplit(' ').next().expect("a code's type");
        let mut depth = 0;
        let ends = |c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            c == ';' && depth == 0
        };
        for item in body.split(ends) {
            let Some((_, head)) = item.split_once("fn ") else { continue };
            let (name, (kinds, result)) = function(head);
            let result = if result.is_empty() { code.to_owned() } else { result };
            all.push((name, (kinds, result)));
        }
    }
    let versions = VERSIONS.iter().map(|(name, kinds, result)| {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        ((*name).to_owned(), (kinds, (*result).to_owned()))
    });
    all.extend(versions);
    all
}

/// The types that our tables name.
pub fn names() -> Names {
    let mut names = Names::default();
    let mut know = |name: &str, shape| names.known.insert(name.to_owned(), shape);
    HANDLES.iter().for_each(|name| _ = know(name, Shape::Pointer(None)));
    NUMBERS.iter().for_each(|name| _ = know(name, Shape::Enum));
    know("HostFunction", Shape::Function);
    know("DevicePointer", Shape::Int { bytes: 8, signed: false });
    know("DeviceNumber", Shape::Int { bytes: 4, signed: true });
    let bytes = |count| Shape::Array(Box::new(Shape::Int { bytes: 1, signed: false }), count);
    know("IpcHandle", bytes(64));
    know("UniqueId", bytes(128));
    for (file, name) in
        [("libraries/nccl/table.rs", "Config"), ("libraries/cublaslt/table.rs", "Choice")]
    {
        let text = text(file);
        let start = text.find(&format!("struct {name} {{")).expect("a structure");
        let body = &text[start..start + text[start..].find("\n}").expect("its end")];
        let field = |line: &str| {
            let (name, kind) = line.trim().trim_end_matches(',').split_once(": ")?;
            Some((name.rsplit(' ').next()?.to_owned(), kind.to_owned()))
        };
        names.structs.insert(name.to_owned(), body.lines().skip(1).filter_map(field).collect());
    }
    names
}
