//! Whether a job's data is encrypted between its hosts: as the user says, and the same for all ranks.

use torchrs_links::Encryption;

use crate::error::{Error, Result};

/// The variable that asks for it.
const ENCRYPT: &str = "TORCHRS_HOSTS_ENCRYPT";

/// Whether the user has asked for it in this process.
///
/// # Errors
/// [`Error::Config`] for another word than `0` or `1`.
pub(in crate::distributed::hosts) fn own() -> Result<bool> {
    asked(std::env::var(ENCRYPT).ok().as_deref())
}

fn asked(variable: Option<&str>) -> Result<bool> {
    match variable.map(str::trim) {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => {
            Err(Error::config(ENCRYPT, format!("is `{other}`: must be `0`, `1` or unset")))
        }
    }
}

/// What all ranks have, by whether each of them encrypts, in their order, and the name of its host.
///
/// # Errors
/// [`Error::Config`] names two ranks that differ; a job whose data goes over MPI, where `is_mpi`.
pub(in crate::distributed::hosts) fn agree(
    all: &[(bool, &str)],
    is_mpi: bool,
) -> Result<Encryption> {
    let first = all[0];
    let differs = |(encrypts, _): &(bool, &str)| *encrypts != first.0;
    if let Some(other) = all.iter().position(differs) {
        let name = |rank: usize| {
            let (encrypts, host) = all[rank];
            let value = if encrypts { "1" } else { "0 or not set" };
            format!("{value} on rank {rank} (host {host})")
        };
        let what = format!("is {} and {}: set it alike on all", name(0), name(other));
        return Err(Error::config(ENCRYPT, what));
    }
    if first.0 && is_mpi {
        let what = "is 1, and this job's data goes over MPI, which torchrs does not encrypt: set \
                    TORCHRS_HOSTS_ENGINE=tcp";
        return Err(Error::config(ENCRYPT, what));
    }
    Ok(if first.0 { Encryption::On } else { Encryption::Off })
}

/// # Errors
/// [`Error::Config`] where NCCL is to move what the user wants encrypted.
pub(in crate::distributed::hosts) fn allows_nccl(encryption: Encryption) -> Result<()> {
    match encryption {
        Encryption::Off => Ok(()),
        Encryption::On => {
            let what = "is 1, and tensors of GPUs go over NCCL, whose traffic torchrs does not encrypt: keep them on the \
                        CPU, or unset it";
            Err(Error::config(ENCRYPT, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        for (word, encrypts) in [(None, false), (Some("0"), false), (Some(" 1"), true)] {
            assert_eq!(asked(word).unwrap(), encrypts, "{word:?}");
        }
        let error = asked(Some("yes")).unwrap_err().to_string();
        assert_eq!(error, "TORCHRS_HOSTS_ENCRYPT: is `yes`: must be `0`, `1` or unset");
    }

    #[test]
    fn ranks_that_differ_are_named() {
        let error = agree(&[(true, "a"), (true, "a"), (false, "b")], false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "TORCHRS_HOSTS_ENCRYPT: is 1 on rank 0 (host a) and 0 or not set on rank 2 (host b): set it alike on all"
        );
        assert_eq!(agree(&[(true, "a"), (true, "b")], false).unwrap(), Encryption::On);
        assert_eq!(agree(&[(false, "a"), (false, "b")], true).unwrap(), Encryption::Off);
        assert!(allows_nccl(Encryption::Off).is_ok());
        let error = allows_nccl(Encryption::On).unwrap_err().to_string();
        assert!(error.contains("NCCL"), "{error}");
        let error = agree(&[(true, "a")], true).unwrap_err().to_string();
        assert!(
            error.contains("over MPI") && error.contains("TORCHRS_HOSTS_ENGINE=tcp"),
            "{error}"
        );
    }
}
