//! The connections of one place to all others of its group: making them, their options, their end.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use torchrs_job::deadline::Deadline;

use crate::addresses::Addresses;
use crate::connect::connect;
use crate::failure::Failure;
use crate::header::{Farewell, HEADER, Header, Word};
use crate::lane::GRAIN;
use crate::listener::{Accepted, Listener};
use crate::proof::{Hello, MAX_GROUP};
use crate::wire::Wire;

/// How often a wait asks the caller's watch.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// The most that is read before it is combined: it stays in the core's cache in between.
pub(crate) const PIECE: usize = 256 << 10;
/// What is said of a place whose connection has ended without a word.
pub(crate) const ENDED: &str = "it closed its connection; its process has ended";
/// The most streams of a pair.
const MOST_STREAMS: usize = 64;

/// Combines elements: the second operand into the first. Both hold the same number of whole elements.
pub type Combine<'a> = dyn Fn(&mut [u8], &[u8]) + Sync + 'a;

/// Says why a wait has to end, once it has to. It is asked every 20 ms or so.
pub type Watch<'a> = dyn Fn() -> Option<String> + Sync + 'a;

/// Whether data is encrypted on its way. The proof at a connection's beginning always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Whoever can read the network's packets can read the data, or change it.
    #[default]
    Off,
    /// Nobody can; processors encrypt each byte.
    On,
}

/// How the places of a group are connected. All places have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How many connections each pair has, 1 to 64. Long messages are dealt out to all of them. More than one helps
    /// where the network gives a single connection less than the whole: on one machine it does not.
    pub streams: usize,
    /// Whether data is encrypted.
    pub encryption: Encryption,
    /// How many bytes a place may take from the others for an all-reduce to be direct, rather than in a ring.
    pub direct: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { streams: 1, encryption: Encryption::Off, direct: 1 << 20 }
    }
}

/// One call, as all its places have it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Which call this is: of a collective, the same on all places, and another for each. Messages between two places
    /// have numbers of their own.
    pub number: u64,
    /// What it is, in at most [`MAX_FINGERPRINT`](crate::MAX_FINGERPRINT) bytes: places with another one fail.
    pub fingerprint: &'a [u8],
    /// When to give up.
    pub deadline: Deadline,
    /// Why to stop before.
    pub watch: &'a Watch<'a>,
}

/// The connections of one place to all others of its group.
///
/// After a call has failed, the links are of no more use: the others are told why, and every later call fails alike.
pub struct Links {
    pub(crate) place: usize,
    /// The streams to each place; none to this one.
    pub(crate) peers: Vec<Vec<Wire>>,
    pub(crate) direct: usize,
    /// Memory that calls reuse.
    pub(crate) piece: Scratch,
    pub(crate) slots: Scratch,
    /// How long to try again before sleeping.
    pub(crate) spin: Duration,
    pub(crate) broken: Option<Failure>,
    /// In which collective each place was found waiting last.
    pub(crate) waiting: Vec<Option<Header>>,
    /// When this place looked last at those that do not send to it at present.
    pub(crate) looked: Instant,
    /// Whether the call under way is one of all places.
    pub(crate) is_collective: bool,
}

