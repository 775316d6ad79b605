//! Steps that all ranks take: when one of them fails on some, all get one error that names exactly those.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::distributed::{ProcessGroup, join_some};
use crate::error::{Error, Result};

/// What each rank has come to, by rank. Collective.
///
/// # Errors
/// [`Error::Other`], the same on all ranks, when `what` has failed on some; the error itself where it is the same on all;
/// that of a collective.
pub(crate) fn agree<T: Serialize + DeserializeOwned>(
    group: &ProcessGroup,
    what: &str,
    mine: Result<T>,
) -> Result<Vec<T>> {
    if group.world_size() == 1 {
        return mine.map(|mine| vec![mine]);
    }
    let (own, mine) = match mine {
        Ok(mine) => (None, Ok(mine)),
        Err(error) => (Some(error.clone()), Err(error.to_string())),
    };
    let all = group.all_gather_object(&mine)?;
    let failed: Vec<(usize, &String)> = all
        .iter()
        .enumerate()
        .filter_map(|(rank, one)| Some((rank, one.as_ref().err()?)))
        .collect();
    let Some((_, why)) = failed.first() else { return Ok(all.into_iter().flatten().collect()) };
    // What is wrong everywhere is not a matter of ranks.
    let everywhere = failed.len() == all.len() && failed.iter().all(|(_, other)| other == why);
    Err(match own.filter(|_| everywhere) {
        Some(own) => own,
        None => Error::Other(failure(what, group.world_size(), &failed)),
    })
}

/// What this rank has come to, once all have come to something. Collective.
///
/// # Errors
/// As [`agree`].
pub(crate) fn all_have<T>(group: &ProcessGroup, what: &str, mine: Result<T>) -> Result<T> {
    let (mine, outcome) = match mine {
        Ok(mine) => (Some(mine), Ok(())),
        Err(error) => (None, Err(error)),
    };
    agree(group, what, outcome)?;
    mine.ok_or_else(|| Error::Other(format!("{what}: this rank has failed")))
}

/// What rank 0 has come to. Collective; the others' `mine` is not looked at.
///
/// # Errors
/// As [`agree`]; rank 0's own in a world of one.
pub(crate) fn follow<T: Serialize + DeserializeOwned>(
    group: &ProcessGroup,
    what: &str,
    mine: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if group.world_size() == 1 {
        return mine();
    }
    let mine: Option<std::result::Result<T, String>> =
        (group.rank() == 0).then(|| mine().map_err(|error| error.to_string()));
    let first = group.broadcast_object(mine.as_ref(), 0)?;
    first.map_err(|why| Error::Other(failure(what, group.world_size(), &[(0, &why)])))
}

/// Refuses to save to what `argument` of `op` says where ranks name other places: only rank 0's would be written to.
///
/// # Errors
/// [`Error::Argument`], the same on all ranks, naming two of them.
pub(crate) fn check_paths(op: &str, argument: &str, paths: &[PathBuf]) -> Result<()> {
    let Some(first) = paths.first() else { return Ok(()) };
    let resolved = |path: &Path| std::path::absolute(path).ok();
    let is_other = |path: &PathBuf| path != first && resolved(path) != resolved(first);
    let Some(rank) = paths.iter().position(is_other) else { return Ok(()) };
    let what = format!(
        "is {} on rank 0 and {} on rank {rank}; all ranks name one place: send them rank 0's by `broadcast_object`",
        first.display(),
        paths[rank].display()
    );
    Err(Error::argument(op, argument, what))
}

fn failure(what: &str, world: usize, failed: &[(usize, &String)]) -> String {
    match failed {
        [(rank, why)] => format!("{what}: rank {rank} of {world} has failed: {why}"),
        _ => {
            let ranks = join_some(
                failed.iter().map(|(rank, _)| rank.to_string()).collect::<Vec<_>>().iter(),
                ", ",
            );
            let whys: Vec<String> =
                failed.iter().map(|(rank, why)| format!("rank {rank}: {why}")).collect();
            format!(
                "{what}: ranks {ranks} of {world} have failed: {}",
                join_some(whys.iter(), "; ")
            )
        }
    }
}
