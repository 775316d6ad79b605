//! Calls a process that may be reached by several addresses: connections are begun one after the other, a little
//! apart (RFC 8305), and the first is taken that proves to have the key and to be the process that is meant. A private
//! address may be another host's, too, and answer as somebody else: then the others go on.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use crate::channel::Channel;
use crate::proof::{Proof, Refusal};

/// How long an address may take before the next is tried beside it; less where there are many.
const APART: Duration = Duration::from_millis(250);
/// The last of many is tried after so long.
const ALL_WITHIN: Duration = Duration::from_secs(1);
/// How often a call looks whether it shall go on.
const LOOK: Duration = Duration::from_millis(20);

/// What holds for all addresses of a call.
pub struct Call<'a> {
    /// Both sides have it.
    pub key: &'a [u8; 32],
    /// What this side says first, to one address at a time; nothing: the other side speaks first.
    pub hello: Option<&'a [u8]>,
    /// How long a connection may take.
    pub connect_within: Duration,
    /// How long an address may take from then on.
    pub prove_within: Duration,
    /// For all of it.
    pub limit: Duration,
    /// Whether to stop before. It is asked every 20 ms or so.
    pub stops: &'a dyn Fn() -> bool,
}

/// The process that was meant.
pub struct Reached<T> {
    /// The connection, which does not block.
    pub socket: TcpStream,
    /// What goes over it.
    pub channel: Channel,
    /// The address that led there.
    pub address: SocketAddr,
    /// What its first message means.
    pub answer: T,
}

/// What came of each address that was tried, in their order.
pub type Tried = Vec<(SocketAddr, Refusal)>;

enum Stage {
    /// The next calls are answered by the system.
    Connecting,
    Proving,
    /// It has the key. What is to be said was said to it.
    Told,
}

struct Attempt {
    address: SocketAddr,
    /// Of the stage.
    since: Instant,
    stage: Stage,
    proof: Proof,
}

/// Calls these addresses, the likeliest first. `understand` says of the other side's first message what it means, or
/// that this is not the process that is meant.
///
/// # Errors
/// What came of each address that was tried.
pub fn call<T>(
    addresses: &[SocketAddr],
    how: &Call<'_>,
    understand: impl Fn(&[u8]) -> Result<T, Refusal>,
) -> Result<Reached<T>, Tried> {
    let began = Instant::now();
    let apart = APART.min(ALL_WITHIN / addresses.len().max(1) as u32);
    let mut waiting = addresses.iter().copied();
    let mut next_at = began;
    let mut open: Vec<Attempt> = Vec::new();
    let mut tried: Tried = Vec::new();
    let in_order = |mut tried: Tried| {
        tried.sort_by_key(|(address, _)| addresses.iter().position(|other| other == address));
        tried
    };
    loop {
        let now = Instant::now();
        if now >= began + how.limit || (how.stops)() {
            let late = |attempt: Attempt| (attempt.address, attempt.late());
            tried.extend(open.into_iter().map(late));
            return Err(in_order(tried));
        }
        if now >= next_at
            && let Some(address) = waiting.next()
        {
            match Attempt::begin(address, how.key) {
                Ok(attempt) => {
                    open.push(attempt);
                    next_at = now + apart;
                }
                // At once to the next.
                Err(refusal) => tried.push((address, refusal)),
            }
            continue;
        }
        if open.is_empty() && waiting.len() == 0 {
            return Err(in_order(tried));
        }
        wait(&open, (next_at, waiting.len() > 0), began + how.limit);
        let mut place = 0;
        while place < open.len() {
            // To one at a time: whoever is told takes the connection for the one that counts.
            let may_tell = how.hello.is_none()
                || !open.iter().any(|attempt| matches!(attempt.stage, Stage::Told));
            let ended = match open[place].go_on(how, may_tell) {
                Ok(None) => None,
                Ok(Some(message)) => Some(understand(&message)),
                Err(refusal) => Some(Err(refusal)),
            };
            match ended {
                None => place += 1,
                Some(Ok(answer)) => {
                    let Attempt { address, proof, .. } = open.swap_remove(place);
                    let Proof { socket, channel, .. } = proof;
                    return Ok(Reached { socket, channel, address, answer });
                }
                Some(Err(refusal)) => {
                    tried.push((open.remove(place).address, refusal));
                    next_at = Instant::now();
                }
            }
        }
    }
}

