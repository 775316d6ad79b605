//! The thread of a rendezvous: sockets, clock, and what the state machines want done.

mod calls;

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::time::{ClockId, clock_gettime};
use torchrs_error::{Context, Error, Result};

use super::dial::{Callee, Line};
use super::peer::{Peer, encode};
use super::place::Place;
use super::{Command, Config, Event, Input};
use crate::action::{self, Connection};
use crate::leader::Leader;
use crate::lock::{Lock, Taken, Tie};
use crate::member::{self, Member};
use crate::protocol::{Host, HostId, Round, ToLeader, ToMember};

/// What proves itself for so long is dropped.
const PROVE_WITHIN: Duration = Duration::from_secs(5);
/// Connections that have not proved themselves at most.
const MOST_UNPROVED: usize = 128;
/// How long a closed rendezvous goes on to send what it has.
const LINGER: Duration = Duration::from_secs(2);

const WAKE: u64 = u64::MAX;
/// That of the first listener; those of the others follow.
const LISTENERS: u64 = u64::MAX - 1000;
/// The connection of the leader's own host.
const OWN: Connection = 0;

/// Where events go.
#[derive(Clone)]
pub(super) struct Outlet {
    pub events: Sender<Event>,
    pub ready: Arc<EventFd>,
    /// From this host's clock to the leader's.
    pub offset: Arc<AtomicI64>,
}

impl Outlet {
    pub fn give(&self, event: Event) {
        let _ = self.events.send(event);
        let _ = self.ready.write(1);
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// This host called its leader, or one that may be.
    ToLeader,
    /// This host tells the other what it leads, and hangs up.
    Claim,
    /// Another host called.
    Incoming,
}

struct Entry {
    peer: Peer,
    used: Use,
    since: Duration,
    /// Whether it is known to be open.
    open: bool,
    /// What epoll waits for.
    writes: bool,
}

/// Where this host's member sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    None,
    /// A call with this number is under way.
    Dialing(u64),
    Peer(u64),
    /// This host leads.
    Own,
}

/// Messages between the two halves of one host, and what else must not happen within what caused it.
enum Later {
    ToLeader(Box<ToLeader>),
    ToMember(ToMember),
    Called,
    OwnClosed,
}

/// All of a rendezvous on one host.
pub(super) struct Driver {
    config: Config,
    key: [u8; 32],
    id: HostId,
    outlet: Outlet,
    line: Line,
    inputs: Receiver<Input>,
    epoll: Epoll,
    listeners: Vec<TcpListener>,
    member: Option<Member>,
    leader: Option<Leader>,
    link: Link,
    peers: BTreeMap<u64, Entry>,
    /// Of connections and calls.
    next: u64,
    claims: BTreeMap<u64, ToLeader>,
    /// The address by which each launcher was reached last.
    reached: BTreeMap<HostId, SocketAddr>,
    later: VecDeque<Later>,
    /// Of a job in which a shared folder decides ties.
    lock: Option<Lock>,
    /// Whether hosts are known to wait for the program's welcome.
    awaits_welcome: bool,
    /// What this host's leader said last.
    said: String,
    /// Since when the rendezvous is being closed.
    closing: Option<Duration>,
}

