//! Compiling programs for architectures into a folder, on all cores.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;

use super::{likely, usage};
use crate::device;
use crate::kernels::compile::code::{self, Kept};
use crate::kernels::compile::disk_cache::DiskCache;
use crate::kernels::compile::nvrtc::compiler;
use crate::kernels::module::Program;
use torchrs_error::{Error, Result};

/// An architecture by its compute capability: (9, 0) is `sm_90a`.
pub type Architecture = (u32, u32);

/// What was done.
#[derive(Clone, Debug)]
pub struct Warmed {
    /// Programs that were compiled, each counted for every architecture.
    pub compiled: usize,
    /// Programs whose code was there.
    pub found: usize,
    /// What does not compile, with the compiler's log.
    pub failed: Vec<String>,
    /// Architectures that the compiler at hand does not know.
    pub left_out: Vec<Architecture>,
    /// The processor's time for each program that was compiled, the longest first.
    pub times: Vec<(String, Architecture, Duration)>,
    /// How long all took.
    pub elapsed: Duration,
}

/// The architecture that a text names: `sm_90a`, `sm_90`, `90` or `9.0`.
///
/// # Errors
/// [`Error::Argument`] for another text.
pub fn architecture(text: &str) -> Result<Architecture> {
    let digits = text.trim().trim_start_matches("sm_").trim_end_matches('a');
    let parsed = match digits.split_once('.') {
        Some((major, minor)) => major.parse().ok().zip(minor.parse().ok()),
        None => digits.parse::<u32>().ok().map(|number| (number / 10, number % 10)),
    };
    let known = |(major, minor): &(u32, u32)| (5..100).contains(major) && *minor < 10;
    parsed.filter(known).ok_or_else(|| {
        let message = format!("`{text}` is not an architecture such as sm_80, sm_90a or 9.0");
        Error::argument("warm", "architecture", message)
    })
}

/// An architecture as the compiler names it.
pub fn name((major, minor): Architecture) -> String {
    format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
}

/// The architectures of the GPUs that this process sees, each once.
///
/// # Errors
/// [`Error::Device`] where there is no driver or no GPU.
pub fn architectures() -> Result<Vec<Architecture>> {
    device::check_available()?;
    let all =
        (0..device::device_count()).map(|index| device::properties(index).map(|p| p.capability));
    let mut all = all.collect::<Result<Vec<_>>>()?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The folder that the environment names for compiled kernels.
///
/// # Errors
/// [`Error::Config`] where it names none.
pub fn folder() -> Result<&'static Path> {
    code::disk()?.folder().ok_or_else(|| {
        let message = "no folder for compiled kernels: it is empty, or neither it nor HOME is set";
        Error::config(crate::kernels::compile::disk_cache::VARIABLE, message)
    })
}

/// The programs that training steps of these models need.
///
/// # Errors
/// [`Error::Argument`] for a model of which there is no list.
pub fn programs_of(models: &[&str]) -> Result<Vec<&'static Program>> {
    let lists = likely::bundled();
    let mut lines = Vec::new();
    for model in models {
        let (_, list) = lists.iter().find(|(name, _)| name == model).ok_or_else(|| {
            let known = likely::models().join(", ");
            Error::argument(
                "warm",
                "models",
                format!("there is no list for {model}; known: {known}"),
            )
        })?;
        lines.extend(list.iter().copied());
    }
    Ok(known(lines))
}

/// The programs that executables have loaded that used the folder before.
pub fn programs_of_earlier_runs(folder: &Path) -> Vec<&'static Program> {
    let lists = usage::all(folder);
    known(lists.iter().flatten().map(String::as_str).collect())
}

fn known(lines: Vec<&str>) -> Vec<&'static Program> {
    lines.into_iter().filter_map(likely::program).collect()
}

/// Compiles programs into a folder, unless their code is there. `progress` is told how many are done, of how many.
///
/// # Errors
/// [`Error::Device`] where there is no compiler, or it knows none of the architectures.
pub fn warm(
    programs: &[&'static Program],
    architectures: &[Architecture],
    folder: &Path,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Warmed> {
    let start = Instant::now();
    let compiler = compiler()?;
    let knows = |one: &&Architecture| compiler.newest_architecture(**one) == Some(**one);
    let (known, left_out): (Vec<Architecture>, Vec<Architecture>) =
        architectures.iter().partition(|one| knows(one));
    if known.is_empty() {
        let names: Vec<String> = left_out.into_iter().map(name).collect();
        let ((major, minor), path) = (compiler.version(), compiler.path().display());
        return Err(Error::Device(format!(
            "NVRTC {major}.{minor} ({path}) knows none of: {}",
            names.join(", ")
        )));
    }
    let mut tasks: Vec<(&Program, Architecture)> = Vec::new();
    for &architecture in &known {
        let mut lines = std::collections::HashSet::new();
        let new = programs.iter().filter(|program| lines.insert(program.recipe()));
        tasks.extend(new.map(|program| (*program, architecture)));
    }
    let disk = DiskCache::at(folder);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (outcomes, times) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&(program, architecture)) = tasks.get(next.fetch_add(1, Relaxed)) {
            let begin = processor_time();
            let outcome = code::keep(program, architecture, &disk, true);
            if matches!(outcome, Ok(Kept::Now)) {
                let time = processor_time().saturating_sub(begin);
                times.lock().push((program.recipe(), architecture, time));
            }
            let outcome = outcome.map_err(|error| format!("{}: {error}", program.title()));
            outcomes.lock().push(outcome);
            progress(done.fetch_add(1, Relaxed) + 1, tasks.len());
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |cores| cores.get()) {
            scope.spawn(work);
        }
    });
    let outcomes = outcomes.into_inner();
    let compiled = outcomes.iter().filter(|one| matches!(one, Ok(Kept::Now))).count();
    let failed: Vec<String> = outcomes.into_iter().filter_map(std::result::Result::err).collect();
    let found = tasks.len() - compiled - failed.len();
    let mut times = times.into_inner();
    times.sort_by_key(|(_, _, time)| std::cmp::Reverse(*time));
    Ok(Warmed { compiled, found, failed, left_out, times, elapsed: start.elapsed() })
}

/// Of this thread: other threads and programs do not count.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_read_as_people_write_them() {
        for text in ["sm_90a", "sm_90", "90", "9.0", "90a"] {
            assert_eq!(architecture(text).unwrap(), (9, 0), "{text}");
        }
        assert_eq!(architecture("sm_120a").unwrap(), (12, 0));
        assert_eq!([name((8, 6)), name((12, 0))], ["sm_86", "sm_120a"]);
        for text in ["", "sm_", "hopper", "9", "sm_9000"] {
            assert!(architecture(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_model_without_a_list_is_an_error_that_names_those_with_one() {
        let error = programs_of(&["gtp2"]).err().unwrap().to_string();
        assert!(error.contains("gtp2") && error.contains("gpt2"), "{error}");
    }
}
