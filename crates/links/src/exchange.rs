//! Messages between places, all at once: none waits for another, so that no order of calls can block.
//!
//! The calling thread tries each connection in turn; when none moves, it tries again for some microseconds, since a
//! peer that works alike is mostly no later than that, and then sleeps until one can move.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::failure::Failure;
use crate::header::{Farewell, HEADER, Header, MAX_FINGERPRINT, Word};
use crate::lane::{Fold, Incoming, Lane, Memory, Outgoing, Trouble};
use crate::layout::{Buffer, Deal, Layout};
use crate::links::{Call, Combine, ENDED, LOOK, Links, PIECE};

/// A message is dealt out to the streams of a pair in blocks of this.
const BLOCK: usize = 256 << 10;
/// Who tries for longer than it takes to fall asleep and be woken loses more than that.
pub(crate) const SPIN_MOST: Duration = Duration::from_micros(25);
const SPIN_LEAST: Duration = Duration::from_micros(2);
/// A wait longer by this than the most of spinning would have been over by then, had nobody slept.
const WAKING: Duration = Duration::from_micros(40);
/// How long to listen for who knows more, after a connection has ended without a word.
const HEARSAY: Duration = Duration::from_millis(60);

/// A message to be sent.
#[derive(Debug)]
pub struct Send<'a> {
    /// To which place.
    pub to: usize,
    /// Its data.
    pub bytes: &'a [u8],
}

/// A message to be received.
#[derive(Debug)]
pub struct Receive<'a> {
    /// From which place.
    pub from: usize,
    /// Where its data goes. It has to be as long as the message is.
    pub bytes: &'a mut [u8],
}

/// The messages of one exchange.
#[derive(Default)]
pub(crate) struct Plan {
    pub outgoing: Vec<Outgoing>,
    pub incoming: Vec<Incoming>,
}

/// How the messages of one exchange are made.
pub(crate) struct Planner<'a> {
    links: &'a Links,
    call: &'a Call<'a>,
    step: u16,
    pub plan: Plan,
}

impl<'a> Planner<'a> {
    pub fn new(links: &'a Links, call: &'a Call<'a>, step: u16) -> Self {
        let given = call.fingerprint.len();
        assert!(
            given <= MAX_FINGERPRINT,
            "a fingerprint of {given} bytes; at most {MAX_FINGERPRINT}"
        );
        Planner { links, call, step, plan: Plan::default() }
    }

    fn parts(&self, layout: &Layout) -> (Deal, [u8; HEADER]) {
        let streams = self.links.peers.iter().map(Vec::len).max().unwrap_or(1);
        let header = Header {
            number: self.call.number,
            step: self.step,
            length: layout.total() as u64,
            fingerprint: self.call.fingerprint.to_vec(),
        };
        (Deal::new(layout.total(), streams, BLOCK), Word::Data(header).encode())
    }

    /// A message to `to`. With `follows`, its bytes after the first `lead` go on as soon as those of that incoming
    /// message are in their place.
    pub fn send(&mut self, to: usize, layout: Layout, follows: Option<(usize, usize)>) {
        let (deal, header) = self.parts(&layout);
        self.plan.outgoing.push(Outgoing { to, layout, deal, header, follows });
    }

    /// A message from `from`, of which `fold` says which bytes are combined with what is there: its number among
    /// those that come.
    pub fn receive(&mut self, from: usize, layout: Layout, fold: Fold) -> usize {
        let (deal, header) = self.parts(&layout);
        let placed = vec![0; deal.streams()];
        self.plan.incoming.push(Incoming { from, layout, deal, header, fold, placed });
        self.plan.incoming.len() - 1
    }

    pub fn places(&self) -> usize {
        self.links.places()
    }

    pub fn place(&self) -> usize {
        self.links.place
    }
}

