//! Which MPI's launcher has started this process, by its environment, and where that MPI's library is.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use torchrs_error::{Error, Result};

use crate::library::Library;

/// The variable that names the library.
pub(crate) const VARIABLE: &str = "TORCHRS_MPI_LIBRARY";

/// What PMIx tells each process.
const PMIX: &str = "PMIX_RANK";

/// A family of MPI libraries: what is inside one has one binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI.
    OpenMpi,
    /// MPICH, and what shares its binary interface: MVAPICH, Intel MPI, Cray MPICH.
    Mpich,
}

impl Family {
    fn names(self) -> &'static [&'static str] {
        match self {
            Family::OpenMpi => &["libmpi.so.40", "libmpi.so"],
            Family::Mpich => &["libmpich.so.12", "libmpi.so.12", "libmpich.so", "libmpi.so"],
        }
    }

    fn package(self) -> &'static str {
        match self {
            Family::OpenMpi => "`apt install openmpi-bin`",
            Family::Mpich => "`apt install mpich`",
        }
    }

    /// By its handles or by what the library says of itself.
    fn of(library: &Library, version: &str) -> Option<Self> {
        if library.symbol("ompi_mpi_comm_world").is_some() {
            return Some(Family::OpenMpi);
        }
        let kin = ["MPICH", "MVAPICH", "Intel(R) MPI"];
        kin.iter().any(|name| version.contains(name)).then_some(Family::Mpich)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
        })
    }
}

/// What the environment says of an MPI launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launcher {
    pub(crate) family: Family,
    /// How many processes it has started, where that is told.
    pub(crate) size: Option<usize>,
    /// The variables that say so.
    pub(crate) evidence: String,
}

impl Launcher {
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |name: &str| lookup(name)?.into_string().ok().filter(|text| !text.is_empty());
        // Open MPI's first: inside a job of Slurm both may be set.
        let known = [
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", Family::OpenMpi),
            ("PMI_RANK", "PMI_SIZE", Family::Mpich),
            ("PMI_FD", "PMI_SIZE", Family::Mpich),
        ];
        known.into_iter().find_map(|(name, size, family)| {
            let mut evidence = format!("{name}={}", text(name)?);
            let processes = text(size);
            if let Some(processes) = &processes {
                evidence += &format!(", {size}={processes}");
            }
            let size = processes.and_then(|text| text.trim().parse().ok());
            Some(Launcher { family, size, evidence })
        })
    }
}

/// An MPI that this process could use: its launcher has started the process, and its library is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The library's family, which is the launcher's.
    pub family: Family,
    /// The library's name and version in its own words.
    pub version: String,
    /// How many processes the launcher has started, where it says so.
    pub processes: Option<usize>,
    /// The variables by which the launcher is known: `PMI_RANK=1, PMI_SIZE=2`.
    pub evidence: String,
}

impl Offer {
    /// The MPI of the launcher that has started this process; `None` without one. Nothing is initialised.
    ///
    /// # Errors
    /// A launcher whose library is not there.
    pub fn of_this_process() -> Result<Option<Offer>> {
        let lookup = |name: &str| std::env::var_os(name);
        let Some(launcher) = Launcher::from_lookup(lookup) else { return Ok(None) };
        let named = lookup(VARIABLE).filter(|name| !name.is_empty());
        let Found { family, version, .. } = find(Some(&launcher), named.as_deref().map(Path::new))?;
        let Launcher { size: processes, evidence, .. } = launcher;
        Ok(Some(Offer { family, version, processes, evidence }))
    }

    /// As [`of_this_process`](Self::of_this_process), also where PMIx has started the process (`srun --mpi=pmix`). That
    /// does not say which family is meant, nor whether MPI is: the first library that is found is taken.
    ///
    /// # Errors
    /// As [`of_this_process`](Self::of_this_process).
    pub fn also_by_pmix() -> Result<Option<Offer>> {
        let lookup = |name: &str| std::env::var_os(name);
        if let Some(offer) = Offer::of_this_process()? {
            return Ok(Some(offer));
        }
        let Some(rank) = lookup(PMIX).filter(|rank| !rank.is_empty()) else { return Ok(None) };
        let named = lookup(VARIABLE).filter(|name| !name.is_empty());
        let Found { family, version, .. } = find(None, named.as_deref().map(Path::new))?;
        let evidence = format!("{PMIX}={}", rank.to_string_lossy());
        Ok(Some(Offer { family, version, processes: None, evidence }))
    }
}

/// A library that was found, and what it says of itself.
pub(crate) struct Found {
    pub(crate) library: Library,
    pub(crate) family: Family,
    pub(crate) version: String,
}

