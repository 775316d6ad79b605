//! Compiling ahead of use: when the first program of a process has to be compiled, threads begin to compile what is likely
//! needed next, while the process goes on.
//!
//! What is likely: lists of programs that were needed together before. The first is what this executable has loaded in
//! earlier runs (`usage.rs`); the others are of the library's models (`likely.rs`). Of these the list goes first that has
//! most of what this process had to compile so far, and a list that has less than half of it is left alone. A process
//! that finds all its code on disk does none of this.

pub mod likely;
mod pool;
pub(crate) mod usage;
pub mod warm;

use std::sync::OnceLock;

use crate::kernels::compile::code;
use crate::kernels::module::Program;
use crate::loading::library;
use pool::{List, Pool};
use torchrs_error::{Error, Result};

/// How many threads compile ahead; 0: none.
pub(crate) const THREADS: &str = "TORCHRS_KERNEL_THREADS";
const MOST_THREADS: usize = 16;
/// The most that may be asked for.
const MOST_ASKED: usize = 256;

/// Says that a program has to be compiled, before that begins.
///
/// # Errors
/// [`Error::Config`] for a number of threads that is none.
pub(crate) fn missed(program: &Program, capability: (u32, u32)) -> Result<()> {
    static POOL: OnceLock<Result<Option<Pool>>> = OnceLock::new();
    if let Some(pool) = POOL.get_or_init(|| begin(capability)).as_ref().map_err(Clone::clone)? {
        pool.missed(program.recipe());
    }
    Ok(())
}

fn begin(capability: (u32, u32)) -> Result<Option<Pool>> {
    let threads = threads(
        std::env::var(THREADS).ok(),
        std::env::var("LOCAL_WORLD_SIZE").ok(),
        std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        library::is_simulated(),
    )?;
    // What is compiled ahead reaches its user by the folder.
    let folder = code::disk()?.folder().filter(|_| threads > 0);
    let Some(folder) = folder else { return Ok(None) };
    let own = usage::own(folder).map(|path| usage::lines(&path)).unwrap_or_default();
    let bundled = likely::bundled().into_iter();
    let bundled = bundled.map(|(_, lines)| List::of_model(lines.into_iter().map(str::to_owned)));
    let lists = std::iter::once(List::of_executable(own)).chain(bundled).collect();
    Ok(Some(Pool::begin(lists, threads, move |line| {
        let (Some(program), Ok(disk)) = (likely::program(line), code::disk()) else { return false };
        // An error is the caller's, should the program be needed.
        let _ = code::keep(program, capability, disk, false);
        true
    })))
}

/// As many as there are cores, shared with the host's other ranks, but for the one that waits; a simulated GPU's compiler
/// is the host's, and what it makes is for tests.
fn threads(
    set: Option<String>,
    ranks: Option<String>,
    cores: usize,
    simulated: bool,
) -> Result<usize> {
    if let Some(text) = set {
        let number = text.trim().parse().ok().filter(|number| *number <= MOST_ASKED);
        return number.ok_or_else(|| {
            Error::config(THREADS, format!("`{text}` is no number from 0 to {MOST_ASKED}"))
        });
    }
    let ranks = ranks.and_then(|text| text.parse().ok()).unwrap_or(1).max(1);
    Ok(match simulated {
        true => 0,
        false if cores == 1 => 0,
        false => ((cores / ranks).max(2) - 1).min(MOST_THREADS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_the_hosts_cores_shared_by_its_ranks() {
        let text = |number: usize| Some(number.to_string());
        let of = |set, ranks, cores, simulated| threads(set, ranks, cores, simulated).unwrap();
        assert_eq!(of(None, None, 8, false), 7);
        assert_eq!(of(None, text(8), 64, false), 7);
        assert_eq!(of(None, text(8), 8, false), 1);
        assert_eq!(of(None, None, 224, false), MOST_THREADS);
        assert_eq!((of(None, None, 1, false), of(None, None, 8, true)), (0, 0));
        assert_eq!((of(text(3), None, 1, true), of(text(0), None, 8, false)), (3, 0));
        for wrong in ["-1", "none", "", "100000"] {
            let error = threads(Some(wrong.to_owned()), None, 8, false).unwrap_err().to_string();
            assert!(error.contains(THREADS) && error.contains(wrong), "{error}");
        }
    }
}
