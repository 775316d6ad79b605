//! What is done to hosts, their network and their programs.

use std::time::Duration;

use torchrs_rendezvous::protocol::Verdict;

use super::{Event, SECOND, World};

#[derive(Debug, Clone)]
pub enum Deed {
    /// The processes are killed; peers hear of it.
    Kill(usize),
    /// Power loss: peers hear nothing.
    Crash(usize),
    /// A new launcher on that host.
    Begin(usize),
    Cut(usize),
    Heal(usize),
    Freeze(usize, Duration),
    FailWorkers(usize),
    /// One fails, and the others end a while later.
    FailWorker(usize),
    /// The program on all hosts says that its state is saved.
    Welcome,
    /// The shared folder answers nobody, or does again.
    FolderGone(bool),
}

impl World {
    pub(super) fn perform(&mut self, deed: Deed) {
        match deed {
            Deed::Begin(host) => self.begin(host),
            Deed::Kill(host) | Deed::Crash(host) => {
                let life = self.launchers[host].life;
                let l = &mut self.launchers[host];
                (l.alive, l.running, l.leader) = (false, None, None);
                let links: Vec<u64> =
                    self.links.iter().filter(|(_, l)| l.open).map(|(k, _)| *k).collect();
                for link in links {
                    let l = &self.links[&link];
                    let (from, to) = (l.from == (host, life), l.to == (host, life));
                    if from || to {
                        if let Deed::Kill(_) = deed {
                            self.hang_up(link, to);
                        } else {
                            self.links.get_mut(&link).unwrap().open = false;
                        }
                    }
                }
            }
            Deed::Cut(host) => self.launchers[host].cut = true,
            Deed::Heal(host) => self.launchers[host].cut = false,
            Deed::Freeze(host, time) => {
                let l = &mut self.launchers[host];
                // One that is frozen is not thawed by it: what it has to do waits for its thaw.
                l.frozen_until = l.frozen_until.max(self.now + time);
            }
            Deed::FailWorkers(host) => {
                let Some(round) = &self.launchers[host].running else { return };
                let round = (round.number, round.term.0);
                self.happen(Event::WorkersEnd { host, verdict: Verdict::Failure, round });
            }
            Deed::FailWorker(host) => {
                let l = &mut self.launchers[host];
                let Some(round) = l.running.as_ref().filter(|_| l.alive) else { return };
                let round = (round.number, round.term.0);
                let mut out = Vec::new();
                l.member.as_mut().unwrap().workers_failing(&mut out);
                self.do_member(host, out);
                let end = Event::WorkersEnd { host, verdict: Verdict::Failure, round };
                self.at(self.now + 2 * SECOND, end);
            }
            Deed::Welcome => {
                for host in 0..self.launchers.len() {
                    let (now, mut out) = (self.now, Vec::new());
                    let l = &mut self.launchers[host];
                    let number = l.running.as_ref().map(|round| round.number);
                    if let (Some(leader), Some(number)) = (&mut l.leader, number) {
                        leader.welcome(number, now, &mut out);
                        self.do_leader(host, out);
                    }
                }
            }
            Deed::FolderGone(is_gone) => self.folder_is_gone = is_gone,
        }
    }
}
