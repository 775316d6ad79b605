//! PROGRAM as a target of the cargo workspace around the current folder: found with
//! `cargo metadata`, built with `cargo build --release`, so that a fresh clone can be run and a
//! stale binary never is.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::executable::on_path;
use crate::failure::{Doing, Failure};
use crate::tool::{Messages, Overseer};

/// The part of `cargo metadata` that matters here.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    workspace_root: PathBuf,
    #[serde(default)]
    target_directory: PathBuf,
    packages: Vec<Package>,
    #[serde(skip)]
    cargo: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    #[serde(default)]
    name: String,
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

/// What a package's manifest says of one that it uses.
#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// Where it is, unless it comes from a registry or by git.
    path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct MetadataTarget {
    name: String,
    kind: Vec<String>,
    #[serde(default, rename = "required-features")]
    required_features: Vec<String>,
}

impl MetadataTarget {
    /// `bin` or `example`, for targets that can be run.
    fn runnable(&self) -> Option<&'static str> {
        ["bin", "example"].into_iter().find(|kind| self.kind.iter().any(|k| k == kind))
    }
}

/// A binary or example that cargo can build.
#[derive(Debug)]
pub struct Target<'a> {
    workspace: &'a Workspace,
    package: &'a Package,
    target: &'a MetadataTarget,
    kind: &'static str,
}

impl Workspace {
    /// The workspace around the current folder. The inner error is the reason why there is none
    /// to search, or nothing where nobody would expect one.
    pub fn around_current_folder(
        overseer: &mut Overseer,
    ) -> Result<Result<Workspace, Option<String>>, Failure> {
        let here = std::env::current_dir().unwrap_or_default();
        if !here.ancestors().any(|folder| folder.join("Cargo.toml").is_file()) {
            return Ok(Err(None));
        }
        // Under `cargo launch` cargo says which cargo it is.
        let named = std::env::var_os("CARGO").map(PathBuf::from).filter(|path| path.is_file());
        let Some(cargo) = named.or_else(|| on_path(OsStr::new("cargo"))?.ok()) else {
            return Ok(Err(Some("the cargo workspace here (cargo itself is not on PATH)".into())));
        };
        let mut workspace = match metadata(overseer, &cargo, &["--no-deps"])? {
            Ok(workspace) => workspace,
            Err(why) => return Ok(Err(Some(format!("the cargo workspace here, but: {why}")))),
        };
        workspace.cargo = cargo;
        // The innermost package around the current folder has the first say.
        workspace.packages.sort_by_key(|package| {
            let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
            let depth = folder.components().count();
            std::cmp::Reverse(if here.starts_with(folder) { depth } else { 0 })
        });
        Ok(Ok(workspace))
    }

    /// The binary, or else the example, called `name`.
    pub fn target(&self, name: &str) -> Option<Target<'_>> {
        let named = |wanted: &'static str| {
            self.packages.iter().find_map(|package| {
                let fits = |t: &&MetadataTarget| t.name == name && t.runnable() == Some(wanted);
                let target = package.targets.iter().find(fits)?;
                Some(Target { workspace: self, package, target, kind: wanted })
            })
        };
        named("bin").or_else(|| named("example"))
    }

    /// Builds the shared library that the package `name` is, in release mode; nothing where the workspace
    /// has no such package.
    ///
    /// # Errors
    /// With cargo's own exit code if the build fails.
    pub fn build_library(
        &self,
        overseer: &mut Overseer,
        name: &str,
    ) -> Result<Option<PathBuf>, Failure> {
        let makes = |package: &&Package| {
            let library = |t: &MetadataTarget| t.kind.iter().any(|kind| kind == "cdylib");
            package.targets.iter().any(|t| library(t) && t.name == name)
        };
        let Some(package) = self.packages.iter().find(makes) else { return Ok(None) };
        self.build_shared(overseer, name, ["--package".into(), package.id.clone().into()]).map(Some)
    }

    /// Builds the shared library `name` of the package in `folder`, which is of another workspace, into this
    /// one's target folder.
    ///
    /// # Errors
    /// As [`build_library`](Self::build_library).
    pub fn build_foreign(
        &self,
        overseer: &mut Overseer,
        folder: &Path,
        name: &str,
    ) -> Result<PathBuf, Failure> {
        let mut target = OsString::from("--target-dir=");
        target.push(&self.target_directory);
        let mut manifest = OsString::from("--manifest-path=");
        manifest.push(folder.join("Cargo.toml"));
        self.build_shared(overseer, name, [target, manifest])
    }

    fn build_shared(
        &self,
        overseer: &mut Overseer,
        name: &str,
        which: [OsString; 2],
    ) -> Result<PathBuf, Failure> {
        let mut args: Vec<OsString> =
            ["build", "--release", "--message-format=json-render-diagnostics", "--lib"]
                .map(OsString::from)
                .to_vec();
        args.extend(which);
        let ran = overseer.run_tool(&self.cargo, args, Messages::Show)?;
        if !ran.exit.success() {
            let message = format!("cargo could not build the library `{name}`");
            return Err(Failure::with_code(ran.exit.shell_code(), message));
        }
        let built = shared_library(&ran.stdout, name);
        let missing = || Failure::new(format!("cargo built `{name}` but named no shared library"));
        built.ok_or_else(missing)
    }

    /// The folder of the package `name` that this workspace's packages use, if they do.
    pub fn folder_of(
        &self,
        overseer: &mut Overseer,
        name: &str,
    ) -> Result<Option<PathBuf>, Failure> {
        // Dependencies by path stand in the manifests; the whole graph takes a lock file and all sources.
        let used = self.packages.iter().flat_map(|package| &package.dependencies);
        if let Some(path) = used.filter(|used| used.name == name).find_map(|used| used.path.clone())
        {
            return Ok(Some(path));
        }
        // Other platforms' packages need not be there.
        let host = format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH);
        let all = metadata(overseer, &self.cargo, &[&host])?.ok();
        let package = all.and_then(|all| all.packages.into_iter().find(|p| p.name == name));
        Ok(package.and_then(|package| package.manifest_path.parent().map(Path::to_owned)))
    }

    /// What there would have been to run.
    pub fn describe(&self) -> String {
        let targets = self.packages.iter().flat_map(|package| &package.targets);
        let runnable = targets.filter(|t| t.runnable().is_some()).map(|t| t.name.as_str());
        let names: BTreeSet<&str> = runnable.collect();
        let list = names.into_iter().collect::<Vec<_>>().join(", ");
        format!("the cargo workspace {} (it has: {list})", self.workspace_root.display())
    }
}

