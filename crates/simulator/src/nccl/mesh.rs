//! Ranks on several machines. Each has connections to all others (`torchrs_links`), over which chunks pass as they
//! pass through slots on one machine. Every rank gets what all give and combines it in rank order, so results are
//! the same bits on all ranks, and those of one machine.

use super::board::{NOTE, State};
use super::collective::{Collective, describe};
use super::communicator::shared_device;
use super::mailbox::Transfer;
use super::outcome::Outcome;
use super::place::Told;
use super::root::{self, Card, Root};
use super::seat::Stop;
use parking_lot::Mutex;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use torchrs_job::deadline::Deadline;
use torchrs_links::{Addresses, Call, Failure, Links, Listener, Options, Receive, Send};

/// Bytes of a rank that pass at a time.
const CHUNK: usize = 256 << 10;
/// The chunks of one call have numbers of their own.
const CHUNKS: u32 = 32;
/// What calls say that are no collectives.
const TRANSFERS: &[u8] = b"transfers";
const NOTES: &[u8] = b"notes";

/// A rank's connections.
pub struct Mesh {
    rank: usize,
    members: Vec<Addresses>,
    listener: Arc<Listener>,
    /// Tells this communicator from others of the same processes.
    name: String,
    aborted: Arc<AtomicBool>,
    /// Where work of the devices passes.
    device: Mutex<Links>,
    /// Where the hosts tell each other something, and how often they have. Made at the first time.
    hosts: Mutex<(Option<Links>, u64)>,
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Mesh");
        shown.field("rank", &self.rank).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a rank has not joined.
pub type Refused = (Outcome, String);

impl Mesh {
    /// Joins by what an id says of its root.
    pub fn join(
        root: &Root,
        device: (u32, u32),
        world: usize,
        rank: usize,
        aborted: &Arc<AtomicBool>,
    ) -> Result<Mesh, Refused> {
        let system = |error: String| (Outcome::SYSTEM_ERROR, error);
        let listener = root::listen(root.key).map_err(system)?;
        let watch = || stopped(aborted);
        let mine = Card { device, addresses: listener.addresses().clone() };
        let cards = root.ask(&listener, &mine, world, rank, &watch)?;
        let devices: Vec<(u32, u32)> = cards.iter().map(|card| card.device).collect();
        let members = cards.iter().map(|card| card.addresses.clone()).collect();
        let found = Mesh::found(Arc::new(listener), members, "whole".into(), rank, aborted);
        let mesh = found.map_err(|stop| refused(stop, rank))?;
        // Once all are connected: all have the cards, and find the same.
        match shared_device(&devices) {
            Some(message) => Err((Outcome::INVALID_USAGE, message)),
            None => Ok(mesh),
        }
    }

    /// The communicator of some ranks of this one, which is the `number`-th split's with a colour.
    pub fn split(
        &self,
        (number, color): (u64, i32),
        ranks: &[usize],
        place: usize,
        aborted: &Arc<AtomicBool>,
    ) -> Result<Mesh, Refused> {
        let members = ranks.iter().map(|&rank| self.members[rank].clone()).collect();
        let mut name = DefaultHasher::new();
        (&self.name, number, color).hash(&mut name);
        let name = format!("split {:016x}", name.finish());
        Mesh::found(self.listener.clone(), members, name, place, aborted)
            .map_err(|stop| refused(stop, place))
    }

