//! What a host's launcher knows of its job, and does: it finds the leader, accepts rounds, says that it is there, and
//! takes the leader's place where that is lost. Like the leader it reads no clock and sends nothing itself.
//!
//! A host that has lost its leader ends its workers at once: nobody may count on them. Then it looks for another
//! leader among the hosts of the last round, in their order, and leads itself when none before it is there. Whether
//! those who gather may go on is for [`Leader`](crate::leader::Leader) to know.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::history::History;
use crate::protocol::{Host, HostId, Round, Term, ToLeader, ToMember, Verdict, Why};
use crate::settings::Settings;

/// How long an answer to a call may take before the next host is tried.
const CALL_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often a leader looks for one that came back and knows of nothing.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// How often the user is told of hosts that are waited for.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// Between two rounds of calls.
const PAUSE: Duration = Duration::from_millis(300);

/// What a host wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Call a launcher: by the first of these addresses that leads there. What was called before is hung up on.
    Call {
        /// Which; nothing: whoever is there.
        id: Option<HostId>,
        /// None: where the job begins.
        addresses: Vec<SocketAddr>,
    },
    /// Lead the job, and be a member of it: this host is called, and nothing is sent before it answers.
    Lead {
        /// The new leader's.
        term: Term,
        /// The job's rounds, which it goes on after.
        after: History,
    },
    /// Lead no more: others may.
    Resign,
    /// Send a message to the leader.
    Send(ToLeader),
    /// Tell whoever listens at one of these addresses, and hang up.
    Claim(Vec<SocketAddr>, Arc<Round>),
    /// Start the workers of this round.
    Start(Arc<Round>),
    /// End the workers, and tell [`Member::workers_ended`].
    Stop {
        /// They are not asked.
        at_once: bool,
        /// What ended the round.
        why: Why,
    },
    /// What the job's store answers.
    Answer(u64, Vec<u8>),
    /// The job is over.
    Over {
        /// The job's.
        exit_code: i32,
        /// Its report.
        text: String,
    },
    /// The host cannot take part: why.
    Fail(String),
    /// For the user's eyes.
    Say(String),
}

enum Leading {
    /// This host called one and waits for its answer.
    Called { at: Duration, place: usize },
    /// None was there; calls begin again at this place.
    Pausing { until: Duration, place: usize },
    /// It is connected to its leader, or is the leader.
    Follows { heard_at: Duration, said_at: Duration },
    /// The job is over, or this host cannot take part.
    Done,
}

enum Workers {
    None,
    Run(u64),
    /// They were asked to end.
    End(u64),
}

/// One host of a job.
pub struct Member {
    settings: Settings,
    host: Host,
    /// Where a job that begins has its leader; nothing: here.
    endpoint: Option<Vec<SocketAddr>>,
    leading: Leading,
    leads: bool,
    /// The rounds that it accepted.
    accepted: History,
    /// A later one, which runs without it.
    seen: Option<Arc<Round>>,
    workers: Workers,
    /// Since when it has no leader.
    without_since: Duration,
    /// The leader's clock less this host's, and how far off that may be.
    clock: Option<(i128, Duration)>,
    /// The candidate that was called last, and how often one said that it does not lead.
    place: usize,
    refused: u32,
    /// What the leader's clock was when it last answered.
    leaders_clock: Duration,
    /// When something came from the last leader, and whether that is known to have ended.
    heard_leader_at: Duration,
    leader_is_gone: bool,
    /// When it last said that it leads to whoever sits where the job began.
    claimed_at: Duration,
    /// When the user was last told of hosts that are waited for.
    waiting_said_at: Option<Duration>,
    /// What the last call came to.
    trouble: String,
}

