//! One end of a connection between two launchers: messages in, bytes out, and back. No input or output is done
//! here, so that hostile bytes can be tried on it directly.
//!
//! Both sides first send a greeting in the clear: what protocol they speak, in which version. Then the Noise
//! protocol (pattern NNpsk0, the job's token as the key) proves to each side that the other has the token, and
//! encrypts all that follows. A message of any length travels in records of at most 65,535 bytes.

use snow::{HandshakeState, TransportState};

/// Of the wire between launchers. Another number is another protocol.
pub const VERSION: u16 = 2;
/// The longest message.
pub const MAX_MESSAGE: usize = 64 << 20;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const MAGIC: &[u8; 8] = b"torchrs\x00";
const GREETING: usize = MAGIC.len() + 2;
/// A record's length is two bytes before it.
const LENGTH: usize = 2;
const MAX_RECORD: usize = u16::MAX as usize;
/// What authenticates a record.
const TAG: usize = 16;
/// The first byte of a record's text: whether the message ends with it.
const LAST: u8 = 0;
const MORE: u8 = 1;
/// The longest record of the handshake: a key, and a tag.
const MAX_HANDSHAKE: usize = 96;

/// Why a connection is of no more use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Something that is not a launcher.
    #[error("what came from there is not the protocol of torchrs launchers")]
    Foreign,
    /// A launcher of another release.
    #[error(
        "it speaks version {0} of the launchers' protocol and this launcher {VERSION}: install the same release on \
         all hosts"
    )]
    Version(u16),
    /// It does not have the token.
    #[error("its job token is another one: set the same TORCHRS_JOB_TOKEN on all hosts")]
    Token,
    /// Bytes that no launcher sends.
    #[error("what came from there breaks the protocol: {0}")]
    Violation(&'static str),
}

enum State {
    /// The other side's greeting has not come.
    Greeting(Box<HandshakeState>),
    Handshake(Box<HandshakeState>),
    Open(Box<TransportState>),
    Broken(Broken),
}

/// One end of a connection.
pub struct Channel {
    state: State,
    initiator: bool,
    /// Bytes that came and are not yet a whole record.
    input: Vec<u8>,
    /// The part of a message that has come.
    partial: Vec<u8>,
    /// Bytes to send.
    output: Vec<u8>,
}

impl Channel {
    /// The end of whoever opens the connection.
    pub fn initiator(key: &[u8; 32]) -> Self {
        Self::new(key, true)
    }

    /// The end of whoever accepts it.
    pub fn responder(key: &[u8; 32]) -> Self {
        Self::new(key, false)
    }

    fn new(key: &[u8; 32], initiator: bool) -> Self {
        let greeting = [&MAGIC[..], &VERSION.to_be_bytes()].concat();
        let builder = snow::Builder::new(PATTERN.parse().expect("a pattern of Noise"));
        let builder =
            builder.psk(0, key).and_then(|b| b.prologue(&greeting)).expect("a key of 32 bytes");
        let handshake =
            if initiator { builder.build_initiator() } else { builder.build_responder() };
        let state = State::Greeting(Box::new(handshake.expect("a whole set of parameters")));
        Channel { state, initiator, input: Vec::new(), partial: Vec::new(), output: greeting }
    }

    /// Whether both sides have proved that they have the token.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// How many bytes to read next, at most, to take none that follows the record under way: other bytes than the
    /// channel's may come after its last message.
    pub fn missing(&self) -> usize {
        let record = match (&self.state, self.input.first_chunk::<LENGTH>()) {
            (State::Greeting(_), _) => GREETING,
            (_, Some(length)) => LENGTH + usize::from(u16::from_be_bytes(*length)),
            (_, None) => LENGTH,
        };
        record.saturating_sub(self.input.len()).max(1)
    }

