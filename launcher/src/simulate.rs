//! `--simulate-gpus`: the library that stands in for GPUs, and how workers are told of it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cargo::Workspace;
use crate::failure::Failure;
use crate::front::Front;
use crate::plan::Plan;

/// Number of devices, for the workers.
const GPUS: &str = "TORCHRS_SIMULATE_GPUS";
/// Path of the library, for the workers and from the user.
const LIBRARY: &str = "TORCHRS_SIMULATED_GPU_LIBRARY";
/// The library's name as a target of cargo.
const TARGET: &str = "torchrs_simulated_gpu";
/// The package that the library comes with, and the library's folder in it.
const PACKAGE: (&str, &str) = ("torchrs", "crates/simulator");
/// Its file name.
const FILE: &str = "libtorchrs_simulated_gpu.so";

/// Simulated GPUs of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Simulated {
    gpus: u32,
    library: PathBuf,
}

/// The line that opens the launcher's output and each worker's log.
impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gpus, library) = (self.gpus, self.library.display());
        let plural = if gpus == 1 { "" } else { "s" };
        write!(
            f,
            "torchrs-launch: {gpus} simulated GPU{plural} ({library}): results are real, speeds are not"
        )
    }
}

impl Simulated {
    /// Finds the library, or builds it where the current folder's workspace has it or uses the package that
    /// it comes with. A program that is a path is run as it is, with the library beside it.
    pub fn find(
        front: &mut Front,
        gpus: u32,
        plan: &Plan,
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
        let beside = || beside(&plan.program);
        let library = match is_path(&plan.argv[0]) {
            _ if no_build => beside(),
            true => match beside() {
                Some(library) => Some(library),
                None => build(front)?,
            },
            false => match build(front)? {
                Some(library) => Some(library),
                None => beside(),
            },
        };
        let library = library.and_then(|library| std::path::absolute(library).ok());
        library.map(|library| Simulated { gpus, library }).ok_or_else(|| {
            Failure::new(format!(
                "--simulate-gpus: {FILE} is neither beside {} nor beside torchrs-launch; {} or name it \
                 in {LIBRARY}",
                plan.program.display(),
                how_to_get_it(no_build)
            ))
        })
    }

    /// What workers find in their environment.
    pub fn variables(&self) -> [(&'static str, OsString); 2] {
        [(GPUS, self.gpus.to_string().into()), (LIBRARY, self.library.clone().into())]
    }
}

/// Builds it, if the workspace around the current folder has its source or uses the package that has it.
fn build(front: &mut Front) -> Result<Option<PathBuf>, Failure> {
    let Ok(workspace) = Workspace::around_current_folder(front)? else { return Ok(None) };
    if let Some(library) = workspace.build_library(front, TARGET)? {
        return Ok(Some(library));
    }
    let (package, folder) = PACKAGE;
    let source = workspace.folder_of(front, package)?.map(|at| at.join(folder));
    match source.filter(|source| source.join("Cargo.toml").is_file()) {
        Some(source) => workspace.build_foreign(front, &source, TARGET).map(Some),
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