/// The library of the launcher's family, or of any without a launcher. `named` is the variable's value.
pub(crate) fn find(launcher: Option<&Launcher>, named: Option<&Path>) -> Result<Found> {
    if let Some(path) = named {
        let library = Library::open(path).map_err(|why| Error::config(VARIABLE, why))?;
        let found = identify(library).map_err(|why| Error::config(VARIABLE, why))?;
        return fits(found, launcher);
    }
    let families = match launcher {
        Some(launcher) => vec![launcher.family],
        None => vec![Family::OpenMpi, Family::Mpich],
    };
    let mut other = None;
    for name in families.iter().flat_map(|family| family.names()) {
        let Ok(library) = Library::open(Path::new(name)) else { continue };
        match identify(library) {
            Ok(found) if families.contains(&found.family) => return Ok(found),
            Ok(found) => other = Some(found),
            Err(_) => {}
        }
    }
    if other.is_none() && launcher.is_some() {
        // To name what is there in place of what should be.
        let names = [Family::OpenMpi, Family::Mpich].into_iter().flat_map(Family::names);
        let libraries = names.filter_map(|name| Library::open(Path::new(name)).ok());
        other = libraries.filter_map(|library| identify(library).ok()).next();
    }
    match other {
        Some(found) => fits(found, launcher),
        None => Err(missing(&families, launcher)),
    }
}

fn missing(families: &[Family], launcher: Option<&Launcher>) -> Error {
    let names: Vec<&str> = families.iter().flat_map(|family| family.names()).copied().collect();
    let packages: Vec<&str> = families.iter().map(|family| family.package()).collect();
    let why = launcher
        .map(|l| format!("; {}'s launcher has started this process ({})", l.family, l.evidence));
    Error::Other(format!(
        "MPI: no library found (looked for {}){}. Install it ({} on Debian and Ubuntu), or name its file with {VARIABLE}",
        names.join(", "),
        why.unwrap_or_default(),
        packages.join(" or "),
    ))
}

fn identify(library: Library) -> Result<Found, String> {
    let version = library.version()?;
    match Family::of(&library, &version) {
        Some(family) => Ok(Found { library, family, version }),
        None => Err(format!(
            "{} is of no family that is known here (Open MPI, MPICH): it says `{version}`",
            library.path().display()
        )),
    }
}

fn fits(found: Found, launcher: Option<&Launcher>) -> Result<Found> {
    let Some(launcher) = launcher.filter(|launcher| launcher.family != found.family) else {
        return Ok(found);
    };
    let (started, has): (Family, Family) = (launcher.family, found.family);
    let path: PathBuf = found.library.path().to_owned();
    Err(Error::Other(format!(
        "MPI: {started}'s launcher has started this process ({}), but the library is {has}'s ({}, {}): each process \
         would be alone. Install {started} ({}), start with {has}'s mpirun, or name another library with {VARIABLE}",
        launcher.evidence,
        path.display(),
        found.version,
        started.package(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(variables: &str) -> Option<Launcher> {
        Launcher::from_lookup(|name| {
            let mut pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
            pairs.find(|(n, _)| *n == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_family_is_that_of_the_launcher() {
        let ompi = launcher("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMI_RANK=0").unwrap();
        assert_eq!((ompi.family, ompi.size), (Family::OpenMpi, Some(4)));
        assert_eq!(ompi.evidence, "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4");
        let mpich = launcher("PMI_FD=7 PMI_SIZE=2").unwrap();
        assert_eq!((mpich.family, mpich.size), (Family::Mpich, Some(2)));
        assert_eq!(launcher("PMI_RANK=3").unwrap().size, None);
        assert_eq!(launcher("PMIX_RANK=3 SLURM_PROCID=3"), None);
        assert_eq!(launcher("PMI_RANK="), None);
    }

    #[test]
    fn a_missing_library_names_what_to_install() {
        let mpich = launcher("PMI_RANK=1 PMI_SIZE=2").unwrap();
        assert_eq!(
            missing(&[Family::Mpich], Some(&mpich)).to_string(),
            "MPI: no library found (looked for libmpich.so.12, libmpi.so.12, libmpich.so, libmpi.so); MPICH's launcher \
             has started this process (PMI_RANK=1, PMI_SIZE=2). Install it (`apt install mpich` on Debian and Ubuntu), \
             or name its file with TORCHRS_MPI_LIBRARY"
        );
        let any = missing(&[Family::OpenMpi, Family::Mpich], None).to_string();
        assert!(any.contains("`apt install openmpi-bin` or `apt install mpich`"), "{any}");
    }

    #[test]
    fn a_named_library_that_is_none_is_refused() {
        let refused = |path: &str| find(None, Some(Path::new(path))).err().unwrap().to_string();
        let error = refused("/no/such/libmpi.so");
        assert!(error.starts_with("TORCHRS_MPI_LIBRARY: /no/such/libmpi.so"), "{error}");
        let error = refused("libc.so.6");
        assert!(
            error.ends_with("has no function MPI_Get_library_version: it is no MPI"),
            "{error}"
        );
    }
}
