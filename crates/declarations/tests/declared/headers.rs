//! NVIDIA's headers, as the text of cudarc's bindings has them for many versions of CUDA at once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::types::Names;

/// A function: the types of its parameters and of its result.
pub type Signature = (Vec<String>, String);

/// What the headers of one choice of versions declare.
#[derive(Default)]
pub struct Headers {
    pub names: Names,
    pub functions: HashMap<String, Signature>,
    pub constants: HashMap<String, i64>,
}

/// Where cargo keeps the bindings' source.
pub fn folder() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut command = Command::new(cargo);
    // Those of other platforms need not have been downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--offline",
        "--filter-platform",
        &platform,
    ]);
    command.arg("--manifest-path");
    let output = command.arg(manifest).output().expect("cargo runs the tests");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = all["packages"].as_array().expect("packages");
    let cudarc = packages.iter().find(|one| one["name"] == "cudarc").expect("a dependency");
    let manifest = cudarc["manifest_path"].as_str().expect("a path");
    Path::new(manifest).parent().expect("a folder").join("src")
}

impl Headers {
    /// Of these versions, which are features' names: `cuda-13000`.
    pub fn of(folder: &Path, versions: &[&str]) -> Headers {
        let mut headers = Headers::default();
        for library in ["driver", "nvrtc", "cublaslt", "cudnn", "nccl"] {
            let path = folder.join(library).join("sys/mod.rs");
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            headers.read(&text, versions);
        }
        headers
    }

    fn read(&mut self, text: &str, versions: &[&str]) {
        let mut lines = text.lines();
        let mut included = true;
        while let Some(line) = lines.next() {
            if let Some(condition) = line.strip_prefix("#[cfg(") {
                included &= holds(condition, versions);
                continue;
            }
            if line.starts_with("#[") || line.starts_with("//") || line.is_empty() {
                continue;
            }
            let mut item = line.to_owned();
            // An item ends at its own column.
            let ends = |item: &str| item.ends_with('}') || item.ends_with(';');
            if !ends(line) {
                for line in lines.by_ref() {
                    item.push('\n');
                    item.push_str(line);
                    if !line.starts_with([' ', '\t']) && ends(line) {
                        break;
                    }
                }
            }
            if std::mem::replace(&mut included, true) {
                self.enter(&item);
            }
        }
    }

    fn enter(&mut self, item: &str) {
        if let Some(rest) = item.strip_prefix("pub unsafe fn ") {
            let head = rest.split('{').next().expect("a head");
            let (name, signature) = function(head);
            self.functions.insert(name, signature);
        } else if let Some((name, other)) = pair(item, "pub type ", " = ") {
            self.names.aliases.insert(name, other.trim_end_matches(';').to_owned());
        } else if let Some((other, name)) = pair(item, "pub use self::", " as ") {
            self.names.aliases.insert(name.trim_end_matches(';').to_owned(), other);
        } else if let Some((name, body)) = pair(item, "pub enum ", " {") {
            for line in body.lines() {
                if let Some((name, value)) = line.trim().trim_end_matches(',').split_once(" = ") {
                    self.constants.insert(name.to_owned(), value.parse().expect("a number"));
                }
            }
            self.names.enums.push(name);
        } else if let Some((name, body)) =
            pair(item, "pub struct ", " {").or_else(|| pair(item, "pub union ", " {"))
        {
            let field = |line: &str| {
                let line = line.trim().trim_end_matches(',');
                let (name, kind) = line.strip_prefix("pub ").unwrap_or(line).split_once(": ")?;
                Some((name.to_owned(), kind.to_owned()))
            };
            let fields = body.lines().filter_map(field).collect();
            self.names.structs.insert(name, fields);
        } else if let Some((name, rest)) = pair(item, "pub const ", ": ")
            && let Some((_, value)) = rest.split_once(" = ")
            && let Ok(value) = value.trim_end_matches(';').parse()
        {
            self.constants.insert(name, value);
        }
    }
}

/// Whether a condition on features holds; conditions on other things than versions do not matter.
fn holds(condition: &str, versions: &[&str]) -> bool {
    let mut named = condition
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|one| one.contains("-0") || one.contains("-1"));
    let first = named.next();
    first.is_none() || first.into_iter().chain(named).any(|one| versions.contains(&one))
}

/// A name and what follows it.
fn pair(item: &str, before: &str, between: &str) -> Option<(String, String)> {
    let (name, rest) = item.strip_prefix(before)?.split_once(between)?;
    Some((name.to_owned(), rest.to_owned()))
}

/// A function's name and types from `name(a: A, b: B) -> C`.
pub fn function(head: &str) -> (String, Signature) {
    let (name, rest) = head.split_once('(').expect("parameters");
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    let (inside, rest) = rest.split_at(end.expect("an end"));
    let mut kinds = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if !inside[..at].ends_with('-') => depth -= 1,
            ',' if depth == 0 => {
                if let Some((_, kind)) = inside[start..at].split_once(':') {
                    kinds.push(kind.trim().to_owned());
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    let result = rest.split_once("->").map_or("", |(_, result)| result.trim());
    (name.trim().to_owned(), (kinds, result.to_owned()))
}
