//! A program's code for an architecture: from memory, from disk, from a pack, or compiled now, once for all threads of all
//! processes that share the folder.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::Mutex;

use crate::kernels::ahead;
use crate::kernels::compile::at_exit;
use crate::kernels::compile::disk_cache::{DiskCache, Found, Name};
use crate::kernels::compile::figures::COMPILED;
use crate::kernels::compile::fingerprint::Fingerprint;
use crate::kernels::compile::nvrtc::{Compiler, Outcome, VIRTUAL, compiler};
use crate::kernels::compile::turns::Turn;
use crate::kernels::module::Program;
use crate::loading::library::{self, Kind};
use crate::loading::version;
use crate::memo::once::TryOnce;
use torchrs_error::{Error, Result};

/// Code for a device.
pub(crate) struct Code {
    pub(crate) bytes: Arc<[u8]>,
    /// Whether it was made elsewhere, so that the driver may refuse it.
    pub(crate) from_pack: bool,
}

/// How a program's code came, or did not come, to be in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It was there.
    Before,
    /// It has been compiled.
    Now,
    /// Another process compiles it.
    Elsewhere,
}

/// The folders that the environment names.
pub(crate) fn disk() -> Result<&'static DiskCache> {
    static DISK: OnceLock<Result<DiskCache>> = OnceLock::new();
    DISK.get_or_init(DiskCache::of_environment).as_ref().map_err(Error::clone)
}

/// Code by its key: devices of one kind share it, and threads that ask at once wait for the one that compiles.
type Compiled = Arc<TryOnce<Arc<Code>>>;
static CODES: LazyLock<Mutex<HashMap<Fingerprint, Compiled>>> = LazyLock::new(Mutex::default);

fn entry(key: Fingerprint) -> Compiled {
    CODES.lock().entry(key).or_default().clone()
}

/// A program's code.
///
/// # Errors
/// [`Error::Device`] with the compiler's log, or where there is neither code nor a compiler; [`Error::Config`] for a pack
/// that is no folder.
pub(crate) fn code(
    program: &Program,
    capability: (u32, u32),
    disk: &DiskCache,
) -> Result<Arc<Code>> {
    let key = key_of(program, &options_for(program, capability, true));
    let name = Name { program: program.name(), key };
    let entry = entry(key);
    let code = entry.get_or_try(|| {
        let compiler = compiler();
        let version = compiler.as_ref().ok().map(|compiler| compiler.version());
        let kept = || disk.read(name, version, driver_runs()).map(of_disk);
        if let Some(code) = kept() {
            return Ok(code);
        }
        let compiler = compiler?;
        ahead::missed(program, capability)?;
        let turn = disk.turn(name);
        // Who had to wait finds what the other one made.
        if let Some(code) = kept() {
            return Ok(code);
        }
        let (bytes, _) = compile_now(program, compiler, capability, &[])?;
        let _ = disk.write(name, compiler.version(), &bytes, &turn);
        Ok(Arc::new(Code { bytes: bytes.into(), from_pack: false }))
    });
    code.cloned()
}

fn of_disk(found: Found) -> Arc<Code> {
    Arc::new(Code { bytes: found.code.into(), from_pack: found.from_pack })
}

/// Code of the compiler at hand, where the driver has refused what a pack has.
///
/// # Errors
/// As [`code`].
pub(crate) fn own_code(program: &Program, capability: (u32, u32)) -> Result<Vec<u8>> {
    let compiler = compiler()?;
    let name = Name {
        program: program.name(),
        key: key_of(program, &options_for(program, capability, true)),
    };
    let own = disk()?.without_packs();
    let turn = own.turn(name);
    if let Some(found) = own.read(name, Some(compiler.version()), None) {
        return Ok(found.code);
    }
    let (code, _) = compile_now(program, compiler, capability, &[])?;
    let _ = own.write(name, compiler.version(), &code, &turn);
    Ok(code)
}

