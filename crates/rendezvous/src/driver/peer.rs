//! A connection to another launcher: a socket and the [`Channel`] on it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::dial::Reached;
use crate::channel::Channel;

/// Bytes that wait for a peer that does not read them. More, and it is given up.
const MOST_OUTPUT: usize = 256 << 20;
/// What an unproved peer has sent at most: two greetings' worth.
const READ: usize = 64 << 10;

/// One end of a connection.
pub(super) struct Peer {
    socket: TcpStream,
    channel: Channel,
    pub address: SocketAddr,
    /// Closed once what was sent is out.
    pub closing: bool,
}

/// Why a connection is no more.
pub(super) type Gone = String;

impl Peer {
    /// Of a caller, who has to prove itself.
    pub fn of_caller(socket: TcpStream, key: &[u8; 32]) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let address = socket.peer_addr()?;
        Ok(Peer { socket, channel: Channel::responder(key), address, closing: false })
    }

    /// Of a launcher that was called and has proved itself.
    pub fn of_called(reached: Reached) -> Self {
        let Reached { socket, channel, address, .. } = reached;
        Peer { socket, channel, address, closing: false }
    }

    /// The address of this host's end.
    pub fn own_address(&self) -> Option<IpAddr> {
        self.socket.local_addr().ok().map(|address| address.ip())
    }

    pub fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    /// Whether it has bytes to send.
    pub fn has_output(&self) -> bool {
        !self.channel.output().is_empty()
    }

    /// Takes a message; [`flush`](Self::flush) sends it.
    pub fn send<T: Serialize>(&mut self, message: &T) {
        self.send_encoded(&encode(message));
    }

    /// The same of a message that [`encode`] has encoded.
    pub fn send_encoded(&mut self, message: &[u8]) {
        self.channel.send(message);
    }

    /// Sends as much as the socket takes.
    pub fn flush(&mut self) -> Result<(), Gone> {
        while !self.channel.output().is_empty() {
            match self.socket.write(self.channel.output()) {
                Ok(0) => return Err("the connection is closed".into()),
                Ok(count) => self.channel.sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        match self.channel.output().len() > MOST_OUTPUT {
            true => Err("it does not read what is sent to it".into()),
            false => Ok(()),
        }
    }

    /// What has come: whole messages, and why nothing more will.
    pub fn receive<T: DeserializeOwned>(&mut self) -> (Vec<T>, Option<Gone>) {
        let (mut messages, mut buffer) = (Vec::new(), vec![0; READ]);
        loop {
            let count = match self.socket.read(&mut buffer) {
                Ok(0) => {
                    return (messages, Some("the other side has closed the connection".into()));
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (messages, None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return (messages, Some(error.to_string())),
            };
            let whole = match self.channel.receive(&buffer[..count]) {
                Ok(whole) => whole,
                Err(broken) => return (messages, Some(broken.to_string())),
            };
            for bytes in whole {
                match postcard::from_bytes(&bytes) {
                    Ok(message) => messages.push(message),
                    Err(_) => {
                        return (messages, Some("it sent a message of another release".into()));
                    }
                }
            }
        }
    }
}

/// A message in bytes.
pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("a message of plain data")
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