impl Member {
    /// A host of a job that has its leader at one of these addresses; nothing: that leads it.
    pub fn new(
        settings: Settings,
        host: Host,
        endpoint: Option<Vec<SocketAddr>>,
        now: Duration,
        out: &mut Vec<Action>,
    ) -> Self {
        let mut member = Member {
            settings,
            host,
            endpoint,
            leading: Leading::Pausing { until: now, place: 0 },
            leads: false,
            accepted: History::default(),
            seen: None,
            workers: Workers::None,
            without_since: now,
            clock: None,
            place: 0,
            refused: 0,
            leaders_clock: Duration::ZERO,
            heard_leader_at: now,
            leader_is_gone: false,
            claimed_at: Duration::ZERO,
            waiting_said_at: None,
            trouble: String::new(),
        };
        member.search(now, 0, out);
        member
    }

    /// The leader that this host is lacks the hosts to go on: perhaps they gather elsewhere.
    pub fn resigned(&mut self, known: Option<Arc<Round>>, now: Duration, out: &mut Vec<Action>) {
        if self.leads {
            let place = if known.is_some() { 0 } else { self.place + 1 };
            self.seen = known.or(self.seen.take());
            self.lose_leader(now, out);
            self.search(now, place, out);
        }
    }

    /// What whoever calls this host for its leader is told.
    pub fn referral(&self) -> ToMember {
        let follows = matches!(self.leading, Leading::Follows { .. });
        let round = self.latest().filter(|_| follows);
        ToMember::NotLeader { round: round.cloned() }
    }

    /// The latest round that it knows of.
    fn latest(&self) -> Option<&Arc<Round>> {
        self.seen.as_ref().or(self.accepted.latest())
    }

    /// Whether its leader is this host.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// A time of this host by the leader's clock, if it is known.
    pub fn by_leaders_clock(&self, own: Duration) -> Option<Duration> {
        let (offset, _) = self.clock?;
        let nanos = u64::try_from(own.as_nanos() as i128 + offset).ok()?;
        Some(Duration::from_nanos(nanos))
    }

    /// Whom to call, in order: the leader of a job that begins, or the hosts of the last round, this one at its place
    /// if it has one.
    fn candidates(&self) -> Vec<(Option<HostId>, Vec<SocketAddr>)> {
        let Some(round) = self.latest() else {
            return vec![match &self.endpoint {
                Some(addresses) => (None, addresses.clone()),
                None => (Some(self.host.id), Vec::new()),
            }];
        };
        let leader = round.hosts.iter().filter(|h| h.id == round.leader);
        let others = round.hosts.iter().filter(|h| h.id != round.leader);
        let all: Vec<_> = leader.chain(others).map(|h| (Some(h.id), h.addresses.clone())).collect();
        all
    }

    /// Calls the candidate at this place, or leads when that is this host.
    fn search(&mut self, now: Duration, place: usize, out: &mut Vec<Action>) {
        let candidates = self.candidates();
        let Some((id, addresses)) = candidates.get(place) else {
            self.leading = Leading::Pausing { until: now + PAUSE, place: 0 };
            return;
        };
        self.place = place;
        if *id != Some(self.host.id) {
            self.leading = Leading::Called { at: now, place };
            out.push(Action::Call { id: *id, addresses: addresses.clone() });
            return;
        }
        // The leader ends its workers, too, when it hears of too few: not before that may they run elsewhere.
        let safe_at = self.heard_leader_at + self.settings.lost_after;
        if self.accepted.latest().is_some() && !self.leader_is_gone && now < safe_at {
            self.leading = Leading::Pausing { until: safe_at, place };
            return;
        }
        if let Some(round) = self.accepted.latest()
            && round.restarts >= self.settings.max_restarts
        {
            let most = self.settings.max_restarts;
            return self
                .fail(format!("the leader was lost, and all {most} restarts are used up"), out);
        }
        let after = self.accepted.clone();
        let term = after.latest().map_or(Term(0), |round| Term(round.term.0 + 1));
        if let Some(before) = after.latest().filter(|before| before.leader != self.host.id) {
            let leader = before.hosts.iter().find(|host| host.id == before.leader);
            let name = leader.map_or("the leader", |host| host.name.as_str());
            out.push(Action::Say(format!(
                "{name}, which led the job, is lost: this host leads now"
            )));
        }
        self.leads = true;
        self.leading = Leading::Called { at: now, place };
        out.push(Action::Lead { term, after });
    }

