//! How the processes of a job on several hosts find each other. The members of each host meet as those of one host
//! do, and then their hosts ([`cards`](super::cards)).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use torchrs_job::store::{LINKS_ADDRESS, LINKS_KEY};
use torchrs_links::{Addresses, Listener};

use super::HostsBackend;
use super::cards::{self, Card};
use super::failure::publish;
use crate::distributed::shm::{self, AbortRecord, Cause, Seat};
use super::engine::mpi::MpiWorld;
use super::engine::{Offered, choose};
use crate::distributed::shm::{
    self, AbortRecord, Cause, Identity, Seat, ShmBackend, check_started, wait_for_key,
};
use crate::distributed::{Deadline, Store, WorkerEnv};
use crate::error::{Error, Result};

/// What a process knows of all others of its job.
pub(super) struct World {
    /// By rank.
    pub members: Vec<Member>,
    /// The names of the hosts.
    pub hosts: Vec<String>,
    pub listener: Listener,
    /// Where data between hosts goes over MPI.
    pub mpi: Option<MpiWorld>,
    pub store: Store,
}

/// A process of the job.
pub(super) struct Member {
    /// Which host it is on.
    pub host: usize,
    pub pid: i32,
    pub addresses: Addresses,
}

/// What a host says of its members.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Card {
    name: String,
    /// Of the machine: several hosts may be on one.
    machine: String,
    /// What its ranks are built from.
    identity: String,
    first_rank: usize,
    members: Vec<MemberCard>,
}

/// What a member says of itself: its process, where it listens, and what it can use.
type MemberCard = (i32, Vec<u8>, Offered);

/// Joins the group of all processes of the job. `prefix` is what its keys begin with.
///
/// # Errors
/// As [`shm::join`]; [`Error::Config`] for a job that torchrs-launch has not started, or whose hosts do not fit
/// together.
pub(in crate::distributed) fn join(
    env: &WorkerEnv,
    store: Store,
    prefix: String,
    deadline: &Deadline,
) -> Result<Arc<HostsBackend>> {
    let (address, key) = of_launcher(env, &store)?;
    let WorkerEnv { rank, local_rank, local_world_size, world_size, .. } = *env;
    let first = rank.checked_sub(local_rank).filter(|first| first + local_world_size <= world_size);
    let Some(first) = first else {
        let what = format!(
            "is {rank}, with LOCAL_RANK {local_rank}, LOCAL_WORLD_SIZE {local_world_size} and WORLD_SIZE \
             {world_size}: a host's ranks have to follow each other in the order of LOCAL_RANK"
        );
        return Err(Error::config("RANK", what));
    };
    let listener = Listener::bind(&[SocketAddr::new(address, 0)], &[], key)?;
    let local = Seat {
        rank: local_rank,
        ranks: (first..first + local_world_size).collect(),
        store: Some(store.clone()),
        prefix: format!("@host/{prefix}"),
    };
    let failed = format!("{prefix}/failed");
    let joined = shm::join(local, deadline).and_then(|local| {
        let own = || {
            let addresses = listener.addresses().encode();
            Ok((std::process::id() as i32, addresses, Offered::own(world_size)?))
        };
        let met = own().and_then(|own| meet(env, &store, &local, own, &prefix, deadline));
        // Those of this host, who wait alike.
        let met = met.inspect_err(|error| local.abort(&error.to_string()));
        met.map(|cards| (local, cards))
    });
    let (mut local, cards) = joined.inspect_err(|error| {
        // The others are to say why, rather than that this host has not come.
        let (pid, reason) = (std::process::id() as i32, format!("by rank {rank}: {error}"));
        publish(&store, &failed, &AbortRecord { cause: Cause::Elsewhere, rank, pid, reason });
    })?;
    // Those of hosts that are on this machine too share its cores.
    let machine = cards::machine();
    let is_here =
        |card: &&Card| card.first_rank == first || card.machine == machine && !machine.is_empty();
    let here = cards.iter().filter(is_here);
    local.everybody = here.map(|card| card.members.len()).sum();
    let mpi = join_mpi(env, &cards, deadline)?;
    let world = Arc::new(World::of(cards, world_size, listener, mpi, store)?);
    let ranks = (0..world_size).collect();
    HostsBackend::found(local, &world, ranks, prefix, None, deadline)
}

/// Where to listen, and the key that all workers of the job share.
fn of_launcher(env: &WorkerEnv, store: &Store) -> Result<(IpAddr, [u8; 32])> {
    let address = store.try_get(LINKS_ADDRESS)?;
    let key = store.try_get(LINKS_KEY)?.and_then(|key| <[u8; 32]>::try_from(key).ok());
    let address = address.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
    address.zip(key).ok_or_else(|| {
        let what = format!(
            "is {} and WORLD_SIZE is {}, but the store that was given for the group is not that of a job over several \
             hosts (`Store::from_env`), which says how to reach workers of other hosts",
            env.local_world_size, env.world_size
        );
        Error::config("LOCAL_WORLD_SIZE", what)
    })
}

