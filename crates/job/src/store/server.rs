//! The store server: one thread that waits on all its sockets with epoll and hands what arrives to
//! the state behind it. A connection that breaks the protocol is dropped; the others do not notice.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt,
    listen, socket, socketpair, sockopt,
};
use nix::unistd::getuid;
use parking_lot::Mutex;

use super::hosts::{HOSTS, Hosts, Keys, OF_HOST, Uplink, keys_of, welcomes};
use super::packet;
use super::state::{ConnectionId, Outgoing, StoreState};
use super::wire::{Assembler, Reply, Request, decode, encode, packets};
use torchrs_error::{Context, Error, Result};

const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// A key-value store for the workers of a job, served by a thread of this process (the launcher,
/// or rank 0 of a job without one). Stops, and lets every client know, when dropped.
///
/// ```
/// use std::time::Duration;
/// use torchrs::distributed::{Store, StoreServer};
///
/// # fn main() -> torchrs::Result<()> {
/// let server = StoreServer::start()?;
/// let store = Store::connect_fd(server.connect()?)?;
/// store.set("epoch", b"3")?;
/// assert_eq!(store.get("epoch", Duration::from_secs(1))?, b"3");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StoreServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What other threads hand to the server's thread; it is woken through `wake`.
#[derive(Debug)]
struct Shared {
    wake: EventFd,
    stop: AtomicBool,
    arrivals: Mutex<Vec<OwnedFd>>,
    mail: Mutex<Vec<Mail>>,
}

/// What this process, or another host, has for the server.
#[derive(Debug)]
enum Mail {
    /// A key and a value that this process sets.
    Told(String, Vec<u8>),
    /// A host's server asks.
    Asked { host: u64, request: Vec<u8> },
    /// The job's server answers.
    Answered { number: u64, reply: Vec<u8> },
    /// A host is no more: what it waited for is forgotten.
    Gone { host: u64 },
}

impl StoreServer {
    /// Starts a server that is reached only through [`connect`](Self::connect): no name, no port.
    ///
    /// ```
    /// use torchrs::distributed::{Store, StoreServer};
    /// let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// drop(server);
    /// assert!(store.set("key", b"value").is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the system is out of descriptors or threads.
    pub fn start() -> Result<Self> {
        Self::spawn(None, None)
    }

    /// Starts the server of one host of several. Keys that begin with [`OF_HOST`], and all that hold descriptors, are
    /// its own. The others are the job's: with `holds_job` they are here, too, else `uplink` is asked for them.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_among_hosts(uplink: Box<dyn Uplink>, holds_job: bool) -> Result<Self> {
        Self::spawn(None, Some(Hosts::new(uplink, holds_job)))
    }

    /// A request that another host's server gave to its [`Uplink`].
    pub fn asked(&self, host: u64, request: Vec<u8>) {
        self.shared.post(Mail::Asked { host, request });
    }

    /// The answer to what this server has asked its [`Uplink`].
    pub fn answered(&self, number: u64, reply: Vec<u8>) {
        self.shared.post(Mail::Answered { number, reply });
    }

    /// Another host is no more.
    pub fn host_gone(&self, host: u64) {
        self.shared.post(Mail::Gone { host });
    }

    /// Starts a server that also listens on the abstract unix socket `name` (no file appears).
    /// Only processes of the same user are let in.
    ///
    /// ```
    /// use torchrs::distributed::{Store, StoreServer};
    /// let name = format!("job-{}", std::process::id());
    /// let server = StoreServer::listen(&name)?;
    /// assert!(StoreServer::listen(&name).unwrap_err().to_string().contains("is served by another process"));
    /// Store::connect_name(&name, std::time::Duration::from_secs(60))?.set("key", b"value")?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the name is taken, [`Error::Os`] as [`start`](Self::start).
    pub fn listen(name: &str) -> Result<Self> {
        let address = UnixAddr::new_abstract(name.as_bytes())
            .context(|| format!("abstract socket name `@{name}`"))?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .context(|| "socket for the store")?;
        match bind(listener.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::EADDRINUSE) => {
                return Err(Error::Store(format!(
                    "`@{name}` is served by another process already"
                )));
            }
            Err(error) => return Err(Error::os(format!("bind `@{name}`"), error)),
        }
        listen(&listener, Backlog::new(128).unwrap_or(Backlog::MAXCONN))
            .context(|| format!("listen on `@{name}`"))?;
        Self::spawn(Some(listener), None)
    }

    fn spawn(listener: Option<OwnedFd>, hosts: Option<Hosts>) -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags).context(|| "eventfd for the store")?;
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(|| "epoll for the store")?;
        epoll
            .add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))
            .context(|| "epoll for the store")?;
        if let Some(listener) = &listener {
            epoll
                .add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))
                .context(|| "epoll for the store")?;
        }
        let arrivals = Mutex::new(Vec::new());
        let (stop, mail) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { wake, stop, arrivals, mail });
        let mut server = Server {
            shared: shared.clone(),
            epoll,
            listener,
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            state: StoreState::default(),
            hosts,
        };
        let thread = std::thread::Builder::new()
            .name("torchrs-store".into())
            .spawn(move || server.run())
            .context(|| "start the store's thread")?;
        Ok(StoreServer { shared, thread: Some(thread) })
    }

    /// The client's end of a new connection, for `torchrs::distributed::Store::connect_fd`
    /// or to be inherited by a worker (as the descriptor that `TORCHRS_STORE_FD` names). It is
    /// close-on-exec: clear that, or duplicate it, for the child that is to have it.
    ///
    /// ```
    /// use torchrs::distributed::{Store, StoreServer};
    /// use torchrs::multiprocessing::{Process, handles::Descriptor};
    /// let server = StoreServer::start()?;
    /// let worker = |socket: Descriptor| Store::connect_fd(socket.0)?.set("hello", b"from a child");
    /// Process::spawn(worker, Descriptor(server.connect()?))?.join()?;
    /// assert_eq!(Store::connect_fd(server.connect()?)?.try_get("hello")?.unwrap(), b"from a child");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the system is out of descriptors.
    pub fn connect(&self) -> Result<OwnedFd> {
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)
            .context(|| "socket pair for a connection to the store")?;
        self.shared.arrivals.lock().push(ours);
        self.shared.notify();
        Ok(theirs)
    }

    /// Says that the process of a rank has ended, and how, for whoever waits for it to join: a rank that
    /// ends in peace before it has joined would be waited for until the deadline.
    pub fn rank_ended(&self, rank: usize, how: &str) {
        self.tell(&ended_key(rank), how.as_bytes());
    }

    /// Sets a key, before whoever connects later can ask for it.
    pub fn tell(&self, key: &str, value: &[u8]) {
        self.shared.post(Mail::Told(key.to_owned(), value.to_owned()));
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn post(&self, mail: Mail) {
        self.mail.lock().push(mail);
        self.notify();
    }

    fn notify(&self) {
        // Fails only when the counter is at its maximum, and then the thread is awake anyway.
        let _ = self.wake.write(1);
    }
}

