//! The MPI of this process, where MPI's launcher has started it (`mpirun`, `srun --mpi=pmi2`): whether it is used, and
//! how a job's first bytes come from one process to all, before there is a store.

use torchrs_mpi::{Failure, Mpi, Offer};

use super::Deadline;
use crate::error::{Error, Result};

/// The variable that chooses what moves data between hosts.
pub(super) const ENGINE: &str = "TORCHRS_HOSTS_ENGINE";
/// Set by torchrs-launch for its workers: MPI's launcher may have started it, but not them.
const LAUNCHED: &str = "TORCHRS_STORE_FD";

/// What the user has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Tcp,
    Mpi,
}

/// The user's choice, if there is one.
///
/// # Errors
/// [`Error::Config`] for another word.
pub(super) fn choice() -> Result<Option<Choice>> {
    choice_from(std::env::var(ENGINE).ok().as_deref())
}

fn choice_from(variable: Option<&str>) -> Result<Option<Choice>> {
    match variable.map(str::trim) {
        None | Some("") => Ok(None),
        Some("tcp") => Ok(Some(Choice::Tcp)),
        Some("mpi") => Ok(Some(Choice::Mpi)),
        Some(other) => {
            Err(Error::config(ENGINE, format!("is `{other}`: must be `tcp`, `mpi` or unset")))
        }
    }
}

/// The MPI that this process is to use: the one whose launcher has started it, unless the user has chosen otherwise.
/// Nothing is initialised. `None` where there is no such launcher, or torchrs-launch has started the workers.
///
/// # Errors
/// [`Error::Config`] where `mpi` is chosen and cannot be had; a launcher whose library is missing.
pub(super) fn offer() -> Result<Option<Offer>> {
    match choice()? {
        Some(Choice::Tcp) => Ok(None),
        Some(Choice::Mpi) => {
            let missing = || {
                let what = "is mpi, and no launcher of MPI has started this process: start the workers with mpirun \
                            or `srun --mpi=pmi2` (or pmix)";
                Error::config(ENGINE, what)
            };
            // PMIx starts programs that know nothing of MPI too, so it counts only where MPI is asked for.
            Offer::also_by_pmix()?.ok_or_else(missing).map(Some)
        }
        None if std::env::var_os(LAUNCHED).is_some() => Ok(None),
        None => Offer::of_this_process(),
    }
}

/// Gives all processes of MPI's launcher the bytes that its first one makes: a job's token and meeting point, say. All
/// of them call it, before they join a group; it initialises MPI where nobody has. `None` where this process has no
/// MPI ([`offer`]). Only the first process calls `make`, and what goes wrong there is an error on all.
///
/// # Errors
/// As [`offer`] and [`Mpi::load`]; the deadline; `make`'s own, elsewhere as [`Error::Aborted`].
pub(super) fn broadcast_from_first(
    make: impl FnOnce() -> Result<Vec<u8>>,
    deadline: &Deadline,
) -> Result<Option<Vec<u8>>> {
    if offer()?.is_none() {
        return Ok(None);
    }
    let mpi = Mpi::load(*deadline)?;
    // Of the program's own use of MPI_COMM_WORLD this knows nothing, so it has a communicator of its own.
    let world = mpi.world().and_then(|world| world.duplicate(*deadline, &mut || None));
    let world = world.map_err(Failure::into_error)?;
    let made = (world.rank() == 0).then(make);
    // How long it is, and whether it is what was asked for or why not.
    let (mut head, bytes) = match &made {
        None => (vec![0; 2], Vec::new()),
        Some(Ok(bytes)) => (vec![bytes.len() as i64, 0], bytes.clone()),
        Some(Err(error)) => {
            let text = error.to_string().into_bytes();
            (vec![text.len() as i64, 1], text)
        }
    };
    let head_came = world.broadcast(head, 0).and_then(|sent| sent.wait(*deadline, &mut || None));
    head = head_came.map_err(Failure::into_error)?;
    let bytes = if world.rank() == 0 { bytes } else { vec![0; head[0] as usize] };
    let came = world.broadcast(bytes, 0).and_then(|sent| sent.wait(*deadline, &mut || None));
    let bytes = came.map_err(Failure::into_error)?;
    match made {
        Some(Err(error)) => Err(error),
        _ if head[1] != 0 => Err(Error::Aborted(String::from_utf8_lossy(&bytes).into_owned())),
        _ => Ok(Some(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_chosen_by_its_name() {
        assert_eq!(choice_from(None).unwrap(), None);
        assert_eq!(choice_from(Some("")).unwrap(), None);
        assert_eq!(choice_from(Some("tcp")).unwrap(), Some(Choice::Tcp));
        assert_eq!(choice_from(Some(" mpi")).unwrap(), Some(Choice::Mpi));
        let error = choice_from(Some("MPI")).unwrap_err().to_string();
        assert_eq!(error, "TORCHRS_HOSTS_ENGINE: is `MPI`: must be `tcp`, `mpi` or unset");
    }
}