/// What `cargo metadata` prints, or why it does not.
fn metadata(
    overseer: &mut Overseer,
    cargo: &Path,
    options: &[&str],
) -> Result<Result<Workspace, String>, Failure> {
    let args = ["metadata", "--offline", "--format-version", "1"].iter().chain(options);
    let ran = overseer.run_tool(cargo, args.map(OsString::from).collect(), Messages::Keep)?;
    if !ran.exit.success() {
        return Ok(Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&ran.stdout)
        .doing(|| "cannot understand the output of `cargo metadata`".into())
        .map(Ok)
}

impl Target<'_> {
    /// Builds the target in release mode, with cargo's messages on the terminal.
    ///
    /// # Errors
    /// With cargo's own exit code if the build fails.
    pub fn build(&self, overseer: &mut Overseer) -> Result<PathBuf, Failure> {
        let name = &self.target.name;
        let mut args: Vec<OsString> =
            ["build", "--release", "--message-format=json-render-diagnostics", "--package"]
                .map(OsString::from)
                .to_vec();
        args.push(self.package.id.clone().into());
        args.push(format!("--{}", self.kind).into());
        args.push(name.into());
        if !self.target.required_features.is_empty() {
            args.push("--features".into());
            args.push(self.target.required_features.join(",").into());
        }
        let ran = overseer.run_tool(&self.workspace.cargo, args, Messages::Show)?;
        if !ran.exit.success() {
            let message = format!("cargo could not build {} `{name}`", self.kind);
            return Err(Failure::with_code(ran.exit.shell_code(), message));
        }
        executable(&ran.stdout, name, self.kind).ok_or_else(|| {
            Failure::new(format!("cargo built {} `{name}` but named no executable", self.kind))
        })
    }
}

/// The executable of target `name` among cargo's messages (one JSON object a line).
fn executable(messages: &[u8], name: &str, kind: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Artifact {
        target: MetadataTarget,
        executable: Option<PathBuf>,
    }
    // Other messages lack these fields and are passed over.
    let mut artifacts = messages.split(|b| *b == b'\n').filter_map(|line| {
        let artifact: Artifact = serde_json::from_slice(line).ok()?;
        (artifact.target.name == name && artifact.target.runnable() == Some(kind))
            .then_some(artifact.executable)?
    });
    artifacts.next_back()
}

/// The shared library of target `name` among cargo's messages.
fn shared_library(messages: &[u8], name: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Artifact {
        target: MetadataTarget,
        filenames: Vec<PathBuf>,
    }
    let mut artifacts = messages.split(|b| *b == b'\n').filter_map(|line| {
        let artifact: Artifact = serde_json::from_slice(line).ok()?;
        let shared = |file: &PathBuf| file.extension().is_some_and(|e| e == "so");
        artifact.filenames.into_iter().find(shared).filter(|_| artifact.target.name == name)
    });
    artifacts.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        serde_json::from_str(
            r#"{"workspace_root": "/w", "packages": [
                {"id": "a", "manifest_path": "/w/Cargo.toml", "targets": [
                    {"name": "train", "kind": ["example"], "required-features": ["image"]},
                    {"name": "lib", "kind": ["lib"]}]},
                {"id": "b", "manifest_path": "/w/b/Cargo.toml", "targets": [
                    {"name": "tool", "kind": ["bin"]}, {"name": "tool", "kind": ["test"]}]}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn only_runnable_targets_are_found() {
        let workspace = workspace();
        let train = workspace.target("train").unwrap();
        assert_eq!((train.kind, train.package.id.as_str()), ("example", "a"));
        assert_eq!(workspace.target("tool").unwrap().kind, "bin");
        assert!(workspace.target("lib").is_none());
        assert!(workspace.describe().ends_with("(it has: tool, train)"));
    }

    #[test]
    fn the_executable_is_read_from_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"x","kind":["lib"]},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"train","kind":["example"]},"executable":"/w/t/train"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "train", "example"), Some("/w/t/train".into()));
        assert_eq!(executable(messages, "train", "bin"), None);
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"gpu","kind":["cdylib","rlib"]},"filenames":["/w/libgpu.so","/w/libgpu.rlib"]}"#;
        assert_eq!(shared_library(messages, "gpu"), Some("/w/libgpu.so".into()));
        assert_eq!(shared_library(messages, "train"), None);
    }
}
