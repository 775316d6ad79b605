//! The socket on which a process is found, and the thread that lets nobody in who has not proved itself.
//!
//! The thread answers at once, whatever the process is busy with: so that for the side that connects a missing answer
//! means the network, or the wrong host. It sleeps while nothing comes.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Backlog, listen};
use torchrs_error::{Context, Error, Result};
use torchrs_rendezvous::channel::Channel;
use torchrs_rendezvous::proof::Proof;

use crate::addresses::Addresses;
use crate::proof::{Answer, Hello, LIMIT};

/// The most connections that have not proved themselves. One more takes the place of the oldest.
const MOST_UNPROVED: usize = 128;
/// The most that have, and that nobody has asked for yet.
const MOST_PARKED: usize = 4096;
/// How long to leave a listening socket alone that gives no connection: the process has too many open files.
const PAUSE: Duration = Duration::from_millis(20);

const WAKE: u64 = u64::MAX;

/// Where other processes of the job connect to this one. One is enough for all its [`Links`](crate::Links).
///
/// Dropping it closes the sockets; connections that were made stay.
pub struct Listener {
    addresses: Addresses,
    key: [u8; 32],
    parked: Arc<Parked>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// Connections that are proved and wait for the call that wants them.
#[derive(Default)]
struct Parked {
    list: Mutex<BTreeMap<Name, Accepted>>,
    arrived: Condvar,
}

/// Group, from, to, stream.
type Name = (Vec<u8>, u32, u32, u16);

/// A connection that is proved.
pub(crate) struct Accepted {
    pub hello: Hello,
    pub socket: TcpStream,
    pub channel: Channel,
}

impl Listener {
    /// Listens at each of `at`, and nowhere else; port 0 is any free one. `key` is of the job's token, by
    /// [`JobToken::key`](torchrs_rendezvous::token::JobToken::key). Others are told the addresses of `offer` in the
    /// place of those listened at, where it is not empty: where one of `at` is unspecified (`0.0.0.0`, `::`), they
    /// cannot be told that one.
    ///
    /// # Errors
    /// [`Error::Os`] names the address that cannot be listened at; [`Error::Argument`] one of `offer` at which nobody
    /// listens.
    pub fn bind(at: &[SocketAddr], offer: &[IpAddr], key: [u8; 32]) -> Result<Self> {
        let mut sockets = Vec::new();
        let mut bound = Vec::new();
        for address in at {
            let listening = || format!("listen at {address}");
            let socket = TcpListener::bind(address).context(listening)?;
            socket.set_nonblocking(true).context(listening)?;
            // The standard library's queue of 128 would be full after as many connections of strangers.
            listen(&socket, Backlog::MAXCONN).context(listening)?;
            bound.push(socket.local_addr().context(listening)?);
            sockets.push(socket);
        }
        let addresses = Addresses::new(offered(&bound, offer)?)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let wake = Arc::new(wake.context(|| "make an eventfd")?);
        let parked = Arc::new(Parked::default());
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(|| "make an epoll instance")?;
        let watch = |event: EpollEvent, added: nix::Result<()>| {
            added.context(|| format!("watch descriptor {}", event.data()))
        };
        for (i, socket) in sockets.iter().enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, i as u64);
            watch(event, epoll.add(socket, event))?;
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, WAKE);
        watch(event, epoll.add(&*wake, event))?;
        let id = addresses.id;
        let next = sockets.len() as u64;
        let unproved = BTreeMap::new();
        let mut door = Door { epoll, sockets, unproved, next, key, id, parked: parked.clone() };
        let thread = std::thread::Builder::new().name("torchrs-links".into());
        let thread = thread.spawn(move || door.keep()).context(|| "start a listener's thread")?;
        Ok(Listener { addresses, key, parked, wake, thread: Some(thread) })
    }

    /// Where other processes reach this one.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// The connections to place `to` of a group that are there, after a wait of up to `limit` for another one.
    pub(crate) fn take(&self, group: &[u8], to: u32, limit: Duration) -> Vec<Accepted> {
        let mut list = self.parked.lock();
        let wanted = |list: &BTreeMap<Name, Accepted>| {
            list.keys().any(|name| name.0 == group && name.2 == to)
        };
        if !wanted(&list) {
            let waited = self.parked.arrived.wait_timeout(list, limit);
            list = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut taken = Vec::new();
        let names: Vec<Name> =
            list.keys().filter(|name| name.0 == group && name.2 == to).cloned().collect();
        for name in names {
            taken.extend(list.remove(&name));
        }
        taken
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A counter that is not read cannot refuse one more.
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Parked {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Accepted>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the same name is of a try that was given up.
    fn add(&self, accepted: Accepted) {
        let hello = &accepted.hello;
        let name = (hello.group.clone(), hello.from, hello.to, hello.stream);
        self.lock().insert(name, accepted);
        self.arrived.notify_all();
    }
}

/// What the others are told.
fn offered(bound: &[SocketAddr], offer: &[IpAddr]) -> Result<Vec<SocketAddr>> {
    if offer.is_empty() {
        if let Some(open) = bound.iter().find(|address| address.ip().is_unspecified()) {
            let what =
                format!("{open} is no address that others can connect to; say which to offer");
            return Err(Error::argument("Listener::bind", "offer", what));
        }
        return Ok(bound.to_vec());
    }
    let socket = |ip: &IpAddr| {
        let own = bound.iter().find(|address| address.ip() == *ip);
        // A socket at :: takes IPv4 too, unless the system is told otherwise.
        let open = bound
            .iter()
            .find(|address| address.ip().is_unspecified() && (address.is_ipv6() || ip.is_ipv4()));
        let found = own.or(open).map(|address| SocketAddr::new(*ip, address.port()));
        found.ok_or_else(|| {
            let what = format!("{ip} is offered, and nobody listens there; bound are {bound:?}");
            Error::argument("Listener::bind", "offer", what)
        })
    };
    offer.iter().map(socket).collect()
}

/// What the thread has.
struct Door {
    epoll: Epoll,
    sockets: Vec<TcpListener>,
    /// By number, so the oldest first.
    unproved: BTreeMap<u64, (Instant, Proof)>,
    next: u64,
    key: [u8; 32],
    id: [u8; 16],
    parked: Arc<Parked>,
}

impl Door {
    fn keep(&mut self) {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let timeout =
                self.unproved.first_key_value().map_or(EpollTimeout::NONE, |(_, first)| {
                    let left = LIMIT.saturating_sub(first.0.elapsed()).as_millis() + 1;
                    EpollTimeout::try_from(left as i32).unwrap_or(EpollTimeout::MAX)
                });
            // Interrupted by a signal, or out of memory for a moment.
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            for event in &events[..count] {
                match event.data() {
                    WAKE => return,
                    socket if (socket as usize) < self.sockets.len() => {
                        self.accept(socket as usize)
                    }
                    number => self.go_on(number),
                }
            }
            while let Some(first) = self.unproved.first_entry()
                && first.get().0.elapsed() >= LIMIT
            {
                first.remove();
            }
        }
    }

    fn accept(&mut self, socket: usize) {
        // Not for ever: others have to be heard too.
        for _ in 0..MOST_UNPROVED {
            let stream = match self.sockets[socket].accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Too many open files, or one that was given up in the queue.
                Err(_) => {
                    if self.evict().is_none() {
                        std::thread::sleep(PAUSE);
                    }
                    return;
                }
            };
            if self.unproved.len() >= MOST_UNPROVED {
                self.evict();
            }
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
                continue;
            }
            let number = self.next;
            self.next += 1;
            if self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, number)).is_ok() {
                let proof = Proof::of_listener(stream, &self.key);
                self.unproved.insert(number, (Instant::now(), proof));
                // The greeting goes out at once.
                self.go_on(number);
            }
        }
    }

    /// Drops the oldest that has said nothing, else the oldest.
    fn evict(&mut self) -> Option<()> {
        let silent = self.unproved.iter().find(|(_, (_, proof))| !proof.has_spoken);
        let number = *silent.or(self.unproved.first_key_value())?.0;
        self.unproved.remove(&number);
        Some(())
    }

    fn go_on(&mut self, number: u64) {
        let Some((_, proof)) = self.unproved.get_mut(&number) else { return };
        let heard = proof.go_on();
        let Ok(Some(message)) = heard else {
            if heard.is_err() {
                // Closed with it.
                self.unproved.remove(&number);
            }
            return;
        };
        let Some((_, mut proof)) = self.unproved.remove(&number) else { return };
        let Some(hello) = Hello::decode(&message) else { return };
        // Who takes it must not be woken here.
        let _ = self.epoll.delete(&proof.socket);
        let answer = if hello.listener != self.id {
            Answer::WrongProcess
        } else if self.parked.lock().len() >= MOST_PARKED {
            Answer::Busy
        } else {
            Answer::Welcome
        };
        let is_welcome = answer == Answer::Welcome;
        if proof.say(&[answer as u8]).is_ok() && is_welcome {
            let Proof { socket, channel, .. } = proof;
            self.parked.add(Accepted { hello, socket, channel });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_can_be_reached() {
        let bound = |text: &str| vec![text.parse::<SocketAddr>().unwrap()];
        let ip = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        assert!(offered(&bound("0.0.0.0:5"), &[]).is_err());
        assert_eq!(offered(&bound("0.0.0.0:5"), &ip("10.0.0.1")).unwrap(), bound("10.0.0.1:5"));
        assert!(offered(&bound("0.0.0.0:5"), &ip("::1")).is_err());
        assert_eq!(offered(&bound("[::]:5"), &ip("10.0.0.1")).unwrap(), bound("10.0.0.1:5"));
        assert!(offered(&bound("127.0.0.1:5"), &ip("10.0.0.1")).is_err());
        assert_eq!(offered(&bound("127.0.0.1:5"), &[]).unwrap(), bound("127.0.0.1:5"));
    }
}
