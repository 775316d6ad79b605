//! Where CUDA's libraries are. Nothing of CUDA is needed to build or to start: each library is
//! looked for at its first use, and what is missing is an error that names the package to install.
//!
//! The order: the simulated GPU's one library, if `TORCHRS_SIMULATE_GPUS` is set; folders of
//! `TORCHRS_CUDA_PATH`; then, for the driver's major version first, what the dynamic loader finds,
//! `CUDA_HOME` and `CUDA_PATH`, and the wheels (`nvidia/*/lib`) of Python environments.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use super::dynamic::Library;
use super::places::Places;
use super::version;
use torchrs_error::{Error, Result};

pub use super::kind::Kind;
pub use super::places::CUDA_PATH;

/// Number of simulated devices; when set, the simulated GPU stands in for every library.
pub const SIMULATE: &str = "TORCHRS_SIMULATE_GPUS";
/// Path of the simulated GPU's library.
pub const SIMULATED_LIBRARY: &str = "TORCHRS_SIMULATED_GPU_LIBRARY";
/// The file name of the simulated GPU.
const SIMULATED_NAME: &str = "libtorchrs_simulated_gpu.so";

/// How many GPUs the environment asks to simulate; none where the variable is unset, empty or 0.
///
/// # Errors
/// [`Error::Config`] for what is not a number.
pub fn simulated_count() -> Result<Option<usize>> {
    parse_count(env::var_os(SIMULATE))
}

fn parse_count(value: Option<OsString>) -> Result<Option<usize>> {
    let Some(text) = value.filter(|v| !v.is_empty()) else { return Ok(None) };
    let number = text.to_str().and_then(|t| t.trim().parse::<usize>().ok());
    match number {
        Some(0) => Ok(None),
        Some(n) => Ok(Some(n)),
        None => {
            let shown = text.to_string_lossy().into_owned();
            Err(Error::config(SIMULATE, format!("`{shown}` is not a number of GPUs")))
        }
    }
}

/// Whether the simulated GPU stands in for a real one in this process.
pub fn is_simulated() -> bool {
    matches!(simulated_count(), Ok(Some(_)))
}

/// Whether a variable is 0, or a word for it, which turns off what it names.
pub(crate) fn is_off(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| is_no(&value))
}

fn is_no(value: &str) -> bool {
    ["0", "false", "off", "no"].iter().any(|no| value.trim().eq_ignore_ascii_case(no))
}

/// The functions of a library that torchrs does without where it is missing, is not `new_enough`, or a variable is 0.
///
/// # Errors
/// [`Error::Device`] where there is none, [`Error::Config`] where it is not to be used.
pub(crate) fn optional<T>(
    kind: Kind,
    variable: &str,
    new_enough: &str,
    load: impl Fn(&Library) -> Result<T, &'static str>,
) -> Result<T> {
    if is_off(variable) {
        return Err(Error::config(variable, format!("{kind} is not to be used")));
    }
    let library = open(kind)?;
    if let Err(error) = check_cuda(kind, library) {
        // Nobody else would say why all is slower.
        _ = writeln!(
            std::io::stderr(),
            "torchrs: {kind} is not used, our own kernels are: {error}"
        );
        return Err(error);
    }
    load(library).map_err(|symbol| {
        let path = library.path().display();
        Error::Device(format!("{path} has no `{symbol}`; torchrs needs {new_enough}"))
    })
}

/// Whether a library was made for a CUDA that the driver can run.
///
/// # Errors
/// [`Error::Device`] that names both, where it was made for a later major version.
pub(crate) fn check_cuda(kind: Kind, library: &Library) -> Result<()> {
    let driver = open(Kind::Driver)?;
    let (Some(own), Some(runs)) = (version::cuda_of(kind, library), version::cuda(driver)) else {
        return Ok(());
    };
    fits(kind, (library.path(), own), (driver.path(), runs))
}

fn fits(kind: Kind, library: (&Path, u32), driver: (&Path, u32)) -> Result<()> {
    if library.1 / 1000 <= driver.1 / 1000 {
        return Ok(());
    }
    let [own, runs] = [library.1, driver.1].map(|version| version::thousands(version as usize));
    let advice = kind.advice(Some(driver.1 / 1000));
    Err(Error::Device(format!(
        "{kind} at {} was made for CUDA {own}, and the driver at {} runs CUDA {runs}; {advice}, or install a newer driver",
        library.0.display(),
        driver.0.display()
    )))
}