    /// The call was answered.
    pub fn called(&mut self, now: Duration, out: &mut Vec<Action>) {
        if let Leading::Called { .. } = self.leading {
            self.leading = Leading::Follows { heard_at: now, said_at: now };
            self.leaders_clock = Duration::ZERO;
            // A leader that never answers was not heard.
            self.heard_leader_at = self.heard_leader_at.max(now);
            out.push(Action::Send(ToLeader::Join {
                settings: self.settings.clone(),
                host: self.host.clone(),
                accepted: self.accepted.clone(),
                busy: !matches!(self.workers, Workers::None),
            }));
        }
    }

    /// The call failed, or what was connected is no more. `refused`: its host says that nobody listens there.
    pub fn hung_up(&mut self, why: &str, refused: bool, now: Duration, out: &mut Vec<Action>) {
        self.trouble = why.to_owned();
        match self.leading {
            Leading::Called { place, .. } => {
                self.leader_is_gone |= refused && place == 0;
                self.search(now, place + 1, out);
            }
            Leading::Follows { .. } => {
                self.lose_leader(now, out);
                self.search(now, 0, out);
            }
            Leading::Pausing { .. } | Leading::Done => {}
        }
    }

    fn lose_leader(&mut self, now: Duration, out: &mut Vec<Action>) {
        if !matches!(self.workers, Workers::None) || !self.leads {
            self.without_since = now;
        }
        self.clock = None;
        if self.leads {
            self.leads = false;
            out.push(Action::Resign);
        }
        let leader = self.accepted.latest().map_or(self.host.id, |round| round.leader);
        self.stop(true, Why::Lost(leader), out);
    }

    fn stop(&mut self, at_once: bool, why: Why, out: &mut Vec<Action>) {
        if let Workers::Run(number) | Workers::End(number) = self.workers {
            self.workers = Workers::End(number);
            out.push(Action::Stop { at_once, why });
        }
    }

    fn fail(&mut self, why: String, out: &mut Vec<Action>) {
        self.stop(true, Why::Over, out);
        self.leading = Leading::Done;
        out.push(Action::Fail(why));
    }

    /// What the leader says.
    pub fn receive(&mut self, message: ToMember, now: Duration, out: &mut Vec<Action>) {
        let Leading::Follows { heard_at, .. } = &mut self.leading else { return };
        if let ToMember::Alive { sent_at, .. } = message {
            // What was long on its way proves no more than that the leader was there after this was sent to it.
            *heard_at = sent_at.max(*heard_at);
            // From now on it may learn that this host has heard it.
            (self.heard_leader_at, self.leader_is_gone) = (now, false);
        }
        match message {
            // Whoever made the connection has read it.
            ToMember::Here { .. } => {}
            ToMember::Refused { why } => self.fail(why, out),
            ToMember::NotLeader { round } => {
                // Either it knows a later round, whose leader is the one to call, or it has not noticed yet what this
                // host has, or it looks for a leader itself.
                let known = self.latest().map(|round| round.stamp());
                let later = round.filter(|round| known.is_none_or(|known| known < round.stamp()));
                let place = if later.is_some() {
                    0
                } else {
                    self.place + usize::from(self.refused % 2 == 1)
                };
                self.refused += 1;
                self.seen = later.or(self.seen.take());
                self.leading = Leading::Pausing { until: now + PAUSE, place };
            }
            ToMember::Waiting { present, needed, round } => {
                let what = match round {
                    Some(_) => "the job runs: this host waits as a spare".into(),
                    None => format!("{present} of at least {needed} hosts are there"),
                };
                // Of many hosts that come one after the other now and then.
                if self.waiting_said_at.is_none_or(|at| now >= at + SAY_EVERY) {
                    self.waiting_said_at = Some(now);
                    out.push(Action::Say(what));
                }
                // Whom to look for where the leader is lost.
                self.seen = round.or(self.seen.take());
            }
            ToMember::Propose { round } => {
                if round.group_rank(self.host.id).is_some() && matches!(self.workers, Workers::None)
                {
                    let (term, number) = (round.term, round.number);
                    self.accepted.proposed(round);
                    self.seen = None;
                    out.push(Action::Send(ToLeader::Accept { term, number }));
                }
            }
            ToMember::Start { number } => {
                if let Some(round) =
                    self.accepted.latest().filter(|round| round.number == number).cloned()
                {
                    self.accepted.ran(round.clone());
                    self.workers = Workers::Run(number);
                    out.push(Action::Start(round));
                }
            }
            ToMember::Stop { number, why, at_once } => match self.workers {
                Workers::Run(running) | Workers::End(running) if running == number => {
                    self.stop(at_once, why, out);
                }
                _ => {}
            },
            ToMember::Alive { sent_at, clock } => {
                self.leaders_clock = clock;
                let round_trip = now.saturating_sub(sent_at);
                if self.clock.is_none_or(|(_, off)| round_trip <= off) {
                    let middle = sent_at + round_trip / 2;
                    let offset = clock.as_nanos() as i128 - middle.as_nanos() as i128;
                    self.clock = Some((offset, round_trip));
                }
            }
            ToMember::Answer { number, reply } => out.push(Action::Answer(number, reply)),
            ToMember::Over { exit_code, text } => {
                self.leading = Leading::Done;
                out.push(Action::Over { exit_code, text });
            }
        }
    }

