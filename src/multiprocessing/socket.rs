//! Whole messages with file descriptors attached, over a unix `SOCK_SEQPACKET` socket. This is the
//! wire under [`channel`](super::channel): it knows bytes and descriptors, no types. A datagram is
//! atomic, so one end may be shared by several threads and processes.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};

use crate::error::{Context, Error, Result};

/// Payloads above this many bytes travel in a memfd: a datagram has to fit the socket's send
/// buffer (208 KiB by default, less on hosts that were tuned down).
const INLINE_BYTES: usize = 64 << 10;
/// The kernel takes at most this many descriptors with one datagram (`SCM_MAX_FD`).
const MAX_FDS: usize = 253;

/// First byte of a datagram: the payload is in a memfd, the last descriptor of the message.
const LARGE: u8 = 1;
/// First byte of a datagram: its only descriptor is a socket in which the message's descriptors
/// wait, because there are more than [`MAX_FDS`].
const SIDE_SOCKET: u8 = 2;

/// Something with a descriptor that is being sent; kept alive until it has been.
pub(super) type Handle = Arc<dyn AsFd + Send + Sync>;

/// What is sent: bytes, and the descriptors to which the bytes refer by position.
pub(super) struct Outgoing {
    pub bytes: Vec<u8>,
    pub handles: Vec<Handle>,
}

/// What arrives of an [`Outgoing`].
#[derive(Debug)]
pub(super) struct Incoming {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

/// Why a packet was not sent or received.
#[derive(Debug)]
pub(super) enum Failure {
    /// The other side is gone.
    Disconnected,
    /// The deadline passed.
    TimedOut,
    /// Anything else.
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

/// Two connected sockets, both close-on-exec.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .context(|| "make a socket pair")
}

/// Sends one packet; waits for room in the socket until `deadline` (for ever when `None`, though a
/// peer that dies ends the wait).
pub(super) fn send(
    socket: BorrowedFd,
    mut packet: Outgoing,
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let mut flags = 0;
    if packet.bytes.len() > INLINE_BYTES {
        packet.handles.push(Arc::new(spill(&packet.bytes)?));
        packet.bytes.clear();
        flags |= LARGE;
    }
    if packet.handles.len() > MAX_FDS {
        packet.handles = vec![Arc::new(side_socket(&packet.handles)?)];
        flags |= SIDE_SOCKET;
    }
    let parts = [IoSlice::new(std::slice::from_ref(&flags)), IoSlice::new(&packet.bytes)];
    send_datagram(socket, &parts, &packet.handles, deadline)
}

/// Receives one packet. Descriptors are close-on-exec from the start.
pub(super) fn receive(socket: BorrowedFd, deadline: Option<Instant>) -> Result<Incoming, Failure> {
    let (flags, mut packet) = receive_datagram(socket, INLINE_BYTES, deadline)?;
    if flags & SIDE_SOCKET != 0 {
        let side = packet.fds.pop().ok_or_else(|| malformed("the side socket is missing"))?;
        packet.fds = drain_side_socket(&side)?;
    }
    if flags & LARGE != 0 {
        let memory =
            packet.fds.pop().ok_or_else(|| malformed("the payload's memory is missing"))?;
        packet.bytes = read_back(memory)?;
    }
    Ok(packet)
}

fn malformed(what: &str) -> Error {
    Error::Other(format!("malformed message on a channel: {what}"))
}

/// Writes a large payload to a memfd.
fn spill(bytes: &[u8]) -> Result<OwnedFd> {
    let what = || format!("pass a message of {} bytes through shared memory", bytes.len());
    let fd = memfd_create(c"torchrs-message", MFdFlags::MFD_CLOEXEC).context(what)?;
    let mut file = File::from(fd);
    file.write_all(bytes).context(what)?;
    Ok(file.into())
}

/// Reads a payload that [`spill`] wrote. Reading, rather than mapping, makes it safe against a
/// sender that changes the file.
fn read_back(memory: OwnedFd) -> Result<Vec<u8>> {
    let file = File::from(memory);
    let what = || "read a large message from shared memory";
    let length = file.metadata().context(what)?.len();
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).context(what)?;
    Ok(bytes)
}

/// Puts all descriptors into a fresh socket and returns the end to read them from. Sending that
/// end keeps the message one atomic datagram, whatever the number of descriptors.
fn side_socket(handles: &[Handle]) -> Result<OwnedFd, Failure> {
    let (ours, theirs) = pair()?;
    for chunk in handles.chunks(MAX_FDS) {
        // Nobody reads yet, so a full socket would stay full: the deadline is now.
        send_datagram(ours.as_fd(), &[IoSlice::new(&[0])], chunk, Some(Instant::now())).map_err(
            |failure| match failure {
                Failure::TimedOut => Failure::Error(Error::Other(format!(
                    "one message cannot carry {} handles: a socket does not hold that many",
                    handles.len()
                ))),
                other => other,
            },
        )?;
    }
    Ok(theirs)
}

