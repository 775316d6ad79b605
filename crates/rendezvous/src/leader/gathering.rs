//! Between two rounds: who is there, whether so few may go on, and the next round's proposal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::members::Member;
use super::{CLAIMS, LATER, Leader, Phase, TELL_EVERY};
use crate::action::{Action, Connection};
use crate::ending::Ending;
use crate::history::History;
use crate::lock::{Taken, Tie};
use crate::protocol::{HostId, Round, Share, ToMember};

impl Leader {
    /// Whether those who are there must not go on after one of these rounds: others might.
    pub(super) fn lacks_quorum(&self, after: &History) -> bool {
        after.rounds().any(|last| match self.share(last) {
            Share::Most => false,
            Share::Half if self.settings.lock => self.ties() <= last.ties,
            Share::Half => last.leader != self.own,
            Share::Fewer => true,
        })
    }

    /// Which part of a round's hosts is there.
    fn share(&self, last: &Round) -> Share {
        last.share(last.hosts.iter().filter(|h| self.members.contains_key(&h.id)).count())
    }

    /// Ties that the next round follows from.
    fn ties(&self) -> u32 {
        self.after.rounds().map(|round| round.ties).max().unwrap_or(0).max(self.ties)
    }

    /// Whether those who are there could go on if this host has the next tie.
    pub(super) fn may_take_tie(&self) -> bool {
        let fewer = |last: &Arc<Round>| self.share(last) == Share::Fewer;
        let refused = self.asked == Some((self.ties() + 1, true));
        self.settings.lock && !refused && !self.after.rounds().any(fewer)
    }

    /// For the user's eyes, where nothing was said of a tie.
    fn why_it_waits(&self) -> Option<Action> {
        let fewest = self.after.rounds().min_by_key(|last| match self.share(last) {
            Share::Fewer => 0,
            Share::Half => 1,
            Share::Most => 2,
        })?;
        let text = match self.share(fewest) {
            Share::Half if !self.settings.lock => {
                "half of the hosts are in reach, and the half with the last leader may go on: this one waits for it \
                 (with --rdzv-lock the one of two halves goes on that is first)"
            }
            Share::Fewer => {
                "less than half of the hosts are in reach, and the others may go on: this one waits for them"
            }
            _ => return None,
        };
        Some(Action::Say(text.to_owned()))
    }

    /// Asks for the next tie, once.
    fn take_tie(&mut self, out: &mut Vec<Action>) {
        let number = self.ties() + 1;
        let begun_by = self.after.latest().map(|round| round.begun_by);
        if let Some(begun_by) = begun_by.filter(|_| self.asked != Some((number, false))) {
            self.asked = Some((number, false));
            let job = self.settings.job.clone();
            out.push(Action::TakeTie(Tie { job, begun_by, number }));
        }
    }

    /// Who has the tie that this leader wanted to take.
    pub fn tie_taken(&mut self, number: u32, taken: Taken, now: Duration, out: &mut Vec<Action>) {
        if self.asked != Some((number, false)) {
            return;
        }
        match taken {
            Taken::Ours => self.ties = self.ties.max(number),
            Taken::Theirs(by) => {
                self.asked = Some((number, true));
                out.push(Action::Say(format!(
                    "half of the hosts are in reach, and {by} goes on with the other half (--rdzv-lock): this half \
                     waits for it"
                )));
            }
            // The next leader, which may be this host, asks again.
            Taken::Failed(why) => out.push(Action::Say(format!(
                "half of the hosts are in reach, and which half goes on cannot be asked: --rdzv-lock {why}"
            ))),
        }
        self.step(now, out);
    }

    /// How long to wait for hosts of the last round. Each of them has another patience, so that they do not go round
    /// in circles.
    pub(super) fn patience(&self) -> Duration {
        let place = self.after.latest().and_then(|last| last.group_rank(self.own)).unwrap_or(0);
        Duration::from_secs(2 + place as u64)
    }

    /// Whether hosts of another leader's last round have not come: they look for a leader, and until they have found
    /// that they are alone their workers may run.
    pub(super) fn are_some_on_their_way(&self) -> bool {
        let others = self.after.rounds().filter(|last| last.leader != self.own);
        let mut hosts = others.flat_map(|last| {
            let hosts = last.hosts.iter().chain(&last.spares);
            hosts.filter(|host| host.id != last.leader)
        });
        hosts.any(|host| !self.members.contains_key(&host.id))
    }