/// Until something has come, or an attempt's time or a look is due.
fn wait(open: &[Attempt], (next_at, is_more): (Instant, bool), until: Instant) {
    let mut entries: Vec<PollFd<'_>> = open
        .iter()
        .map(|attempt| {
            let flags = match attempt.stage {
                Stage::Connecting => PollFlags::POLLOUT,
                Stage::Proving | Stage::Told => PollFlags::POLLIN,
            };
            PollFd::new(attempt.proof.socket.as_fd(), flags)
        })
        .collect();
    let due = if is_more { next_at.min(until) } else { until };
    let left = due.saturating_duration_since(Instant::now()).min(LOOK);
    let timeout = PollTimeout::try_from(left.as_millis() as u64 + 1).unwrap_or(PollTimeout::MAX);
    // An error shows in what is done next.
    let _ = poll(&mut entries, timeout);
}

impl Attempt {
    fn begin(address: SocketAddr, key: &[u8; 32]) -> Result<Self, Refusal> {
        let failed = |errno: Errno| Refusal::of(&errno.into(), 0.0);
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Stream, flags, None).map_err(failed)?;
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let proof = Proof::of_caller(TcpStream::from(fd), key);
        Ok(Attempt { address, since: Instant::now(), stage: Stage::Connecting, proof })
    }

    /// What it comes to where its time is over.
    fn late(&self) -> Refusal {
        let seconds = self.since.elapsed().as_secs_f64();
        match self.stage {
            Stage::Connecting => Refusal::TimedOut(seconds),
            Stage::Proving | Stage::Told => Refusal::Silent(seconds),
        }
    }

    /// As far as it can: the other side's first message.
    fn go_on(&mut self, how: &Call<'_>, may_tell: bool) -> Result<Option<Vec<u8>>, Refusal> {
        let elapsed = self.since.elapsed();
        if let Stage::Connecting = self.stage {
            if !self.is_connected()? {
                let is_late = elapsed >= how.connect_within;
                return if is_late { Err(self.late()) } else { Ok(None) };
            }
            (self.stage, self.since) = (Stage::Proving, Instant::now());
        }
        let message = self.proof.go_on()?;
        if let (Stage::Proving, true, true) = (&self.stage, self.proof.channel.is_open(), may_tell)
        {
            self.stage = Stage::Told;
            if let Some(hello) = how.hello {
                self.proof.say(hello).map_err(|error| Refusal::of(&error, 0.0))?;
            }
        }
        match message {
            None if self.since.elapsed() >= how.prove_within => Err(self.late()),
            message => Ok(message),
        }
    }

    fn is_connected(&self) -> Result<bool, Refusal> {
        let failed =
            |error: std::io::Error| Refusal::of(&error, self.since.elapsed().as_secs_f64());
        let socket = &self.proof.socket;
        if let Some(error) = socket.take_error().map_err(failed)? {
            return Err(failed(error));
        }
        match socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        // Only on one host: a free port that is asked for itself can be given to the asker.
        if socket.local_addr().map_err(failed)? == self.address {
            return Err(Refusal::Refused);
        }
        socket.set_nodelay(true).map_err(failed)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};
    use std::thread::JoinHandle;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn how(key: &[u8; 32]) -> Call<'_> {
        Call {
            key,
            hello: None,
            connect_within: Duration::from_secs(2),
            prove_within: Duration::from_secs(2),
            limit: Duration::from_secs(4),
            stops: &|| false,
        }
    }

    /// Listens, and says this to whoever proves the key; to how many it did.
    fn listener(word: &'static [u8], key: [u8; 32]) -> (SocketAddr, JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut told = 0;
            for socket in listener.incoming() {
                let mut proof = Proof::of_listener(socket.unwrap(), &key);
                // It blocks here.
                while !proof.channel.is_open() {
                    let mut byte = [0];
                    let _ = crate::proof::flush(&proof.socket, &mut proof.channel);
                    match std::io::Read::read(&mut proof.socket, &mut byte) {
                        Ok(1) if proof.channel.receive(&byte).is_ok() => {}
                        Ok(1) => break,
                        // Nothing was said: the test is over.
                        _ => return told,
                    }
                }
                if !proof.channel.is_open() {
                    continue;
                }
                told += usize::from(proof.say(word).is_ok());
                let _ = proof.socket.shutdown(Shutdown::Write);
            }
            told
        });
        (address, thread)
    }

    fn end((address, thread): (SocketAddr, JoinHandle<usize>)) -> usize {
        drop(TcpStream::connect(address));
        thread.join().unwrap()
    }

    /// A full queue: the system does not answer.
    fn hole() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let at = full.local_addr().unwrap();
        let brief = Duration::from_millis(50);
        let queue = (0..3).filter_map(|_| TcpStream::connect_timeout(&at, brief).ok()).collect();
        (full, queue, at)
    }

    fn is(expected: &'static [u8]) -> impl Fn(&[u8]) -> Result<(), Refusal> {
        move |word| if word == expected { Ok(()) } else { Err(Refusal::WrongProcess) }
    }

    #[test]
    fn an_address_that_does_not_answer_costs_a_quarter_of_a_second() {
        let (hole, right) = (hole(), listener(b"right", KEY));
        let began = Instant::now();
        let reached =
            call(&[hole.2, right.0], &how(&KEY), is(b"right")).unwrap_or_else(|t| panic!("{t:?}"));
        let took = began.elapsed();
        assert_eq!(reached.address, right.0);
        assert!(took >= Duration::from_millis(240) && took < Duration::from_secs(2), "{took:?}");
        assert!(reached.channel.is_open());
        assert_eq!(end(right), 1);
    }

    #[test]
    fn who_is_somebody_else_or_has_another_key_is_passed_over() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (other, stranger) = (listener(b"other", KEY), listener(b"right", [8; 32]));
        let right = listener(b"right", KEY);
        let began = Instant::now();
        let all = [closed, other.0, stranger.0, right.0];
        let reached = call(&all, &how(&KEY), is(b"right")).unwrap_or_else(|t| panic!("{t:?}"));
        assert_eq!(reached.address, right.0);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let Err(tried) = call(&all[..3], &how(&KEY), is(b"right")) else { panic!("reached") };
        assert_eq!(tried.iter().map(|(address, _)| *address).collect::<Vec<_>>(), all[..3]);
        assert_eq!((&tried[0].1, &tried[1].1), (&Refusal::Refused, &Refusal::WrongProcess));
        assert!(matches!(tried[2].1, Refusal::Closed | Refusal::Foreign(_)), "{tried:?}");
        drop(reached);
        assert_eq!((end(other), end(right)), (2, 1));
        end(stranger);
    }

    #[test]
    fn no_call_is_longer_than_its_limit() {
        let holes: Vec<_> = (0..3).map(|_| hole()).collect();
        let addresses: Vec<SocketAddr> = holes.iter().map(|hole| hole.2).collect();
        let began = Instant::now();
        let brief = Call { limit: Duration::from_millis(600), ..how(&KEY) };
        let Err(tried) = call(&addresses, &brief, is(b"right")) else { panic!("reached") };
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(tried.len(), 3);
        assert!(tried.iter().all(|(_, refusal)| matches!(refusal, Refusal::TimedOut(_))));
        assert!(call::<()>(&[], &how(&KEY), |_| Ok(())).is_err_and(|tried| tried.is_empty()));
    }
}
