//! One connection: bytes in and out without waiting, in the clear or inside the channel that proved it.

use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{MsgFlags, recv, sendmsg};
use torchrs_rendezvous::channel::Channel;
use torchrs_rendezvous::proof::flush;

/// How much is encrypted at a time.
const CHUNK: usize = 128 << 10;

pub(crate) struct Wire {
    socket: TcpStream,
    /// What has to be sent before anything else.
    queued: Vec<u8>,
    secret: Option<Secret>,
}

struct Secret {
    channel: Channel,
    /// Decrypted bytes; those before `used` have been taken.
    plain: Vec<u8>,
    used: usize,
    encrypted: Box<[u8]>,
    /// Room for a chunk before it is encrypted.
    chunk: Vec<u8>,
}

impl Wire {
    /// Of a socket that does not block. With a channel, all bytes go through it.
    pub fn new(socket: TcpStream, channel: Option<Channel>) -> Self {
        let secret = channel.map(|channel| Secret {
            channel,
            plain: Vec::new(),
            used: 0,
            encrypted: vec![0; CHUNK].into(),
            chunk: Vec::new(),
        });
        Wire { socket, queued: Vec::new(), secret }
    }

    /// The addresses of this end and of the other.
    pub fn ends(&self) -> io::Result<[SocketAddr; 2]> {
        Ok([self.socket.local_addr()?, self.socket.peer_addr()?])
    }

    /// Sends a part of `parts`, and says how many bytes that was.
    pub fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some(secret) = &mut self.secret else { return send(&self.socket, parts) };
        secret.chunk.clear();
        for part in parts {
            let room = CHUNK - secret.chunk.len();
            secret.chunk.extend_from_slice(&part[..part.len().min(room)]);
        }
        secret.channel.send(&secret.chunk);
        match flush(&self.socket, &mut secret.channel) {
            Ok(()) => Ok(secret.chunk.len()),
            // They are taken; the rest goes with the next call.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(secret.chunk.len()),
            Err(error) => Err(error),
        }
    }

    /// Takes all of `bytes`, to be sent by this or a later [`flush`](Self::flush).
    pub fn queue(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.secret {
            Some(secret) => secret.channel.send(bytes),
            None => self.queued.extend_from_slice(bytes),
        }
        self.flush().map(drop)
    }

    /// Sends what was taken and not yet sent: whether nothing is left.
    pub fn flush(&mut self) -> io::Result<bool> {
        let flushed = match &mut self.secret {
            Some(secret) => flush(&self.socket, &mut secret.channel),
            None => loop {
                if self.queued.is_empty() {
                    break Ok(());
                }
                match send(&self.socket, &[IoSlice::new(&self.queued)]) {
                    Ok(count) => drop(self.queued.drain(..count)),
                    Err(error) => break Err(error),
                }
            },
        };
        match flushed {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether [`flush`](Self::flush) has nothing to do.
    pub fn is_flushed(&self) -> bool {
        let secret = self.secret.as_ref();
        self.queued.is_empty() && secret.is_none_or(|secret| secret.channel.output().is_empty())
    }

    /// Fills a part of `room`; 0 at the connection's end.
    pub fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(secret) = &mut self.secret else { return again(|| (&self.socket).read(room)) };
        if secret.used == secret.plain.len() && secret.fill(&self.socket)? == 0 {
            return Ok(0);
        }
        let rest = &secret.plain[secret.used..];
        let some = rest.len().min(room.len());
        room[..some].copy_from_slice(&rest[..some]);
        secret.used += some;
        Ok(some)
    }

    /// What the next bytes are, without taking them: how many were seen; 0 at the connection's end.
    pub fn peek(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(secret) = &mut self.secret else {
            let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
            return again(|| Ok(recv(self.socket.as_raw_fd(), room, flags)?));
        };
        if secret.plain.len() - secret.used < room.len() {
            match secret.fill(&self.socket) {
                Err(_) if secret.plain.len() > secret.used => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        let rest = &secret.plain[secret.used..];
        let some = rest.len().min(room.len());
        room[..some].copy_from_slice(&rest[..some]);
        Ok(some)
    }

    /// Sends no more. What was sent arrives.
    pub fn end(&self) {
        // It may be gone already.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Secret {
    /// Takes what came, till some of it can be read; 0 at the connection's end.
    fn fill(&mut self, mut socket: &TcpStream) -> io::Result<usize> {
        self.plain.drain(..self.used);
        self.used = 0;
        loop {
            let count = again(|| socket.read(&mut self.encrypted))?;
            if count == 0 {
                return Ok(0);
            }
            let messages = self.channel.receive(&self.encrypted[..count]);
            let before = self.plain.len();
            for message in messages.map_err(io::Error::other)? {
                self.plain.extend_from_slice(&message);
            }
            if self.plain.len() > before {
                return Ok(self.plain.len() - before);
            }
        }
    }
}

/// Never a signal, when the other side is gone.
fn send(socket: &TcpStream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    again(|| Ok(sendmsg::<()>(socket.as_raw_fd(), parts, &[], flags, None)?))
}

fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}
