//! `--simulate-gpus`: finds or builds the library that stands in for GPUs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cargo::Workspace;
use crate::failure::Failure;
use crate::plan::{LIBRARY, Simulated};
use crate::tool::Overseer;

/// The library's name as a target of cargo.
const TARGET: &str = "torchrs_simulated_gpu";
/// The package that the library comes with, and the library's folder in it.
const PACKAGE: (&str, &str) = ("torchrs", "crates/simulator");
/// Its file name.
const FILE: &str = "libtorchrs_simulated_gpu.so";

/// Finds the library, or builds it where the current folder's workspace has it or uses the package that
/// it comes with. A program whose `name` is a path is run as it is, with the library beside it.
pub fn find(
    overseer: &mut Overseer,
    gpus: u32,
    program: &Path,
    name: &OsStr,
    no_build: bool,
) -> Result<Simulated, Failure> {
    if let Some(library) = std::env::var_os(LIBRARY).filter(|path| !path.is_empty()) {
        let library = PathBuf::from(library);
        return match library.is_file() {
            true => Ok(Simulated { gpus, library }),
            false => Err(Failure::new(format!("{LIBRARY}={} is no file", library.display()))),
        };
    }
    let is_path = |name: &OsStr| name.as_encoded_bytes().contains(&b'/');
    let beside = || beside(program);
    let library = match is_path(name) {
        _ if no_build => beside(),
        true => match beside() {
            Some(library) => Some(library),
            None => build(overseer)?,
        },
        false => match build(overseer)? {
            Some(library) => Some(library),
            None => beside(),
        },
    };
    let library = library.and_then(|library| std::path::absolute(library).ok());
    library.map(|library| Simulated { gpus, library }).ok_or_else(|| {
        Failure::new(format!(
            "--simulate-gpus: {FILE} is neither beside {} nor beside torchrs-launch; {} or name it \
             in {LIBRARY}",
            program.display(),
            how_to_get_it(no_build)
        ))
    })
}

/// Builds it, if the workspace around the current folder has its source or uses the package that has it.
fn build(overseer: &mut Overseer) -> Result<Option<PathBuf>, Failure> {
    let Ok(workspace) = Workspace::around_current_folder(overseer)? else { return Ok(None) };
    if let Some(library) = workspace.build_library(overseer, TARGET)? {
        return Ok(Some(library));
    }
    let (package, folder) = PACKAGE;
    let source = workspace.folder_of(overseer, package)?.map(|at| at.join(folder));
    match source.filter(|source| source.join("Cargo.toml").is_file()) {
        Some(source) => workspace.build_foreign(overseer, &source, TARGET).map(Some),
        None => Ok(None),
    }
}

/// What to do where it is not found and could not be built.
fn how_to_get_it(no_build: bool) -> String {
    if no_build {
        return "leave --no-build out".to_owned();
    }
    // Where this launcher was built; it may run elsewhere.
    let manifest =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/simulator/Cargo.toml"));
    let (package, folder) = PACKAGE;
    let general = format!(
        "start in a cargo workspace that uses {package} by path or by git, whose folder `{folder}` it \
         is built from (a registry's copy has none)"
    );
    match manifest.canonicalize() {
        Ok(manifest) => {
            let manifest = manifest.display();
            format!("{general}, build it (`cargo build --release --manifest-path {manifest}`)")
        }
        Err(_) => general,
    }
}

/// Beside the program or the launcher, in the folder above, or in `deps` in either.
fn beside(program: &Path) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let places = [Some(program), own.as_deref()].into_iter().flatten();
    let folders = places.flat_map(|place| place.ancestors().skip(1).take(2));
    let files = folders.flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)]);
    files.into_iter().find(|file| file.is_file())
}
