//! The process that stands in for a launcher on one host: it serves the store to the host's workers, joins it with
//! those of the other hosts, and says in it which workers have ended. It reads nothing of the job and computes
//! nothing.
//!
//! It ends by itself: when its workers have ended and, over several hosts, the others know it; and where not all its
//! workers have come, a little after the last of those who had. It has no parent that could end it, and signals that
//! reach the whole job are for the workers.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{MsgFlags, SockFlag, accept4, getsockopt, sockopt};
use nix::unistd::getuid;
use serde::{Deserialize, Serialize};
use torchrs_rendezvous::driver::{Command, Config, Event};
use torchrs_rendezvous::host_store::HostStore;
use torchrs_rendezvous::protocol::{HostId, Round, Verdict, Why};

use super::meeting::{Meeting, OverHosts};
use super::place::scattered;
use super::protocol::{FromWorker, Hello, ToWorker, VERSION, cut, receive, send};
use crate::distributed::store::{Store, StoreServer, packet};
use crate::error::{Error, Result};
use crate::multiprocessing::handles::Descriptor;

/// How long it waits for workers that have not come when all that had have ended.
const LATE: Duration = Duration::from_secs(10);
/// How long it goes on to send when its workers have ended.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long word of it may be on its way through this process.
const TOLD: Duration = Duration::from_millis(100);
/// Where the leader's host says in the job's store that its workers have ended in peace.
const LEADER_ENDED: &str = "torchrs/leaders-host-ended";

/// What a stand-in is started with.
#[derive(Serialize, Deserialize)]
pub(super) struct StandIn {
    pub listener: Descriptor,
    pub meeting: Meeting,
    pub world_size: usize,
    pub local_world_size: usize,
    /// How long hosts wait for each other.
    pub limit: Duration,
}

/// Stands in until the host's workers have ended. What goes wrong is told to them.
pub(super) fn serve(start: StandIn) {
    for number in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTSTP,
    ] {
        // SAFETY: no handler function is installed.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
    // It keeps no folder busy.
    let _ = std::env::set_current_dir("/");
    let StandIn { listener, meeting, world_size, local_world_size, limit } = start;
    close_all_but(&listener.0);
    let mut host = Host {
        listener: listener.0,
        world_size,
        local_world_size,
        workers: Vec::new(),
        came: BTreeMap::new(),
        first_rank: None,
        store: Stores::None,
        outlook: Outlook::Good,
        waits: String::new(),
        told_success: false,
        deadline: None,
    };
    host.store = match host.open(&meeting, limit) {
        Ok(store) => store,
        Err(error) => {
            host.outlook = Outlook::Hopeless(error.to_string());
            Stores::None
        }
    };
    host.run();
}

/// Closes what the starter of the tasks has left open in all of them, such as a socket of PMI's, whose end it waits
/// for.
fn close_all_but(listener: &OwnedFd) {
    let own = listener.as_raw_fd() as u32;
    for (first, last) in [(3, own.saturating_sub(1)), (own + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: this process has just begun, and nothing in it owns a descriptor but the listener and the
            // standard streams. A kernel without the call leaves them open.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
        }
    }
}

/// The host's store.
enum Stores {
    /// There is none, or no more.
    None,
    /// Of the only host.
    Alone(StoreServer),
    /// Of one of several: from the start of their round on.
    Among { host: HostStore, round: Option<Joined> },
}

/// A round that has started.
struct Joined {
    leads: bool,
    /// Its hosts, by name.
    hosts: Vec<(HostId, String)>,
    /// Hears it when the leader's host says that its workers have ended in peace.
    leader_ended: Receiver<()>,
}

impl Joined {
    fn name_of(&self, id: HostId) -> &str {
        let found = self.hosts.iter().find(|(host, _)| *host == id);
        found.map_or("another host", |(_, name)| name)
    }
}

/// What there is to hope for.
enum Outlook {
    Good,
    /// No worker can take part: why.
    Hopeless(String),
    /// The job has failed elsewhere.
    Failed(String),
}

/// A worker's process.
struct Worker {
    socket: OwnedFd,
    pid: i32,
    hello: Option<Hello>,
    has_store: bool,
    said_goodbye: bool,
}

struct Host {
    listener: OwnedFd,
    world_size: usize,
    local_world_size: usize,
    /// Those whose processes live.
    workers: Vec<Worker>,
    /// Local ranks that have come so far, with their processes.
    came: BTreeMap<usize, i32>,
    first_rank: Option<usize>,
    store: Stores,
    outlook: Outlook,
    /// What it waits for, as it was told last.
    waits: String,
    told_success: bool,
    /// When it ends, if nothing happens.
    deadline: Option<Instant>,
}

