//! What one exchange moves over one connection: parts of messages, in order, in both directions at once.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use crate::header::{HEADER, Word};
use crate::layout::{Buffer, Deal, Layout};
use crate::links::Combine;
use crate::wire::Wire;

/// Pieces of a message are combined at multiples of this, so that no element is cut: each dtype's size divides it.
pub(crate) const GRAIN: usize = 64;
/// The most that one system call sends: long enough that its price does not show, short enough that receiving does
/// not have to wait.
const MOST_AT_ONCE: usize = 1 << 20;

/// A message to be sent.
pub(crate) struct Outgoing {
    pub to: usize,
    pub layout: Layout,
    pub deal: Deal,
    pub header: [u8; HEADER],
    /// The incoming message whose bytes go on in this one, and how many bytes of this one come before them.
    pub follows: Option<(usize, usize)>,
}

/// Which bytes of a message are combined with what is in their place; the others replace it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fold {
    /// The message is of periods of so many bytes, the last of which may be cut short.
    pub period: usize,
    /// How many bytes at the beginning of each are combined.
    pub folded: usize,
}

impl Fold {
    pub const ALL: Fold = Fold { period: usize::MAX, folded: usize::MAX };
    pub const NONE: Fold = Fold { period: usize::MAX, folded: 0 };

    /// Whether the byte at `position` is combined, and for how many bytes that goes on.
    fn at(&self, position: usize) -> (bool, usize) {
        let within = position % self.period;
        match within < self.folded {
            true => (true, self.folded - within),
            false => (false, self.period - within),
        }
    }
}

/// A message to be received.
pub(crate) struct Incoming {
    pub from: usize,
    pub layout: Layout,
    pub deal: Deal,
    pub header: [u8; HEADER],
    pub fold: Fold,
    /// How much of each stream's share is in its place.
    pub placed: Vec<usize>,
}

impl Incoming {
    /// How many bytes from the message's beginning on are in their place.
    fn ready(&self) -> usize {
        let next = |(stream, &placed)| self.deal.position(stream, placed).0;
        let least = self.placed.iter().enumerate().map(next).min().unwrap_or(0);
        least.min(self.layout.total())
    }
}

/// The memory of an exchange.
pub(crate) struct Memory<'m, 'b> {
    pub inputs: &'m [&'m [u8]],
    pub buffers: &'m mut [&'b mut [u8]],
    /// Where pieces wait to be combined, at an address that is a multiple of [`GRAIN`].
    pub piece: &'m mut [u8],
}

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) enum Trouble {
    Error(io::Error),
    /// The other side sends no more.
    End,
    /// Something else came than this call's header.
    Word(Word),
    /// Bytes that are no words.
    Garbage,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Error(error)
    }
}

/// The part of a message that travels on one connection.
struct Part {
    message: usize,
    share: usize,
    moved: usize,
    /// How much of the header is through.
    head: usize,
}

/// The same, on its way in.
struct PartIn {
    message: usize,
    share: usize,
    /// How many bytes are in their place.
    moved: usize,
    head: usize,
    header: [u8; HEADER],
    /// The last bytes that came.
    tail: [u8; HEADER],
    /// Bytes that came and are not yet a grain.
    carry: [u8; GRAIN],
    carried: usize,
}

/// One connection in an exchange.
pub(crate) struct Lane {
    pub place: usize,
    pub stream: usize,
    sends: VecDeque<Part>,
    receives: VecDeque<PartIn>,
}

impl Lane {
    pub fn new(place: usize, stream: usize) -> Self {
        Lane { place, stream, sends: VecDeque::new(), receives: VecDeque::new() }
    }

    pub fn add_send(&mut self, message: usize, outgoing: &Outgoing) {
        let share = outgoing.deal.share(outgoing.layout.total(), self.stream);
        self.sends.push_back(Part { message, share, moved: 0, head: 0 });
    }

    pub fn add_receive(&mut self, message: usize, incoming: &Incoming) {
        self.receives.push_back(PartIn {
            message,
            share: incoming.deal.share(incoming.layout.total(), self.stream),
            moved: 0,
            head: 0,
            header: [0; HEADER],
            tail: [0; HEADER],
            carry: [0; GRAIN],
            carried: 0,
        });
    }