impl Links {
    /// Connects this process, as place `place` of `members.len()`, with the others. `group` names the group and this
    /// instance of it: a later one, after a restart, has another name. Of each pair the higher place connects.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] with what came of each address of a place; [`Failure::TimedOut`] with the places that
    /// have not connected to this one; [`Failure::Options`] where a place has other options; [`Failure::Stopped`] by
    /// `watch`.
    ///
    /// # Panics
    /// When `place` is none of the members, the group's name is longer than 200 bytes, or `options` are out of range.
    pub fn connect(
        listener: &Listener,
        group: &str,
        members: &[Addresses],
        place: usize,
        options: &Options,
        deadline: &Deadline,
        watch: &Watch<'_>,
    ) -> Result<Self, Failure> {
        let Options { streams, encryption, direct } = *options;
        assert!(place < members.len(), "Links::connect: place {place} of {}", members.len());
        assert!(
            group.len() <= MAX_GROUP,
            "Links::connect: a group's name of {} bytes",
            group.len()
        );
        assert!((1..=MOST_STREAMS).contains(&streams), "Links::connect: {streams} streams");
        let hello = |to: usize, stream: usize| Hello {
            listener: members[to].id,
            from: place as u32,
            to: to as u32,
            stream: stream as u16,
            streams: streams as u16,
            places: members.len() as u32,
            encrypted: encryption == Encryption::On,
            group: group.as_bytes().to_vec(),
        };
        let wire =
            |socket, channel| Wire::new(socket, (encryption == Encryption::On).then_some(channel));
        let mut found: Vec<Vec<Option<Wire>>> = Vec::new();
        for other in 0..members.len() {
            let count = if other == place { 0 } else { streams };
            found.push((0..count).map(|_| None).collect());
        }
        for to in 0..place {
            for stream in 0..streams {
                let (own, hello) = (listener.addresses(), hello(to, stream));
                let (socket, channel) =
                    connect(&members[to], own, listener.key(), &hello, deadline, watch)?;
                found[to][stream] = Some(wire(socket, channel));
            }
        }
        let start = Instant::now();
        loop {
            let is_missing = |&other: &usize| found[other].iter().any(Option::is_none);
            let waiting: Vec<usize> = (0..members.len()).filter(is_missing).collect();
            if waiting.is_empty() {
                break;
            }
            if let Some(why) = watch() {
                return Err(Failure::Stopped(why));
            }
            if deadline.has_passed() {
                let seconds = start.elapsed().as_secs_f64();
                return Err(Failure::TimedOut { waiting, seconds });
            }
            let limit = LOOK.min(deadline.remaining());
            for Accepted { hello: theirs, socket, channel } in
                listener.take(group.as_bytes(), place as u32, limit)
            {
                let from = theirs.from as usize;
                let mine = Hello { from: from as u32, ..hello(place, usize::from(theirs.stream)) };
                let slot = found.get_mut(from).and_then(|s| s.get_mut(usize::from(theirs.stream)));
                match slot {
                    Some(slot) if theirs == mine && from > place => {
                        *slot = Some(wire(socket, channel))
                    }
                    _ => return Err(differing(&theirs, &mine)),
                }
            }
        }
        let peers = found.into_iter().map(|streams| streams.into_iter().flatten().collect());
        Ok(Links {
            place,
            peers: peers.collect(),
            direct,
            piece: Scratch::new(PIECE),
            slots: Scratch::new(0),
            spin: crate::exchange::SPIN_MOST,
            broken: None,
            waiting: vec![None; members.len()],
            looked: Instant::now(),
            is_collective: true,
        })
    }

    /// Which place this process is.
    pub fn place(&self) -> usize {
        self.place
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.peers.len()
    }

    /// The addresses of the connection to another place: this end, and the other. They say which way data takes.
    ///
    /// # Errors
    /// The socket's, where the other place is gone.
    ///
    /// # Panics
    /// For this place itself, and for one that there is not.
    pub fn ends(&self, place: usize) -> io::Result<[SocketAddr; 2]> {
        self.peers[place][0].ends()
    }

    /// Ends these links before their time, because this place cannot go on: the others are told `why`, and each later
    /// call fails.
    pub fn give_up(&mut self, why: &str) {
        if self.broken.is_some() {
            return;
        }
        self.part(&Farewell::Failed { culprit: self.place as u32, text: why.to_owned() }, |_| {
            false
        });
        self.broken = Some(Failure::Stopped(why.to_owned()));
    }

