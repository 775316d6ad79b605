//! The world of a simulation: its clock, its network, and launchers that only follow the protocol.

mod deeds;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use torchrs_rendezvous::action;
use torchrs_rendezvous::leader::Leader;
use torchrs_rendezvous::lock::{Taken, Tie};
use torchrs_rendezvous::member::{self, Member};
use torchrs_rendezvous::protocol::{Host, HostId, Round, ToLeader, ToMember, Verdict};
use torchrs_rendezvous::settings::Settings;

pub use deeds::Deed;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// What happens at a time.
#[derive(Debug)]
enum Event {
    /// A call from a host to another arrives; the connection's number.
    Ring {
        link: u64,
    },
    Answered {
        link: u64,
    },
    Refused {
        link: u64,
    },
    Up {
        link: u64,
        message: ToLeader,
    },
    Down {
        link: u64,
        message: ToMember,
    },
    /// The other end of a link hears that it is no more.
    Closed {
        link: u64,
        at_leader: bool,
    },
    /// What was on its way over a link when that parted.
    Retry {
        link: u64,
    },
    Tick {
        host: usize,
    },
    Claim {
        from: usize,
        to: usize,
        message: ToLeader,
    },
    WorkersEnd {
        host: usize,
        verdict: Verdict,
        round: (u64, u64),
    },
    /// A tie is asked for in the shared folder, and the answer.
    TakeTie {
        end: (usize, u64),
        tie: Tie,
    },
    TieTaken {
        end: (usize, u64),
        number: u32,
        taken: Taken,
    },
    Do(Deed),
}

/// A connection from a host to the leader on another, or on the same.
struct Link {
    from: (usize, u64),
    to: (usize, u64),
    /// The launcher that was meant; nothing: whichever is there.
    meant: Option<HostId>,
    open: bool,
}

pub struct Launcher {
    /// Counts the launchers on this host.
    life: u64,
    alive: bool,
    member: Option<Member>,
    leader: Option<Leader>,
    link: Option<u64>,
    running: Option<Arc<Round>>,
    ending: bool,
    cut: bool,
    frozen_until: Duration,
    pub over: Option<i32>,
    pub failed: Option<String>,
    tick_at: Duration,
}

pub struct World {
    pub settings: Settings,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
    pub launchers: Vec<Launcher>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    /// When the last message of each way arrives.
    arrivals: BTreeMap<(u64, bool), Duration>,
    /// What waits for a link to heal, in order.
    stalled: BTreeMap<u64, VecDeque<Event>>,
    dice: u64,
    /// Rounds that were started, with the time.
    pub started: Vec<(Duration, Arc<Round>)>,
    pub worker_time: Duration,
    /// What leaders have said to their users.
    pub said: Vec<String>,
    /// Who has which tie, in the shared folder.
    ties: BTreeMap<(HostId, u32), (usize, u64)>,
    folder_is_gone: bool,
    /// How much has happened.
    count: u64,
    /// For each kind of message between launchers how many there were, and their bytes.
    pub traffic: BTreeMap<&'static str, (u64, usize)>,
}

fn kind_up(message: &ToLeader) -> &'static str {
    match message {
        ToLeader::Join { .. } => "join",
        ToLeader::Alive { .. } => "alive",
        _ => "others to the leader",
    }
}

fn kind_down(message: &ToMember) -> &'static str {
    match message {
        ToMember::Propose { .. } => "propose",
        ToMember::Alive { .. } => "alive",
        _ => "others from the leader",
    }
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 77, (host / 250) as u8, (host % 250) as u8 + 1], 29400))
}

/// Of a launcher's life on a host.
fn id_of((host, life): (usize, u64)) -> HostId {
    HostId((host as u64) << 16 | life)
}

fn host_at(address: SocketAddr) -> usize {
    let std::net::IpAddr::V4(ip) = address.ip() else {
        unreachable!("an address of the simulation")
    };
    let [_, _, high, low] = ip.octets();
    usize::from(high) * 250 + usize::from(low) - 1
}

