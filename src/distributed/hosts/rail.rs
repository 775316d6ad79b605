//! A member's connections to its counterparts on the other hosts, and what goes with each call on them: the call's
//! number and what it is, so that hosts that call different things find out at once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::SmallVec;
use torchrs_links::{Addresses, Call, Failure, Links, Options, Watch};

use super::HostsBackend;
use super::engine::{Engine, mpi, tcp};
use crate::distributed::Deadline;
use crate::distributed::collective::Signature;
use crate::distributed::shm::{AbortRecord, Cause, Turn};
use crate::distributed::store::ended_key;
use crate::error::{Error, Result};
use crate::profiler::notes;

/// Dimensions that travel with a call; one with more is compared by its hash all the same.
const SHAPE: usize = 8;
/// The exchanges of one call have numbers of their own.
const EXCHANGES: u32 = 24;
/// How long a name may be that connections are told.
const NAME: usize = 120;
/// How much longer a host waits for others than its members for each other: where a member is missing its own host
/// says so first, and better.
pub(super) const GRACE: Duration = Duration::from_millis(300);
/// How often a wait in the rendezvous asks the store whether another host has failed.
const ASK: Duration = Duration::from_millis(250);

impl HostsBackend {
    /// Connects this member with its counterparts, if each host has one.
    pub(super) fn connect(&self, deadline: &Deadline) -> Result<()> {
        let member = self.layout.member;
        if member >= self.layout.rails() {
            return Ok(());
        }
        let (listener, place) = (&self.world.listener, self.layout.place);
        let joined = self.among(member, &member.to_string(), |name, ranks, members, watch| {
            match &self.world.mpi {
                None => {
                    let encryption = self.world.encryption;
                    tcp::connect(listener, name, members, place, encryption, deadline, watch)
                }
                Some(mpi) => {
                    mpi::connect(mpi, ranks, listener, name, members, place, deadline, watch)
                }
            }
        });
        let doing =
            || format!("rank {} connects with the other hosts of a process group", self.me());
        let engine = joined.map_err(|failure| self.explain(failure, deadline, doing, None))?;
        *self.rail.lock() = Some(engine);
        Ok(())
    }

    /// Connections between the members that have place `member` on their hosts, of whom this is one. `what` tells
    /// them from others of the group.
    pub(super) fn connect_members(
        &self,
        member: usize,
        what: &str,
        deadline: &Deadline,
    ) -> Result<Links, Failure> {
        let mut options = Options::default();
        options.encryption = self.world.encryption;
        let (listener, place) = (&self.world.listener, self.layout.place);
        self.among(member, what, |name, _, members, watch| {
            Links::connect(listener, name, members, place, &options, deadline, watch)
        })
    }

