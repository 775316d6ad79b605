//! How the ranks of a group find each other: each claims its rank in the store, the first makes the
//! shared memory, all exchange pidfds, and a first barrier ends it, so that nobody returns before
//! everybody is there.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::arena::{Arena, Staging};
use super::backend::{Between, CHUNK_BYTES, Progress, ShmBackend, inline_bytes, only};
use super::control::Control;
use super::identity::Identity;
use super::meeting;
use super::watchdog::{Peer, pidfd_of, watch};
use crate::distributed::collective::{Kind, Pace, Signature};
use crate::distributed::ranks::list_ranks;
use crate::distributed::reminder::Reminder;
use crate::distributed::store::ended_key;
use crate::distributed::tasks::check_job;
use crate::distributed::{Deadline, Store};
use crate::error::{Error, Result};

/// How often a wait for others in the rendezvous looks how they are.
const LOOK: Duration = Duration::from_millis(100);
/// Ranks of whom a look asks the store at most.
const ASKED: usize = 64;

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
    // Of several hosts, keys count the ranks of this one, and messages those of the job.
    let ranks = seat.ranks.clone();
    let me = ranks[rank];
    let prefix = seat.prefix.clone();
    let claim = |rank: usize| format!("{prefix}/claim/{rank}");
    let pid = std::process::id();
    let claims = store.add(&claim(rank), 1)?;
    if claims != 1 {
        // The holder writes its number right after its claim.
        let wait = Deadline::after(Duration::from_secs(2));
        let holder = store.get(&format!("{prefix}/pid/{rank}"), wait).unwrap_or_default();
        return Err(Error::config(
            "RANK",
            format!(
                "is {me} in process {pid}, but process {} of this job has that rank already: \
                 every worker needs its own, from {} to {}",
                String::from_utf8_lossy(&holder),
                ranks[0],
                ranks[world - 1]
            ),
        ));
    }
    store.set(&format!("{prefix}/pid/{rank}"), pid.to_string().as_bytes())?;
    // This key, and that of the pidfd behind which the others look for it, stay what they are in all versions.
    store.set(&format!("{prefix}/identity/{rank}"), Identity::own().encode().as_bytes())?;
    let result = exchange_pidfds(&store, rank, &ranks, &prefix, deadline)
        .and_then(|peers| found(seat, Some(peers), None, world, deadline))
        // A store that is gone already, because its rank was through with everything, holds none.
        .inspect(|_| {
            let _ = store.delete(&format!("{prefix}/pidfd/{rank}"));
        });
    let result = result.map_err(|error| match error {
        Error::Timeout { seconds, message } => {
            let (here, missing): (Vec<usize>, Vec<usize>) =
                (0..world).partition(|&r| !matches!(store.try_get(&claim(r)), Ok(None)));
            if missing.is_empty() {
                return Error::Timeout { seconds, message };
            }
            let named =
                |of: &[usize]| list_ranks(&of.iter().map(|&r| ranks[r]).collect::<Vec<_>>());
            let message = format!(
                "rendezvous of {world} ranks: missing {}; here: {}",
                named(&missing),
                named(&here)
            );
            Error::Timeout { seconds, message }
        }
        other => other,
    });
    // The others are to say why, rather than that this rank has ended.
    result.inspect_err(|error| {
        let _ = store.compare_set(&failed_key(&prefix), None, &encode_failure(me, error));
    })
}

/// Where the first rank that fails in the rendezvous says why.
fn failed_key(prefix: &str) -> String {
    format!("{prefix}/failed")
}

fn encode_failure(rank: usize, error: &Error) -> Vec<u8> {
    match error {
        Error::PeerDied { rank, pid, .. } => format!("died\n{rank}\n{pid}"),
        Error::Aborted(text) => format!("aborted\n{text}"),
        Error::Timeout { .. } => format!("aborted\nrank {rank} {error}"),
        other => format!("aborted\nby rank {rank}: {other}"),
    }
    .into_bytes()
}

/// # Errors
/// Why another rank has failed in the rendezvous, if one has.
fn check_failed(store: &Store, prefix: &str, doing: impl Fn() -> String) -> Result<()> {
    let Some(failure) = store.try_get(&failed_key(prefix))? else { return Ok(()) };
    let failure = String::from_utf8_lossy(&failure).into_owned();
    let (kind, rest) = failure.split_once('\n').unwrap_or_default();
    if let ("died", Some((rank, pid))) = (kind, rest.split_once('\n'))
        && let (Ok(rank), Ok(pid)) = (rank.parse(), pid.parse())
    {
        return Err(Error::PeerDied { rank, pid, message: doing() });
    }
    Err(Error::Aborted(format!("{rest}; {}", doing())))
}