/// Sees to it that a program's code for an architecture is in a folder, without reading it. Does not wait for another
/// process that compiles it, where `wait` is false.
///
/// # Errors
/// As [`code`].
pub(crate) fn keep(
    program: &Program,
    capability: (u32, u32),
    disk: &DiskCache,
    wait: bool,
) -> Result<Kept> {
    let compiler = compiler()?;
    let key = key_of(program, &options_for(program, capability, true));
    let name = Name { program: program.name(), key };
    let is_there = || disk.has(name, compiler.version(), driver_runs());
    if is_there() {
        return Ok(Kept::Before);
    }
    let turn = match wait {
        true => Some(disk.turn(name)),
        // Where there are no turns, this would be compiled by all who may need it.
        false => disk.try_turn(name).filter(Turn::is_had),
    };
    let Some(turn) = turn else { return Ok(Kept::Elsewhere) };
    if is_there() {
        return Ok(Kept::Before);
    }
    let (code, _) = compile_now(program, compiler, capability, &[])?;
    let written = disk.write(name, compiler.version(), &code, &turn);
    let folder = || disk.folder().unwrap_or(Path::new("")).display().to_string();
    written.map_err(|error| Error::os(format!("keep compiled kernels in {}", folder()), error))?;
    Ok(Kept::Now)
}

/// The major version of CUDA whose code the driver runs; none without a driver.
fn driver_runs() -> Option<u32> {
    static RUNS: LazyLock<Option<u32>> =
        LazyLock::new(|| library::open(Kind::Driver).ok().and_then(version::cuda_major));
    *RUNS
}

/// All that the code depends on, but the compiler's version.
fn key_of(program: &Program, options: &[String]) -> Fingerprint {
    let mut key = program.fingerprint();
    for option in options {
        key = key.with(option);
    }
    if library::is_simulated() {
        // Code of a simulated GPU is the host's, and depends on what the library does with it.
        let path = library::open(Kind::Nvrtc).map(|library| library.path());
        let changed = path.ok().and_then(|path| path.metadata().ok()?.modified().ok());
        key = key.with(format!("simulated {changed:?}"));
    }
    key
}

/// `specific`: for this architecture and no later one, with the instructions that no other has (`sm_90a`): a device's
/// code is compiled for that device.
pub(crate) fn options_for(
    program: &Program,
    (major, minor): (u32, u32),
    specific: bool,
) -> Vec<String> {
    let specific = if specific && major >= 9 { "a" } else { "" };
    let mut options =
        vec![format!("--gpu-architecture=sm_{major}{minor}{specific}"), "--std=c++17".to_owned()];
    if library::is_simulated() {
        options.push("--define-macro=TORCHRS_SIMULATED=1".to_owned());
    }
    options.extend(program.own_options().iter().map(|&option| option.to_owned()));
    options
}

/// The code and the log, with options for the log beside the program's own.
pub(crate) fn compile_now(
    program: &Program,
    compiler: &Compiler,
    capability: (u32, u32),
    of_log: &[&str],
) -> Result<(Vec<u8>, String)> {
    let name = format!("{}.cu", program.name());
    // A compiler that is older than the GPU may know the first of its generation, whose code runs on the later ones. Else
    // it gives intermediate code for the newest that it knows, which the driver compiles, once: it keeps the outcome.
    let mut all = vec![
        options_for(program, capability, true),
        options_for(program, capability, false),
        options_for(program, (capability.0, 0), false),
    ];
    all.dedup();
    if let Some((major, minor)) = compiler.newest_architecture(capability) {
        let mut options = options_for(program, capability, false);
        options[0] = format!("{VIRTUAL}{major}{minor}");
        all.push(options);
    }
    let mut refusal = String::new();
    let nothing = "extern \"C\" __global__ void nothing() {}";
    let _leave = at_exit::begin(|| _ = compiler.compile("nothing.cu", nothing, &all[0]))?;
    for mut options in all {
        options.extend(of_log.iter().map(|&option| option.to_owned()));
        let (log, option) = match compiler.compile(&name, program.text(), &options)? {
            Outcome::Code(code, log) => {
                COMPILED.fetch_add(1, Relaxed);
                return Ok((code, log));
            }
            Outcome::Refused { log, option } => (log, option),
        };
        let ((major, minor), path) = (compiler.version(), compiler.path().display());
        let architecture = &options[0];
        refusal = format!(
            "{name} does not compile ({architecture}, NVRTC {major}.{minor}, {path}):\n{log}"
        );
        if !option {
            break;
        }
    }
    Err(Error::Device(refusal))
}