    fn found(
        listener: Arc<Listener>,
        members: Vec<Addresses>,
        name: String,
        rank: usize,
        aborted: &Arc<AtomicBool>,
    ) -> Result<Mesh, Stop> {
        let mut device = connect(&listener, &members, &format!("{name}/device"), rank, aborted)?;
        let watch = || stopped(aborted);
        let call = Call { number: 0, fingerprint: b"join", deadline: never(), watch: &watch };
        device.barrier(&call).map_err(|failure| why(failure, rank, "joined"))?;
        let (device, hosts, aborted) = (Mutex::new(device), Mutex::default(), aborted.clone());
        Ok(Mesh { rank, members, listener, name, aborted, device, hosts })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn world(&self) -> usize {
        self.members.len()
    }

    /// Performs a collective, the `number`-th of this rank.
    pub fn collective(&self, call: &Collective, number: u64) -> Result<(), Stop> {
        let (me, world) = (self.rank, self.world());
        let words = call.words(number);
        let fingerprint: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let most = call.most_at_once(CHUNK, world);
        let mut links = self.device.lock();
        let (mut from, mut k) = (0, 0);
        loop {
            let count = most.min(call.count - from);
            let chunk = call.chunk(count, world);
            let lengths: Vec<usize> =
                (0..world).map(|rank| if call.gives(rank) { chunk } else { 0 }).collect();
            let start = |rank: usize| lengths[..rank].iter().sum::<usize>();
            let mut all = vec![0u8; start(world)];
            if call.gives(me) {
                // SAFETY: the buffer was checked and is kept, and `all` has room for each rank's chunk.
                unsafe { call.give(all.as_mut_ptr().add(start(me)), from, count, world) };
            }
            let watch = || stopped(&self.aborted);
            let number = number << CHUNKS | k;
            let exchange =
                Call { number, fingerprint: &fingerprint, deadline: never(), watch: &watch };
            let mine = || format!("called {}", describe(&words));
            links.all_gather(&exchange, &mut all, &lengths).map_err(|f| why(f, me, &mine()))?;
            let slot = |rank| all[start(rank)..].as_ptr();
            // SAFETY: the chunks of those who give are in `all`, one behind the other.
            unsafe { call.take(me, world, from, count, &slot) };
            from += count;
            k += 1;
            if from >= call.count {
                return Ok(());
            }
        }
    }

    /// Performs transfers side by side. Those of a pair keep their order.
    pub fn transfer(&self, transfers: &[Transfer]) -> Result<(), Stop> {
        let (own, others): (Vec<&Transfer>, Vec<&Transfer>) =
            transfers.iter().partition(|transfer| transfer.peer == self.rank);
        self.keep(&own)?;
        // SAFETY: the buffers were checked and are kept; those that are sent are not written meanwhile.
        let sent = |one: &Transfer| unsafe {
            std::slice::from_raw_parts(one.address as *const u8, one.bytes())
        };
        // SAFETY: the same, and those that are received into are apart from each other and from all that is sent.
        let received = |one: &Transfer| unsafe {
            std::slice::from_raw_parts_mut(one.address as *mut u8, one.bytes())
        };
        let (sends, receives): (Vec<&Transfer>, Vec<&Transfer>) =
            others.iter().copied().partition(|one| one.sends);
        let sends: Vec<Send<'_>> =
            sends.iter().map(|one| Send { to: one.peer, bytes: sent(one) }).collect();
        let mut receives: Vec<Receive<'_>> =
            receives.iter().map(|one| Receive { from: one.peer, bytes: received(one) }).collect();
        let watch = || stopped(&self.aborted);
        let call = Call { number: 0, fingerprint: TRANSFERS, deadline: never(), watch: &watch };
        let mine = || {
            let calls: Vec<String> = others.iter().map(|one| one.describe()).collect();
            format!("called {}", calls.join(" and "))
        };
        let exchanged = self.device.lock().exchange(&call, &sends, &mut receives);
        exchanged.map_err(|failure| why(failure, self.rank, &mine()))
    }

    /// What this rank sends to itself.
    fn keep(&self, own: &[&Transfer]) -> Result<(), Stop> {
        let (sends, receives): (Vec<&Transfer>, Vec<&Transfer>) =
            own.iter().copied().partition(|one| one.sends);
        let alike =
            |(a, b): (&&Transfer, &&Transfer)| a.count == b.count && a.data_type == b.data_type;
        if sends.len() != receives.len() || !sends.iter().zip(&receives).all(alike) {
            let calls: Vec<String> = own.iter().map(|one| one.describe()).collect();
            let message = format!("rank {} called {} of itself", self.rank, calls.join(" and "));
            return Err(Stop::Mismatch(message));
        }
        for (from, to) in sends.iter().zip(&receives) {
            let (from_ptr, to_ptr) = (from.address as *const u8, to.address as *mut u8);
            // SAFETY: both buffers were checked, are kept and have as many bytes; they may overlap.
            unsafe { to_ptr.copy_from(from_ptr, from.bytes()) };
        }
        Ok(())
    }

    /// Tells the hosts of all ranks something.
    pub fn tell_all(&self, note: &[u8; NOTE]) -> Result<Told, Stop> {
        let mut hosts = self.hosts.lock();
        let (links, number) = &mut *hosts;
        *number += 1;
        let links = match links {
            Some(links) => links,
            None => {
                let name = format!("{}/hosts", self.name);
                links.insert(connect(
                    &self.listener,
                    &self.members,
                    &name,
                    self.rank,
                    &self.aborted,
                )?)
            }
        };
        let mut all = vec![0; NOTE * self.world()];
        all[NOTE * self.rank..][..NOTE].copy_from_slice(note);
        let watch = || stopped(&self.aborted);
        let call = Call { number: *number, fingerprint: NOTES, deadline: never(), watch: &watch };
        links
            .all_gather(&call, &mut all, &vec![NOTE; self.world()])
            .map_err(|failure| why(failure, self.rank, "splits"))?;
        Ok((*number, all.as_chunks().0.to_vec()))
    }

    /// Says that this rank is done with the communicator. A call under way sees an abort itself.
    pub fn end(&self, state: State) {
        if state != State::Aborted {
            return;
        }
        if let Some(mut links) = self.device.try_lock() {
            links.give_up(ABORTED);
        }
        if let Some((Some(links), _)) = self.hosts.try_lock().as_deref_mut() {
            links.give_up(ABORTED);
        }
    }
}

/// What the others are told.
const ABORTED: &str = "it has aborted the communicator";

/// NCCL's calls have no deadline.
pub fn never() -> Deadline {
    Deadline::after(Duration::from_secs(1 << 32))
}

fn stopped(aborted: &AtomicBool) -> Option<String> {
    aborted.load(Ordering::Acquire).then(|| ABORTED.to_owned())
}

fn connect(
    listener: &Listener,
    members: &[Addresses],
    name: &str,
    rank: usize,
    aborted: &AtomicBool,
) -> Result<Links, Stop> {
    let watch = || stopped(aborted);
    Links::connect(listener, name, members, rank, &Options::default(), &never(), &watch)
        .map_err(|failure| why(failure, rank, "connects"))
}

/// What ended a call; `mine` says what this rank called.
pub fn why(failure: Failure, me: usize, mine: &str) -> Stop {
    match failure {
        Failure::Stopped(_) => Stop::Aborted,
        Failure::PeerGone { place, how } => Stop::Peer(format!("rank {place} is gone: {how}")),
        Failure::Mismatch { place, length, theirs, .. } => {
            let words = theirs.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            let words: Vec<u64> = words.collect();
            let (number, theirs) = match <[u64; 6]>::try_from(words) {
                Ok(words) => (format!("collective {}: ", words[0]), describe(&words)),
                Err(_) => (String::new(), format!("something else, of {length} bytes")),
            };
            Stop::Mismatch(format!("{number}rank {me} {mine}, rank {place} called {theirs}"))
        }
        other => Stop::Peer(other.to_string()),
    }
}

fn refused(stop: Stop, rank: usize) -> Refused {
    match stop {
        Stop::Aborted => (Outcome::REMOTE_ERROR, format!("rank {rank} was aborted as it joined")),
        Stop::Peer(message) => (Outcome::REMOTE_ERROR, message),
        Stop::Mismatch(message) => (Outcome::INVALID_USAGE, message),
    }
}