    /// Takes bytes that came, and gives the messages that are complete with them. After an error the channel gives
    /// nothing else.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
        self.input.extend_from_slice(bytes);
        let mut messages = Vec::new();
        let mut used = 0;
        let done = loop {
            match self.step(used, &mut messages) {
                Ok(0) => break Ok(messages),
                Ok(count) => used += count,
                Err(broken) => {
                    self.state = State::Broken(broken.clone());
                    self.partial = Vec::new();
                    break Err(broken);
                }
            }
        };
        self.input.drain(..used);
        done
    }

    /// Takes what `input` holds from `at` on, if it is whole: how many bytes that was.
    fn step(&mut self, at: usize, messages: &mut Vec<Vec<u8>>) -> Result<usize, Broken> {
        let input = &self.input[at..];
        match &mut self.state {
            State::Broken(broken) => Err(broken.clone()),
            State::Greeting(_) => {
                let known = input.len().min(MAGIC.len());
                if input[..known] != MAGIC[..known] {
                    return Err(Broken::Foreign);
                }
                let Some(version) = input.get(MAGIC.len()..GREETING) else { return Ok(0) };
                let version = u16::from_be_bytes(version.try_into().expect("two bytes"));
                if version != VERSION {
                    return Err(Broken::Version(version));
                }
                self.begin();
                Ok(GREETING)
            }
            State::Handshake(handshake) => {
                let Some(record) = record(input, MAX_HANDSHAKE)? else { return Ok(0) };
                let mut text = [0; MAX_HANDSHAKE];
                let read = handshake.read_message(record, &mut text).map_err(|_| Broken::Token)?;
                if read != 0 {
                    return Err(Broken::Violation("a handshake with a text"));
                }
                let taken = LENGTH + record.len();
                self.go_on();
                Ok(taken)
            }
            State::Open(transport) => {
                let Some(record) = record(input, MAX_RECORD)? else { return Ok(0) };
                let mut text = vec![0; record.len()];
                let read = transport
                    .read_message(record, &mut text)
                    .map_err(|_| Broken::Violation("a record that is not authentic"))?;
                let taken = LENGTH + record.len();
                let (mark, part) =
                    text[..read].split_first().ok_or(Broken::Violation("an empty record"))?;
                if self.partial.len() + part.len() > MAX_MESSAGE {
                    return Err(Broken::Violation("a message that is too long"));
                }
                self.partial.extend_from_slice(part);
                match *mark {
                    LAST => messages.push(std::mem::take(&mut self.partial)),
                    MORE if !part.is_empty() => {}
                    _ => {
                        return Err(Broken::Violation(
                            "a record that is neither the last nor another",
                        ));
                    }
                }
                Ok(taken)
            }
        }
    }

    /// After the greetings: the initiator speaks first.
    fn begin(&mut self) {
        let State::Greeting(handshake) =
            std::mem::replace(&mut self.state, State::Broken(Broken::Foreign))
        else {
            unreachable!("only a greeting is followed by a handshake")
        };
        self.state = State::Handshake(handshake);
        if self.initiator {
            self.send_handshake();
        }
    }

    /// After a record of the handshake was read: the responder answers, and both are through.
    fn go_on(&mut self) {
        if !self.initiator {
            self.send_handshake();
        }
        let State::Handshake(handshake) =
            std::mem::replace(&mut self.state, State::Broken(Broken::Token))
        else {
            unreachable!("a record of a handshake was just read")
        };
        let transport =
            handshake.into_transport_mode().expect("both records of the handshake are through");
        self.state = State::Open(Box::new(transport));
    }

    fn send_handshake(&mut self) {
        let State::Handshake(handshake) = &mut self.state else { unreachable!("in a handshake") };
        let mut record = [0; MAX_HANDSHAKE];
        let len = handshake.write_message(&[], &mut record).expect("it is this side's turn");
        push_record(&mut self.output, &record[..len]);
    }

    /// Takes a message to be sent.
    ///
    /// # Panics
    /// Before the channel [is open](Self::is_open), and for a message longer than [`MAX_MESSAGE`].
    pub fn send(&mut self, message: &[u8]) {
        assert!(message.len() <= MAX_MESSAGE, "a message of {} bytes", message.len());
        let State::Open(transport) = &mut self.state else { panic!("the channel is not open") };
        let most = MAX_RECORD - TAG - 1;
        let count = message.len().div_ceil(most).max(1);
        let mut record = vec![0; (message.len() + 1).min(most + 1) + TAG];
        let mut text = Vec::with_capacity(record.len());
        for place in 0..count {
            let part = &message[place * most..message.len().min((place + 1) * most)];
            text.clear();
            text.push(if place + 1 == count { LAST } else { MORE });
            text.extend_from_slice(part);
            let len = transport.write_message(&text, &mut record).expect("a record that fits");
            push_record(&mut self.output, &record[..len]);
        }
    }

    /// The bytes to be sent, oldest first.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.output.drain(..count);
    }
}