/// Says on standard error that a library fails on something, the first time that it does on any.
pub(crate) fn say_failing(kind: Kind, error: &dyn fmt::Display, asked: &dyn fmt::Debug) {
    static ONCE: [Once; Kind::ALL.len()] = [const { Once::new() }; Kind::ALL.len()];
    ONCE[kind as usize].call_once(|| {
        let text = format!("torchrs: {kind} fails, our own kernels go on: {error}; {asked:?}");
        // Nobody may be listening.
        _ = writeln!(std::io::stderr(), "{text}");
    });
}

/// Opens a library once per process.
pub(crate) fn open(kind: Kind) -> Result<&'static Library> {
    static OPEN: [OnceLock<Result<Library>>; Kind::ALL.len()] =
        [const { OnceLock::new() }; Kind::ALL.len()];
    OPEN[kind as usize].get_or_init(|| find(kind)).as_ref().map_err(Error::clone)
}

fn find(kind: Kind) -> Result<Library> {
    if simulated_count()?.is_some() {
        return find_simulated();
    }
    let driver = if kind.follows_cuda() || matches!(kind, Kind::Cudnn | Kind::Nccl) {
        open(Kind::Driver).ok().and_then(version::cuda_major)
    } else {
        None
    };
    let places = Places::of_environment();
    check_explicit(&places)?;
    find_real(kind, driver, &places, Library::open)
}

/// Refuses what the user named to be searched and is no folder, and folders of which none has a library of CUDA.
fn check_explicit(places: &Places) -> Result<()> {
    let listed = |folder: &Path| std::fs::read_dir(folder).ok();
    let mut useful = places.explicit.is_empty();
    for folder in &places.explicit {
        let Some(entries) = listed(folder) else {
            let what = format!("`{}` is no folder that can be read", folder.display());
            return Err(Error::config(CUDA_PATH, what));
        };
        useful |= entries.flatten().any(|entry| {
            let name = entry.file_name();
            Kind::ALL.iter().any(|kind| name.to_string_lossy().starts_with(kind.stem()))
        });
    }
    if useful {
        return Ok(());
    }
    let named: Vec<String> = places.explicit.iter().map(|p| p.display().to_string()).collect();
    let stems = Kind::ALL.map(Kind::stem).join(", ");
    Err(Error::config(CUDA_PATH, format!("`{}` has none of {stems}", named.join(":"))))
}

/// Tries the places in their order with `open`, which gives the loader's text where it fails.
fn find_real<T>(
    kind: Kind,
    driver: Option<u32>,
    places: &Places,
    open: impl Fn(&Path) -> Result<T, String>,
) -> Result<T> {
    let versions = kind.preferred(driver);
    let mut refused = Vec::new();
    for path in candidates(kind, &versions, places) {
        let bare = path.parent() == Some(Path::new(""));
        if !bare && !path.is_file() {
            continue;
        }
        if kind == Kind::Nvrtc && !bare {
            for builtins in builtins_beside(&path) {
                // NVRTC looks for it by its bare name, which is found once it is loaded. Where
                // that fails, NVRTC says at its first program what it misses.
                let _ = open(&builtins);
            }
        }
        match open(&path) {
            Ok(library) => return Ok(library),
            // That the loader does not find a bare name is what "missing" means.
            Err(_) if bare => {}
            Err(why) => refused.push(format!("{}: {why}", path.display())),
        }
    }
    Err(missing(kind, driver, &versions, &refused))
}

/// Every path at which the library may be, in order. A bare name is left to the dynamic loader.
fn candidates(kind: Kind, versions: &[u32], places: &Places) -> Vec<PathBuf> {
    let file = |v: &u32| format!("{}.{v}", kind.stem());
    let mut paths = Vec::new();
    for folder in &places.explicit {
        paths.extend(versions.iter().map(|v| folder.join(file(v))));
    }
    for version in versions {
        let file = file(version);
        paths.push(PathBuf::from(&file));
        if kind != Kind::Driver {
            paths.extend(places.folders.iter().map(|folder| folder.join(&file)));
        }
    }
    paths
}

/// NVRTC's second library, in the folder of the first.
fn builtins_beside(nvrtc: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (nvrtc.parent(), nvrtc.file_name()) else { return vec![] };
    let name = name.to_string_lossy().replacen("libnvrtc.so", "libnvrtc-builtins.so", 1);
    let Ok(files) = std::fs::read_dir(folder) else { return vec![] };
    let mut found: Vec<_> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name))
        })
        .collect();
    found.sort();
    found
}

