//! What is there.

use torchrs::Result;
use torchrs::cuda::library::{self, Kind};
use torchrs::cuda::{self, device};

/// Prints libraries with versions and paths, and devices. An error where no kernel could run.
pub fn everything() -> Result<()> {
    for finding in library::describe() {
        println!("{finding}");
    }
    device::check_available()?;
    for index in 0..cuda::device_count() {
        let figures = device::properties(index)?;
        let (free, total) = device::memory_info(index)?;
        let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        println!(
            "cuda:{index}: {}, sm_{}{}, {} multiprocessors, {:.1} of {:.1} GiB free",
            figures.name,
            figures.capability.0,
            figures.capability.1,
            figures.multiprocessors,
            gib(free),
            gib(total)
        );
    }
    let found = library::describe();
    let needed = found.iter().filter(|f| matches!(f.kind, Kind::Driver | Kind::Nvrtc));
    needed
        .map(|finding| finding.found.as_ref().map(drop))
        .find(std::result::Result::is_err)
        .map_or(Ok(()), |missing| missing.map_err(Clone::clone))
}