impl Host {
    fn open(&self, meeting: &Meeting, limit: Duration) -> Result<Stores> {
        let Some(hosts) = &meeting.hosts else { return StoreServer::start().map(Stores::Alone) };
        let host = HostStore::join(config(hosts, limit)?)?;
        Ok(Stores::Among { host, round: None })
    }

    fn run(&mut self) {
        let mut buffer = packet::buffer();
        // Whoever started it may have ended at once.
        self.deadline = Some(Instant::now() + LATE);
        while self.deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let ready = self.wait();
            if ready.store {
                self.hear_of_hosts();
            }
            // From the last to the first: those that end are taken out.
            for place in ready.workers.into_iter().rev() {
                self.hear(place, &mut buffer);
            }
            if ready.listener {
                self.accept();
            }
            if self.is_over() {
                return;
            }
        }
    }

    fn wait(&self) -> Ready {
        let mut entries = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        let sockets = self.workers.iter().map(|worker| worker.socket.as_fd());
        entries.extend(sockets.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        if let Stores::Among { host, .. } = &self.store {
            entries.push(PollFd::new(host.as_fd(), PollFlags::POLLIN));
        }
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX)
        });
        if poll(&mut entries, timeout).is_err() {
            return Ready::default();
        }
        let is_ready =
            |entry: &PollFd<'_>| entry.revents().is_some_and(|events| !events.is_empty());
        let workers = (0..self.workers.len()).filter(|place| is_ready(&entries[place + 1]));
        Ready {
            listener: is_ready(&entries[0]),
            workers: workers.collect(),
            store: entries.len() > self.workers.len() + 1 && entries.last().is_some_and(is_ready),
        }
    }

    /// Lets in a process of the same user.
    fn accept(&mut self) {
        let Ok(raw) = accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) else { return };
        // SAFETY: accept4 has just made this descriptor, and nothing else knows of it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let Ok(peer) = getsockopt(&socket, sockopt::PeerCredentials) else { return };
        if peer.uid() == getuid().as_raw() {
            let worker = Worker {
                socket,
                pid: peer.pid(),
                hello: None,
                has_store: false,
                said_goodbye: false,
            };
            self.workers.push(worker);
            self.deadline = None;
        }
    }

    /// What a worker says, or that it has ended.
    fn hear(&mut self, place: usize, buffer: &mut [u8]) {
        let worker = &mut self.workers[place];
        match receive::<FromWorker>(&worker.socket, buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(Some((FromWorker::Hello(hello), _))) if worker.hello.is_none() => {
                self.register(place, hello);
            }
            Ok(Some((FromWorker::Goodbye, _))) => {
                worker.said_goodbye = true;
                self.tell_success();
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Ok(_) | Err(_) => self.ended(place),
        }
    }

    fn register(&mut self, place: usize, hello: Hello) {
        if let Some(why) = self.objection(&hello) {
            let _ = send(self.workers[place].socket.as_fd(), &ToWorker::Refused(cut(&why)), &[]);
            self.workers.remove(place);
            return;
        }
        self.first_rank = Some(hello.rank - hello.local_rank);
        self.came.insert(hello.local_rank, self.workers[place].pid);
        self.workers[place].hello = Some(hello);
        if !self.waits.is_empty() && self.is_speaker(place) {
            self.tell(place, &ToWorker::Note(self.waits.clone()));
        }
        self.welcome(place);
    }

    /// Why a worker does not fit the others.
    fn objection(&self, hello: &Hello) -> Option<String> {
        let Hello { rank, local_rank, local_world_size, world_size, .. } = *hello;
        if hello.version != VERSION {
            return Some(format!(
                "rank {rank} is built from another release of torchrs than other ranks on this host: build all from \
                 one"
            ));
        }
        if (local_world_size, world_size) != (self.local_world_size, self.world_size) {
            return Some(format!(
                "rank {rank} has LOCAL_WORLD_SIZE {local_world_size} and WORLD_SIZE {world_size}, and others on this \
                 host have {} and {}: they are of different jobs, or one is set wrongly",
                self.local_world_size, self.world_size
            ));
        }
        if let Some(pid) = self.came.get(&local_rank) {
            return Some(format!(
                "rank {rank} has local rank {local_rank}, and process {pid} of this job on this host has it, or had it \
                 before it ended: every worker needs its own, and starts once"
            ));
        }
        let first =
            rank.checked_sub(local_rank).filter(|first| first + local_world_size <= world_size);
        if first.is_none() || self.first_rank.is_some_and(|known| Some(known) != first) {
            return Some(format!("RANK is {rank}: {}", scattered(local_rank)));
        }
        None
    }

    /// Whether notes go to this worker: one of a host is enough.
    fn is_speaker(&self, place: usize) -> bool {
        let local = |worker: &Worker| worker.hello.as_ref().map(|hello| hello.local_rank);
        local(&self.workers[place]) == self.workers.iter().filter_map(local).min()
    }

    /// Gives a worker its connection to the store, if there is one.
    fn welcome(&mut self, place: usize) {
        let socket = match (&self.outlook, &self.store) {
            (Outlook::Hopeless(why), _) => {
                self.tell(place, &ToWorker::Refused(cut(why)));
                return;
            }
            (_, Stores::Alone(store)) => store.connect(),
            (_, Stores::Among { host, round: Some(_) }) => host.connect(),
            (Outlook::Good, _) => return,
            (Outlook::Failed(why), _) => {
                self.tell(place, &ToWorker::Refused(cut(why)));
                return;
            }
        };
        let worker = &mut self.workers[place];
        let sent = match socket {
            Ok(socket) => send(worker.socket.as_fd(), &ToWorker::Welcome, &[socket.as_fd()]),
            Err(error) => {
                let why = cut(&error.to_string());
                send(worker.socket.as_fd(), &ToWorker::Refused(why), &[])
            }
        };
        worker.has_store = sent.is_ok();
        if let Outlook::Failed(why) = &self.outlook {
            self.tell(place, &ToWorker::Failed(cut(why)));
        }
    }

    fn tell(&self, place: usize, message: &ToWorker) {
        let _ = send(self.workers[place].socket.as_fd(), message, &[]);
    }

    /// A worker's process has ended, or it is none.
    fn ended(&mut self, place: usize) {
        let worker = self.workers.remove(place);
        let Some(hello) = worker.hello else { return };
        let how = match worker.said_goodbye {
            true => format!("its process ({}) has exited", worker.pid),
            false => format!("its process ({}) was killed", worker.pid),
        };
        match &self.store {
            Stores::Alone(store) => store.rank_ended(hello.rank, &how),
            Stores::Among { host, .. } => host.rank_ended(hello.rank, &how),
            Stores::None => {}
        }
        if let Stores::Among { host, round: Some(_) } = &self.store
            && !worker.said_goodbye
            && !std::mem::replace(&mut self.told_success, true)
        {
            // As a launcher's report; peers know of the death by then.
            host.command(Command::WorkersEnded(Verdict::Failure, Vec::new()));
        }
    }

    /// Says to the other hosts that all workers of this one end in peace. A cluster may kill this process as soon as
    /// they have ended.
    fn tell_success(&mut self) {
        let all = self.came.len() == self.local_world_size
            && self.workers.iter().all(|worker| worker.said_goodbye);
        let Stores::Among { host, round: Some(joined) } = &self.store else { return };
        if !all || std::mem::replace(&mut self.told_success, true) {
            return;
        }
        if joined.leads
            && let Ok(store) = host.connect().and_then(Store::connect_fd)
        {
            let _ = store.set(LEADER_ENDED, b"");
        }
        host.command(Command::WorkersEnded(Verdict::Success, Vec::new()));
    }

    /// Whether nobody needs this process any more.
    fn is_over(&mut self) -> bool {
        if !self.workers.is_empty() {
            return false;
        }
        let now = Instant::now();
        if self.came.len() < self.local_world_size {
            // They may be about to come, and are to be told.
            self.deadline.get_or_insert(now + LATE);
            return false;
        }
        match &self.store {
            Stores::Among { host, round: Some(joined) } => {
                if !std::mem::replace(&mut self.told_success, true) {
                    host.command(Command::WorkersEnded(Verdict::Failure, Vec::new()));
                }
                // Who leads has the job's keys, for as long as others have workers.
                if !joined.leads {
                    self.deadline.get_or_insert(now + FAREWELL);
                }
                false
            }
            _ => true,
        }
    }

    /// What has come from the rendezvous.
    fn hear_of_hosts(&mut self) {
        loop {
            let Stores::Among { host, .. } = &self.store else { return };
            let Some(event) = host.next() else { return };
            match event {
                Event::Start { round, group_rank, leads, .. } => {
                    self.begin(&round, group_rank, leads)
                }
                Event::Say(text) => {
                    let speaker = (0..self.workers.len()).find(|&place| self.is_speaker(place));
                    self.waits = cut(&text);
                    if let Some(place) = speaker {
                        self.tell(place, &ToWorker::Note(self.waits.clone()));
                    }
                }
                Event::Stop { why, .. } => {
                    let Stores::Among { round: Some(joined), .. } = &self.store else { return };
                    let how = match why {
                        Why::Failed(id) => format!("a rank on {} was killed", joined.name_of(id)),
                        Why::Lost(id) => {
                            format!("host {} was lost, or the way to it is cut", joined.name_of(id))
                        }
                        Why::CutOff => "too few hosts are in reach".to_owned(),
                        Why::Left(_) | Why::Joined | Why::Over => "the job was ended".to_owned(),
                    };
                    self.fail(&how);
                }
                Event::Ended(ending) => {
                    if let Stores::Among { host, .. } = &self.store {
                        host.command(Command::Finish(0, ending.hindrance.unwrap_or_default()));
                    }
                }
                Event::Over(_, text) => return self.leave(&text),
                Event::Fail(why) => return self.leave(&why),
                Event::Restarting(_) | Event::Leads(_) | Event::Status(_) => {}
                Event::Ask(..) | Event::Answer(..) | Event::Gone(_) | Event::AwaitsWelcome(_) => {
                    unreachable!("the host's store takes what is the store's")
                }
            }
        }
    }

    /// All hosts are there.
    fn begin(&mut self, round: &Round, group_rank: usize, leads: bool) {
        let Stores::Among { host, round: joined } = &mut self.store else { return };
        self.waits.clear();
        let world_size = round.world_size();
        let opened = match world_size == self.world_size {
            true => host.open(round, group_rank, leads).map_err(|error| error.to_string()),
            false => Err(format!(
                "WORLD_SIZE is {}, and the job's {} hosts have {world_size} workers by their LOCAL_WORLD_SIZE",
                self.world_size,
                round.hosts.len()
            )),
        };
        match opened {
            Ok(()) => {
                let leader_ended = if leads { channel().1 } else { listen_for_end(host) };
                let hosts = round.hosts.iter().map(|host| (host.id, host.name.clone())).collect();
                *joined = Some(Joined { leads, hosts, leader_ended });
            }
            Err(why) => {
                host.command(Command::WorkersEnded(Verdict::Failure, Vec::new()));
                self.told_success = true;
                self.outlook = Outlook::Hopeless(why);
            }
        }
        (0..self.workers.len())
            .filter(|&place| self.workers[place].hello.is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|place| self.welcome(place));
    }

    /// The job has failed elsewhere: workers that wait learn it now, the others at their next call.
    fn fail(&mut self, how: &str) {
        for place in 0..self.workers.len() {
            let worker = &self.workers[place];
            let message = match worker.has_store {
                true => ToWorker::Failed(cut(how)),
                false if worker.hello.is_some() => ToWorker::Refused(cut(how)),
                false => continue,
            };
            self.tell(place, &message);
        }
        if let Outlook::Good = self.outlook {
            self.outlook = Outlook::Failed(how.to_owned());
        }
    }

    /// The rendezvous is over: the hosts know nothing of each other any more.
    fn leave(&mut self, why: &str) {
        let store = std::mem::replace(&mut self.store, Stores::None);
        match store {
            Stores::Among { round: Some(joined), .. } => {
                // A leader whose workers had ended in peace may have been ended by its cluster.
                if !joined.leads
                    && joined.leader_ended.recv_timeout(TOLD).is_err()
                    && !self.told_success
                {
                    self.fail(&format!(
                        "the first host, which kept the job's store, was lost: {why}"
                    ));
                }
            }
            _ => {
                self.outlook =
                    Outlook::Hopeless(format!("the hosts of the job did not meet: {why}"));
                let waiting =
                    (0..self.workers.len()).filter(|&place| self.workers[place].hello.is_some());
                waiting.collect::<Vec<_>>().into_iter().for_each(|place| self.welcome(place));
            }
        }
    }
}

/// Descriptors that are ready.
#[derive(Default)]
struct Ready {
    listener: bool,
    workers: Vec<usize>,
    store: bool,
}

fn config(hosts: &OverHosts, limit: Duration) -> Result<Config> {
    let name = nix::unistd::gethostname()
        .map_or_else(|_| "a host".into(), |n| n.to_string_lossy().into_owned());
    hosts.config(name, limit)
}

/// Hears it when the leader's host says that its workers have ended in peace.
fn listen_for_end(host: &HostStore) -> Receiver<()> {
    let (said, heard) = channel();
    if let Ok(store) = host.connect().and_then(Store::connect_fd) {
        let _ = std::thread::Builder::new().name("torchrs-leader".into()).spawn(move || {
            // Until the leader says so, or this host's store ends.
            loop {
                match store.get(LEADER_ENDED, Duration::from_secs(3600)) {
                    Ok(_) => {
                        let _ = said.send(());
                        return;
                    }
                    Err(Error::Timeout { .. }) => {}
                    Err(_) => return,
                }
            }
        });
    }
    heard
}