fn missing(kind: Kind, driver: Option<u32>, versions: &[u32], refused: &[String]) -> Error {
    let names: Vec<_> = versions.iter().map(|v| format!("{}.{v}", kind.stem())).collect();
    let advice = kind.advice(driver);
    let names = names.join(" or ");
    if !refused.is_empty() {
        let why = refused.join("; ");
        return Error::Device(format!("{kind} cannot be loaded ({why}); {advice}"));
    }
    let searched = match kind {
        Kind::Driver => "",
        _ => ", nor in CUDA_HOME, nor among the packages of Python's environments",
    };
    Error::Device(format!(
        "{kind} is missing: {names} was not found by the dynamic loader{searched}; {advice}"
    ))
}

/// Where the simulated GPU is: where [`SIMULATED_LIBRARY`] says, else near this executable, if it was built.
pub fn simulated_path() -> Option<PathBuf> {
    let named = env::var_os(SIMULATED_LIBRARY).filter(|path| !path.is_empty());
    named.map(PathBuf::from).or_else(|| {
        let paths = simulated_candidates(&env::current_exe().ok()?);
        paths.into_iter().find(|path| path.is_file())
    })
}

fn find_simulated() -> Result<Library> {
    let Some(path) = simulated_path() else {
        return Err(Error::Device(format!(
            "{SIMULATE} is set, but {SIMULATED_NAME} is not beside this executable nor in its parent folder; \
             {} or name it in {SIMULATED_LIBRARY}",
            how_to_build(&env::current_exe().unwrap_or_default())
        )));
    };
    Library::open(&path)
        .map_err(|why| Error::Device(format!("the simulated GPU cannot be loaded ({why})")))
}

/// The command that builds the simulated GPU to where `executable` finds it, from wherever it is given. Its
/// source lies in the folder of torchrs's, unless that came from a registry.
fn how_to_build(executable: &Path) -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = own.with_file_name("simulator").join("Cargo.toml");
    if !manifest.is_file() {
        return "get its source, which comes with torchrs by path or by git and not from a registry,"
            .to_owned();
    }
    let manifest = manifest.display();
    // `target/release/train`, `target/debug/examples/train`.
    let folders = executable.ancestors().skip(1).take(2);
    let mut places = folders.filter_map(|folder| {
        let profile = match folder.file_name()?.to_str()? {
            "release" => " --release",
            "debug" => "",
            _ => return None,
        };
        Some((profile, folder.parent()?.display()))
    });
    match places.next() {
        Some((profile, target)) => format!(
            "build it (`cargo build{profile} --manifest-path {manifest} --target-dir {target}`)"
        ),
        None => format!("build it (`cargo build --release --manifest-path {manifest}`)"),
    }
}

/// Beside the executable, in the folder above, and in `deps` beside either: a test or an example is
/// one folder below what it was built with.
fn simulated_candidates(executable: &Path) -> Vec<PathBuf> {
    let folders = executable.ancestors().skip(1).take(2);
    folders
        .flat_map(|folder| [folder.join(SIMULATED_NAME), folder.join("deps").join(SIMULATED_NAME)])
        .collect()
}

/// What was found of one library, for a person.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which library.
    pub kind: Kind,
    /// Its path and version, or what to install.
    pub found: Result<(PathBuf, String)>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Ok((path, version)) => write!(f, "{} {version}: {}", self.kind, path.display()),
            Err(error) => write!(f, "{}: {error}", self.kind),
        }
    }
}

/// Looks for every library and says what is there: the `doctor` command's part on CUDA.
///
/// ```
/// for finding in torchrs::cuda::library::describe() {
///     println!("{finding}");
/// }
/// ```
pub fn describe() -> Vec<Finding> {
    let find = |kind| open(kind).map(|l| (l.path().to_owned(), version::of(kind, l)));
    Kind::ALL.iter().map(|&kind| Finding { kind, found: find(kind) }).collect()
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;

#[cfg(test)]
mod named_folders {
    use super::*;

    #[test]
    fn a_named_folder_without_a_library_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let named = |path: &Path| Places { explicit: vec![path.into()], folders: vec![] };
        let error = check_explicit(&named(folder.path())).unwrap_err().to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
        let missing = folder.path().join("missing");
        let error = check_explicit(&named(&missing)).unwrap_err().to_string();
        assert!(error.contains("missing` is no folder"), "{error}");
        std::fs::write(folder.path().join("libnvrtc.so.13"), "").unwrap();
        check_explicit(&named(folder.path())).unwrap();
        check_explicit(&Places::default()).unwrap();
    }
}
