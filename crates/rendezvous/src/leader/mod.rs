//! What the leader of a job knows and decides. It reads no clock and sends nothing: it is told what came and when,
//! and says what is to be sent, so that any order of events can be tried on it.
//!
//! A job goes through rounds. *Gathering*: hosts join until there are enough. *Proposed*: each of them accepts the
//! round. *Running*: their workers run. *Stopping*: something ended the round, and all report. Then the next round
//! begins, or the job is over.
//!
//! Only one part of a job that fell apart goes on: that which has more than half of the last round's hosts, or half of
//! them and the leader; with a [lock](crate::lock), half of them and the tie. The same holds for rounds after that one
//! that were proposed: for a host a round counts from its acceptance on, and for its leader from its proposal on. So
//! two different rounds after one and the same cannot both be accepted by all.

mod gathering;
mod members;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::members::{Member, Members};
use crate::action::{Action, Connection};
use crate::ending::Ending;
use crate::fitting::objection;
use crate::history::History;
use crate::protocol::{Host, HostId, Round, Share, Term, ToLeader, ToMember, Verdict, Why};
use crate::settings::{ScaleUp, Settings};

/// How often all who wait are told how many they are.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// How long hosts that may be on their way are waited for, before a tie is taken without them.
const LATER: Duration = Duration::from_secs(1);
/// How long a leader that knows of no round waits, where there may be one elsewhere.
const CLAIMS: Duration = Duration::from_millis(2500);

enum Phase {
    Gathering {
        since: Duration,
        last_call: Option<Duration>,
    },
    Proposed {
        round: Arc<Round>,
        accepted: BTreeSet<HostId>,
    },
    Running {
        round: Arc<Round>,
        ended: BTreeMap<HostId, (Verdict, Vec<u8>)>,
    },
    Stopping {
        round: Arc<Round>,
        why: Why,
        ended: BTreeMap<HostId, (Verdict, Vec<u8>)>,
        gone: BTreeSet<HostId>,
        at_once: bool,
    },
    Over,
}

/// The leader of a job.
pub struct Leader {
    settings: Settings,
    own: HostId,
    term: Term,
    /// The rounds that the next one follows.
    after: History,
    restarts: u32,
    members: Members,
    /// No host falls silent before this time, and none for longer than it may.
    look_at: Duration,
    next_order: u64,
    /// Hosts that fell silent may have running workers till then.
    not_before: Duration,
    phase: Phase,
    /// Whether the program has said that now is a good time for a change.
    welcome: bool,
    /// Ties that the next round follows from, in the last of which this host or its round's leader has won.
    ties: u32,
    /// The tie that was last asked for, and whether another host has it.
    asked: Option<(u32, bool)>,
    /// The last who was told that it waits, and when all were.
    told: u64,
    told_at: Option<Duration>,
}

impl Leader {
    /// The leader of a job that begins (`after` is empty), or goes on after those rounds.
    pub fn new(settings: Settings, own: HostId, term: Term, after: History, now: Duration) -> Self {
        let restarts = after.latest().map_or(0, |round| round.restarts + 1);
        Leader {
            settings,
            own,
            term,
            after,
            restarts,
            members: Members::default(),
            look_at: Duration::MAX,
            next_order: 0,
            not_before: Duration::ZERO,
            phase: Phase::Gathering { since: now, last_call: None },
            welcome: false,
            ties: 0,
            asked: None,
            told: 0,
            told_at: None,
        }
    }