fn drain_side_socket(side: &OwnedFd) -> Result<Vec<OwnedFd>, Failure> {
    let mut all = Vec::new();
    loop {
        // Everything was queued before the socket was sent, and the other end is closed.
        match receive_datagram(side.as_fd(), 0, Some(Instant::now())) {
            Ok((_, mut packet)) => all.append(&mut packet.fds),
            Err(Failure::Disconnected) => return Ok(all),
            Err(other) => return Err(other),
        }
    }
}

/// Waits until `fd` has one of `events` (or an error or hang-up); false when `deadline` passed.
pub(super) fn wait_ready(
    fd: BorrowedFd,
    events: PollFlags,
    deadline: Option<Instant>,
) -> Result<bool> {
    poll_until(&mut [PollFd::new(fd, events)], deadline)
}

/// Waits until one of `fds` is ready; false when `deadline` passed.
pub(super) fn poll_until(fds: &mut [PollFd], deadline: Option<Instant>) -> Result<bool> {
    loop {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                // Rounded up, so that a wake-up is never early; far deadlines come round again.
                let millis = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(fds, timeout) {
            Ok(0) if deadline.is_some_and(|at| Instant::now() >= at) => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(Error::os("wait for a descriptor", e)),
        }
    }
}

fn send_datagram(
    socket: BorrowedFd,
    parts: &[IoSlice],
    handles: &[Handle],
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let raw: Vec<RawFd> = handles.iter().map(|h| h.as_fd().as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let mut flags = MsgFlags::MSG_NOSIGNAL;
    if deadline.is_some() {
        flags |= MsgFlags::MSG_DONTWAIT;
    }
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), parts, control, flags, None) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                if !wait_ready(socket, PollFlags::POLLOUT, deadline)? {
                    return Err(Failure::TimedOut);
                }
            }
            // A reset says that the peer left messages unread when it closed; the next call
            // tells whether somebody still listens.
            Err(Errno::ECONNRESET) => {}
            Err(Errno::EPIPE | Errno::ECONNREFUSED | Errno::ENOTCONN) => {
                return Err(Failure::Disconnected);
            }
            Err(e) => {
                let what = format!("send a message with {} handles", raw.len());
                return Err(Failure::Error(Error::os(what, e)));
            }
        }
    }
}

/// One datagram: its first byte, and the rest, of at most `capacity` bytes.
fn receive_datagram(
    socket: BorrowedFd,
    capacity: usize,
    deadline: Option<Instant>,
) -> Result<(u8, Incoming), Failure> {
    // Room for MAX_FDS descriptors, in words so that the headers are aligned.
    const CONTROL_BYTES: usize =
        // SAFETY: CMSG_SPACE only computes a size.
        unsafe { libc::CMSG_SPACE((MAX_FDS * size_of::<RawFd>()) as u32) as usize };
    let mut control = [0u64; CONTROL_BYTES.div_ceil(8)];
    let mut flags = libc::MSG_CMSG_CLOEXEC;
    if deadline.is_some() {
        flags |= libc::MSG_DONTWAIT;
    }
    let mut first = 0u8;
    let mut bytes: Vec<u8> = Vec::with_capacity(capacity);
    loop {
        let mut parts = [
            libc::iovec { iov_base: (&raw mut first).cast(), iov_len: 1 },
            libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: capacity },
        ];
        // SAFETY: msghdr is plain data for which all zeros is a valid value.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = parts.len();
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: header points to `parts`, `first`, `bytes` and `control`, which outlive the call.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        match Errno::result(length) {
            Ok(0) => return Err(Failure::Disconnected),
            Ok(length) => {
                // SAFETY: the kernel has just filled `header` and what it points to.
                let fds = unsafe { take_rights(&header) };
                if header.msg_flags & libc::MSG_CTRUNC != 0 {
                    let what = format!("receive a message's handles (only {} arrived)", fds.len());
                    return Err(Failure::Error(Error::os(what, Errno::EMFILE)));
                }
                if header.msg_flags & libc::MSG_TRUNC != 0 {
                    return Err(Failure::Error(malformed("it is longer than a message can be")));
                }
                // SAFETY: the kernel wrote `length` bytes, the first of them to `first`.
                unsafe { bytes.set_len(length as usize - 1) };
                return Ok((first, Incoming { bytes, fds }));
            }
            // ECONNRESET: the peer closed with unread messages; what it sent still waits here.
            Err(Errno::EINTR | Errno::ECONNRESET) => {}
            Err(Errno::EAGAIN) => {
                if !wait_ready(socket, PollFlags::POLLIN, deadline)? {
                    return Err(Failure::TimedOut);
                }
            }
            Err(e) => return Err(Failure::Error(Error::os("receive a message", e))),
        }
    }
}

/// Takes ownership of every descriptor in a received header, so that none leaks on an error.
///
/// # Safety
/// `header` was filled by a successful `recvmsg` and its buffers are still alive; it is passed
/// here once.
unsafe fn take_rights(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the CMSG macros walk the control buffer within msg_controllen; SCM_RIGHTS payloads
    // are an array of descriptors that the kernel installed for us and nobody else owns.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while let Some(c) = control.as_ref() {
            if c.cmsg_level == libc::SOL_SOCKET && c.cmsg_type == libc::SCM_RIGHTS {
                let bytes = c.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    fds
}