/// Makes this process's pidfd known, and gets those of the others.
fn exchange_pidfds(
    store: &Store,
    rank: usize,
    ranks: &[usize],
    prefix: &str,
    deadline: &Deadline,
) -> Result<Vec<Peer>> {
    let (world, me) = (ranks.len(), ranks[rank]);
    let key = |rank: usize| format!("{prefix}/pidfd/{rank}");
    let pid = std::process::id() as i32;
    store.set_fds(&key(rank), &[pidfd_of(pid)?.as_fd()])?;
    let reminder = Reminder::new();
    let mut peers: Vec<Peer> = Vec::with_capacity(world);
    for other in 0..world {
        let look = || {
            let doing = || doing(me, world);
            check_failed(store, prefix, doing)?;
            if let Err(died) = check_alive(&peers, ranks, doing) {
                // It may have ended because it knew of another.
                return check_failed(store, prefix, doing).and(Err(died));
            }
            let mut missing = Vec::new();
            for other in other..world {
                if missing.len() < ASKED && is_missing(store, prefix, other)? {
                    check_started(store, ranks[other], doing)?;
                    missing.push(other);
                }
            }
            // Of those who are here the first tells of it.
            let first = (0..world).find(|&other| !missing.contains(&other));
            if first == Some(rank) {
                reminder.remind(|| {
                    let more = if missing.len() < ASKED { "" } else { " and maybe more" };
                    let missing: Vec<usize> = missing.iter().map(|&r| ranks[r]).collect();
                    let missing = list_ranks(&missing);
                    format!("{}; not there: {missing}{more}", doing())
                });
            }
            Ok(())
        };
        wait_for_key(store, &key(other), deadline, LOOK, look)?;
        let pidfd = only(store.get_fds(&key(other), *deadline)?)?;
        let theirs = store.try_get(&format!("{prefix}/identity/{other}"))?;
        let warning =
            Identity::own().check(me, ranks[other], &Identity::decode(theirs.as_deref()))?;
        if let Some(warning) = warning.filter(|_| other == 0) {
            crate::multiprocessing::report::say(&format!("torchrs: warning: {warning}"));
        }
        let pid = store.get(&format!("{prefix}/pid/{other}"), *deadline)?;
        let pid: i32 = String::from_utf8_lossy(&pid).parse().map_err(|_| {
            let what = format!("the process id of rank {} is not a number", ranks[other]);
            Error::Store(what)
        })?;
        let own = pid == std::process::id() as i32;
        peers.push(Peer { pid, pidfd: (!own).then(|| Arc::new(pidfd)) });
    }
    Ok(peers)
}

fn doing(rank: usize, world: usize) -> String {
    format!("rank {rank} is in the rendezvous of {world} ranks")
}

fn is_missing(store: &Store, prefix: &str, rank: usize) -> Result<bool> {
    Ok(store.try_get(&format!("{prefix}/claim/{rank}"))?.is_none())
}

/// # Errors
/// [`Error::Aborted`] where the launcher has seen the end of a rank that has not joined.
pub(in crate::distributed) fn check_started(
    store: &Store,
    rank: usize,
    doing: impl Fn() -> String,
) -> Result<()> {
    let Some(how) = store.try_get(&ended_key(rank))? else { return Ok(()) };
    let how = String::from_utf8_lossy(&how);
    Err(Error::Aborted(format!(
        "rank {rank} has ended without joining the process group: {how}; {}",
        doing()
    )))
}

/// # Errors
/// [`Error::PeerDied`] for the first process that has ended. `ranks` are theirs.
fn check_alive(peers: &[Peer], ranks: &[usize], doing: impl Fn() -> String) -> Result<()> {
    match peers.iter().position(Peer::has_ended) {
        Some(at) => Err(Error::PeerDied { rank: ranks[at], pid: peers[at].pid, message: doing() }),
        None => Ok(()),
    }
}

/// Waits until a key exists. In between it looks whether to go on.
///
/// # Errors
/// What `look` gives; [`Error::Timeout`], [`Error::Store`].
pub(in crate::distributed) fn wait_for_key(
    store: &Store,
    key: &str,
    deadline: &Deadline,
    every: Duration,
    look: impl Fn() -> Result<()>,
) -> Result<()> {
    loop {
        match store.wait(&[key], deadline.remaining().min(every)) {
            Err(Error::Timeout { .. }) => {
                look()?;
                check_job()?;
                if deadline.has_passed() {
                    return Err(deadline.error(format!("store: wait(`{key}`)")));
                }
            }
            ended => return ended,
        }
    }
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
            let look = || {
                let doing = || format!("rank {} is founding a process group", ranks[rank]);
                check_alive(peers.as_deref().unwrap_or_default(), &ranks, doing)
            };
            wait_for_key(store, &key, deadline, LOOK, look)?;
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