    /// Proposes a round where there are enough hosts for one, and long enough.
    pub(super) fn try_propose(&mut self, now: Duration, out: &mut Vec<Action>) -> bool {
        let Phase::Gathering { since, last_call } = &mut self.phase else {
            unreachable!("gathering")
        };
        let (since, called) = (*since, *last_call);
        let (fewest, most) = self.settings.hosts;
        let present = self.members.len() as u32;
        // Who still ends an earlier leader's workers cannot start others.
        if self.members.are_some_busy() {
            return false;
        }
        let own_is_there = self.members.contains_key(&self.own);
        if self.lacks_quorum(&self.after) {
            let waits = self.are_some_on_their_way() && now < since + LATER;
            if self.may_take_tie() && own_is_there && !waits {
                self.take_tie(out);
            }
            if now >= since + self.patience() {
                self.phase = Phase::Over;
                out.extend(self.why_it_waits());
                out.push(Action::Resign(None));
            } else {
                self.tell_who_waits(now, out);
            }
            return false;
        }
        if present < fewest || !own_is_there {
            if now >= since + self.settings.join_timeout {
                self.give_up(present, out);
            } else {
                // Until there are enough again.
                if let Phase::Gathering { last_call, .. } = &mut self.phase {
                    *last_call = None;
                }
                self.tell_who_waits(now, out);
            }
            return false;
        }
        let some_may_run = self.are_some_on_their_way() && now < since + self.settings.lost_after;
        if some_may_run || now < self.not_before {
            return false;
        }
        // A first round waits a little for more.
        if self.after.latest().is_none() && present < most {
            let at = called.unwrap_or(now + self.settings.last_call.max(CLAIMS));
            if let Phase::Gathering { last_call, .. } = &mut self.phase {
                *last_call = Some(at);
            }
            if now < at {
                self.tell_who_waits(now, out);
                return false;
            }
        }
        let round = Arc::new(self.next_round());
        self.after.proposed(round.clone());
        for host in &round.hosts {
            let propose = ToMember::Propose { round: round.clone() };
            out.push(Action::Send(self.members[&host.id].connection, propose));
        }
        let spares: Vec<Connection> =
            round.spares.iter().map(|host| self.members[&host.id].connection).collect();
        self.phase = Phase::Proposed { round, accepted: BTreeSet::new() };
        for spare in spares {
            out.push(Action::Send(spare, self.waiting()));
        }
        true
    }

    /// Those who have just come at once, all now and then: of many hosts each would hear of each.
    fn tell_who_waits(&mut self, now: Duration, out: &mut Vec<Action>) {
        let all = self.told_at.is_none_or(|at| now >= at + TELL_EVERY);
        for member in self.members.values().filter(|m| all || m.order > self.told) {
            out.push(Action::Send(member.connection, self.waiting()));
        }
        self.told = self.next_order;
        if all {
            self.told_at = Some(now);
        }
    }

    /// The hosts in order: by their own place where they have one, else as in the last round, then as they came. The
    /// leader is the first of those without a place.
    fn next_round(&self) -> Round {
        let last = self.after.latest().map_or(&[][..], |round| &round.hosts);
        let ranks: BTreeMap<HostId, usize> = last.iter().map(|host| host.id).zip(0..).collect();
        let place = |m: &Member| {
            let before = ranks.get(&m.host.id).copied();
            let own = m.host.id != self.own;
            (m.host.node_rank.unwrap_or(u32::MAX), own, before.unwrap_or(usize::MAX), m.order)
        };
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_cached_key(|m| place(m));
        let spares = members.split_off(members.len().min(self.settings.hosts.1 as usize));
        let hosts = |members: Vec<&Member>| members.into_iter().map(|m| m.host.clone()).collect();
        Round {
            term: self.term,
            number: self.after.latest().map_or(0, |round| round.number + 1),
            begun_by: self.after.latest().map_or(self.own, |round| round.begun_by),
            ties: self.ties(),
            restarts: self.restarts,
            leader: self.own,
            hosts: hosts(members),
            spares: hosts(spares),
        }
    }

    fn give_up(&mut self, present: u32, out: &mut Vec<Action>) {
        let names: Vec<&str> = self.members.values().map(|m| m.host.name.as_str()).collect();
        let what = format!(
            "{present} of at least {} hosts came within {:?} ({}): start torchrs-launch on the others with the same \
             options, and look whether they reach this host",
            self.settings.hosts.0,
            self.settings.join_timeout,
            names.join(", ")
        );
        let round = self.nobodys_round();
        self.end_without_workers(round, &what, out);
    }

    pub(super) fn end_without_workers(
        &mut self,
        round: Arc<Round>,
        why: &str,
        out: &mut Vec<Action>,
    ) {
        self.phase = Phase::Over;
        out.push(Action::Ended(Ending::new(round, None, Some(why.to_owned()), BTreeMap::new())));
    }

    pub(super) fn nobodys_round(&self) -> Arc<Round> {
        let nobody = || Round {
            term: self.term,
            number: 0,
            begun_by: self.own,
            ties: 0,
            restarts: 0,
            leader: self.own,
            hosts: Vec::new(),
            spares: Vec::new(),
        };
        self.after.latest().cloned().unwrap_or_else(|| Arc::new(nobody()))
    }
}