impl World {
    pub fn new(hosts: usize, settings: Settings, dice: u64) -> World {
        let launcher = || Launcher {
            life: 0,
            alive: false,
            member: None,
            leader: None,
            link: None,
            running: None,
            ending: false,
            cut: false,
            frozen_until: Duration::ZERO,
            over: None,
            failed: None,
            tick_at: Duration::MAX,
        };
        World {
            settings,
            now: SECOND,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            launchers: (0..hosts).map(|_| launcher()).collect(),
            links: BTreeMap::new(),
            next_link: 1,
            arrivals: BTreeMap::new(),
            stalled: BTreeMap::new(),
            dice: dice | 1,
            started: Vec::new(),
            worker_time: Duration::from_secs(100_000),
            said: Vec::new(),
            ties: BTreeMap::new(),
            folder_is_gone: false,
            count: 0,
            traffic: BTreeMap::new(),
        }
    }

    pub fn roll(&mut self, most: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % most.max(1)
    }

    fn at(&mut self, when: Duration, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((when, self.next)));
        self.events.insert(self.next, event);
    }

    fn count_bytes(&mut self, kind: &'static str, message: &impl serde::Serialize) {
        let counts = self.traffic.entry(kind).or_default();
        *counts = (counts.0 + 1, counts.1 + postcard::to_allocvec(message).unwrap().len());
    }

    fn later(&mut self, event: Event) {
        match &event {
            Event::Up { message, .. } => self.count_bytes(kind_up(message), message),
            Event::Down { message, .. } => self.count_bytes(kind_down(message), message),
            _ => {}
        }
        let mut when = self.now + MS / 10 * (1 + self.roll(10) as u32);
        // What goes one way over a link keeps its order.
        let way = match &event {
            Event::Up { link, .. } => Some((*link, true)),
            Event::Down { link, .. } | Event::Answered { link } => Some((*link, false)),
            _ => None,
        };
        if let Some(way) = way {
            let last = self.arrivals.entry(way).or_default();
            when = when.max(*last);
            *last = when;
        }
        self.at(when, event);
    }

    pub fn deed(&mut self, when: Duration, deed: Deed) {
        self.at(SECOND + when, Event::Do(deed));
    }

    /// Whether what comes over a link has to wait.
    fn holds(&self, link: u64) -> bool {
        let l = &self.links[&link];
        self.stalled.contains_key(&link) || self.parted(l.from.0, l.to.0)
    }

    fn parted(&self, a: usize, b: usize) -> bool {
        a != b && (self.launchers[a].cut || self.launchers[b].cut)
    }

    /// Until that time, or until nothing is left to happen.
    pub fn run_until(&mut self, end: Duration) {
        let end = SECOND + end;
        while let Some(Reverse((when, number))) = self.queue.peek().copied() {
            if when > end {
                break;
            }
            self.queue.pop();
            assert!(when >= self.now);
            self.now = when;
            self.count += 1;
            assert!(self.count < 3_000_000, "too much happens");
            let event = self.events.remove(&number).expect("an event");
            self.happen(event);
            // Of many hosts now and then: each look goes over all of them.
            if self.launchers.len() < 50 || self.count.is_multiple_of(500) {
                self.check();
            }
        }
        self.now = end;
    }

    /// Never two rounds at once: all workers that run, wherever, are of one.
    fn check(&self) {
        // One that has just gone on again has not had the time to notice.
        let frozen = |l: &Launcher| l.frozen_until + 20 * MS > self.now;
        let running = self.launchers.iter().filter(|l| l.alive && !frozen(l));
        let mut running = running.filter_map(|l| l.running.as_ref());
        let Some(first) = running.next() else { return };
        // Of many hosts a look at all their names takes too long.
        let is_large = self.launchers.len() >= 50;
        let same = |other: &Arc<Round>| match is_large {
            true => (other.stamp(), other.leader) == (first.stamp(), first.leader),
            false => other == first,
        };
        let other = running.find(|other| !same(other));
        let of = |r: &Arc<Round>| {
            let hosts: Vec<_> = r.hosts.iter().map(|host| host.name.as_str()).collect();
            format!("{} of term {} led by {:x}: {hosts:?}", r.number, r.term.0, r.leader.0)
        };
        assert!(
            other.is_none(),
            "at {:?} two rounds: {}, {:?}",
            self.now,
            of(first),
            other.map(of)
        );
    }

    fn begin(&mut self, host: usize) {
        let life = self.launchers[host].life + 1;
        let id = id_of((host, life));
        let own = Host {
            id,
            name: format!("h{host}"),
            addresses: vec![address(host)],
            nproc: 1,
            node_rank: None,
            version: "1".into(),
            fingerprint: 1,
        };
        let endpoint = (host != 0).then(|| vec![address(0)]);
        let mut out = Vec::new();
        let member = Member::new(self.settings.clone(), own, endpoint, self.now, &mut out);
        let launcher = &mut self.launchers[host];
        *launcher = Launcher {
            life,
            alive: true,
            member: Some(member),
            leader: None,
            link: None,
            running: None,
            ending: false,
            cut: launcher.cut,
            frozen_until: Duration::ZERO,
            over: None,
            failed: None,
            tick_at: Duration::MAX,
        };
        self.do_member(host, out);
    }

    fn hang_up(&mut self, link: u64, by_leader: bool) {
        let Some(l) = self.links.get_mut(&link).filter(|l| l.open) else { return };
        l.open = false;
        self.later(Event::Closed { link, at_leader: !by_leader });
    }

    fn do_member(&mut self, host: usize, actions: Vec<member::Action>) {
        for action in actions {
            match action {
                member::Action::Call { id, addresses } => {
                    let to = host_at(addresses[0]);
                    self.call(host, to, id);
                }
                member::Action::Lead { term, after } => {
                    let id = id_of((host, self.launchers[host].life));
                    let leader = Leader::new(self.settings.clone(), id, term, after, self.now);
                    self.launchers[host].leader = Some(leader);
                    self.call(host, host, None);
                }
                member::Action::Resign => self.drop_leader(host),
                member::Action::Send(message) => {
                    if let Some(link) = self.launchers[host].link {
                        self.later(Event::Up { link, message });
                    }
                }
                member::Action::Claim(addresses, round) => {
                    let to = host_at(addresses[0]);
                    let job = self.settings.job.clone();
                    self.later(Event::Claim {
                        from: host,
                        to,
                        message: ToLeader::Claim { job, round },
                    });
                }
                member::Action::Start(round) => {
                    self.started.push((self.now, round.clone()));
                    let time = self.worker_time;
                    let round_of = (round.number, round.term.0);
                    self.launchers[host].running = Some(round);
                    self.launchers[host].ending = false;
                    self.at(
                        self.now + time,
                        Event::WorkersEnd { host, verdict: Verdict::Success, round: round_of },
                    );
                }
                member::Action::Stop { at_once, .. } => {
                    let Some(round) = &self.launchers[host].running else { continue };
                    let round_of = (round.number, round.term.0);
                    let delay = if at_once { MS } else { MS * (1 + self.roll(2000) as u32) };
                    if at_once {
                        // SIGKILL: they do nothing more.
                        self.launchers[host].ending = true;
                    }
                    self.at(
                        self.now + delay,
                        Event::WorkersEnd { host, verdict: Verdict::Stopped, round: round_of },
                    );
                }
                member::Action::Over { exit_code, .. } => {
                    self.launchers[host].over = Some(exit_code)
                }
                member::Action::Fail(why) => self.launchers[host].failed = Some(why),
                member::Action::Answer(..) | member::Action::Say(_) => {}
            }
        }
        self.plan_tick(host);
    }

    fn call(&mut self, host: usize, to: usize, meant: Option<HostId>) {
        if let Some(before) = self.launchers[host].link.take() {
            self.hang_up(before, false);
        }
        let link = self.next_link;
        self.next_link += 1;
        let lives = [host, to].map(|h| (h, self.launchers[h].life));
        self.links.insert(link, Link { from: lives[0], to: lives[1], meant, open: true });
        self.launchers[host].link = Some(link);
        self.later(Event::Ring { link });
    }

    fn drop_leader(&mut self, host: usize) {
        if self.launchers[host].leader.take().is_some() {
            let life = self.launchers[host].life;
            let mine: Vec<u64> = self
                .links
                .iter()
                .filter(|(_, l)| l.to == (host, life) && l.open)
                .map(|(k, _)| *k)
                .collect();
            mine.into_iter().for_each(|link| self.hang_up(link, true));
        }
    }

    fn do_leader(&mut self, host: usize, actions: Vec<action::Action>) {
        let mut again = Vec::new();
        for action in actions {
            match action {
                action::Action::Send(link, message) => self.later(Event::Down { link, message }),
                action::Action::Close(link) => {
                    // What was sent before arrives before.
                    self.at(self.now + 2 * MS, Event::Closed { link, at_leader: false });
                }
                action::Action::Ask(..)
                | action::Action::Status(_)
                | action::Action::Restarting(_) => {}
                action::Action::Say(text) => self.said.push(text),
                action::Action::TakeTie(tie) => {
                    let end = (host, self.launchers[host].life);
                    let delay = MS * (1 + self.roll(300) as u32);
                    self.at(self.now + delay, Event::TakeTie { end, tie });
                }
                action::Action::Resign(known) => {
                    self.drop_leader(host);
                    let mut out = Vec::new();
                    let now = self.now;
                    self.launchers[host].member.as_mut().unwrap().resigned(known, now, &mut out);
                    self.do_member(host, out);
                }
                action::Action::Ended(ending) => {
                    let good = ending.why.is_none() && ending.hindrance.is_none();
                    if let Some(leader) = &mut self.launchers[host].leader {
                        leader.finish(
                            i32::from(!good),
                            ending.hindrance.unwrap_or_default(),
                            &mut again,
                        );
                    }
                }
            }
        }
        if !again.is_empty() {
            self.do_leader(host, again);
        }
        self.plan_tick(host);
    }

    fn plan_tick(&mut self, host: usize) {
        let l = &self.launchers[host];
        let due = l.member.as_ref().and_then(Member::deadline);
        let due = due.into_iter().chain(l.leader.as_ref().and_then(|l| l.deadline(self.now))).min();
        if let Some(due) = due.filter(|due| *due < l.tick_at || l.tick_at <= self.now) {
            let when = due.max(self.now + MS);
            self.launchers[host].tick_at = when;
            self.at(when, Event::Tick { host });
        }
    }

    /// Whether the launcher at that end is still the one that the link was made with.
    fn is_there(&self, end: (usize, u64)) -> bool {
        let l = &self.launchers[end.0];
        l.alive && l.life == end.1
    }

    fn happen(&mut self, event: Event) {
        // A frozen host does everything later.
        let of = match &event {
            Event::Ring { link }
            | Event::Up { link, .. }
            | Event::Closed { link, at_leader: true } => Some(self.links[link].to.0),
            Event::Answered { link }
            | Event::Refused { link }
            | Event::Down { link, .. }
            | Event::Closed { link, at_leader: false } => Some(self.links[link].from.0),
            Event::Retry { .. } => None,
            Event::Tick { host } | Event::WorkersEnd { host, .. } => Some(*host),
            Event::Claim { to, .. } => Some(*to),
            Event::TakeTie { end, .. } | Event::TieTaken { end, .. } => Some(end.0),
            Event::Do(_) => None,
        };
        if let Some(thaw) =
            of.map(|host| self.launchers[host].frozen_until).filter(|thaw| *thaw > self.now)
        {
            return self.at(thaw, event);
        }
        let over = match &event {
            Event::Up { link, .. } | Event::Down { link, .. } | Event::Closed { link, .. } => {
                Some(*link)
            }
            _ => None,
        };
        if let Some(link) = over.filter(|link| self.holds(*link)) {
            if !self.stalled.contains_key(&link) {
                self.at(self.now + 50 * MS, Event::Retry { link });
            }
            return self.stalled.entry(link).or_default().push_back(event);
        }
        match event {
            Event::Retry { link } => {
                let l = &self.links[&link];
                if self.parted(l.from.0, l.to.0) {
                    return self.at(self.now + 50 * MS, Event::Retry { link });
                }
                for event in self.stalled.remove(&link).unwrap_or_default() {
                    self.happen(event);
                }
            }
            Event::Ring { link } => {
                let (from, to) = (self.links[&link].from, self.links[&link].to);
                if self.parted(from.0, to.0) || !self.links[&link].open {
                    return;
                }
                let id = id_of(to);
                let is_another = self.links[&link].meant.is_some_and(|meant| meant != id);
                if !self.is_there(to) || is_another {
                    self.later(Event::Refused { link });
                } else if self.launchers[to.0].leader.is_some() {
                    self.later(Event::Answered { link });
                } else {
                    self.later(Event::Answered { link });
                    let message = self.launchers[to.0].member.as_ref().unwrap().referral();
                    self.later(Event::Down { link, message });
                }
            }
            Event::Answered { link } => {
                let host = self.links[&link].from.0;
                if self.launchers[host].link == Some(link) && self.is_there(self.links[&link].from)
                {
                    let (now, mut out) = (self.now, Vec::new());
                    self.launchers[host].member.as_mut().unwrap().called(now, &mut out);
                    self.do_member(host, out);
                }
            }
            Event::Refused { link } => self.closed_at_member(link, "connection refused", true),
            Event::Closed { link, at_leader: false } => {
                self.hang_up(link, true);
                self.closed_at_member(link, "connection closed", false);
            }
            Event::Closed { link, at_leader: true } => {
                let to = self.links[&link].to;
                if self.is_there(to)
                    && let Some(leader) = &mut self.launchers[to.0].leader
                {
                    let (now, mut out) = (self.now, Vec::new());
                    leader.disconnected(link, now, &mut out);
                    self.do_leader(to.0, out);
                }
            }
            Event::Up { link, message } => {
                let l = &self.links[&link];
                let (from, to) = (l.from, l.to);
                if !l.open
                    || self.parted(from.0, to.0)
                    || !self.is_there(to)
                    || !self.is_there(from)
                {
                    return;
                }
                let (now, mut out) = (self.now, Vec::new());
                match &mut self.launchers[to.0].leader {
                    Some(leader) => leader.receive(link, message, now, &mut out),
                    None => return,
                }
                self.do_leader(to.0, out);
            }
            Event::Down { link, message } => {
                let l = &self.links[&link];
                let (from, to) = (l.from, l.to);
                if self.parted(from.0, to.0)
                    || !self.is_there(from)
                    || self.launchers[from.0].link != Some(link)
                {
                    return;
                }
                let (now, mut out) = (self.now, Vec::new());
                self.launchers[from.0].member.as_mut().unwrap().receive(message, now, &mut out);
                self.do_member(from.0, out);
            }
            Event::Claim { from, to, message } => {
                if self.parted(from, to) || !self.launchers[to].alive {
                    return;
                }
                let (now, mut out) = (self.now, Vec::new());
                if let Some(leader) = &mut self.launchers[to].leader {
                    leader.receive(u64::MAX, message, now, &mut out);
                    self.do_leader(to, out);
                }
            }
            Event::Tick { host } => {
                // Another one was planned after this.
                if !self.launchers[host].alive || self.launchers[host].tick_at > self.now {
                    return;
                }
                let (now, mut out) = (self.now, Vec::new());
                self.launchers[host].tick_at = Duration::MAX;
                self.launchers[host].member.as_mut().unwrap().tick(now, &mut out);
                self.do_member(host, out);
                let mut out = Vec::new();
                if let Some(leader) = &mut self.launchers[host].leader {
                    leader.tick(now, &mut out);
                    self.do_leader(host, out);
                }
                self.plan_tick(host);
            }
            Event::WorkersEnd { host, verdict, round } => {
                let l = &mut self.launchers[host];
                let same = l.running.as_ref().is_some_and(|r| (r.number, r.term.0) == round);
                if l.alive && same {
                    l.running = None;
                    let (now, mut out) = (self.now, Vec::new());
                    l.member.as_mut().unwrap().workers_ended(verdict, Vec::new(), now, &mut out);
                    self.do_member(host, out);
                }
            }
            Event::TakeTie { end, tie } => {
                if !self.is_there(end) {
                    return;
                }
                let number = tie.number;
                let taken = if self.folder_is_gone {
                    Taken::Failed("is gone".into())
                } else {
                    match *self.ties.entry((tie.begun_by, number)).or_insert(end) {
                        by if by == end => Taken::Ours,
                        by => Taken::Theirs(format!("h{}", by.0)),
                    }
                };
                let delay = MS * (1 + self.roll(300) as u32);
                self.at(self.now + delay, Event::TieTaken { end, number, taken });
            }
            Event::TieTaken { end, number, taken } => {
                if !self.is_there(end) {
                    return;
                }
                let (now, mut out) = (self.now, Vec::new());
                if let Some(leader) = &mut self.launchers[end.0].leader {
                    leader.tie_taken(number, taken, now, &mut out);
                    self.do_leader(end.0, out);
                }
            }
            Event::Do(deed) => self.perform(deed),
        }
    }

    fn closed_at_member(&mut self, link: u64, why: &str, refused: bool) {
        let from = self.links[&link].from;
        if self.launchers[from.0].link == Some(link) && self.is_there(from) {
            self.launchers[from.0].link = None;
            let (mut out, now) = (Vec::new(), self.now);
            self.launchers[from.0].member.as_mut().unwrap().hung_up(why, refused, now, &mut out);
            self.do_member(from.0, out);
        }
    }

    /// The hosts whose workers run now.
    pub fn running(&self) -> Vec<usize> {
        let runs = |l: &Launcher| l.alive && l.running.is_some() && !l.ending;
        (0..self.launchers.len()).filter(|h| runs(&self.launchers[*h])).collect()
    }
}