/// The first record of `input`, if it is whole.
fn record(input: &[u8], longest: usize) -> Result<Option<&[u8]>, Broken> {
    let Some(length) = input.first_chunk::<LENGTH>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if length < TAG || length > longest {
        return Err(Broken::Violation("a record of a length that no launcher sends"));
    }
    Ok(input.get(LENGTH..LENGTH + length))
}

fn push_record(output: &mut Vec<u8>, record: &[u8]) {
    let length = u16::try_from(record.len()).expect("a record of Noise");
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(record);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    /// Carries bytes both ways, `piece` at a time, until nothing is left; what each side got.
    fn carry(a: &mut Channel, b: &mut Channel, piece: usize) -> [Result<Vec<Vec<u8>>, Broken>; 2] {
        let mut got = [Ok(Vec::new()), Ok(Vec::new())];
        loop {
            let mut moved = false;
            for (from, to, place) in [(0, 1, 1), (1, 0, 0)] {
                let ends = [&mut *a, &mut *b];
                let [x, y] = ends;
                let (from, to) = if (from, to) == (0, 1) { (x, y) } else { (y, x) };
                let part = from.output()[..from.output().len().min(piece)].to_vec();
                from.sent(part.len());
                moved |= !part.is_empty();
                if !part.is_empty() && got[place].is_ok() {
                    match to.receive(&part) {
                        Ok(more) => got[place].as_mut().unwrap().extend(more),
                        Err(broken) => got[place] = Err(broken),
                    }
                }
            }
            if !moved {
                return got;
            }
        }
    }

    fn open(piece: usize) -> [Channel; 2] {
        let (mut a, mut b) = (Channel::initiator(&KEY), Channel::responder(&KEY));
        assert_eq!(carry(&mut a, &mut b, piece), [Ok(vec![]), Ok(vec![])]);
        assert!(a.is_open() && b.is_open());
        [a, b]
    }

    #[test]
    fn messages_of_any_length_arrive_in_order_in_any_pieces() {
        for piece in [1, 7, 4096, 1 << 20] {
            let [mut a, mut b] = open(piece);
            let lengths = [0, 1, 65_518, 65_519, 200_000];
            let messages =
                lengths.map(|n| (0..n).map(|i| (i * 31 % 251) as u8).collect::<Vec<_>>());
            let few = if piece == 1 { &messages[..4] } else { &messages[..] };
            few.iter().for_each(|m| a.send(m));
            b.send(b"back");
            assert_eq!(
                carry(&mut a, &mut b, piece),
                [Ok(vec![b"back".to_vec()]), Ok(few.to_vec())]
            );
        }
    }

    /// Who reads no more than is missing finds what comes after the last message where it was.
    #[test]
    fn what_is_missing_ends_with_the_record() {
        let (mut a, mut b) = (Channel::initiator(&KEY), Channel::responder(&KEY));
        let mut got = Vec::new();
        let mut is_sent = false;
        while got.is_empty() {
            if a.is_open() && !is_sent {
                a.send(b"hello");
                is_sent = true;
            }
            for is_there in [true, false] {
                let (from, to) = if is_there { (&mut a, &mut b) } else { (&mut b, &mut a) };
                let bytes = [from.output(), b"other bytes"].concat();
                let len = from.output().len();
                let mut used = 0;
                while used < len {
                    let want = to.missing();
                    assert!(used + want <= len, "{want} missing at {used} of {len}");
                    got.extend(to.receive(&bytes[used..used + want]).unwrap());
                    used += want;
                }
                from.sent(len);
            }
        }
        assert_eq!(got, [b"hello"]);
    }

    #[test]
    fn another_token_is_told_from_a_foreign_program_and_another_version() {
        let (mut a, mut b) = (Channel::initiator(&[8; 32]), Channel::responder(&KEY));
        assert_eq!(carry(&mut a, &mut b, 100)[1], Err(Broken::Token));
        assert!(!a.is_open() && !b.is_open());
        // A broken channel stays so.
        assert_eq!(b.receive(b"x"), Err(Broken::Token));

        for foreign in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01", b"torchrx\0\0\x01", &[0; 64]]
        {
            assert_eq!(Channel::responder(&KEY).receive(foreign), Err(Broken::Foreign));
        }
        let other = [&MAGIC[..], &[0, 9]].concat();
        assert_eq!(Channel::responder(&KEY).receive(&other), Err(Broken::Version(9)));
        assert_eq!(Channel::initiator(&KEY).receive(&other), Err(Broken::Version(9)));
    }

    /// What was recorded on one connection is of no use on another.
    #[test]
    fn a_replay_is_refused() {
        let (mut a, mut b) = (Channel::initiator(&KEY), Channel::responder(&KEY));
        let mut recorded = a.output().to_vec();
        a.sent(recorded.len());
        b.receive(&recorded).unwrap();
        let greeting = b.output().to_vec();
        b.sent(greeting.len());
        a.receive(&greeting).unwrap();
        let handshake = a.output().to_vec();
        a.sent(handshake.len());
        b.receive(&handshake).unwrap();
        let answer = b.output().to_vec();
        b.sent(answer.len());
        a.receive(&answer).unwrap();
        a.send(b"stop");
        recorded.extend(handshake);
        recorded.extend_from_slice(a.output());
        assert_eq!(b.receive(a.output()), Ok(vec![b"stop".to_vec()]));
        // The same bytes twice on one connection, and on a new one.
        assert!(matches!(b.receive(a.output()), Err(Broken::Violation(_))));
        let replayed = Channel::responder(&KEY).receive(&recorded);
        assert!(matches!(replayed, Err(Broken::Violation(_))), "{replayed:?}");
    }

    #[test]
    fn a_changed_bit_breaks_the_connection() {
        let [mut a, mut b] = open(4096);
        a.send(b"a message");
        let mut bytes = a.output().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        assert!(matches!(b.receive(&bytes), Err(Broken::Violation(_))));
    }

    proptest! {
        /// Whatever comes, at any point, breaks that connection at most.
        #[test]
        fn garbage_does_no_harm(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8),
            at in 0usize..4,
        ) {
            let mut channel = match at {
                0 => Channel::responder(&KEY),
                1 => Channel::initiator(&KEY),
                2 => {
                    let mut channel = Channel::responder(&KEY);
                    channel.receive(Channel::initiator(&KEY).output()).unwrap();
                    channel
                }
                _ => { let [_, b] = open(4096); b }
            };
            let mut broken = None;
            for piece in pieces {
                match channel.receive(&piece) {
                    Ok(messages) => prop_assert!(messages.is_empty()),
                    Err(error) => { broken.get_or_insert(error.clone()); prop_assert_eq!(broken.as_ref(), Some(&error)); }
                }
                prop_assert!(channel.input.len() <= 2 * MAX_RECORD && channel.partial.is_empty());
            }
        }
    }
}
