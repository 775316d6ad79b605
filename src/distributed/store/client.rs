//! The store's client. One thread per connection reads the answers and hands each to the call that
//! waits for it, so a `get` that waits for minutes keeps no other call from its answer.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect, shutdown, socket,
};
use nix::unistd::getuid;
use parking_lot::Mutex;
use torchrs_job::cluster::told_rank;
use torchrs_job::store::{LEADER, OF_HOST};

use super::packet;
use super::server::StoreServer;
use super::wire::{Assembler, MAX_FDS, MAX_MESSAGE, Reply, Request, decode, encode, packets};
use crate::distributed::reminder::Reminder;
use crate::distributed::{Deadline, WorkerEnv, tasks};
use crate::error::{Context, Error, Result};
use crate::multiprocessing::inherited_store_fd;

/// How long a call may take that does not wait for a key (PyTorch's default for its stores).
const ANSWER_WITHIN: Duration = Duration::from_secs(300);
/// How long this host's own server is asked why another one does not answer.
const TELLING: Duration = Duration::from_millis(200);
/// Between two attempts to reach rank 0's socket before it is there; nothing announces it.
const RETRY_AFTER: Duration = Duration::from_millis(5);

static OF_THIS_PROCESS: Mutex<Option<Store>> = Mutex::new(None);

/// A connection to the job's key-value store (PyTorch's `torch.distributed.Store`). Cheap to
/// clone; calls from several threads do not wait for each other.
///
/// Values are bytes; a counter's value is its decimal text. When the server is gone every call, and
/// every call that waits, returns [`Error::Store`].
///
/// ```
/// use std::time::Duration;
/// use torchrs::distributed::{Store, StoreServer};
/// let server = StoreServer::start()?;
/// let store = Store::connect_fd(server.connect()?)?;
/// store.set("model", b"gpt2")?;
/// assert_eq!(store.get("model", Duration::from_secs(5))?, b"gpt2");
/// assert_eq!((store.add("workers", 1)?, store.add("workers", 1)?), (1, 2));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    connection: Arc<Connection>,
    /// When a call that waits for no key has to be answered, if not by [`ANSWER_WITHIN`].
    limit: Option<Deadline>,
}

#[derive(Debug)]
struct Connection {
    socket: Arc<OwnedFd>,
    pending: Arc<Mutex<Pending>>,
    /// Held while the packets of one message go out.
    sending: Mutex<()>,
    next_id: AtomicU64,
    reader: Option<JoinHandle<()>>,
    /// Rank 0 of a job without a launcher serves its own store.
    _server: Option<StoreServer>,
}

#[derive(Debug, Default)]
struct Pending {
    waiting: HashMap<u64, Sender<(Reply, Vec<OwnedFd>)>>,
    /// Why there will be no more answers.
    lost: Option<String>,
}

impl Store {
    /// The store of this worker's job: the one whose socket the launcher passed on
    /// (`TORCHRS_STORE_FD`). Without a launcher it is served by a small process on each host, which the
    /// first worker there starts and which ends with the last: for tasks of srun or mpirun, and for
    /// ranks on several hosts. Ranks that were set by hand on one host meet at one that rank 0 serves
    /// under a name made of the user id, `MASTER_ADDR` and `MASTER_PORT`. A world of one has its own, in
    /// this process. All calls in a process give the same connection.
    ///
    /// ```
    /// use std::time::Duration;
    /// use torchrs::distributed::Store;
    /// let (store, same) = (Store::from_env(Duration::from_secs(60))?, Store::from_env(Duration::ZERO)?);
    /// store.set("key", b"value")?;
    /// assert_eq!(same.try_get("key")?.unwrap(), b"value");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when the environment names no store, [`Error::Store`] when there are two
    /// processes with `RANK=0`, [`Error::Timeout`] when rank 0 does not show up by the deadline.
    pub fn from_env(deadline: impl Into<Deadline>) -> Result<Store> {
        let deadline = deadline.into();
        let mut slot = OF_THIS_PROCESS.lock();
        if let Some(store) = &*slot {
            return Ok(store.clone());
        }
        let store = match inherited_store_fd() {
            Some(socket) => Store::connect_fd(socket)?,
            None => Store::meet(&WorkerEnv::from_env()?, deadline)?,
        };
        Ok(slot.insert(store).clone())
    }

