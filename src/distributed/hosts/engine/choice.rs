//! Which engine a job has: all ranks have the same, by what each of them has said.

use serde::{Deserialize, Serialize};
use torchrs_mpi::Offer;

use crate::distributed::mpi::{Choice, ENGINE, choice, offer};
use crate::error::{Error, Result};

/// What a rank says of MPI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::distributed::hosts) struct Offered {
    /// What the user has chosen there.
    chosen: Option<String>,
    mpi: Has,
}

/// Whether a rank can use MPI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Has {
    /// No launcher of MPI has started it.
    Nothing,
    /// One has, but it cannot: why.
    Not(String),
    Yes,
}

impl Offered {
    /// What this process says.
    ///
    /// # Errors
    /// [`Error::Config`] where the user has chosen what cannot be had.
    pub fn own(world_size: usize) -> Result<Self> {
        let chosen = choice()?;
        let offered = offer().and_then(|offered| offered.map(|o| fits(o, world_size)).transpose());
        let (mpi, chosen) = match (offered, chosen) {
            (Ok(Some(_)), chosen) => (Has::Yes, chosen),
            (Ok(None), chosen) => (Has::Nothing, chosen),
            (Err(why), None) => (Has::Not(why.to_string()), None),
            (Err(error @ Error::Config { .. }), Some(_)) => return Err(error),
            (Err(why), Some(_)) => {
                return Err(Error::config(ENGINE, format!("is mpi, which cannot be had: {why}")));
            }
        };
        let chosen = chosen.map(|chosen| match chosen {
            Choice::Tcp => "tcp".to_owned(),
            Choice::Mpi => "mpi".to_owned(),
        });
        Ok(Offered { chosen, mpi })
    }
}

/// An offer of the job's own launcher.
fn fits(offer: Offer, world_size: usize) -> Result<Offer> {
    match offer.processes {
        Some(processes) if processes != world_size => Err(Error::Other(format!(
            "MPI's launcher has started {processes} processes ({}), and WORLD_SIZE is {world_size}",
            offer.evidence
        ))),
        _ => Ok(offer),
    }
}

/// Whether the job uses MPI, by what its ranks have said, in their order; and a warning where only some could.
///
/// # Errors
/// [`Error::Config`] where the user has chosen differently for two ranks.
pub(in crate::distributed::hosts) fn choose(all: &[Offered]) -> Result<(bool, Option<String>)> {
    let words = |offered: &Offered| match &offered.chosen {
        Some(chosen) => format!("`{chosen}`"),
        None => "not set".to_owned(),
    };
    if let Some(other) = all.iter().position(|offered| offered.chosen != all[0].chosen) {
        let what = format!(
            "is {} on rank 0 and {} on rank {other}: set it alike on all (Open MPI passes a variable on with `-x {ENGINE}`)",
            words(&all[0]),
            words(&all[other])
        );
        return Err(Error::config(ENGINE, what));
    }
    if all.iter().all(|offered| offered.mpi == Has::Yes) {
        return Ok((true, None));
    }
    if all.iter().all(|offered| offered.mpi == Has::Nothing) {
        return Ok((false, None));
    }
    let rank = all.iter().position(|offered| offered.mpi != Has::Yes).unwrap_or(0);
    let why = match &all[rank].mpi {
        Has::Not(why) => why,
        Has::Nothing | Has::Yes => "no launcher of MPI has started it",
    };
    Ok((
        false,
        Some(format!(
            "data goes between hosts over TCP, although MPI's launcher has started workers; rank {rank}: {why} \
             ({ENGINE}=tcp says that this is meant)"
        )),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(chosen: Option<&str>, mpi: Has) -> Offered {
        Offered { chosen: chosen.map(str::to_owned), mpi }
    }

    #[test]
    fn mpi_is_used_where_all_ranks_have_it() {
        let yes = offered(None, Has::Yes);
        assert_eq!(choose(&[yes.clone(), yes.clone()]).unwrap(), (true, None));
        let nothing = offered(None, Has::Nothing);
        assert_eq!(choose(&[nothing.clone(), nothing.clone()]).unwrap(), (false, None));
        let (uses, warning) = choose(&[yes, offered(None, Has::Not("no library".into()))]).unwrap();
        let warning = warning.unwrap();
        assert!(!uses && warning.contains("rank 1: no library"), "{warning}");
    }

    #[test]
    fn ranks_that_chose_differently_are_named() {
        let (mpi, none) = (offered(Some("mpi"), Has::Yes), offered(None, Has::Yes));
        let error = choose(&[mpi.clone(), mpi, none]).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "TORCHRS_HOSTS_ENGINE: is `mpi` on rank 0 and not set on rank 2: set it alike"
            ),
            "{error}"
        );
    }
}