    /// What came over a connection.
    pub fn receive(
        &mut self,
        from: Connection,
        message: ToLeader,
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        if let ToLeader::Join { settings, host, accepted, busy } = message {
            let order = self.part_from(host.id, now, out);
            self.learn(accepted);
            self.join(from, settings, host, (busy, order), now, out);
            return self.step(now, out);
        }
        if let ToLeader::Claim { job, round } = message {
            let later = self.after.latest().is_none_or(|last| last.stamp() < round.stamp());
            if let Phase::Gathering { .. } = self.phase
                && later
                && job == self.settings.job
            {
                self.phase = Phase::Over;
                out.push(Action::Resign(Some(round)));
            }
            return;
        }
        let Some(id) = self.members.of_connection(from) else {
            out.push(Action::Close(from));
            return;
        };
        match message {
            ToLeader::Join { .. } | ToLeader::Claim { .. } => unreachable!("handled above"),
            ToLeader::Alive { sent_at, clock } => {
                self.members.heard(id, clock.min(now), now);
                out.push(Action::Send(from, ToMember::Alive { sent_at, clock: now }));
            }
            ToLeader::Accept { term, number } => {
                if let Phase::Proposed { round, accepted } = &mut self.phase
                    && (round.term, round.number) == (term, number)
                {
                    accepted.insert(id);
                }
            }
            ToLeader::Ended { number, verdict, report } => {
                self.ended(id, number, verdict, report, now, out)
            }
            ToLeader::Ask { number, request } => out.push(Action::Ask(from, number, request)),
            ToLeader::Failing { number } => self.failing(id, number, now, out),
            ToLeader::Status { text } => out.push(Action::Status(text)),
        }
        self.step(now, out);
    }

    /// A connection is no more: its host is lost.
    pub fn disconnected(&mut self, connection: Connection, now: Duration, out: &mut Vec<Action>) {
        if let Some(id) = self.members.of_connection(connection) {
            self.lose(id, now, out);
            self.fence(now, out);
            self.step(now, out);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        if now < self.look_at {
            return self.step(now, out);
        }
        let lost_after = self.settings.lost_after;
        let silent = |m: &Member| m.host.id != self.own && now >= m.heard_at + lost_after;
        let silent: Vec<HostId> =
            self.members.values().filter(|m| silent(m)).map(|m| m.host.id).collect();
        for id in silent {
            let member = &self.members[&id];
            out.push(Action::Close(member.connection));
            self.not_before = self.not_before.max(member.told_at + lost_after);
            self.lose(id, now, out);
        }
        self.look_at = self.next_silence(now);
        self.fence(now, out);
        self.step(now, out);
    }

    /// When a host will have been silent for so long that it counts, if nothing is heard of it until then. Whoever is
    /// silent is looked at twice.
    fn next_silence(&self, now: Duration) -> Duration {
        let limits = [self.settings.fence_after(), self.settings.lost_after];
        let others = self.members.values().filter(|m| m.host.id != self.own);
        let times = others.flat_map(|m| limits.map(|limit| m.heard_at + limit));
        times.filter(|at| *at > now).min().unwrap_or(Duration::MAX)
    }

    /// Ends the workers where so many hosts are silent that the others may go on without this one.
    fn fence(&mut self, now: Duration, out: &mut Vec<Action>) {
        let round = match &self.phase {
            Phase::Running { round, .. } | Phase::Stopping { round, at_once: false, .. } => {
                round.clone()
            }
            _ => return,
        };
        if self.in_reach(&round, now) {
            return;
        }
        match &mut self.phase {
            Phase::Running { ended, .. } => {
                let ended = std::mem::take(ended);
                self.begin_stopping(round, ended, Why::CutOff, now, out);
            }
            Phase::Stopping { ended, at_once, why, .. } => {
                *at_once = true;
                let (why, ended) = (why.clone(), ended.clone());
                self.send_stop(&round, &why, &ended, true, out);
            }
            _ => {}
        }
    }

    /// Whether so many hosts of a round were heard of late that it may go on with them.
    fn in_reach(&self, round: &Round, now: Duration) -> bool {
        let heard = |h: &&Host| {
            let fresh = |m: &Member| now < m.heard_at + self.settings.fence_after();
            h.id == self.own || self.members.get(&h.id).is_some_and(fresh)
        };
        match round.share(round.hosts.iter().filter(heard).count()) {
            Share::Most => true,
            // With a lock the other half may take the tie.
            Share::Half => !self.settings.lock && round.leader == self.own,
            Share::Fewer => false,
        }
    }

    /// When [`tick`](Self::tick) has to be called at the latest.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let silent = Some(self.look_at).filter(|at| *at < Duration::MAX);
        let phase = match &self.phase {
            // What is waited for then comes by a message.
            Phase::Gathering { .. } if self.members.are_some_busy() => None,
            Phase::Gathering { since, last_call } => {
                let limit = *since + self.settings.join_timeout;
                let lacking = self.lacks_quorum(&self.after);
                let patience = lacking.then(|| *since + self.patience());
                let on_the_way = Some(*since + self.settings.lost_after).filter(|at| *at > now);
                let later = Some(*since + LATER).filter(|at| self.settings.lock && *at > now);
                let silent = Some(self.not_before).filter(|at| *at > now);
                let all = [*last_call, patience, on_the_way, later, silent, Some(limit)];
                all.into_iter().flatten().min()
            }
            _ => None,
        };
        silent.into_iter().chain(phase).min()
    }