/// The cards of all hosts.
fn meet(
    env: &WorkerEnv,
    store: &Store,
    local: &ShmBackend,
    own: MemberCard,
    prefix: &str,
    deadline: &Deadline,
) -> Result<Vec<Card>> {
    let me = env.rank;
    let look = || local.failure(&format!("rank {me} waits for other hosts")).map_or(Ok(()), Err);
    let (all, member) = (format!("@host/{prefix}/cards"), |i| format!("@host/{prefix}/member/{i}"));
    store.set(&member(env.local_rank), &encode(&own)?)?;
    if env.local_rank != 0 {
        // Its host's first says better what is missing.
        let patient = Deadline::after(deadline.remaining() + GRACE);
        wait_for_key(store, &all, &patient, LOOK, look)?;
        return decode(&store.get(&all, patient)?);
    }
    let mut members = Vec::new();
    for i in 0..env.local_world_size {
        wait_for_key(store, &member(i), deadline, LOOK, look)?;
        members.push(decode(&store.get(&member(i), *deadline)?)?);
    }
    let name = nix::unistd::gethostname().map_or_else(
        |_| format!("number {}", env.group_rank),
        |name| name.to_string_lossy().into_owned(),
    );
    let first_rank = me - env.local_rank;
    let identity = Identity::own().encode();
    let (name_of_card, machine) = (name.clone(), machine());
    let card = encode(&Card { name: name_of_card, machine, identity, first_rank, members })?;
    let host = |number: usize| format!("{prefix}/host/{number}");
    let there = store.compare_set(&host(env.group_rank), None, &card)?;
    if there.as_ref() != Some(&card) {
        let other: Option<Card> = there.and_then(|there| decode(&there).ok());
        let other = other.map_or_else(String::new, |card| format!(" ({})", card.name));
        let what = format!(
            "is {} on this host ({name}), and another host{other} of this job has that number already",
            env.group_rank
        );
        return Err(Error::config("GROUP_RANK", what));
    }
    let failed = format!("{prefix}/failed");
    let mut cards: Vec<Card> = Vec::new();
    let mut next = 0;
    let reminder = Reminder::new();
    while next < env.world_size {
        let (key, seen) = (host(cards.len()), next);
        let look = || {
            look()?;
            if let Some(record) = published(store, &failed, Duration::from_millis(50)) {
                return Err(Error::Aborted(record.reason));
            }
            // Nobody is left on its host who could say so, where it has no other ranks.
            check_started(store, seen, || format!("rank {me} waits for other hosts"))?;
            reminder.remind(|| {
                let (number, world) = (cards.len(), env.world_size);
                format!(
                    "rank {me} is in the rendezvous of {world} ranks on several hosts; not there: host {number}, whose \
                     first rank is {seen}"
                )
            });
            Ok(())
        };
        let here = wait_for_key(store, &key, deadline, LOOK, look);
        here.map_err(|error| match error {
            Error::Timeout { seconds, .. } => {
                let (number, world) = (cards.len(), env.world_size);
                let message = format!(
                    "rendezvous of {world} ranks on several hosts: host {number}, whose first rank is {seen}, is not \
                     there"
                );
                Error::Timeout { seconds, message }
            }
            other => other,
        })?;
        let card: Card = decode(&store.get(&key, *deadline)?)?;
        if card.first_rank != next || card.members.is_empty() {
            let what = format!(
                "of host {} ({}) is {}, and should be {next}: ranks count on from host to host, in the order of \
                 GROUP_RANK",
                cards.len(),
                card.name,
                card.first_rank
            );
            return Err(Error::config("RANK", what));
        }
        let theirs = Identity::decode(Some(card.identity.as_bytes()));
        let warning = Identity::own().check(me, card.first_rank, &theirs)?;
        if let Some(warning) = warning.filter(|_| card.first_rank == 0) {
            crate::multiprocessing::report::say(&format!("torchrs: warning: {warning}"));
        }
        next += card.members.len();
        cards.push(card);
    }
    store.set(&all, &encode(&cards)?)?;
    Ok(cards)
}

/// MPI, where all ranks have it.
fn join_mpi(env: &WorkerEnv, cards: &[Card], deadline: &Deadline) -> Result<Option<MpiWorld>> {
    let all = cards.iter().flat_map(|card| &card.members);
    let all: Vec<Offered> = all.map(|(_, _, offered)| offered.clone()).collect();
    let (uses_mpi, warning) = choose(&all)?;
    if let Some(warning) = warning.filter(|_| env.rank == 0) {
        crate::multiprocessing::report::say(&format!("torchrs: warning: {warning}"));
    }
    match uses_mpi {
        true => MpiWorld::join(env.rank, env.world_size, deadline).map(Some),
        false => Ok(None),
    }
}

impl World {
    fn of(
        cards: Vec<Card>,
        size: usize,
        listener: Listener,
        mpi: Option<MpiWorld>,
        store: Store,
    ) -> Result<Self> {
        let mut members = Vec::new();
        let mut hosts = Vec::new();
        for (host, card) in cards.into_iter().enumerate() {
            for (pid, addresses, _) in card.members {
                members.push(Member { host, pid, addresses: Addresses::decode(&addresses)? });
            }
            hosts.push(card.name);
        }
        if members.len() != size {
            let what = format!("is {size}, and the job's hosts have {} workers", members.len());
            return Err(Error::config("WORLD_SIZE", what));
        }
        Ok(World { members, hosts, listener, mpi, store })
    }
}
