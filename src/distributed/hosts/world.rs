//! How the processes of a job on several hosts find each other. The members of each host meet as those of one host
//! do, and then their hosts ([`cards`](super::cards)).

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use torchrs_job::addresses;
use torchrs_job::store::{LINKS_ADDRESSES, LINKS_KEY};
use torchrs_links::{Addresses, Encryption, Listener};

use super::HostsBackend;
use super::cards::{self, Card};
use super::engine::mpi::MpiWorld;
use super::engine::{Offered, choose, encryption};
use super::failure::publish;
use crate::distributed::shm::{self, AbortRecord, Cause, Seat};
use crate::distributed::{Deadline, Store, WorkerEnv};
use crate::error::{Error, Result};

/// How long a process may take to say whether it listens.
const PROBE: Duration = Duration::from_millis(100);
/// How many of its addresses it is asked at.
const MOST_PROBED: usize = 3;

/// What a process knows of all others of its job.
pub(super) struct World {
    /// By rank.
    pub members: Vec<Member>,
    /// The names of the hosts.
    pub hosts: Vec<String>,
    pub listener: Listener,
    /// Where data between hosts goes over MPI.
    pub mpi: Option<MpiWorld>,
    /// Of what goes over TCP.
    pub encryption: Encryption,
    pub store: Store,
}

/// A process of the job.
pub(super) struct Member {
    /// Which host it is on.
    pub host: usize,
    pub pid: i32,
    pub addresses: Addresses,
}

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
    let joining = store.within(*deadline);
    let (addresses, key) = of_launcher(env, &joining)?;
    let WorkerEnv { rank, local_rank, local_world_size, world_size, .. } = *env;
    let first = rank.checked_sub(local_rank).filter(|first| first + local_world_size <= world_size);
    let Some(first) = first else {
        let what = format!(
            "is {rank}, with LOCAL_RANK {local_rank}, LOCAL_WORLD_SIZE {local_world_size} and WORLD_SIZE \
             {world_size}: a host's ranks have to follow each other in the order of LOCAL_RANK"
        );
        return Err(Error::config("RANK", what));
    };
    let listener = Listener::bind(&still_here(&addresses), &[], key)?;
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
            let encrypts = encryption::own()?;
            Ok((std::process::id() as i32, addresses, Offered::own(world_size)?, encrypts))
        };
        let met = own().and_then(|own| cards::meet(env, &joining, &local, own, &prefix, deadline));
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
fn of_launcher(env: &WorkerEnv, store: &Store) -> Result<(Vec<IpAddr>, [u8; 32])> {
    let addresses = store.try_get(LINKS_ADDRESSES)?;
    let key = store.try_get(LINKS_KEY)?.and_then(|key| <[u8; 32]>::try_from(key).ok());
    let addresses = addresses.and_then(|text| addresses::read(std::str::from_utf8(&text).ok()?));
    addresses.zip(key).ok_or_else(|| {
        let what = format!(
            "is {} and WORLD_SIZE is {}, but the store that was given for the group is not that of a job over several \
             hosts (`Store::from_env`), which says how to reach workers of other hosts",
            env.local_world_size, env.world_size
        );
        Error::config("LOCAL_WORLD_SIZE", what)
    })
}

/// At any port of each of these addresses that the host still has: it may have lost a network since its launcher began.
/// All, where it has none.
fn still_here(addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let is_here = |address: &&IpAddr| {
        let bound = UdpSocket::bind((**address, 0));
        !bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    let here: Vec<SocketAddr> =
        addresses.iter().filter(is_here).map(|address| SocketAddr::new(*address, 0)).collect();
    match here.is_empty() {
        true => addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect(),
        false => here,
    }
}

/// MPI, where all ranks have it.
fn join_mpi(env: &WorkerEnv, cards: &[Card], deadline: &Deadline) -> Result<Option<MpiWorld>> {
    let all = cards.iter().flat_map(|card| &card.members);
    let all: Vec<Offered> = all.map(|(_, _, offered, _)| offered.clone()).collect();
    let (uses_mpi, warning) = choose(&all)?;
    if let Some(warning) = warning.filter(|_| env.rank == 0) {
        crate::multiprocessing::report::say(&format!("torchrs: warning: {warning}"));
    }
    match uses_mpi {
        true => MpiWorld::join(env.rank, env.world_size, deadline).map(Some),
        false => Ok(None),
    }
}

impl Member {
    /// Whether its process is there and listens no more, as it did when the job began: it has left all groups. `own` is
    /// the asker's listener.
    pub fn has_left(&self, own: &Listener) -> bool {
        let own: Vec<IpAddr> = own.addresses().list().iter().map(SocketAddr::ip).collect();
        let mut order = self.addresses.list().to_vec();
        addresses::by_likelihood(&mut order, &own);
        // Those with another network in between say nothing, or something else.
        order.retain(|address| !addresses::is_ambiguous(address.ip(), &own));
        let mut is_refused = false;
        for address in order.iter().take(MOST_PROBED) {
            match TcpStream::connect_timeout(address, PROBE) {
                Ok(_) => return false,
                Err(error) => is_refused |= error.kind() == ErrorKind::ConnectionRefused,
            }
        }
        is_refused
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
        let encrypt = |card| {
            let Card { name, members, .. }: &Card = card;
            members.iter().map(|(.., encrypts)| (*encrypts, &name[..])).collect::<Vec<_>>()
        };
        let encrypt: Vec<(bool, &str)> = cards.iter().flat_map(encrypt).collect();
        let encryption = encryption::agree(&encrypt, mpi.is_some())?;
        let mut members = Vec::new();
        let mut hosts = Vec::new();
        for (host, card) in cards.into_iter().enumerate() {
            for (pid, addresses, ..) in card.members {
                members.push(Member { host, pid, addresses: Addresses::decode(&addresses)? });
            }
            hosts.push(card.name);
        }
        if members.len() != size {
            let what = format!("is {size}, and the job's hosts have {} workers", members.len());
            return Err(Error::config("WORLD_SIZE", what));
        }
        Ok(World { members, hosts, listener, mpi, encryption, store })
    }
}