    /// The store of this process, if it has one or its launcher has passed it on.
    pub(in crate::distributed) fn of_launcher() -> Result<Option<Store>> {
        let mut slot = OF_THIS_PROCESS.lock();
        if slot.is_none() {
            *slot = inherited_store_fd().map(Store::connect_fd).transpose()?;
        }
        Ok(slot.clone())
    }

    /// The same connection, on which calls that wait for no key end by this deadline, too.
    pub(in crate::distributed) fn within(&self, deadline: impl Into<Deadline>) -> Store {
        Store { connection: self.connection.clone(), limit: Some(deadline.into()) }
    }

    fn answer_within(&self) -> Deadline {
        let usual = Deadline::after(ANSWER_WITHIN);
        self.limit.filter(|limit| limit.remaining() < usual.remaining()).unwrap_or(usual)
    }

    /// What is known where a call was not answered that waits for no key.
    fn why_silent(&self, call: &str, key: &str) -> String {
        if ["get", "get_fds", "wait"].contains(&call) || key.starts_with(OF_HOST) {
            return String::new();
        }
        let asked = self.ask("get", LEADER, &Request::TryGet { key: LEADER }, &[], TELLING);
        match asked {
            Ok((Reply::Value(leader), _)) => {
                let leader = String::from_utf8_lossy(&leader);
                format!(
                    "; the job's keys are on host {leader}, which leads the job and does not answer"
                )
            }
            _ => "; its server does not answer".into(),
        }
    }

    /// Rank 0 serves, the others connect to it.
    fn meet(env: &WorkerEnv, deadline: Deadline) -> Result<Store> {
        if env.world_size == 1 {
            let server = StoreServer::start()?;
            return Store::start(server.connect()?, Some(server));
        }
        if env.task.is_some() || env.local_world_size != env.world_size {
            return tasks::store(env, deadline);
        }
        let (address, port) = env.master()?;
        let name = format!("torchrs-{}-{address}-{port}", getuid());
        if env.rank == 0 {
            let server = StoreServer::listen(&name).map_err(|error| match error {
                Error::Store(why) => Error::Store(format!(
                    "{why}: two processes with RANK=0, or another job with MASTER_ADDR={address} \
                     MASTER_PORT={port} on this host"
                )),
                other => other,
            })?;
            let socket = server.connect()?;
            Store::start(socket, Some(server))
        } else {
            Store::connect_name(&name, deadline).map_err(|error| match error {
                Error::Timeout { seconds, message } => {
                    let message = format!("{message} (rank {} waits for rank 0)", env.rank);
                    Error::Timeout { seconds, message }
                }
                other => other,
            })
        }
    }

    /// A connection over a socket that [`StoreServer::connect`] has made.
    ///
    /// ```
    /// use torchrs::distributed::{Store, StoreServer};
    /// let server = StoreServer::start()?;
    /// let (one, two) = (Store::connect_fd(server.connect()?)?, Store::connect_fd(server.connect()?)?);
    /// one.set("key", b"value")?;
    /// assert_eq!(two.try_get("key")?.unwrap(), b"value");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the thread that reads the answers cannot be started.
    pub fn connect_fd(socket: OwnedFd) -> Result<Store> {
        Store::start(socket, None)
    }

    /// Connects to a server that listens on the abstract unix socket `name`, waiting for it to
    /// appear.
    ///
    /// ```
    /// use std::time::Duration;
    /// use torchrs::distributed::{Store, StoreServer};
    /// let name = format!("job-{}", std::process::id());
    /// let server = StoreServer::listen(&name)?;
    /// let store = Store::connect_name(&name, Duration::from_secs(60))?;
    /// assert_eq!(store.add("workers", 1)?, 1);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when nobody listens there by the deadline.
    pub fn connect_name(name: &str, deadline: impl Into<Deadline>) -> Result<Store> {
        let deadline = deadline.into();
        let address = UnixAddr::new_abstract(name.as_bytes())
            .context(|| format!("abstract socket name `@{name}`"))?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .context(|| "socket for the store")?;
        let reminder = Reminder::new();
        loop {
            match connect(socket.as_raw_fd(), &address) {
                Ok(()) => return Store::connect_fd(socket),
                Err(Errno::ECONNREFUSED | Errno::EINTR | Errno::EAGAIN) => {}
                Err(error) => return Err(Error::os(format!("connect to `@{name}`"), error)),
            }
            if deadline.has_passed() {
                return Err(deadline.error(format!("no store at `@{name}`")));
            }
            reminder.remind(|| format!("rank 0 serves no store at `@{name}` yet"));
            std::thread::sleep(RETRY_AFTER.min(deadline.remaining()));
        }
    }