    /// Gives `connect` what it needs to reach the members that have place `member` on their hosts: a name for the
    /// connections, the members' ranks in the job, where they listen, and what to watch meanwhile.
    fn among<T>(
        &self,
        member: usize,
        what: &str,
        connect: impl FnOnce(&str, &[usize], &[Addresses], &Watch<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let counterpart = |host: &Vec<usize>| self.ranks[host[member]];
        let ranks: Vec<usize> = self.layout.hosts.iter().map(counterpart).collect();
        let address = |&rank: &usize| self.world.members[rank].addresses.clone();
        let members: Vec<Addresses> = ranks.iter().map(address).collect();
        let name = format!("{}/{what}", short(&self.prefix));
        let asked = Mutex::new(Instant::now());
        let watch = || {
            let mut asked = asked.lock();
            if !self.local.has_failed() && asked.elapsed() >= ASK {
                *asked = Instant::now();
                self.ask_store(ASK / 5);
                self.look_for_peer();
            }
            self.local.has_failed().then(|| self.reason())
        };
        connect(&name, &ranks, &members, &watch)
    }

    /// Of messages between two ranks: whether the other's process has ended, and so will never come.
    fn look_for_peer(&self) {
        let is_pair = self.local.is_direction();
        let Some(&rank) = self.ranks.iter().find(|&&rank| is_pair && rank != self.me()) else {
            return;
        };
        let reason = match self.world.store.get(&ended_key(rank), ASK / 5) {
            Ok(how) => {
                let how = String::from_utf8_lossy(&how);
                format!("rank {rank} has ended before it came to a message: {how}")
            }
            Err(_) if self.world.members[rank].has_left(&self.world.listener) => {
                format!("rank {rank} has left the process group before it came to a message")
            }
            Err(_) => return,
        };
        let pid = self.world.members[rank].pid;
        self.local.fail(AbortRecord { cause: Cause::Elsewhere, rank, pid, reason });
    }

    /// One exchange of a call, by its number among those of the call.
    pub(super) fn on_rail(
        &self,
        turn: &Turn<'_>,
        exchange: usize,
        run: impl FnOnce(&mut dyn Engine, &Call<'_>) -> Result<(), Failure>,
    ) -> Result<()> {
        let signature = turn.signature();
        let mut rail = self.rail.lock();
        let Some(engine) = rail.as_mut() else {
            return Err(Error::Aborted(format!("rank {} has left the process group", self.me())));
        };
        let watch = || self.local.has_failed().then(|| self.reason());
        let call = Call {
            number: u64::from(turn.number()) << EXCHANGES | exchange as u64,
            fingerprint: &fingerprint(signature),
            deadline: Deadline::after(turn.deadline().remaining() + GRACE),
            watch: &watch,
        };
        let begun = Instant::now();
        let ended = run(engine.as_mut(), &call);
        notes::waited_for_ranks(begun.elapsed());
        // The store may have to be asked why, which others need not wait for.
        drop(rail);
        let doing = || {
            let (number, what) = (turn.number(), signature.with_place());
            format!("rank {} was waiting in collective {number}: {what}", self.me())
        };
        ended.map_err(|failure| self.explain(failure, turn.deadline(), doing, Some(turn)))
    }

    /// This rank in the world.
    pub(super) fn me(&self) -> usize {
        self.ranks[self.rank]
    }
}

/// The number of a collective from that of an exchange.
pub(super) fn collective_of(number: u64) -> u64 {
    number >> EXCHANGES
}

/// A name for connections: a long one is cut, and told from others by a hash.
fn short(prefix: &str) -> String {
    if prefix.len() <= NAME {
        return prefix.to_owned();
    }
    let mut hash = DefaultHasher::new();
    prefix.hash(&mut hash);
    let mut end = NAME;
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{:016x}", &prefix[..end], hash.finish())
}

/// What a call is, in a few bytes.
pub(super) fn fingerprint(signature: &Signature) -> SmallVec<[u8; 96]> {
    let mut bytes = SmallVec::new();
    bytes.extend_from_slice(&signature.code().to_le_bytes());
    let root = signature.root.map_or(0, |root| root as u32 + 1);
    bytes.extend_from_slice(&root.to_le_bytes());
    // FNV-1a over words: it has to tell a mistake from a match, not to withstand an attack.
    let words = signature.shape.iter().map(|&dim| dim as u64).chain([signature.number().into()]);
    let hash = words.fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    });
    bytes.extend_from_slice(&hash.to_le_bytes());
    bytes.push(u8::from(signature.shape.len() > SHAPE));
    for &dim in signature.shape.iter().take(SHAPE) {
        bytes.extend_from_slice(&(dim as u64).to_le_bytes());
    }
    bytes
}

/// The call that a fingerprint tells of, and whether it has more dimensions. `None` for other bytes.
pub(super) fn read_fingerprint(bytes: &[u8]) -> Option<(Signature, bool)> {
    let (code, rest) = bytes.split_first_chunk::<4>()?;
    let (root, rest) = rest.split_first_chunk::<4>()?;
    let (_hash, rest) = rest.split_first_chunk::<8>()?;
    let (&is_cut, rest) = rest.split_first()?;
    let (dims, []) = rest.as_chunks::<8>() else { return None };
    let shape: Vec<usize> = dims.iter().map(|&dim| u64::from_le_bytes(dim) as usize).collect();
    let root = (u32::from_le_bytes(*root) as usize).checked_sub(1);
    let signature = Signature::from_code(u32::from_le_bytes(*code), root, &shape)?;
    Some((signature, is_cut == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::collective::Kind;

    #[test]
    fn a_call_is_read_from_its_fingerprint() {
        let long: Vec<usize> = (0..20).collect();
        for shape in [&[][..], &[3, 1 << 40], &long] {
            let signature =
                Signature { root: Some(4), ..Signature::of_host(Kind::Broadcast, shape) };
            let bytes = fingerprint(&signature);
            assert!(bytes.len() <= torchrs_links::MAX_FINGERPRINT);
            let (read, is_cut) = read_fingerprint(&bytes).unwrap();
            assert_eq!((read.root, &read.shape[..]), (Some(4), &shape[..shape.len().min(8)]));
            assert_eq!(is_cut, shape.len() > 8);
            assert!(read_fingerprint(&bytes[..bytes.len() - 1]).is_none());
        }
        let other = Signature::of_host(Kind::AllReduce, &long[..19]);
        assert_ne!(fingerprint(&other), fingerprint(&Signature::of_host(Kind::AllReduce, &long)));
    }

    #[test]
    fn long_names_are_cut_and_differ() {
        let long = "é".repeat(200);
        assert!(short(&long).len() < 150);
        assert_ne!(short(&long), short(&format!("{long}/1")));
        assert_eq!(short("group/1"), "group/1");
    }
}