    /// Between calls: whether a place has ended without a word, or says that a call of its own has failed. Waits for
    /// nothing, and leaves data where it is. A place that has left is no failure.
    ///
    /// # Errors
    /// As a call would give that waits for the place.
    pub fn check(&mut self) -> Result<(), Failure> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        for place in (0..self.places()).filter(|&place| place != self.place) {
            let mut words = [0; HEADER];
            let gone = |how: String| Failure::PeerGone { place, how };
            let failure = loop {
                let word = match self.peers[place][0].peek(&mut words) {
                    Ok(0) => break Some(gone(ENDED.to_owned())),
                    Ok(HEADER) => Word::decode(&words),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                        break Some(gone(format!("its connection broke: {error}")));
                    }
                    Ok(_) | Err(_) => break None,
                };
                match word {
                    // For the next call.
                    Some(Word::Waiting(theirs)) => {
                        let _ = self.peers[place][0].receive(&mut words);
                        self.waiting[place] = Some(theirs);
                    }
                    Some(Word::Farewell(Farewell::Failed { culprit, text })) => {
                        let culprit = culprit as usize;
                        let is_other = culprit != self.place && culprit < self.places();
                        let place = if is_other { culprit } else { place };
                        break Some(Failure::PeerGone {
                            place,
                            how: format!("it gave up: {text}"),
                        });
                    }
                    Some(Word::Farewell(Farewell::Differs { own, number, .. })) => {
                        break Some(Failure::Mismatch { place, number, length: 0, theirs: own });
                    }
                    Some(Word::Farewell(Farewell::Left) | Word::Data(_) | Word::Note(_)) | None => {
                        break None;
                    }
                }
            };
            if let Some(failure) = failure {
                let text = failure.to_string();
                self.part(&Farewell::Failed { culprit: place as u32, text }, |_| false);
                self.broken = Some(failure.clone());
                return Err(failure);
            }
        }
        Ok(())
    }

    /// A place that has left in peace, if one has said so and nothing else is to be received from it. Waits for
    /// nothing.
    pub fn left(&mut self) -> Option<usize> {
        let mut words = [0; HEADER];
        (0..self.places()).find(|&place| {
            let first = self.peers[place].first_mut();
            let came = first.is_some_and(|first| matches!(first.peek(&mut words), Ok(HEADER)));
            came && matches!(Word::decode(&words), Some(Word::Farewell(Farewell::Left)))
        })
    }

    /// Sends last words to all places that can tell them from data, and then no more.
    pub(crate) fn part(&mut self, farewell: &Farewell, hides: impl Fn(usize) -> bool) {
        let words = Word::Farewell(farewell.clone()).encode();
        for (place, streams) in self.peers.iter_mut().enumerate() {
            if let Some(first) = streams.first_mut().filter(|_| !hides(place)) {
                // Who is gone does not hear them.
                let _ = first.queue(&words);
            }
            streams.iter().for_each(Wire::end);
        }
    }
}

/// The others hear that this place has left, should they still wait for it.
impl Drop for Links {
    fn drop(&mut self) {
        if self.broken.is_none() {
            self.part(&Farewell::Left, |_| false);
        }
    }
}

fn differing(theirs: &Hello, mine: &Hello) -> Failure {
    let words = |hello: &Hello| {
        let encryption = if hello.encrypted { "on" } else { "off" };
        format!("{} places, {} streams, encryption {encryption}", hello.places, hello.streams)
    };
    Failure::Options(format!(
        "place {} has other options: {} there, {} here; set the same on all places",
        theirs.from,
        words(theirs),
        words(mine)
    ))
}

/// Memory that begins at a multiple of [`GRAIN`], so that elements are aligned, and that calls reuse.
#[derive(Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
}

impl Scratch {
    pub fn new(len: usize) -> Self {
        let mut scratch = Scratch::default();
        scratch.get(len);
        scratch
    }

    /// `len` bytes; what is in them is left over from before.
    pub fn get(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + GRAIN {
            self.bytes.resize(len + GRAIN, 0);
        }
        let start = self.bytes.as_ptr().align_offset(GRAIN);
        &mut self.bytes[start..start + len]
    }
}