    pub fn is_done(&self, wire: &Wire) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && wire.is_flushed()
    }

    pub fn is_sending(&self) -> bool {
        !self.sends.is_empty()
    }

    pub fn is_receiving(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Whether the next byte sent would be in the middle of a message.
    pub fn is_in_send(&self) -> bool {
        self.sends.front().is_some_and(|part| part.head > 0)
    }

    /// Whether last words could be taken for a header's or a message's end.
    pub fn hides_last_words(&self) -> bool {
        self.sends.front().is_some_and(|part| match part.head {
            0 => false,
            HEADER => part.share - part.moved <= HEADER,
            _ => true,
        })
    }

    /// Whether the next byte received would be in the middle of a message.
    pub fn is_in_receive(&self) -> bool {
        self.receives.front().is_some_and(|part| part.head > 0)
    }

    /// Whether there is something to send as soon as the connection takes it.
    pub fn wants_to_send(&self, wire: &Wire, outgoing: &[Outgoing], incoming: &[Incoming]) -> bool {
        !wire.is_flushed()
            || self.sends.front().is_some_and(|part| {
                part.head < HEADER || self.sendable(part, outgoing, incoming).1 > 0
            })
    }

    /// From where on in the message this connection goes on, and how many bytes it can send in one go.
    fn sendable(
        &self,
        part: &Part,
        outgoing: &[Outgoing],
        incoming: &[Incoming],
    ) -> (usize, usize) {
        let message = &outgoing[part.message];
        let left = part.share - part.moved;
        if left == 0 {
            return (0, 0);
        }
        let ready = match message.follows {
            Some((receive, lead)) => lead + incoming[receive].ready(),
            None => message.layout.total(),
        };
        let (position, run) = message.deal.position(self.stream, part.moved);
        (position, run.min(left).min(ready.saturating_sub(position)).min(MOST_AT_ONCE))
    }

    /// Sends what can be sent without waiting, once: whether that was anything.
    pub fn send(
        &mut self,
        wire: &mut Wire,
        outgoing: &[Outgoing],
        incoming: &[Incoming],
        memory: &Memory<'_, '_>,
    ) -> Result<bool, Trouble> {
        let Some(part) = self.sends.front() else {
            let before = wire.is_flushed();
            return Ok(wire.flush()? && !before);
        };
        let message = &outgoing[part.message];
        let (position, run) = self.sendable(part, outgoing, incoming);
        let head = &message.header[part.head..];
        if head.is_empty() && run == 0 && part.share > 0 {
            return Ok(false);
        }
        let body = match run {
            0 => &[][..],
            _ => {
                let (buffer, range) = message.layout.at(position);
                let bytes = match buffer {
                    Buffer::Input(i) => &memory.inputs[i][range],
                    Buffer::Memory(i) => &memory.buffers[i][range],
                };
                &bytes[..bytes.len().min(run)]
            }
        };
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let count = match wire.send(if head.is_empty() { &parts[1..] } else { &parts }) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let of_head = count.min(head.len());
        let part = self.sends.front_mut().expect("it was just looked at");
        part.head += of_head;
        part.moved += count - of_head;
        if part.head == HEADER && part.moved == part.share {
            self.sends.pop_front();
        }
        Ok(true)
    }

    /// Receives what can be received without waiting, once: whether that was anything. What a place tells between
    /// messages is given as a [`Trouble::Word`], and the lane goes on after it.
    pub fn receive(
        &mut self,
        wire: &mut Wire,
        incoming: &mut [Incoming],
        memory: &mut Memory<'_, '_>,
        combine: Option<&Combine<'_>>,
    ) -> Result<bool, Trouble> {
        let Some(part) = self.receives.front_mut() else { return Ok(false) };
        let message = &mut incoming[part.message];
        if part.head < HEADER {
            // By itself: what is not of this call must not be taken for its data.
            let Some(count) = received(wire, &mut part.header[part.head..])? else {
                return Ok(false);
            };
            part.head += count;
            if part.head == HEADER && part.header != message.header {
                part.head = 0;
                return Err(Word::decode(&part.header).map_or(Trouble::Garbage, Trouble::Word));
            }
        } else {
            let (position, run) = message.deal.position(self.stream, part.moved);
            let (Buffer::Memory(buffer), range) = message.layout.at(position) else {
                unreachable!("an input is not written")
            };
            let (is_folded, of_kind) = message.fold.at(position);
            let run = run.min(part.share - part.moved).min(range.len()).min(of_kind);
            let placed = if is_folded {
                let run = run.min(memory.piece.len());
                let place = &mut memory.buffers[buffer][range.start..range.start + run];
                part.fold(wire, place, memory.piece, combine)?
            } else {
                let place = &mut memory.buffers[buffer][range.start..range.start + run];
                let count = received(wire, place).map_err(|trouble| part.last(trouble))?;
                count.inspect(|&count| part.remember(&place[..count]))
            };
            let Some(placed) = placed else { return Ok(false) };
            part.moved += placed;
            message.placed[self.stream] += placed;
        }
        if part.head == HEADER && part.moved == part.share {
            self.receives.pop_front();
        }
        Ok(true)
    }
}

impl PartIn {
    /// Receives into `piece` and combines whole grains of it with `place`: how many bytes are done.
    fn fold(
        &mut self,
        wire: &mut Wire,
        place: &mut [u8],
        piece: &mut [u8],
        combine: Option<&Combine<'_>>,
    ) -> Result<Option<usize>, Trouble> {
        let combine = combine.expect("a message that is folded has a function");
        let (run, carried) = (place.len(), self.carried);
        piece[..carried].copy_from_slice(&self.carry[..carried]);
        let count =
            received(wire, &mut piece[carried..run]).map_err(|trouble| self.last(trouble))?;
        let Some(count) = count else { return Ok(None) };
        let have = carried + count;
        self.remember(&piece[carried..have]);
        let done = if have == run { have } else { have - have % GRAIN };
        if done > 0 {
            combine(&mut place[..done], &piece[..done]);
        }
        self.carried = have - done;
        self.carry[..self.carried].copy_from_slice(&piece[done..have]);
        Ok(Some(done))
    }

    /// Keeps the last bytes that came: in a message that breaks off they are the last words.
    fn remember(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(HEADER);
        self.tail.copy_within(count.., 0);
        self.tail[HEADER - count..].copy_from_slice(&bytes[bytes.len() - count..]);
    }

    /// At the end of a connection in a message's middle.
    fn last(&self, trouble: Trouble) -> Trouble {
        match (&trouble, Word::decode(&self.tail)) {
            (Trouble::End, Some(Word::Farewell(words))) => Trouble::Word(Word::Farewell(words)),
            _ => trouble,
        }
    }
}

/// How many bytes came; `None` when there are none at present.
fn received(wire: &mut Wire, room: &mut [u8]) -> Result<Option<usize>, Trouble> {
    match wire.receive(room) {
        Ok(0) => Err(Trouble::End),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}