impl Links {
    /// Sends and receives messages, all at once. Those of a pair keep their order.
    ///
    /// # Errors
    /// See [`Failure`]. What was to be received may then hold anything.
    ///
    /// # Panics
    /// For a message to or from a place that is not another one of the group.
    pub fn exchange(
        &mut self,
        call: &Call<'_>,
        sends: &[Send<'_>],
        receives: &mut [Receive<'_>],
    ) -> Result<(), Failure> {
        let mut planner = Planner::new(self, call, 0);
        for (i, Send { to, bytes }) in sends.iter().enumerate() {
            self.check_place(*to, "to");
            planner.send(*to, Layout::new([(Buffer::Input(i), 0..bytes.len())]), None);
        }
        for (i, Receive { from, bytes }) in receives.iter().enumerate() {
            self.check_place(*from, "from");
            planner.receive(*from, Layout::new([(Buffer::Memory(i), 0..bytes.len())]), Fold::NONE);
        }
        let plan = planner.plan;
        let inputs: Vec<&[u8]> = sends.iter().map(|send| send.bytes).collect();
        let mut buffers: Vec<&mut [u8]> = receives.iter_mut().map(|r| &mut *r.bytes).collect();
        self.is_collective = false;
        let ended = self.run(call, plan, &inputs, &mut buffers, None);
        self.is_collective = true;
        ended
    }

    pub(crate) fn check_place(&self, place: usize, argument: &str) {
        let (own, places) = (self.place, self.places());
        assert!(
            place < places && place != own,
            "a message of place {own} with `{argument}` {place}; expected another of 0 to {}",
            places - 1
        );
    }

    /// Runs a plan on memory.
    pub(crate) fn run(
        &mut self,
        call: &Call<'_>,
        plan: Plan,
        inputs: &[&[u8]],
        buffers: &mut [&mut [u8]],
        combine: Option<&Combine<'_>>,
    ) -> Result<(), Failure> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let mut lanes = lanes(&plan);
        let mut piece = std::mem::take(&mut self.piece);
        let memory = Memory { inputs, buffers, piece: piece.get(PIECE) };
        // The function that combines may panic, in the middle of a message.
        self.broken = Some(Failure::Stopped("a call before this one panicked".to_owned()));
        let compared = self.compare(call);
        let ended = compared.and_then(|()| self.advance(call, plan, &mut lanes, memory, combine));
        self.piece = piece;
        self.broken = None;
        ended.map_err(|why| self.fail(call, &lanes, why))
    }

    fn advance(
        &mut self,
        call: &Call<'_>,
        plan: Plan,
        lanes: &mut Vec<Lane>,
        mut memory: Memory<'_, '_>,
        combine: Option<&Combine<'_>>,
    ) -> Result<(), Why> {
        let Plan { outgoing, mut incoming } = plan;
        let mut idle: Option<Instant> = None;
        let start = Instant::now();
        let mut told = Vec::new();
        loop {
            let mut moved = false;
            for lane in lanes.iter_mut() {
                let place = lane.place;
                let at = |trouble| Why::Trouble { place, trouble };
                let wire = &mut self.peers[place][lane.stream];
                moved |= match lane.receive(wire, &mut incoming, &mut memory, combine) {
                    Err(Trouble::Word(Word::Waiting(theirs))) => {
                        self.heard(call, place, theirs)?;
                        true
                    }
                    received => received.map_err(at)?,
                };
                let wire = &mut self.peers[place][lane.stream];
                moved |= match lane.send(wire, &outgoing, &incoming, &memory) {
                    // What the place said last may say why.
                    Err(error) => {
                        while lane.receive(wire, &mut incoming, &mut memory, combine).map_err(at)? {
                        }
                        return Err(at(error));
                    }
                    Ok(sent) => sent,
                };
            }
            lanes.retain(|lane| !lane.is_done(&self.peers[lane.place][lane.stream]));
            if lanes.is_empty() {
                return Ok(());
            }
            let now = Instant::now();
            // Also after many short calls: what others tell must not pile up.
            if now - self.looked >= LOOK {
                self.looked = now;
                self.look(call, lanes, start, &mut told)?;
            }
            if moved {
                if let Some(since) = idle.take() {
                    // Also when it slept: once both sides sleep each wait takes a wake-up, and neither would ever
                    // find out that trying again is enough.
                    let is_short = now - since < SPIN_MOST + WAKING;
                    let spin = if is_short { self.spin * 2 } else { self.spin / 2 };
                    self.spin = spin.clamp(SPIN_LEAST, SPIN_MOST);
                }
            } else if now - *idle.get_or_insert(now) >= self.spin {
                self.sleep(call, lanes, &outgoing, &incoming);
            } else {
                // The peer may need this core.
                std::thread::yield_now();
            }
        }
    }

    /// What there is to do now and then in a long wait.
    fn look(
        &mut self,
        call: &Call<'_>,
        lanes: &[Lane],
        start: Instant,
        told: &mut Vec<usize>,
    ) -> Result<(), Why> {
        if let Some(why) = (call.watch)() {
            return Err(Why::Failure(Failure::Stopped(why)));
        }
        if call.deadline.has_passed() {
            let mut waiting: Vec<usize> = lanes.iter().map(|lane| lane.place).collect();
            waiting.sort_unstable();
            waiting.dedup();
            let seconds = start.elapsed().as_secs_f64();
            return Err(Why::Failure(Failure::TimedOut { waiting, seconds }));
        }
        if self.is_collective && start.elapsed() >= LOOK {
            self.tell(call, lanes, told);
        }
        // A place that does not send at present: it may have ended, or say that it waits in another call.
        for place in 0..self.places() {
            let is_receiving =
                |lane: &Lane| lane.place == place && lane.stream == 0 && lane.is_receiving();
            if place == self.place || lanes.iter().any(is_receiving) {
                continue;
            }
            let takes = lanes.iter().any(|lane| lane.place == place && lane.is_sending());
            let mut words = [0; HEADER];
            while let Ok(count) = self.peers[place][0].peek(&mut words) {
                let trouble = match (count, Word::decode(&words)) {
                    // It may be through with the group before this place is, once it has taken all that is its.
                    (0, _) if takes => Trouble::End,
                    (HEADER, Some(Word::Waiting(theirs))) => {
                        // Not more than was just seen.
                        let _ = self.peers[place][0].receive(&mut words);
                        self.heard(call, place, theirs)?;
                        continue;
                    }
                    (HEADER, Some(Word::Farewell(words))) if takes || words != Farewell::Left => {
                        Trouble::Word(Word::Farewell(words))
                    }
                    // Nothing, or it is ahead, or has left.
                    _ => break,
                };
                return Err(Why::Trouble { place, trouble });
            }
        }
        Ok(())
    }

    /// Tells each place once which collective this one waits in: places that wait in different ones, each for
    /// somebody else, would never see a message of another.
    fn tell(&mut self, call: &Call<'_>, lanes: &[Lane], told: &mut Vec<usize>) {
        let fingerprint = call.fingerprint.to_vec();
        let header = Header { number: call.number, step: 0, length: 0, fingerprint };
        let words = Word::Waiting(header).encode();
        for place in 0..self.places() {
            let is_in_send =
                |lane: &Lane| lane.place == place && lane.stream == 0 && lane.is_in_send();
            if place == self.place || told.contains(&place) || lanes.iter().any(is_in_send) {
                continue;
            }
            // It has not read what it was told before.
            if !self.peers[place][0].is_flushed() {
                continue;
            }
            told.push(place);
            // An error shows where the place is waited for.
            let _ = self.peers[place][0].queue(&words);
        }
    }

    /// A place waits in a collective.
    fn heard(&mut self, call: &Call<'_>, place: usize, theirs: Header) -> Result<(), Why> {
        self.waiting[place] = Some(theirs);
        self.compare(call)
    }

    /// Whether all that wait in the collective of this number wait in the same one.
    fn compare(&self, call: &Call<'_>) -> Result<(), Why> {
        let is_other = |theirs: &&Header| {
            theirs.number == call.number && theirs.fingerprint != call.fingerprint
        };
        for (place, theirs) in self.waiting.iter().enumerate() {
            if self.is_collective
                && let Some(theirs) = theirs.as_ref().filter(is_other)
            {
                let (number, theirs) = (theirs.number, theirs.fingerprint.clone());
                let failure = Failure::Mismatch { place, number, length: 0, theirs };
                return Err(Why::Failure(failure));
            }
        }
        Ok(())
    }

    /// Sleeps until a connection can move, or it is time to look.
    fn sleep(&self, call: &Call<'_>, lanes: &[Lane], outgoing: &[Outgoing], incoming: &[Incoming]) {
        let entry = |lane: &Lane| {
            let wire = &self.peers[lane.place][lane.stream];
            let mut events = PollFlags::empty();
            events.set(PollFlags::POLLIN, lane.is_receiving());
            events.set(PollFlags::POLLOUT, lane.wants_to_send(wire, outgoing, incoming));
            (wire, events)
        };
        // One that waits for another's bytes would wake this thread as soon as its peer has gone.
        let wanted = lanes.iter().map(entry).filter(|(_, events)| !events.is_empty());
        let mut entries: Vec<_> = wanted.map(|(wire, e)| PollFd::new(wire.as_fd(), e)).collect();
        let left = call.deadline.remaining().min(LOOK).max(Duration::from_millis(1));
        match poll(&mut entries, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Out of memory for a moment.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }

    /// What a failure is, and the end of these links: the others are told.
    fn fail(&mut self, call: &Call<'_>, lanes: &[Lane], why: Why) -> Failure {
        let failure = match why {
            Why::Failure(failure) => failure,
            Why::Trouble { place, trouble } => self.judge(call, lanes, place, trouble),
        };
        let farewell = match &failure {
            Failure::Mismatch { place, number: _, length: _, theirs } => Farewell::Differs {
                own: call.fingerprint.to_vec(),
                number: call.number,
                culprit: *place as u32,
                theirs: theirs.clone(),
            },
            Failure::PeerGone { place, how } => {
                Farewell::Failed { culprit: *place as u32, text: how.clone() }
            }
            other => Farewell::Failed { culprit: self.place as u32, text: other.to_string() },
        };
        let hides =
            |place| lanes.iter().any(|l| l.place == place && l.stream == 0 && l.hides_last_words());
        self.part(&farewell, hides);
        self.broken = Some(failure.clone());
        failure
    }

    fn judge(
        &mut self,
        call: &Call<'_>,
        lanes: &[Lane],
        place: usize,
        trouble: Trouble,
    ) -> Failure {
        match trouble {
            Trouble::Word(Word::Data(Header { number, length, fingerprint, .. })) => {
                Failure::Mismatch { place, number, length, theirs: fingerprint }
            }
            Trouble::Word(Word::Farewell(farewell)) => self.understood(call, place, farewell),
            Trouble::Garbage | Trouble::Word(Word::Waiting(_) | Word::Note(_)) => {
                let how = "it sent what no release of torchrs sends".to_owned();
                Failure::PeerGone { place, how }
            }
            Trouble::End | Trouble::Error(_) => {
                if let Some((from, farewell)) = self.hear(lanes, place) {
                    return self.understood(call, from, farewell);
                }
                let how = match trouble {
                    Trouble::Error(error) => format!("its connection broke: {error}"),
                    _ => ENDED.to_owned(),
                };
                Failure::PeerGone { place, how }
            }
        }
    }

    /// The last words of any place, within a moment: the one that closed first may be another's victim.
    fn hear(&mut self, lanes: &[Lane], ended: usize) -> Option<(usize, Farewell)> {
        let start = Instant::now();
        let is_in_receive = |place| {
            lanes.iter().any(|lane| lane.place == place && lane.stream == 0 && lane.is_in_receive())
        };
        loop {
            for (place, streams) in self.peers.iter_mut().enumerate() {
                let Some(first) = streams.first_mut().filter(|_| !is_in_receive(place)) else {
                    continue;
                };
                let mut words = [0; HEADER];
                while let Ok(HEADER) = first.peek(&mut words) {
                    match Word::decode(&words) {
                        Some(Word::Farewell(Farewell::Left)) if place != ended => break,
                        Some(Word::Farewell(farewell)) => return Some((place, farewell)),
                        // On the way to what comes after it.
                        Some(Word::Waiting(_)) if first.receive(&mut words).is_ok() => {}
                        _ => break,
                    }
                }
            }
            if start.elapsed() >= HEARSAY {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the last words of `from` mean here.
    fn understood(&self, call: &Call<'_>, from: usize, farewell: Farewell) -> Failure {
        match farewell {
            Farewell::Left => {
                Failure::PeerGone { place: from, how: "it has left the group".to_owned() }
            }
            Farewell::Failed { culprit, text } => {
                let culprit = culprit as usize;
                if culprit == from || culprit == self.place || culprit >= self.places() {
                    Failure::PeerGone { place: from, how: format!("it gave up: {text}") }
                } else {
                    let how = format!("{text} (place {from} says so)");
                    Failure::PeerGone { place: culprit, how }
                }
            }
            Farewell::Differs { own, number, culprit, theirs } => {
                let culprit = culprit as usize;
                let is_other = own == call.fingerprint && culprit != self.place;
                let (place, theirs) = if is_other && culprit < self.places() {
                    (culprit, theirs)
                } else {
                    (from, own)
                };
                Failure::Mismatch { place, number, length: 0, theirs }
            }
        }
    }
}

/// Why an exchange ended before all was through.
enum Why {
    Failure(Failure),
    Trouble { place: usize, trouble: Trouble },
}

/// The messages of a plan, by connection.
fn lanes(plan: &Plan) -> Vec<Lane> {
    fn lane(lanes: &mut Vec<Lane>, place: usize, stream: usize) -> &mut Lane {
        let at = lanes.iter().position(|lane| lane.place == place && lane.stream == stream);
        let at = at.unwrap_or_else(|| {
            lanes.push(Lane::new(place, stream));
            lanes.len() - 1
        });
        &mut lanes[at]
    }
    let mut lanes = Vec::new();
    for (i, outgoing) in plan.outgoing.iter().enumerate() {
        for stream in 0..outgoing.deal.streams() {
            lane(&mut lanes, outgoing.to, stream).add_send(i, outgoing);
        }
    }
    for (i, incoming) in plan.incoming.iter().enumerate() {
        for stream in 0..incoming.deal.streams() {
            lane(&mut lanes, incoming.from, stream).add_receive(i, incoming);
        }
    }
    lanes
}