    /// The program says in this round that its state is saved: hosts that wait may take part now.
    pub fn welcome(&mut self, number: u64, now: Duration, out: &mut Vec<Action>) {
        if matches!(&self.phase, Phase::Running { round, .. } if round.number == number) {
            self.welcome = true;
            self.step(now, out);
            self.welcome = false;
        }
    }

    /// Whether hosts wait for the program to [welcome](Self::welcome) them.
    pub fn awaits_welcome(&self) -> bool {
        self.settings.scale_up == ScaleUp::AtCheckpoint && self.is_change_pending()
    }

    /// Whether hosts wait that the running round has room for.
    pub fn is_change_pending(&self) -> bool {
        match &self.phase {
            Phase::Running { round, .. } => {
                (round.hosts.len() as u32) < self.settings.hosts.1
                    && self.members.len() > round.hosts.len()
            }
            _ => false,
        }
    }

    /// The job's exit code and its report, after [`Action::Ended`]: all launchers get them.
    pub fn finish(&mut self, exit_code: i32, text: String, out: &mut Vec<Action>) {
        self.phase = Phase::Over;
        for member in self.members.values() {
            out.push(Action::Send(
                member.connection,
                ToMember::Over { exit_code, text: text.clone() },
            ));
        }
    }

    /// Ends the job before its workers do.
    pub fn stop(&mut self, now: Duration, out: &mut Vec<Action>) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Running { round, ended } => {
                self.begin_stopping(round, ended, Why::Over, now, out)
            }
            stopping @ Phase::Stopping { .. } => self.phase = stopping,
            Phase::Proposed { round, .. } => self.end_without_workers(round, "it was stopped", out),
            Phase::Gathering { .. } | Phase::Over => {
                let round = self.nobodys_round();
                self.end_without_workers(round, "it was stopped", out);
            }
        }
        self.step(now, out);
    }

    /// A host that is there calls again: it has lost its connection, and its leader with it. Whether the end of that
    /// comes before or after, it has ended its workers, and knows of no proposal. Its place among those who joined.
    fn part_from(&mut self, id: HostId, now: Duration, out: &mut Vec<Action>) -> Option<u64> {
        let Member { connection, order, .. } = *self.members.get(&id)?;
        out.push(Action::Close(connection));
        self.lose(id, now, out);
        Some(order)
    }

    fn join(
        &mut self,
        from: Connection,
        settings: Settings,
        host: Host,
        (busy, order): (bool, Option<u64>),
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        if let Some(why) = self.objection(&settings, &host) {
            out.push(Action::Send(from, ToMember::Refused { why }));
            out.push(Action::Close(from));
            return;
        }
        // One connection is one host's.
        if self.members.of_connection(from).is_some_and(|other| other != host.id) {
            out.push(Action::Close(from));
            return;
        }
        let order = order.unwrap_or_else(|| {
            self.next_order += 1;
            self.next_order
        });
        if host.id != self.own {
            self.look_at = self.look_at.min(now + self.settings.fence_after());
        }
        let (heard_at, told_at) = (now, now);
        self.members.insert(Member { host, connection: from, heard_at, told_at, order, busy });
        if let Phase::Gathering { .. } = self.phase {
            return;
        }
        out.push(Action::Send(from, self.waiting()));
    }

    /// What a host knows of rounds counts if it is the latest: whoever goes on after an earlier one would let the same
    /// hosts go on twice.
    fn learn(&mut self, accepted: History) {
        let Phase::Gathering { .. } = self.phase else { return };
        let before = self.after.latest().map(|round| round.stamp());
        self.after.learn(accepted);
        if let Some(round) = self.after.latest().filter(|round| before < Some(round.stamp())) {
            self.term = self.term.max(Term(round.term.0 + 1));
            self.restarts = self.restarts.max(round.restarts + 1);
        }
    }

    fn waiting(&self) -> ToMember {
        let round = match &self.phase {
            Phase::Running { round, .. }
            | Phase::Stopping { round, .. }
            | Phase::Proposed { round, .. } => Some(round.clone()),
            Phase::Gathering { .. } | Phase::Over => None,
        };
        ToMember::Waiting {
            present: self.members.len() as u32,
            needed: self.settings.hosts.0,
            round,
        }
    }

    /// Why a host cannot take part.
    fn objection(&self, settings: &Settings, host: &Host) -> Option<String> {
        if let Phase::Over = self.phase {
            return Some(format!("job `{}` is over", self.settings.job));
        }
        let others = self.members.values().map(|member| &member.host);
        let own = self.members.get(&self.own).map(|own| &own.host);
        objection((&self.settings, own), others, (settings, host))
    }

    fn ended(
        &mut self,
        id: HostId,
        number: u64,
        verdict: Verdict,
        report: Vec<u8>,
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        self.members.is_ready(id);
        match &mut self.phase {
            Phase::Running { round, ended } if round.number == number => {
                ended.insert(id, (verdict, report));
                let why = match verdict {
                    Verdict::Success => return,
                    Verdict::Failure | Verdict::Stopped => Why::Failed(id),
                    Verdict::Signal(_) => Why::Left(id),
                };
                let (round, ended) = (round.clone(), std::mem::take(ended));
                self.begin_stopping(round, ended, why, now, out);
            }
            Phase::Stopping { round, ended, .. } if round.number == number => {
                ended.insert(id, (verdict, report));
            }
            // Of an earlier round.
            _ => {}
        }
    }

    /// A worker of a host has failed: the others need not wait until its last one has ended.
    fn failing(&mut self, id: HostId, number: u64, now: Duration, out: &mut Vec<Action>) {
        if let Phase::Running { round, ended } = &mut self.phase
            && round.number == number
        {
            let (round, ended) = (round.clone(), std::mem::take(ended));
            self.begin_stopping(round, ended, Why::Failed(id), now, out);
        }
    }

    fn lose(&mut self, id: HostId, now: Duration, out: &mut Vec<Action>) {
        self.members.remove(id);
        match &mut self.phase {
            Phase::Running { round, ended } if round.group_rank(id).is_some() => {
                let (round, ended) = (round.clone(), std::mem::take(ended));
                // Who had ended in peace is not missed.
                if matches!(ended.get(&id), Some((Verdict::Success, _))) {
                    self.phase = Phase::Running { round, ended };
                } else {
                    self.begin_stopping(round, ended, Why::Lost(id), now, out);
                }
            }
            // Before all had accepted. Those who had may go on elsewhere.
            Phase::Proposed { round, .. } if round.group_rank(id).is_some() => {
                self.phase = Phase::Gathering { since: now, last_call: None };
            }
            Phase::Stopping { gone, .. } => {
                gone.insert(id);
            }
            _ => {}
        }
    }

    fn begin_stopping(
        &mut self,
        round: Arc<Round>,
        ended: BTreeMap<HostId, (Verdict, Vec<u8>)>,
        why: Why,
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        let at_once = !self.in_reach(&round, now);
        self.send_stop(&round, &why, &ended, at_once, out);
        let gone =
            round.hosts.iter().map(|h| h.id).filter(|id| !self.members.contains_key(id)).collect();
        self.phase = Phase::Stopping { round, why, ended, gone, at_once };
    }

    fn send_stop(
        &self,
        round: &Round,
        why: &Why,
        ended: &BTreeMap<HostId, (Verdict, Vec<u8>)>,
        at_once: bool,
        out: &mut Vec<Action>,
    ) {
        // Whose worker failed ends its others itself.
        let knows = |host: &Host| *why == Why::Failed(host.id) && !at_once;
        for host in round.hosts.iter().filter(|host| !ended.contains_key(&host.id) && !knows(host))
        {
            if let Some(member) = self.members.get(&host.id) {
                let stop = ToMember::Stop { number: round.number, why: why.clone(), at_once };
                out.push(Action::Send(member.connection, stop));
            }
        }
    }

    /// Goes on as far as it can.
    fn step(&mut self, now: Duration, out: &mut Vec<Action>) {
        loop {
            let pending = self.is_change_pending();
            match &mut self.phase {
                Phase::Over => return,
                Phase::Gathering { .. } => {
                    if !self.try_propose(now, out) {
                        return;
                    }
                }
                Phase::Proposed { round, accepted } => {
                    if accepted.len() < round.hosts.len() {
                        return;
                    }
                    let round = round.clone();
                    if !self.in_reach(&round, now) {
                        // They have accepted long ago, and may have gone on elsewhere since.
                        return;
                    }
                    for host in &round.hosts {
                        let start = ToMember::Start { number: round.number };
                        out.push(Action::Send(self.members[&host.id].connection, start));
                    }
                    self.after.ran(round.clone());
                    self.phase = Phase::Running { round, ended: BTreeMap::new() };
                }
                Phase::Running { round, ended } => {
                    if ended.len() == round.hosts.len() {
                        let (round, ended) = (round.clone(), std::mem::take(ended));
                        out.push(Action::Ended(Ending::new(round, None, None, ended)));
                        self.phase = Phase::Over;
                        return;
                    }
                    let now_is_good = match self.settings.scale_up {
                        ScaleUp::Now => true,
                        ScaleUp::AtCheckpoint => self.welcome,
                        ScaleUp::Never => false,
                    };
                    // Nobody who has ended in peace begins again.
                    if !(now_is_good && ended.is_empty() && pending) {
                        return;
                    }
                    let (round, ended) = (round.clone(), std::mem::take(ended));
                    self.begin_stopping(round, ended, Why::Joined, now, out);
                }
                Phase::Stopping { round, ended, gone, .. } => {
                    // So few that some are missing for sure.
                    if ended.len() + gone.len() < round.hosts.len() {
                        return;
                    }
                    let missing = |h: &&Host| !ended.contains_key(&h.id) && !gone.contains(&h.id);
                    if round.hosts.iter().any(|h| missing(&h)) {
                        return;
                    }
                    self.after_stopping(now, out);
                }
            }
        }
    }

    /// All of a round that was stopped have reported: another one, or the end.
    fn after_stopping(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Phase::Stopping { round, why, ended, gone, .. } =
            std::mem::replace(&mut self.phase, Phase::Over)
        else {
            unreachable!("a round is being stopped")
        };
        // A host that left or came is no failure.
        let lost = gone.iter().any(|id| !ended.contains_key(id));
        let counts = !matches!(why, Why::Joined | Why::Left(_)) || lost;
        let signalled = ended.values().any(|(verdict, _)| matches!(verdict, Verdict::Signal(_)));
        let elastic = self.settings.hosts.0 < self.settings.hosts.1;
        let hindrance = if why == Why::Over || (signalled && !elastic) {
            Some("it was asked to stop".to_owned())
        } else if counts && self.restarts >= self.settings.max_restarts {
            Some(format!("all {} restarts are used up", self.settings.max_restarts))
        } else {
            None
        };
        if hindrance.is_none() && self.lacks_quorum(&self.after) && !self.may_take_tie() {
            out.push(Action::Resign(None));
            return;
        }
        if hindrance.is_some() {
            out.push(Action::Ended(Ending::new(round, Some(why), hindrance, ended)));
            return;
        }
        self.restarts += u32::from(counts);
        // A host whose user asked it to leave has left.
        for (id, (verdict, _)) in &ended {
            if matches!(verdict, Verdict::Signal(_))
                && let Some(member) = self.members.remove(*id)
            {
                out.push(Action::Close(member.connection));
            }
        }
        out.push(Action::Restarting(Ending::new(round, Some(why), None, ended)));
        self.phase = Phase::Gathering { since: now, last_call: None };
    }
}
