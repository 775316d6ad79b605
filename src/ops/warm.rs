//! Compiling kernels before they are needed: a folder is filled on all cores, for GPUs that are here or elsewhere.

use std::path::PathBuf;

use super::catalogue;
use crate::cuda::ahead::{likely, warm as device};
use crate::error::Result;

pub use crate::cuda::ahead::warm::Warmed;

/// What [`warm`] compiles, and where to.
#[derive(Clone, Debug, Default)]
pub struct WarmOptions {
    /// Models whose training steps' programs are wanted, as `gpt2`. Empty: all of which there are lists, and what programs
    /// that used the folder before have loaded.
    pub models: Vec<String>,
    /// Compute capabilities, as (9, 0). Empty: those of this host's GPUs.
    pub architectures: Vec<(u32, u32)>,
    /// The folder. None: `TORCHRS_KERNEL_CACHE`, or the user's cache folder.
    pub folder: Option<PathBuf>,
}

/// Compiles kernels ahead of use, on all cores. It needs NVRTC, and a GPU only to find out its architecture. What is there
/// already is left as it is.
///
/// ```
/// use torchrs::cuda::{WarmOptions, warm};
/// let folder = tempfile::tempdir()?;
/// let options = WarmOptions {
///     models: vec!["gpt3".into()],
///     architectures: vec![(9, 0)],
///     folder: Some(folder.path().into()),
/// };
/// let error = warm(&options).unwrap_err().to_string();
/// assert!(error.contains("there is no list for gpt3"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for a model of which there is no list;
/// [`Error::Device`](crate::Error::Device) where there is no NVRTC, or no GPU and no architecture is given, or NVRTC knows
/// none of the architectures; [`Error::Config`](crate::Error::Config) where there is no folder.
pub fn warm(options: &WarmOptions) -> Result<Warmed> {
    warm_with(options, |_, _| {})
}

/// As [`warm`]; `progress` is told how many programs are done, of how many.
///
/// # Errors
/// As [`warm`].
pub fn warm_with(options: &WarmOptions, progress: impl Fn(usize, usize) + Sync) -> Result<Warmed> {
    catalogue::tell();
    let folder = match &options.folder {
        Some(folder) => folder,
        None => device::folder()?,
    };
    let mut models: Vec<&str> = options.models.iter().map(String::as_str).collect();
    let all = models.is_empty();
    if all {
        models = likely::models();
    }
    let mut programs = device::programs_of(&models)?;
    if all {
        programs.extend(device::programs_of_earlier_runs(folder));
    }
    let architectures = match options.architectures.is_empty() {
        true => device::architectures()?,
        false => options.architectures.clone(),
    };
    device::warm(&programs, &architectures, folder, &progress)
}