    fn start(socket: OwnedFd, server: Option<StoreServer>) -> Result<Store> {
        let socket = Arc::new(socket);
        let pending = Arc::new(Mutex::new(Pending::default()));
        let reader = std::thread::Builder::new()
            .name("torchrs-store-rx".into())
            .spawn({
                let (socket, pending) = (socket.clone(), pending.clone());
                move || read_answers(&socket, &pending)
            })
            .context(|| "start the thread that reads the store's answers")?;
        let connection = Connection {
            socket,
            pending,
            sending: Mutex::new(()),
            next_id: AtomicU64::new(0),
            reader: Some(reader),
            _server: server,
        };
        Ok(Store { connection: Arc::new(connection), limit: None })
    }

    /// Sets `key` to `value` and wakes those who wait for it.
    ///
    /// ```
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// store.set("epoch", b"3")?;
    /// store.set("epoch", b"4")?;
    /// assert_eq!(store.try_get("epoch")?.unwrap(), b"4");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a value above 64 MiB; [`Error::Store`] when the server is gone.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let room = MAX_MESSAGE - 1024;
        if value.len() + key.len() > room {
            let what = format!("{} bytes with the key: at most {room}", value.len() + key.len());
            return Err(Error::argument("Store::set", "value", what));
        }
        expect_done(self.ask(
            "set",
            key,
            &Request::Set { key, value },
            &[],
            self.answer_within(),
        )?)
    }

    /// The value of `key`, once somebody has set it.
    ///
    /// ```
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// use std::time::Duration;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// let other = store.clone();
    /// let setter = std::thread::spawn(move || other.set("port", b"29500"));
    /// assert_eq!(store.get("port", Duration::from_secs(60))?, b"29500");
    /// # setter.join().unwrap()?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when nobody does by the deadline; [`Error::Store`] when the server is
    /// gone or the key holds descriptors.
    pub fn get(&self, key: &str, deadline: impl Into<Deadline>) -> Result<Vec<u8>> {
        match self.ask("get", key, &Request::Get { key }, &[], deadline)?.0 {
            Reply::Value(value) => Ok(value),
            other => Err(unexpected("get", &other)),
        }
    }

    /// The value of `key`, if it is set.
    ///
    /// ```
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// assert_eq!(store.try_get("epoch")?, None);
    /// store.set("epoch", b"3")?;
    /// assert_eq!(store.try_get("epoch")?, Some(b"3".to_vec()));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the server is gone or the key holds descriptors.
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.ask("try_get", key, &Request::TryGet { key }, &[], self.answer_within())?.0 {
            Reply::Value(value) => Ok(Some(value)),
            Reply::Missing => Ok(None),
            other => Err(unexpected("try_get", &other)),
        }
    }

    /// Waits until all of `keys` exist.
    ///
    /// ```
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// use std::time::Duration;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// store.set("a", b"")?;
    /// assert!(store.wait(&["a", "b"], Duration::from_millis(10)).is_err());
    /// store.set("b", b"")?;
    /// store.wait(&["a", "b"], Duration::from_secs(60))?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when they do not by the deadline; [`Error::Store`] when the server is
    /// gone.
    pub fn wait(&self, keys: &[&str], deadline: impl Into<Deadline>) -> Result<()> {
        let request = Request::Wait { keys: keys.to_vec() };
        expect_done(self.ask("wait", &keys.join(", "), &request, &[], deadline)?)
    }

    /// Adds to a counter, which starts at 0; its new value.
    ///
    /// ```
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// assert_eq!((store.add("ready", 2)?, store.add("ready", -1)?), (2, 1));
    /// assert_eq!(store.try_get("ready")?.unwrap(), b"1");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the key holds something else, or the server is gone.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64> {
        match self.ask("add", key, &Request::Add { key, amount }, &[], self.answer_within())?.0 {
            Reply::Number(sum) => Ok(sum),
            other => Err(unexpected("add", &other)),
        }
    }

    /// Sets `key` to `desired` if its value is `expected` (`None`: if it is not set), and gives
    /// the value that it has afterwards.
    ///
    /// ```
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// assert_eq!(store.compare_set("leader", None, b"0")?.unwrap(), b"0");
    /// assert_eq!(store.compare_set("leader", None, b"1")?.unwrap(), b"0");
    /// assert_eq!(store.compare_set("leader", Some(b"0"), b"1")?.unwrap(), b"1");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the key holds descriptors, or the server is gone.
    pub fn compare_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        desired: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let request = Request::CompareSet { key, expected, desired };
        match self.ask("compare_set", key, &request, &[], self.answer_within())?.0 {
            Reply::Value(value) => Ok(Some(value)),
            Reply::Missing => Ok(None),
            other => Err(unexpected("compare_set", &other)),
        }
    }

    /// Removes `key`; whether it was there.
    ///
    /// ```
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// store.set("key", b"value")?;
    /// assert_eq!((store.delete("key")?, store.delete("key")?), (true, false));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] when the server is gone.
    pub fn delete(&self, key: &str) -> Result<bool> {
        match self.ask("delete", key, &Request::Delete { key }, &[], self.answer_within())?.0 {
            Reply::Deleted(existed) => Ok(existed),
            other => Err(unexpected("delete", &other)),
        }
    }

    /// Sets `key` to open files, of which everyone who asks gets duplicates. The server keeps them
    /// open until the key is deleted.
    ///
    /// ```
    /// # use std::{io::{Read, Seek, Write}, os::fd::AsFd, time::Duration};
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// let mut file = tempfile::tempfile().unwrap();
    /// file.write_all(b"shared").unwrap();
    /// store.set_fds("file", &[file.as_fd()])?;
    /// assert_eq!(store.get_fds("file", Duration::from_secs(60))?.len(), 1);
    /// assert!(store.try_get("file").is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for more than 64; [`Error::Store`] when the server is gone.
    pub fn set_fds(&self, key: &str, fds: &[BorrowedFd<'_>]) -> Result<()> {
        if fds.len() > MAX_FDS {
            let what = format!("{} descriptors: at most {MAX_FDS} per key", fds.len());
            return Err(Error::argument("Store::set_fds", "fds", what));
        }
        let request = Request::SetFds { key, count: fds.len() as u32 };
        expect_done(self.ask("set_fds", key, &request, fds, self.answer_within())?)
    }

    /// Duplicates of the open files that `key` was set to, once it was.
    ///
    /// ```
    /// # use std::{io::{Read, Seek, Write}, os::fd::AsFd, time::Duration};
    /// # use torchrs::distributed::{Store, StoreServer};
    /// # let server = StoreServer::start()?;
    /// let store = Store::connect_fd(server.connect()?)?;
    /// let mut file = tempfile::tempfile().unwrap();
    /// file.write_all(b"shared").unwrap();
    /// store.set_fds("file", &[file.as_fd()])?;
    /// let mut same = std::fs::File::from(store.get_fds("file", Duration::from_secs(60))?.remove(0));
    /// same.rewind().unwrap();
    /// assert_eq!(std::io::read_to_string(&same).unwrap(), "shared");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when nobody sets them by the deadline; [`Error::Store`] when the server
    /// is gone or the key holds bytes.
    pub fn get_fds(&self, key: &str, deadline: impl Into<Deadline>) -> Result<Vec<OwnedFd>> {
        match self.ask("get_fds", key, &Request::GetFds { key }, &[], deadline)? {
            (Reply::Fds, fds) => Ok(fds),
            (other, _) => Err(unexpected("get_fds", &other)),
        }
    }

    /// Sends a request and waits for its answer. `call` and `key` are for messages.
    fn ask(
        &self,
        call: &str,
        key: &str,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
        deadline: impl Into<Deadline>,
    ) -> Result<(Reply, Vec<OwnedFd>)> {
        let deadline = deadline.into();
        let connection = &*self.connection;
        let id = connection.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = channel();
        {
            let mut pending = connection.pending.lock();
            if let Some(why) = &pending.lost {
                return Err(Error::Store(format!("{call}(`{key}`): {why}")));
            }
            pending.waiting.insert(id, sender);
        }
        let forget = || connection.pending.lock().waiting.remove(&id);
        let late =
            || deadline.error(format!("store: {call}(`{key}`){}", self.why_silent(call, key)));
        if let Err(errno) = connection.send(id, request, fds, &deadline) {
            forget();
            return Err(match errno {
                Errno::ETIMEDOUT => late(),
                _ => Error::Store(format!("{call}(`{key}`): the store is gone ({errno})")),
            });
        }
        let reminder = Reminder::new();
        let answer = loop {
            match answer.recv_timeout(reminder.limit(deadline.remaining())) {
                Err(RecvTimeoutError::Timeout) if !deadline.has_passed() => reminder.remind(|| {
                    let me = told_rank()
                        .map_or("this process".into(), |(rank, _)| format!("rank {rank}"));
                    format!("{me} waits in the store's {call}(`{key}`)")
                }),
                ended => break ended,
            }
        };
        match answer {
            Ok((Reply::Refused(why), _)) => Err(Error::Store(format!("{call}: {why}"))),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => {
                let why = connection.pending.lock().lost.clone().unwrap_or_default();
                Err(Error::Store(format!("{call}(`{key}`): {why}")))
            }
            Err(RecvTimeoutError::Timeout) => {
                forget();
                let cancel = Request::Cancel { id };
                let number = connection.next_id.fetch_add(1, Ordering::Relaxed);
                // Only tidiness on the server's side: an answer that comes anyway is dropped.
                let _ = connection.send(number, &cancel, &[], &Duration::from_millis(100).into());
                Err(late())
            }
        }
    }
}

