//! A worker's way to the store of its job: through the stand-in of its host, which it starts if none is there.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, getsockopt,
    listen, socket, sockopt,
};
use nix::unistd::getuid;

use super::meeting::Meeting;
use super::protocol::{FromWorker, Hello, ToWorker, VERSION, receive, send};
use super::stand_in::{StandIn, serve};
use crate::distributed::reminder::Reminder;
use crate::distributed::store::packet;
use crate::distributed::{Deadline, Store, WorkerEnv, group};
use crate::error::{Context, Error, Result};
use crate::multiprocessing::handles::Descriptor;
use crate::multiprocessing::{Process, report::say};

/// Between two attempts to reach a stand-in that is about to be there, or to end.
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// Groups know by their own connections what has failed elsewhere, and of whom, if that is to be known at all. This is
/// how long they have for it.
const SAID_BETTER: Duration = Duration::from_millis(500);

/// This worker's line to its stand-in, from the first time that it has one to its end.
static LINE: OnceLock<Line> = OnceLock::new();
/// How the job has failed elsewhere.
static FAILED: OnceLock<String> = OnceLock::new();

struct Line {
    socket: Arc<OwnedFd>,
    /// Whose it is: a fork of this process has it, too.
    pid: u32,
}

/// # Errors
/// [`Error::Aborted`] that says how the job has failed elsewhere, once a stand-in has told so.
pub(in crate::distributed) fn check_job() -> Result<()> {
    FAILED.get().map_or(Ok(()), |why| Err(Error::Aborted(why.clone())))
}

/// The store of this worker's job.
///
/// # Errors
/// [`Error::Config`] for an environment that makes no sense; [`Error::Store`] for a job that cannot begin;
/// [`Error::Timeout`] when other hosts do not come.
pub(in crate::distributed) fn store(env: &WorkerEnv, deadline: Deadline) -> Result<Store> {
    let meeting = Meeting::of(env, &deadline)?;
    let socket = reach(&meeting, env, &deadline)?;
    let store = take_part(socket, &meeting, env, &deadline)?;
    Store::connect_fd(store)
}

fn new_socket() -> Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
        .context(|| "socket of this host's workers")
}

/// Connects to the stand-in, and starts it where nobody has.
fn reach(meeting: &Meeting, env: &WorkerEnv, deadline: &Deadline) -> Result<OwnedFd> {
    let name = &meeting.name;
    let address = UnixAddr::new_abstract(name.as_bytes())
        .context(|| format!("abstract socket name `@{name}`"))?;
    loop {
        let own = new_socket()?;
        match connect(own.as_raw_fd(), &address) {
            Ok(()) => {
                check_owner(&own, name)?;
                return Ok(own);
            }
            Err(Errno::ECONNREFUSED) => start(meeting, &address, env, deadline)?,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(error) => return Err(Error::os(format!("connect to `@{name}`"), error)),
        }
        if deadline.has_passed() {
            return Err(deadline.error(format!("nobody answers at `@{name}`")));
        }
        std::thread::sleep(RETRY_AFTER.min(deadline.remaining()));
    }
}

/// Any user can listen under any name.
fn check_owner(socket: &OwnedFd, name: &str) -> Result<()> {
    let peer = getsockopt(socket, sockopt::PeerCredentials)
        .context(|| format!("find whose `@{name}` is"))?;
    if peer.uid() == getuid().as_raw() {
        return Ok(());
    }
    Err(Error::Store(format!(
        "`@{name}`, where the workers of this host meet, is taken by a process of user {}",
        peer.uid()
    )))
}

/// Starts the stand-in, unless another worker does.
fn start(
    meeting: &Meeting,
    address: &UnixAddr,
    env: &WorkerEnv,
    deadline: &Deadline,
) -> Result<()> {
    let listener = new_socket()?;
    match bind(listener.as_raw_fd(), address) {
        Ok(()) => {}
        // Another worker is about to.
        Err(Errno::EADDRINUSE) => return Ok(()),
        Err(error) => return Err(Error::os(format!("bind `@{}`", meeting.name), error)),
    }
    let backlog = Backlog::new(4096).unwrap_or(Backlog::MAXCONN);
    listen(&listener, backlog).context(|| format!("listen on `@{}`", meeting.name))?;
    let stand_in = StandIn {
        listener: Descriptor(listener),
        meeting: meeting.clone(),
        world_size: env.world_size,
        local_world_size: env.local_world_size,
        // Workers say themselves who has not come; the stand-in waits for a little longer.
        limit: deadline.remaining() + Duration::from_secs(5),
    };
    Process::builder().name("torchrs-host").spawn_detached(serve, &stand_in).map(drop)
}