impl Driver {
    pub fn new(
        config: Config,
        outlet: Outlet,
        line: Line,
        inputs: Receiver<Input>,
        Place { listeners, sits_there }: Place,
    ) -> Result<Self> {
        let what = || "wait for other hosts";
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(what)?;
        for (number, listener) in (LISTENERS..).zip(&listeners) {
            listener.set_nonblocking(true).context(|| "listen for other hosts")?;
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, number)).context(what)?;
        }
        epoll.add(&*line.wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE)).context(what)?;
        let key = config.token.key("torchrs rendezvous");
        let id = HostId(random()?);
        let lock = config.lock.as_ref().map(|folder| Lock::new(folder, id)).transpose();
        let lock = lock.map_err(|why| Error::config("--rdzv-lock", why))?;
        let mut driver = Driver {
            key,
            id,
            config,
            outlet,
            line,
            inputs,
            epoll,
            listeners,
            member: None,
            leader: None,
            link: Link::None,
            peers: BTreeMap::new(),
            next: OWN + 1,
            claims: BTreeMap::new(),
            reached: BTreeMap::new(),
            later: VecDeque::new(),
            lock,
            awaits_welcome: false,
            said: String::new(),
            closing: None,
        };
        let host = driver.host().context(|| "find this host's address")?;
        // Nothing: the endpoint's name is looked up at each call.
        let endpoint = if sits_there { None } else { Some(Vec::new()) };
        let mut out = Vec::new();
        let now = driver.now();
        driver.member =
            Some(Member::new(driver.config.settings.clone(), host, endpoint, now, &mut out));
        driver.do_member(out);
        driver.settle();
        Ok(driver)
    }

    fn host(&self) -> std::io::Result<Host> {
        let version = env!("CARGO_PKG_VERSION");
        Ok(Host {
            id: self.id,
            name: self.config.name.clone(),
            addresses: self
                .listeners
                .iter()
                .map(TcpListener::local_addr)
                .collect::<std::io::Result<_>>()?,
            nproc: self.config.nproc,
            node_rank: self.config.node_rank,
            version: version.to_owned(),
            fingerprint: fingerprint(version),
        })
    }

    /// CLOCK_MONOTONIC, by which workers' ends are told, too.
    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
        now.into()
    }

    /// Until the rendezvous is closed, and a little longer for what is still to be sent.
    pub fn run(mut self) {
        let mut events = vec![EpollEvent::empty(); 256];
        loop {
            let now = self.now();
            if let Some(since) = self.closing {
                let done = self.peers.values().all(|entry| !entry.peer.has_output());
                if done || now >= since + LINGER {
                    return;
                }
            }
            let count = match self.epoll.wait(&mut events, self.timeout(now)) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(errno) => {
                    return self.outlet.give(Event::Fail(format!("epoll failed: {errno}")));
                }
            };
            for event in &events[..count] {
                match event.data() {
                    WAKE => self.take_inputs(),
                    number @ LISTENERS.. => self.accept((number - LISTENERS) as usize),
                    number => self.peer_is_ready(number),
                }
                self.settle();
            }
            self.tick();
        }
    }

    fn timeout(&self, now: Duration) -> EpollTimeout {
        let member = self.member.as_ref().and_then(Member::deadline);
        let leader = self.leader.as_ref().and_then(|leader| leader.deadline(now));
        let unproved = self.peers.values().filter(|entry| !entry.open);
        let proof = unproved.map(|entry| entry.since + PROVE_WITHIN).min();
        let linger = self.closing.map(|since| since + LINGER);
        let due = [member, leader, proof, linger].into_iter().flatten().min();
        // A millisecond more, so that the time has come.
        let wait = due.map(|due| due.saturating_sub(now) + Duration::from_millis(1));
        wait.map_or(EpollTimeout::NONE, |wait| {
            EpollTimeout::try_from(wait.min(Duration::from_secs(60))).expect("a minute at most")
        })
    }

    fn tick(&mut self) {
        let now = self.now();
        let leaders = self.member.as_ref().and_then(|member| member.by_leaders_clock(now));
        if let Some(leaders) = leaders {
            let offset = leaders.as_nanos() as i64 - now.as_nanos() as i64;
            self.outlet.offset.store(offset, Ordering::Relaxed);
        }
        let late = |entry: &Entry| !entry.open && now >= entry.since + PROVE_WITHIN;
        let late: Vec<u64> =
            self.peers.iter().filter(|(_, entry)| late(entry)).map(|(number, _)| *number).collect();
        for number in late {
            self.lose(number, format!("no proof of the job's token within {PROVE_WITHIN:?}"));
        }
        if self.closing.is_none() {
            let mut out = Vec::new();
            self.member_mut().tick(now, &mut out);
            self.do_member(out);
            self.settle();
            let mut out = Vec::new();
            if let Some(leader) = &mut self.leader {
                leader.tick(now, &mut out);
            }
            self.do_leader(out);
        }
        self.settle();
    }

    fn member_mut(&mut self) -> &mut Member {
        self.member.as_mut().expect("it is there from the beginning")
    }

    /// Does what waits, and sends what is to be sent.
    fn settle(&mut self) {
        while let Some(later) = self.later.pop_front() {
            let (now, mut out) = (self.now(), Vec::new());
            match later {
                Later::ToLeader(message) => {
                    let mut out = Vec::new();
                    if let Some(leader) = &mut self.leader {
                        leader.receive(OWN, *message, now, &mut out);
                    }
                    self.do_leader(out);
                    continue;
                }
                Later::ToMember(message) if self.link == Link::Own => {
                    self.member_mut().receive(message, now, &mut out);
                }
                Later::Called if self.link == Link::Own => self.member_mut().called(now, &mut out),
                Later::OwnClosed if self.link == Link::Own => {
                    self.link = Link::None;
                    let why = "this host's own leader has closed the connection";
                    self.member_mut().hung_up(why, false, now, &mut out);
                }
                // Of a leader that this host is no more.
                _ => continue,
            }
            self.do_member(out);
        }
        // After the start of the round that it concerns.
        let awaits = self.leader.as_ref().is_some_and(Leader::awaits_welcome);
        if awaits != self.awaits_welcome {
            self.awaits_welcome = awaits;
            self.outlet.give(Event::AwaitsWelcome(awaits));
        }
        let numbers: Vec<u64> = self
            .peers
            .iter()
            .filter(|(_, entry)| entry.peer.has_output() || entry.writes || entry.peer.closing)
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.flush(number);
        }
    }

    fn flush(&mut self, number: u64) {
        let Some(entry) = self.peers.get_mut(&number) else { return };
        if let Err(why) = entry.peer.flush() {
            return self.lose(number, why);
        }
        let writes = entry.peer.has_output();
        if entry.peer.closing && !writes {
            self.forget(number);
            return;
        }
        if writes != entry.writes {
            entry.writes = writes;
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, writes);
            if self.epoll.modify(&entry.peer, &mut EpollEvent::new(flags, number)).is_err() {
                self.lose(number, "epoll refused it".into());
            }
        }
    }

    fn take_inputs(&mut self) {
        let _ = self.line.wake.read();
        loop {
            match self.inputs.try_recv() {
                Ok(Input::Command(command)) => self.obey(command),
                Ok(Input::Dialed(dialed)) => self.dialed(dialed),
                Ok(Input::Tie(number, taken)) => {
                    let (now, mut out) = (self.now(), Vec::new());
                    if let Some(leader) = &mut self.leader {
                        leader.tie_taken(number, taken, now, &mut out);
                    }
                    self.do_leader(out);
                }
                Ok(Input::Close) | Err(TryRecvError::Disconnected) => {
                    let now = self.now();
                    self.closing.get_or_insert(now);
                    return;
                }
                Err(TryRecvError::Empty) => return,
            }
            self.settle();
        }
    }

    fn obey(&mut self, command: Command) {
        let (now, mut out, mut asked) = (self.now(), Vec::new(), Vec::new());
        match command {
            Command::WorkersEnded(verdict, report) => {
                self.member_mut().workers_ended(verdict, report, now, &mut asked);
            }
            Command::Ask(number, request) => {
                asked.push(member::Action::Send(ToLeader::Ask { number, request }));
            }
            Command::Reply(to, number, reply) => {
                out.push(action::Action::Send(to, ToMember::Answer { number, reply }));
            }
            Command::Finish(exit_code, text) => {
                if let Some(leader) = &mut self.leader {
                    leader.finish(exit_code, text, &mut out);
                }
            }
            Command::Stop => match &mut self.leader {
                Some(leader) => leader.stop(now, &mut out),
                None => asked.push(member::Action::Fail("it was asked to stop".into())),
            },
            Command::Welcome(round) => {
                if let Some(leader) = &mut self.leader {
                    leader.welcome(round, now, &mut out);
                }
            }
            Command::WorkersFailing => self.member_mut().workers_failing(&mut asked),
            Command::Status(text) if self.sends_at_once() => {
                asked.push(member::Action::Send(ToLeader::Status { text }));
            }
            Command::Status(_) => {}
        }
        self.do_member(asked);
        self.do_leader(out);
    }

    fn enter(&mut self, peer: Peer, used: Use) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        self.epoll.add(&peer, EpollEvent::new(EpollFlags::EPOLLIN, number)).ok()?;
        let open = peer.is_open();
        let entry = Entry { peer, used, since: self.now(), open, writes: false };
        self.peers.insert(number, entry);
        self.flush(number);
        Some(number)
    }

    fn accept(&mut self, listener: usize) {
        // Others wait in the kernel's queue till the next turn of the loop.
        for _ in 0..64 {
            match self.listeners[listener].accept() {
                Ok((socket, _)) => {
                    let unproved = self.peers.values().filter(|entry| !entry.open).count();
                    if unproved >= MOST_UNPROVED {
                        continue;
                    }
                    if let Ok(peer) = Peer::of_caller(socket, &self.key) {
                        self.enter(peer, Use::Incoming);
                    }
                }
                // Of an error that stays, such as too many open files, the next look tells.
                Err(_) => return,
            }
        }
    }

    fn peer_is_ready(&mut self, number: u64) {
        let Some(entry) = self.peers.get_mut(&number) else { return };
        match entry.used {
            Use::Incoming => {
                let (messages, gone) = entry.peer.receive::<ToLeader>();
                self.opened(number);
                for message in messages {
                    self.told_by_member(number, message);
                }
                gone.into_iter().for_each(|why| self.lose(number, why));
            }
            Use::ToLeader => {
                let (messages, gone) = entry.peer.receive::<ToMember>();
                for message in messages {
                    let (now, mut out) = (self.now(), Vec::new());
                    if self.link == Link::Peer(number) {
                        self.member_mut().receive(message, now, &mut out);
                    }
                    self.do_member(out);
                }
                gone.into_iter().for_each(|why| self.lose(number, why));
            }
            Use::Claim => {
                let (_, gone) = entry.peer.receive::<ToMember>();
                gone.into_iter().for_each(|why| self.lose(number, why));
            }
        }
    }

    /// Looks whether a caller has proved itself just now: it learns who answers.
    fn opened(&mut self, number: u64) {
        let Some(entry) = self.peers.get_mut(&number) else { return };
        if entry.open || !entry.peer.is_open() {
            return;
        }
        entry.open = true;
        entry.peer.send(&ToMember::Here { id: self.id });
        if self.leader.is_none() {
            let referral = self.member.as_ref().map(Member::referral);
            entry.peer.send(&referral.unwrap_or(ToMember::NotLeader { round: None }));
        }
    }

    fn told_by_member(&mut self, number: u64, message: ToLeader) {
        let (now, mut out) = (self.now(), Vec::new());
        if let Some(leader) = &mut self.leader {
            leader.receive(number, message, now, &mut out);
        }
        self.do_leader(out);
    }

    /// A connection is no more.
    fn lose(&mut self, number: u64, why: String) {
        let Some(entry) = self.forget(number) else { return };
        let (now, mut out) = (self.now(), Vec::new());
        match entry.used {
            Use::Claim => {}
            Use::Incoming => {
                if let Some(leader) = &mut self.leader {
                    leader.disconnected(number, now, &mut out);
                }
                self.do_leader(out);
                self.outlet.give(Event::Gone(number));
            }
            Use::ToLeader if self.link == Link::Peer(number) => {
                self.link = Link::None;
                let why = format!("{}: {why}", entry.peer.address);
                let mut out = Vec::new();
                self.member_mut().hung_up(&why, false, now, &mut out);
                self.do_member(out);
            }
            Use::ToLeader => {}
        }
    }

    fn forget(&mut self, number: u64) -> Option<Entry> {
        let entry = self.peers.remove(&number)?;
        let _ = self.epoll.delete(entry.peer.as_fd());
        Some(entry)
    }

    fn hang_up(&mut self) {
        if let Link::Peer(number) = std::mem::replace(&mut self.link, Link::None)
            && let Some(entry) = self.peers.get_mut(&number)
        {
            entry.peer.closing = true;
        }
    }

    fn do_member(&mut self, actions: Vec<member::Action>) {
        for action in actions {
            match action {
                member::Action::Call { id, addresses } => {
                    self.hang_up();
                    let reached_at = id.and_then(|id| self.reached.get(&id).copied());
                    let number = self.dial(Callee { id, addresses, reached_at });
                    self.link = Link::Dialing(number);
                }
                member::Action::Lead { term, after } => {
                    self.hang_up();
                    let settings = self.config.settings.clone();
                    self.leader = Some(Leader::new(settings, self.id, term, after, self.now()));
                    self.link = Link::Own;
                    self.outlet.give(Event::Leads(true));
                    self.later.push_back(Later::Called);
                }
                member::Action::Resign => self.drop_leader(),
                member::Action::Send(message) => match self.link {
                    Link::Own => self.later.push_back(Later::ToLeader(Box::new(message))),
                    Link::Peer(number) => {
                        if let Some(entry) = self.peers.get_mut(&number).filter(|e| e.open) {
                            entry.peer.send(&message);
                        }
                    }
                    Link::None | Link::Dialing(_) => {}
                },
                member::Action::Claim(addresses, round) => {
                    let job = self.config.settings.job.clone();
                    let number = self.dial(Callee { addresses, ..Callee::default() });
                    self.claims.insert(number, ToLeader::Claim { job, round });
                }
                member::Action::Start(round) => {
                    self.awaits_welcome = false;
                    let group_rank = round.group_rank(self.id).expect("it takes part");
                    let leads = round.leader == self.id;
                    let first_host = self.way_to_first(&round);
                    self.outlet.give(Event::Start { round, group_rank, leads, first_host });
                }
                member::Action::Stop { at_once, why } => {
                    self.outlet.give(Event::Stop { at_once, why })
                }
                member::Action::Answer(number, reply) => {
                    self.outlet.give(Event::Answer(number, reply));
                }
                member::Action::Over { exit_code, text } => {
                    self.outlet.give(Event::Over(exit_code, text));
                }
                member::Action::Fail(why) => self.outlet.give(Event::Fail(why)),
                member::Action::Say(text) => self.outlet.give(Event::Say(text)),
            }
        }
    }

    /// In a thread of its own: a shared folder may take its time.
    fn take_tie(&mut self, tie: Tie) {
        let Some(lock) = self.lock.clone() else { return };
        let (id, name) = (self.id, self.config.name.clone());
        let (results, wake) = (self.line.results.clone(), self.line.wake.clone());
        let number = tie.number;
        let work = move || {
            let _ = results.send(Input::Tie(number, lock.take(&tie, id, &name)));
            let _ = wake.write(1);
        };
        let thread = std::thread::Builder::new().name("torchrs-lock".into()).spawn(work);
        if let Err(error) = thread {
            let why = format!("cannot start a thread: {error}");
            let _ = self.line.results.send(Input::Tie(number, Taken::Failed(why)));
            let _ = self.line.wake.write(1);
        }
    }

    fn drop_leader(&mut self) {
        if self.leader.take().is_none() {
            return;
        }
        if self.link == Link::Own {
            self.link = Link::None;
        }
        for entry in self.peers.values_mut().filter(|entry| entry.used == Use::Incoming) {
            entry.peer.closing = true;
        }
        self.outlet.give(Event::Leads(false));
    }

    fn do_leader(&mut self, actions: Vec<action::Action>) {
        // A round is long, and all its hosts get the same.
        let mut proposal: Option<(Arc<Round>, Vec<u8>)> = None;
        for action in actions {
            match action {
                action::Action::Send(OWN, message) => {
                    self.later.push_back(Later::ToMember(message));
                }
                action::Action::Send(to, ToMember::Propose { round }) => {
                    let known = proposal.take().filter(|(known, _)| Arc::ptr_eq(known, &round));
                    let encode = || encode(&ToMember::Propose { round: round.clone() });
                    let bytes = known.map_or_else(encode, |(_, bytes)| bytes);
                    if let Some(entry) = self.peers.get_mut(&to).filter(|entry| entry.open) {
                        entry.peer.send_encoded(&bytes);
                    }
                    proposal = Some((round, bytes));
                }
                action::Action::Send(to, message) => {
                    if let Some(entry) = self.peers.get_mut(&to).filter(|entry| entry.open) {
                        entry.peer.send(&message);
                    }
                }
                action::Action::Close(OWN) => self.later.push_back(Later::OwnClosed),
                action::Action::Close(number) => {
                    if let Some(entry) = self.peers.get_mut(&number) {
                        entry.peer.closing = true;
                    }
                }
                action::Action::Ask(from, number, request) => {
                    self.outlet.give(Event::Ask(from, number, request));
                }
                action::Action::Resign(known) => {
                    self.drop_leader();
                    let (now, mut out) = (self.now(), Vec::new());
                    self.member_mut().resigned(known, now, &mut out);
                    self.do_member(out);
                }
                action::Action::TakeTie(tie) => self.take_tie(tie),
                action::Action::Say(text) => {
                    if text != self.said {
                        self.said.clone_from(&text);
                        self.outlet.give(Event::Say(text));
                    }
                }
                action::Action::Status(text) => self.outlet.give(Event::Status(text)),
                action::Action::Restarting(ending) => self.outlet.give(Event::Restarting(ending)),
                action::Action::Ended(ending) => self.outlet.give(Event::Ended(ending)),
            }
        }
    }
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .context(|| "read /dev/urandom")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Of what has to be the same on all hosts.
fn fingerprint(version: &str) -> u64 {
    // FNV-1a: the same in every build.
    version.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
