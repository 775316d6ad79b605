//! What a worker and its host's stand-in tell each other: one packet per message on a socket that stays open as long
//! as the worker lives, so that its end tells the worker's end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::MsgFlags;
use serde::{Deserialize, Serialize};

use crate::distributed::store::packet;

/// Grows with every change of the messages: a job's workers may be built from different releases.
pub(super) const VERSION: u32 = 1;
/// Longest text in a message, in bytes.
const LONGEST: usize = 16 << 10;

/// Who a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub version: u32,
    pub rank: usize,
    pub local_rank: usize,
    pub local_world_size: usize,
    pub world_size: usize,
}

/// From a worker.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromWorker {
    /// The first message.
    Hello(Hello),
    /// It ends by itself; not sent where a signal ends it.
    Goodbye,
}

/// To a worker.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToWorker {
    /// Its connection to the store comes with this.
    Welcome,
    /// It cannot take part: why.
    Refused(String),
    /// For the user's eyes.
    Note(String),
    /// The job has failed elsewhere: how.
    Failed(String),
}

/// Sends a message without waiting.
pub(super) fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = postcard::to_allocvec(message).map_err(|_| Errno::EINVAL)?;
    packet::send(socket, &bytes, fds)
}

/// What has come: a message, with descriptors; nothing where the other side has closed, or sent what is no message.
pub(super) fn receive<T: for<'a> Deserialize<'a>>(
    socket: &OwnedFd,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
    let Some(packet) = packet::receive(socket.as_fd(), buffer, flags)? else { return Ok(None) };
    let message = postcard::take_from_bytes(&buffer[..packet.len]).ok();
    Ok(message.filter(|(_, rest)| rest.is_empty()).map(|(message, _)| (message, packet.fds)))
}

/// A text that fits a packet.
pub(super) fn cut(text: &str) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
