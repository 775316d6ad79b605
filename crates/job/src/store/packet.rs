//! Packets with file descriptors over a unix `SOCK_SEQPACKET` socket: the only place of the store
//! that makes system calls on bytes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use super::wire::{MAX_FDS, MAX_PACKET};
use crate::deadline::Deadline;

/// What arrived: the bytes are in the caller's buffer.
#[derive(Debug)]
pub struct Packet {
    pub len: usize,
    pub fds: Vec<OwnedFd>,
}

/// A buffer for [`receive`]: one byte more than the largest packet, so that a larger one shows.
pub fn buffer() -> Vec<u8> {
    vec![0; MAX_PACKET + 1]
}

/// Receives one packet. `None`: the other side has closed (or sent an empty packet, which is not
/// part of the protocol), or sent more than a packet may hold.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> Result<Option<Packet>, Errno> {
    let mut ancillary = cmsg_space!([std::os::fd::RawFd; MAX_FDS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut ancillary), flags)?;
    let mut fds = Vec::new();
    if let Ok(messages) = message.cmsgs() {
        for cmsg in messages {
            if let ControlMessageOwned::ScmRights(raw) = cmsg {
                // SAFETY: the kernel has just made these descriptors for this process, and nothing
                // else knows of them.
                fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
    }
    let cut = message.flags.intersects(MsgFlags::MSG_CTRUNC | MsgFlags::MSG_TRUNC);
    let len = message.bytes;
    Ok((len != 0 && !cut).then_some(Packet { len, fds }))
}

/// Sends one packet without blocking; `EAGAIN` when the other side's buffer is full.
pub fn send(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let raw: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let ancillary = if raw.is_empty() { &rights[..0] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(packet)], ancillary, flags, None).map(drop)
}

/// Waits until a packet can be sent. `ETIMEDOUT` when the deadline passes first.
pub fn wait_writable(socket: BorrowedFd<'_>, deadline: &Deadline) -> Result<(), Errno> {
    loop {
        let mut entry = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        let timeout = PollTimeout::try_from(deadline.poll_millis()).unwrap_or(PollTimeout::MAX);
        match poll(&mut entry, timeout) {
            Ok(0) => return Err(Errno::ETIMEDOUT),
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}
