//! The beginning of a connection: both sides prove that they have the same key, then one of them says something. And
//! what may come of an attempt to get so far.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::channel::{Broken, Channel};

/// What came of one attempt to connect.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Nobody listens there.
    #[error("refused: no process listens there")]
    Refused,
    /// There is no way there.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// No answer.
    #[error("no answer within {0:.1} s: a firewall or another network may be in between")]
    TimedOut(f64),
    /// It listens, and does not prove itself.
    #[error("connected, but it did not prove itself within {0:.1} s")]
    Silent(f64),
    /// It closed the connection during the proof.
    #[error("it closed the connection during the proof: its job token may be another one")]
    Closed,
    /// It is something else.
    #[error(transparent)]
    Foreign(#[from] Broken),
    /// It belongs to this job, and is not the process that was looked for.
    #[error("another process of this job listens there")]
    WrongProcess,
    /// It is the process, and has no room.
    #[error("it holds too many connections that nobody has asked for")]
    Busy,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    /// Whether to ask again soon may not help: what answered says no.
    pub fn is_answer(&self) -> bool {
        !matches!(self, Refusal::Unreachable(_) | Refusal::TimedOut(_) | Refusal::Silent(_))
    }

    /// From an attempt to connect that took up to `seconds`.
    pub fn of(error: &io::Error, seconds: f64) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Refusal::Refused,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Refusal::TimedOut(seconds),
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => Refusal::Unreachable(error.to_string()),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Refusal::Closed,
            _ => Refusal::Other(error.to_string()),
        }
    }
}

/// A connection that is not proved yet, on a socket that does not block.
pub struct Proof {
    /// The socket.
    pub socket: TcpStream,
    /// What goes over it.
    pub channel: Channel,
    /// Whether a byte has come.
    pub has_spoken: bool,
}

impl Proof {
    /// On the side that connects.
    pub fn of_caller(socket: TcpStream, key: &[u8; 32]) -> Self {
        Proof { socket, channel: Channel::initiator(key), has_spoken: false }
    }

    /// On the side that listens.
    pub fn of_listener(socket: TcpStream, key: &[u8; 32]) -> Self {
        Proof { socket, channel: Channel::responder(key), has_spoken: false }
    }

    /// Sends and reads what can be, until the other side's first message is there. Never takes a byte that follows it.
    ///
    /// # Errors
    /// Why the connection is of no more use.
    pub fn go_on(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        let failed = |error: io::Error| Refusal::of(&error, 0.0);
        // A few hundred bytes at most in each direction: a full buffer is a peer that reads nothing.
        flush(&self.socket, &mut self.channel).map_err(failed)?;
        loop {
            let mut room = [0; 512];
            let want = self.channel.missing().min(room.len());
            let count = match self.socket.read(&mut room[..want]) {
                Ok(0) => return Err(Refusal::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            self.has_spoken = true;
            let mut messages = self.channel.receive(&room[..count])?;
            flush(&self.socket, &mut self.channel).map_err(failed)?;
            if let Some(message) = messages.pop() {
                return Ok(Some(message));
            }
        }
    }

    /// Says something to a side that has proved itself.
    ///
    /// # Errors
    /// The socket's.
    pub fn say(&mut self, message: &[u8]) -> io::Result<()> {
        self.channel.send(message);
        flush(&self.socket, &mut self.channel)
    }
}

/// Sends what a channel has to send.
///
/// # Errors
/// The socket's; it takes no more for now ([`WouldBlock`](io::ErrorKind::WouldBlock)).
pub fn flush(mut socket: &TcpStream, channel: &mut Channel) -> io::Result<()> {
    while !channel.output().is_empty() {
        match socket.write(channel.output()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => channel.sent(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
