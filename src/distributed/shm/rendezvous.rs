//! How the ranks of a group find each other: each claims its rank in the store, the first makes the
//! shared memory, all exchange pidfds, and a first barrier ends it, so that nobody returns before
//! everybody is there.

use std::os::fd::AsFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::arena::{Arena, Staging};
use super::control::Control;
use super::watchdog::{Peer, pidfd_of, watch};
use super::{Between, CHUNK_BYTES, Progress, ShmBackend, inline_bytes, meeting, only};
use crate::distributed::collective::{Kind, Pace, Signature, list_ranks};
use crate::distributed::{Deadline, Store};
use crate::error::{Error, Result};

/// A rank's place in a group that is about to come into being.
pub(crate) struct Seat {
    /// This rank in the group.
    pub rank: usize,
    /// The members by their rank in the world.
    pub ranks: Vec<usize>,
    /// Needed unless the group has one member.
    pub store: Option<Store>,
    /// What the group's keys in the store begin with. No other group's keys may.
    pub prefix: String,
}

impl Seat {
    /// Where in the store the group's memory is, until all have it.
    pub(super) fn memory_key(&self) -> String {
        format!("{}/memory", self.prefix)
    }
}

/// Joins the group that all processes of the job form.
///
/// # Errors
/// [`Error::Config`] when another process has the same rank, [`Error::Timeout`] that lists who is
/// missing, [`Error::Store`] when the store is gone.
pub(crate) fn join(seat: Seat, deadline: &Deadline) -> Result<ShmBackend> {
    let Some(store) = seat.store.clone() else {
        return found(seat, None, None, 1, deadline);
    };
    let (rank, world) = (seat.rank, seat.ranks.len());
    let prefix = seat.prefix.clone();
    let claim = |rank: usize| format!("{prefix}/claim/{rank}");
    let pid = std::process::id();
    let claims = store.add(&claim(rank), 1)?;
    if claims != 1 {
        // The holder writes its number right after its claim.
        let wait = Deadline::after(std::time::Duration::from_secs(2));
        let holder = store.get(&format!("{prefix}/pid/{rank}"), wait).unwrap_or_default();
        return Err(Error::config(
            "RANK",
            format!(
                "is {rank} in process {pid}, but process {} of this job has that rank already: \
                 every worker needs its own, from 0 to {}",
                String::from_utf8_lossy(&holder),
                world - 1
            ),
        ));
    }
    store.set(&format!("{prefix}/pid/{rank}"), pid.to_string().as_bytes())?;
    let result = exchange_pidfds(&store, rank, world, &prefix, deadline)
        .and_then(|peers| found(seat, Some(peers), None, world, deadline))
        // A store that is gone already, because its rank was through with everything, holds none.
        .inspect(|_| {
            let _ = store.delete(&format!("{prefix}/pidfd/{rank}"));
        });
    result.map_err(|error| match error {
        Error::Timeout { seconds, message } => {
            let (here, missing): (Vec<usize>, Vec<usize>) =
                (0..world).partition(|&r| !matches!(store.try_get(&claim(r)), Ok(None)));
            if missing.is_empty() {
                return Error::Timeout { seconds, message };
            }
            let message = format!(
                "rendezvous of {world} ranks: missing {}; here: {}",
                list_ranks(&missing),
                list_ranks(&here)
            );
            Error::Timeout { seconds, message }
        }
        other => other,
    })
}

/// Makes this process's pidfd known, and gets those of the others.
fn exchange_pidfds(
    store: &Store,
    rank: usize,
    world: usize,
    prefix: &str,
    deadline: &Deadline,
) -> Result<Vec<Peer>> {
    let key = |rank: usize| format!("{prefix}/pidfd/{rank}");
    let pid = std::process::id() as i32;
    store.set_fds(&key(rank), &[pidfd_of(pid)?.as_fd()])?;
    (0..world)
        .map(|other| {
            let pidfd = only(store.get_fds(&key(other), *deadline)?)?;
            let pid = store.get(&format!("{prefix}/pid/{other}"), *deadline)?;
            let pid: i32 = String::from_utf8_lossy(&pid).parse().map_err(|_| {
                Error::Store(format!("the process id of rank {other} is not a number"))
            })?;
            let own = pid == std::process::id() as i32;
            Ok(Peer { pid, pidfd: (!own).then(|| Arc::new(pidfd)) })
        })
        .collect()
}

/// Brings a group into being among ranks that know each other's processes (`peers`, by rank in the
/// group; `None` for a group of one). `between` if it is for messages of a larger one. `everybody` is the number of
/// ranks of the job.
pub(super) fn found(
    seat: Seat,
    peers: Option<Vec<Peer>>,
    between: Option<Between>,
    everybody: usize,
    deadline: &Deadline,
) -> Result<ShmBackend> {
    let key = seat.memory_key();
    let Seat { rank, ranks, store, prefix } = seat;
    let world = ranks.len();
    let (control, staging) = match &store {
        Some(store) if rank != 0 => {
            let fds = store.get_fds(&key, *deadline)?;
            let [control, staging] = <[_; 2]>::try_from(fds).map_err(|fds| {
                Error::Store(format!("{} descriptors where two were expected", fds.len()))
            })?;
            (
                Control::from_fd(control, world, inline_bytes(world))?,
                Staging::from_fd(staging, world, CHUNK_BYTES)?,
            )
        }
        _ => {
            let control = Control::create(world, inline_bytes(world))?;
            let staging = Staging::create(world, CHUNK_BYTES)?;
            if let Some(store) = &store {
                store.set_fds(&key, &[control.as_fd(), staging.as_fd()])?;
            }
            (control, staging)
        }
    };
    let control = Arc::new(control);
    let alone = || vec![Peer { pid: std::process::id() as i32, pidfd: None }];
    let peers = peers.unwrap_or_else(alone);
    watch(&peers, &control)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let group = ShmBackend {
        rank,
        ranks,
        control,
        staging,
        arena: Arena::default(),
        peers,
        store,
        prefix,
        between,
        everybody,
        cores,
        progress: Mutex::new(Progress {
            sequence: 0,
            steps: 0,
            spin: meeting::SPIN_LEAST,
            subgroups: 0,
        }),
    };
    let barrier = Signature::of_host(Kind::Barrier, &[]);
    group.agree(&mut group.progress.lock(), &barrier, deadline, Pace::Foreground)?;
    // Everybody has what it needs: the store need not keep the descriptors open.
    if let (0, Some(store)) = (rank, &group.store) {
        store.delete(&key)?;
    }
    Ok(group)
}