/// Where it is said how the process of a rank has ended.
pub fn ended_key(rank: usize) -> String {
    format!("torchrs/ended/{rank}")
}

/// One client.
struct Connection {
    socket: OwnedFd,
    assembler: Assembler,
    /// Packets that the client's buffer had no room for. While there are any nothing more is read
    /// from this client, so it cannot make the server hoard.
    outbox: VecDeque<(Vec<u8>, Vec<Arc<OwnedFd>>)>,
}

struct Server {
    shared: Arc<Shared>,
    epoll: Epoll,
    listener: Option<OwnedFd>,
    connections: HashMap<ConnectionId, Connection>,
    next: ConnectionId,
    state: StoreState<Arc<OwnedFd>>,
    /// Of a job over several hosts.
    hosts: Option<Hosts>,
}

/// The connection is to be dropped: it has closed, or broken the protocol.
struct Gone;

impl Server {
    fn run(&mut self) {
        let mut events = [EpollEvent::empty(); 32];
        let mut buffer = packet::buffer();
        loop {
            let ready = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                // Only a bad descriptor or address can be at fault, that is, a bug: the clients
                // see the connection close.
                Err(_) => return,
            };
            for event in &events[..ready] {
                match event.data() {
                    WAKE => {
                        let _ = self.shared.wake.read();
                        if self.shared.stop.load(Ordering::Acquire) {
                            return;
                        }
                        let arrivals = std::mem::take(&mut *self.shared.arrivals.lock());
                        arrivals.into_iter().for_each(|socket| self.add(socket));
                        self.read_mail();
                    }
                    LISTENER => self.accept(),
                    id => {
                        let mut out = Vec::new();
                        if self.serve(id, event.events(), &mut buffer, &mut out).is_err() {
                            self.remove(id);
                        }
                        self.deliver(out);
                    }
                }
            }
        }
    }

    /// Does what this process and other hosts have for it.
    fn read_mail(&mut self) {
        let mail = std::mem::take(&mut *self.shared.mail.lock());
        for one in mail {
            let mut out = Vec::new();
            match one {
                Mail::Told(key, value) => {
                    let request = Request::Set { key: &key, value: &value };
                    // The answer goes to no connection.
                    let _ = self.apply(WAKE, 0, request, Vec::new(), &mut out);
                }
                Mail::Asked { host, request } => {
                    // A host's server is of this job, and passes on nothing with descriptors.
                    if let Ok(request) = decode::<Request>(&request)
                        && (keys_of(&request.body) == Keys::Job
                            || matches!(request.body, Request::Cancel { .. }))
                    {
                        if let Some(hosts) = self.hosts.as_ref().filter(|_| welcomes(&request.body))
                        {
                            hosts.uplink.welcome();
                        }
                        let (from, id) = (HOSTS | host, request.id);
                        let _ = self.state.apply(from, id, request.body, Vec::new(), &mut out);
                    }
                }
                Mail::Answered { number, reply } => {
                    let waiter = self.hosts.as_mut().and_then(|hosts| hosts.answered(number));
                    if let (Some((to, id)), Ok(reply)) = (waiter, decode::<Reply>(&reply)) {
                        out.push(Outgoing { to, id, reply: reply.body, fds: Vec::new() });
                    }
                }
                Mail::Gone { host } => self.state.disconnect(HOSTS | host),
            }
            self.deliver(out);
        }
    }

    /// Carries out a request, or passes it on to where its keys are.
    fn apply(
        &mut self,
        from: ConnectionId,
        id: u64,
        request: Request<'_>,
        fds: Vec<Arc<OwnedFd>>,
        out: &mut Vec<Outgoing<Arc<OwnedFd>>>,
    ) -> Result<(), Gone> {
        if let Some(hosts) = self.hosts.as_ref().filter(|hosts| hosts.holds_job)
            && welcomes(&request)
        {
            hosts.uplink.welcome();
        }
        let Some(hosts) = self.hosts.as_mut().filter(|hosts| !hosts.holds_job) else {
            return self.state.apply(from, id, request, fds, out).map_err(|_| Gone);
        };
        if let Request::Cancel { id } = request {
            hosts.cancel(from, Some(id));
        }
        match keys_of(&request) {
            Keys::Host => self.state.apply(from, id, request, fds, out).map_err(|_| Gone),
            Keys::Job if fds.is_empty() => {
                let number =
                    if from == WAKE { hosts.unanswered() } else { hosts.pass_on(from, id) };
                hosts.uplink.ask(number, encode(number, &request));
                Ok(())
            }
            Keys::Job => Err(Gone),
            Keys::Mixed => {
                let why = format!("wait for keys that begin with `{OF_HOST}` and others apart");
                out.push(Outgoing { to: from, id, reply: Reply::Refused(why), fds: Vec::new() });
                Ok(())
            }
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        // An error (the client has gone again, no descriptors left) concerns that client only.
        let Ok(raw) = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) else { return };
        // SAFETY: accept4 has just made this descriptor, and nothing else knows of it.
        let socket = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(raw) };
        let peer = getsockopt(&socket, sockopt::PeerCredentials);
        if peer.is_ok_and(|peer| peer.uid() == getuid().as_raw()) {
            self.add(socket);
        }
    }

    fn add(&mut self, socket: OwnedFd) {
        let id = self.next;
        self.next += 1;
        if self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, id)).is_ok() {
            let connection =
                Connection { socket, assembler: Assembler::default(), outbox: VecDeque::new() };
            self.connections.insert(id, connection);
        }
    }

    fn remove(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            let _ = self.epoll.delete(&connection.socket);
        }
        self.state.disconnect(id);
        if let Some(hosts) = &mut self.hosts {
            hosts.cancel(id, None);
        }
    }

    /// Reads one packet of a connection, or sends what was left over for it.
    fn serve(
        &mut self,
        id: ConnectionId,
        ready: EpollFlags,
        buffer: &mut [u8],
        out: &mut Vec<Outgoing<Arc<OwnedFd>>>,
    ) -> Result<(), Gone> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        if ready.contains(EpollFlags::EPOLLOUT) {
            return connection.flush(id, &self.epoll);
        }
        let packet =
            match packet::receive(connection.socket.as_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(Some(packet)) => packet,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                Ok(None) | Err(_) => return Err(Gone),
            };
        match connection.assembler.push(&buffer[..packet.len]) {
            Ok(Some(message)) => {
                let request = decode::<Request>(&message).map_err(|_| Gone)?;
                let fds = packet.fds.into_iter().map(Arc::new).collect();
                self.apply(id, request.id, request.body, fds, out)
            }
            Ok(None) if packet.fds.is_empty() => Ok(()),
            Ok(None) | Err(_) => Err(Gone),
        }
    }

    fn deliver(&mut self, answers: Vec<Outgoing<Arc<OwnedFd>>>) {
        for Outgoing { to, id, reply, fds } in answers {
            if let Some(hosts) = self.hosts.as_ref().filter(|_| to & HOSTS != 0) {
                hosts.uplink.reply(to & !HOSTS, id, encode::<Reply>(id, &reply));
                continue;
            }
            let Some(connection) = self.connections.get_mut(&to) else { continue };
            let message = packets(&encode::<Reply>(id, &reply));
            let last = message.len() - 1;
            for (i, bytes) in message.into_iter().enumerate() {
                let fds = if i == last { fds.clone() } else { Vec::new() };
                connection.outbox.push_back((bytes, fds));
            }
            if connection.flush(to, &self.epoll).is_err() {
                self.remove(to);
            }
        }
    }
}

impl Connection {
    /// Sends as much as fits, and waits for room rather than for requests if something is left.
    fn flush(&mut self, id: ConnectionId, epoll: &Epoll) -> Result<(), Gone> {
        while let Some((bytes, fds)) = self.outbox.front() {
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            match packet::send(self.socket.as_fd(), bytes, &fds) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(_) => return Err(Gone),
            }
        }
        let waits_for =
            if self.outbox.is_empty() { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLOUT };
        let mut event = EpollEvent::new(waits_for, id);
        epoll.modify(&self.socket, &mut event).map_err(|_| Gone)
    }
}