/// Says who this worker is, and waits for its connection to the store.
fn take_part(
    socket: OwnedFd,
    meeting: &Meeting,
    env: &WorkerEnv,
    deadline: &Deadline,
) -> Result<OwnedFd> {
    let WorkerEnv { rank, local_rank, local_world_size, world_size, .. } = *env;
    let hello = Hello { version: VERSION, rank, local_rank, local_world_size, world_size };
    let lost = |why: &str| {
        let what =
            format!("`@{}`, which stands in for a launcher on this host, {why}", meeting.name);
        Error::Store(what)
    };
    send(socket.as_fd(), &FromWorker::Hello(hello), &[])
        .map_err(|errno| lost(&format!("takes no message ({errno})")))?;
    let mut buffer = packet::buffer();
    let reminder = Reminder::new();
    let mut last = String::new();
    loop {
        let limit = reminder.limit(deadline.remaining());
        let timeout = PollTimeout::try_from(limit.as_millis().min(60_000) as i32 + 1);
        let mut entry = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut entry, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(0) if deadline.has_passed() => {
                let doing = doing(meeting, env, &last);
                return Err(deadline.error(doing));
            }
            Ok(0) => {
                reminder.remind(|| doing(meeting, env, &last));
                continue;
            }
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(Error::os("wait for this host's stand-in", error)),
        }
        match receive::<ToWorker>(&socket, &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(Some((ToWorker::Welcome, mut fds))) if fds.len() == 1 => {
                keep(socket)?;
                return Ok(fds.remove(0));
            }
            Ok(Some((ToWorker::Welcome, _))) => return Err(lost("has sent no connection")),
            Ok(Some((ToWorker::Refused(why), _))) => return Err(Error::Store(why)),
            Ok(Some((ToWorker::Failed(why), _))) => return Err(Error::Aborted(why)),
            Ok(Some((ToWorker::Note(text), _))) => {
                say(&format!("torchrs: {text}"));
                last = text;
            }
            Ok(None) => return Err(lost("has ended")),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(lost(&format!("does not answer ({errno})"))),
        }
    }
}

/// What a worker waits for that has no store yet.
fn doing(meeting: &Meeting, env: &WorkerEnv, last: &str) -> String {
    let (rank, world) = (env.rank, env.world_size);
    let Some(hosts) = &meeting.hosts else {
        return format!("rank {rank} of {world} waits for the store of its host");
    };
    let last = if last.is_empty() { String::new() } else { format!(": {last}") };
    format!("rank {rank} of {world} waits for the other hosts at {}{last}", hosts.endpoint())
}

/// Keeps the line to the stand-in as long as this process lives, and hears what comes over it.
fn keep(socket: OwnedFd) -> Result<()> {
    let socket = Arc::new(socket);
    let heard = socket.clone();
    std::thread::Builder::new()
        .name("torchrs-job".into())
        .stack_size(256 << 10)
        .spawn(move || hear(&heard))
        .context(|| "start the thread that hears of the job")?;
    if LINE.set(Line { socket, pid: std::process::id() }).is_ok() {
        // SAFETY: the function panics nowhere and uses statics only, which are never dropped.
        unsafe { libc::atexit(goodbye) };
    }
    Ok(())
}

fn hear(socket: &OwnedFd) {
    let mut buffer = packet::buffer();
    loop {
        match receive::<ToWorker>(socket, &mut buffer, MsgFlags::empty()) {
            Ok(Some((ToWorker::Failed(why), _))) => {
                std::thread::sleep(SAID_BETTER);
                let _ = FAILED.set(why.clone());
                group::abort(&why);
            }
            Ok(Some((ToWorker::Note(text), _))) => say(&format!("torchrs: {text}")),
            Ok(Some(_)) | Err(Errno::EINTR) => {}
            // The store's connection tells it, too.
            Ok(None) | Err(_) => return,
        }
    }
}

/// Runs when this process ends by itself.
extern "C" fn goodbye() {
    if let Some(line) = LINE.get().filter(|line| line.pid == std::process::id()) {
        let _ = send(line.socket.as_fd(), &FromWorker::Goodbye, &[]);
    }
}