    /// All workers of the round have ended.
    pub fn workers_ended(
        &mut self,
        verdict: Verdict,
        report: Vec<u8>,
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        let (Workers::Run(number) | Workers::End(number)) = self.workers else { return };
        self.workers = Workers::None;
        if let Leading::Follows { said_at, .. } = &mut self.leading {
            *said_at = now;
            out.push(Action::Send(ToLeader::Ended { number, verdict, report }));
        }
    }

    /// A worker of the round has failed; the others are about to end.
    pub fn workers_failing(&mut self, out: &mut Vec<Action>) {
        if let (Workers::Run(number), Leading::Follows { .. }) = (&self.workers, &self.leading) {
            out.push(Action::Send(ToLeader::Failing { number: *number }));
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        match self.leading {
            Leading::Called { at, place } if now >= at + CALL_TIMEOUT => {
                self.trouble = format!("no answer within {CALL_TIMEOUT:?}");
                self.search(now, place + 1, out);
            }
            Leading::Pausing { until, place } if now >= until => {
                if now >= self.without_since + self.settings.join_timeout {
                    let (trouble, limit) = (self.trouble.clone(), self.settings.join_timeout);
                    return self
                        .fail(format!("no leader was found within {limit:?}: {trouble}"), out);
                }
                self.search(now, place, out);
            }
            Leading::Follows { heard_at, said_at } => {
                if !self.leads && now >= heard_at + self.settings.fence_after() {
                    self.trouble = format!("the leader was silent for {:?}", now - heard_at);
                    self.lose_leader(now, out);
                    self.search(now, 0, out);
                } else if now >= said_at + self.settings.alive_every() {
                    if self.leads
                        && let (Some(round), Some(endpoint)) =
                            (self.accepted.latest(), &self.endpoint)
                        && now >= self.claimed_at + CLAIM_EVERY
                    {
                        self.claimed_at = now;
                        out.push(Action::Claim(endpoint.clone(), round.clone()));
                    }
                    self.leading = Leading::Follows { heard_at, said_at: now };
                    let clock = self.leaders_clock;
                    out.push(Action::Send(ToLeader::Alive { sent_at: now, clock }));
                }
            }
            _ => {}
        }
    }

    /// When [`tick`](Self::tick) has to be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        match self.leading {
            Leading::Called { at, .. } => Some(at + CALL_TIMEOUT),
            Leading::Pausing { until, .. } => Some(until),
            Leading::Follows { said_at, .. } => Some(said_at + self.settings.alive_every()),
            Leading::Done => None,
        }
    }
}