impl Connection {
    fn send(
        &self,
        id: u64,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
        deadline: &Deadline,
    ) -> Result<(), Errno> {
        let message = packets(&encode(id, request));
        let last = message.len() - 1;
        let _whole_message = self.sending.lock();
        for (i, packet) in message.iter().enumerate() {
            let fds = if i == last { fds } else { &[] };
            loop {
                match packet::send(self.socket.as_fd(), packet, fds) {
                    Ok(()) => break,
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) => {
                        if let Err(error) = packet::wait_writable(self.socket.as_fd(), deadline) {
                            if i > 0 {
                                // Half a message is out: the connection is of no more use.
                                let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
                            }
                            return Err(error);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// The reader thread: until the connection closes.
fn read_answers(socket: &OwnedFd, pending: &Mutex<Pending>) {
    let mut buffer = packet::buffer();
    let mut assembler = Assembler::default();
    let why = loop {
        let packet = match packet::receive(socket.as_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(Some(packet)) => packet,
            Ok(None) => {
                break "the store is gone (its server has closed the connection)".to_owned();
            }
            Err(Errno::EINTR) => continue,
            Err(errno) => break format!("the store is gone ({errno})"),
        };
        let message = match assembler.push(&buffer[..packet.len]) {
            Ok(Some(message)) => message,
            Ok(None) => continue,
            Err(violation) => break format!("the store sent {}", violation.0),
        };
        match decode::<Reply>(&message) {
            Ok(answer) => {
                // Nobody waits any more when the deadline has passed in the meantime.
                if let Some(to) = pending.lock().waiting.remove(&answer.id) {
                    let _ = to.send((answer.body, packet.fds));
                }
            }
            Err(violation) => break format!("the store sent {}", violation.0),
        }
    };
    let mut pending = pending.lock();
    pending.lost = Some(why);
    pending.waiting.clear();
}

fn expect_done((reply, _): (Reply, Vec<OwnedFd>)) -> Result<()> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(unexpected("request", &other)),
    }
}

fn unexpected(call: &str, reply: &Reply) -> Error {
    Error::Store(format!("{call}: an answer of another kind ({reply:?})"))
}
